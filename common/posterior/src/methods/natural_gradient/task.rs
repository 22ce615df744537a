//! Numbers of bounded natural gradients: options, defaults, price. What they mean is said in the page of the [module](super).

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, Terms};
use dp_pvi_math::expfam::gaussian::full::triangle;
use dp_pvi_privacy::mechanism::SumMechanism;
use serde::{Deserialize, Serialize};

use crate::methods::agreement::{Compared, NotTested, SiteReleases};
use crate::methods::check::requires_epsilon;
use crate::methods::divided::{Divided, Undividable};
use crate::methods::noise_aware::weighted;
use crate::methods::noise_aware::{Absent, Contribution, History, Posterior};
use crate::methods::prior_predictive::{NotForecast, Sent, Stage};
use crate::methods::setting::triangle_numbers;
use crate::methods::{
    Comparable, NaturalGradientRule, NoiseAware, Parted, Resolving, Rule, Setting, SiteStateForm, StateForm, SumSpec, Traits, UpdateRules,
    UpdateSpec, VisitForm, Visits,
};
use dp_pvi_math::learned_scale::ScaleState;
pub use dp_pvi_math::learned_scale::ScaleWeights;
use dp_pvi_models::predictor::Statistics;
use dp_pvi_models::spec::check::{checked, invalid, positive, require, requires_clip_norms};
use dp_pvi_models::spec::words::Short;
use dp_pvi_models::spec::{Approximation, ScheduleSpec, TaskError, Trust};

/// Numbers of bounded natural-gradient variational inference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NaturalGradientSpec {
    /// z of one release that would cost what the whole run costs; visit t has z/√(its share of the budget).
    pub noise_multiplier: NoiseMultiplier,
    /// What the server divides the gradient by.
    pub preconditioner: Preconditioner,
    /// Share of the budget of the Gram matrix (unused with a diagonal preconditioner).
    pub gram_share: f64,
    /// Share of a visit over that of the one before.
    pub budget_growth: f64,
    /// ρ: length of a step.
    pub step: f64,
    /// Share of the last iterates whose mean, weighted by budget, is the posterior's mean; the curvature is averaged over as many.
    pub averaging: f64,
    /// κ: the preconditioner is nowhere below κ s√(d/2), s the noise on the Gram matrix (κ s, s the noise on a curvature, where it is
    /// diagonal), so that noise is not taken for curvature.
    pub eigenvalue_floor: f64,
    /// The preconditioner is nowhere below this times K s/τ either: K the gain of the run in steps, s the noise that is left on the
    /// gradient, τ = 2.5 typical units.
    pub shrinkage: f64,
    /// r̄: residuals are cut to this, before a record's weight multiplies them. B of times until an event: follow-up ends at this expected count, and nothing is cut.
    pub residual_bound: f64,
    /// c̄: curvatures are cut to this, before a record's weight multiplies them; also the weight of the Gram matrix, and of times until an event that alone.
    pub curvature_bound: f64,
    /// w: weight of the curvature block against the gradient block.
    pub curvature_weight: f64,
    /// C of every visit after the Gram matrix.
    pub clip_norm: ClipNorm,
    /// Whether records of two classes are kept within C by weights that do not depend on their class. Then no residual is cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// Weights of the statistics of a learned scale of the observations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_weights: Option<ScaleWeights>,
}

impl NaturalGradientSpec {
    /// A record's residual and curvature within their bounds. Where records are weighted no residual is cut.
    #[inline]
    #[must_use]
    pub fn bounded(&self, Statistics { residual, curvature }: Statistics) -> Statistics {
        let residual = if self.weighted { residual } else { residual.clamp(-self.residual_bound, self.residual_bound) };
        Statistics { residual, curvature: curvature.clamp(0.0, self.curvature_bound) }
    }

    /// min(1, C/longest), longest the norm of the longer of a record's terms with either of these; ‖x‖² = `square`, and `fourth` is the squared norm of the
    /// curvature block at c = 1.
    #[inline]
    #[must_use]
    pub fn weight(&self, of: [Statistics; 2], square: f64, fourth: f64) -> f64 {
        weighted::weight_within(self.clip_norm.get(), self.curvature_weight, of, [square, fourth])
    }
}

