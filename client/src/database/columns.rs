//! What the cells of columns are: their types, and how their text is meant.

use dp_pvi_data::types::{CellType, Refused};
use time::{Date, Month};
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

/// What a column's values are, as far as rules and filters have to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Integer,
    /// `numeric`.
    Decimal,
    /// `double precision`.
    Float,
    /// `real`.
    Real,
    Text,
    Truth,
    Date,
    /// `timestamp` without zone.
    Time,
    Uuid,
    Enumeration,
}

impl Family {
    /// The family of a type by its schema, its name and its kind (`typtype`), and how its text is read.
    ///
    /// # Errors
    /// It is not read ([`CellType`]), or is not PostgreSQL's own.
    pub(super) fn of(schema: &str, name: &str, kind: &str) -> std::result::Result<(Self, Text), Refused> {
        let cell = match (schema, kind) {
            (_, "e") => return Ok((Self::Enumeration, Text::Same)),
            ("pg_catalog", _) => CellType::of_postgres(name),
            _ => CellType::Other,
        };
        cell.check()?;
        let family = match cell {
            CellType::Whole => Self::Integer,
            CellType::Decimal => Self::Decimal,
            CellType::Float if name == "float4" => Self::Real,
            CellType::Float => Self::Float,
            CellType::Truth => Self::Truth,
            CellType::Date => Self::Date,
            CellType::Time => Self::Time,
            CellType::Uuid => Self::Uuid,
            _ => Self::Text,
        };
        Ok((family, Text::of(name)))
    }

    /// Whether a constant is a value of the family: then its cast cannot fail.
    pub(super) fn has(self, constant: &str) -> bool {
        match self {
            Self::Integer => constant.parse::<i64>().is_ok(),
            Self::Decimal | Self::Float => constant.len() <= 64 && constant.parse::<f64>().is_ok_and(|number| is_stored(number, constant)),
            Self::Real => constant.len() <= 64 && constant.parse::<f32>().is_ok_and(|number| is_stored(number.into(), constant)),
            Self::Truth => constant == "true" || constant == "false",
            Self::Text | Self::Enumeration => true,
            Self::Uuid => {
                let groups: Vec<usize> = constant.split('-').map(str::len).collect();
                groups == [8, 4, 4, 4, 12] && constant.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
            }
            Self::Date | Self::Time => {
                day(constant).is_some_and(|day| day.year() > 0) && time_of_day(constant.get(10..).unwrap_or_default())
            }
        }
    }
}

/// Whether the number is neither infinite nor so small that it became 0.
fn is_stored(number: f64, text: &str) -> bool {
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    number.is_finite() && (number != 0.0 || !digits.bytes().any(|byte| (b'1'..=b'9').contains(&byte)))
}

/// The day of `yyyy-mm-dd`, alone or before a time.
pub(super) fn day(text: &str) -> Option<Date> {
    let (date, rest) = text.split_at_checked(10)?;
    if !(rest.is_empty() || rest.starts_with(' ')) || rest.ends_with("BC") {
        return None;
    }
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    if parts.next().is_some() || !(digits(year, 4) && digits(month, 2) && digits(day, 2)) {
        return None;
    }
    Date::from_calendar_date(year.parse().ok()?, Month::try_from(month.parse::<u8>().ok()?).ok()?, day.parse().ok()?).ok()
}

/// Nothing, or a blank and `hh:mm`, `hh:mm:ss` or with a fraction.
fn time_of_day(text: &str) -> bool {
    let Some(text) = text.strip_prefix(' ') else { return text.is_empty() };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let parts: Vec<Option<u8>> = whole.split(':').map(|part| (part.len() == 2).then(|| part.parse().ok()).flatten()).collect();
    let most = [23, 59, 59];
    (2..=3).contains(&parts.len())
        && parts.iter().zip(most).all(|(part, most)| part.is_some_and(|part| part <= most))
        && fraction.len() <= 6
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_in_every_other_source() {
        for (kind, text) in [(Type::INT8, Text::Same), (Type::NUMERIC, Text::Same), (Type::DATE, Text::Same), (Type::BOOL, Text::Boolean)] {
            assert_eq!(text_of(&kind), Ok(text), "{kind}");
            assert_eq!(Family::of("pg_catalog", kind.name(), "b").map(|(_, text)| text), Ok(text), "{kind}");
        }
        for kind in [Type::BYTEA, Type::JSONB, Type::INT4_ARRAY, Type::TIMESTAMPTZ, Type::INTERVAL, Type::RECORD] {
            assert_eq!(text_of(&kind).unwrap_err(), Family::of("pg_catalog", kind.name(), "b").unwrap_err(), "{kind}");
        }
        // A type of the site's own may have the name of one of PostgreSQL's.
        assert!(Family::of("public", "int4", "b").is_err() && Family::of("public", "mood", "e").is_ok());
        assert_eq!(
            [Text::Boolean.read("t"), Text::Boolean.read("f"), Text::Padded.read("F   "), Text::Same.read("t ")],
            ["true", "false", "F", "t "]
        );
    }
}
