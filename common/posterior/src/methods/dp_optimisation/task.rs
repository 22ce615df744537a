//! Numbers of DP optimisation: options, defaults, price.

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::{ClipNorm, DpEvent, LatticePath, MOST_BATCHES, NoiseMultiplier, SamplingRate, Terms};
use dp_pvi_names::LatticeOverflow;
use dp_pvi_privacy::mechanism::{BatchSum, LatticeSum};
use serde::{Deserialize, Serialize};

use super::noise_aware::noise_of_visit;
use super::rule::{Measured, MeasuredRule};
use crate::methods::agreement::{Compared, NotTested, SiteReleases};
use crate::methods::check::{requires_epsilon, requires_local_trust};
use crate::methods::divided::{Divided, Undividable, of_factor};
use crate::methods::noise_aware::{Absent, History, Posterior};
use crate::methods::prior_predictive::{NotForecast, Sent, Stage};
use crate::methods::scaled::{ScaledRule, learned};
use crate::methods::{
    Comparable, NoiseAware, PviRule, Resolving, Rule, Setting, SiteStateForm, StateForm, Traits, UpdateRules, UpdateSpec, VisitForm,
    VisitSum, Visits,
};
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_math::noisy_likelihood;
use dp_pvi_models::spec::check::{checked, invalid, positive, require, requires_clip_norms};
use dp_pvi_models::spec::words::Short;
use dp_pvi_models::spec::{Approximation, TaskError};
use dp_pvi_privacy::clipping::adaptive;

/// Numbers of DP optimisation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DpOptimisationSpec {
    /// Steps L of a visit.
    pub steps: u32,
    /// Poisson rate q of a step, as numerator over 2³²; with `batches` what is nearest to 1/T, the share of the units in a batch.
    pub sampling_rate: SamplingRate,
    /// T: every unit is in exactly one of so many successive steps, by a draw of its own (random allocation), and a visit is whole epochs of
    /// them; absent: every step tosses Poisson coins of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<u32>,
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
    /// will be about, so that early steps are not too long (preconditioned only). Divided by a feature's scale where there are any.
    pub step_precision: f64,
    /// Weight w of the curvature block against the gradient block inside the joint clip (preconditioned only).
    pub curvature_weight: f64,
    /// Share of a visit's last iterates whose mean is the visit's result (preconditioned only).
    pub averaging: f64,
    /// B, public bound on the units of a site, for models whose gradients are summed batch by batch in floating point (path `sum`);
    /// absent for those that are summed term by term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_units: Option<u64>,
    /// How C follows a private quantile of the units' gradient norms within a visit; absent: it stays. Each visit begins at `clip_norm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive_clip: Option<AdaptiveClipSpec>,
    /// e: before the clip the entries of a category with L levels are multiplied by L^e, and divided by it after the release; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level_exponent: Option<f64>,
    /// Whether records of two classes are kept within C by weights that do not depend on their class.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// Whether visits measure (preconditioned steps of regressions only). A step is divided by the curvature that the visit has released so far, where that
    /// is more than λ knows of it: the first steps of a run would overshoot otherwise. And the means of the visit's released gradients and
    /// curvatures are sent beside its change: the noise-aware posterior is made of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured: bool,
}

/// Numbers of private adaptive clipping: with its gradient a unit reports whether it was within C, in one release.
///
/// # Privacy
/// A unit's term is (a·min(1, ‖u‖/C)·u/‖u‖, ±w/2) with a² + w²/4 = 1: its norm is at most 1 whatever C is, so every step is the same event as
/// with a fixed C and the same z. The gradient's own multiplier is z/a, the indicator's noise z/w.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveClipSpec {
    /// qn: public expected number of units in a step's sum.
    pub expected_units: f64,
    /// γ: share of the units that is to be within C.
    pub target: f64,
    /// η_C: step of ln C.
    pub rate: f64,
    /// w.
    pub weight: f64,
}

impl AdaptiveClipSpec {
    /// a: what is left for the gradient.
    #[must_use]
    pub fn gradient_share(&self) -> f64 {
        (1.0 - 0.25 * self.weight * self.weight).sqrt()
    }
}

