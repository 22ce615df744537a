//! Laws on finitely many points, and their sums, from above and from below in convex order.
//!
//! * **Above**: a value between two grid points is replaced by one of them at random so that its mean stays. A value beyond the last
//!   point is replaced by the last point, and the rest of its mean goes to a value without bound that has no probability (`excess`): the
//!   limit of putting it on the last point and one that is farther and farther out. The mean of every convex function can only rise.
//! * **Below**: all values in a cell are replaced by their mean given the cell. The mean of every convex function can only fall (Jensen).
//!
//! Both survive sums of independent values and means, so that no error of one sum is ever taken back by the next
//! ([`crate::proofs::random_allocation`]).

use super::super::quadrature::GAUSS_5;

/// From which side a law bounds the true one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// Spread: the larger law in convex order.
    Above,
    /// Merged: the smaller one.
    Below,
}

/// A law on values that are at least 0.
#[derive(Debug, Clone)]
pub(super) struct Law {
    /// (value, probability), values ascending.
    pub(super) points: Vec<(f64, f64)>,
    /// The part of the mean that is at infinity.
    pub(super) excess: f64,
}

/// Shares of the law outside of each of the ranges between which the grid gets finer, the widest first.
pub(super) const TAILS: [f64; 4] = [1e-33, 1e-14, 1e-7, 1e-3];
/// ln of values beyond which they are not distinguished: they occur with almost no noise only.
const FARTHEST: f64 = 300.0;
/// Panels of a quadrature are so small that the rule is good to rounding: width times (|z| + shift + 1).
const PANEL: f64 = 0.5;

/// Ranges of a coordinate (here the logarithm of a value), each inside of the one before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape([(f64, f64); TAILS.len()]);

impl Shape {
    /// Of Y = e^{rz − r²/2} with z normal, and of the same weighted with Y.
    pub(super) fn single(shift: f64) -> Self {
        let range = |tail: f64| {
            // Φ(−x) ≤ ½e^{−x²/2}.
            let x = (-2.0 * (2.0 * tail).ln()).sqrt();
            (shift * (-x - 0.5 * shift), shift * (x + 0.5 * shift))
        };
        Self(TAILS.map(|tail| {
            let (low, high) = range(tail);
            (low.max(-FARTHEST), high.min(FARTHEST))
        }))
    }

    /// Of a law that is roughly this one.
    fn of(law: &Law) -> Self {
        let mean: f64 = law.points.iter().map(|(value, mass)| value * mass).sum();
        let positive: Vec<_> = law.points.iter().filter(|(value, mass)| *value > 0.0 && *mass > 0.0).collect();
        let end = |tail: f64, points: &mut dyn Iterator<Item = (f64, f64)>| {
            let mut sum = 0.0;
            for (value, weight) in points {
                sum += weight;
                if sum >= tail {
                    return value.ln();
                }
            }
            0.0
        };
        let mut inner = (f64::INFINITY, f64::NEG_INFINITY);
        let mut ranges = [(0.0, 0.0); TAILS.len()];
        for (range, &tail) in ranges.iter_mut().zip(&TAILS).rev() {
            let low = end(tail, &mut positive.iter().map(|point| **point));
            let high = end(tail, &mut positive.iter().rev().map(|(value, mass)| (*value, value * mass / mean)));
            inner = (inner.0.min(low), inner.1.max(high));
            *range = inner;
        }
        Self(ranges)
    }

