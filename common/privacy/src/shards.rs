//! Units put together: into shards ("virtual clients"), or all of a site into one.
//!
//! # Which unit is in which shard
//!
//! A sum over shards has sensitivity 2C, whatever the relation, *if one unit moves one shard's term only* ([`Terms::ShardResults`]). That
//! depends on how units come into shards, so the assignment is not a choice but follows from the relation that is charged:
//!
//! * **add-remove: by hash.** The shard of a unit is a function of the unit's own content ([`StableIds::id`]) and of the site's
//!   secret salt: taking a unit away leaves every other unit where it was. Position, rank, or "the next free shard" would not do: a
//!   removal moves all later units. Two units with the same content fall into the same shard, which costs nothing: the argument needs a
//!   function of the unit, not an injective one.
//! * **replace-one: contiguous.** Positions are fixed there, and shard k holds positions ⌊kN/K⌋ to ⌊(k+1)N/K⌋−1, with N the declared number of
//!   units, or the table's where none is declared: a replaced unit stays where it is. Slots without a unit contribute nothing, nor do units beyond N:
//!   the borders are public, whatever the table holds. A hash of content would not do: the new unit may fall into another shard, two terms change, and the sensitivity is 4C.
//!
//! The salt is the same for a whole run (derived from the site's identity key, so it needs no place on disk and a crash does not change it). If it
//! changed between rounds, a unit would reach two shards in one round: the one that it is in, and the one whose private state it moved
//! before. It is secret so that no one can aim records at one shard; the bound on the sensitivity holds for every salt.
//!
//! K is public. A shard may be empty; it has a term like the others, so that a shard's last unit changes a term and does not remove one.
//!
//! # Privacy
//! Proof: [`crate::proofs::layouts`].
//!
//! A release checks that the table, the event's [`Terms`] and what the ledger protects (unit, relation) go together ([`Grouping::fits`]), and
//! refuses otherwise.

use std::num::NonZeroU32;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use crate::panic_redaction::{Kept, redact_panics};
use crate::records::{UnitTable, Units};
use crate::stored::Held;
use dp_pvi_accounting::adjacency::{PrivacyUnit, Relation, Terms};

/// What the units of a table are to an accountant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Privacy units (records or persons).
    Units,
    /// Shards of privacy units.
    Shards(Assignment),
    /// All data of the site.
    WholeSite,
}

/// How units come into shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// By a keyed hash of the unit's own content.
    Hashed,
    /// By position.
    Contiguous,
}

