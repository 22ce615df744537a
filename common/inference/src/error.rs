//! What can go wrong in an update.

use dp_pvi_names::LatticeOverflow;
use dp_pvi_posterior::task::TaskError;
use dp_pvi_privacy::mechanism::ReleaseError;
use dp_pvi_privacy::partial_sums::NotAsked;

/// An update that did not happen. Nothing was released, and no message contains a value of a record.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    /// The task and what came with it do not fit together.
    #[error("the update does not fit its task ({0}): check that server and site use the same task and version")]
    Job(&'static str),
    /// The task combines a model with an update that the model cannot serve.
    #[error("{0} needs {1}, which the task's model does not offer: choose another update or another model")]
    Capability(&'static str, &'static str),
    /// The task's model sums records by itself, and its private half is not registered.
    #[error(
        "this program cannot compute {0}: its author returns a likelihood from ModelRules::likelihood, or registers a PrivateHalf with \
         dp_pvi_inference::models::register"
    )]
    Model(&'static str),
    /// The task's numbers are not usable.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The mechanism cannot be built.
    #[error(transparent)]
    Lattice(#[from] LatticeOverflow),
    /// Another process's question is none for this one.
    #[error(transparent)]
    Question(#[from] NotAsked),
    /// The mechanism did not release.
    #[error(transparent)]
    Release(#[from] ReleaseError),
}
