//! One step's transform M(s) = E_P[e^{sL}; L < ∞] on a vertical line Re s = θ: what [`super::running`] multiplies. Proofs:
//! [`crate::proofs::transforms`].
//!
//! # Panels
//! Outcomes y are cut into panels of width W with a Gauss rule of 32 points each. On the ellipse with foci at the ends of a panel and ρ = 4
//! (half axes 1.07·W and 0.94·W) the rule's error is at most 64/15·W/2·4^−64/(1 − 1/16) times the supremum of the integrand (Trefethen 2013,
//! Theorem 19.3). With a = ry − r²/2 and |Im a| ≤ π/4 the integrand is analytic there, |1 − q + qe^a| lies between e^{−0.6·min(p, ¼)(Im a)²}
//! times and once its value at Re a, p = min(1, q/(1−q)·e^{Re a}), and |ℓ′| ≤ rp. So from the real axis to the ellipse it grows by e^E at most,
//!
//! E = (0.94 W)²/2 + |t|·sup|L′|·0.94 W + 0.6·θ·min(p, ¼)(0.94 rW)² + what a share's fading adds ([`super::share`]),
//!
//! the third term only where ℓ enters L with a minus, and panels are made so narrow that E ≤ 46 up to the largest t that is asked for: e^46·4^−64 < 10^−18. What [`QUADRATURE`] allows is 10^4
//! times that, for the supremum along the real axis within two widths of a panel against the panel's own mass.
//!
//! # Beyond the resolved frequencies
//! |∫ e^{itL} g dy| over panels is at most their mass, and by parts over adjoining ones at most v/|t|, v = g/L′ at both ends of them + the sum
//! of √(m·∫(d ln f/dL)² g dy) over each, m its mass and f the tilted density of the loss. In between, where panels are resolved, |φ| is evaluated, and moves by at most
//! E|L − c| and by at most t·E(L − c)² per unit of t, c the mean of what is resolved.

use super::grid;
use super::pair::{Map, Pair, Segment};
use super::quadrature::GAUSS_32;
use super::share::Share;
use super::spread;

/// Where a transform is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Real part.
    pub(crate) theta: f64,
    /// Imaginary parts are 0, step, 2·step, … up to `near`·step.
    pub(crate) step: f64,
    pub(crate) near: usize,
    /// From there on, bounds in so many octaves with so many parts each, and beyond each octave.
    pub(crate) octaves: u32,
    pub(crate) fineness: u32,
    /// Nats of mass left out of one step at the low and the high end.
    pub(crate) nats: (f64, f64),
    /// Further real parts at which moments bound the tails.
    pub(crate) higher: [f64; HIGHER],
}

/// Number of further moments.
pub(crate) const HIGHER: usize = 4;
/// Largest growth of an integrand towards its ellipse, in nats.
const GROWTH: f64 = 46.0;
/// Largest rise of e^{order·L} over a panel, in nats.
const STEEP: f64 = 8.0;
/// θL, with what it grows towards the ellipse, below which an outcome has no weight in a tilted law.
const NOTHING: f64 = -60.0;
/// Half axis of the ellipse over the width of a panel, along the imaginary and along the real axis.
const HIGH: f64 = 0.94;
const WIDE: f64 = 1.07;
/// Relative error of the quadrature.
const QUADRATURE: f64 = 1e-14;
/// Unit roundoff.
const U: f64 = 0.5 * f64::EPSILON;
/// Turning numbers are made afresh after so many steps.
const FRESH: usize = 128;
/// Panels of one step.
const MOST_PANELS: usize = 3000;
/// Products of outcomes and frequencies of one step.
const WORK: usize = 30_000_000;
/// From so many on all near frequencies are looked at at once, which costs as much as [`EACH`] of them for every outcome and [`GRID`] outcomes for
/// every frequency.
const AT_ONCE: usize = 2_000_000;
const EACH: usize = 80;
const GRID: usize = 100;
/// Terms that are summed before their sum is added.
const BLOCK: usize = 64;
/// Terms that are summed side by side.
const LANES: usize = 4;

impl Line {
    pub(crate) fn reach(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let near = self.near as f64;
        near * self.step
    }

