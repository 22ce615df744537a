//! `task.toml`, and how it becomes a resolved task.

use std::cell::Cell;

use dp_pvi_privacy::accountant::calibrate;
use dp_pvi_privacy::{ClipNorm, Delta, DpEvent, Epsilon, NoiseMultiplier, PrivacyUnit, Relation, SamplingRate};
use serde::{Deserialize, Serialize};

use super::check::invalid;
use super::{
    Approximation, DpOptimisationSpec, ENGINE, FORMAT, ModelSpec, Optimizer, PriorSpec, PrivacySpec, ResolvedTask, ScheduleSpec, TaskError,
    Trust, UpdateSpec,
};
use crate::schedule::Damping;
use crate::schema::Schema;

/// `task.toml` as written; every option that is absent gets the default that its field names.
///
/// ```toml
/// name = "lung-fed"                  # optional; the federation's name otherwise
///
/// [model]
/// family = "logistic-regression"     # or "linear-regression" with noise_sd
/// approximation = "mean-field"       # or "full-covariance" (update = "pvi" only)
/// prior_scale = 1.0
///
/// [schema]
/// file = "schema.toml"
///
/// [pvi]
/// schedule = "sequential"            # with sweeps; or "synchronous" with rounds
/// sweeps = 20
/// update = "dp-optimisation"         # or "pvi": exact local optimum, no protection
/// expected_sites = 10                # public guess; sets the default step precision and synchronous damping
///
/// [privacy]
/// unit = "record"                    # or "person", with a unit_column in the schema
/// adjacency = "replace-one"          # or "add-remove"
/// epsilon = 1.0                      # of the whole run at one site; absent only for update = "pvi"
/// delta = 1e-5
/// trust = "local"
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTask {
    /// Name for people. Default: the name that the context gives.
    pub name: Option<String>,
    /// Likelihood, prior and family.
    pub model: RawModel,
    /// Where the schema is.
    pub schema: RawSchema,
    /// Order and kind of work.
    pub pvi: RawPvi,
    /// Guarantee.
    pub privacy: RawPrivacy,
}

/// `[model]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawModel {
    /// `linear-regression` or `logistic-regression`.
    pub family: ModelFamily,
    /// Default: `mean-field`.
    pub approximation: Option<Approximation>,
    /// Mean of every coefficient. Default: 0.
    pub prior_mean: Option<f64>,
    /// Standard deviation of every coefficient. Default: 1.
    pub prior_scale: Option<f64>,
    /// Standard deviation of the observation noise (linear regression, required there).
    pub noise_sd: Option<f64>,
}

/// Names of the likelihoods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelFamily {
    /// y ~ N(xᵀθ, noise_sd²).
    LinearRegression,
    /// P(y = 1) = σ(xᵀθ).
    LogisticRegression,
}

/// `[schema]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSchema {
    /// Path, relative to the task file. The caller reads it: this crate opens no file.
    pub file: String,
}

/// `[pvi]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPvi {
    /// `sequential` or `synchronous`.
    pub schedule: ScheduleKind,
    /// Rounds (synchronous, required there).
    pub rounds: Option<u32>,
    /// Visits of every site (sequential). Default: 20.
    pub sweeps: Option<u32>,
    /// ρ, or `{ start, end }`, or `{ start, end, decay }`. Defaults: sequential 1 for `pvi` and
    /// [`Damping::SEQUENTIAL`] for `dp-optimisation`; synchronous [`Damping::synchronous`].
    pub damping: Option<Damping>,
    /// Public guess of the number of sites. Default: the one of the context.
    pub expected_sites: Option<u32>,
    /// `pvi` or `dp-optimisation`.
    pub update: UpdateKind,
    /// Steps L of a visit. Default: 5.
    pub steps: Option<u32>,
    /// Poisson rate q of a step. Default: 1 (every unit in every step, accounted exactly).
    pub sampling_rate: Option<f64>,
    /// In place of `sampling_rate`: expected number of units in a step, with `units_per_site`.
    pub expected_batch: Option<f64>,
    /// Public nominal number of units of a site, from which `expected_batch` gives the rate of all sites.
    pub units_per_site: Option<u64>,
    /// C. Default: half the schema's row norm bound R (logistic regression; required for linear regression).
    pub clip_norm: Option<f64>,
    /// `preconditioned` or `adam`. Default: `preconditioned`.
    pub optimizer: Option<Optimizer>,
    /// η. Default: 0.3 (preconditioned), 0.05 (Adam).
    pub learning_rate: Option<f64>,
    /// Factor on η after every step. Default: 1 (preconditioned), 0.99 (Adam).
    pub learning_rate_decay: Option<f64>,
    /// Default: the logarithm of `prior_scale`.
    pub initial_log_scale: Option<f64>,
    /// F of the preconditioned optimiser. Default: see [`RawTask::resolve`].
    pub step_precision: Option<f64>,
    /// w. Default: 1.
    pub curvature_weight: Option<f64>,
    /// Default: 0.5.
    pub averaging: Option<f64>,
    /// Updates leave at multiples of this after training. Default: 0, at once.
    pub release_tick_seconds: Option<u64>,
}

