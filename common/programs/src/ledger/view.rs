//! A ledger to look at beside its writer: everything that the file held at one moment, or what it would be before the first run.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::OpenFlags;

use crate::ledger::{self as file, check_file, connect, failure, opening};
use dp_pvi_names::{ReleaseId, RunId};
use dp_pvi_privacy::ledger::{Extra, LedgerStore, StoreError, StoredRow};

/// What a ledger's file held at one moment. The file is read at once and let go: anyone who looks at a ledger for long does not keep
/// its writer waiting. Where the data set has no ledger yet, the one that it would begin with, in memory only.
///
/// Nothing is charged to a view:
///
/// ```compile_fail,E0277
/// fn charge<S: dp_pvi_privacy::ledger::ChargeStore>(_: &S) {}
/// fn charge_a_view(view: &dp_pvi_programs::ledger::ViewStore) {
///     charge(view)
/// }
/// ```
pub struct ViewStore {
    rows: Vec<StoredRow>,
    attachments: BTreeMap<Vec<u8>, Vec<u8>>,
    factors: BTreeMap<Vec<u8>, Vec<u8>>,
    on_disk: OnDisk,
}

impl ViewStore {
    /// Reads the ledger at `path`, also while a writer is at work.
    ///
    /// # Errors
    /// As [`SqliteLedger::open`](super::SqliteLedger::open), but for a ledger that is not there ([`OnDisk::NotYet`]).
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let nothing = Self { rows: Vec::new(), attachments: BTreeMap::new(), factors: BTreeMap::new(), on_disk: OnDisk::NotYet };
        if !file::exists(path)? {
            return Ok(nothing);
        }
        // Able to write, for one purpose: a transaction that a killed writer left half-done is taken back before anything is read.
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.execute_batch("PRAGMA query_only = ON; BEGIN").map_err(|e| opening(&e))?;
        check_file(&connection)?;
        let (rows, _) = file::read_rows(&connection)?;
        if rows.is_empty() {
            // A creation that was cut off before its first row.
            return Ok(nothing);
        }
        let all = |query: &str| -> Result<BTreeMap<Vec<u8>, Vec<u8>>, StoreError> {
            let mut statement = connection.prepare(query).map_err(|e| opening(&e))?;
            let pairs = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(|e| opening(&e))?;
            pairs.collect::<Result<_, _>>().map_err(|e| opening(&e))
        };
        let (attachments, factors) = (all("SELECT release, bytes FROM attachment")?, all("SELECT run, bytes FROM factor")?);
        connection.close().map_err(|(_, e)| failure(&e))?;
        Ok(Self { rows, attachments, factors, on_disk: OnDisk::Yes })
    }

    /// Whether the data set has a ledger on disk.
    #[must_use]
    pub fn on_disk(&self) -> OnDisk {
        self.on_disk
    }
}

/// Whether the data set has a ledger on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDisk {
    /// It has.
    Yes,
    /// It has none yet.
    NotYet,
}

impl dp_pvi_unsealed::Sealed for ViewStore {}

impl LedgerStore for ViewStore {
    fn rows(&mut self) -> Result<Vec<StoredRow>, StoreError> {
        Ok(self.rows.clone())
    }

    fn append(&mut self, row: &StoredRow, extra: Option<&Extra>) -> Result<(), StoreError> {
        match (self.on_disk, self.rows.as_slice(), extra) {
            // The row by which a new ledger says what it is about.
            (OnDisk::NotYet, [], None) => {
                self.rows.push(row.clone());
                Ok(())
            }
            _ => Err(StoreError::Unavailable("opened for reading only".into())),
        }
    }

    fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.attachments.get(&file::release_key(release)).cloned())
    }

    fn factor(&mut self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.factors.get(file::run_key(run).as_slice()).cloned())
    }
}