    /// The ends of the octaves.
    pub(crate) fn ends(&self) -> impl Iterator<Item = f64> + use<> {
        let reach = self.reach();
        (1..=self.octaves).map(move |i| reach * f64::from(i).exp2())
    }

    /// (centre, half width) of every interval of the bounds.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = (f64, f64)> + use<> {
        let (reach, parts) = (self.reach(), self.fineness);
        (0..self.octaves * parts).map(move |i| {
            let start = reach * f64::from(i / parts).exp2();
            let half = start / f64::from(2 * parts);
            (start + half * f64::from(2 * (i % parts) + 1), half)
        })
    }
}

/// A transform on a line: of one step, or the sum of such over steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// ln M(θ), and a bound on its error.
    pub(crate) log_moment: f64,
    pub(crate) log_error: f64,
    /// Mean and variance of the tilted law.
    pub(crate) mean: f64,
    /// Rounding of the sum of means.
    pub(crate) mean_error: f64,
    pub(crate) variance: f64,
    /// Upper bounds on ln M at the further real parts.
    pub(crate) higher: [f64; HIGHER],
    /// φ(k·step) = M(θ + it)/M(θ)·e^{−it·mean}, k ≥ 1: ln|φ|, arg φ, and a bound on the relative error.
    pub(crate) near: Vec<[f64; 3]>,
    /// Upper bounds on ln|φ| in the intervals of the line, and beyond each of its octaves.
    pub(crate) middle: Vec<f64>,
    pub(crate) beyond: Vec<f64>,
    /// Mass that was left out, at most.
    pub(crate) left_out: f64,
    /// ln P(L < ∞).
    pub(crate) log_finite: f64,
    /// Upper bound on ln of the mass of all outcomes that the transform is of.
    pub(crate) log_mass: f64,
    /// Products of outcomes and frequencies that were made.
    pub(crate) work: usize,
}

impl Samples {
    /// Nothing ran.
    pub(crate) fn none(line: &Line) -> Self {
        Self {
            near: vec![[0.0; 3]; line.near],
            middle: vec![0.0; line.intervals().count()],
            beyond: vec![0.0; line.octaves as usize],
            ..Self::default()
        }
    }

    /// Adds `times` of `other`.
    pub(crate) fn add(&mut self, other: &Self, times: f64) {
        self.log_moment += times * other.log_moment;
        self.log_error += times * other.log_error + 4.0 * U * (times * other.log_moment.abs() + self.log_moment.abs());
        self.mean += times * other.mean;
        self.mean_error += times * other.mean_error + 2.0 * U * (self.mean.abs() + times * other.mean.abs());
        self.variance += times * other.variance;
        for (sum, one) in self.higher.iter_mut().zip(&other.higher) {
            *sum += times * one;
        }
        for (sum, one) in self.near.iter_mut().zip(&other.near) {
            sum[0] += times * one[0];
            sum[1] += times * one[1];
            // The last term: roundings of these very sums.
            sum[2] += times * one[2] + 4.0 * U * (sum[0].abs() + sum[1].abs() + times * (one[0].abs() + one[1].abs()));
        }
        for (sum, one) in self.middle.iter_mut().zip(&other.middle).chain(self.beyond.iter_mut().zip(&other.beyond)) {
            *sum += times * one;
        }
        self.left_out += times * other.left_out;
        self.log_finite += times * other.log_finite;
        self.log_mass += times * other.log_mass;
        self.work = self.work.saturating_add(other.work);
    }
}

/// The transform of one step. `None`: it would cost too much.
pub(crate) fn sample(pair: &Pair, line: &Line) -> Option<Samples> {
    if pair.is_plain() && pair.lattice.is_none() {
        return Some(gaussian(pair.ratio * pair.ratio, line));
    }
    sample_share(pair, line, Share::All, WORK)
}

