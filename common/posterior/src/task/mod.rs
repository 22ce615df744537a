//! What will be computed: [`RawTask`] is the `task.toml` that a person writes, [`ResolvedTask`] the one canonical document in which
//! every number is explicit. Its SHA-256 is the task hash.

mod aggregation;
pub mod bounds;
mod check;
mod early_end;
mod names;
mod promise;
mod raw;
mod reach;
mod released;

pub use crate::methods::{
    AdaptiveClipSpec, BcmSpec, Clip, CommitteePrior, Counts, DocumentsSpec, Expansion, GlobalViSpec, ImagesSpec, Intervals,
    LinearNoiseSpec, PolyaGammaSpec, StatisticsSpec, VipsSpec,
};
pub use crate::methods::{
    ClipTarget, DpEmSpec, DpOptimisationSpec, FactorOwner, FactorState, MessageForm, NaturalGradientSpec, NaturalGradientVisit, Optimizer,
    Preconditioner, PropagationSpec, ScaleWeights, ShardMethod, ShardSpec, SiteStateForm, SumSpec, UpdateKind, UpdateSpec, VisitOrder,
};
pub use dp_pvi_models::spec::promise::Derived;
pub use dp_pvi_models::spec::{
    AggregationSpec, Approximation, DesignSpec, PriorSpec, PrivacySpec, RawAggregation, ScheduleSpec, TaskError, Trust, WeightsSpec,
};
pub use dp_pvi_models::{ModelFamily, ModelSpec};
pub use early_end::EarlyEndSpec;
pub use names::names;
pub use raw::{RawModel, RawPrivacy, RawPvi, RawSchema, RawTask, ResolveContext, Rounds, ScheduleKind};

use dp_pvi_accounting::{Delta, DpEvent, Relation};
use dp_pvi_accounting::{Prices, PrivacyLoss};
use dp_pvi_math::expfam::any::Family;
use dp_pvi_names::Hash;
use serde::{Deserialize, Serialize};

pub use self::reach::Reach;
use crate::methods::prior_predictive::{NotForecast, Sent, Stage};
use crate::methods::{Rule, Setting, price};
use dp_pvi_schema::Schema;

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
    /// Mean and standard deviation of every coefficient of a row, class by class where classes have their own, where `prior` is in typical units; absent: it is that of every encoded entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coefficients: Vec<[f64; 2]>,
    /// The schema file, as text, byte for byte.
    pub schema: String,
    /// What is predicted and what rows are made of; absent: of documents and images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<DesignSpec>,
    /// Number of features: columns of the encoded rows.
    pub features: u32,
    /// Number of model parameters d.
    pub dimension: u32,
    /// Public bound R on the L2 norm of a feature row.
    pub feature_bound: f64,
    /// Largest number of non-zero entries of a feature row.
    pub max_nonzeros: u32,
    /// Order of work.
    pub schedule: ScheduleSpec,
    /// ρ of every sweep (sequential, asynchronous) or round (synchronous).
    pub damping: Vec<f64>,
    /// Local update.
    pub update: UpdateSpec,
    /// Guarantee.
    pub privacy: PrivacySpec,
    /// Numbers of aggregated trust; absent with local trust.
    pub aggregation: Option<AggregationSpec>,
    /// Rounds close after this long (per turn when sequential).
    pub update_deadline_seconds: u64,
    /// Fewest sites of a round.
    pub min_sites: u32,
    /// Public guess of the number of sites, where the task's author made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_sites: Option<u32>,
    /// Updates leave at multiples of this after training; 0 = at once (said in the statement).
    pub release_tick_seconds: u64,
    /// The rule by which the run may end before its last round; absent: it has all its rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_end: Option<EarlyEndSpec>,
    /// Whether the task's author wants the run although its own forecast says that a constant predicts better; absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even_if_worthless: bool,
    /// What follows from the fields above for the data of the sites.
    #[serde(default, skip_serializing)]
    pub promise: Derived,
}

/// Version of the document's form.
const FORMAT: u32 = 1;

/// Engine version of this build.
pub const ENGINE: &str = "dp-pvi/1";

