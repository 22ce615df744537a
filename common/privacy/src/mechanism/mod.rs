//! Mechanisms: clip, sum and noise are one call, and the permit must equal the event that runs. (Contract stub.)

use crate::adjacency::Terms;
use crate::event::{DpEvent, LatticePath};
use crate::ledger::{Permit, StepPermit};
use crate::noise::{NoRandomness, NoiseSource};
use crate::records::{Released, Sensitive, UnitTable, Units};
use crate::release::LatticeVector;
use crate::unit::{ClipNorm, NoiseMultiplier, SamplingRate};

/// A release that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The permit is for another event: a bug of ours.
    #[error("the permit is for another event than the one that would run; nothing was released: report this as a bug")]
    PermitMismatch,
    /// No randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The noise sampler left its proven range.
    #[error("the noise left the range that the lattice can hold; nothing was released")]
    Overflow,
}

/// Parameters that do not fit the lattice.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("clipping norm, noise multiplier and number of units do not fit a 64-bit lattice: {0}")]
pub struct LatticeOverflow(pub &'static str);

/// One unit's term of a sum: a sparse vector that a function of the unit fills. Adding to a coordinate twice accumulates.
/// Ascending coordinates are the fast path.
#[derive(Debug, Default)]
pub struct Term {
    entries: Vec<(u32, f64)>,
}

impl Term {
    /// Adds `value` to coordinate `index`.
    #[inline]
    pub fn add(&mut self, index: u32, value: f64) {
        self.entries.push((index, value));
    }
}

/// Sum of clipped terms plus discrete Gaussian noise on a power-of-two lattice, over all units or a Poisson sample.
#[derive(Debug, Clone, PartialEq)]
pub struct LatticeSum {
    dimension: u32,
    clip: ClipNorm,
    noise: NoiseMultiplier,
    sampling: Option<SamplingRate>,
    terms: Terms,
    path: LatticePath,
}

impl LatticeSum {
    /// Checks that sums of at most `max_units` terms fit the lattice.
    ///
    /// # Errors
    /// They do not.
    pub fn new(
        dimension: u32,
        clip: ClipNorm,
        noise: NoiseMultiplier,
        sampling: Option<SamplingRate>,
        terms: Terms,
        path: LatticePath,
    ) -> Result<Self, LatticeOverflow> {
        Ok(Self { dimension, clip, noise, sampling, terms, path })
    }

    /// What one release is to an accountant.
    #[must_use]
    pub fn event(&self) -> DpEvent {
        unimplemented!("contract")
    }

    /// Tosses the coins, sums the clipped terms `f(unit)` and adds noise. A term with a non-finite entry counts as zero.
    ///
    /// # Errors
    /// The permit is for another event; no randomness; overflow.
    pub fn release_sum<T: UnitTable, N: NoiseSource>(
        &self,
        units: &Units<T>,
        f: impl Fn(T::Unit<'_>, &mut Term),
        permit: StepPermit,
        noise: &N,
    ) -> Result<Released<LatticeVector>, ReleaseError> {
        let _ = (units, &f, permit, noise);
        unimplemented!("contract")
    }
}

/// Releases a value without protection; the permit must be for [`DpEvent::NonPrivate`].
///
/// # Errors
/// The permit is for another event.
pub fn release_non_private<T>(value: Sensitive<T>, permit: Permit) -> Result<Released<T>, ReleaseError> {
    let _ = permit;
    let _ = value;
    unimplemented!("contract")
}
