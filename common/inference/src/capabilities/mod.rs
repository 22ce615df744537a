//! What models can do, as the methods ask for it, and the mathematics that several models share to do it.
//!
//! A method asks a [`Model`] for a capability and never for its name, so a new model serves every method whose capability it offers. A likelihood of one linear
//! predictor has its engines in [`predictor`], one of several rows in [`many_rows`].
//!
//! | capability | used by |
//! |---|---|
//! | [`LocalOptimum`] | PVI without noise, methods over shards |
//! | [`Gradients`], [`BatchedGradients`] | DP optimisation, global VI, the committee machine |
//! | [`MomentMatching`] | expectation propagation |
//! | [`Predictor`], [`ManyRows`] | bounded natural gradients |
//! | [`ExpectedStatistics`](statistics::ExpectedStatistics) | VIPS |

mod dual;
pub mod glm;
mod indicator;
pub mod many_rows;
pub(crate) mod optimum;
pub mod predictor;
pub mod statistics;
pub mod tilted;

use dp_pvi_accounting::ClipNorm;
use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_models::many_rows::ManyRows;
use dp_pvi_models::predictor::Predictor;
use dp_pvi_posterior::task::AdaptiveClipSpec;
use dp_pvi_privacy::mechanism::{BatchSummation, Summation, Summed, Term};
use nalgebra::{DMatrix, DVector};

pub(crate) use self::indicator::WithIndicator;
use self::tilted::MomentMatching;
use crate::error::InferenceError;
use crate::mean_field::MeanField;
use dp_pvi_records::{RecordTable, RecordView};

/// A likelihood and its capabilities.
pub trait Model: Send + Sync {
    /// E_q log p(record | θ).
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64;

    /// The exact local optimum, where it can be computed.
    fn local_optimum(&self) -> Option<&dyn LocalOptimum> {
        None
    }

    /// Residual and curvature of a linear predictor, where the likelihood has one.
    fn linear_predictor(&self) -> Option<&dyn Predictor> {
        None
    }

    /// The rows that a record becomes, where it has several linear predictors.
    fn many_rows(&self) -> Option<&dyn ManyRows> {
        None
    }

    /// Gradients that are summed batch by batch, where single ones would cost too much.
    fn batch_gradients(&self) -> Option<&dyn BatchedGradients> {
        None
    }

    /// Moment matching in a family, where tilted moments can be computed.
    fn moment_matching(&self, family: Family) -> Option<Box<dyn MomentMatching>> {
        let _ = family;
        None
    }

    /// Gradients, where they can be computed record by record.
    fn gradients(&self) -> Option<&dyn Gradients> {
        None
    }
}

/// Σ g and ΣH over the finite records of a table at q, of a model that has them.
pub(crate) fn sums(model: &dyn Model, table: &RecordTable, q: &Standard) -> Option<(DVector<f64>, DMatrix<f64>)> {
    if let Some(rows) = model.many_rows() {
        return Some(many_rows::sums(rows, table, q));
    }
    Some(glm::sums_at(model.linear_predictor()?, table, 1.0, q))
}

/// The maximiser of the local bound.
pub trait LocalOptimum: Send + Sync {
    /// argmax over q of w Σ E_q log p(record | θ) − KL(q‖cavity), in the family of `cavity`, with w = `weight` > 0 (1, or the number of
    /// shards where each stands for all of them). Iterations, where there are any, begin at the mean of `start` and end when no parameter
    /// changes by more than `tolerance` of the largest. Records that are not finite contribute 0.
    ///
    /// # Errors
    /// The numbers leave the range of `f64`.
    fn weighted_optimum(
        &self,
        table: &RecordTable,
        weight: f64,
        tolerance: f64,
        cavity: &Gaussian,
        start: &Gaussian,
    ) -> Result<Gaussian, InvalidParameters>;

    /// The same with w = 1, to the last digits.
    ///
    /// # Errors
    /// The numbers leave the range of `f64`.
    fn local_optimum(&self, table: &RecordTable, cavity: &Gaussian, start: &Gaussian) -> Result<Gaussian, InvalidParameters> {
        self.weighted_optimum(table, 1.0, 1e-12, cavity, start)
    }
}

/// Gradients of E_q log p(record | θ) under a mean-field q.
pub trait Gradients: Send + Sync {
    /// Adds one record's gradient to `term`: coordinates 0..d are ∂/∂μ, coordinates d..2d are ∂/∂t with t the scale coordinate of
    /// `q`. Only the record's non-zero entries are touched, in ascending order.
    fn gradient(&self, record: RecordView<'_>, q: &MeanField, term: &mut Term);

    /// The clipped sum over a table at a point: of every unit its records' gradients, with the bits of [`Gradients::gradient`].
    fn sum(&self, point: &MeanField, sum: Summation<'_, RecordTable>) -> Summed {
        sum.each(|unit, _, (), term| unit.records().for_each(|record| self.gradient(record, point, term)))
    }
}

/// Gradients as [`Gradients`] defines them, for models that compute those of many records at once.
pub trait BatchedGradients: Send + Sync {
    /// Refuses a number of parameters that the model cannot have.
    ///
    /// # Errors
    /// It has another number.
    fn check(&self, dimension: usize) -> Result<(), InferenceError>;

    /// The clipped sum over a table at a point; with a clipping norm that adapts, every unit also reports whether it was within it.
    ///
    /// # Errors
    /// As [`Self::check`].
    fn sum(
        &self,
        point: &MeanField,
        adaptive: Option<(AdaptiveClipSpec, ClipNorm)>,
        sum: BatchSummation<'_, RecordTable>,
    ) -> Result<Summed, InferenceError>;
}
