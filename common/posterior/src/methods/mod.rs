//! What the public side knows of an update: its numbers, what a visit is to an accountant, what a site sends and keeps, and which rule
//! moves the state. To add an update, write a module beside these, its line in the registry, and its numbers in [`UpdateSpec`] and
//! [`UpdateKind`]; what it computes on records is the folder of the same name in `dp-pvi-inference`.

pub mod agreement;
pub mod bcm;
mod calibration;
mod check;
pub mod client_level;
pub mod divided;
pub mod dp_em;
pub mod dp_optimisation;
pub mod ep;
pub mod global_vi;
pub mod local_averaging;
pub mod natural_gradient;
pub mod noise_aware;
pub mod parameter_perturbation;
pub(crate) mod price;
pub mod prior_predictive;
pub mod propagation;
pub mod pvi;
mod rule;
pub(crate) mod scaled;
pub mod sep;
mod setting;
pub mod shards;
mod sum;
pub mod vips;
pub mod virtual_clients;
mod with_scale;

use std::fmt::{Display, Formatter};
use std::ops::Range;

use dp_pvi_accounting::{DpEvent, NoiseMultiplier};
use dp_pvi_names::PayloadKind;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use bcm::{BcmSpec, CommitteePrior};
pub use dp_em::{DpEmSpec, EmRule};
pub use dp_optimisation::{AdaptiveClipSpec, DpOptimisationSpec, Optimizer};
pub use global_vi::{GlobalViRule, GlobalViSpec};
pub use natural_gradient::{NaturalGradientRule, NaturalGradientSpec, NaturalGradientVisit, Preconditioner, ScaleWeights};
pub use propagation::{Approximation, NOISE_PRIOR, PropagationRule};
pub use propagation::{ClipTarget, FactorOwner, PropagationSpec, VisitOrder};
pub use pvi::PviRule;
pub use rule::{Rule, Step, VisitSum};
pub use setting::Setting;
pub use shards::{Coding, FactorState, ShardMethod, ShardRule, ShardSpec};
pub use sum::SumSpec;
pub use vips::{
    Clip, Counts, DocumentsSpec, Expansion, ImagesSpec, Intervals, LinearNoiseSpec, PolyaGammaSpec, StatisticsSpec, VipsRule, VipsSpec,
};

use self::agreement::{Compared, NotTested, SiteReleases};
use self::divided::{Divided, Undividable};
use self::noise_aware::{Absent, Contribution, History, Posterior};
use self::prior_predictive::{NotForecast, Sent, Stage};
use dp_pvi_math::damping::Damping;
use dp_pvi_models::spec::check::{checked, invalid, settings};
use dp_pvi_models::spec::{ScheduleSpec, TaskError};

/// Local updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum UpdateSpec {
    /// Exact local optimum, no protection (ε = ∞).
    Pvi {},
    /// DP optimisation.
    DpOptimisation(DpOptimisationSpec),
    /// Bounded natural gradients.
    NaturalGradient(NaturalGradientSpec),
    /// Bayesian committee machine.
    Bcm(BcmSpec),
    /// Summed gradients and a server's Adam.
    GlobalVi(GlobalViSpec),
    /// Clipped changes of whole shards.
    Shards(ShardSpec),
    /// Perturbed expected sufficient statistics.
    Vips(VipsSpec),
    /// Expectation propagation with a shared factor or private ones.
    Propagation(PropagationSpec),
    /// Expectation maximisation from noised statistics.
    DpEm(DpEmSpec),
}

/// Names of the updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateKind {
    /// Exact local optimum, no protection.
    Pvi,
    /// Clipped and noised gradient sums.
    DpOptimisation,
    /// Noised sums of bounded natural gradients.
    NaturalGradient,
    /// One fit of every site, multiplied.
    Bcm,
    /// Noised sums of clipped gradients.
    GlobalVi,
    /// A noised change of a site's whole fit.
    ParameterPerturbation,
    /// A noised average of the changes of a site's shards.
    LocalAveraging,
    /// A noised sum of the changes of a site's shards.
    VirtualClients,
    /// A noised change of a site's whole fit, where the site is what is protected.
    ClientLevel,
    /// Noised sums of expected sufficient statistics.
    Vips,
    /// Stochastic expectation propagation: one factor that stands for every record.
    Sep,
    /// Expectation propagation with a private factor for every record.
    Ep,
    /// Expectation maximisation from noised statistics.
    DpEm,
}

