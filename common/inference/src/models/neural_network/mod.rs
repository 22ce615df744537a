//! Bayesian neural networks: ReLU layers with a mean-field Gaussian over all weights.
//!
//! E_q log p(record | θ) has no closed form. Its gradient is a reparametrised Monte-Carlo mean over S samples, taken record by record before
//! anything is clipped. The samples are of layer outputs, not of weights (`dp_pvi_models::neural_network` says why): the first layer
//! is computed once for all of them, and the output's expectation is exact. [`batch`] computes norms and weighted sums of a batch.

pub mod batch;
mod draws;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod tests;

use dp_pvi_accounting::ClipNorm;
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::neural_network::{Forward, Network, NeuralNetworkSpec, Weights, public_normals};
use dp_pvi_posterior::task::AdaptiveClipSpec;
use dp_pvi_privacy::mechanism::{BatchSummation, Summed};

pub use batch::{BatchGradients, Work};
pub use draws::Draws;

use crate::capabilities::{BatchedGradients, Model, WithIndicator};
use crate::error::InferenceError;
use crate::mean_field::MeanField;
use crate::models::PrivateHalf;
use dp_pvi_records::{RecordTable, RecordView};

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

impl PrivateHalf for NeuralNetworkSpec {
    fn model(&self) -> Box<dyn Model> {
        Box::new(NeuralNetwork::new(self.clone()))
    }
}

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

    fn batch_gradients(&self) -> Option<&dyn BatchedGradients> {
        Some(self)
    }
}

impl BatchedGradients for NeuralNetwork {
    fn check(&self, dimension: usize) -> Result<(), InferenceError> {
        self.network(dimension).map(|_| ())
    }

    fn sum(
        &self,
        point: &MeanField,
        adaptive: Option<(AdaptiveClipSpec, ClipNorm)>,
        sum: BatchSummation<'_, RecordTable>,
    ) -> Result<Summed, InferenceError> {
        let network = self.network(point.dimension())?;
        let gradients = self.gradients(&network, point);
        Ok(match adaptive {
            Some((spec, clip)) => sum.of(&WithIndicator::new(gradients, spec, clip)),
            None => sum.of(&gradients),
        })
    }
}
