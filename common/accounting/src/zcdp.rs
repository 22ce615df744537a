//! Zero-concentrated differential privacy (Bun & Steinke 2016): the accountant of unsampled discrete Gaussians on coarse
//! lattices, for which it is proved.
//!
//! A discrete Gaussian of parameter s on integer vectors of sensitivity Δ is Δ²/(2s²)-zCDP (Canonne, Kamath & Steinke
//! 2020, Theorem 14 and Corollary 16); ρ adds, also fully adaptively (Feldman & Zrnic 2021).

use crate::rdp;
use crate::unit::{Delta, Epsilon};

/// Total ρ of a composition.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Zcdp {
    rho: f64,
}

impl Zcdp {
    /// One release whose sensitivity is `ratio` times the noise's scale: ρ = ratio²/2.
    #[must_use]
    pub fn of_ratio(ratio: f64) -> Self {
        Self { rho: 0.5 * (ratio * ratio).next_up() }
    }

    /// `times` such compositions. Rounded up.
    #[must_use]
    pub fn repeated(self, times: u64) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "rounded up")]
        let times = times as f64 * (1.0 + f64::EPSILON);
        Self { rho: (self.rho * times).next_up() }
    }

    /// Adaptive composition: ρ adds. Rounded up.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { rho: (self.rho + other.rho).next_up() }
    }

    /// ρ of the whole.
    #[must_use]
    pub fn rho(self) -> f64 {
        self.rho
    }

    /// Upper bound on ε(δ): the best conversion over all orders α > 1 of the Rényi curve αρ (Canonne, Kamath & Steinke
    /// 2020, Proposition 12). Every order gives a bound, so the search need not be exact.
    #[must_use]
    pub fn epsilon_upper(self, delta: Delta) -> Epsilon {
        if !self.rho.is_finite() {
            return Epsilon::INFINITE;
        }
        if self.rho == 0.0 {
            return Epsilon::ZERO;
        }
        let at = |log_excess: f64| {
            let alpha = 1.0 + log_excess.exp();
            rdp::to_epsilon(alpha, (alpha * self.rho).next_up(), delta)
        };
        // Unimodal in ln(α − 1): golden-section search.
        let golden = 0.5 * (5f64.sqrt() - 1.0);
        let (mut low, mut high) = (-40.0, 40.0);
        for _ in 0..120 {
            let (left, right) = (high - golden * (high - low), low + golden * (high - low));
            if at(left) <= at(right) { high = right } else { low = left }
        }
        Epsilon::new(at(0.5 * (low + high)).max(0.0)).unwrap_or(Epsilon::INFINITE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gdp::Gdp;

    #[test]
    fn zcdp_is_above_the_exact_gaussian_and_not_far() {
        for ratio in [0.01, 0.1, 1.0, 3.0] {
            for delta in [1e-3, 1e-5, 1e-10] {
                let delta = Delta::new(delta).unwrap();
                let upper = Zcdp::of_ratio(ratio).epsilon_upper(delta).get();
                let exact = Gdp::of_ratio(ratio).epsilon_upper(delta).get();
                assert!(upper >= exact && upper <= 1.2 * exact + 0.01, "{ratio} {delta:?}: {upper} {exact}");
            }
        }
    }
}
