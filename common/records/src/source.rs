//! Where records come from: a table with named columns, read row by row.
//!
//! A new kind of data is one implementation of [`Source`]. The schema's part (which columns, what a cell means, what makes a unit, what
//! happens to a cell that cannot be read) is the same for all of them and is not the source's matter.

use std::ops::ControlFlow;
use std::path::Path;

/// A cell as a source finds it.
#[derive(Clone, Copy)]
pub enum CellValue<'a> {
    /// No value.
    Null,
    /// Text, as bytes.
    Text(&'a [u8]),
    /// A whole number.
    Integer(i128),
    /// A floating-point number.
    Number(f64),
    /// A truth value.
    Boolean(bool),
}

impl CellValue<'_> {
    /// Calls `f` with the cell's text: numbers in their shortest decimal form, whole ones without decimals and zero without a sign, truth values as `true` and `false`, no value as nothing.
    pub fn with_text<T>(self, f: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Null => f(b""),
            Self::Text(text) => f(text),
            Self::Integer(value) => f(value.to_string().as_bytes()),
            // −0 + 0 is 0.
            Self::Number(value) => f((value + 0.0).to_string().as_bytes()),
            Self::Boolean(true) => f(b"true"),
            Self::Boolean(false) => f(b"false"),
        }
    }
}

/// One row of a table, seen through the fields that were asked for.
pub trait Row {
    /// The cell of a field: position in the list given to [`Source::visit`]. [`CellValue::Null`] where no column was asked for.
    fn cell(&self, field: usize) -> CellValue<'_>;

    /// The decimal sign of a field, where its cells are text: `.` or `,`.
    fn decimal(&self, _field: usize) -> u8 {
        b'.'
    }
}

/// A row of which nothing can be read.
impl Row for () {
    fn cell(&self, _: usize) -> CellValue<'_> {
        CellValue::Null
    }
}

/// Takes the rows of a table one by one. [`ControlFlow::Break`] ends the reading.
pub trait Visitor {
    /// A row.
    fn row(&mut self, row: &impl Row) -> ControlFlow<()>;
    /// A record that cannot be cut into the table's columns; `rest` has what can be read of it all the same.
    fn broken(&mut self, problem: LineProblem, rest: &impl Row) -> ControlFlow<()>;
    /// A record that holds nothing: an empty line, or one that looks like a comment.
    fn nothing(&mut self);
}

/// A table whose rows are visited once, in order.
///
/// A source holds a row or a block of bounded size at a time, never the table.
///
/// # Privacy
/// What one record holds decides only what is visited for that record. The source calls its visitor once for each record, whatever the record
/// holds, and its errors are about the table as a whole: they neither depend on what single records hold nor quote it. The crate
/// `dp-pvi-data` says what rests on this, and `common/privacy/proofs/argument.md` how.
pub trait Source {
    /// Why the table as a whole cannot be read.
    type Error;

    /// What messages call the table: a file's path, or another name.
    fn name(&self) -> &Path;

    /// Names of the columns, in the table's order. Called once, before [`visit`](Self::visit).
    ///
    /// # Errors
    /// The table as a whole cannot be read.
    fn columns(&mut self) -> Result<Vec<Vec<u8>>, Self::Error>;

    /// Visits every row until the visitor breaks off. `fields` holds for each field of the rows the position of its column, and `None` for a
    /// field at which no one looks.
    ///
    /// # Errors
    /// The table as a whole cannot be read.
    fn visit(&mut self, fields: &[Option<usize>], visitor: &mut impl Visitor) -> Result<(), Self::Error>;
}

/// Why a line is no row of the file's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// More or fewer cells than the file has columns.
    #[error("has {found} cells instead of {expected}; check delimiter, quotes and the list of columns")]
    Length {
        /// Number of columns.
        expected: usize,
        /// Number of cells.
        found: usize,
    },
    /// A quote that is not closed on its line.
    #[error(
        "has a quote that is not closed on its line; a record is one line: close the quote, write line breaks inside cells as blanks, or \
         store the data as Parquet"
    )]
    OpenQuote,
    /// A line that does not fit into memory.
    #[error("is longer than 64 MiB; check quotes and line ends")]
    TooLong,
    /// A header that ends in a carriage return without a line feed.
    #[error(
        "ends in a carriage return without a line feed; end every line with a line feed (`tr '\\r' '\\n'` converts a file of such lines)"
    )]
    BareReturn,
    /// Bytes that mean nothing in the encoding that the schema names.
    #[error("holds bytes that are not of the encoding; set `encoding` under `[csv]` in the schema to that of the file, or mend the line")]
    Encoding,
}
