//! Budgets and readings for parameters that depend on outputs.

use super::{AccountantError, Composition, Prices, PrivacyLoss};
use crate::adjacency::Relation;
use crate::event::DpEvent;
use crate::unit::{Delta, Epsilon};

/// A budget that is fixed while parameters may depend on outputs: an ε, at a δ, that all admitted events together never exceed.
///
/// # Privacy
/// μ² (unsampled Gaussians) and Rényi divergences at fixed orders are fully adaptive filters; see [`crate::accountant`] for the exact
/// statement. The ledger applies this very filter to its rows.
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
        let fits = with.loss(self.budget.1).epsilon <= self.budget.0;
        if fits {
            self.spent = with;
        }
        Ok(fits)
    }

    /// Everything that was admitted: to be saved, and to be stated as a filter.
    #[must_use]
    pub fn admitted(&self) -> &Composition {
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

    /// What was admitted so far costs at most this. Inside a run it is a bound only for the whole budget: see [`Odometer`].
    #[must_use]
    pub fn spent(&self) -> PrivacyLoss {
        self.spent.loss(self.budget.1)
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

    /// The reading: valid simultaneously for all times with probability of failure δ.
    #[must_use]
    pub fn reading(&self) -> Epsilon {
        let mut budget = self.unit.get();
        for k in 1..200u32 {
            let share = 6.0 / (std::f64::consts::PI * f64::from(k)).powi(2);
            let holds = Delta::new(self.delta.get() * share).is_ok_and(|delta| self.spent.loss(delta).epsilon.get() <= budget);
            if holds {
                return Epsilon::new(budget).unwrap_or(Epsilon::INFINITE);
            }
            budget *= 2.0;
        }
        Epsilon::INFINITE
    }
}
