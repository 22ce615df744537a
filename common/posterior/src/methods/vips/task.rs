//! Numbers of perturbed expected sufficient statistics: options, defaults, price. Block b of visit t has a scale a, the visit the share f of the
//! run's budget and with it the clipping norm √f and the multiplier z/√f: the noise on the block itself is az.

mod images;
mod linear;
mod logistic;

#[cfg(test)]
mod tests;

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, SamplingRate, Terms};
use dp_pvi_math::expfam::gaussian::full::triangle;
use dp_pvi_names::PayloadKind;
use dp_pvi_privacy::mechanism::SumMechanism;
use serde::{Deserialize, Serialize};

pub use images::ImagesSpec;
pub use linear::LinearNoiseSpec;
pub use logistic::{Expansion, PolyaGammaSpec};

use crate::methods::Setting;
use crate::methods::SumSpec;
use crate::methods::check::requires_epsilon;
use crate::methods::noise_aware::{Absent, ClosedRound, History, Posterior};
use crate::methods::setting::triangle_numbers;
use crate::methods::{MessageForm, NoiseAware, Resolving, SiteStateForm, StateForm, Traits, UpdateRules, UpdateSpec, VisitForm, Visits};
use crate::methods::{Rule, VipsRule};
use dp_pvi_models::StatisticsForm;
use dp_pvi_models::sigmoid_belief::{BLOCKS, Shape};
use dp_pvi_models::spec::check::checked;
use dp_pvi_models::spec::check::{invalid, require, requires_clip_norms};
use dp_pvi_models::spec::words::Short;
use dp_pvi_models::spec::{Approximation, ScheduleSpec, TaskError};

/// Numbers of perturbed expected sufficient statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VipsSpec {
    /// z of one unsampled release that would cost what the whole run costs; visit t has z/√(its share of the budget).
    pub noise_multiplier: NoiseMultiplier,
    /// Share of a visit over that of the one before.
    pub budget_growth: f64,
    /// What is summed.
    pub statistics: StatisticsSpec,
}

/// Statistics by model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum StatisticsSpec {
    /// Logistic regression.
    PolyaGamma(PolyaGammaSpec),
    /// Topic models.
    Documents(DocumentsSpec),
    /// Sigmoid belief networks.
    Images(ImagesSpec),
    /// Linear regression with unknown noise.
    LinearNoise(LinearNoiseSpec),
}

/// Posteriors of noisy statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Intervals {
    /// With the noise's variance.
    NoiseAware,
    /// As if the statistics were exact.
    Naive,
}

/// Statistics of a topic model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentsSpec {
    /// C of the first visit (of all visits, where it is not learned).
    pub clip_norm: ClipNorm,
    /// How C moves.
    pub clip: Clip,
    /// Poisson rate of the documents.
    pub sampling_rate: SamplingRate,
    /// Sweeps of every document's E-step.
    pub sweeps: u32,
    /// Seed of the public jitter that tells topics apart at the start.
    pub start_seed: u64,
    /// What the server makes of noised counts.
    pub counts: Counts,
}

/// What the server makes of noised counts of words by topics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Counts {
    /// Expectations given the noise ([`dp_pvi_models::latent_dirichlet::denoise`]). The first visit also releases the totals of words, which no later visit
    /// can change.
    Expected {
        /// Share of the budget of these totals.
        first_share: f64,
    },
    /// Negative ones count as 0: the published form.
    Clamped {},
}

/// Names of [`Counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CountsName {
    Expected,
    Clamped,
}

/// How a clipping norm moves from visit to visit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Clip {
    /// It does not.
    Fixed {},
    /// Towards a quantile of the units' norms.
    Learned {
        /// Public number of units (documents, images) of all sites.
        units: f64,
        /// Share of the units that are to be within C.
        target: f64,
        /// Step of ln C.
        rate: f64,
        /// Weight of the indicator ±½ in a term of norm at most 1.
        weight: f64,
    },
}

