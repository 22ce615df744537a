//! The server's step of stochastic expectation propagation: post-processing of released sums.
//!
//! λ ← λ + (ρ/q) ΣR, in centred form: Λ′ = floor(Λ + (ρ/q)ΔΛ), μ′ = μ + (ρ/q) G/max(Λ′, Λ_step) with G = Δh − ΔΛ μ, h′ = Λ′μ′. Where nothing is
//! floored that is λ + (ρ/q)Δ itself; where something is, the mean is not computed from a noisy h.
//!
//! # States
//! * Linear predictors and mixtures: [h; Λ]. λ0 is the task's prior. A mixture starts beside it, with means that differ between components; with full
//!   covariance Λ keeps a block for each component, and the noise between blocks is dropped.
//! * Networks: [h; Λ] over the weights and, as the last coordinate, the noise precision γ by its mean a/b and variance a/b² (so h = b, Λ = b²/a,
//!   from which both come back); then the prior factors, 3 numbers a weight (precision, shape, natural rate), and shape and rate of the
//!   weights' precision. They are refined at every step.

use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec_times, unsvec};
use nalgebra::{Cholesky, DVector};

use crate::methods::{ClipTarget, PropagationSpec, Setting, VisitOrder};
use crate::methods::{Rule, Step, VisitSum};
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_models::gaussian_mixture::MixtureShape;
use dp_pvi_models::pbp_network::{Network, PriorFactors, Site};
use dp_pvi_models::start::standard_normal;
use dp_pvi_models::{MixtureForm, TiltedForm};
use dp_pvi_privacy::clipping::metric::Reference;

/// Shape and rate of γ before any record.
pub const NOISE_PRIOR: (f64, f64) = (6.0, 6.0);
/// Smallest shape and rate of γ after a noisy step.
const NOISE_FLOOR: (f64, f64) = (1.5, 1e-3);

/// The rule of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct PropagationRule {
    spec: PropagationSpec,
    /// Of the weights for a network, of all coordinates otherwise.
    family: Family,
    prior: Vec<f64>,
    floor: PrecisionFloor,
    damping: Vec<f64>,
    blocks: Vec<usize>,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    /// λ starts here.
    Fixed(Vec<f64>),
    /// λ starts at `start`. No mean of points of norm at most `bound` is longer: noise that says so is drawn back, component by component.
    Mixture { start: Vec<f64>, shape: MixtureShape, bound: f64 },
    /// Prior factors are part of the state.
    Network { network: Network, seed: u32, scale: f64 },
}

/// λ and λ0 in the coordinates of moment matching: the state's head, or [h; Λ; a − 1; −b] of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Approximation {
    /// λ.
    pub lambda: Vec<f64>,
    /// λ0.
    pub prior: Vec<f64>,
}

impl PropagationRule {
    /// The rule of a task.
    #[must_use]
    pub fn new(task: &Setting<'_>, spec: PropagationSpec) -> Self {
        let blocks = spec.blocks(task);
        let prior = task.prior_natural();
        let (family, kind) = match task.model.rules().tilted() {
            Some(TiltedForm::Network { hidden, seed }) => {
                let hidden: Vec<usize> = hidden.iter().map(|&units| units as usize).collect();
                // `check` refused networks that are none.
                let network = Network::new(task.features as usize, &hidden).expect("a checked task has a network");
                (Family::DiagonalGaussian { dimension: network.weights() }, Kind::Network { network, seed, scale: task.prior.scale })
            }
            Some(TiltedForm::Mixture(MixtureForm { components, seed, .. })) => {
                // The prior's precision, around means drawn from the prior with a public seed.
                let family = task.family();
                let mut start = prior.clone();
                let precision = task.prior.scale.powi(-2);
                for (j, h) in start.iter_mut().take(family.dimension()).enumerate() {
                    *h += precision * task.prior.scale * standard_normal(u64::from(seed), j as u64);
                }
                let shape = MixtureShape::of_family(components as usize, family);
                (family, Kind::Mixture { start, shape, bound: task.feature_bound })
            }
            Some(TiltedForm::Predictor) | None => (task.family(), Kind::Fixed(prior.clone())),
        };
        Self { spec, family, prior, floor: task.model.rules().floor(), damping: task.damping.to_vec(), blocks, kind }
    }

    /// λ and λ0 of a state.
    #[must_use]
    pub fn approximation(&self, state: &[f64]) -> Approximation {
        match &self.kind {
            Kind::Fixed(_) | Kind::Mixture { .. } => Approximation { lambda: state.to_vec(), prior: self.prior.clone() },
            Kind::Network { network, .. } => {
                let parts = NetworkState::read(network, state);
                Approximation { prior: parts.prior.natural(NOISE_PRIOR), lambda: parts.lambda }
            }
        }
    }

    /// λ and λ0 before the first round.
    #[must_use]
    pub fn first(&self) -> Approximation {
        self.approximation(&self.initial())
    }

    /// N.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a number of records is far below 2^52")]
    pub fn records(&self) -> f64 {
        self.spec.records as f64
    }

