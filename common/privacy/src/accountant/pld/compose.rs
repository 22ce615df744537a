//! T-fold composition by an exponentially tilted fast Fourier transform, with a bound on its rounding.
//!
//! With w_i = p_i e^{θl_i}/M(θ) the composition is the T-fold convolution v of w, and
//!
//! δ(ε) = M(θ)^T e^{−θε} Σ_{l_j > ε} v_j g(l_j − ε), g(x) = e^{−θx}(1 − e^{−x}).
//!
//! Every error is therefore relative to the Chernoff value M^T e^{−θε} and not to 1:
//!
//! * **Transform and powers.** Each spectral value carries at most η = (2·log2 N + 8)·2^−52 (partial sums of w are at most 1; the 8 covers the
//!   rounding of w itself). The power turns it into T·|z|^{T−1}·η; by Parseval the error of v has norm
//!   η·T·√(Σ_k|z_k|^{2(T−1)}/N), and by Cauchy–Schwarz that of δ is at most this times ‖g‖. Both factors are evaluated.
//! * **Wrapping around.** What lies outside the window under the tilted law is bounded by Chernoff with the discretised masses;
//!   mass above the window counts as infinite in the upper bound, and all of it is taken off the lower bound.
//! * **Mass that quadrature missed** (`defect`) is added T times.

use realfft::num_complex::Complex64;
use realfft::{RealFftPlanner, RealToComplex};
use std::sync::Arc;

use super::grid::Masses;

/// One distinct step of a composition, on the common grid.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    pub(crate) masses: &'a Masses,
    pub(crate) offset: f64,
    pub(crate) defect: f64,
    pub(crate) times: u64,
}

/// The composed loss under the tilted law, ready for questions.
#[derive(Debug, Clone)]
pub(crate) struct Composed {
    h: f64,
    theta: f64,
    /// T ln M(θ).
    log_moment: f64,
    /// Loss of the first point.
    start: f64,
    /// Σ_{k ≥ j} v_k e^{−θ(k−j)h} and Σ_{k ≥ j} v_k e^{−(θ+1)(k−j)h}.
    suffix: Vec<(f64, f64)>,
    /// Error relative to M^T e^{−θε}.
    relative: f64,
    /// Mass at infinity.
    infinite: f64,
    upper: bool,
}

/// Half-open window of composed losses, and the tilt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) theta: f64,
    /// Orders at which the tails outside the window are bounded.
    pub(crate) down: f64,
    pub(crate) up: f64,
}

/// Number of points of a transform: 2^a·{1, 1.25, 1.5}.
pub(crate) fn length(least: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the caller bounds it")]
    let least = least.max(64.0).ceil() as usize;
    let power = least.next_power_of_two();
    [power / 8 * 5, power / 4 * 3].into_iter().find(|&n| n >= least).unwrap_or(power)
}