/// Options of `[pvi]` with `update = "vips"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// Default: 1.5 for logistic regression about the posterior's mean, else 1.
    budget_growth: Option<f64>,
    /// Logistic regression. Default: `centred`.
    expansion: Option<logistic::ExpansionName>,
    /// Share of the budget of what is released once. Logistic regression about 0. Default: 0.5. Topic models. Default: 0.2.
    first_share: Option<f64>,
    /// Logistic regression about the posterior's mean: w. Default: √12/R.
    curvature_weight: Option<f64>,
    /// Logistic regression. Default: 1, about 0 and for linear regression 0.5.
    eigenvalue_floor: Option<f64>,
    /// Logistic regression: a0, with `relevance_rate`. Default: the prior scale is fixed.
    relevance_shape: Option<f64>,
    /// Logistic regression: b0.
    relevance_rate: Option<f64>,
    /// Logistic regression. Default: `noise-aware`.
    intervals: Option<Intervals>,
    /// Topic models: C. Default: a tenth of the schema's document length. Images: C as a share of the worst-case norm; given alone it
    /// is fixed. Default: learned from 0.5 on. Logistic regression about the posterior's mean: C. Default: 0.7 R.
    clip_norm: Option<f64>,
    /// Topic models: public number of documents of all sites. With it C is learned; without it C is fixed.
    documents: Option<f64>,
    /// Topic models and images. Default: 0.9.
    clip_target: Option<f64>,
    /// Topic models and images. Default: 0.3.
    clip_rate: Option<f64>,
    /// Topic models and images. Default: 1.
    sampling_rate: Option<f64>,
    /// Topic models and images: sweeps of an E-step. Default: 50 for documents, 10 for images.
    e_step_sweeps: Option<u32>,
    /// Topic models. Default: 1.
    start_seed: Option<u64>,
    /// Topic models. Default: `expected`.
    counts: Option<CountsName>,
    /// Images: n, the public number of images of all sites.
    images: Option<f64>,
    /// Images: shares of the six statistics. Default: equal.
    block_shares: Option<[f64; BLOCKS]>,
    /// Images, under local trust: B, a public bound on the images of a site. Default: 100,000.
    max_units: Option<u64>,
    /// Linear regression: n, the public number of records of all sites.
    records: Option<f64>,
    /// Linear regression: shape of the prior of the noise's precision, whose mean is the model's noise_sd⁻². Default: 1.
    noise_shape: Option<f64>,
}

/// w: squared and over 4 it is the share of a term that the indicator takes, 1 %.
const INDICATOR_WEIGHT: f64 = 0.2;

/// Largest d: the message and the state hold d(d+1)/2 numbers, and the server factorises the matrix.
const LARGEST_MATRIX: u32 = 2048;

pub(crate) fn resolve(resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
    let raw: Raw = resolving.options("vips")?;
    let spec = raw.spec(resolving)?;
    let with = UpdateSpec::Vips;
    resolving.check(&with(spec))?;
    let z = resolving.calibrated(|noise_multiplier| with(VipsSpec { noise_multiplier, ..spec }))?;
    resolving.checked(with(VipsSpec { noise_multiplier: z, ..spec }))
}

impl Raw {
    /// All numbers but z, which is at 1 until it is calibrated.
    fn spec(&self, resolving: &Resolving<'_>) -> Result<VipsSpec, TaskError> {
        let statistics = match resolving.task.model.rules().statistics() {
            Some(StatisticsForm::PolyaGamma) => StatisticsSpec::PolyaGamma(self.polya_gamma(resolving)?),
            Some(StatisticsForm::Documents(_)) => StatisticsSpec::Documents(self.documents(resolving)?),
            Some(StatisticsForm::Images(_)) => StatisticsSpec::Images(self.images(resolving)?),
            Some(StatisticsForm::LinearNoise { noise_sd }) => StatisticsSpec::LinearNoise(self.linear_noise(resolving, noise_sd)?),
            None => {
                return invalid(
                    "update = \"vips\" needs a model with expected sufficient statistics: logistic-regression, linear-regression, \
                     latent-dirichlet, sigmoid-belief, or a model that offers Predictor::expected_statistics",
                );
            }
        };
        let growth = if let StatisticsSpec::PolyaGamma(spec) = &statistics { spec.default_growth() } else { 1.0 };
        let budget_growth = self.budget_growth.unwrap_or(growth);
        Ok(VipsSpec { noise_multiplier: checked(NoiseMultiplier::new(1.0))?, budget_growth, statistics })
    }

