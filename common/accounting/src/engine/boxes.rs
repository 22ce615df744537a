//! Black boxes alone: the composition of the worst (ε, δ) mechanisms has finitely many losses, and its curve is a sum of binomials.
//!
//! k copies of the worst (ε₀, δ₀) mechanism either fail, or lose (2j − k)ε₀ with j binomial, k draws at p = 1/(1 + e^{−ε₀}) (Kairouz, Oh & Viswanath 2015, Theorem 3.3; several
//! kinds: Murtagh & Vadhan 2016). With j of the kind that has most values, and l for the losses of all others,
//!
//!   δ(ε) = 1 − Π(1 − δ_m)^{k_m} + Π(1 − δ_m)^{k_m} · Σ_l P(l) Σ_j P(j)(1 − e^{ε − l − (2j − k)ε₀})₊.
//!
//! The inner sum takes one look at two tables for each l, so that two kinds cost as much as one. Proof and budget: [`crate::proofs::black_boxes`].

use super::{Engine, count};
use crate::pld::Interval;
use crate::steps::{Mechanism, Phase};
use crate::unit::Delta;

/// Values of one kind at most.
const MOST_VALUES: usize = 1 << 22;
/// Losses of all kinds but one at most.
const MOST_LOSSES: usize = 1 << 17;
/// Weights below this share of the largest are left out, and counted.
const SMALLEST: f64 = 1e-302;
/// The same for products of them.
const SMALLEST_PRODUCT: f64 = 1e-307;
/// The step of the inner kind's losses is at least this share of the largest loss: roundings of a loss are far below it.
const FINEST: f64 = 1e-12;
/// Relative error of one rounding.
const U: f64 = 0.5 * f64::EPSILON;

/// The values of one kind of black boxes: `masses[t]` is the probability that `first + t` of all `copies` lose +ε.
#[derive(Debug)]
struct Kind {
    epsilon: f64,
    copies: f64,
    first: f64,
    masses: Vec<f64>,
    /// Relative error of a mass.
    error: f64,
    /// At least the probability of all values that are left out.
    left_out: f64,
}

impl Kind {
    fn new(epsilon: f64, copies: u64) -> Option<Self> {
        let copies = count(copies);
        let middle = ((copies + 1.0) / (1.0 + (-epsilon).exp())).floor().min(copies);
        let mut left_out = 0.0;
        // Weights beyond the middle, whose ratios fall, so that those after the last one are less than a geometric series.
        let mut side = |ratio: &dyn Fn(f64) -> f64, steps: f64| {
            let (mut weights, mut weight, mut k) = (Vec::new(), 1.0, 0.0);
            while k < steps && weights.len() <= MOST_VALUES {
                let next = ratio(k);
                weight *= next;
                if weight < SMALLEST {
                    left_out += if next < 0.999 { weight / (1.0 - next) } else { weight * (steps - k) } * 1.01;
                    break;
                }
                weights.push(weight);
                k += 1.0;
            }
            weights
        };
        let (rise, fall) = (epsilon.exp(), (-epsilon).exp());
        let below = side(&|k| (middle - k) / (copies - middle + k + 1.0) * fall, middle);
        let above = side(&|k| (copies - middle - k) / (middle + k + 1.0) * rise, copies - middle);
        let first = middle - count(below.len() as u64);
        let mut masses: Vec<f64> = below.into_iter().rev().chain([1.0]).chain(above).collect();
        if masses.len() > MOST_VALUES {
            return None;
        }
        let all: f64 = masses.iter().sum();
        masses.iter_mut().for_each(|mass| *mass /= all);
        // Six roundings for each step from the middle, one for each term of the sum.
        let error = (8.0 * count(masses.len() as u64) + 16.0) * U;
        Some(Self { epsilon, copies, first, masses, error, left_out: left_out / all * (1.0 + error) })
    }

    /// Loss and mass of every value.
    fn values(&self) -> impl Iterator<Item = (f64, f64)> {
        let at = move |t: usize| (2.0 * (self.first + count(t as u64)) - self.copies) * self.epsilon;
        self.masses.iter().enumerate().map(move |(t, mass)| (at(t), *mass))
    }
}

/// A composition of black boxes.
#[derive(Debug)]
pub(super) struct Boxes {
    /// Losses of all kinds but the inner one, with their probabilities.
    outer: Vec<(f64, f64)>,
    inner: Kind,
    /// Σ_{j ≥ t} P(j)e^{−2(j − t)ε₀}, and Σ_{j ≥ t} P(j)(1 − e^{−2(j − t)ε₀}).
    decayed: Vec<f64>,
    lost: Vec<f64>,
    /// The probability that any of them fails, from below and from above.
    failure: (f64, f64),
    /// The largest loss.
    largest: f64,
    /// Relative error of the sum.
    error: f64,
    /// What the sum leaves out at most.
    left_out: f64,
}

