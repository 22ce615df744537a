//! The upper tail of the chi-square distribution.

/// P(χ² > `statistic`) with so many degrees of freedom; 1 for a statistic that is not above 0, NaN for one that is NaN.
#[must_use]
pub fn upper_tail(statistic: f64, degrees: f64) -> f64 {
    if statistic.is_nan() || !(degrees > 0.0 && degrees.is_finite()) {
        return f64::NAN;
    }
    if statistic <= 0.0 {
        return 1.0;
    }
    // Far out the tail is below the smallest number, and the continued fraction would not end.
    if statistic > 4.0 * degrees + 3000.0 {
        return 0.0;
    }
    statrs::function::gamma::gamma_ur(0.5 * degrees, 0.5 * statistic).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::upper_tail;

    /// With two degrees of freedom the tail is e^(−x/2); with one it is that of a squared normal.
    #[test]
    fn tails_of_one_and_two_degrees_are_known() {
        for x in [0.01, 0.5, 3.0, 20.0, 200.0, 1000.0] {
            assert!((upper_tail(x, 2.0) / (-0.5 * x).exp() - 1.0).abs() < 1e-9, "{x}");
            let normal = libm::erfc((0.5 * x).sqrt());
            assert!((upper_tail(x, 1.0) - normal).abs() <= 1e-9 * normal + 1e-300, "{x}");
        }
    }

    #[test]
    fn ends_are_probabilities() {
        assert_eq!((upper_tail(0.0, 3.0), upper_tail(-1.0, 3.0), upper_tail(1e9, 3.0)), (1.0, 1.0, 0.0));
        assert!(upper_tail(f64::NAN, 3.0).is_nan() && upper_tail(1.0, 0.0).is_nan());
        // 95 % points from tables.
        for (degrees, point) in [(1.0, 3.841_459), (5.0, 11.070_498), (100.0, 124.342_113)] {
            assert!((upper_tail(point, degrees) - 0.05).abs() < 1e-7, "{degrees}");
        }
    }
}
