//! From files to privacy units: CSV and Parquet, documents and images, through the public schema.
//!
//! A [`Schema`] says what a row is; this crate applies it to a site's files and learns nothing from them (every range, constant and category list is
//! public). Files are text (CSV, plain, gzip or Zstandard) or Parquet, distinguished by their first bytes; several files are one data set, in the given order.
//!
//! Documents (UCI's docword files, or text with a public vocabulary) and binary images (IDX files) are units of one record each; a
//! schema with a `kind` describes them ([`dp_pvi_schema::content`]).
//!
//! * [`load_for_run`] puts a site's records behind the release gate: [`Units`] can be summed through a mechanism and
//!   nothing else. With a `unit_column` all records of one person are one unit. [`load`] does the same, with errors, before a run.
//! * [`load_to_disk`] does it with a data set that is larger than memory.
//! * [`load_public`] reads a public test set for an evaluator, or for a simulation. It refuses a data set that has a privacy ledger.
//! * [`load_for_prediction`] reads rows whose label is not known yet.
//! * [`load_sources_for_run`] and [`load_sources`] do the same with any table that is a [`Source`].
//! * [`inspect`] counts what the schema does to a data set, for the people at the site only.
//! * [`types`] is the one table of what columns of all sources are read as.
//!
//! # What may depend on a record
//!
//! *Before a run*, [`load`] and [`inspect`] reject: the error names file, row and column, **never a cell's text** (a test feeds random files
//! and looks for their cells in the messages). *In a run*, [`load_for_run`] rejects nothing that one record could have caused, because
//! whoever sees that a site stopped would learn something about that record which no budget paid for:
//!
//! * A row with a cell that the schema rejects or drops, or that cannot be cut into the file's columns, is a unit that contributes 0 to
//!   every sum (with a `unit_column`, it adds nothing to its person's unit).
//! * A record without a readable unit id belongs to no one: it contributes nothing and makes no unit.
//! * A record of a text file is one line. Every line after the header is one, also if it is empty or looks like a comment, so that no
//!   record moves another. A quote that is not closed ends with its line. A line ends with a line feed; a header that ends in a carriage
//!   return alone is refused.
//! * Whether a file is packed or Parquet is told by its first bytes where they belong to a header, and by its name (`.gz`, `.zst`, `.parquet`)
//!   where they belong to a record.
//! * How many records there are, none included, is no error (a table holds 2³² entries, 50 GB of them).
//!
//! The people at the site hear of such records from [`Snapshot::screen`], and no one else does: nothing that a site sends depends on it.
//!
//! What remains is the file as a whole: missing, no regular file, without the schema's columns, cut off. A site meets that before it says hello.
//!
//! Persons are numbered by the first record that can be read as theirs. So the records of one person may decide the numbers of others:
//! sums over persons do not see the order, and a task whose layout goes by position does not take persons (shards under replace-one are
//! refused by the task's check).

#[cfg(feature = "parquet")]
mod arrow;
mod assemble;
#[cfg(feature = "parquet")]
mod blocks;
mod cache;
mod cells;
mod changes;
mod decode;
mod distinct;
mod documents;
mod encode;
mod error;
#[cfg(feature = "parquet")]
mod executors;
mod files;
mod fingerprint;
#[cfg(feature = "parquet")]
mod footer;
mod guess;
mod images;
mod inspect;
mod invented;
mod lines;
mod near;
#[cfg(feature = "parquet")]
mod parquet;
mod public;
mod rows;
mod screen;
mod source;
mod text;
pub mod types;

#[cfg(feature = "parquet")]
pub use blocks::{BadBlock, Blocks};
pub use distinct::Shared;
pub use dp_pvi_records::LineProblem;
pub use dp_pvi_schema::public::Public;
pub use error::{CellProblem, Clue, DataError, DocumentProblem, ImageProblem, RowProblem};
#[cfg(feature = "parquet")]
pub use executors::{Executors, remove_snapshots};
pub use guess::{Guess, guess};
pub use inspect::{ColumnReport, FieldCounts, Inspection, Rejection, Unwatched, inspect};
pub use near::{Near, Place};
#[cfg(feature = "parquet")]
pub use parquet::NUMBERS;
pub use public::{LEDGER_APPLICATION_ID, PublicCells, load_public, select_public};
pub use rows::{MOST_FORMULA_ENTRIES, Made, Omitted, fits};
pub use screen::{Nothing, Screen};

