//! Conversions and compositions that others use: for comparison, never for a statement.

use std::collections::BTreeMap;

use super::{AccountantError, Zcdp};
use crate::unit::Delta;

/// ε(δ) of ρ-zCDP by the optimal conversion.
///
/// # Errors
/// ρ is not a finite number at least 0.
pub fn zcdp_epsilon(rho: f64, delta: Delta) -> Result<f64, AccountantError> {
    if !(rho.is_finite() && rho >= 0.0) {
        return Err(AccountantError::Unsupported("a rho that is not a finite number at least 0"));
    }
    Ok(Zcdp::of_ratio((2.0 * rho).sqrt()).epsilon_upper(delta).get())
}

/// For comparison only: basic and advanced composition of (ε, δ) steps (Kairouz, Oh & Viswanath 2015, Theorem 3.4).
#[must_use]
pub fn classical_composition(epsilon: f64, delta: f64, steps: u64, slack: f64) -> BTreeMap<&'static str, (f64, f64)> {
    #[allow(clippy::cast_precision_loss, reason = "a comparison")]
    let k = steps as f64;
    let centre = k * epsilon * (0.5 * epsilon).tanh();
    let spread = epsilon * (2.0 * k).sqrt();
    let first = centre + spread * (std::f64::consts::E + epsilon * k.sqrt() / slack).ln().sqrt();
    let second = centre + spread * (1.0 / slack).ln().sqrt();
    let total = 1.0 - (1.0 - slack) * (k * (-delta).ln_1p()).exp();
    BTreeMap::from([("basic", (k * epsilon, (k * delta).min(1.0))), ("strong", ((k * epsilon).min(first).min(second), total.min(1.0)))])
}
