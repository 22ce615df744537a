//! The server's side of an update: how the sum of a round's messages moves the state. Post-processing of released values only.
//!
//! A run's *state* is a vector of public numbers that every round header carries (by hash) and every party can recompute. It begins
//! with the natural parameters λ of the posterior (as many as the task's family has); a rule may append numbers of its own: an
//! optimiser's moments, a preconditioner, a running average. So a restarted server needs no other memory, and what `posterior.json`,
//! evaluators and reports read is always the head of the state.
//!
//! Each rule is in the module of its method, chosen by the task's update.

/// What a closed round brought.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VisitSum<'a> {
    /// Number of the visit, from 0.
    pub visit: u32,
    /// Number of sites in the sum, at least 1.
    pub sites: u32,
    /// Sum of the sites' messages.
    pub sum: &'a [f64],
}

/// What a step gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The next state: always begins with the natural parameters of a distribution.
    pub state: Vec<f64>,
    /// r, where a floor moved λ beyond ρΣΔ. It belongs to no site: λ = λ0 + Σ factors + Σ r.
    pub correction: Option<Vec<f64>>,
    /// Number of directions in which a floor was active.
    pub floored: usize,
}

/// How a state moves.
pub trait Rule: std::fmt::Debug + Send + Sync {
    /// The state before the first round.
    fn initial(&self) -> Vec<f64>;

    /// The next state. Total: whatever the sum holds, the result is a valid state (the old one, if nothing else is).
    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step;
}
