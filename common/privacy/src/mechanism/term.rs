//! One unit's term of a sum: filled by a model, clipped and brought onto the lattice here.

/// One unit's term of a sum: a sparse vector that a function of the unit fills. Adding to a coordinate twice accumulates.
/// Ascending coordinates are the fast path.
#[derive(Debug, Default)]
pub struct Term {
    entries: Vec<(u32, f64)>,
    /// One past the last coordinate.
    next: u64,
    /// Differences of successive coordinates, or-ed: the top bit is set as soon as one did not ascend.
    descents: u64,
    /// Entries beyond [`MANY`] up to which what falls on the same coordinate is not added up early.
    many: usize,
}

/// A unit of many records adds to the same coordinates again and again. What it holds in memory stays below this many entries and two for every
/// coordinate that it fills, beside one record's.
const MANY: usize = 1 << 16;

impl Term {
    /// Adds `value` to coordinate `index`.
    #[inline]
    pub fn add(&mut self, index: u32, value: f64) {
        self.follow(index);
        self.entries.push((index, value));
        self.keep_small();
    }

    /// Adds every `(index, value)`; faster than one by one.
    #[inline]
    pub fn extend(&mut self, entries: impl Iterator<Item = (u32, f64)>) {
        let start = self.entries.len();
        self.entries.extend(entries);
        let (mut next, mut descents) = (self.next, self.descents);
        for &(index, _) in &self.entries[start..] {
            descents |= u64::from(index).wrapping_sub(next);
            next = u64::from(index) + 1;
        }
        (self.next, self.descents) = (next, descents);
        self.keep_small();
    }

    /// Sums are the same, bit for bit: what came first is still added first.
    #[inline]
    fn keep_small(&mut self) {
        if self.entries.len() > MANY + self.many {
            self.accumulate();
            self.many = 2 * self.entries.len();
        }
    }

    #[inline]
    fn follow(&mut self, index: u32) {
        self.descents |= u64::from(index).wrapping_sub(self.next);
        self.next = u64::from(index) + 1;
    }

    /// What was added, before clipping: in order of addition, or by coordinate with what falls on the same one added up.
    #[must_use]
    pub fn entries(&self) -> &[(u32, f64)] {
        &self.entries
    }

    /// Forgets everything that was added.
    #[inline]
    pub fn clear(&mut self) {
        self.entries.clear();
        (self.next, self.descents, self.many) = (0, 0, 0);
    }

    /// Clips the term to norm C, truncates it toward zero and adds it to `sums`. What is added has squared integer norm at
    /// most `bound_squared`, whatever the entries are: the integers themselves are checked, not the rounding analysis.
    ///
    /// Counts as zero: a term with a non-finite norm or with a coordinate beyond the sum. Otherwise the answer is
    /// the factor at which the entries were truncated: [`Term::steps`] gives the added integers again.
    #[inline]
    pub(crate) fn add_to(&mut self, sums: &mut [i64], clip: f64, per_step: f64, bound_squared: u128) -> Option<f64> {
        if self.descents >> 63 != 0 {
            self.accumulate();
        }
        // The last coordinate is the largest.
        if self.entries.last().is_none_or(|&(index, _)| index as usize >= sums.len()) {
            return None;
        }
        let norm = self.norm();
        if !norm.is_finite() {
            return None;
        }
        // Slightly less than C/norm, so that rounding does not push a clipped term over the integer bound.
        let mut factor = if norm > clip { clip / norm * (1.0 - SHRINK) } else { 1.0 } * per_step;
        for attempt in 0..3 {
            let norm_squared = self.try_add(sums, factor);
            #[cfg(feature = "planted-bugs")]
            let norm_squared = if crate::planted::is(crate::planted::Bug::NearestRounding) { 0 } else { norm_squared };
            if norm_squared <= bound_squared {
                return Some(factor);
            }
            // Take the very same integers back. Only rounding on the last bit gets here.
            self.take_back(sums, factor);
            factor *= if attempt == 0 { 1.0 - SHRINK } else { 1.0 - 1e-6 };
        }
        None
    }

    /// The integers that were added at `factor`.
    pub(crate) fn steps(&self, factor: f64) -> impl Iterator<Item = (u32, i32)> + '_ {
        self.entries.iter().map(move |&(index, value)| (index, truncate(value * factor)))
    }

    /// Adds the truncated term and returns its squared integer norm.
    ///
    /// `as i32` truncates toward zero, is 0 for NaN and saturates: a saturated coordinate is 2³¹ − 1, above every bound that
    /// a lattice admits, so it never passes the check.
    #[inline]
    fn try_add(&self, sums: &mut [i64], factor: f64) -> u128 {
        let mut norm = 0u128;
        for &(index, value) in &self.entries {
            let x = i64::from(truncate(value * factor));
            // |x| ≤ 2³¹: the square is below 2⁶³; 2³² of them are below 2¹²⁸.
            norm += u128::from((x * x).cast_unsigned());
            sums[index as usize] += x;
        }
        norm
    }

    #[cold]
    fn take_back(&self, sums: &mut [i64], factor: f64) {
        for &(index, value) in &self.entries {
            sums[index as usize] -= i64::from(truncate(value * factor));
        }
    }

    /// L2 norm in floating point; four running sums, so that additions do not wait for each other.
    #[inline]
    pub(super) fn norm(&self) -> f64 {
        let (fours, rest) = self.entries.as_chunks::<4>();
        let mut sums = [0.0; 4];
        for four in fours {
            for (sum, (_, value)) in sums.iter_mut().zip(four) {
                *sum += value * value;
            }
        }
        for (sum, (_, value)) in sums.iter_mut().zip(rest) {
            *sum += value * value;
        }
        ((sums[0] + sums[1]) + (sums[2] + sums[3])).sqrt()
    }

    /// Sorts by coordinate and adds up what falls on the same one, in the order in which it came.
    #[cold]
    fn accumulate(&mut self) {
        self.entries.sort_by_key(|&(index, _)| index);
        self.entries.dedup_by(|(index, value), (kept, sum)| {
            let same = index == kept;
            if same {
                *sum += *value;
            }
            same
        });
        self.descents = 0;
        self.next = self.entries.last().map_or(0, |&(index, _)| u64::from(index) + 1);
    }
}

/// Relative shortening of clipped terms; far below one lattice step (C is at most 2³¹ steps).
const SHRINK: f64 = 1e-12;

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "saturation is intended, see Term::try_add")]
fn truncate(x: f64) -> i32 {
    #[cfg(feature = "planted-bugs")]
    let x = if crate::planted::is(crate::planted::Bug::NearestRounding) { x.round() } else { x };
    x as i32
}

#[cfg(test)]
mod tests {
    use super::{MANY, Term};

    /// A person with a million records: memory follows the coordinates, and the integers are those of the sum in order.
    #[test]
    fn a_unit_of_many_records_stays_small() {
        let (mut term, mut expected) = (Term::default(), [0.0_f64; 7]);
        for record in 0..1_000_000_u32 {
            let value = f64::from(record % 1009) * 1e-6;
            for index in [record % 7, 3] {
                expected[index as usize] += value;
            }
            term.extend([(record % 7, value), (3, value)].into_iter());
            assert!(term.entries().len() <= MANY + 16);
        }
        let mut sums = [0_i64; 7];
        term.add_to(&mut sums, 1e9, 1000.0, u128::MAX);
        // Truncated as the sum in the order of the records is.
        #[allow(clippy::cast_possible_truncation)]
        let integers = expected.map(|value| (value * 1000.0) as i64);
        assert_eq!(sums, integers);
    }
}
