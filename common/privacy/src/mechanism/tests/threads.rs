//! Sums that are split over threads: the same bits for any number of them.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::shards::StableIds;
use crate::stored::tests::Pieces;

const THREADS: [usize; 5] = [1, 2, 3, 7, 64];

/// A row of six entries, some of them repeated, out of order, too long, or no numbers; every 97th makes its function panic.
fn row(unit: u32) -> Vec<(u32, f64)> {
    let entry = |i: u32| {
        let word = unit.wrapping_mul(2_654_435_761).wrapping_add(i.wrapping_mul(40_503)).rotate_left(i);
        let value = f64::from(word % 20_011) / 10_000.0 - 1.0;
        (word % 11, if word.is_multiple_of(1_009) { f64::NAN } else { value })
    };
    let mut row: Vec<_> = (0..6).map(entry).collect();
    if unit % 97 == 5 {
        row.push((99, 0.0));
    }
    row
}

fn rows(units: u32) -> Vec<Vec<(u32, f64)>> {
    (0..units).map(row).collect()
}

fn panicking(&(): &(), sum: Summation<'_, Rows>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|row, position, (), term| {
        fill(row, term);
        assert!(row.last().is_none_or(|last| last.0 != 99), "row {position} is {row:?}");
    }))
}

fn on<T: UnitTable>(threads: usize, table: T) -> Units<T> {
    Units::new(table).on_threads(NonZeroUsize::new(threads).unwrap())
}

/// Full passes and samples, of no unit, of fewer than there are threads, and of numbers that no number of threads divides; with and without kept terms.
#[test]
fn a_sum_has_the_same_bits_on_any_number_of_threads() {
    for units in [0, 1, 31, 65, 1_000, 14_407] {
        for rate in [None, Some(0.37), Some(1.0)] {
            let results = THREADS.map(|threads| {
                let mechanism = sum(11, 0.8, 1.5, rate).of_long_terms();
                let table = on(threads, Rows(rows(units)));
                let nothing = Argument::nothing();
                let plain = mechanism.release_sum(&table, &nothing, panicking, permit(&mechanism), &Seeded(9)).unwrap().into_inner().values;
                let (noised, kept) = mechanism
                    .release_sum_keeping(&table, &Sensitive::NOTHING, &nothing, panicking, permit(&mechanism), &Seeded(9))
                    .unwrap();
                assert_eq!(noised.into_inner().values, plain);
                let kept = kept.into_value().unwrap();
                assert_eq!(kept.len(), units as usize);
                (plain, kept.to_dense())
            });
            assert!(results.iter().all(|result| *result == results[0]), "{units} units at rate {rate:?}");
            // They are the terms of those units that do not panic.
            let noise = release(&sum(11, 0.8, 1.5, rate), &[], 9);
            let step = 2f64.powi(sum(11, 0.8, 1.5, rate).exponent());
            let total = |j: usize| results[0].1.iter().skip(j).step_by(11).sum::<f64>();
            #[allow(clippy::cast_precision_loss, reason = "sums of a test")]
            (0..11).for_each(|j| assert_eq!(total(j), (results[0].0[j] - noise[j]) as f64 * step));
        }
    }
}

/// The same terms by way of a number that is made for many units at once. Some functions panic: while they note, over a note, or while they fill.
fn noting(&(): &(), sum: Summation<'_, Rows>) -> Result<Summed, ReleaseError> {
    let panics = |row: &[(u32, f64)], step: u32| row.last().is_some_and(|last| last.0 == 99) && row[0].0 % 3 == step;
    Ok(sum.each_in_lanes(
        move |row, position, (), notes| {
            row.iter().for_each(|(_, value)| notes.push((*value, f64::NAN)));
            assert!(!panics(row, 0), "row {position} is {row:?}");
            if panics(row, 1) {
                notes.push((1e9, 0.0));
            }
        },
        |notes| {
            for (value, quarter) in notes {
                assert!(quarter.is_nan(), "{value}");
                *quarter = 0.25 * *value;
            }
        },
        move |row, position, (), notes, term| {
            assert!(!panics(row, 2), "row {position} is {row:?}");
            assert!(notes.len() == row.len());
            term.extend(row.iter().zip(notes).map(|((index, _), (_, quarter))| (*index, 4.0 * quarter)));
        },
    ))
}

/// Whichever units are in a group, and wherever a group or a thread's part ends: a unit's term is the one that it has alone, and a unit over which something panics counts as zero alone.
#[test]
fn what_is_made_for_many_units_at_once_does_not_mix_them() {
    for units in [0, 1, 63, 64, 65, 130, 1_000, 3_001] {
        for rate in [None, Some(0.37)] {
            let mechanism = sum(11, 0.8, 1.5, rate).of_long_terms();
            let by = |f: fn(&(), Summation<'_, Rows>) -> Result<Summed, ReleaseError>, threads| {
                let table = on(threads, Rows(rows(units)));
                let released =
                    mechanism.release_sum_keeping(&table, &Sensitive::NOTHING, &Argument::nothing(), f, permit(&mechanism), &Seeded(9));
                let (noised, kept) = released.unwrap();
                (noised.into_inner().values, kept.into_value().unwrap().to_dense())
            };
            let expected = by(panicking, 1);
            for threads in THREADS {
                assert_eq!(by(noting, threads), expected, "{units} units at rate {rate:?} on {threads}");
            }
        }
    }
    // The premise: every kind of panic is among them.
    let steps: std::collections::BTreeSet<u32> =
        rows(3_001).iter().filter(|row| row[row.len() - 1].0 == 99).map(|row| row[0].0 % 3).collect();
    assert_eq!(steps.len(), 3);
}