/// The transform of a share of one step's outcomes, with at most so many products of outcomes and frequencies. `None`: it would cost more.
pub(crate) fn sample_share(pair: &Pair, line: &Line, share: Share, most: usize) -> Option<Samples> {
    let mut outcomes = Outcomes::new(pair, line, share)?;
    let (number, near) = (outcomes.points.len(), line.near);
    let products = number.saturating_mul(near);
    let near = if products > AT_ONCE { EACH * number + GRID * near } else { products };
    let work = near + number * (line.octaves * line.fineness) as usize;
    if work > most {
        return None;
    }
    let near_error = |value: f64| match share {
        Share::Near { missing, .. } => 2.0 * (missing + outcomes.left_out) * (-value).exp(),
        _ => 0.0,
    };
    let moment = |order: f64| match share {
        Share::All => outcomes.moment(order, pair.infinite),
        Share::Near { far, .. } => {
            let (value, error) = outcomes.moment(order, far);
            (value, error + near_error(value))
        }
        Share::Far { .. } => outcomes.sum(order),
    };
    let (log_moment, log_error) = moment(line.theta);
    let higher = line.higher.map(|order| {
        let (value, error) = moment(order);
        value + error
    });
    let log_mass = if let Share::Far { .. } = share {
        let (value, error) = outcomes.sum(0.0);
        value + error
    } else {
        0.0
    };
    let unequal = near_error(log_moment);
    outcomes.tilt(line.theta, log_moment);
    let mean: f64 = outcomes.points.iter().map(|p| p.weight * p.loss).sum();
    let size: f64 = outcomes.points.iter().map(|p| p.weight * p.loss.abs()).sum();
    for point in &mut outcomes.points {
        point.loss -= mean;
    }
    let variance = outcomes.points.iter().map(|p| p.weight * p.loss * p.loss).sum();
    let (middle, beyond) = outcomes.bounds(line);
    let near = outcomes.near(line, size + mean.abs(), log_moment, unequal);
    let left_out = outcomes.left_out;
    let log_error = log_error + 2.0 * left_out;
    Some(Samples {
        log_moment,
        log_error,
        mean,
        mean_error: 0.0,
        variance,
        higher,
        near,
        middle,
        beyond,
        left_out,
        log_finite: (-pair.infinite).ln_1p(),
        log_mass,
        work,
    })
}

/// M(s) = e^{s(s+1)μ²/2}.
fn gaussian(mu_squared: f64, line: &Line) -> Samples {
    let theta = line.theta;
    let log = |order: f64| 0.5 * order * (order + 1.0) * mu_squared;
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let near = (1..=line.near).map(|k| -0.5 * (line.step * k as f64).powi(2) * mu_squared).map(|log| [log, 0.0, 8.0 * U * log.abs()]);
    let far = |t: f64| -0.5 * t * t * mu_squared * (1.0 - 1e-9);
    Samples {
        log_moment: log(theta),
        log_error: 8.0 * U * log(theta),
        mean: (theta + 0.5) * mu_squared,
        mean_error: 4.0 * U * (theta + 0.5) * mu_squared,
        variance: mu_squared,
        higher: line.higher.map(|order| log(order) * (1.0 + 1e-12)),
        near: near.collect(),
        middle: line.intervals().map(|(centre, half)| far(centre - half)).collect(),
        beyond: line.ends().map(far).collect(),
        left_out: 0.0,
        log_finite: 0.0,
        log_mass: 0.0,
        work: line.near,
    }
}

/// A node of a rule, or an atom.
#[derive(Debug, Clone, Copy)]
struct Point {
    loss: f64,
    /// ln of its weight under P, and later the weight under the tilted law.
    log: f64,
    weight: f64,
}

/// Points `from..to`, for frequencies up to `resolved`; what bounds their part of φ: mass, and v.
#[derive(Debug, Clone, Copy)]
struct Panel {
    from: usize,
    to: usize,
    resolved: f64,
    /// Whether the panel before ends where this one begins.
    joined: bool,
    /// (ln of the density over the slope, loss) at both ends, and that under the tilted law.
    logs: [(f64, f64); 2],
    ends: [f64; 2],
    mass: f64,
    /// Bound on ∫|d ln f/dL| g dy.
    turns: f64,
}

struct Outcomes {
    points: Vec<Point>,
    /// d ln f/dL under P at the points of panels.
    steep: Vec<f64>,
    panels: Vec<Panel>,
    left_out: f64,
}

