//! Harrell's concordance index of survival times: how often, of two records of which one had its event first, that one was predicted to have it earlier.

/// One record's outcome with its prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// From when on it was watched.
    pub entry: f64,
    /// When that ended.
    pub time: f64,
    /// Whether it ended with the event.
    pub event: bool,
    /// Any number that is larger for earlier events.
    pub risk: f64,
}

/// Share of the comparable pairs in which the record with the event has the larger risk, equal risks counting half. A pair is comparable if one record has its event at a
/// time at which the other is watched and goes on being: it entered before, and its own time is later, or the same without an event. Absent without such a pair, or
/// where a number is none.
#[must_use]
pub fn concordance(outcomes: &[Outcome]) -> Option<f64> {
    if outcomes.iter().any(|o| [o.entry, o.time, o.risk].iter().any(|x| x.is_nan())) {
        return None;
    }
    let mut risks: Vec<f64> = outcomes.iter().map(|outcome| outcome.risk).collect();
    risks.sort_by(f64::total_cmp);
    risks.dedup();
    let rank = |risk: f64| risks.partition_point(|other| *other < risk);
    let mut watched = Counts::new(risks.len());
    // Ascending: at one time first those who go away with an event, in whose pairs no one with an event then is; entries at that time come after it.
    let by = |of: &dyn Fn(&Outcome) -> f64| {
        let mut order: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.entry < outcome.time).collect();
        order.sort_by(|a, b| of(a).total_cmp(&of(b)));
        order
    };
    let (entries, ends) = (by(&|outcome| outcome.entry), by(&|outcome| outcome.time));
    let mut entries = entries.into_iter().peekable();
    let (mut pairs, mut right) = (0.0, 0.0);
    for same in ends.chunk_by(|a, b| a.time.total_cmp(&b.time).is_eq()) {
        while let Some(outcome) = entries.next_if(|outcome| outcome.entry < same[0].time) {
            watched.add(rank(outcome.risk), 1);
        }
        let events = || same.iter().filter(|outcome| outcome.event).map(|outcome| rank(outcome.risk));
        events().for_each(|rank| watched.add(rank, -1));
        for rank in events() {
            let (below, all) = (watched.below(rank), watched.below(risks.len()));
            let equal = watched.below(rank + 1) - below;
            pairs += all;
            right += below + 0.5 * equal;
        }
        same.iter().filter(|outcome| !outcome.event).for_each(|outcome| watched.add(rank(outcome.risk), -1));
    }
    (pairs > 0.0).then(|| right / pairs)
}

/// Counts by rank, whose sums take logarithmic time (Fenwick 1994).
struct Counts(Vec<i64>);

impl Counts {
    fn new(ranks: usize) -> Self {
        Self(vec![0; ranks + 1])
    }

    fn add(&mut self, rank: usize, change: i64) {
        let mut at = rank + 1;
        while at < self.0.len() {
            self.0[at] += change;
            at += at & at.wrapping_neg();
        }
    }

    /// Sum of the counts of all ranks below this one.
    #[allow(clippy::cast_precision_loss, reason = "a number of records")]
    fn below(&self, rank: usize) -> f64 {
        let (mut at, mut sum) = (rank, 0);
        while at > 0 {
            sum += self.0[at];
            at &= at - 1;
        }
        sum as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, concordance};

    /// All pairs, one by one.
    fn by_pairs(outcomes: &[Outcome]) -> Option<f64> {
        let (mut pairs, mut right) = (0.0, 0.0);
        for a in outcomes.iter().filter(|a| a.event && a.entry < a.time) {
            for b in outcomes.iter().filter(|b| b.entry < b.time && b.entry < a.time) {
                if b.time > a.time || (b.time.total_cmp(&a.time).is_eq() && !b.event) {
                    pairs += 1.0;
                    right += if a.risk > b.risk {
                        1.0
                    } else if a.risk < b.risk {
                        0.0
                    } else {
                        0.5
                    };
                }
            }
        }
        (pairs > 0.0).then(|| right / pairs)
    }

    #[test]
    fn the_index_is_that_of_all_pairs() {
        let mut state = 1_u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from((state >> 33) as u32) / f64::from(1_u32 << 31)
        };
        for count in [2, 3, 10, 200] {
            for _ in 0..20 {
                // Whole numbers make ties of times, entries and risks.
                let outcomes: Vec<Outcome> = (0..count)
                    .map(|_| Outcome {
                        entry: (6.0 * uniform() - 3.0).floor().max(0.0),
                        time: (12.0 * uniform()).ceil(),
                        event: uniform() < 0.6,
                        risk: (8.0 * uniform()).floor(),
                    })
                    .collect();
                assert_eq!(concordance(&outcomes), by_pairs(&outcomes));
            }
        }
    }

    #[test]
    fn a_perfect_order_is_one_and_no_pair_is_none() {
        let of = |time: f64, event, risk| Outcome { entry: 0.0, time, event, risk };
        assert_eq!(concordance(&[of(1.0, true, 3.0), of(2.0, true, 2.0), of(3.0, false, 1.0)]), Some(1.0));
        assert_eq!(concordance(&[of(1.0, true, 1.0), of(2.0, true, 2.0)]), Some(0.0));
        assert_eq!(concordance(&[of(1.0, false, 1.0), of(2.0, true, 2.0)]), None);
        assert_eq!(concordance(&[of(1.0, true, f64::NAN), of(2.0, true, 2.0)]), None);
    }
}
