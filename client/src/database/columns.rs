//! What the cells of columns are: their types, and how their text is meant.

use dp_pvi_data::types::{CellType, Refused};
use dp_pvi_description::family::Family;
use tokio_postgres::Statement;
use tokio_postgres::types::{Kind, Type};

use crate::error::{ClientError, Result};

/// How PostgreSQL's text of a cell becomes the text that a schema reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// As it is: texts, dates (ISO).
    Same,
    /// A number, with a point before its decimals.
    Number,
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
/// [`ClientError::Data`] for a type whose text is no number, text, truth value or date. Columns of one name stay apart: the
/// schema tells whether one of them is meant.
pub(super) fn of(statement: &Statement) -> Result<Vec<Column>> {
    let columns = statement.columns().iter().map(|column| {
        let (name, kind) = (column.name().to_owned(), column.type_().name());
        match text_of(column.type_()) {
            Ok(text) => Ok(Column { name, text }),
            Err(refused) => Err(ClientError::Data(format!("the query's column `{name}` {refused} (of type {kind})").into())),
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    if columns.is_empty() {
        return Err(ClientError::Data("the query has no columns: select those that the schema describes".into()));
    }
    Ok(columns)
}

/// How the cells of a query's column are meant: what [`CellType`] reads.
fn text_of(kind: &Type) -> std::result::Result<Text, Refused> {
    match kind.kind() {
        Kind::Domain(base) => text_of(base),
        Kind::Enum(_) => Ok(Text::Same),
        _ => CellType::of_postgres(kind.name()).check().map(|()| Text::of(kind.name())),
    }
}

impl Text {
    /// Of a type that is read, by its name in the catalogue.
    fn of(name: &str) -> Self {
        match name {
            "bool" => Self::Boolean,
            "bpchar" => Self::Padded,
            name if matches!(CellType::of_postgres(name), CellType::Whole | CellType::Decimal | CellType::Float) => Self::Number,
            _ => Self::Same,
        }
    }

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

/// The family of a type by its schema, its name and its kind (`typtype`), and how its text is read.
///
/// # Errors
/// It is not read ([`CellType`]), or is not PostgreSQL's own.
pub(super) fn family_of(schema: &str, name: &str, kind: &str) -> std::result::Result<(Family, Text), Refused> {
    let cell = match (schema, kind) {
        (_, "e") => return Ok((Family::Enumeration, Text::Same)),
        ("pg_catalog", _) => CellType::of_postgres(name),
        _ => CellType::Other,
    };
    cell.check()?;
    let family = match cell {
        CellType::Whole => Family::Integer,
        CellType::Decimal => Family::Decimal,
        CellType::Float if name == "float4" => Family::Real,
        CellType::Float => Family::Float,
        CellType::Truth => Family::Truth,
        CellType::Date => Family::Date,
        CellType::Time => Family::Time,
        CellType::Uuid => Family::Uuid,
        _ => Family::Text,
    };
    Ok((family, Text::of(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_in_every_other_source() {
        for (kind, text) in
            [(Type::INT8, Text::Number), (Type::NUMERIC, Text::Number), (Type::DATE, Text::Same), (Type::BOOL, Text::Boolean)]
        {
            assert_eq!(text_of(&kind), Ok(text), "{kind}");
            assert_eq!(family_of("pg_catalog", kind.name(), "b").map(|(_, text)| text), Ok(text), "{kind}");
        }
        for kind in [Type::BYTEA, Type::JSONB, Type::INT4_ARRAY, Type::TIMESTAMPTZ, Type::INTERVAL, Type::RECORD] {
            assert_eq!(text_of(&kind).unwrap_err(), family_of("pg_catalog", kind.name(), "b").unwrap_err(), "{kind}");
        }
        // A type of the site's own may have the name of one of PostgreSQL's.
        assert!(family_of("public", "int4", "b").is_err() && family_of("public", "mood", "e").is_ok());
        assert_eq!(
            [Text::Boolean.read("t"), Text::Boolean.read("f"), Text::Padded.read("F   "), Text::Same.read("t ")],
            ["true", "false", "F", "t "]
        );
    }
}
