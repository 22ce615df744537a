//! Models: one room for every likelihood, with its options in a task, its public mathematics and what it offers to methods.
//!
//! To add a model, write a room here, its line in the registry, its numbers in [`ModelSpec`] and [`ModelFamily`], and the room of the same
//! name in `dp-pvi-inference`.

pub mod gaussian_mixture;
pub mod latent_dirichlet;
pub mod linear_regression;
pub mod logistic_regression;
pub mod neural_network;
pub mod pbp_network;
pub mod poisson_regression;
pub mod prediction;
pub mod probit_regression;
pub mod sigmoid_belief;
pub mod spec;

use std::fmt::{Display, Formatter};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use latent_dirichlet::LatentDirichletSpec;
pub use neural_network::{NetworkOutput, NeuralNetworkSpec};
pub use sigmoid_belief::SigmoidBeliefSpec;

use crate::spec::TaskError;
use crate::spec::check::invalid;
use dp_pvi_numerics::floor::PrecisionFloor;
use dp_pvi_schema::Schema;

/// Likelihoods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ModelSpec {
    /// y ~ N(xᵀθ, noise_sd²).
    LinearRegression {
        /// Known standard deviation of the observation noise.
        noise_sd: f64,
    },
    /// P(y = 1) = σ(xᵀθ).
    LogisticRegression {},
    /// A network of ReLU layers.
    NeuralNetwork(NeuralNetworkSpec),
    /// Latent Dirichlet allocation.
    LatentDirichlet(LatentDirichletSpec),
    /// Binary images from hidden binary units.
    SigmoidBelief(SigmoidBeliefSpec),
    /// P(y = 1) = Φ(xᵀθ).
    ProbitRegression {},
    /// y ~ Poisson(exp(xᵀθ)).
    PoissonRegression {},
    /// x ~ (1/J) Σ_j N(μ_j, noise_sd² I).
    GaussianMixture {
        /// J.
        components: u32,
        /// Known standard deviation around every mean.
        noise_sd: f64,
        /// Public seed of the means at which inference starts.
        seed: u32,
    },
    /// A network of ReLU layers and unknown noise, by probabilistic back-propagation.
    PbpNetwork {
        /// Units of every hidden layer.
        hidden: Vec<u32>,
        /// Public seed of the means at which inference starts.
        seed: u32,
    },
}

/// Names of the likelihoods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelFamily {
    /// y ~ N(xᵀθ, noise_sd²).
    LinearRegression,
    /// P(y = 1) = σ(xᵀθ).
    LogisticRegression,
    /// A network of ReLU layers.
    NeuralNetwork,
    /// Latent Dirichlet allocation.
    LatentDirichlet,
    /// A sigmoid belief network with one hidden layer.
    SigmoidBelief,
    /// P(y = 1) = Φ(xᵀθ).
    ProbitRegression,
    /// y ~ Poisson(exp(xᵀθ)).
    PoissonRegression,
    /// A mixture of Gaussians with known variance.
    GaussianMixture,
    /// A network of ReLU layers and unknown noise, by probabilistic back-propagation.
    PbpNetwork,
}

/// What a model says about itself.
pub trait ModelRules: Display {
    /// Refuses numbers out of range and schemas that the model cannot read.
    ///
    /// # Errors
    /// What is refused, in words.
    fn check(&self, schema: &Schema) -> Result<(), TaskError>;

    /// Number of parameters d over `features` columns.
    fn parameters(&self, features: u32) -> u32 {
        features
    }

