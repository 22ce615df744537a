//! Grids, tilts and windows for a program that checks a bound by itself: hints, which it does not believe.

use super::pair::{Map, Pair};
use super::{Composition, count};

/// One step's grid of losses offset + width·k, low ≤ k ≤ high; far from 0 cells may be wide: |k|/2^fineness points.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartHints {
    pub(crate) offset: f64,
    pub(crate) low: i64,
    pub(crate) high: i64,
    pub(crate) fineness: u32,
}

/// What it takes to check δ(ε) ≤ δ on one grid.
#[derive(Debug, Clone)]
pub(crate) struct Hints {
    pub(crate) width: f64,
    pub(crate) points: u64,
    pub(crate) first: i64,
    pub(crate) tilt: f64,
    pub(crate) truncation: f64,
    pub(crate) rounding: f64,
    pub(crate) parts: Vec<PartHints>,
}

/// Points of the largest transform, of the transforms of all parts, and of all steps' grids together: what is checked in less than a second.
const MOST_POINTS: f64 = 1_048_576.0;
const MOST_SPECTRA: f64 = 2_097_152.0;
const MOST_CELLS: i64 = 1 << 22;
/// Standard deviations of the tilted law below its mean that a window holds.
const BELOW: f64 = 9.0;
/// Rounding errors of one step's transform and of powers, at most.
const ROUNDING: f64 = 1e-12;
/// Tilts beyond a window's own, as shares of it, by which the tilted mass above it is bounded.
const FURTHER: [f64; 2] = [0.5, 2.0];
/// What goes to infinite losses, to the mass above the window, and to rounding, of what the slack is worth in δ.
const SHARES: (f64, f64, f64) = (0.05, 0.05, 0.1);

impl Composition {
    /// The tilt that gives the closest bound near this δ.
    pub(crate) fn tilt(&self, delta: f64) -> Option<f64> {
        Some(self.saddle_of_delta(delta)?.theta.clamp(1e-6, 1e6))
    }

