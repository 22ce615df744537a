//! DP optimisation (algorithms.md 6.1): numbers, defaults and calibration.

use std::fmt::{Display, Formatter};

use dp_pvi_privacy::mechanism::{BatchSum, LatticeOverflow, LatticeSum};
use dp_pvi_privacy::{ClipNorm, DpEvent, LatticePath, NoiseMultiplier, PayloadKind, SamplingRate, Terms};
use serde::{Deserialize, Serialize};

use super::{MessageForm, Resolving, SiteStateForm, UpdateRules, UpdateSpec};
use crate::floor::PrecisionFloor;
use crate::rule::{PviRule, Rule};
use crate::task::calibration::{calibrated, checked};
use crate::task::check::{invalid, positive, require, requires_epsilon, requires_local_trust};
use crate::task::describe::Short;
use crate::task::{Approximation, ResolvedTask, TaskError};

/// Numbers of DP optimisation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DpOptimisationSpec {
    /// Steps L of a visit.
    pub steps: u32,
    /// Poisson rate q of a step, as numerator over 2³².
    pub sampling_rate: SamplingRate,
    /// C.
    pub clip_norm: ClipNorm,
    /// z.
    pub noise_multiplier: NoiseMultiplier,
    /// What a step does with the released sum.
    pub optimizer: Optimizer,
    /// Step size η at the first step of a visit.
    pub learning_rate: f64,
    /// Factor on the step size after every step.
    pub learning_rate_decay: f64,
    /// log σ at which the first visit starts is at most this (the prior's scale otherwise).
    pub initial_log_scale: f64,
    /// F, public precision that is added to the local one where a mean step is divided by it: what the precision of a coordinate
    /// will be about, so that early steps are not too long (preconditioned only).
    pub step_precision: f64,
    /// Weight w of the curvature block against the gradient block inside the joint clip (preconditioned only).
    pub curvature_weight: f64,
    /// Share of a visit's last iterates whose mean is the visit's result (preconditioned only).
    pub averaging: f64,
    /// B, public bound on the units of a site, for models whose gradients are summed batch by batch in floating point (path `sum`);
    /// absent for those that are summed term by term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_units: Option<u64>,
}

/// What a step of DP optimisation does with the released sum; post-processing either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// The curvature block sets the local precision, and the mean moves by the gradient over that precision.
    Preconditioned,
    /// Adam on (μ, log σ).
    Adam,
}

/// Options of `[pvi]` with `update = "dp-optimisation"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// L. Default: 5.
    steps: Option<u32>,
    /// q. Default: 1 (every unit in every step, accounted exactly).
    sampling_rate: Option<f64>,
    /// In place of `sampling_rate`: expected number of units in a step, with `units_per_site`.
    expected_batch: Option<f64>,
    /// Public nominal number of units of a site, from which `expected_batch` gives the rate of all sites.
    units_per_site: Option<u64>,
    /// C. Default: half the model's public bound on a gradient; required where it has none.
    clip_norm: Option<f64>,
    /// Default: `preconditioned` for log-concave models, `adam` for others.
    optimizer: Option<Optimizer>,
    /// η. Default: 0.3 (preconditioned), 0.05 (Adam).
    learning_rate: Option<f64>,
    /// Default: 1 (preconditioned), 0.99 (Adam).
    learning_rate_decay: Option<f64>,
    /// Default: the logarithm of `prior_scale`; log 0.05 for neural networks.
    initial_log_scale: Option<f64>,
    /// F. Default: see `RawTask::resolve`.
    step_precision: Option<f64>,
    /// w. Default: 1.
    curvature_weight: Option<f64>,
    /// Default: 0.5.
    averaging: Option<f64>,
    /// B. Default: 100,000, for models whose gradients are summed batch by batch; no other takes it.
    max_units: Option<u64>,
}

/// Default of B: rounding a sum of so many terms costs less than rounding it to the lattice.
const MAX_UNITS: u64 = 100_000;

/// Bounds of log σ (algorithms section 6.1): every start must lie inside.
const LOG_SCALE: std::ops::RangeInclusive<f64> = -10.0..=2.0;

