//! Points in time, as arguments: nothing in this crate reads a clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// A point in time.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This point and `duration` later (saturating).
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Time since `earlier`; zero if it is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Time until the next multiple of `tick` after now; zero if `tick` is.
    ///
    /// A computation that missed a tick waits for the next: it delays by whole ticks and so hides how long it took (decision 22).
    #[must_use]
    pub(crate) fn until_next(self, tick: Duration) -> Duration {
        match u64::try_from(tick.as_millis()) {
            Ok(tick) if tick > 0 => Duration::from_millis(tick - self.0 % tick),
            _ => Duration::ZERO,
        }
    }
}
