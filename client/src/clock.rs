//! The one place where this program reads the time.

use std::time::{Duration, SystemTime};

use dp_pvi_protocol::driver::Clock;
use dp_pvi_protocol::time::Timestamp;
use time::OffsetDateTime;

/// Now, in UTC.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub fn now() -> OffsetDateTime {
    SystemTime::now().into()
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(now().unix_timestamp_nanos() / 1_000_000).unwrap_or(0))
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
