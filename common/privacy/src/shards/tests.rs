//! One unit moves one shard: for each relation with its own assignment, and not with the other one.

use proptest::prelude::*;

use super::*;
use crate::danger::assume_public;
use crate::mechanism::{LatticeSum, ReleaseError, Summation, Summed};
use crate::{Argument, Permit, SecureNoise};
use dp_pvi_accounting::{ClipNorm, LatticePath, NoiseMultiplier};
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_unsealed::Unsealed;

/// Units that are one number each.
struct Numbers(Vec<u64>);

impl UnitTable for Numbers {
    type Unit<'a> = u64;
    fn len(&self) -> usize {
        self.0.len()
    }
    fn unit(&self, position: usize) -> u64 {
        self.0[position]
    }
}

impl StableIds for Numbers {
    fn id(&self, position: usize) -> u64 {
        let mut id = ContentId::default();
        id.absorb(self.0[position]);
        id.finish()
    }
}

fn scope(unit: PrivacyUnit, relation: Relation, salt: u8) -> PermitScope {
    PermitScope { unit, relation, salt: ShardSalt::new([salt; 32]) }
}

fn cut(units: &[u64], shards: u32, relation: Relation, salt: u8) -> Vec<Vec<u64>> {
    let units = Units::new(Numbers(units.to_vec()));
    let scope = scope(PrivacyUnit::Record, relation, salt);
    let shards = units.shards(NonZeroU32::new(shards).unwrap(), &scope);
    assume_public(
        Unsealed,
        shards.map(&Argument::nothing(), |(), table| (0..table.len()).map(|k| table.unit(k).units().collect()).collect()),
    )
    .into_inner()
}

fn changed(a: &[Vec<u64>], b: &[Vec<u64>]) -> usize {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_unit_is_in_one_shard(units in proptest::collection::vec(0..50u64, 0..80), shards in 1..20u32, salt in any::<u8>()) {
        for relation in [Relation::AddRemove, Relation::ReplaceOne] {
            let cut = cut(&units, shards, relation, salt);
            prop_assert_eq!(cut.len(), shards as usize);
            let (mut all, mut expected) = (cut.concat(), units.clone());
            all.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(all, expected);
        }
        let sizes: Vec<usize> = cut(&units, shards, Relation::ReplaceOne, salt).iter().map(Vec::len).collect();
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
    }

    /// Add-remove: whichever unit goes, the shards that it is not in are the same to the last unit, and its own loses exactly it.
    #[test]
    fn a_removed_unit_changes_its_own_shard_only(
        units in proptest::collection::vec(0..1000u64, 1..60), gone in any::<prop::sample::Index>(), shards in 1..12u32, salt in any::<u8>()
    ) {
        let gone = gone.index(units.len());
        let mut fewer = units.clone();
        let unit = fewer.remove(gone);
        let (whole, rest) = (cut(&units, shards, Relation::AddRemove, salt), cut(&fewer, shards, Relation::AddRemove, salt));
        prop_assert_eq!(changed(&whole, &rest), 1);
        for (a, b) in whole.iter().zip(&rest).filter(|(a, b)| a != b) {
            let mut back = b.clone();
            back.push(unit);
            back.sort_unstable();
            let mut a = a.clone();
            a.sort_unstable();
            prop_assert_eq!(a, back);
        }
    }

    /// Replace-one: whatever the new unit is, one shard changes, in one place.
    #[test]
    fn a_replaced_unit_changes_its_own_shard_only(
        units in proptest::collection::vec(0..1000u64, 1..60), at in any::<prop::sample::Index>(), shards in 1..12u32
    ) {
        let mut other = units.clone();
        other[at.index(units.len())] += 1000;
        let (a, b) = (cut(&units, shards, Relation::ReplaceOne, 1), cut(&other, shards, Relation::ReplaceOne, 2));
        prop_assert_eq!(changed(&a, &b), 1);
    }
}

/// Why the assignment follows from the relation: with the other one, a single unit moves many shards.
#[test]
fn the_other_assignment_would_void_the_sensitivity() {
    let units: Vec<u64> = (0..100).collect();
    // Contiguous under removal.
    let (a, b) = (cut(&units, 10, Relation::ReplaceOne, 0), cut(&units[..99], 10, Relation::ReplaceOne, 0));
    assert!(changed(&a, &b) > 5);
    // Hashed under replacement.
    let two = (0..100u64).any(|new| {
        let mut other = units.clone();
        other[0] = 1000 + new;
        changed(&cut(&units, 10, Relation::AddRemove, 0), &cut(&other, 10, Relation::AddRemove, 0)) == 2
    });
    assert!(two);
}

#[test]
fn hashed_shards_are_balanced_secret_and_the_same_in_every_round() {
    let units: Vec<u64> = (0..40_000).collect();
    let first = cut(&units, 16, Relation::AddRemove, 1);
    // Independent uniform choices: 2500 ± 48 units a shard.
    assert!(first.iter().all(|shard| shard.len().abs_diff(2500) < 5 * 49), "{:?}", first.iter().map(Vec::len).collect::<Vec<_>>());
    assert_eq!(first, cut(&units, 16, Relation::AddRemove, 1));
    assert_ne!(first, cut(&units, 16, Relation::AddRemove, 2));
    assert_eq!(format!("{:?}", scope(PrivacyUnit::Record, Relation::AddRemove, 1).salt), "ShardSalt(..)");
    // The same content, the same shard.
    assert_eq!(cut(&[7; 50], 16, Relation::AddRemove, 1).iter().filter(|shard| !shard.is_empty()).count(), 1);
}

