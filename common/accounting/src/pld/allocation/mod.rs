//! Random allocation (balls in bins): every unit is in exactly one of T batches of an epoch, uniformly and independently of all others.
//!
//! With r = (shift of a unit's term)/σ and Y = e^{rz − r²/2} for normal z, the log-normal variable of mean 1, one *epoch* of T releases is
//! dominated, adaptive steps included, by P = T⁻¹Σ_t N(r·e_t, I) against Q = N(0, I) under add-remove and zero-out. The likelihood ratio under Q is
//! S = (Y_1 + … + Y_T)/T, so that δ(ε) = E(S − e^ε)₊ in one direction and E(1 − e^ε S)₊ in the other: means of convex functions of a sum of independent values.
//!
//! `law` bounds the law of S in convex order from both sides, for all ε at once. What comes out is a pair of finitely many losses, which composes with all
//! other pairs. Under replace-one the pair is P against T⁻¹Σ_t N(−r·e_t, I), and `replace` bounds its profile from above by way of Q.
//! Proofs, and the budget of rounding errors: [`crate::proofs::random_allocation`].
//!
//! # Numbers
//! S is made by doubling and adding one, on grids that are finest where a thousandth of the law lies outside and coarsest where 1e-33 does.

mod law;
mod replace;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use law::Side;

use super::pair::Pair;
use law::Law;

/// Most batches of an epoch of random allocation.
pub const MOST_BATCHES: u64 = 1 << 20;
/// Points of a law.
const POINTS: usize = 1200;
/// A rounding of a few operations, with room.
const U: f64 = 1.2e-16;
/// Relative error of a cell's quadrature.
const QUADRATURE: f64 = 1e-14;
/// Pairs that are kept for the next question.
const KEPT: usize = 64;

/// The pairs of one epoch in both directions.
#[derive(Debug)]
struct Pairs {
    /// A unit's data is there, against that it is not.
    remove: Pair,
    add: Pair,
    /// One unit against another in its place; of pairs from above.
    replaced: Pair,
}

type Known = HashMap<(u64, u64, Side), Arc<Pairs>>;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known(shift: f64, batches: u64, side: Side) -> Arc<Pairs> {
    let key = (shift.to_bits(), batches, side);
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().as_ref().and_then(|known| known.get(&key)).map(Arc::clone);
    known.unwrap_or_else(|| {
        let made = Arc::new(Pairs::new(shift, batches, side));
        let mut known = lock();
        let known = known.get_or_insert_default();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, Arc::clone(&made));
        made
    })
}

/// The pair of an epoch of `batches` under add-remove, from above or below, and that of the other direction.
pub(crate) fn pairs(shift: f64, batches: u64, side: Side) -> (Pair, Pair) {
    let pairs = known(shift, batches, side);
    (pairs.remove.clone(), pairs.add.clone())
}

/// The pair of an epoch under replace-one. From below it is that of a unit which is replaced by one whose terms are 0: attained, but not close.
pub(crate) fn replaced(shift: f64, batches: u64, side: Side) -> Pair {
    let pairs = known(shift, batches, side);
    if side == Side::Above { pairs.replaced.clone() } else { pairs.remove.clone() }
}

#[allow(clippy::cast_precision_loss, reason = "at most 2^20")]
fn real(count: u64) -> f64 {
    count as f64
}

impl Pairs {
    fn new(shift: f64, batches: u64, side: Side) -> Self {
        let (law, sums) = law::sum_of(shift, batches, POINTS, side);
        Self::of(shift, batches, &law, &Rounding::of(batches, sums), side)
    }

    fn of(shift: f64, batches: u64, law: &Law, rounding: &Rounding, side: Side) -> Self {
        let (masses, losses) = match side {
            Side::Above => (1.0 + rounding.masses, rounding.values),
            Side::Below => (1.0 - rounding.masses, -(rounding.values + 4.0 * rounding.masses)),
        };
        let ratios: Vec<_> = law.points.iter().map(|&(value, mass)| (value / real(batches), mass * masses)).collect();
        let positive = || ratios.iter().filter(|(ratio, mass)| *ratio > 0.0 && *mass > 0.0);
        let remove = positive().map(|(ratio, mass)| (ratio.ln() + losses, ratio * mass)).collect();
        let add = positive().rev().map(|(ratio, mass)| (losses - ratio.ln(), *mass)).collect();
        // Below, what has no finite loss is left out.
        let none: f64 = ratios.iter().filter(|(ratio, _)| *ratio <= 0.0).map(|(_, mass)| mass).sum();
        let (infinite, nothing) =
            if side == Side::Above { (law.excess / real(batches) * masses + VANISHED, none + VANISHED) } else { (0.0, 0.0) };
        let (remove, add) = (Pair::table(shift, remove, infinite), Pair::table(shift, add, nothing));
        let replaced = if side == Side::Above { replace::pair(shift, &remove, &add) } else { remove.clone() };
        Self { remove, add, replaced }
    }
}

/// Products of probabilities that are below what a number can be, all together.
const VANISHED: f64 = 1e-290;

/// Relative errors of a law's probabilities and values.
struct Rounding {
    masses: f64,
    values: f64,
}

impl Rounding {
    /// A grid has at most 20 points more than it was asked for; a cell is a sum of at most as many runs of at most as many values.
    fn of(batches: u64, sums: u32) -> Self {
        let additions = real(2 * (POINTS as u64 + 20) + 12) * U;
        let masses = real(batches) * (QUADRATURE + additions);
        Self { masses: masses * (1.0 + masses), values: (f64::from(sums) + 2.0) * additions + QUADRATURE }
    }
}