use assemble::{Assembled, Assembler, Predicted};
use cache::{Cache, OfMany};
use dp_pvi_names::Hash;
use dp_pvi_privacy::Units;
use dp_pvi_records::{RecordTable, Source};
use dp_pvi_schema::Schema;
use dp_pvi_schema::content::Content;
use encode::{Form, Purpose};
use rows::Held;
use source::Reading;
pub use source::{DataFile, RecordFile};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A site's data set as it was when it was read: cells, which no one sees, and of which a task's formula makes the units.
pub struct Snapshot {
    held: Held,
    /// Says whether two snapshots hold the same records in the same order, to anyone who has the key, and nothing to anyone else. It is that of the cells: one data set has one
    /// fingerprint, whatever is asked of it.
    pub fingerprint: Hash,
    /// What contributes nothing, for the people at the site. Nothing that is sent in a run may depend on it.
    pub screen: Screen,
}

impl Snapshot {
    /// The units as rows of a task's formula; of documents and images as they are. With `file`, which is empty and belongs to this process alone, they are put there.
    ///
    /// # Errors
    /// [`DataError::Cache`]: the disk is full; [`DataError::Unread`]; [`DataError::Table`]: more than a table holds.
    pub fn units(&self, schema: &Schema, file: Option<File>) -> Result<Made, DataError> {
        Ok(match file {
            Some(file) => {
                let (cache, omitted) = self.held.cache(schema, file)?;
                Made { units: Units::stored(Box::new(OfMany(cache))), omitted }
            }
            None => {
                let (table, omitted) = self.held.table(schema)?;
                Made { units: Units::new(table), omitted }
            }
        })
    }
}

/// A site's data set behind the release gate, with its counts.
///
/// Not `Debug` and not serialisable: the counts belong to the site.
pub struct Loaded {
    /// The units.
    pub units: Units<RecordTable>,
    /// How much was read; stays at the site.
    pub counts: LocalCounts,
}

/// How much was read: for the people at the site, before a run. Nothing that leaves the site may depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LocalCounts {
    /// Privacy units: records, or persons with a `unit_column`.
    pub units: u64,
    /// Records in the files.
    pub records: u64,
    /// Records that the schema dropped; they are among `records`.
    pub dropped: u64,
}

/// A row that is to be predicted and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Row over all files, from 1; the table's unit before that number is empty.
    pub row: u64,
    /// Why.
    pub problem: RowProblem,
}

/// A row that is predicted from other values than the file has, as a record of a run would be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Row over all files, from 1.
    pub row: u64,
    /// Columns whose number lies outside of the schema's range; the end of the range is taken in its place.
    pub columns: Vec<String>,
    /// Whether the row was longer than the schema's `norm_bound`, and was scaled down to it.
    pub shortened: bool,
}

/// Rows that are to be predicted.
pub struct Rows {
    /// Unit i is row i + 1 of the files; a row that the schema drops or that cannot be read is an empty unit. Targets are 0.
    pub table: RecordTable,
    /// Rows that cannot be read, in order.
    pub unreadable: Vec<Unreadable>,
    /// Rows that are predicted from other values than the file has, in order.
    pub changed: Vec<Changed>,
    /// Text of the id column, one for every row, where one was asked for. Of a line with a wrong number of cells only the first column can be read; otherwise its text is empty.
    pub ids: Vec<String>,
}

impl From<Assembled> for Rows {
    fn from(Assembled { table, predicted: Predicted { unreadable, changed, ids }, .. }: Assembled) -> Self {
        Self { table, unreadable, changed, ids }
    }
}

