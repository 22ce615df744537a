//! Expectations of functions of a normal variable.
//!
//! With s its standard deviation, the trapezoid rule of step h in units of s is wrong by about exp(a²/2 − 2πa/h) for every a up to which the function is analytic,
//! s a < 3 (Trefethen and Weideman 2014). Gauss and Hermite's rule of five points is wrong by about 945 (s/3)^10, and cheaper where s is small.

/// Reach of the trapezoid rule in standard deviations, and its steps: the finer one for predictors that are less certain than `CERTAIN`.
const REACH: f64 = 9.0;
const STEPS: [f64; 2] = [0.75, 0.25];
const CERTAIN: f64 = 0.4;

/// Gauss and Hermite's rule of five points, and up to which standard deviation it is used: it integrates polynomials of degree 9 exactly.
const POINTS: [f64; 3] = [0.0, 1.355_626_179_974_266, 2.856_970_013_872_806];
const WEIGHTS: [f64; 3] = [8.0 / 15.0, 0.222_075_922_005_612_66, 0.011_257_411_327_720_691];
const VERY_CERTAIN: f64 = 0.1;

/// E g(z) for z ~ N(`mean`, `variance`); a negative variance counts as 0. The error is below 1e-11 for a g of moderate size that is analytic where |Im z| < 3.
pub fn expectation<const N: usize>(mean: f64, variance: f64, g: impl Fn(f64) -> [f64; N]) -> [f64; N] {
    let s = variance.max(0.0).sqrt();
    if s <= VERY_CERTAIN {
        let mut sums = g(mean).map(|value| value * WEIGHTS[0]);
        for (point, weight) in POINTS.iter().zip(&WEIGHTS).skip(1) {
            let (above, below) = (g(mean + s * point), g(mean - s * point));
            sums.iter_mut().zip(above.iter().zip(&below)).for_each(|(sum, (above, below))| *sum += weight * (above + below));
        }
        return sums;
    }
    let step = STEPS[usize::from(s > CERTAIN)];
    #[allow(clippy::cast_possible_truncation, reason = "a number of steps")]
    let reach = (REACH / step) as i32;
    let (mut sums, mut total) = ([0.0; N], 0.0);
    for k in -reach..=reach {
        let u = step * f64::from(k);
        let weight = (-0.5 * u * u).exp();
        total += weight;
        sums.iter_mut().zip(g(mean + s * u)).for_each(|(sum, value)| *sum += weight * value);
    }
    sums.map(|sum| sum / total)
}

#[cfg(test)]
mod tests {
    use super::expectation;
    use crate::normal;

    /// ln Φ and its derivatives on both sides of every change of the rule, against a fine sum.
    #[test]
    fn all_rules_give_the_same_expectation() {
        for s in [0.02_f64, 0.0999, 0.1001, 0.3999, 0.4001, 2.0] {
            for mean in [-6.0, -1.5, 0.0, 0.7, 3.0] {
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
}