impl Outcomes {
    fn new(pair: &Pair, line: &Line, share: Share) -> Option<Self> {
        let mut this = Self { points: Vec::new(), steep: Vec::new(), panels: Vec::new(), left_out: 0.0 };
        let order = line.higher.iter().copied().fold(line.theta, f64::max);
        let reach = line.reach();
        for &(loss, mass) in pair.atoms.iter().filter(|(_, mass)| *mass > 0.0 && share.has_atoms()) {
            this.points.push(Point { loss, log: mass.ln(), weight: mass });
            this.steep.push(0.0);
        }
        for segment in &pair.segments {
            let all = (pair.reach(segment, line.nats.0).0, pair.reach(segment, line.nats.1).1);
            let Some((low, high, outside)) = share.range(segment, all) else { continue };
            if low >= high {
                return None;
            }
            this.left_out += outside;
            let mut y = low;
            while y < high {
                let (width, rest, slope) = width(pair, segment, share, y, (line.theta, order), reach);
                let end = (y + width).min(high);
                this.panel(pair, segment, share, (y, end), (GROWTH - rest) / (HIGH * (end - y) * slope), y > low);
                if this.panels.len() > MOST_PANELS || end <= y {
                    return None;
                }
                y = end;
            }
            // What fades out within the range has its own bound.
            let (below, above) = grid::outside(pair, segment, low, high);
            let (first, last) = share.cuts(segment);
            this.left_out += (if first { below } else { 0.0 } + if last { above } else { 0.0 }) * (1.0 + 1e-12);
        }
        Some(this)
    }

    fn panel(&mut self, pair: &Pair, segment: &Segment, share: Share, (low, high): (f64, f64), resolved: f64, joined: bool) {
        let (middle, half) = (0.5 * (low + high), 0.5 * (high - low));
        let from = self.points.len();
        for &(x, w) in &GAUSS_32.points {
            let y = middle + half * x;
            let (loss, log_density) = pair.at(segment.map, y);
            let log = log_density + share.log(segment, y) + (half * w).ln();
            self.points.push(Point { loss, log, weight: log.exp() });
            self.steep.push(pair.steepness(segment.map, y) + share.slope(segment, y) / pair.slope(segment.map, y));
        }
        let end = |y: f64| {
            let (loss, log_density) = pair.at(segment.map, y);
            (log_density + share.log(segment, y) - pair.slope(segment.map, y).ln(), loss)
        };
        let logs = [end(low), end(high)];
        self.panels.push(Panel { from, to: self.points.len(), resolved, joined, logs, ends: [0.0; 2], mass: 0.0, turns: 0.0 });
    }

    /// ln M(order) and a bound on its error, from Σ w(e^{order·L} − 1), which has no cancellation against 1.
    fn moment(&self, order: f64, infinite: f64) -> (f64, f64) {
        let rounding = (self.rounding() + 64.0) * U + QUADRATURE;
        let largest = self.points.iter().map(|p| order * p.loss).fold(f64::NEG_INFINITY, f64::max);
        if largest < 600.0 {
            let (mut excess, mut size, mut sums, mut n) = (0.0, 0.0, 0.0, 0);
            for point in &self.points {
                let term = point.weight * (order * point.loss).exp_m1();
                sums += term;
                size += term.abs() * (1.0 + 0.02 * (order * point.loss).abs());
                n += 1;
                if n == BLOCK {
                    excess += sums;
                    (sums, n) = (0.0, 0);
                }
            }
            excess += sums - infinite;
            let moment = 1.0 + excess;
            return (excess.ln_1p(), (rounding * size + 4.0 * U * infinite) / moment + 2.0 * U * excess.abs());
        }
        self.sum(order)
    }

    /// As [`Self::moment`], from Σ w·e^{order·L}, which sums what there is.
    fn sum(&self, order: f64) -> (f64, f64) {
        let rounding = (self.rounding() + 64.0) * U + QUADRATURE;
        let largest = self.points.iter().map(|p| (order * p.loss).abs()).fold(0.0, f64::max);
        let top = self.points.iter().map(|p| p.log + order * p.loss).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.points.iter().map(|p| (p.log + order * p.loss - top).exp()).sum();
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let terms = self.points.len() as f64;
        (top + sum.ln(), rounding + (terms + 8.0 * (1.0 + top.abs() + largest)) * U)
    }

    /// Roundings of a sum in blocks.
    fn rounding(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let blocks = (self.points.len() / BLOCK) as f64;
        blocks + 80.0
    }

