//! Steps one after the other, with certified bounds on ε(δ) after each: the product of their transforms on one vertical line.
//!
//! With D(ε) the part of δ(ε) from finite losses, θ > 0 and a step Δ = 2π/P, Poisson's summation formula for e^{θε}D(ε) says
//!
//! Δ/2π Σ_k M(θ + ikΔ)e^{−(θ+ikΔ)ε}/((θ + ikΔ)(θ + ikΔ + 1)) = Σ_n e^{θnP} D(ε + nP),
//!
//! the sums over all integers. All terms on the right are at least 0, so the left side is an **upper** bound on D(ε); it is a **lower**
//! bound less the terms n ≠ 0: for n < 0 they sum to at most 1/(e^{θP} − 1), as D ≤ 1; for n > 0 by D(x) ≤ M(θ′)e^{−θ′x}/(θ′ + 1), θ′ > θ.
//! The frequencies k > `near` that are not summed are bounded by |φ| there ([`super::line`]) over t².
//!
//! M is a product over steps. So one more step costs its own transform, and a reading costs a few sums over frequencies, however many steps
//! there are. Bounds on |φ| only fall with more steps; θ and P are kept while the interval that they give is narrow enough, and are chosen anew
//! then, with all transforms.
//!
//! # What is proved and what is measured
//! Proved in exact arithmetic ([`crate::proofs::transforms`]): all of the above, with outcomes cut off at both ends charged to δ in the upper bound and dropped from the lower.
//! Rounding and quadrature: a written budget for each transform, multiplied with the number of steps and compared with every term. Argued,
//! not proved: that `exp`, `ln_1p`, `sin_cos` and so on are good to a few roundings. Where the budget is not small the interval is wide, and
//! the grid ([`super::compose`]) answers.

#[cfg(test)]
mod tests;

use super::line::{HIGHER, Line, Samples, sample};
use super::pair::Pair;
use super::{Composition, GAP, Interval, SMALL, count};

/// Most frequencies, and octaves of bounds.
const MOST: f64 = 65_000.0;
const OCTAVES: u32 = 18;
/// Products of outcomes and frequencies that a new line may cost.
const MOST_WORK: usize = 4_000_000_000;
/// Steps that stand for all others where a line is chosen.
const WITNESSES: usize = 4;
/// The period over what a normal law would need.
const ROOM: [f64; 3] = [1.3, 2.2, 4.0];
/// Gap that is aimed at, over that of the grid.
const SHARE: f64 = 0.2;
/// ... of a product that is there already, or of a second line.
const KEPT: f64 = 1.5;
/// Frequencies of a line that is not kept when the steps have doubled.
const LONG: usize = 400;
/// ... of one whose interval may be as wide as that of a line that is there already.
const COSTLY: usize = 2000;
/// Width of an interval of δ that is narrow enough, relative.
const NARROW: f64 = 5e-5;

/// What is wanted of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// An interval of the width that is aimed at.
    Interval,
    /// An upper bound that is some thousandths above ε: enough to show that another direction is worse.
    Rough,
}

/// Share of δ that aliases and frequencies that are left out may have where an upper bound may be rough.
const ROUGH: f64 = 0.02;

/// Steps so far.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    line: Line,
    sums: Samples,
    steps: f64,
    /// Steps for which the line was chosen.
    chosen_for: f64,
    room: usize,
    effort: Effort,
}

/// Where the tilted law of a composition has its weight.
#[derive(Debug, Clone, Copy)]
struct Centre {
    theta: f64,
    log_moment: f64,
    mean: f64,
    variance: f64,
}

impl Centre {
    /// ε and ln δ of the saddle point at θ, with the third cumulant taken as 0.
    fn saddle(&self, theta: f64) -> (f64, f64) {
        let x = theta - self.theta;
        let (value, mean) = (self.log_moment + x * (self.mean + 0.5 * x * self.variance), self.mean + x * self.variance);
        let epsilon = mean - 1.0 / theta - 1.0 / (theta + 1.0);
        let variance = self.variance + theta.powi(-2) + (theta + 1.0).powi(-2);
        (epsilon, value - theta * epsilon - theta.ln() - theta.ln_1p() - 0.5 * (std::f64::consts::TAU * variance).ln())
    }

