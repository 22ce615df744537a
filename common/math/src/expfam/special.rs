//! ln Γ, ψ and ψ′ on the positive half-line.

/// ln Γ(x) for x > 0, to about one unit in the last place (the C library's algorithm).
#[must_use]
pub fn ln_gamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// ψ(x) = d ln Γ(x)/dx for x > 0: recurrence up to 12, then the asymptotic series. Absolute error below 1e-14·(1 + 1/x).
#[must_use]
pub fn digamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 12.0 {
        shift -= 1.0 / x;
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    // B₂ₖ/(2k) for k = 1..=7.
    let series = r
        * (1.0 / 12.0 - r * (1.0 / 120.0 - r * (1.0 / 252.0 - r * (1.0 / 240.0 - r * (1.0 / 132.0 - r * (691.0 / 32_760.0 - r / 12.0))))));
    shift + x.ln() - 0.5 / x - series
}

/// ψ′(x) for x > 0: recurrence up to 12, then the asymptotic series. Relative error below 1e-14.
#[must_use]
pub(crate) fn trigamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 12.0 {
        shift += 1.0 / (x * x);
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    // B₂ₖ for k = 1..=7.
    let series =
        r * (1.0 / 6.0 - r * (1.0 / 30.0 - r * (1.0 / 42.0 - r * (1.0 / 30.0 - r * (5.0 / 66.0 - r * (691.0 / 2730.0 - r * 7.0 / 6.0))))));
    shift + (1.0 + 0.5 / x + series) / x
}

#[cfg(test)]
mod tests {
    use super::{digamma, ln_gamma, trigamma};

    /// Values of Abramowitz & Stegun and of multiprecision computation: x, ln Γ, ψ, ψ′.
    const TABLE: [[f64; 4]; 5] = [
        [0.1, 2.252_712_651_734_206, -10.423_754_940_411_076, 101.433_299_150_792_76],
        [0.5, 0.572_364_942_924_700_1, -1.963_510_026_021_423_5, 4.934_802_200_544_679],
        [1.0, 0.0, -0.577_215_664_901_532_9, 1.644_934_066_848_226_4],
        [2.5, 0.284_682_870_472_919_2, 0.703_156_640_645_243_2, 0.490_357_756_100_234_86],
        [30.0, 71.257_038_967_168_01, 3.384_438_132_685_525, 0.033_895_060_357_739_93],
    ];

    #[test]
    fn special_functions_equal_published_values() {
        for [x, lg, psi, tri] in TABLE {
            assert!((ln_gamma(x) - lg).abs() <= 1e-14 * (1.0 + lg.abs()), "ln gamma({x})");
            assert!((digamma(x) - psi).abs() <= 1e-14 * (1.0 + psi.abs()), "digamma({x}) {}", digamma(x));
            assert!((trigamma(x) - tri).abs() <= 1e-14 * (1.0 + tri), "trigamma({x}) {}", trigamma(x));
        }
    }

    #[test]
    fn recurrences_and_derivatives_agree() {
        for k in 1..400_u32 {
            let x = f64::from(k) * 0.037;
            assert!((digamma(x + 1.0) - digamma(x) - 1.0 / x).abs() < 1e-13 * (1.0 + 1.0 / x), "{x}");
            assert!((trigamma(x) - trigamma(x + 1.0) - 1.0 / (x * x)).abs() < 1e-13 * (1.0 + 1.0 / (x * x)), "{x}");
            let h = 1e-5 * x;
            let slope = (ln_gamma(x + h) - ln_gamma(x - h)) / (2.0 * h);
            assert!((slope - digamma(x)).abs() < 1e-6 * (1.0 + 1.0 / x), "{x}");
        }
    }
}
