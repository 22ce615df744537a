//! Numbers of expectation propagation: options, defaults, price.

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::{ClipNorm, DpEvent, NoiseMultiplier, PrivacyUnit, SamplingRate, Terms};
use dp_pvi_privacy::mechanism::SumMechanism;
use serde::{Deserialize, Serialize};

use crate::methods::check::requires_local_trust;
use crate::methods::shards::too_few_sites;
use crate::methods::{PropagationRule, Rule};
use crate::methods::{Resolving, SiteStateForm, StateForm, Traits, UpdateRules, UpdateSpec, VisitForm, Visits};
use crate::methods::{Setting, SumSpec};
use dp_pvi_models::TiltedForm;
use dp_pvi_models::spec::TaskError;
use dp_pvi_models::spec::check::checked;
use dp_pvi_models::spec::check::{invalid, require, requires_clip_norms};
use dp_pvi_models::spec::words::Short;
use dp_pvi_privacy::clipping::blocks::block_scales;
use dp_pvi_privacy::clipping::metric::ClipMetric;

/// Numbers of expectation propagation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PropagationSpec {
    /// N: public nominal number of records of all sites together; where sites are protected, of sites.
    pub records: u64,
    /// Passes of a site over its records in a visit; absent unless the site is what is protected.
    pub site_passes: Option<u32>,
    /// Whose factor is in a cavity.
    pub factors: FactorOwner,
    /// How records are visited.
    pub order: VisitOrder,
    /// Share of its distance that a record moves λ in a pass, the server's or a site's own; 1 is the published algorithm.
    pub visit_step: f64,
    /// Poisson rate q of a visit, as numerator over 2³².
    pub sampling_rate: SamplingRate,
    /// z; absent without protection.
    pub noise_multiplier: Option<NoiseMultiplier>,
    /// Coordinates that are clipped.
    pub clip_metric: ClipMetric,
    /// What is clipped.
    pub clip_target: ClipTarget,
    /// One bound for every block of the metric (a network's noise precision is a block of its own); empty: nothing is clipped.
    pub clip_norms: Vec<ClipNorm>,
    /// What every block is divided by inside the one release, whose clipping norm is 1: the noise on a block is z times its scale.
    pub scales: Vec<f64>,
    /// Λ_step: where a mean's step is divided by the new precision, it is divided by no less than this.
    pub step_precision: f64,
    /// Precision that a network's weights have at the start beyond their priors': a public guess of N f, from which the run moves to its own. A network whose
    /// weights are as vague as their priors predicts nothing, and learning from it wastes budget.
    pub initial_precision: f64,
}

/// Whose factor is taken out of λ for a cavity, and replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FactorOwner {
    /// f = (λ − λ0)/N, the same for all: a function of the state, so nothing is kept.
    Shared,
    /// The unit's own: as many numbers a unit as λ has, kept by the site without noise (`private-clean`).
    Record,
}

/// How a site visits its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VisitOrder {
    /// All at the cavity that the server's state gives.
    Batch,
    /// One after the other, each at the cavity that the ones before left (without protection only).
    Pass,
    /// One after the other, each multiplied into the approximation itself: assumed density filtering, which counts the records again in every
    /// pass (without protection only).
    Filter,
}

/// What is clipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClipTarget {
    /// f_n − f: vanishes where a record agrees with the others, so that clipping does not bias the fixed point much.
    Change,
    /// f_n itself, as published: a term is clip(f_n) − clip(f).
    Factor,
}

/// Options of `[pvi]` with `update = "sep"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// N. Required, but for sites.
    records: Option<u64>,
    /// For `unit = "site"`. Default: [`SITE_PASSES`].
    site_passes: Option<u32>,
    /// Default: `batch`.
    order: Option<VisitOrder>,
    /// Default: 1, and [`SITE_STEP`] for passes of a site.
    visit_step: Option<f64>,
    /// q. Default: 1.
    sampling_rate: Option<f64>,
    /// Default: `centred`.
    clip_metric: Option<ClipMetric>,
    /// Default: `change`.
    clip_target: Option<ClipTarget>,
    /// The one bound of a metric with one block.
    clip_norm: Option<f64>,
    /// The bounds of a metric with more.
    clip_norms: Option<Vec<f64>>,
    /// Expected harm of a unit of noise variance on one block. Default: the same share of the budget for every block.
    importances: Option<Vec<f64>>,
    /// Default: 0.
    step_precision: Option<f64>,
    /// Default: 0.
    initial_precision: Option<f64>,
}

