//! The Bayesian committee machine: a site fits its records to its own prior, λ0 or λ0/M, by DP optimisation.
//!
//! # Privacy
//! That of [`dp_optimisation`]: the prior is public. A member keeps nothing.

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_posterior::task::BcmSpec;
use dp_pvi_privacy::{NoiseSource, Pending, Permit, Units};

use super::{Job, Local, Output, dp_optimisation};
use crate::error::InferenceError;
use dp_pvi_records::RecordTable;

pub(super) fn run<N: NoiseSource>(
    spec: &BcmSpec,
    job: &Job<'_>,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    let output = dp_optimisation::run(&spec.fit, &local(spec, job)?, &job.task.model, units, permit, noise)?;
    Ok(Output { pending: Pending::None, ..output })
}

/// A member's problem: its prior is its cavity.
pub(super) fn local(spec: &BcmSpec, job: &Job<'_>) -> Result<Local, InferenceError> {
    let share = spec.prior_share();
    let prior: Vec<f64> = job.task.prior_natural().iter().map(|value| share * value).collect();
    let prior = Gaussian::from_natural(job.task.family(), prior).map_err(|_| InferenceError::Job("a member's prior is no distribution"))?;
    let start = job.task.model.fit_start(job.task.features);
    let (scales, prior_scale) = (spec.fit.feature_scales(&job.task.setting())?, job.task.setting().priors().widest() / share.sqrt());
    Ok(Local { global: prior.clone(), cavity: prior, start, prior_scale, scales, own_scale: None, visit: job.visit })
}

#[cfg(test)]
mod tests;
