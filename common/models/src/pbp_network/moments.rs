//! Means and variances through the layers of a network.

use super::Network;
use dp_pvi_math::normal::{cdf, density};

/// Below this ratio of mean to standard deviation φ/Φ is taken from its series: Φ itself is below 1e-197 there.
const DEEP: f64 = -30.0;

/// Derivatives of a rectified unit's moments by the moments of its sum.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slopes {
    /// ∂ mean / ∂ mean.
    pub mean_by_mean: f64,
    /// ∂ mean / ∂ variance.
    pub mean_by_variance: f64,
    /// ∂ variance / ∂ mean.
    pub variance_by_mean: f64,
    /// ∂ variance / ∂ variance.
    pub variance_by_variance: f64,
}

/// Moments of every layer for one input, in memory that is used again for the next input.
#[derive(Debug, Clone, PartialEq)]
pub struct Activations {
    /// For every layer: mean, variance, squared mean and second moment of its inputs, the constant last.
    layers: Vec<Inputs>,
    /// Of every hidden unit's sum, layer by layer.
    sums: Vec<[f64; 2]>,
    /// Of every hidden unit, layer by layer.
    slopes: Vec<Slopes>,
    output: [f64; 2],
}

/// Inputs of a layer, the constant last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Inputs {
    pub(crate) mean: Vec<f64>,
    pub(crate) variance: Vec<f64>,
    /// Second moment.
    pub(crate) second: Vec<f64>,
}

impl Activations {
    /// Memory for a network.
    #[must_use]
    pub fn new(network: &Network) -> Self {
        let inputs = |width: usize| Inputs { mean: vec![1.0; width], variance: vec![0.0; width], second: vec![1.0; width] };
        let hidden = network.layers().iter().map(|layer| layer.outputs).sum::<usize>() - 1;
        Self {
            layers: network.layers().iter().map(|layer| inputs(layer.width())).collect(),
            sums: vec![[0.0; 2]; hidden],
            slopes: vec![Slopes::default(); hidden],
            output: [0.0; 2],
        }
    }

    /// Sets the network's input from pairs (position below the number of inputs, value); positions that are not given are 0.
    pub fn set_input(&mut self, entries: impl Iterator<Item = (usize, f64)>) {
        let Some(first) = self.layers.first_mut() else { return };
        let last = first.mean.len() - 1;
        first.mean[..last].fill(0.0);
        first.second[..last].fill(0.0);
        for (position, value) in entries {
            if position < last {
                first.mean[position] = value;
                first.second[position] = value * value;
            }
        }
    }

    /// Propagates the input through weights of these means and variances. A sum has mean √s M m_z and variance
    /// s[(M∘M) v_z + V (m_z∘m_z) + V v_z], s = 1/(inputs + 1).
    pub fn forward(&mut self, network: &Network, mean: &[f64], variance: &[f64]) {
        let mut unit = 0;
        for (l, layer) in network.layers().iter().enumerate() {
            let (scale, width) = (layer.scale(), layer.width());
            let root = scale.sqrt();
            let (rows, vs) = (&mean[layer.weights()], &variance[layer.weights()]);
            let hidden = l + 1 < network.layers().len();
            // The next layer's inputs are this one's outputs.
            let (before, after) = self.layers.split_at_mut(l + 1);
            let inputs = &before[l];
            for (i, (m, v)) in rows.chunks_exact(width).zip(vs.chunks_exact(width)).enumerate() {
                let (sum, spread) = if l == 0 { first_layer(m, v, inputs) } else { later_layer(m, v, inputs) };
                let (sum, spread) = (root * sum, scale * spread);
                if hidden {
                    let next = &mut after[0];
                    self.sums[unit] = [sum, spread];
                    let (m_b, v_b, slopes) = rectify(sum, spread);
                    self.slopes[unit] = slopes;
                    next.mean[i] = m_b;
                    next.variance[i] = v_b;
                    next.second[i] = m_b * m_b + v_b;
                    unit += 1;
                } else {
                    self.output = [sum, spread];
                }
            }
        }
    }