    /// Hints for a check of δ(ε) ≤ δ that may lose `slack` in ε, where ln δ falls by `slope` as ε rises by 1. The tilt is at most this; where the law
    /// has a second mode far out, a smaller one needs a smaller window. `None`: it would take too many points.
    pub(crate) fn hints(&self, (most, slope): (f64, f64), (epsilon, delta): (f64, f64), slack: f64) -> Option<Hints> {
        self.aim(delta);
        // Losses without a density, as of epochs, can have tails that a tilt makes heavy.
        let atoms = self.parts.iter().any(|(pair, _)| pair.segments.is_empty());
        let worth = delta * (slack * slope).clamp(1e-9, 0.5);
        let nats = (self.nats(delta).0, self.steps().ln() - (SHARES.0 * worth).ln());
        let (tilt, below, above) = (0..12)
            .filter_map(|k| {
                let tilt = most * (-0.5 * f64::from(k)).exp2();
                let tilted = self.cumulants(tilt);
                let budget = (0.5 * SHARES.1 * worth).ln();
                // Above the window, the mass is at most e^{K − θ·above}.
                let above = (tilted.value - budget) / tilt;
                // The transform puts it back into the window, where tilted mass counts e^{−θε} at most: e^{K(θ+φ) − φ·above − θε} for any φ.
                let returned = |share: f64| (self.cumulants((1.0 + share) * tilt).value - tilt * epsilon - budget) / (share * tilt);
                let above = if atoms { above.max(FURTHER.map(returned).into_iter().fold(f64::INFINITY, f64::min)) } else { above };
                // The window begins at or below ε.
                let below = (tilted.mean - BELOW * tilted.variance.sqrt().max(1e-12)).min(epsilon);
                // Rounding errors are a share of the tilted law's mass; at ε they weigh e^{K − θε}.
                let rounding = tilted.value - tilt * epsilon + (ROUNDING * self.steps()).ln();
                let fits = k == 0 || rounding <= (SHARES.2 * worth).ln();
                (fits && (above - below).is_finite()).then_some((tilt, below, above))
            })
            .min_by(|a, b| (a.2 - a.1).total_cmp(&(b.2 - b.1)))?;
        let steps = self.steps();
        // A cell of width w costs at most T(slope + 1)w²/8.
        let aim = (4.0 * slack / (steps * (slope + 1.0))).sqrt();
        let span = (above - below).max(16.0 * aim.min(1e-3));
        let points = (span / aim).log2().ceil().max(6.0).exp2();
        if points.is_nan() || points > MOST_POINTS || points * count(self.parts.len() as u64) > MOST_SPECTRA {
            return None;
        }
        let width = span / (points - 6.0);
        let mut parts: Vec<PartHints> = self.parts.iter().map(|(pair, _)| grid(pair, width, nats)).collect();
        // Cells of a width that is a share of the distance from the index 0 cost at most that share, squared, of this.
        let squares: f64 = self
            .nodes
            .borrow()
            .0
            .iter()
            .zip(&self.parts)
            .zip(&parts)
            .map(|((nodes, (_, times)), part)| {
                let one = nodes.cumulants(tilt);
                count(*times) * (one.variance + (one.mean - part.offset).powi(2))
            })
            .sum();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 4 and 30")]
        let fineness = (0.5 * ((slope + 1.0) * squares / slack).log2()).ceil().clamp(4.0, 30.0) as u32;
        parts.iter_mut().for_each(|part| part.fineness = fineness);
        if parts.iter().map(|part| part.high.saturating_sub(part.low)).fold(0, i64::saturating_add) > MOST_CELLS {
            return None;
        }
        let offset: f64 = self.parts.iter().zip(&parts).map(|((_, times), part)| count(*times) * part.offset).sum();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a power of two below 2^23, and indices of a window")]
        Some(Hints {
            width,
            points: points as u64,
            first: ((below - offset) / width).floor() as i64 - 1,
            tilt,
            truncation: 2.0 * (SHARES.0 + SHARES.1) * worth,
            rounding: SHARES.2 * worth,
            parts,
        })
    }
}

/// A grid on which a narrow peak of losses lies on a point, from where next to nothing lies below to where next to nothing lies above.
#[allow(clippy::cast_possible_truncation, reason = "indices; what is too many is refused by the reader")]
fn grid(pair: &Pair, width: f64, nats: (f64, f64)) -> PartHints {
    let ends = pair.segments.iter().map(|segment| {
        let (low, high) = (pair.reach(segment, nats.0).0, pair.reach(segment, nats.1).1);
        (pair.at(segment.map, low).0, pair.at(segment.map, high).0)
    });
    // Atoms of lattice noise have a mass each.
    let floor = -nats.1.max(nats.0) - 10.0;
    let atoms = pair.atoms.iter().filter(|(_, mass)| mass.ln() > floor).map(|&(loss, _)| (loss, loss));
    let (low, high) = ends.chain(atoms).fold((0.0f64, 0.0f64), |all, end| (all.0.min(end.0), all.1.max(end.1)));
    let (below, above) = ((low / width).floor() as i64 - 1, (high / width).ceil() as i64 + 1);
    match pair.segments.as_slice() {
        [segment] if pair.rate < 1.0 && segment.map == Map::Remove => {
            let offset = (-pair.rate).ln_1p();
            PartHints { offset, low: 0, high: ((high - offset) / width).ceil() as i64 + 1, fineness: 0 }
        }
        [segment] if pair.rate < 1.0 && segment.map == Map::Add => {
            let offset = -(-pair.rate).ln_1p() * (1.0 + 1e-13);
            PartHints { offset, low: ((low - offset) / width).floor() as i64 - 1, high: 0, fineness: 0 }
        }
        _ => PartHints { offset: 0.0, low: below, high: above, fineness: 0 },
    }
}
