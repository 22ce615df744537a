//! One site's share of a sum that is only released with its noise whole: for secure aggregation.
//!
//! Under aggregation no one sees a single site's vector, so each site adds only its share of the noise ([`crate::proofs::shares`]):
//! with at least h honest sites among those that are summed, shares of standard deviation zC/√h add up to zC or more.
//! A share alone protects √h times less; so what comes out of [`ShareSum::share_sum`] is no [`Released`](crate::Released) but a
//! [`NoiseShare`], which can be masked and nothing else.
//!
//! # Privacy
//! Proof: [`crate::proofs::shares`].
//!
//! * **Unit, relation, lattice, clip, sampling, overflow** of one site: those of [`LatticeSum`], at z/√h.
//! * **Number of units**: a sum over more than N units is brought into the box that sums of N terms lie in, coordinate by coordinate, before
//!   the share of the noise is added. Projection onto a box is non-expansive, so two neighbouring sums are not farther apart than before, under
//!   either relation, and no unit takes another one's place; a table of at most N units is not changed. So the coordinates of every table lie
//!   within [`ShareSum::coordinate_bound`], and none is refused.
//! * **Event of the sum** ([`ShareSum::event`]): the sum of h independent discrete Gaussians of parameter s. It is within a factor
//!   e^{±τ}, for every integer, of one discrete Gaussian of variance hs² (Kairouz, Liu & Steinke 2021, Theorem 1 and its proof),
//!   τ = 10 Σ_{k<h} exp(−2π²s²k/(k+1)) ≤ 10(h−1)exp(−π²s²); with s ≥ 2¹⁰ that is below 10^{−4,000,000}, so the outward rounding of
//!   the accountants (1e-16) covers τ·d many times over. One discrete Gaussian of variance hs² with squared integer sensitivity Δ²
//!   costs what one of variance s² with Δ²/h costs; the event says the latter, with Δ²/h rounded up, since h has no place in it
//!   and s√h is not an integer.
//! * **Event if every other share is known** ([`ShareSum::fallback_event`]): this share alone.
//! * **State**: a share is used once and erased; it never enters a factor ([`crate::proofs::carried_state`]). The type sees to it.

use rand_core::CryptoRng;
use serde::de::DeserializeOwned;
use zeroize::Zeroize;

use crate::ledger::StepPermit;
use crate::mechanism::Masked;
use crate::mechanism::sum::Form;
use crate::mechanism::{CleanTerms, LatticeSum, ReleaseError, Summation, Summed};
use crate::noise::NoiseSource;
use crate::records::{Argument, Sensitive, UnitTable, Units};
use crate::sampler::gaussian;
use dp_pvi_accounting::adjacency::Terms;
use dp_pvi_accounting::event::{DpEvent, LatticePath};
use dp_pvi_accounting::unit::{ClipNorm, NoiseMultiplier, SamplingRate};
use dp_pvi_names::LatticeOverflow;
use dp_pvi_names::LatticeVector;

/// Sum of a site's clipped terms plus its share of the noise. See the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct ShareSum {
    local: LatticeSum,
    shares: u32,
    max_units: u64,
}

impl ShareSum {
    /// Smallest parameter s of a share for which the sum of shares is accounted as one discrete Gaussian.
    pub const SMALLEST_SCALE: u64 = 1 << 10;

    /// `noise` is z of the sum of `shares` = h shares; a site sums at most `max_units` terms of norm `clip`.
    ///
    /// # Errors
    /// h = 0, or parameters that [`LatticeSum::new`] refuses at z/√h.
    pub fn new(
        dimension: u32,
        clip: ClipNorm,
        noise: NoiseMultiplier,
        shares: u32,
        max_units: u64,
        sampling: Option<SamplingRate>,
        terms: Terms,
    ) -> Result<Self, LatticeOverflow> {
        if shares == 0 || max_units == 0 {
            return Err(LatticeOverflow("a shared sum needs at least one honest site and one unit a site"));
        }
        // √ and division are correctly rounded: two steps up are above the exact quotient.
        let local = (noise.get() / f64::from(shares).sqrt()).next_up().next_up();
        let local = NoiseMultiplier::new(local).map_err(|_| LatticeOverflow("the noise of a share"))?;
        let local = LatticeSum::new(dimension, clip, local, sampling, terms, LatticePath::Term)?;
        // LatticeSum's scales start at 2²⁰; this says that the claim about the sum rests on it.
        if local.scale() < Self::SMALLEST_SCALE {
            return Err(LatticeOverflow("the noise scale of a share is below 2^10"));
        }
        Ok(Self { local, shares, max_units })
    }

    /// As [`LatticeSum::of_long_terms`].
    #[must_use]
    pub fn of_long_terms(self) -> Self {
        Self { local: self.local.of_long_terms(), ..self }
    }

    /// What the sum of h shares is to an accountant.
    #[must_use]
    pub fn event(&self) -> DpEvent {
        self.local.event_with(self.local.bound_squared().div_ceil(self.shares.into()))
    }

