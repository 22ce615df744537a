//! Sums of terms whose first coordinates are never negative: the rule, on the integers that are added.

use std::num::NonZeroUsize;

use super::*;
use crate::stored::tests::Pieces;

/// Q of integers.
fn size(x: &[i64], cells: usize) -> u128 {
    x.iter().enumerate().map(|(j, x)| u128::from(x.unsigned_abs()).pow(2) * if j < cells { 1 } else { 2 }).sum()
}

/// One clipped, truncated term of a sum with so many cells.
fn checked(term: &[(u32, f64)], (dimension, cells): (usize, usize), clip: f64, lattice: &Lattice) -> Vec<i64> {
    let (mut sums, mut block) = (vec![0; dimension], Block::default());
    fill(term, block.term());
    let clipping = Clipping::new(clip, lattice, Terms::Cells { cells: cells as u32 });
    block.push(0, &mut sums, &clipping, None);
    block.add(&mut sums, &clipping, None);
    sums
}

fn of_cells(dimension: u32, cells: u32, clip: f64, noise: f64) -> LatticeSum {
    let (clip, noise) = (ClipNorm::new(clip).unwrap(), NoiseMultiplier::new(noise).unwrap());
    LatticeSum::new(dimension, clip, noise, None, Terms::Cells { cells }, LatticePath::Term).unwrap()
}

/// Whatever two terms are, their integers keep to the rule and differ by at most √2 of the bound, exactly.
#[test]
fn lemma_1_holds_for_a_million_random_and_adversarial_pairs() {
    let mut rng = ChaCha20Rng::from_seed([32; 32]);
    let mut unit = || {
        #[allow(clippy::cast_precision_loss, reason = "random test numbers")]
        let x = (rng.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0;
        x
    };
    let specials =
        [0.0, -0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324, -5e-324, -1e-9, 1e154, 1e155, 0.1, 1.0 / 3.0];
    let lattices = [(1.0, 1.0), (0.1, 5.43), (3.7, 0.002), (1e-9, 30.0), (2f64.sqrt(), 1.3), (1.0 / 3.0, 64.0)]
        .map(|(c, z)| (c, Lattice::new(ClipNorm::new(c).unwrap(), NoiseMultiplier::new(z).unwrap()).unwrap()));
    let (mut saturated, mut nothing) = (0u32, 0u32);
    for case in 0..1_000_000u32 {
        let (clip, lattice) = &lattices[case as usize % lattices.len()];
        let dimension = 1 + (case as usize / 7) % 6;
        let cells = (case as usize / 42) % (dimension + 1);
        let mut draw = || -> Vec<(u32, f64)> {
            let length = 1 + (unit() * 2.0 * dimension as f64) as usize;
            let (kind, signs) = (unit(), unit());
            (0..length)
                .map(|i| {
                    let index = if unit() < 0.8 { i % dimension } else { (unit() * (dimension as f64 + 0.05)) as usize };
                    let size = if kind < 0.5 { *clip } else { clip * 10f64.powf(8.0 * unit() - 4.0) };
                    let value =
                        if unit() < 0.1 { specials[(unit() * specials.len() as f64) as usize] } else { (2.0 * unit() - 1.0) * size };
                    // Mostly as the rule has it, else any sign.
                    (index as u32, if signs < 0.8 && index < cells { value.abs() } else { value })
                })
                .collect()
        };
        let a = draw();
        // The worst partner: the opposite where a sign is free, and another cell.
        let b: Vec<_> = if case % 2 == 0 {
            let moved = |i: u32| if (i as usize) < cells { (i + 1) % cells as u32 } else { i };
            a.iter().map(|&(i, x)| (moved(i), if (i as usize) < cells { x } else { -x })).collect()
        } else {
            draw()
        };
        let [a, b] = [a, b].map(|term| checked(&term, (dimension, cells), *clip, lattice));
        for x in [&a, &b] {
            assert!(x[..cells].iter().all(|x| *x >= 0), "case {case}");
            assert!(size(x, cells) <= lattice.bound_squared, "case {case}");
            nothing += u32::from(x.iter().all(|x| *x == 0));
        }
        assert!(squared_distance(&a, &b) <= 2 * lattice.bound_squared, "case {case}");
        saturated += u32::from(squared_distance(&a, &b) * 100 > 199 * lattice.bound_squared);
    }
    assert!(saturated > 10_000, "the bound was hardly ever approached: {saturated}");
    assert!(nothing > 100_000 && nothing < 1_000_000, "terms that count as zero: {nothing}");
}

#[test]
fn a_term_with_a_negative_cell_counts_as_zero() {
    let lattice = Lattice::new(ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(1.0).unwrap()).unwrap();
    let one = |term: &[(u32, f64)]| checked(term, (4, 2), 1.0, &lattice);
    let steps = 1 << 20;
    // Q = 0.25 + 2·0.25: nothing is shortened, and signed coordinates have any sign.
    assert_eq!(one(&[(0, 0.5), (3, -0.5)]), [steps / 2, 0, 0, -steps / 2]);
    assert_eq!(one(&[(1, 1.0)]), [0, steps, 0, 0]);
    for negative in [-1.0, -0.5, -1.0 / 1_048_576.0, -1e-6] {
        assert_eq!(one(&[(0, 0.5), (1, negative), (3, 0.5)]), [0; 4], "{negative}");
    }
    // Less than a step below zero is truncated to zero; so is what cancels.
    assert_eq!(one(&[(0, 0.5), (1, -0.9 / 1_048_576.0)]), [steps / 2, 0, 0, 0]);
    assert_eq!(one(&[(0, 0.5), (1, -1.0), (1, 1.25)]), [steps / 2, steps / 4, 0, 0]);
    // A signed coordinate alone may be 1/√2; longer terms are shortened by √Q.
    let shortened = one(&[(0, 3.0), (2, -4.0)]);
    let root = (9.0f64 + 2.0 * 16.0).sqrt();
    for (x, expected) in shortened.iter().zip([3.0 / root, 0.0, -4.0 / root, 0.0]) {
        assert!((*x as f64 - expected * f64::from(steps as i32)).abs() <= 1.0, "{shortened:?}");
    }
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e200] {
        assert_eq!(one(&[(0, 0.5), (1, bad)]), [0; 4]);
        assert_eq!(one(&[(0, 0.5), (2, bad)]), [0; 4]);
    }
}

