//! Probabilistic back-propagation for regression networks: the half that touches records.
//!
//! A record's site is one forward pass of moments, one backward pass of ∂ ln Z/∂(mean, variance), and moment matching of every weight and
//! of the noise precision γ. With g = ∂ ln Z/∂m and B = g² − 2 ∂ ln Z/∂v the weight becomes m′ = m + vg, v′ = v(1 − vB), and its site is
//!
//! Λ = B/(1 − vB),  h = (g + mB)/(1 − vB),
//!
//! without a difference of nearly equal numbers. B may be negative (the model is not log-concave). A weight whose v′ would not be
//! positive keeps its old factor.

pub mod baseline;

use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::special::digamma;
use dp_pvi_models::pbp_network as public;
use dp_pvi_models::pbp_network::noise::{log_normalisers, matched_gamma, slopes};
use dp_pvi_models::pbp_network::{Activations, Network, Posterior, network_posterior};

use crate::capabilities::Model;
use crate::capabilities::tilted::{MomentMatching, Scratch, Sites};
use crate::models::PrivateHalf;
use dp_pvi_records::RecordView;

/// A weight whose variance would fall to this keeps its factor.
const NARROWEST: f64 = 1e-100;

/// A regression network with unknown noise.
#[derive(Debug, Clone, PartialEq)]
pub struct PbpNetwork {
    /// Its shape.
    pub network: Network,
}

impl MomentMatching for PbpNetwork {
    fn len(&self) -> usize {
        self.network.len()
    }

    fn sites(&self) -> Box<dyn Sites> {
        Box::new(NetworkSites::new(self.network.clone()))
    }
}

/// The likelihood with its numbers, before its columns are known.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkModel {
    /// Units of every hidden layer.
    pub hidden: Vec<u32>,
}

impl NetworkModel {
    /// The family's last coordinate is the noise precision.
    fn network(&self, family: Family) -> Option<Network> {
        Network::of_weights(family.dimension().checked_sub(1)?, &self.hidden).ok()
    }
}

impl PrivateHalf for public::PbpNetwork {
    fn model(&self) -> Box<dyn Model> {
        Box::new(NetworkModel { hidden: self.hidden.clone() })
    }
}

impl Model for NetworkModel {
    /// E ln N(y; f(x), 1/γ) with the moments of f that propagation gives; NaN for a q that is not of this network.
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64 {
        let Some(network) = self.network(*q.family()) else { return f64::NAN };
        let posterior = network_posterior(&network, q.standard());
        let mut memory = None;
        let [mean, variance] = forward(&network, &posterior, record, &mut memory).output();
        let precision = posterior.shape / posterior.rate;
        let log_precision = digamma(posterior.shape) - posterior.rate.ln();
        0.5 * (log_precision - std::f64::consts::TAU.ln() - precision * ((record.target - mean).powi(2) + variance))
    }

    fn moment_matching(&self, family: Family) -> Option<Box<dyn MomentMatching>> {
        let network = matches!(family, Family::DiagonalGaussian { .. }).then(|| self.network(family))??;
        Some(Box::new(PbpNetwork { network }))
    }
}

/// Sites of records at one cavity.
#[derive(Debug, Clone)]
pub struct NetworkSites {
    network: Network,
    cavity: Posterior,
}

impl NetworkSites {
    /// Without a cavity.
    #[must_use]
    pub fn new(network: Network) -> Self {
        Self { network, cavity: Posterior { mean: Vec::new(), variance: Vec::new(), shape: 0.0, rate: 0.0 } }
    }

    /// At a cavity; `None` if it is not a distribution.
    #[must_use]
    pub fn at(network: Network, cavity: &[f64]) -> Option<Self> {
        let mut sites = Self::new(network);
        sites.move_to(cavity).then_some(sites)
    }

    /// ∂ ln Z/∂m and ∂ ln Z/∂v of every weight for one record, in the order of [`Network`].
    #[must_use]
    pub fn gradients(&self, record: RecordView<'_>) -> (Vec<f64>, Vec<f64>) {
        let weights = self.network.weights();
        let (mut by_mean, mut by_variance) = (vec![0.0; weights], vec![0.0; weights]);
        let mut scratch = Scratch::default();
        let activations = forward(&self.network, &self.cavity, record, &mut scratch.activations);
        let top = slopes(record.target, activations.output(), self.cavity.shape, self.cavity.rate);
        backward(&self.network, &self.cavity, activations, top, &mut scratch.values, |position, g, gv| {
            by_mean[position] = g;
            by_variance[position] = gv;
        });
        (by_mean, by_variance)
    }
}

impl Sites for NetworkSites {
    fn move_to(&mut self, cavity: &[f64]) -> bool {
        self.cavity.set(&self.network, cavity).is_ok()
    }

