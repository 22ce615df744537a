//! Numbers with heavy tails around a Gaussian predictor: y = z + σ t with z ~ N(a, s²) and t of Student's distribution with ν degrees of freedom.
//!
//! t is normal with variance 1/w for w ~ Gamma(ν/2, ν/2), so y ~ N(a, s² + σ²/w) given w. Integrals are over x = ln w, by the trapezoid rule: the integrands
//! are analytic where |Im x| < π/2, whatever the ratio of s and σ is.

/// Steps of the rule, in units of 1 and of the standard deviation of x, √(2/ν); the shorter one counts.
const STEP: f64 = 0.25;
/// Weights are left out where their logarithm is this far below the largest.
const DEPTH: f64 = 40.0;
/// Halvings of a bracket.
const HALVINGS: usize = 60;

/// The sum of a normal variable and of one of Student's distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormalPlusStudent {
    /// a.
    pub mean: f64,
    /// s².
    pub variance: f64,
    /// σ, above 0.
    pub scale: f64,
    /// ν, above 0.
    pub degrees_of_freedom: f64,
}

impl NormalPlusStudent {
    /// ln p(y). Relative error of p below 1e-10.
    #[must_use]
    pub fn log_density(&self, y: f64) -> f64 {
        let square = (y - self.mean).powi(2);
        // An outlier is one whose w is small: the integrand's maximum moves there.
        let further = (square / (self.degrees_of_freedom * self.scale * self.scale)).ln_1p();
        let log_terms = self.grid(further).map(|x| {
            let variance = self.variance_at(x);
            (self.log_weight(x), -0.5 * ((std::f64::consts::TAU * variance).ln() + square / variance))
        });
        let largest = log_terms.clone().map(|(weight, density)| weight + density).fold(f64::NEG_INFINITY, f64::max);
        let (sum, total) =
            log_terms.fold((0.0, 0.0), |(sum, total), (weight, density)| (sum + (weight + density - largest).exp(), total + weight.exp()));
        largest + sum.ln() - total.ln()
    }

    /// P(Y ≤ y). Absolute error below 1e-10.
    #[must_use]
    pub fn distribution(&self, y: f64) -> f64 {
        let (sum, total) = self.grid(0.0).fold((0.0, 0.0), |(sum, total), x| {
            let weight = self.log_weight(x).exp();
            (sum + weight * 0.5 * libm::erfc((self.mean - y) / (2.0 * self.variance_at(x)).sqrt()), total + weight)
        });
        sum / total
    }

    /// The y with P(Y ≤ y) = `probability`, which lies in (0, 1), by bisection; NaN for parameters that are not finite.
    #[must_use]
    pub fn quantile(&self, probability: f64) -> f64 {
        let reached = |distance: f64| 1.0 - self.distribution(self.mean - distance) >= probability.max(1.0 - probability);
        let (mut low, mut high) = (0.0, self.variance.sqrt() + self.scale);
        if !(high.is_finite() && self.mean.is_finite()) {
            return f64::NAN;
        }
        while !reached(high) && high.is_finite() {
            (low, high) = (high, 2.0 * high);
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            *(if reached(middle) { &mut high } else { &mut low }) = middle;
        }
        self.mean + high.copysign(probability - 0.5)
    }

    /// Nodes of x: as far down as e^((ν/2)(x − e^x + 1)) ≥ e^(−`DEPTH`), and `further`, and as far up. With t = |x|, e^x − 1 − x is at least t²/(2 + t) below 0 and t²/2
    /// above.
    fn grid(&self, further: f64) -> impl Iterator<Item = f64> + Clone + use<> {
        let depth = 2.0 * DEPTH / self.degrees_of_freedom;
        let (down, up) = (0.5 * depth + (0.25 * depth * depth + 2.0 * depth).sqrt() + further, (2.0 * depth).sqrt());
        let step = STEP * (2.0 / self.degrees_of_freedom).sqrt().min(1.0);
        #[allow(clippy::cast_possible_truncation, reason = "a number of steps")]
        let (down, up) = ((down / step).ceil() as i32, (up / step).ceil() as i32);
        (-down..=up).map(move |k| step * f64::from(k))
    }