    /// Refuses options that this model does not take; those that all of them take are not listed.
    fn takes(&self, model: &str, resolving: &Resolving<'_>, taken: &[&str]) -> Result<(), TaskError> {
        let given = [
            ("clip_norm", self.clip_norm.is_some() || resolving.clip_norm.is_some()),
            ("documents", self.documents.is_some()),
            ("clip_target", self.clip_target.is_some()),
            ("clip_rate", self.clip_rate.is_some()),
            ("sampling_rate", self.sampling_rate.is_some()),
            ("e_step_sweeps", self.e_step_sweeps.is_some()),
            ("start_seed", self.start_seed.is_some()),
            ("images", self.images.is_some()),
            ("block_shares", self.block_shares.is_some()),
            ("max_units", self.max_units.is_some()),
            ("counts", self.counts.is_some()),
            ("records", self.records.is_some()),
            ("noise_shape", self.noise_shape.is_some()),
            ("expansion", self.expansion.is_some()),
            ("curvature_weight", self.curvature_weight.is_some()),
            ("first_share", self.first_share.is_some()),
            ("eigenvalue_floor", self.eigenvalue_floor.is_some()),
            ("relevance_shape", self.relevance_shape.is_some()),
            ("relevance_rate", self.relevance_rate.is_some()),
            ("intervals", self.intervals.is_some()),
        ];
        match given.iter().find(|(name, given)| *given && !taken.contains(name)) {
            Some((name, _)) => invalid(&format!("update = \"vips\" with {model} has no option {name}: remove it")),
            None => Ok(()),
        }
    }

    fn documents(&self, resolving: &Resolving<'_>) -> Result<DocumentsSpec, TaskError> {
        self.takes(
            "latent-dirichlet",
            resolving,
            &[
                "clip_norm",
                "documents",
                "clip_target",
                "clip_rate",
                "sampling_rate",
                "e_step_sweeps",
                "start_seed",
                "counts",
                "first_share",
            ],
        )?;
        let clip = match self.documents {
            Some(units) => Clip::Learned {
                units,
                target: self.clip_target.unwrap_or(dp_pvi_privacy::clipping::adaptive::TARGET),
                rate: self.clip_rate.unwrap_or(dp_pvi_privacy::clipping::adaptive::RATE),
                weight: INDICATOR_WEIGHT,
            },
            None if self.clip_target.is_some() || self.clip_rate.is_some() => {
                return invalid("a clipping norm that is learned needs documents, the public number of documents of all sites");
            }
            None => Clip::Fixed {},
        };
        let norm = resolving.clip_norm(self.clip_norm)?.unwrap_or(0.1 * resolving.task.feature_bound);
        Ok(DocumentsSpec {
            clip_norm: checked(ClipNorm::new(norm))?,
            clip,
            sampling_rate: checked(SamplingRate::nearest(self.sampling_rate.unwrap_or(1.0)))?,
            sweeps: self.e_step_sweeps.unwrap_or(50),
            start_seed: self.start_seed.unwrap_or(1),
            counts: match (self.counts.unwrap_or(CountsName::Expected), self.first_share) {
                (CountsName::Expected, share) => Counts::Expected { first_share: share.unwrap_or(0.2) },
                (CountsName::Clamped, None) => Counts::Clamped {},
                (CountsName::Clamped, Some(_)) => {
                    return invalid("counts = \"clamped\" releases nothing but counts: remove first_share");
                }
            },
        })
    }
}

impl VipsSpec {
    /// Shares of the run's budget that a visit's blocks have, in order.
    #[must_use]
    pub fn shares(&self, visit: u32, visits: u32) -> Vec<f64> {
        self.shares_of(visit, self.total_growth(visits.max(visit + 1)))
    }

    fn growth(&self, visit: u32) -> f64 {
        self.budget_growth.powi(visit.cast_signed())
    }

    /// What the shares of a run of so many visits are divided by.
    pub(crate) fn total_growth(&self, visits: u32) -> f64 {
        (0..visits).map(|visit| self.growth(visit)).sum()
    }