impl Boxes {
    /// `None` for other steps, and for more values than are summed.
    fn of(phases: &[Phase], failure: f64, largest: f64) -> Option<Self> {
        let kinds: Option<Vec<_>> = phases
            .iter()
            .map(|phase| match phase.mechanism {
                Mechanism::Approximate { epsilon, .. } => Some((epsilon, phase.steps)),
                _ => None,
            })
            .collect();
        // Without an ε there is only failure.
        let kinds = kinds?.into_iter().filter(|(epsilon, _)| *epsilon > 0.0);
        let mut kinds: Vec<Kind> = kinds.map(|(epsilon, copies)| Kind::new(epsilon, copies)).collect::<Option<_>>()?;
        let most = (0..kinds.len()).max_by_key(|&k| kinds[k].masses.len())?;
        let inner = kinds.swap_remove(most);
        if !largest.is_finite() || inner.epsilon < FINEST * largest {
            return None;
        }
        let number = kinds.iter().try_fold(1usize, |all, kind| all.checked_mul(kind.masses.len()))?;
        if number > MOST_LOSSES {
            return None;
        }
        let mut outer = vec![(0.0, 1.0)];
        let mut left_out = inner.left_out;
        let mut error = inner.error;
        for kind in &kinds {
            let pairs = outer.iter().flat_map(|&(loss, mass)| kind.values().map(move |(one, share)| (loss + one, mass * share)));
            let (kept, gone): (Vec<_>, Vec<_>) = pairs.partition(|(_, mass)| *mass >= SMALLEST_PRODUCT);
            left_out += kind.left_out + 1.01 * SMALLEST_PRODUCT * count(gone.len() as u64);
            error += kind.error + U;
            outer = kept;
        }
        let size = inner.masses.len();
        let (decay, gone) = ((-2.0 * inner.epsilon).exp(), -(-2.0 * inner.epsilon).exp_m1());
        let (mut decayed, mut lost) = (vec![0.0; size + 1], vec![0.0; size + 1]);
        for t in (0..size).rev() {
            lost[t] = gone.mul_add(decayed[t + 1], lost[t + 1]);
            decayed[t] = decay.mul_add(decayed[t + 1], inner.masses[t]);
        }
        // Four roundings for each step of either table, and one for each term of the sum.
        error += (8.0 * count(size as u64) + count(outer.len() as u64) + 16.0) * U;
        Some(Self {
            outer,
            inner,
            decayed,
            lost,
            failure: (failure * (1.0 - 16.0 * U), failure * (1.0 + 16.0 * U)),
            largest,
            error,
            left_out: left_out * 1.01,
        })
    }

    /// Bounds on δ(ε).
    pub(super) fn delta(&self, epsilon: f64) -> Interval {
        let (mut sum, mut off) = (0.0, 0.0);
        if epsilon < self.largest {
            let Kind { epsilon: step, copies, first, masses, .. } = &self.inner;
            for &(loss, mass) in &self.outer {
                // The first value whose loss is above ε.
                let value = (0.5 * ((epsilon - loss) / step + copies)).floor() + 1.0 - first;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped into the table")]
                let t = value.clamp(0.0, count(masses.len() as u64)) as usize;
                let own = (2.0 * (first + count(t as u64)) - copies) * step;
                let beyond = epsilon - loss - own;
                let error = 64.0 * U * (epsilon.abs() + loss.abs() + own.abs());
                if t < masses.len() {
                    sum += mass * (self.lost[t] - beyond.exp_m1() * self.decayed[t]);
                }
                // A loss that is off by roundings, and the value before it where that may be on the other side of ε.
                let before = if t > 0 && beyond + 2.0 * step <= error { masses[t - 1] } else { 0.0 };
                off += mass * (self.decayed[t] + before) * error;
            }
        }
        let tiny = f64::MIN_POSITIVE * U * count(self.outer.len() as u64);
        let upper = if epsilon < self.largest { (sum + off) * (1.0 + self.error) + self.left_out + tiny } else { 0.0 };
        let lower = ((sum - off) * (1.0 - self.error) - tiny).max(0.0);
        let with = |failure: f64, other: f64, share: f64| failure + (1.0 - other) * share;
        let upper = (with(self.failure.1, self.failure.0, upper) * (1.0 + 8.0 * U)).min(1.0);
        let lower = with(self.failure.0, self.failure.1, lower) * (1.0 - 8.0 * U);
        Interval::bounded(lower, 0.5 * (lower + upper), upper)
    }

    /// Bounds on ε(δ), at most the largest loss.
    pub(super) fn epsilon(&self, delta: Delta) -> Interval {
        let delta = delta.get();
        let halved = |mut low: f64, mut high: f64, share: f64, holds: &dyn Fn(f64) -> bool| {
            while high - low > share * high {
                let middle = 0.5 * (low + high);
                if middle <= low || middle >= high {
                    break;
                }
                if holds(middle) { high = middle } else { low = middle }
            }
            (low, high)
        };
        if self.delta(0.0).upper <= delta {
            return Interval::exact(0.0);
        }
        let upper = halved(0.0, self.largest, 1e-13, &|epsilon| self.delta(epsilon).upper <= delta).1;
        // Where δ is certainly not reached yet: mostly just below.
        let reached = |epsilon: f64| self.delta(epsilon).lower <= delta;
        let mut share = 1e-12;
        while share < 1.0 && reached(upper * (1.0 - share)) {
            share *= 8.0;
        }
        let lower = halved((upper * (1.0 - share)).max(0.0), upper, 1e-13, &reached).0;
        Interval::bounded(lower, 0.5 * (lower + upper), upper)
    }
}

