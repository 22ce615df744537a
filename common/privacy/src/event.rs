//! What ran, as plain data. The ledger stores events; accountants are pure functions of events, so a better
//! accountant re-reads the same ledger.

use serde::{Deserialize, Serialize};

use crate::adjacency::{Relation, Terms};
use crate::unit::{NoiseMultiplier, SamplingRate};

/// One privacy-relevant computation on a data set (closed, versioned by [`DpEvent::to_bytes`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DpEvent {
    /// A release without protection, ε = ∞.
    NonPrivate,
    /// Continuous Gaussian noise on a sum of clipped terms (simulation only: floating point is not covered).
    Gaussian {
        /// Noise standard deviation over clipping norm.
        noise: NoiseMultiplier,
        /// What is summed.
        terms: Terms,
    },
    /// Discrete Gaussian noise on an integer lattice.
    DiscreteGaussian(DiscreteGaussian),
    /// Every unit tossed its own secret coin; the inner event ran on those who won.
    PoissonSampled {
        /// Probability of each unit.
        rate: SamplingRate,
        /// What ran on the sample.
        event: Box<DpEvent>,
    },
    /// The same event, `count` times in a row, each time with fresh coins and noise.
    Composed {
        /// One step.
        event: Box<DpEvent>,
        /// Number of steps.
        count: u64,
    },
}

/// How terms come onto the lattice (named in the event because the sensitivity differs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatticePath {
    /// Each clipped term is truncated toward zero and its integer norm is checked.
    Term,
    /// Clipped terms are summed in floating point and the sum is rounded once.
    Sum,
}

/// A discrete Gaussian mechanism on the lattice γℤᵈ with γ = 2^`exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DiscreteGaussian {
    /// γ = 2^exponent.
    pub exponent: i32,
    /// Parameter s of the noise in lattice units: mass ∝ exp(−x²/(2s²)).
    pub scale: u64,
    /// Squared L2 bound of one term, in squared lattice units.
    pub bound_squared: u128,
    /// Additional integer sensitivity of the `sum` path (0 for `term`).
    pub excess: u64,
    /// Number of coordinates d.
    pub dimension: u32,
    /// What is summed.
    pub terms: Terms,
    /// How terms come onto the lattice.
    pub path: LatticePath,
}

impl DiscreteGaussian {
    /// L2 sensitivity over noise scale, Δ/s, under `relation`; rounded up.
    #[must_use]
    pub fn sensitivity_ratio(&self, relation: Relation) -> f64 {
        let factor = f64::from(relation.sensitivity_factor(self.terms));
        #[allow(clippy::cast_precision_loss, reason = "rounded up by the last factor")]
        let ratio = (factor * (self.bound_squared as f64).sqrt() + self.excess as f64) / self.scale as f64;
        ratio * (1.0 + 4.0 * f64::EPSILON)
    }
}

/// Bytes that are not an event of a known version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a privacy event that this version knows: upgrade, or restore the file from a copy")]
pub struct UnknownEvent;

/// First byte of the canonical encoding.
const VERSION: u8 = 1;

impl DpEvent {
    /// Canonical bytes: a version byte, then postcard.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        // Writing to a vector cannot fail and every field is serialisable.
        bytes.extend(postcard::to_stdvec(self).expect("events serialise into memory"));
        bytes
    }

    /// Reads canonical bytes.
    ///
    /// # Errors
    /// Unknown version, truncated, or followed by other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, UnknownEvent> {
        let (&version, rest) = bytes.split_first().ok_or(UnknownEvent)?;
        if version != VERSION {
            return Err(UnknownEvent);
        }
        match postcard::take_from_bytes(rest) {
            Ok((event, [])) => Ok(event),
            _ => Err(UnknownEvent),
        }
    }

    /// `count` repetitions; one repetition is the event itself.
    #[must_use]
    pub fn repeated(self, count: u64) -> Self {
        if count == 1 { self } else { Self::Composed { event: Box::new(self), count } }
    }
}