/// The event says the rule and the number of cells, and its sensitivity is that of the lemma.
#[test]
fn the_event_of_a_sum_of_cells_says_so() {
    let (cells, units) = (of_cells(5, 3, 2.0, 4.0), sum(5, 2.0, 4.0, None));
    let [DpEvent::DiscreteGaussian(of_cells), DpEvent::DiscreteGaussian(of_units)] = [cells.event(), units.event()] else { panic!() };
    assert_eq!(of_cells.terms, Terms::Cells { cells: 3 });
    assert_eq!(dp_pvi_accounting::DiscreteGaussian { terms: Terms::Units, ..of_cells }, of_units);
    let ratio = |relation| of_cells.sensitivity_ratio(relation) / of_units.sensitivity_ratio(relation);
    assert!(ratio(Relation::AddRemove) == 1.0 && (ratio(Relation::ReplaceOne) * 2f64.sqrt() - 1.0).abs() < 1e-15);
    // A permit for units is none for cells, nor one for another number of cells.
    for other in [units, self::of_cells(5, 2, 2.0, 4.0)] {
        assert!(matches!(run(&cells, Vec::new(), permit(&other), &Broken), Err(ReleaseError::PermitMismatch)));
    }
}

#[test]
fn what_no_sum_of_cells_can_be_is_refused() {
    let (clip, noise) = (ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(1.0).unwrap());
    let new = |sampling, cells| LatticeSum::new(4, clip, noise, sampling, Terms::Cells { cells }, LatticePath::Term);
    assert!(new(None, 4).is_ok() && new(None, 0).is_ok());
    assert!(new(None, 5).unwrap_err().to_string().contains("no more cells than coordinates"));
    let rate = Some(SamplingRate::nearest(0.5).unwrap());
    assert!(new(rate, 4).unwrap_err().to_string().contains("no sample of it"));
    assert!(new(None, 4).unwrap().in_batches(3).is_err());
    assert!(ShareSum::new(4, clip, noise, 3, 10, rate, Terms::Cells { cells: 2 }).is_err());
    assert!(BatchSum::new(4, clip, noise, None, Terms::Cells { cells: 2 }, 10).unwrap_err().to_string().contains("no cells"));
}

