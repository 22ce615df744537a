//! Conversions and compositions that others use: for comparison, never for a statement.

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
