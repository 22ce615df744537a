//! Updates that clip the change that a whole shard of records makes (algorithms.md 6.2 to 6.4, 8.2): parameter perturbation (one shard a
//! site), local averaging, virtual clients, and client-level updates (one shard a site, and the site is what is protected).
//!
//! A site cuts its units into K shards. Every shard fits its records to the cavity, the change is written in the coordinates of the clip
//! metric, each block is cut to its bound and scaled, and one noised sum over the shards is released. Server and site decode with the
//! same public λ.
//!
//! # Which settings
//! The noise on a sum is 2Cz whatever a shard holds. A shard of b records has a change of about √b times the norm of one record's: at the same
//! share of clipped changes C, and the noise with it, grows by √b, while what the sum says of the data stays the same. So virtual clients do best
//! with one record a shard (K = the public size of a site), `state = "tied"` (private factors add the noise of all rounds up: variance ρ²T in
//! place of about ρ/2) and ρ ≈ 0.2; shards of local averaging must be fits of their own, and about 20 records with ρ = 0.5 did best. Found on
//! synthetic one-hot data of 39,070 rows and 105 columns (like that of the example `choose_defaults`, one or two data sets a setting, by a program that is not
//! kept here; loss of held-out log-likelihood to the optimum without protection, one sum, ε = 1): virtual clients 0.0067 at 25 rounds, 0.025 to 0.037 where the precision crept up with ρ (see
//! [`ShardRule`](crate::rule::ShardRule)); local averaging 0.0165 with 20 and 0.0189 with 40 records a shard after 6 rounds. On the example's first shape itself local
//! averaging loses 0.084 ± 0.021 after 6 rounds, 0.044 ± 0.006 after 10 (four data sets) and 0.030 ± 0.009 after 20 (two): its settings vary more than the first figures say. On UCI Adult, ten aggregated sites,
//! five seeds: virtual clients −0.3351 ± 0.0015 after 20 rounds, a number set after seeing two of the seeds (−0.59 with few large shards and private factors), optimum −0.3305.
//!
//! # Privacy
//! Removing a unit changes its shard's result to another vector of the ball, so the terms are `ShardResults` and the sensitivity is 2C
//! under either relation; in a client-level update the site is the unit and its term a `Units` term. States are released, tied or
//! private-clean ([`FactorState`]); none of them holds noise that was not released (R2).

use std::fmt::{Display, Formatter};

use dp_pvi_privacy::mechanism::SumMechanism;
use dp_pvi_privacy::{ClipNorm, DpEvent, NoiseMultiplier, PrivacyUnit, Terms};
use serde::{Deserialize, Serialize};

use super::{MessageForm, Resolving, SiteStateForm, UpdateRules, UpdateSpec};
use crate::blocks::block_scales;
use crate::clip_metric::ClipMetric;
use crate::rule::{Rule, ShardRule};
use crate::task::calibration::{calibrated, checked};
use crate::task::check::{invalid, require, requires_clip_norms, requires_epsilon};
use crate::task::describe::Short;
use crate::task::{Approximation, ResolvedTask, SumSpec, TaskError, Trust};

/// Numbers of an update over shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardSpec {
    /// What shards are and how their changes are put together.
    pub method: ShardMethod,
    /// K: shards of a site.
    pub shards: u32,
    /// M: public number of sites, by which a tied factor is divided.
    pub sites: u32,
    /// What a site takes for its own factor.
    pub state: FactorState,
    /// Coordinates that are clipped.
    pub clip_metric: ClipMetric,
    /// One bound for every block of the metric.
    pub clip_norms: Vec<ClipNorm>,
    /// What every block is divided by inside the one release, whose clipping norm is 1: the noise on a block is z times its scale.
    pub scales: Vec<f64>,
    /// z of the sum that the server sees.
    pub noise_multiplier: NoiseMultiplier,
    /// Λ_step: where a mean's step is divided by the new precision, it is divided by no less than this.
    pub step_precision: f64,
}

