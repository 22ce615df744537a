//! What the public side knows of an update: its numbers, what a visit is to an accountant, what a site sends and keeps, and which rule
//! moves the state. To add an update, write a file beside these and an arm in [`UpdateSpec`], [`UpdateKind`] and their methods here;
//! what it computes on records is a folder of `dp-pvi-inference`.

mod bcm;
mod dp_em;
mod dp_optimisation;
mod global_vi;
mod natural_gradient;
mod propagation;
mod pvi;
mod shards;
mod vips;

use std::fmt::{Display, Formatter};
use std::ops::Range;

use dp_pvi_privacy::{DpEvent, PayloadKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use bcm::{BcmSpec, CommitteePrior};
pub use dp_em::DpEmSpec;
pub use dp_optimisation::{AdaptiveClipSpec, DpOptimisationSpec, Optimizer};
pub use global_vi::GlobalViSpec;
pub(super) use natural_gradient::PredictorBounds;
pub use natural_gradient::{NaturalGradientSpec, NaturalGradientVisit, Preconditioner};
pub use propagation::{ClipTarget, FactorOwner, PropagationSpec, VisitOrder};
pub use shards::{FactorState, ShardMethod, ShardSpec};

pub use vips::{Clip, Counts, DocumentsSpec, Expansion, ImagesSpec, Intervals, LinearNoiseSpec, PolyaGammaSpec, StatisticsSpec, VipsSpec};

use super::check::invalid;
use super::{ResolvedTask, ScheduleSpec, SumSpec, TaskError};
use crate::rule::Rule;
use crate::schedule::Damping;

/// Local updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum UpdateSpec {
    /// Exact local optimum, no protection (ε = ∞).
    Pvi {},
    /// DP optimisation (algorithms.md 6.1).
    DpOptimisation(DpOptimisationSpec),
    /// Bounded natural gradients (algorithms.md 13.1).
    NaturalGradient(NaturalGradientSpec),
    /// Bayesian committee machine (algorithms.md 7.1).
    Bcm(BcmSpec),
    /// Summed gradients and a server's Adam (algorithms.md 7.2).
    GlobalVi(GlobalViSpec),
    /// Clipped changes of whole shards (algorithms.md 6.2 to 6.4, 8.2).
    Shards(ShardSpec),
    /// Perturbed expected sufficient statistics (algorithms.md 12).
    Vips(VipsSpec),
    /// Expectation propagation with a shared factor or private ones (algorithms.md 9).
    Propagation(PropagationSpec),
    /// Expectation maximisation from noised statistics (algorithms.md 11).
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
pub(super) struct VisitForm {
    /// What it is to an accountant.
    pub(super) event: DpEvent,
    /// What is sent.
    pub(super) message: MessageForm,
    /// The sum that it releases, if that is what it sends.
    pub(super) sum: Option<SumSpec>,
}

/// What a site keeps between its visits, beside its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteStateForm {
    /// Nothing.
    None,
    /// That many numbers, a function of released values: the sum of ρ times what it sent.
    Public(usize),
    /// That many numbers without noise, which never leave the site (algorithms R2, `private-clean`).
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

/// What an update says about itself.
pub(super) trait UpdateRules: Display {
    /// Refuses numbers out of range and tasks that the update cannot serve.
    fn check(&self, task: &ResolvedTask) -> Result<(), TaskError>;

    /// What one visit is to an accountant. Pure: no data is read.
    fn event(&self, task: &ResolvedTask, visit: u32) -> Result<DpEvent, TaskError>;

    /// The sum that a visit releases, if that is what it sends: what may be aggregated.
    fn sum(&self, task: &ResolvedTask, visit: u32) -> Result<Option<SumSpec>, TaskError> {
        let _ = (task, visit);
        Ok(None)
    }

    /// What a site sends at a visit.
    fn message(&self, task: &ResolvedTask, visit: u32) -> Result<MessageForm, TaskError>;

    /// Hands over these visits in order, as they are one by one. Where visits share a budget, the shares are added up once for all of
    /// them: a plan of thousands of visits is read many times.
    fn each_visit(
        &self,
        task: &ResolvedTask,
        visits: Range<u32>,
        take: &mut dyn FnMut(VisitForm) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        visits.into_iter().try_for_each(|visit| {
            take(VisitForm { event: self.event(task, visit)?, message: self.message(task, visit)?, sum: self.sum(task, visit)? })
        })
    }

    /// Most terms of norm C in what a site sends that declared so many units: one a unit, unless the terms are something else.
    fn most_terms(&self, units: u64) -> u64 {
        units
    }

    /// What a site keeps.
    fn site_state(&self, task: &ResolvedTask) -> SiteStateForm;

    /// How the state moves.
    fn rule(&self, task: &ResolvedTask) -> Box<dyn Rule>;

    /// Whether what is sent is protected.
    fn is_private(&self) -> bool {
        true
    }

    /// Whether the unit of privacy is the site.
    fn protects_sites(&self) -> bool {
        false
    }

    /// Whether an update still means the same when λ has moved on since: a change of natural parameters does, a gradient at λ does not.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// What somebody should know before a run, in sentences.
    fn warnings(&self, task: &ResolvedTask) -> Vec<String> {
        let _ = task;
        Vec::new()
    }

    /// What is released at a visit, in words: "at every visit …".
    fn released(&self) -> String;
}

/// What an update may use where it makes its numbers explicit.
pub(super) struct Resolving<'a> {
    /// The task; its update is still a placeholder.
    pub(super) task: &'a ResolvedTask,
    /// The options of `[pvi]` that belong to the update.
    pub(super) options: &'a toml::Table,
    /// `clip_norm` of `[privacy]`.
    pub(super) clip_norm: Option<f64>,
    /// Public guess of the number of sites, at least 1.
    pub(super) expected_sites: u32,
}

