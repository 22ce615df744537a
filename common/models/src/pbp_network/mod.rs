//! Probabilistic back-propagation for regression networks: what is public of them.
//!
//! The model is y = f(x; W) + noise of precision γ, with rectified hidden layers, a linear output and a = W[z; 1]/√(inputs + 1) in every layer (the
//! bias is the last column of W). w ~ N(0, 1/λ_w) with λ_w ~ Gamma, γ ~ Gamma; q = Π N(w; m, v)·Gamma(γ)·Gamma(λ_w).
//!
//! What a record touches is the pair (weights, γ): natural parameters [h (W); Λ (W); a − 1; −b] in the order of [`Network`], one vector of
//! length 2W + 2. λ_w and the factors that tie it to the weights are a function of that vector and of their own past, never of a record:
//! [`PriorFactors`] lives on the public side, and refining it costs no privacy.
//!
//! * [`Network`] is the shape, [`Posterior`] the parameters, [`Activations`] the moments of all layers for one input.
//! * [`noise`] has log Z and the update of γ; `prior` the refinement of prior factors; [`predictive`] what a posterior says.
//!
//! **Assumes** a numeric label and a schema without intercept: the network has biases of its own. **Defaults**: one layer of 50 units, seed 0.
//! **When**: a number that is not linear in the features, with `update = "sep"` or `"ep"`; the noise is learned. **Source**: Hernández-Lobato and
//! Adams 2015.

mod moments;
pub mod noise;
pub mod predictive;
mod prior;
mod task;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use moments::{Activations, Slopes};
pub use prior::{PriorFactors, Refined, Site, refine_site};
pub use task::PbpNetwork;

use crate::start::standard_normal;
use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::Standard;

/// Shape and rate of the hyperpriors before any record.
pub const HYPERPRIOR: (f64, f64) = (6.0, 6.0);
/// Largest number of weights of a network: more do not fit the 32-bit coordinates of a release.
const LARGEST: usize = 1 << 26;

/// The shape of a network with one output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    layers: Vec<Layer>,
    weights: usize,
}

/// One layer: `outputs` rows of `inputs` weights and a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// Inputs without the constant.
    pub inputs: usize,
    /// Units.
    pub outputs: usize,
    /// Position of the layer's first weight.
    pub start: usize,
}

impl Layer {
    /// Length of a row: inputs and the constant.
    #[must_use]
    pub fn width(&self) -> usize {
        self.inputs + 1
    }

    /// s = 1/(inputs + 1), the squared scale of the layer's sums.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a width is far below 2^52")]
    pub fn scale(&self) -> f64 {
        1.0 / self.width() as f64
    }

    /// Positions of the layer's weights, row by row.
    #[must_use]
    pub fn weights(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.outputs * self.width()
    }
}

impl Network {
    /// A network with these hidden layers, of `inputs` features.
    ///
    /// # Errors
    /// There is no input, no hidden layer or an empty one, or the network is larger than a release can hold.
    pub fn new(inputs: usize, hidden: &[usize]) -> Result<Self, InvalidParameters> {
        if inputs == 0 || hidden.is_empty() || hidden.contains(&0) {
            return Err(InvalidParameters::Domain("a network needs an input and hidden layers of at least one unit"));
        }
        let (mut layers, mut start, mut before) = (Vec::with_capacity(hidden.len() + 1), 0_usize, inputs);
        for &outputs in hidden.iter().chain(&[1]) {
            let layer = Layer { inputs: before, outputs, start };
            let size = before.checked_add(1).and_then(|width| width.checked_mul(outputs));
            start = size
                .and_then(|size| start.checked_add(size))
                .filter(|total| *total <= LARGEST)
                .ok_or(InvalidParameters::Domain("the network has more weights than a release can hold"))?;
            layers.push(layer);
            before = outputs;
        }
        Ok(Self { layers, weights: start })
    }

    /// The network of so many weights with these hidden layers.
    ///
    /// # Errors
    /// There is none.
    pub fn of_weights(weights: usize, hidden: &[u32]) -> Result<Self, InvalidParameters> {
        let hidden: Vec<usize> = hidden.iter().map(|&units| units as usize).collect();
        let one = Self::new(1, &hidden)?;
        let first = hidden.first().copied().unwrap_or(1);
        let inputs = weights.checked_sub(one.weights()).filter(|rest| rest % first == 0).map(|rest| 1 + rest / first);
        Self::new(inputs.ok_or(InvalidParameters::Domain("not the weights of this network"))?, &hidden)
    }