    /// The smallest tilt at which δ is small enough and ε not negative, within a factor of four.
    fn moved(&self, delta: f64) -> Self {
        let enough = |theta: f64| {
            let (epsilon, log_delta) = self.saddle(theta);
            epsilon >= 0.0 && log_delta <= delta.ln()
        };
        let (mut low, mut high) = (0.25 * self.theta, 4.0 * self.theta);
        for _ in 0..12 {
            let middle = (low * high).sqrt();
            if enough(middle) { high = middle } else { low = middle }
        }
        let x = high - self.theta;
        Self {
            theta: high,
            log_moment: self.log_moment + x * (self.mean + 0.5 * x * self.variance),
            mean: self.mean + x * self.variance,
            variance: self.variance,
        }
    }
}

impl Running {
    /// Steps from the beginning. `None`: they are out of reach.
    fn of(parts: &[(Pair, u64)], delta: f64, centre: Centre, room: usize, effort: Effort) -> Option<Self> {
        let steps: f64 = parts.iter().map(|(_, times)| count(*times)).sum();
        let line = choose(parts, steps, delta, centre, ROOM[room], effort)?;
        let sums = Samples::none(&line);
        let mut this = Self { line, sums, steps: 0.0, chosen_for: steps, room, effort };
        for (pair, times) in parts {
            this.add(pair, *times)?;
            if this.sums.work > MOST_WORK {
                return None;
            }
        }
        Some(this)
    }

    /// Adds steps.
    fn add(&mut self, pair: &Pair, times: u64) -> Option<()> {
        self.sums.add(&sample(pair, &self.line)?, count(times));
        self.steps += count(times);
        Some(())
    }

    /// Adds steps; `None` where one cannot be added, and nothing can be said any more.
    fn extend(&mut self, pending: &[(Pair, u64)]) -> Option<()> {
        pending.iter().try_for_each(|(pair, times)| self.add(pair, *times))
    }

    fn centre(&self) -> Centre {
        let Samples { log_moment, mean, variance, .. } = self.sums;
        Centre { theta: self.line.theta, log_moment, mean, variance }
    }

    fn reading(&self) -> Reading<'_> {
        Reading::new(&self.line, &self.sums)
    }
}

/// Bounds on δ(ε) of `parts`, by a product that is made for the δ that was found, from a first guess on; `None` where they are out of reach.
pub(crate) fn delta(running: &mut Option<Running>, parts: &[(Pair, u64)], pending: &[(Pair, u64)], epsilon: f64) -> Option<Interval> {
    let mut guess = 1e-6;
    let mut best: Option<Interval> = None;
    // What is there already may say enough.
    let mut fresh = running.as_mut().is_none_or(|old| old.effort != Effort::Interval || old.extend(pending).is_none());
    for _ in 0..4 {
        if fresh {
            *running = None;
            search(running, parts, &[], guess, Effort::Interval, SHARE)?;
        }
        fresh = true;
        let reading = running.as_ref()?.reading();
        let bounds = (reading.lower(epsilon).max(0.0), reading.estimate(epsilon), reading.upper(epsilon).min(1.0));
        let found = best.map_or(Interval::bounded(bounds.0, bounds.1, bounds.2), |b: Interval| {
            Interval::bounded(b.lower.max(bounds.0), bounds.1, b.upper.min(bounds.2))
        });
        best = Some(found);
        if found.upper - found.lower <= NARROW * found.upper {
            break;
        }
        guess = found.estimate.clamp(1e-280, 0.9);
    }
    best
}

/// Bounds on ε(δ) of `parts`, of which `running` holds all but the `pending` ones, and does so of all afterwards; `None` where they are out of
/// reach. The interval may be wider than what is aimed at.
pub(crate) fn epsilon(
    running: &mut Option<Running>,
    parts: &[(Pair, u64)],
    pending: &[(Pair, u64)],
    delta: f64,
    effort: Effort,
) -> Option<Interval> {
    search(running, parts, pending, delta, effort, KEPT)
}

