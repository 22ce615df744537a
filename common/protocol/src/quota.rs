//! What one peer may take of a server, whatever it asks: calls and bytes, over time. Pure: time is an argument.
//!
//! A quota is a bucket for each, filled at a steady rate up to a burst. Who empties one waits until it is filled again; nobody else does.

use crate::time::Timestamp;

/// Rate and burst of one kind of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// In the long run.
    pub per_second: f64,
    /// At once.
    pub burst: f64,
}

/// Calls, and requests on a stream of work: a site needs two a round.
pub const CALLS: Rate = Rate { per_second: 1000.0, burst: 4000.0 };
/// Hellos, charter signatures and refusals: each may cost a signature and a durable record, and a site needs a handful in a run.
pub const GREETINGS: Rate = Rate { per_second: 5.0, burst: 200.0 };
/// Work streams that are opened: a site keeps one for half an hour.
pub const STREAMS: Rate = Rate { per_second: 10.0, burst: 200.0 };
/// Payload bytes that a site may send in the long run: a vector of 10⁶ coordinates takes 8 MB.
pub const UPLOAD_BYTES: Rate = Rate { per_second: 64e6, burst: 1e9 };
/// Connections of one peer at the same time.
pub const CONNECTIONS: usize = 4;
/// Streams on one connection at the same time.
pub const CONCURRENT_STREAMS: u32 = 16;

/// One peer's share of one kind of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    rate: Rate,
    left: f64,
    filled: Timestamp,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: Rate, now: Timestamp) -> Self {
        Self { rate, left: rate.burst, filled: now }
    }

    /// Takes `amount` if it is there. An amount above the burst is taken from a full bucket, and is paid for before the next.
    pub fn take(&mut self, amount: f64, now: Timestamp) -> bool {
        // A clock that was set back fills nothing, and takes nothing away.
        self.left = (self.left + now.since(self.filled).as_secs_f64() * self.rate.per_second).min(self.rate.burst);
        self.filled = self.filled.max(now);
        let enough = self.left >= amount.min(self.rate.burst);
        if enough {
            self.left -= amount;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Whoever calls as fast as it can gets the burst, then the rate, and no more.
    #[test]
    fn finding_attack_weakness_5_a_peer_that_never_stops_gets_its_rate_and_no_more() {
        let mut bucket = Bucket::new(CALLS, at(0));
        let taken = (0..100_000_u64).filter(|call| bucket.take(1.0, at(call / 10))).count() as f64;
        // 100,000 calls in ten seconds.
        let allowed = CALLS.burst + 10.0 * CALLS.per_second;
        assert!(taken <= allowed && taken >= allowed - 2.0, "{taken}");
    }

    #[test]
    fn a_bucket_fills_with_time_and_not_beyond_its_burst() {
        let rate = Rate { per_second: 1.0, burst: 3.0 };
        let mut bucket = Bucket::new(rate, at(0));
        assert!(bucket.take(3.0, at(0)) && !bucket.take(1.0, at(999)) && bucket.take(1.0, at(1000)));
        assert!(bucket.take(3.0, at(1_000_000)) && !bucket.take(0.5, at(1_000_000)));
        // A clock that is set back gives nothing, and forward again no more than the time that has passed.
        assert!(!bucket.take(0.5, at(10)) && !bucket.take(0.5, at(1_000_100)) && bucket.take(0.5, at(1_000_500)));
    }

    #[test]
    fn an_amount_above_the_burst_is_paid_for_afterwards() {
        let mut bucket = Bucket::new(Rate { per_second: 1.0, burst: 2.0 }, at(0));
        assert!(bucket.take(10.0, at(0)) && !bucket.take(1.0, at(8_000)) && bucket.take(1.0, at(9_000)));
    }
}