impl Engine {
    /// The closed form, where all steps are black boxes, and not of too many kinds.
    pub(super) fn boxes(&self) -> Option<&Boxes> {
        self.boxes.get_or_init(|| Boxes::of(&self.phases, self.infinite, self.largest)).as_ref()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "small numbers")]
    use super::*;
    use crate::steps::Sampling;

    fn kind(epsilon: f64, delta: f64, steps: u64) -> Phase {
        Phase { mechanism: Mechanism::Approximate { epsilon, delta }, sampling: Sampling::None, steps }
    }

    fn boxes(kinds: &[(f64, f64, u64)]) -> Boxes {
        let phases: Vec<_> = kinds.iter().map(|&(epsilon, delta, steps)| kind(epsilon, delta, steps)).collect();
        let finite: f64 = kinds.iter().map(|&(_, delta, steps)| (steps as f64) * (-delta).ln_1p()).sum();
        let largest = kinds.iter().map(|&(epsilon, _, steps)| (steps as f64) * epsilon).sum::<f64>().next_up();
        Boxes::of(&phases, -finite.exp_m1(), largest).unwrap()
    }

    /// Every combination of outcomes, one by one.
    fn one_by_one(kinds: &[(f64, f64, u64)], epsilon: f64) -> f64 {
        let all: Vec<(f64, f64)> = kinds.iter().flat_map(|&(e, d, k)| (0..k).map(move |_| (e, d))).collect();
        let finite: f64 = all.iter().map(|(_, d)| 1.0 - d).product();
        let mut sum = 0.0;
        for outcome in 0..1u32 << all.len() {
            let (mut loss, mut mass) = (0.0, 1.0);
            for (k, (e, _)) in all.iter().enumerate() {
                let up = outcome >> k & 1 == 1;
                loss += if up { *e } else { -e };
                mass *= if up { 1.0 } else { (-e).exp() } / (1.0 + (-e).exp());
            }
            sum += mass * (-(epsilon - loss).exp_m1()).max(0.0);
        }
        1.0 - finite + finite * sum
    }

    #[test]
    fn the_closed_form_is_the_sum_over_all_outcomes() {
        for kinds in [
            vec![(0.5, 0.0, 1)],
            vec![(0.5, 1e-6, 7)],
            vec![(0.1, 1e-5, 5), (0.7, 1e-6, 6)],
            vec![(0.1, 0.0, 4), (0.173, 1e-3, 3), (2.0, 1e-4, 4)],
            vec![(0.0, 1e-3, 2), (30.0, 0.0, 3), (1e-3, 0.0, 6)],
        ] {
            let closed = boxes(&kinds);
            for share in [0.0, 0.03, 0.2, 0.5, 0.77, 0.95, 0.999] {
                let epsilon = share * closed.largest;
                let (found, exact) = (closed.delta(epsilon), one_by_one(&kinds, epsilon));
                let room = 1e-13 * exact + 1e-16;
                assert!(found.lower <= exact + room && exact <= found.upper + room, "{kinds:?} {epsilon}: {found:?} {exact:e}");
                assert!(found.upper - found.lower <= 1e-11 * exact + 1e-13 * closed.largest, "{kinds:?} {epsilon}: {found:?}");
            }
        }
    }

    /// An ε, and the δ that belongs to it, lead to each other; bounds rise as δ falls, down to 1e-300.
    #[test]
    fn both_questions_have_one_answer_and_fall() {
        for kinds in [
            vec![(0.01, 0.0, 20_000), (0.023, 0.0, 9_000)],
            vec![(1e-3, 0.0, 300_000), (0.5, 0.0, 12)],
            vec![(0.3, 0.0, 700), (0.31, 0.0, 700)],
        ] {
            let closed = boxes(&kinds);
            let mut before = Interval::exact(0.0);
            for power in [-1, -3, -6, -12, -30, -80, -160, -300] {
                let delta = 10f64.powi(power);
                let found = closed.epsilon(Delta::new(delta).unwrap());
                assert!(found.lower >= before.lower && found.upper >= before.upper, "{kinds:?} {delta:e}: {found:?} {before:?}");
                assert!(found.upper - found.lower <= 1e-6 * found.upper, "{kinds:?} {delta:e}: {found:?}");
                let back = closed.delta(found.upper);
                assert!(back.upper <= delta && back.lower >= 0.99 * delta, "{kinds:?} {delta:e}: {back:?}");
                before = found;
            }
        }
    }
}