/// Reads a site's files for a run. Nothing that one record holds makes this fail; see the [crate](self) for what becomes of it.
///
/// Units are in the order in which their first record is in the files. `key` is a secret of the site; the fingerprint is
/// HMAC-SHA256 over the units under it.
///
/// # Errors
/// See [`DataError`]: a file as a whole cannot be used, or has more than a table holds. Neither a cell nor a line is an error.
pub fn load_for_run(schema: &Schema, files: &[impl RecordFile], key: &[u8; 32]) -> Result<Snapshot, DataError> {
    let Assembled { table, screen, .. } = table(schema, files, Purpose::Run, Form::Cells)?;
    let fingerprint = fingerprint::of(&table, key);
    let held = Held::of(schema, table);
    Ok(Snapshot { held, fingerprint, screen })
}

/// [`load_for_run`] of a data set that is larger than memory: what is read is written to `file`. Units, their order and the fingerprint are the same.
///
/// `file` is empty, can be read and written, and belongs to this process alone. With a `unit_column` the records are put side by side in memory before they are written, and so are documents and images: then only
/// what comes after the reading takes little memory.
///
/// # Errors
/// As [`load_for_run`]; [`DataError::Cache`]: the disk is full; [`DataError::Unread`].
pub fn load_to_disk(schema: &Schema, files: &[impl RecordFile], key: &[u8; 32], file: File) -> Result<Snapshot, DataError> {
    let (cache, screen) = cached(schema, files, file)?;
    let fingerprint = fingerprint::of_stored(&cache, key)?;
    let held = Held::in_file(schema, cache);
    Ok(Snapshot { held, fingerprint, screen })
}

/// What some files hold, in a private file.
fn cached(schema: &Schema, files: &[impl RecordFile], file: File) -> Result<(Cache, Screen), DataError> {
    Ok(match schema.content() {
        Content::Table => {
            let mut assembler = Assembler::new(schema, Purpose::Run, Form::Cells).onto_disk(file);
            distinct::read_files(Reading { schema, purpose: Purpose::Run, id: None, others: false }, files, &mut assembler)?;
            assembler.finish_onto_disk()?.unwrap_or_else(|| unreachable!("an assembler that puts units into a file has a file"))
        }
        Content::Documents(_) | Content::Images(_) => {
            let Assembled { table, screen, .. } = table(schema, files, Purpose::Run, Form::Cells)?;
            (Cache::of(&table, file)?, screen)
        }
    })
}

/// This many units of invented records with as many entries as the schema allows, one record a unit: to find out how long a computation takes. `file` is an empty file
/// that can be read and written, where they are to lie on the disk.
///
/// # Errors
/// [`DataError::Cache`]: the disk is full; [`DataError::Table`]: more than a table holds.
pub fn invented(schema: &Schema, count: u64, file: Option<File>) -> Result<Units<RecordTable>, DataError> {
    let table = invented::table(schema, count)?;
    match file {
        Some(file) => Ok(Units::stored(Box::new(Cache::of(&table, file)?))),
        None => Ok(Units::new(table)),
    }
}

/// Bytes of memory that so many records of a schema take at most, where a table is held in memory.
#[must_use]
pub fn memory_of(schema: &Schema, records: u64) -> u64 {
    // Indices and values; and where a record ends, which unit it is of, and its target.
    records.saturating_mul(12 * u64::from(schema.max_nonzeros()) + 16)
}

/// [`load_for_run`] from tables that are no files: several sources are one data set, in the given order.
///
/// # Errors
/// As [`load_for_run`]; the schema describes no table.
pub fn load_sources_for_run<S: Source>(schema: &Schema, sources: &mut [S], key: &[u8; 32]) -> Result<Snapshot, DataError>
where
    DataError: From<S::Error>,
{
    let Assembled { table, screen, .. } = assemble_sources(schema, sources, Purpose::Run, Form::Cells)?;
    let fingerprint = fingerprint::of(&table, key);
    Ok(Snapshot { held: Held::Memory(table), fingerprint, screen })
}

