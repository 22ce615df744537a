//! Points in time, as arguments: nothing in this crate reads a clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Pauses between attempts that failed: each twice the one before, up to a longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Backoff {
    /// The pause after so many failures in turn; `first` after the first.
    #[must_use]
    pub fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(self.longest)
    }
}

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

/// What the clocks of a machine say at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The time of day: an operator or the network may set it, forth or back.
    pub wall: Timestamp,
    /// A clock that only runs, counted from any moment. It may stand still while the machine sleeps.
    pub steady: Duration,
}

/// Longest time between two looks at the clock of a process that works.
const GAP: Duration = Duration::from_secs(1);

/// How far the time of day may part from the steady clock before it counts as a jump.
const PARTED: Duration = Duration::from_secs(2);

/// The time of a process that others wait for: it counts only while the process could answer.
///
/// It has to be looked at several times a second. Between two looks it goes on as the steady clock does, so that a jump of the time of day moves
/// no deadline. Where the looks lie too far apart the process was stopped; where the two clocks part the machine slept, or its clock was set. In both
/// cases [`Passed::Lost`] says so, and what waits for a deadline has to begin anew.
#[derive(Debug, Default)]
pub struct AttendedClock {
    /// The steady clock and this clock at the last look.
    last: Option<(Duration, Timestamp)>,
}

/// What came between two looks at an [`AttendedClock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// Time in which the process could answer.
    Attended,
    /// Time that does not count: every open deadline begins anew.
    Lost,
}

impl AttendedClock {
    /// Looks at the clock.
    pub fn look(&mut self, reading: Reading) -> (Timestamp, Passed) {
        let (now, passed) = match self.last {
            None => (reading.wall, Passed::Attended),
            Some((steady, last)) => {
                let elapsed = reading.steady.saturating_sub(steady);
                let now = last.plus(elapsed);
                let parted = reading.wall.since(now).max(now.since(reading.wall));
                if elapsed > GAP || parted > PARTED { (reading.wall, Passed::Lost) } else { (now, Passed::Attended) }
            }
        };
        self.last = Some((reading.steady, now));
        (now, passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(wall: u64, steady: u64) -> Reading {
        Reading { wall: Timestamp::from_millis(wall), steady: Duration::from_millis(steady) }
    }

    /// Looks four times a second while the process works; `wall` is what the time of day is ahead by.
    fn work(clock: &mut AttendedClock, steady: std::ops::Range<u64>, ahead: u64) -> Vec<(Timestamp, Passed)> {
        steady.step_by(250).map(|steady| clock.look(reading(1_000_000 + steady + ahead, steady))).collect()
    }

    #[test]
    fn time_of_a_process_that_works_is_the_time_of_day() {
        let mut clock = AttendedClock::default();
        let looks = work(&mut clock, 0..60_000, 0);
        assert!(looks.iter().all(|(_, passed)| *passed == Passed::Attended));
        assert_eq!(looks.last().map(|(now, _)| now.as_millis()), Some(1_059_750));
        // A clock that is a little off is not followed, and no jump.
        let (now, passed) = clock.look(reading(1_061_000, 60_000));
        assert_eq!((now.as_millis(), passed), (1_060_000, Passed::Attended));
    }

    #[test]
    fn a_pause_a_sleep_and_a_jump_of_the_clock_are_lost_time_once() {
        let hour = 3_600_000;
        // Stopped for nine seconds; set an hour forth, or back; asleep for an hour while the steady clock stood still.
        for (wall, steady) in [(1_009_000, 9000), (1_000_250 + hour, 250), (1_000_250, 250 + hour), (1_000_000 + hour, 250)] {
            let mut clock = AttendedClock::default();
            clock.look(reading(1_000_000, 0));
            assert_eq!(clock.look(reading(wall, steady)), (Timestamp::from_millis(wall), Passed::Lost));
            let (now, passed) = clock.look(reading(wall + 250, steady + 250));
            assert_eq!((now.as_millis(), passed), (wall + 250, Passed::Attended), "one loss is told once");
        }
        let mut clock = AttendedClock::default();
        clock.look(reading(2 * hour, 0));
        let (now, passed) = clock.look(reading(hour, 250));
        assert_eq!((now.as_millis(), passed), (hour, Passed::Lost), "back");
    }
}
