//! Privacy loss distributions: certified lower and upper bounds on ε(δ) and δ(ε), and an estimate between them.
//!
//! # Pairs
//! σ is the noise's standard deviation over the clipping norm, r the shift over σ, ℓ(y) = ln(1 − q + q·e^{ry − r²/2}). One step is a pair
//! (P, Q) of distributions whose hockey-stick curve is at least that of every two neighbouring data sets; composition of dominating
//! pairs dominates the composition (Zhu, Dong & Wang 2022, Theorem 10), also where outputs are chosen adaptively under fixed parameters.
//!
//! | sampling | relation | pair | why |
//! |---|---|---|---|
//! | none | add-remove, zero-out | N(1/σ,1), N(0,1) | Balle & Wang 2018 |
//! | none | replace-one | N(2/σ,1), N(0,1) | the same with twice the shift |
//! | Poisson | add-remove, zero-out | (1−q)N(0,1)+qN(1/σ,1), N(0,1), and swapped | each direction is composed on its own, the larger ε counts |
//! | Poisson | replace-one | replace: (1−q)N(0,1)+qN(±1/σ,1) | [`crate::proofs::poisson_replace`] |
//! | fixed batch | add-remove | as Poisson with 2/σ | the pair is the same, rescaled |
//! | fixed batch | replace-one | symmetrised: loss of (1−q)N(0,1)+qN(2/σ,1) against N(0,1) where positive, mirrored, the rest at 0 | [`crate::proofs::fixed_batches`] |
//! | random allocation | all | an epoch: T⁻¹ΣN(e_t/σ,1), N(0,1), and swapped; replace-one by way of N(0,1) | [`crate::proofs::random_allocation`] |
//! | shuffled passes | replace-one, zero-out | one release without sampling for every started pass | no amplification is claimed; under add-remove other units move |
//!
//! No pair smaller than D dominates; but several steps may lose less than its composition, and at least what data sets attain ([`Plan::attained`](super::Plan::attained)).
//! # Numbers
//! * One step alone is integrated, with little noise in closed form (`closed`); unsampled Gaussians alone have one ([`super::gdp`]). For others `running` is tried first: the product of transforms on a vertical line (`line`), with bounds on all that is left out, some 1e-7 apart.
//!   Many equal rare steps are distinguished by the number of outcomes far out (`rare`), some 1e-5 apart.
//!   Where transforms decay too slowly (very few steps, different rare ones, losses without a density), the grid answers:
//! * `grid` puts a step on a grid from both sides. Cells of width w move ε up by about T(θ+1)w²/12 and down by half of that, averaged under
//!   the law tilted by the saddle point θ; where that law is thin, cells are wider (w ∝ density^{−1/3}), for a few per cent more error.
//! * `compose` raises the step to the T-th power with a rounding budget. The composed law is smooth, so that a few frequencies are
//!   everything; all others are looked at, and what they could add is charged.
//! * Outcomes whose mass is a small part of what the gap may cost in δ are sent to infinity (upper bound) or dropped (lower).
//! * `contour` gives the estimate; its period holds the tilted law to e^−36, far outcomes fade out smoothly.
//! * The finest width is chosen from the aim (half of 1e-4·max(ε, 0.05)) and reduced until the interval is narrow enough or a transform has
//!   2^21 points. These limits, and those on nodes and cells, bound the work of every answer.
//!
//! # What is proved and what is measured
//! * Proved in exact arithmetic: domination of the upper bound, attainment of the lower bound, tails outside the window, infinite mass. Bounded
//!   by a written budget: rounding of transform, powers and moments, mass missed by quadrature.
//! * Argued, not proved: that the Gauss rules are good to 1e-15 relative at their chosen widths (their sum against 1 is measured in every
//!   call and its defect is charged), and that `exp`, `ln_1p`, `exp_m1`, `erfc` are good to a few roundings.
//! * Measured only: the estimate. It is clamped into the certificate. On the reference table it agrees to 1e-9 where the contour converges;
//!   where it does not (few or very rare steps), the estimate extrapolates the upper bounds of two grids.
//! * Out of reach (many different rare steps): a wider interval from basic composition, Rényi bounds, closed forms and single steps.

pub(crate) mod allocation;
mod cgf;
mod closed;
mod compose;
mod contour;
mod grid;
mod hints;
mod line;
mod pair;
mod quadrature;
mod rare;
mod running;
mod share;
mod spread;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use cgf::{Cumulants, Nodes};
use compose::{Composed, Part, Window};
use contour::Contour;
use grid::Sides;
pub(crate) use hints::Hints;
pub(crate) use pair::Pair;
pub(crate) use running::{Effort, Running};