/// Default of `site_passes`. Every visit begins anew at equal parts of the site's factor, so that passes that are too few stay too few: by half steps, a millionth
/// of the way is left where records do not depend on each other much.
const SITE_PASSES: u32 = 20;
/// Default of `visit_step` for passes of a site: undamped sites of mixtures and mean fields may swing.
const SITE_STEP: f64 = 0.5;

pub(crate) fn resolve(resolving: &Resolving<'_>, factors: FactorOwner) -> Result<UpdateSpec, TaskError> {
    let name = match factors {
        FactorOwner::Shared => "sep",
        FactorOwner::Record => "ep",
    };
    let raw: Raw = resolving.options(name)?;
    let spec = raw.spec(resolving, factors)?;
    let with = UpdateSpec::Propagation;
    resolving.check(&with(spec.clone()))?;
    let noise_multiplier = match spec.noise_multiplier {
        None => None,
        Some(_) => Some(resolving.calibrated(|z| with(PropagationSpec { noise_multiplier: Some(z), ..spec.clone() }))?),
    };
    resolving.checked(with(PropagationSpec { noise_multiplier, ..spec }))
}

impl Raw {
    /// All numbers but z, which is at 1 until it is calibrated.
    fn spec(&self, resolving: &Resolving<'_>, factors: FactorOwner) -> Result<PropagationSpec, TaskError> {
        let task = &resolving.task;
        let by_site = task.privacy.unit == PrivacyUnit::Site;
        let records = match (self.records, by_site) {
            (Some(records), false) => records,
            (None, true) => u64::from(task.aggregation.map_or(resolving.expected_sites, |aggregation| aggregation.sites)),
            (None, false) => {
                return invalid("updates \"sep\" and \"ep\" need records, the public nominal number of records of all sites together");
            }
            (Some(_), true) => return invalid("with unit = \"site\" there is one factor a site: remove records"),
        };
        let clip_metric = self.clip_metric.unwrap_or(ClipMetric::Centred);
        let blocks = blocks(task, clip_metric).len();
        let one = resolving.clip_norm(self.clip_norm)?;
        let private = task.privacy.epsilon.is_some();
        let bounds = match (&self.clip_norms, one) {
            (Some(norms), None) => norms.clone(),
            (None, Some(norm)) => vec![norm],
            (None, None) if !private => Vec::new(),
            (None, None) => vec![1.0; blocks],
            (Some(_), Some(_)) => return invalid("give clip_norm or clip_norms, not both"),
        };
        if !bounds.is_empty() && bounds.len() != blocks {
            return invalid(&format!("this model and clip_metric have {blocks} blocks: give clip_norms with as many bounds"));
        }
        let clip_norms = bounds.iter().map(|&norm| checked(ClipNorm::new(norm))).collect::<Result<Vec<_>, _>>()?;
        let importances = match &self.importances {
            Some(given) if given.len() == bounds.len() && given.iter().all(|w| *w > 0.0 && w.is_finite()) => given.clone(),
            Some(_) => return invalid("importances must be one finite number above 0 for every block"),
            // Equal shares of the budget.
            None => bounds.iter().map(|norm| 1.0 / (norm * norm)).collect(),
        };
        Ok(PropagationSpec {
            records,
            factors,
            order: self.order.unwrap_or(VisitOrder::Batch),
            site_passes: if by_site { Some(self.site_passes.unwrap_or(SITE_PASSES)) } else { self.site_passes },
            visit_step: self.visit_step.unwrap_or(if by_site { SITE_STEP } else { 1.0 }),
            sampling_rate: checked(SamplingRate::nearest(self.sampling_rate.unwrap_or(1.0)))?,
            noise_multiplier: if private { Some(checked(NoiseMultiplier::new(1.0))?) } else { None },
            clip_metric,
            clip_target: self.clip_target.unwrap_or(ClipTarget::Change),
            scales: if bounds.is_empty() { Vec::new() } else { block_scales(&bounds, &importances) },
            clip_norms,
            step_precision: self.step_precision.unwrap_or(0.0),
            initial_precision: self.initial_precision.unwrap_or(0.0),
        })
    }
}

