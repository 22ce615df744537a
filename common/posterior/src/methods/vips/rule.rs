//! The server's step of perturbed expected sufficient statistics: the M-step.
//!
//! * **Logistic regression**: the state is [λ | s1 | svec S2 | α]: the posterior, Σ x(y−½) as far as it is known, the running
//!   Σ E ω xxᵀ, and the prior's precision. A visit moves S2 ← (1−ρ)S2 + ρŜ2; λ has Λ = αI + S2 with S2's eigenvalues raised to its noise,
//!   h = α m0 + s1. About the posterior's mean μ every visit says s1 anew, as its released residuals plus S2 μ with the very S2 that Λ has.
//!   The last visit's λ includes the noise's variance where the task says so.
//! * **Topic models**: the state is [λ | Dirichlet parameters | released sums as they are, where counts are expectations | C]. λ is a Gaussian with the moments of every word's probability in
//!   every topic, for whatever reads posteriors; the Dirichlet parameters are what E-steps use.
//! * **Sigmoid belief networks**: the state is [λ | shrinkage | running sums | variance of their noise | C]; there are running sums where
//!   some damping is below 1. The first visit's sums are taken whole.
//! * **Linear regression with unknown noise**: the state is [λ | E τ]; there is one visit.

mod documents;
mod images;
mod linear;

use dp_pvi_accounting::ClipNorm;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec_times, triangle};

use self::documents::Documents;
use self::images::Images;
use self::linear::Linear;
use crate::methods::{Intervals, PolyaGammaSpec, Setting, StatisticsSpec, VipsSpec};
use crate::methods::{Rule, Step, VisitSum};
use dp_pvi_math::polya_gamma::{m_step, noise_aware_posterior, raise_to};
use dp_pvi_models::StatisticsForm;
use dp_pvi_models::latent_dirichlet::{LdaError, Topics};
use dp_pvi_models::spec::GatheredNoise;

/// The rule of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct VipsRule {
    family: Family,
    damping: Vec<f64>,
    /// Per visit: noise on one coordinate of one site's sum.
    noise: Vec<f64>,
    /// Per visit: scales of the blocks.
    scales: Vec<Vec<f64>>,
    gathered: GatheredNoise,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    PolyaGamma {
        spec: PolyaGammaSpec,
        prior_mean: f64,
        prior_precision: f64,
    },
    Documents(Documents),
    Images(Box<Images>),
    Linear(Linear),
    /// Not a task that was checked: the state never moves.
    Nothing,
}

impl VipsRule {
    /// The rule of a task with this update.
    #[must_use]
    pub fn new(task: &Setting<'_>, spec: VipsSpec) -> Self {
        let kind = match spec.statistics {
            StatisticsSpec::PolyaGamma(spec) => {
                let prior_precision = spec.relevance.map_or(task.prior.scale.powi(-2), |r| r.expected_precision());
                Kind::PolyaGamma { spec, prior_mean: task.prior.mean, prior_precision }
            }
            StatisticsSpec::Documents(spec) => Documents::new(task, spec).map_or(Kind::Nothing, Kind::Documents),
            StatisticsSpec::LinearNoise(spec) => Kind::Linear(Linear::new(task, spec)),
            StatisticsSpec::Images(spec) => Images::new(task, spec).map_or(Kind::Nothing, |images| Kind::Images(Box::new(images))),
        };
        // A task that was checked has both for every visit.
        let noise = |shares: &Vec<f64>| spec.clip_and_noise(shares).map_or(0.0, |(clip, noise)| clip.get() * noise.get());
        let total = spec.total_growth(task.visits());
        let shares: Vec<Vec<f64>> = (0..task.visits()).map(|visit| spec.shares_of(visit, total)).collect();
        Self {
            family: task.family(),
            damping: task.damping.to_vec(),
            noise: shares.iter().map(noise).collect(),
            scales: shares.iter().map(|shares| spec.scales_of(task, shares)).collect(),
            gathered: task.gathered_noise(),
            kind,
        }
    }

    /// Topics of a state of a topic model.
    ///
    /// # Errors
    /// The state is not one of this rule.
    pub fn topics(task: &Setting<'_>, state: &[f64]) -> Result<Topics, LdaError> {
        let Some(StatisticsForm::Documents(model)) = task.model.rules().statistics() else {
            return Err(LdaError::Topics);
        };
        model.topics_of(task.family(), state)
    }

    /// C of a state of a topic model or a sigmoid belief network.
    ///
    /// # Errors
    /// The state is not one of this rule.
    pub fn clip(state: &[f64]) -> Result<ClipNorm, dp_pvi_accounting::unit::InvalidUnit> {
        ClipNorm::new(state.last().copied().unwrap_or(f64::NAN))
    }

    /// Standard deviation of the noise on one coordinate of the sum of a visit.
    fn noise(&self, visit: u32, sites: u32) -> f64 {
        self.noise.get(visit as usize).copied().unwrap_or(0.0) * self.gathered.of(sites).sqrt()
    }

