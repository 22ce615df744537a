//! Rényi differential privacy at fixed orders: the accountant of Poisson-sampled Gaussians.
//!
//! Let s be the noise scale and r = (shift of one unit)/s.
//!
//! * **Unsampled**: D_α = αr²/2 (Mironov 2017, Proposition 7; discrete noise: Canonne, Kamath & Steinke 2020, Corollary 16).
//! * **Poisson, one unit present or absent**: mixture (1−q)N(0) + qN(r) against N(0). At integer α the moment is the
//!   binomial sum E = Σ_k C(α,k)(1−q)^{α−k}q^k e^{k(k−1)r²/2} (Mironov, Talwar & Zhang 2019, section 3.3). For a discrete
//!   Gaussian and an integer shift vector the very same sum is exact, because Σ_x exp(−(x−ku)²/2s²) over the integers does
//!   not depend on the integer vector ku: no margin is needed. The other direction, N(0) against the mixture, is never larger (their Theorem 5; it needs only the reflection x ↦ u − x, which maps the lattice onto itself). Between integer
//!   orders (α−1)D_α is convex, so a chord is an upper bound.
//! * **Poisson, one unit replaced** (or a sampled shard that changes): the replace pair, (1−q)N(0) + qN(r) against
//!   (1−q)N(0) + qN(−r), which dominates every other choice ([`crate::proofs::poisson_replace`]): one-dimensional quadrature.
//!   Discrete noise is booked like this only on fine lattices and with the stated margin; on coarse ones the sampling is
//!   not counted (joint quasi-convexity of D_α: the pair N(r), N(−r), D_α = α(2r)²/2).
//!
//! Conversion: (α, D)-RDP gives ε = D + ln(1 − 1/α) − (ln δ + ln α)/(α − 1) (Canonne, Kamath & Steinke 2020, Proposition 12;
//! Balle et al. 2020, Theorem 21).
//!
//! Every sum is arranged without cancellation (E − 1 is a sum of non-negative terms) and rounded up.

use std::sync::LazyLock;

use crate::pld::{self, Pair};
use crate::special::log_add;
use crate::unit::{Delta, Epsilon, SamplingRate};

/// The orders at which every curve is kept, ascending.
pub static ORDERS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let mut orders = vec![1.125, 1.25, 1.375, 1.5, 1.75];
    // From 2 on in twelve steps or more an octave: the best order is missed by a few per cent at most.
    for (from, to, step) in [
        (8, 16, 1),
        (16, 32, 2),
        (32, 96, 4),
        (96, 192, 8),
        (192, 384, 16),
        (384, 768, 32),
        (768, 1536, 64),
        (1536, 3072, 128),
        (3072, 4096, 256),
    ] {
        orders.extend((from..to).step_by(step).map(|quarter| f64::from(quarter) / 4.0));
    }
    orders.push(1024.0);
    orders
});

/// Above this α·r² the quadrature of the replace pair would be long and its value of no use (ε above 50): the unsampled bound is taken.
const QUADRATURE_LIMIT: f64 = 60.0;

/// Rényi divergences at [`ORDERS`].
#[derive(Debug, Clone, PartialEq)]
pub struct Curve(Vec<f64>);

impl Default for Curve {
    fn default() -> Self {
        Self(vec![0.0; ORDERS.len()])
    }
}

impl Curve {
    /// A Gaussian without sampling, sensitivity/scale = `ratio`.
    #[must_use]
    pub fn gaussian(ratio: f64) -> Self {
        Self(ORDERS.iter().map(|&order| unsampled(order, ratio)).collect())
    }

    /// A Poisson-sampled Gaussian whose sampled unit is present or absent; `ratio` = its shift over the noise scale.
    #[must_use]
    pub fn poisson_add_remove(ratio: f64, rate: SamplingRate) -> Self {
        let mut chord = Chord::new(ratio, rate.get());
        Self(ORDERS.iter().map(|&order| chord.at(order)).collect())
    }

    /// A Poisson-sampled Gaussian whose sampled unit is replaced; `ratio` = the shift of *one* unit over the noise scale.
    #[must_use]
    pub fn poisson_replace(ratio: f64, rate: SamplingRate) -> Self {
        Self(ORDERS.iter().map(|&order| replace_one(order, ratio, rate.get())).collect())
    }

