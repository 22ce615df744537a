//! The terms of a sum as they were summed: clipped, on the lattice, without noise.

/// The very terms that a release summed, unit by unit: after clipping and truncation, before noise. It exists behind the gate only, as
/// [`Sensitive`](crate::Sensitive): a site's private-clean factor moves by ρ times its terms ([`crate::proofs::carried_state`]), so what it
/// remembers of a unit is what the unit added to the sum and nothing else.
///
/// Units outside the sample, and terms that counted as zero, are empty.
pub struct CleanTerms {
    dimension: u32,
    exponent: i32,
    /// Position of the first unit: 0, but for a part that a thread made.
    first: usize,
    /// Ends of the units' entries.
    ends: Vec<usize>,
    /// Coordinates and lattice steps.
    entries: Vec<(u32, i32)>,
}

impl CleanTerms {
    pub(super) fn new(dimension: u32, exponent: i32) -> Self {
        Self { dimension, exponent, first: 0, ends: Vec::new(), entries: Vec::new() }
    }

    /// The same for a part: units from a position on.
    pub(super) fn from(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// Position of the first unit of a part.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// Takes in a part that lies behind everything that is here.
    pub(super) fn append(&mut self, part: &Self) {
        self.end(part.first);
        let before = self.entries.len();
        self.ends.extend(part.ends.iter().map(|end| before + end));
        self.entries.extend_from_slice(&part.entries);
    }

    /// Coordinates and steps that were added of the unit at `position`; steps of 0 where it counted as zero. Positions ascend.
    #[allow(clippy::cast_possible_truncation, reason = "no coordinate of a term within C is beyond 2³¹ steps")]
    pub(super) fn keep<'a>(&mut self, position: usize, added: impl Iterator<Item = (&'a u32, &'a i64)>) {
        self.end(position);
        self.entries.extend(added.filter(|(_, steps)| **steps != 0).map(|(index, steps)| (*index, *steps as i32)));
        self.ends.push(self.entries.len());
    }

    /// No more terms; the table has so many units.
    pub(super) fn end(&mut self, units: usize) {
        self.ends.resize(units - self.first, self.entries.len());
    }

    /// The fault of a state with noise in it.
    #[cfg(feature = "fault-injection")]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a fault")]
    pub(super) fn take_in(&mut self, noise: &[i64]) {
        if !crate::injected::is(crate::injected::Bug::NoiseInState) {
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