/// Preconditioners of the mean's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preconditioner {
    /// The Gram matrix, released once at the first visit.
    Gram,
    /// The precision itself, in every visit: no matrix, shorter steps.
    Diagonal,
}

/// Share of a visit's budget that the curvature block gets where it is not free: see the [module](super)'s page.
const CURVATURE_SHARE: f64 = 0.5;

/// The same where all records have the same curvature: then it is the Gram matrix times a public number, which a visit has released already.
const GRAM_CURVATURE_SHARE: f64 = 0.1;

/// The same of the number of records, which a learned scale needs.
const COUNT_SHARE: f64 = 0.1;

/// Default of C over the largest norm of a term: see the [module](super)'s page.
const CLIP_SHARE: f64 = 0.6;

/// Largest d with a Gram matrix: the state holds d(d+1)/2 numbers, and the server factorises it.
const LARGEST_GRAM: u32 = 2048;

/// Options of `[pvi]` with `update = "natural-gradient"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// Default: `gram`.
    preconditioner: Option<Preconditioner>,
    /// Default: 0.2.
    gram_share: Option<f64>,
    /// Default: 1.
    budget_growth: Option<f64>,
    /// ρ. Default: 2 (Gram), min(1, 1.5/s) (diagonal).
    step: Option<f64>,
    /// Default: 0.5.
    averaging: Option<f64>,
    /// κ. Default: 2, the spectral norm of the noise.
    eigenvalue_floor: Option<f64>,
    /// Default: 3.
    shrinkage: Option<f64>,
    /// r̄. Default: the model's; required where it has none.
    residual_bound: Option<f64>,
    /// c̄. Default: the model's, or r̄ where follow-up ends there; required where there is neither.
    curvature_bound: Option<f64>,
    /// w. Default: see the [module](super)'s page.
    curvature_weight: Option<f64>,
    /// C. Default: [`CLIP_SHARE`] of the largest norm that the bounds allow; with all of it nothing is ever weighted or clipped.
    clip_norm: Option<f64>,
    /// Default: true for logistic and probit regression whose residuals are not cut below the model's bound, false otherwise.
    weighted: Option<bool>,
}

pub(crate) fn resolve(resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
    let raw: Raw = resolving.options("natural-gradient")?;
    let spec = raw.spec(resolving)?;
    let with = UpdateSpec::NaturalGradient;
    resolving.check(&with(spec))?;
    let z = resolving.calibrated(|noise_multiplier| with(NaturalGradientSpec { noise_multiplier, ..spec }))?;
    resolving.checked(with(NaturalGradientSpec { noise_multiplier: z, ..spec }))
}