/// [`load`] from tables that are no files.
///
/// # Errors
/// As [`load`]; the schema describes no table.
pub fn load_sources<S: Source>(schema: &Schema, sources: &mut [S]) -> Result<Loaded, DataError>
where
    DataError: From<S::Error>,
{
    let Assembled { table, counts, .. } = assemble_sources(schema, sources, Purpose::Check, Form::Rows)?;
    Ok(Loaded { units: Units::new(table), counts })
}

/// Reads a site's files through the schema and puts them behind the release gate. The first record that the schema rejects is an error:
/// this is for the people at the site, before a run.
///
/// Units are in the order in which their first record is in the files.
///
/// # Errors
/// See [`DataError`].
pub fn load(schema: &Schema, files: &[impl RecordFile]) -> Result<Loaded, DataError> {
    let Assembled { table, counts, .. } = table(schema, files, Purpose::Check, Form::Rows)?;
    Ok(Loaded { units: Units::new(table), counts })
}

/// Reads rows that are to be predicted: label and unit column may be absent and are not looked at.
///
/// The rows are as private as the file they come from: what is computed from them stays where they are.
///
/// # Errors
/// See [`DataError`]; not [`DataError::Cell`] or [`DataError::Line`].
pub fn load_for_prediction<P: AsRef<Path>>(schema: &Schema, files: &[P]) -> Result<Rows, DataError> {
    Ok(table(schema, files, Purpose::Prediction, Form::Rows)?.into())
}

/// [`load_for_prediction`] that also gives the text of a column, which need not be in the schema: by it people know their rows.
///
/// # Errors
/// As [`load_for_prediction`]; there is no such column, or two of them.
pub fn load_for_prediction_with_ids<P: AsRef<Path>>(schema: &Schema, files: &[P], column: &str) -> Result<Rows, DataError> {
    let first = files.first().ok_or(DataError::NoFiles)?;
    if *schema.content() != Content::Table {
        return Err(DataError::MissingColumn { path: first.as_ref().to_owned(), column: column.to_owned(), clue: None });
    }
    let mut assembler = Assembler::new(schema, Purpose::Prediction, Form::Rows).keeping_ids();
    distinct::read_files(Reading { schema, purpose: Purpose::Prediction, id: Some(column), others: false }, files, &mut assembler)?;
    Ok(assembler.finish()?.into())
}

/// Reads a public text, plain or gzip: a vocabulary, say.
///
/// # Errors
/// [`DataError::Io`], also for bytes that are no UTF-8.
pub fn read_text(path: &Path) -> Result<String, DataError> {
    let mut text = String::new();
    let read = source::open_plain(&path, source::Start::Header)?.read_to_string(&mut text);
    read.map(|_| text).map_err(|source| DataError::Io { path: path.to_owned(), source })
}

fn assemble_sources<S: Source>(schema: &Schema, sources: &mut [S], purpose: Purpose, form: Form) -> Result<Assembled, DataError>
where
    DataError: From<S::Error>,
{
    if *schema.content() != Content::Table {
        return Err(DataError::NoTable);
    }
    if sources.is_empty() {
        return Err(DataError::NoFiles);
    }
    let mut assembler = Assembler::new(schema, purpose, form);
    sources.iter_mut().try_for_each(|source| Reading { schema, purpose, id: None, others: false }.read(source, &mut assembler))?;
    assembler.finish()
}

fn table(schema: &Schema, files: &[impl RecordFile], purpose: Purpose, form: Form) -> Result<Assembled, DataError> {
    match schema.content() {
        Content::Table => {
            let mut assembler = Assembler::new(schema, purpose, form);
            distinct::read_files(Reading { schema, purpose, id: None, others: false }, files, &mut assembler)?;
            assembler.finish()
        }
        Content::Documents(rule) => {
            Reading { schema, purpose, id: None, others: false }.check_distinct(files)?;
            documents::load(rule, files, purpose)
        }
        Content::Images(rule) => {
            Reading { schema, purpose, id: None, others: false }.check_distinct(files)?;
            images::load(rule, files, purpose)
        }
    }
}
