//! One unit's term of a sum, as a model fills it. What becomes of it is in the module `block`.

/// One unit's term of a sum: a sparse vector that a function of the unit fills. Adding to a coordinate twice accumulates.
/// Ascending coordinates are the fast path.
#[derive(Debug, Default)]
pub struct Term {
    /// Coordinates of the entries, and their values beside them.
    indices: Vec<u32>,
    values: Vec<f64>,
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
        self.indices.push(index);
        self.values.push(value);
        self.keep_small();
    }

    /// Adds every `(index, value)`; faster than one by one.
    #[inline]
    pub fn extend(&mut self, entries: impl Iterator<Item = (u32, f64)>) {
        let expected = entries.size_hint().0;
        self.indices.reserve(expected);
        self.values.reserve(expected);
        for (index, value) in entries {
            self.indices.push(index);
            self.values.push(value);
        }
        self.keep_small();
    }

    /// Adds every value to the coordinate beside it; the fastest way. What one of the two has more than the other one does not count.
    #[inline]
    pub fn extend_beside(&mut self, indices: impl Iterator<Item = u32>, values: impl Iterator<Item = f64>) {
        self.indices.extend(indices);
        self.values.extend(values);
        if self.indices.len() != self.values.len() {
            let len = self.indices.len().min(self.values.len());
            self.indices.truncate(len);
            self.values.truncate(len);
        }
        self.keep_small();
    }

    /// Sums are the same, bit for bit: what came first is still added first.
    #[inline]
    fn keep_small(&mut self) {
        if self.indices.len() > MANY + self.many {
            self.accumulate();
            self.many = 2 * self.indices.len();
        }
    }

    /// What was added, before clipping: in order of addition, or by coordinate with what falls on the same one added up.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u32, f64)> + Clone {
        self.indices.iter().copied().zip(self.values.iter().copied())
    }

    /// Forgets everything that was added.
    #[inline]
    pub fn clear(&mut self) {
        self.indices.clear();
        self.values.clear();
        self.many = 0;
    }

    /// Coordinates, ascending and below `dimension`, and values beside them: what the term is in a sum of so many coordinates. It has no entry, and so
    /// counts as zero, where a coordinate is not below.
    #[inline]
    pub(super) fn finish(&mut self, dimension: usize) -> (&[u32], &[f64]) {
        if !self.ascends() {
            self.accumulate();
        }
        // The last coordinate is the largest.
        if self.indices.last().is_some_and(|&index| index as usize >= dimension) {
            self.clear();
        }
        (&self.indices, &self.values)
    }

    /// L2 norm of the term.
    #[cfg(feature = "fault-injection")]
    pub(super) fn norm(&self) -> f64 {
        self.entries().map(|(_, value)| value * value).sum::<f64>().sqrt()
    }

    /// Whether every coordinate is above the one before it.
    #[inline]
    fn ascends(&self) -> bool {
        let next = self.indices.get(1..).unwrap_or_default();
        self.indices.iter().zip(next).fold(true, |so_far, (before, after)| so_far & (before < after))
    }

    /// Sorts by coordinate and adds up what falls on the same one, in the order in which it came.
    #[cold]
    fn accumulate(&mut self) {
        let mut entries: Vec<_> = self.entries().collect();
        entries.sort_by_key(|&(index, _)| index);
        entries.dedup_by(|(index, value), (kept, sum)| {
            let same = index == kept;
            if same {
                *sum += *value;
            }
            same
        });
        self.indices.clear();
        self.values.clear();
        for (index, value) in entries {
            self.indices.push(index);
            self.values.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MANY, Term};

    /// A person with a million records: memory follows the coordinates, and the values are those of the sum in order.
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
        assert_eq!(term.finish(7), (&[0, 1, 2, 3, 4, 5, 6][..], &expected[..]));
    }

    #[test]
    fn a_term_with_a_coordinate_beyond_the_sum_has_no_entry() {
        for (entries, left) in
            [(vec![(0, 1.0), (4, 1.0)], 2), (vec![(0, 1.0), (5, 1.0)], 0), (vec![(7, 1.0), (0, 1.0)], 0), (vec![(3, 1.0)], 1)]
        {
            let mut term = Term::default();
            term.extend(entries.into_iter());
            assert_eq!(term.finish(5).0.len(), left);
            assert_eq!(term.finish(5).1.len(), left);
        }
        // As many as the shorter of two.
        let mut term = Term::default();
        term.extend_beside(0..4, [1.0, 2.0].into_iter());
        term.extend_beside(2..3, [3.0; 7].into_iter());
        assert!(term.entries().eq([(0, 1.0), (1, 2.0), (2, 3.0)]));
        term.clear();
        assert_eq!(term.entries().len(), 0);
    }
}
