//! Counts with a Gaussian log rate: y ~ Poisson(e^z), z ~ N(a, s²). [`negative_binomial`] has those that spread more.

pub mod negative_binomial;
mod ranked;

pub use ranked::ranked_probability_score;

use crate::expfam::special::ln_gamma;

use crate::normal;

/// Step of the trapezoid rule, as a share of the integrand's own width, and at most, because e^z changes on the scale 1 (its error is then
/// below exp(−π²/0.3)).
const STEPS_OF: (f64, f64) = (0.25, 0.3);
/// The integrand is left out where its logarithm is this far below its maximum.
const DEPTH: f64 = 40.0;
/// Steps to either side, whatever a and s are.
const STEPS: u32 = 5_000;

/// ln ∫ Poisson(y | e^z) N(z | a, s²) dz. Errors are below 1e-10 for s ≤ 100.
#[must_use]
pub fn log_mass(count: f64, mean: f64, variance: f64) -> f64 {
    let mode = |precision| mode(count, mean, precision);
    log_integral(mean, variance, |z| count * z - z.exp(), f64::exp, mode) - ln_gamma(count + 1.0)
}

/// ln ∫ e^g N(z | a, s²) dz for an analytic concave g whose second derivative is −`curvature`, by the trapezoid rule around the integrand's only
/// maximum; `mode` finds it from 1/s².
fn log_integral(mean: f64, variance: f64, g: impl Fn(f64) -> f64, curvature: impl Fn(f64) -> f64, mode: impl FnOnce(f64) -> f64) -> f64 {
    if variance <= 1e-16 {
        return g(mean);
    }
    let precision = 1.0 / variance;
    let log_integrand = |z: f64| g(z) - 0.5 * precision * (z - mean).powi(2);
    let mode = mode(precision);
    let step = (STEPS_OF.0 / (curvature(mode) + precision).sqrt()).min(STEPS_OF.1);
    let peak = log_integrand(mode);
    let side = |direction: f64| -> f64 {
        let terms = (1..=STEPS).map(|k| log_integrand(mode + direction * step * f64::from(k)) - peak);
        terms.take_while(|term| *term > -DEPTH).map(f64::exp).sum()
    };
    let sum = 1.0 + side(1.0) + side(-1.0);
    peak + (sum * step * (precision / (2.0 * std::f64::consts::PI)).sqrt()).ln()
}

/// Standard deviations of z beyond which there is no mass that a double shows.
const WIDEST: f64 = 8.5;
/// Counts above this have no quantile: they are no counts of events.
const MOST: f64 = 1e12;
/// From here on Wilson and Hilferty's normal form of a gamma distribution takes the place of its series, which has √count terms.
const MANY: f64 = 1e4;

/// P(y ≤ count) = E Q(count + 1, e^z), Q the regularised upper incomplete gamma function, whose width in z is about 1/√count. Absolute error below
/// 1e-8 for counts below 10⁴, 1e-6 above, and 5e-4 where z is spread over very many counts. NaN for parameters that are not finite.
#[must_use]
pub fn distribution(count: f64, mean: f64, variance: f64) -> f64 {
    let shape = count + 1.0;
    let below = |z: f64| match z.min(700.0).exp() {
        rate if rate > 0.0 && count < MANY => statrs::function::gamma::gamma_ur(shape, rate),
        rate if rate > 0.0 => normal::cdf(-3.0 * shape.sqrt() * ((rate / shape).cbrt() - 1.0 + 1.0 / (9.0 * shape))),
        _ => 1.0,
    };
    average(count, (mean, variance), shape.sqrt().recip(), below)
}

/// E below(z), the probability of at most `count` given z, by the trapezoid rule with steps that follow the `width` of its fall from 1 to 0. NaN for parameters
/// that are not finite, 0 for a count below 0.
fn average(count: f64, (mean, variance): (f64, f64), width: f64, below: impl Fn(f64) -> f64) -> f64 {
    if !(count.is_finite() && mean.is_finite() && variance.is_finite()) {
        return f64::NAN;
    }
    if count < 0.0 {
        return 0.0;
    }
    let sd = variance.max(0.0).sqrt();
    if sd <= 1e-8 {
        return below(mean);
    }
    let step = (0.6 * width / sd).clamp(1e-3, 0.5);
    let (mut sum, mut weight) = (0.0, 0.0);
    let mut u = -WIDEST;
    while u <= WIDEST {
        let density = (-0.5 * u * u).exp();
        sum += density * below(mean + sd * u);
        weight += density;
        u += step;
    }
    (sum / weight).clamp(0.0, 1.0)
}

/// The smallest count k with P(y ≤ k) ≥ `probability`, which lies in (0, 1); infinity above 10¹², NaN for parameters that are not finite.
#[must_use]
pub fn quantile(probability: f64, mean: f64, variance: f64) -> f64 {
    if !(mean.is_finite() && variance.is_finite()) {
        return f64::NAN;
    }
    smallest(|count| distribution(count, mean, variance) >= probability)
}