/// Updates over shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardMethod {
    /// One shard a site.
    ParameterPerturbation,
    /// Every shard stands for the whole site (its likelihood to the power K), and the changes are averaged.
    LocalAveraging,
    /// Every shard has a factor of its own, and the changes are added up.
    VirtualClients,
    /// One shard a site, and the site is the unit of privacy.
    ClientLevel,
}

/// What a site takes for its own factor λ_m (or its shards for theirs): the only states that rule R2 allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FactorState {
    /// ρ times the sum of what the site released (local trust only); shards have equal parts of it.
    Released,
    /// (λ − λ0)/M; shards have equal parts of it. Nothing is kept.
    Tied,
    /// ρ times the sum of the unit's own clipped changes before noise, where the unit is what the release clips: a shard (virtual clients), or the
    /// whole site where it has one shard. It never leaves the site. Not for local averaging, whose shards share one factor: a record
    /// would move all of their terms.
    PrivateClean,
}

/// Options of `[pvi]` with one of these updates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// K. Required for local averaging and virtual clients, 1 otherwise.
    shards: Option<u32>,
    /// Default: `released` under local trust and `tied` under aggregation (parameter perturbation, local averaging), else `private-clean`.
    state: Option<FactorState>,
    /// Default: `centred`.
    clip_metric: Option<ClipMetric>,
    /// The bound of a metric with one block. Default: half the public bound on a row, which is half that on a record's gradient; times K for
    /// an average, whose shards stand for the whole site.
    clip_norm: Option<f64>,
    /// The bounds of a metric with two: mean block, precision block. Default: that of one block for both.
    clip_norms: Option<Vec<f64>>,
    /// Expected harm of a unit of noise variance on either block (R5). Default: [`PRECISION_SHARE`] of the budget for the precision block.
    importances: Option<Vec<f64>>,
    /// Λ_step. Default: see [`SHRINKAGE`].
    step_precision: Option<f64>,
}

/// Default of Λ_step: this times K s/τ, K = Σρ the gain of the run in steps, s the noise that is left on the mean block of the sum after
/// all visits, and τ the prior's scale; as for natural gradients and DP optimisation. Block and flat coordinates have no such step.
const SHRINKAGE: f64 = 3.0;

/// Share of a release's budget that the precision block has by default: a step divides by the precision, and what is a little off there changes
/// the length of steps and no direction.
const PRECISION_SHARE: f64 = 0.1;

/// A site's change is worth noise below this share of what all sites can say together: M ≥ 3 z √dim (algorithms.md 8.2).
const SIGNAL: f64 = 3.0;

impl ShardMethod {
    /// The name in `task.toml`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ParameterPerturbation => "parameter-perturbation",
            Self::LocalAveraging => "local-averaging",
            Self::VirtualClients => "virtual-clients",
            Self::ClientLevel => "client-level",
        }
    }

    pub(crate) fn has_shards(self) -> bool {
        matches!(self, Self::LocalAveraging | Self::VirtualClients)
    }

    /// How many times a shard's records count, and what the sum of changes is divided by: K for an average.
    fn averaged(self, shards: u32) -> f64 {
        match self {
            Self::LocalAveraging => f64::from(shards),
            Self::ParameterPerturbation | Self::VirtualClients | Self::ClientLevel => 1.0,
        }
    }
}

pub(super) fn resolve(resolving: &Resolving<'_>, method: ShardMethod) -> Result<ResolvedTask, TaskError> {
    let raw: Raw = resolving.options(method.name())?;
    let spec = raw.spec(resolving, method)?;
    let with = |spec| ResolvedTask { update: UpdateSpec::Shards(spec), ..resolving.task.clone() };
    with(spec.clone()).check()?;
    let z = calibrated(|noise_multiplier| with(ShardSpec { noise_multiplier, ..spec.clone() }))?;
    let mut spec = ShardSpec { noise_multiplier: z, ..spec };
    if raw.step_precision.is_none() && resolving.task.approximation == Approximation::MeanField && spec.clip_metric == ClipMetric::Centred {
        // The event does not depend on it: z stays calibrated.
        spec.step_precision = spec.default_step_precision(resolving.task, resolving.expected_sites);
    }
    let task = with(spec);
    task.check()?;
    Ok(task)
}

