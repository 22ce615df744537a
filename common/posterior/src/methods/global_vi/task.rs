//! Numbers of global DP variational inference: options, defaults, price.

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, SamplingRate, Terms};
use dp_pvi_privacy::mechanism::SumMechanism;
use serde::{Deserialize, Serialize};

use crate::methods::check::requires_epsilon;
use crate::methods::{
    GlobalViRule, Resolving, Rule, Setting, SiteStateForm, StateForm, SumSpec, Traits, UpdateRules, UpdateSpec, VisitForm, Visits,
};
use dp_pvi_models::spec::check::{checked, invalid, positive, require, requires_clip_norms};
use dp_pvi_models::spec::words::Short;
use dp_pvi_models::spec::{Approximation, ScheduleSpec, TaskError};

/// Numbers of global DP variational inference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobalViSpec {
    /// Poisson rate q of a visit, as numerator over 2³².
    pub sampling_rate: SamplingRate,
    /// C.
    pub clip_norm: ClipNorm,
    /// z of the sum that the server sees.
    pub noise_multiplier: NoiseMultiplier,
    /// Step size of Adam.
    pub learning_rate: f64,
    /// log σ at which the run starts.
    pub initial_log_scale: f64,
}

/// Options of `[pvi]` with `update = "global-vi"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// q. Default: 1.
    sampling_rate: Option<f64>,
    /// C. Default: half the model's public bound on a gradient; required where it has none.
    clip_norm: Option<f64>,
    /// Default: 0.1.
    learning_rate: Option<f64>,
    /// Default: log 0.1.
    initial_log_scale: Option<f64>,
}

/// Bounds of log σ.
const LOG_SCALE: std::ops::RangeInclusive<f64> = -10.0..=2.0;

pub(crate) fn resolve(resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
    let raw: Raw = resolving.options("global-vi")?;
    let task = &resolving.task;
    let bound = task.gradient_bound()?.map(|bound| 0.5 * bound);
    let Some(clip) = resolving.clip_norm(raw.clip_norm)?.or(bound) else {
        return invalid(&format!("gradients of {} have no public bound: give clip_norm", task.model));
    };
    let spec = GlobalViSpec {
        sampling_rate: checked(SamplingRate::nearest(raw.sampling_rate.unwrap_or(1.0)))?,
        clip_norm: checked(ClipNorm::new(clip))?,
        noise_multiplier: checked(NoiseMultiplier::new(1.0))?,
        learning_rate: raw.learning_rate.unwrap_or(0.1),
        initial_log_scale: raw.initial_log_scale.unwrap_or_else(|| 0.1f64.ln()),
    };
    let with = UpdateSpec::GlobalVi;
    resolving.check(&with(spec))?;
    let z = resolving.calibrated(|noise_multiplier| with(GlobalViSpec { noise_multiplier, ..spec }))?;
    resolving.checked(with(GlobalViSpec { noise_multiplier: z, ..spec }))
}

impl GlobalViSpec {
    /// The mechanism of a visit.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, task: &Setting<'_>) -> Result<SumMechanism, TaskError> {
        self.release(task).mechanism(task)
    }

    fn release(&self, task: &Setting<'_>) -> SumSpec {
        let sampling = (self.sampling_rate.numerator() < SamplingRate::DENOMINATOR).then_some(self.sampling_rate);
        let coordinates = task.dimension.saturating_mul(2);
        SumSpec { coordinates, clip: self.clip_norm, noise: self.noise_multiplier, sampling, terms: Terms::Units }
    }
}

impl UpdateRules for GlobalViSpec {
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        requires_epsilon(task, "global-vi")?;
        require(
            matches!(task.schedule, ScheduleSpec::Synchronous { .. }),
            "update = \"global-vi\" sums over all sites: use schedule = \"synchronous\"",
        )?;
        require(task.damping.iter().all(|&rho| rho >= 1.0), "update = \"global-vi\" has a learning_rate: remove damping")?;
        require(task.approximation == Approximation::MeanField, "update = \"global-vi\" needs approximation = \"mean-field\"")?;
        require(task.model.rules().is_linear(), "update = \"global-vi\" needs a generalised linear model")?;
        requires_clip_norms([&self.clip_norm])?;
        require(positive(self.learning_rate), "learning_rate must be a number between 1e-30 and 1e30")?;
        require(LOG_SCALE.contains(&self.initial_log_scale), "initial_log_scale must lie between -10 and 2")
    }

    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a> {
        Box::new(|_| VisitForm::of_sum(self.release(task), task))
    }

    fn traits(&self) -> Traits {
        Traits::of_passes(1)
    }

    /// Behind λ: Adam's two moments.
    fn state(&self, task: &Setting<'_>) -> StateForm {
        StateForm { len: 6 * u64::from(task.dimension), site: SiteStateForm::None }
    }

    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule> {
        Box::new(GlobalViRule::new(task, *self))
    }

    fn released(&self) -> String {
        "at every visit one noised sum of clipped gradients over the records".to_owned()
    }
}

impl Display for GlobalViSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "global variational inference: Adam at {}, sampling rate {}, clipping norm {}, noise multiplier {}",
            Short(self.learning_rate),
            Short(self.sampling_rate.get()),
            Short(self.clip_norm.get()),
            Short(self.noise_multiplier.get())
        )
    }
}