impl Raw {
    /// All numbers but z, which is at 1 until it is calibrated.
    fn spec(&self, resolving: &Resolving<'_>) -> Result<NaturalGradientSpec, TaskError> {
        let task = &resolving.task;
        let preconditioner = self.preconditioner.unwrap_or(Preconditioner::Gram);
        let of_record = task.model.rules().bounds(task.ranges()?);
        let (bounds, lengths) = (of_record.predictor, of_record.lengths);
        let named = |given: Option<f64>, bound: Option<f64>, name: &str| match given.or(bound) {
            Some(value) if positive(value) => Ok(value),
            Some(_) => invalid(&format!("{name} must be a finite number above 0")),
            None => invalid(&format!("{} has no public {name}: give one in [pvi]", task.model)),
        };
        let ends_follow_up = task.model.rules().many_rows().is_some_and(|rows| rows.ends_follow_up());
        if ends_follow_up && self.residual_bound.is_none() {
            return invalid(&format!(
                "{} needs residual_bound in [pvi]: the expected number of events at which the follow-up of a record ends (1 is a good start)",
                task.model
            ));
        }
        let residual = named(self.residual_bound, bounds.map(|b| b.residual), "residual_bound")?;
        let own = if ends_follow_up { Some(residual) } else { bounds.map(|b| b.curvature) };
        let curvature = named(self.curvature_bound, own, "curvature_bound")?;
        let radius = lengths.gradient;
        let square = match task.approximation {
            Approximation::MeanField => lengths.diagonal,
            Approximation::FullCovariance => lengths.full,
        };
        // A residual that is cut to less has no such relation to the curvature any more: then the shares are added up.
        let free = bounds.filter(|b| residual >= b.residual && curvature >= b.curvature).and_then(|b| b.free_curvature);
        let (weight, joint) = match (self.curvature_weight, free) {
            (None, Some(free)) => (free * radius / square, residual * radius),
            (given, _) => {
                // An event is 1, and the curvatures of a record whose follow-up ends add up to as much as its residuals do.
                let (r, c) = if ends_follow_up { (residual.max(1.0), residual) } else { (residual, curvature) };
                let constant = task.model.rules().predictor().is_some_and(|predictor| predictor.has_constant_curvature());
                let gram = constant && preconditioner == Preconditioner::Gram;
                let share = if gram { GRAM_CURVATURE_SHARE } else { CURVATURE_SHARE };
                let weight = given.unwrap_or_else(|| (share / (1.0 - share)).sqrt() * r * radius / (c * square));
                (weight, (r * radius).hypot(weight * c * square))
            }
        };
        let scale = task.learned_scale();
        let count = (COUNT_SHARE / (1.0 - COUNT_SHARE)).sqrt() * residual * radius;
        let joint = if scale.is_some() { joint.hypot(count) } else { joint };
        let share = if ends_follow_up { 1.0 } else { CLIP_SHARE };
        let clip = resolving.clip_norm(self.clip_norm)?.unwrap_or(share * joint * task.max_weight());
        let step = match preconditioner {
            Preconditioner::Gram => 2.0,
            Preconditioner::Diagonal => (1.5 / f64::from(task.max_nonzeros.max(1))).min(1.0),
        };
        // As much as a row may have that C does not shorten: then a record's own t does not decide whether it is.
        let whole = (clip / (joint * task.max_weight())).min(1.0);
        let scale_weights =
            scale.map(|scale| ScaleWeights { statistic: 2.0 * whole * residual * radius / scale.largest, count: whole * count });
        Ok(NaturalGradientSpec {
            scale_weights,
            noise_multiplier: checked(NoiseMultiplier::new(1.0))?,
            preconditioner,
            gram_share: self.gram_share.unwrap_or(0.2),
            budget_growth: self.budget_growth.unwrap_or(1.0),
            step: self.step.unwrap_or(step),
            averaging: self.averaging.unwrap_or(0.5),
            eigenvalue_floor: self.eigenvalue_floor.unwrap_or(2.0),
            shrinkage: self.shrinkage.unwrap_or(3.0),
            residual_bound: residual,
            curvature_bound: curvature,
            curvature_weight: weight,
            clip_norm: checked(ClipNorm::new(clip))?,
            weighted: self.weighted.unwrap_or(two_classes(task, residual)?),
        })
    }
}

/// Whether a record can have one of two classes, and its residual is not cut below the model's own bound.
fn two_classes(task: &Setting<'_>, residual_bound: f64) -> Result<bool, TaskError> {
    let rules = task.model.rules();
    let bounds = rules.bounds(task.ranges()?).predictor;
    Ok(rules.has_two_classes() && bounds.is_some_and(|bounds| residual_bound >= bounds.residual))
}

/// What a visit asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NaturalGradientVisit {
    /// c̄ Σ svec(xxᵀ), or less where a record's label bounds its curvature.
    Gram,
    /// [Σ r x ; w Σ c x∘x], or w Σ c svec(xxᵀ) with full covariance; and two numbers more where the scale is learned.
    Gradient,
}

impl NaturalGradientSpec {
    /// What a visit asks for.
    #[must_use]
    pub fn visit(&self, visit: u32) -> NaturalGradientVisit {
        match self.preconditioner {
            Preconditioner::Gram if visit == 0 => NaturalGradientVisit::Gram,
            Preconditioner::Gram | Preconditioner::Diagonal => NaturalGradientVisit::Gradient,
        }
    }

    /// Share of a visit in the budget of a run of so many visits. It adds up the growth of all of them: for many visits at once see
    /// [`shares`](Self::shares).
    #[must_use]
    pub fn share(&self, visit: u32, visits: u32) -> f64 {
        self.share_of(visit, visits, self.total_growth(visits.max(visit + 1)))
    }

