//! What a plan is made of: phases of equal steps.

use serde::{Deserialize, Serialize};

use super::AccountantError;
use crate::event::DpEvent;
use crate::pld::allocation::MOST_BATCHES;
use crate::unit::Delta;

/// What neighbouring data sets differ by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbours {
    /// One unit is present or absent.
    AddRemove,
    /// One unit's contribution is set to zero ("replace special").
    ZeroOut,
    /// One unit is replaced by another.
    ReplaceOne,
}

/// How the units of a step are chosen. There is no default, and a pass over shuffled data is no sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// Every unit takes part.
    None,
    /// Every unit takes part with this probability, independently, in every step.
    Poisson(f64),
    /// A fresh batch of fixed, public size; the number is batch size over data set size (public, too).
    WithoutReplacement(f64),
    /// The data is shuffled and cut into batches; a step is one *pass*, the number is passes. Charged as one unamplified release
    /// for every started pass: no amplification is proved here.
    ShuffledPasses(f64),
    /// A step is a whole *epoch* of this many batches, with one release on each: every unit is in exactly one of them, chosen uniformly and
    /// independently of all others.
    RandomAllocation(u64),
}

/// What one step adds to the sum of clipped terms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// Gaussian noise; standard deviation over the clipping norm, never over a sensitivity.
    Gaussian {
        /// Noise multiplier.
        sigma: f64,
    },
    /// Discrete Gaussian noise of this parameter on the integers, for one integer coordinate.
    DiscreteGaussian {
        /// Parameter s: mass ∝ exp(−x²/(2s²)).
        scale: f64,
        /// Integer shift of one step.
        sensitivity: u64,
    },
    /// Laplace noise; scale over the L1 norm of one term.
    Laplace {
        /// Scale over clipping norm.
        scale: f64,
    },
    /// Anything with ρ zero-concentrated differential privacy under the plan's relation.
    Zcdp {
        /// ρ.
        rho: f64,
    },
    /// Anything with (ε, δ) differential privacy under the plan's relation.
    Approximate {
        /// ε.
        epsilon: f64,
        /// δ.
        delta: f64,
    },
}

/// One kind of step and how often it runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// What is released.
    pub mechanism: Mechanism,
    /// On which units.
    pub sampling: Sampling,
    /// How often.
    pub steps: u64,
}

/// Why shuffled batches have no bound under add-remove.
pub(super) const SHUFFLED: &str = "batches of a shuffled data set under add-remove: a unit more or less moves other units into other batches, so that \
     every batch changes, each by up to twice the clipping norm. State them under replace-one, or under zero-out where a removed unit leaves its place empty";

/// A number that must be in a range.
fn within(ok: bool, what: &'static str) -> Result<(), AccountantError> {
    if ok { Ok(()) } else { Err(AccountantError::Range(what)) }
}

impl Phase {
    /// Gaussian noise of multiplier `sigma`, `steps` times.
    #[must_use]
    pub fn gaussian(sigma: f64, sampling: Sampling, steps: u64) -> Self {
        Self { mechanism: Mechanism::Gaussian { sigma }, sampling, steps }
    }

    /// The phase that an event of the ledger is, under add-remove or replace-one of units.
    ///
    /// # Errors
    /// Events that have no loss distribution here: lattice noise (accounted by this crate), shards, and unprotected releases.
    pub fn of(event: &DpEvent) -> Result<Self, AccountantError> {
        use crate::adjacency::Terms::Units;
        const NONE: AccountantError = AccountantError::Unsupported("a plan of lattice noise, of shards, or without protection");
        let (mechanism, steps) = super::repetitions(event)?;
        let released = |event: &DpEvent| match event {
            DpEvent::Gaussian { noise, terms: Units } => Ok(Mechanism::Gaussian { sigma: noise.get() }),
            DpEvent::Laplace { scale, terms: Units } => Ok(Mechanism::Laplace { scale: scale.get() }),
            DpEvent::Zcdp { rho } => Ok(Mechanism::Zcdp { rho: rho.get() }),
            DpEvent::Approximate { epsilon, delta } => {
                Ok(Mechanism::Approximate { epsilon: epsilon.get(), delta: delta.map_or(0.0, Delta::get) })
            }
            _ => Err(NONE),
        };
        let (mechanism, sampling) = match mechanism {
            DpEvent::PoissonSampled { rate, event } => (released(event)?, Sampling::Poisson(rate.get())),
            #[allow(clippy::cast_precision_loss, reason = "a rate")]
            DpEvent::FixedBatch { batch, units, event } => (released(event)?, Sampling::WithoutReplacement(*batch as f64 / *units as f64)),
            DpEvent::ShuffledPass { event } => (released(event)?, Sampling::ShuffledPasses(1.0)),
            DpEvent::RandomAllocation { batches, event } => (released(event)?, Sampling::RandomAllocation(*batches)),
            other => (released(other)?, Sampling::None),
        };
        Ok(Self { mechanism, sampling, steps })
    }