    /// Weights under the tilted law.
    fn tilt(&mut self, theta: f64, log_moment: f64) {
        for point in &mut self.points {
            point.weight = (point.log + theta * point.loss - log_moment).exp();
        }
        for panel in &mut self.panels {
            let range = panel.from..panel.to;
            panel.mass = self.points[range.clone()].iter().map(|p| p.weight).sum();
            let square: f64 = self.points[range.clone()].iter().zip(&self.steep[range]).map(|(p, s)| p.weight * (s + theta).powi(2)).sum();
            panel.ends = panel.logs.map(|(log, loss)| (log + theta * loss - log_moment).exp());
            panel.turns = (panel.mass * square).sqrt() * (1.0 + 1e-9);
            if panel.ends.iter().chain([&panel.turns]).any(|x| x.is_nan()) {
                panel.turns = f64::INFINITY;
            }
        }
    }

    /// Upper bounds on ln|φ| in the line's intervals, and beyond them. Losses are centred.
    fn bounds(&self, line: &Line) -> (Vec<f64>, Vec<f64>) {
        const SLACK: f64 = 1e-9;
        let first = self.panels.first().map_or(self.points.len(), |p| p.from);
        // Atoms are resolved at every frequency.
        let atoms: f64 = self.points[..first].iter().map(|p| p.weight).sum();
        // Moments of order 0, 1 and 2 of atoms and panels.
        let moments: Vec<[f64; 3]> = std::iter::once((0, first))
            .chain(self.panels.iter().map(|p| (p.from, p.to)))
            .map(|(from, to)| {
                self.points[from..to]
                    .iter()
                    .fold([0.0; 3], |[zero, one, two], p| [zero + p.weight, one + p.weight * p.loss, two + p.weight * p.loss * p.loss])
            })
            .collect();
        // e^{itL} at the first centre of an octave, and the turn from a centre to the next: squared from octave to octave.
        let mut unit: Vec<(f64, f64)> = Vec::new();
        let mut turn: Vec<(f64, f64)> = Vec::new();
        let mut state = Vec::new();
        let mut result = Vec::new();
        for (i, (centre, half)) in line.intervals().enumerate() {
            if i == 0 {
                unit = self.points.iter().map(|p| polar(centre * p.loss)).collect();
                turn = self.points.iter().map(|p| polar(2.0 * half * p.loss)).collect();
                state.clone_from(&unit);
            } else if i % line.fineness as usize == 0 {
                for value in unit.iter_mut().chain(&mut turn) {
                    *value = times(*value, *value);
                }
                state.clone_from(&unit);
            } else {
                for (value, turn) in state.iter_mut().zip(&turn) {
                    *value = times(*value, *turn);
                }
            }
            let sum = |range: std::ops::Range<usize>| {
                self.points[range.clone()]
                    .iter()
                    .zip(&state[range])
                    .fold((0.0, 0.0), |s: (f64, f64), (p, z)| (s.0 + p.weight * z.0, s.1 + p.weight * z.1))
            };
            let (mut re, mut im) = sum(0..first);
            let (mut rest, mut resolved) = (Rest::new(centre - half), moments[0]);
            for (panel, moments) in self.panels.iter().zip(&moments[1..]) {
                // Whichever is likely to say more: the value here and how far it moves, or parts.
                let moves = half * (moments[0] * moments[2]).sqrt().min((centre + half) * moments[2]);
                if centre <= panel.resolved && moves * (centre - half) <= panel.turns {
                    rest.close();
                    let part = sum(panel.from..panel.to);
                    re += part.0;
                    im += part.1;
                    for (sum, moment) in resolved.iter_mut().zip(moments) {
                        *sum += moment;
                    }
                } else if centre <= panel.resolved {
                    // By itself: its value here, and how far that moves about its own mean.
                    let part = sum(panel.from..panel.to);
                    let [mass, one, two] = *moments;
                    let spread = if mass > 0.0 { (two - one * one / mass).max(0.0) + 1e-14 * two } else { 0.0 };
                    rest.single(panel, part.0.hypot(part.1) + half * (mass * spread).sqrt());
                } else {
                    rest.add(panel);
                }
            }
            // With c the mean of what is resolved and V = Σw(L − c)² = Σ − S²/m, Σw|L − c| ≤ √(mV), and t·V ≥ |Σw(L − c)(e^{it(L−c)} − 1)|.
            let [mass, one, two] = resolved;
            let square = if mass > 0.0 { (two - one * one / mass).max(0.0) + 1e-14 * two } else { 0.0 };
            let moved = (mass * square).sqrt().min((centre + half) * square);
            result.push(((re * re + im * im).sqrt() + rest.sum() + half * moved + SLACK).ln().min(0.0));
        }
        let beyond = |end: f64| {
            let mut rest = Rest::new(end);
            self.panels.iter().for_each(|panel| rest.add(panel));
            (atoms + rest.sum() + SLACK).ln().min(0.0)
        };
        (result, line.ends().map(beyond).collect())
    }

