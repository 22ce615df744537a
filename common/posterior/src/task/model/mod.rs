//! What the public side knows of a likelihood: its numbers, what labels it needs, how many parameters it has. To add a model, write a
//! file beside these and an arm in [`ModelSpec`], [`ModelFamily`] and their two methods here.

mod gaussian_mixture;
mod latent_dirichlet;
mod linear_regression;
mod logistic_regression;
mod neural_network;
mod pbp_network;
mod poisson_regression;
mod probit_regression;
mod sigmoid_belief;

use std::fmt::{Display, Formatter};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use latent_dirichlet::LatentDirichletSpec;
pub use neural_network::{NetworkOutput, NeuralNetworkSpec};
pub use sigmoid_belief::SigmoidBeliefSpec;

use super::TaskError;
use super::check::invalid;
use super::update::PredictorBounds;
use crate::floor::PrecisionFloor;
use crate::schema::Schema;

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
pub(super) trait ModelRules: Display {
    /// Refuses numbers out of range and schemas that the model cannot read.
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

impl ModelSpec {
    pub(super) fn rules(&self) -> Box<dyn ModelRules> {
        match *self {
            Self::LinearRegression { noise_sd } => Box::new(linear_regression::LinearRegression { noise_sd }),
            Self::LogisticRegression {} => Box::new(logistic_regression::LogisticRegression),
            Self::NeuralNetwork(ref spec) => Box::new(spec.clone()),
            Self::LatentDirichlet(spec) => Box::new(spec),
            Self::SigmoidBelief(spec) => Box::new(spec),
            Self::ProbitRegression {} => Box::new(probit_regression::ProbitRegression),
            Self::PoissonRegression {} => Box::new(poisson_regression::PoissonRegression),
            Self::GaussianMixture { components, noise_sd, .. } => Box::new(gaussian_mixture::GaussianMixture { components, noise_sd }),
            Self::PbpNetwork { ref hidden, .. } => Box::new(pbp_network::PbpNetwork { hidden: hidden.clone() }),
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

impl ModelFamily {
    /// The model with the options that are written beside its name.
    pub(super) fn resolve(self, options: &toml::Table) -> Result<ModelSpec, TaskError> {
        match self {
            Self::LinearRegression => linear_regression::resolve(options),
            Self::LogisticRegression => logistic_regression::resolve(options),
            Self::NeuralNetwork => neural_network::resolve(options),
            Self::LatentDirichlet => latent_dirichlet::resolve(options),
            Self::SigmoidBelief => sigmoid_belief::resolve(options),
            Self::ProbitRegression => probit_regression::resolve(options),
            Self::PoissonRegression => poisson_regression::resolve(options),
            Self::GaussianMixture => gaussian_mixture::resolve(options),
            Self::PbpNetwork => pbp_network::resolve(options),
        }
    }
}

impl Display for ModelSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.rules().fmt(f)
    }
}

/// A model's options, no other key left.
fn options<T: DeserializeOwned>(table: &toml::Table, family: &str) -> Result<T, TaskError> {
    match table.clone().try_into() {
        Ok(options) => Ok(options),
        Err(error) => invalid(&format!("[model] family = \"{family}\": {}", error.to_string().trim_end())),
    }
}