    /// [`shares`](Self::shares) with [`total_growth`](Self::total_growth) known.
    pub(crate) fn shares_of(&self, visit: u32, total_growth: f64) -> Vec<f64> {
        let share = self.growth(visit) / total_growth;
        match self.statistics {
            StatisticsSpec::PolyaGamma(PolyaGammaSpec { expansion: Expansion::Origin { first_share }, .. })
            | StatisticsSpec::Documents(DocumentsSpec { counts: Counts::Expected { first_share }, .. }) => {
                let second = (1.0 - first_share) * share;
                if visit == 0 { vec![first_share, second] } else { vec![second] }
            }
            StatisticsSpec::LinearNoise(spec) => spec.shares.to_vec(),
            StatisticsSpec::PolyaGamma(_) | StatisticsSpec::Documents(_) | StatisticsSpec::Images(_) => vec![share],
        }
    }

    /// Scales of a visit's blocks: what the term's blocks are divided by.
    #[must_use]
    pub fn scales(&self, task: &Setting<'_>, visit: u32) -> Vec<f64> {
        self.scales_of(task, &self.shares(visit, task.visits()))
    }

    /// [`scales`](Self::scales) of a visit with these shares.
    pub(crate) fn scales_of(&self, task: &Setting<'_>, shares: &[f64]) -> Vec<f64> {
        match self.statistics {
            StatisticsSpec::PolyaGamma(spec) => spec.scales(task, shares),
            StatisticsSpec::LinearNoise(spec) => spec.scales(task),
            // The clip is in the state: see the rule. Both blocks of a first visit are within it, so shares of the square are enough.
            StatisticsSpec::Documents(_) => {
                let total: f64 = shares.iter().sum();
                shares.iter().map(|share| (total / share).sqrt()).collect()
            }
            StatisticsSpec::Images(spec) => image_shape(task).map_or_else(Vec::new, |shape| spec.scales(&shape).to_vec()),
        }
    }

    /// C and z of a visit with these shares of the budget.
    pub(crate) fn clip_and_noise(&self, shares: &[f64]) -> Result<(ClipNorm, NoiseMultiplier), TaskError> {
        let share: f64 = shares.iter().sum();
        let clip = match self.statistics {
            // Rounding of the terms must not make the mechanism clip.
            StatisticsSpec::PolyaGamma(_) | StatisticsSpec::LinearNoise(_) => share.sqrt() * (1.0 + 1e-9),
            // Terms come in units of C.
            StatisticsSpec::Documents(DocumentsSpec { clip, .. }) | StatisticsSpec::Images(ImagesSpec { clip, .. }) => clip.term_norm(),
        };
        let noise = checked(NoiseMultiplier::new(self.noise_multiplier.get() / share.sqrt()))?;
        Ok((checked(ClipNorm::new(clip))?, noise))
    }

    /// The mechanism of a visit that sums term by term: all but those of [`VipsSpec::batches`].
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, task: &Setting<'_>, visit: u32) -> Result<SumMechanism, TaskError> {
        self.sum_of(task, visit, &self.shares(visit, task.visits()))?.mechanism(task)
    }

    fn sum_of(&self, task: &Setting<'_>, visit: u32, shares: &[f64]) -> Result<SumSpec, TaskError> {
        let (clip, noise) = self.clip_and_noise(shares)?;
        let coordinates = u32::try_from(self.coordinates(task, visit));
        let Ok(coordinates) = coordinates else { return invalid("the model has too many parameters for one sum") };
        let sampling = match self.statistics {
            StatisticsSpec::PolyaGamma(_) | StatisticsSpec::LinearNoise(_) => None,
            StatisticsSpec::Documents(DocumentsSpec { sampling_rate, .. }) | StatisticsSpec::Images(ImagesSpec { sampling_rate, .. }) => {
                (sampling_rate.numerator() < SamplingRate::DENOMINATOR).then_some(sampling_rate)
            }
        };
        Ok(SumSpec { coordinates, clip, noise, sampling, terms: Terms::Units })
    }

    fn coordinates(&self, task: &Setting<'_>, visit: u32) -> usize {
        let d = task.dimension as usize;
        match self.statistics {
            StatisticsSpec::PolyaGamma(spec) if visit > 0 && !spec.is_centred() => triangle(d),
            StatisticsSpec::PolyaGamma(_) => d + triangle(d),
            StatisticsSpec::LinearNoise(_) => d + triangle(d) + 1,
            StatisticsSpec::Documents(spec) => {
                let totals = if visit == 0 && matches!(spec.counts, Counts::Expected { .. }) { task.features as usize } else { 0 };
                totals + d + spec.clip.indicators()
            }
            StatisticsSpec::Images(spec) => image_shape(task).map_or(0, |shape| shape.coordinates()) + spec.clip.indicators(),
        }
    }
}

