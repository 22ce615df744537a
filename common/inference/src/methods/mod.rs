//! Methods: what a site computes in one visit. An update has a module of its name, like its public half in `dp-pvi-posterior`, or shares an engine's:
//! `sep` and `ep` [propagation]; `parameter-perturbation`, `local-averaging`, `virtual-clients` and `client-level` [shards].
//!
//! An update is pure: task, λ, factor, records, permit and randomness come in; what may leave and the pending change of the
//! factor come out. To add an update, write a folder beside the ones that are here, or use an engine's, and add an arm to [`run`].

mod bcm;
mod dp_em;
pub mod dp_optimisation;
mod global_vi;
pub mod natural_gradient;
pub mod partial_sums;
pub mod propagation;
pub(crate) mod public_job;
mod pvi;
pub mod shards;
pub mod vips;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod carried;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod conformance;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod tests;

use dp_pvi_accounting::DpEvent;
use dp_pvi_math::expfam::Factor;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_posterior::task::{FactorOwner, ModelSpec, PropagationSpec, ResolvedTask, UpdateSpec};
use dp_pvi_privacy::mechanism::{Message, ReleaseError};
use dp_pvi_privacy::{NoiseSource, Pending, Permit, SiteState, StepPermit, Units};

use crate::error::InferenceError;
use crate::models;
use dp_pvi_records::RecordTable;

/// What a site is asked to do.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The task.
    pub task: &'a ResolvedTask,
    /// Number of the visit, from 0.
    pub visit: u32,
    /// λ: natural parameters of the posterior that the server sent.
    pub lambda: &'a [f64],
    /// The site's position in the list of sites whose effects are learned; none where there is no list.
    pub site: Option<u32>,
    /// What the site carries on: λ_m where it is public, or its private-clean factors; nothing before its first included update.
    pub state: &'a SiteState,
}

impl Job<'_> {
    /// The model at the state that the server sent: with its scale of the observations, where that is learned.
    #[must_use]
    pub fn model(&self) -> ModelSpec {
        self.task.setting().model_at(self.lambda)
    }
}

/// What comes out.
#[derive(Debug)]
pub struct Output {
    /// What is sent: Δ = λ* − λ, undamped.
    pub message: Message,
    /// Change of the state, to be scaled by ρ if the update is included.
    pub pending: Pending,
}

/// Runs the task's update.
///
/// # Privacy
/// What leaves went through the mechanism that the permit is for; a permit for another event releases nothing. Neither errors
/// nor the number of iterations depend on records, beyond what a released value already says.
///
/// # Errors
/// See [`InferenceError`]; nothing was released then.
pub fn run<N: NoiseSource>(job: &Job, units: &Units<RecordTable>, permit: Permit, noise: &N) -> Result<Output, InferenceError> {
    models::seal();
    let model = models::from_spec(&job.model())?;
    match &job.task.update {
        UpdateSpec::Pvi {} => pvi::run(job, &Local::new(job)?, model.as_ref(), units, permit),
        UpdateSpec::DpOptimisation(spec) => {
            dp_optimisation::run(spec, &dp_optimisation::local(spec, job)?, &job.task.model, units, permit, noise)
        }
        UpdateSpec::Vips(spec) => vips::run(spec, job, units, permit, noise),
        UpdateSpec::NaturalGradient(spec) => natural_gradient::run(spec, job, model.as_ref(), units, permit, noise),
        UpdateSpec::Bcm(spec) => bcm::run(spec, job, units, permit, noise),
        UpdateSpec::GlobalVi(spec) => global_vi::run(spec, job, model.as_ref(), units, permit, noise),
        UpdateSpec::Shards(spec) => shards::run(spec, job, model.as_ref(), units, permit, noise),
        UpdateSpec::Propagation(spec) => propagation::visit::run(spec, job, model.as_ref(), units, permit, noise),
        UpdateSpec::DpEm(spec) => dp_em::run(spec, job, units, permit, noise),
    }
}

/// Whether a visit of the task needs all records of a site in memory at once. Where it does not, every number that leaves is a sum over units: they may lie on a disk and are
/// read window by window ([`dp_pvi_privacy::stored`]), with the same bits.
#[must_use]
pub fn needs_memory(task: &ResolvedTask) -> bool {
    match &task.update {
        UpdateSpec::DpOptimisation(_)
        | UpdateSpec::NaturalGradient(_)
        | UpdateSpec::GlobalVi(_)
        | UpdateSpec::Bcm(_)
        | UpdateSpec::Vips(_) => false,
        UpdateSpec::DpEm(spec) => !matches!(spec.mechanism(&task.setting()), Ok(Some(_))),
        // A factor for each record, and orders in which one record sees what another one did, are no sums.
        UpdateSpec::Propagation(spec) => {
            let sum = matches!(spec.mechanism(&task.setting()), Ok(Some(_)));
            !(sum && spec.factors == FactorOwner::Shared && spec.site_passes.is_none())
        }
        UpdateSpec::Pvi {} | UpdateSpec::Shards(_) => true,
    }
}