/// Lengths of the blocks of a message: h and Λ of the approximation, and shape and rate of a network's noise.
#[must_use]
pub(crate) fn blocks(task: &Setting<'_>, metric: ClipMetric) -> Vec<usize> {
    let family = task.family();
    let (d, len) = (family.dimension(), family.len());
    match (task.model.rules().tilted(), metric.has_blocks()) {
        // The last coordinate is the noise precision, whose message is the pair of Gamma parameters.
        (Some(TiltedForm::Network { .. }), true) => vec![d - 1, d - 1, 2],
        (_, true) => vec![d, len - d],
        (_, false) => vec![len],
    }
}

impl PropagationSpec {
    /// Lengths of the blocks of a message.
    #[must_use]
    pub fn blocks(&self, task: &Setting<'_>) -> Vec<usize> {
        blocks(task, self.clip_metric)
    }

    /// The mechanism of a visit; `None` without protection.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, task: &Setting<'_>) -> Result<Option<SumMechanism>, TaskError> {
        self.sum_of(task)?.map(|sum| sum.mechanism(task)).transpose()
    }

    fn sum_of(&self, task: &Setting<'_>) -> Result<Option<SumSpec>, TaskError> {
        let Some(noise) = self.noise_multiplier else { return Ok(None) };
        let sampling = (self.sampling_rate.numerator() < SamplingRate::DENOMINATOR).then_some(self.sampling_rate);
        let Ok(coordinates) = u32::try_from(task.family().len()) else { return invalid("the model has too many parameters for one sum") };
        Ok(Some(SumSpec { coordinates, clip: checked(ClipNorm::new(1.0))?, noise, sampling, terms: Terms::Units }))
    }
}

