//! What the tests of models of many rows share.

use dp_pvi_math::expfam::any::Standard;
use dp_pvi_math::expfam::gaussian::full;
use dp_pvi_schema::public::Example;
use nalgebra::{DMatrix, DVector};
use proptest::prelude::*;

use super::{Beliefs, ManyRows, Place, PseudoRows};
use crate::{ModelRules, Ranges};

/// f, g and H of a record at N(mean, covariance), rows being those at `centre`.
pub(crate) fn blocks(model: &dyn ManyRows, record: Example<'_>, q: &Standard, centre: &[f64]) -> (f64, DVector<f64>, DMatrix<f64>) {
    let mut rows = PseudoRows::default();
    model.write(record, &Place { centre: Some(centre), ..Place::at(q) }, &mut rows);
    let (g, h) = summed(&rows, Beliefs::dimension(q));
    (rows.expected(), g, h)
}

pub(crate) fn summed(rows: &PseudoRows, d: usize) -> (DVector<f64>, DMatrix<f64>) {
    let (mut g, mut h) = (DVector::zeros(d), DMatrix::zeros(d, d));
    for (row, at) in rows.iter() {
        let mut dense = DVector::zeros(d);
        row.entries().for_each(|(j, x)| dense[j as usize] = x);
        g += &dense * at.residual;
        h += &dense * dense.transpose() * at.curvature;
    }
    (g, h)
}

fn gaussian(mean: &DVector<f64>, covariance: &DMatrix<f64>) -> Standard {
    #[allow(clippy::unwrap_used)]
    Standard::Full(full::Standard::new(mean.clone(), covariance.clone()).unwrap())
}

/// N(mean, next to nothing).
pub(crate) fn certain(mean: &[f64]) -> Standard {
    gaussian(&DVector::from_column_slice(mean), &(DMatrix::identity(mean.len(), mean.len()) * 1e-12))
}

/// g and H are the derivatives of f, by finite differences, rows being kept as they are.
pub(crate) fn check_derivatives(model: &dyn ManyRows, record: Example<'_>, mean: &DVector<f64>, covariance: &DMatrix<f64>) {
    const STEP: f64 = 1e-5;
    let at = |mean: &DVector<f64>, covariance: &DMatrix<f64>, centre: &DVector<f64>| {
        blocks(model, record, &gaussian(mean, covariance), centre.as_slice())
    };
    let (_, g, h) = at(mean, covariance, mean);
    for j in 0..mean.len() {
        let moved = |sign: f64| {
            let mut moved = mean.clone();
            moved[j] += sign * STEP;
            at(&moved, covariance, mean).0
        };
        let slope = (moved(1.0) - moved(-1.0)) / (2.0 * STEP);
        assert!((slope - g[j]).abs() < 1e-7, "{j}: {slope} {}", g[j]);
        for i in 0..=j {
            let moved = |sign: f64| {
                let mut moved = covariance.clone();
                moved[(i, j)] += 0.5 * sign * STEP;
                moved[(j, i)] += 0.5 * sign * STEP;
                at(mean, &moved, mean).0
            };
            let slope = -2.0 * (moved(1.0) - moved(-1.0)) / (2.0 * STEP);
            assert!((slope - h[(i, j)]).abs() < 1e-6, "{i} {j}: {slope} {}", h[(i, j)]);
        }
    }
}

/// A record of three columns, and N(mean, covariance) over d coordinates.
pub(crate) fn record_and_posterior(d: usize) -> impl Strategy<Value = (Vec<f64>, DVector<f64>, DMatrix<f64>)> {
    let number = -1.0..1.0_f64;
    let root = prop::collection::vec(number.clone(), d * d);
    (prop::collection::vec(number.clone(), 3), prop::collection::vec(-6.0..6.0_f64, d), root, 0.0..3.0_f64).prop_map(
        move |(x, mean, root, scale)| {
            let root = DMatrix::from_vec(d, d, root) * scale;
            (x, mean.into(), &root * root.transpose() + DMatrix::identity(d, d) * 1e-3)
        },
    )
}

/// What a model says of the blocks of every record holds, and of the sum that is above all curvatures.
pub(crate) fn check_bounds<M: ManyRows + ModelRules>(
    model: &M,
    target: f64,
    x: &[f64],
    mean: &DVector<f64>,
    covariance: &DMatrix<f64>,
) -> Result<(), TestCaseError> {
    let slack = 1.0 + 1e-9;
    let d = mean.len();
    let row = x.iter().map(|x| x * x).sum::<f64>().sqrt().max(0.1);
    let entry = x.iter().fold(0.1, |largest: f64, x| largest.max(x.abs()));
    let bounds = model.bounds(Ranges { row, entry, label: 1.0, times: None });
    let record = Example { indices: &[0, 1, 2], values: x, target, offset: 0.0, extra: Default::default() };
    let (_, g, h) = blocks(model, record, &gaussian(mean, covariance), mean.as_slice());
    #[allow(clippy::unwrap_used)]
    let (blocks, bounds) = (bounds.blocks.unwrap(), bounds.predictor.unwrap());
    prop_assert!(g.norm() <= blocks.mean * slack, "{} {}", g.norm(), blocks.mean);
    prop_assert!(g.norm() <= bounds.residual * row * slack && blocks.mean <= bounds.residual * row * slack);
    prop_assert!(h.norm() <= blocks.precision_full * slack, "{} {}", h.norm(), blocks.precision_full);
    prop_assert!(h.diagonal().norm() <= blocks.precision_mean_field * slack);
    prop_assert!(blocks.precision_full <= bounds.curvature * row * row * slack);
    if let Some(free) = bounds.free_curvature {
        let joint = g.norm().hypot(free * h.norm() / row);
        prop_assert!(joint <= blocks.mean * slack, "{joint} {}", blocks.mean);
    }
    prop_assert!(h.clone().symmetric_eigenvalues().min() > -1e-12);
    let mut rows = PseudoRows::default();
    model.write_bound(record, d, bounds.curvature, &mut rows);
    let above = summed(&rows, d).1;
    prop_assert!(above.norm() <= bounds.curvature * row * row * slack, "{} {}", above.norm(), bounds.curvature * row * row);
    if !model.has_moving_rows() {
        prop_assert!((above - h).symmetric_eigenvalues().min() > -1e-12);
    }
    Ok(())
}
