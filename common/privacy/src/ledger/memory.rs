//! A ledger store in memory, for simulation and tests: a disk that can be copied, torn away and made to fail.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ledger::row::StoredRow;
use crate::ledger::store::{ChargeStore, Extra, LedgerStore, StoreError};
use dp_pvi_names::{ReleaseId, RunId};
use dp_pvi_unsealed::{Sealed, Unsealed};

/// How the next write goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Nothing is written, and the caller gets an error (disk full).
    Refused,
    /// The row is written, but the caller gets an error (power loss after the write, before the answer).
    WrittenUnheard,
}

#[derive(Debug, Clone, Default)]
struct Disk {
    rows: Vec<StoredRow>,
    attachments: BTreeMap<ReleaseId, Vec<u8>>,
    factors: BTreeMap<RunId, Vec<u8>>,
    failures: BTreeMap<u64, Failure>,
    writes: u64,
}

/// Rows in memory. A clone is a second handle to the same disk, so that a ledger can be dropped (a crash) and opened
/// again; [`MemoryStore::copy`] is another disk with the same content (a snapshot).
#[derive(Debug, Clone)]
pub struct MemoryStore {
    disk: Arc<Mutex<Disk>>,
}

impl MemoryStore {
    /// An empty disk.
    #[must_use]
    pub fn new(_: Unsealed) -> Self {
        Self { disk: Arc::default() }
    }

    /// Another disk with the same content and no failures ahead.
    #[must_use]
    pub fn copy(&self) -> Self {
        let mut disk = self.disk().clone();
        disk.failures.clear();
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Lets the write go wrong that comes after `further` good ones (0 = the next).
    pub fn fail_after(&self, further: u64, failure: Failure) {
        let mut disk = self.disk();
        let at = disk.writes + further;
        disk.failures.insert(at, failure);
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.disk().rows.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes the stored rows behind the ledger's back, for tests of what a ledger refuses.
    pub fn tamper(&self, change: impl FnOnce(&mut Vec<StoredRow>, &mut BTreeMap<ReleaseId, Vec<u8>>, &mut BTreeMap<RunId, Vec<u8>>)) {
        let disk = &mut *self.disk();
        change(&mut disk.rows, &mut disk.attachments, &mut disk.factors);
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        // A panic of another holder cannot leave a half-made change: every change below is a single push or insert.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sealed for MemoryStore {}

/// It ends with the process: a ledger that is opened again stands for another process.
impl ChargeStore for MemoryStore {
    fn place(&self) -> Option<&Path> {
        None
    }
}

impl LedgerStore for MemoryStore {
    fn rows(&mut self) -> Result<Vec<StoredRow>, StoreError> {
        Ok(self.disk().rows.clone())
    }

    fn append(&mut self, row: &StoredRow, extra: Option<&Extra>) -> Result<(), StoreError> {
        let disk = &mut *self.disk();
        let failure = disk.failures.remove(&disk.writes);
        disk.writes += 1;
        if failure == Some(Failure::Refused) {
            return Err(StoreError::Unavailable("no space left".into()));
        }
        disk.rows.push(row.clone());
        match extra {
            Some(Extra::Attachment(release, bytes)) => {
                disk.attachments.insert(release.clone(), bytes.clone());
            }
            Some(Extra::Settled { release, factor, attachment }) => {
                disk.factors.insert(release.run, factor.clone());
                if let Some(attachment) = attachment {
                    disk.attachments.insert(release.clone(), attachment.clone());
                }
            }
            None => {}
        }
        match failure {
            Some(Failure::WrittenUnheard) => Err(StoreError::Unavailable("the write was not confirmed".into())),
            _ => Ok(()),
        }
    }

    fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.disk().attachments.get(release).cloned())
    }

    fn factor(&mut self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.disk().factors.get(run).cloned())
    }
}
