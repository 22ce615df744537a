//! DP optimisation on records: the local fit by noised gradient steps. Formula, defaults and sources are on the page of its
//! [public half](dp_pvi_posterior::methods::dp_optimisation).
//!
//! The sum over the units of clip_C(∇ E_q log p(unit | θ)) plus discrete Gaussian noise is what a step releases; the gradient of a person's
//! records is summed before it is clipped. Everything after a release (the step, the average of iterates, Δ = λ* − λ) is post-processing,
//! and [`Released::map`] is the only way on.
//!
//! * **Adam** on (μ, log σ), as published. The gradient of log σ_j is −c x_j² σ_j², which vanishes with σ while the noise does not.
//! * **Preconditioned**: the scale's gradient is clipped and noised in the coordinate σ²/(2w), where a record's entry is −w c x_j². The released
//!   block is then the curvature H itself, and the fit is Λ* = Λ_c + H̄ with H̄ the mean over the visit's steps. H̄ is not clamped at 0:
//!   clamped noise would make rare coefficients certain.
//! * **Positivity-preserving**: the same blocks, and a step after which every precision is at least half of what it was.
//!
//! With `adaptive_clip` C follows a private quantile of the units' norms through a visit and begins anew at the next, so that a site keeps
//! nothing but its factor.
//!
//! # Privacy
//! * **Unit and relation**: the task's; one term per unit.
//! * **Sensitivity**: C (add-remove) or 2C (replace-one) per step, on the lattice of [`LatticeSum`]; for neural networks, whose gradients are
//!   summed batch by batch, with the rounding that [`BatchSum`] charges.
//! * **Event**: L times the event of one step, Poisson-sampled where q < 1; with `batches` L/T times that of a whole epoch of random allocation. The permit is consumed
//!   into exactly L step permits, and those of an epoch share one draw of the units' batches.
//! * **Epochs and messages**: nothing leaves the process before the last step of the visit: the sums of its steps are in the memory of `run` only, and its one message is stored
//!   and sent when it is whole. A visit is whole epochs, so that no epoch spans two messages ([`dp_pvi_accounting::proofs::random_allocation`]).
//! * **State**: the factor moves by ρΔ, which is public; no noise is removed later.

mod iterate;
mod reweighted;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod tests;

use dp_pvi_accounting::ClipNorm;
use dp_pvi_math::expfam::any::Family;
use dp_pvi_names::LatticeVector;
use dp_pvi_posterior::task::{DpOptimisationSpec, ModelSpec};
use dp_pvi_privacy::mechanism::{BatchSum, BatchSummation, LatticeSum, Message, Summation, Summed};
use dp_pvi_privacy::{Argument, NoiseSource, Pending, Permit, Released, StepPermit, Units};
use serde::{Deserialize, Serialize};

use self::reweighted::Reweighted;
pub(super) use iterate::Iterate;

use super::public_job::{copied, text};
use super::{Job, Local, Output};
use crate::error::InferenceError;
use crate::mean_field::MeanField;
use crate::models;
use dp_pvi_records::RecordTable;

pub(super) fn run<N: NoiseSource>(
    spec: &DpOptimisationSpec,
    local: &Local,
    model: &ModelSpec,
    units: &Units<RecordTable>,
    permit: Permit,
    noise: &N,
) -> Result<Output, InferenceError> {
    if !matches!(local.global.family(), Family::DiagonalGaussian { .. }) {
        return Err(InferenceError::Job("DP optimisation fits a mean field, and the task names another family"));
    }
    let gradients = GradientSum::new(spec, model, &local.scales)?;
    let start = Iterate::start(spec, local)?;

    let mut permits = permit.into_steps();
    let first = permits.next().ok_or(InferenceError::Job("the permit holds no step"))?;
    let sum = gradients.release((start.point(), start.clip()), units, first, noise)?;
    let mut iterate = sum.map(&copied(&start)?, |start, sum| start.clone().advance(&sum.to_f64()));
    for permit in permits {
        let sum = gradients.release((iterate.get().point(), iterate.get().clip()), units, permit, noise)?;
        iterate = iterate.map_with(sum, &Argument::nothing(), |(), iterate, sum| iterate.advance(&sum.to_f64()));
    }
    let lambda = copied(&local.global.natural().to_vec())?;
    let message = iterate.map(&lambda, |lambda, iterate| iterate.message(lambda));
    let change = message.clone().map(&lambda, |lambda, mut message: Vec<f64>| {
        message.truncate(lambda.len());
        message
    });
    Ok(Output { message: Message::values(message), pending: Pending::Public(change) })
}

