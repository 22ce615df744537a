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
}

impl Relation {
    /// How often the clipping norm fits into the sensitivity of a sum of such terms: 1 or 2.
    #[must_use]
    pub fn sensitivity_factor(self, terms: Terms) -> u32 {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::factor_is_forgotten() {
            return 1;
        }
        match (self, terms) {
            (Self::AddRemove, Terms::Units) => 1,
            (Self::ReplaceOne, Terms::Units) | (_, Terms::ShardResults) => 2,
        }
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
        assert_eq!(Relation::AddRemove.sensitivity_factor(Terms::Units), 1);
        for (relation, terms) in
            [(Relation::ReplaceOne, Terms::Units), (Relation::AddRemove, Terms::ShardResults), (Relation::ReplaceOne, Terms::ShardResults)]
        {
            assert_eq!(relation.sensitivity_factor(terms), 2);
        }
    }
}
