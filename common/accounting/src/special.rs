//! Gaussian tails in log space: the functions that decide how small a δ can be distinguished from zero.

/// 1/√π.
const FRAC_1_SQRT_PI: f64 = 0.564_189_583_547_756_3;
/// From here on the continued fraction converges to double precision in [`TERMS`] terms.
const FRACTION_FROM: f64 = 4.0;
const TERMS: u32 = 60;

/// Scaled complementary error function erfcx(x) = exp(x²)·erfc(x); relative error below 1e-14 for x ≥ −26.
///
/// Below 4 from `erfc`, with x² split so that its rounding error is not exponentiated; above from Laplace's continued
/// fraction (Abramowitz & Stegun 7.1.14), evaluated backward.
pub(crate) fn erfcx(x: f64) -> f64 {
    if x < FRACTION_FROM {
        // x² = high + low exactly enough: high is x² rounded, low the fused remainder.
        let high = x * x;
        let low = x.mul_add(x, -high);
        return high.exp() * libm::erfc(x) * (1.0 + low);
    }
    // erfc(x)·exp(x²)·√π = 1/(x + (1/2)/(x + 1/(x + (3/2)/(x + …))))
    let tail = (1..=TERMS).rev().fold(x, |tail, k| x + 0.5 * f64::from(k) / tail);
    FRAC_1_SQRT_PI / tail
}

/// ln(eˣ + eʸ).
pub(crate) fn log_add(x: f64, y: f64) -> f64 {
    let (low, high) = if x < y { (x, y) } else { (y, x) };
    if high == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(actual: f64, expected: f64, tolerance: f64) {
        assert!((actual - expected).abs() <= tolerance * expected.abs(), "{actual:e} is not {expected:e}");
    }

    /// Values computed with mpmath at 40 digits.
    #[test]
    fn erfcx_equals_multiprecision_values() {
        for (x, value) in ERFCX {
            close(erfcx(x), value, 2e-15);
        }
    }

    #[test]
    fn the_two_branches_of_erfcx_meet() {
        close(erfcx(FRACTION_FROM.next_down()), erfcx(FRACTION_FROM), 5e-15);
    }

    #[test]
    fn log_add_is_exact_where_it_can_be() {
        close(log_add(0.0, 0.0), std::f64::consts::LN_2, 1e-16);
        close(log_add(1000.0, f64::NEG_INFINITY), 1000.0, 0.0);
        assert_eq!(log_add(f64::NEG_INFINITY, f64::NEG_INFINITY), f64::NEG_INFINITY);
    }

    const ERFCX: [(f64, f64); 9] = [
        (-5.0, 1.4400979867466104e+11),
        (-1.0, 5.00898008076228347),
        (-0.125, 1.15827357209122069),
        (0.0, 1.0),
        (0.5, 6.15690344192925875e-1),
        (3.9375, 1.39053004777814523e-1),
        (4.5, 1.22484804273841418e-1),
        (30.0, 1.87958888614167515e-2),
        (1000000.0, 5.64189583547474192e-7),
    ];
}
