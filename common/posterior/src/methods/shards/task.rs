//! Numbers of the methods over shards: options, defaults, price.

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, PrivacyUnit, Terms};
use dp_pvi_privacy::mechanism::SumMechanism;
use serde::{Deserialize, Serialize};

use crate::methods::check::requires_epsilon;
use crate::methods::{Resolving, SiteStateForm, StateForm, Traits, UpdateRules, UpdateSpec, VisitForm, Visits};
use crate::methods::{Rule, ShardRule};
use crate::methods::{Setting, SumSpec};
use dp_pvi_models::spec::check::checked;
use dp_pvi_models::spec::check::{invalid, require, requires_clip_norms};
use dp_pvi_models::spec::words::Short;
use dp_pvi_models::spec::{Approximation, TaskError, Trust};
use dp_pvi_privacy::clipping::blocks::block_scales;
use dp_pvi_privacy::clipping::metric::ClipMetric;

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

/// What a site takes for its own factor λ_m (or its shards for theirs): the only states that hold no noise beyond what was released.
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
    /// Expected harm of a unit of noise variance on either block. Default: [`PRECISION_SHARE`] of the budget for the precision block.
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

/// A site's change is worth noise below this share of what all sites can say together: M ≥ 3 z √dim.
const SIGNAL: f64 = 3.0;

/// What sets a method over shards apart.
pub(crate) struct ShardTraits {
    /// The name in `task.toml`.
    pub(crate) name: &'static str,
    /// The name in a summary.
    pub(crate) words: &'static str,
    /// What is released: "at every visit …".
    pub(crate) released: &'static str,
    pub(crate) shards: ShardCount,
    pub(crate) combined: Combined,
    pub(crate) factors: Factors,
    pub(crate) protects: Protects,
    pub(crate) state: DefaultState,
}

/// Shards of a site.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShardCount {
    /// The whole site.
    One,
    /// As many as the task says.
    Many,
}

/// What is made of the changes of a site's shards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combined {
    /// Their sum.
    Sum,
    /// Their mean: each shard's records count as many times as there are shards.
    Average,
}

/// Whose factor a cavity leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factors {
    /// The site's.
    Site,
    /// The shard's own.
    Shard,
}

/// Whose data is protected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protects {
    /// Records or persons.
    Units,
    /// The site.
    Site,
}

/// What a site takes for its factor where the task says nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultState {
    /// What it sent under local trust, a share of λ − λ0 under aggregation.
    Public,
    /// The terms before noise.
    PrivateClean,
}

impl ShardMethod {
    /// The name in `task.toml`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.traits().name
    }

    pub(crate) fn has_shards(self) -> bool {
        self.traits().shards == ShardCount::Many
    }

    fn protects_sites(self) -> bool {
        self.traits().protects == Protects::Site
    }

    /// How many times a shard's records count, and what the sum of changes is divided by: K for an average.
    fn averaged(self, shards: u32) -> f64 {
        match self.traits().combined {
            Combined::Average => f64::from(shards),
            Combined::Sum => 1.0,
        }
    }
}

pub(crate) fn resolve(resolving: &Resolving<'_>, method: ShardMethod) -> Result<UpdateSpec, TaskError> {
    let raw: Raw = resolving.options(method.name())?;
    let spec = raw.spec(resolving, method)?;
    let with = UpdateSpec::Shards;
    resolving.check(&with(spec.clone()))?;
    let z = resolving.calibrated(|noise_multiplier| with(ShardSpec { noise_multiplier, ..spec.clone() }))?;
    let mut spec = ShardSpec { noise_multiplier: z, ..spec };
    if raw.step_precision.is_none() && resolving.task.approximation == Approximation::MeanField && spec.clip_metric == ClipMetric::Centred {
        // The event does not depend on it: z stays calibrated.
        spec.step_precision = spec.default_step_precision(&resolving.task, resolving.expected_sites);
    }
    resolving.checked(with(spec))
}