    /// As [`Curve::poisson_add_remove`], for any rate in (0, 1].
    pub(super) fn add_remove_at(ratio: f64, rate: f64) -> Self {
        let mut chord = Chord::new(ratio, rate);
        Self(ORDERS.iter().map(|&order| chord.at(order)).collect())
    }

    /// As [`Curve::poisson_replace`], for any rate in (0, 1].
    pub(super) fn replace_at(ratio: f64, rate: f64) -> Self {
        Self(ORDERS.iter().map(|&order| replace_one(order, ratio, rate)).collect())
    }

    /// The symmetrised pair of a batch of fixed size under replace-one; `ratio` = twice the clipping norm over the noise scale. Its hockey-stick curve is
    /// above that of every two neighbours (Zhu, Dong & Wang 2022), so its divergences are, too.
    pub(super) fn fixed_batch(ratio: f64, rate: f64) -> Self {
        let pair = Pair::symmetrised(ratio, rate);
        let at = |order: f64| {
            let bound = unsampled(order, ratio);
            if order * ratio * ratio > QUADRATURE_LIMIT {
                bound
            } else {
                (pld::renyi(&pair, order).upper * (1.0 + QUADRATURE_ERROR)).min(bound)
            }
        };
        Self(ORDERS.iter().map(|&order| at(order)).collect())
    }

    /// Laplace noise of scale Δ/`epsilon` for sensitivity Δ (Mironov 2017, Proposition 6):
    /// D_α = ln(α/(2α−1)·e^{(α−1)ε} + (α−1)/(2α−1)·e^{−αε})/(α−1).
    #[must_use]
    pub fn laplace(epsilon: f64) -> Self {
        Self::bounded_loss(epsilon, |order| (order / (2.0 * order - 1.0), (order - 1.0) / (2.0 * order - 1.0)))
    }

    /// Anything with pure ε-differential privacy: randomised response is the worst (Kairouz, Oh & Viswanath 2015), losses ±ε with
    /// masses 1/(1 + e^{∓ε}).
    #[must_use]
    pub fn pure(epsilon: f64) -> Self {
        let high = 1.0 / (1.0 + (-epsilon).exp());
        // e^{(α−1)ε}·e^ε/(1+e^ε) + e^{−αε}·e^ε/(1+e^ε)
        Self::bounded_loss(epsilon, |_| (high, high))
    }

    /// ln(a·e^{(α−1)ε} + b·e^{−αε})/(α−1), rounded up; never more than ε, and than αε²/2 (Bun & Steinke 2016, Proposition 3.3).
    fn bounded_loss(epsilon: f64, weights: impl Fn(f64) -> (f64, f64)) -> Self {
        let at = |order: f64| {
            let (a, b) = weights(order);
            let sum = log_add(a.ln() + (order - 1.0) * epsilon, b.ln() - order * epsilon);
            // The logarithm of a sum near 1 carries an absolute error of a few roundings of its terms.
            let sum = sum + 8.0 * f64::EPSILON * (1.0 + order * epsilon);
            (sum / (order - 1.0)).min(epsilon).min(0.5 * order * epsilon * epsilon).max(0.0) * (1.0 + 4.0 * f64::EPSILON)
        };
        Self(ORDERS.iter().map(|&order| at(order)).collect())
    }

    /// Adaptive composition with `times` of `other`: divergences add. Rounded up.
    pub fn add(&mut self, other: &Self, times: u64) {
        #[allow(clippy::cast_precision_loss, reason = "rounded up")]
        let times = times as f64 * (1.0 + f64::EPSILON);
        for (sum, &term) in self.0.iter_mut().zip(&other.0) {
            if term > 0.0 {
                *sum = ((term * times).next_up() + *sum).next_up();
            }
        }
    }

    /// Smallest ε over the orders. Not below 0.
    #[must_use]
    pub fn epsilon_upper(&self, delta: Delta) -> Epsilon {
        let best = ORDERS.iter().zip(&self.0).map(|(&order, &value)| to_epsilon(order, value, delta)).fold(f64::INFINITY, f64::min);
        Epsilon::new(best.max(0.0)).unwrap_or(Epsilon::INFINITE)
    }