    /// Names of the parameters that mean something by themselves, in order; none where single parameters do not.
    fn names(&self, schema: &Schema) -> Vec<String> {
        schema.coefficient_names()
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

    /// What the tilted moments of a record are over, where expectation propagation can compute them.
    fn tilted(&self) -> Option<TiltedForm> {
        None
    }

    /// The expected sufficient statistics of a record, where the model has any.
    fn statistics(&self) -> Option<StatisticsForm> {
        None
    }

    /// The mixture, where expectation maximisation has its closed-form step.
    fn mixture(&self) -> Option<MixtureForm> {
        None
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

    /// Whether a record enters only through its linear predictor xᵀθ.
    fn is_linear(&self) -> bool {
        false
    }

    /// Public bounds of the residual and the curvature of a linear predictor, if there are any.
    fn predictor_bounds(&self) -> Option<PredictorBounds> {
        None
    }

    /// Public bound on the norm of one record's gradient of E_q log p in μ, for rows of norm at most `feature_bound`, if there is one.
    fn gradient_bound(&self, feature_bound: f64) -> Option<f64> {
        let _ = feature_bound;
        None
    }
}

/// Public bounds of a model's residual and curvature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictorBounds {
    /// r̄.
    pub residual: f64,
    /// c̄.
    pub curvature: f64,
    /// Whether the residual is the class minus its probability: with the other of two classes it differs by exactly 1.
    pub of_class: bool,
    /// Largest k for which r² + k²c² ≤ r̄² at every record, where the model has one.
    pub free_curvature: Option<f64>,
}

impl PredictorBounds {
    /// Logit: the curvature is free up to φ^(5/2), as natural gradients show.
    #[must_use]
    pub fn logit() -> Self {
        let golden_ratio = f64::midpoint(1.0, 5f64.sqrt());
        Self { residual: 1.0, curvature: 0.25, of_class: true, free_curvature: Some(golden_ratio.powf(2.5)) }
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

impl ModelSpec {
    /// What the model says about itself.
    #[must_use]
    pub fn rules(&self) -> Box<dyn ModelRules> {
        match *self {
            Self::LinearRegression { noise_sd } => Box::new(linear_regression::LinearRegression { noise_sd }),
            Self::LogisticRegression {} => Box::new(logistic_regression::LogisticRegression),
            Self::NeuralNetwork(ref spec) => Box::new(spec.clone()),
            Self::LatentDirichlet(spec) => Box::new(spec),
            Self::SigmoidBelief(spec) => Box::new(spec),
            Self::ProbitRegression {} => Box::new(probit_regression::ProbitRegression),
            Self::PoissonRegression {} => Box::new(poisson_regression::PoissonRegression),
            Self::GaussianMixture { components, noise_sd, seed } => {
                Box::new(gaussian_mixture::GaussianMixture(MixtureForm { components, noise_sd, seed }))
            }
            Self::PbpNetwork { ref hidden, seed } => Box::new(pbp_network::PbpNetwork { hidden: hidden.clone(), seed }),
        }
    }

    /// Means at which the first fit over rows of `features` columns starts, where not at the prior's: the same for everybody.
    #[must_use]
    pub fn fit_start(&self, features: u32) -> Option<Vec<f64>> {
        self.rules().fit_start(features)
    }

    /// How far the global precision may fall below the prior's.
    #[must_use]
    pub fn floor(&self) -> PrecisionFloor {
        self.rules().floor()
    }
}

/// The registry: one line for every model.
const REGISTRY: [&ModelEntry; 9] = [
    &logistic_regression::ENTRY,
    &probit_regression::ENTRY,
    &linear_regression::ENTRY,
    &poisson_regression::ENTRY,
    &neural_network::ENTRY,
    &pbp_network::ENTRY,
    &gaussian_mixture::ENTRY,
    &latent_dirichlet::ENTRY,
    &sigmoid_belief::ENTRY,
];

/// What the registry knows of a model.
pub(crate) struct ModelEntry {
    /// Its family in a task.
    pub(crate) family: ModelFamily,
    /// Its name in `task.toml`.
    pub(crate) name: &'static str,
    /// What it is for, in half a line.
    pub(crate) help: &'static str,
    /// From its options to its numbers.
    pub(crate) resolve: fn(&toml::Table) -> Result<ModelSpec, TaskError>,
}

/// Names of all models as `task.toml` has them, each with what it is for in half a line.
pub fn registered() -> impl Iterator<Item = (&'static str, &'static str)> {
    REGISTRY.iter().map(|entry| (entry.name, entry.help))
}

impl ModelFamily {
    fn entry(self) -> &'static ModelEntry {
        REGISTRY.into_iter().find(|entry| entry.family == self).expect("a test finds every family in the registry")
    }

    /// The model with the options that are written beside its name.
    ///
    /// # Errors
    /// An option that is missing, unknown or of the wrong kind.
    pub fn resolve(self, options: &toml::Table) -> Result<ModelSpec, TaskError> {
        (self.entry().resolve)(options)
    }
}

impl Display for ModelSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.rules().fmt(f)
    }
}

/// A model's options, no other key left.
pub(crate) fn options<T: DeserializeOwned>(table: &toml::Table, family: &str) -> Result<T, TaskError> {
    match table.clone().try_into() {
        Ok(options) => Ok(options),
        Err(error) => invalid(&format!("[model] family = \"{family}\": {}", error.to_string().trim_end())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{ModelFamily, REGISTRY};

    /// The names are those that serde reads, and no family is missing.
    #[test]
    fn every_family_is_in_the_registry_once() {
        for entry in REGISTRY {
            assert_eq!(serde_json::to_value(entry.family).unwrap(), entry.name);
            assert_eq!(entry.family.entry().name, entry.name);
            assert!(!entry.help.is_empty() && entry.help.len() < 100, "{}", entry.name);
        }
        let unknown = serde_json::from_str::<ModelFamily>("\"?\"").unwrap_err().to_string();
        let known = unknown.matches('`').count() / 2 - 1;
        assert_eq!(REGISTRY.len(), known, "{unknown}");
    }
}
