//! One step's privacy loss on a grid: a distribution that dominates it and one that it dominates.
//!
//! Cell i is [l_i, l_{i+1}) with l_i = offset + i·h.
//!
//! * **Upper** (connect the dots; Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022): a loss L in the cell is replaced by l_{i+1}
//!   with probability (1 − e^{−(L−l_i)})/(1 − e^{−h}), else by l_i. Both masses of the pair are kept, and the hockey-stick curve
//!   becomes its chord between grid points: above it, as it is convex.
//! * **Lower** (post-processing): outcomes between e_{i−1} and e_i, edges near the middles of the cells, are merged into one
//!   outcome. Its loss is a weighted mean of the merged ones; it is rounded down to l_i. Where it is below l_i, only such a random
//!   part of the outcomes below l_i is merged as makes it l_i, and the rest is rounded down to l_{i−1}. The edges are chosen so that
//!   hardly anything has to be rounded: e = middle − (g − ½)h²/12 with g the logarithmic slope of the loss's density.
//!
//! All masses are integrals over the outcome y by Gauss rules whose truncation error is below 1e-15 relative; differences like
//! 1 − e^{−(L−l)} are `expm1` of a difference of losses.

use super::pair::{Anchor, Map, Pair};
use super::quadrature::{GAUSS_2, GAUSS_3, GAUSS_5, Rule};

/// A distribution of losses `offset + h·(first + k)`.
#[derive(Debug, Clone)]
pub(crate) struct Masses {
    pub(crate) first: i64,
    pub(crate) masses: Vec<f64>,
    /// Mass at infinity (upper) or left out (lower, harmless).
    pub(crate) infinite: f64,
}

/// Both bounds of one step.
#[derive(Debug, Clone)]
pub(crate) struct Cells {
    pub(crate) offset: f64,
    pub(crate) upper: Masses,
    pub(crate) lower: Option<Masses>,
    /// |total mass − 1|: what quadrature and rounding got wrong.
    pub(crate) defect: f64,
}

/// Integrals over one half cell.
#[derive(Debug, Clone, Copy, Default)]
struct Half {
    mass: f64,
    /// ∫(1 − e^{−(L−l)})dP over the lower half (l its left end), ∫(e^{l−L} − 1)dP over the upper half (l its right end).
    lever: f64,
}

/// Largest number of cells that [`discretise`] makes.
pub(crate) const MOST_CELLS: f64 = 2_097_152.0;

/// Range of losses that matter: below, mass e^{−low_nats}; above, mass e^{−high_nats}.
pub(crate) fn range(pair: &Pair, low_nats: f64, high_nats: f64) -> (f64, f64) {
    let mut range = (f64::INFINITY, f64::NEG_INFINITY);
    for segment in &pair.segments {
        let (low, _) = pair.reach(segment, low_nats);
        let (_, high) = pair.reach(segment, high_nats);
        if low < high {
            range = (range.0.min(pair.at(segment.map, low).0), range.1.max(pair.at(segment.map, high).0));
        }
    }
    for &(loss, mass) in &pair.atoms {
        if mass > 0.0 {
            range = (range.0.min(loss), range.1.max(loss));
        }
    }
    range
}

/// Cells that the search for an offset looks at.
const CHAIN: u32 = 40;

/// The grid's offset that puts a narrow peak of losses onto a grid point: outcomes from the end of the range to the first edge merge
/// into a loss that is on the grid.
fn offset(pair: &Pair, h: f64, nats: f64) -> f64 {
    let (map, segment) = match (pair.anchor, pair.segments.first()) {
        (Anchor::Zero, _) | (_, None) => return 0.0,
        (_, Some(segment)) => (segment.map, segment),
    };
    let (low, high) = pair.reach(segment, nats);
    let bottom = pair.anchor == Anchor::Bottom;
    let extreme = pair.at(map, if bottom { low } else { high }).0;
    let mut merged = extreme;
    for _ in 0..12 {
        let mut edge = 0.5f64.mul_add(if bottom { h } else { -h }, merged + if bottom { h } else { -h } * f64::from(CHAIN));
        for k in (1..=CHAIN).rev() {
            let point = merged + if bottom { h } else { -h } * f64::from(k);
            edge = balanced(pair, map, point, edge, h);
        }
        let edge = pair.inverse(map, edge);
        let piece = if bottom { (low, edge.min(high)) } else { (edge.max(low), high) };
        let mut sums = (0.0, 0.0);
        integrate(pair, map, piece, |loss, mass| {
            sums.0 += mass;
            sums.1 += mass * (-(loss - extreme)).exp_m1();
        });
        if sums.0.is_nan() || sums.0 <= 1e-12 {
            return 0.0;
        }
        let next = extreme - (sums.1 / sums.0).ln_1p();
        let moved = (next - merged).abs();
        merged = next;
        if moved < 1e-9 * h {
            break;
        }
    }
    // A few roundings to the safe side: the merged loss must not be below the grid point.
    if merged.is_finite() { merged - (merged.abs() * 4.0 + 1e-300) * f64::EPSILON } else { 0.0 }
}

