//! The standard normal distribution in both tails: φ, Φ, ln Φ and the ratio φ/Φ.
//!
//! Moment matching with a probit, and moments through a rectifier, need ln Φ(w) and φ(w)/Φ(w) + w for w far below 0, where the
//! first underflows and the second cancels. Both come from Mills' ratio R(x) = (1 − Φ(x))/φ(x), which neither does: up to 10 from a polynomial, beyond from Laplace's continued fraction.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// ln √(2π).
const LN_SQRT_TAU: f64 = 0.918_938_533_204_672_8;
/// Where the continued fraction takes over. It needs about 400/w² terms for the last bit.
const TAIL: f64 = -10.0;
/// Terms of the continued fraction: enough at [`TAIL`], with a margin of two.
const TERMS: u32 = 40;

/// (1 + x) R(x) for x from 0 to 10, as a polynomial in 3x/(x + 5) − 1. Its Chebyshev coefficients were computed with 40 digits; those that were left out are below 7e-18.
const MILLS: [[f64; 4]; 5] = [
    [1.239_927_889_654_277_8, -0.172_181_867_004_419_04, -0.010_134_050_859_754_922, 0.064_539_909_156_666_34],
    [-0.050_715_541_072_518_674, 0.024_217_603_712_605_788, -0.007_717_926_067_994_638_5, 0.001_473_866_157_746_558_5],
    [-5.526_695_872_994_274e-5, -5.055_241_465_284_559_5e-5, 9.792_496_585_840_95e-6, 1.288_566_933_796_641_5e-6],
    [-5.778_441_571_599_772e-7, -3.820_198_824_904_623e-8, 3.154_147_668_386_675e-8, 2.137_993_602_606_228e-9],
    [-1.711_178_717_921_837_7e-9, -1.866_101_916_427_345e-10, 7.426_939_251_226_602e-11, 1.249_968_780_298_114_6e-11],
];

/// R(x) for x from 0 to 10, to a relative error of 4e-16.
#[inline]
fn mills(x: f64) -> f64 {
    let at = 3.0 * x / (x + 5.0) - 1.0;
    let square = at * at;
    let fourth = square * square;
    // Four powers at once: one chain of twenty products would be waited for.
    let sum = MILLS.iter().rev().fold(0.0, |sum, [a, b, c, d]| sum * fourth + ((c + d * at) * square + (a + b * at)));
    sum / (1.0 + x)
}

/// φ(w).
#[must_use]
#[inline]
pub fn density(w: f64) -> f64 {
    (-0.5 * w * w).exp() / (2.0 * PI).sqrt()
}

/// Φ(w), with full relative accuracy in the lower tail.
#[must_use]
#[inline]
pub fn cdf(w: f64) -> f64 {
    0.5 * libm::erfc(-w * FRAC_1_SQRT_2)
}

/// ln N(x; mean, variance).
#[must_use]
#[inline]
pub fn log_density(x: f64, mean: f64, variance: f64) -> f64 {
    -0.5 * (x - mean) * (x - mean) / variance - 0.5 * variance.ln() - LN_SQRT_TAU
}

/// What ln Φ does near a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogCdf {
    /// ln Φ(w).
    pub value: f64,
    /// r = φ(w)/Φ(w) = d ln Φ/dw, the inverse Mills ratio of −w.
    pub ratio: f64,
    /// r + w > 0, without cancellation.
    pub excess: f64,
}

/// ln Φ(w) with its derivative r; −d² ln Φ/dw² = r (r + w).
#[must_use]
pub fn log_cdf(w: f64) -> LogCdf {
    let Slope { ratio, excess } = slope(w);
    let value = if w > 0.0 {
        // ln Φ near 1 from the other tail, where 1 − Φ keeps its digits.
        (-density(w) * mills(w.min(-TAIL))).ln_1p()
    } else {
        -0.5 * w * w - LN_SQRT_TAU - ratio.ln()
    };
    LogCdf { value, ratio, excess }
}

/// The slope of ln Φ at a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slope {
    /// r = φ(w)/Φ(w) = d ln Φ/dw, the inverse Mills ratio of −w.
    pub ratio: f64,
    /// r + w > 0, without cancellation.
    pub excess: f64,
}