/// Names of the schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleKind {
    /// One site after the other.
    Sequential,
    /// All sites every round.
    Synchronous,
}

/// Names of the updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateKind {
    /// Exact local optimum, no protection.
    Pvi,
    /// Clipped and noised gradient sums.
    DpOptimisation,
}

/// `[privacy]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPrivacy {
    /// Whose data is protected.
    pub unit: PrivacyUnit,
    /// Neighbouring data sets.
    pub adjacency: Relation,
    /// ε of the whole run at one site; absent only for `update = "pvi"`.
    pub epsilon: Option<Epsilon>,
    /// δ.
    pub delta: Delta,
    /// Who adds the noise.
    pub trust: Trust,
    /// The same as `clip_norm` in `[pvi]`; only one of the two may be given.
    pub clip_norm: Option<f64>,
}

/// What a task takes from the federation's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolveContext<'a> {
    /// Name for people, where the task has none.
    pub name: &'a str,
    /// Deadline of a round (of a turn, when sequential).
    pub update_deadline_seconds: u64,
    /// Fewest sites of a round.
    pub min_sites: u32,
    /// Number of sites that are expected, at most: sets the default damping of a synchronous schedule.
    pub expected_sites: u32,
}

impl RawTask {
    /// Reads `task.toml`.
    ///
    /// # Errors
    /// Not TOML, an unknown key, or a value of the wrong kind; the message names line and key.
    pub fn parse(text: &str) -> Result<Self, TaskError> {
        toml::from_str(text).map_err(|e| TaskError::Invalid(e.to_string()))
    }

    /// Makes every number explicit: z by calibration, C, q, ρ of every visit, and the facts that follow from the schema's text.
    ///
    /// The default step precision of the preconditioned optimiser follows from z, public numbers only: F = 3·K·s/prior_scale, where
    /// s = √sites·(zC/q)/√(L·visits) is the noise that is left on the gradient of all data after all steps of the run, and
    /// K = η·(L − (tail − 1)/2)·Σρ, tail = ⌈averaging·L⌉, says how far all visits together move at precision F. The gain K/F is then a
    /// third of prior_scale/s, the gain at which a Wiener filter for coefficients of the prior's scale stops trusting a direction.
    ///
    /// # Errors
    /// An option that is missing, out of range, or does not belong to this combination; a schema that is none; a target ε that no
    /// noise reaches.
    pub fn resolve(&self, schema_text: &str, context: ResolveContext<'_>) -> Result<ResolvedTask, TaskError> {
        let schema = Schema::parse(schema_text)?;
        let schedule = self.schedule()?;
        let mut task = ResolvedTask {
            format: FORMAT,
            engine: ENGINE.to_owned(),
            name: self.name.clone().unwrap_or_else(|| context.name.to_owned()),
            model: self.model.spec()?,
            approximation: self.model.approximation.unwrap_or(Approximation::MeanField),
            prior: PriorSpec { mean: self.model.prior_mean.unwrap_or(0.0), scale: self.model.prior_scale.unwrap_or(1.0) },
            schema: schema_text.to_owned(),
            dimension: schema.dimension(),
            feature_bound: schema.row_norm_bound(),
            max_nonzeros: schema.max_nonzeros(),
            schedule,
            damping: Vec::new(),
            update: UpdateSpec::Pvi {},
            privacy: PrivacySpec {
                unit: self.privacy.unit,
                relation: self.privacy.adjacency,
                epsilon: self.privacy.epsilon,
                delta: self.privacy.delta,
                trust: self.privacy.trust,
            },
            update_deadline_seconds: context.update_deadline_seconds,
            min_sites: context.min_sites,
            release_tick_seconds: self.pvi.release_tick_seconds.unwrap_or(0),
        };
        let damping = self.pvi.damping.unwrap_or_else(|| self.default_damping(&schema, context));
        task.damping = damping.resolve(task.visits()).map_err(|e| TaskError::Invalid(e.to_string()))?;
        task.update = match self.pvi.update {
            UpdateKind::Pvi => {
                self.refuse_dp_options()?;
                UpdateSpec::Pvi {}
            }
            UpdateKind::DpOptimisation => UpdateSpec::DpOptimisation(self.dp_optimisation(&task)?),
        };
        task.check()?;
        let UpdateSpec::DpOptimisation(spec) = task.update else { return Ok(task) };
        let mut task = calibrated(task, spec)?;
        if self.pvi.step_precision.is_none()
            && let UpdateSpec::DpOptimisation(spec) = &task.update
            && spec.optimizer == Optimizer::Preconditioned
        {
            let step_precision = step_precision(&task, spec, self.expected_sites(context));
            // The event does not depend on it: z stays calibrated.
            task.update = UpdateSpec::DpOptimisation(DpOptimisationSpec { step_precision, ..*spec });
            task.check()?;
        }
        Ok(task)
    }