    fn site(&self, record: RecordView<'_>, scratch: &mut Scratch, site: &mut [f64]) -> bool {
        let Self { network, cavity } = self;
        let activations = forward(network, cavity, record, &mut scratch.activations);
        let output = activations.output();
        let top = slopes(record.target, output, cavity.shape, cavity.rate);
        if !(top[0].is_finite() && top[1].is_finite()) {
            return false;
        }
        let (h, rest) = site.split_at_mut(network.weights());
        let (precision, noise) = rest.split_at_mut(network.weights());
        let (means, variances) = (&cavity.mean[..h.len()], &cavity.variance[..h.len()]);
        let precision = &mut precision[..h.len()];
        backward(network, cavity, activations, top, &mut scratch.values, |position, g, gv| {
            let (m, v) = (means[position], variances[position]);
            let b = g * g - 2.0 * gv;
            let left = 1.0 - v * b;
            let inverse = 1.0 / left;
            // Comparisons with NaN are false: a weight that is not finite keeps its factor.
            if v * left > NARROWEST && inverse.is_finite() {
                h[position] = (g + m * b) * inverse;
                precision[position] = b * inverse;
            }
        });
        let log_z = log_normalisers(record.target, output, cavity.shape, cavity.rate);
        if let Some((shape, rate)) = matched_gamma(log_z, cavity.shape, cavity.rate) {
            noise[0] = shape - cavity.shape;
            noise[1] = cavity.rate - rate;
        }
        true
    }
}

/// Moments of all layers at a record; the memory is made at the first use.
fn forward<'a>(network: &Network, cavity: &Posterior, record: RecordView<'_>, memory: &'a mut Option<Activations>) -> &'a Activations {
    let activations = memory.get_or_insert_with(|| Activations::new(network));
    activations.set_input(record.entries());
    activations.forward(network, &cavity.mean, &cavity.variance);
    activations
}

/// Reverse mode through all layers: calls `weight(position, ∂ ln Z/∂m, ∂ ln Z/∂v)` for every weight, last layer first.
///
/// A sum has mean √s Σ M m_z and variance s Σ (M² v_z + V (m_z² + v_z)); g, w are the derivatives by them. Then
/// ∂/∂M = √s g m_z + 2s w M v_z, ∂/∂V = s w (m_z² + v_z), and for the inputs
/// ∂/∂m_z = √s Σ g M + 2s m_z Σ w V, ∂/∂v_z = s Σ w (M² + V).
fn backward(
    network: &Network,
    cavity: &Posterior,
    activations: &Activations,
    top: [f64; 2],
    memory: &mut Vec<f64>,
    mut weight: impl FnMut(usize, f64, f64),
) {
    let widest = network.layers().iter().map(|layer| layer.width()).max().unwrap_or(0);
    memory.clear();
    memory.resize(5 * widest, 0.0);
    let (deltas, sums) = memory.split_at_mut(2 * widest);
    // Derivatives by mean and variance of the sums of the current layer.
    let (by_mean, by_variance) = deltas.split_at_mut(widest);
    let (gm, rest) = sums.split_at_mut(widest);
    let (wv, wm) = rest.split_at_mut(widest);
    (by_mean[0], by_variance[0]) = (top[0], top[1]);
    let mut unit = activations.slopes().len();
    for (l, layer) in network.layers().iter().enumerate().rev() {
        let (scale, width) = (layer.scale(), layer.width());
        let root = scale.sqrt();
        let (x, spread, second) =
            (&activations.input_means(l)[..width], &activations.input_variances(l)[..width], &activations.input_second_moments(l)[..width]);
        let rows = cavity.mean[layer.weights()].chunks_exact(width).zip(cavity.variance[layer.weights()].chunks_exact(width));
        let (gm, wv, wm) = (&mut gm[..width], &mut wv[..width], &mut wm[..width]);
        gm.fill(0.0);
        wv.fill(0.0);
        wm.fill(0.0);
        for (i, (m, v)) in rows.enumerate() {
            let (g, w) = (root * by_mean[i], scale * by_variance[i]);
            let start = layer.start + i * width;
            for j in 0..width {
                weight(start + j, g * x[j] + 2.0 * w * m[j] * spread[j], w * second[j]);
            }
            if l > 0 {
                for j in 0..width {
                    gm[j] += g * m[j];
                    wv[j] += w * v[j];
                    wm[j] += w * m[j] * m[j];
                }
            }
        }
        if l > 0 {
            // The units below, without the constant.
            let units = layer.inputs;
            unit -= units;
            for (j, slopes) in activations.slopes()[unit..unit + units].iter().enumerate() {
                let g = gm[j] + 2.0 * x[j] * wv[j];
                let w = wm[j] + wv[j];
                by_mean[j] = g * slopes.mean_by_mean + w * slopes.variance_by_mean;
                by_variance[j] = g * slopes.mean_by_variance + w * slopes.variance_by_variance;
            }
        }
    }
}

#[cfg(test)]
mod tests;