    /// Some `number` points that are dense where the inner ranges are, ascending.
    pub(super) fn coordinates(&self, number: usize) -> Vec<f64> {
        #[allow(clippy::cast_precision_loss, reason = "some hundreds")]
        let each = number as f64 / TAILS.len() as f64;
        // A range of one point only comes from a law that is one point, but for rounding.
        let widened = self.0.map(|(low, high)| (low - 1e-13, high + 1e-13));
        let mut knots: Vec<f64> = widened.iter().flat_map(|range| [range.0, range.1]).collect();
        knots.sort_by(f64::total_cmp);
        let mut points = Vec::with_capacity(number + 20);
        for ends in knots.windows(2) {
            let middle = 0.5 * (ends[0] + ends[1]);
            let density: f64 =
                widened.iter().filter(|(low, high)| (*low..=*high).contains(&middle)).map(|(low, high)| each / (high - low)).sum();
            let pieces = (density * (ends[1] - ends[0])).ceil().max(1.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the number of points")]
            points.extend((0..pieces as u32).map(|k| ends[0] + (ends[1] - ends[0]) * f64::from(k) / pieces));
        }
        points.extend(knots.last());
        points
    }

    /// Values 0, and those of the coordinates.
    fn grid(&self, number: usize) -> Vec<f64> {
        let mut grid: Vec<f64> = std::iter::once(0.0).chain(self.coordinates(number).into_iter().map(f64::exp)).collect();
        grid.dedup();
        grid
    }
}

/// Φ(x).
fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

impl Law {
    /// Y = e^{rz − r²/2}, z normal: mean 1.
    pub(super) fn single(shift: f64, number: usize, side: Side) -> Self {
        let grid = Shape::single(shift).grid(number);
        let at = |value: f64| value.ln() / shift + 0.5 * shift;
        let (low, high) = (at(grid[1]), at(grid[grid.len() - 1]));
        let mut cells = Cells::new(&grid);
        // What lies below the first point that is not 0.
        cells.put(0, normal(low), normal(low - shift));
        for (k, ends) in grid.windows(2).enumerate().skip(1) {
            let (mass, lever) = cell(shift, (at(ends[0]), at(ends[1])));
            cells.put(k, mass, lever * ends[0]);
        }
        let (mass, mean) = (normal(-high), normal(shift - high));
        // Not less than the true one: the mean above the last point may be rounded up to the whole mean there.
        let beyond = if side == Side::Above { mean } else { (mean - mass * grid[grid.len() - 1]).max(0.0) };
        cells.put(grid.len() - 1, mass, beyond);
        cells.into_law(side)
    }

    /// The law of a sum of two independent values, on a grid that begins with 0.
    fn sum(&self, other: &Self, grid: &[f64], side: Side) -> Self {
        let mut cells = Cells::new(grid);
        cells.add_all(&self.points, &other.points);
        let mut law = cells.into_law(side);
        law.excess += self.excess + other.excess;
        law
    }

    /// Where the sum of two laws lies, by coarse ones.
    fn coarse_sum(&self, other: &Self, number: usize) -> (Self, Shape) {
        let ends = |law: &Self| {
            let positive = |point: &&(f64, f64)| point.0 > 0.0;
            (law.points.iter().find(positive).map_or(1.0, |p| p.0), law.points.last().map_or(1.0, |p| p.0))
        };
        let (a, b) = (ends(self), ends(other));
        let range = ((a.0 + b.0).ln(), (a.1 + b.1).ln());
        let first = self.sum(other, &Shape([range; TAILS.len()]).grid(number), Side::Above);
        let second = self.sum(other, &Shape::of(&first).grid(number), Side::Above);
        let shape = Shape::of(&second);
        (second, shape)
    }
}

/// Mass and ∫(y/y₀ − 1)dΦ over z from z₀ on, y₀ its value there.
fn cell(shift: f64, (low, high): (f64, f64)) -> (f64, f64) {
    let (mut mass, mut lever) = (0.0, 0.0);
    panels(shift, (low, high), |z, weight| {
        let part = weight * (-0.5 * z * z).exp() * INVERSE_ROOT_TAU;
        mass += part;
        lever += part * (shift * (z - low)).exp_m1();
    });
    (mass, lever)
}

/// Calls `each(z, weight)` for the points of Gauss rules.
pub(super) fn panels(shift: f64, (low, high): (f64, f64), mut each: impl FnMut(f64, f64)) {
    let size = (high - low) * (low.abs().max(high.abs()) + shift + 1.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
    let panels = (size / PANEL).ceil().clamp(1.0, 1e6) as u32;
    let half = 0.5 * (high - low) / f64::from(panels);
    for k in 0..panels {
        let middle = low + half * f64::from(2 * k + 1);
        for &(x, weight) in &GAUSS_5.points {
            each(middle + half * x, half * weight);
        }
    }
}

/// 1/√(2π).
pub(super) const INVERSE_ROOT_TAU: f64 = 0.398_942_280_401_432_7;

/// What falls between the points of a grid: cell k begins at point k, the last has no end. What is below the first point is raised to it.
pub(super) struct Cells<'a> {
    grid: &'a [f64],
    /// Mass, and mean distance from the beginning of the cell times mass.
    cells: Vec<(f64, f64)>,
    /// Every value is raised by this share of the largest number that it is computed from.
    pub(super) slack: f64,
}

impl<'a> Cells<'a> {
    pub(super) fn new(grid: &'a [f64]) -> Self {
        Self { grid, cells: vec![(0.0, 0.0); grid.len()], slack: 0.0 }
    }

    pub(super) fn put(&mut self, cell: usize, mass: f64, lever: f64) {
        let (masses, levers) = &mut self.cells[cell];
        *masses += mass;
        *levers += lever;
    }

