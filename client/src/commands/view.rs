//! The ledger as a reader sees it, beside the writer.

use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Extra, FreezeState, LedgerStore, Row, RowBody, StoreError, StoredRow};
use dp_pvi_privacy::{DpEvent, Hash, Ledger, ReleaseId, RunId};
use ed25519_dalek::SigningKey;

use crate::config::PrivateData;
use crate::error::{ClientError, Result};
use crate::store::SqliteLedger;

/// A verified ledger that cannot be changed through this handle.
pub(crate) type LedgerView = Ledger<ViewStore, SigningKey>;

/// A ledger file, or what it would be before the first run.
pub(crate) enum ViewStore {
    File(SqliteLedger),
    NotYet(MemoryStore),
}

/// Opens and verifies the data set's ledger for reading.
pub(crate) fn open(private: &PrivateData, key: SigningKey) -> Result<LedgerView> {
    let store = match SqliteLedger::open_reader(&private.ledger)? {
        Some(file) if !file.is_empty() => ViewStore::File(file),
        // No file, or one that a crash left before its first row.
        Some(_) | None => ViewStore::NotYet(MemoryStore::new()),
    };
    Ok(Ledger::open(store, key, private.identity.clone(), private.budget)?.cap_fallback(private.max_fallback))
}

/// Whether the data set has a ledger on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDisk {
    Yes,
    NotYet,
}

/// Whether the data set has a ledger on disk.
pub(crate) fn on_disk(private: &PrivateData) -> Result<OnDisk> {
    Ok(match SqliteLedger::open_reader(&private.ledger)? {
        Some(file) if !file.is_empty() => OnDisk::Yes,
        Some(_) | None => OnDisk::NotYet,
    })
}

impl LedgerStore for ViewStore {
    fn rows(&mut self) -> std::result::Result<Vec<StoredRow>, StoreError> {
        match self {
            Self::File(store) => store.rows(),
            Self::NotYet(store) => store.rows(),
        }
    }

    fn append(&mut self, row: &StoredRow, extra: Option<&Extra>) -> std::result::Result<(), StoreError> {
        match self {
            Self::File(store) => store.append(row, extra),
            Self::NotYet(store) => store.append(row, extra),
        }
    }

    fn attachment(&mut self, release: &ReleaseId) -> std::result::Result<Option<Vec<u8>>, StoreError> {
        match self {
            Self::File(store) => store.attachment(release),
            Self::NotYet(store) => store.attachment(release),
        }
    }

    fn factor(&mut self, run: &RunId) -> std::result::Result<Option<Vec<u8>>, StoreError> {
        match self {
            Self::File(store) => store.factor(run),
            Self::NotYet(store) => store.factor(run),
        }
    }
}

/// Releases that were charged, with their events, oldest first.
pub(crate) fn charges(rows: &[(Row, Hash)]) -> Result<Vec<(&ReleaseId, DpEvent)>> {
    rows.iter()
        .filter_map(|(row, _)| match &row.body {
            RowBody::Reserved { release, event, .. } => Some((release, event)),
            _ => None,
        })
        .map(|(release, event)| {
            let event = DpEvent::from_bytes(event).map_err(|e| ClientError::LedgerCorrupt(e.to_string()))?;
            Ok((release, event))
        })
        .collect()
}

/// Whether the data set may be charged now.
pub(crate) fn freeze_state(rows: &[(Row, Hash)]) -> FreezeState {
    rows.iter()
        .rev()
        .find_map(|(row, _)| match row.body {
            RowBody::Frozen(state) => Some(state),
            _ => None,
        })
        .unwrap_or(FreezeState::Open)
}
