//! Functions that open the gate, for simulation and tests only: each takes an [`Unsealed`], and a test over the sources fails when anything else
//! names this module.

use std::path::Path;

use dp_pvi_unsealed::Unsealed;

use crate::ledger::reserve::forget;
use crate::ledger::{Attachment, Pending};
use crate::records::{Released, Sensitive};
use dp_pvi_names::Payload;

/// Calls a private value public. Nothing protects it any more: only for data that no one has to protect (synthetic
/// records, test fixtures).
///
/// # Panics
/// The function that should have made the value panicked.
#[must_use]
pub fn assume_public<T>(_: Unsealed, value: Sensitive<T>) -> Released<T> {
    Released(value.into_value().expect("the function that should have made this value panicked"))
}

/// Calls a plain value released, as if a mechanism had made it: only for tests of what comes after a release.
#[must_use]
pub fn assume_released<T>(_: Unsealed, value: T) -> Released<T> {
    Released(value)
}

/// Forgets what this process minted from the ledger at `place`, as a restart would: only for tests of what comes after one.
pub fn forget_minted(_: Unsealed, place: &Path) {
    forget(place);
}

/// Calls any bytes the message about a payload: only for tests of what comes after a release.
#[must_use]
pub fn assume_signed(_: Unsealed, message: Vec<u8>, payload: Payload, pending: Pending) -> Attachment {
    Attachment::unclaimed(message, payload, pending)
}