    /// Shares of all visits of a run of so many visits, in order.
    #[must_use]
    pub fn shares(&self, visits: u32) -> Vec<f64> {
        let total = self.total_growth(visits);
        (0..visits).map(|visit| self.share_of(visit, visits, total)).collect()
    }

    /// Visits before those whose budget grows.
    fn first(&self) -> u32 {
        match self.preconditioner {
            Preconditioner::Gram => 1,
            Preconditioner::Diagonal => 0,
        }
    }

    fn growth(&self, visit: u32) -> f64 {
        self.budget_growth.powi((visit - self.first()).cast_signed())
    }

    fn total_growth(&self, visits: u32) -> f64 {
        (self.first()..visits).map(|visit| self.growth(visit)).sum()
    }

    fn share_of(&self, visit: u32, visits: u32, total_growth: f64) -> f64 {
        let first = self.first();
        let gram = if first == 1 && visits > 1 { self.gram_share } else { 0.0 };
        if visit < first {
            return if visits > 1 { gram } else { 1.0 };
        }
        (1.0 - gram) * self.growth(visit) / total_growth
    }

    /// The mechanism of a visit.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, task: &Setting<'_>, visit: u32) -> Result<SumMechanism, TaskError> {
        self.sum_of(task, visit, self.share(visit, task.visits()))?.mechanism(task)
    }

    /// The coordinates of a visit's sum that this site releases, ascending: under local trust those without the effects of other sites. `None`: all.
    ///
    /// # Errors
    /// The task has effects of sites, and the site is none of its list.
    pub fn places(&self, task: &Setting<'_>, visit: u32, site: Option<u32>) -> Result<Option<Vec<u32>>, TaskError> {
        let owners = task.owners();
        if owners.is_empty() || task.privacy.trust == Trust::Aggregated {
            return Ok(None);
        }
        let Some(site) = site else { return invalid("the task has effects of sites, and it is not said which site this is") };
        let own = |j: usize| owners[j].is_none_or(|owner| owner == site);
        let d = owners.len();
        let products = |offset: usize| {
            let mut place = offset;
            let mut places = Vec::new();
            for i in 0..d {
                places.extend((i..d).filter(|j| own(i) && own(*j)).map(|j| place + j - i));
                place += d - i;
            }
            places
        };
        let single = || (0..d).filter(|j| own(*j));
        let mut places: Vec<usize> = match (self.visit(visit), task.approximation) {
            (NaturalGradientVisit::Gram, _) => products(0),
            (NaturalGradientVisit::Gradient, Approximation::MeanField) => single().chain(single().map(|j| d + j)).collect(),
            (NaturalGradientVisit::Gradient, Approximation::FullCovariance) => single().chain(products(d)).collect(),
        };
        if self.visit(visit) == NaturalGradientVisit::Gradient {
            places.extend((0..task.scale_numbers()).map(|number| task.family().len() + number));
        }
        // A sum over so many coordinates exists.
        Ok(Some(places.into_iter().map(|place| u32::try_from(place).unwrap_or(u32::MAX)).collect()))
    }

    fn sum_of(&self, task: &Setting<'_>, visit: u32, share: f64) -> Result<SumSpec, TaskError> {
        let (clip, noise) = self.clip_and_noise(task, visit, share)?;
        let coordinates = u32::try_from(self.coordinates(task, visit));
        let Ok(coordinates) = coordinates else { return invalid("the model has too many parameters for one sum") };
        Ok(SumSpec { coordinates, clip, noise, sampling: None, terms: Terms::Units })
    }

    /// C and z of a visit with this share of the budget.
    pub(crate) fn clip_and_noise(&self, task: &Setting<'_>, visit: u32, share: f64) -> Result<(ClipNorm, NoiseMultiplier), TaskError> {
        let clip = match self.visit(visit) {
            NaturalGradientVisit::Gram => checked(ClipNorm::new(task.max_weight() * self.curvature_bound * task.gram_length()?))?,
            NaturalGradientVisit::Gradient => self.clip_norm,
        };
        let noise = checked(NoiseMultiplier::new(self.noise_multiplier.get() / share.sqrt()))?;
        Ok((clip, noise))
    }

    fn coordinates(&self, task: &Setting<'_>, visit: u32) -> usize {
        let d = task.dimension as usize;
        match (self.visit(visit), task.approximation) {
            (NaturalGradientVisit::Gram, _) => triangle(d),
            (NaturalGradientVisit::Gradient, Approximation::MeanField) => 2 * d + task.scale_numbers(),
            (NaturalGradientVisit::Gradient, Approximation::FullCovariance) => d + triangle(d) + task.scale_numbers(),
        }
    }
}