/// What a step of DP optimisation does with the released sum; post-processing either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// The curvature block sets the local precision, and the mean moves by the gradient over that precision.
    Preconditioned,
    /// Adam on (μ, log σ).
    Adam,
    /// The Bayesian learning rule with a step that no curvature, however negative or noisy, takes out of the positive numbers (Lin, Schmidt
    /// and Khan 2020): for models that are not log-concave.
    PositivityPreserving,
}

/// Options of `[pvi]` with `update = "dp-optimisation"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// L. Default: 5, with `batches` one epoch.
    steps: Option<u32>,
    /// q. Default: 1 (every unit in every step, accounted exactly).
    sampling_rate: Option<f64>,
    /// T, in place of `sampling_rate`: epochs of so many steps, with every unit in exactly one of them.
    batches: Option<u32>,
    /// In place of `sampling_rate`: expected number of units in a step, with `units_per_site`.
    expected_batch: Option<f64>,
    /// Public nominal number of units of a site, from which `expected_batch` gives the rate of all sites.
    units_per_site: Option<u64>,
    /// C. Default: half the model's public bound on a gradient, 0.35 of it where records are weighted; required where it has none.
    clip_norm: Option<f64>,
    /// Default: `preconditioned` for log-concave models, `adam` for others.
    optimizer: Option<Optimizer>,
    /// η. Default: 0.3, less for a formula whose entries go together (preconditioned), 0.05 (Adam), 0.1 (positivity-preserving).
    learning_rate: Option<f64>,
    /// Default: 1, 0.99 for Adam.
    learning_rate_decay: Option<f64>,
    /// Default: the logarithm of `prior_scale`; log 0.05 for neural networks.
    initial_log_scale: Option<f64>,
    /// F. Default: see `RawTask::resolve`.
    step_precision: Option<f64>,
    /// Constant of the default of `step_precision`. Default: 3, 2 where records are weighted.
    shrinkage: Option<f64>,
    /// w. Default: 1.
    curvature_weight: Option<f64>,
    /// Default: 0.5, 0.2 where records are weighted.
    averaging: Option<f64>,
    /// B. Default: 100,000, for models whose gradients are summed batch by batch; no other takes it.
    max_units: Option<u64>,
    /// C follows a quantile of the gradient norms, for models without a public bound on them. Default: it does not.
    adaptive_clip: Option<RawAdaptiveClip>,
    /// e. Default: 0, 1/4 where records are weighted.
    level_exponent: Option<f64>,
    /// Default: true for logistic and probit regression by preconditioned steps, false otherwise.
    weighted: Option<bool>,
    /// Default: true for regressions by preconditioned steps, which alone can have it.
    measured: Option<bool>,
}

/// `adaptive_clip = { units = 4000 }`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAdaptiveClip {
    /// Public nominal number of units of a site. Required.
    units: u64,
    /// γ. Default: 0.9.
    target: Option<f64>,
    /// η_C. Default: 0.3.
    rate: Option<f64>,
}

/// σ_b: noise on the number of units within C, as a share of the units in the sum: costs less than 1 % of a step.
const INDICATOR_NOISE: f64 = 0.05;
/// Largest w: with few units the indicator is noisy rather than dear.
const LARGEST_WEIGHT: f64 = 0.5;

/// Defaults that depend on whether records are weighted.
struct Balance {
    /// C as a share of the public bound on a gradient.
    clip: f64,
    averaging: f64,
    /// Constant of F.
    shrinkage: f64,
    level_exponent: Option<f64>,
}

impl Balance {
    const fn of(weighted: bool) -> Self {
        if weighted {
            Self { clip: 0.35, averaging: 0.2, shrinkage: 2.0, level_exponent: Some(0.25) }
        } else {
            Self { clip: 0.5, averaging: 0.5, shrinkage: 3.0, level_exponent: None }
        }
    }
}

/// Default of B: rounding a sum of so many terms costs less than rounding it to the lattice.
const MAX_UNITS: u64 = 100_000;

/// Bounds of log σ: every start must lie inside.
const LOG_SCALE: std::ops::RangeInclusive<f64> = -10.0..=2.0;