/// What a site sends at a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageForm {
    /// Kind of payload; a lattice payload's exponent is the task's.
    pub kind: PayloadKind,
    /// Number of coordinates.
    pub coordinates: u64,
}

/// Everything that is known of a visit before it runs.
pub(crate) struct VisitForm {
    /// What it is to an accountant.
    pub(crate) event: DpEvent,
    /// What is sent.
    pub(crate) message: MessageForm,
    /// The sum that it releases, if that is what it sends: what may be aggregated.
    pub(crate) sum: Option<SumSpec>,
}

impl VisitForm {
    /// A visit that releases a sum.
    pub(crate) fn of_sum(sum: SumSpec, task: &Setting<'_>) -> Result<Self, TaskError> {
        let mechanism = sum.mechanism(task)?;
        Ok(Self { event: mechanism.event(), message: MessageForm::of_sum(&mechanism), sum: Some(sum) })
    }

    /// A visit that sends so many numbers, which are no sum.
    pub(crate) fn of_values(event: DpEvent, coordinates: u64) -> Self {
        Self { event, message: MessageForm { kind: PayloadKind::Values, coordinates }, sum: None }
    }
}

/// What a site keeps between its visits, beside its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteStateForm {
    /// Nothing.
    None,
    /// That many numbers, a function of released values: the sum of ρ times what it sent.
    Public(usize),
    /// That many numbers without noise, which never leave the site (`private-clean`).
    Private(usize),
}

impl SiteStateForm {
    /// Number of numbers.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Public(len) | Self::Private(len) => len,
        }
    }

    /// Whether there is nothing to keep.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// What an update says about itself. The first six functions make an update; the others are for updates that can do more.
pub(crate) trait UpdateRules: Display {
    /// Refuses numbers out of range and tasks that the update cannot serve.
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError>;

    /// What every visit is, by its number. Pure: no data is read. A plan of thousands of visits is read many times: what visits share is computed before
    /// the first one.
    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a>;

    /// What it needs and what it allows.
    fn traits(&self) -> Traits;

