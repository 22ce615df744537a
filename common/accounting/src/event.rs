//! What ran, as plain data. The ledger stores events; accountants are pure functions of events, so a better
//! accountant re-reads the same ledger.

use serde::{Deserialize, Serialize};

use crate::adjacency::{Relation, Terms};
use crate::unit::{Delta, Epsilon, InvalidUnit, NoiseMultiplier, SamplingRate};

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
    // New kinds are at the end: a ledger's bytes name a kind by its position.
    /// Continuous Laplace noise on a sum of terms that are clipped in L1 norm (simulation only: floating point is not covered).
    Laplace {
        /// Scale of the noise over the clipping norm.
        scale: NoiseMultiplier,
        /// What is summed.
        terms: Terms,
    },
    /// Anything that is ρ-zero-concentrated differentially private under the ledger's relation.
    Zcdp {
        /// ρ.
        rho: Rho,
    },
    /// Anything that is (ε, δ)-differentially private under the ledger's relation.
    Approximate {
        /// ε; infinite is no protection.
        epsilon: Epsilon,
        /// δ; none is 0.
        delta: Option<Delta>,
    },
    /// The sum of several sites' independent shares of discrete Gaussian noise, on one lattice.
    NoiseShares {
        /// One share: its noise, and the sensitivity of the sum.
        share: DiscreteGaussian,
        /// Shares that are counted (honest, and not dropped out).
        count: u32,
    },
    /// A fresh batch of fixed, public size, drawn without replacement; the inner event ran on it.
    FixedBatch {
        /// Units in the batch.
        batch: u64,
        /// Units of the data set.
        units: u64,
        /// What ran on the batch.
        event: Box<DpEvent>,
    },
    /// One pass over shuffled data that is cut into batches of fixed size; the inner event ran once on each batch. It is no sample:
    /// no amplification is claimed.
    ShuffledPass {
        /// What ran on each batch.
        event: Box<DpEvent>,
    },
    /// A whole epoch of batches: every unit was in exactly one of them, chosen uniformly and independently of all others by a secret coin of its own; the
    /// inner event ran once on each batch. It is charged whole, before its first batch.
    RandomAllocation {
        /// Batches of the epoch.
        batches: u64,
        /// What ran on each batch.
        event: Box<DpEvent>,
    },
}

/// ρ of zero-concentrated differential privacy: a finite number that is at least 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rho(f64);

impl Rho {
    /// Checks the value.
    ///
    /// # Errors
    /// Not a finite number at least 0.
    pub fn new(value: f64) -> Result<Self, InvalidUnit> {
        if value >= 0.0 && value.is_finite() {
            Ok(Self(value))
        } else {
            Err(InvalidUnit { name: "rho", expected: "a finite number that is at least 0" })
        }
    }

    /// The plain number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Rho {
    type Error = InvalidUnit;
    fn try_from(value: f64) -> Result<Self, InvalidUnit> {
        Self::new(value)
    }
}

impl From<Rho> for f64 {
    fn from(value: Rho) -> f64 {
        value.0
    }
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
        let factor = relation.sensitivity_factor(self.terms);
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
            // One form only: a number can be written in more bytes than it needs.
            Ok((event, [])) if Self::to_bytes(&event) == bytes => Ok(event),
            _ => Err(UnknownEvent),
        }
    }

    /// Whether the terms of a sum in it are results of several units.
    #[must_use]
    pub(crate) fn sums_shards(&self) -> bool {
        self.terms() == Some(Terms::ShardResults)
    }

    /// Whether it is a sum of terms of [`Terms::Cells`], or has one in it.
    #[must_use]
    pub(crate) fn sums_cells(&self) -> bool {
        self.terms().is_some_and(|terms| matches!(terms, Terms::Cells { .. }))
    }

    /// What the sum in it is of; none where it has no sum.
    fn terms(&self) -> Option<Terms> {
        match self {
            Self::NonPrivate | Self::Zcdp { .. } | Self::Approximate { .. } => None,
            Self::Gaussian { terms, .. } | Self::Laplace { terms, .. } => Some(*terms),
            Self::DiscreteGaussian(noise) | Self::NoiseShares { share: noise, .. } => Some(noise.terms),
            Self::PoissonSampled { event, .. }
            | Self::Composed { event, .. }
            | Self::FixedBatch { event, .. }
            | Self::ShuffledPass { event }
            | Self::RandomAllocation { event, .. } => event.terms(),
        }
    }

    /// Coordinates with discrete noise that one repetition releases.
    #[must_use]
    pub(crate) fn discrete_coordinates(&self) -> u64 {
        match self {
            Self::NonPrivate | Self::Gaussian { .. } | Self::Laplace { .. } | Self::Zcdp { .. } | Self::Approximate { .. } => 0,
            Self::DiscreteGaussian(noise) | Self::NoiseShares { share: noise, .. } => noise.dimension.into(),
            Self::PoissonSampled { event, .. }
            | Self::Composed { event, .. }
            | Self::FixedBatch { event, .. }
            | Self::ShuffledPass { event } => event.discrete_coordinates(),
            Self::RandomAllocation { batches, event } => event.discrete_coordinates().saturating_mul(*batches),
        }
    }

    /// `count` repetitions; one repetition is the event itself.
    #[must_use]
    pub fn repeated(self, count: u64) -> Self {
        if count == 1 { self } else { Self::Composed { event: Box::new(self), count } }
    }
}