pub(crate) fn resolve(resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
    let raw: Raw = resolving.options("dp-optimisation")?;
    let spec = raw.spec(resolving)?;
    let with = UpdateSpec::DpOptimisation;
    resolving.check(&with(spec))?;
    let z = resolving.calibrated(|noise_multiplier| with(DpOptimisationSpec { noise_multiplier, ..spec }))?;
    let mut spec = DpOptimisationSpec { noise_multiplier: z, ..spec };
    if raw.shrinkage.is_some() && (raw.step_precision.is_some() || spec.optimizer != Optimizer::Preconditioned) {
        return invalid("shrinkage sets the step precision of optimizer = \"preconditioned\" where step_precision does not");
    }
    if raw.step_precision.is_none() && spec.optimizer == Optimizer::Preconditioned {
        // The event does not depend on it: z stays calibrated.
        let shrinkage = raw.shrinkage.unwrap_or(Balance::of(spec.weighted).shrinkage);
        spec.step_precision = shrinkage * noise_precision(&resolving.task, &spec, resolving.expected_sites);
    }
    if let Some(adaptive) = &mut spec.adaptive_clip {
        // Nor on this.
        adaptive.weight = (spec.noise_multiplier.get() / (INDICATOR_NOISE * adaptive.expected_units)).min(LARGEST_WEIGHT);
    }
    resolving.checked(with(spec))
}

impl Raw {
    /// All numbers but z, which is at 1 until it is calibrated.
    fn spec(&self, resolving: &Resolving<'_>) -> Result<DpOptimisationSpec, TaskError> {
        let model = resolving.task.model.rules();
        // Only a log-concave likelihood has a curvature that the preconditioned step can count on.
        let log_concave = model.floor() == PrecisionFloor::LogConcave;
        let optimizer = self.optimizer.unwrap_or(if log_concave { Optimizer::Preconditioned } else { Optimizer::Adam });
        let (rate, decay) = match optimizer {
            Optimizer::Preconditioned => (self.learning_rate.map_or_else(|| rate_of_rows(&resolving.task), Ok)?, 1.0),
            Optimizer::Adam => (0.05, 0.99),
            Optimizer::PositivityPreserving => (0.1, 1.0),
        };
        let sampling_rate = self.sampling_rate()?;
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let adaptive_clip = self.adaptive_clip.map(|raw| AdaptiveClipSpec {
            expected_units: sampling_rate.get() * raw.units as f64,
            target: raw.target.unwrap_or(adaptive::TARGET),
            rate: raw.rate.unwrap_or(adaptive::RATE),
            weight: LARGEST_WEIGHT,
        });
        let task = &resolving.task;
        let two_classes = model.has_two_classes();
        let weighted = self.weighted.unwrap_or(two_classes && optimizer == Optimizer::Preconditioned);
        let balance = Balance::of(weighted);
        let bound = task.gradient_bound()?.map(|bound| balance.clip * bound);
        let Some(clip) = resolving.clip_norm(self.clip_norm)?.or(bound) else {
            return invalid(&format!(
                "gradients of {} have no public bound: give clip_norm, the largest gradient norm of a unit that shall count in full",
                task.model
            ));
        };
        Ok(DpOptimisationSpec {
            steps: self.steps.or(self.batches).unwrap_or(5),
            sampling_rate,
            batches: self.batches,
            clip_norm: checked(ClipNorm::new(clip))?,
            noise_multiplier: checked(NoiseMultiplier::new(1.0))?,
            optimizer,
            learning_rate: self.learning_rate.unwrap_or(rate),
            learning_rate_decay: self.learning_rate_decay.unwrap_or(decay),
            initial_log_scale: self.initial_log_scale.unwrap_or_else(|| model.batched().unwrap_or_else(|| task.prior.scale.ln())),
            step_precision: self.step_precision.unwrap_or(0.0),
            curvature_weight: self.curvature_weight.unwrap_or(1.0),
            averaging: self.averaging.unwrap_or(balance.averaging),
            max_units: self.max_units.or(model.batched().map(|_| MAX_UNITS)),
            adaptive_clip,
            level_exponent: self.level_exponent.or(balance.level_exponent),
            weighted,
            measured: self.measured.unwrap_or(optimizer == Optimizer::Preconditioned && model.is_linear()),
        })
    }

    fn sampling_rate(&self) -> Result<SamplingRate, TaskError> {
        match (self.batches, self.sampling_rate, self.expected_batch, self.units_per_site) {
            (Some(batches), None, None, None) => share_of_a_batch(batches),
            (None, rate, None, None) => checked(SamplingRate::nearest(rate.unwrap_or(1.0))),
            #[allow(clippy::cast_precision_loss, reason = "a count, rounded to a rate afterwards")]
            (None, None, Some(batch), Some(units)) if units > 0 => checked(SamplingRate::nearest((batch / units as f64).min(1.0))),
            _ => invalid("give batches, or sampling_rate, or expected_batch with units_per_site above 0, not several of them"),
        }
    }
}

