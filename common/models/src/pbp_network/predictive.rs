//! What a network's posterior says about a new row.

use super::{Activations, Network, Posterior};
use dp_pvi_math::normal::log_density;

/// Predicts from a posterior over networks: y ~ N(m_out, v_out + b/(a − 1)), in the target's public scale.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPredictor<'a> {
    network: &'a Network,
    posterior: &'a Posterior,
    activations: Activations,
}

impl<'a> NetworkPredictor<'a> {
    /// For a posterior of this network.
    #[must_use]
    pub fn new(network: &'a Network, posterior: &'a Posterior) -> Self {
        Self { network, posterior, activations: Activations::new(network) }
    }

    /// Mean and variance of the target of a row, given as pairs (position, value).
    pub fn predict(&mut self, row: impl Iterator<Item = (usize, f64)>) -> (f64, f64) {
        self.activations.set_input(row);
        self.activations.forward(self.network, &self.posterior.mean, &self.posterior.variance);
        let [mean, variance] = self.activations.output();
        (mean, variance + self.posterior.rate / (self.posterior.shape - 1.0))
    }

    /// ln p(target | row, released data).
    pub fn log_density(&mut self, row: impl Iterator<Item = (usize, f64)>, target: f64) -> f64 {
        let (mean, variance) = self.predict(row);
        log_density(target, mean, variance)
    }
}