fn sum(terms: Terms) -> LatticeSum {
    LatticeSum::new(1, ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(1.0).unwrap(), None, terms, LatticePath::Term).unwrap()
}

fn run<T: UnitTable>(units: &Units<T>, terms: Terms, scope: &PermitScope) -> Result<(), ReleaseError> {
    let release = ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client: ClientId::new("here").unwrap(), round: 0 };
    let permit = Permit::mint(sum(terms).event(), release, scope.clone()).into_steps().next().unwrap();
    let ones: fn(&(), Summation<'_, T>) -> Result<Summed, ReleaseError> = |(), sum| Ok(sum.each(|_, _, (), term| term.add(0, 1.0)));
    sum(terms).release_sum(units, &Argument::nothing(), ones, permit, &SecureNoise).map(drop)
}

/// What is charged is what runs: tables, terms, unit and relation that do not go together release nothing.
#[test]
fn a_table_runs_only_under_the_event_and_ledger_that_it_fits() {
    use PrivacyUnit::{Person, Record, Site};
    use Relation::{AddRemove, ReplaceOne};
    let units = Units::new(Numbers((0..20).collect()));
    let four = NonZeroU32::new(4).unwrap();
    for relation in [AddRemove, ReplaceOne] {
        for unit in [Record, Person, Site] {
            let scope = scope(unit, relation, 3);
            let cases = [
                ("units", run(&units, Terms::Units, &scope).is_ok(), unit != Site),
                ("units, charged as shards", run(&units, Terms::ShardResults, &scope).is_ok(), unit != Site),
                ("shards", run(&units.shards(four, &scope), Terms::ShardResults, &scope).is_ok(), unit != Site),
                ("shards, charged as units", run(&units.shards(four, &scope), Terms::Units, &scope).is_ok(), false),
                ("the site, charged as a unit", run(&units.whole_site(), Terms::Units, &scope).is_ok(), unit == Site),
                ("the site, charged as a shard", run(&units.whole_site(), Terms::ShardResults, &scope).is_ok(), true),
            ];
            for (what, ran, expected) in cases {
                assert_eq!(ran, expected, "{what} under {unit:?} {relation:?}");
            }
        }
    }
    // Shards that were cut for another ledger's relation.
    let (one, other) = (scope(Record, AddRemove, 3), scope(Record, ReplaceOne, 3));
    for (cut_for, charged) in [(&one, &other), (&other, &one)] {
        let result = run(&units.shards(four, cut_for), Terms::ShardResults, charged);
        assert!(matches!(result, Err(ReleaseError::Grouping(_))), "{result:?}");
    }
}

#[test]
fn the_whole_site_is_one_unit_even_if_it_is_empty() {
    for numbers in [vec![], vec![1, 2, 3]] {
        let units = Units::new(Numbers(numbers.clone()));
        let site = units.whole_site();
        let seen = assume_public(Unsealed, site.map(&Argument::nothing(), |(), table| (table.len(), table.unit(0).0.clone()))).into_inner();
        assert_eq!(seen, (1, numbers));
    }
}

#[test]
fn ids_depend_on_content_and_order() {
    let id = |words: &[u64]| {
        let mut id = ContentId::default();
        words.iter().for_each(|&word| id.absorb(word));
        id.finish()
    };
    let ids: std::collections::BTreeSet<u64> = (0..10_000).map(|x| id(&[x])).chain((0..10_000).map(|x| id(&[x, 0]))).collect();
    assert_eq!(ids.len(), 20_000);
    assert_ne!(id(&[1, 2]), id(&[2, 1]));
}

/// The borders of contiguous shards are those of the declared number of units, whatever the table holds.
#[test]
fn contiguous_shards_are_over_the_declared_slots() {
    let scope = scope(PrivacyUnit::Record, Relation::ReplaceOne, 1);
    let cut = |units: u64, declared: u64, shards: u32| -> Vec<Vec<u64>> {
        let units = Units::new(Numbers((0..units).collect())).over_slots(declared);
        let shards = units.shards(NonZeroU32::new(shards).unwrap(), &scope);
        assume_public(
            Unsealed,
            shards.map(&Argument::nothing(), |(), table| (0..table.len()).map(|k| table.unit(k).units().collect()).collect()),
        )
        .into_inner()
    };
    assert_eq!(cut(8, 8, 4), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    // One missing, one too many: the others stay where they are.
    assert_eq!(cut(7, 8, 4), [vec![0, 1], vec![2, 3], vec![4, 5], vec![6]]);
    assert_eq!(cut(9, 8, 4), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    assert_eq!(cut(3, 8, 4), [vec![0, 1], vec![2], vec![], vec![]]);
    assert_eq!(cut(2, u64::MAX, 2), [vec![0, 1], vec![]]);
    // By hash, a shard holds whatever falls into it: there no unit has a slot, and none is left out.
    let hashed = self::scope(PrivacyUnit::Record, Relation::AddRemove, 1);
    let units = Units::new(Numbers((0..9).collect())).over_slots(3);
    let shards = units.shards(NonZeroU32::new(2).unwrap(), &hashed);
    let held =
        assume_public(Unsealed, shards.map(&Argument::nothing(), |(), table| (0..table.len()).map(|k| table.unit(k).len()).sum::<usize>()));
    assert_eq!(held.into_inner(), 9);
}
