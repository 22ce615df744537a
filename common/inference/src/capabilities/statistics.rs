//! Expected sufficient statistics: what conjugate-exponential models offer.
//!
//! The E-step of a record is q(l) ∝ f(x, l) exp(n̄ᵀs(x, l)) with the public n̄ = E_q[n(θ)]; what counts is s̄ = E_q(l)[s(x, l)]. It begins
//! where no data decides and takes a fixed number of sweeps, so s̄ is a function of the record and of public numbers only: a
//! local posterior that was kept from one round to the next would let one record's data into another's statistics.
//!
//! All statistics of a round are one vector, block after block, each block divided by its public scale
//! ([`dp_pvi_privacy::clipping::blocks`]): they come from the same records and the same coins, so they are clipped, noised and accounted together.
//! What does not depend on n̄ is released in the first round only.
//!
//! # Privacy
//! * **Unit**: the statistics of all records of a unit are summed before the clip.
//! * **Sensitivity**: the clipping norm of the mechanism. [`ExpectedStatistics::bound`] is what one record's term cannot exceed for records
//!   that keep the schema's bounds; with a clipping norm of that size nothing is clipped.

pub mod linear_noise;
pub mod polya_gamma;

use dp_pvi_privacy::mechanism::Term;

use dp_pvi_records::{RecordTable, RecordView};

/// A model at a public state, ready for E-steps record by record.
pub trait ExpectedStatistics: Send + Sync {
    /// Number of coordinates of the released vector.
    fn coordinates(&self) -> usize;

    /// Largest norm of one record's term, for records that keep the schema's bounds.
    fn bound(&self) -> f64;

    /// Adds one record's scaled statistics to `term`, in ascending coordinates. A record that is not finite adds nothing.
    fn add(&self, record: RecordView<'_>, term: &mut Term);
}

/// Adds weight · svec(xxᵀ) from coordinate `offset` on.
pub(crate) fn add_outer(record: RecordView<'_>, weight: f64, offset: usize, d: usize, term: &mut Term) {
    for (k, (&i, &x)) in record.indices.iter().zip(record.values).enumerate() {
        let i = i as usize;
        // Row i of the upper triangle begins after i rows of d, d−1, … entries.
        let row = offset + i * d - i * i.saturating_sub(1) / 2 - i;
        #[allow(clippy::cast_possible_truncation, reason = "a mechanism has 32-bit coordinates")]
        let at = |j: usize| (row + j) as u32;
        term.add(at(i), weight * x * x);
        let off_diagonal = weight * x * std::f64::consts::SQRT_2;
        term.extend(record.indices[k + 1..].iter().zip(&record.values[k + 1..]).map(|(&j, y)| (at(j as usize), off_diagonal * y)));
    }
}

/// Σ over all records of a table: the sum of the mechanism without clip and noise.
#[must_use]
pub fn total(statistics: &impl ExpectedStatistics, table: &RecordTable) -> Vec<f64> {
    let mut sums = vec![0.0; statistics.coordinates()];
    let mut term = Term::default();
    for record in table.records() {
        term.clear();
        statistics.add(record, &mut term);
        term.entries().for_each(|(index, value)| sums[index as usize] += value);
    }
    sums
}
