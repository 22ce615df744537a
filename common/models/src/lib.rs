//! Models: one room for every likelihood, with its options in a task, its public mathematics and what it offers to methods.
//!
//! [`effects`] reads the coefficients of any model that has some, in the units that people use.
//!
//! To add a model, write a room here and its line in the registry. A model may also stand in a crate of its own, which calls [`register`] before it reads
//! a task. Where it says its [`Likelihood`], `dp-pvi-inference` works on its records; where it sums them by itself, it has a room of the
//! same name there.

pub mod effects;
pub mod expected;
pub mod gaussian_mixture;
pub mod latent_dirichlet;
pub mod level;
pub mod likelihood;
pub mod linear_regression;
pub mod logistic_regression;
pub mod many_rows;
mod model;
pub mod multinomial_regression;
pub mod negative_binomial_regression;
pub mod neural_network;
pub mod ordinal_regression;
pub mod pbp_network;
pub mod poisson_regression;
pub mod prediction;
pub mod predictor;
pub mod probit_regression;
pub mod reach;
pub mod registry;
pub mod robust_regression;
pub mod rows;
pub mod scaled;
pub mod sigmoid_belief;
pub mod spec;
pub mod survival;
pub mod survival_regression;
pub mod weibull_regression;

use std::fmt::Display;
use std::sync::Arc;

pub use dp_pvi_numerics::learned_scale::LearnedScale;
pub use model::{ModelEntry, ModelFamily, ModelOptions, ModelSpec};

use crate::latent_dirichlet::LatentDirichletSpec;
use crate::likelihood::Likelihood;
use crate::many_rows::ManyRows;
use crate::model::Entry;
use crate::prediction::{Law, Outcome};
use crate::predictor::Predictor;
use crate::registry::{Named, RegisterError, Registry};
use crate::sigmoid_belief::SigmoidBeliefSpec;
use crate::spec::{Prior, PriorSpec, TaskError};
use crate::survival::SurvivalModel;
use dp_pvi_expfam::InvalidParameters;
use dp_pvi_numerics::floor::PrecisionFloor;
use dp_pvi_schema::Schema;

/// What a model says about itself.
pub trait ModelRules: Display {
    /// Refuses numbers out of range and schemas that the model cannot read.
    ///
    /// # Errors
    /// What is refused, in words.
    fn check(&self, schema: &Schema) -> Result<(), TaskError>;

    /// What a record enters by. All that works on records follows from it: fits, gradients, moments, weights, offsets, forecasts, noise-aware intervals.
    fn likelihood(&self) -> Likelihood;

    /// What the posterior says of a row.
    ///
    /// # Errors
    /// The parameters are not those of this model.
    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters>;

    /// Number of parameters d over `features` columns.
    fn parameters(&self, features: u32) -> u32 {
        features
    }

    /// The prior of all parameters, from that of the entries of a feature row. Default: the same, or `spec` for every parameter where they are not those
    /// of rows.
    fn prior(&self, rows: Prior, spec: PriorSpec) -> Prior {
        let d = self.parameters(u32::try_from(rows.len()).unwrap_or(u32::MAX)) as usize;
        if d == rows.len() { rows } else { Prior::isotropic(spec, d) }
    }

    /// Names of the parameters that mean something by themselves, in order; none where single parameters do not.
    fn names(&self, schema: &Schema) -> Vec<String> {
        schema.coefficient_names()
    }

    /// Classes of which each has a copy of all coefficients of a row, one after the other; none where there is one linear predictor.
    fn classes_with_coefficients(&self, schema: &Schema) -> Vec<String> {
        let _ = schema;
        Vec::new()
    }

    /// Parameters of the model's own that stand before the coefficients of a row.
    fn own_before_rows(&self) -> u32 {
        0
    }

    /// What it says of survival times, where it is about such.
    fn survival(&self) -> Option<&dyn SurvivalModel> {
        None
    }

    /// Whether the intercept of a formula is a coefficient. Where it is not, it counts for the coding of factors and is then left out of the rows.
    fn has_intercept(&self) -> bool {
        true
    }

    /// Means at which the first fit starts in place of the prior's, where all parameters alike would be no start.
    fn fit_start(&self, features: u32) -> Option<Vec<f64>> {
        let _ = features;
        None
    }

    /// Number of classes of a label, where the model predicts a class.
    fn classes(&self) -> Option<u32> {
        None
    }

    /// What the tilted moments of a record are over, where expectation propagation can compute them. Default: as the likelihood of a predictor says.
    fn tilted(&self) -> Option<TiltedForm> {
        match self.likelihood() {
            Likelihood::Predictor(predictor) => predictor.tilted().map(|_| TiltedForm::Predictor),
            Likelihood::Rows(_) | Likelihood::Own => None,
        }
    }

    /// The expected sufficient statistics of a record, where the model has any.
    fn statistics(&self) -> Option<StatisticsForm> {
        None
    }

