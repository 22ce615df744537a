//! One table of types for all sources: what a column holds, and whether and as what it is read.
//!
//! A text file has no types: what is in its column of the table is how the same value is written there. The guide's page on sources shows [`page`], and a test holds it to this.

use std::fmt::{self, Write as _};

/// What the cells of a column are, as Parquet files and PostgreSQL say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellType {
    /// Text.
    Text,
    /// Whole numbers.
    Whole,
    /// Floating-point numbers.
    Float,
    /// Numbers with a fixed number of decimals.
    Decimal,
    /// Truth values.
    Truth,
    /// Dates.
    Date,
    /// Dates with a time of day, without a zone.
    Time,
    /// Universally unique identifiers.
    Uuid,
    /// No values at all: what a program writes for an empty column.
    Nothing,
    /// Numbers of half precision.
    Half,
    /// Decimals of more than 38 digits.
    LongDecimal,
    /// Points in time, or times with a zone.
    ZonedTime,
    /// Times in 96 bits.
    OldTime,
    /// A time of day.
    TimeOfDay,
    /// A length of time.
    Duration,
    /// Bytes.
    Bytes,
    /// Documents.
    Json,
    /// Several values in a cell.
    Nested,
    /// Anything else.
    Other,
}

/// What is done with the cells of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// They are read as this.
    As(&'static str),
    /// The column is refused; this says what to do.
    Refused(&'static str),
}

/// One line of the table.
struct Line {
    /// What the cells are.
    name: &'static str,
    reading: Reading,
    /// How a text file writes such a value.
    text: &'static str,
    parquet: &'static str,
    /// Names of PostgreSQL's types, as its catalogue has them.
    postgres: &'static [&'static str],
}

impl CellType {
    /// All types, in the order of the page.
    pub const ALL: [Self; 19] = [
        Self::Text,
        Self::Whole,
        Self::Float,
        Self::Decimal,
        Self::Truth,
        Self::Date,
        Self::Time,
        Self::Uuid,
        Self::Nothing,
        Self::Half,
        Self::LongDecimal,
        Self::ZonedTime,
        Self::OldTime,
        Self::TimeOfDay,
        Self::Duration,
        Self::Bytes,
        Self::Json,
        Self::Nested,
        Self::Other,
    ];

    /// What is done with such cells, in every source.
    fn reading(self) -> Reading {
        self.line().reading
    }

    /// The type of a column of PostgreSQL by the name that its catalogue has for it (`pg_type.typname`). Enumerations are text, and domains are what they are made of: whoever asks knows
    /// of them.
    #[must_use]
    pub fn of_postgres(name: &str) -> Self {
        let listed = |cell: &Self| cell.line().postgres.contains(&name);
        Self::ALL.into_iter().find(listed).unwrap_or(if name.starts_with('_') { Self::Nested } else { Self::Other })
    }

    /// Whether such a column is read; the error says why it is not, in the same words for every source.
    ///
    /// # Errors
    /// The type is refused.
    pub fn check(self) -> Result<(), Refused> {
        match self.reading() {
            Reading::As(_) => Ok(()),
            Reading::Refused(_) => Err(Refused(self)),
        }
    }