/// The edge on the other side of the grid point `point` for which outcomes between it and `edge` merge into exactly that loss.
fn balanced(pair: &Pair, map: Map, point: f64, edge: f64, h: f64) -> f64 {
    let centre = pair.inverse(map, point);
    let lever = |edge: f64| {
        let y = pair.inverse(map, edge);
        let (low, high) = (y.min(centre).max(-60.0), y.max(centre).min(60.0 + pair.ratio));
        let mut sum = 0.0;
        integrate(pair, map, (low, high), |loss, mass| sum += mass * (point - loss).exp_m1());
        sum.abs()
    };
    let side = if edge > point { -1.0 } else { 1.0 };
    let target = lever(edge);
    let mut distance = (edge - point).abs().min(h);
    for _ in 0..12 {
        let value = lever(point + side * distance);
        if value.is_nan() || value <= 0.0 || target <= 0.0 {
            break;
        }
        if (value / target - 1.0).abs() < 1e-9 {
            break;
        }
        let at = point + side * distance;
        let y = pair.inverse(map, at);
        let density = (pair.at(map, y).1).exp() / pair.slope(map, y) * (point - at).exp_m1().abs();
        let newton = distance - (value - target) / density;
        distance =
            if newton > 0.3 * distance && newton < 3.0 * distance { newton } else { distance * (target / value).sqrt().clamp(0.2, 5.0) };
        if distance >= h {
            distance = h;
            if lever(point + side * h) <= target {
                break;
            }
        }
    }
    point + side * distance
}

/// Calls `each(loss, mass)` for the nodes of a Gauss rule that is good to rounding on the piece.
fn integrate(pair: &Pair, map: Map, (low, high): (f64, f64), mut each: impl FnMut(f64, f64)) {
    let width = high - low;
    if !(width > 0.0 && width.is_finite()) {
        return;
    }
    let scale = low.abs().max(high.abs()) + 2.0 * pair.ratio + 1.0;
    let size = width * scale;
    let mut panel = |rule: &Rule, low: f64, high: f64| {
        let (middle, half) = (0.5 * (low + high), 0.5 * (high - low));
        for &(x, w) in &rule.points {
            let (loss, log_density) = pair.at(map, middle + half * x);
            each(loss, half * w * log_density.exp());
        }
    };
    if size < 1e-3 {
        panel(&GAUSS_2, low, high);
    } else if size < 0.03 {
        panel(&GAUSS_3, low, high);
    } else {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most some thousand panels")]
        let panels = (size / 0.5).ceil().min(1e6) as u32;
        let step = width / f64::from(panels);
        for k in 0..panels {
            panel(&GAUSS_5, low + f64::from(k) * step, if k + 1 == panels { high } else { low + f64::from(k + 1) * step });
        }
    }
}

