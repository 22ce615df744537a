//! From the model of a task to what methods ask for.
//!
//! A model that says its [`Likelihood`] has its engines in [`capabilities`](crate::capabilities), and no line here. A model that sums records by itself
//! ([`Likelihood::Own`]) has a module of its name here and a line in the registry. It may also be in a crate of its own, which calls [`register`] before the
//! first visit.

pub mod gaussian_mixture;
pub mod latent_dirichlet;
pub mod neural_network;
pub mod pbp_network;
pub mod sigmoid_belief;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
mod tests;

use dp_pvi_models::likelihood::Likelihood;
use dp_pvi_models::registry::{Named, RegisterError, Registry};
use dp_pvi_models::{self as public, ModelOptions, ModelSpec};

use crate::capabilities::many_rows::ManyRowsModel;
use crate::capabilities::predictor::PredictorModel;
pub use crate::capabilities::{Gradients, LocalOptimum, Model};
use crate::error::InferenceError;

/// The private half of a model that sums records by itself: what computes on them, from the options that `dp-pvi-models` has.
pub trait PrivateHalf: ModelOptions {
    /// The likelihood with these options.
    fn model(&self) -> Box<dyn Model>;
}

/// What the registry knows of a private half.
#[derive(Debug)]
struct ModelModule {
    name: &'static str,
    model: fn(&ModelSpec) -> Option<Box<dyn Model>>,
}

impl ModelModule {
    const fn of<T: PrivateHalf>() -> Self {
        Self { name: T::NAME, model: model::<T> }
    }
}

/// The entry of a private half, which lives as long as the program.
trait Entry: PrivateHalf {
    const ROOM: &'static ModelModule = &ModelModule::of::<Self>();
}

impl<T: PrivateHalf> Entry for T {}

impl Named for ModelModule {
    fn name(&self) -> &'static str {
        self.name
    }
}

fn model<T: PrivateHalf>(spec: &ModelSpec) -> Option<Box<dyn Model>> {
    spec.options::<T>().map(PrivateHalf::model)
}

/// The registry: one line for every model that sums records by itself. It and that of the public halves are sealed before the first visit touches a record, so that no function
/// over records can leave anything in them.
static MODULES: Registry<ModelModule> = Registry::new(BUILT_IN);

const BUILT_IN: &[ModelModule] = &[
    ModelModule::of::<public::neural_network::NeuralNetworkSpec>(),
    ModelModule::of::<public::pbp_network::PbpNetwork>(),
    ModelModule::of::<public::gaussian_mixture::GaussianMixture>(),
    ModelModule::of::<public::latent_dirichlet::LatentDirichletSpec>(),
    ModelModule::of::<public::sigmoid_belief::SigmoidBeliefSpec>(),
];

/// Adds the private half of a model of another crate that sums records by itself, and is registered in `dp-pvi-models`.
///
/// # Errors
/// The name is taken or none, or a visit has run already.
pub fn register<T: PrivateHalf>() -> Result<(), RegisterError> {
    MODULES.add(T::ROOM)
}

/// No half of a model is added from now on, neither here nor in `dp-pvi-models`.
pub(crate) fn seal() {
    public::seal();
    MODULES.seal();
}

/// The likelihood of a task.
///
/// # Errors
/// The model sums records by itself, and its private half is not registered.
pub fn from_spec(spec: &ModelSpec) -> Result<Box<dyn Model>, InferenceError> {
    match spec.rules().likelihood() {
        Likelihood::Predictor(predictor) => Ok(Box::new(PredictorModel(predictor))),
        Likelihood::Rows(rows) => Ok(Box::new(ManyRowsModel(rows))),
        Likelihood::Own(_) => {
            let module = MODULES.find(spec.name());
            module.and_then(|module| (module.model)(spec)).ok_or_else(|| InferenceError::Model(spec.name()))
        }
    }
}
