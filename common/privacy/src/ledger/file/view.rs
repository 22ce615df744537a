//! A ledger to look at: its file, or what it would be before the first run.

use crate::ledger::file::SqliteLedger;
use crate::ledger::row::StoredRow;
use crate::ledger::store::{Extra, LedgerStore, StoreError};
use crate::release::{ReleaseId, RunId};
use std::path::Path;

/// Rows of a ledger that is looked at beside its writer. Where the data set has no ledger yet, the one that it would begin with,
/// in memory only.
pub struct ViewStore {
    kind: Kind,
}

enum Kind {
    File(SqliteLedger),
    NotYet(Vec<StoredRow>),
}

impl ViewStore {
    /// Opens the ledger at `path` for reading.
    ///
    /// # Errors
    /// As [`SqliteLedger::open_reader`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let kind = match SqliteLedger::open_reader(path)? {
            Some(file) if !file.is_empty() => Kind::File(file),
            // No file, or one that a crash left before its first row.
            Some(_) | None => Kind::NotYet(Vec::new()),
        };
        Ok(Self { kind })
    }

    /// Whether the data set has a ledger on disk.
    #[must_use]
    pub fn on_disk(&self) -> OnDisk {
        match self.kind {
            Kind::File(_) => OnDisk::Yes,
            Kind::NotYet(_) => OnDisk::NotYet,
        }
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

impl LedgerStore for ViewStore {
    fn rows(&mut self) -> Result<Vec<StoredRow>, StoreError> {
        match &mut self.kind {
            Kind::File(store) => store.rows(),
            Kind::NotYet(rows) => Ok(rows.clone()),
        }
    }

    fn append(&mut self, row: &StoredRow, extra: Option<&Extra>) -> Result<(), StoreError> {
        match &mut self.kind {
            Kind::File(store) => store.append(row, extra),
            // The genesis row, by which a new ledger says what it is about.
            Kind::NotYet(rows) if rows.is_empty() && extra.is_none() => {
                rows.push(row.clone());
                Ok(())
            }
            Kind::NotYet(_) => Err(StoreError::Unavailable("opened for reading only".into())),
        }
    }

    fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Vec<u8>>, StoreError> {
        match &mut self.kind {
            Kind::File(store) => store.attachment(release),
            Kind::NotYet(_) => Ok(None),
        }
    }

    fn factor(&mut self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError> {
        match &mut self.kind {
            Kind::File(store) => store.factor(run),
            Kind::NotYet(_) => Ok(None),
        }
    }
}