impl Raw {
    /// All numbers but z, which stands at 1 until it is calibrated.
    fn spec(&self, resolving: &Resolving<'_>, method: ShardMethod) -> Result<ShardSpec, TaskError> {
        let task = resolving.task;
        let shards = match (self.shards, method.has_shards()) {
            (Some(shards), true) => shards,
            (None, false) => 1,
            (None, true) => return invalid(&format!("update = \"{}\" needs shards, the number of shards of a site", method.name())),
            (Some(_), false) => return invalid(&format!("update = \"{}\" has one shard a site: remove shards", method.name())),
        };
        let clip_metric = self.clip_metric.unwrap_or(ClipMetric::Centred);
        let blocks = blocks(task, clip_metric).len();
        let bounds = match (&self.clip_norms, resolving.clip_norm(self.clip_norm)?) {
            (Some(norms), None) => norms.clone(),
            (None, Some(norm)) => vec![norm; blocks],
            (Some(_), Some(_)) => return invalid("give clip_norm or clip_norms, not both"),
            (None, None) => vec![0.5 * task.feature_bound * method.averaged(shards); blocks],
        };
        if bounds.len() != blocks {
            return invalid(&format!("this clip_metric has {blocks} blocks: give clip_norms with as many bounds"));
        }
        let clip_norms = bounds.iter().map(|&norm| checked(ClipNorm::new(norm))).collect::<Result<Vec<_>, _>>()?;
        let importances = match &self.importances {
            Some(given) if given.len() == blocks && given.iter().all(|w| *w > 0.0 && w.is_finite()) => given.clone(),
            Some(_) => return invalid("importances must be one finite number above 0 for every block"),
            None => {
                let weight = |block| if block == 0 { 1.0 } else { PRECISION_SHARE / (1.0 - PRECISION_SHARE) };
                bounds.iter().enumerate().map(|(block, norm)| (weight(block) / norm).powi(2)).collect()
            }
        };
        let public = match task.privacy.trust {
            Trust::Local => FactorState::Released,
            Trust::Aggregated => FactorState::Tied,
        };
        let state = match method {
            ShardMethod::ParameterPerturbation | ShardMethod::LocalAveraging => public,
            ShardMethod::VirtualClients | ShardMethod::ClientLevel => FactorState::PrivateClean,
        };
        Ok(ShardSpec {
            method,
            shards,
            sites: task.aggregation.map_or(resolving.expected_sites, |aggregation| aggregation.sites),
            state: self.state.unwrap_or(state),
            clip_metric,
            scales: block_scales(&bounds, &importances),
            clip_norms,
            noise_multiplier: checked(NoiseMultiplier::new(1.0))?,
            step_precision: self.step_precision.unwrap_or(0.0),
        })
    }
}

/// What somebody should know where whole sites are protected: whether all of them together can be heard above the noise.
pub(super) fn too_few_sites(sites: u64, noise: NoiseMultiplier, task: &ResolvedTask) -> Option<String> {
    #[allow(clippy::cast_precision_loss, reason = "numbers of parameters and of sites")]
    let (needed, sites) = (SIGNAL * noise.get() * (task.family().len() as f64).sqrt(), sites as f64);
    (sites < needed).then(|| {
        let needed = needed.ceil();
        format!(
            "{sites} sites are too few: all of them together add less to the sum than the noise; {needed} are needed for these parameters"
        )
    })
}

