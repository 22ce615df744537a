//! Pairs of distributions, and their losses on a grid: rounded so that the grid's law is worse than the pair's. Proof: [`crate::proof`], "Grids".

use crate::{Refusal, epoch::MassFunction, interval::Interval, interval::point, normal::between, normal::upper};

/// What one step is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// (1−q)N(0,1) + qN(r,1) against N(0,1).
    Remove,
    /// N(0,1) against (1−q)N(0,1) + qN(−r,1).
    Add,
    /// (1−q)N(0,1) + qN(r,1) against (1−q)N(0,1) + qN(−r,1).
    Replace,
    /// The positive losses of `Remove`, the negative ones of `Add`, the rest at 0.
    Symmetrised,
    /// The discrete Gaussian of parameter r, shifted by the integer q, against itself.
    Lattice,
    /// q⁻¹ Σ_t N(r·e_t, I) against N(0, I) in q dimensions, if that is so; else swapped.
    Epoch(bool),
}

/// A pair: its kind, r and q.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair(pub(crate) Kind, pub(crate) f64, pub(crate) f64);

/// Losses offset + width·k for low ≤ k ≤ high; the cell that begins at k has max(1, |k|/2^fineness) times the width.
pub(crate) struct Grid {
    pub(crate) offset: f64,
    pub(crate) width: f64,
    pub(crate) low: i64,
    pub(crate) high: i64,
    pub(crate) fineness: u32,
}

impl Grid {
    pub(crate) fn loss(&self, k: i64) -> Interval {
        if k == 0 { point(self.offset) } else { point(self.offset) + point(self.width) * point(k as f64) }
    }
}

/// Masses at the points of a grid, from the lowest.
struct Law {
    masses: Vec<f64>,
    low: i64,
}

impl Law {
    fn add(&mut self, k: i64, mass: Interval) {
        let entry = &mut self.masses[(k - self.low) as usize];
        *entry = (*entry + mass.mass()).next_up();
    }

    /// Adds a cell's mass, of which `up` goes to its upper end.
    fn split(&mut self, k: i64, next: i64, mass: Interval, up: Interval) {
        self.add(next, up);
        self.add(k, mass + Interval { lo: -up.hi.max(0.0), hi: -up.lo.max(0.0) });
    }
}

/// A normal part of a pair: its centre, its weight in P and in Q, and their difference.
type Part = (f64, Interval, Interval, Interval);

/// How far below its grid point the loss at a cell's end may lie; subtracting it from a loss rounds by less than a thousandth of it.
fn tolerance(grid: &Grid, loss: f64) -> f64 {
    1e-8 * grid.width + 1e-12 * loss.abs()
}

impl Pair {
    /// Atoms on one side that are computed one by one; of an epoch as many as take the same time as its law.
    pub(crate) fn atoms(&self) -> i64 {
        (i64::from(matches!(self.0, Kind::Epoch(_))) << 19) + i64::from(self.0 == Kind::Lattice) * ((40.0 * self.1).ceil() as i64 + 2)
    }

    fn parts(&self) -> Vec<Part> {
        let (q, none, one) = (point(self.2), point(0.0), point(1.0));
        let rest = one + -q;
        match self.0 {
            Kind::Remove => vec![(0.0, rest, one, -q), (self.1, q, none, q)],
            Kind::Add => vec![(0.0, one, rest, q), (-self.1, none, q, -q)],
            _ => vec![(0.0, rest, rest, none), (self.1, q, none, q), (-self.1, none, q, -q)],
        }
    }

    /// Whether the loss is at most `high` up to t and at least `low` from t on; t may be infinite.
    fn separates(&self, parts: &[Part], t: f64, low: f64, high: f64) -> bool {
        match self.0 {
            Kind::Remove if t == f64::NEG_INFINITY => return point(low).exp_m1().hi <= -self.2,
            Kind::Add if t == f64::INFINITY => return point(-high).exp_m1().hi <= -self.2,
            _ if !t.is_finite() => return false,
            _ => {}
        }
        let (mut gaps, mut first, mut second) = (point(0.0), point(0.0), point(0.0));
        for (centre, p, q, gap) in parts {
            let centre = point(*centre);
            let ratio = (centre * (point(t) + centre * point(-0.5))).exp_m1();
            (gaps, first, second) = (gaps + *gap * ratio, first + *p * (ratio + point(1.0)), second + *q * (ratio + point(1.0)));
        }
        // The sign of P − e^l Q, or of e^{−l} P − Q: whichever does not cancel.
        let excess = |l: f64| if l < 0.0 { gaps + point(-l).exp_m1() * first } else { gaps + -(point(l).exp_m1() * second) };
        excess(high).hi <= 0.0 && excess(low).lo >= 0.0
    }

    /// Where the loss is about l; nothing here has to be exact.
    fn guess(&self, loss: f64) -> f64 {
        let Self(kind, r, q) = *self;
        let single = |loss: f64| (loss.exp_m1() / q).max(-1.0).ln_1p() / r + 0.5 * r;
        match kind {
            Kind::Remove => single(loss),
            Kind::Add => -single(-loss),
            _ => {
                let (tail, rest) = (q * (-0.5 * r * r).exp(), (1.0 - q) * loss.abs().exp_m1());
                let root = (rest + (rest * rest + 4.0 * loss.abs().exp() * tail * tail).sqrt()) / (2.0 * tail);
                (root.ln() / r).copysign(loss)
            }
        }
    }