/// Certified bounds and an estimate between them. In JSON an infinite bound is `null`, and so is an estimate that says nothing
/// ([`Interval::known_estimate`]).
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(into = "Stated", from = "Stated")]
pub struct Interval {
    /// Certified lower bound.
    pub lower: f64,
    /// Best guess; always between the bounds. Where these are far apart it is no more than a number between them: see [`Interval::known_estimate`].
    pub estimate: f64,
    /// Certified upper bound.
    pub upper: f64,
}

/// An interval as it is written.
#[derive(serde::Serialize, serde::Deserialize)]
struct Stated {
    lower: Option<f64>,
    estimate: Option<f64>,
    upper: Option<f64>,
}

impl From<Interval> for Stated {
    fn from(interval: Interval) -> Self {
        let finite = |bound: f64| Some(bound).filter(|bound| bound.is_finite());
        Self { lower: finite(interval.lower), estimate: interval.known_estimate(), upper: finite(interval.upper) }
    }
}

impl From<Stated> for Interval {
    fn from(stated: Stated) -> Self {
        let infinite = |bound: Option<f64>| bound.unwrap_or(f64::INFINITY);
        Self::bounded(infinite(stated.lower), stated.estimate.unwrap_or(f64::NAN), infinite(stated.upper))
    }
}

/// Relative gap to the upper bound above which an estimate is not reported.
const REPORTED_GAP: f64 = 0.02;

impl Interval {
    /// The estimate, where it is within two per cent of the upper bound: what is true can then be at most so much larger. Further below, how good it is no one knows: the bounds
    /// say all there is.
    #[must_use]
    pub fn known_estimate(&self) -> Option<f64> {
        (self.upper.is_finite() && self.upper - self.estimate <= REPORTED_GAP * self.upper).then_some(self.estimate)
    }

    /// An interval of one point.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { lower: value, estimate: value, upper: value }
    }

    pub(crate) fn bounded(lower: f64, estimate: f64, upper: f64) -> Self {
        let lower = if lower.is_nan() { 0.0 } else { lower };
        let upper = if upper.is_nan() { f64::INFINITY } else { upper.max(lower) };
        let estimate = if estimate.is_nan() { upper } else { estimate.clamp(lower, upper) };
        Self { lower, estimate, upper }
    }

    pub(crate) fn times(self, by: f64) -> Self {
        Self { lower: self.lower * by, estimate: self.estimate * by, upper: self.upper * by }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { lower: self.lower + other.lower, estimate: self.estimate + other.estimate, upper: self.upper + other.upper }
    }

    /// Whether the bounds are so near to each other, relative to max(upper, `small`). No end is never near.
    pub(crate) fn is_narrow(&self, share: f64, small: f64) -> bool {
        self.upper.is_finite() && self.upper - self.lower <= share * self.upper.max(small)
    }

    /// The larger of two in every field (the worse of two pairs).
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { lower: self.lower.max(other.lower), estimate: self.estimate.max(other.estimate), upper: self.upper.max(other.upper) }
    }
}

/// Certified width that is aimed at, relative to max(ε, 0.05).
pub(crate) const GAP: f64 = 5e-5;
/// ... below this ε the aim is absolute.
pub(crate) const SMALL: f64 = 0.05;
/// Largest transform of the first attempt, and of the last.
const POINTS: (f64, f64) = (1_048_576.0, 2_097_152.0);
/// Numbers that the spectra of all parts may take, a gigabyte.
const MOST_VALUES: usize = 1 << 27;
/// The law outside the window, in nats.
const OUTSIDE: f64 = 36.0;

/// The composition of steps, each with a number of repetitions.
#[derive(Debug)]
pub(crate) struct Composition {
    parts: Vec<(Pair, u64)>,
    nodes: RefCell<(Vec<Nodes>, f64)>,
}

/// Steps with rates up to this are rare.
const RARE: f64 = 2e-4;
/// Points of a profile that are read from one grid.
pub(crate) const TOGETHER: usize = 16;

/// A point of the curve: where the tilted law has its weight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saddle {
    theta: f64,
    pub(crate) epsilon: f64,
    log_delta: f64,
    cumulants: Cumulants,
}

#[allow(clippy::cast_precision_loss, reason = "a relative error of 1e-16, within every budget")]
fn count(times: u64) -> f64 {
    times as f64
}

impl Composition {
    pub(crate) fn new(parts: Vec<(Pair, u64)>) -> Self {
        Self { parts, nodes: RefCell::default() }
    }

