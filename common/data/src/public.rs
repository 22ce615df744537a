//! Public data: test sets of an evaluator, research data of a simulation.

use crate::encode::{Form, Purpose};
use crate::error::DataError;
use crate::rows::Held;
use dp_pvi_privacy::UnitTable;
use dp_pvi_records::RecordTable;
use dp_pvi_schema::Schema;
use dp_pvi_schema::public::Public;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use dp_pvi_privacy::ledger::APPLICATION_ID as LEDGER_APPLICATION_ID;

/// Reads public files. `ledger` is the ledger that the configuration gives the data set: there must be none.
///
/// # Errors
/// [`DataError::HasLedger`] if a ledger is configured, or if a ledger (known by its content, or by a name that ends in `ledger.db`)
/// lies beside one of the files: such data is private, and metrics on it would be a release that no one accounts for. A ledger that
/// lies elsewhere cannot be found from the data; the certificate's role is then the operator's word. Otherwise see [`DataError`].
pub fn load_public<P: AsRef<Path>>(schema: &Schema, files: &[P], ledger: Option<&Path>) -> Result<Public<RecordTable>, DataError> {
    check_public(files, ledger)?;
    Ok(Public::declare(crate::table(schema, files, Purpose::Public, Form::Rows)?.table))
}

/// Public records before a formula makes rows of them.
pub struct PublicCells {
    held: Held,
}

impl PublicCells {
    /// Reads public files, as [`load_public`] does.
    ///
    /// # Errors
    /// As [`load_public`].
    pub fn load<P: AsRef<Path>>(schema: &Schema, files: &[P], ledger: Option<&Path>) -> Result<Self, DataError> {
        check_public(files, ledger)?;
        let table = crate::table(schema, files, Purpose::Public, Form::Cells)?.table;
        Ok(Self { held: Held::of(schema, table) })
    }

    /// The rows that a schema's formula makes of them; of documents and images they are what was read.
    ///
    /// # Errors
    /// [`DataError::Table`]: more than a table holds.
    pub fn rows(&self, schema: &Schema) -> Result<Public<RecordTable>, DataError> {
        Ok(Public::declare(self.held.table(schema)?.0))
    }
}

/// Refuses files beside which there is a ledger.
fn check_public<P: AsRef<Path>>(files: &[P], ledger: Option<&Path>) -> Result<(), DataError> {
    for path in files.iter().map(AsRef::as_ref) {
        let found = match ledger {
            Some(ledger) => Some(ledger.to_owned()),
            None => ledger_beside(path).map_err(|source| DataError::Io { path: path.to_owned(), source })?,
        };
        if let Some(ledger) = found {
            return Err(DataError::HasLedger { path: path.to_owned(), ledger });
        }
    }
    Ok(())
}

/// Units of public tables, in the given order: what is chosen from public data is public. All tables have `dimension` features.
#[must_use]
pub fn select_public(dimension: usize, parts: &[(&Public<RecordTable>, &[usize])]) -> Public<RecordTable> {
    let mut selected = RecordTable::builder(dimension);
    for (table, positions) in parts {
        for &position in *positions {
            selected.start_unit();
            for record in table.get().unit(position).records() {
                // Part of tables that were built from valid rows, under the same limits.
                selected.push_record(record).expect("rows of a table fit a table");
            }
        }
    }
    Public::declare(selected.finish())
}

/// A ledger in the directory of the file, or in the one that holds the file which a link points to.
fn ledger_beside(path: &Path) -> std::io::Result<Option<PathBuf>> {
    let target = path.canonicalize()?;
    for file in [path, target.as_path()] {
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        for entry in directory.read_dir()? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with("ledger.db") || is_ledger(&entry.path()) {
                return Ok(Some(entry.path()));
            }
        }
    }
    Ok(None)
}

/// Whether a file starts like a ledger's. A file that cannot be read is none that we could have opened as data.
fn is_ledger(path: &Path) -> bool {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    const APPLICATION_ID_AT: usize = 68;
    let mut header = [0u8; APPLICATION_ID_AT + 4];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut header)).is_ok()
        && header.starts_with(MAGIC)
        && header[APPLICATION_ID_AT..] == LEDGER_APPLICATION_ID.to_be_bytes()
}
