//! Budgets and readings for parameters that depend on outputs.

use super::{AccountantError, Composition, Prices, PrivacyLoss};
use crate::adjacency::Relation;
use crate::event::DpEvent;
use crate::unit::{Delta, Epsilon};

/// A budget that is fixed while parameters may depend on outputs: an ε, at a δ, that all admitted events together never exceed.
///
/// # Privacy
/// Whatever the events depend on, all of them together are (ε, δ)-differentially private: [`crate::proofs::filter`]. The rule is fixed by the
/// budget and the first event.
#[derive(Debug, Clone)]
pub struct Filter {
    budget: (Epsilon, Delta),
    prices: Prices,
    spent: Composition,
}

impl Filter {
    /// A filter with nothing spent.
    #[must_use]
    pub fn new(relation: Relation, epsilon: Epsilon, delta: Delta) -> Self {
        Self { budget: (epsilon, delta), prices: Prices::new(relation), spent: Composition::default() }
    }

    /// Admits the event if the budget still holds with it; says whether it did.
    ///
    /// # Errors
    /// No proved bound for the event.
    pub fn admit(&mut self, event: &DpEvent) -> Result<bool, AccountantError> {
        let charge = self.prices.learn(event)?;
        let mut with = self.spent.clone();
        with.add(&charge, 1);
        let fits = with.filtered(self.budget.0, self.budget.1).epsilon <= self.budget.0;
        if fits {
            self.spent = with;
        }
        Ok(fits)
    }

    /// Everything that was admitted: to be saved, and to be stated as a filter.
    #[cfg(test)]
    pub(crate) fn admitted(&self) -> &Composition {
        &self.spent
    }

    /// Goes on from what [`Composition::to_bytes`] saved; the budget is stated anew.
    ///
    /// # Errors
    /// Other bytes, or an event that no engine bounds.
    pub fn resume(bytes: &[u8], epsilon: Epsilon, delta: Delta) -> Result<Self, AccountantError> {
        let (relation, spent) = Composition::from_bytes(bytes)?;
        Ok(Self { spent, ..Self::new(relation, epsilon, delta) })
    }

    /// The smallest budget whose filter would have admitted all that was admitted so far. What is proved is a bound for a budget that was fixed
    /// beforehand; a reading that holds at every moment is an [`Odometer`]'s.
    #[must_use]
    pub fn spent(&self) -> PrivacyLoss {
        self.spent.filtered(self.budget.0, self.budget.1)
    }
}

/// A running ε that holds at every moment at once, whatever the parameters depend on.
///
/// Filters with budgets 2^k·`unit` run side by side; the reading is the smallest budget that was never exceeded, and the k-th of them uses
/// δ·6/(π²k²), so that all of them hold together (Rogers, Roth, Ullman & Vadhan 2016).
#[derive(Debug, Clone)]
pub struct Odometer {
    unit: Epsilon,
    delta: Delta,
    prices: Prices,
    spent: Composition,
}

impl Odometer {
    /// Readings are `unit`·2^k.
    #[must_use]
    pub fn new(relation: Relation, unit: Epsilon, delta: Delta) -> Self {
        Self { unit, delta, prices: Prices::new(relation), spent: Composition::default() }
    }

    /// Books an event.
    ///
    /// # Errors
    /// No proved bound for the event.
    pub fn book(&mut self, event: &DpEvent) -> Result<(), AccountantError> {
        let charge = self.prices.learn(event)?;
        self.spent.add(&charge, 1);
        Ok(())
    }

    /// Whether the filter of this budget would have admitted everything.
    fn reads(&self, delta: Delta, budget: f64) -> bool {
        Epsilon::new(budget).is_ok_and(|budget| self.spent.filtered(budget, delta).epsilon <= budget)
    }

    /// The reading: valid simultaneously for all times with probability of failure δ.
    #[must_use]
    pub fn reading(&self) -> Epsilon {
        let mut budget = self.unit.get();
        for k in 1..200u32 {
            let share = 6.0 / (std::f64::consts::PI * f64::from(k)).powi(2);
            let holds = Delta::new(self.delta.get() * share).is_ok_and(|delta| self.reads(delta, budget));
            if holds {
                return Epsilon::new(budget).unwrap_or(Epsilon::INFINITE);
            }
            budget *= 2.0;
        }
        Epsilon::INFINITE
    }
}
