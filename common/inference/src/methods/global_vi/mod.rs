//! Global DP variational inference: the noised sum of clipped gradients at the server's (μ, log σ).
//!
//! # Privacy
//! One term per unit, of norm at most C: sensitivity C (add-remove) or 2C (replace-one), Poisson-sampled where q < 1. The prior's gradient
//! is public and is added by the server. A site keeps nothing.

use dp_pvi_math::expfam::any::{Gaussian, Standard};
use dp_pvi_posterior::task::GlobalViSpec;
use dp_pvi_privacy::mechanism::{Summation, Summed};
use dp_pvi_privacy::{NoiseSource, Pending, Permit, Sensitive, Units};

use super::public_job::PublicJob;
use super::{Job, Output, only_step};
use crate::error::InferenceError;
use crate::mean_field::{MeanField, ScaleCoordinate};
use crate::models::{self, Model};
use dp_pvi_records::RecordTable;

pub(super) fn run<N: NoiseSource>(
    spec: &GlobalViSpec,
    job: &Job<'_>,
    model: &dyn Model,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    model.gradients().ok_or(NO_GRADIENTS)?;
    point(job)?;
    let mechanism = spec.mechanism(&job.task.setting())?;
    let permit = only_step(permit, &mechanism.event())?;
    let message = mechanism.release(units, &Sensitive::NOTHING, &PublicJob::of(job)?, gradients, permit, noise)?;
    Ok(Output { message, pending: Pending::None })
}

const NO_GRADIENTS: InferenceError = InferenceError::Capability("global variational inference", "gradients record by record");

/// Where gradients are taken.
fn point(job: &Job<'_>) -> Result<MeanField, InferenceError> {
    let q = Gaussian::from_natural(job.task.family(), job.task.posterior(job.lambda).to_vec());
    let other = |_| InferenceError::Job("the state is not one of this update");
    match q.map_err(other)?.standard() {
        Standard::Diagonal(q) => MeanField::new(q.mean().to_vec(), q.variance().to_vec(), ScaleCoordinate::LogScale).map_err(other),
        Standard::Full(_) => Err(InferenceError::Job("global variational inference fits a mean field")),
    }
}

fn gradients(asked: &PublicJob, sum: Summation<'_, RecordTable>) -> Result<Summed, InferenceError> {
    let (model, point) = (models::from_spec(&asked.task.model)?, asked.job(point)?);
    Ok(model.gradients().ok_or(NO_GRADIENTS)?.sum(&point, sum))
}
