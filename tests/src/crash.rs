//! A ledger store that ends the process at a chosen arrow of the ledger, as `kill -9` would: for the client with a fault
//! (`crashing-client`), which is otherwise the shipped program.

use std::env;
use std::path::Path;
use std::process::abort;

use dp_pvi_privacy::ledger::{ChargeStore, Extra, LedgerStore, Row, RowBody, StoreError, StoredRow};
use dp_pvi_privacy::{ReleaseId, RunId};

/// Environment variable that names a [`CrashPoint`].
pub const POINT: &str = "DP_PVI_TEST_CRASH_POINT";
/// Environment variable with the occurrence, from 1, at which the process ends. Default: 1.
pub const OCCURRENCE: &str = "DP_PVI_TEST_CRASH_OCCURRENCE";

/// Where the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// Before the reservation is on disk.
    BeforeReserved,
    /// After it.
    Reserved,
    /// After the payload is on disk.
    Committed,
    /// After the row that says it is being sent, before the first byte leaves.
    Sent,
    /// After the receipt is on disk.
    Receipted,
}

impl CrashPoint {
    /// All of them, in the order of a release.
    pub const ALL: [Self; 5] = [Self::BeforeReserved, Self::Reserved, Self::Committed, Self::Sent, Self::Receipted];

    /// Name for the environment variable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeReserved => "before-reserved",
            Self::Reserved => "reserved",
            Self::Committed => "committed",
            Self::Sent => "sent",
            Self::Receipted => "receipted",
        }
    }

    fn is_at(self, body: &RowBody) -> bool {
        matches!(
            (self, body),
            (Self::BeforeReserved | Self::Reserved, RowBody::Reserved { .. })
                | (Self::Committed, RowBody::Committed { .. })
                | (Self::Sent, RowBody::Sent { .. })
                | (Self::Receipted, RowBody::Receipted { .. })
        )
    }
}

/// Passes everything on to the real store, and ends the process at its point.
#[derive(Debug)]
pub struct CrashingStore<S> {
    store: S,
    point: CrashPoint,
    left: u32,
}

impl<S: LedgerStore> CrashingStore<S> {
    /// Reads point and occurrence from the environment.
    ///
    /// # Panics
    /// When they are missing or wrong.
    #[must_use]
    pub fn from_environment(store: S) -> Self {
        let name = env::var(POINT).expect("the crash point is named by the environment");
        let point = CrashPoint::ALL.into_iter().find(|p| p.name() == name).expect("a crash point");
        let left = env::var(OCCURRENCE).map_or(1, |n| n.parse().expect("a number"));
        Self { store, point, left }
    }
}

impl<S: ChargeStore> ChargeStore for CrashingStore<S> {
    fn place(&self) -> Option<&Path> {
        self.store.place()
    }
}

impl<S: LedgerStore> LedgerStore for CrashingStore<S> {
    fn rows(&mut self) -> Result<Vec<StoredRow>, StoreError> {
        self.store.rows()
    }

    fn append(&mut self, row: &StoredRow, extra: Option<&Extra>) -> Result<(), StoreError> {
        let body = postcard::from_bytes::<Row>(&row.bytes).expect("the ledger writes rows").body;
        let last = self.point.is_at(&body) && {
            self.left -= 1;
            self.left == 0
        };
        if last && self.point == CrashPoint::BeforeReserved {
            abort();
        }
        let appended = self.store.append(row, extra);
        if last {
            abort();
        }
        appended
    }

    fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.attachment(release)
    }

    fn factor(&mut self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.factor(run)
    }
}