    /// Nats below which one step's outcomes are left out, at the low and at the high end, for questions near δ.
    fn nats(&self, delta: f64) -> (f64, f64) {
        let steps = self.steps().ln();
        (steps + 41.0, steps - delta.ln() + 24.0)
    }

    /// Prepares questions near δ.
    fn aim(&self, delta: f64) {
        let nats = self.nats(delta);
        let mut nodes = self.nodes.borrow_mut();
        if nodes.0.is_empty() || (nodes.1 - nats.1).abs() > 1e-9 {
            *nodes = (self.parts.iter().map(|(pair, _)| Nodes::new(pair, (-8.0, 32.0), nats)).collect(), nats.1);
        }
    }

    /// Bounds on ε(δ) from the product of transforms, of which `running` holds those of all parts but the `pending` ones; narrow only where
    /// the difference says so.
    pub(crate) fn running_epsilon(
        &self,
        running: &mut Option<Running>,
        pending: &[(Pair, u64)],
        delta: f64,
        effort: Effort,
    ) -> Option<Interval> {
        running::epsilon(running, &self.parts, pending, delta, effort)
    }

    /// Bounds on δ(ε), as [`Self::running_epsilon`].
    pub(crate) fn running_delta(&self, running: &mut Option<Running>, pending: &[(Pair, u64)], epsilon: f64) -> Option<Interval> {
        running::delta(running, &self.parts, pending, epsilon)
    }

    /// Whether it is many equal steps that are rare.
    pub(crate) fn is_rare(&self) -> bool {
        matches!(self.parts.as_slice(), [(pair, times)] if *times > 1 && pair.rate <= RARE && !pair.segments.is_empty())
    }

    /// Bounds on ε(δ) by the number of outcomes that are far out, wide where that says nothing; `None` where steps are not rare.
    pub(crate) fn rare_epsilon(&self, delta: f64) -> Option<Interval> {
        let (pair, times) = self.parts.first().filter(|_| self.is_rare())?;
        Some(rare::epsilon(pair, *times, delta).unwrap_or(Interval { lower: 0.0, estimate: f64::NAN, upper: f64::INFINITY }))
    }

    /// Bounds on δ(ε), as [`Self::rare_epsilon`]; `None` also where that is out of reach.
    pub(crate) fn rare_delta(&self, epsilon: f64) -> Option<Interval> {
        let (pair, times) = self.parts.first().filter(|_| self.is_rare())?;
        rare::delta(pair, *times, epsilon)
    }

    /// Whether a step has no more than a table of losses: what is read from transforms says nothing then.
    pub(crate) fn has_table(&self) -> bool {
        self.parts.iter().any(|(pair, _)| pair.is_table())
    }

    /// Whether it is one step.
    pub(crate) fn is_single(&self) -> bool {
        self.single().is_some()
    }

    /// Rényi divergence of order `order` > 1, by quadrature between bounds: the error is ten times what halving the panels changes (and
    /// 1e-12 relative), which is measured and not proved; the upper bound is never above that without sampling, which is proved.
    pub(crate) fn renyi(&self, order: f64) -> Interval {
        let sum = self.parts.iter().map(|(pair, times)| renyi(pair, order).times(count(*times)));
        sum.fold(Interval::exact(0.0), Interval::plus)
    }

    /// The estimate of [`Self::renyi`] alone.
    pub(crate) fn renyi_estimate(&self, order: f64) -> f64 {
        let one = |pair: &Pair| {
            closed_renyi(pair, order)
                .or_else(|| (!pair.is_table()).then(|| renyi_quadrature(pair, order, 1.0)).flatten())
                .unwrap_or_else(|| pair.unsampled_renyi(order))
        };
        self.parts.iter().map(|(pair, times)| count(*times) * one(pair)).sum()
    }

    /// The sum of the steps' total variations, rounded up: an upper bound on δ(0).
    pub(crate) fn variation(&self) -> f64 {
        let sum: f64 = self
            .parts
            .iter()
            .map(|(pair, times)| {
                let one = pair.variation().unwrap_or_else(|| {
                    let (value, _, above) = single_delta(pair, 0.0);
                    (value + above) * (1.0 + SLACK)
                });
                count(*times) * one
            })
            .sum();
        sum * (1.0 + 1e-12)
    }

    /// Upper bound on ε(δ) by basic composition of single steps, each with its share of δ.
    pub(crate) fn basic_upper(&self, delta: f64) -> f64 {
        let share = delta / self.steps() * (1.0 - 1e-12);
        let sum: f64 = self.parts.iter().map(|(pair, times)| count(*times) * single_epsilon(pair, share).upper).sum();
        sum * (1.0 + 1e-12)
    }