/// 1/T as a rate.
fn share_of_a_batch(batches: u32) -> Result<SamplingRate, TaskError> {
    require(batches >= 2 && u64::from(batches) <= MOST_BATCHES.min(1_000_000), "batches must be at least 2 and at most 1,000,000")?;
    checked(SamplingRate::nearest(1.0 / f64::from(batches)))
}

/// Largest η by default, and ηλ at most, with λ the largest eigenvalue of D⁻¹H, where D is the diagonal of the curvature H: steps diverge from 2 on, and what is known of λ is public, not
/// that of the records.
const LARGEST_RATE: f64 = 0.3;
const SAFE: f64 = 1.2;

/// The default η of preconditioned steps: smaller where a formula's entries go together, as those of a curve do. In hundredths, so that all machines find the same.
fn rate_of_rows(task: &Setting<'_>) -> Result<f64, TaskError> {
    let together = task.parsed_schema()?.entries_together().unwrap_or(1.0);
    Ok((100.0 * SAFE / together).floor().clamp(1.0, 100.0 * LARGEST_RATE) / 100.0)
}

/// K s/τ, once z is known: F in units of its constant (`RawTask::resolve`).
fn noise_precision(task: &Setting<'_>, spec: &DpOptimisationSpec, sites: u32) -> f64 {
    let steps = f64::from(spec.steps);
    let tail = (spec.averaging * steps).ceil().max(1.0);
    let way = spec.learning_rate * (steps - 0.5 * (tail - 1.0)) * task.damping.iter().sum::<f64>();
    let step_noise = spec.noise_multiplier.get() * spec.clip_norm.get() / spec.sampling_rate.get();
    let noise = f64::from(sites).sqrt() * step_noise / (steps * f64::from(task.visits())).sqrt();
    way * noise / task.prior.scale
}

impl DpOptimisationSpec {
    /// The mechanism of one step over gradients of `coordinates` = 2d entries.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, coordinates: u32) -> Result<LatticeSum, LatticeOverflow> {
        let sum = LatticeSum::new(coordinates, self.clip_norm, self.noise_multiplier, self.coins(), Terms::Units, LatticePath::Term)?;
        if let Some(batches) = self.batches { sum.in_batches(batches) } else { Ok(sum) }
    }

    /// The mechanism of one step that sums batch by batch, over sites of at most `max_units` units.
    ///
    /// # Errors
    /// As [`Self::mechanism`].
    pub fn batch_mechanism(&self, coordinates: u32, max_units: u64) -> Result<BatchSum, LatticeOverflow> {
        let sum = BatchSum::new(coordinates, self.sum_norm(), self.noise_multiplier, self.coins(), Terms::Units, max_units)?;
        if let Some(batches) = self.batches { sum.in_batches(batches) } else { Ok(sum) }
    }

    /// Rate of the coins of a step, where it tosses any.
    fn coins(&self) -> Option<SamplingRate> {
        (self.batches.is_none() && self.sampling_rate.numerator() < SamplingRate::DENOMINATOR).then_some(self.sampling_rate)
    }

    /// Largest norm of a unit's term: C, or 1 where terms are sent in units of C.
    fn sum_norm(&self) -> ClipNorm {
        if self.adaptive_clip.is_some() { ClipNorm::new(1.0).unwrap_or(self.clip_norm) } else { self.clip_norm }
    }

    /// Number of coordinates of one released sum: 2d, and one for the units within C where it adapts.
    #[must_use]
    pub fn coordinates(&self, dimension: u32) -> u32 {
        dimension.saturating_mul(2).saturating_add(u32::from(self.adaptive_clip.is_some()))
    }

    /// What one step is to an accountant; of a batch it is the whole epoch.
    fn step_event(&self, coordinates: u32) -> Result<DpEvent, LatticeOverflow> {
        match self.max_units {
            Some(max_units) => Ok(self.batch_mechanism(coordinates, max_units)?.event()),
            None => Ok(self.mechanism(coordinates)?.event()),
        }
    }
}

