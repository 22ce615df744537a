//! Counts that spread more than Poisson's: y ~ Poisson(g e^z) with z ~ N(a, s²) and g of a gamma distribution with mean 1 and variance 1/φ, so that
//! Var(y | z) = m + m²/φ with m = e^z. φ is called the dispersion; φ = ∞ is Poisson.
//!
//! With w = z − ln φ, ln p(y | z) = ln Γ(y + φ) − ln Γ(φ) − ln y! + y w − (y + φ) ln(1 + e^w), which is concave in z.
//!
//! **Source**: Hilbe 2011, *Negative binomial regression*, chapter 8 (there NB2, with α = 1/φ).

use crate::expfam::special::ln_gamma;

use super::{MANY, average, log_integral, smallest};

/// Newton's steps, or halvings, towards a mode.
const ITERATIONS: usize = 200;

/// What of ln p(y | z) does not depend on z: ln Γ(y + φ) − ln Γ(φ) − ln y!.
#[must_use]
pub fn log_constant(count: f64, dispersion: f64) -> f64 {
    ln_gamma(count + dispersion) - ln_gamma(dispersion) - ln_gamma(count + 1.0)
}

/// ln p(y), z integrated out. Errors are below 1e-10 for s ≤ 100 and φ ≤ 10⁴, and grow with φ beyond.
#[must_use]
pub fn log_mass(count: f64, dispersion: f64, mean: f64, variance: f64) -> f64 {
    if dispersion.is_infinite() {
        return super::log_mass(count, mean, variance);
    }
    let (total, centre) = (count + dispersion, mean - dispersion.ln());
    let g = |w: f64| count * w - total * (w.max(0.0) + (-w.abs()).exp().ln_1p());
    let curvature = |w: f64| total * sigmoid(w) * sigmoid(-w);
    let mode = |precision| mode(count, dispersion, centre, precision);
    log_integral(centre, variance, g, curvature, mode) + log_constant(count, dispersion)
}

/// P(y ≤ count). Absolute error below 1e-8 for counts and φ below 10⁴, and 1e-3 above: for such φ the logarithm of g is taken for normal, and for such counts
/// y for a gamma variable of the same mean and variance given z. NaN for parameters that are not finite.
#[must_use]
pub fn distribution(count: f64, dispersion: f64, mean: f64, variance: f64) -> f64 {
    if dispersion >= MANY {
        return super::distribution(count, mean - 0.5 / dispersion, variance + 1.0 / dispersion);
    }
    let below = |z: f64| {
        let rate = z.min(700.0).exp();
        if rate <= 0.0 {
            return 1.0;
        }
        if count < MANY {
            return statrs::function::beta::beta_reg(dispersion, count + 1.0, dispersion / (dispersion + rate));
        }
        let shape = dispersion / (1.0 + dispersion / rate);
        statrs::function::gamma::gamma_lr(shape, shape * (count + 0.5) / rate)
    };
    average(count, (mean, variance), (1.0 / (count + 1.0) + 1.0 / dispersion).sqrt(), below)
}

/// The smallest count k with P(y ≤ k) ≥ `probability`, which lies in (0, 1); infinity above 10¹², NaN for parameters that are not finite.
#[must_use]
pub fn quantile(probability: f64, dispersion: f64, mean: f64, variance: f64) -> f64 {
    if !(mean.is_finite() && variance.is_finite()) {
        return f64::NAN;
    }
    smallest(|count| distribution(count, dispersion, mean, variance) >= probability)
}

fn sigmoid(w: f64) -> f64 {
    1.0 / (1.0 + (-w).exp())
}

/// argmax y w − (y + φ) ln(1 + e^w) − (w − b)²/2s²: Newton's method within a bracket of the root of a decreasing slope. Every third step halves the bracket, so
/// that no circle of Newton's steps lasts.
fn mode(count: f64, dispersion: f64, centre: f64, precision: f64) -> f64 {
    let total = count + dispersion;
    // The slope without the last term lies in (−φ, y).
    let (mut low, mut high) = (centre - dispersion / precision, centre + count / precision);
    let mut w = centre;
    for k in 0..ITERATIONS {
        let slope = count - total * sigmoid(w) - precision * (w - centre);
        *(if slope > 0.0 { &mut low } else { &mut high }) = w;
        let newton = w + slope / (total * sigmoid(w) * sigmoid(-w) + precision);
        let next = if k % 3 < 2 && newton >= low && newton <= high { newton } else { f64::midpoint(low, high) };
        if (next - w).abs() <= 1e-12 * (1.0 + w.abs()) {
            return next;
        }
        w = next;
    }
    w
}

#[cfg(test)]
mod tests {
    use super::{distribution, log_mass, quantile};

