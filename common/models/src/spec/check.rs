//! Why a document is refused, and the words with which a number out of range is.

use dp_pvi_accounting::ClipNorm;
use dp_pvi_names::LatticeOverflow;

use dp_pvi_schema::{LabelKind, Schema, SchemaError};
use serde::de::DeserializeOwned;

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

/// Whether a number that must be above 0 is one that anyone could mean: between 1e-30 and 1e30. What is computed from such numbers stays far
/// inside of what double precision can hold, where roundings are relative and nothing vanishes.
#[must_use]
pub fn positive(value: f64) -> bool {
    (1e-30..=1e30).contains(&value)
}

/// Refuses clipping norms outside of a plausible range, see [`positive`].
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

/// The settings of a family or an update, `of`, from what is written in a section beside the keys that it has whatever they are.
///
/// # Errors
/// A key that no one knows, or a value of the wrong kind. Of a key the words name all that there are: it may be one of either with a slip in it.
pub fn settings<T: DeserializeOwned>(written: &toml::Table, section: &str, of: &str, always: &[&str]) -> Result<T, TaskError> {
    written.clone().try_into().or_else(|error: toml::de::Error| {
        let words = error.to_string().trim_end().replace(", there are no fields", ", it has no settings of its own");
        let unknown = |key: &String| words.starts_with(&format!("unknown field `{key}`")) && !words.contains('\n');
        let beside = if written.keys().any(unknown) { format!("; every {section} has {}", always.join(", ")) } else { String::new() };
        invalid(&format!("{section} {of}: {words}{beside}"))
    })
}

/// A number of `dp-pvi-privacy`, or why it is none.
///
/// # Errors
/// The refusal.
pub fn checked<T>(value: Result<T, dp_pvi_accounting::unit::InvalidUnit>) -> Result<T, TaskError> {
    value.map_err(|e| TaskError::Invalid(e.to_string()))
}

/// Refuses an outcome unless it is of the kind that a family predicts, see [`wrong_outcome`].
///
/// # Errors
/// The refusal.
pub(crate) fn require_outcome(fits: bool, schema: &Schema, family: &str, needs: &str) -> Result<(), TaskError> {
    if fits { Ok(()) } else { wrong_outcome(schema, family, needs) }
}

/// Refuses an outcome of a kind that a family does not predict: `needs` says which it does, with the kind of such a column.
///
/// # Errors
/// Always.
pub(crate) fn wrong_outcome<T>(schema: &Schema, family: &str, needs: &str) -> Result<T, TaskError> {
    let column = &schema.label().column;
    let found = match &schema.label().kind {
        LabelKind::Absent => "nothing stands before `~`".to_owned(),
        LabelKind::Binary { .. } => format!("`{column}` has kind = \"boolean\""),
        LabelKind::Classes { .. } => format!("`{column}` has kind = \"category\""),
        LabelKind::Number { .. } => format!("`{column}` has kind = \"number\""),
        LabelKind::Survival(_) => format!("`{column}` is a survival time"),
    };
    invalid(&format!(
        "family = \"{family}\" predicts {needs}, and {found}: name such a column as outcome (before `~`), describe it so in the schema, or choose a family that predicts what it is"
    ))
}
