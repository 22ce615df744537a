//! The server's step of DP-EM: the M-step is the next state.
//!
//! # States
//! [h; Λ] of the component means, whose variance is taken as their sampling variance V_jj/N_j; then J weights, the count N = Σ N_j, and J covariances
//! as svec.

use dp_pvi_math::expfam::gaussian::full::{svec, triangle, unsvec};
use nalgebra::DVector;

use crate::methods::Setting;
use crate::methods::{Rule, Step, VisitSum};
use dp_pvi_models::MixtureForm;
use dp_pvi_models::gaussian_mixture::em::{Mixture, Scales, m_step, statistics_len};
use dp_pvi_models::start::standard_normal;

/// The rule of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct EmRule {
    components: usize,
    dimension: usize,
    scales: Scales,
    bound: f64,
    initial: Vec<f64>,
}

impl EmRule {
    /// The rule of a task over a mixture of Gaussians.
    #[must_use]
    pub fn new(task: &Setting<'_>, scales: Scales) -> Self {
        // `check` refused models that are no mixture.
        let MixtureForm { components, noise_sd, seed } =
            task.model.rules().mixture().unwrap_or(MixtureForm { components: 1, noise_sd: 1.0, seed: 0 });
        let components = components as usize;
        let dimension = task.features as usize;
        let draw = |j: usize, i: usize| task.prior.mean + task.prior.scale * standard_normal(u64::from(seed), (j * dimension + i) as u64);
        let means = (0..components).map(|j| DVector::from_iterator(dimension, (0..dimension).map(|i| draw(j, i)))).collect();
        let mut rule = Self { components, dimension, scales, bound: task.feature_bound, initial: Vec::new() };
        #[allow(clippy::cast_precision_loss, reason = "a number of components is far below 2^52")]
        let count = components as f64;
        rule.initial = rule.write(&Mixture::start(means, noise_sd * noise_sd), count);
        rule
    }

    /// The mixture of a state; `None` for a vector of another length.
    #[must_use]
    pub fn mixture(&self, state: &[f64]) -> Option<Mixture> {
        let (j, d) = (self.components, self.dimension);
        if state.len() != 2 * j * d + j + 1 + j * triangle(d) {
            return None;
        }
        let (head, tail) = state.split_at(2 * j * d);
        let mean = |k: usize| DVector::from_iterator(d, (k * d..(k + 1) * d).map(|i| head[i] / head[j * d + i]));
        let covariance = |block: &[f64]| unsvec(block, d);
        Some(Mixture {
            weights: tail[..j].to_vec(),
            means: (0..j).map(mean).collect(),
            covariances: tail[j + 1..].chunks_exact(triangle(d)).map(covariance).collect(),
        })
    }

    fn write(&self, mixture: &Mixture, total: f64) -> Vec<f64> {
        let precision: Vec<f64> = mixture
            .covariances
            .iter()
            .zip(&mixture.weights)
            .flat_map(|(c, w)| c.diagonal().iter().map(|v| (w * total).max(1.0) / v).collect::<Vec<_>>())
            .collect();
        let means = mixture.means.iter().flat_map(|m| m.iter().copied());
        let mut state: Vec<f64> = means.zip(&precision).map(|(m, p)| m * p).collect();
        state.extend(&precision);
        state.extend(&mixture.weights);
        state.push(total);
        state.extend(mixture.covariances.iter().flat_map(svec));
        state
    }
}

impl Rule for EmRule {
    fn initial(&self) -> Vec<f64> {
        self.initial.clone()
    }

    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        let directions = self.components * self.dimension;
        let fits = received.sum.len() == statistics_len(self.components, self.dimension) && received.sum.iter().all(|v| v.is_finite());
        if !fits {
            return Step { state: state.to_vec(), correction: None, floored: directions };
        }
        let mixture = m_step(&self.scales, received.sum, self.components, self.dimension, self.bound);
        let total = received.sum[..self.components].iter().map(|n| (n / self.scales.weight).max(1.0)).sum();
        let next = self.write(&mixture, total);
        // A sum so large that a number left its range changes nothing.
        if next.iter().all(|value| value.is_finite()) {
            Step { state: next, correction: None, floored: 0 }
        } else {
            Step { state: state.to_vec(), correction: None, floored: directions }
        }
    }
}
