//! The mean-field optimum of a few records, in as many unknowns as there are records.
//!
//! At the optimum μ = μ_c + Λ_c⁻¹Xᵀu and Λ = Λ_c + w Σ c_i x_i², with u_i = w r_i, where r_i and c_i are the record's residual and curvature at
//! its logit N(a_i, s²_i): a = a_c + G u with G = XΛ_c⁻¹Xᵀ, s²_i = Σ_j x_ij²/Λ_j. For fixed s² the first set of equations maximises
//! w Σ f_i(a_i) − ½uᵀGu, which is concave: Newton steps (I + w diag(c) G)δ = w r − u with backtracking. The second set follows c, and both are
//! repeated until nothing moves.

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::predictor::{Predictor, Statistics};
use nalgebra::{DMatrix, DVector};

use crate::capabilities::glm::{density_of, statistics_of};
use dp_pvi_records::{RecordTable, RecordView};

/// Iterations of either set of equations; a handful suffice.
const ITERATIONS: usize = 60;
/// Times that a step is halved.
const HALVINGS: usize = 20;
/// Records up to which the small system is worth it.
const FEW: usize = 48;
/// A step is accepted if the bound falls by less than this share of 1 + |bound|.
const SLACK: f64 = 1e-13;

/// argmax of w Σ E_q log p(record | θ) − KL(q‖cavity) over mean-field q; the cavity must be a mean field. `None`: no record or too many, a number
/// that is not finite, or a search that did not end; the search over columns takes those.
pub(crate) fn optimum(
    model: &dyn Predictor,
    table: &RecordTable,
    weight: f64,
    tolerance: f64,
    cavity: &Gaussian,
) -> Option<Result<Gaussian, InvalidParameters>> {
    let records: Vec<RecordView<'_>> = table.records().take(FEW + 1).collect();
    if records.is_empty() || records.len() > FEW || !records.iter().all(RecordView::is_finite) {
        return None;
    }
    if let [record] = records.as_slice() {
        single(model, *record, weight, tolerance, cavity)
    } else {
        few(model, &records, weight, tolerance, cavity)
    }
}

/// One record: with g = Σ x_j²/Λ_c,j, a = a_c + w r g and s² = Σ x_j²/(Λ_c,j + w c x_j²). The first equation is increasing in a, so Newton's
/// steps are kept in a bracket.
fn single(
    model: &dyn Predictor,
    record: RecordView<'_>,
    weight: f64,
    tolerance: f64,
    cavity: &Gaussian,
) -> Option<Result<Gaussian, InvalidParameters>> {
    let d = cavity.family().dimension();
    let precision = &cavity.natural()[d..];
    let entries = || record.indices.iter().map(|&j| j as usize).zip(record.values);
    // a is the predictor without its offset.
    let (start, reach) = cavity.standard().project(record.indices, record.values);
    let statistics = |a: f64, s2: f64| statistics_of(model, record, a + record.offset, s2);
    let spread = |curvature: f64| entries().map(|(j, x)| x * x / (precision[j] + weight * curvature * x * x)).sum::<f64>();
    let (mut a, mut s2) = (start, spread(record.extra.weight * model.typical_curvature(record.target)));
    for _ in 0..ITERATIONS {
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        let mut at = statistics(a, s2);
        for _ in 0..ITERATIONS {
            let excess = a - start - weight * at.residual * reach;
            *(if excess > 0.0 { &mut high } else { &mut low }) = a;
            let newton = a - excess / (1.0 + weight * at.curvature * reach);
            // At the root itself Newton's step ends on the bracket's edge.
            let next = if newton >= low && newton <= high { newton } else { 0.5 * (low + high) };
            if !next.is_finite() {
                return None;
            }
            let still = (next - a).abs() <= 0.1 * tolerance * (1.0 + a.abs());
            a = next;
            at = statistics(a, s2);
            if still {
                break;
            }
        }
        let next = spread(at.curvature);
        let still = (next - s2).abs() <= 0.1 * tolerance * s2;
        s2 = next;
        if still {
            let (r, c) = (weight * at.residual, weight * at.curvature);
            let mut natural = cavity.natural().to_vec();
            for (j, x) in entries() {
                let new = precision[j] + c * x * x;
                natural[j] = new * (cavity.standard().mean()[j] + r * x / precision[j]);
                natural[d + j] = new;
            }
            return Some(Gaussian::from_natural(*cavity.family(), natural));
        }
    }
    None
}

