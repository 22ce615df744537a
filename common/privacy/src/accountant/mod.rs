//! Accountants: pure functions of events. (Stub for the contract; the owner replaces bodies, keeps signatures.)

use crate::adjacency::Relation;
use crate::event::DpEvent;
use crate::unit::{Delta, Epsilon, NoiseMultiplier};

/// The accountant cannot account this pair of event and relation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountantError {
    /// No proved bound is implemented.
    #[error("no proved bound for this event under this relation: {0}")]
    Unsupported(&'static str),
}

/// How a stated ε was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Exact Gaussian differential privacy with the lattice margin.
    GaussianDp,
    /// Rényi differential privacy at fixed orders.
    Rdp,
    /// No guarantee.
    NonPrivate,
}

/// An upper bound on ε, and how it came about.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PrivacyLoss {
    /// Upper bound.
    pub epsilon: Epsilon,
    /// At this δ.
    pub delta: Delta,
    /// Engine.
    pub method: Method,
    /// δ was divided by 1+1e-6 because the discrete noise was accounted as continuous.
    pub numerical_margin: bool,
}

/// Certified upper bound on ε(δ) of the adaptive composition of all events (a fully adaptive filter: GDP if every event is
/// an unsampled Gaussian, else Rényi at fixed orders).
///
/// # Errors
/// An event that no engine bounds.
pub fn epsilon_upper<'a>(
    events: impl IntoIterator<Item = &'a DpEvent>,
    relation: Relation,
    delta: Delta,
) -> Result<PrivacyLoss, AccountantError> {
    let _ = (events.into_iter().count(), relation, delta);
    unimplemented!("contract")
}

/// Smallest noise multiplier (on the safe side) for which `event(z)` costs at most `epsilon` at `delta`.
///
/// # Errors
/// An event that no engine bounds, or a target that no noise multiplier up to 1e6 reaches.
pub fn calibrate(
    event: impl Fn(NoiseMultiplier) -> DpEvent,
    relation: Relation,
    epsilon: Epsilon,
    delta: Delta,
) -> Result<NoiseMultiplier, AccountantError> {
    let _ = (event(NoiseMultiplier::new(1.0).unwrap()), relation, epsilon, delta);
    unimplemented!("contract")
}