impl UpdateRules for NaturalGradientSpec {
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        requires_epsilon(task, "natural-gradient")?;
        require(
            matches!(task.schedule, ScheduleSpec::Synchronous { .. }),
            "update = \"natural-gradient\" sums over all sites: use schedule = \"synchronous\"",
        )?;
        require(task.damping.iter().all(|&rho| rho >= 1.0), "update = \"natural-gradient\" has a step of its own: remove damping")?;
        require(task.model.rules().is_linear(), "update = \"natural-gradient\" needs a generalised linear model")?;
        match self.preconditioner {
            Preconditioner::Gram => {
                require(task.visits() >= 2, "update = \"natural-gradient\" needs at least 2 rounds: the first releases the Gram matrix")?;
                require(
                    task.dimension <= LARGEST_GRAM,
                    "more than 2048 coefficients are too many for a Gram matrix: use preconditioner = \"diagonal\"",
                )?;
                require(self.step > 0.0 && self.step <= 2.0, "step must be above 0 and at most 2")?;
            }
            Preconditioner::Diagonal => require(self.step > 0.0 && self.step <= 1.0, "step must be above 0 and at most 1")?,
        }
        require(
            task.approximation == Approximation::MeanField || task.dimension <= LARGEST_GRAM,
            "more than 2048 coefficients are too many for approximation = \"full-covariance\"",
        )?;
        require(self.gram_share > 0.0 && self.gram_share < 1.0, "gram_share must lie strictly between 0 and 1")?;
        require(self.budget_growth >= 0.1 && self.budget_growth <= 10.0, "budget_growth must lie between 0.1 and 10")?;
        require((0.0..=1.0).contains(&self.averaging), "averaging must lie between 0 and 1")?;
        require(self.shrinkage >= 0.0 && self.shrinkage.is_finite(), "shrinkage must be finite and not negative")?;
        require(self.eigenvalue_floor >= 0.0 && self.eigenvalue_floor.is_finite(), "eigenvalue_floor must be finite and not negative")?;
        require(
            !self.weighted || two_classes(task, self.residual_bound)?,
            "weighted = true of update = \"natural-gradient\" needs family = \"logistic-regression\" or \"probit-regression\", and a residual_bound of at least the model's own",
        )?;
        match (task.learned_scale(), self.scale_weights) {
            (None, None) => {}
            (Some(_), Some(ScaleWeights { statistic, count })) => {
                require(
                    positive(statistic) && positive(count),
                    "the weights of what tells the scale must be numbers between 1e-30 and 1e30",
                )?;
                require(
                    task.visits() >= self.first() + 2,
                    "scale = \"learned\" needs a round more: the first gradient, which is one at the prior's mean, says nothing of it",
                )?;
            }
            _ => return invalid("scale_weights are for a scale that is learned, and needed there: use the same version on both sides"),
        }
        requires_clip_norms([&self.clip_norm])?;
        require(positive(self.residual_bound), "residual_bound must be a number between 1e-30 and 1e30")?;
        require(positive(self.curvature_bound), "curvature_bound must be a number between 1e-30 and 1e30")?;
        require(positive(self.curvature_weight), "curvature_weight must be a number between 1e-30 and 1e30")
    }

    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a> {
        let total = self.total_growth(task.visits());
        Box::new(move |visit| {
            let share = if visit < task.visits() {
                self.share_of(visit, task.visits(), total)
            } else {
                // After the task's last visit, as `share` has it.
                self.share(visit, task.visits())
            };
            VisitForm::of_sum(self.sum_of(task, visit, share)?, task)
        })
    }

    fn traits(&self) -> Traits {
        Traits { learns_scales: true, learns_noise_scale: true, carries_site_effects: true, ..Traits::of_passes(1) }
    }

    /// Behind λ: the mean of the iterate, the curvature, the Gram matrix, and learned scales, of the observations and of coefficients.
    fn state(&self, task: &Setting<'_>) -> StateForm {
        let preconditioner = match self.preconditioner {
            Preconditioner::Gram => triangle_numbers(task.dimension.into()),
            Preconditioner::Diagonal => 0,
        };
        let scale = if task.learned_scale().is_some() { ScaleState::LEN as u64 } else { 0 };
        let len = 2 * task.family_len() + preconditioner + scale + crate::methods::scaled::learned(task);
        StateForm { len, site: SiteStateForm::None }
    }

    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule> {
        Box::new(NaturalGradientRule::new(task, *self))
    }

    fn released(&self) -> String {
        let first = match self.preconditioner {
            Preconditioner::Gram => " (at the first visit: of weighted products of its features)",
            Preconditioner::Diagonal => "",
        };
        let scale = if self.scale_weights.is_some() { ", of how far labels are off, and of their number" } else { "" };
        format!(
            "at every visit one noised sum over the records, of residual times features and of curvature times squared features{scale}{first}"
        )
    }

    fn with_noise(&self, noise_multiplier: NoiseMultiplier) -> Option<UpdateSpec> {
        Some(UpdateSpec::NaturalGradient(Self { noise_multiplier, ..*self }))
    }

    fn simulate(&self, task: &Setting<'_>, visit: u32, state: &[f64], stage: &mut Stage<'_>) -> Result<Sent, NotForecast> {
        if task.learned_scale().is_some() {
            return Err(NotForecast::Scale);
        }
        let noised = self.sum_of(task, visit, self.share(visit, task.visits())).map_err(|_| NotForecast::Setting)?;
        super::prior_predictive::sum(self, task, (visit, &noised), state, stage)
    }

    fn noise_aware(&self) -> Result<&dyn NoiseAware, Absent> {
        match self.preconditioner {
            Preconditioner::Gram => Ok(self),
            Preconditioner::Diagonal => Err(Absent::Correlations),
        }
    }

    fn parted(&self) -> Option<&dyn Parted> {
        Some(self)
    }

    fn comparable(&self) -> Result<&dyn Comparable, NotTested> {
        match self.preconditioner {
            Preconditioner::Gram => Ok(self),
            Preconditioner::Diagonal => Err(NotTested::Update),
        }
    }

    fn without(&self, task: &Setting<'_>, releases: &SiteReleases<'_>, site: usize) -> Result<Divided, Undividable> {
        match self.preconditioner {
            Preconditioner::Gram => super::sites::sites(task, self, releases).ok_or(Undividable::Diverged)?.without(site),
            Preconditioner::Diagonal => Err(Undividable::Correlations),
        }
    }
}