    /// What is left when all other shares are known: this site's own.
    #[must_use]
    pub fn fallback_event(&self) -> DpEvent {
        self.local.event()
    }

    /// h: the shares that are counted.
    #[must_use]
    pub fn shares(&self) -> u32 {
        self.shares
    }

    /// N: most terms of one site.
    #[must_use]
    pub fn max_units(&self) -> u64 {
        self.max_units
    }

    /// d.
    #[must_use]
    pub fn dimension(&self) -> u32 {
        self.local.dimension()
    }

    /// The lattice constant is 2^this.
    #[must_use]
    pub fn exponent(&self) -> i32 {
        self.local.exponent()
    }

    /// s of one share, in lattice steps.
    #[must_use]
    pub fn scale(&self) -> u64 {
        self.local.scale()
    }

    /// C_int = ⌊C/γ⌋: no coordinate of a term, and no term's norm, is larger.
    #[must_use]
    pub fn clip_steps(&self) -> u64 {
        // Below 2³¹ for every lattice that was let through.
        u64::try_from(self.local.bound_squared().isqrt()).unwrap_or(u64::MAX)
    }

    /// Largest absolute value of a coordinate before masking: N·C_int + 64(s+1); saturating.
    #[must_use]
    pub fn coordinate_bound(&self) -> u128 {
        u128::from(self.max_units) * u128::from(self.clip_steps()) + u128::from(gaussian::bound(self.scale()))
    }

    /// The sum of this site's terms.
    pub(super) fn terms(&self) -> &LatticeSum {
        &self.local
    }

    /// The permit must be for the event of the sum, with this site's own part booked as its fallback.
    fn check(&self, permit: &StepPermit) -> Result<(), ReleaseError> {
        if *permit.event() == self.event() && permit.fallback() == Some(&self.fallback_event()) {
            Ok(())
        } else {
            Err(ReleaseError::PermitMismatch)
        }
    }

    /// As [`LatticeSum::release_sum`], but the noise is a share, and the permit must be for the event of the *sum*
    /// ([`Visit::fallback`](crate::ledger::Visit::fallback)).
    ///
    /// # Errors
    /// The permit is for another event; no randomness; overflow; what `f` says before it looks at a record. Nothing is left then.
    pub fn share_sum<T: UnitTable, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T>) -> Result<Summed, E>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<NoiseShare<LatticeVector>, E> {
        self.share_sum_with(units, &Sensitive::NOTHING, argument, f, permit, noise)
    }

    /// As [`LatticeSum::release_sum_with`], with this site's share of the noise.
    ///
    /// # Errors
    /// As [`ShareSum::share_sum`].
    pub(crate) fn share_sum_with<T: UnitTable, S: Sync, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T, S>) -> Result<Summed, E>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<NoiseShare<LatticeVector>, E> {
        self.check(&permit)?;
        let mut form = Form::within(self.max_units);
        self.local.noised_sum(units, state, argument, f, &permit, noise, &mut form).map(NoiseShare)
    }

    /// As [`LatticeSum::release_sum_keeping`], with this site's share of the noise: the share is not in the terms.
    ///
    /// # Errors
    /// As [`ShareSum::share_sum`].
    pub(crate) fn share_sum_keeping<T: UnitTable, S: Sync, A: DeserializeOwned, E: From<ReleaseError>, N: NoiseSource>(
        &self,
        units: &Units<T>,
        state: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T, S>) -> Result<Summed, E>,
        permit: StepPermit,
        noise: &N,
    ) -> Result<(NoiseShare<LatticeVector>, Sensitive<CleanTerms>), E> {
        self.check(&permit)?;
        let mut kept = self.local.no_terms();
        let mut form = Form::within(self.max_units).keeping(&mut kept);
        let sum = self.local.noised_sum(units, state, argument, f, &permit, noise, &mut form)?;
        Ok((NoiseShare(sum), Sensitive::of(kept)))
    }
}

mod sealed {
    /// What can be masked in place and erased.
    pub trait Blind {
        fn words(&mut self) -> &mut [i64];
    }

    impl Blind for dp_pvi_names::LatticeVector {
        fn words(&mut self) -> &mut [i64] {
            &mut self.values
        }
    }
}

