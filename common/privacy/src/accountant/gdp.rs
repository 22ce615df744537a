//! Gaussian differential privacy: unsampled Gaussian releases, accounted exactly.
//!
//! Dong, Roth & Su (2022): a Gaussian release of sensitivity Δ and noise sd σ is μ-GDP with μ = Δ/σ; adaptive composition
//! adds μ² (Theorem 3.2 and Corollary 3.3 there); μ-GDP is (ε, δ(ε))-DP with (their Corollary 2.13, Balle & Wang 2018)
//!
//! δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).
//!
//! The sum of μ² is also a fully adaptive filter (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023): later μ may
//! depend on earlier outputs as long as the sum stays within the budget.

use std::f64::consts::SQRT_2;

use crate::accountant::special::erfcx;
use crate::unit::{Delta, Epsilon};

/// Total of squared μ of a composition of unsampled Gaussian releases.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gdp {
    mu_squared: f64,
}

impl Gdp {
    /// One release whose sensitivity is `ratio` times the noise's standard deviation.
    #[must_use]
    pub fn of_ratio(ratio: f64) -> Self {
        Self { mu_squared: (ratio * ratio).next_up() }
    }

    /// `times` such compositions. Rounded up.
    #[must_use]
    pub fn repeated(self, times: u64) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "rounded up")]
        let times = times as f64 * (1.0 + f64::EPSILON);
        Self { mu_squared: (self.mu_squared * times).next_up() }
    }

    /// Adaptive composition: μ² adds. Rounded up.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let sum = self.mu_squared + other.mu_squared;
        let exact = self.mu_squared == 0.0 || other.mu_squared == 0.0;
        Self { mu_squared: if exact { sum } else { sum.next_up() } }
    }

    /// μ of the whole.
    #[must_use]
    pub fn mu(self) -> f64 {
        self.mu_squared.sqrt()
    }

    /// Squared μ.
    #[must_use]
    pub fn mu_squared(self) -> f64 {
        self.mu_squared
    }

    /// δ(ε): the smallest δ for which the composition is (ε, δ)-DP, to 1e-12 relative.
    #[must_use]
    pub fn delta(self, epsilon: Epsilon) -> f64 {
        let (value, _) = self.delta_and_error(epsilon.get());
        value.max(0.0)
    }

    /// An upper bound on ε(δ) that exceeds it by at most 1e-12 relative where ε ≥ 1e-3.
    #[must_use]
    pub fn epsilon_upper(self, delta: Delta) -> Epsilon {
        let delta = delta.get();
        let below = |epsilon: f64| {
            let (value, error) = self.delta_and_error(epsilon);
            value + error <= delta
        };
        if !self.mu_squared.is_finite() {
            return Epsilon::INFINITE;
        }
        if self.mu_squared == 0.0 || below(0.0) {
            return Epsilon::ZERO;
        }
        // Chernoff (zCDP) bound: δ at this ε is below the target.
        let mut high = 0.5 * self.mu_squared + self.mu() * (-2.0 * delta.ln()).sqrt();
        while !below(high) {
            high *= 1.01;
        }
        let mut low = 0.0;
        while high - low > 4.0 * f64::EPSILON * high {
            let middle = 0.5 * (low + high);
            if below(middle) { high = middle } else { low = middle }
        }
        // `high` is finite and not negative.
        Epsilon::new(high).unwrap_or(Epsilon::INFINITE)
    }

    /// δ(ε) and a bound on its rounding error.
    ///
    /// With a = (ε/μ − μ/2)/√2 and b = (ε/μ + μ/2)/√2, b² − a² = ε, so δ = ½e^{−a²}(erfcx(a) − erfcx(b)): no difference of
    /// exponentials, no overflow.
    fn delta_and_error(self, epsilon: f64) -> (f64, f64) {
        let mu = self.mu();
        if epsilon == f64::INFINITY || mu == 0.0 {
            return (0.0, 0.0);
        }
        let a = (epsilon / mu - 0.5 * mu) / SQRT_2;
        let b = (epsilon / mu + 0.5 * mu) / SQRT_2;
        let scale = 0.5 * (-a * a).exp();
        let (first, second) = if a > -20.0 { (scale * erfcx(a), scale * erfcx(b)) } else { (1.0, scale * erfcx(b)) };
        // erfcx is good to 4 ulp; a and b carry 2 ulp each, which move e^{−a²} by 4a² ulp.
        let error = (first * 4.0 + second * 4.0 + (first - second).abs() * (4.0 * a * a + 4.0)) * f64::EPSILON;
        (first - second, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Balle & Wang: at ε = 0, δ is the total variation distance 2Φ(μ/2) − 1.
    #[test]
    fn balle_wang_delta_at_zero_is_total_variation() {
        for mu in [1e-6, 1e-3, 0.1, 1.0, 5.0] {
            let expected = libm::erf(mu / 2.0 / SQRT_2);
            let actual = Gdp::of_ratio(mu).delta(Epsilon::ZERO);
            assert!((actual - expected).abs() <= 1e-9 * expected, "mu {mu}: {actual:e} {expected:e}");
        }
    }

    #[test]
    fn epsilon_and_delta_are_inverse_over_the_whole_range() {
        for mu in [1e-3, 0.05, 0.3, 1.0, 4.0, 30.0, 1e4] {
            for delta in [0.3, 1e-3, 1e-6, 1e-12, 1e-15, 1e-300] {
                let gdp = Gdp::of_ratio(mu);
                let epsilon = gdp.epsilon_upper(Delta::new(delta).unwrap());
                let back = gdp.delta(epsilon);
                assert!(back <= delta, "mu {mu} delta {delta:e}: {back:e}");
                if epsilon.get() > 0.0 {
                    let slack = Epsilon::new(epsilon.get() * (1.0 - 2e-12)).unwrap();
                    let (value, error) = gdp.delta_and_error(slack.get());
                    assert!(epsilon.get() < 1e-3 || value + error > delta, "mu {mu} delta {delta:e}: not tight");
                }
            }
        }
    }

    #[test]
    fn extremes_give_answers() {
        assert_eq!(Gdp::default().epsilon_upper(Delta::new(1e-9).unwrap()), Epsilon::ZERO);
        assert_eq!(Gdp::of_ratio(f64::INFINITY).epsilon_upper(Delta::new(1e-9).unwrap()), Epsilon::INFINITE);
        let large = Gdp::of_ratio(1e6).repeated(1_000_000_000).epsilon_upper(Delta::new(1e-15).unwrap()).get();
        assert!(large.is_finite() && large > 4.9e20, "{large}");
    }
}