    /// Logarithm of the density of x over its largest.
    fn log_weight(&self, x: f64) -> f64 {
        0.5 * self.degrees_of_freedom * (x - x.exp() + 1.0)
    }

    /// s² + σ²/w.
    fn variance_at(&self, x: f64) -> f64 {
        self.variance.max(0.0) + self.scale * self.scale * (-x).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::NormalPlusStudent;
    use crate::expfam::special::ln_gamma;

    fn law(mean: f64, variance: f64, scale: f64, degrees_of_freedom: f64) -> NormalPlusStudent {
        NormalPlusStudent { mean, variance, scale, degrees_of_freedom }
    }

    #[test]
    fn a_certain_predictor_leaves_the_density_of_student() {
        for nu in [2.1_f64, 4.0, 30.0, 1000.0] {
            let constant = ln_gamma(0.5 * (nu + 1.0)) - ln_gamma(0.5 * nu) - 0.5 * (std::f64::consts::PI * nu).ln();
            for t in [0.0_f64, 0.7, -3.0, 1e3] {
                let expected = constant - 0.5 * (nu + 1.0) * (t * t / nu).ln_1p() - 0.5_f64.ln();
                let found = law(1.0, 0.0, 0.5, nu).log_density(1.0 + 0.5 * t);
                assert!((found - expected).abs() < 1e-9 * (1.0 + expected.abs()), "{nu} {t}: {found} {expected}");
            }
        }
    }

    /// Of t with four degrees of freedom: P(t ≤ 2.1318467863266499) = 0.95, P(t ≤ 2.7764451051977943) = 0.975.
    #[test]
    fn quantiles_are_those_of_tables() {
        let law = law(3.0, 0.0, 2.0, 4.0);
        assert!((law.quantile(0.95) - (3.0 + 2.0 * 2.131_846_786_326_65)).abs() < 1e-8);
        assert!((law.quantile(0.025) - (3.0 - 2.0 * 2.776_445_105_197_794)).abs() < 1e-8);
        assert!((law.quantile(0.5) - 3.0).abs() < 1e-8);
    }

    /// The density, by fine sums, has mass 1 and the stated variance, and its sum is the distribution.
    #[test]
    fn density_and_distribution_belong_together() {
        for (variance, scale, nu) in [(0.3, 0.8, 9.0), (4.0, 0.02, 12.0), (1e-4, 1.0, 8.0), (1.0, 1.0, 900.0)] {
            let law = law(-0.4, variance, scale, nu);
            let sd: f64 = (variance + scale * scale * nu / (nu - 2.0)).sqrt();
            let (step, mut mass, mut second) = (0.02 * sd, 0.0, 0.0);
            for k in -6000..=6000 {
                let y = -0.4 + step * f64::from(k);
                let part = step * law.log_density(y).exp();
                if k == 40 || k == -77 {
                    // The sum's own error is about step²/12 times the slope of the density.
                    assert!((law.distribution(y) - mass - 0.5 * part).abs() < 2e-5, "{variance} {scale} {nu}");
                }
                (mass, second) = (mass + part, second + part * (y + 0.4).powi(2));
            }
            assert!((mass - 1.0).abs() < 1e-8 && (second / (sd * sd) - 1.0).abs() < 1e-4, "{variance} {scale} {nu}: {mass} {second}");
        }
    }

    #[test]
    fn what_is_far_away_or_no_number_does_no_harm() {
        assert!(law(0.0, 1.0, 1e-6, 4.0).log_density(1e9).is_finite());
        assert!(law(0.0, 1e12, 1.0, 2.001).quantile(0.975).is_finite());
        assert!(law(f64::NAN, 1.0, 1.0, 4.0).quantile(0.5).is_nan());
        assert!(law(0.0, f64::INFINITY, 1.0, 4.0).quantile(0.5).is_nan());
    }
}