/// A table, an event and a ledger that do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}; nothing was released: report this as a bug")]
pub struct WrongGrouping(pub &'static str);

impl Assignment {
    /// The assignment under which one unit moves one shard.
    #[must_use]
    pub fn of(relation: Relation) -> Self {
        match relation {
            Relation::AddRemove => Self::Hashed,
            Relation::ReplaceOne => Self::Contiguous,
        }
    }
}

impl Grouping {
    /// Whether a sum over such a table, stated as one of `terms`, has the stated sensitivity for the ledger's unit and relation.
    ///
    /// # Errors
    /// It has not.
    pub fn fits(self, terms: Terms, unit: PrivacyUnit, relation: Relation) -> Result<(), WrongGrouping> {
        match (self, unit) {
            (Self::Units, PrivacyUnit::Site) => {
                Err(WrongGrouping("the ledger protects the whole site, and the sum has a term for each unit of it"))
            }
            (Self::Shards(_), PrivacyUnit::Site) => {
                Err(WrongGrouping("the ledger protects the whole site, and the sum has a term for each shard of it"))
            }
            // One term a unit; stating it as a shard's result only charges more.
            (Self::Units, _) | (Self::WholeSite, PrivacyUnit::Site) => Ok(()),
            (Self::Shards(assignment), _) if assignment != Assignment::of(relation) => {
                Err(WrongGrouping("under the ledger's relation one unit would move several shards"))
            }
            // A unit changes the term of its shard, or of the whole site: it does not remove it.
            (Self::Shards(_) | Self::WholeSite, _) if terms != Terms::ShardResults => {
                Err(WrongGrouping("the terms are results of several units and are stated as units"))
            }
            (Self::Shards(_) | Self::WholeSite, _) => Ok(()),
        }
    }
}

/// A table whose units have an identity of their own.
pub trait StableIds: UnitTable {
    /// A number that depends on the content of the unit at `position` and on nothing else: not on its position, not on other units.
    /// [`ContentId`] makes one. Units with the same content have the same number.
    fn id(&self, position: usize) -> u64;
}

/// Makes one number of a unit's content. Not a cryptographic hash: what keeps the shards secret is the salt.
#[derive(Debug, Clone, Copy)]
pub struct ContentId(u64);

impl Default for ContentId {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl ContentId {
    /// Takes in the next word; order counts.
    #[inline]
    pub fn absorb(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    /// The number.
    #[must_use]
    pub fn finish(self) -> u64 {
        self.0
    }
}

/// The site's secret of a run by which units come into shards.
#[derive(Clone)]
pub struct ShardSalt(Arc<Salt>);

struct Salt([u8; 32]);

impl Drop for Salt {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Shows nothing.
impl std::fmt::Debug for ShardSalt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShardSalt(..)")
    }
}

impl ShardSalt {
    pub(crate) fn new(salt: [u8; 32]) -> Self {
        Self(Arc::new(Salt(salt)))
    }

    /// Shard of a unit, below `shards`: the unit's id and the salt in one block of SHA-256.
    fn shard(&self, id: u64, shards: NonZeroU32) -> usize {
        let mut hasher = Sha256::new();
        hasher.update(self.0.0);
        hasher.update(id.to_le_bytes());
        let digest: [u8; 32] = hasher.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        let uniform = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        // The high half of uniform·K is below K.
        #[allow(clippy::cast_possible_truncation, reason = "below K")]
        let shard = ((u128::from(uniform) * u128::from(shards.get())) >> 64) as usize;
        shard
    }
}

/// What a permit protects: the ledger's unit and relation, and the run's salt.
#[derive(Debug, Clone)]
pub struct PermitScope {
    pub(crate) unit: PrivacyUnit,
    pub(crate) relation: Relation,
    pub(crate) salt: ShardSalt,
}

impl PermitScope {
    /// Unit of the ledger.
    #[must_use]
    pub fn unit(&self) -> PrivacyUnit {
        self.unit
    }

    /// Relation of the ledger, under which the event is charged.
    #[must_use]
    pub fn relation(&self) -> Relation {
        self.relation
    }
}

impl<T: StableIds> Units<T> {
    /// Cuts the units into `count` disjoint shards, as the relation of the permit's ledger demands: the same shards in every round of a
    /// run. Costs one hash a unit (0.2 µs) under add-remove, nothing under replace-one.
    #[must_use]
    pub fn shards(&self, count: NonZeroU32, scope: &PermitScope) -> Units<Shards<'_, T>> {
        let (table, units) = (self.whole(), self.count());
        let shards = count.get() as usize;
        let slots = self.slots.unwrap_or(units as u64);
        let assignment = Assignment::of(scope.relation);
        let (order, ends) = match assignment {
            Assignment::Contiguous => {
                let end = |k: usize| usize::try_from(k as u128 * u128::from(slots) / shards as u128).unwrap_or(usize::MAX).min(units);
                ((0..end(shards)).collect(), (1..=shards).map(end).collect())
            }
            Assignment::Hashed => {
                // A unit that cannot say what it is has a number, too.
                let id = |position| redact_panics(|| table.id(position)).unwrap_or(0);
                let shard_of: Vec<usize> = (0..units).map(|position| scope.salt.shard(id(position), count)).collect();
                // Counting sort: within a shard, units stay in the table's order.
                let mut next = vec![0usize; shards + 1];
                shard_of.iter().for_each(|&shard| next[shard + 1] += 1);
                (1..=shards).for_each(|shard| next[shard] += next[shard - 1]);
                let ends = next[1..].to_vec();
                let mut order = vec![0; units];
                for (position, &shard) in shard_of.iter().enumerate() {
                    order[next[shard]] = position;
                    next[shard] += 1;
                }
                (order, ends)
            }
        };
        let grouping = Grouping::Shards(assignment);
        Units { table: Held::Memory(Kept::new(Shards { table, order, ends })), slots: None, grouping, threads: self.threads }
    }
}

impl<T: UnitTable> Units<T> {
    /// The whole site as one unit: for client-level privacy ([`PrivacyUnit::Site`]), and for one term that any unit may change.
    #[must_use]
    pub fn whole_site(&self) -> Units<WholeSite<'_, T>> {
        Units { table: Held::Memory(Kept::new(WholeSite(self.whole()))), slots: None, grouping: Grouping::WholeSite, threads: self.threads }
    }
}

/// A table of shards. Only [`Units::shards`] makes one.
pub struct Shards<'t, T> {
    table: &'t T,
    /// Positions in the table, shard by shard.
    order: Vec<usize>,
    /// Ends of the shards in `order`.
    ends: Vec<usize>,
}

impl<T: UnitTable> UnitTable for Shards<'_, T> {
    type Unit<'a>
        = Shard<'a, T>
    where
        Self: 'a;

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn unit(&self, position: usize) -> Shard<'_, T> {
        let start = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        Shard { table: self.table, positions: &self.order[start..self.ends[position]] }
    }
}

/// One shard, borrowed.
pub struct Shard<'a, T> {
    table: &'a T,
    positions: &'a [usize],
}

impl<T> Clone for Shard<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shard<'_, T> {}

impl<'a, T: UnitTable> Shard<'a, T> {
    /// Number of units.
    #[must_use]
    pub fn len(self) -> usize {
        self.positions.len()
    }

    /// Whether the shard has no unit.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.positions.is_empty()
    }

    /// The shard's units, in the table's order.
    pub fn units(self) -> impl ExactSizeIterator<Item = T::Unit<'a>> {
        self.positions.iter().map(move |&position| self.table.unit(position))
    }

    /// The whole table: for what is the same for all units (dimensions, vocabularies), never for other units.
    #[must_use]
    pub fn table(self) -> &'a T {
        self.table
    }
}

/// The whole site as one unit. Only [`Units::whole_site`] makes one.
///
/// An empty site is a unit, too: it is present and has no records. A site that is *absent* sends nothing; under add-remove of sites that, and not the
/// empty site, is the neighbour ([`crate::proofs::layouts`]).
pub struct WholeSite<'t, T>(&'t T);

impl<T: UnitTable> UnitTable for WholeSite<'_, T> {
    type Unit<'a>
        = &'a T
    where
        Self: 'a;

    fn len(&self) -> usize {
        1
    }

    fn unit(&self, _: usize) -> &T {
        self.0
    }
}

#[cfg(test)]
mod tests;
