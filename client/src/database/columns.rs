//! Which columns a query has, and how the text of their cells is meant.

use std::collections::HashSet;

use tokio_postgres::Statement;
use tokio_postgres::types::{Kind, Type};

use crate::error::{ClientError, Result};

/// How PostgreSQL's text of a cell becomes the text that a schema reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// As it is: numbers, texts, dates (ISO).
    Same,
    /// `t` and `f`.
    Boolean,
    /// Filled with blanks to a fixed length.
    Padded,
}

/// A column of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) text: Text,
}

/// The columns of a prepared query.
///
/// # Errors
/// [`ClientError::Data`] for a type whose text is no number, text, truth value or date, and for a name that two columns have.
pub(super) fn of(statement: &Statement) -> Result<Vec<Column>> {
    let columns = statement.columns().iter().map(|column| {
        let name = column.name().to_owned();
        match text_of(column.type_()) {
            Some(text) => Ok(Column { name, text }),
            None => Err(ClientError::Data(
                format!(
                    "the query's column `{name}` is of type {}, which a schema cannot describe: make a number, a text, a date or a truth value of it in the query",
                    column.type_().name()
                )
                .into(),
            )),
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let mut names = HashSet::new();
    if let Some(twice) = columns.iter().find(|column| !names.insert(column.name.as_str())) {
        return Err(ClientError::Data(
            format!("the query has two columns `{}`: name each column once, so that it is plain which one is meant", twice.name).into(),
        ));
    }
    if columns.is_empty() {
        return Err(ClientError::Data("the query has no columns: select those that the schema describes".into()));
    }
    Ok(columns)
}

fn text_of(kind: &Type) -> Option<Text> {
    match kind.kind() {
        Kind::Domain(base) => return text_of(base),
        Kind::Enum(_) => return Some(Text::Same),
        _ => {}
    }
    let same = [
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::NUMERIC,
        Type::TEXT,
        Type::VARCHAR,
        Type::NAME,
        Type::CHAR,
        Type::UUID,
        Type::DATE,
        Type::TIMESTAMP,
    ];
    match kind {
        kind if same.contains(kind) => Some(Text::Same),
        kind if *kind == Type::BOOL => Some(Text::Boolean),
        kind if *kind == Type::BPCHAR => Some(Text::Padded),
        _ => None,
    }
}

impl Text {
    /// The cell as a schema reads it.
    pub(super) fn read(self, cell: &str) -> &str {
        match (self, cell) {
            (Self::Boolean, "t") => "true",
            (Self::Boolean, "f") => "false",
            (Self::Padded, cell) => cell.trim_end_matches(' '),
            (_, cell) => cell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_schema_can_describe_is_read_as_text() {
        for (kind, text) in [(Type::INT8, Text::Same), (Type::NUMERIC, Text::Same), (Type::DATE, Text::Same), (Type::BOOL, Text::Boolean)] {
            assert_eq!(text_of(&kind), Some(text), "{kind}");
        }
        for kind in [Type::BYTEA, Type::JSONB, Type::INT4_ARRAY, Type::TIMESTAMPTZ, Type::INTERVAL, Type::RECORD] {
            assert_eq!(text_of(&kind), None, "{kind}");
        }
        assert_eq!(
            [Text::Boolean.read("t"), Text::Boolean.read("f"), Text::Padded.read("F   "), Text::Same.read("t ")],
            ["true", "false", "F", "t "]
        );
    }
}
