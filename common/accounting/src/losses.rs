//! What was added to a [`Composition`], by the loss distributions of its mechanisms: for plans with sampled releases, where Rényi orders lose 10 to 30 %.
//!
//! # Privacy
//! Pairs: [`crate::pld`]. Discrete noise costs an addition to δ: [`crate::proofs::discrete_gaussian`], "As an addition to δ".

use super::composition::{Composition, MOST_COORDINATES};
use super::plan::Plan;
use super::steps::{Neighbours, Phase, Sampling};
use super::{Cost, LARGEST_SHIFT};
use crate::unit::{Delta, Epsilon};

/// What one repetition of a mechanism with Gaussian noise is to a plan. Shifts are over the standard deviation of the noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pairing {
    /// The whole sensitivity, the relation's factor in it.
    Unsampled(f64),
    /// Of one term, on a Poisson sample of this rate; and whether terms are replaced.
    Poisson { shift: f64, rate: f64, replaces: bool },
    /// Of one term, in exactly one of so many batches; and whether terms are replaced.
    Allocation { shift: f64, batches: u64, replaces: bool },
    /// Of two terms, in a batch of fixed size that is this share of all units.
    Batch { shift: f64, rate: f64, replaces: bool },
}

/// Addition to δ for one released number with discrete noise, and for all together.
const PER_COORDINATE: f64 = 2e-20;
const ONCE: f64 = 1e-30;
/// Largest ε for which that addition is proved.
pub(super) const REACH: f64 = 100.0;
/// A rounded normal variable has a standard deviation that is smaller by a share of at most 4e-14.
pub(super) const NARROWER: f64 = 1.0 + 1e-13;
/// Width to which the certified ε is made.
const GAP: f64 = 2e-5;

/// What so many numbers with discrete noise add to δ. `None` where that is not proved.
pub(super) fn addition(coordinates: f64) -> Option<f64> {
    if coordinates == 0.0 {
        return Some(0.0);
    }
    (coordinates <= MOST_COORDINATES).then_some(coordinates * PER_COORDINATE + ONCE)
}

impl Composition {
    /// The plan of everything with any protection: `None` where a mechanism has no loss distribution here, where terms are replaced in one sampled mechanism and
    /// appear in another, or where nothing is sampled, which [`Gdp`](crate::Gdp) bounds better.
    pub(super) fn plan(&self) -> Option<Plan> {
        let pairings: Option<Vec<(Pairing, u64)>> = self.costs().map(|(cost, times)| Some((cost.pairing?, times))).collect();
        let pairings = pairings?;
        let mut replaces = pairings.iter().filter_map(|(pairing, _)| match pairing {
            Pairing::Unsampled(_) => None,
            Pairing::Poisson { replaces, .. } | Pairing::Batch { replaces, .. } | Pairing::Allocation { replaces, .. } => Some(*replaces),
        });
        let first = replaces.next()?;
        if replaces.any(|other| other != first) {
            return None;
        }
        let (relation, factor) = if first { (Neighbours::ReplaceOne, 2.0) } else { (Neighbours::AddRemove, 1.0) };
        let mut plan = Plan::new(relation);
        for (pairing, times) in pairings {
            let sigma = |terms: f64, shift: f64| (terms / (shift * NARROWER)).next_down();
            plan.append(match pairing {
                Pairing::Unsampled(shift) => Phase::gaussian(sigma(factor, shift), Sampling::None, times),
                Pairing::Poisson { shift, rate, .. } => Phase::gaussian(sigma(1.0, shift), Sampling::Poisson(rate), times),
                Pairing::Allocation { shift, batches, .. } => {
                    Phase::gaussian(sigma(1.0, shift), Sampling::RandomAllocation(batches), times)
                }
                Pairing::Batch { shift, rate, .. } => Phase::gaussian(sigma(2.0, shift), Sampling::WithoutReplacement(rate), times),
            })
            .ok()?;
        }
        Some(plan)
    }

    /// What discrete noise adds to δ, for a plan by [`Composition::plan`]. `None` where that is not proved.
    pub(super) fn discrete_addition(&self) -> Option<f64> {
        let large = |cost: &Cost| matches!(cost.pairing, Some(Pairing::Unsampled(shift)) if shift > LARGEST_SHIFT);
        if self.costs().any(|(cost, _)| cost.coordinates > 0 && large(cost)) {
            return None;
        }
        addition(self.coordinates())
    }

    /// A certified upper bound on ε by loss distributions; `None` where they do not reach.
    pub(super) fn by_losses(&self, delta: Delta) -> Option<Epsilon> {
        let plan = self.plan()?;
        let rest = Delta::new((delta.get() - self.discrete_addition()?) * (1.0 - 4.0 * f64::EPSILON)).ok()?;
        let epsilon = plan.epsilon_upper(rest, GAP);
        Epsilon::new(epsilon).ok().filter(|epsilon| epsilon.get() <= REACH)
    }
}
