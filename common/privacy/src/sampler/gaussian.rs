//! The discrete Gaussian, exact.

use rand_core::Rng;

use crate::sampler::bernoulli::{exp_minus, exp_minus_with};
use crate::sampler::strips::{self, PER_SCALE};

/// The sampler left the range in which its integer arithmetic is proved (probability below 1e-800 a draw), or was asked for
/// a scale that is out of it. Nothing may be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the noise sampler left the range in which it is exact: nothing was released")]
pub struct SamplerError;

/// The lower half of a word.
const HALF: u64 = (1 << 32) - 1;

/// Largest scale.
pub(crate) const MAX_SCALE: u64 = 1 << 28;

/// Draws x ∈ ℤ with probability ∝ exp(−x²/(2s²)), exactly, whatever the scale.
///
/// With the width m = ⌈s/8⌉ every magnitude x ≥ 0 lies in one strip: x = im + r with 0 ≤ r < m. Strip i is drawn with probability
/// ∝ exp(−i²/128) (module `strips`), r uniformly, and x is accepted with probability exp(−γ) for γ = x²/(2s²) − i²/128, by the coins of Canonne, Kamath & Steinke
/// (2020), Algorithm 1. γ ≥ 0, because x ≥ im ≥ is/8. So a beginning ends at x with a probability ∝ exp(−i²/128)·exp(−γ) = exp(−x²/(2s²)).
/// A fair coin is the sign; −0 is not accepted, so that 0 does not count twice. What is not accepted begins anew.
///
/// γ = (8x + is)(8x − is)/(128s²), and 128s² ≤ 2⁶³. Two words make a beginning. Where s is above 1,000, 94 of 100 are accepted; fewer below, as m is less and less like s/8: 54 at s = 9, 12 at s = 1.
/// `sampler::tests` checks the table against many digits, the draws against exact probabilities, and the coins against exact integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscreteGaussianSampler {
    scale: u64,
    /// m, below 2³².
    width: u64,
    /// 2³² mod m.
    rest: u64,
    /// 128s².
    denominator: u64,
    limit: u64,
}

impl DiscreteGaussianSampler {
    /// Sampler with parameter `scale` = s.
    ///
    /// # Errors
    /// The scale is 0 or above `MAX_SCALE`.
    pub fn new(scale: u64) -> Result<Self, SamplerError> {
        if scale == 0 || scale > MAX_SCALE {
            return Err(SamplerError);
        }
        let denominator = 2 * PER_SCALE * PER_SCALE * scale * scale;
        let width = scale.div_ceil(PER_SCALE);
        Ok(Self { scale, width, rest: (1 << 32) % width, denominator, limit: bound(scale) })
    }

    /// Parameter s.
    #[must_use]
    pub fn scale(&self) -> u64 {
        self.scale
    }

    /// One draw; its absolute value is at most 64(s+1).
    ///
    /// # Errors
    /// A draw beyond 64(s+1), or a counter out of range: the caller must release nothing.
    #[inline]
    pub fn sample(&self, rng: &mut impl Rng) -> Result<i64, SamplerError> {
        loop {
            let Some((strip, negative)) = strips::draw(rng)? else { continue };
            // Half a word for the place in the strip (Lemire's multiplication), half for the coin.
            let word = rng.next_u64();
            let place = (word >> 32) * self.width;
            if place & HALF < self.rest {
                continue;
            }
            let magnitude = strip * self.width + (place >> 32);
            // A strip that is accepted is below 512: both are below 2³⁸.
            let (here, edge) = (PER_SCALE * magnitude, strip * self.scale);
            let (sum, difference) = (here + edge, here - edge);
            let accepted = match sum.checked_mul(difference) {
                #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
                Some(n) if n <= self.denominator => exp_minus_with(rng, word as u32, n, self.denominator)?,
                _ => self.far(rng, u128::from(sum) * u128::from(difference))?,
            };
            if !accepted || negative && magnitude == 0 {
                continue;
            }
            if magnitude > self.limit {
                return Err(SamplerError);
            }
            // At most 64(2²⁸+1).
            let value = magnitude.cast_signed();
            return Ok(if negative { -value } else { value });
        }
    }

    /// Fills `noise` with independent draws.
    ///
    /// # Errors
    /// As [`DiscreteGaussianSampler::sample`].
    pub fn fill(&self, rng: &mut impl Rng, noise: &mut [i64]) -> Result<(), SamplerError> {
        noise.iter_mut().try_for_each(|x| {
            *x = self.sample(rng)?;
            Ok(())
        })
    }

    /// True with probability exp(−γ) for γ = `n`/(128s²) > 1: as many coins exp(−1) as γ has whole parts, then the rest; the first tail ends it.
    #[cold]
    fn far(&self, rng: &mut impl Rng, mut n: u128) -> Result<bool, SamplerError> {
        loop {
            match u64::try_from(n) {
                Ok(n) if n <= self.denominator => return exp_minus(rng, n, self.denominator),
                _ if !exp_minus(rng, 1, 1)? => return Ok(false),
                _ => n -= u128::from(self.denominator),
            }
        }
    }
}

/// Largest absolute value of a draw with scale s: 64(s+1).
#[must_use]
pub fn bound(scale: u64) -> u64 {
    64 * (scale + 1)
}