pub(super) fn resolve(resolving: &Resolving<'_>) -> Result<ResolvedTask, TaskError> {
    let raw: Raw = resolving.options("dp-optimisation")?;
    let spec = raw.spec(resolving)?;
    let with = |spec| ResolvedTask { update: UpdateSpec::DpOptimisation(spec), ..resolving.task.clone() };
    with(spec).check()?;
    let z = calibrated(|noise_multiplier| with(DpOptimisationSpec { noise_multiplier, ..spec }))?;
    let mut spec = DpOptimisationSpec { noise_multiplier: z, ..spec };
    if raw.step_precision.is_none() && spec.optimizer == Optimizer::Preconditioned {
        // The event does not depend on it: z stays calibrated.
        spec.step_precision = step_precision(resolving.task, &spec, resolving.expected_sites);
    }
    let task = with(spec);
    task.check()?;
    Ok(task)
}

impl Raw {
    /// All numbers but z, which stands at 1 until it is calibrated.
    fn spec(&self, resolving: &Resolving<'_>) -> Result<DpOptimisationSpec, TaskError> {
        let model = resolving.task.model.rules();
        // Only a log-concave likelihood has a curvature that the preconditioned step can count on.
        let log_concave = model.floor() == PrecisionFloor::LogConcave;
        let optimizer = self.optimizer.unwrap_or(if log_concave { Optimizer::Preconditioned } else { Optimizer::Adam });
        let (rate, decay) = match optimizer {
            Optimizer::Preconditioned => (0.3, 1.0),
            Optimizer::Adam => (0.05, 0.99),
        };
        let task = resolving.task;
        let bound = || task.model.rules().gradient_bound(task.feature_bound).map(|bound| 0.5 * bound);
        let Some(clip) = resolving.clip_norm(self.clip_norm)?.or_else(bound) else {
            return invalid(&format!(
                "gradients of {} have no public bound: give clip_norm, the largest gradient norm of a unit that shall count in full",
                task.model
            ));
        };
        Ok(DpOptimisationSpec {
            steps: self.steps.unwrap_or(5),
            sampling_rate: self.sampling_rate()?,
            clip_norm: checked(ClipNorm::new(clip))?,
            noise_multiplier: checked(NoiseMultiplier::new(1.0))?,
            optimizer,
            learning_rate: self.learning_rate.unwrap_or(rate),
            learning_rate_decay: self.learning_rate_decay.unwrap_or(decay),
            initial_log_scale: self.initial_log_scale.unwrap_or_else(|| model.initial_log_scale(task.prior.scale)),
            step_precision: self.step_precision.unwrap_or(0.0),
            curvature_weight: self.curvature_weight.unwrap_or(1.0),
            averaging: self.averaging.unwrap_or(0.5),
            max_units: self.max_units.or(model.is_batched().then_some(MAX_UNITS)),
        })
    }

    fn sampling_rate(&self) -> Result<SamplingRate, TaskError> {
        match (self.sampling_rate, self.expected_batch, self.units_per_site) {
            (rate, None, None) => checked(SamplingRate::nearest(rate.unwrap_or(1.0))),
            #[allow(clippy::cast_precision_loss, reason = "a count, rounded to a rate afterwards")]
            (None, Some(batch), Some(units)) if units > 0 => checked(SamplingRate::nearest((batch / units as f64).min(1.0))),
            (None, ..) => invalid("expected_batch needs units_per_site above 0, and the other way round"),
            (Some(_), ..) => invalid("give sampling_rate, or expected_batch with units_per_site, not both"),
        }
    }
}

/// F of `RawTask::resolve`, once z is known.
fn step_precision(task: &ResolvedTask, spec: &DpOptimisationSpec, sites: u32) -> f64 {
    let steps = f64::from(spec.steps);
    let tail = (spec.averaging * steps).ceil().max(1.0);
    let way = spec.learning_rate * (steps - 0.5 * (tail - 1.0)) * task.damping.iter().sum::<f64>();
    let step_noise = spec.noise_multiplier.get() * spec.clip_norm.get() / spec.sampling_rate.get();
    let noise = f64::from(sites).sqrt() * step_noise / (steps * f64::from(task.visits())).sqrt();
    3.0 * way * noise / task.prior.scale
}

