//! Where numbers reach at one δ and not at the next: bounds that are taken over from smaller δ and from smaller ε, so that ε(δ) and δ(ε) fall.

use super::{Engine, GAP, SMALL, WIDE, narrow};
use crate::pld::Interval;
use crate::unit::Delta;

/// The smallest power of ten that is asked for, how many below a δ are all asked for, and which of those after them.
const LAST_DECADE: i32 = -300;
const NEXT: u32 = 4;
const EVERY: i32 = 50;
/// Smaller ε at which the tail of δ is looked at, and how far they are apart.
const RUNGS: usize = 24;
const RATIO: f64 = 1.3;

impl Engine {
    /// What is certified at a power of ten.
    fn at_decade(&self, decade: i32) -> Interval {
        if let Some(known) = self.decades.borrow().get(&decade) {
            return *known;
        }
        let found = Delta::new(10f64.powi(decade)).map_or(Interval { lower: 0.0, estimate: f64::NAN, upper: f64::INFINITY }, |delta| {
            let asked = self.asked(delta, GAP);
            if self.is_unprotected(delta) { Interval::exact(f64::INFINITY) } else { asked }
        });
        self.decades.borrow_mut().insert(decade, found);
        found
    }

    /// What is certified at a smaller δ holds at this one: the least of it, at powers of ten that do not depend on δ, down to the first one that is told well. So
    /// the bound rises as δ falls also where numbers say much at one δ and little at the next.
    pub(super) fn by_smaller(&self, delta: Delta) -> f64 {
        #[allow(clippy::cast_possible_truncation, reason = "at most 324 decades")]
        let first = delta.get().log10().floor() as i32;
        let first = if 10f64.powi(first) <= delta.get() { first } else { first - 1 };
        let (mut best, mut asked) = (f64::INFINITY, 0);
        for decade in (LAST_DECADE..=first).rev() {
            if asked >= NEXT && decade % EVERY != 0 {
                continue;
            }
            let found = self.at_decade(decade);
            best = best.min(found.upper);
            asked += 1;
            if found.is_narrow(WIDE, SMALL) {
                break;
            }
        }
        best
    }

    /// The smallest power of ten at which ε is certainly not above this one: an upper bound on δ that falls with ε. At most 0.1; else 1.
    pub(super) fn decade_of(&self, epsilon: f64) -> f64 {
        let enough = |decade: i32| {
            let fallback = || Delta::new(10f64.powi(decade)).map_or(f64::INFINITY, |delta| self.fallback(delta));
            self.at_decade(decade).upper <= epsilon || fallback() <= epsilon
        };
        let (mut low, mut high) = (LAST_DECADE - 1, 0);
        while high - low > 1 {
            let middle = (low + high).div_euclid(2);
            if enough(middle) { high = middle } else { low = middle }
        }
        10f64.powi(high)
    }

    /// Upper bounds on δ by loss distributions at rising ε, each [`RATIO`] times the one before, until divergences say more; and up to which of
    /// them δ is bounded closely.
    pub(super) fn rungs(&self) -> (Vec<(f64, f64)>, f64) {
        let start = Delta::new(1e-6).map_or(0.0, |delta| self.epsilon_upper(delta, GAP));
        let (mut known, mut reach, mut well, mut less) = (Vec::new(), 0.0, true, 0);
        for epsilon in (-40..60).map(|k| RATIO.powi(k)).skip_while(|&epsilon| epsilon < 0.5 * start).take(RUNGS) {
            let found = self.directions_at(epsilon);
            well = well && found.as_ref().is_some_and(narrow);
            if well {
                reach = epsilon;
            }
            let upper = found.map_or(1.0, |interval| interval.upper);
            less += u32::from(!well && self.tail(epsilon) <= upper);
            known.push((epsilon, upper));
            if less == 2 {
                break;
            }
        }
        (known, reach)
    }
}