impl UpdateSpec {
    pub(super) fn rules(&self) -> &dyn UpdateRules {
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

    /// Whether what is sent is protected; otherwise ε = ∞.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.rules().is_private()
    }

    /// What is released, in words: "at every visit …".
    #[must_use]
    pub fn released(&self) -> String {
        self.rules().released()
    }
}

impl UpdateKind {
    /// The task with this update, every number explicit and the noise calibrated.
    pub(super) fn resolve(self, resolving: &Resolving<'_>) -> Result<ResolvedTask, TaskError> {
        match self {
            Self::Pvi => pvi::resolve(resolving),
            Self::DpOptimisation => dp_optimisation::resolve(resolving),
            Self::NaturalGradient => natural_gradient::resolve(resolving),
            Self::Bcm => bcm::resolve(resolving),
            Self::GlobalVi => global_vi::resolve(resolving),
            Self::ParameterPerturbation => shards::resolve(resolving, ShardMethod::ParameterPerturbation),
            Self::LocalAveraging => shards::resolve(resolving, ShardMethod::LocalAveraging),
            Self::VirtualClients => shards::resolve(resolving, ShardMethod::VirtualClients),
            Self::ClientLevel => shards::resolve(resolving, ShardMethod::ClientLevel),
            Self::Vips => vips::resolve(resolving),
            Self::Sep => propagation::resolve(resolving, FactorOwner::Shared),
            Self::Ep => propagation::resolve(resolving, FactorOwner::Record),
            Self::DpEm => dp_em::resolve(resolving),
        }
    }

    /// ρ where the task says nothing.
    pub(super) fn default_damping(self, schedule: ScheduleSpec, sites: u32, max_nonzeros: u32) -> Damping {
        match (schedule, self) {
            (ScheduleSpec::Sequential { .. }, Self::Pvi) => Damping::Constant(1.0),
            // The server's rule has a step of its own.
            (_, Self::NaturalGradient | Self::Vips) => Damping::Constant(1.0),
            // Whole fits are multiplied; a server's optimiser has its learning rate.
            (_, Self::Bcm | Self::GlobalVi) => Damping::Constant(1.0),
            // However many shards: section 4.6.
            (_, Self::VirtualClients) => Damping::shards(max_nonzeros),
            // A random walk of the noise is short where the last steps are (section 8.2).
            (ScheduleSpec::Synchronous { .. }, Self::ClientLevel) => Damping::CLIENT_LEVEL,
            (ScheduleSpec::Sequential { .. }, Self::ParameterPerturbation | Self::LocalAveraging | Self::ClientLevel) => {
                Damping::SEQUENTIAL
            }
            // Algorithms, section 9.3.
            (_, Self::Sep | Self::Ep) => Damping::Constant(0.5),
            (_, Self::DpEm) => Damping::Constant(1.0),
            (ScheduleSpec::Sequential { .. }, Self::DpOptimisation) => Damping::SEQUENTIAL,
            (ScheduleSpec::Synchronous { .. }, _) => Damping::synchronous(sites, max_nonzeros),
            (ScheduleSpec::Asynchronous { max_staleness, .. }, _) => Damping::asynchronous(sites, max_nonzeros, max_staleness),
        }
    }
}

impl Display for UpdateSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.rules().fmt(f)
    }
}

impl Resolving<'_> {
    /// The update's options, no other key left.
    fn options<T: DeserializeOwned>(&self, update: &str) -> Result<T, TaskError> {
        match self.options.clone().try_into() {
            Ok(options) => Ok(options),
            Err(error) => invalid(&format!("[pvi] update = \"{update}\": {}", error.to_string().trim_end())),
        }
    }

    /// The clipping norm, which may be written in `[pvi]` or in `[privacy]`.
    fn clip_norm(&self, in_pvi: Option<f64>) -> Result<Option<f64>, TaskError> {
        match (in_pvi, self.clip_norm) {
            (Some(_), Some(_)) => invalid("clip_norm is given twice, in [pvi] and in [privacy]: keep one"),
            (clip, other) => Ok(clip.or(other)),
        }
    }
}
