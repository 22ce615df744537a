//! What a model says about itself.

use std::fmt::Display;
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_math::learned_scale::LearnedScale;
use dp_pvi_schema::Schema;

use crate::bounds::{Bounds, Ranges};
use crate::likelihood::Likelihood;
use crate::many_rows::ManyRows;
use crate::parameters::Parameters;
use crate::prediction::{Law, Outcome};
use crate::predictor::Predictor;
use crate::response::{Response, ResponseKind};
use crate::spec::TaskError;
use crate::{MixtureForm, ModelSpec, Own, StatisticsForm, TiltedForm};

/// What a model says about itself. The first five functions are what makes a model; the others are for models that have more to say.
pub trait ModelRules: Display {
    /// Refuses numbers out of range and schemas that the model cannot read.
    ///
    /// # Errors
    /// What is refused, in words.
    fn check(&self, schema: &Schema) -> Result<(), TaskError>;

    /// What a record enters by. All that works on records follows from it: fits, gradients, moments, weights, offsets, forecasts, noise-aware intervals.
    fn likelihood(&self) -> Likelihood;

    /// θ over rows of `features` columns: how many numbers, in which order, under which priors. [`Parameters::of_row`] for one linear predictor.
    fn parameters(&self, features: u32) -> Parameters;

    /// What is predicted, and what its linear predictor is measured in.
    fn response(&self) -> Response<'_>;

    /// What the posterior says of a row.
    ///
    /// # Errors
    /// The parameters are not those of this model.
    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters>;

    /// Public bounds of what a record adds. Default: none, so that a task has to give `residual_bound`, `curvature_bound` or `clip_norm`.
    fn bounds(&self, ranges: Ranges) -> Bounds {
        Bounds::none(ranges)
    }

    /// What is known beforehand of the scale of an observation's noise, where a run learns it. Bounds are then those of (σr, σ²c).
    fn learned_scale(&self) -> Option<LearnedScale> {
        None
    }

    /// The same model with this scale of an observation's noise as a known one, where it is learned.
    fn with_scale(&self, scale: f64) -> Option<ModelSpec> {
        let _ = scale;
        None
    }

    /// Means at which the first fit starts in place of the prior's, where all parameters alike would be no start.
    fn fit_start(&self, features: u32) -> Option<Vec<f64>> {
        let _ = features;
        None
    }
}

/// What follows from what a model says.
impl dyn ModelRules + '_ {
    /// Whether a record enters through linear predictors.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        !matches!(self.likelihood(), Likelihood::Own(_))
    }

    /// The likelihood, where a record has one linear predictor.
    #[must_use]
    pub fn predictor(&self) -> Option<Arc<dyn Predictor>> {
        if let Likelihood::Predictor(predictor) = self.likelihood() { Some(predictor) } else { None }
    }

    /// The likelihood, where a record becomes several rows.
    #[must_use]
    pub fn many_rows(&self) -> Option<Arc<dyn ManyRows>> {
        if let Likelihood::Rows(rows) = self.likelihood() { Some(rows) } else { None }
    }

    /// Whether records can be weighted by what they would add with the other one of two classes.
    #[must_use]
    pub fn has_two_classes(&self) -> bool {
        matches!(self.response().kind, ResponseKind::Classes(2)) && self.predictor().is_some()
    }

    /// Whether an offset of the formula is added to the linear predictor.
    #[must_use]
    pub fn takes_offsets(&self) -> bool {
        match self.likelihood() {
            Likelihood::Predictor(_) => true,
            Likelihood::Rows(rows) => rows.takes_offsets(),
            Likelihood::Own(_) => false,
        }
    }

    /// What the tilted moments of a record are over, where expectation propagation can compute them.
    #[must_use]
    pub fn tilted(&self) -> Option<TiltedForm> {
        match self.likelihood() {
            Likelihood::Predictor(predictor) => predictor.tilted().map(|_| TiltedForm::Predictor),
            Likelihood::Own(Own::Tilted(form)) => Some(form),
            Likelihood::Rows(_) | Likelihood::Own(_) => None,
        }
    }

    /// The mixture, where expectation maximisation has its closed-form step.
    #[must_use]
    pub fn mixture(&self) -> Option<MixtureForm> {
        if let Some(TiltedForm::Mixture(form)) = self.tilted() { Some(form) } else { None }
    }

    /// The expected sufficient statistics of a record, where the model has any.
    #[must_use]
    pub fn statistics(&self) -> Option<StatisticsForm> {
        match self.likelihood() {
            Likelihood::Predictor(predictor) => predictor.expected_statistics(),
            Likelihood::Own(Own::Statistics(form)) => Some(form),
            Likelihood::Rows(_) | Likelihood::Own(_) => None,
        }
    }

    /// log σ at which the first fit starts, where the model sums gradients by itself, batch by batch.
    #[must_use]
    pub fn batched(&self) -> Option<f64> {
        if let Likelihood::Own(Own::Gradients { initial_log_scale }) = self.likelihood() { Some(initial_log_scale) } else { None }
    }

    /// How far the global precision may fall: what enters through linear predictors only adds precision.
    #[must_use]
    pub fn floor(&self) -> PrecisionFloor {
        if self.is_linear() { PrecisionFloor::LogConcave } else { PrecisionFloor::General }
    }

    /// Names of the parameters over the rows of a schema: see [`Parameters::names`].
    #[must_use]
    pub fn names(&self, schema: &Schema) -> Vec<String> {
        self.parameters(schema.dimension()).names(schema)
    }

    /// Classes with a copy of all coefficients of a row each: see [`Parameters::classes`].
    #[must_use]
    pub fn classes_with_coefficients(&self, schema: &Schema) -> Vec<String> {
        self.parameters(schema.dimension()).classes(schema)
    }

    /// Parameters of the model's own that are before the coefficients of a row.
    #[must_use]
    pub fn own_before_rows(&self) -> u32 {
        self.parameters(1).before_rows()
    }

    /// Whether the intercept of a formula is a coefficient.
    #[must_use]
    pub fn has_intercept(&self) -> bool {
        self.parameters(1).has_intercept()
    }

    /// Whether it predicts something: a column that the task's formula names before `~`.
    #[must_use]
    pub fn has_outcome(&self) -> bool {
        !matches!(self.response().kind, ResponseKind::Row)
    }
}