/// As [`epsilon`]; `later`: the gap that is enough for what is there already and for second lines, over that of the grid.
fn search(
    running: &mut Option<Running>,
    parts: &[(Pair, u64)],
    pending: &[(Pair, u64)],
    delta: f64,
    effort: Effort,
    later: f64,
) -> Option<Interval> {
    let steps: f64 = parts.iter().map(|(_, times)| count(*times)).sum();
    // Where the steps have doubled, fewer frequencies may do than a long line has; and nothing else says when a rough bound is too rough.
    let lasts = |old: &Running| effort == Effort::Interval && old.line.near <= LONG;
    let good = |old: &Running| old.effort == effort && (steps <= 2.0 * old.chosen_for || lasts(old));
    let mut before = running.take().filter(good);
    if let Some(mut old) = before.take() {
        before = old.extend(pending).map(|()| old);
    }
    let mut start = None;
    let mut best: Option<Interval> = None;
    let mut number = if parts.len() <= 8 * WITNESSES { WITNESSES } else { 6 * WITNESSES };
    let mut made = 0;
    for attempt in 0..ROOM.len() {
        let aim = if before.is_some() || made > 0 { later } else { SHARE };
        let current = match before.take() {
            Some(current) => current,
            None => {
                made += 1;
                let new = match start.take() {
                    Some(start) => Some(start),
                    None => witnessed(parts, steps, delta, number).map(|centre| (centre, attempt)),
                };
                let new = new.and_then(|(centre, room)| Running::of(parts, delta, centre.moved(delta), room.min(ROOM.len() - 1), effort));
                let Some(new) = new else { break };
                new
            }
        };
        let found = current.reading().epsilon(delta, current.centre().saddle(current.line.theta).0);
        let best_so_far = best.map_or(found, |b| Interval::bounded(b.lower.max(found.lower), found.estimate, b.upper.min(found.upper)));
        best = Some(best_so_far);
        let aim = if current.line.near > COSTLY { later } else { aim };
        let enough = effort == Effort::Rough || best_so_far.is_narrow(aim * GAP, SMALL);
        // A tilt at which other outcomes have the weight than those that matter says nothing about a better one.
        let (_, log_delta) = current.centre().saddle(current.line.theta);
        let near = log_delta >= 2.0 * delta.ln() - 5.0 && log_delta <= 0.3 * delta.ln();
        number *= 8;
        start = near.then(|| (current.centre(), (current.room + usize::from(made > 0)).min(ROOM.len() - 1)));
        *running = Some(current);
        if enough {
            break;
        }
    }
    best
}

/// The centre of a composition by a few of its steps.
fn witnessed(parts: &[(Pair, u64)], steps: f64, delta: f64, number: usize) -> Option<Centre> {
    let chosen = witnesses(parts, steps, number);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of steps")]
    let chosen = chosen.into_iter().map(|(pair, times)| (pair.clone(), times.max(1.0).round() as u64)).collect();
    let saddle = Composition::new(chosen).saddle_of_delta(delta)?;
    let cumulants = saddle.cumulants;
    Some(Centre { theta: saddle.theta, log_moment: cumulants.value, mean: cumulants.mean, variance: cumulants.variance })
}

/// A few parts, with as many steps as all have: some of the least noise, which alone may have far outcomes, as they are, and evenly chosen ones
/// for the others.
fn witnesses(parts: &[(Pair, u64)], steps: f64, number: usize) -> Vec<(&Pair, f64)> {
    if parts.len() <= 2 * number {
        return parts.iter().map(|(pair, times)| (pair, count(*times))).collect();
    }
    let mut order: Vec<_> = parts.iter().map(|(pair, times)| (pair, count(*times))).collect();
    let extreme = (number / 4).max(1);
    order.select_nth_unstable_by(extreme, |a, b| b.0.ratio.total_cmp(&a.0.ratio));
    let rest = order.split_off(extreme);
    let left = steps - order.iter().map(|(_, times)| times).sum::<f64>();
    let stride = rest.len().div_ceil(number);
    let chosen: Vec<_> = rest.into_iter().skip(stride / 2).step_by(stride).collect();
    let sum: f64 = chosen.iter().map(|(_, times)| times).sum();
    order.extend(chosen.into_iter().map(|(pair, times)| (pair, times * left / sum)));
    order
}