/// J and K of a sigmoid belief network.
fn image_shape(task: &Setting<'_>) -> Option<Shape> {
    match task.model.rules().statistics() {
        Some(StatisticsForm::Images(spec)) => spec.shape(task.features).ok(),
        _ => None,
    }
}

impl Clip {
    /// Largest norm of a term in units of C, with its indicator.
    fn term_norm(self) -> f64 {
        match self {
            Self::Fixed {} => 1.0,
            Self::Learned { weight, .. } => 1.0_f64.hypot(0.5 * weight),
        }
    }

    /// Coordinates that it takes: the indicator, which is the last of a term.
    fn indicators(self) -> usize {
        match self {
            Self::Fixed {} => 0,
            Self::Learned { .. } => 1,
        }
    }

    /// In words.
    fn moves(self) -> &'static str {
        match self {
            Self::Fixed {} => "",
            Self::Learned { .. } => " at first, then learned",
        }
    }

    fn check(self) -> Result<(), TaskError> {
        match self {
            Self::Fixed {} => Ok(()),
            Self::Learned { units, target, rate, weight } => {
                require(units >= 1.0 && units.is_finite(), "the number of units of all sites must be a finite number of at least 1")?;
                require(target > 0.0 && target < 1.0, "clip_target must lie strictly between 0 and 1")?;
                require(rate > 0.0 && rate <= 1.0, "clip_rate must be above 0 and at most 1")?;
                require(weight > 0.0 && weight <= 1.0, "the indicator's weight must be above 0 and at most 1")
            }
        }
    }
}

impl UpdateRules for VipsSpec {
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        requires_epsilon(task, "vips")?;
        require(
            matches!(task.schedule, ScheduleSpec::Synchronous { .. }),
            "update = \"vips\" sums over all sites: use schedule = \"synchronous\"",
        )?;
        require(self.budget_growth >= 0.1 && self.budget_growth <= 10.0, "budget_growth must lie between 0.1 and 10")?;
        match (&self.statistics, task.model.rules().statistics()) {
            (StatisticsSpec::PolyaGamma(spec), Some(StatisticsForm::PolyaGamma)) => spec.check(task),
            (StatisticsSpec::Documents(spec), Some(StatisticsForm::Documents(_))) => spec.check(task),
            (StatisticsSpec::Images(spec), Some(StatisticsForm::Images(_))) => spec.check(task),
            (StatisticsSpec::LinearNoise(spec), Some(StatisticsForm::LinearNoise { .. })) => spec.check(task),
            _ => invalid("the statistics are those of another model"),
        }
    }

    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a> {
        let total = self.total_growth(task.visits());
        Box::new(move |visit| {
            if let Some(batches) = self.batches(task, visit)? {
                let kind = PayloadKind::Lattice { exponent: batches.exponent() };
                let message = MessageForm { kind, coordinates: batches.dimension().into() };
                return Ok(VisitForm { event: batches.event(), message, sum: None });
            }
            let shares = if visit < task.visits() { self.shares_of(visit, total) } else { self.shares(visit, task.visits()) };
            VisitForm::of_sum(self.sum_of(task, visit, &shares)?, task)
        })
    }

    fn traits(&self) -> Traits {
        let passes = match self.statistics {
            StatisticsSpec::PolyaGamma(_) | StatisticsSpec::LinearNoise(_) => 1,
            StatisticsSpec::Documents(DocumentsSpec { sweeps, .. }) | StatisticsSpec::Images(ImagesSpec { sweeps, .. }) => sweeps,
        };
        Traits { carries_offsets: false, ..Traits::of_passes(passes) }
    }

    /// Behind λ: what the statistics' own rule keeps.
    fn state(&self, task: &Setting<'_>) -> StateForm {
        let d = u64::from(task.dimension);
        let more = match self.statistics {
            // The first statistic, the matrix, the prior's precision.
            StatisticsSpec::PolyaGamma(_) => d + triangle_numbers(d) + 1,
            // The noise's precision.
            StatisticsSpec::LinearNoise(_) => 1,
            // Parameters of the topics, released totals and counts with two variances, and C.
            StatisticsSpec::Documents(DocumentsSpec { counts, .. }) => match counts {
                Counts::Expected { .. } => d + u64::from(task.features) + d + 2 + 1,
                Counts::Clamped {} => d + 1,
            },
            StatisticsSpec::Images(spec) => image_shape(task).map_or(0, |shape| spec.state_len(task, &shape)),
        };
        StateForm { len: task.family_len() + more, site: SiteStateForm::None }
    }

    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule> {
        Box::new(VipsRule::new(task, *self))
    }

    fn released(&self) -> String {
        match self.statistics {
            StatisticsSpec::PolyaGamma(spec) => spec.released(),
            StatisticsSpec::Documents(_) => {
                "at every visit one noised sum over the documents, of how often each word was used in each topic (at the first visit also of \
                 how often it was used at all)"
            }
            StatisticsSpec::LinearNoise(_) => {
                "once one noised sum over the records, of products of features, of features times the target, and of the target's square"
            }
            StatisticsSpec::Images(_) => {
                "at every visit one noised sum over the images, of pixels, expected hidden units, their weights, and products of these"
            }
        }
        .to_owned()
    }

    fn learned_noise(&self, state: &[f64]) -> Option<f64> {
        self.noise_sd(state)
    }

    fn noise_aware(&self) -> Result<&dyn NoiseAware, Absent> {
        let intervals = match &self.statistics {
            StatisticsSpec::PolyaGamma(spec) => spec.intervals,
            StatisticsSpec::LinearNoise(spec) => spec.intervals,
            StatisticsSpec::Documents(_) | StatisticsSpec::Images(_) => Intervals::Naive,
        };
        match intervals {
            Intervals::NoiseAware => Ok(self),
            Intervals::Naive => Err(Absent::Unknown),
        }
    }
}

