//! Which units take part in one release of a sum.

use crate::ledger::{NoBatch, StepPermit};
use crate::mechanism::ReleaseError;
use crate::noise::{NoiseSource, Purpose};
use crate::sampler::Coins;
use dp_pvi_accounting::MOST_BATCHES;
use dp_pvi_accounting::adjacency::Terms;
use dp_pvi_accounting::event::DpEvent;
use dp_pvi_accounting::unit::SamplingRate;
use dp_pvi_names::LatticeOverflow;

/// Who takes part.
///
/// # Privacy
/// * *Poisson*: every unit tosses its own coin in every release ([`Coins`]).
/// * *Batch*: a release is one batch of an epoch, in which every unit is in exactly one of T batches by a draw of its own
///   ([`Allocation`](crate::sampler::Allocation)); the event is the whole epoch, and the permit of a step is one of its batches, with the epoch's one draw
///   ([`dp_pvi_accounting::proofs::random_allocation`], "An epoch never spans two messages").
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Draw {
    /// Every unit.
    All,
    /// Each with this probability.
    Poisson(SamplingRate),
    /// One of so many batches.
    Batch(u32),
}

impl Draw {
    pub(super) fn of(sampling: Option<SamplingRate>) -> Self {
        sampling.map_or(Self::All, Self::Poisson)
    }

    /// In the place of this: one batch a release, of epochs of so many.
    pub(super) fn in_batches(self, batches: u32, terms: Terms) -> Result<Self, LatticeOverflow> {
        if self != Self::All {
            return Err(LatticeOverflow("a sum over batches of an epoch draws no other sample"));
        }
        if terms != Terms::Units {
            return Err(LatticeOverflow("units are allocated to batches; results of shards are not"));
        }
        if batches < 2 || u64::from(batches) > MOST_BATCHES {
            return Err(LatticeOverflow("an epoch has at least 2 batches and at most 2^20"));
        }
        Ok(Self::Batch(batches))
    }

    /// What is charged for a release, or for the epoch that it is a batch of, given what one release on all units is.
    pub(super) fn event(self, event: DpEvent) -> DpEvent {
        match self {
            Self::All => event,
            Self::Poisson(rate) => DpEvent::PoissonSampled { rate, event: Box::new(event) },
            Self::Batch(batches) => DpEvent::RandomAllocation { batches: batches.into(), event: Box::new(event) },
        }
    }

    /// Positions of those who take part, ascending; nothing where that is everyone.
    pub(super) fn sample<N: NoiseSource>(self, units: usize, permit: &StepPermit, noise: &N) -> Result<Option<Vec<usize>>, ReleaseError> {
        match self {
            Self::All => Ok(None),
            Self::Poisson(rate) => {
                let coins = Coins::new(rate);
                #[cfg(feature = "fault-injection")]
                let coins = crate::injected::Faulty::new(coins, rate, permit);
                Ok(Some(coins.sample(&mut noise.stream(permit.release(), permit.step(), Purpose::Coins)?, units)))
            }
            #[cfg(feature = "fault-injection")]
            Self::Batch(batches) if crate::injected::is(crate::injected::Bug::RedrawnBatches) => {
                let drawn =
                    crate::sampler::Allocation::draw(&mut noise.stream(permit.release(), permit.step(), Purpose::Coins)?, batches, units);
                Ok(Some(drawn.batch(0).to_vec()))
            }
            Self::Batch(_) => permit.batch(units, noise).map(Some).map_err(|why| match why {
                NoBatch::NotOne => ReleaseError::PermitMismatch,
                NoBatch::OtherUnits => ReleaseError::OtherUnits,
                NoBatch::NoRandomness(error) => error.into(),
            }),
        }
    }

    /// Expected number of those who take part, rounded down.
    pub(super) fn expected(self, units: u64) -> u128 {
        match self {
            Self::All => units.into(),
            Self::Poisson(rate) => u128::from(units) * u128::from(rate.numerator()) / u128::from(SamplingRate::DENOMINATOR),
            Self::Batch(batches) => u128::from(units) / u128::from(batches),
        }
    }
}
