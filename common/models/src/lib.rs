//! Models: one module for every likelihood, with its options in a task, its public mathematics and what it offers to methods.
//!
//! [`effects`] reads the coefficients of any model that has some, in the units that people use.
//!
//! To add a model, write a module here and its line in the registry. A model may also be in a crate of its own, which calls [`register`] before it reads
//! a task. Where it says its [`Likelihood`](likelihood::Likelihood), `dp-pvi-inference` works on its records; where it sums them by itself, it has a module of the
//! same name there.

pub mod bounds;
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
pub mod parameters;
pub mod pbp_network;
pub mod poisson_regression;
pub mod prediction;
pub mod predictor;
pub mod probit_regression;
pub mod registry;
pub mod response;
pub mod robust_regression;
pub mod rows;
mod rules;
pub mod scaled;
pub mod sigmoid_belief;
pub mod spec;
pub mod start;
pub mod survival;
pub mod survival_regression;
pub mod typical;
pub mod weibull_regression;

pub use bounds::{BlockBounds, Bounds, Lengths, PredictorBounds, Ranges};
pub use dp_pvi_math::learned_scale::LearnedScale;
pub use model::{MODEL_KEYS, ModelEntry, ModelFamily, ModelOptions, ModelSpec};
pub use response::PredictorScale;
pub use rules::ModelRules;

use crate::model::Entry;
use crate::registry::{Named, RegisterError, Registry};

/// What a model that sums records by itself offers to updates.
#[derive(Debug, Clone, PartialEq)]
pub enum Own {
    /// Gradients, summed batch by batch.
    Gradients {
        /// Default of log σ at which the first fit starts.
        initial_log_scale: f64,
    },
    /// Tilted moments, for expectation propagation.
    Tilted(TiltedForm),
    /// Expected sufficient statistics.
    Statistics(StatisticsForm),
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
    Documents(latent_dirichlet::LatentDirichletSpec),
    /// Pixels and hidden units.
    Images(sigmoid_belief::SigmoidBeliefSpec),
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

/// Adds a model of another crate. One that sums records by itself ([`Likelihood::Own`](likelihood::Likelihood::Own)) registers its private half in `dp-pvi-inference`, too.
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
