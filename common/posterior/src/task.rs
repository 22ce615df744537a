//! The resolved task: one canonical document in which every number is explicit. Its SHA-256 is the task hash.

use dp_pvi_privacy::mechanism::{LatticeOverflow, LatticeSum};
use dp_pvi_privacy::{ClipNorm, Delta, DpEvent, Epsilon, Hash, LatticePath, NoiseMultiplier, PrivacyUnit, Relation, SamplingRate, Terms};
use serde::{Deserialize, Serialize};

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
    /// Adam's step size at the first step of a visit.
    pub learning_rate: f64,
    /// Factor on the step size after every step.
    pub learning_rate_decay: f64,
    /// log σ at which the first visit starts is at most this (the prior's scale otherwise).
    pub initial_log_scale: f64,
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
    /// The target cannot be reached.
    #[error("task: {0}")]
    Accountant(#[from] dp_pvi_privacy::accountant::AccountantError),
}

/// Engine version of this build.
pub const ENGINE: &str = "dp-pvi/1";

impl ResolvedTask {
    /// Canonical bytes (JSON with two-space indentation, fields in declaration order).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings, numbers and enums: serialisation into memory cannot fail.
        serde_json::to_vec_pretty(self).expect("a task serialises")
    }

    /// Reads canonical bytes; refuses other forms, engines, and bytes that are not canonical.
    ///
    /// # Errors
    /// See [`TaskError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TaskError> {
        let task: Self = serde_json::from_slice(bytes).map_err(|e| TaskError::Unreadable(e.to_string()))?;
        if task.format != 1 || task.engine != ENGINE {
            return Err(TaskError::Unreadable(format!("engine {}, this is {ENGINE}", task.engine)));
        }
        if task.to_bytes() != bytes {
            return Err(TaskError::Unreadable("not in canonical form".into()));
        }
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
            UpdateSpec::DpOptimisation(spec) => Ok(spec.mechanism(2 * self.dimension)?.event().repeated(spec.steps.into())),
        }
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
