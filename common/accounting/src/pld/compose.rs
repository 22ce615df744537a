//! T-fold composition by an exponentially tilted fast Fourier transform, with a bound on its rounding.
//!
//! With w_i = p_i e^{θl_i}/M(θ) the composition is the T-fold convolution v of w, and
//!
//! δ(ε) = M(θ)^T e^{−θε} Σ_{l_j > ε} v_j g(l_j − ε), g(x) = e^{−θx}(1 − e^{−x}).
//!
//! Every error is therefore relative to the Chernoff value M^T e^{−θε} and not to 1:
//!
//! * **Transform and powers.** Each spectral value carries at most η = (2·log2 N + 16)·2^−52 (partial sums of w are at most 1; the 16 covers
//!   the rounding of w itself and of the power). The power turns it into T·|z|^{T−1}·η; by Parseval the error of v has norm
//!   η·T·√(Σ_k|z_k|^{2(T−1)}/N), and by Cauchy–Schwarz that of δ is at most this times ‖g‖. Both factors are evaluated.
//! * **Left out.** Spectral values whose T-th power is below e^−45, error included, are 0: by Parseval v changes by no more than that.
//! * **Wrapping around.** What lies outside the window under the tilted law is bounded by Chernoff with the discretised masses;
//!   mass above the window counts as infinite in the upper bound, and all of it is taken off the lower bound.
//! * **Mass that quadrature missed** (`defect`) is added T times.

use realfft::num_complex::Complex64;
use realfft::{RealFftPlanner, RealToComplex};
use std::cell::RefCell;
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
    /// Loss of the first point, and of the one after the last.
    start: f64,
    end: f64,
    sums: Sums,
    /// Error relative to M^T e^{−θε}.
    relative: f64,
    /// Mass at infinity.
    infinite: f64,
    upper: bool,
}

/// How Σ_{k ≥ j} v_k e^{−θ(k−j)h} and the same with θ + 1 are known, j counted from the start of the window.
#[derive(Debug, Clone)]
enum Sums {
    /// The law is smooth: a few frequencies are everything, and the sums are geometric series of each of them.
    Waves(Waves),
    /// For every j.
    Points(Vec<(f64, f64)>),
}

