//! The terms of a sum as they were summed: clipped, on the lattice, without noise.

use crate::mechanism::term::Term;

/// The very terms that a release summed, unit by unit: after clipping and truncation, before noise. It exists behind the gate only, as
/// [`Sensitive`](crate::Sensitive): a site's private-clean factor moves by ρ times its terms ([`crate::proofs::carried_state`]), so what it
/// remembers of a unit is what the unit added to the sum and nothing else.
///
/// Units outside the sample, and terms that counted as zero, are empty.
pub struct CleanTerms {
    dimension: u32,
    exponent: i32,
    /// Ends of the units' entries.
    ends: Vec<usize>,
    /// Coordinates and lattice steps.
    entries: Vec<(u32, i32)>,
}

impl CleanTerms {
    pub(super) fn new(dimension: u32, exponent: i32) -> Self {
        Self { dimension, exponent, ends: Vec::new(), entries: Vec::new() }
    }

    /// Number of units of the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the table has no unit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Coordinates of a term.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.dimension as usize
    }

    /// Entries of the term of the unit at `position` (below [`CleanTerms::len`]), coordinates ascending; exact.
    pub fn term(&self, position: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let start = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        let step = 2f64.powi(self.exponent);
        self.entries[start..self.ends[position]].iter().map(move |&(index, steps)| (index as usize, f64::from(steps) * step))
    }

    /// All terms, one after the other, `dimension` numbers each: the form of a site's private state with a factor for each unit.
    #[must_use]
    pub fn to_dense(&self) -> Vec<f64> {
        let mut dense = vec![0.0; self.len() * self.dimension()];
        if self.dimension > 0 {
            for (position, row) in dense.chunks_mut(self.dimension()).enumerate() {
                self.term(position).for_each(|(index, value)| row[index] = value);
            }
        }
        dense
    }

    /// Sum of all terms.
    #[must_use]
    pub fn sum(&self) -> Vec<f64> {
        let mut sum = vec![0.0; self.dimension()];
        (0..self.len()).flat_map(|position| self.term(position)).for_each(|(index, value)| sum[index] += value);
        sum
    }
}

/// What a summation does with each term beside adding it.
pub(super) trait Keep {
    /// The term of the unit at `position` was added at this factor, or counted as zero. Positions ascend.
    fn keep(&mut self, position: usize, term: &Term, factor: Option<f64>);
    /// No more terms; the table has so many units.
    fn end(&mut self, units: usize);
    /// The fault of a state with noise in it.
    #[cfg(feature = "planted-bugs")]
    fn take_in(&mut self, noise: &[i64]) {
        let _ = noise;
    }
}

/// Nothing.
impl Keep for () {
    #[inline]
    fn keep(&mut self, _: usize, _: &Term, _: Option<f64>) {}
    fn end(&mut self, _: usize) {}
}

impl Keep for CleanTerms {
    fn keep(&mut self, position: usize, term: &Term, factor: Option<f64>) {
        self.end(position);
        if let Some(factor) = factor {
            self.entries.extend(term.steps(factor));
        }
        self.ends.push(self.entries.len());
    }

    fn end(&mut self, units: usize) {
        self.ends.resize(units, self.entries.len());
    }

    #[cfg(feature = "planted-bugs")]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a fault")]
    fn take_in(&mut self, noise: &[i64]) {
        if !crate::planted::is(crate::planted::Bug::NoiseInState) {
            return;
        }
        let units = self.ends.len().max(1) as i64;
        let (mut start, mut spoiled) = (0, Vec::new());
        for end in &mut self.ends {
            let mut row: Vec<i32> = noise.iter().map(|x| (x / units) as i32).collect();
            self.entries[start..*end].iter().for_each(|(index, steps)| row[*index as usize] += steps);
            start = *end;
            spoiled.extend((0u32..).zip(row));
            *end = spoiled.len();
        }
        self.entries = spoiled;
    }
}
