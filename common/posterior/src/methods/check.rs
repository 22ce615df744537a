//! What several methods ask of a task.

use super::Setting;
use dp_pvi_models::spec::check::invalid;
use dp_pvi_models::spec::{TaskError, Trust};

/// An update that is protected states its ε.
pub(crate) fn requires_epsilon(task: &Setting<'_>, update: &str) -> Result<(), TaskError> {
    match task.privacy.epsilon {
        Some(epsilon) if epsilon.get() > 0.0 && epsilon.get().is_finite() => Ok(()),
        _ => invalid(&format!("update = \"{update}\" needs a finite epsilon above 0 in [privacy]")),
    }
}

/// An update without a sum that could be aggregated.
pub(crate) fn requires_local_trust(task: &Setting<'_>, update: &str) -> Result<(), TaskError> {
    match task.privacy.trust {
        Trust::Local => Ok(()),
        Trust::Aggregated => invalid(&format!("update = \"{update}\" has no sum that could be aggregated: use trust = \"local\"")),
    }
}
