//! A word on standard error while an answer takes long.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Seconds after which something is said, and then after twice as long each time.
const FIRST: u64 = 3;

/// Which row of a table is being answered, of how many.
#[derive(Debug, Default)]
pub(super) struct Row(Mutex<Option<(usize, usize)>>);

impl Row {
    /// Begins a row.
    pub(super) fn is(&self, number: usize, of: usize) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, of));
    }

    /// What is said after so many seconds.
    fn said(&self, seconds: u64) -> String {
        let at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let row = at.map_or_else(String::new, |(number, of)| format!(", at row {number} of {of}"));
        format!("still computing after {seconds} s{row}; its work is bounded, and where numbers do not reach the answer is wider bounds")
    }
}

/// Does the work; where that takes long, says so.
pub(super) fn patiently<T>(work: impl FnOnce(&Row) -> T) -> T {
    let row = Row::default();
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let waiting = waiting;
            let (mut seconds, mut next) = (0, FIRST);
            // Nothing is ever sent: the end of the work closes the channel.
            while waiting.recv_timeout(Duration::from_secs(next - seconds)) == Err(RecvTimeoutError::Timeout) {
                // Where standard error takes nothing, the answer comes all the same.
                let _ = writeln!(std::io::stderr(), "{}", row.said(next));
                (seconds, next) = (next, 2 * next);
            }
        });
        let result = work(&row);
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_says_where_it_is() {
        let row = Row::default();
        assert!(row.said(3).starts_with("still computing after 3 s; "));
        row.is(7, 100);
        assert!(row.said(6).starts_with("still computing after 6 s, at row 7 of 100; "));
        assert_eq!(patiently(|_| 5), 5);
    }
}
