//! Expectations of functions of a normal variable.
//!
//! With s its standard deviation, the trapezoid rule of step h in units of s is wrong by about exp(a²/2 − 2πa/h) for every a up to which the function is analytic,
//! s a < `STRIP` (Trefethen and Weideman 2014). Gauss and Hermite's rules of three and five points are wrong by about 6 (s/3)⁶ and 120 (s/3)¹⁰, and cheaper where s is small.

/// Reach of the trapezoid rule in standard deviations, its largest number of steps to either side, and −ln of its error.
const REACH: f64 = 9.0;
const MOST_STEPS: i32 = 64;
const ERROR: f64 = 30.0;

/// Half the width of the strip about the real axis in which functions are taken for analytic and of moderate size: ln Φ has the first singularities at 1.91 ± 2.82i.
const STRIP: f64 = 2.5;

/// Gauss and Hermite's rule of five points, and up to which standard deviation it is used: it integrates polynomials of degree 9 exactly.
const POINTS: [f64; 3] = [0.0, 1.355_626_179_974_266, 2.856_970_013_872_806];
const WEIGHTS: [f64; 3] = [8.0 / 15.0, 0.222_075_922_005_612_66, 0.011_257_411_327_720_691];
const CERTAIN: f64 = 0.1;

/// The same of three points.
const POINT_OF_THREE: f64 = 1.732_050_807_568_877_2;
const VERY_CERTAIN: f64 = 0.025;

/// E g(z) for z ~ N(`mean`, `variance`); a negative variance counts as 0. The error is below 1e-11 for a g of moderate size that is analytic where |Im z| < 2.8, up to
/// s = 3; beyond, it grows slowly, as g is called at most 129 times whatever the variance is: a public state must not decide how long a record takes.
pub fn expectation<const N: usize>(mean: f64, variance: f64, g: impl Fn(f64) -> [f64; N]) -> [f64; N] {
    let s = variance.max(0.0).sqrt();
    if s <= VERY_CERTAIN {
        let (at, above, below) = (g(mean), g(mean + s * POINT_OF_THREE), g(mean - s * POINT_OF_THREE));
        return std::array::from_fn(|part| (4.0 * at[part] + above[part] + below[part]) / 6.0);
    }
    if s <= CERTAIN {
        let mut sums = g(mean).map(|value| value * WEIGHTS[0]);
        for (point, weight) in POINTS.iter().zip(&WEIGHTS).skip(1) {
            let (above, below) = (g(mean + s * point), g(mean - s * point));
            sums.iter_mut().zip(above.iter().zip(&below)).for_each(|(sum, (above, below))| *sum += weight * (above + below));
        }
        return sums;
    }
    // The longest step with this error; a = √(2 ERROR) has the longest of all.
    let a = (STRIP / s).min((2.0 * ERROR).sqrt());
    let step = (std::f64::consts::TAU * a / (ERROR + 0.5 * a * a)).max(REACH / f64::from(MOST_STEPS));
    #[allow(clippy::cast_possible_truncation, reason = "a number of steps")]
    let reach = ((REACH / step).ceil() as i32).min(MOST_STEPS);
    let (mut sums, mut total) = ([0.0; N], 0.0);
    for k in -reach..=reach {
        let u = step * f64::from(k);
        let weight = (-0.5 * u * u).exp();
        total += weight;
        sums.iter_mut().zip(g(mean + s * u)).for_each(|(sum, value)| *sum += weight * value);
    }
    sums.map(|sum| sum / total)
}

/// Nodes of the trapezoid rule for each of a pair: so many to either side, in steps of so many standard deviations.
const STEPS_OF_TWO: i32 = 6;
const STEP_OF_TWO: f64 = 0.8;