impl NoiseAware for NaturalGradientSpec {
    fn posterior(&self, task: &Setting<'_>, history: &History) -> Result<Posterior, Absent> {
        super::noise_aware::posterior(task, self, history, None)
    }
}

impl Parted for NaturalGradientSpec {
    fn without(&self, task: &Setting<'_>, history: &History, part: &Contribution) -> Result<Posterior, Absent> {
        super::noise_aware::posterior(task, self, history, Some(part))
    }

    fn factor(&self, task: &Setting<'_>, history: &History, part: &Contribution) -> Option<Vec<f64>> {
        NaturalGradientRule::new(task, *self).factor(history, part)
    }
}

impl Comparable for NaturalGradientSpec {
    fn agreement(&self, task: &Setting<'_>, releases: &SiteReleases<'_>) -> Result<Vec<Option<Compared>>, NotTested> {
        super::sites::sites(task, self, releases).ok_or(NotTested::Diverged)?.agreement()
    }
}

impl Display for NaturalGradientSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let preconditioner = match self.preconditioner {
            Preconditioner::Gram => "Gram matrix",
            Preconditioner::Diagonal => "diagonal",
        };
        write!(
            f,
            "bounded natural gradients ({preconditioner}{}): step {}, sensitivity bound {}, noise multiplier of the run {}",
            if self.weighted { ", records weighted by their features" } else { "" },
            Short(self.step),
            Short(self.clip_norm.get()),
            Short(self.noise_multiplier.get())
        )
    }
}
