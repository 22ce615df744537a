//! From files to privacy units: CSV and Parquet, documents and images, through the public schema.
//!
//! A [`Schema`] says what a row is; this crate applies it to a site's files and learns nothing from them (R6 of the algorithm
//! specification: every range, constant and category list is public). Files are text (CSV, plain or gzip) or Parquet, told apart by
//! their first bytes; several files are one data set, in the given order.
//!
//! Documents (UCI's docword files, or text with a public vocabulary) and binary images (IDX files) are units of one record each; a
//! schema with a `kind` describes them ([`dp_pvi_posterior::schema::content`]).
//!
//! * [`load`] puts a site's records behind the release gate: [`Units`] can be summed through a mechanism and
//!   nothing else. With a `unit_column` all records of one person are one unit; a record without an id is an error.
//! * [`load_public`] reads a public test set for an evaluator, or public research data for a simulation. It refuses a data set that
//!   has a privacy ledger.
//! * [`load_for_prediction`] reads rows whose label is not known yet.
//! * [`inspect`] counts what the schema does to a data set, for the people at the site only.
//!
//! A record that the schema drops stays a unit (or leaves its person's unit empty) and contributes 0 to every sum: no count and no
//! position depends on what a cell held. A file that the schema rejects is not loaded at all; the error names file, row and column,
//! **never a cell's text** (a test feeds random files and looks for their cells in the messages).
//!
//! Reading is single-threaded and streams: 48,842 records of 15 columns (7 MB) take 44 ms plain and 52 ms from gzip, median of 30 on
//! one core of a small virtual machine (`cargo bench -p dp-pvi-data`).

mod assemble;
mod documents;
mod encode;
mod error;
mod images;
mod inspect;
mod parquet;
mod public;
mod source;
mod text;

pub use dp_pvi_posterior::public::Public;
pub use error::{CellProblem, DataError, DocumentProblem, ImageProblem};
pub use inspect::{ColumnReport, FieldCounts, Inspection, Rejection, inspect};
pub use public::{LEDGER_APPLICATION_ID, load_public, select_public};

use assemble::Assembler;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_posterior::schema::Schema;
use dp_pvi_posterior::schema::content::Content;
use dp_pvi_privacy::Units;
use encode::Purpose;
use std::io::Read;
use std::path::Path;

/// A site's data set behind the release gate.
///
/// Not `Debug` and not serialisable: the counts belong to the site.
pub struct Loaded {
    /// The units.
    pub units: Units<RecordTable>,
    /// How much was read; stays at the site.
    pub counts: LocalCounts,
}

/// How much was read. Private under add-remove, where one record more or less must not show: use it for local policy
/// (`min_records`) and, under replace-one, for the declared number of units.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LocalCounts {
    /// Privacy units: records, or persons with a `unit_column`.
    pub units: u64,
    /// Records in the files.
    pub records: u64,
    /// Records that the schema dropped; they are among `records`.
    pub dropped: u64,
}

/// Reads a site's files through the schema and puts them behind the release gate.
///
/// Units are in the order in which their first record stands in the files.
///
/// # Errors
/// See [`DataError`].
pub fn load<P: AsRef<Path>>(schema: &Schema, files: &[P]) -> Result<Loaded, DataError> {
    let (table, counts) = table(schema, files, Purpose::Training)?;
    Ok(Loaded { units: Units::new(table), counts })
}

/// Reads rows that are to be predicted: label and unit column may be absent and are not looked at.
///
/// Unit i of the table is row i of the files; a row that the schema drops is an empty unit. Targets are 0.
/// The rows are as private as the file they come from: what is computed from them stays where they are.
///
/// # Errors
/// See [`DataError`].
pub fn load_for_prediction<P: AsRef<Path>>(schema: &Schema, files: &[P]) -> Result<RecordTable, DataError> {
    Ok(table(schema, files, Purpose::Prediction)?.0)
}

/// Reads a public text, plain or gzip: a vocabulary, say.
///
/// # Errors
/// [`DataError::Io`], also for bytes that are no UTF-8.
pub fn read_text(path: &Path) -> Result<String, DataError> {
    let mut text = String::new();
    let read = source::open_plain(path)?.read_to_string(&mut text);
    read.map(|_| text).map_err(|source| DataError::Io { path: path.to_owned(), source })
}

fn table<P: AsRef<Path>>(schema: &Schema, files: &[P], purpose: Purpose) -> Result<(RecordTable, LocalCounts), DataError> {
    match schema.content() {
        Content::Table => {
            let mut assembler = Assembler::new(schema, purpose);
            source::read_files(schema, files, purpose, &mut assembler)?;
            assembler.finish()
        }
        Content::Documents(rule) => documents::load(rule, files),
        Content::Images(rule) => images::load(rule, files),
    }
}
