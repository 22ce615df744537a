//! Gaussian differential privacy: unsampled Gaussian releases, accounted exactly.
//!
//! Dong, Roth & Su (2022): a Gaussian release of sensitivity Δ and noise sd σ is μ-GDP with μ = Δ/σ; adaptive composition
//! adds μ² (Theorem 3.2 and Corollary 3.3 there); μ-GDP is (ε, δ(ε))-DP with (their Corollary 2.13, Balle & Wang 2018)
//!
//! δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).
//!
//! Discrete noise: `lattice_excess`, whose argument is [`crate::proofs::discrete_gaussian`].
//!
//! The sum of μ² is also a fully adaptive filter (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023): later μ may
//! depend on earlier outputs as long as the sum stays within the budget.

use std::f64::consts::SQRT_2;

use crate::count;
use crate::special::erfcx;
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

    /// A total that was written down.
    pub(super) fn of_mu_squared(mu_squared: f64) -> Option<Self> {
        (mu_squared >= 0.0 && mu_squared.is_finite()).then_some(Self { mu_squared })
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
    pub(crate) fn mu_squared(self) -> f64 {
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

    /// By what share δ(ε), at most, is larger for discrete Gaussian noise of parameters s ≥ 2²⁰ than for the continuous noise that is accounted,
    /// after releases of `coordinates` numbers in all: the bound of [`crate::proofs::discrete_gaussian`], at the ε where continuous noise has δ.
    pub(super) fn lattice_excess(self, delta: Delta, coordinates: f64) -> f64 {
        let mu = self.mu();
        if mu == 0.0 {
            return 0.0;
        }
        let epsilon = self.epsilon_upper(delta).get();
        let s = count(super::CONTINUOUS_FROM);
        let b = epsilon / mu + 0.5 * mu;
        // Mills' ratio at b, and the reciprocal of its fall from a to b, times μ.
        let (mills, steep) = (1.2534f64.min(1.0 / b), b * b + 3.0);
        let Some(drift) = self.lattice_drift(coordinates) else { return f64::INFINITY };
        let tail = 4.0 * coordinates * (-0.5 * 20.0f64.powi(2)).exp() / delta.get();
        (drift + 2.0 * drift * mills * steep / mu + steep / (10.0 * s * s) + tail) * 1.01
    }

    /// τ of the same proof, with k = μ + 20. `None`: beyond the numbers for which its expansions are claimed.
    pub(super) fn lattice_drift(self, coordinates: f64) -> Option<f64> {
        let reach = self.mu() + 20.0;
        let drift = coordinates * (1.01 * reach * reach + 2.0).powi(2) / (300.0 * count(super::CONTINUOUS_FROM).powi(4));
        (reach <= 1e4 && drift <= 1e-3).then_some(drift)
    }

    /// A lower bound on δ(ε), and its derivative there by γ = e^ε: −Φ(−ε/μ − μ/2).
    pub(super) fn profile_below(self, epsilon: f64) -> (f64, f64) {
        let (value, error) = self.delta_and_error(epsilon);
        let b = (epsilon / self.mu() + 0.5 * self.mu()) / SQRT_2;
        ((value - error).max(0.0), -0.5 * libm::erfc(b))
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
    #![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
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

    /// δ(ε) of one coordinate of discrete Gaussian noise, shifted by `shift`, as a sum over the lattice.
    fn discrete(shift: i64, scale: f64, epsilon: f64) -> f64 {
        let (u, norm) = (shift as f64, (std::f64::consts::TAU.sqrt() * scale).recip());
        let reach = (14.0 * scale) as i64;
        let term = |x: i64| {
            let y = (x + shift) as f64;
            let loss = (2.0 * y * u - u * u) / (2.0 * scale * scale);
            if loss <= epsilon { 0.0 } else { -norm * (-0.5 * (x as f64 / scale).powi(2)).exp() * (epsilon - loss).exp_m1() }
        };
        (-reach..=reach).rev().map(term).sum()
    }

    /// proofs/discrete_gaussian.md: the excess over continuous noise is μφ(ε/μ − μ/2)/24s² where ε lies in the middle of two losses, which is the
    /// worst place; it falls as 1/s².
    #[test]
    fn the_discrete_gaussian_differs_by_one_over_s_squared() {
        for (mu, delta) in [(0.5, 1e-6), (1.0, 1e-4), (1.0, 1e-9), (4.0, 1e-5)] {
            let gdp = Gdp::of_ratio(mu);
            let target = gdp.epsilon_upper(Delta::new(delta).unwrap()).get();
            for scale in [64i64, 256, 1024] {
                let s = scale as f64;
                let shift = (mu * s) as i64;
                let (u, width) = (shift as f64, shift as f64 / (s * s));
                // The loss of the lattice point below the target.
                let point = ((target + 0.5 * mu * mu) / width).floor() * width - 0.5 * u * u / (s * s);
                let relative = |phase: f64| {
                    let epsilon = point + phase * width;
                    let exact = gdp.delta(Epsilon::new(epsilon).unwrap());
                    let normal = (-0.5 * (epsilon / mu - 0.5 * mu).powi(2)).exp() / std::f64::consts::TAU.sqrt();
                    let term = mu * normal / (24.0 * s * s * exact);
                    (discrete(shift, s, epsilon) / exact - 1.0) / term
                };
                let middle = relative(0.5);
                assert!((middle - 1.0).abs() < 0.02 + 3.0 / s, "mu {mu} delta {delta:e} s {s}: {middle}");
                for phase in [0.0, 0.1, 0.25, 0.4, 0.75, 0.9] {
                    assert!(relative(phase) < middle, "mu {mu} delta {delta:e} s {s} at {phase}");
                }
            }
        }
        // The figure of the accountant's documentation, at s = 1024.
        let (gdp, epsilon) = (Gdp::of_ratio(1.0), Gdp::of_ratio(1.0).epsilon_upper(Delta::new(1e-4).unwrap()).get());
        let near = (0..200).map(|k| epsilon + f64::from(k) * 1e-5);
        let worst = near.map(|e| discrete(1024, 1024.0, e) / gdp.delta(Epsilon::new(e).unwrap()) - 1.0).fold(0.0, f64::max);
        assert!((worst / 6.7e-7 - 1.0).abs() < 0.02, "{worst:e}");
    }

    /// proofs/discrete_gaussian.md, lemma 1: discrete noise of parameter s against continuous noise of variance σ², 1/s² = b − b²/12 with b = 1/σ²,
    /// rounded to integers.
    #[test]
    fn a_discrete_gaussian_is_a_rounded_continuous_one() {
        for s in [32.0f64, 64.0, 200.0] {
            // b − b²/12 = 1/s².
            let b = 6.0 * (1.0 - (1.0 - 1.0 / (3.0 * s * s)).sqrt());
            assert!(s * s * b >= 1.0 && s * s * b <= 1.0 + 0.1 / (s * s), "{}", s * s * b - 1.0);
            for k in 0..=20i32 {
                let x = f64::from(k) * s;
                // ln of the mean of e^{−xbt − bt²/2} over t in [−½, ½], by Simpson's rule; minus (a² − b)/24.
                let (a, n) = (x * b, 400);
                let value = |i: i32| {
                    let t = f64::from(i) / f64::from(n) - 0.5;
                    (-a * t - 0.5 * b * t * t).exp_m1()
                };
                let weight = |i: i32| {
                    if i == 0 || i == n {
                        1.0
                    } else if i % 2 == 1 {
                        4.0
                    } else {
                        2.0
                    }
                };
                let mean: f64 = (0..=n).map(|i| weight(i) * value(i)).sum::<f64>() / (3.0 * f64::from(n));
                let rest = mean.ln_1p() - (a * a - b) / 24.0;
                let bound = (a * a + b).powi(2) / 300.0;
                assert!(rest.abs() <= bound + 4e-15, "s {s} x {x}: {rest:e} {bound:e}");
            }
        }
    }

    /// What the margin has to cover is far below it, as long as not more than 2⁴⁰ numbers are released.
    #[test]
    fn the_margin_covers_discrete_noise() {
        for mu in [0.01, 0.05, 0.27, 1.0, 4.0, 16.0, 60.0] {
            for delta in [1e-2, 1e-5, 1e-9, 1e-15] {
                let excess = |coordinates| Gdp::of_ratio(mu).lattice_excess(Delta::new(delta).unwrap(), coordinates);
                assert!(excess(1e9) < 5e-7, "mu {mu} delta {delta:e}: {:e}", excess(1e9));
                assert!(excess(1e12) < 5e-7 || !(0.2..20.0).contains(&mu), "mu {mu} delta {delta:e}: {:e}", excess(1e12));
                assert!(excess(1e15) > excess(1e12) && excess(1e25).is_infinite());
            }
        }
    }
}