    /// φ at the near frequencies. `size`: E|L| + |mean|; `unequal`: how far the sum of all weights may be from 1 beside rounding.
    fn near(&self, line: &Line, size: f64, log_moment: f64, unequal: f64) -> Vec<[f64; 3]> {
        // Weights below this are left out, and charged.
        let least = 1e-19;
        let points: Vec<(f64, f64)> = self.points.iter().filter(|p| p.weight > least).map(|p| (p.loss, p.weight)).collect();
        #[allow(clippy::cast_precision_loss, reason = "counts")]
        let (dropped, fresh) = ((self.points.len() - points.len()) as f64 * least, FRESH as f64);
        // Sums, weights, turning numbers, and what was left out; the losses' own roundings grow with the frequency.
        let weights = 256.0 + 4.0 * (line.theta * size + log_moment.abs());
        let rest = weights * U + QUADRATURE + dropped + unequal;
        let at_once = points.len().saturating_mul(line.near) > AT_ONCE;
        let (sums, error) = at_once.then(|| spread::sums(&points, line.step, line.near)).flatten().unwrap_or_else(|| {
            let mut turn = Turning::new(&points);
            let sums = (1..=line.near).map(|k| {
                #[allow(clippy::cast_precision_loss, reason = "a small count")]
                let t = line.step * k as f64;
                if k % FRESH == 0 { turn.to(t, line.step) } else { turn.on(line.step) }
            });
            (sums.collect(), (self.rounding() + 5.0 * fresh) * U)
        });
        let one = |(k, sum): (u32, (f64, f64))| {
            let error = error + rest + 10.0 * U * (line.step * f64::from(k)) * size;
            // Nearer to 0 than its error a value says nothing but that.
            let modulus = sum.0.hypot(sum.1).max(4.0 * error);
            [modulus.ln(), sum.1.atan2(sum.0), 6.0 * error / modulus]
        };
        (1u32..).zip(sums).map(one).collect()
    }
}

/// Bound on what panels add to |φ| at frequencies from t on.
struct Rest {
    t: f64,
    sum: f64,
    /// g/L′ at the end of the row of panels that are integrated by parts.
    open: f64,
}

impl Rest {
    fn new(t: f64) -> Self {
        Self { t, sum: 0.0, open: 0.0 }
    }

    fn add(&mut self, panel: &Panel) {
        if panel.mass * self.t <= panel.turns {
            self.close();
            self.sum += panel.mass;
            return;
        }
        if !panel.joined {
            self.close();
        }
        if self.open <= 0.0 {
            self.sum += panel.ends[0] / self.t;
        }
        self.sum += panel.turns / self.t;
        self.open = panel.ends[1].max(f64::MIN_POSITIVE);
    }

    /// As [`Self::add`], or what is known of the panel alone, where that is less.
    fn single(&mut self, panel: &Panel, alone: f64) {
        if alone < panel.mass.min((panel.turns + panel.ends[0] + panel.ends[1]) / self.t) {
            self.close();
            self.sum += alone;
        } else {
            self.add(panel);
        }
    }

    /// Ends the row.
    fn close(&mut self) {
        self.sum += self.open / self.t;
        self.open = 0.0;
    }

    fn sum(mut self) -> f64 {
        self.close();
        self.sum
    }
}

