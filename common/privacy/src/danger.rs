//! Doors in the gate, for simulation and tests only. A test over the sources fails when another crate names this module.

use crate::records::{Released, Sensitive};

/// Calls a private value public. Nothing protects it any more: only for data that nobody has to protect (synthetic
/// records, test fixtures).
#[must_use]
pub fn assume_public<T>(value: Sensitive<T>) -> Released<T> {
    Released(value.0)
}

/// Calls a plain value released, as if a mechanism had made it: only for tests of what comes after a release.
#[must_use]
pub fn assume_released<T>(value: T) -> Released<T> {
    Released(value)
}