/// A line for these steps.
fn choose(parts: &[(Pair, u64)], steps: f64, delta: f64, centre: Centre, room: f64, effort: Effort) -> Option<Line> {
    let theta = centre.theta;
    let (epsilon, log_delta) = (centre.saddle(theta).0, delta.ln());
    let sd = centre.variance.sqrt();
    if !(sd > 0.0 && sd.is_finite() && theta.is_finite()) {
        return None;
    }
    let share = (0.02 * GAP * epsilon.max(SMALL) * theta).clamp(1e-12, 1e-3);
    // What aliases and frequencies that are left out may be, relative to δ.
    let small = match effort {
        Effort::Interval => (0.1 * SHARE * GAP * epsilon.max(SMALL) * theta).min(1e-3),
        Effort::Rough => ROUGH,
    };
    let nats = (steps.ln() - log_delta + 30.0, steps.ln() - log_delta - share.ln());
    let spread = [1.0, 2.0, 4.0, 8.0].map(|z| z / sd);
    let excess = |x: f64| centre.log_moment + x * (centre.mean + 0.5 * x * centre.variance) - (theta + x) * epsilon - (theta + x).ln_1p();
    let above = spread.iter().map(|&x| (excess(x) - log_delta - small.ln()) / x).fold(f64::INFINITY, f64::min);
    let period = (room * above).max(-(small.ln() + log_delta) / theta);
    let step = std::f64::consts::TAU / period;
    let higher: [f64; HIGHER] = spread.map(|x| theta + x);
    // From where on |φ| is negligible, and up to where that has to be looked at.
    let probe = Line { theta, step: 1.0 / sd, near: 1, octaves: OCTAVES, fineness: 8, nats, higher };
    let mut sums = Samples::none(&probe);
    for (pair, times) in witnesses(parts, steps, WITNESSES) {
        sums.add(&sample(pair, &probe)?, times);
    }
    // δ is about e^0/(θ(θ + 1)·√(2π·variance)) Chernoff values; frequencies from t on add up to |φ|/(πt).
    let spread = (std::f64::consts::TAU * (centre.variance + theta.powi(-2) + (theta + 1.0).powi(-2))).sqrt();
    let silent = |t: f64| small.ln() - (theta * (theta + 1.0) * spread).ln() + (std::f64::consts::PI * t).ln();
    let loud = probe
        .intervals()
        .zip(&sums.middle)
        .filter(|((centre, half), log)| **log > silent(centre - half))
        .map(|((centre, half), _)| centre + half);
    let loud = loud.fold(1.0 / sd, f64::max);
    let end = probe.ends().zip(&sums.beyond).find(|(end, log)| *end > loud && **log <= silent(*end))?.0;
    let near = (loud / step).ceil().max(16.0);
    if !(near <= MOST && period.is_finite()) {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
    let (near, octaves) = (near as usize, ((end / loud).log2().ceil().max(1.0) as u32).min(OCTAVES));
    // Twice as fine as the probe, so that bounds are not worse where its octaves began earlier.
    Some(Line { theta, step, near, octaves, fineness: 16, nats, higher })
}

/// Sums that every question needs.
pub(super) struct Reading<'a> {
    line: &'a Line,
    sums: &'a Samples,
    /// φ/(s(s + 1)) at k·step, k ≥ 1.
    values: Vec<(f64, f64)>,
    /// Bounds on their errors and on what was left out: relative to the Chernoff value, and per unit of |mean − ε|.
    error: f64,
    error_by_distance: f64,
    /// 1 − P(all losses are finite).
    infinite: f64,
}