    /// What the server and a site keep from visit to visit.
    fn state(&self, task: &Setting<'_>) -> StateForm;

    /// How the state moves.
    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule>;

    /// What is released at a visit, in words: "at every visit …".
    fn released(&self) -> String;

    /// What someone should know before a run, in sentences.
    fn warnings(&self, task: &Setting<'_>) -> Vec<String> {
        let _ = task;
        Vec::new()
    }

    /// The same update with this noise, and what its defaults make of it: for forecasts under another ε.
    fn with_noise(&self, noise_multiplier: NoiseMultiplier) -> Option<UpdateSpec> {
        let _ = noise_multiplier;
        None
    }

    /// What the sites of a round would send if drawn rows stood in place of their records, noise included: for forecasts.
    ///
    /// # Errors
    /// Why there is no forecast.
    fn simulate(&self, task: &Setting<'_>, visit: u32, state: &[f64], stage: &mut Stage<'_>) -> Result<Sent, NotForecast> {
        let _ = (task, visit, state, stage);
        Err(NotForecast::Update)
    }

    /// Standard deviation of an observation's noise, where a state has learned it.
    fn learned_noise(&self, state: &[f64]) -> Option<f64> {
        let _ = state;
        None
    }

    /// What makes the posterior of a run noise-aware.
    ///
    /// # Errors
    /// Why it never is.
    fn noise_aware(&self) -> Result<&dyn NoiseAware, Absent> {
        Err(if self.traits().is_private { Absent::Unknown } else { Absent::NoNoise })
    }

    /// What takes one site's part out of released sums, where the rule adds such up.
    fn parted(&self) -> Option<&dyn Parted> {
        None
    }

    /// What compares every site with all others.
    ///
    /// # Errors
    /// Why they are never compared.
    fn comparable(&self) -> Result<&dyn Comparable, NotTested> {
        Err(if self.traits().is_private { NotTested::Update } else { NotTested::NoNoise })
    }

    /// The posterior without what one site released, under local trust.
    ///
    /// # Errors
    /// Why there is none.
    fn without(&self, task: &Setting<'_>, releases: &SiteReleases<'_>, site: usize) -> Result<Divided, Undividable> {
        let _ = (task, releases, site);
        Err(Undividable::Update)
    }
}

/// What a visit is, by its number.
pub(crate) type Visits<'a> = Box<dyn Fn(u32) -> Result<VisitForm, TaskError> + 'a>;

/// What an update needs and what it allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    /// Passes over a site's records (steps, sweeps, fits of shards) in a visit, at most.
    pub(crate) passes: u32,
    /// Most terms of norm C in what a site sends; one a unit, where there is no number.
    pub(crate) terms: Option<u64>,
    /// Whether what is sent is protected.
    pub(crate) is_private: bool,
    /// Whether the unit of privacy is the site.
    pub(crate) protects_sites: bool,
    /// Whether an update still means the same when λ has moved on since: a change of natural parameters does, a gradient at λ does not.
    pub(crate) is_asynchronous: bool,
    /// Whether the server learns scales that coefficients share, after each round.
    pub(crate) learns_scales: bool,
    /// Whether sites send the statistics from which the scale of an observation's noise is learned.
    pub(crate) learns_noise_scale: bool,
    /// Whether a site can send the coordinates that all sites have and its own effects, and nothing for those of others.
    pub(crate) carries_site_effects: bool,
    /// Whether what a site computes knows that a record's predictor has a part without a coefficient; and coefficients have priors of their own.
    pub(crate) carries_offsets: bool,
    /// The update's name, where a unit's shard may follow from its number among the units.
    pub(crate) cuts_by_position: Option<&'static str>,
}

impl Traits {
    /// An update that protects units, sends one term a unit, knows a record's offset, and allows nothing else.
    pub(crate) const fn of_passes(passes: u32) -> Self {
        Self {
            passes,
            terms: None,
            is_private: true,
            protects_sites: false,
            is_asynchronous: false,
            learns_scales: false,
            learns_noise_scale: false,
            carries_site_effects: false,
            carries_offsets: true,
            cuts_by_position: None,
        }
    }
}

/// What the server and a site keep from visit to visit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateForm {
    /// Length of the state that [`UpdateRules::rule`] moves.
    pub(crate) len: u64,
    /// What a site keeps.
    pub(crate) site: SiteStateForm,
}

/// An update whose released sums say how far its noise reaches.
pub(crate) trait NoiseAware {
    /// The noise-aware posterior of a run with a public history.
    ///
    /// # Errors
    /// Why there is none.
    fn posterior(&self, task: &Setting<'_>, history: &History) -> Result<Posterior, Absent>;
}

/// An update out of whose released sums one site's part can be taken.
pub(crate) trait Parted {
    /// The noise-aware posterior that the same sums give without one site's part in them. States that are not known are empty.
    ///
    /// # Errors
    /// Why there is none.
    fn without(&self, task: &Setting<'_>, history: &History, part: &Contribution) -> Result<Posterior, Absent>;

    /// λ_k: what a site's released sums added to the posterior as it came out of the run, weighted as the rule weights rounds. `None` where one of them
    /// is not known.
    fn factor(&self, task: &Setting<'_>, history: &History, part: &Contribution) -> Option<Vec<f64>>;
}

/// An update whose releases say of every site what it would say of the others.
pub(crate) trait Comparable {
    /// Every site against all others, under local trust; `None` for a site that released no gradient.
    ///
    /// # Errors
    /// Why nothing was compared.
    fn agreement(&self, task: &Setting<'_>, releases: &SiteReleases<'_>) -> Result<Vec<Option<Compared>>, NotTested>;
}

/// What an update may use where it makes its numbers explicit.
pub(crate) struct Resolving<'a> {
    /// The task without its update.
    pub(crate) task: Setting<'a>,
    /// The options of `[pvi]` that belong to the update.
    pub(crate) options: &'a toml::Table,
    /// `clip_norm` of `[privacy]`.
    pub(crate) clip_norm: Option<f64>,
    /// Public guess of the number of sites, at least 1.
    pub(crate) expected_sites: u32,
    /// Refuses an update with which the task contradicts itself or cannot be computed.
    pub(crate) check: &'a dyn Fn(&UpdateSpec) -> Result<(), TaskError>,
}

impl UpdateSpec {
    pub(crate) fn rules(&self) -> &dyn UpdateRules {
        match self {
            Self::Pvi {} => &pvi::Pvi,
            Self::DpOptimisation(spec) => spec,
            Self::NaturalGradient(spec) => spec,
            Self::Bcm(spec) => spec,
            Self::GlobalVi(spec) => spec,
            Self::Shards(spec) => spec,
            Self::Vips(spec) => spec,
            Self::Propagation(spec) => spec,
            Self::DpEm(spec) => spec,
        }
    }