    /// Lower bound on ε(δ) from the event that every step has its largest loss, where that has a mass: what is left of δ near the largest
    /// loss of all, where no grid is fine enough.
    pub(crate) fn top_lower(&self, delta: f64) -> f64 {
        let (mut loss, mut log_mass, mut log_finite) = (0.0, 0.0, 0.0);
        for (pair, times) in &self.parts {
            let largest = pair.largest_loss();
            let Some((_, mass)) = pair.atoms.iter().find(|(at, _)| *at >= largest) else { return 0.0 };
            loss += count(*times) * largest;
            log_mass += count(*times) * mass.ln();
            log_finite += count(*times) * (-pair.infinite).ln_1p();
        }
        // Infinite losses take their mass of δ.
        let left = (delta + log_finite.exp_m1() * (1.0 - 1e-9)).max(0.0);
        let share = left / log_mass.exp() * (1.0 + 1e-9);
        if share < 1.0 { (loss * (1.0 - 1e-14) + (-share).ln_1p()).max(0.0) } else { 0.0 }
    }

    /// Mass of infinite losses in all steps, at most.
    pub(crate) fn infinite(&self) -> f64 {
        self.parts.iter().map(|(pair, times)| count(*times) * pair.infinite).sum()
    }

    /// Upper bound on the finite losses.
    pub(crate) fn largest_loss(&self) -> f64 {
        let sum: f64 = self.parts.iter().map(|(pair, times)| count(*times) * pair.largest_loss()).sum();
        sum * (1.0 + 1e-14)
    }

    /// Lower bound on ε(δ) from any one step alone.
    pub(crate) fn one_step_lower(&self, delta: f64) -> f64 {
        self.parts.iter().map(|(pair, _)| single_epsilon(pair, delta).lower).fold(0.0, f64::max)
    }

    fn steps(&self) -> f64 {
        self.parts.iter().map(|(_, times)| count(*times)).sum()
    }

    /// Makes the nodes good for these orders.
    fn cover(&self, low: f64, high: f64) {
        let mut nodes = self.nodes.borrow_mut();
        let nats = (self.nats(1.0).0, nodes.1);
        for (nodes, (pair, _)) in nodes.0.iter_mut().zip(&self.parts) {
            if !(nodes.covers(low) && nodes.covers(high)) {
                *nodes = Nodes::new(pair, ((1.5 * low).min(-8.0), (1.5 * high).max(8.0)), nats);
            }
        }
    }

    fn cumulants(&self, order: f64) -> Cumulants {
        self.cover(order, order);
        let nodes = self.nodes.borrow();
        nodes.0.iter().zip(&self.parts).fold(Cumulants::default(), |sum, (nodes, (_, times))| {
            let (one, times) = (nodes.cumulants(order), count(*times));
            Cumulants {
                value: sum.value + times * one.value,
                mean: sum.mean + times * one.mean,
                variance: sum.variance + times * one.variance,
            }
        })
    }

    /// The saddle point approximation at a tilt.
    fn saddle(&self, theta: f64) -> Saddle {
        let cumulants = self.cumulants(theta);
        let epsilon = cumulants.mean - 1.0 / theta - 1.0 / (theta + 1.0);
        let variance = cumulants.variance + theta.powi(-2) + (theta + 1.0).powi(-2);
        let log_delta = cumulants.value - theta * epsilon - theta.ln() - theta.ln_1p() - 0.5 * (std::f64::consts::TAU * variance).ln();
        Saddle { theta, epsilon, log_delta, cumulants }
    }

    /// The smallest tilt at which `enough` holds (it must be monotone).
    fn search(&self, enough: impl Fn(&Saddle) -> bool) -> Option<Saddle> {
        let (mut low, mut high) = (1.0, 1.0);
        let mut found = self.saddle(high);
        if enough(&found) {
            while enough(&found) {
                high = low;
                low *= 0.25;
                if low < 1e-13 {
                    return Some(found);
                }
                found = self.saddle(low);
            }
        } else {
            while !enough(&found) {
                low = high;
                high *= 4.0;
                if high > 1e16 {
                    return None;
                }
                found = self.saddle(high);
            }
        }
        while high > low * 1.003 {
            let middle = (low * high).sqrt();
            if enough(&self.saddle(middle)) { high = middle } else { low = middle }
        }
        Some(self.saddle(high))
    }

    pub(crate) fn saddle_of_delta(&self, delta: f64) -> Option<Saddle> {
        let target = delta.ln();
        self.aim(delta);
        self.search(|s| s.epsilon >= 0.0 && s.log_delta <= target)
    }