    /// Whether a label is a count: a whole number.
    fn predicts_counts(&self) -> bool {
        false
    }

    /// Whether gradients are summed batch by batch.
    fn is_batched(&self) -> bool {
        false
    }

    /// Default of log σ at which the first fit starts.
    fn initial_log_scale(&self, prior_scale: f64) -> f64 {
        prior_scale.ln()
    }

    /// How far the global precision may fall: log-concave likelihoods only add precision.
    fn floor(&self) -> PrecisionFloor {
        PrecisionFloor::LogConcave
    }

    /// What the linear predictor is measured in, where a coefficient is an effect that people can read.
    fn predictor_scale(&self) -> Option<PredictorScale> {
        None
    }

    /// Whether an offset of the formula is added to the linear predictor. Default: where there is one predictor.
    fn takes_offsets(&self) -> bool {
        matches!(self.likelihood(), Likelihood::Predictor(_))
    }

    /// Standard deviation of an outcome on the scale of the linear predictor: what a difference between sites is compared with. Default: 2, that of a
    /// logit or a logarithm.
    fn outcome_sd(&self) -> f64 {
        2.0
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

    /// Public bounds of the residual and the curvature of a linear predictor, if there are any.
    fn predictor_bounds(&self, ranges: Ranges) -> Option<PredictorBounds> {
        let _ = ranges;
        None
    }

    /// Bound on the entries of the rows by which the curvature of a mean field is bounded, `entry` being that of the schema's rows.
    fn largest_entry(&self, ranges: Ranges, entry: f64) -> f64 {
        let _ = ranges;
        entry
    }

    /// Public bounds of the two blocks of one record's natural gradient, where there are any; `entry` bounds the entries of the schema's rows.
    fn block_bounds(&self, ranges: Ranges, entry: f64) -> Option<BlockBounds> {
        let bounds = self.predictor_bounds(ranges)?;
        Some(BlockBounds {
            mean: bounds.residual * ranges.row,
            precision_full: bounds.curvature * (ranges.row * ranges.row),
            precision_mean_field: bounds.curvature * (ranges.row * self.largest_entry(ranges, entry).min(ranges.row)),
        })
    }

    /// What residuals and curvatures are multiplied by in a record, at most. Default: those of one row of features.
    fn lengths(&self, schema: &Schema) -> Lengths {
        let (radius, entry) = (schema.row_norm_bound(), schema.max_abs_entry());
        let largest = self.largest_entry(Ranges { row: radius, label: schema.max_abs_target() }, entry).min(radius);
        Lengths { gradient: radius, full: radius * radius, diagonal: radius * largest, gram: radius * radius }
    }

    /// Public bound on the norm of one record's gradient of E_q log p in μ, if there is one.
    fn gradient_bound(&self, ranges: Ranges) -> Option<f64> {
        let _ = ranges;
        None
    }
}

impl dyn ModelRules + '_ {
    /// Whether a record enters through linear predictors.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        !matches!(self.likelihood(), Likelihood::Own)
    }

    /// The likelihood, where a record has one linear predictor.
    #[must_use]
    pub fn predictor(&self) -> Option<Arc<dyn Predictor>> {
        if let Likelihood::Predictor(predictor) = self.likelihood() { Some(predictor) } else { None }
    }

    /// Whether records can be weighted by what they would add with the other one of two classes.
    #[must_use]
    pub fn has_two_classes(&self) -> bool {
        self.classes() == Some(2) && self.predictor().is_some()
    }

    /// The mixture, where expectation maximisation has its closed-form step.
    #[must_use]
    pub fn mixture(&self) -> Option<MixtureForm> {
        if let Some(TiltedForm::Mixture(form)) = self.tilted() { Some(form) } else { None }
    }

    /// The likelihood, where a record becomes several rows.
    #[must_use]
    pub fn many_rows(&self) -> Option<Arc<dyn ManyRows>> {
        if let Likelihood::Rows(rows) = self.likelihood() { Some(rows) } else { None }
    }
}

/// What a schema says of every record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranges {
    /// R: no row of features is longer.
    pub row: f64,
    /// No label, after centre and scale, is larger than this or smaller than minus this.
    pub label: f64,
}

/// Largest norms of what residuals and curvatures are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// ‖ρ‖.
    pub gradient: f64,
    /// ‖svec ρρᵀ‖.
    pub full: f64,
    /// ‖ρ∘ρ‖.
    pub diagonal: f64,
    /// ‖Σ svec ρρᵀ‖ over all rows of a record.
    pub gram: f64,
}

/// What a linear predictor xᵀθ is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredictorScale {
    /// ln P(y = 1)/P(y = 0).
    LogOdds,
    /// ln E y of a count.
    LogRate,
    /// ln of a hazard.
    LogHazard,
    /// Φ⁻¹ P(y = 1).
    Probit,
    /// The encoded label.
    Label,
}