    /// The update with the least noise with which a task of this setting costs at most its ε; otherwise as it is.
    pub(crate) fn recalibrated(&self, task: &Setting<'_>) -> Result<Self, TaskError> {
        let other = |z| self.rules().with_noise(z).unwrap_or_else(|| self.clone());
        if other(checked(NoiseMultiplier::new(1.0))?) == *self && other(checked(NoiseMultiplier::new(2.0))?) == *self {
            return invalid("the noise of this update cannot be calibrated anew");
        }
        Ok(other(calibration::calibrated(task, other)?))
    }

    /// Whether what is sent is protected; otherwise ε = ∞.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.rules().traits().is_private
    }

    /// What a visit is.
    pub(crate) fn visit(&self, task: &Setting<'_>, visit: u32) -> Result<VisitForm, TaskError> {
        (self.rules().visits(task))(visit)
    }

    /// Hands over these visits in order.
    pub(crate) fn each_visit(
        &self,
        task: &Setting<'_>,
        visits: Range<u32>,
        mut take: impl FnMut(VisitForm) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let form = self.rules().visits(task);
        visits.into_iter().try_for_each(|visit| take(form(visit)?))
    }

    /// What is released, in words: "at every visit …".
    #[must_use]
    pub fn released(&self) -> String {
        self.rules().released()
    }
}

/// The registry: one line for every method, in the order in which people read them.
const REGISTRY: [&MethodEntry; 13] = [
    &natural_gradient::ENTRY,
    &dp_optimisation::ENTRY,
    &vips::ENTRY,
    &virtual_clients::ENTRY,
    &local_averaging::ENTRY,
    &parameter_perturbation::ENTRY,
    &client_level::ENTRY,
    &sep::ENTRY,
    &ep::ENTRY,
    &global_vi::ENTRY,
    &bcm::ENTRY,
    &dp_em::ENTRY,
    &pvi::ENTRY,
];

/// What the registry knows of a method.
pub(crate) struct MethodEntry {
    /// Its kind in a task.
    pub(crate) kind: UpdateKind,
    /// Its name in `task.toml`.
    pub(crate) name: &'static str,
    /// What it is, in half a line.
    pub(crate) help: &'static str,
    /// From its options to its numbers.
    pub(crate) resolve: fn(&Resolving<'_>) -> Result<UpdateSpec, TaskError>,
    /// ρ where the task says nothing.
    pub(crate) damping: fn(&Pace) -> Damping,
}

/// What a default of ρ may depend on.
pub(crate) struct Pace {
    /// Order of work.
    pub(crate) schedule: ScheduleSpec,
    /// Public guess of the number of sites.
    pub(crate) sites: u32,
    /// Largest number of non-zero entries of a feature row.
    pub(crate) max_nonzeros: u32,
}

impl Pace {
    /// `sequential` where one site moves at a time; less where several move λ at once, because their changes add up.
    pub(crate) fn damping(&self, sequential: Damping) -> Damping {
        match self.schedule {
            ScheduleSpec::Sequential { .. } => sequential,
            ScheduleSpec::Synchronous { .. } => Damping::synchronous(self.sites, self.max_nonzeros),
            ScheduleSpec::Asynchronous { max_staleness, .. } => Damping::asynchronous(self.sites, self.max_nonzeros, max_staleness),
        }
    }
}

/// Names of all methods as `task.toml` has them, each with what it is in half a line.
pub fn registered() -> impl Iterator<Item = (&'static str, &'static str)> {
    REGISTRY.iter().map(|entry| (entry.name, entry.help))
}

impl UpdateKind {
    fn entry(self) -> &'static MethodEntry {
        REGISTRY.into_iter().find(|entry| entry.kind == self).expect("a test finds every kind in the registry")
    }

