//! The filter of single events: one rule, fixed before anything is released, for events that are chosen in the light of earlier outputs.
//!
//! # Privacy
//! The theorem and its proof are in [`crate::proofs::filter`]. The rule is fixed by the first protected charge, which nothing that was released
//! can have influenced:
//!
//! * an unsampled Gaussian: μ² is summed and gets all of δ but a millionth. Of that millionth [`SPARE`] is for the Rényi orders, all
//!   together, which take over when an event without a μ comes; the rest covers discrete noise;
//! * anything else: one Rényi order gets all of δ. It is the order at which the budget would hold the largest multiple of the first event.
//!
//! So a filter of one kind of event pays nothing for being adaptive: it admits exactly the plans of its first event whose ε, as plans, keeps
//! to the budget. What would be wrong: to take the smallest ε over all orders, or over engines, after the fact.

use super::composition::Composition;
use super::rdp::{ORDERS, to_epsilon};
use super::{Cost, Curve, MARGIN, Method, PrivacyLoss, count, with_margin};
use crate::unit::{Delta, Epsilon};

/// Share of δ that all Rényi orders have together in a filter whose first event is an unsampled Gaussian.
const SPARE: f64 = 4e-7;
/// Share by which δ may grow with discrete noise there: (1 + this)/[`MARGIN`] + [`SPARE`] stays below 1.
const DISCRETE: f64 = 5e-7;
/// Bisections of a reading.
const BISECTIONS: u32 = 60;

impl Composition {
    /// What a filter of this budget reads: the smallest ε, at the same δ, of a budget whose filter would have admitted everything so far; above
    /// `budget` if and only if this filter would not have. Releases without protection are left out.
    pub(crate) fn protected_filtered(&self, budget: Epsilon, delta: Delta) -> PrivacyLoss {
        match self.first() {
            None => self.protected_loss(delta),
            Some(first) if first.gdp.is_some() => self.gaussian_first(delta),
            Some(first) => self.renyi_first(first, budget, delta),
        }
    }

    /// [`Composition::protected_filtered`]; ε = ∞ with a release without protection.
    pub(crate) fn filtered(&self, budget: Epsilon, delta: Delta) -> PrivacyLoss {
        if self.non_private() { self.loss(delta) } else { self.protected_filtered(budget, delta) }
    }

    fn gaussian_first(&self, delta: Delta) -> PrivacyLoss {
        if let Some(gdp) = self.gdp() {
            let at = with_margin(delta, true);
            if gdp.lattice_excess(at, self.coordinates()) <= DISCRETE {
                let numerical_margin = self.costs().any(|(cost, _)| cost.gdp_margin);
                return PrivacyLoss { epsilon: gdp.epsilon_upper(at), delta, method: Method::GaussianDp, numerical_margin };
            }
        }
        let (curve, margin) = self.curve();
        let share = Delta::new(delta.get() * SPARE / count(ORDERS.len() as u64));
        // No share is left for the δ of a black box.
        let whole = self.costs().all(|(cost, _)| cost.failure <= 0.0);
        let epsilon = match share {
            Ok(share) if whole && self.lattice_holds(margin) => curve.epsilon_upper(with_margin(share, margin)),
            _ => Epsilon::INFINITE,
        };
        PrivacyLoss { epsilon, delta, method: Method::Rdp, numerical_margin: margin }
    }

    fn renyi_first(&self, first: &Cost, budget: Epsilon, delta: Delta) -> PrivacyLoss {
        let (curve, margin) = self.curve();
        let epsilon = self.one_order(first, &curve, margin, budget.get().min(1e300), delta);
        PrivacyLoss { epsilon: Epsilon::new(epsilon).unwrap_or(Epsilon::INFINITE), delta, method: Method::Rdp, numerical_margin: margin }
    }

    /// ε at the order that the first event and the budget fix.
    fn one_order(&self, first: &Cost, curve: &Curve, margin: bool, budget: f64, delta: Delta) -> f64 {
        // A first event with a δ of its own fixes how much of δ may be spent so.
        let allowed = if first.failure > 0.0 { first.failure.max(0.5 * delta.get()) } else { 0.0 };
        let failure = self.failure();
        let rest = if allowed > 0.0 { Delta::new((delta.get() - allowed * (1.0 + 1e-12)) * (1.0 - f64::EPSILON)) } else { Ok(delta) };
        let Ok(rest) = rest else { return f64::INFINITY };
        if failure > allowed * (1.0 + 1e-12) || !self.lattice_holds(margin) {
            return f64::INFINITY;
        }
        let at = with_margin(rest, margin);
        // The order is the first event's choice alone: whether a later one needs the margin may depend on what was released.
        let chosen_at = with_margin(rest, first.curve_margin);
        let reading = |budget: f64| {
            let order = order(first, budget, chosen_at);
            to_epsilon(ORDERS[order], curve.values()[order], at).max(0.0)
        };
        let whole = reading(budget);
        if whole > budget {
            return whole;
        }
        // A plan's ε is below every budget that could have admitted it.
        let (mut low, mut high) = (curve.epsilon_upper(at).get(), budget);
        if reading(low) <= low {
            return low;
        }
        for _ in 0..BISECTIONS {
            let middle = if low > 0.0 && high > 2.0 * low { (low * high).sqrt() } else { 0.5 * (low + high) };
            if reading(middle) <= middle { high = middle } else { low = middle }
        }
        high
    }

    /// The sum of all divergences, and whether the margin is needed for it.
    pub(super) fn curve(&self) -> (Curve, bool) {
        let mut curve = Curve::default();
        self.costs().for_each(|(cost, times)| curve.add(&cost.curve, times));
        (curve, self.costs().any(|(cost, _)| cost.curve_margin))
    }
}

/// The order whose bound lets a budget hold the largest multiple of the first event.
fn order(first: &Cost, budget: f64, delta: Delta) -> usize {
    let room = |order: f64, divergence: f64| {
        let left = budget - to_epsilon(order, 0.0, delta);
        // Nothing fits where nothing is left: then the order with the most left is as good as any.
        if left > 0.0 { left / divergence.max(f64::MIN_POSITIVE) } else { left }
    };
    let rooms = ORDERS.iter().zip(first.curve.values()).map(|(&order, &divergence)| room(order, divergence));
    let mut best = (0, f64::NEG_INFINITY);
    for (index, room) in rooms.enumerate() {
        if room > best.1 {
            best = (index, room);
        }
    }
    best.0
}

const _: () = assert!((1.0 + DISCRETE) / MARGIN + SPARE < 1.0);

#[cfg(test)]
mod tests;
