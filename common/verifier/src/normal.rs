//! Masses of the standard normal law.

use crate::interval::{Interval, point};

/// e^{−x²/2}/√(2π).
fn density(x: Interval) -> Interval {
    (x * x * point(-0.5)).exp() * point(0.398_942_280_401_432_7).within(f64::EPSILON)
}

/// P(Z > x): from 1 on by Laplace's continued fraction φ(x)/t₁ with t_k = x + k/t_{k+1} and t_k ≥ x; before, in short steps to there.
fn beyond(x: f64) -> Interval {
    if x < 1.0 {
        return if x < -1.0 { point(1.0) + -beyond(-x) } else { between(x, x + 0.12, 0.0) + beyond(x + 0.12) };
    }
    let depth = 20 + (500.0 / (x * x)) as u32;
    let deepest = Interval { lo: x, hi: (point(x) + point(f64::from(depth)) * point(x).reciprocal()).hi };
    let fraction = (1..depth).rev().fold(deepest, |next, k| point(x) + point(f64::from(k)) * next.reciprocal());
    density(point(x)) * fraction.reciprocal()
}

/// P(Z > x) for a number that is known between bounds.
pub(crate) fn upper(x: Interval) -> Interval {
    Interval { lo: beyond(x.hi).lo.max(0.0), hi: beyond(x.lo).hi.min(1.0) }
}

/// P(from < Z + centre < to).
///
/// Short ranges by the power series of e^{−at−t²/2}, whose terms are bounded by z^k/√k!, z = (|a| + 1)(to − from).
/// Proof: [`crate::proof`], "Normal masses".
pub(crate) fn between(from: f64, to: f64, centre: f64) -> Interval {
    let (a, d) = (from - centre, (to - from).max(0.0));
    let z = (a.abs() + 1.0) * d;
    if z <= 0.25 {
        let (mut before, mut term, mut sum, mut bound, mut k) = (0.0, 1.0, 1.0, 1.0, 0.0);
        while bound > 1e-17 {
            k += 1.0;
            (before, term) = (term, -(a * d * term + d * d * before) / k);
            sum += term / (k + 1.0);
            bound *= z / f64::sqrt(k);
        }
        return density(point(from) + point(-centre)) * point(d * sum).within(1e-14 + f64::EPSILON * a * a);
    }
    let (from, to) = (point(from) + point(-centre), point(to) + point(-centre));
    let mass = if from.lo >= 0.0 { upper(from) + -upper(to) } else { upper(-to) + -upper(-from) };
    Interval { lo: mass.lo.max(0.0), hi: mass.hi.min(1.0) }
}
