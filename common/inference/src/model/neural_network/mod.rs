//! Bayesian neural networks: ReLU layers with a mean-field Gaussian over all weights (algorithms, sections 2, 5 and 6.1).
//!
//! E_q log p(record | θ) has no closed form. Its gradient is a reparametrised Monte-Carlo mean over S samples, taken record by record before
//! anything is clipped. The samples are of layer outputs, not of weights (`dp_pvi_posterior::network` says why): the first layer
//! is computed once for all of them, and the output's expectation is exact. [`batch`] computes norms and weighted sums of a batch.
//!
//! # Cost
//!
//! A step of the network 105–50–1 with a batch of 200 records of the Adult encoding (draws, norms, clip factors, sum, Adam; no noise; `f64`) takes
//! 0.56 ms at best and 0.63 ms in the median of 500 on one core of a two-core machine with eleven other processes waiting (AMD EPYC, baseline x86-64 code;
//! target 0.6 ms). The gradients alone take 1.1 ms with 10 samples; with a second hidden layer of 50 units 0.68 ms with one and some 15 ms with 10
//! (`cargo bench -p dp-pvi-inference --bench network_step`).

pub mod batch;
mod draws;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod tests;

use dp_pvi_expfam::any::Gaussian;
use dp_pvi_posterior::network::{Forward, Network, Weights, public_normals};
use dp_pvi_posterior::task::NeuralNetworkSpec;

pub use batch::{BatchGradients, Work};
pub use draws::Draws;

use super::Model;
use crate::error::InferenceError;
use crate::point::MeanField;
use crate::records::RecordView;

/// A network of ReLU layers.
#[derive(Debug, Clone, PartialEq)]
pub struct NeuralNetwork {
    spec: NeuralNetworkSpec,
}

impl NeuralNetwork {
    /// From the task's numbers.
    #[must_use]
    pub fn new(spec: NeuralNetworkSpec) -> Self {
        Self { spec }
    }

    /// The shape over parameters of this dimension.
    ///
    /// # Errors
    /// No number of features gives so many.
    pub fn network(&self, dimension: usize) -> Result<Network, InferenceError> {
        self.spec.network_of(dimension).map_err(|_| InferenceError::Job("the number of parameters is not that of the task's network"))
    }

    /// Gradients at a point.
    #[must_use]
    pub fn gradients<'a>(&self, network: &'a Network, point: &MeanField) -> BatchGradients<'a> {
        BatchGradients::new(network, point, self.spec.samples as usize)
    }
}

/// Samples, and number of the public table of draws, behind [`Model::expected_log_likelihood`].
const VALUE_SAMPLES: usize = 100;
const VALUE_SEQUENCE: u64 = 3;

impl Model for NeuralNetwork {
    /// A mean over 100 samples of the hidden layers, the same for every record and call. The weights count as independent: of a full
    /// covariance only the variances are used. NaN where q is not over the weights of this network, or for an unknown target.
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64 {
        let standard = q.standard();
        let Ok(network) = self.network(standard.mean().len()) else { return f64::NAN };
        if !network.output().admits(record.target) {
            return f64::NAN;
        }
        let weights = Weights::new(&network, standard.mean().iter().copied(), standard.variances());
        let (samples, width) = (network.samples(VALUE_SAMPLES), network.draws());
        let draws = public_normals(VALUE_SEQUENCE, samples * width);
        let of = |sample: usize| &draws[sample * width..][..width];
        let mut forward = Forward::default();
        forward.start(&network, 1);
        forward.project(&weights, 0, record.indices, record.values);
        forward.run(&network, &weights, samples, of);
        let (outputs, hidden) = (network.output().len(), network.hidden().sum::<usize>());
        let values = (0..samples).map(|sample| {
            let place = sample * outputs..(sample + 1) * outputs;
            let (mean, variance) = (&forward.mean[place.clone()], &forward.variance[place]);
            network.output().expected_log_density(mean, variance, &of(sample)[hidden..], record.target)
        });
        #[allow(clippy::cast_precision_loss, reason = "a number of samples")]
        let count = samples as f64;
        values.sum::<f64>() / count
    }

    fn network(&self) -> Option<&NeuralNetwork> {
        Some(self)
    }
}