    /// Smallest δ over the orders at this ε, at most 1: the conversion of [`to_epsilon`] solved for δ. Rounded up.
    pub(super) fn delta_upper(&self, epsilon: f64) -> f64 {
        let log = |(&order, &divergence): (&f64, &f64)| {
            let sum = (order - 1.0) * (divergence - epsilon + (-1.0 / order).ln_1p()) - order.ln();
            sum + ((order - 1.0) * (divergence + epsilon) + order.ln() + 1.0) * 8.0 * f64::EPSILON
        };
        ORDERS.iter().zip(&self.0).map(log).fold(0.0, f64::min).exp()
    }

    /// Divergences at [`ORDERS`].
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.0
    }
}

/// ε of one Rényi divergence at order `alpha`; rounded up. May be negative.
pub(crate) fn to_epsilon(alpha: f64, divergence: f64, delta: Delta) -> f64 {
    let first = (-1.0 / alpha).ln_1p();
    let second = (delta.get().ln() + alpha.ln()) / (alpha - 1.0);
    let epsilon = divergence + first - second;
    epsilon + (divergence + first.abs() + second.abs()) * 4.0 * f64::EPSILON
}

fn unsampled(alpha: f64, ratio: f64) -> f64 {
    0.5 * alpha * ratio * ratio * (1.0 + 4.0 * f64::EPSILON)
}

/// Divergence of the mixture against N(0) at one order, larger direction.
#[cfg(test)]
pub(crate) fn add_remove(alpha: f64, ratio: f64, rate: f64) -> f64 {
    Chord::new(ratio, rate).at(alpha)
}

/// (α−1)D_α at integers, and chords between them.
struct Chord {
    ratio: f64,
    rate: f64,
    low: (u32, f64),
    high: (u32, f64),
}

impl Chord {
    fn new(ratio: f64, rate: f64) -> Self {
        Self { ratio, rate, low: (1, 0.0), high: (2, log_moment(2, ratio, rate)) }
    }

    /// D at an order above 1.
    fn at(&mut self, alpha: f64) -> f64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "orders are between 1 and 1024")]
        let floor = alpha.floor() as u32;
        if f64::from(self.low.0).total_cmp(&f64::from(floor)).is_ne() {
            let known = |order: u32| if order == self.high.0 { self.high.1 } else { log_moment(order, self.ratio, self.rate) };
            let low = known(floor);
            let high = known(floor + 1);
            (self.low, self.high) = ((floor, low), (floor + 1, high));
        }
        let weight = alpha - f64::from(floor);
        let moment = if weight > 0.0 { (1.0 - weight) * self.low.1 + weight * self.high.1 } else { self.low.1 };
        // Sampling never costs more than no sampling (joint quasi-convexity).
        (moment / (alpha - 1.0) * (1.0 + 4.0 * f64::EPSILON)).min(unsampled(alpha, self.ratio))
    }
}

/// ln Σ_k C(α,k)(1−q)^{α−k}q^k e^{k(k−1)r²/2} = ln(1 + Σ_{k≥2} C(α,k)(1−q)^{α−k}q^k (e^{k(k−1)r²/2} − 1)), rounded up.
fn log_moment(alpha: u32, ratio: f64, rate: f64) -> f64 {
    let (log_rate, log_rest) = (rate.ln(), (-rate).ln_1p());
    let mut excess = f64::NEG_INFINITY;
    let mut binomial = f64::from(alpha); // C(α,1); C(1024,512) < 2^1024 still fits
    let mut error = 0.0f64;
    for k in 2..=alpha {
        binomial *= f64::from(alpha - k + 1) / f64::from(k);
        let exponent = 0.5 * f64::from(k) * f64::from(k - 1) * ratio * ratio;
        let rest = if alpha == k { 0.0 } else { f64::from(alpha - k) * log_rest };
        let growth = if exponent > 40.0 { exponent } else { exponent.exp_m1().ln() };
        let term = binomial.ln() + rest + f64::from(k) * log_rate + growth;
        // Rounding of the summands, the binomial's recurrence, and the sum.
        error = error.max((binomial.ln() + rest.abs() + (f64::from(k) * log_rate).abs() + growth.abs()) * 4.0 + 8.0 * f64::from(k));
        excess = log_add(excess, term);
    }
    let excess = excess + error * f64::EPSILON;
    one_plus(excess)
}