    /// Mean and variance of the network's output.
    #[must_use]
    pub fn output(&self) -> [f64; 2] {
        self.output
    }

    /// Mean and variance of every hidden unit's sum, layer by layer.
    #[must_use]
    pub fn sums(&self) -> &[[f64; 2]] {
        &self.sums
    }

    /// Derivatives of every hidden unit, layer by layer.
    #[must_use]
    pub fn slopes(&self) -> &[Slopes] {
        &self.slopes
    }

    /// Means of the inputs of a layer, with the constant.
    #[must_use]
    pub fn input_means(&self, layer: usize) -> &[f64] {
        &self.layers[layer].mean
    }

    /// Variances of the inputs of a layer, with the constant's 0.
    #[must_use]
    pub fn input_variances(&self, layer: usize) -> &[f64] {
        &self.layers[layer].variance
    }

    /// Second moments of the inputs of a layer, with the constant's 1.
    #[must_use]
    pub fn input_second_moments(&self, layer: usize) -> &[f64] {
        &self.layers[layer].second
    }
}

/// Σ M x and Σ V x²: features have no variance.
#[inline]
fn first_layer(m: &[f64], v: &[f64], inputs: &Inputs) -> (f64, f64) {
    let (mut sum, mut spread) = (0.0, 0.0);
    for (((m, v), x), s) in m.iter().zip(v).zip(&inputs.mean).zip(&inputs.second) {
        sum += m * x;
        spread += v * s;
    }
    (sum, spread)
}

/// Σ M m_z and Σ (M² v_z + V (m_z² + v_z)), two running sums each.
#[inline]
fn later_layer(m: &[f64], v: &[f64], inputs: &Inputs) -> (f64, f64) {
    const LANES: usize = 4;
    let (mut sum, mut spread) = ([0.0; LANES], [0.0; LANES]);
    let chunks = |values: &'_ [f64]| -> usize { values.len() / LANES * LANES };
    let end = chunks(m);
    for k in (0..end).step_by(LANES) {
        let at = |values: &[f64]| -> [f64; LANES] { std::array::from_fn(|j| values[k + j]) };
        let (m, v, x, w, s) = (at(m), at(v), at(&inputs.mean), at(&inputs.variance), at(&inputs.second));
        for j in 0..LANES {
            sum[j] += m[j] * x[j];
            spread[j] += m[j] * m[j] * w[j] + v[j] * s[j];
        }
    }
    for k in end..m.len() {
        sum[0] += m[k] * inputs.mean[k];
        spread[0] += m[k] * m[k] * inputs.variance[k] + v[k] * inputs.second[k];
    }
    (sum.iter().sum(), spread.iter().sum())
}

/// Mean and variance of max(0, a) for a ~ N(mean, variance), with derivatives.
///
/// With α = mean/σ, p = Φ(α), g = φ(α)/Φ(α): m_b = p(mean + σg), v_b = m_b(mean + σg)(1 − p) + p·variance·(1 − g² − gα).
fn rectify(mean: f64, variance: f64) -> (f64, f64, Slopes) {
    // A weight may be all but certain; a sum of variance 0 is the rectifier itself, and its limit is not differentiable at 0 only.
    let sigma = variance.max(f64::MIN_POSITIVE).sqrt();
    let alpha = mean / sigma;
    let (p, phi) = (cdf(alpha), density(alpha));
    let g = if alpha < DEEP { -alpha - 1.0 / alpha + 2.0 / (alpha * alpha * alpha) } else { phi / p };
    let given_positive = mean + sigma * g;
    let m_b = (p * given_positive).max(0.0);
    let v_b = (m_b * given_positive * (1.0 - p) + p * variance * (1.0 - g * g - g * alpha)).max(0.0);
    let slopes = Slopes {
        mean_by_mean: p,
        mean_by_variance: 0.5 * phi / sigma,
        variance_by_mean: 2.0 * m_b * (1.0 - p),
        variance_by_variance: p - m_b * phi / sigma,
    };
    (m_b, v_b, slopes)
}