/// Lengths of the blocks of a message.
fn blocks(task: &ResolvedTask, metric: ClipMetric) -> Vec<usize> {
    let family = task.family();
    let (d, len) = (family.dimension(), family.len());
    if metric.has_blocks() { vec![d, len - d] } else { vec![len] }
}

impl ShardSpec {
    /// Lengths of the blocks of a message and their bounds.
    #[must_use]
    pub fn blocks(&self, task: &ResolvedTask) -> Vec<(usize, ClipNorm)> {
        blocks(task, self.clip_metric).into_iter().zip(self.clip_norms.iter().copied()).collect()
    }

    /// What the sum of a site's changes is divided by: K for an average.
    #[must_use]
    pub fn divisor(&self) -> f64 {
        self.method.averaged(self.shards)
    }

    /// Number of factors that a site has: one for each shard of virtual clients.
    #[must_use]
    pub fn factors(&self) -> u32 {
        match self.method {
            ShardMethod::VirtualClients => self.shards,
            ShardMethod::ParameterPerturbation | ShardMethod::LocalAveraging | ShardMethod::ClientLevel => 1,
        }
    }

    /// The mechanism of a visit.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, task: &ResolvedTask) -> Result<SumMechanism, TaskError> {
        self.release(task)?.mechanism(task)
    }

    fn release(&self, task: &ResolvedTask) -> Result<SumSpec, TaskError> {
        let Ok(coordinates) = u32::try_from(task.family().len()) else { return invalid("the model has too many parameters for one sum") };
        let terms = match self.method {
            ShardMethod::ClientLevel => Terms::Units,
            ShardMethod::ParameterPerturbation | ShardMethod::LocalAveraging | ShardMethod::VirtualClients => Terms::ShardResults,
        };
        Ok(SumSpec { coordinates, clip: checked(ClipNorm::new(1.0))?, noise: self.noise_multiplier, sampling: None, terms })
    }

    fn default_step_precision(&self, task: &ResolvedTask, sites: u32) -> f64 {
        let sites = match task.privacy.trust {
            Trust::Local => f64::from(sites),
            Trust::Aggregated => 1.0,
        };
        let one = self.noise_multiplier.get() * self.scales[0] / self.divisor();
        let noise = one * (sites / f64::from(task.visits())).sqrt();
        SHRINKAGE * task.damping.iter().sum::<f64>() * noise / task.prior.scale
    }
}

impl UpdateRules for ShardSpec {
    fn check(&self, task: &ResolvedTask) -> Result<(), TaskError> {
        let name = self.method.name();
        requires_epsilon(task, name)?;
        require(self.shards >= 1, "shards must be at least 1")?;
        require(self.method.has_shards() || self.shards == 1, "this update has one shard a site")?;
        require(self.sites >= 1, "sites must be at least 1")?;
        require(task.model.rules().is_linear(), &format!("update = \"{name}\" needs a model with an exact local optimum"))?;
        match (self.method, task.privacy.unit) {
            (ShardMethod::ClientLevel, PrivacyUnit::Site) => {}
            (ShardMethod::ClientLevel, _) => return invalid("update = \"client-level\" protects whole sites: use unit = \"site\""),
            (_, PrivacyUnit::Site) => return invalid(&format!("update = \"{name}\" protects records or persons, not sites")),
            _ => {}
        }
        require(
            self.state != FactorState::Released || task.privacy.trust == Trust::Local,
            "state = \"released\" needs trust = \"local\": under aggregation nobody sees what one site sends; use \"tied\" or \"private-clean\"",
        )?;
        require(
            self.method != ShardMethod::LocalAveraging || self.state != FactorState::PrivateClean,
            "update = \"local-averaging\" cannot keep state = \"private-clean\": every shard starts from the site's one factor, so one record would move the terms of all shards from the second visit on, and the noise is for one; use \"tied\", or \"released\" under local trust",
        )?;
        let blocks = blocks(task, self.clip_metric).len();
        require(self.clip_norms.len() == blocks, "clip_norms must have one bound for every block")?;
        requires_clip_norms(&self.clip_norms)?;
        require(self.scales.len() == blocks && self.scales.iter().all(|s| *s > 0.0 && s.is_finite()), "scales must be positive")?;
        // The release clips to 1, whatever the blocks say; blocks that say more would be clipped twice.
        let joint: f64 = self.clip_norms.iter().zip(&self.scales).map(|(c, s)| (c.get() / s).powi(2)).sum();
        require(joint <= 1.0 + 1e-9, "the scaled bounds of all blocks must have a joint norm of at most 1")?;
        require(self.step_precision >= 0.0 && self.step_precision.is_finite(), "step_precision must be finite and not negative")?;
        require(
            task.approximation == Approximation::MeanField || self.step_precision <= 0.0,
            "step_precision needs approximation = \"mean-field\"",
        )
    }

