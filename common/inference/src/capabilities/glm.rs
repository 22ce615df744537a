//! What generalised linear models share: a record enters only through its linear predictor xᵀθ, which is one-dimensional
//! Gaussian under q.
//!
//! With a = E_q xᵀθ and s² = Var_q xᵀθ, and f(a, s²) = E_q log p(y | xᵀθ), every derivative follows from two numbers: the
//! *residual* r = ∂f/∂a and the *curvature* c = −2 ∂f/∂s² ≥ 0. Then
//!
//! * ∂/∂μ = r x, ∂/∂v_j = −½ c x_j², ∂/∂log σ_j = −c x_j² σ_j²;
//! * f, r and c of a record that has a weight are multiplied by it;
//! * the contribution to the natural parameters is h = r x + c x∘x∘μ, Λ = c x∘x (c xxᵀ with full covariance).

use dp_pvi_expfam::any::{Gaussian, Standard};
use dp_pvi_posterior::numerics::quadrature::sigmoid_moments_of;
use dp_pvi_privacy::mechanism::{Summation, Summed, Term};
use nalgebra::{DMatrix, DVector};

use crate::capabilities::Gradients;
use crate::mean_field::{MeanField, ScaleCoordinate};
use dp_pvi_records::{RecordTable, RecordView};

pub use dp_pvi_models::predictor::Statistics;

/// A record's predictor, and what a likelihood says of it.
#[derive(Debug, Clone, Copy)]
pub struct Predicted {
    /// a, the record's offset included.
    pub mean: f64,
    /// s².
    pub variance: f64,
    /// y.
    pub target: f64,
    /// Of one record, without its weight; NaN until a likelihood was asked.
    pub statistics: Statistics,
}

impl Predicted {
    /// A predictor of which nothing is said yet.
    #[must_use]
    pub fn new((mean, variance): (f64, f64), target: f64) -> Self {
        Self { mean, variance, target, statistics: Statistics { residual: f64::NAN, curvature: f64::NAN } }
    }
}

/// A likelihood of a linear predictor.
pub trait LinearPredictor: Send + Sync {
    /// Residual and curvature for a predictor with this mean and variance.
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics;

    /// Whether [`Self::statistics`] has a form that is made for many predictors side by side.
    fn lanes(&self) -> Lanes {
        Lanes::One
    }

    /// f = E log p(target | predictor).
    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64;

    /// Weight of xxᵀ in a sum that shall be above the sum of all curvatures: see [`Predictor::largest_curvature`](dp_pvi_models::predictor::Predictor::largest_curvature).
    fn largest_curvature(&self, bound: f64, target: f64) -> f64 {
        let _ = target;
        bound
    }

    /// A curvature of about the size that a record with this target has near an optimum: where an exact fit starts, and nothing else.
    fn typical_curvature(&self, target: f64) -> f64;
}

/// How the statistics of many predictors are made. Closed: code that sees several records at once is here, and is tested for each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    /// One by one.
    One,
    /// r = y − E σ(z) and c = E σ(z)(1 − σ(z)), several at once.
    Sigmoid,
}

/// Residual and curvature of many predictors.
///
/// # Privacy
/// What one of them is told is what [`LinearPredictor::statistics`] says of it, to the last bit: no predictor knows of another one ([`dp_pvi_privacy::proofs::layouts`]).
pub(crate) fn statistics_of_many<M: LinearPredictor + ?Sized>(model: &M, predictors: &mut [Predicted]) {
    match model.lanes() {
        Lanes::One => {
            for predicted in predictors {
                predicted.statistics = model.statistics(predicted.mean, predicted.variance, predicted.target);
            }
        }
        Lanes::Sigmoid => {
            let at = |predicted: &Predicted| (predicted.mean, predicted.variance);
            sigmoid_moments_of(predictors, at, |predicted, moments| {
                predicted.statistics = Statistics { residual: predicted.target - moments.sigmoid, curvature: moments.curvature };
            });
        }
    }
}

