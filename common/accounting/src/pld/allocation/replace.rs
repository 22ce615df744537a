//! An epoch in which a unit is replaced by another one in the same place: P = T⁻¹Σ_t N(r·e_t, I) against P′ = T⁻¹Σ_t N(−r·e_t, I).
//!
//! Its profile is bounded from above by way of the data set Q without either unit: (P − γP′)₊ ≤ (P − γ₁Q)₊ + γ₁(Q − γ₂P′)₊ for γ₁γ₂ = γ, at the best γ₁ of a few; and by
//! that of one release. Both are known for all γ at once. Between the γ that are looked at, H lies below its chords, as it is convex. The pair is symmetric: what is
//! known for γ ≥ 1 is everything.

use super::{Pair, VANISHED};
use crate::Gdp;
use crate::unit::Epsilon;

/// How many ε are looked at, and into how many parts each is divided.
const SAMPLES: u32 = 600;
const PARTS: u32 = 48;
/// The profile after which there are no more: it is a mass at infinity.
const LEAST: f64 = 1e-26;
/// Largest ε that is looked at.
const FARTHEST: f64 = 300.0;
/// Relative rounding of sums of masses, with room.
const ROUNDING: f64 = 1e-12;

/// ε ↦ δ(ε) of a table, ready for many questions.
struct Profile {
    /// Loss, and from it on: the mass, and the mass times e^−loss.
    tails: Vec<(f64, f64, f64)>,
    infinite: f64,
}

impl Profile {
    fn of(pair: &Pair) -> Self {
        let mut sums = (0.0, 0.0);
        let mut tails: Vec<_> = pair
            .atoms
            .iter()
            .rev()
            .map(|&(loss, mass)| {
                sums = (sums.0 + mass, sums.1 + mass * (-loss).exp());
                (loss, sums.0, sums.1)
            })
            .collect();
        tails.reverse();
        Self { tails, infinite: pair.infinite }
    }

    /// Rounded up.
    fn delta(&self, epsilon: f64) -> f64 {
        let first = self.tails.partition_point(|tail| tail.0 <= epsilon);
        let (mass, other) = self.tails.get(first).map_or((0.0, 0.0), |tail| (tail.1, tail.2));
        self.infinite + (mass - epsilon.exp() * other).max(0.0) + ROUNDING * mass
    }

    fn farthest(&self) -> f64 {
        self.tails.last().map_or(0.0, |tail| tail.0)
    }
}

/// The symmetric pair whose profile is the lower convex hull of these points (γ, H), γ from 1 on: the true H is below it, as it is below its own chords.
fn of_profile(shift: f64, points: &[(f64, f64)]) -> Pair {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for &point in points {
        while let [.., a, b] = hull.as_slice() {
            if (b.1 - a.1) * (point.0 - a.0) < (point.1 - a.1) * (b.0 - a.0) {
                break;
            }
            hull.pop();
        }
        if hull.last().is_none_or(|last| point.1 < last.1) {
            hull.push(point);
        }
    }
    let slopes: Vec<f64> = hull.windows(2).map(|ends| (ends[1].1 - ends[0].1) / (ends[1].0 - ends[0].0)).chain([0.0]).collect();
    let infinite = hull.last().map_or(1.0, |last| last.1);
    // The mass under P′ of each kink.
    let kinks: Vec<(f64, f64)> =
        slopes.windows(2).zip(hull.iter().skip(1)).map(|(slopes, at)| (at.0, (slopes[1] - slopes[0]).max(0.0))).collect();
    let kept: f64 = kinks.iter().map(|(gamma, mass)| (gamma + 1.0) * mass).sum();
    let mut atoms: Vec<(f64, f64)> = kinks.iter().rev().map(|(gamma, mass)| (-gamma.ln(), *mass)).collect();
    atoms.push((0.0, (1.0 - kept - infinite).max(0.0)));
    atoms.extend(kinks.iter().map(|(gamma, mass)| (gamma.ln() * (1.0 + 1e-15), gamma * mass * (1.0 + ROUNDING))));
    atoms.retain(|atom| atom.1 > 0.0);
    Pair::table(2.0 * shift, atoms, infinite)
}

/// The pair of an epoch, from above, of those of both directions under add-remove.
pub(super) fn pair(shift: f64, remove: &Pair, add: &Pair) -> Pair {
    let (first, second) = (Profile::of(remove), Profile::of(add));
    let release = Gdp::of_ratio(2.0 * shift * (1.0 + 1e-15));
    let farthest = (first.farthest() + second.farthest()).min(FARTHEST);
    let mut points = Vec::new();
    for sample in 0..=SAMPLES {
        // Finest near 0, where most of the law is if there are many batches.
        let epsilon = farthest * (f64::from(sample) / f64::from(SAMPLES)).powi(3);
        let divided = |part: u32| {
            let own = epsilon * f64::from(part) / f64::from(PARTS);
            first.delta(own) + own.exp() * second.delta(epsilon - own)
        };
        let whole = Epsilon::new(epsilon).map_or(1.0, |epsilon| release.delta(epsilon) * (1.0 + 1e-11));
        let found = (0..=PARTS).map(divided).fold(whole, f64::min) * (1.0 + ROUNDING) + VANISHED;
        // H falls with γ: one that is rounded up is as good.
        points.push((epsilon.exp() * (1.0 + 1e-14), found.min(1.0)));
        if found <= LEAST {
            break;
        }
    }
    of_profile(shift, &points)
}
