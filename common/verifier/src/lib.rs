//! Checks certificates: that the composition of stated events is (ε, δ)-differentially private.
//!
//! Nothing here is shared with the accountant, which chooses grids, tilts and windows. All of these are only hints: whatever they are, what is
//! accepted is proved. The mathematics is in [`proof`]; the format is [`Certificate`]. What a `posterior.json` states is compared in [`posterior`].
//!
//! # What is believed
//! * That what ran are these events; and that they are dominated by the pairs of the table in [`proof`].
//! * That floating-point numbers are those of IEEE 754 with rounding to nearest, `sqrt` included. `exp`, `ln` and their like of the platform are used
//!   for guesses only, which are checked.
//!
//! # Bounds of the work
//! 2^22 points, 1000 events, 2^23 points in the grids of all events and atoms of their lattices, for which each kind of epoch counts as 2^19, 2^26 points transformed; what asks for more is refused.

#![allow(clippy::pedantic, reason = "casts: counts are checked to lie below 2^50 and indices below 2^41 before anything is done with them")]

mod check;
mod epoch;
mod format;
mod fourier;
mod interval;
mod normal;
mod pair;
pub mod posterior;

#[doc = include_str!("../../accounting/proofs/verifier.md")]
pub mod proof {}

pub use check::verify;
pub use format::{Certificate, Event, Noise, Part, Proof, Relation, Sampling, digest};

/// Why a certificate is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Not a certificate, or a number that the format does not allow.
    #[error("the file does not have the form of a certificate or posterior ({0}): make it again with `account --certificate` or `export`")]
    Form(&'static str),
    /// A step's losses do not fit the grid.
    #[error("the losses of a step cannot be enclosed on the stated grid: ask for a certificate with a wider grid")]
    Grid,
    /// The claim is not proved.
    #[error("delta is at most {0:e} by this certificate, which is more than it claims: do not rely on it")]
    Claim(f64),
}

pub(crate) fn require(ok: bool, what: &'static str) -> Result<(), Refusal> {
    if ok { Ok(()) } else { Err(Refusal::Form(what)) }
}