/// ln(1 + eˣ), rounded up.
fn one_plus(x: f64) -> f64 {
    let value = if x > 40.0 { x + (-x).exp() } else { x.exp().ln_1p() };
    value * (1.0 + 4.0 * f64::EPSILON)
}

/// Divergence of the replace pair at one order.
#[must_use]
pub(crate) fn replace_one(alpha: f64, ratio: f64, rate: f64) -> f64 {
    let bound = unsampled(alpha, 2.0 * ratio);
    if alpha * ratio * ratio > QUADRATURE_LIMIT {
        return bound;
    }
    let excess = log_the_replace_pair_excess(alpha, ratio, rate, STEP) + QUADRATURE_ERROR;
    // The rule's own error, relative to E_α + 1 + 2α.
    let size = log_add(one_plus(excess), (1.0 + 2.0 * alpha).ln());
    let excess = log_add(excess, quadrature_excess(alpha, ratio) + size);
    (one_plus(excess) / (alpha - 1.0)).min(bound)
}

/// Step of the trapezoidal rule in units of the narrowest scale of the integrand.
const STEP: f64 = 0.2;
/// Relative error that is added on top, for rounding: [`crate::proofs::poisson_replace`].
const QUADRATURE_ERROR: f64 = 1e-10;

/// ln of the error of the trapezoidal rule for the moment of the replace pair, relative to E_α + 1 + 2α: [`crate::proofs::poisson_replace`].
fn quadrature_excess(alpha: f64, ratio: f64) -> f64 {
    let narrow = (1.0 + 0.5 * alpha * ratio * ratio).sqrt();
    let strip = (std::f64::consts::TAU / STEP / narrow).min(0.5 * std::f64::consts::PI / ratio);
    let growth = 0.5 * strip * strip - (alpha - 1.0) * (0.5 * ratio * strip).cos().ln();
    growth - std::f64::consts::TAU * strip * narrow / STEP + 0.7
}

/// ln(∫ P^α Q^{1−α} − 1) for P = (1−q)φ(x) + qφ(x−r), Q = (1−q)φ(x) + qφ(x+r).
///
/// With t = ln(P/Q) it is ∫ Q·(e^{αt} − 1 − α(e^t − 1)), whose integrand is non-negative; it is analytic and decays like a
/// Gaussian beyond [−r, (2α−1)r], so the trapezoidal rule converges faster than any power of its step.
fn log_the_replace_pair_excess(alpha: f64, ratio: f64, rate: f64, step: f64) -> f64 {
    let low = -ratio - 12.0;
    let high = (2.0 * alpha - 1.0) * ratio + 12.0;
    let step = step / (1.0 + 0.5 * alpha * ratio * ratio).sqrt();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most some 1e5 points")]
    let points = ((high - low) / step).ceil() as u32;
    let log_ratio = |x: f64| {
        let exponent = ratio * x - 0.5 * ratio * ratio;
        if exponent > 600.0 { exponent + rate.ln() } else { (rate * exponent.exp_m1()).ln_1p() }
    };
    let mut sum = f64::NEG_INFINITY;
    let mut scaled = 0.0;
    // Two passes in one: keep the largest log seen and rescale, as in a running log-sum-exp.
    for i in 0..=points {
        let x = low + f64::from(i) * step;
        let (up, down) = (log_ratio(x), log_ratio(-x));
        let term = log_growth(alpha, up - down) + down - 0.5 * x * x;
        if term == f64::NEG_INFINITY {
            continue;
        }
        if term > sum {
            scaled = scaled * (sum - term).exp() + 1.0;
            sum = term;
        } else {
            scaled += (term - sum).exp();
        }
    }
    let log_phi = -0.5 * std::f64::consts::TAU.ln();
    sum + log_phi + step.ln() + scaled.ln()
}