impl DpOptimisationSpec {
    /// The mechanism of one step over gradients of `coordinates` = 2d entries.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, coordinates: u32) -> Result<LatticeSum, LatticeOverflow> {
        let sampling = (self.sampling_rate.numerator() < SamplingRate::DENOMINATOR).then_some(self.sampling_rate);
        LatticeSum::new(coordinates, self.clip_norm, self.noise_multiplier, sampling, Terms::Units, LatticePath::Term)
    }

    /// The mechanism of one step that sums batch by batch, over sites of at most `max_units` units.
    ///
    /// # Errors
    /// As [`Self::mechanism`].
    pub fn batch_mechanism(&self, coordinates: u32, max_units: u64) -> Result<BatchSum, LatticeOverflow> {
        let sampling = (self.sampling_rate.numerator() < SamplingRate::DENOMINATOR).then_some(self.sampling_rate);
        BatchSum::new(coordinates, self.clip_norm, self.noise_multiplier, sampling, Terms::Units, max_units)
    }

    /// What one step is to an accountant.
    fn step_event(&self, coordinates: u32) -> Result<DpEvent, LatticeOverflow> {
        match self.max_units {
            Some(max_units) => Ok(self.batch_mechanism(coordinates, max_units)?.event()),
            None => Ok(self.mechanism(coordinates)?.event()),
        }
    }
}

impl UpdateRules for DpOptimisationSpec {
    fn check(&self, task: &ResolvedTask) -> Result<(), TaskError> {
        requires_epsilon(task, "dp-optimisation")?;
        requires_local_trust(task, "dp-optimisation")?;
        require(task.approximation == Approximation::MeanField, "update = \"dp-optimisation\" needs approximation = \"mean-field\"")?;
        require(self.steps >= 1, "steps must be at least 1")?;
        require(positive(self.learning_rate), "learning_rate must be a finite number above 0")?;
        require(self.learning_rate_decay > 0.0 && self.learning_rate_decay <= 1.0, "learning_rate_decay must be above 0 and at most 1")?;
        require(LOG_SCALE.contains(&self.initial_log_scale), "initial_log_scale must lie between -10 and 2")?;
        require(self.step_precision.is_finite() && self.step_precision >= 0.0, "step_precision must be finite and not negative")?;
        require(positive(self.curvature_weight), "curvature_weight must be a finite number above 0")?;
        require(self.averaging > 0.0 && self.averaging <= 1.0, "averaging must be above 0 and at most 1")?;
        require(
            self.max_units.is_some() == task.model.rules().is_batched(),
            "max_units belongs to models whose gradients are summed batch by batch (neural networks), and only to them",
        )?;
        self.step_event(gradient_length(task))?;
        Ok(())
    }

    fn event(&self, task: &ResolvedTask, _visit: u32) -> Result<DpEvent, TaskError> {
        Ok(self.step_event(gradient_length(task))?.repeated(self.steps.into()))
    }

    fn message(&self, task: &ResolvedTask, _visit: u32) -> Result<MessageForm, TaskError> {
        Ok(MessageForm { kind: PayloadKind::Values, coordinates: task.family().len() as u64 })
    }

    fn site_state(&self, task: &ResolvedTask) -> SiteStateForm {
        SiteStateForm::Public(task.family().len())
    }

    fn rule(&self, task: &ResolvedTask) -> Box<dyn Rule> {
        Box::new(PviRule::new(task))
    }

    fn released(&self) -> String {
        format!(
            "at every visit a change of the natural parameters that was computed from {} noised sums of clipped gradients and from public values only",
            self.steps
        )
    }
}

/// Number of coordinates of one released gradient sum: 2d.
fn gradient_length(task: &ResolvedTask) -> u32 {
    task.dimension.saturating_mul(2)
}

impl Display for DpOptimisationSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let optimizer = match self.optimizer {
            Optimizer::Preconditioned => "preconditioned",
            Optimizer::Adam => "Adam",
        };
        write!(
            f,
            "DP optimisation ({optimizer}): {} steps a visit, sampling rate {}, clipping norm {}, noise multiplier {}",
            self.steps,
            Short(self.sampling_rate.get()),
            Short(self.clip_norm.get()),
            Short(self.noise_multiplier.get())
        )
    }
}