    pub(crate) fn check(&self, relation: Neighbours) -> Result<(), AccountantError> {
        match self.mechanism {
            Mechanism::Gaussian { sigma } => {
                within(
                    sigma.is_finite() && (1e-3..=1e9).contains(&sigma),
                    "sigma, noise over clipping norm, must lie between 1e-3 and 1e9: with less noise nothing is protected",
                )?;
            }
            Mechanism::DiscreteGaussian { scale, sensitivity } => {
                within(
                    scale.is_finite() && (1e-2..=1e4).contains(&scale),
                    "the parameter of a discrete Gaussian must lie between 0.01 and 1e4 in a plan",
                )?;
                within((1..=1_000_000).contains(&sensitivity), "the integer sensitivity must lie between 1 and 1e6")?;
            }
            Mechanism::Laplace { scale } => {
                within(scale.is_finite() && (1e-2..=1e9).contains(&scale), "the scale of Laplace noise must lie between 1e-2 and 1e9")?
            }
            Mechanism::Zcdp { rho } => within(rho.is_finite() && rho >= 0.0, "rho must be a finite number that is at least 0")?,
            Mechanism::Approximate { epsilon, delta } => {
                within(
                    epsilon.is_finite() && (0.0..=600.0).contains(&epsilon),
                    "the epsilon of a step must lie between 0 and 600 in a plan",
                )?;
                within((0.0..1.0).contains(&delta), "the delta of a step must be at least 0 and below 1")?;
            }
        }
        match (self.sampling, self.mechanism, relation) {
            (Sampling::None, ..) => Ok(()),
            (Sampling::Poisson(q), Mechanism::Gaussian { .. }, _) => {
                within(q > 0.0 && q <= 1.0, "the sampling rate q must be above 0 and at most 1")
            }
            (Sampling::WithoutReplacement(q), Mechanism::Gaussian { .. }, Neighbours::AddRemove | Neighbours::ReplaceOne) => {
                within(q > 0.0 && q <= 1.0, "the sampling rate q must be above 0 and at most 1")
            }
            (Sampling::ShuffledPasses(_), _, Neighbours::AddRemove) => Err(AccountantError::Unsupported(SHUFFLED)),
            (Sampling::ShuffledPasses(passes), _, Neighbours::ZeroOut | Neighbours::ReplaceOne) => {
                within(passes > 0.0 && passes < 9e15, "the number of passes must be above 0")
            }
            (Sampling::WithoutReplacement(_), _, Neighbours::ZeroOut) => {
                Err(AccountantError::Unsupported("batches of fixed size under zero-out"))
            }
            (Sampling::RandomAllocation(batches), Mechanism::Gaussian { .. }, _) => {
                within((1..=MOST_BATCHES).contains(&batches), "the batches of a random allocation must be at least 1 and at most 2^20")
            }
            (Sampling::Poisson(_) | Sampling::WithoutReplacement(_) | Sampling::RandomAllocation(_), ..) => {
                Err(AccountantError::Unsupported("sampling around anything but Gaussian noise"))
            }
        }
    }

    /// Releases in all; `None` for more than can be counted.
    pub(crate) fn passes(&self) -> Option<u64> {
        match self.sampling {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked range")]
            Sampling::ShuffledPasses(passes) => self.steps.checked_mul(passes.ceil() as u64),
            _ => Some(self.steps),
        }
    }

    /// Shuffled passes become unamplified releases; a rate of 1 is no sampling.
    pub(crate) fn canonical(self, relation: Neighbours) -> Self {
        match self.sampling {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked range")]
            Sampling::ShuffledPasses(passes) => {
                Self { sampling: Sampling::None, steps: self.steps.saturating_mul(passes.ceil() as u64), ..self }
            }
            Sampling::Poisson(q) if q >= 1.0 => Self { sampling: Sampling::None, ..self },
            Sampling::RandomAllocation(1) => Self { sampling: Sampling::None, ..self },
            // A batch of everything; under add-remove the size of the data set would have to be distinguished.
            Sampling::WithoutReplacement(q) if q >= 1.0 && relation == Neighbours::ReplaceOne => Self { sampling: Sampling::None, ..self },
            _ => self,
        }
    }

    /// Order of phases that does not depend on the order of insertion.
    pub(crate) fn key(&self) -> (u8, u64, u64, u8, u64) {
        let (kind, a, b) = match self.mechanism {
            Mechanism::Gaussian { sigma } => (0, sigma.to_bits(), 0),
            Mechanism::DiscreteGaussian { scale, sensitivity } => (1, scale.to_bits(), sensitivity),
            Mechanism::Laplace { scale } => (2, scale.to_bits(), 0),
            Mechanism::Zcdp { rho } => (3, rho.to_bits(), 0),
            Mechanism::Approximate { epsilon, delta } => (4, epsilon.to_bits(), delta.to_bits()),
        };
        let (how, rate) = match self.sampling {
            Sampling::None => (0, 0),
            Sampling::Poisson(q) => (1, q.to_bits()),
            Sampling::WithoutReplacement(q) => (2, q.to_bits()),
            Sampling::ShuffledPasses(p) => (3, p.to_bits()),
            Sampling::RandomAllocation(batches) => (4, batches),
        };
        (kind, a, b, how, rate)
    }
}