/// Composes; `points` from [`length`].
pub(crate) fn compose(parts: &[Part<'_>], h: f64, window: Window, points: usize, upper: bool) -> Option<Composed> {
    let theta = window.theta;
    let mut planner = RealFftPlanner::<f64>::new();
    let forward: Arc<dyn RealToComplex<f64>> = planner.plan_fft_forward(points);
    let mut product: Vec<Complex64> = vec![Complex64::new(1.0, 0.0); points / 2 + 1];
    let mut norm = vec![1.0f64; points / 2 + 1];
    let (mut log_moment, mut offset, mut log_finite) = (0.0, 0.0, 0.0);
    let (mut log_down, mut log_up, mut defect, mut steps) = (0.0, 0.0, 0.0, 0.0);
    let mut input = forward.make_input_vec();
    let mut scratch = forward.make_scratch_vec();
    for part in parts {
        #[allow(clippy::cast_precision_loss, reason = "a relative error of 1e-16")]
        let times = part.times as f64;
        let log_m = log_moment_of(part, h, theta);
        log_down += times * (log_moment_of(part, h, theta - window.down) - log_m);
        log_up += times * (log_moment_of(part, h, theta + window.up) - log_m);
        input.fill(0.0);
        let mut index = part.masses.first.rem_euclid(i64::try_from(points).ok()?) as usize;
        for (loss_index, &mass) in (part.masses.first..).zip(&part.masses.masses) {
            if mass > 0.0 {
                input[index] += (mass.ln() + theta * (part.offset + h * to_float(loss_index)) - log_m).exp();
            }
            index += 1;
            if index == points {
                index = 0;
            }
        }
        let mut spectrum = forward.make_output_vec();
        forward.process_with_scratch(&mut input, &mut spectrum, &mut scratch).ok()?;
        for ((product, norm), value) in product.iter_mut().zip(&mut norm).zip(&spectrum) {
            // |z|^{T−1} of this part times |z|^T of the others bounds every derivative of the product.
            *norm *= value.norm().powf(times - 1.0);
            *product *= power(*value, part.times);
        }
        log_moment += times * log_m;
        offset += times * part.offset;
        log_finite += times * (-part.masses.infinite).ln_1p();
        defect += times * (part.defect + 4.0 * f64::EPSILON * (1.0 + log_m.abs()));
        steps += times;
    }
    let inverse = planner.plan_fft_inverse(points);
    // The inverse wants exactly real ends.
    product[0].im = 0.0;
    if points.is_multiple_of(2) {
        product[points / 2].im = 0.0;
    }
    let mut tilted = inverse.make_output_vec();
    inverse.process(&mut product, &mut tilted).ok()?;
    let size = to_float(i64::try_from(points).ok()?);
    for v in &mut tilted {
        *v /= size;
    }
    let first = ((window.low - offset) / h).floor();
    if first.is_nan() || first.abs() >= 9e15 {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, reason = "checked")]
    let first = first as i64;
    let start = offset + h * to_float(first);
    let end = start + h * size;
    // Outside the window under the tilted law.
    let above = (log_up - window.up * end).exp().min(1.0);
    let below = (log_down + window.down * start).exp().min(1.0);
    let log_points = size.log2();
    let eta = (2.0 * log_points + 8.0) * f64::EPSILON;
    let spread = (norm.iter().map(|n| n * n).sum::<f64>() * 2.0 / size).sqrt();
    let length = tilted.iter().map(|v| v * v).sum::<f64>().sqrt();
    let (decay, faster) = ((-theta * h).exp(), (-(theta + 1.0) * h).exp());
    let kernel = {
        // ‖g‖² = Σ_{k ≥ 0} of (e^{−θx} − e^{−(θ+1)x})² at x = kh + rest, at most the sum over the grid plus its largest value twice.
        let geometric = |rate: f64| -1.0 / (-rate * h).exp_m1();
        let sum = geometric(2.0 * theta) - 2.0 * geometric(2.0 * theta + 1.0) + geometric(2.0 * theta + 2.0);
        let most = (theta / (theta + 1.0)).powf(theta) / (theta + 1.0);
        (sum.max(0.0) + 2.0 * most * most).sqrt()
    };
    let mut relative = kernel * eta * (steps * spread + length) + above + below;
    let mut suffix = vec![(0.0, 0.0); points];
    let (mut slow, mut fast) = (0.0, 0.0);
    let shift = first.rem_euclid(i64::try_from(points).ok()?) as usize;
    for j in (0..points).rev() {
        let v = tilted[(j + shift) % points];
        slow = slow * decay + v;
        fast = fast * faster + v;
        suffix[j] = (slow, fast);
    }
    relative += defect;
    Some(Composed { h, theta, log_moment, start, suffix, relative, infinite: -log_finite.exp_m1(), upper })
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^53, or only relative accuracy matters")]
fn to_float(i: i64) -> f64 {
    i as f64
}

/// zⁿ by squaring.
fn power(mut base: Complex64, mut exponent: u64) -> Complex64 {
    let mut result = Complex64::new(1.0, 0.0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// ln Σ p_i e^{s l_i}.
fn log_moment_of(part: &Part<'_>, h: f64, order: f64) -> f64 {
    let loss = |k: usize| part.offset + h * (to_float(part.masses.first) + to_float(i64::try_from(k).unwrap_or(i64::MAX)));
    let masses = &part.masses.masses;
    let largest = order * if order >= 0.0 { loss(masses.len()) } else { loss(0) };
    if largest < 600.0 {
        // Σp = 1 − infinite by construction; the rest is `defect`.
        let excess: f64 = masses.iter().enumerate().map(|(k, p)| p * (order * loss(k)).exp_m1()).sum::<f64>() - part.masses.infinite;
        return excess.ln_1p();
    }
    let terms = || masses.iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(k, p)| p.ln() + order * loss(k));
    let top = terms().fold(f64::NEG_INFINITY, f64::max);
    top + terms().map(|t| (t - top).exp()).sum::<f64>().ln()
}

impl Composed {
    /// A bound on δ(ε), within [0, 1].
    pub(crate) fn delta(&self, epsilon: f64) -> f64 {
        let trivial = if self.upper { 1.0 } else { 0.0 };
        if epsilon < self.start {
            return trivial;
        }
        let position = ((epsilon - self.start) / self.h).floor() + 1.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "non-negative; compared with the length")]
        let j = position as usize;
        let chernoff = (self.log_moment - self.theta * epsilon).exp();
        let (slow, fast) = self.suffix.get(j).copied().unwrap_or_default();
        let gap = self.start + self.h * position - epsilon;
        let sum = (-self.theta * gap).exp() * (slow - (-gap).exp() * fast);
        let rounding = (self.relative + 8.0 * f64::EPSILON * (slow.abs() + 1.0)) * 1.01;
        let value = if self.upper {
            chernoff * (sum + rounding) * (1.0 + 1e-14 * (1.0 + self.log_moment.abs() + self.theta * epsilon.abs())) + self.infinite
        } else {
            (chernoff * (sum - rounding)).max(0.0) * (1.0 - 1e-14 * (1.0 + self.log_moment.abs() + self.theta * epsilon.abs())).max(0.0)
                + self.infinite
        };
        if value.is_nan() { trivial } else { value.clamp(0.0, 1.0) }
    }

    /// The smallest ε ≥ 0 with δ(ε) ≤ `delta`, rounded up. `None`: out of the window.
    pub(crate) fn epsilon(&self, delta: f64) -> Option<f64> {
        let low = self.start.max(0.0);
        if low <= 0.0 && self.delta(0.0) <= delta {
            return Some(0.0);
        }
        let high = self.end();
        (high > low && self.delta(high) <= delta).then(|| self.bisect(low, high, delta).1)
    }

    /// An ε with δ(ε) > `delta`, as large as possible and rounded down, or 0. Searched from `hint` on, because far below it the
    /// bound is useless (its error is relative to the Chernoff value there).
    pub(crate) fn epsilon_lower(&self, delta: f64, hint: f64) -> f64 {
        let above = |epsilon: f64| self.delta(epsilon) > delta;
        let start = self.start.max(0.0);
        let scale = hint.abs().max(1.0 / (self.theta + 1.0));
        let mut low = hint.max(start);
        let mut step = 1e-4 * scale;
        for _ in 0..60 {
            if above(low) {
                break;
            }
            if low <= start {
                return 0.0;
            }
            low = (low - step).max(start);
            step *= 1.6;
        }
        if !above(low) {
            return 0.0;
        }
        let mut high = low + 1e-4 * scale;
        let mut step = 2e-4 * scale;
        while above(high) {
            if high >= self.end() {
                return low;
            }
            low = high;
            high += step;
            step *= 1.6;
        }
        self.bisect(low, high, delta).0
    }

    fn end(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let points = self.suffix.len() as f64;
        self.start + self.h * points
    }

    /// δ(low) > `delta` ≥ δ(high) on entry and on exit.
    fn bisect(&self, mut low: f64, mut high: f64, delta: f64) -> (f64, f64) {
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if high - low <= 1e-15 * high || middle <= low || middle >= high {
                break;
            }
            if self.delta(middle) <= delta { high = middle } else { low = middle }
        }
        (low, high)
    }
}
