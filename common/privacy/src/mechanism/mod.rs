//! Mechanisms: clip, sum and noise are one call, and the permit must equal the event that runs, so what is accounted is what
//! is executed.

pub mod batch;
mod block;
pub mod bound;
mod clean;
mod draw;
mod lattice;
mod masked;
pub mod share;
mod sum;
mod sum_mechanism;
mod summation;
mod term;

#[cfg(test)]
mod tests;

pub use batch::{BatchSum, BatchSummation, BatchTerms};
pub use bound::{SumBound, SumCheck};
pub use clean::CleanTerms;
pub use lattice::MAX_UNITS;
pub use masked::Masked;
pub use share::{NoiseShare, ShareSum};
pub use sum::LatticeSum;
pub use sum_mechanism::{Message, SumMechanism};
pub use summation::{Notes, Summation, Summed};
pub use term::Term;

use crate::ledger::Permit;
use crate::noise::NoRandomness;
use crate::panic_redaction::PanicRedacted;
use crate::partial_sums::NoSum;
use crate::records::{NotCopied, Released, Sensitive};
use crate::sampler::SamplerError;
use crate::shards::WrongGrouping;
use crate::stored::Unread;
use dp_pvi_accounting::event::DpEvent;

/// A release that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The permit is for another event: a bug of ours.
    #[error("the permit is for another event than the one that would run; nothing was released: report this as a bug")]
    PermitMismatch,
    /// One epoch, two tables: a bug of ours.
    #[error("the batches of an epoch were drawn over another number of units; nothing was released: report this as a bug")]
    OtherUnits,
    /// Table, event and ledger do not go together: a bug of ours.
    #[error(transparent)]
    Grouping(#[from] WrongGrouping),
    /// No randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The noise sampler left its proven range.
    #[error("the noise left the range that the lattice can hold; nothing was released")]
    Overflow,
    /// The code over records panicked: a bug of ours.
    #[error(transparent)]
    PanicRedacted(#[from] PanicRedacted),
    /// Units that are not in memory could not be read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// Other processes of the site did not give the sum.
    #[error(transparent)]
    NoSum(#[from] NoSum),
    /// A public value could not be copied into the gate: a bug of ours.
    #[error(transparent)]
    NotCopied(#[from] NotCopied),
}

impl From<SamplerError> for ReleaseError {
    fn from(SamplerError: SamplerError) -> Self {
        Self::Overflow
    }
}

/// Releases a value without protection; the permit must be for [`DpEvent::NonPrivate`], which a ledger mints only where the
/// site allows it and which makes every later statement about the data set say ε = ∞.
///
/// # Privacy
/// None.
///
/// # Errors
/// The permit is for another event; the function that should have made the value panicked.
pub fn release_non_private<T>(value: Sensitive<T>, permit: Permit) -> Result<Released<T>, ReleaseError> {
    if *permit.event() != DpEvent::NonPrivate {
        return Err(ReleaseError::PermitMismatch);
    }
    // A refusal tells of a record here; nothing is protected, and the charge says so.
    value.into_value().map(Released).ok_or(ReleaseError::PanicRedacted(PanicRedacted))
}