/// The local problem, with the public scales of its features.
pub(super) fn local(spec: &DpOptimisationSpec, job: &Job<'_>) -> Result<Local, InferenceError> {
    Ok(Local { scales: spec.feature_scales(&job.task.setting())?, ..Local::new(job)? })
}

/// How the clipped gradients of a model are summed.
pub(super) struct GradientSum {
    visit: Argument<Visit>,
    mechanism: Mechanism,
}

enum Mechanism {
    /// Term by term.
    Terms(LatticeSum),
    /// Batch by batch.
    Batches(BatchSum),
}

/// What all steps of a visit have in common.
#[derive(Serialize, Deserialize)]
struct Visit {
    #[serde(with = "text")]
    spec: DpOptimisationSpec,
    #[serde(with = "text")]
    model: ModelSpec,
    scales: Vec<f64>,
}

/// Where a step takes its gradients, and its clipping norm where that adapts.
#[derive(Serialize, Deserialize)]
struct At {
    point: MeanField,
    clip: Option<ClipNorm>,
}

const OTHER_GRADIENTS: InferenceError = InferenceError::Capability("DP optimisation", "gradients of the kind that the task asks for");

impl GradientSum {
    /// For a model with parameters of these scales.
    pub(super) fn new(spec: &DpOptimisationSpec, model: &ModelSpec, scales: &[f64]) -> Result<Self, InferenceError> {
        let dimension = scales.len();
        let coordinates = u32::try_from(dimension).ok().filter(|d| *d < 1 << 30).map(|d| spec.coordinates(d));
        let coordinates = coordinates.ok_or(InferenceError::Job("the dimension is above 2^30"))?;
        let likelihood = models::from_spec(model)?;
        let mechanism = match (spec.max_units, likelihood.batch_gradients(), likelihood.gradients()) {
            (Some(max_units), Some(likelihood), _) => {
                likelihood.check(dimension)?;
                Mechanism::Batches(spec.batch_mechanism(coordinates, max_units)?)
            }
            (None, None, Some(_)) => Mechanism::Terms(spec.mechanism(coordinates)?),
            _ => return Err(OTHER_GRADIENTS),
        };
        let visit = copied(&Visit { spec: *spec, model: model.clone(), scales: scales.to_vec() })?;
        Ok(Self { visit, mechanism })
    }

    /// One release: the noisy sum of clipped gradients at `point`; where the clipping norm adapts, it comes with the point.
    pub(super) fn release<N: NoiseSource>(
        &self,
        (point, clip): (&MeanField, Option<ClipNorm>),
        units: &Units<RecordTable>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<Released<LatticeVector>, InferenceError> {
        let argument = self.visit.and(&copied(&At { point: point.clone(), clip })?);
        match &self.mechanism {
            Mechanism::Terms(sum) => sum.release_sum(units, &argument, |(visit, at), sum| terms(visit, at, sum), permit, noise),
            Mechanism::Batches(sum) => sum.release_sum(units, &argument, |(visit, at), sum| batches(visit, at, sum), permit, noise),
        }
    }
}

fn terms(visit: &Visit, At { point, .. }: &At, sum: Summation<'_, RecordTable>) -> Result<Summed, InferenceError> {
    let model = models::from_spec(&visit.model)?;
    let reweighted = Reweighted::new(model.gradients().ok_or(OTHER_GRADIENTS)?, &visit.spec, &visit.scales);
    Ok(reweighted.inner().sum(point, sum))
}

fn batches(visit: &Visit, At { point, clip }: &At, sum: BatchSummation<'_, RecordTable>) -> Result<Summed, InferenceError> {
    let model = models::from_spec(&visit.model)?;
    let gradients = model.batch_gradients().ok_or(OTHER_GRADIENTS)?;
    gradients.sum(point, visit.spec.adaptive_clip.zip(*clip), sum)
}