/// The smallest count that `reached` says yes to, as it does to all above; infinity above 10¹².
fn smallest(reached: impl Fn(f64) -> bool) -> f64 {
    if reached(0.0) {
        return 0.0;
    }
    let (mut lower, mut upper) = (0.0, 1.0);
    while !reached(upper) {
        (lower, upper) = (upper, 2.0 * upper);
        if upper > MOST {
            return f64::INFINITY;
        }
    }
    while upper - lower > 1.0 {
        let middle = (0.5 * (lower + upper)).floor();
        if reached(middle) { upper = middle } else { lower = middle }
    }
    upper
}

/// argmax y z − e^z − (z − a)²/2s²: Newton's method from the right of the root of a convex decreasing slope, where it cannot overshoot.
fn mode(count: f64, mean: f64, precision: f64) -> f64 {
    // The slope is not positive here: at ln(y + 1) or at a, whichever is larger, both terms pull to the left or vanish.
    let mut z = mean.max((count + 1.0).ln()).min(700.0);
    for _ in 0..200 {
        let slope = count - z.exp() - precision * (z - mean);
        let next = z + slope / (z.exp() + precision);
        if (next - z).abs() <= 1e-12 * (1.0 + z.abs()) {
            return next;
        }
        z = next;
    }
    z
}

#[cfg(test)]
mod tests {
    use super::{distribution, log_mass, quantile};

    /// Masses are a distribution with the moments of a log-normal mixture, and agree with the rule of large steps in the plain variable.
    #[test]
    fn masses_sum_to_one_and_have_the_mixtures_moments() {
        for (mean, variance) in [(0.5_f64, 0.3_f64), (-1.0, 1.0), (1.5, 0.05), (2.0, 0.0)] {
            let (mut total, mut first, mut second) = (0.0, 0.0, 0.0);
            for count in 0..4000 {
                let y = f64::from(count);
                let mass = log_mass(y, mean, variance).exp();
                (total, first, second) = (total + mass, first + y * mass, second + y * y * mass);
            }
            let rate = (mean + 0.5 * variance).exp();
            assert!((total - 1.0).abs() < 1e-9, "{mean} {variance}: {total}");
            assert!((first / rate - 1.0).abs() < 1e-7, "{mean} {variance}: {first} {rate}");
            let expected = rate + rate * rate * variance.exp();
            assert!((second / expected - 1.0).abs() < 1e-5, "{mean} {variance}: {second} {expected}");
        }
    }

    /// The distribution is the sum of the masses, and the quantile is where it first reaches a probability.
    #[test]
    fn distribution_and_quantiles_are_those_of_the_masses() {
        for (mean, variance) in [(0.5_f64, 0.3_f64), (-1.0, 1.0), (3.0, 0.05), (2.0, 0.0), (4.0, 2.0)] {
            let mut total = 0.0;
            let mut wanted = vec![0.025, 0.05, 0.5, 0.95, 0.975];
            for count in 0..3000 {
                let y = f64::from(count);
                total += log_mass(y, mean, variance).exp();
                if count % 7 == 0 || count < 30 {
                    let found = distribution(y, mean, variance);
                    assert!((found - total).abs() < 1e-8, "{mean} {variance} {y}: {found} {total}");
                }
                while let Some(&p) = wanted.first().filter(|p| total >= **p) {
                    assert!((quantile(p, mean, variance) - y).abs() < 0.5, "{mean} {variance} {p}: {} {y}", quantile(p, mean, variance));
                    wanted.remove(0);
                }
            }
            assert!(wanted.is_empty(), "{mean} {variance}: {wanted:?}");
        }
        // Around the count where another form takes over, and far above it.
        assert!((distribution(9_999.0, 1e4_f64.ln(), 0.0) - distribution(10_000.0, 1e4_f64.ln(), 0.0)).abs() < 0.005);
        assert!((distribution(1e9, 1e9_f64.ln(), 0.0) - 0.5).abs() < 1e-4);
        for (mean, variance) in [(27.0, 1e-15), (27.0, 1e-6), (27.0, 0.5), (20.0, 1e-10)] {
            let (low, high) = (quantile(0.025, mean, variance), quantile(0.975, mean, variance));
            assert!(low < high && low <= f64::exp(mean) && f64::exp(mean) <= high, "{mean} {variance}: {low} {high}");
        }
        assert!(quantile(0.5, f64::NAN, 1.0).is_nan() && distribution(1.0, 0.0, f64::INFINITY).is_nan());
        assert!(distribution(-1.0, 0.0, 1.0).abs() < f64::MIN_POSITIVE && quantile(0.5, 60.0, 1.0).is_infinite());
    }

    #[test]
    fn wide_and_far_predictors_stay_finite() {
        for (count, mean, variance) in [(0.0, -30.0, 400.0), (1e4, -5.0, 1.0), (0.0, 600.0, 1.0), (3.0, 0.0, 1e6), (1e6, 20.0, 1e-9)] {
            let mass = log_mass(count, mean, variance);
            assert!(mass.is_finite() && mass <= 0.0, "{count} {mean} {variance}: {mass}");
        }
    }
}