/// Terms of every kind: some with a negative cell, some too long.
fn rows(units: u32) -> Vec<Vec<(u32, f64)>> {
    let row = |unit: u32| {
        let word = |i: u32| unit.wrapping_mul(2_654_435_761).wrapping_add(i.wrapping_mul(40_503)).rotate_left(i);
        let value = |i: u32| f64::from(word(i) % 20_011) / 16_000.0 - if unit.is_multiple_of(5) || i > 3 { 0.6 } else { 0.0 };
        (0..6).map(|i| (i, value(i))).collect()
    };
    (0..units).map(row).collect()
}

/// The sum is that of the terms, each by itself, whatever the threads, in memory or read window by window, and with or without kept terms.
#[test]
fn a_sum_of_cells_has_the_same_bits_on_any_number_of_threads() {
    let (rows, mechanism) = (rows(3_001), of_cells(6, 4, 0.8, 1.5).of_long_terms());
    let lattice = Lattice::new(ClipNorm::new(0.8).unwrap(), NoiseMultiplier::new(1.5).unwrap()).unwrap();
    let mut expected = release(&mechanism, &[], 9);
    let mut zero = 0;
    for row in &rows {
        let term = checked(row, (6, 4), 0.8, &lattice);
        zero += usize::from(term.iter().all(|x| *x == 0));
        expected.iter_mut().zip(term).for_each(|(sum, x)| *sum += x);
    }
    assert!((100..1_000).contains(&zero), "{zero} units have a negative cell");
    for threads in [1, 2, 7, 64] {
        let window = |rows: &Rows, positions: &[usize]| Rows(positions.iter().map(|position| rows.0[*position].clone()).collect());
        let stored = Units::stored(Box::new(Pieces::of(Rows(rows.clone()), window))).on_threads(NonZeroUsize::new(threads).unwrap());
        let read = mechanism.release_sum(&stored, &Argument::nothing(), entries, permit(&mechanism), &Seeded(9)).unwrap();
        assert_eq!(read.into_inner().values, expected, "{threads} threads, window by window");
        let table = Units::new(Rows(rows.clone())).on_threads(NonZeroUsize::new(threads).unwrap());
        let nothing = Argument::nothing();
        let (noised, kept) =
            mechanism.release_sum_keeping(&table, &Sensitive::NOTHING, &nothing, entries, permit(&mechanism), &Seeded(9)).unwrap();
        assert_eq!(noised.into_inner().values, expected, "{threads}");
        let kept = kept.into_value().unwrap().to_dense();
        assert!(kept.chunks(6).all(|term| term[..4].iter().all(|x| *x >= 0.0)));
    }
}

/// A share of the noise instead of all of it: the same integers under the mask, and the event of the sum has the rule.
#[test]
fn a_shared_sum_of_cells_is_the_local_sum_with_other_noise() {
    let (clip, noise, terms) = (ClipNorm::new(0.8).unwrap(), NoiseMultiplier::new(1.5).unwrap(), Terms::Cells { cells: 4 });
    let mechanism = ShareSum::new(6, clip, noise, 4, 200, None, terms).unwrap();
    let values = |rows: Vec<_>| {
        let permit = mint(mechanism.event()).with_fallback(Some(mechanism.fallback_event())).into_steps().next().unwrap();
        let share = mechanism.share_sum(&Units::new(Rows(rows)), &Argument::nothing(), entries, permit, &Seeded(2)).unwrap();
        share.mask(&mut ChaCha20Rng::from_seed([1; 32])).into_inner().values
    };
    let lattice = Lattice::new(clip, NoiseMultiplier::new((1.5f64 / 2.0).next_up().next_up()).unwrap()).unwrap();
    let mut expected = values(Vec::new());
    for row in rows(200) {
        expected.iter_mut().zip(checked(&row, (6, 4), 0.8, &lattice)).for_each(|(sum, x)| *sum = sum.wrapping_add(x));
    }
    assert_eq!(values(rows(200)), expected);
    let DpEvent::DiscreteGaussian(event) = mechanism.event() else { panic!() };
    assert_eq!((event.terms, event.bound_squared), (terms, lattice.bound_squared.div_ceil(4)));
}