/// Public bounds of a model's residual and curvature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictorBounds {
    /// r̄.
    pub residual: f64,
    /// c̄.
    pub curvature: f64,
    /// Largest k for which r² + k²c² ≤ r̄² at every record, where the model has one.
    pub free_curvature: Option<f64>,
}

/// What the blocks of one record's natural gradient are no longer than.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockBounds {
    /// ‖g‖.
    pub mean: f64,
    /// ‖svec H‖.
    pub precision_full: f64,
    /// ‖diag H‖.
    pub precision_mean_field: f64,
}

impl PredictorBounds {
    /// Logit: the curvature is free up to φ^(5/2), as natural gradients show.
    #[must_use]
    pub fn logit() -> Self {
        let golden_ratio = f64::midpoint(1.0, 5f64.sqrt());
        Self { residual: 1.0, curvature: 0.25, free_curvature: Some(golden_ratio.powf(2.5)) }
    }
}

/// What the tilted moments of a record are over.
#[derive(Debug, Clone, PartialEq)]
pub enum TiltedForm {
    /// The parameters, through a linear predictor.
    Predictor,
    /// The means of a mixture.
    Mixture(MixtureForm),
    /// The weights of a network and the precision of its noise, which is the last parameter.
    Network {
        /// Units of every hidden layer.
        hidden: Vec<u32>,
        /// Public seed of the means at which inference starts.
        seed: u32,
    },
}

/// A mixture of Gaussians whose means are drawn at the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixtureForm {
    /// J.
    pub components: u32,
    /// Standard deviation around every mean, known or at the start.
    pub noise_sd: f64,
    /// Public seed of the means at which inference starts.
    pub seed: u32,
}

/// Expected sufficient statistics that a visit can ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StatisticsForm {
    /// Of a Bernoulli likelihood with a logit, by Pólya–Gamma variables.
    PolyaGamma,
    /// Words by topics.
    Documents(LatentDirichletSpec),
    /// Pixels and hidden units.
    Images(SigmoidBeliefSpec),
    /// Of a linear model whose noise is learned.
    LinearNoise {
        /// Standard deviation of an observation that the prior of the noise has as its mean.
        noise_sd: f64,
    },
}

/// The registry: one line for every model.
pub(crate) static MODELS: Registry<ModelEntry> = Registry::new(BUILT_IN);

const BUILT_IN: &[ModelEntry] = &[
    ModelEntry::of::<logistic_regression::LogisticRegression>(),
    ModelEntry::of::<probit_regression::ProbitRegression>(),
    ModelEntry::of::<linear_regression::LinearRegression>(),
    ModelEntry::of::<poisson_regression::PoissonRegression>(),
    ModelEntry::of::<multinomial_regression::MultinomialRegression>(),
    ModelEntry::of::<ordinal_regression::OrdinalRegression>(),
    ModelEntry::of::<survival_regression::SurvivalRegression>(),
    ModelEntry::of::<weibull_regression::WeibullRegression>(),
    ModelEntry::of::<negative_binomial_regression::NegativeBinomialRegression>(),
    ModelEntry::of::<robust_regression::RobustRegression>(),
    ModelEntry::of::<neural_network::NeuralNetworkSpec>(),
    ModelEntry::of::<pbp_network::PbpNetwork>(),
    ModelEntry::of::<gaussian_mixture::GaussianMixture>(),
    ModelEntry::of::<latent_dirichlet::LatentDirichletSpec>(),
    ModelEntry::of::<sigmoid_belief::SigmoidBeliefSpec>(),
];

/// Adds a model of another crate. One that sums records by itself ([`Likelihood::Own`]) registers its private half in `dp-pvi-inference`, too.
///
/// # Errors
/// The name is taken, or is none.
pub fn register<T: ModelOptions>() -> Result<(), RegisterError> {
    MODELS.add(T::ENTRY)
}

/// No model is added from now on: a function over records could leave something in the registry otherwise.
pub fn seal() {
    MODELS.seal();
}

/// Names of all models as `task.toml` has them, each with what it is for in half a line.
pub fn registered() -> impl Iterator<Item = (&'static str, &'static str)> {
    MODELS.all().into_iter().map(|entry| (entry.name(), entry.help()))
}

#[cfg(test)]
mod tests {
    use super::{ModelFamily, registered};

    #[test]
    fn every_name_is_found_and_says_what_it_is_for() {
        for (name, help) in registered() {
            assert_eq!(ModelFamily::named(name).map(ModelFamily::name), Some(name));
            assert!(!help.is_empty() && help.len() < 100, "{name}");
        }
        let names: std::collections::BTreeSet<_> = registered().map(|(name, _)| name).collect();
        assert_eq!((names.len(), ModelFamily::named("linear")), (registered().count(), None));
    }
}
