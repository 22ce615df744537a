//! The one place where this program reads the time.

use std::time::{Duration, Instant, SystemTime};

use dp_pvi_protocol::driver::Clock;
use dp_pvi_protocol::time::Timestamp;
use time::OffsetDateTime;

/// Now, in UTC.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub fn now() -> OffsetDateTime {
    SystemTime::now().into()
}

/// What this gives, and how long it takes.
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = work();
    (result, began.elapsed())
}

/// Seconds as an operator reads them: two digits below a minute, then minutes.
#[must_use]
pub fn in_words(seconds: f64) -> String {
    match seconds {
        s if s < 0.0095 => "10 ms or less".into(),
        s if s < 0.995 => format!("{s:.2} s"),
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 119.5 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    }
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