    pub(crate) fn saddle_of_epsilon(&self, epsilon: f64) -> Option<Saddle> {
        self.aim(1e-16);
        let saddle = self.search(|s| s.epsilon >= epsilon)?;
        // Far out, cut further out.
        let delta = saddle.log_delta.exp().clamp(1e-280, 1.0);
        if delta > 1e-14 {
            return Some(saddle);
        }
        self.aim(delta);
        self.search(|s| s.epsilon >= epsilon)
    }

    /// As [`Self::nats`] for the grid, where outcomes beyond the high end may cost a part of `gap` (they count as infinite or not at all).
    fn cut(&self, saddle: &Saddle, delta: f64, gap: f64) -> (f64, f64) {
        let share = (0.02 * gap * saddle.theta).clamp(1e-12, 1e-3);
        (self.nats(delta).0, self.steps().ln() - delta.ln() - share.ln())
    }

    /// Where the tilted law lies.
    fn window(&self, saddle: &Saddle, nats: (f64, f64)) -> Option<Window> {
        let sd = saddle.cumulants.variance.sqrt();
        if !(sd > 0.0 && sd.is_finite()) {
            return None;
        }
        let orders = (saddle.theta - 14.0 / sd, saddle.theta + 14.0 / sd);
        // What the grid sends to infinity must not widen the window.
        let nodes: Vec<_> = self.parts.iter().map(|(pair, _)| Nodes::new(pair, orders, nats)).collect();
        let value = |order: f64| -> f64 { nodes.iter().zip(&self.parts).map(|(n, (_, times))| count(*times) * n.value(order)).sum() };
        let centre = value(saddle.theta);
        let reach = |sign: f64| {
            let bound = |log: f64| {
                let s = log.exp() / sd;
                let value = (value(saddle.theta + sign * s) - centre + OUTSIDE) / s;
                (if value.is_nan() { f64::INFINITY } else { value }, s)
            };
            let golden = 0.618_034;
            let (mut low, mut high) = (-1.0f64, 14f64.ln());
            let mut best = bound(8.4f64.ln());
            for _ in 0..9 {
                let (left, right) = (high - golden * (high - low), low + golden * (high - low));
                let (a, b) = (bound(left), bound(right));
                for candidate in [a, b] {
                    if candidate.0 < best.0 {
                        best = candidate;
                    }
                }
                if a.0 <= b.0 { high = right } else { low = left }
            }
            best
        };
        let (high, up) = reach(1.0);
        let (low, down) = reach(-1.0);
        (high.is_finite() && low.is_finite()).then_some(Window { low: -low, high, theta: saddle.theta, down, up })
    }