    /// Layers, first to last; the last has one unit.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Number of features.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.inputs)
    }

    /// W, the number of weights and biases.
    #[must_use]
    pub fn weights(&self) -> usize {
        self.weights
    }

    /// 2W + 2, the number of natural parameters.
    #[must_use]
    pub fn len(&self) -> usize {
        2 * self.weights + 2
    }

    /// Never: a network has weights.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Means at which inference starts: N(0, 1)/√(inputs + 1) from a **public** seed, so that units differ. They depend on no record; the
    /// server and every site compute the same numbers.
    #[must_use]
    pub fn initial_means(&self, seed: u64) -> Vec<f64> {
        let mut means = vec![0.0; self.weights];
        for layer in &self.layers {
            let scale = layer.scale().sqrt();
            for position in layer.weights() {
                means[position] = scale * standard_normal(seed, position as u64);
            }
        }
        means
    }

    /// Natural parameters of the prior of (W, γ) with E λ_w = `weight_precision`: zero means, and Gamma for the noise.
    #[must_use]
    pub fn prior(&self, weight_precision: f64, noise: (f64, f64)) -> Vec<f64> {
        let mut natural = vec![0.0; self.len()];
        natural[self.weights..2 * self.weights].fill(weight_precision);
        natural[2 * self.weights] = noise.0 - 1.0;
        natural[2 * self.weights + 1] = -noise.1;
        natural
    }
}

/// Means and variances of all weights with shape and rate of γ: valid parameters, or what a cavity turned into.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// m.
    pub mean: Vec<f64>,
    /// v.
    pub variance: Vec<f64>,
    /// a of γ.
    pub shape: f64,
    /// b of γ.
    pub rate: f64,
}

impl Posterior {
    /// Parameters of `natural` = [h; Λ; a − 1; −b].
    ///
    /// # Errors
    /// Wrong length, a number that is not finite, a precision that is not positive, or a Gamma without a mean of its inverse (a ≤ 1).
    pub fn from_natural(network: &Network, natural: &[f64]) -> Result<Self, InvalidParameters> {
        let mut posterior = Self { mean: Vec::new(), variance: Vec::new(), shape: 0.0, rate: 0.0 };
        posterior.set(network, natural)?;
        Ok(posterior)
    }

    /// [`Self::from_natural`] into memory that is there already.
    ///
    /// # Errors
    /// As [`Self::from_natural`]; the content is then unspecified.
    pub fn set(&mut self, network: &Network, natural: &[f64]) -> Result<(), InvalidParameters> {
        if natural.len() != network.len() {
            return Err(InvalidParameters::Length { expected: network.len(), found: natural.len() });
        }
        let (h, rest) = natural.split_at(network.weights());
        let (precision, noise) = rest.split_at(network.weights());
        self.mean.resize(h.len(), 0.0);
        self.variance.resize(h.len(), 0.0);
        let mut valid = true;
        for (((m, v), h), p) in self.mean.iter_mut().zip(&mut self.variance).zip(h).zip(precision) {
            *v = 1.0 / p;
            *m = h * *v;
            valid &= *p > 0.0 && m.is_finite() && v.is_finite();
        }
        (self.shape, self.rate) = (noise[0] + 1.0, -noise[1]);
        let noise_is_valid = self.shape > 1.0 && self.rate > 0.0 && self.shape.is_finite() && self.rate.is_finite();
        if valid && noise_is_valid { Ok(()) } else { Err(InvalidParameters::Domain("not the parameters of a network's posterior")) }
    }

    /// [h; Λ; a − 1; −b].
    #[must_use]
    pub fn natural(&self) -> Vec<f64> {
        let h = self.mean.iter().zip(&self.variance).map(|(m, v)| m / v);
        h.chain(self.variance.iter().map(|v| 1.0 / v)).chain([self.shape - 1.0, -self.rate]).collect()
    }
}

/// The posterior whose natural parameters, as a Gaussian over the weights and the noise's precision, are the head of a run's state.
#[must_use]
pub fn network_posterior(network: &Network, head: &Standard) -> Posterior {
    let weights = network.weights();
    let (mean, variance) = (head.mean(), head.variances());
    // Mean a/b and variance a/b².
    let (m, v) = (mean[weights], variance[weights]);
    Posterior { mean: mean[..weights].to_vec(), variance: variance[..weights].to_vec(), shape: m * m / v, rate: m / v }
}
