//! Models: one room for every likelihood p(record | θ), of the same name as its public half in `dp-pvi-models`.
//!
//! A model offers [capabilities](crate::capabilities). To add one, write a folder beside the ones that are here and its line in the registry.
//! A model may also stand in a crate of its own, which calls [`register`] before the first visit.

pub mod gaussian_mixture;
pub mod latent_dirichlet;
pub mod linear_regression;
pub mod logistic_regression;
pub mod multinomial_regression;
pub mod negative_binomial_regression;
pub mod neural_network;
pub mod ordinal_regression;
pub mod pbp_network;
pub mod poisson_regression;
pub mod probit_regression;
pub mod robust_regression;
pub mod sigmoid_belief;
pub mod survival_regression;
pub mod weibull_regression;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
mod tests;

use dp_pvi_models::registry::{Named, RegisterError, Registry};
use dp_pvi_models::{self as public, ModelSpec, PublicHalf};

pub use crate::capabilities::{Gradients, LocalOptimum, Model};
use crate::error::InferenceError;

/// The private half of a model: what computes on records, from the options that its public half has.
pub trait PrivateHalf: PublicHalf {
    /// The likelihood with these options.
    fn model(&self) -> Box<dyn Model>;
}

/// What the registry knows of a private half.
#[derive(Debug)]
struct Room {
    name: &'static str,
    model: fn(&ModelSpec) -> Option<Box<dyn Model>>,
}

impl Room {
    const fn of<T: PrivateHalf>() -> Self {
        Self { name: T::NAME, model: model::<T> }
    }
}

/// The entry of a private half, which lives as long as the program.
trait Entry: PrivateHalf {
    const ROOM: &'static Room = &Room::of::<Self>();
}

impl<T: PrivateHalf> Entry for T {}

impl Named for Room {
    fn name(&self) -> &'static str {
        self.name
    }
}

fn model<T: PrivateHalf>(spec: &ModelSpec) -> Option<Box<dyn Model>> {
    spec.options::<T>().map(PrivateHalf::model)
}

/// The registry: one line for every model. It and that of the public halves are sealed before the first visit touches a record, so that no function
/// over records can leave anything in them.
static ROOMS: Registry<Room> = Registry::new(BUILT_IN);

const BUILT_IN: &[Room] = &[
    Room::of::<public::logistic_regression::LogisticRegression>(),
    Room::of::<public::probit_regression::ProbitRegression>(),
    Room::of::<public::linear_regression::LinearRegression>(),
    Room::of::<public::poisson_regression::PoissonRegression>(),
    Room::of::<public::multinomial_regression::MultinomialRegression>(),
    Room::of::<public::ordinal_regression::OrdinalRegression>(),
    Room::of::<public::survival_regression::SurvivalRegression>(),
    Room::of::<public::weibull_regression::WeibullRegression>(),
    Room::of::<public::negative_binomial_regression::NegativeBinomialRegression>(),
    Room::of::<public::robust_regression::RobustRegression>(),
    Room::of::<public::neural_network::NeuralNetworkSpec>(),
    Room::of::<public::pbp_network::PbpNetwork>(),
    Room::of::<public::gaussian_mixture::GaussianMixture>(),
    Room::of::<public::latent_dirichlet::LatentDirichletSpec>(),
    Room::of::<public::sigmoid_belief::SigmoidBeliefSpec>(),
];

/// Adds the private half of a model of another crate, whose public half is registered in `dp-pvi-models`.
///
/// # Errors
/// The name is taken or none, or a visit has run already.
pub fn register<T: PrivateHalf>() -> Result<(), RegisterError> {
    ROOMS.add(T::ROOM)
}

/// No half of a model is added from now on, neither here nor in `dp-pvi-models`.
pub(crate) fn seal() {
    public::seal();
    ROOMS.seal();
}

/// The likelihood of a task.
///
/// # Errors
/// Its private half is not registered.
pub fn from_spec(spec: &ModelSpec) -> Result<Box<dyn Model>, InferenceError> {
    let room = ROOMS.find(spec.name());
    room.and_then(|room| (room.model)(spec)).ok_or(InferenceError::Job("this program has no private half of the task's model"))
}