    fn event(&self, task: &ResolvedTask, _visit: u32) -> Result<DpEvent, TaskError> {
        Ok(self.mechanism(task)?.event())
    }

    fn sum(&self, task: &ResolvedTask, _visit: u32) -> Result<Option<SumSpec>, TaskError> {
        self.release(task).map(Some)
    }

    fn message(&self, task: &ResolvedTask, _visit: u32) -> Result<MessageForm, TaskError> {
        Ok(MessageForm::of_sum(&self.mechanism(task)?))
    }

    /// One term a shard, however many units are in it.
    fn most_terms(&self, _units: u64) -> u64 {
        self.shards.into()
    }

    fn site_state(&self, task: &ResolvedTask) -> SiteStateForm {
        let len = task.family().len();
        match self.state {
            FactorState::Released => SiteStateForm::Public(len),
            FactorState::Tied => SiteStateForm::None,
            FactorState::PrivateClean => SiteStateForm::Private(len * self.factors() as usize),
        }
    }

    fn rule(&self, task: &ResolvedTask) -> Box<dyn Rule> {
        Box::new(ShardRule::new(task, self.clone()))
    }

    fn protects_sites(&self) -> bool {
        self.method == ShardMethod::ClientLevel
    }

    fn warnings(&self, task: &ResolvedTask) -> Vec<String> {
        match self.method {
            ShardMethod::ClientLevel => too_few_sites(u64::from(self.sites), self.noise_multiplier, task).into_iter().collect(),
            ShardMethod::ParameterPerturbation | ShardMethod::LocalAveraging | ShardMethod::VirtualClients => Vec::new(),
        }
    }

    fn released(&self) -> String {
        let terms = match self.method {
            ShardMethod::ParameterPerturbation => {
                "the clipped change of the natural parameters, fitted to all records of the site, with noise"
            }
            ShardMethod::LocalAveraging => "the noised average of clipped changes of the natural parameters over shards of the records",
            ShardMethod::VirtualClients => "the noised sum of clipped changes of the natural parameters over shards of the records",
            ShardMethod::ClientLevel => "the clipped change of the natural parameters of the whole site, with noise",
        };
        format!("at every visit {terms}")
    }
}

impl Display for ShardSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.method {
            ShardMethod::ParameterPerturbation => "parameter perturbation",
            ShardMethod::LocalAveraging => "local averaging",
            ShardMethod::VirtualClients => "virtual clients",
            ShardMethod::ClientLevel => "client-level updates",
        })?;
        if self.method.has_shards() {
            write!(f, " over {} shards a site", self.shards)?;
        }
        let state = match self.state {
            FactorState::Released => "released",
            FactorState::Tied => "tied",
            FactorState::PrivateClean => "private, noise-free",
        };
        let norms: Vec<String> = self.clip_norms.iter().map(|c| Short(c.get()).to_string()).collect();
        write!(f, ", {state} factors, clipping norms {}, noise multiplier {}", norms.join(" / "), Short(self.noise_multiplier.get()))
    }
}
