//! The one place where the server reads clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dp_pvi_protocol::time::{Reading, Timestamp};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Now, for the protocol.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn now() -> Timestamp {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// Now, to measure how long something takes.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// What the machine's clocks say; the steady one counts from a moment of this process.
pub(crate) fn reading(began: Instant) -> Reading {
    Reading { wall: now(), steady: instant().saturating_duration_since(began) }
}

/// Waits for so long. Only time in which this process runs counts: however long it is stopped, that is one step of the wait.
pub(crate) async fn attended(duration: Duration) {
    const STEP: Duration = Duration::from_millis(250);
    let mut left = duration;
    while !left.is_zero() {
        let step = left.min(STEP);
        tokio::time::sleep(step).await;
        left -= step;
    }
}

/// A point in time as a calendar date.
pub(crate) fn date(at: Timestamp) -> OffsetDateTime {
    let seconds = i64::try_from(at.as_millis() / 1000).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// RFC 3339, in UTC, to the second.
pub(crate) fn rfc3339(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_default()
}
