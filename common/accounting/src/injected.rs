//! The fault to order that lives in this crate, for the audit's own test. The others, and how to inject one, are in `dp_pvi_privacy::injected`.
//!
//! # Privacy
//! None while it is injected.

use std::sync::atomic::{AtomicBool, Ordering};

static FORGOTTEN: AtomicBool = AtomicBool::new(false);

/// From now on, replacing a unit is charged like adding one; or it is not.
pub fn forget_the_factor(forgotten: bool) {
    FORGOTTEN.store(forgotten, Ordering::SeqCst);
}

/// Whether it is.
pub(crate) fn factor_is_forgotten() -> bool {
    FORGOTTEN.load(Ordering::Relaxed)
}