/// Puts one step on the grid of width `h`. `None`: more cells than memory and time allow.
pub(crate) fn discretise(pair: &Pair, h: f64, low_nats: f64, high_nats: f64, with_lower: bool) -> Option<Cells> {
    if let Some(lattice) = pair.lattice
        && (lattice.step - h).abs() <= f64::EPSILON * h
    {
        let masses = Masses { first: lattice.first, masses: pair.atoms.iter().map(|a| a.1).collect(), infinite: 0.0 };
        return Some(Cells { offset: lattice.offset, upper: masses.clone(), lower: Some(masses), defect: 0.0 });
    }
    let (low, high) = range(pair, low_nats, high_nats);
    let cells = (high - low) / h;
    if cells.is_nan() || cells >= MOST_CELLS {
        return None;
    }
    let offset = offset(pair, h, low_nats);
    #[allow(clippy::cast_possible_truncation, reason = "bounded by MOST_CELLS relative to a finite offset")]
    let (first, last) = (((low - offset) / h).floor() as i64, ((high - offset) / h).floor() as i64);
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    let point = |i: i64| offset + h * i as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "last >= first")]
    let count = (last - first + 1) as usize;
    let edges = edges(pair, h, first, count, &point);
    let mut lower_halves = vec![Half::default(); count];
    let mut upper_halves = vec![Half::default(); count];
    let (mut below, mut above) = (0.0, 0.0);
    for segment in &pair.segments {
        let (start, end) = (pair.reach(segment, low_nats).0, pair.reach(segment, high_nats).1);
        let (mut y, mut i) = (start, first);
        for ((edge, low_half), high_half) in edges.iter().zip(&mut lower_halves).zip(&mut upper_halves) {
            let (left, right) = (point(i), point(i + 1));
            let middle = pair.inverse(segment.map, *edge).clamp(y, end.max(y));
            if middle > y {
                integrate(pair, segment.map, (y, middle), |loss, mass| {
                    low_half.mass += mass;
                    low_half.lever -= mass * (left - loss).exp_m1();
                });
            }
            let stop = if i == last { end.max(middle) } else { pair.inverse(segment.map, right).clamp(middle, end.max(middle)) };
            if stop > middle {
                integrate(pair, segment.map, (middle, stop), |loss, mass| {
                    high_half.mass += mass;
                    high_half.lever += mass * (right - loss).exp_m1();
                });
            }
            y = stop;
            i += 1;
        }
        let (outside_low, outside_high) = outside(pair, segment, start, end);
        below += outside_low;
        above += outside_high;
    }
    for &(loss, mass) in &pair.atoms {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped into the cells")]
        let k = (((loss - offset) / h).floor() as i64 - first).clamp(0, count as i64 - 1) as usize;
        let i = first + i64::try_from(k).unwrap_or(0);
        if loss <= edges[k] {
            lower_halves[k].mass += mass;
            lower_halves[k].lever -= mass * (point(i) - loss).min(0.0).exp_m1();
        } else {
            upper_halves[k].mass += mass;
            upper_halves[k].lever += mass * (point(i + 1) - loss).max(0.0).exp_m1();
        }
    }
    let total: f64 = lower_halves.iter().zip(&upper_halves).map(|(a, b)| a.mass + b.mass).sum::<f64>() + pair.infinite;
    let defect = (total + below + above - 1.0).abs();
    let upper = connect_the_dots(first, h, &lower_halves, &upper_halves, below, above + pair.infinite);
    let lower = with_lower.then(|| merge(first, &lower_halves, &upper_halves, pair.infinite));
    Some(Cells { offset, upper, lower, defect })
}

/// Upper bounds on the mass left and right of the part of a segment that is put on the grid.
fn outside(pair: &Pair, segment: &super::pair::Segment, start: f64, end: f64) -> (f64, f64) {
    let below = |y: f64| 0.5 * libm::erfc(-y / std::f64::consts::SQRT_2);
    let above = |y: f64| 0.5 * libm::erfc(y / std::f64::consts::SQRT_2);
    let (q, r) = (pair.rate, pair.ratio);
    let mixed = |f: &dyn Fn(f64) -> f64, y: f64| (1.0 - q) * f(y) + q * f(y - r);
    let (low, high): (f64, f64) = match segment.map {
        Map::Laplace => (0.0, 0.0),
        Map::Add => (below(start), above(end)),
        Map::Remove | Map::Replace => (mixed(&below, start), mixed(&above, end)),
    };
    (if start > segment.low { low } else { 0.0 }, if end < segment.high { high } else { 0.0 })
}

/// Where cells are cut so that merged outcomes have losses on the grid.
fn edges(pair: &Pair, h: f64, first: i64, count: usize, point: &impl Fn(i64) -> f64) -> Vec<f64> {
    let map = pair.segments.first().filter(|_| pair.segments.len() == 1).map(|s| s.map);
    let log_density = |l: f64| {
        map.and_then(|map| {
            let y = pair.inverse(map, l);
            y.is_finite().then(|| pair.at(map, y).1 - pair.slope(map, y).ln())
        })
    };
    let mut before = log_density(point(first) - 0.5 * h);
    let mut here = log_density(point(first) + 0.5 * h);
    let mut edges = Vec::with_capacity(count);
    let mut slopes = Vec::with_capacity(count);
    for i in (first..).take(count) {
        let after = log_density(point(i + 1) + 0.5 * h);
        let shift = match (before, after) {
            (Some(before), Some(after)) if (after - before).is_finite() => {
                let slope = (after - before) / (2.0 * h);
                slopes.push(slope);
                (-(slope - 0.5) * h * h / 12.0).clamp(-0.4 * h, 0.4 * h)
            }
            _ => {
                slopes.push(0.0);
                0.0
            }
        };
        edges.push(point(i) + 0.5 * h + shift);
        (before, here) = (here, after);
    }
    if let Some(map) = map {
        sharpen(pair, map, h, &slopes, &mut edges, |k| point(first + i64::try_from(k).unwrap_or(0)));
    }
    edges
}

