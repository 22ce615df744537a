//! Models and what they can do.
//!
//! A model is a likelihood p(record | θ). Updates do not know models; they ask for a *capability*, a trait that a model may
//! offer. To add a model, write a folder beside the two that are here and add an arm to [`from_spec`].
//!
//! | capability | used by |
//! |---|---|
//! | [`LocalOptimum`] | PVI without noise |
//! | [`Gradients`] | DP optimisation |
//! | [`MomentMatching`] | expectation propagation |
//! | [`LinearPredictor`] | bounded natural gradients |
//! | [`neural_network::BatchGradients`] | DP optimisation, over batches |
//! | [`statistics::ExpectedStatistics`] | VIPS |

mod dual;
pub mod gaussian_mixture;
pub mod glm;
pub mod lda;
pub mod linear_regression;
pub mod logistic_regression;
pub mod neural_network;
mod optimum;
pub mod pbp_network;
pub mod poisson;
pub mod polya_gamma;
pub mod probit;
pub mod sigmoid_belief;
pub mod statistics;
pub mod tilted;
pub mod unknown_noise;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
mod tests;

use dp_pvi_expfam::InvalidParameters;
use dp_pvi_expfam::any::{Family, Gaussian};
use dp_pvi_posterior::task::ModelSpec;
use dp_pvi_privacy::mechanism::Term;

use self::glm::LinearPredictor;
use self::tilted::MomentMatching;
use crate::point::MeanField;
use crate::records::{RecordTable, RecordView};

/// A likelihood and its capabilities.
pub trait Model: Send + Sync {
    /// E_q log p(record | θ).
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64;

    /// The exact local optimum, where it can be computed.
    fn local_optimum(&self) -> Option<&dyn LocalOptimum> {
        None
    }

    /// Residual and curvature of a linear predictor, where the likelihood has one.
    fn linear_predictor(&self) -> Option<&dyn LinearPredictor> {
        None
    }

    /// The network, where the likelihood is one: gradients come batch by batch.
    fn network(&self) -> Option<&neural_network::NeuralNetwork> {
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

/// The maximiser of the local bound (algorithms, section 5 step 2).
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

/// Gradients of E_q log p(record | θ) under a mean-field q (algorithms, sections 1.1 and 2).
pub trait Gradients: Send + Sync {
    /// Adds one record's gradient to `term`: coordinates 0..d are ∂/∂μ, coordinates d..2d are ∂/∂t with t the scale coordinate of
    /// `q`. Only the record's non-zero entries are touched, in ascending order.
    fn gradient(&self, record: RecordView<'_>, q: &MeanField, term: &mut Term);
}

/// The registry: one arm for every model.
#[must_use]
pub fn from_spec(spec: &ModelSpec) -> Box<dyn Model> {
    match *spec {
        ModelSpec::LinearRegression { noise_sd } => Box::new(linear_regression::LinearRegression::new(noise_sd)),
        ModelSpec::LogisticRegression {} => Box::new(logistic_regression::LogisticRegression),
        ModelSpec::NeuralNetwork(ref spec) => Box::new(neural_network::NeuralNetwork::new(spec.clone())),
        ModelSpec::ProbitRegression {} => Box::new(probit::Probit),
        ModelSpec::PoissonRegression {} => Box::new(poisson::Poisson),
        ModelSpec::LatentDirichlet(_) => Box::new(lda::TopicModel),
        ModelSpec::SigmoidBelief(_) => Box::new(sigmoid_belief::ImageModel),
        ModelSpec::GaussianMixture { components, noise_sd, .. } => {
            Box::new(gaussian_mixture::MixtureModel { components: components as usize, noise_sd })
        }
        ModelSpec::PbpNetwork { ref hidden, .. } => Box::new(pbp_network::NetworkModel { hidden: hidden.clone() }),
    }
}