/// Residual and curvature of a record at a predictor with this mean and variance, offset included: times its weight.
#[inline]
#[must_use]
pub(crate) fn statistics_of<M: LinearPredictor + ?Sized>(model: &M, record: RecordView<'_>, mean: f64, variance: f64) -> Statistics {
    let Statistics { residual, curvature } = model.statistics(mean, variance, record.target);
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
pub fn scale_sums(model: &dyn LinearPredictor, table: &RecordTable, q: &Standard) -> [f64; 2] {
    let records = table.records().filter(RecordView::is_finite);
    records.fold([0.0; 2], |[count, sum], record| {
        let (mean, variance) = predictor_of(record, q);
        let Statistics { curvature, .. } = model.statistics(mean, variance, record.target);
        let t = scale_statistic(curvature, record.target - mean, variance, f64::MAX);
        [count + record.extra.weight, sum + record.extra.weight * t]
    })
}

/// f of a record at a predictor with this mean and variance, offset included: times its weight.
#[inline]
#[must_use]
pub(crate) fn density_of<M: LinearPredictor + ?Sized>(model: &M, record: RecordView<'_>, mean: f64, variance: f64) -> f64 {
    record.extra.weight * model.expected_log_density(mean, variance, record.target)
}

/// A likelihood that is log-concave in its linear predictor. The local bound then has one maximum, which natural-gradient ascent finds: such a
/// model offers an exact [`LocalOptimum`](crate::capabilities::LocalOptimum) without a further line.
pub trait LogConcave: LinearPredictor {}

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

impl<M: LinearPredictor> Gradients for M {
    #[inline]
    fn gradient(&self, record: RecordView<'_>, q: &MeanField, term: &mut Term) {
        let (mean, variance) = project(record, q);
        let statistics = self.statistics(mean, variance, record.target);
        add_gradient(record, q, &Predicted { statistics, ..Predicted::new((mean, variance), record.target) }, term);
    }

    fn sum(&self, point: &MeanField, sum: Summation<'_, RecordTable>) -> Summed {
        sum.each_in_lanes(
            |unit, _, (), notes| unit.records().for_each(|record| notes.push(Predicted::new(project(record, point), record.target))),
            |predictors| statistics_of_many(self, predictors),
            |unit, _, (), predictors, term| {
                unit.records().zip(predictors).for_each(|(record, predicted)| add_gradient(record, point, predicted, term));
            },
        )
    }
}

/// Adds the gradient of a record to its unit's term.
#[inline]
fn add_gradient(record: RecordView<'_>, q: &MeanField, predicted: &Predicted, term: &mut Term) {
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
pub fn expected_log_likelihood(model: &impl LinearPredictor, record: RecordView<'_>, q: &Gaussian) -> f64 {
    let (mean, variance) = predictor_of(record, q.standard());
    density_of(model, record, mean, variance)
}

/// Σ f over the finite records of a table.
pub fn total(model: &impl LinearPredictor, table: &RecordTable, q: &Gaussian) -> f64 {
    table.records().filter(RecordView::is_finite).map(|record| expected_log_likelihood(model, record, q)).sum()
}

/// Σ r x and Σ c xxᵀ over the finite records of a table, with (r, c) from `statistics`.
pub fn sums(table: &RecordTable, statistics: impl Fn(RecordView<'_>) -> Statistics) -> (DVector<f64>, DMatrix<f64>) {
    let d = table.dimension();
    let mut first = DVector::zeros(d);
    let mut second = DMatrix::zeros(d, d);
    for record in table.records().filter(RecordView::is_finite) {
        let Statistics { residual, curvature } = statistics(record);
        for (k, (j, x)) in record.entries().enumerate() {
            first[j] += residual * x;
            let weight = curvature * x;
            for (i, y) in record.entries().take(k + 1) {
                second[(i, j)] += weight * y;
            }
        }
    }
    second.fill_lower_triangle_with_upper_triangle();
    (first, second)
}