    /// Noise on a coordinate of the running S2 after a visit, if so many sites were in every sum.
    fn running_noise(&self, visit: u32, sites: u32) -> f64 {
        let visits = (0..=visit).zip(&self.damping).zip(&self.scales);
        let variance = visits.fold(0.0, |variance: f64, ((t, rho), scales)| {
            let one = scales.last().copied().unwrap_or(0.0) * self.noise(t, sites);
            (1.0 - rho).powi(2) * variance + (rho * one).powi(2)
        });
        variance.sqrt()
    }

    fn logistic(&self, spec: &PolyaGammaSpec, prior_mean: f64, state: &[f64], received: &VisitSum<'_>) -> Option<Step> {
        let d = self.family.dimension();
        let mut rest = state;
        let [_, first, second, precision] = [self.family.len(), d, triangle(d), 1].map(|length| {
            let (block, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            block
        });
        let scales = self.scales.get(received.visit as usize)?;
        let rho = *self.damping.get(received.visit as usize)?;
        let has_first = received.visit == 0 || spec.is_centred();
        let (released_first, released) = received.sum.split_at(if has_first { d.min(received.sum.len()) } else { 0 });
        if precision.len() != 1 || released.len() != triangle(d) || !received.sum.iter().all(|v| v.is_finite()) {
            return None;
        }
        let scale = *scales.last()?;
        let second: Vec<f64> = second.iter().zip(released).map(|(old, new)| (1.0 - rho) * old + rho * scale * new).collect();
        let noise = self.running_noise(received.visit, received.sites);
        #[allow(clippy::cast_precision_loss, reason = "a dimension")]
        let level = spec.eigenvalue_floor * noise * (0.5 * d as f64).sqrt();
        let raised = raise_to(&second, d, level);
        let old = Gaussian::from_natural(self.family, state.get(..self.family.len())?.to_vec()).ok()?;
        let centre = if spec.is_centred() { old.standard().mean().to_vec() } else { vec![0.0; d] };
        let (first, first_noise) = if has_first {
            let scale = *scales.first()?;
            let at_centre = svec_times(&raised.second, &centre);
            let first = released_first.iter().zip(at_centre).map(|(released, moved)| scale * released + moved).collect();
            (first, scale * self.noise(received.visit, received.sites))
        } else {
            (first.to_vec(), self.scales.first().and_then(|s| s.first()).copied().unwrap_or(0.0) * self.noise(0, received.sites))
        };
        let prior = Gaussian::from_natural(self.family, self.family.isotropic(prior_mean, 1.0 / precision[0])).ok()?;
        let naive = m_step(&prior, &first, &raised.second).ok()?;
        let last = received.visit as usize + 1 == self.damping.len();
        let posterior = match spec.intervals {
            Intervals::NoiseAware if last => {
                noise_aware_posterior(&prior, &naive, &centre, &first, &raised.second, [first_noise, noise]).ok()?
            }
            Intervals::NoiseAware | Intervals::Naive => naive.clone(),
        };
        let precision = spec.relevance.map_or(precision[0], |relevance| relevance.updated(&naive).expected_precision());
        let mut state = posterior.natural().to_vec();
        state.extend(first);
        state.extend(second);
        state.push(precision);
        state.iter().all(|v| v.is_finite()).then_some(Step { state, correction: None, floored: raised.directions })
    }
}

impl Rule for VipsRule {
    fn initial(&self) -> Vec<f64> {
        match &self.kind {
            Kind::PolyaGamma { prior_mean, prior_precision, .. } => {
                let mut state = self.family.isotropic(*prior_mean, 1.0 / prior_precision);
                let d = self.family.dimension();
                state.resize(state.len() + d + triangle(d), 0.0);
                state.push(*prior_precision);
                state
            }
            Kind::Documents(documents) => documents.initial().unwrap_or_else(|| self.family.isotropic(0.0, 1.0)),
            Kind::Images(images) => images.initial(),
            Kind::Linear(linear) => linear.initial(),
            Kind::Nothing => self.family.isotropic(0.0, 1.0),
        }
    }

    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        let visit = received.visit as usize;
        let step = match &self.kind {
            Kind::PolyaGamma { spec, prior_mean, .. } => self.logistic(spec, *prior_mean, state, received),
            Kind::Documents(documents) => self
                .damping
                .get(visit)
                .zip(self.scales.get(visit))
                .and_then(|(rho, scales)| documents.step(*rho, self.noise(received.visit, received.sites), scales, state, received)),
            Kind::Images(images) => {
                self.damping.get(visit).and_then(|rho| images.step(*rho, self.noise(received.visit, received.sites), state, received))
            }
            Kind::Linear(linear) => {
                self.scales.get(visit).and_then(|scales| linear.step(self.noise(received.visit, received.sites), scales, received))
            }
            Kind::Nothing => None,
        };
        step.unwrap_or_else(|| Step { state: state.to_vec(), correction: None, floored: 0 })
    }
}
