//! A sum under local or aggregated trust, for updates that need not know which.

use serde::de::DeserializeOwned;

use crate::ledger::StepPermit;
use crate::mechanism::{CleanTerms, LatticeSum, NoiseShare, ReleaseError, ShareSum, Summation, Summed};
use crate::noise::NoiseSource;
use crate::records::{Argument, Released, Sensitive, UnitTable, Units};
use dp_pvi_accounting::event::DpEvent;
use dp_pvi_names::LatticeOverflow;
use dp_pvi_names::{LatticeVector, Payload};

/// A sum of clipped terms: with its whole noise, or with this site's share of it.
///
/// # Privacy
/// Proof: [`crate::proofs::shares`].
///
/// That of [`LatticeSum`] or of [`ShareSum`].
#[derive(Debug, Clone, PartialEq)]
pub enum SumMechanism {
    /// The site adds all the noise: what comes out is released.
    Local(LatticeSum),
    /// The site adds its share: what comes out can be masked and nothing else.
    Shared(ShareSum),
}

/// What an update has to say to the server.
pub enum Message {
    /// Released: may be sent as it is.
    Released(Released<Payload>),
    /// With a share of the noise only: goes under a mask.
    Share(NoiseShare<LatticeVector>),
}

impl Message {
    /// Numbers that were computed from released values only.
    #[must_use]
    pub fn values(values: Released<Vec<f64>>) -> Self {
        Self::Released(Released(Payload::Values(values.0)))
    }

    /// A noised sum.
    #[must_use]
    pub fn lattice(sum: Released<LatticeVector>) -> Self {
        Self::Released(Released(Payload::Lattice(sum.0)))
    }

    /// The released payload, if it is one.
    #[must_use]
    pub fn released(&self) -> Option<&Released<Payload>> {
        match self {
            Self::Released(payload) => Some(payload),
            Self::Share(_) => None,
        }
    }
}

/// Says the kind; a share shows no number.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Released(payload) => f.debug_tuple("Released").field(payload).finish(),
            Self::Share(_) => f.write_str("Share(..)"),
        }
    }
}

impl SumMechanism {
    /// What the release is to an accountant: under aggregation, what the *sum* of all sites is.
    #[must_use]
    pub fn event(&self) -> DpEvent {
        match self {
            Self::Local(sum) => sum.event(),
            Self::Shared(sum) => sum.event(),
        }
    }

    /// What this site's own part is, if everything else is known; only under aggregation.
    #[must_use]
    pub fn fallback_event(&self) -> Option<DpEvent> {
        match self {
            Self::Local(_) => None,
            Self::Shared(sum) => Some(sum.fallback_event()),
        }
    }

    /// d.
    #[must_use]
    pub fn dimension(&self) -> u32 {
        match self {
            Self::Local(sum) => sum.dimension(),
            Self::Shared(sum) => sum.dimension(),
        }
    }

    /// The lattice constant is 2^this.
    #[must_use]
    pub fn exponent(&self) -> i32 {
        match self {
            Self::Local(sum) => sum.exponent(),
            Self::Shared(sum) => sum.exponent(),
        }
    }

    /// As [`LatticeSum::on`]. Under aggregation all coordinates are in the sum, and stay.
    ///
    /// # Errors
    /// As there.
    pub fn on(self, places: Vec<u32>) -> Result<Self, LatticeOverflow> {
        match self {
            Self::Local(sum) => sum.on(places).map(Self::Local),
            shared @ Self::Shared(_) => Ok(shared),
        }
    }

    /// As [`LatticeSum::of_long_terms`].
    #[must_use]
    pub fn of_long_terms(self) -> Self {
        match self {
            Self::Local(sum) => Self::Local(sum.of_long_terms()),
            Self::Shared(sum) => Self::Shared(sum.of_long_terms()),
        }
    }

    /// The sum of terms in it, without noise of any kind.
    pub(crate) fn terms(&self) -> &LatticeSum {
        match self {
            Self::Local(sum) => sum,
            Self::Shared(sum) => sum.terms(),
        }
    }

    /// As `LatticeSum::release_sum_with`.
    ///
    /// # Errors
    /// As there.
    pub fn release<T: UnitTable, S: Sync, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T, S>) -> Result<Summed, E>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<Message, E> {
        match self {
            Self::Local(sum) => sum.release_sum_with(units, state, argument, f, permit, noise).map(Message::lattice),
            Self::Shared(sum) => sum.share_sum_with(units, state, argument, f, permit, noise).map(Message::Share),
        }
    }

    /// As `LatticeSum::release_sum_keeping`.
    ///
    /// # Errors
    /// As there.
    pub fn release_keeping<T: UnitTable, S: Sync, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T, S>) -> Result<Summed, E>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<(Message, Sensitive<CleanTerms>), E> {
        match self {
            Self::Local(sum) => {
                let (sum, kept) = sum.release_sum_keeping(units, state, argument, f, permit, noise)?;
                Ok((Message::lattice(sum), kept))
            }
            Self::Shared(sum) => {
                let (share, kept) = sum.share_sum_keeping(units, state, argument, f, permit, noise)?;
                Ok((Message::Share(share), kept))
            }
        }
    }
}