    #[test]
    fn masses_sum_to_one_and_have_the_mixtures_moments() {
        for (dispersion, mean, variance) in [(1.7, 0.5, 0.3), (0.4, -1.0, 0.5), (30.0, 1.5, 0.05), (2.5, 2.0, 0.0), (1e5, 1.0, 0.2)] {
            let (mut total, mut first, mut second) = (0.0, 0.0, 0.0);
            for count in 0..6000 {
                let y = f64::from(count);
                let mass = log_mass(y, dispersion, mean, variance).exp();
                (total, first, second) = (total + mass, first + y * mass, second + y * y * mass);
            }
            let rate = (mean + 0.5 * variance).exp();
            assert!((total - 1.0).abs() < 1e-8, "{dispersion} {mean} {variance}: {total}");
            assert!((first / rate - 1.0).abs() < 1e-6, "{dispersion} {mean} {variance}: {first} {rate}");
            let expected = rate + rate * rate * variance.exp() * (1.0 + 1.0 / dispersion);
            assert!((second / expected - 1.0).abs() < 1e-4, "{dispersion} {mean} {variance}: {second} {expected}");
        }
    }

    #[test]
    fn a_certain_predictor_gives_the_published_mass() {
        // With φ = 1 the masses are those of a geometric distribution: p (1 − p)^y with p = 1/(1 + m).
        for y in [0.0, 1.0, 7.0] {
            let expected = (1.0_f64 / 3.0).ln() + y * (2.0_f64 / 3.0).ln();
            assert!((log_mass(y, 1.0, 2f64.ln(), 0.0) - expected).abs() < 1e-13);
        }
    }

    /// The distribution is the sum of the masses, and the quantile is where it first reaches a probability.
    #[test]
    fn distribution_and_quantiles_are_those_of_the_masses() {
        let laws = [
            (1.7_f64, 0.5_f64, 0.3_f64, 1e-8),
            (0.3, 1.0, 0.0, 1e-8),
            (40.0, 3.0, 0.05, 1e-8),
            (9e3, 4.0, 0.5, 1e-8),
            (2e4, 4.0, 0.0, 1e-4),
        ];
        for (dispersion, mean, variance, tolerance) in laws {
            let mut total = 0.0;
            let mut wanted = vec![0.025, 0.05, 0.5, 0.95, 0.975];
            for count in 0..3000 {
                let y = f64::from(count);
                total += log_mass(y, dispersion, mean, variance).exp();
                if count % 7 == 0 || count < 30 {
                    let found = distribution(y, dispersion, mean, variance);
                    assert!((found - total).abs() < tolerance, "{dispersion} {mean} {variance} {y}: {found} {total}");
                }
                while let Some(&p) = wanted.first().filter(|p| total >= **p) {
                    let found = quantile(p, dispersion, mean, variance);
                    assert!((found - y).abs() < 0.5, "{dispersion} {mean} {variance} {p}: {found} {y}");
                    wanted.remove(0);
                }
            }
            assert!(wanted.is_empty(), "{dispersion} {mean} {variance}: {wanted:?}");
        }
    }

    #[test]
    fn forms_for_large_counts_and_dispersions_join_the_others() {
        let mean = 1e4_f64.ln();
        let around = |count: f64, dispersion: f64| distribution(count, dispersion, mean, 0.0);
        for dispersion in [0.5, 4.0, 300.0, 9_999.0] {
            let step = around(10_000.0, dispersion) - around(9_999.0, dispersion);
            assert!((step - log_mass(10_000.0, dispersion, mean, 0.0).exp()).abs() < 1e-3, "{dispersion}: {step}");
        }
        assert!((around(9_500.0, 9_999.0) - around(9_500.0, 10_000.0)).abs() < 1e-3);
        assert!((distribution(4.0, f64::INFINITY, 1.0, 0.3) - super::super::distribution(4.0, 1.0, 0.3)).abs() < 1e-15);
        assert!((log_mass(4.0, f64::INFINITY, 1.0, 0.3) - super::super::log_mass(4.0, 1.0, 0.3)).abs() < 1e-15);
        assert!((log_mass(4.0, 1e6, 1.0, 0.3) - super::super::log_mass(4.0, 1.0, 0.3)).abs() < 1e-5);
    }

    #[test]
    fn wide_and_far_predictors_stay_finite() {
        for (count, mean, variance) in [(0.0, -30.0, 400.0), (1e4, -5.0, 1.0), (0.0, 600.0, 1.0), (3.0, 0.0, 1e4), (1e6, 20.0, 1e-9)] {
            for dispersion in [1e-6, 0.3, 20.0, 1e6] {
                let mass = log_mass(count, dispersion, mean, variance);
                assert!(mass.is_finite() && mass <= 1e-6, "{count} {dispersion} {mean} {variance}: {mass}");
                let below = distribution(count, dispersion, mean, variance);
                assert!((0.0..=1.0).contains(&below), "{count} {dispersion} {mean} {variance}: {below}");
            }
        }
        assert!(quantile(0.5, 2.0, f64::NAN, 1.0).is_nan() && distribution(-1.0, 2.0, 0.0, 1.0).abs() < f64::MIN_POSITIVE);
        assert!(quantile(0.5, 2.0, 60.0, 1.0).is_infinite());
    }
}