    #[allow(clippy::too_many_lines, reason = "a table")]
    fn line(self) -> Line {
        use Reading::{As, Refused};
        let line = |name, reading, text, parquet, postgres| Line { name, reading, text, parquet, postgres };
        match self {
            Self::Text => line(
                "text",
                As("text without blanks around it, composed (NFC)"),
                "as it is",
                "`STRING`, `ENUM`, `BYTE_ARRAY` alone",
                &["text", "varchar", "bpchar", "name", "char", "citext"],
            ),
            Self::Whole => line("whole numbers", As("the number"), "`12`", "`INT32`, `INT64`, `INTEGER`", &["int2", "int4", "int8"]),
            Self::Float => line(
                "floating-point numbers",
                As("the number with the fewest decimals that is stored so; NaN is a missing number"),
                "`1.5`, `1e-3`",
                "`FLOAT`, `DOUBLE`",
                &["float4", "float8"],
            ),
            Self::Decimal => line("decimals of up to 38 digits", As("the number, all its digits"), "`50.25`", "`DECIMAL`", &["numeric"]),
            Self::Truth => {
                line("truth values", As("`true`, `false`"), "`true`, `True`, `TRUE`, or as the schema lists", "`BOOLEAN`", &["bool"])
            }
            Self::Date => line("dates", As("`2024-05-17`"), "`2024-05-17`, or the column's `format`", "`DATE`", &["date"]),
            Self::Time => line(
                "dates with a time, without a zone",
                As("`2024-05-17 08:30:00`; a column of dates cuts the time off"),
                "`2024-05-17 08:30:00`",
                "`TIMESTAMP(…, false)`",
                &["timestamp"],
            ),
            Self::Uuid => line("UUIDs", As("text with small letters"), "`6f9619ff-8b86-d011-b42d-00c04fc964ff`", "`UUID`", &["uuid"]),
            Self::Nothing => {
                line("columns without a type and without values", As("missing values"), "empty cells", "`UNKNOWN`", &["unknown"])
            }
            Self::Half => line("numbers of half precision", Refused("store them as float or double"), "", "`FLOAT16`", &[]),
            Self::LongDecimal => line(
                "decimals of more than 38 digits",
                Refused("store them as double, or with 38 digits at most"),
                "",
                "`DECIMAL` of a larger precision",
                &[],
            ),
            Self::ZonedTime => line(
                "times with a zone",
                Refused("on which day such a time falls depends on where one is: store the local date, or the local time without a zone"),
                "a cell such as `2024-05-17T08:30:00Z` is no date",
                "`TIMESTAMP(…, true)`, `TIMESTAMP_MILLIS` and `TIMESTAMP_MICROS` alone",
                &["timestamptz"],
            ),
            Self::OldTime => line(
                "times in 96 bits, whose zone is not stored",
                Refused(
                    "Spark, Impala and Hive mean different zones by them: store the local date (`CAST(… AS DATE)`), or in Spark set \
                     spark.sql.parquet.outputTimestampType = TIMESTAMP_MICROS and store timestamp_ntz",
                ),
                "",
                "`INT96`",
                &[],
            ),
            Self::TimeOfDay => line("times of day", Refused("store a number, for example of minutes"), "", "`TIME`", &["time", "timetz"]),
            Self::Duration => line(
                "lengths of time",
                Refused("store a number, and agree on its unit: days, for example"),
                "",
                "`INTERVAL`, `INT64` that Arrow calls a duration",
                &["interval"],
            ),
            Self::Bytes => line("bytes", Refused("store text"), "", "`FIXED_LEN_BYTE_ARRAY` alone, `BSON`", &["bytea", "bit", "varbit"]),
            Self::Json => {
                line("JSON documents", Refused("make a column of what is needed of them"), "", "`JSON`, `VARIANT`", &["json", "jsonb"])
            }
            Self::Nested => line(
                "several values in a cell",
                Refused("make a column of each value, or a row"),
                "",
                "lists, maps, groups, repeated columns",
                &["record"],
            ),
            Self::Other => {
                line("values of another type", Refused("store a number, a text, a date or a truth value"), "", "all others", &[])
            }
        }
    }
}

/// A type that no source reads: what the column holds, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(CellType);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { name, reading, .. } = self.0.line();
        match reading {
            Reading::As(what) | Reading::Refused(what) => write!(f, "holds {name}, which are not read: {what}"),
        }
    }
}

impl std::error::Error for Refused {}

/// The table in Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = String::from("| a column of | is read as | in a text file | in Parquet | in PostgreSQL |\n|---|---|---|---|---|\n");
    for cell in CellType::ALL {
        let Line { name, reading, text, parquet, postgres } = cell.line();
        let reading = match reading {
            Reading::As(what) => what.to_owned(),
            Reading::Refused(what) => format!("*refused*: {what}"),
        };
        let postgres = match cell {
            CellType::Other => "all others".to_owned(),
            CellType::Nested => "arrays, `record`".to_owned(),
            CellType::Text => format!("{}, enumerations", quoted(postgres)),
            _ => quoted(postgres),
        };
        // Writing to a text does not fail.
        let _ = writeln!(page, "| {name} | {reading} | {text} | {parquet} | {postgres} |");
    }
    page
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_postgresql_stands_in_one_line() {
        let mut names: Vec<_> = CellType::ALL.into_iter().flat_map(|cell| cell.line().postgres).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_refusal_says_what_the_column_holds_and_what_to_do() {
        for cell in CellType::ALL {
            match (cell.check(), cell.reading()) {
                (Ok(()), Reading::As(what)) => assert!(!what.is_empty()),
                (Err(refused), Reading::Refused(what)) => assert!(refused.to_string().contains(what) && !what.is_empty(), "{refused}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