/// E g(a, b) for a normal pair with these means and (Var a, Cov(a, b), Var b), by 13 × 13 nodes: good to 1e-3 for a g of moderate size that is analytic where |Im| < 2.8, up to
/// standard deviations of 3, and to some percent up to 6. A covariance that no pair has is taken for the nearest one that some pair has.
pub fn expectation_of_two<const N: usize>(mean: [f64; 2], covariance: [f64; 3], g: impl Fn([f64; 2]) -> [f64; N]) -> [f64; N] {
    let first = covariance[0].max(0.0).sqrt();
    let second = covariance[2].max(0.0).sqrt();
    let along = if first > 0.0 { (covariance[1] / first).clamp(-second, second) } else { 0.0 };
    let across = (second * second - along * along).max(0.0).sqrt();
    let nodes = || {
        let at = |k: i32| STEP_OF_TWO * f64::from(k);
        (-STEPS_OF_TWO..=STEPS_OF_TWO).map(move |k| (at(k), (-0.5 * at(k) * at(k)).exp()))
    };
    let (mut sums, mut total) = ([0.0; N], 0.0);
    for (u, weight) in nodes() {
        for (v, other) in nodes() {
            let values = g([mean[0] + first * u, mean[1] + along * u + across * v]);
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * other * value);
            total += weight * other;
        }
    }
    sums.map(|sum| sum / total)
}

#[cfg(test)]
mod tests {
    use super::{expectation, expectation_of_two};
    use crate::normal;

    #[test]
    fn moments_of_a_pair_are_those_of_its_covariance() {
        let [one, a, b, square, product, fourth] =
            expectation_of_two([0.5, -1.0], [2.0, -0.6, 1.5], |[a, b]| [1.0, a, b, b * b, a * b, a.powi(4)]);
        let expected = [1.0, 0.5, -1.0, 2.5, -1.1, 0.0625 + 6.0 * 0.25 * 2.0 + 12.0];
        for (value, expected) in [one, a, b, square, product, fourth].into_iter().zip(expected) {
            assert!((value - expected).abs() < 1e-3 * expected.abs().max(0.5), "{value} {expected}");
        }
    }

    #[test]
    fn a_pair_without_variance_is_a_point() {
        assert_eq!(expectation_of_two([2.0, 3.0], [0.0, 0.1, -1.0], |[a, b]| [a, b]).map(|value| (value * 1e12).round()), [2e12, 3e12]);
    }

    /// ln Φ and its derivatives on both sides of every change of the rule, against a fine sum.
    #[test]
    fn all_rules_give_the_same_expectation() {
        for s in [0.0249_f64, 0.0251, 0.0999, 0.1001, 0.3, 0.41, 0.7, 1.0, 2.0, 3.5] {
            for mean in [-6.0, -1.9, -1.5, 0.0, 0.7, 1.9, 3.0] {
                let g = |z: f64| {
                    let at = normal::log_cdf(z);
                    [at.value, at.ratio, at.ratio * at.excess]
                };
                let fine = |part: usize| -> f64 {
                    let nodes = (-1000..=1000).map(|k| 0.01 * f64::from(k));
                    let (sum, total) = nodes
                        .map(|u: f64| ((-0.5 * u * u).exp(), u))
                        .fold((0.0, 0.0), |(sum, total), (w, u)| (sum + w * g(mean + s * u)[part], total + w));
                    sum / total
                };
                for (part, value) in expectation(mean, s * s, g).into_iter().enumerate() {
                    assert!((value - fine(part)).abs() < 1e-11 * (1.0 + fine(part).abs()), "{part} at {mean}, {s}: {value} {}", fine(part));
                }
            }
        }
    }

    /// States come over the network: no variance makes a record slow.
    #[test]
    fn the_number_of_calls_is_bounded() {
        for variance in [0.0, 0.01, 1.0, 1e6, 1e30, f64::MAX, f64::INFINITY, f64::NAN, -1.0] {
            let calls = std::cell::Cell::new(0);
            let _ = expectation(0.5, variance, |z| {
                calls.set(calls.get() + 1);
                [z]
            });
            assert!(calls.get() <= 129, "{} at {variance}", calls.get());
        }
    }
}