/// A share of a sum, with the private state of every unit found by its position.
#[test]
fn shares_and_states_are_split_alike() {
    let shared = ShareSum::new(2, ClipNorm::new(3.0).unwrap(), NoiseMultiplier::new(2.0).unwrap(), 1, 5_000, None, Terms::Units).unwrap();
    let shared = shared.of_long_terms();
    #[allow(clippy::type_complexity, reason = "what a mechanism takes")]
    let own: fn(&(), Summation<'_, Rows, Vec<f64>>) -> Result<Summed, ReleaseError> = |(), sum| {
        Ok(sum.each(|row, position, state, term| {
            term.add(0, state[position]);
            term.add(1, row[0].1);
        }))
    };
    let results = THREADS.map(|threads| {
        let state = Sensitive::of((0..4_999).map(|i| f64::from(i % 13) / 7.0).collect::<Vec<_>>());
        let permit = mint(shared.event()).with_fallback(Some(shared.fallback_event())).into_steps().next().unwrap();
        // One unit has no state: its function panics.
        let units = on(threads, Rows(rows(5_000)));
        let share = shared.share_sum_with(&units, &state, &Argument::nothing(), own, permit, &Seeded(3)).unwrap();
        share.mask(&mut Zeros).into_inner().values
    });
    assert!(results.iter().all(|result| *result == results[0]));
}

impl StableIds for Rows {
    fn id(&self, position: usize) -> u64 {
        position as u64
    }
}

trait Filling: UnitTable {
    fn filling<'u>(unit: Self::Unit<'u>, term: &mut Term)
    where
        Self: 'u;
}

impl Filling for crate::Shards<'_, Rows> {
    fn filling<'u>(shard: Self::Unit<'u>, term: &mut Term)
    where
        Self: 'u,
    {
        assert!(!shard.is_empty());
        shard.units().for_each(|row| fill(row, term));
    }
}

fn of_shards<T: Filling>(&(): &(), sum: Summation<'_, T>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|shard, _, (), term| T::filling(shard, term)))
}

/// Shards have few and long terms: each may have a thread.
#[test]
fn shards_are_split_alike() {
    let mechanism =
        LatticeSum::new(11, ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(1.0).unwrap(), None, Terms::ShardResults, LatticePath::Term)
            .unwrap();
    let results = THREADS.map(|threads| {
        let (units, count) = (on(threads, Rows(rows(40))), std::num::NonZeroU32::new(13).unwrap());
        let shards = units.shards(count, &scope(PrivacyUnit::Record, Relation::AddRemove));
        mechanism
            .release_sum(&shards, &Argument::nothing(), of_shards::<crate::Shards<'_, Rows>>, permit(&mechanism), &Seeded(4))
            .unwrap()
            .into_inner()
            .values
    });
    assert!(results.iter().all(|result| *result == results[0]));
}

/// Every thread calls the function once; a small sum has one thread, and units have one unless it is said.
#[test]
fn threads_are_started_for_large_sums_only() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let counted: fn(&(), Summation<'_, Rows>) -> Result<Summed, ReleaseError> = |(), sum| {
        CALLS.fetch_add(1, Ordering::SeqCst);
        entries(&(), sum)
    };
    let calls = |mechanism: &LatticeSum, units: &Units<Rows>| {
        CALLS.store(0, Ordering::SeqCst);
        mechanism.release_sum(units, &Argument::nothing(), counted, permit(mechanism), &Seeded(1)).unwrap();
        CALLS.load(Ordering::SeqCst)
    };
    let (short, long) = (sum(11, 1.0, 1.0, None), sum(11, 1.0, 1.0, None).of_long_terms());
    assert_eq!(calls(&short, &on(3, Rows(rows(200)))), 1);
    assert_eq!(calls(&long, &on(3, Rows(rows(200)))), 3);
    assert_eq!(calls(&short, &on(3, Rows(rows(7_000)))), 3);
    assert_eq!(calls(&short, &Units::new(Rows(rows(7_000)))), 1);
    let sampled = sum(11, 1.0, 1.0, Some(0.5));
    assert_eq!(calls(&sampled, &on(3, Rows(rows(7_000)))), 1);
    // A declared number decides, and not how many units there are, or are drawn.
    for units in [0, 100, 30_000] {
        assert_eq!(calls(&short, &on(3, Rows(rows(units))).over_slots(2_000)), 1);
        assert_eq!(calls(&short, &on(3, Rows(rows(units))).over_slots(4_500)), 2);
        assert_eq!(calls(&sampled, &on(3, Rows(rows(units))).over_slots(4_500)), 1);
    }
}

