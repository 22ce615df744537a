//! What generalised linear models share: a record enters only through its linear predictor xᵀθ, which is one-dimensional
//! Gaussian under q.
//!
//! With a = E_q xᵀθ and s² = Var_q xᵀθ, and f(a, s²) = E_q log p(y | xᵀθ), every derivative follows from two numbers: the
//! *residual* r = ∂f/∂a and the *curvature* c = −2 ∂f/∂s² ≥ 0. Then
//!
//! * ∂/∂μ = r x, ∂/∂v_j = −½ c x_j², ∂/∂log σ_j = −c x_j² σ_j²;
//! * f, r and c of a record that has a weight are multiplied by it;
//! * the contribution to the natural parameters is h = r x + c x∘x∘μ, Λ = c x∘x (c xxᵀ with full covariance).

use dp_pvi_math::expfam::any::{Gaussian, Standard};
use dp_pvi_models::predictor::{Predicted, Predictor, Statistics};
use dp_pvi_privacy::mechanism::Term;
use nalgebra::{DMatrix, DVector};

use crate::mean_field::{MeanField, ScaleCoordinate};
use dp_pvi_records::{RecordTable, RecordView};

/// Residual and curvature of a record at a predictor with this mean and variance, offset included: times its weight.
#[must_use]
pub(crate) fn statistics_of(model: &dyn Predictor, record: RecordView<'_>, mean: f64, variance: f64) -> Statistics {
    weighted(record, model.statistics(mean, variance, record.target))
}

/// Statistics of one record, times its weight.
#[inline]
#[must_use]
fn weighted(record: RecordView<'_>, Statistics { residual, curvature }: Statistics) -> Statistics {
    let weight = record.extra.weight;
    Statistics { residual: weight * residual, curvature: weight * curvature }
}

/// t = c((y − a)² + s²) of a record with this curvature, for a predictor with this mean and variance: twice the derivative of f in ln σ², and 1, where σ is the scale of an
/// observation's noise. Where a number overflows it is its bound.
#[inline]
#[must_use]
pub(crate) fn scale_statistic(curvature: f64, error: f64, variance: f64, largest: f64) -> f64 {
    // The smaller of a bound and no number is the bound.
    (curvature * (error * error + variance)).min(largest).max(0.0)
}

/// Σ w and Σ w t over the finite records of a table at q, t being twice the derivative of f in ln σ², and 1.
#[must_use]
pub fn scale_sums(model: &dyn Predictor, table: &RecordTable, q: &Standard) -> [f64; 2] {
    let records = table.records().filter(RecordView::is_finite);
    records.fold([0.0; 2], |[count, sum], record| {
        let (mean, variance) = predictor_of(record, q);
        let Statistics { curvature, .. } = model.statistics(mean, variance, record.target);
        let t = scale_statistic(curvature, record.target - mean, variance, f64::MAX);
        [count + record.extra.weight, sum + record.extra.weight * t]
    })
}

/// f of a record at a predictor with this mean and variance, offset included: times its weight.
#[must_use]
pub(crate) fn density_of(model: &dyn Predictor, record: RecordView<'_>, mean: f64, variance: f64) -> f64 {
    record.extra.weight * model.expected_log_density(mean, variance, record.target)
}

/// Mean and variance of xᵀθ under a mean-field q.
#[inline]
#[must_use]
pub fn project(record: RecordView<'_>, q: &MeanField) -> (f64, f64) {
    let moments = q.moments();
    // Two running sums each: a sum waits for the one before it, and rows are short.
    let (mut mean, mut variance) = ([0.0; 2], [0.0; 2]);
    let (indices, last_index) = record.indices.as_chunks::<2>();
    let (values, last_value) = record.values.as_chunks::<2>();
    for (j, x) in indices.iter().zip(values) {
        for k in 0..2 {
            let [mu, v] = moments[j[k] as usize];
            mean[k] += x[k] * mu;
            variance[k] += x[k] * x[k] * v;
        }
    }
    for (&j, &x) in last_index.iter().zip(last_value) {
        let [mu, v] = moments[j as usize];
        mean[0] += x * mu;
        variance[0] += x * x * v;
    }
    (mean[0] + mean[1] + record.offset, variance[0] + variance[1])
}

