//! Random allocation: every unit goes into exactly one of T batches, uniformly, by a draw of its own.

use rand_core::Rng;

use super::bernoulli::uniform;

/// Which units of a table are in which batch of an epoch. It is secret, and kept in memory only: eight bytes a unit.
///
/// A unit's batch is a uniform number below T by Lemire's multiplication with exact rejection: probability 1/T each, for every T.
pub struct Allocation {
    /// Where each batch begins in `order`, and its end.
    starts: Vec<usize>,
    /// Positions of the units, batch by batch, ascending in each.
    order: Vec<usize>,
}

impl Allocation {
    /// Draws the batch of every unit.
    ///
    /// # Panics
    /// There is no batch.
    #[must_use]
    pub fn draw(rng: &mut impl Rng, batches: u32, units: usize) -> Self {
        assert!(batches > 0, "an epoch has at least one batch");
        #[allow(clippy::cast_possible_truncation, reason = "below the number of batches")]
        let drawn: Vec<u32> = (0..units).map(|_| uniform(rng, batches.into()) as u32).collect();
        let mut starts = vec![0; batches as usize + 1];
        drawn.iter().for_each(|&batch| starts[batch as usize + 1] += 1);
        for batch in 1..starts.len() {
            starts[batch] += starts[batch - 1];
        }
        let mut next = starts.clone();
        let mut order = vec![0; units];
        for (position, &batch) in drawn.iter().enumerate() {
            let place = &mut next[batch as usize];
            order[*place] = position;
            *place += 1;
        }
        Self { starts, order }
    }

    /// Number of units.
    #[must_use]
    pub fn units(&self) -> usize {
        self.order.len()
    }

    /// Positions of the units in this batch, ascending; none where there is no such batch.
    #[must_use]
    pub fn batch(&self, number: u32) -> &[usize] {
        match self.starts.get(number as usize..).and_then(|rest| rest.first_chunk::<2>()) {
            Some(&[start, end]) => &self.order[start..end],
            None => &[],
        }
    }
}

/// The batches of units are secret, and under add-remove their number is: nothing is printed.
impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocation").finish_non_exhaustive()
    }
}