/// The last visit makes the posterior noise-aware; there is no other one.
impl NoiseAware for VipsSpec {
    fn posterior(&self, task: &Setting<'_>, history: &History) -> Result<Posterior, Absent> {
        let last = |round: &ClosedRound| round.visit + 1 >= task.visits() && !round.included.is_empty();
        Err(if history.rounds.iter().any(last) { Absent::Included } else { Absent::Stopped })
    }
}

impl DocumentsSpec {
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        require(
            task.approximation == Approximation::MeanField,
            "topics are independent of each other: approximation = \"mean-field\" is the only one for latent-dirichlet",
        )?;
        if let Counts::Expected { first_share } = self.counts {
            require(first_share > 0.0 && first_share < 1.0, "first_share must lie strictly between 0 and 1")?;
        }
        require((1..=10_000).contains(&self.sweeps), "e_step_sweeps must lie between 1 and 10000")?;
        requires_clip_norms([&self.clip_norm])?;
        require(self.clip_norm.get() <= task.feature_bound, "clip_norm is above the document length, which no document exceeds")?;
        self.clip.check()
    }
}

impl Display for VipsSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let z = Short(self.noise_multiplier.get());
        match self.statistics {
            StatisticsSpec::PolyaGamma(spec) => {
                write!(f, "expected statistics (Pólya–Gamma{}): noise multiplier of the run {z}", spec.words())
            }
            StatisticsSpec::Documents(DocumentsSpec { clip_norm, clip, .. }) => {
                let (moves, clip) = (clip.moves(), Short(clip_norm.get()));
                write!(f, "expected statistics (words by topic): clipping norm {clip}{moves}, noise multiplier of the run {z}")
            }
            StatisticsSpec::LinearNoise(_) => write!(f, "expected statistics (linear, unknown noise): noise multiplier {z}"),
            StatisticsSpec::Images(ImagesSpec { clip_norm, clip, .. }) => {
                let (moves, clip) = (clip.moves(), Short(clip_norm.get()));
                write!(f, "expected statistics (images): clipping norm {clip} of the worst case{moves}, noise multiplier of the run {z}")
            }
        }
    }
}
