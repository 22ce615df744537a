//! Texts of a task, which are printed at every site. Those of its schema are looked at where a schema is read.

use dp_pvi_schema::Schema;
pub use dp_pvi_schema::text::is_plain as is_plain_text;

use super::check::{TaskError, require};

/// Names and texts that a formula adds to a schema.
///
/// # Errors
/// One cannot be printed as it is.
pub fn check_texts(schema: &Schema) -> Result<(), TaskError> {
    let Some(design) = schema.design() else { return Ok(()) };
    let is_plain = is_plain_text(design.formula()) && design.names().iter().all(|name| is_plain_text(name));
    require(is_plain, "the formula, or a name of a site, holds control characters: write it without them")
}
