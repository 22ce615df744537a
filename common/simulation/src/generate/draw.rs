//! Seeded draws.

use chacha20::ChaCha20Rng;
use rand::{RngExt as _, SeedableRng};
use rand_distr::weighted::WeightedIndex;
use rand_distr::{Distribution as _, Poisson, StandardNormal};
use sha2::{Digest, Sha256};

/// A stream of draws, keyed by what is generated, seed and purpose.
pub(super) struct Draw(ChaCha20Rng);

impl Draw {
    pub(super) fn new(what: &str, seed: u64, purpose: &str, number: u32) -> Self {
        let mut hash = Sha256::new();
        hash.update(what.as_bytes());
        hash.update(seed.to_le_bytes());
        hash.update(number.to_le_bytes());
        hash.update(purpose.as_bytes());
        Self(ChaCha20Rng::from_seed(hash.finalize().into()))
    }

    /// Uniform on [0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.0.random_bool(probability)
    }

    pub(super) fn normal(&mut self) -> f64 {
        self.0.sample(StandardNormal)
    }

    /// Poisson.
    pub(super) fn count(&mut self, mean: f64) -> u32 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
        let events = Poisson::new(mean).expect("a positive mean").sample(&mut self.0) as u32;
        events
    }

    /// A position with chance proportional to its weight.
    pub(super) fn choice(&mut self, weights: &[f64]) -> usize {
        WeightedIndex::new(weights).expect("positive weights").sample(&mut self.0)
    }
}