/// ln(e^{αt} − 1 − α(e^t − 1)), without cancellation near t = 0.
fn log_growth(alpha: f64, t: f64) -> f64 {
    let at = alpha * t;
    if at > 40.0 {
        return at + (-(alpha * (t - at).exp() - (alpha - 1.0) * (-at).exp())).ln_1p();
    }
    if at.abs() < 0.02 {
        // Σ_{k≥2} (α^k − α) t^k/k!
        let (mut power, mut sum) = (t, 0.0);
        let mut alpha_power = alpha;
        for k in 2..=8u32 {
            power *= t / f64::from(k);
            alpha_power *= alpha;
            sum += (alpha_power - alpha) * power;
        }
        return sum.ln();
    }
    (at.exp_m1() - alpha * t.exp_m1()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(q: f64) -> SamplingRate {
        SamplingRate::nearest(q).unwrap()
    }

    #[test]
    fn orders_ascend() {
        assert!(ORDERS.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", *ORDERS);
        assert!(ORDERS.len() < 130, "{}", ORDERS.len());
    }

    /// E over N(0) of the other direction, (N(0)/mixture)^α under the mixture, by a fine trapezoidal rule.
    fn other_direction(alpha: f64, ratio: f64, q: f64) -> f64 {
        let step = 0.01;
        let sum: f64 = (-4000..=4000)
            .map(|i| {
                let x = f64::from(i) * step;
                let log_mixture = (q * (ratio * x - 0.5 * ratio * ratio).exp_m1()).ln_1p();
                ((1.0 - alpha) * log_mixture - 0.5 * x * x).exp()
            })
            .sum();
        (sum * step / std::f64::consts::TAU.sqrt()).ln() / (alpha - 1.0)
    }

    #[test]
    fn mironov_talwar_zhang_theorem_5_mixture_direction_dominates() {
        for (ratio, q) in [(1.0, 0.01), (0.5, 0.1), (2.0, 0.3), (0.1, 0.5)] {
            for alpha in [2.0, 3.0, 5.0, 9.0] {
                let (here, other) = (add_remove(alpha, ratio, q), other_direction(alpha, ratio, q));
                assert!(here >= other * (1.0 - 1e-9) - 1e-13, "r {ratio} q {q} α {alpha}: {here:e} < {other:e}");
            }
        }
    }

    #[test]
    fn sampling_everything_is_not_sampling() {
        for alpha in [2.0, 2.5, 7.0, 32.0] {
            let (sampled, plain) = (add_remove(alpha, 0.3, 1.0), unsampled(alpha, 0.3));
            assert!((sampled - plain).abs() < 1e-12 * plain, "{sampled} {plain}");
            let (sampled, plain) = (replace_one(alpha, 0.3, 1.0), unsampled(alpha, 0.6));
            assert!((sampled - plain).abs() < 2e-10 * plain, "{sampled} {plain}");
        }
    }

    #[test]
    fn the_quadrature_of_the_replace_pair_has_converged() {
        for &alpha in ORDERS.iter() {
            for (ratio, q) in [(0.01, 1e-4), (0.1, 0.05), (0.2, 0.01), (0.5, 0.3), (1.0, 0.01), (1.0, 0.9), (3.0, 0.001)] {
                if alpha * ratio * ratio > QUADRATURE_LIMIT {
                    continue;
                }
                let (coarse, fine) =
                    (log_the_replace_pair_excess(alpha, ratio, q, STEP), log_the_replace_pair_excess(alpha, ratio, q, STEP / 2.0));
                assert!((coarse - fine).abs() <= 1e-11 * fine.abs().max(1.0), "α {alpha} r {ratio} q {q}: {coarse:e} {fine:e}");
            }
        }
    }

    #[test]
    fn the_error_of_the_quadrature_is_what_the_proof_says() {
        let mut worst = f64::NEG_INFINITY;
        for &alpha in ORDERS.iter() {
            for k in 0..=60 {
                let ratio = (QUADRATURE_LIMIT / alpha).sqrt() * 10f64.powf(-0.1 * f64::from(k));
                let excess = quadrature_excess(alpha, ratio);
                worst = worst.max(excess);
                assert!(ratio > 1.0 || excess < 2e-26f64.ln(), "α {alpha} r {ratio}: {excess}");
            }
        }
        assert!(worst < 2e-16f64.ln(), "{worst}");
        // A coarser rule errs by no more than its bound, which is then large enough to be seen: E = 1 + excess for plain shifts is e^{2α(α−1)r²}.
        for (alpha, ratio) in [(2.0, 0.5), (5.0, 0.3), (20.0, 0.1)] {
            let found = one_plus(log_the_replace_pair_excess(alpha, ratio, 1.0, STEP));
            let exact = 2.0 * alpha * (alpha - 1.0) * ratio * ratio;
            assert!((found / exact - 1.0).abs() < 1e-12, "{found} {exact}");
        }
    }

    /// The four steps of the proof, on pairs that are not the extreme one: no hockey-stick divergence is above that of the replace pair.
    #[test]
    fn the_replace_pair_dominates_random_pairs_in_two_dimensions() {
        let mut state = 12345u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            #[allow(clippy::cast_precision_loss)]
            let value = (state >> 11) as f64 / (1u64 << 53) as f64;
            value
        };
        let step = 0.1;
        let grid: Vec<f64> = (-75..=75).map(|i| f64::from(i) * step).collect();
        let exponential = |u: [f64; 2], z: [f64; 2]| (u[0] * z[0] + u[1] * z[1] - 0.5 * (u[0] * u[0] + u[1] * u[1])).exp();
        let divergence = |u: [f64; 2], v: [f64; 2], q: f64, gamma: f64| -> f64 {
            let mut sum = 0.0;
            for &x in &grid {
                for &y in &grid {
                    let z = [x, y];
                    let value = (1.0 - q) * (1.0 - gamma) + q * exponential(u, z) - gamma * q * exponential(v, z);
                    sum += (-0.5 * (x * x + y * y)).exp() * value.max(0.0);
                }
            }
            sum * step * step / std::f64::consts::TAU
        };
        for case in 0..150 {
            let (r, q, gamma) = (0.2 + 1.8 * uniform(), 0.02 + 0.96 * uniform(), (3.0 * uniform() - 1.0).exp());
            let vector = |length: f64, angle: f64| [length * angle.cos(), length * angle.sin()];
            let mut any = || {
                let length = if uniform() < 0.5 { r } else { r * uniform() };
                vector(length, std::f64::consts::TAU * uniform())
            };
            let (u, v) = (any(), any());
            let (found, most) = (divergence(u, v, q, gamma), divergence([r, 0.0], [-r, 0.0], q, gamma));
            // The rule errs where the integrand has its kink.
            assert!(found <= most + 1e-4, "{case}: r {r} q {q} γ {gamma} {u:?} {v:?}: {found} {most}");
        }
    }

    #[test]
    fn replacing_costs_at_least_as_much_as_removing() {
        for alpha in [2.0, 4.0, 16.0] {
            for (ratio, q) in [(0.1, 0.05), (1.0, 0.01), (0.5, 0.5)] {
                assert!(replace_one(alpha, ratio, q) >= add_remove(alpha, ratio, q));
            }
        }
    }

    #[test]
    fn curves_stay_finite_at_the_extremes() {
        for ratio in [1e-6, 1e-3, 1.0, 20.0] {
            for q in [1e-9, 1e-4, 0.5, 1.0] {
                let q = rate(f64::max(q, 2.4e-10));
                for curve in [Curve::poisson_add_remove(ratio, q), Curve::poisson_replace(ratio, q)] {
                    assert!(curve.values().iter().all(|v| v.is_finite() && *v >= 0.0), "r {ratio} q {q:?}: {curve:?}");
                }
            }
        }
    }

    #[test]
    fn composition_adds_and_order_does_not_matter() {
        let a = Curve::poisson_add_remove(1.0, rate(0.01));
        let b = Curve::gaussian(0.2);
        let (mut ab, mut ba) = (Curve::default(), Curve::default());
        ab.add(&a, 1000);
        ab.add(&b, 3);
        for _ in 0..3 {
            ba.add(&b, 1);
        }
        for _ in 0..1000 {
            ba.add(&a, 1);
        }
        let delta = Delta::new(1e-5).unwrap();
        let (ab, ba) = (ab.epsilon_upper(delta).get(), ba.epsilon_upper(delta).get());
        assert!((ab - ba).abs() < 1e-12 * ab, "{ab} {ba}");
    }
}