/// Unit roundoff.
const U: f64 = 0.5 * f64::EPSILON;
/// Frequencies that share a turn.
const TURNS: usize = 64;

#[allow(clippy::cast_precision_loss, reason = "a small count")]
fn to_float(count: usize) -> f64 {
    count as f64
}

impl<'a> Reading<'a> {
    pub(super) fn new(line: &'a Line, sums: &'a Samples) -> Self {
        let theta = line.theta;
        let scale = line.step / std::f64::consts::PI;
        let (mut values, mut error, mut by_distance) = (Vec::with_capacity(line.near), 0.0, 0.0);
        let mut total = 0.0;
        for (k, &[log, phase, slack]) in (1u32..).zip(&sums.near) {
            let t = line.step * f64::from(k);
            // 1/(s(s + 1)) = (a − ib)/(a² + b²)
            let (a, b) = (theta * (theta + 1.0) - t * t, t * (2.0 * theta + 1.0));
            let square = a * a + b * b;
            let size = log.exp();
            let (sin, cos) = phase.sin_cos();
            values.push((size * (cos * a + sin * b) / square, size * (sin * a - cos * b) / square));
            let modulus = size / square.sqrt();
            // Half of the constant is for the product of two turns that a value is multiplied with.
            let slack = slack + t * sums.mean_error + U * (64.0 + 2.0 * log.abs());
            error += modulus * slack * slack.min(700.0).exp();
            by_distance += modulus * t * 4.0 * U;
            total += modulus;
        }
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let additions = (values.len() + 8) as f64 * U;
        error = scale * (error + additions * (total + 0.5 / (theta * (theta + 1.0))));
        for ((centre, half), log) in line.intervals().zip(&sums.middle) {
            error += log.exp() * (2.0 * half + line.step) / (std::f64::consts::PI * (centre - half).powi(2));
        }
        let end = line.ends().last().unwrap_or_else(|| line.reach());
        error += sums.beyond.last().map_or(1.0, |log| log.exp()) / (std::f64::consts::PI * (end - line.step));
        Self {
            line,
            sums,
            values,
            error: error * (1.0 + 1e-9),
            error_by_distance: scale * by_distance,
            infinite: -sums.log_finite.exp_m1(),
        }
    }

    /// Left side of the summation formula over the Chernoff value, the bound on its error, and ln of the Chernoff value with its error.
    fn sum(&self, epsilon: f64) -> (f64, f64, f64, f64) {
        let Line { theta, step, .. } = *self.line;
        let distance = self.sums.mean - epsilon;
        let mut sum = 0.5 / (theta * (theta + 1.0));
        // e^{ikx} for k = 1 + first + j is e^{i(1 + j)x}·e^{i·first·x}.
        let turns: [(f64, f64); TURNS] = std::array::from_fn(|j| (step * to_float(1 + j) * distance).sin_cos());
        for (block, values) in self.values.chunks(TURNS).enumerate() {
            let (mut re, mut im) = (0.0, 0.0);
            for (&(a, b), &(sin, cos)) in values.iter().zip(&turns) {
                re += a * cos - b * sin;
                im += a * sin + b * cos;
            }
            let (sin, cos) = (step * to_float(TURNS * block) * distance).sin_cos();
            sum += re * cos - im * sin;
        }
        let log = self.sums.log_moment - theta * epsilon;
        let log_error = self.sums.log_error + 8.0 * U * (1.0 + self.sums.log_moment.abs() + (theta * epsilon).abs());
        (sum * step / std::f64::consts::PI, self.error + self.error_by_distance * distance.abs(), log, log_error)
    }

    pub(super) fn estimate(&self, epsilon: f64) -> f64 {
        let (sum, _, log, _) = self.sum(epsilon);
        log.exp() * sum + self.infinite
    }

    pub(super) fn upper(&self, epsilon: f64) -> f64 {
        let (sum, error, log, log_error) = self.sum(epsilon);
        (log + log_error).exp() * positive(sum + error) * (1.0 + 1e-13) + self.infinite * (1.0 + 1e-13) + self.sums.left_out * (1.0 + 1e-9)
    }