impl UpdateRules for DpOptimisationSpec {
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        requires_epsilon(task, "dp-optimisation")?;
        requires_local_trust(task, "dp-optimisation")?;
        require(task.approximation == Approximation::MeanField, "update = \"dp-optimisation\" needs approximation = \"mean-field\"")?;
        let rules = task.model.rules();
        require(
            rules.is_linear() || rules.batched().is_some(),
            "update = \"dp-optimisation\" needs a model with gradients: a regression or a neural network",
        )?;
        requires_clip_norms([&self.clip_norm])?;
        require(self.steps >= 1, "steps must be at least 1")?;
        if let (Some(batches), steps) = (self.batches, self.steps) {
            require(self.sampling_rate == share_of_a_batch(batches)?, "sampling_rate must be what is nearest to 1/batches: leave it out")?;
            if !steps.is_multiple_of(batches) {
                return invalid(&format!(
                    "a visit is whole epochs: with batches = {batches} give steps = {batches} or a multiple of it, not {steps}"
                ));
            }
        }
        require(positive(self.learning_rate), "learning_rate must be a number between 1e-30 and 1e30")?;
        require(self.learning_rate_decay > 0.0 && self.learning_rate_decay <= 1.0, "learning_rate_decay must be above 0 and at most 1")?;
        require(LOG_SCALE.contains(&self.initial_log_scale), "initial_log_scale must lie between -10 and 2")?;
        require(self.step_precision.is_finite() && self.step_precision >= 0.0, "step_precision must be finite and not negative")?;
        require(positive(self.curvature_weight), "curvature_weight must be a number between 1e-30 and 1e30")?;
        require(self.averaging > 0.0 && self.averaging <= 1.0, "averaging must be above 0 and at most 1")?;
        require(
            self.max_units.is_some() == task.model.rules().batched().is_some(),
            "max_units belongs to models whose gradients are summed batch by batch (neural networks), and only to them",
        )?;
        if let Some(AdaptiveClipSpec { expected_units, target, rate, weight }) = self.adaptive_clip {
            require(
                task.gradient_bound()?.is_none() && self.max_units.is_some(),
                "adaptive_clip is for neural networks: gradients of other models have a public bound, or a norm to choose by hand",
            )?;
            require(expected_units >= 1.0 && expected_units.is_finite(), "adaptive_clip needs units of at least 1/sampling_rate")?;
            require(target > 0.0 && target < 1.0, "adaptive_clip: target must lie strictly between 0 and 1")?;
            require(positive(rate), "adaptive_clip: rate must be a number between 1e-30 and 1e30")?;
            require(weight > 0.0 && weight <= 1.0, "adaptive_clip: weight must be above 0 and at most 1")?;
        }
        require(
            !self.measured || (self.optimizer == Optimizer::Preconditioned && task.model.rules().is_linear()),
            "measured = true needs a regression and optimizer = \"preconditioned\"",
        )?;
        self.check_balance(task)?;
        self.step_event(self.coordinates(task.dimension))?;
        Ok(())
    }

    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a> {
        Box::new(|_| {
            // Whole epochs, or steps where each is an event by itself.
            let times = self.steps / self.batches.unwrap_or(1).max(1);
            Ok(VisitForm::of_values(self.step_event(self.coordinates(task.dimension))?.repeated(times.into()), self.sent(task)))
        })
    }

    fn traits(&self) -> Traits {
        Traits { is_asynchronous: true, learns_scales: self.measured, ..Traits::of_passes(self.steps) }
    }

    /// Scales that the server learns are behind what sites send.
    fn state(&self, task: &Setting<'_>) -> StateForm {
        let len = self.sent(task) + if self.measured { learned(task) } else { 0 };
        StateForm { len, site: SiteStateForm::Public(task.family().len()) }
    }

    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule> {
        let pvi = PviRule::new(task);
        if !self.measured {
            return Box::new(pvi);
        }
        let dimension = task.dimension as usize;
        let noise = noise_of_visit(task, self);
        // Of a measured visit: [Σḡ + ΣH̄ μ̄, ΣH̄], with the noise of ḡ.
        let noisy = move |state: &[f64], received: &VisitSum<'_>| {
            let seen = Measured::of(state, dimension)?;
            let curvature: Vec<f64> = seen.curvature.iter().map(|h| h.max(0.0)).collect();
            let h = seen.gradient.iter().zip(&curvature).zip(seen.point).map(|((g, h), mu)| g + h * mu);
            let likelihood: Vec<f64> = h.chain(curvature.iter().copied()).collect();
            let noise: Vec<f64> = noise.as_ref()?.iter().map(|variance| variance * f64::from(received.sites)).collect();
            Some(noisy_likelihood::diagonal(&vec![0.0; 2 * dimension], &likelihood, &noise))
        };
        let inner = move |prior| -> Box<dyn Rule> { Box::new(MeasuredRule { pvi: pvi.clone().with_prior(prior), dimension }) };
        ScaledRule::over(Box::new(inner), task, Some(Box::new(noisy)))
    }

    fn released(&self) -> String {
        format!(
            "at every visit a change of the natural parameters{} that {} computed from {} noised sums of clipped gradients{} and from public values only",
            if self.measured { ", and means of the visit's gradients, points and curvatures," } else { "" },
            if self.measured { "were" } else { "was" },
            self.steps,
            self.batches.map_or(String::new(), |batches| format!(", each over one of {batches} random batches of the units,"))
        )
    }

    /// The default step precision is in proportion to the noise.
    fn with_noise(&self, noise_multiplier: NoiseMultiplier) -> Option<UpdateSpec> {
        let step_precision = self.step_precision * noise_multiplier.get() / self.noise_multiplier.get();
        Some(UpdateSpec::DpOptimisation(Self { noise_multiplier, step_precision, ..*self }))
    }

    fn simulate(&self, task: &Setting<'_>, _visit: u32, state: &[f64], stage: &mut Stage<'_>) -> Result<Sent, NotForecast> {
        super::prior_predictive::changes(self, task, state, stage)
    }

    fn noise_aware(&self) -> Result<&dyn NoiseAware, Absent> {
        match self.optimizer {
            Optimizer::Preconditioned if self.measured => Ok(self),
            Optimizer::Preconditioned => Err(Absent::Unmeasured),
            Optimizer::Adam | Optimizer::PositivityPreserving => Err(Absent::Optimizer),
        }
    }

    fn comparable(&self) -> Result<&dyn Comparable, NotTested> {
        if self.noise_aware().is_ok() { Ok(self) } else { Err(NotTested::Steps) }
    }

    /// Of what the others measured; λ − λ_m is beside it, or in its place where nothing was measured.
    fn without(&self, task: &Setting<'_>, releases: &SiteReleases<'_>, site: usize) -> Result<Divided, Undividable> {
        let plain = of_factor(task, releases, site, Absent::Divided);
        if self.noise_aware().is_err() {
            return plain;
        }
        let aware = super::sites::sites(task, self, releases).ok_or(Undividable::Diverged)?.without(site)?;
        Ok(Divided { plain: plain.ok().map(|plain| plain.natural_parameters), ..aware })
    }
}

