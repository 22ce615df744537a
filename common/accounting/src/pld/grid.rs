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

/// A distribution of losses `offset + h·index`.
#[derive(Debug, Clone)]
pub(crate) struct Masses {
    /// (index, mass), in ascending order of the index.
    pub(crate) masses: Vec<(i64, f64)>,
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
const MOST_CELLS: usize = 200_000;

/// Which bounds are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sides {
    /// The upper one alone.
    Upper,
    /// Upper and lower.
    Both,
}

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
    for &(loss, mass) in pair.atoms_within((low_nats, high_nats)).0 {
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

/// Puts one step on the grid of width `h`, finest where the law tilted by `theta` has its mass. `None`: too many cells.
pub(crate) fn discretise(pair: &Pair, h: f64, theta: f64, nats: (f64, f64), sides: Sides) -> Option<Cells> {
    if let Some(lattice) = pair.lattice
        && (lattice.step - h).abs() <= f64::EPSILON * h
    {
        let masses = Masses { masses: (lattice.first..).zip(pair.atoms.iter().map(|a| a.1)).collect(), infinite: 0.0 };
        return Some(Cells { offset: lattice.offset, upper: masses.clone(), lower: Some(masses), defect: 0.0 });
    }
    let (low, high) = range(pair, nats.0, nats.1);
    if !(low <= high && (high - low) / h < 9e15) {
        return None;
    }
    let offset = if sides == Sides::Both { offset(pair, h, nats.0) } else { 0.0 };
    let knots = knots(pair, h, offset, theta, nats, (low, high))?;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    let loss_of = |index: i64| offset + h * index as f64;
    let point = |k: usize| loss_of(knots[k].index);
    let count = knots.len().checked_sub(1).filter(|count| *count > 0)?;
    let edges =
        if sides == Sides::Both { edges(pair, h, &knots, &point) } else { (0..count).map(|k| 0.5 * (point(k) + point(k + 1))).collect() };
    let mut lower_halves = vec![Half::default(); count];
    let mut upper_halves = vec![Half::default(); count];
    let (mut below, mut above) = (0.0, 0.0);
    for segment in &pair.segments {
        let (start, end) = (pair.reach(segment, nats.0).0, pair.reach(segment, nats.1).1);
        let mut y = start;
        for (k, edge) in edges.iter().enumerate() {
            let (left, right) = (point(k), point(k + 1));
            let middle = pair.inverse(segment.map, *edge).clamp(y, end.max(y));
            if middle > y {
                let low_half = &mut lower_halves[k];
                integrate(pair, segment.map, (y, middle), |loss, mass| {
                    low_half.mass += mass;
                    low_half.lever -= mass * (left - loss).exp_m1();
                });
            }
            let stop = if k + 1 == count { end.max(middle) } else { pair.inverse(segment.map, right).clamp(middle, end.max(middle)) };
            if stop > middle {
                let high_half = &mut upper_halves[k];
                integrate(pair, segment.map, (middle, stop), |loss, mass| {
                    high_half.mass += mass;
                    high_half.lever += mass * (right - loss).exp_m1();
                });
            }
            y = stop;
        }
        let (outside_low, outside_high) = outside(pair, segment, start, end);
        below += outside_low;
        above += outside_high;
    }
    let (atoms, outside_low, outside_high) = pair.atoms_within(nats);
    below += outside_low;
    above += outside_high;
    for &(loss, mass) in atoms {
        let k = knots[1..].partition_point(|knot| loss_of(knot.index) <= loss).min(count - 1);
        if loss <= edges[k] {
            lower_halves[k].mass += mass;
            lower_halves[k].lever -= mass * (point(k) - loss).min(0.0).exp_m1();
        } else {
            upper_halves[k].mass += mass;
            upper_halves[k].lever += mass * (point(k + 1) - loss).max(0.0).exp_m1();
        }
    }
    let total: f64 = lower_halves.iter().zip(&upper_halves).map(|(a, b)| a.mass + b.mass).sum::<f64>() + pair.infinite;
    let defect = (total + below + above - 1.0).abs();
    let upper = connect_the_dots(&knots, h, &lower_halves, &upper_halves, below, above + pair.infinite);
    let lower = (sides == Sides::Both).then(|| merge(&knots, &lower_halves, &upper_halves, pair.infinite));
    Some(Cells { offset, upper, lower, defect })
}

/// Coordinates at which the density is looked at to choose widths of cells.
const PROBES: u32 = 512;
/// How much coarse cells may add to the error of cells of equal width.
const COARSE: f64 = 0.05;
/// ln of the number of grid steps in the widest cell.
const WIDEST: f64 = 25.0;

/// Where a density is seen: loss, ln of its tilted density, steepness of its own density.
struct Probe {
    loss: f64,
    log_tilted: f64,
    steep: f64,
}

/// A grid point on which outcomes are merged, as a multiple of h, and the odd number of multiples that its group is wide: groups are
/// centred on their points and adjoin.
#[derive(Debug, Clone, Copy)]
struct Knot {
    index: i64,
    width: i64,
}

/// Knots, ascending. Widths are those that [`COARSE`] allows where the tilted density f is below a reference: Σ f·width² at a given
/// number of cells is least for widths ∝ f^{−1/3}.
fn knots(pair: &Pair, h: f64, offset: f64, theta: f64, nats: (f64, f64), (low, high): (f64, f64)) -> Option<Vec<Knot>> {
    #[allow(clippy::cast_possible_truncation, reason = "the caller bounds range over h")]
    let index = |loss: f64| ((loss - offset) / h).floor() as i64;
    let (first, last) = (index(low), index(high) + 1);
    if pair.segments.is_empty() {
        let mut knots: Vec<i64> = pair.atoms_within(nats).0.iter().flat_map(|(loss, _)| [index(*loss), index(*loss) + 1]).collect();
        knots.sort_unstable();
        knots.dedup();
        return Some(knots.into_iter().map(|index| Knot { index, width: 1 }).collect());
    }
    let widths = widths(pair, h, theta, nats);
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    let loss = |i: i64| offset + h * i as f64;
    // Widest odd group of the row that begins half a step off `edge` and leads away by `sign`.
    let group = |edge: i64, sign: i64| -> i64 {
        let from = loss(edge);
        // The places around the edge, and on until one that the group does not reach.
        let (behind, ahead) = if sign > 0 {
            widths.split_at(widths.partition_point(|w| w.0 <= from))
        } else {
            let (ahead, behind) = widths.split_at(widths.partition_point(|w| w.0 < from));
            (behind, ahead)
        };
        let nearest = if sign > 0 { behind.last() } else { behind.first() };
        let mut width = nearest.map_or(i64::MAX >> 12, |place| place.1);
        let mut visit = |&(place, allowed): &(f64, i64)| {
            width = width.min(allowed);
            (place - from).abs() < h * width as f64
        };
        if sign > 0 {
            ahead.iter().take_while(|place| visit(place)).count();
        } else {
            ahead.iter().rev().take_while(|place| visit(place)).count();
        }
        for &(atom, _) in &pair.atoms {
            let distance = (atom - from) * sign as f64;
            if distance > -h && distance < h * (width + 1) as f64 {
                width = width.min(index(distance + offset)).max(1);
            }
        }
        (width - 1) / 2 * 2 + 1
    };
    let start = if first <= 0 && last >= 0 { 0 } else { first };
    let mut knots = vec![Knot { index: start, width: 1 }];
    for (sign, stop) in [(-1, first), (1, last)] {
        let mut before = Knot { index: start, width: 1 };
        while (stop - before.index) * sign > 0 {
            let edge = before.index + sign * (before.width / 2);
            let rest = (stop - edge) * sign;
            let width = group(edge, sign).min((2 * rest - 1).max(1)).min(before.width * 2 + 1);
            before = Knot { index: edge + sign * (width / 2 + 1), width };
            knots.push(before);
            if knots.len() > MOST_CELLS {
                return None;
            }
        }
    }
    knots.sort_unstable_by_key(|knot| knot.index);
    Some(knots)
}

/// Losses, ascending, with the number of grid steps that a group there may be wide.
fn widths(pair: &Pair, h: f64, theta: f64, nats: (f64, f64)) -> Vec<(f64, i64)> {
    let mut probes = Vec::with_capacity(pair.segments.len() * PROBES as usize);
    for segment in &pair.segments {
        let (start, end) = (pair.reach(segment, nats.0).0, pair.reach(segment, nats.1).1);
        let step = (end - start) / f64::from(PROBES);
        for i in 0..=PROBES {
            let y = start + step * f64::from(i);
            let (loss, log_density) = pair.at(segment.map, y);
            let slope = pair.slope(segment.map, y);
            let steep = pair.steepness(segment.map, y);
            probes.push(Probe { loss, log_tilted: log_density - slope.ln() + theta * loss, steep: steep.abs().max(theta + 1.0) });
        }
    }
    let width = |probe: &Probe, reference: f64| -> f64 {
        let width = ((reference - probe.log_tilted) / 3.0).min(WIDEST).exp().min(1.0 / (probe.steep * h));
        if width > 1.0 { width } else { 1.0 }
    };
    let top = probes.iter().map(|p| p.log_tilted).fold(f64::NEG_INFINITY, f64::max);
    let cost = |reference: f64| -> (f64, f64) {
        probes.windows(2).fold((0.0, 0.0), |(mass, cost), pair| {
            let piece = (0.5 * (pair[0].log_tilted + pair[1].log_tilted) - top).exp() * (pair[1].loss - pair[0].loss).max(0.0);
            let width = width(&pair[0], reference).min(width(&pair[1], reference));
            (mass + piece, cost + piece * width * width)
        })
    };
    let (mut fine, mut coarse) = (top - 80.0, top + 1.0);
    for _ in 0..12 {
        let middle = 0.5 * (fine + coarse);
        let (mass, sum) = cost(middle);
        if sum <= (1.0 + COARSE) * mass { fine = middle } else { coarse = middle }
    }
    #[allow(clippy::cast_possible_truncation, reason = "at most e^WIDEST")]
    probes.iter().map(|p| (p.loss, width(p, fine) as i64)).collect()
}

/// Upper bounds on the mass left and right of the part of a segment that is put on the grid.
pub(crate) fn outside(pair: &Pair, segment: &super::pair::Segment, start: f64, end: f64) -> (f64, f64) {
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
///
/// A density ∝ e^{gx} in groups of width W merges exactly into the grid points if every group ends at v from its point,
/// v = ln(E(g−1)/E(g)) with E(a) = (1 − e^{−aW})/a; near g = ½ that is the middle. Between groups of two widths: the mean of both.
fn edges(pair: &Pair, h: f64, knots: &[Knot], point: &impl Fn(usize) -> f64) -> Vec<f64> {
    let share = |a: f64, width: f64| {
        let x = a * width;
        if x.abs() < 1e-8 { width * (1.0 - 0.5 * x) } else { -(-x).exp_m1() / a }
    };
    let shift = |g: f64, width: f64| {
        if (g * width).abs() < 1e-2 {
            return -(g - 0.5) * width * width / 12.0;
        }
        let g = g.clamp(-300.0 / width, 300.0 / width);
        (share(g - 1.0, width) / share(g, width)).ln() - 0.5 * width
    };
    let mut steepness = Vec::with_capacity(knots.len());
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    let mut edges: Vec<f64> = knots
        .windows(2)
        .enumerate()
        .map(|(k, pair_of)| {
            let widths = [pair_of[0].width as f64 * h, pair_of[1].width as f64 * h];
            let (left, right) = (point(k), point(k + 1));
            let middle = (left + 0.5 * widths[0]).min(right);
            let g = pair
                .segments
                .iter()
                .find_map(|segment| {
                    let y = pair.inverse(segment.map, middle);
                    (y.is_finite() && y >= segment.low && y <= segment.high).then(|| pair.steepness(segment.map, y))
                })
                .filter(|g| g.is_finite());
            steepness.push(g.unwrap_or(0.0));
            let shift = g.map_or(0.0, |g| 0.5 * (shift(g, widths[0]) + shift(g, widths[1])));
            let width = right - left;
            (middle + shift).clamp(left + 0.01 * width, right - 0.01 * width)
        })
        .collect();
    if let [segment] = pair.segments.as_slice() {
        sharpen(pair, segment.map, h, &steepness, &mut edges, point);
    }
    edges
}

/// Where width times change of steepness from a cell to the next is above this, edges must balance exactly.
const BENT: f64 = 0.001;
/// Cells that are balanced exactly, on either side of a peak.
const MOST_BENT: usize = 1500;

/// Solves for the edges where the density's steepness changes: always from the thin side to the thick one, where an error in one
/// edge dies out instead of growing.
fn sharpen(pair: &Pair, map: Map, h: f64, steepness: &[f64], edges: &mut [f64], point: impl Fn(usize) -> f64) {
    let peak = match pair.anchor {
        Anchor::Bottom => 0,
        Anchor::Top => edges.len(),
        // The cell left of 0 ends at 0.
        Anchor::Zero => (0..edges.len()).find(|&k| point(k) >= -0.5 * h).unwrap_or(edges.len()),
    };
    let narrow = |k: &usize| point(*k + 1) - point(*k) < 1.5 * h;
    let bent = |k: usize| {
        let other = if k + 1 < steepness.len() { k + 1 } else { k.saturating_sub(1) };
        (steepness[k] - steepness[other]).abs() * (point(k + 1) - point(k)) > BENT
    };
    let last = peak + (peak..edges.len().min(peak + MOST_BENT)).take_while(narrow).count();
    let steep = (peak..last).rev().find(|&k| steepness[k] < 0.0 && bent(k)).map_or(peak, |k| (k + 1).min(last));
    for k in (peak..steep).rev() {
        if k + 1 < edges.len() {
            edges[k] = balanced(pair, map, point(k + 1), edges[k + 1], point(k + 1) - point(k)).clamp(point(k), point(k + 1));
        }
    }
    let first = peak - (peak.saturating_sub(MOST_BENT)..peak).rev().take_while(narrow).count();
    let steep = (first..peak).find(|&k| steepness[k] > 0.0 && bent(k)).unwrap_or(peak);
    for k in steep..peak {
        if k > 0 {
            edges[k] = balanced(pair, map, point(k), edges[k - 1], point(k + 1) - point(k)).clamp(point(k), point(k + 1));
        }
    }
}

fn connect_the_dots(knots: &[Knot], h: f64, low: &[Half], high: &[Half], below: f64, infinite: f64) -> Masses {
    let mut masses: Vec<(i64, f64)> = knots.iter().map(|knot| (knot.index, 0.0)).collect();
    if let Some(first) = masses.first_mut() {
        first.1 = below;
    }
    for (k, (a, b)) in low.iter().zip(high).enumerate() {
        #[allow(clippy::cast_precision_loss, reason = "at most 2^40")]
        let width = h * (knots[k + 1].index - knots[k].index) as f64;
        let scale = -(-width).exp_m1();
        let mass = a.mass + b.mass;
        let up = ((a.lever + scale * b.mass - (-width).exp() * b.lever) / scale).clamp(0.0, mass);
        masses[k].1 += mass - up;
        masses[k + 1].1 += up;
    }
    Masses { masses, infinite }
}

fn merge(knots: &[Knot], low: &[Half], high: &[Half], infinite: f64) -> Masses {
    // Grid point k takes the upper half of cell k−1 and the lower half of cell k.
    let mut masses: Vec<(i64, f64)> = knots.iter().map(|knot| (knot.index, 0.0)).collect();
    for k in 0..=low.len() {
        let above = low.get(k).copied().unwrap_or_default();
        let below = if k > 0 { high[k - 1] } else { Half::default() };
        if above.lever >= below.lever {
            masses[k].1 += above.mass + below.mass;
        } else {
            let part = above.lever / below.lever;
            masses[k].1 += above.mass + part * below.mass;
            // k > 0: the lever of nothing is 0.
            masses[k.saturating_sub(1)].1 += (1.0 - part) * below.mass;
        }
    }
    Masses { masses, infinite }
}

/// ∫_{L > ε} (1 − e^{ε−L}) dP over one segment, ∫_{L > ε} e^{ε−L} dP, and a bound on the part beyond the first.
pub(crate) fn tail(pair: &Pair, segment: &super::pair::Segment, epsilon: f64) -> (f64, f64, f64) {
    super::closed::tail(pair, segment, epsilon).unwrap_or_else(|| quadrature_tail(pair, segment, epsilon))
}

/// The same by quadrature.
pub(super) fn quadrature_tail(pair: &Pair, segment: &super::pair::Segment, epsilon: f64) -> (f64, f64, f64) {
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