    pub(super) fn lower(&self, epsilon: f64) -> f64 {
        let (sum, error, log, log_error) = self.sum(epsilon);
        let period = std::f64::consts::TAU / self.line.step * (1.0 - 1e-12);
        // A series of e^{−x}, 2e^{−x}, …: all at most e^{−x}/(1 − e^{−x}).
        let series = |x: f64| 1.0 / x.exp_m1();
        let below = self.sums.log_mass.exp() * series(self.line.theta * period);
        let above = self.line.higher.iter().zip(&self.sums.higher).map(|(order, moment)| {
            (moment - order * epsilon + 1e-12 * (moment.abs() + (order * epsilon).abs())).exp() / (order + 1.0)
                * series((order - self.line.theta) * period)
        });
        let alias = below + above.fold(f64::INFINITY, f64::min);
        (log - log_error).exp() * (sum - error).max(0.0) * (1.0 - 1e-13) - alias * (1.0 + 1e-9) + self.infinite * (1.0 - 1e-13)
    }

    fn epsilon(&self, delta: f64, hint: f64) -> Interval {
        let scale = hint.abs().max(1.0 / (self.line.theta + 1.0));
        let middle = crossing(&|e| self.estimate(e), delta, hint.max(0.0), scale);
        let estimate = middle.map_or(f64::NAN, |(_, high)| high);
        let hint = if estimate.is_finite() { estimate } else { hint.max(0.0) };
        let upper = crossing(&|e| self.upper(e), delta, hint, 1e-4 * scale).map_or(f64::INFINITY, |(_, high)| high);
        let lower = crossing(&|e| self.lower(e), delta, hint, 1e-4 * scale).map_or(0.0, |(low, _)| low);
        Interval::bounded(lower, estimate, upper)
    }
}

/// x, or 0 below it; what is no number stays none, so that no upper bound comes of it.
fn positive(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// low and high with value(low) > `delta` ≥ value(high), close to each other and to `hint`; both 0 where value(0) is small enough.
pub(super) fn crossing(value: &dyn Fn(f64) -> f64, delta: f64, hint: f64, scale: f64) -> Option<(f64, f64)> {
    // A lower bound below 0 says nothing; what is no number is no bound.
    let log = |epsilon: f64| {
        let value = value(epsilon);
        (if value.is_nan() { 800.0 } else { value.max(0.0).ln().max(-800.0) }) - delta.ln()
    };
    let (mut low, mut at_low, mut high, mut at_high);
    let mut step = 0.02 * scale;
    let first = log(hint);
    if first > 0.0 {
        (low, at_low) = (hint, first);
        loop {
            (high, at_high) = (low + step, log(low + step));
            if at_high <= 0.0 {
                break;
            }
            (low, at_low) = (high, at_high);
            step *= 4.0;
            if step > 1e9 * scale {
                return None;
            }
        }
    } else {
        (high, at_high) = (hint, first);
        loop {
            low = (high - step).max(0.0);
            at_low = log(low);
            if at_low > 0.0 {
                break;
            }
            if low <= 0.0 {
                return Some((0.0, 0.0));
            }
            (high, at_high) = (low, at_low);
            step *= 4.0;
        }
    }
    for round in 0..100 {
        let middle = 0.5 * (low + high);
        if high - low <= 1e-13 * high || middle <= low || middle >= high {
            break;
        }
        let secant = low + (high - low) * at_low / (at_low - at_high);
        // A little to the side, so that both ends move.
        let nudge = 2e-14 * high + 1e-3 * (high - low) * f64::from(u8::from(round < 3));
        let at = match round % 3 {
            0 if secant > low && secant < high => (secant + nudge).min(0.5 * (secant + high)),
            1 if secant > low && secant < high => (secant - nudge).max(0.5 * (secant + low)),
            _ => middle,
        };
        let found = log(at);
        if found <= 0.0 { (high, at_high) = (at, found) } else { (low, at_low) = (at, found) }
    }
    Some((low, high))
}