    /// A point up to which the loss is at most that of the grid, and from which on it is at least that, less the tolerance.
    fn boundary(&self, parts: &[Part], grid: &Grid, k: i64) -> Result<f64, Refusal> {
        let loss = grid.loss(k);
        let guess = self.guess(loss.lo);
        if loss == point(0.0) && self.0 != Kind::Replace {
            // Half the shift, exactly.
            return Ok(if self.0 == Kind::Add { -0.5 * self.1 } else { 0.5 * self.1 });
        }
        // The guess first, then further and further below it, or where all mass is on one side.
        let below = |power: i32| guess - (1.0 + guess.abs()) * f64::EPSILON * (4f64.powi(power) - 1.0);
        let tries = (1..20).map(|power| if guess.is_finite() { below(power) } else { 40.0 });
        let fits = |t: &f64| self.separates(parts, *t, loss.hi - tolerance(grid, loss.hi), loss.lo);
        std::iter::once(guess).chain(tries).find(fits).ok_or(Refusal::Grid)
    }

    /// The losses of one step: masses at the points of the grid, from the lowest, and the mass of losses that count as infinite.
    pub(crate) fn law(&self, grid: &Grid) -> Result<(Vec<f64>, f64), Refusal> {
        let mut law = Law { masses: vec![0.0; (grid.high - grid.low + 1) as usize], low: grid.low };
        let (below, above) = match self.0 {
            Kind::Lattice => place(self.lattice(), grid, &mut law)?,
            Kind::Epoch(with) => place(MassFunction::of(self.1, self.2 as u32).losses(with), grid, &mut law)?,
            // Both parts end where the loss is exactly 0.
            Kind::Symmetrised if grid.offset != 0.0 || grid.low > 0 || grid.high < 0 => return Err(Refusal::Grid),
            Kind::Symmetrised => {
                law.add(0, (point(1.0) + point(-self.2)) * (point(1.0) + point(-2.0) * upper(point(0.5 * self.1))));
                let (below, _) = Self(Kind::Add, self.1, self.2).cells(&Grid { high: 0, ..*grid }, &mut law)?;
                (below, Self(Kind::Remove, self.1, self.2).cells(&Grid { low: 0, ..*grid }, &mut law)?.1)
            }
            _ => self.cells(grid, &mut law)?,
        };
        law.add(grid.low, below);
        Ok((law.masses, above.mass()))
    }

    /// Cell by cell; answers the masses below and above the grid.
    fn cells(&self, grid: &Grid, law: &mut Law) -> Result<(Interval, Interval), Refusal> {
        let parts = self.parts();
        let outside = |from: f64, to: f64| parts.iter().fold(point(0.0), |sum, part| sum + part.1 * between(from, to, part.0));
        let (mut k, mut from) = (grid.low, self.boundary(&parts, grid, grid.low)?);
        let below = outside(f64::NEG_INFINITY, from);
        while k < grid.high {
            let next = (k + (k.abs() >> grid.fineness).max(1)).min(grid.high);
            let (to, loss) = (self.boundary(&parts, grid, next)?, grid.loss(k));
            let inverse = (-(point(-grid.width) * point((next - k) as f64)).exp_m1()).reciprocal();
            let near = loss.hi.abs() < 0.5;
            let scale = if near { loss.exp_m1() } else { loss.exp() };
            let (mut mass, mut up) = (point(0.0), point(0.0));
            for (centre, p, q, gap) in &parts {
                let cell = between(from, to, *centre);
                mass = mass + *p * cell;
                up = up + (if near { *gap } else { *p } + -(*q * scale)) * cell;
            }
            law.split(k, next, mass, (up + mass * point(1.01 * tolerance(grid, loss.hi))) * inverse);
            (k, from) = (next, to);
        }
        Ok((below, outside(from, f64::INFINITY)))
    }

    /// Losses one by one, with their masses, and the mass of infinite ones: x beyond the shift has the mass e^{−x²/2s²}/Z and the loss Δ(2x + Δ)/2s².
    fn lattice(&self) -> (Vec<(Interval, Interval)>, Interval) {
        let (s, shift, last) = (point(self.1), point(self.2), self.atoms());
        let spread = (point(2.0) * s * s).reciprocal();
        let height = |x: i64| (-(point(x as f64) * point(x as f64) * spread)).exp();
        // Less than the sum of all heights, which is what they are divided by.
        let total = (1..=last).fold(height(0), |sum, x| sum + point(2.0) * height(x)).lo;
        let share = point(total).reciprocal();
        let loss = |x: i64| shift * (point(2.0) * point(x as f64) + shift) * spread;
        // Beyond the last one heights fall faster than e^{−40x/s}, on both sides.
        let above = height(last) * (-(point(-40.0) * s.reciprocal()).exp_m1()).reciprocal() * share * point(2.0);
        ((-last..=last).map(|x| (loss(x), height(x) * share)).collect(), above)
    }
}

/// Puts losses with masses on a grid; answers the masses below and above it.
fn place((losses, mut above): (Vec<(Interval, Interval)>, Interval), grid: &Grid, law: &mut Law) -> Result<(Interval, Interval), Refusal> {
    let (mut below, inverse) = (point(0.0), (-point(-grid.width).exp_m1()).reciprocal());
    for (loss, mass) in losses {
        let guess = ((loss.hi - grid.offset) / grid.width).floor().clamp(-2e12, 2e12) as i64;
        let k = guess + i64::from(grid.loss(guess + 1).lo < loss.hi);
        match k {
            _ if loss.hi <= grid.loss(grid.low).lo => below = below + mass,
            _ if k >= grid.high => above = above + mass,
            _ if k < grid.low || grid.loss(k + 1).lo < loss.hi => return Err(Refusal::Grid),
            // The share that goes up is never less than the loss asks for.
            _ => law.split(k, k + 1, mass, -(grid.loss(k) + -loss).exp_m1() * inverse * mass),
        }
    }
    Ok((below, above))
}