    /// Upper and, if asked for, lower bound as functions of ε on a grid of width near `h`.
    fn bounds(&self, window: Window, h: f64, nats: (f64, f64), limit: f64, sides: Sides) -> Option<(Composed, Option<Composed>, f64)> {
        let mut h = h;
        let lattice = match self.parts.as_slice() {
            [(pair, _)] => pair.lattice,
            _ => None,
        };
        if let Some(lattice) = lattice {
            h = lattice.step;
        }
        // Discretisation widens the law a little: one cell a step at most, much less on average.
        let wide = window.high - window.low + 16.0 * h;
        let points = compose::length((wide / h).min(4.0 * POINTS.1));
        if lattice.is_none() {
            h = h.max(wide / limit);
        }
        let points = points.min(compose::length(wide / h));
        if points.saturating_mul(self.parts.len()) > MOST_VALUES {
            return None;
        }
        let cells: Option<Vec<_>> = self.parts.iter().map(|(pair, _)| grid::discretise(pair, h, window.theta, nats, sides)).collect();
        let cells = cells?;
        let parts = |lower: bool| -> Option<Vec<Part<'_>>> {
            cells
                .iter()
                .zip(&self.parts)
                .map(|(cells, (_, times))| {
                    let masses = if lower { cells.lower.as_ref()? } else { &cells.upper };
                    Some(Part { masses, offset: cells.offset, defect: cells.defect, times: *times })
                })
                .collect()
        };
        let window = Window { low: window.low - 6.0 * h, ..window };
        let upper = compose::compose(&parts(false)?, h, window, points, true)?;
        let lower = if sides == Sides::Both { Some(compose::compose(&parts(true)?, h, window, points, false)?) } else { None };
        Some((upper, lower, h))
    }

    /// Grid width for which the bounds are about `gap` apart in ε.
    fn width(&self, saddle: &Saddle, gap: f64) -> f64 {
        (6.5 * gap / (self.steps() * (saddle.theta + 1.0))).sqrt().min(0.05 * saddle.cumulants.variance.sqrt())
    }

    fn contour(&self, saddle: &Saddle, delta: f64) -> Option<Contour> {
        let sd = saddle.cumulants.variance.sqrt();
        self.cover(saddle.theta, saddle.theta + 9.0 / sd);
        let nodes = self.nodes.borrow();
        let value = |order: f64| -> f64 { nodes.0.iter().zip(&self.parts).map(|(n, (_, times))| count(*times) * n.value(order)).sum() };
        // The sum's period: what the tilted law has beyond it appears as an error. Chernoff, the best of a few orders.
        let centre = value(saddle.theta);
        let reach = [1.0, 2.0, 4.0, 8.0].map(|z| {
            let order = z / sd;
            (value(saddle.theta + order) - centre + OUTSIDE) / order - saddle.epsilon.max(0.0)
        });
        let reach = reach.into_iter().filter(|r| r.is_finite()).fold(f64::INFINITY, f64::min);
        let reach = if reach.is_finite() { reach.max(18.0 * sd) } else { 40.0 * sd };
        let parts: Vec<_> = nodes.0.iter().zip(&self.parts).map(|(nodes, (_, times))| (nodes, count(*times))).collect();
        Contour::new(&parts, saddle.theta, delta, reach, saddle.cumulants)
    }

    /// One step alone: δ(ε) by quadrature of the tail.
    fn single(&self) -> Option<&Pair> {
        match self.parts.as_slice() {
            [(pair, 1)] => Some(pair),
            _ => None,
        }
    }

    /// The estimate of ε(δ) alone.
    pub(crate) fn estimate_epsilon(&self, delta: f64) -> Option<f64> {
        if let Some(pair) = self.single() {
            return Some(single_epsilon(pair, delta).estimate);
        }
        let saddle = self.saddle_of_delta(delta)?;
        self.contour(&saddle, delta)?.epsilon(delta, saddle.epsilon)
    }

    /// The estimate of δ(ε) alone.
    pub(crate) fn estimate_delta(&self, epsilon: f64) -> Option<f64> {
        if self.single().is_some() || self.largest_loss() <= epsilon {
            return self.delta(epsilon, GAP).map(|i| i.estimate);
        }
        let saddle = self.saddle_of_epsilon(epsilon)?;
        let value = self.contour(&saddle, saddle.log_delta.exp().clamp(1e-300, 1.0))?.delta(epsilon);
        Some(value.clamp(0.0, 1.0))
    }

    /// ε(δ). `gap`: aim, relative to max(ε, 0.05). `None`: the numbers are out of reach.
    pub(crate) fn epsilon(&self, delta: f64, gap: f64) -> Option<Interval> {
        if let Some(pair) = self.single() {
            return Some(single_epsilon(pair, delta));
        }
        let saddle = self.saddle_of_delta(delta)?;
        let guess = self.contour(&saddle, delta).and_then(|c| c.epsilon(delta, saddle.epsilon));
        // Without a contour the estimate comes from the bounds: make them narrower.
        let gap = match (&guess, self.parts.len()) {
            (Some(_), _) => gap,
            (None, 1) => 0.1 * gap,
            (None, _) => 0.4 * gap,
        };
        let absolute = gap * guess.unwrap_or(saddle.epsilon).max(SMALL);
        let nats = self.cut(&saddle, delta, absolute);
        let window = self.window(&saddle, nats)?;
        let mut h = self.width(&saddle, absolute);
        let mut best: Option<Interval> = None;
        let mut coarse = None;
        if guess.is_none()
            && let Some((upper, _, used)) = self.bounds(window, 1.5 * h, nats, POINTS.0, Sides::Upper)
            && let Some(high) = upper.epsilon(delta, saddle.epsilon)
        {
            coarse = Some((used, high));
        }
        for attempt in 0..3 {
            let limit = if attempt < 2 { POINTS.0 } else { POINTS.1 };
            let Some((upper, lower, used)) = self.bounds(window, h, nats, limit, Sides::Both) else { break };
            let (Some(high), Some(low)) =
                (upper.epsilon(delta, saddle.epsilon), lower.as_ref().map(|l| l.epsilon_lower(delta, saddle.epsilon)))
            else {
                break;
            };
            let low = low.max(best.map_or(0.0, |b| b.lower));
            let high = high.min(best.map_or(f64::INFINITY, |b| b.upper));
            // Both errors are of order h²: without a contour, extrapolate from the last two grids, or from the two bounds.
            let extrapolated = coarse
                .filter(|(h_before, _)| *h_before > 1.1 * used)
                .map(|(h_before, high_before): (f64, f64)| high - (high_before - high) * used * used / (h_before * h_before - used * used));
            let estimate = guess.or(extrapolated).unwrap_or((high + 2.0 * low) / 3.0);
            coarse = Some((used, high));
            best = Some(Interval::bounded(low, estimate, high));
            let aim = 1.9 * gap * high.max(SMALL);
            if (high.is_finite() && high - low <= aim) || used > 1.01 * h || attempt == 2 {
                break;
            }
            h *= (0.8 * (aim / (high - low)).sqrt()).clamp(0.15, 0.6);
        }
        best
    }

    /// δ(ε).
    pub(crate) fn delta(&self, epsilon: f64, gap: f64) -> Option<Interval> {
        if let Some(pair) = self.single() {
            let (value, _, above) = single_delta(pair, epsilon);
            return Some(Interval::bounded((value * (1.0 - SLACK)).max(0.0), value, ((value + above) * (1.0 + SLACK)).min(1.0)));
        }
        if self.largest_loss() <= epsilon {
            let none: f64 = self.parts.iter().map(|(pair, times)| count(*times) * (-pair.infinite).ln_1p()).sum();
            return Some(Interval::exact(-none.exp_m1()));
        }
        let saddle = self.saddle_of_epsilon(epsilon)?;
        let delta = saddle.log_delta.exp().clamp(1e-300, 1.0);
        let guess = self.contour(&saddle, delta).map(|c| c.delta(epsilon));
        let nats = self.cut(&saddle, delta, gap * epsilon.max(SMALL));
        let window = self.window(&saddle, nats)?;
        let mut h = self.width(&saddle, gap * epsilon.max(SMALL));
        let mut best: Option<Interval> = None;
        for attempt in 0..2 {
            let Some((upper, lower, used)) = self.bounds(window, h, nats, POINTS.0, Sides::Both) else { break };
            let high = upper.delta(epsilon).min(best.map_or(1.0, |b| b.upper));
            let low = lower.map_or(0.0, |l| l.delta(epsilon)).max(best.map_or(0.0, |b| b.lower));
            best = Some(Interval::bounded(low, guess.unwrap_or((high + 2.0 * low) / 3.0), high));
            let aim = 2.0 * gap * epsilon.max(SMALL) * (saddle.theta + 1.0) * high;
            if high - low <= aim || used > 1.01 * h || attempt == 1 {
                break;
            }
            h *= (0.8 * (aim / (high - low)).sqrt()).clamp(0.15, 0.6);
        }
        best
    }

    /// Upper bounds on δ at these ε, which rise: one grid for every few of them, made for the largest.
    pub(crate) fn uppers(&self, epsilons: &[f64], gap: f64) -> Option<Vec<f64>> {
        let mut uppers = Vec::new();
        for group in epsilons.chunks(TOGETHER) {
            let last = *group.last()?;
            if self.is_single() || self.largest_loss() <= last {
                let each = group.iter().map(|&epsilon| Some(self.delta(epsilon, gap)?.upper));
                uppers.extend(each.collect::<Option<Vec<_>>>()?);
                continue;
            }
            let saddle = self.saddle_of_epsilon(last)?;
            let gap = gap * last.max(SMALL);
            let nats = self.cut(&saddle, saddle.log_delta.exp().clamp(1e-300, 1.0), gap);
            let (upper, ..) = self.bounds(self.window(&saddle, nats)?, self.width(&saddle, gap), nats, POINTS.0, Sides::Upper)?;
            uppers.extend(group.iter().map(|&epsilon| upper.delta(epsilon)));
        }
        Some(uppers)
    }

    /// Upper bound on ε(δ) alone, to about `gap` relative to max(ε, 0.01); where `worst` says that only more than this matters, to no more
    /// than it takes to stay below.
    pub(crate) fn epsilon_upper(&self, delta: f64, gap: f64, worst: Option<f64>) -> Option<f64> {
        if let Some(pair) = self.single() {
            return Some(single_epsilon(pair, delta).upper);
        }
        let saddle = self.saddle_of_delta(delta)?;
        let near = saddle.epsilon.max(0.0);
        // The saddle point's ε is off by some per cent at most where that matters.
        let room = worst.map_or(0.0, |worst| 0.3 * (worst - 1.02 * near));
        let gap = room.max(gap * near.max(0.01));
        let nats = self.cut(&saddle, delta, gap);
        let window = self.window(&saddle, nats)?;
        let (upper, ..) = self.bounds(window, self.width(&saddle, gap), nats, POINTS.0, Sides::Upper)?;
        upper.epsilon(delta, saddle.epsilon)
    }
}

