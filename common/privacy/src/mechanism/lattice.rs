//! From a clipping norm and a noise multiplier to integers: lattice exponent, noise scale, norm bound. Exact.

use dp_pvi_accounting::unit::{ClipNorm, NoiseMultiplier};
use dp_pvi_names::LatticeOverflow;

/// Largest number of units of a table: sums of so many terms fit 64 bits by construction.
pub const MAX_UNITS: u64 = 1 << 32;

/// The noise scale lies in [2^this, 2^(this+1)].
const SCALE_BITS: i32 = 20;

/// Lattice exponents for which 2^k and 2^−k are ordinary numbers with room for products.
const EXPONENTS: std::ops::RangeInclusive<i32> = -900..=900;

/// Integers of a discrete Gaussian mechanism on γℤᵈ, γ = 2^`exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lattice {
    /// k = ⌊log₂(zC)⌋ − 20.
    pub(crate) exponent: i32,
    /// s = ⌈zC/γ⌉ ∈ [2²⁰, 2²¹].
    pub(crate) scale: u64,
    /// ⌊(C/γ)²⌋.
    pub(crate) bound_squared: u128,
}

impl Lattice {
    /// # Errors
    /// C·2³²/γ + 64(s+1) reaches 2⁶³ (noise multiplier below about 2⁻¹⁰), or γ leaves the range of ordinary numbers.
    pub(crate) fn new(clip: ClipNorm, noise: NoiseMultiplier) -> Result<Self, LatticeOverflow> {
        let (clip, clip_exponent) = decompose(clip.get());
        let (noise, noise_exponent) = decompose(noise.get());
        // zC = product·2^e exactly, with a product of at most 106 bits.
        let product = u128::from(clip) * u128::from(noise);
        let log2 = product.ilog2().cast_signed();
        let exponent = log2 + clip_exponent + noise_exponent - SCALE_BITS;
        if !EXPONENTS.contains(&exponent) {
            return Err(LatticeOverflow("their product is too large or too small for double precision"));
        }
        let down = log2 - SCALE_BITS;
        let scale = if down > 0 { product.div_ceil(1 << down) } else { product << -down };
        // At most 2²¹.
        let scale = u64::try_from(scale).map_err(|_| LatticeOverflow("the noise scale"))?;
        let square = u128::from(clip) * u128::from(clip);
        let up = 2 * (clip_exponent - exponent);
        let bound_squared = if up <= -128 {
            0
        } else if up <= 0 {
            square >> -up
        } else if up < square.leading_zeros().cast_signed() {
            square << up
        } else {
            return Err(LatticeOverflow("the noise is too small for the clipping norm"));
        };
        // One coordinate of one term is at most ⌊C/γ⌋.
        let worst = bound_squared.isqrt().checked_mul(MAX_UNITS.into()).and_then(|sum| sum.checked_add(64 * (u128::from(scale) + 1)));
        if worst.is_none_or(|worst| worst >= 1 << 63) {
            return Err(LatticeOverflow("the noise is too small for sums of up to 2^32 units; use a larger noise multiplier"));
        }
        Ok(Self { exponent, scale, bound_squared })
    }

    /// 1/γ, exact.
    pub(crate) fn per_step(&self) -> f64 {
        2f64.powi(-self.exponent)
    }
}

/// x = mantissa·2^exponent, exactly; for finite positive x.
fn decompose(x: f64) -> (u64, i32) {
    let bits = x.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    #[allow(clippy::cast_possible_truncation, reason = "11 bits")]
    let biased = ((bits >> 52) & 0x7ff) as i32;
    if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lattice(clip: f64, noise: f64) -> Result<Lattice, LatticeOverflow> {
        Lattice::new(ClipNorm::new(clip).unwrap(), NoiseMultiplier::new(noise).unwrap())
    }

    #[test]
    fn exponents_scales_and_bounds_are_the_stated_ones() {
        // zC = 1: k = −20, s = 2²⁰, C/γ = 2²⁰.
        assert_eq!(lattice(1.0, 1.0).unwrap(), Lattice { exponent: -20, scale: 1 << 20, bound_squared: 1 << 40 });
        // zC just below 2: s = ⌈2²¹(1 − 2⁻⁵³)⌉ = 2²¹.
        assert_eq!(lattice(1.0, 2f64.next_down()).unwrap().scale, 1 << 21);
        // z = 8: C/γ = 2¹⁷.
        assert_eq!(lattice(3.0, 8.0).unwrap(), Lattice { exponent: -16, scale: 3 << 19, bound_squared: 9 << 32 });
        // C = 0.1 (not a dyadic number), z = 1: (C/γ)² = (0.1·2²⁴)², floored.
        assert_eq!(lattice(0.1, 1.0).unwrap(), Lattice { exponent: -24, scale: 1_677_722, bound_squared: 2_814_749_767_106 });
    }

    #[test]
    fn the_scale_covers_zc_and_stays_in_its_octave() {
        for clip in [1e-200, 1e-3, 0.37, 1.0, 17.3, 1e200] {
            for noise in [0.01, 0.9, 1.0, 1.1, 5.43, 1e3, 1e6] {
                let lattice = lattice(clip, noise).unwrap();
                assert!((1 << 20..=1 << 21).contains(&lattice.scale), "{lattice:?}");
                #[allow(clippy::cast_precision_loss, reason = "22 bits")]
                let sd = lattice.scale as f64 / lattice.per_step();
                assert!(sd >= clip * noise * (1.0 - 1e-15) && sd <= clip * noise * (1.0 + 1.0 / 1_048_576.0), "{sd}");
            }
        }
    }

    #[test]
    fn parameters_whose_sums_could_wrap_are_refused() {
        assert!(lattice(1.0, 1.0 / 1024.0).is_ok());
        for noise in [1.0 / 2100.0, 1e-6, 1e-30, f64::MIN_POSITIVE] {
            assert!(lattice(1.0, noise).is_err(), "{noise}");
        }
        assert!(lattice(1e300, 1e300).is_err() && lattice(1e-300, 1e-300).is_err());
    }
}