    fn expected_sites(&self, context: ResolveContext<'_>) -> u32 {
        self.pvi.expected_sites.unwrap_or(context.expected_sites).max(1)
    }

    fn schedule(&self) -> Result<ScheduleSpec, TaskError> {
        match (self.pvi.schedule, self.pvi.rounds, self.pvi.sweeps) {
            (ScheduleKind::Sequential, None, sweeps) => Ok(ScheduleSpec::Sequential { sweeps: sweeps.unwrap_or(20) }),
            (ScheduleKind::Synchronous, Some(rounds), None) => Ok(ScheduleSpec::Synchronous { rounds }),
            (ScheduleKind::Sequential, Some(_), _) => {
                invalid("schedule = \"sequential\" counts sweeps, not rounds (rounds = sweeps × sites)")
            }
            (ScheduleKind::Synchronous, _, _) => invalid("schedule = \"synchronous\" needs rounds, and no sweeps"),
        }
    }

    fn default_damping(&self, schema: &Schema, context: ResolveContext<'_>) -> Damping {
        match (self.pvi.schedule, self.pvi.update) {
            (ScheduleKind::Sequential, UpdateKind::Pvi) => Damping::Constant(1.0),
            (ScheduleKind::Sequential, UpdateKind::DpOptimisation) => Damping::SEQUENTIAL,
            (ScheduleKind::Synchronous, _) => Damping::synchronous(self.expected_sites(context), schema.max_nonzeros()),
        }
    }