/// d ln Φ/dw, without the logarithm that [`log_cdf`] takes.
#[must_use]
#[inline]
pub fn slope(w: f64) -> Slope {
    if w > TAIL {
        let mills = mills(w.abs().min(-TAIL));
        if w > 0.0 {
            // Beyond 10 the upper tail is below half a unit in the last place of Φ.
            let ratio = density(w) / (1.0 - density(w) * mills);
            return Slope { ratio, excess: ratio + w };
        }
        return Slope { ratio: 1.0 / mills, excess: (1.0 + w * mills) / mills };
    }
    // r = x + 1/(x + 2/(x + 3/(x + …))) with x = −w (Laplace).
    let x = -w;
    let rest = (2..=TERMS).rev().fold(x, |rest, k| x + f64::from(k) / rest);
    let excess = 1.0 / rest;
    Slope { ratio: x + excess, excess }
}

/// Φ⁻¹(`probability`), for a probability in [0, 1].
#[must_use]
pub fn quantile(probability: f64) -> f64 {
    -std::f64::consts::SQRT_2 * statrs::function::erf::erfc_inv(2.0 * probability)
}

#[cfg(test)]
mod tests {
    use super::{TAIL, cdf, density, log_cdf, log_density, quantile};

    /// w, ln Φ(w), φ/Φ by multiprecision computation.
    const TABLE: [[f64; 3]; 6] = [
        [0.0, -std::f64::consts::LN_2, 0.797_884_560_802_865_4],
        [1.0, -0.172_753_779_023_449_89, 0.287_599_970_939_178_4],
        [-1.0, -1.841_021_645_009_264, 1.525_135_276_160_981],
        [-5.0, -15.064_998_393_988_726, 5.186_503_967_125_842],
        [-20.0, -203.917_155_371_097_26, 20.049_753_068_527_85],
        [-50.0, -1_254.831_361_139_42, 50.019_984_031_905_64],
    ];

    #[test]
    fn values_equal_multiprecision_computation() {
        for [w, value, ratio] in TABLE {
            let found = log_cdf(w);
            assert!((found.value - value).abs() <= 4e-15 * value.abs().max(0.1), "{w}: {}", found.value);
            assert!((found.ratio - ratio).abs() <= 2e-14 * ratio, "{w}: {}", found.ratio);
        }
        assert!((cdf(1.959_963_984_540_054) - 0.975).abs() < 1e-15);
        assert!((density(0.0) - 0.398_942_280_401_432_7).abs() < 1e-16);
        assert!((log_density(1.5, 1.0, 4.0) - (density(0.25) / 2.0).ln()).abs() < 1e-15);
    }

    #[test]
    fn both_forms_agree_where_they_meet() {
        let (upper, lower) = (log_cdf(TAIL + 1e-9), log_cdf(TAIL));
        assert!((upper.value - lower.value - 1e-9 * lower.ratio).abs() < 1e-12);
        assert!((upper.ratio - lower.ratio).abs() < 2e-9);
        assert!((upper.excess - lower.excess).abs() < 1e-10);
    }

    #[test]
    fn the_ratio_is_the_slope_and_the_curvature_stays_between_0_and_1() {
        for k in -600..100_i32 {
            let w = f64::from(k) * 0.1;
            let (h, at) = (1e-5 * (1.0 + w.abs()), log_cdf(w));
            let slope = (log_cdf(w + h).value - log_cdf(w - h).value) / (2.0 * h);
            assert!((slope - at.ratio).abs() <= 1e-6 * (1.0 + at.ratio), "{w}: {slope} {}", at.ratio);
            let curvature = at.ratio * at.excess;
            assert!(curvature > 0.0 && curvature < 1.0, "{w}: {curvature}");
        }
        // Further than any logit goes, nothing overflows.
        let far = log_cdf(-1e8);
        assert!(far.value.is_finite() && (far.ratio * far.excess - 1.0).abs() < 1e-12);
    }

    #[test]
    fn quantiles_are_those_of_tables_and_invert_the_distribution() {
        for (probability, expected) in
            [(0.5, 0.0), (0.975, 1.959_963_984_540_054), (1e-10, -6.361_340_902_404_056), (0.9, 1.281_551_565_544_600_4)]
        {
            assert!((quantile(probability) - expected).abs() < 1e-12, "{probability}");
        }
        for w in [-8.0, -2.5, -1e-3, 0.7, 3.0] {
            assert!((quantile(cdf(w)) - w).abs() < 1e-12, "{w}");
        }
        assert!(quantile(0.0).is_infinite() && quantile(1.0).is_infinite());
    }
}