    /// The message of a change in the coordinates of moment matching, before any clipping: the metric's blocks, not scaled.
    ///
    /// `reference` are λ's mean and precision ([`PropagationRule::reference`]).
    #[must_use]
    pub fn encode(&self, change: &[f64], mean: &[f64], precision: &[f64]) -> Vec<f64> {
        let (gaussian, noise) = change.split_at(self.family.len());
        let mut message = self.spec.clip_metric.encode(self.family, gaussian, &Reference::new(self.family, mean, precision));
        message.extend_from_slice(noise);
        message
    }

    /// μ, and Λ in the family's coordinates, of λ in the coordinates of moment matching. `None` if λ is not a distribution.
    #[must_use]
    pub fn reference(&self, lambda: &[f64]) -> Option<(Vec<f64>, Vec<f64>)> {
        let gaussian = lambda.get(..self.family.len())?;
        let q = Gaussian::from_natural(self.family, gaussian.to_vec()).ok()?;
        Some((q.standard().mean().to_vec(), gaussian[self.family.dimension()..].to_vec()))
    }

    /// Lengths of a message's blocks.
    #[must_use]
    pub fn blocks(&self) -> &[usize] {
        &self.blocks
    }

    /// ρ of a visit; the last one for visits past the end.
    fn damping(&self, visit: u32) -> f64 {
        self.damping.get(visit as usize).or(self.damping.last()).copied().unwrap_or(1.0)
    }

    fn step(&self, state: &[f64], received: &VisitSum<'_>) -> Option<Step> {
        let Approximation { mut lambda, prior } = self.approximation(state);
        if received.sum.len() != lambda.len() || !received.sum.iter().all(|value| value.is_finite()) {
            return None;
        }
        let d = self.family.dimension();
        let (mean, precision) = self.reference(&lambda)?;
        let step = self.damping(received.visit) / self.spec.sampling_rate.get();
        let mut change = self.decode(received.sum, &mean, &precision);
        if (self.spec.clip_target, self.spec.order) == (ClipTarget::Factor, VisitOrder::Batch) {
            // Terms were clip(f_n): N f is taken off here, by public numbers.
            let rate = self.spec.sampling_rate.get();
            change.iter_mut().zip(&lambda).zip(&prior).for_each(|((c, l), p)| *c -= rate * (l - p));
        }
        let (gaussian, noise) = change.split_at(self.family.len());
        // G = Δh − ΔΛ μ.
        let moved = times(self.family, &gaussian[d..], &mean);
        let slope: Vec<f64> = gaussian[..d].iter().zip(moved).map(|(h, m)| step * (h - m)).collect();
        let mut new_precision: Vec<f64> = precision.iter().zip(&gaussian[d..]).map(|(l, change)| l + step * change).collect();
        if let Kind::Mixture { shape, .. } = &self.kind {
            clear_between(*shape, &mut new_precision);
        }
        let mut floored = 0;
        if let Some(raised) = self.floor.apply(self.family, &prior[d..self.family.len()], &new_precision) {
            (new_precision, floored) = (raised.precision, raised.directions);
        }
        let mut new_mean = self.moved_mean(&mean, &slope, &new_precision)?;
        if let Kind::Mixture { shape, bound, .. } = self.kind {
            new_mean.chunks_mut(shape.dimension).for_each(|component| draw_in(component, bound));
        }
        lambda[..d].copy_from_slice(&times(self.family, &new_precision, &new_mean));
        lambda[d..self.family.len()].copy_from_slice(&new_precision);
        // The Gaussian part must still be one.
        self.reference(&lambda)?;
        match &self.kind {
            Kind::Fixed(_) | Kind::Mixture { .. } => Some(Step { state: lambda, correction: None, floored }),
            Kind::Network { network, .. } => {
                let end = self.family.len();
                let shape = (lambda[end] + 1.0 + step * noise[0]).max(NOISE_FLOOR.0);
                let rate = (-lambda[end + 1] - step * noise[1]).max(NOISE_FLOOR.1);
                (lambda[end], lambda[end + 1]) = (shape - 1.0, -rate);
                let mut parts = NetworkState { lambda, prior: NetworkState::read(network, state).prior };
                parts.prior.refine(&mut parts.lambda);
                let state = parts.write();
                state.iter().all(|value| value.is_finite()).then_some(Step { state, correction: None, floored })
            }
        }
    }

    /// The change that a (noisy) sum of messages as they are sent stands for, in the coordinates of moment matching.
    #[must_use]
    pub fn decode(&self, sum: &[f64], mean: &[f64], precision: &[f64]) -> Vec<f64> {
        if self.spec.order != VisitOrder::Batch {
            return sum.to_vec();
        }
        let mut message = sum.to_vec();
        if self.spec.noise_multiplier.is_some() {
            let mut rest = message.as_mut_slice();
            for (len, scale) in self.blocks.iter().zip(&self.spec.scales) {
                let (block, after) = rest.split_at_mut(*len);
                block.iter_mut().for_each(|value| *value *= scale);
                rest = after;
            }
        }
        self.decode_message(&message, mean, precision)
    }

