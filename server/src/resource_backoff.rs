//! Exponential backoff while a resource of the system is exhausted: file descriptors, memory, disk space.
//!
//! Work is tried again, after a longer pause each time; the log reports it once and then once a minute, and a metric counts every wait. Waiting loses nothing of
//! a run, because an answer is sent only after its content is durable.

use std::io;
use std::time::Duration;

use dp_pvi_protocol::time::Backoff;

use crate::clock;
use crate::telemetry::Telemetry;

const BETWEEN: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) };
/// A thread that owns a run waits this long before it gives up.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits of one piece of work, one after the other.
#[derive(Debug, Default)]
pub(crate) struct ResourceBackoff {
    waits: u32,
}

impl ResourceBackoff {
    /// How long to wait now.
    pub(crate) fn pause(&mut self, telemetry: &Telemetry, what: &str, error: &dyn std::fmt::Display) -> Duration {
        telemetry.resource_exhausted(what, error);
        self.waits = self.waits.saturating_add(1);
        BETWEEN.after(self.waits)
    }
}

/// Does work again and again, on a thread that may block, until it succeeds, fails for another reason than an exhausted resource, or patience ends.
///
/// # Errors
/// What the work failed with at last.
pub(crate) fn with_backoff<T, E: std::fmt::Display>(
    telemetry: &Telemetry,
    what: &str,
    passes: impl Fn(&E) -> bool,
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let (started, mut backoff) = (clock::instant(), ResourceBackoff::default());
    loop {
        match work() {
            Err(error) if passes(&error) && started.elapsed() < PATIENCE => std::thread::sleep(backoff.pause(telemetry, what, &error)),
            result => return result,
        }
    }
}

/// How many connections strangers may have, by what the system allows this process: most of it stays for those who proved who they are,
/// and for files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// TLS handshakes in progress.
    pub(crate) handshakes: usize,
    /// Connections to the status pages.
    pub(crate) pages: usize,
}

impl Limits {
    pub(crate) fn of(descriptors: u64) -> Self {
        let share = |part: u64, most: usize| usize::try_from(descriptors / part).unwrap_or(most).clamp(4, most);
        Self { handshakes: share(4, 128), pages: share(8, 64) }
    }
}

/// Whether an error of a file passes.
pub(crate) fn passes(error: &io::Error) -> bool {
    dp_pvi_programs::process::is_resource_exhaustion(error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn resource_exhaustion_delays_and_does_not_end_work() {
        let telemetry = Telemetry::new();
        let mut left = 3;
        let opened = with_backoff(&telemetry, "a test", passes, || {
            left -= 1;
            // EMFILE, the number of every platform that this runs on.
            if left > 0 { Err(io::Error::from_raw_os_error(24)) } else { Ok(left) }
        });
        assert_eq!((opened.unwrap(), telemetry.resource_exhaustions.get()), (0, 2));
        let mut asked = 0;
        let refused: Result<(), _> = with_backoff(&telemetry, "a test", passes, || {
            asked += 1;
            Err(io::Error::from(io::ErrorKind::PermissionDenied))
        });
        assert_eq!((refused.unwrap_err().kind(), asked), (io::ErrorKind::PermissionDenied, 1));
    }

    #[test]
    fn pauses_grow_and_stay_bounded() {
        let (telemetry, mut backoff) = (Telemetry::new(), ResourceBackoff::default());
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.pause(&telemetry, "a test", &"nothing left")).collect();
        assert!(pauses.is_sorted() && pauses[0] == BETWEEN.first && pauses[19] == BETWEEN.longest);
    }

    #[test]
    fn strangers_get_a_part_of_what_there_is() {
        assert_eq!(Limits::of(64), Limits { handshakes: 16, pages: 8 });
        assert_eq!(Limits::of(256), Limits { handshakes: 64, pages: 32 });
        assert_eq!(Limits::of(1 << 20), Limits { handshakes: 128, pages: 64 });
        assert_eq!(Limits::of(8), Limits { handshakes: 4, pages: 4 });
    }
}