impl ResolvedTask {
    /// Canonical bytes (JSON with two-space indentation, fields in declaration order, then what follows from them as `promise`).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings, numbers and enums: serialisation into memory cannot fail.
        serde_json::to_vec_pretty(&promise::Document::of(self)).expect("a task serialises")
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
        task.check()?;
        if task.to_bytes() != bytes {
            let message = "not in canonical form, or its promise does not follow from its numbers";
            return Err(TaskError::Unreadable(message.into()));
        }
        Ok(task)
    }

    /// Reads a document that people hand on: canonical bytes (`dp-pvi-server check -o FILE`), the same JSON with other white space or order
    /// of keys, or the line that `dp-pvi-server check --format json` prints, which holds the task with its hash.
    ///
    /// # Errors
    /// See [`TaskError`].
    pub fn from_document(bytes: &[u8]) -> Result<Self, TaskError> {
        #[derive(Deserialize)]
        struct Checked {
            task: ResolvedTask,
            task_hash: String,
        }
        // The mark of the byte order is an editor's.
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let direct = Self::from_bytes(bytes);
        if direct.is_ok() {
            return direct;
        }
        let other = "not a resolved task: `dp-pvi-server check -o FILE` writes one";
        let (task, hash) = match serde_json::from_slice::<Self>(bytes) {
            Ok(task) => (task, None),
            Err(error) => match serde_json::from_slice::<Checked>(bytes) {
                Ok(Checked { task, task_hash }) => (task, Some(task_hash)),
                Err(_) => return Err(TaskError::Unreadable(format!("{other} ({error})"))),
            },
        };
        let task = Self::from_bytes(&task.to_bytes())?;
        if hash.is_some_and(|hash| hash != task.hash().to_string()) {
            return Err(TaskError::Unreadable("the task is not the one of the hash beside it".into()));
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
        self.schedule.visits()
    }

    /// The part of this task that models and methods read.
    #[must_use]
    pub fn setting(&self) -> Setting<'_> {
        Setting {
            model: &self.model,
            approximation: self.approximation,
            prior: self.prior,
            coefficients: &self.coefficients,
            schema: &self.schema,
            design: self.design.as_ref(),
            features: self.features,
            dimension: self.dimension,
            feature_bound: self.feature_bound,
            max_nonzeros: self.max_nonzeros,
            schedule: self.schedule,
            damping: &self.damping,
            privacy: &self.privacy,
            aggregation: self.aggregation,
        }
    }

    /// What a visit of one site is to an accountant. Pure: no data is read.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn visit_event(&self, visit: u32) -> Result<DpEvent, TaskError> {
        Ok(self.update.visit(&self.setting(), visit)?.event)
    }

    /// What these visits of one site are, in order: each event with the number of visits in a row that are it.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn visit_events(&self, visits: std::ops::Range<u32>) -> Result<Vec<(DpEvent, u64)>, TaskError> {
        price::visit_events(&self.update, &self.setting(), visits)
    }

    /// What `visits` visits of one site cost, by this build's accountant: the sum that a site's ledger will book.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice, or an event that no engine bounds.
    pub fn loss(&self, visits: u32) -> Result<PrivacyLoss, TaskError> {
        self.loss_under(self.privacy.relation, self.privacy.delta, visits)
    }

    /// The same under another relation, at another δ.
    ///
    /// # Errors
    /// As [`loss`](Self::loss).
    pub fn loss_under(&self, relation: Relation, delta: Delta, visits: u32) -> Result<PrivacyLoss, TaskError> {
        self.loss_at(&mut Prices::new(relation), delta, visits)
    }

    /// The same at prices of which some may be known, under their relation; for many numbers of visits.
    ///
    /// # Errors
    /// As [`loss`](Self::loss).
    pub fn loss_at(&self, prices: &mut Prices, delta: Delta, visits: u32) -> Result<PrivacyLoss, TaskError> {
        price::loss_at(&self.update, &self.setting(), prices, delta, visits)
    }

    /// What a site sends at a visit.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn message(&self, visit: u32) -> Result<MessageForm, TaskError> {
        Ok(self.update.visit(&self.setting(), visit)?.message)
    }

    /// What someone should know before a run, in sentences.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.update.rules().warnings(&self.setting())
    }

    /// What a site keeps between its visits.
    #[must_use]
    pub fn site_state(&self) -> SiteStateForm {
        self.update.rules().state(&self.setting()).site
    }

    /// What the sites of a round would send if drawn rows stood in place of their records, noise included: for forecasts.
    ///
    /// # Errors
    /// Why there is no forecast.
    pub fn simulate(&self, visit: u32, state: &[f64], stage: &mut Stage<'_>) -> Result<Sent, NotForecast> {
        self.update.rules().simulate(&self.setting(), visit, state, stage)
    }

    /// The same task with the least noise with which it costs at most the ε that it states, under the trust that it states.
    ///
    /// # Errors
    /// It cannot be run so, or the noise of its update cannot be calibrated anew.
    pub fn recalibrated(mut self) -> Result<Self, TaskError> {
        // What the update does not allow is said before its noise is looked for.
        self.check()?;
        self.update = self.update.recalibrated(&self.setting())?;
        self.check()?;
        Ok(self)
    }

    /// Passes over a site's records in a visit, at most.
    #[must_use]
    pub fn passes(&self) -> u32 {
        self.update.rules().traits().passes
    }

    /// How the sum of a round's messages moves the state.
    #[must_use]
    pub fn rule(&self) -> Box<dyn Rule> {
        self.update.rules().rule(&self.setting())
    }

    /// λ: the natural parameters of the posterior, which are the head of a state.
    #[must_use]
    pub fn posterior<'a>(&self, state: &'a [f64]) -> &'a [f64] {
        self.setting().posterior(state)
    }

    /// The approximating family.
    #[must_use]
    pub fn family(&self) -> Family {
        self.approximation.family(self.dimension)
    }

    /// λ0: natural parameters of the prior.
    #[must_use]
    pub fn prior_natural(&self) -> Vec<f64> {
        self.setting().prior_natural()
    }

    /// The schema.
    ///
    /// # Errors
    /// The text is not a schema (never for a task that was resolved or read).
    pub fn parsed_schema(&self) -> Result<Schema, TaskError> {
        self.setting().parsed_schema()
    }

    /// Where the predictors of records can be; `None` for a model without linear predictors that people can read.
    ///
    /// # Errors
    /// As [`Self::parsed_schema`].
    pub fn reach(&self) -> Result<Option<Reach>, TaskError> {
        Ok(Reach::of(&self.model, &self.parsed_schema()?, &self.setting().priors()))
    }

    /// Names of the parameters that mean something by themselves, in order: coefficients, or none.
    ///
    /// # Errors
    /// As [`Self::parsed_schema`].
    pub fn parameter_names(&self) -> Result<Vec<String>, TaskError> {
        Ok(self.model.rules().names(&self.parsed_schema()?))
    }
}

#[cfg(test)]
mod formula_tests;
#[cfg(test)]
mod reach_tests;
#[cfg(test)]
pub(crate) mod tests;
