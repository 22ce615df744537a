//! Local updates: what a site computes in one visit.

use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::{NoiseSource, Payload, Permit, Released, Units};

use crate::error::InferenceError;
use crate::records::RecordTable;

/// What a site is asked to do.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The task.
    pub task: &'a ResolvedTask,
    /// Number of the visit, from 0.
    pub visit: u32,
    /// λ: natural parameters of the posterior that the server sent.
    pub lambda: &'a [f64],
    /// λ_m: the site's own factor.
    pub factor: &'a [f64],
}

/// What comes out.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// What is sent.
    pub payload: Released<Payload>,
    /// Change of the factor, to be scaled by ρ if the update is included.
    pub pending: Option<Vec<f64>>,
}

/// Runs the task's update.
///
/// # Errors
/// See [`InferenceError`].
pub fn run<N: NoiseSource>(job: &Job, units: &Units<RecordTable>, permit: Permit, noise: &N) -> Result<Output, InferenceError> {
    let _ = (job, units, permit, noise);
    unimplemented!("contract")
}