    /// Adds the law of the sum of two independent values.
    pub(super) fn add_all(&mut self, one: &[(f64, f64)], other: &[(f64, f64)]) {
        let same = std::ptr::eq(one, other);
        for (i, &(value, mass)) in one.iter().enumerate().filter(|(_, (_, mass))| *mass > 0.0) {
            if same {
                // Twice what lies right of the diagonal is everything but the diagonal.
                self.add(value, mass * mass, &[(value, 1.0)]);
                self.add(value, 2.0 * mass, &other[i + 1..]);
            } else {
                self.add(value, mass, other);
            }
        }
    }

    /// Adds `weight` times the law of `value` plus these points, which ascend: each cell gets the sum of a run of them.
    fn add(&mut self, value: f64, weight: f64, points: &[(f64, f64)]) {
        let Some(first) = points.first() else { return };
        let mut k = self.grid.partition_point(|start| *start <= value + first.0).saturating_sub(1);
        let edges = |k: usize| (value - self.grid[k], self.grid.get(k + 1).map_or(f64::INFINITY, |end| end - self.grid[k]));
        let (mut base, mut width) = edges(k);
        let (mut mass, mut lever) = (0.0, 0.0);
        let (mut start, mut last) = (first.0, first.0);
        for &(point, part) in points {
            let mut distance = base + point;
            if distance >= width {
                let raised = self.slack * (value.abs() + start.abs().max(last.abs()) + self.grid[k].abs());
                let cell = &mut self.cells[k];
                *cell = (cell.0 + weight * mass, cell.1 + weight * (lever + raised * mass));
                (mass, lever, start) = (0.0, 0.0, point);
                while distance >= width {
                    k += 1;
                    (base, width) = edges(k);
                    distance = base + point;
                }
            }
            mass += part;
            lever += part * distance.max(0.0);
            last = point;
        }
        let raised = self.slack * (value.abs() + start.abs().max(last.abs()) + self.grid[k].abs());
        let cell = &mut self.cells[k];
        *cell = (cell.0 + weight * mass, cell.1 + weight * (lever + raised * mass));
    }

    fn width(&self, k: usize) -> f64 {
        self.grid.get(k + 1).map_or(f64::INFINITY, |end| end - self.grid[k])
    }

    /// The points of the grid with their masses, levers times `rounding`, and what goes to infinity.
    pub(super) fn above(&self, rounding: f64) -> (Vec<(f64, f64)>, f64) {
        let last = self.grid.len() - 1;
        let mut points: Vec<_> = self.grid.iter().map(|value| (*value, 0.0)).collect();
        for (k, &(mass, lever)) in self.cells.iter().enumerate().take(last) {
            let up = (rounding * lever / self.width(k)).min(mass);
            points[k].1 += mass - up;
            points[k + 1].1 += up;
        }
        let (mass, excess) = self.cells[last];
        points[last].1 += mass;
        (points, rounding * excess)
    }

    /// The means of the cells.
    fn below(&self) -> Vec<(f64, f64)> {
        let cells = self.cells.iter().enumerate().filter(|(_, (mass, _))| *mass > 0.0);
        cells.map(|(k, &(mass, lever))| (self.grid[k] + (lever / mass).min(self.width(k)), mass)).collect()
    }

    fn into_law(self, side: Side) -> Law {
        match side {
            Side::Above => {
                let (points, excess) = self.above(1.0);
                Law { points, excess }
            }
            Side::Below => Law { points: self.below(), excess: 0.0 },
        }
    }
}

/// Points of the laws that say only where the others lie.
const COARSE: usize = 240;

/// The law of the sum of `count` independent Y, with some `number` points, and how many sums it took.
pub(super) fn sum_of(shift: f64, count: u64, number: usize, side: Side) -> (Law, u32) {
    let one = Law::single(shift, number, side);
    let coarse_one = Law::single(shift, COARSE, Side::Above);
    let (mut law, mut coarse, mut sums) = (one.clone(), coarse_one.clone(), 0);
    for bit in (0..count.max(1).ilog2()).rev() {
        let (next, shape) = coarse.coarse_sum(&coarse, COARSE);
        (law, coarse, sums) = (law.sum(&law, &shape.grid(number), side), next, sums + 1);
        if count >> bit & 1 == 1 {
            let (next, shape) = coarse.coarse_sum(&coarse_one, COARSE);
            (law, coarse, sums) = (law.sum(&one, &shape.grid(number), side), next, sums + 1);
        }
    }
    (law, sums)
}