/// Where no quadrature is needed.
fn closed_renyi(pair: &Pair, order: f64) -> Option<f64> {
    if pair.is_table() {
        None
    } else if pair.infinite > 0.0 {
        Some(f64::INFINITY)
    } else if pair.lattice.is_none() && pair.segments.is_empty() {
        // Finitely many losses.
        let top = pair.atoms.iter().map(|(loss, mass)| mass.ln() + (order - 1.0) * loss).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = pair.atoms.iter().map(|(loss, mass)| (mass.ln() + (order - 1.0) * loss - top).exp()).sum();
        Some(((top + sum.ln()) / (order - 1.0)).max(0.0))
    } else if pair.is_plain() {
        Some(pair.unsampled_renyi(order))
    } else {
        None
    }
}

/// Quadrature with panels scaled by `scale`; `None` where it would not reach the tilted law.
fn renyi_quadrature(pair: &Pair, order: f64, scale: f64) -> Option<f64> {
    let tilt = order - 1.0;
    // The tilted law may lie as far out as the order times the shift.
    let reach = pair.ratio * order + 12.0;
    let nodes = Nodes::with_panels(pair, (tilt, tilt), (72.0, 0.5 * reach * reach), scale)?;
    Some((nodes.value(tilt) / tilt).max(0.0))
}

