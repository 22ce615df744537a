//! Monte-Carlo draws of one step.

use dp_pvi_models::neural_network::{Network, standard_normals};
use rand_core::Rng;

/// Fewest vectors of draws in a table: a batch's sum averages over as many.
const VECTORS: usize = 64;

/// A table of standard normal vectors, drawn before a record is touched. Neighbouring vectors are antithetic: an error that is odd in the
/// draws cancels in their mean, and each vector by itself is standard normal.
///
/// # Privacy
/// The table does not depend on data. Every unit tosses which row it uses; given the table, its term is a function of its own records and
/// its own coin. A row by position would not do: under add-remove a position depends on the other units.
#[derive(Debug, Clone)]
pub struct Draws {
    samples: usize,
    rows: usize,
    width: usize,
    values: Vec<f64>,
}

impl Draws {
    /// Draws for `samples` samples of a record.
    #[must_use]
    pub fn new(network: &Network, samples: usize, stream: &mut (impl Rng + ?Sized)) -> Self {
        let (width, samples) = (network.draws(), network.samples(samples));
        let rows = VECTORS.div_ceil(samples);
        let mut half = vec![0.0; (rows * samples).div_ceil(2) * width];
        standard_normals(|| stream.next_u64(), &mut half);
        let mut values = Vec::with_capacity(2 * half.len());
        for vector in half.chunks(width.max(1)) {
            values.extend_from_slice(vector);
            values.extend(vector.iter().map(|x| -x));
        }
        Self { samples, rows, width, values }
    }

    /// S.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The row that a unit's word chooses.
    #[inline]
    pub(super) fn row_of(&self, word: u64) -> usize {
        #[allow(clippy::cast_possible_truncation, reason = "below the number of rows, which is at most 64")]
        let row = ((u128::from(word) * self.rows as u128) >> 64) as usize;
        row
    }

    /// The vector for a sample of the record in this row (any number).
    #[inline]
    pub(super) fn vector(&self, row: usize, sample: usize) -> &[f64] {
        &self.values[(row % self.rows * self.samples + sample) * self.width..][..self.width]
    }
}