/// A copy of the task whose visits make at most `most` passes over the records, with the same noise: for measuring the time of a pass. `None` if the update has
/// one pass, or cannot run with fewer.
#[must_use]
pub fn shortened(task: &ResolvedTask, most: u32) -> Option<ResolvedTask> {
    let mut update = task.update.clone();
    // Fewer steps need not be whole epochs: a Poisson sample at the rate of a batch takes as long.
    let passes = match &mut update {
        UpdateSpec::DpOptimisation(spec) => {
            spec.batches = None;
            &mut spec.steps
        }
        UpdateSpec::Bcm(spec) => {
            spec.fit.batches = None;
            &mut spec.fit.steps
        }
        UpdateSpec::Shards(spec) => &mut spec.shards,
        UpdateSpec::Propagation(PropagationSpec { site_passes: Some(passes), .. }) => passes,
        _ => return None,
    };
    *passes = most.min(*passes);
    Some(ResolvedTask { update, ..task.clone() })
}

/// What the records of a table add to the sum of a visit, term by term as the release clips them, without noise. `None` where the update sends no sum
/// out of which a site's part can be taken, or where its state is not one of the task.
pub(crate) fn exact_terms(job: &Job<'_>, table: &RecordTable) -> Option<Vec<f64>> {
    match &job.task.update {
        UpdateSpec::NaturalGradient(spec) => natural_gradient::exact_terms(spec, job, table),
        _ => None,
    }
}

/// The local problem: global posterior, cavity and prior. All of it is public, given the transcript.
pub(crate) struct Local {
    global: Gaussian,
    /// λ − λ_m with its precision raised to κ_c Λ0 where it was below; h is kept.
    cavity: Gaussian,
    /// The largest standard deviation of a coefficient under the prior.
    prior_scale: f64,
    /// Means at which the model's first fit starts, while λ is the prior: nothing was learned yet by anyone.
    start: Option<Vec<f64>>,
    /// Public scales of the features of a gradient that is clipped; 1 for updates that have none.
    scales: Vec<f64>,
    /// The site's own shape and rate of 1/σ², where the scale of the observations is learned.
    own_scale: Option<[f64; 2]>,
    visit: u32,
}

impl Local {
    fn new(job: &Job) -> Result<Self, InferenceError> {
        let family = job.task.family();
        // What a rule appends to λ is its own.
        let lambda = job.task.setting().posterior(job.lambda);
        let priors = job.task.setting().priors_at(job.lambda);
        let learned = job.task.setting().learned_scale().is_some();
        let length = lambda.len() + if learned { 2 } else { 0 };
        let mut factor = job.state.public(length).map_err(|_| InferenceError::Job("the site's state is of another kind or length"))?;
        let own_scale = factor.split_off(lambda.len()).try_into().ok();
        Ok(Self {
            global: Gaussian::from_natural(family, lambda.to_vec())
                .map_err(|_| InferenceError::Job("lambda is not the parameters of a distribution"))?,
            cavity: cavity(family, &priors.natural(family), lambda, &factor)?,
            prior_scale: priors.widest(),
            start: if lambda == job.task.prior_natural() { job.task.model.fit_start(job.task.features) } else { None },
            scales: vec![1.0; family.dimension()],
            own_scale,
            visit: job.visit,
        })
    }

    /// d.
    fn dimension(&self) -> usize {
        self.global.family().dimension()
    }

    /// λ* − λ.
    fn change(&self, optimum: &[f64]) -> Vec<f64> {
        optimum.iter().zip(self.global.natural()).map(|(new, old)| new - old).collect()
    }
}

/// The one step of a permit for exactly `event`.
fn only_step(permit: Permit, event: &DpEvent) -> Result<StepPermit, InferenceError> {
    if permit.event() != event {
        return Err(ReleaseError::PermitMismatch.into());
    }
    permit.into_steps().next().ok_or(InferenceError::Job("the permit holds no step"))
}

/// λ − λ_m with its precision raised to κ_c Λ0 where it was below; h is kept.
fn cavity(family: Family, prior: &[f64], lambda: &[f64], factor: &[f64]) -> Result<Gaussian, InferenceError> {
    let length = |_| InferenceError::Job("lambda or the factor has another length than the task's family");
    let lambda = Factor::new(family, lambda.to_vec()).map_err(length)?;
    let factor = Factor::new(family, factor.to_vec()).map_err(length)?;
    let mut cavity = (lambda - &factor).into_natural();
    let precision = &mut cavity[family.dimension()..];
    if let Some(floored) = PrecisionFloor::Cavity.apply(family, &prior[family.dimension()..], precision) {
        precision.copy_from_slice(&floored.precision);
    }
    Gaussian::from_natural(family, cavity)
        .map_err(|_| InferenceError::Job("the factor is too far from lambda for a cavity: it is not of this run"))
}
