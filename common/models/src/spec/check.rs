//! Why a document is refused, and the words with which a number out of range is.

use dp_pvi_accounting::ClipNorm;
use dp_pvi_names::LatticeOverflow;

use dp_pvi_schema::SchemaError;

/// Why a document is not a task of this engine.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// Not the document that this version writes.
    #[error("the task document cannot be read by this version ({0}): use the same version on both sides")]
    Unreadable(String),
    /// A value out of range or a combination that does not exist.
    #[error("task: {0}")]
    Invalid(String),
    /// Numbers that do not fit the lattice.
    #[error(transparent)]
    Lattice(#[from] LatticeOverflow),
    /// The schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The target cannot be reached.
    #[error("task: {0}")]
    Accountant(#[from] dp_pvi_accounting::AccountantError),
}

/// Whether a number that must be above 0 is one that anybody could mean: between 1e-30 and 1e30. What is computed from such numbers stays far
/// inside of what double precision can hold, where roundings are relative and nothing vanishes.
#[must_use]
pub fn positive(value: f64) -> bool {
    (1e-30..=1e30).contains(&value)
}

/// Refuses clipping norms that nobody can mean, see [`positive`].
///
/// # Errors
/// The refusal.
pub fn requires_clip_norms<'a>(norms: impl IntoIterator<Item = &'a ClipNorm>) -> Result<(), TaskError> {
    require(norms.into_iter().all(|norm| positive(norm.get())), "clipping norms must lie between 1e-30 and 1e30")
}

/// Refuses a document with this sentence, unless the condition holds.
///
/// # Errors
/// The refusal.
pub fn require(condition: bool, otherwise: &str) -> Result<(), TaskError> {
    if condition { Ok(()) } else { invalid(otherwise) }
}

/// Refuses a document with this sentence.
///
/// # Errors
/// The refusal.
pub fn invalid<T>(message: &str) -> Result<T, TaskError> {
    Err(TaskError::Invalid(message.to_owned()))
}

/// A number of `dp-pvi-privacy`, or why it is none.
///
/// # Errors
/// The refusal.
pub fn checked<T>(value: Result<T, dp_pvi_accounting::unit::InvalidUnit>) -> Result<T, TaskError> {
    value.map_err(|e| TaskError::Invalid(e.to_string()))
}