/// Some coordinates only, and terms of a state that is not there: every one counts as zero.
#[test]
fn places_and_absent_states_are_split_alike() {
    let results = THREADS.map(|threads| {
        let mechanism = sum(11, 0.8, 1.5, None).on(vec![1, 4, 9]).unwrap().of_long_terms();
        let units = on(threads, Rows(rows(5_000)));
        let some = mechanism.release_sum(&units, &Argument::nothing(), panicking, permit(&mechanism), &Seeded(2)).unwrap();
        let (noise, kept) = mechanism
            .release_sum_keeping(&units, &Sensitive(None), &Argument::nothing(), panicking, permit(&mechanism), &Seeded(2))
            .unwrap();
        let kept = kept.into_value().unwrap();
        assert!(kept.len() == 5_000 && kept.sum().iter().all(|x| *x == 0.0));
        (some.into_inner().values, noise.into_inner().values)
    });
    assert!(results.iter().all(|result| *result == results[0]));
    assert_eq!(results[0].1, release(&sum(11, 0.8, 1.5, None).on(vec![1, 4, 9]).unwrap(), &[], 2));
    assert_ne!(results[0].0, results[0].1);
}

/// An error of the function before it looks at a record is heard once, whichever thread it is; afterwards none is.
#[test]
fn a_thread_says_nothing_of_a_record() {
    let mechanism = sum(11, 1.0, 1.0, None).of_long_terms();
    let units = on(5, Rows(rows(999)));
    let early = mechanism.release_sum(&units, &Argument::nothing(), |(), _| Err(ReleaseError::Overflow), permit(&mechanism), &Seeded(5));
    assert!(matches!(early, Err(ReleaseError::Overflow)));
    let panics = mechanism.release_sum(&units, &Argument::nothing(), |(), _| panic!("early"), permit(&mechanism), &Seeded(5));
    assert!(matches!(panics, Err(ReleaseError::PanicRedacted(_))));
    let late: fn(&(), Summation<'_, Rows>) -> Result<Summed, ReleaseError> = |(), sum| {
        let _ = entries(&(), sum);
        panic!("late")
    };
    let noised = mechanism.release_sum(&units, &Argument::nothing(), late, permit(&mechanism), &Seeded(5)).unwrap().into_inner().values;
    assert_eq!(noised, release(&mechanism, &rows(999), 5));
}

fn copies(table: &Rows, positions: &[usize]) -> Rows {
    Rows(positions.iter().map(|position| table.0[*position].clone()).collect())
}

/// Where units come from changes no bit: of full passes, samples and kept terms, with units that panic, on one thread and several.
#[test]
fn units_that_are_not_in_memory_give_the_same_bits() {
    for units in [0, 1, 4_097, 20_001] {
        for rate in [None, Some(0.01), Some(0.6)] {
            let mechanism = sum(11, 0.8, 1.5, rate).of_long_terms();
            let released = |table: Units<Rows>| {
                let nothing = Argument::nothing();
                let (sum, kept) = mechanism
                    .release_sum_keeping(&table, &Sensitive::NOTHING, &nothing, panicking, permit(&mechanism), &Seeded(9))
                    .unwrap();
                let read_window_by_window = !table.is_in_memory();
                (sum.into_inner().values, kept.into_value().unwrap().to_dense(), read_window_by_window)
            };
            let (sum, kept, _) = released(Units::new(Rows(rows(units))));
            for threads in [1, 3] {
                let stored = Units::stored(Box::new(Pieces::of(Rows(rows(units)), copies)));
                let stored = released(stored.on_threads(NonZeroUsize::new(threads).unwrap()));
                assert!(stored == (sum.clone(), kept.clone(), true), "{units} units at {rate:?} on {threads} threads");
            }
        }
    }
}

/// A sample reads what it holds and nothing else.
#[test]
fn a_sample_reads_only_its_own_units() {
    let mechanism = sum(11, 0.8, 1.5, Some(0.01));
    let pieces = Pieces::of(Rows(rows(90_000)), |table, positions| {
        assert!(positions.len() < 1_200, "about 900 of 90,000");
        copies(table, positions)
    });
    let reads = pieces.reads.clone();
    mechanism.release_sum(&Units::stored(Box::new(pieces)), &Argument::nothing(), entries, permit(&mechanism), &Seeded(1)).unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 1);
}

/// A disk that breaks on the way ends the release with its own error, on any number of threads: it is not the sum of the units that were read.
#[test]
fn a_disk_that_breaks_releases_nothing() {
    let mechanism = sum(11, 0.8, 1.5, None);
    for threads in [1, 3] {
        for breaks_at in [0, 1, 2] {
            let pieces = Pieces::of(Rows(rows(13_000)), copies).breaking_at(breaks_at);
            let units = Units::stored(Box::new(pieces)).on_threads(NonZeroUsize::new(threads).unwrap());
            let result = mechanism.release_sum(&units, &Argument::nothing(), entries, permit(&mechanism), &Seeded(1));
            assert!(matches!(result, Err(ReleaseError::Unread(_))), "{threads} threads, read {breaks_at}");
        }
    }
}