/// A value that carries only a share of its noise. It becomes [`Masked`] or nothing; dropping it erases it.
///
/// # What does not compile
/// A share cannot be looked at, copied, printed, or stored:
/// ```compile_fail
/// fn look(share: dp_pvi_privacy::mechanism::NoiseShare<dp_pvi_names::LatticeVector>) -> Vec<i64> { share.0.values }
/// ```
/// ```compile_fail
/// fn copy(share: &dp_pvi_privacy::mechanism::NoiseShare<dp_pvi_names::LatticeVector>)
///     -> dp_pvi_privacy::mechanism::NoiseShare<dp_pvi_names::LatticeVector> { Clone::clone(share) }
/// ```
/// ```compile_fail
/// fn print(share: dp_pvi_privacy::mechanism::NoiseShare<dp_pvi_names::LatticeVector>) -> String { format!("{share:?}") }
/// ```
/// ```compile_fail
/// fn store(share: dp_pvi_privacy::mechanism::NoiseShare<dp_pvi_names::LatticeVector>) -> Vec<u8> { postcard::to_stdvec(&share).unwrap() }
/// ```
/// It cannot be masked twice (two masks of one share would tell their difference), nor called released:
/// ```compile_fail
/// use dp_pvi_names::LatticeVector;
/// use dp_pvi_privacy::mechanism::NoiseShare;
/// fn twice(share: NoiseShare<LatticeVector>, pad: &mut chacha20::ChaCha20Rng) { share.mask(pad); share.mask(pad); }
/// ```
/// ```compile_fail
/// use dp_pvi_names::LatticeVector;
/// use dp_pvi_privacy::{Released, mechanism::NoiseShare};
/// fn release(share: NoiseShare<LatticeVector>) -> Released<LatticeVector> { share.into() }
/// ```
/// Only this does:
/// ```
/// use dp_pvi_names::LatticeVector;
/// use dp_pvi_privacy::mechanism::{Masked, NoiseShare};
/// fn mask(share: NoiseShare<LatticeVector>, pad: &mut chacha20::ChaCha20Rng) -> Masked<LatticeVector> { share.mask(pad) }
/// ```
pub struct NoiseShare<T: sealed::Blind>(T);

impl<T: sealed::Blind> Drop for NoiseShare<T> {
    fn drop(&mut self) {
        self.0.words().zeroize();
    }
}

impl NoiseShare<LatticeVector> {
    /// Number of coordinates: public.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.0.values.len()
    }

    /// Lattice exponent: public.
    #[must_use]
    pub fn exponent(&self) -> i32 {
        self.0.exponent
    }

    /// Adds one word of the pad to each coordinate, mod 2⁶⁴, in place: word j is bytes 8j to 8j+7 of the pad, little-endian.
    ///
    /// The pad must be a stream that only the summer can compute, and must never be used again. It is drawn from in
    /// here so that no code outside ever holds the coordinates.
    #[must_use]
    pub fn mask(mut self, pad: &mut impl CryptoRng) -> Masked<LatticeVector> {
        let mut bytes = [0u8; 4096];
        for words in self.0.values.chunks_mut(bytes.len() / 8) {
            let bytes = &mut bytes[..8 * words.len()];
            pad.fill_bytes(bytes);
            for (word, pad) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = word.wrapping_add(i64::from_le_bytes(*pad));
            }
        }
        bytes.zeroize();
        let values = std::mem::take(&mut self.0.values);
        Masked(LatticeVector { exponent: self.0.exponent, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dp_pvi_accounting::adjacency::Relation;
    use dp_pvi_accounting::unit::Delta;
    use dp_pvi_accounting::{Gdp, epsilon_upper};

    fn sum(noise: f64, shares: u32) -> ShareSum {
        let noise = NoiseMultiplier::new(noise).unwrap();
        ShareSum::new(105, ClipNorm::new(1.0).unwrap(), noise, shares, 10, None, Terms::ShardResults).unwrap()
    }

    /// μ = 2C/(γ s √h) for the sum, 2C/(γ s) for the share alone.
    #[test]
    fn events_of_sum_and_share_have_the_stated_mu() {
        for (noise, shares) in [(23.4, 2), (23.4, 20), (7.0, 140), (1.3, 7), (4.0, 1000)] {
            let sum = sum(noise, shares);
            let mu = |event: DpEvent| match event {
                DpEvent::DiscreteGaussian(event) => Gdp::of_ratio(event.sensitivity_ratio(Relation::ReplaceOne)).mu(),
                other => panic!("{other:?}"),
            };
            let alone = 2.0 * 2f64.powi(-sum.exponent()) / sum.scale() as f64;
            let exact = alone / f64::from(shares).sqrt();
            let close = |mu: f64, exact: f64| mu / exact - 1.0 < 1e-9 && mu / exact - 1.0 > -1e-9;
            assert!(close(mu(sum.event()), exact), "{noise} {shares}: {:e}", mu(sum.event()) / exact - 1.0);
            assert!(close(mu(sum.fallback_event()), alone));
            // The noise of h shares is at least that asked for.
            assert!(exact <= 2.0 / noise * (1.0 + 1e-12), "{exact}");
        }
    }

    #[test]
    fn one_share_alone_is_charged_more_than_the_sum() {
        let sum = sum(23.4, 20);
        let loss = |event: DpEvent| epsilon_upper([&event], Relation::ReplaceOne, Delta::new(1e-5).unwrap()).unwrap().epsilon.get();
        assert!(loss(sum.fallback_event()) > 4.0 * loss(sum.event()));
    }
}