impl UpdateRules for PropagationSpec {
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        require(self.records >= 1, "records must be at least 1")?;
        require(self.visit_step > 0.0 && self.visit_step <= 1.0, "visit_step must be above 0 and at most 1")?;
        require(
            self.site_passes.is_some() == (task.privacy.unit == PrivacyUnit::Site),
            "site_passes belongs to unit = \"site\", where a site makes passes of its own",
        )?;
        if let Some(passes) = self.site_passes {
            require(passes >= 1, "site_passes must be at least 1")?;
            require(
                self.order == VisitOrder::Batch && self.sampling_rate.numerator() == SamplingRate::DENOMINATOR,
                "with unit = \"site\" every site answers at every visit: remove order and sampling_rate",
            )?;
        }
        let tilted = task.model.rules().tilted();
        let is_network = matches!(tilted, Some(TiltedForm::Network { .. }));
        require(
            tilted.is_some(),
            "updates \"sep\" and \"ep\" need a model with tilted moments: logistic-regression, probit-regression, gaussian-mixture, pbp-network, or a \
             model that offers Predictor::tilted",
        )?;
        require(
            task.approximation == dp_pvi_models::spec::Approximation::MeanField || !is_network,
            "this model has approximation = \"mean-field\" only",
        )?;
        let blocks = self.blocks(task).len();
        let protected = self.noise_multiplier.is_some();
        require(protected == task.privacy.epsilon.is_some(), "a noise multiplier belongs to a finite epsilon")?;
        require(
            self.clip_norms.len() == blocks || (!protected && self.clip_norms.is_empty()),
            "clip_norms must have one bound for every block",
        )?;
        requires_clip_norms(&self.clip_norms)?;
        require(
            self.scales.len() == self.clip_norms.len() && self.scales.iter().all(|s| *s > 0.0 && s.is_finite()),
            "scales must be positive",
        )?;
        // The release clips to 1, whatever the blocks say; blocks that say more would be clipped twice.
        let joint: f64 = self.clip_norms.iter().zip(&self.scales).map(|(c, s)| (c.get() / s).powi(2)).sum();
        require(self.clip_norms.is_empty() || joint <= 1.0 + 1e-9, "the scaled bounds of all blocks must have a joint norm of at most 1")?;
        require(self.step_precision >= 0.0 && self.step_precision.is_finite(), "step_precision must be finite and not negative")?;
        require(
            self.initial_precision >= 0.0 && self.initial_precision.is_finite() && (self.initial_precision <= 0.0 || is_network),
            "initial_precision is for family = \"pbp-network\", finite and not negative",
        )?;
        require(
            self.order != VisitOrder::Filter || (self.factors == FactorOwner::Shared && self.clip_norms.is_empty()),
            "order = \"filter\" keeps no factor and clips nothing: use update = \"sep\" without clip norms",
        )?;
        if protected {
            require(
                self.order == VisitOrder::Batch,
                "order = \"pass\" or \"filter\" cannot be protected: records would depend on each other",
            )?;
            require(
                self.factors == FactorOwner::Shared || self.sampling_rate.numerator() == SamplingRate::DENOMINATOR,
                "update = \"ep\" asks every record at every visit: remove sampling_rate",
            )?;
            require(
                self.factors == FactorOwner::Shared || self.clip_target == ClipTarget::Change,
                "update = \"ep\" clips the change of a factor: remove clip_target",
            )?;
        } else {
            requires_local_trust(task, "sep")?;
            require(self.sampling_rate.numerator() == SamplingRate::DENOMINATOR, "sampling_rate belongs to a run with epsilon")?;
        }
        require(
            task.approximation == dp_pvi_models::spec::Approximation::MeanField || self.step_precision == 0.0,
            "step_precision needs approximation = \"mean-field\"",
        )
    }

    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a> {
        Box::new(|_| match self.sum_of(task)? {
            Some(sum) => VisitForm::of_sum(sum, task),
            None => Ok(VisitForm::of_values(DpEvent::NonPrivate, task.family_len())),
        })
    }

    /// One term a record, or one for a whole site.
    fn traits(&self) -> Traits {
        Traits {
            terms: self.site_passes.map(|_| 1),
            is_private: self.noise_multiplier.is_some(),
            protects_sites: self.site_passes.is_some(),
            carries_offsets: false,
            ..Traits::of_passes(self.site_passes.unwrap_or(1))
        }
    }

    /// With a network's weights come three numbers each of their priors and two of the priors' own prior. A site keeps one factor a unit; the number of
    /// units is the site's own affair.
    fn state(&self, task: &Setting<'_>) -> StateForm {
        let more = match task.model.rules().tilted() {
            Some(TiltedForm::Network { .. }) => 3 * u64::from(task.dimension).saturating_sub(1) + 2,
            _ => 0,
        };
        let site = match self.factors {
            FactorOwner::Shared => SiteStateForm::None,
            FactorOwner::Record => SiteStateForm::Private(task.family().len()),
        };
        StateForm { len: task.family_len() + more, site }
    }

    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule> {
        Box::new(PropagationRule::new(task, self.clone()))
    }

    fn released(&self) -> String {
        match (self.noise_multiplier, self.site_passes) {
            (Some(_), None) => "at every visit one noised sum over the records, of the change of each record's factor".to_owned(),
            (None, None) => "at every visit the sum over the records of the change of each record's factor, without noise".to_owned(),
            (Some(_), Some(_)) => "at every visit the clipped change of the whole site's factor, with noise".to_owned(),
            (None, Some(_)) => "at every visit the change of the whole site's factor, without noise".to_owned(),
        }
    }

    fn warnings(&self, task: &Setting<'_>) -> Vec<String> {
        match (self.noise_multiplier, self.site_passes) {
            (Some(noise), Some(_)) => too_few_sites(self.records, noise, task).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl Display for PropagationSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (one, all) = if self.site_passes.is_some() { ("site", "sites") } else { ("record", "records") };
        match self.factors {
            FactorOwner::Shared => f.write_str("stochastic expectation propagation")?,
            FactorOwner::Record => write!(f, "expectation propagation with a private factor for every {one}")?,
        }
        write!(f, " over {} {all}", self.records)?;
        if let Some(passes) = self.site_passes {
            write!(f, ", {passes} passes in each")?;
        }
        match self.order {
            VisitOrder::Batch => {}
            VisitOrder::Pass => f.write_str(", one after the other")?,
            VisitOrder::Filter => f.write_str(", one after the other, filtered")?,
        }

        match self.noise_multiplier {
            Some(z) => {
                let norms: Vec<String> = self.clip_norms.iter().map(|c| Short(c.get()).to_string()).collect();
                write!(f, ", q {}, C {}, z {}", Short(self.sampling_rate.get()), norms.join(" / "), Short(z.get()))
            }
            None => f.write_str(", without privacy protection"),
        }
    }
}