/// Frequencies 2πk/N that are not negligible.
#[derive(Debug, Clone)]
struct Waves {
    /// k, and the coefficients of both sums.
    waves: Vec<(u64, Complex64, Complex64)>,
    points: u64,
    /// Position of the window's start among the points of the transform.
    shift: u64,
    /// Both sums over one period from the start of the window on, which the end of the window cuts off.
    beyond: (f64, f64),
    decay: (f64, f64),
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

/// Spectral values whose power is below e^−45 are left out; so much is added to the error.
const SILENT: f64 = 45.0;
/// With more waves than this share of the points, the inverse transform is cheaper.
const FEW: usize = 64;

thread_local! {
    /// Twiddle factors of the lengths that were used: they cost more than the transform.
    static PLANNER: RefCell<RealFftPlanner<f64>> = RefCell::new(RealFftPlanner::new());
}

/// Composes; `points` from [`length`].
pub(crate) fn compose(parts: &[Part<'_>], h: f64, window: Window, points: usize, upper: bool) -> Option<Composed> {
    let theta = window.theta;
    let forward: Arc<dyn RealToComplex<f64>> = PLANNER.with_borrow_mut(|planner| planner.plan_fft_forward(points));
    let size = to_float(i64::try_from(points).ok()?);
    let eta = (2.0 * size.log2() + 16.0) * f64::EPSILON;
    let (mut log_moment, mut offset, mut log_finite) = (0.0, 0.0, 0.0);
    let (mut log_down, mut log_up, mut defect) = (0.0, 0.0, 0.0);
    let mut scratch = forward.make_scratch_vec();
    let mut spectra = Vec::with_capacity(parts.len());
    for part in parts {
        let times = count(part.times);
        let log_m = log_moment_of(part, h, theta);
        log_down += times * (log_moment_of(part, h, theta - window.down) - log_m);
        log_up += times * (log_moment_of(part, h, theta + window.up) - log_m);
        let mut input = forward.make_input_vec();
        for &(index, mass) in &part.masses.masses {
            if mass > 0.0 {
                let position = index.rem_euclid(i64::try_from(points).ok()?) as usize;
                input[position] += (mass.ln() + theta * (part.offset + h * to_float(index)) - log_m).exp();
            }
        }
        let mut spectrum = forward.make_output_vec();
        forward.process_with_scratch(&mut input, &mut spectrum, &mut scratch).ok()?;
        log_moment += times * log_m;
        offset += times * part.offset;
        log_finite += times * (-part.masses.infinite).ln_1p();
        defect += times * (part.defect + 4.0 * f64::EPSILON * (1.0 + log_m.abs()));
        spectra.push((spectrum, times));
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
    let (kept, spread, length) = powers(parts, &spectra, eta);
    let spread = (spread * 2.0 / size).sqrt();
    let length = (length * 2.0 / size).sqrt();
    let kernel = {
        // ‖g‖² = Σ_{k ≥ 0} of (e^{−θx} − e^{−(θ+1)x})² at x = kh + rest, at most the sum over the grid plus its largest value twice.
        let geometric = |rate: f64| -1.0 / (-rate * h).exp_m1();
        let sum = geometric(2.0 * theta) - 2.0 * geometric(2.0 * theta + 1.0) + geometric(2.0 * theta + 2.0);
        let most = (theta / (theta + 1.0)).powf(theta) / (theta + 1.0);
        (sum.max(0.0) + 2.0 * most * most).sqrt()
    };
    let mut relative = kernel * (eta * (spread + length) + (-SILENT).exp()) + above + below + defect;
    let shift = first.rem_euclid(i64::try_from(points).ok()?) as usize;
    let sums = if kept.len() < points / FEW {
        let waves = Waves::new(&kept, points as u64, shift as u64, theta, h);
        relative += waves.rounding();
        Sums::Waves(waves)
    } else {
        Sums::Points(inverse(&kept, points, shift, theta * h, (theta + 1.0) * h)?)
    };
    Some(Composed { h, theta, log_moment, start, end, sums, relative, infinite: -log_finite.exp_m1(), upper })
}

#[allow(clippy::cast_precision_loss, reason = "a relative error of 1e-16, within every budget")]
fn count(times: u64) -> f64 {
    times as f64
}

/// The products of powers that are not negligible, with their positions; Σ (their derivatives' bounds)² and Σ |products|².
fn powers(parts: &[Part<'_>], spectra: &[(Vec<Complex64>, f64)], eta: f64) -> (Vec<(usize, Complex64)>, f64, f64) {
    // |z| below this makes the power negligible whatever the other parts are; they are at most 1.
    let floors: Vec<f64> = spectra.iter().map(|(_, times)| ((-SILENT / times).exp() - eta).max(0.0).powi(2)).collect();
    let mut kept = Vec::new();
    let (mut spread, mut length) = (0.0, 0.0);
    let frequencies = spectra.first().map_or(0, |(spectrum, _)| spectrum.len());
    for k in 0..frequencies {
        if spectra.iter().zip(&floors).any(|((spectrum, _), floor)| spectrum[k].norm_sqr() < *floor) {
            continue;
        }
        let (mut log, mut slope) = (0.0, 0.0);
        for (spectrum, times) in spectra {
            let modulus = spectrum[k].norm() + eta;
            log += times * modulus.ln();
            slope += times / modulus;
        }
        if log < -SILENT {
            continue;
        }
        let mut product = Complex64::new(1.0, 0.0);
        for ((spectrum, _), part) in spectra.iter().zip(parts) {
            product *= power(spectrum[k], part.times);
        }
        // Σ_p T_p |z_p|^{T_p−1} Π |z_q|^{T_q} bounds what errors in the z do to the product.
        spread += (2.0 * log).exp() * slope * slope;
        length += product.norm_sqr();
        kept.push((k, product));
    }
    (kept, spread, length)
}

/// Both sums for every position by the inverse transform.
fn inverse(kept: &[(usize, Complex64)], points: usize, shift: usize, slow_rate: f64, fast_rate: f64) -> Option<Vec<(f64, f64)>> {
    let inverse = PLANNER.with_borrow_mut(|planner| planner.plan_fft_inverse(points));
    let mut product = inverse.make_input_vec();
    for &(k, value) in kept {
        product[k] = value;
    }
    // The inverse wants exactly real ends.
    product[0].im = 0.0;
    if points.is_multiple_of(2) {
        product[points / 2].im = 0.0;
    }
    let mut tilted = inverse.make_output_vec();
    inverse.process(&mut product, &mut tilted).ok()?;
    let size = to_float(i64::try_from(points).ok()?);
    let (decay, faster) = ((-slow_rate).exp(), (-fast_rate).exp());
    let mut suffix = vec![(0.0, 0.0); points];
    let (mut slow, mut fast) = (0.0, 0.0);
    let mut position = shift;
    for sums in suffix.iter_mut().rev() {
        position = if position == 0 { points - 1 } else { position - 1 };
        let v = tilted[position] / size;
        slow = slow * decay + v;
        fast = fast * faster + v;
        *sums = (slow, fast);
    }
    Some(suffix)
}

impl Waves {
    fn new(kept: &[(usize, Complex64)], points: u64, shift: u64, theta: f64, h: f64) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let size = points as f64;
        let series = |k: f64, rate: f64| {
            // 1 − e^{−rate + iφ}, φ = 2πk/N, without cancellation.
            let (turn, decay) = (std::f64::consts::TAU * k / size, (-rate * h).exp());
            let half = (0.5 * turn).sin();
            Complex64::new(2.0 * decay * half * half - (-rate * h).exp_m1(), -decay * turn.sin())
        };
        let waves = kept
            .iter()
            .map(|&(k, value)| {
                let k = k as u64;
                // A real signal: every frequency but the ends stands for two.
                let value = if k == 0 || 2 * k == points { Complex64::new(value.re, 0.0) } else { 2.0 * value } / size;
                #[allow(clippy::cast_precision_loss, reason = "a count")]
                let at = k as f64;
                (k, value / series(at, theta), value / series(at, theta + 1.0))
            })
            .collect();
        let mut this = Self { waves, points, shift, beyond: (0.0, 0.0), decay: (theta * h, (theta + 1.0) * h) };
        this.beyond = this.endless(0);
        this
    }

    /// Both sums from position j of the window on, without end.
    fn endless(&self, j: u64) -> (f64, f64) {
        let position = (self.shift + j) % self.points;
        #[allow(clippy::cast_precision_loss, reason = "exact below 2^53")]
        let angle = |k: u64| std::f64::consts::TAU * ((k * position) % self.points) as f64 / self.points as f64;
        self.waves.iter().fold((0.0, 0.0), |sum, (k, slow, fast)| {
            let (sin, cos) = angle(*k).sin_cos();
            (sum.0 + slow.re * cos - slow.im * sin, sum.1 + fast.re * cos - fast.im * sin)
        })
    }

    /// Both sums from position j of the window to its end.
    fn at(&self, j: u64) -> (f64, f64) {
        let (slow, fast) = self.endless(j);
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let rest = (self.points - j) as f64;
        (slow - (-self.decay.0 * rest).exp() * self.beyond.0, fast - (-self.decay.1 * rest).exp() * self.beyond.1)
    }

    /// Bound on the rounding of the sums: a few roundings a term, and one for every addition.
    fn rounding(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let each = (self.waves.len() as f64 + 24.0) * f64::EPSILON;
        2.0 * each * self.waves.iter().map(|(_, slow, fast)| slow.norm() + fast.norm()).sum::<f64>()
    }
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
    let loss = |index: i64| part.offset + h * to_float(index);
    let masses = &part.masses.masses;
    let ends = masses.first().zip(masses.last()).map_or((0.0, 0.0), |(a, b)| (loss(a.0), loss(b.0)));
    let largest = order * if order >= 0.0 { ends.1 } else { ends.0 };
    if largest < 600.0 {
        // Σp = 1 − infinite by construction; the rest is `defect`.
        let excess: f64 = masses.iter().map(|&(k, p)| p * (order * loss(k)).exp_m1()).sum::<f64>() - part.masses.infinite;
        return excess.ln_1p();
    }
    let terms = || masses.iter().filter(|(_, p)| *p > 0.0).map(|&(k, p)| p.ln() + order * loss(k));
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
        let j = position as u64;
        let chernoff = (self.log_moment - self.theta * epsilon).exp();
        let (slow, fast) = if epsilon >= self.end { (0.0, 0.0) } else { self.sums.at(j) };
        let gap = self.start + self.h * position - epsilon;
        // e^{−θx}(slow − e^{−x} fast), x ≥ 0 the way to the next point.
        let sum = (-self.theta * gap).exp() * ((slow - fast) - (-gap).exp_m1() * fast);
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
    pub(crate) fn epsilon(&self, delta: f64, hint: f64) -> Option<f64> {
        let low = self.start.max(0.0);
        if low <= 0.0 && self.delta(0.0) <= delta {
            return Some(0.0);
        }
        let high = self.end;
        if high <= low || self.delta(high) > delta {
            return None;
        }
        let (low, high) = self.bracket(low, high, hint, delta);
        Some(self.narrow(low, high, delta).1)
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
            if high >= self.end {
                return low;
            }
            low = high;
            high += step;
            step *= 1.6;
        }
        self.narrow(low, high, delta).0
    }

    /// A narrower bracket around a hint.
    fn bracket(&self, mut low: f64, mut high: f64, hint: f64, delta: f64) -> (f64, f64) {
        let scale = hint.abs().max(1.0 / (self.theta + 1.0));
        let mut step = 1e-4 * scale;
        let mut at = hint;
        for _ in 0..60 {
            if at.is_nan() || at <= low || at >= high {
                break;
            }
            if self.delta(at) <= delta {
                let found = high < self.end && low > self.start.max(0.0);
                high = at;
                if found {
                    break;
                }
                at -= step;
            } else {
                let found = high < self.end;
                low = at;
                if found {
                    break;
                }
                at += step;
            }
            step *= 2.0;
        }
        (low, high)
    }

    /// δ(low) > `delta` ≥ δ(high) on entry and on exit. Secant on ln δ, which is nearly straight, with bisection to fall back on.
    fn narrow(&self, mut low: f64, mut high: f64, delta: f64) -> (f64, f64) {
        let target = delta.ln();
        let value = |epsilon: f64| self.delta(epsilon).ln().max(-800.0) - target;
        let (mut at_low, mut at_high) = (value(low), value(high));
        for round in 0..200 {
            let middle = 0.5 * (low + high);
            if high - low <= 1e-13 * high || middle <= low || middle >= high {
                break;
            }
            let secant = low + (high - low) * at_low / (at_low - at_high);
            // A little to the side of the longer part, so that both ends move.
            let nudge = 1e-14 * high;
            let at = match round % 3 {
                0 | 1 if secant > low && secant < high => {
                    if round % 3 == 0 {
                        (secant + nudge).min(middle.max(secant))
                    } else {
                        (secant - nudge).max(middle.min(secant))
                    }
                }
                _ => middle,
            };
            let found = value(at);
            if self.delta(at) <= delta { (high, at_high) = (at, found) } else { (low, at_low) = (at, found) }
        }
        (low, high)
    }
}

impl Sums {
    fn at(&self, j: u64) -> (f64, f64) {
        match self {
            Self::Waves(waves) if j < waves.points => waves.at(j),
            Self::Waves(_) => (0.0, 0.0),
            Self::Points(points) => usize::try_from(j).ok().and_then(|j| points.get(j)).copied().unwrap_or_default(),
        }
    }
}