/// Rényi divergence of one step; see [`Composition::renyi`].
pub(crate) fn renyi(pair: &Pair, order: f64) -> Interval {
    if let Some(value) = closed_renyi(pair, order) {
        return Interval::bounded(value * (1.0 - 1e-14), value, value * (1.0 + 1e-14));
    }
    let most = pair.unsampled_renyi(order) * (1.0 + 1e-14);
    if pair.is_table() {
        // Its mass at infinity is an artefact of the table, not of the step.
        return Interval::bounded(0.0, most, most);
    }
    match (renyi_quadrature(pair, order, 1.0), renyi_quadrature(pair, order, 0.5)) {
        (Some(coarse), Some(fine)) => {
            // Near 0 the moment is distinguished from 1 to a rounding of 1.
            let error = 10.0 * (coarse - fine).abs() + 1e-12 * fine + 4.0 * f64::EPSILON * (1.0 / (order - 1.0)).max(1.0) * fine.min(1.0);
            Interval::bounded((fine - error).max(0.0), fine, (fine + error).min(most))
        }
        _ => Interval::bounded(0.0, most, most),
    }
}

/// Relative error of one step's quadrature.
const SLACK: f64 = 2e-13;

/// δ(ε) of one step, −dδ/dε, and a bound on what lies beyond the quadrature.
fn single_delta(pair: &Pair, epsilon: f64) -> (f64, f64, f64) {
    let (mut sum, mut slope, mut beyond) = (pair.infinite, 0.0, 0.0);
    for segment in &pair.segments {
        let tail = grid::tail(pair, segment, epsilon);
        sum += tail.0;
        slope += tail.1;
        beyond += tail.2;
    }
    for &(loss, mass) in &pair.atoms {
        if loss > epsilon {
            sum -= mass * (epsilon - loss).exp_m1();
            slope += mass * (epsilon - loss).exp();
        }
    }
    (sum, slope, beyond)
}

/// ε(δ) of one step: Newton on ln δ inside a bracket.
fn single_epsilon(pair: &Pair, delta: f64) -> Interval {
    let bounds = |epsilon: f64| {
        let (value, _, above) = single_delta(pair, epsilon);
        (value * (1.0 - SLACK), (value + above) * (1.0 + SLACK))
    };
    if bounds(0.0).1 <= delta {
        return Interval::exact(0.0);
    }
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut epsilon = 0.1;
    for _ in 0..200 {
        let (value, slope, _) = single_delta(pair, epsilon);
        if value > delta {
            low = epsilon
        } else {
            high = epsilon
        }
        let newton = epsilon + (value / delta).ln() * value / slope;
        let next = if newton > low && newton < high {
            newton.min(8.0 * epsilon + 1.0)
        } else if high.is_finite() {
            0.5 * (low + high)
        } else {
            2.0 * epsilon + 1.0
        };
        let done = (next - epsilon).abs() <= 2e-15 * epsilon;
        epsilon = next;
        if done || epsilon > 1e300 {
            break;
        }
    }
    // Outward until the bounds hold.
    let (mut lower, mut upper, mut step) = (epsilon, epsilon, 1e-14);
    while bounds(upper).1 > delta {
        upper += step * upper.max(1e-3);
        step *= 2.0;
        if upper > 1e300 {
            upper = f64::INFINITY;
            break;
        }
    }
    step = 1e-14;
    while lower > 0.0 && bounds(lower).0 < delta {
        lower = (lower - step * lower.max(1e-3)).max(0.0);
        step *= 2.0;
    }
    Interval::bounded(lower, epsilon, upper)
}
