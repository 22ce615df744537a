//! Bernoulli variables with rational and exp(−rational) probabilities, exactly, mostly from one 64-bit word each.
//!
//! Canonne, Kamath & Steinke (2020), Algorithm 1; the rational coin compares a uniform real with n/d lazily, digit by
//! 64-bit digit: U = (w + U′)/2⁶⁴ < n/d iff U′ < (2⁶⁴n − wd)/d, which one word decides unless 0 < 2⁶⁴n − wd < d, and then
//! the same question is asked again of U′.

use rand_core::Rng;

use crate::sampler::SamplerError;

/// Largest denominator of [`wide`].
pub(crate) const WIDE_BITS: u32 = 126;

/// True with probability `n`/`d`, for n ≤ d, d > 0.
#[inline]
pub(crate) fn rational(rng: &mut impl Rng, mut n: u64, d: u64) -> bool {
    loop {
        let word = rng.next_u64();
        // 2⁶⁴n and wd are below 2¹²⁸.
        let (target, here) = (u128::from(n) << 64, u128::from(word) * u128::from(d));
        let Some(rest) = target.checked_sub(here) else { return false };
        if rest >= u128::from(d) {
            return true;
        }
        if rest == 0 {
            return false;
        }
        #[allow(clippy::cast_possible_truncation, reason = "below d, which is 64 bits wide")]
        {
            n = rest as u64;
        }
    }
}

/// True with probability `n`/`d`, for n ≤ d < 2^[`WIDE_BITS`], d > 0.
pub(crate) fn wide(rng: &mut impl Rng, mut n: u128, d: u128) -> bool {
    debug_assert!(n <= d && d >> WIDE_BITS == 0);
    const LOW: u128 = u64::MAX as u128;
    loop {
        let word = u128::from(rng.next_u64());
        // wd = high·2⁶⁴ + low with low < 2⁶⁴; word·(d >> 64) < 2¹²⁶, so nothing overflows.
        let below = word * (d & LOW);
        let high = word * (d >> 64) + (below >> 64);
        let low = below & LOW;
        // 2⁶⁴n − wd = rest·2⁶⁴ − low
        let Some(rest) = n.checked_sub(high) else { return false };
        let Some(rest) = (if low == 0 { Some(rest) } else { rest.checked_sub(1) }) else { return false };
        let low = (LOW + 1 - low) & LOW;
        if rest > d >> 64 {
            return true;
        }
        // rest ≤ d >> 64 < 2⁶²
        let rest = (rest << 64) | low;
        if rest >= d {
            return true;
        }
        if rest == 0 {
            return false;
        }
        n = rest;
    }
}

/// True with probability exp(−n/d), for n ≤ d, d > 0 (Algorithm 1 of the paper, γ ≤ 1): with K the first k ≥ 1 whose coin of probability n/(dk) fails,
/// whether K is odd. For a small n/d the first word decides nearly always.
///
/// # Errors
/// d·K left [`WIDE_BITS`] bits: probability below 1/(2⁶²)!.
#[inline]
pub(crate) fn exp_minus(rng: &mut impl Rng, n: u64, d: u64) -> Result<bool, SamplerError> {
    if !rational(rng, n, d) {
        return Ok(true);
    }
    after_the_first(rng, n.into(), d.into())
}

/// As [`exp_minus`], with the first 32 bits of the first coin's uniform number, which are the caller's and used for nothing else.
///
/// # Errors
/// As [`exp_minus`].
#[inline]
pub(crate) fn exp_minus_with(rng: &mut impl Rng, first: u32, n: u64, d: u64) -> Result<bool, SamplerError> {
    // As in `rational`: U = (w + U′)/2³².
    let (target, here) = (u128::from(n) << 32, u128::from(first) * u128::from(d));
    let Some(rest) = target.checked_sub(here) else { return Ok(true) };
    #[allow(clippy::cast_possible_truncation, reason = "below d, which is 64 bits wide")]
    if rest >= u128::from(d) || rational(rng, rest as u64, d) {
        return after_the_first(rng, n.into(), d.into());
    }
    Ok(true)
}

/// K is not 1.
fn after_the_first(rng: &mut impl Rng, n: u128, d: u128) -> Result<bool, SamplerError> {
    let mut k = 2;
    loop {
        let product = d.checked_mul(k).filter(|product| product >> WIDE_BITS == 0).ok_or(SamplerError)?;
        if !wide(rng, n, product) {
            return Ok(k % 2 == 1);
        }
        k += 1;
    }
}

/// Uniform on 0 ≤ x < `bound`, by Lemire's multiplication with exact rejection.
#[inline]
pub(crate) fn uniform(rng: &mut impl Rng, bound: u64) -> u64 {
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(bound);
        #[allow(clippy::cast_possible_truncation, reason = "low half")]
        let low = product as u64;
        if low >= bound || low >= bound.wrapping_neg() % bound {
            #[allow(clippy::cast_possible_truncation, reason = "high half")]
            return (product >> 64) as u64;
        }
    }
}