impl Relation {
    /// [`Relation::may_book`] for one event of the task. Sums over shards need the very relation of the task: how units come into shards follows from
    /// the relation, and shards that are right for one are wrong for the other (the `shards` of `dp-pvi-privacy`).
    #[must_use]
    pub fn may_book_event(self, task: Self, event: &DpEvent) -> bool {
        self == task || (self.may_book(task) && !event.sums_shards())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled() -> DpEvent {
        let noise = DiscreteGaussian {
            exponent: -20,
            scale: 1 << 20,
            bound_squared: 1 << 70,
            excess: 3,
            dimension: 210,
            terms: Terms::Units,
            path: LatticePath::Term,
        };
        let rate = SamplingRate::from_numerator(77).unwrap();
        DpEvent::PoissonSampled { rate, event: Box::new(DpEvent::DiscreteGaussian(noise)) }.repeated(200)
    }

    /// A ledger is read for years: these bytes must never change their meaning.
    #[test]
    fn a_sum_over_shards_is_booked_under_its_own_relation_only() {
        let event = |terms| DpEvent::Gaussian { noise: crate::unit::NoiseMultiplier::new(1.0).unwrap(), terms }.repeated(3);
        for relation in [Relation::AddRemove, Relation::ReplaceOne] {
            assert!(relation.may_book_event(relation, &event(Terms::ShardResults)));
        }
        assert!(Relation::ReplaceOne.may_book_event(Relation::AddRemove, &event(Terms::Units)));
        assert!(Relation::ReplaceOne.may_book_event(Relation::AddRemove, &event(Terms::Cells { cells: 3 })));
        assert!(!Relation::ReplaceOne.may_book_event(Relation::AddRemove, &event(Terms::ShardResults)));
        assert!(!Relation::AddRemove.may_book_event(Relation::ReplaceOne, &event(Terms::Units)));
        assert!(!Relation::AddRemove.may_book_event(Relation::ReplaceOne, &event(Terms::Cells { cells: 3 })));
        assert!(Relation::ReplaceOne.may_book_event(Relation::AddRemove, &DpEvent::NonPrivate));
    }

    #[test]
    fn canonical_bytes_are_fixed() {
        let hex = |event: DpEvent| event.to_bytes().iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(DpEvent::NonPrivate), "0100");
        assert_eq!(
            hex(DpEvent::Gaussian { noise: NoiseMultiplier::new(1.5).unwrap(), terms: Terms::ShardResults }),
            "0101000000000000f83f01"
        );
        // The rule is in the bytes, with the number of cells: a ledger that does not know it refuses them.
        let cells = DpEvent::Gaussian { noise: NoiseMultiplier::new(1.5).unwrap(), terms: Terms::Cells { cells: 300 } };
        assert_eq!(hex(cells), "0101000000000000f83f02ac02");
        assert_eq!(hex(sampled()), "0104034d022780804080808080808080808080 0103d2010000c801".replace(' ', ""));
        let scale = NoiseMultiplier::new(1.5).unwrap();
        let laplace = DpEvent::Laplace { scale, terms: Terms::Units };
        assert_eq!(hex(laplace.clone()), "0105000000000000f83f00");
        assert_eq!(hex(DpEvent::Zcdp { rho: Rho::new(0.5).unwrap() }), "0106000000000000e03f");
        let (epsilon, delta) = (Epsilon::new(1.0).unwrap(), Delta::new(0.25).unwrap());
        assert_eq!(hex(DpEvent::Approximate { epsilon, delta: None }), "0107000000000000f03f00");
        assert_eq!(hex(DpEvent::Approximate { epsilon, delta: Some(delta) }), "0107000000000000f03f01000000000000d03f");
        let share = DiscreteGaussian {
            exponent: -1,
            scale: 1 << 20,
            bound_squared: 9,
            excess: 0,
            dimension: 2,
            terms: Terms::Units,
            path: LatticePath::Term,
        };
        assert_eq!(hex(DpEvent::NoiseShares { share, count: 3 }), "010801808040090002000003");
        assert_eq!(hex(DpEvent::FixedBatch { batch: 10, units: 1000, event: Box::new(laplace.clone()) }), "01090ae80705000000000000f83f00");
        assert_eq!(hex(DpEvent::ShuffledPass { event: Box::new(laplace.clone()) }), "010a05000000000000f83f00");
        assert_eq!(hex(DpEvent::RandomAllocation { batches: 200, event: Box::new(laplace) }), "010bc80105000000000000f83f00");
    }

    /// Bytes with a number out of range are no event.
    #[test]
    fn numbers_are_checked_when_bytes_are_read() {
        let negative = [&[1, 6][..], &(-0.5f64).to_le_bytes()].concat();
        let endless = [&[1, 6][..], &f64::INFINITY.to_le_bytes()].concat();
        let certain = [&[1, 7][..], &1.0f64.to_le_bytes(), &[1], &1.0f64.to_le_bytes()].concat();
        for bytes in [negative, endless, certain] {
            assert_eq!(DpEvent::from_bytes(&bytes), Err(UnknownEvent));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let bytes = sampled().to_bytes();
        assert_eq!(DpEvent::from_bytes(&bytes), Ok(sampled()));
        for cut in 0..bytes.len() {
            assert_eq!(DpEvent::from_bytes(&bytes[..cut]), Err(UnknownEvent));
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        let other_version = [&[2], &bytes[1..]].concat();
        let unchecked_rate = DpEvent::from_bytes(&[1, 3, 0, 0]);
        assert_eq!(
            (DpEvent::from_bytes(&longer), DpEvent::from_bytes(&other_version), unchecked_rate),
            (Err(UnknownEvent), Err(UnknownEvent), Err(UnknownEvent))
        );
    }

    #[test]
    fn one_repetition_is_the_event_itself() {
        assert_eq!(DpEvent::NonPrivate.repeated(1), DpEvent::NonPrivate);
    }
}
