//! Models: one room for every likelihood p(record | θ), of the same name as its public half in `dp-pvi-posterior`.
//!
//! A model offers [capabilities](crate::capabilities). To add one, write a folder beside the ones that are here and add an arm to
//! [`from_spec`].

pub mod gaussian_mixture;
pub mod latent_dirichlet;
pub mod linear_regression;
pub mod logistic_regression;
pub mod neural_network;
pub mod pbp_network;
pub mod poisson_regression;
pub mod probit_regression;
pub mod sigmoid_belief;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
mod tests;

use dp_pvi_posterior::task::ModelSpec;

pub use crate::capabilities::{Gradients, LocalOptimum, Model};

/// The registry: one arm for every model.
#[must_use]
pub fn from_spec(spec: &ModelSpec) -> Box<dyn Model> {
    match *spec {
        ModelSpec::LinearRegression { noise_sd } => Box::new(linear_regression::LinearRegression::new(noise_sd)),
        ModelSpec::LogisticRegression {} => Box::new(logistic_regression::LogisticRegression),
        ModelSpec::NeuralNetwork(ref spec) => Box::new(neural_network::NeuralNetwork::new(spec.clone())),
        ModelSpec::ProbitRegression {} => Box::new(probit_regression::Probit),
        ModelSpec::PoissonRegression {} => Box::new(poisson_regression::Poisson),
        ModelSpec::LatentDirichlet(_) => Box::new(latent_dirichlet::TopicModel),
        ModelSpec::SigmoidBelief(_) => Box::new(sigmoid_belief::ImageModel),
        ModelSpec::GaussianMixture { components, noise_sd, .. } => {
            Box::new(gaussian_mixture::MixtureModel { components: components as usize, noise_sd })
        }
        ModelSpec::PbpNetwork { ref hidden, .. } => Box::new(pbp_network::NetworkModel { hidden: hidden.clone() }),
    }
}