    fn refuse_dp_options(&self) -> Result<(), TaskError> {
        let p = &self.pvi;
        let given = [
            ("steps", p.steps.is_some()),
            ("sampling_rate", p.sampling_rate.is_some()),
            ("expected_batch", p.expected_batch.is_some()),
            ("units_per_site", p.units_per_site.is_some()),
            ("clip_norm", p.clip_norm.is_some() || self.privacy.clip_norm.is_some()),
            ("optimizer", p.optimizer.is_some()),
            ("learning_rate", p.learning_rate.is_some()),
            ("learning_rate_decay", p.learning_rate_decay.is_some()),
            ("initial_log_scale", p.initial_log_scale.is_some()),
            ("step_precision", p.step_precision.is_some()),
            ("curvature_weight", p.curvature_weight.is_some()),
            ("averaging", p.averaging.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((name, _)) => invalid(&format!("update = \"pvi\" has no option {name}: remove it, or use update = \"dp-optimisation\"")),
            None => Ok(()),
        }
    }

    /// All numbers of DP optimisation but z, which stands at 1 until it is calibrated.
    fn dp_optimisation(&self, task: &ResolvedTask) -> Result<DpOptimisationSpec, TaskError> {
        let p = &self.pvi;
        let optimizer = p.optimizer.unwrap_or(Optimizer::Preconditioned);
        let (rate, decay) = match optimizer {
            Optimizer::Preconditioned => (0.3, 1.0),
            Optimizer::Adam => (0.05, 0.99),
        };
        Ok(DpOptimisationSpec {
            steps: p.steps.unwrap_or(5),
            sampling_rate: self.sampling_rate()?,
            clip_norm: self.clip_norm(task)?,
            noise_multiplier: checked(NoiseMultiplier::new(1.0))?,
            optimizer,
            learning_rate: p.learning_rate.unwrap_or(rate),
            learning_rate_decay: p.learning_rate_decay.unwrap_or(decay),
            initial_log_scale: p.initial_log_scale.unwrap_or_else(|| task.prior.scale.ln()),
            step_precision: p.step_precision.unwrap_or(0.0),
            curvature_weight: p.curvature_weight.unwrap_or(1.0),
            averaging: p.averaging.unwrap_or(0.5),
        })
    }

    fn sampling_rate(&self) -> Result<SamplingRate, TaskError> {
        let p = &self.pvi;
        match (p.sampling_rate, p.expected_batch, p.units_per_site) {
            (rate, None, None) => checked(SamplingRate::nearest(rate.unwrap_or(1.0))),
            #[allow(clippy::cast_precision_loss, reason = "a count, rounded to a rate afterwards")]
            (None, Some(batch), Some(units)) if units > 0 => checked(SamplingRate::nearest((batch / units as f64).min(1.0))),
            (None, ..) => invalid("expected_batch needs units_per_site above 0, and the other way round"),
            (Some(_), ..) => invalid("give sampling_rate, or expected_batch with units_per_site, not both"),
        }
    }

    fn clip_norm(&self, task: &ResolvedTask) -> Result<ClipNorm, TaskError> {
        match (self.pvi.clip_norm, self.privacy.clip_norm, &task.model) {
            (Some(_), Some(_), _) => invalid("clip_norm is given twice, in [pvi] and in [privacy]: keep one"),
            (Some(clip), None, _) | (None, Some(clip), _) => checked(ClipNorm::new(clip)),
            (None, None, ModelSpec::LogisticRegression {}) => checked(ClipNorm::new(0.5 * task.feature_bound)),
            (None, None, ModelSpec::LinearRegression { .. }) => invalid(
                "linear-regression gradients have no public bound: give clip_norm, the largest gradient norm of a unit that shall count in full",
            ),
        }
    }
}

impl RawModel {
    fn spec(&self) -> Result<ModelSpec, TaskError> {
        match (self.family, self.noise_sd) {
            (ModelFamily::LinearRegression, Some(noise_sd)) => Ok(ModelSpec::LinearRegression { noise_sd }),
            (ModelFamily::LinearRegression, None) => {
                invalid("linear-regression needs noise_sd, the known standard deviation of an observation")
            }
            (ModelFamily::LogisticRegression, None) => Ok(ModelSpec::LogisticRegression {}),
            (ModelFamily::LogisticRegression, Some(_)) => invalid("logistic-regression has no noise_sd: remove it"),
        }
    }
}

/// F of [`RawTask::resolve`], once z is known.
fn step_precision(task: &ResolvedTask, spec: &DpOptimisationSpec, sites: u32) -> f64 {
    let steps = f64::from(spec.steps);
    let tail = (spec.averaging * steps).ceil().max(1.0);
    let way = spec.learning_rate * (steps - 0.5 * (tail - 1.0)) * task.damping.iter().sum::<f64>();
    let step_noise = spec.noise_multiplier.get() * spec.clip_norm.get() / spec.sampling_rate.get();
    let noise = f64::from(sites).sqrt() * step_noise / (steps * f64::from(task.visits())).sqrt();
    3.0 * way * noise / task.prior.scale
}

/// Smallest z for which all visits together cost at most the task's ε.
fn calibrated(mut task: ResolvedTask, spec: DpOptimisationSpec) -> Result<ResolvedTask, TaskError> {
    let PrivacySpec { relation, delta, .. } = task.privacy;
    // `check` came before: a finite ε is there.
    let epsilon = task.privacy.epsilon.unwrap_or(Epsilon::ZERO);
    let coordinates = task.dimension.saturating_mul(2);
    let total = u64::from(spec.steps) * u64::from(task.visits());
    let with = |noise_multiplier| DpOptimisationSpec { noise_multiplier, ..spec };
    let overflow = Cell::new(None);
    let event = |z: NoiseMultiplier| match with(z).mechanism(coordinates) {
        Ok(mechanism) => mechanism.event().repeated(total),
        Err(error) => {
            overflow.set(Some(error));
            DpEvent::NonPrivate
        }
    };
    let mut z = match calibrate(event, relation, epsilon, delta) {
        Ok(z) => z,
        Err(error) => return Err(overflow.take().map_or_else(|| error.into(), Into::into)),
    };
    // A ledger adds visit by visit; where rounding puts that sum above the target, a little more noise brings it back.
    let mut more = 1e-12;
    loop {
        task.update = UpdateSpec::DpOptimisation(with(z));
        if task.loss(task.visits())?.epsilon <= epsilon {
            return Ok(task);
        }
        if more > 1e-3 {
            return invalid("the accountant does not confirm its own calibration: report this as a bug");
        }
        z = checked(NoiseMultiplier::new(z.get() * (1.0 + more)))?;
        more *= 4.0;
    }
}

fn checked<T>(value: Result<T, dp_pvi_privacy::unit::InvalidUnit>) -> Result<T, TaskError> {
    value.map_err(|e| TaskError::Invalid(e.to_string()))
}