/// Density that changes by more than this from a cell to the next needs edges that balance exactly.
const STEEP: f64 = 0.01;
/// Cells that are balanced exactly, on either side of a peak.
const MOST_STEEP: usize = 1500;

/// Solves for the edges where the density falls or rises steeply: always from the thin side to the thick one, where an error in one
/// edge dies out instead of growing.
fn sharpen(pair: &Pair, map: Map, h: f64, slopes: &[f64], edges: &mut [f64], point: impl Fn(usize) -> f64) {
    let peak = match pair.anchor {
        Anchor::Bottom => 0,
        Anchor::Top => edges.len(),
        // The cell left of 0 ends at 0.
        Anchor::Zero => (0..edges.len()).find(|&k| point(k) >= -0.5 * h).unwrap_or(edges.len()),
    };
    let last = edges.len().min(peak + MOST_STEEP);
    let steep = (peak..last).rev().find(|&k| slopes[k] * h < -STEEP).map_or(peak, |k| (k + 1).min(last));
    for k in (peak..steep).rev() {
        if k + 1 < edges.len() {
            edges[k] = balanced(pair, map, point(k + 1), edges[k + 1], h).clamp(point(k), point(k + 1));
        }
    }
    let first = peak.saturating_sub(MOST_STEEP);
    let steep = (first..peak).find(|&k| slopes[k] * h > STEEP).unwrap_or(peak);
    for k in steep..peak {
        if k > 0 {
            edges[k] = balanced(pair, map, point(k), edges[k - 1], h).clamp(point(k), point(k + 1));
        }
    }
}

fn connect_the_dots(first: i64, h: f64, low: &[Half], high: &[Half], below: f64, infinite: f64) -> Masses {
    let scale = -(-h).exp_m1();
    let mut masses = vec![0.0; low.len() + 1];
    masses[0] = below;
    for (k, (a, b)) in low.iter().zip(high).enumerate() {
        let mass = a.mass + b.mass;
        let up = ((a.lever + scale * b.mass - (-h).exp() * b.lever) / scale).clamp(0.0, mass);
        masses[k] += mass - up;
        masses[k + 1] += up;
    }
    Masses { first, masses, infinite }
}

fn merge(first: i64, low: &[Half], high: &[Half], infinite: f64) -> Masses {
    // Grid point k takes the upper half of cell k−1 and the lower half of cell k.
    let mut masses = vec![0.0; low.len() + 1];
    for k in 0..=low.len() {
        let above = low.get(k).copied().unwrap_or_default();
        let below = if k > 0 { high[k - 1] } else { Half::default() };
        if above.lever >= below.lever {
            masses[k] += above.mass + below.mass;
        } else {
            let part = above.lever / below.lever;
            masses[k] += above.mass + part * below.mass;
            // k > 0: the lever of nothing is 0.
            masses[k.saturating_sub(1)] += (1.0 - part) * below.mass;
        }
    }
    Masses { first, masses, infinite }
}

/// ∫_{L > ε} (1 − e^{ε−L}) dP over one segment, ∫_{L > ε} e^{ε−L} dP, and a bound on the part beyond the quadrature.
pub(crate) fn tail(pair: &Pair, segment: &super::pair::Segment, epsilon: f64) -> (f64, f64, f64) {
    let (low, high) = (segment.low.max(-45.0), segment.high.min(45.0 + pair.ratio));
    let start = pair.inverse(segment.map, epsilon).max(low);
    if start.is_nan() || start >= high {
        return (0.0, 0.0, outside(pair, segment, low, high).1);
    }
    // The integrand falls like a normal tail from where it is largest on.
    let end = high.min(start.max(if segment.map == Map::Add { 0.0 } else { pair.ratio }) + 16.0);
    let (mut sum, mut slope) = (0.0, 0.0);
    integrate(pair, segment.map, (start, end), |loss, mass| {
        let below = (epsilon - loss).min(0.0);
        sum -= mass * below.exp_m1();
        slope += mass * below.exp();
    });
    (sum, slope, outside(pair, segment, low, end).1)
}
