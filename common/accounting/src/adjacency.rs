//! What "neighbouring data sets" means, and the factor that it puts on a sensitivity.

use serde::{Deserialize, Serialize};

/// The relation between two neighbouring data sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// One unit is present or absent; an absent unit contributes exactly 0 to every sum.
    AddRemove,
    /// One unit is replaced by another; all counts stay.
    ReplaceOne,
}

/// Whose data one privacy unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrivacyUnit {
    /// One record.
    Record,
    /// All records with one value of the schema's `unit_column`.
    Person,
    /// All data of one site.
    Site,
}

/// What the terms of a sum are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Terms {
    /// One term per privacy unit.
    Units,
    /// One term per shard of several units: removing a unit changes a term, it does not remove one.
    ShardResults,
    // New kinds are at the end: a ledger's bytes name a kind by its position.
    /// One term per privacy unit, in two parts: coordinates below `cells` are never negative, those from there on have any sign, and
    /// Q(x) = Σ_cells x² + 2 Σ_signed x² is at most the squared clipping norm. Proof: [`crate::proofs::cells`].
    Cells {
        /// Number of coordinates that are never negative.
        cells: u32,
    },
}

impl Relation {
    /// Squared sensitivity of a sum of such terms over the squared clipping norm: 1, 2 or 4.
    ///
    /// # Privacy
    /// A term that comes or goes moves the sum by its own norm, at most C. One that changes moves it by ‖x − y‖: at most 2C for any two terms in the ball, and at
    /// most √2·C for two terms of [`Terms::Cells`] ([`crate::proofs::cells`], Lemma 1).
    #[must_use]
    pub fn squared_sensitivity_factor(self, terms: Terms) -> u32 {
        #[cfg(feature = "fault-injection")]
        if crate::injected::factor_is_forgotten() {
            return 1;
        }
        match (self, terms) {
            (Self::AddRemove, Terms::Units | Terms::Cells { .. }) => 1,
            (Self::ReplaceOne, Terms::Cells { .. }) => 2,
            (Self::ReplaceOne, Terms::Units) | (_, Terms::ShardResults) => 4,
        }
    }

    /// Its root, rounded up: sensitivity of a sum of such terms over the clipping norm.
    #[must_use]
    pub fn sensitivity_factor(self, terms: Terms) -> f64 {
        // 1 and 2 are exact, and the nearest number to √2 lies above it.
        f64::from(self.squared_sensitivity_factor(terms)).sqrt()
    }

    /// Whether a term of a neighbouring data set changes rather than comes or goes.
    #[must_use]
    pub(crate) fn replaces(self, terms: Terms) -> bool {
        self.squared_sensitivity_factor(terms) > 1
    }

    /// Whether a ledger under `self` may book a task stated under `task`: the charge must be at least as large.
    ///
    /// Replace-one sensitivities are at least those of add-remove, event by event; not the other way round.
    #[must_use]
    pub fn may_book(self, task: Self) -> bool {
        self == task || self == Self::ReplaceOne
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_books_what_its_relation_covers() {
        assert!(Relation::ReplaceOne.may_book(Relation::AddRemove) && Relation::ReplaceOne.may_book(Relation::ReplaceOne));
        assert!(Relation::AddRemove.may_book(Relation::AddRemove) && !Relation::AddRemove.may_book(Relation::ReplaceOne));
    }

    #[test]
    fn a_term_that_changes_counts_twice() {
        assert_eq!(Relation::AddRemove.squared_sensitivity_factor(Terms::Units), 1);
        for (relation, terms) in
            [(Relation::ReplaceOne, Terms::Units), (Relation::AddRemove, Terms::ShardResults), (Relation::ReplaceOne, Terms::ShardResults)]
        {
            assert_eq!(relation.squared_sensitivity_factor(terms), 4);
        }
    }

    /// Lemma 1 of [`crate::proofs::cells`]: √2 where a term of cells changes, 1 where it comes or goes; and the root is never below.
    #[test]
    fn lemma_1_a_term_of_cells_that_changes_counts_root_two() {
        for cells in [0, 1, 7, u32::MAX] {
            let terms = Terms::Cells { cells };
            assert_eq!(Relation::AddRemove.squared_sensitivity_factor(terms), 1);
            assert_eq!(Relation::ReplaceOne.squared_sensitivity_factor(terms), 2);
        }
        // 1.414213562373095 of 2^52 steps, squared in integers.
        let root = (Relation::ReplaceOne.sensitivity_factor(Terms::Cells { cells: 1 }) * (1u64 << 52) as f64) as u128;
        assert!(root * root >= 2 << 104 && (root - 1) * (root - 1) < 2 << 104);
        let exact = [Relation::AddRemove, Relation::ReplaceOne].map(|relation| relation.sensitivity_factor(Terms::Units).to_bits());
        assert_eq!(exact, [1.0f64.to_bits(), 2.0f64.to_bits()]);
    }
}
