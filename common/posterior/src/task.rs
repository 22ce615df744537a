//! What will be computed: [`RawTask`] is the `task.toml` that a person writes, [`ResolvedTask`] the one canonical document in which
//! every number is explicit. Its SHA-256 is the task hash (decisions 18).

mod check;
mod describe;
mod raw;

pub use raw::{ModelFamily, RawModel, RawPrivacy, RawPvi, RawSchema, RawTask, ResolveContext, ScheduleKind, UpdateKind};

use dp_pvi_expfam::any::Family;
use dp_pvi_privacy::accountant::{PrivacyLoss, epsilon_upper};
use dp_pvi_privacy::mechanism::{LatticeOverflow, LatticeSum};
use dp_pvi_privacy::{ClipNorm, Delta, DpEvent, Epsilon, Hash, LatticePath, NoiseMultiplier, PrivacyUnit, Relation, SamplingRate, Terms};
use serde::{Deserialize, Serialize};

use crate::schema::{Schema, SchemaError};

/// The public statement of what will be computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolvedTask {
    /// Version of this document's form; 1.
    pub format: u32,
    /// Version of the inference engine; both sides must have the same.
    pub engine: String,
    /// Name for people.
    pub name: String,
    /// Likelihood.
    pub model: ModelSpec,
    /// Approximating family.
    pub approximation: Approximation,
    /// Prior N(mean, scale²) on every coefficient.
    pub prior: PriorSpec,
    /// The schema file, as text, byte for byte.
    pub schema: String,
    /// Number of model parameters d.
    pub dimension: u32,
    /// Public bound R on the L2 norm of a feature row.
    pub feature_bound: f64,
    /// Largest number of non-zero entries of a feature row.
    pub max_nonzeros: u32,
    /// Order of work.
    pub schedule: ScheduleSpec,
    /// ρ of every sweep (sequential) or round (synchronous).
    pub damping: Vec<f64>,
    /// Local update.
    pub update: UpdateSpec,
    /// Guarantee.
    pub privacy: PrivacySpec,
    /// Rounds close after this long (per turn when sequential).
    pub update_deadline_seconds: u64,
    /// Fewest sites of a round.
    pub min_sites: u32,
    /// Updates leave at multiples of this after training; 0 = at once (said in the statement).
    pub release_tick_seconds: u64,
}

/// Likelihoods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ModelSpec {
    /// y ~ N(xᵀθ, noise_sd²).
    LinearRegression {
        /// Known standard deviation of the observation noise.
        noise_sd: f64,
    },
    /// P(y = 1) = σ(xᵀθ).
    LogisticRegression {},
}

/// Approximating families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Approximation {
    /// Independent coordinates.
    MeanField,
    /// Full covariance.
    FullCovariance,
}

/// Prior of every coefficient.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorSpec {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub scale: f64,
}

/// Order of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ScheduleSpec {
    /// One site a round, in a fixed cycle (ascending client id); rounds = sweeps × sites.
    Sequential {
        /// Times that every site is visited.
        sweeps: u32,
    },
    /// All sites every round.
    Synchronous {
        /// Rounds.
        rounds: u32,
    },
}

/// Local updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum UpdateSpec {
    /// Exact local optimum, no protection (ε = ∞).
    Pvi {},
    /// DP optimisation (algorithms.md 6.1).
    DpOptimisation(DpOptimisationSpec),
}

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

/// The guarantee that the task states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacySpec {
    /// Whose data is protected.
    pub unit: PrivacyUnit,
    /// Neighbouring data sets.
    pub relation: Relation,
    /// ε of the whole run at one site, an upper bound; absent = none (ε = ∞).
    pub epsilon: Option<Epsilon>,
    /// δ.
    pub delta: Delta,
    /// Who adds the noise.
    pub trust: Trust,
}

/// Trust models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Every site protects itself.
    Local,
    /// Noise is whole only in the sum.
    Aggregated,
}

/// Why a document is not a task of this engine.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// Not the document that this version writes.
    #[error("the task document cannot be read by this version ({0}): use the same version on both sides")]
    Unreadable(String),
    /// A value out of range or a combination that does not exist.
    #[error("task: {0}")]
    Invalid(String),
    /// Numbers that do not fit the lattice.
    #[error(transparent)]
    Lattice(#[from] LatticeOverflow),
    /// The schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The target cannot be reached.
    #[error("task: {0}")]
    Accountant(#[from] dp_pvi_privacy::accountant::AccountantError),
}

/// Version of the document's form.
const FORMAT: u32 = 1;

/// Engine version of this build.
pub const ENGINE: &str = "dp-pvi/1";

impl ResolvedTask {
    /// Canonical bytes (JSON with two-space indentation, fields in declaration order).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings, numbers and enums: serialisation into memory cannot fail.
        serde_json::to_vec_pretty(self).expect("a task serialises")
    }

    /// Reads canonical bytes; refuses other forms and engines, bytes that are not canonical, and documents that contradict themselves:
    /// what comes out can be computed.
    ///
    /// # Errors
    /// See [`TaskError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TaskError> {
        let task: Self = serde_json::from_slice(bytes).map_err(|e| TaskError::Unreadable(e.to_string()))?;
        if task.format != FORMAT || task.engine != ENGINE {
            return Err(TaskError::Unreadable(format!("engine {}, this is {ENGINE}", task.engine)));
        }
        if task.to_bytes() != bytes {
            return Err(TaskError::Unreadable("not in canonical form".into()));
        }
        task.check()?;
        Ok(task)
    }

    /// The task hash.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of("dp-pvi task v1", &[&self.to_bytes()])
    }

    /// Times that one site is asked for an update.
    #[must_use]
    pub fn visits(&self) -> u32 {
        match self.schedule {
            ScheduleSpec::Sequential { sweeps } => sweeps,
            ScheduleSpec::Synchronous { rounds } => rounds,
        }
    }

    /// What one visit is to an accountant. Pure: no data is read.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn visit_event(&self) -> Result<DpEvent, TaskError> {
        match &self.update {
            UpdateSpec::Pvi {} => Ok(DpEvent::NonPrivate),
            UpdateSpec::DpOptimisation(spec) => Ok(spec.mechanism(self.gradient_length())?.event().repeated(spec.steps.into())),
        }
    }

    /// What `visits` visits of one site cost, by this build's accountant: the sum that a site's ledger will book.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice, or an event that no engine bounds.
    pub fn loss(&self, visits: u32) -> Result<PrivacyLoss, TaskError> {
        let event = self.visit_event()?;
        Ok(epsilon_upper(std::iter::repeat_n(&event, visits as usize), self.privacy.relation, self.privacy.delta)?)
    }

    /// The approximating family.
    #[must_use]
    pub fn family(&self) -> Family {
        let dimension = self.dimension as usize;
        match self.approximation {
            Approximation::MeanField => Family::DiagonalGaussian { dimension },
            Approximation::FullCovariance => Family::FullGaussian { dimension },
        }
    }

    /// λ0: natural parameters of the prior.
    #[must_use]
    pub fn prior_natural(&self) -> Vec<f64> {
        self.family().isotropic(self.prior.mean, self.prior.scale * self.prior.scale)
    }

    /// The schema.
    ///
    /// # Errors
    /// The text is not a schema (never for a task that was resolved or read).
    pub fn parsed_schema(&self) -> Result<Schema, TaskError> {
        Ok(Schema::parse(&self.schema)?)
    }

    /// Number of coordinates of one released gradient sum of DP optimisation: 2d.
    fn gradient_length(&self) -> u32 {
        self.dimension.saturating_mul(2)
    }
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
}

#[cfg(test)]
mod tests;