/// Adds the gradient of a record to its unit's term.
#[inline]
pub(super) fn add_gradient(record: RecordView<'_>, q: &MeanField, predicted: &Predicted, term: &mut Term) {
    let weight = record.extra.weight;
    let (residual, curvature) = (weight * predicted.statistics.residual, weight * predicted.statistics.curvature);
    // A record with a number that is not finite, or that overflows, contributes 0.
    if !(residual.is_finite() && predicted.variance.is_finite()) {
        return;
    }
    #[allow(clippy::cast_possible_truncation, reason = "2d is a 32-bit number: a mechanism over 2d coordinates exists")]
    let offset = q.dimension() as u32;
    let (indices, values) = (record.indices.iter(), record.values.iter());
    term.extend_beside(indices.clone().copied(), values.clone().map(|x| residual * x));
    // Below 2d, which is a 32-bit number, too.
    let of_scales = indices.clone().map(|j| offset.wrapping_add(*j));
    match q.coordinate() {
        ScaleCoordinate::LogScale => {
            let moments = q.moments();
            term.extend_beside(of_scales, indices.zip(values).map(|(&j, x)| -curvature * x * x * moments[j as usize][1]));
        }
        ScaleCoordinate::HalfVariance { weight } => {
            let factor = -weight * curvature;
            term.extend_beside(of_scales, values.map(|x| factor * x * x));
        }
    }
}

/// Mean and variance of a record's predictor xᵀθ + o under q, o being its offset.
#[must_use]
pub fn predictor_of(record: RecordView<'_>, q: &Standard) -> (f64, f64) {
    let (mean, variance) = q.project(record.indices, record.values);
    (mean + record.offset, variance)
}

/// f at one record, for a q of either family.
#[must_use]
pub fn expected_log_likelihood(model: &dyn Predictor, record: RecordView<'_>, q: &Gaussian) -> f64 {
    let (mean, variance) = predictor_of(record, q.standard());
    density_of(model, record, mean, variance)
}

/// Σ f over the finite records of a table.
#[must_use]
pub fn total(model: &dyn Predictor, table: &RecordTable, q: &Gaussian) -> f64 {
    let (mut sum, mut densities) = (0.0, Vec::new());
    in_chunks(table, q.standard(), |records, predicted| {
        densities.clear();
        model.densities_of_many(predicted, &mut densities);
        sum = records.iter().zip(&densities).fold(sum, |sum, (record, density)| sum + record.extra.weight * density);
    });
    sum
}

/// Records whose likelihoods are evaluated in one call.
const CHUNK: usize = 256;

/// Hands over the finite records of a table in order, with their predictors at q.
fn in_chunks<'t>(table: &'t RecordTable, q: &Standard, mut take: impl FnMut(&[RecordView<'t>], &mut [Predicted])) {
    let mut finite = table.records().filter(RecordView::is_finite);
    let (mut records, mut predicted) = (Vec::new(), Vec::new());
    loop {
        records.clear();
        records.extend(finite.by_ref().take(CHUNK));
        if records.is_empty() {
            return;
        }
        predicted.clear();
        predicted.extend(records.iter().map(|record| Predicted::new(predictor_of(*record, q), record.target)));
        take(&records, &mut predicted);
    }
}

/// w Σ r x and w Σ c xxᵀ over the finite records of a table at q.
pub(crate) fn sums_at(model: &dyn Predictor, table: &RecordTable, weight: f64, q: &Standard) -> (DVector<f64>, DMatrix<f64>) {
    let mut sums = Sums::new(table.dimension());
    in_chunks(table, q, |records, predicted| {
        model.statistics_of_many(predicted);
        for (record, at) in records.iter().zip(predicted) {
            let Statistics { residual, curvature } = weighted(*record, at.statistics);
            sums.add(*record, Statistics { residual: weight * residual, curvature: weight * curvature });
        }
    });
    sums.finish()
}

/// Σ r x and Σ c xxᵀ over the finite records of a table, with (r, c) from `statistics`.
pub fn sums(table: &RecordTable, statistics: impl Fn(RecordView<'_>) -> Statistics) -> (DVector<f64>, DMatrix<f64>) {
    let mut sums = Sums::new(table.dimension());
    table.records().filter(RecordView::is_finite).for_each(|record| sums.add(record, statistics(record)));
    sums.finish()
}

/// Σ r x and the upper triangle of Σ c xxᵀ, so far.
struct Sums {
    first: DVector<f64>,
    second: DMatrix<f64>,
}

impl Sums {
    fn new(d: usize) -> Self {
        Self { first: DVector::zeros(d), second: DMatrix::zeros(d, d) }
    }

    #[inline]
    fn add(&mut self, record: RecordView<'_>, Statistics { residual, curvature }: Statistics) {
        for (k, (j, x)) in record.entries().enumerate() {
            self.first[j] += residual * x;
            let weight = curvature * x;
            for (i, y) in record.entries().take(k + 1) {
                self.second[(i, j)] += weight * y;
            }
        }
    }

    fn finish(mut self) -> (DVector<f64>, DMatrix<f64>) {
        self.second.fill_lower_triangle_with_upper_triangle();
        (self.first, self.second)
    }
}