    /// The update with every number explicit and the noise calibrated.
    pub(crate) fn resolve(self, resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
        (self.entry().resolve)(resolving)
    }

    /// ρ where the task says nothing.
    pub(crate) fn default_damping(self, schedule: ScheduleSpec, sites: u32, max_nonzeros: u32) -> Damping {
        (self.entry().damping)(&Pace { schedule, sites, max_nonzeros })
    }
}

impl ShardMethod {
    /// What the module of a method over shards says to its engine.
    pub(crate) fn traits(self) -> &'static shards::ShardTraits {
        match self {
            Self::ParameterPerturbation => &parameter_perturbation::TRAITS,
            Self::LocalAveraging => &local_averaging::TRAITS,
            Self::VirtualClients => &virtual_clients::TRAITS,
            Self::ClientLevel => &client_level::TRAITS,
        }
    }
}

impl Display for UpdateSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.rules().fmt(f)
    }
}

/// The keys of `[pvi]` that every update has.
pub(crate) const PVI_KEYS: &[&str] = &[
    "schedule",
    "rounds",
    "sweeps",
    "max_staleness",
    "damping",
    "expected_sites",
    "expected_units",
    "release_tick_seconds",
    "end_early",
    "update",
];

impl Resolving<'_> {
    /// The update's options, no other key left.
    pub(crate) fn options<T: DeserializeOwned>(&self, update: &str) -> Result<T, TaskError> {
        settings(self.options, "[pvi]", &format!("update = \"{update}\""), PVI_KEYS)
    }

    /// Refuses an update with which the task contradicts itself or cannot be computed.
    pub(crate) fn check(&self, update: &UpdateSpec) -> Result<(), TaskError> {
        (self.check)(update)
    }

    /// The update, checked.
    pub(crate) fn checked(&self, update: UpdateSpec) -> Result<UpdateSpec, TaskError> {
        self.check(&update)?;
        Ok(update)
    }

    /// Smallest z with which the run costs at most what the task states.
    pub(crate) fn calibrated(&self, with: impl Fn(NoiseMultiplier) -> UpdateSpec) -> Result<NoiseMultiplier, TaskError> {
        calibration::calibrated(&self.task, with)
    }

    /// The clipping norm, which may be written in `[pvi]` or in `[privacy]`.
    pub(crate) fn clip_norm(&self, in_pvi: Option<f64>) -> Result<Option<f64>, TaskError> {
        match (in_pvi, self.clip_norm) {
            (Some(_), Some(_)) => invalid("clip_norm is given twice, in [pvi] and in [privacy]: keep one"),
            (clip, other) => Ok(clip.or(other)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{REGISTRY, UpdateKind};

    /// The names are those that serde reads, and no kind is missing: an enum's last variant is asked by number.
    #[test]
    fn every_kind_is_in_the_registry_once() {
        for entry in REGISTRY {
            assert_eq!(serde_json::to_value(entry.kind).unwrap(), entry.name);
            assert_eq!(entry.kind.entry().name, entry.name);
            assert!(!entry.help.is_empty() && entry.help.len() < 100, "{}", entry.name);
        }
        let unknown = serde_json::from_str::<UpdateKind>("\"?\"").unwrap_err().to_string();
        let known = unknown.matches('`').count() / 2 - 1;
        assert_eq!(REGISTRY.len(), known, "{unknown}");
    }
}
