//! Texts of a task and of its schema, which are printed at every site.

use dp_pvi_schema::{ColumnKind, Schema};

use super::check::{TaskError, invalid};

/// Bytes of a name that stands in a schema: a column, or one of its values.
const MAX_SCHEMA_NAME_BYTES: usize = 1024;

/// Whether a text can be printed in one line as it is: no control character, nothing that turns the direction of writing, no line separator.
#[must_use]
pub fn is_plain_text(text: &str) -> bool {
    let turns = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
    !text.chars().any(|c| c.is_control() || turns(c))
}

/// Names and values that a schema may print anywhere.
///
/// # Errors
/// One that is too long, or cannot be printed as it is.
pub fn check_texts(schema: &Schema) -> Result<(), TaskError> {
    plain_texts(schema).or_else(invalid)
}

/// The same, with the words for who writes the schema.
pub(crate) fn plain_texts(schema: &Schema) -> Result<(), &'static str> {
    let mut names: Vec<&str> = schema.unit_column().into_iter().collect();
    names.extend(schema.missing_tokens().iter().map(String::as_str));
    names.extend(schema.csv().names.iter().flatten().map(String::as_str));
    if let dp_pvi_schema::content::Content::Documents(rule) = schema.content() {
        names.extend(rule.vocabulary.iter().flatten().map(String::as_str));
    }
    if let Some(design) = schema.design() {
        names.extend(design.names().iter().map(String::as_str));
        if !is_plain_text(design.formula()) {
            return Err("the formula holds control characters in a name or a text");
        }
    }
    for column in schema.columns() {
        names.push(&column.name);
        names.extend(column.published.iter().map(|published| published.source.as_str()));
        match &column.kind {
            ColumnKind::Category(rule) => names.extend(rule.values.iter().map(String::as_str)),
            ColumnKind::Boolean(rule) => names.extend(rule.true_values.iter().chain(&rule.false_values).map(String::as_str)),
            ColumnKind::Number(_) | ColumnKind::Ignored => {}
        }
    }
    let is_plain = names.iter().all(|name| name.len() <= MAX_SCHEMA_NAME_BYTES && is_plain_text(name));
    if is_plain { Ok(()) } else { Err("a name or value in the schema holds control characters, or is longer than 1024 bytes") }
}
