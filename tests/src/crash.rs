//! A ledger store that ends the process at a chosen arrow of the ledger, as `kill -9` would, or whose disk is full there, or slow: for the client
//! with a fault (`crashing-client`), which is otherwise the shipped program.

use std::env;
use std::path::Path;
use std::process::abort;
use std::time::Duration;

use dp_pvi_names::{ReleaseId, RunId};
use dp_pvi_privacy::ledger::{ChargeStore, Extra, LedgerStore, Row, RowBody, StoreError, StoredRow};
use dp_pvi_unsealed::Sealed;

/// Environment variable that names a [`CrashPoint`].
pub const POINT: &str = "DP_PVI_TEST_CRASH_POINT";
/// Environment variable with the occurrence, from 1, at which the process ends. Default: 1.
pub const OCCURRENCE: &str = "DP_PVI_TEST_CRASH_OCCURRENCE";

/// Environment variable that names an [`Effect`]. Default: the process ends.
pub const EFFECT: &str = "DP_PVI_TEST_EFFECT";

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The process ends at the point.
    Crash,
    /// The store says at the point that its disk is full, and has written nothing.
    Full,
    /// Every write takes this long.
    Slow(Duration),
}

impl Effect {
    /// How slow a slow disk is.
    pub const SLOW: Self = Self::Slow(Duration::from_millis(150));

    /// Name for the environment variable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Full => "full",
            Self::Slow(_) => "slow",
        }
    }
}

/// Where it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// After the run is charged as a whole: once in a run.
    Planned,
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
    /// Those of every release, in their order.
    pub const ALL: [Self; 5] = [Self::BeforeReserved, Self::Reserved, Self::Committed, Self::Sent, Self::Receipted];

    /// Name for the environment variable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
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
            (Self::Planned, RowBody::Planned { .. })
                | (Self::BeforeReserved | Self::Reserved, RowBody::Reserved { .. })
                | (Self::Committed, RowBody::Committed { .. })
                | (Self::Sent, RowBody::Sent { .. })
                | (Self::Receipted, RowBody::Receipted { .. })
        )
    }
}

/// Passes everything on to the real store, and fails at its point.
#[derive(Debug)]
pub struct CrashingStore<S> {
    store: S,
    effect: Effect,
    point: CrashPoint,
    left: u32,
}

impl<S: LedgerStore> CrashingStore<S> {
    /// Reads effect, point and occurrence from the environment.
    ///
    /// # Panics
    /// When they are missing or wrong.
    #[must_use]
    pub fn from_environment(store: S) -> Self {
        let name = env::var(POINT).expect("the crash point is named by the environment");
        let point = CrashPoint::ALL.into_iter().chain([CrashPoint::Planned]).find(|p| p.name() == name).expect("a crash point");
        let left = env::var(OCCURRENCE).map_or(1, |n| n.parse().expect("a number"));
        let effects = [Effect::Crash, Effect::Full, Effect::SLOW];
        let effect = env::var(EFFECT).map_or(Effect::Crash, |name| effects.into_iter().find(|e| e.name() == name).expect("an effect"));
        Self { store, effect, point, left }
    }
}

impl<S: LedgerStore> Sealed for CrashingStore<S> {}

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
        if let Effect::Slow(pause) = self.effect {
            std::thread::sleep(pause);
            return self.store.append(row, extra);
        }
        let last = self.point.is_at(&body) && {
            self.left = self.left.saturating_sub(1);
            self.left == 0
        };
        if last && self.effect == Effect::Full {
            return Err(StoreError::Unavailable("the disk is full".into()));
        }
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