impl NoiseAware for DpOptimisationSpec {
    fn posterior(&self, task: &Setting<'_>, history: &History) -> Result<Posterior, Absent> {
        super::noise_aware::posterior(task, self, history)
    }
}

impl Comparable for DpOptimisationSpec {
    fn agreement(&self, task: &Setting<'_>, releases: &SiteReleases<'_>) -> Result<Vec<Option<Compared>>, NotTested> {
        super::sites::sites(task, self, releases).ok_or(NotTested::Diverged)?.agreement()
    }
}

impl DpOptimisationSpec {
    /// Numbers that a site sends at a visit.
    fn sent(&self, task: &Setting<'_>) -> u64 {
        task.family_len() + if self.measured { 3 * u64::from(task.dimension) } else { 0 }
    }
}

impl Display for DpOptimisationSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let optimizer = match self.optimizer {
            Optimizer::Preconditioned => "preconditioned",
            Optimizer::Adam => "Adam",
            Optimizer::PositivityPreserving => "positivity-preserving",
        };
        write!(
            f,
            "DP optimisation ({optimizer}{}): {} steps a visit, {}, clipping norm {}{}, noise multiplier {}",
            if self.weighted { ", records weighted by their features" } else { "" },
            self.steps,
            match self.batches {
                Some(batches) => format!("every unit in one of {batches} random batches an epoch"),
                None => format!("sampling rate {}", Short(self.sampling_rate.get())),
            },
            Short(self.clip_norm.get()),
            if self.adaptive_clip.is_some() { " at the start of a visit, then by a private quantile" } else { "" },
            Short(self.noise_multiplier.get())
        )
    }
}