impl Raw {
    /// All numbers but z, which is at 1 until it is calibrated.
    fn spec(&self, resolving: &Resolving<'_>, method: ShardMethod) -> Result<ShardSpec, TaskError> {
        let task = &resolving.task;
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
        let state = match method.traits().state {
            DefaultState::Public => public,
            DefaultState::PrivateClean => FactorState::PrivateClean,
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

/// What someone should know where whole sites are protected: whether all of them together can be heard above the noise.
pub(crate) fn too_few_sites(sites: u64, noise: NoiseMultiplier, task: &Setting<'_>) -> Option<String> {
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
fn blocks(task: &Setting<'_>, metric: ClipMetric) -> Vec<usize> {
    let family = task.family();
    let (d, len) = (family.dimension(), family.len());
    if metric.has_blocks() { vec![d, len - d] } else { vec![len] }
}

impl ShardSpec {
    /// Lengths of the blocks of a message and their bounds.
    #[must_use]
    pub fn blocks(&self, task: &Setting<'_>) -> Vec<(usize, ClipNorm)> {
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
        match self.method.traits().factors {
            Factors::Shard => self.shards,
            Factors::Site => 1,
        }
    }

    /// The mechanism of a visit.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, task: &Setting<'_>) -> Result<SumMechanism, TaskError> {
        self.release(task)?.mechanism(task)
    }

    fn release(&self, task: &Setting<'_>) -> Result<SumSpec, TaskError> {
        let Ok(coordinates) = u32::try_from(task.family().len()) else { return invalid("the model has too many parameters for one sum") };
        let terms = match self.method.traits().protects {
            Protects::Site => Terms::Units,
            Protects::Units => Terms::ShardResults,
        };
        Ok(SumSpec { coordinates, clip: checked(ClipNorm::new(1.0))?, noise: self.noise_multiplier, sampling: None, terms })
    }

    fn default_step_precision(&self, task: &Setting<'_>, sites: u32) -> f64 {
        let one = self.noise_multiplier.get() * self.scales[0] / self.divisor();
        let noise = one * (task.gathered_noise().of(sites) / f64::from(task.visits())).sqrt();
        SHRINKAGE * task.damping.iter().sum::<f64>() * noise / task.prior.scale
    }
}

impl UpdateRules for ShardSpec {
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        let name = self.method.name();
        requires_epsilon(task, name)?;
        require(self.shards >= 1, "shards must be at least 1")?;
        require(self.method.has_shards() || self.shards == 1, "this update has one shard a site")?;
        require(self.sites >= 1, "sites must be at least 1")?;
        require(task.model.rules().is_linear(), &format!("update = \"{name}\" needs a model with an exact local optimum"))?;
        match (self.method.traits().protects, task.privacy.unit) {
            (Protects::Site, PrivacyUnit::Site) => {}
            (Protects::Site, _) => return invalid(&format!("update = \"{name}\" protects whole sites: use unit = \"site\"")),
            (Protects::Units, PrivacyUnit::Site) => return invalid(&format!("update = \"{name}\" protects records or persons, not sites")),
            _ => {}
        }
        require(
            self.state != FactorState::Released || task.privacy.trust == Trust::Local,
            "state = \"released\" needs trust = \"local\": under aggregation nobody sees what one site sends; use \"tied\" or \"private-clean\"",
        )?;
        require(
            self.method.traits().combined != Combined::Average || self.state != FactorState::PrivateClean,
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

    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a> {
        Box::new(|_| VisitForm::of_sum(self.release(task)?, task))
    }

    /// A fit and one term of every shard, however many units are in it.
    fn traits(&self) -> Traits {
        Traits {
            terms: Some(self.shards.into()),
            protects_sites: self.method.protects_sites(),
            cuts_by_position: (self.method.has_shards() && self.shards > 1).then(|| self.method.name()),
            ..Traits::of_passes(self.shards)
        }
    }

    fn state(&self, task: &Setting<'_>) -> StateForm {
        let len = task.family().len();
        let site = match self.state {
            FactorState::Released => SiteStateForm::Public(len),
            FactorState::Tied => SiteStateForm::None,
            FactorState::PrivateClean => SiteStateForm::Private(len * self.factors() as usize),
        };
        StateForm { len: task.family_len(), site }
    }

    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule> {
        Box::new(ShardRule::new(task, self.clone()))
    }

    fn released(&self) -> String {
        format!("at every visit {}", self.method.traits().released)
    }

    fn warnings(&self, task: &Setting<'_>) -> Vec<String> {
        match self.method.traits().protects {
            Protects::Site => too_few_sites(u64::from(self.sites), self.noise_multiplier, task).into_iter().collect(),
            Protects::Units => Vec::new(),
        }
    }
}

impl Display for ShardSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.method.traits().words)?;
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
