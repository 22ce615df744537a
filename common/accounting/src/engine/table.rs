//! A table of the profile of many equal rare steps: what attacks reach is read from it where every estimate of δ(ε) takes long.
//!
//! Every row (ε, δ) has δ(ε) ≤ δ, so that whatever is read from any choice of rows is a bound ([`crate::proofs::transforms`], "Tables of δ(ε)"). Rows far out
//! are ε at chosen δ, by the number of far outcomes; below the first of these one grid tells δ at chosen ε.

use super::{Engine, POINTS_GAP, RARE_SMALL, WIDE, up};
use crate::pld::{Composition as Losses, Interval, TOGETHER};

/// Rows from δ, and how many nats the last of them is below the first; they are the denser, the larger δ is.
const ROWS: u32 = 14;
const NATS: f64 = 25.0;
/// Where the grid ends, over the first of these rows: it is not within reach at every ε.
const ENDS: [f64; 5] = [1.0, 1.3, 0.8, 1.7, 0.6];
/// Rows below them one by one, where no grid is within reach.
const FEW: u32 = 5;
/// Precision of the grid as a share of ε, over that of other tables.
const FINER: f64 = 0.1;

impl Engine {
    /// Rows (ε, δ) with δ(ε) ≤ δ and rising ε. `None`: steps that are not rare, estimates that are quick (looked at some of these ε, which rise from 0), or
    /// bounds that say little.
    pub(crate) fn rare_table(&self, epsilons: &[f64]) -> Option<Vec<(f64, f64)>> {
        if self.has_little_noise() || self.directions.is_empty() || !self.directions.iter().all(Losses::is_rare) {
            return None;
        }
        let quick = |at: &f64| self.directions.iter().all(|direction| direction.estimate_delta(*at).is_some());
        if epsilons.iter().rev().step_by((epsilons.len() / 4).max(1)).all(quick) {
            return None;
        }
        // The sum of total variations is at least δ(0).
        let most = self.directions.iter().map(Losses::variation).fold(0.0, f64::max).min(1.0);
        let mut rows = Vec::new();
        let mut silent = 0;
        for i in (0..=ROWS).rev() {
            let delta = most * (-NATS * (f64::from(i) / f64::from(ROWS)).powi(2)).exp();
            match self.rare_upper(delta) {
                Some(epsilon) if epsilon > 0.0 => rows.push((epsilon, delta)),
                // Nearer to δ(0) it says no more.
                _ if silent > 0 && !rows.is_empty() => break,
                _ => silent += 1,
            }
        }
        let first = rows.iter().map(|row| row.0).reduce(f64::min)?;
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let share = |i: usize| (i as f64 / (TOGETHER - 1) as f64).powi(2);
        let near = ENDS.iter().find_map(|end| {
            let near: Vec<f64> = (0..TOGETHER).map(|i| end * first * share(i)).collect();
            let uppers = self.uppers(&near, FINER * POINTS_GAP)?;
            Some(near.into_iter().zip(uppers))
        });
        match near {
            Some(near) => rows.extend(near),
            None => rows.extend((0..FEW).map(|i| first * (f64::from(i) / f64::from(FEW)).powi(2)).map(|at| (at, self.delta(at).upper))),
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(rows)
    }

    /// Upper bound on ε(δ) by the number of far outcomes, the worse direction; `None` if it is not close.
    fn rare_upper(&self, delta: f64) -> Option<f64> {
        let mut worst = Interval::exact(0.0);
        for direction in &self.directions {
            if direction.infinite() <= 0.0 && direction.largest_loss() <= worst.lower {
                continue;
            }
            worst = worst.max(direction.rare_epsilon(delta).filter(|found| found.is_narrow(WIDE, RARE_SMALL))?);
        }
        Some(up(worst.upper))
    }
}