    /// The change that a message stands for: the inverse of [`PropagationRule::encode`].
    #[must_use]
    pub fn decode_message(&self, message: &[f64], mean: &[f64], precision: &[f64]) -> Vec<f64> {
        let (gaussian, noise) = message.split_at(self.family.len());
        let mut change = self.spec.clip_metric.decode(self.family, gaussian, &Reference::new(self.family, mean, precision));
        change.extend_from_slice(noise);
        change
    }

    /// μ + G/max(Λ′, Λ_step).
    fn moved_mean(&self, mean: &[f64], slope: &[f64], precision: &[f64]) -> Option<Vec<f64>> {
        match self.family {
            Family::DiagonalGaussian { .. } => {
                let parts = mean.iter().zip(slope).zip(precision);
                Some(parts.map(|((m, g), l)| m + g / l.max(self.spec.step_precision)).collect())
            }
            Family::FullGaussian { dimension } => {
                let factor = Cholesky::new(unsvec(precision, dimension))?;
                let shift = factor.solve(&DVector::from_column_slice(slope));
                Some(mean.iter().zip(shift.iter()).map(|(m, s)| m + s).collect())
            }
        }
    }
}

impl Rule for PropagationRule {
    fn initial(&self) -> Vec<f64> {
        match &self.kind {
            Kind::Fixed(start) | Kind::Mixture { start, .. } => start.clone(),
            Kind::Network { network, seed, scale } => {
                let prior = PriorFactors::with_scale(network, *scale);
                let mut lambda = prior.natural(NOISE_PRIOR);
                let weights = network.weights();
                let means = network.initial_means(u64::from(*seed));
                for i in 0..weights {
                    lambda[weights + i] += self.spec.initial_precision;
                    lambda[i] = means[i] * lambda[weights + i];
                }
                NetworkState { lambda, prior }.write()
            }
        }
    }

    /// Total: where the step would leave the valid states, the state stays and all directions count as floored.
    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        self.step(state, received).unwrap_or_else(|| Step { state: state.to_vec(), correction: None, floored: self.family.dimension() })
    }
}

/// Components are independent: what a noised sum has between two of them is noise and nothing else.
fn clear_between(shape: MixtureShape, precision: &mut [f64]) {
    let mut own = shape.positions().into_iter().skip(shape.means()).peekable();
    for (position, value) in precision.iter_mut().enumerate() {
        if own.next_if_eq(&(shape.means() + position)).is_none() {
            *value = 0.0;
        }
    }
}

/// Shortens a vector to `bound`.
fn draw_in(vector: &mut [f64], bound: f64) {
    let norm = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
    if norm > bound {
        vector.iter_mut().for_each(|v| *v *= bound / norm);
    }
}

/// Precision block times a vector.
fn times(family: Family, precision: &[f64], vector: &[f64]) -> Vec<f64> {
    match family {
        Family::DiagonalGaussian { .. } => precision.iter().zip(vector).map(|(p, v)| p * v).collect(),
        Family::FullGaussian { .. } => svec_times(precision, vector),
    }
}

/// A network's state, taken apart.
struct NetworkState {
    /// [h; Λ; a − 1; −b].
    lambda: Vec<f64>,
    prior: PriorFactors,
}

impl NetworkState {
    /// A state of another length gives a network's start without means; the server hashes states, so no other length arrives.
    fn read(network: &Network, state: &[f64]) -> Self {
        let weights = network.weights();
        let d = weights + 1;
        let (head, tail) = state.split_at((2 * d).min(state.len()));
        if head.len() != 2 * d || tail.len() != 3 * weights + 2 {
            let prior = PriorFactors::new(network);
            return Self { lambda: prior.natural(NOISE_PRIOR), prior };
        }
        // h = b and Λ = b²/a.
        let (rate, precision) = (head[weights], head[d + weights]);
        let shape = rate * rate / precision;
        let lambda = [&head[..weights], &head[d..d + weights], &[shape - 1.0, -rate]].concat();
        let site = |s: &[f64]| Site { h: 0.0, precision: s[0], shape: s[1], negative_rate: s[2] };
        let sites = tail[..3 * weights].chunks_exact(3).map(site).collect();
        Self { lambda, prior: PriorFactors::from_parts(sites, tail[3 * weights], tail[3 * weights + 1]) }
    }

    fn write(&self) -> Vec<f64> {
        let weights = self.prior.sites().len();
        let (h, precision) = (&self.lambda[..weights], &self.lambda[weights..2 * weights]);
        let (shape, rate) = (self.lambda[2 * weights] + 1.0, -self.lambda[2 * weights + 1]);
        let mut state = [h, &[rate], precision, &[rate * rate / shape]].concat();
        state.extend(self.prior.sites().iter().flat_map(|s| [s.precision, s.shape, s.negative_rate]));
        let (shape, rate) = self.prior.hyperposterior();
        state.extend([shape, rate]);
        state
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