/// Several records.
fn few(
    model: &dyn Predictor,
    records: &[RecordView<'_>],
    weight: f64,
    tolerance: f64,
    cavity: &Gaussian,
) -> Option<Result<Gaussian, InvalidParameters>> {
    let (d, n) = (cavity.family().dimension(), records.len());
    let precision = &cavity.natural()[d..];
    let projected: Vec<(f64, f64)> = records.iter().map(|r| cavity.standard().project(r.indices, r.values)).collect();
    let start = DVector::from_iterator(n, projected.iter().map(|p| p.0));
    let gram = gram(records, precision);
    let mut fitted = precision.to_vec();
    let mut s2: Vec<f64> = projected.iter().map(|p| p.1).collect();
    let mut u = DVector::zeros(n);
    let statistics = |a: &DVector<f64>, s2: &[f64]| -> Vec<Statistics> {
        records.iter().zip(s2).zip(a.iter()).map(|((record, s2), a)| statistics_of(model, *record, *a + record.offset, *s2)).collect()
    };
    for _ in 0..ITERATIONS {
        let bound = |u: &DVector<f64>, gu: &DVector<f64>| {
            let fit: f64 = records
                .iter()
                .zip(&s2)
                .enumerate()
                .map(|(i, (record, s2))| density_of(model, *record, start[i] + gu[i] + record.offset, *s2))
                .sum();
            weight * fit - 0.5 * u.dot(gu)
        };
        let mut gu = &gram * &u;
        let mut value = bound(&u, &gu);
        let mut at = statistics(&(&start + &gu), &s2);
        for _ in 0..ITERATIONS {
            let system = DMatrix::from_fn(n, n, |i, j| weight * at[i].curvature * gram[(i, j)] + f64::from(u8::from(i == j)));
            let slope = DVector::from_fn(n, |i, _| weight * at[i].residual - u[i]);
            let step = system.lu().solve(&slope)?;
            let mut length = 1.0;
            let mut accepted = None;
            for _ in 0..=HALVINGS {
                let next = &u + &step * length;
                let next_gu = &gram * &next;
                let next_value = bound(&next, &next_gu);
                if next_value >= value - SLACK * (1.0 + value.abs()) {
                    accepted = Some((next, next_gu, next_value));
                    break;
                }
                length *= 0.5;
            }
            let (next, next_gu, next_value) = accepted?;
            let still = gu.iter().zip(next_gu.iter()).all(|(old, new)| (old - new).abs() <= 0.1 * tolerance * (1.0 + new.abs()));
            (u, gu, value) = (next, next_gu, next_value);
            at = statistics(&(&start + &gu), &s2);
            if still {
                break;
            }
        }
        fitted.copy_from_slice(precision);
        for (record, at) in records.iter().zip(&at) {
            record.indices.iter().zip(record.values).for_each(|(&j, x)| fitted[j as usize] += weight * at.curvature * x * x);
        }
        let next: Vec<f64> =
            records.iter().map(|r| r.indices.iter().zip(r.values).map(|(&j, x)| x * x / fitted[j as usize]).sum()).collect();
        let still = next.iter().zip(&s2).all(|(new, old)| (new - old).abs() <= 0.1 * tolerance * (1.0 + new));
        s2 = next;
        if still {
            let mut mean = cavity.standard().mean().to_vec();
            for (record, at) in records.iter().zip(&at) {
                let pull = weight * at.residual;
                record.indices.iter().zip(record.values).for_each(|(&j, x)| mean[j as usize] += pull * x / precision[j as usize]);
            }
            let natural = fitted.iter().zip(&mean).map(|(l, m)| l * m).chain(fitted.iter().copied()).collect();
            return Some(Gaussian::from_natural(*cavity.family(), natural));
        }
    }
    None
}

/// XΛ⁻¹Xᵀ of sparse rows.
fn gram(records: &[RecordView<'_>], precision: &[f64]) -> DMatrix<f64> {
    let n = records.len();
    let mut dense = vec![0.0; precision.len()];
    let mut gram = DMatrix::zeros(n, n);
    for (i, row) in records.iter().enumerate() {
        row.indices.iter().zip(row.values).for_each(|(&j, x)| dense[j as usize] = x / precision[j as usize]);
        for (k, other) in records.iter().enumerate().take(i + 1) {
            let product: f64 = other.indices.iter().zip(other.values).map(|(&j, x)| x * dense[j as usize]).sum();
            gram[(i, k)] = product;
            gram[(k, i)] = product;
        }
        row.indices.iter().for_each(|&j| dense[j as usize] = 0.0);
    }
    gram
}