/// Weights times e^{itL} for t = step, 2·step, …
struct Turning<'a> {
    points: &'a [(f64, f64)],
    /// Real and imaginary parts, of the turning numbers and of a step's turn.
    state: [Vec<f64>; 2],
    turn: [Vec<f64>; 2],
}

impl<'a> Turning<'a> {
    fn new(points: &'a [(f64, f64)]) -> Self {
        Self { points, state: [points.iter().map(|p| p.1).collect(), vec![0.0; points.len()]], turn: [Vec::new(), Vec::new()] }
    }

    /// Afresh.
    fn to(&mut self, t: f64, step: f64) -> (f64, f64) {
        let [re, im] = &mut self.state;
        for ((re, im), (loss, weight)) in re.iter_mut().zip(im).zip(self.points) {
            let (cos, sin) = polar((t - step) * loss);
            (*re, *im) = (weight * cos, weight * sin);
        }
        self.on(step)
    }

    /// One step on, and the sum.
    fn on(&mut self, step: f64) -> (f64, f64) {
        if self.turn[0].is_empty() {
            self.turn =
                [self.points.iter().map(|p| (step * p.0).cos()).collect(), self.points.iter().map(|p| (step * p.0).sin()).collect()];
        }
        let ([re, im], [cos, sin]) = (&mut self.state, &self.turn);
        let mut sum = (0.0, 0.0);
        for (((re, im), cos), sin) in re.chunks_mut(BLOCK).zip(im.chunks_mut(BLOCK)).zip(cos.chunks(BLOCK)).zip(sin.chunks(BLOCK)) {
            let mut part = [[0.0f64; LANES]; 2];
            let pieces = re.chunks_mut(LANES).zip(im.chunks_mut(LANES)).zip(cos.chunks(LANES)).zip(sin.chunks(LANES));
            for (((re, im), cos), sin) in pieces {
                for j in 0..re.len() {
                    let turned = (re[j] * cos[j] - im[j] * sin[j], re[j] * sin[j] + im[j] * cos[j]);
                    (re[j], im[j]) = turned;
                    part[0][j] += turned.0;
                    part[1][j] += turned.1;
                }
            }
            sum.0 += part[0].iter().sum::<f64>();
            sum.1 += part[1].iter().sum::<f64>();
        }
        sum
    }
}

/// Width of the panel that begins at y, its growth E without the part of t, and sup|L′|.
fn width(pair: &Pair, segment: &Segment, share: Share, y: f64, (theta, order): (f64, f64), reach: f64) -> (f64, f64, f64) {
    let r = pair.ratio;
    let odds = if pair.rate < 1.0 { pair.rate / (1.0 - pair.rate) } else { f64::INFINITY };
    let sup = |x: f64| r * (odds * (r * x - 0.5 * r * r).min(700.0).exp()).min(1.0);
    let mut width = (0.25 * std::f64::consts::PI / (HIGH * r)).min(0.8);
    loop {
        let (middle, wide) = (y + 0.5 * width, WIDE * width);
        // sup|L′|, and that of the part of L that comes with a minus.
        let (slope, minus) = match segment.map {
            Map::Remove => (sup(middle + wide), 0.0),
            Map::Add => (sup(wide - middle), sup(wide - middle)),
            Map::Replace => (sup(middle + wide) + sup(wide - middle), sup(wide - middle)),
            Map::Laplace => (2.0, 0.0),
        };
        let high = HIGH * width;
        let bent = 0.6 * (minus / r).min(0.25) * (r * high).powi(2);
        // Where nothing is left of the tilted law it need not be resolved.
        let order = if theta * (pair.at(segment.map, middle + wide).0 + bent) < NOTHING { 0.0 } else { order };
        let bend = order * bent;
        let rest = 0.5 * high * high + bend + share.growth(segment, (middle - wide, middle + wide), high);
        // Half of the growth is left for frequencies, so that bounds beyond the reach may look at the panel, too.
        let grows = rest + reach * slope * high > GROWTH || rest > 0.5 * GROWTH || order * slope * width > STEEP;
        if !grows || width < 1e-9 {
            return (width, rest, slope);
        }
        width *= 0.85;
    }
}

fn polar(angle: f64) -> (f64, f64) {
    let (sin, cos) = angle.sin_cos();
    (cos, sin)
}

fn times(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}
