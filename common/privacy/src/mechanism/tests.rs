//! The lattice mechanism against its claims.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand_core::Rng;

mod cells;
mod epochs;
mod gate;
mod partial_sums;
mod state;
mod threads;

use super::block::{Block, Clipping};
use super::lattice::Lattice;
use super::*;
use crate::ledger::{Permit, StepPermit};
use crate::noise::{NoiseSource, Purpose};
use crate::records::{Argument, Sensitive};
use crate::sampler::gaussian::bound;
use crate::shards::{PermitScope, ShardSalt};
use crate::{SecureNoise, UnitTable, Units};
use dp_pvi_accounting::adjacency::PrivacyUnit;
use dp_pvi_accounting::{ClipNorm, Delta, DpEvent, LatticePath, NoiseMultiplier, Relation, SamplingRate, Terms, epsilon_upper};
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_unsealed::Sealed;

/// Streams that depend on their arguments only; lives in tests.
struct Seeded(u8);

impl Sealed for Seeded {}

impl NoiseSource for Seeded {
    type Stream = ChaCha20Rng;
    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        Ok(ChaCha20Rng::from_seed(Hash::of("test", &[&[self.0], format!("{release}/{step}/{purpose:?}").as_bytes()]).0))
    }
}

/// Randomness that is not there.
struct Broken;

impl Sealed for Broken {}

impl NoiseSource for Broken {
    type Stream = ChaCha20Rng;
    fn stream(&self, _: &ReleaseId, _: u64, _: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        Err(NoRandomness)
    }
}

struct Rows(Vec<Vec<(u32, f64)>>);

impl UnitTable for Rows {
    type Unit<'a> = &'a [(u32, f64)];
    fn len(&self) -> usize {
        self.0.len()
    }
    fn unit(&self, position: usize) -> Self::Unit<'_> {
        &self.0[position]
    }
}

fn fill(row: &[(u32, f64)], term: &mut Term) {
    for &(index, value) in row {
        term.add(index, value);
    }
}

/// Every unit's own entries.
fn entries(&(): &(), sum: Summation<'_, Rows>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|row, _, (), term| fill(row, term)))
}

/// One release, without an argument.
fn run(mechanism: &LatticeSum, rows: Vec<Vec<(u32, f64)>>, permit: StepPermit, noise: &impl NoiseSource) -> Result<Vec<i64>, ReleaseError> {
    let released = mechanism.release_sum(&Units::new(Rows(rows)), &Argument::nothing(), entries, permit, noise)?;
    Ok(released.into_inner().values)
}

fn sum(dimension: u32, clip: f64, noise: f64, rate: Option<f64>) -> LatticeSum {
    LatticeSum::new(
        dimension,
        ClipNorm::new(clip).unwrap(),
        NoiseMultiplier::new(noise).unwrap(),
        rate.map(|q| SamplingRate::nearest(q).unwrap()),
        Terms::Units,
        LatticePath::Term,
    )
    .unwrap()
}

fn release_id() -> ReleaseId {
    ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client: ClientId::new("here").unwrap(), round: 0 }
}

fn scope(unit: PrivacyUnit, relation: Relation) -> PermitScope {
    PermitScope { unit, relation, salt: ShardSalt::new([5; 32]) }
}

fn mint(event: DpEvent) -> Permit {
    Permit::mint(event, release_id(), scope(PrivacyUnit::Record, Relation::AddRemove))
}

fn permit(mechanism: &LatticeSum) -> StepPermit {
    mint(mechanism.event()).into_steps().next().unwrap()
}

fn release(mechanism: &LatticeSum, rows: &[Vec<(u32, f64)>], seed: u8) -> Vec<i64> {
    run(mechanism, rows.to_vec(), permit(mechanism), &Seeded(seed)).unwrap()
}

/// One clipped, truncated term.
fn one(term: &[(u32, f64)], dimension: usize, clip: f64, lattice: &Lattice) -> Vec<i64> {
    let (mut sums, mut block) = (vec![0; dimension], Block::default());
    fill(term, block.term());
    let clipping = Clipping::new(clip, lattice, Terms::Units);
    block.push(0, &mut sums, &clipping, None);
    block.add(&mut sums, &clipping, None);
    sums
}

fn squared_distance(a: &[i64], b: &[i64]) -> u128 {
    a.iter().zip(b).map(|(x, y)| u128::from(x.abs_diff(*y)).pow(2)).sum()
}

/// Whatever two terms are, their integer images have norm ≤ C_int and differ by at most 2·C_int, exactly.
#[test]
fn integer_sensitivity_holds_for_a_million_random_and_adversarial_pairs() {
    let mut rng = ChaCha20Rng::from_seed([31; 32]);
    let mut unit = || {
        #[allow(clippy::cast_precision_loss, reason = "random test numbers")]
        let x = (rng.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0;
        x
    };
    let specials = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        1e154,
        1e155,
        1e-160,
        0.1,
        1.0 / 3.0,
    ];
    let lattices = [(1.0, 1.0), (0.1, 5.43), (3.7, 0.002), (1e-9, 30.0), (2f64.sqrt(), 1.3), (1.0 / 3.0, 64.0)]
        .map(|(c, z)| (c, Lattice::new(ClipNorm::new(c).unwrap(), NoiseMultiplier::new(z).unwrap()).unwrap()));
    let mut saturated = 0u32;
    for case in 0..1_000_000u32 {
        let (clip, lattice) = &lattices[case as usize % lattices.len()];
        let dimension = 1 + (case as usize / 7) % 6;
        let mut draw = || -> Vec<(u32, f64)> {
            let length = 1 + (unit() * 2.0 * dimension as f64) as usize;
            let kind = unit();
            (0..length)
                .map(|i| {
                    // Mostly ascending, now and then out of order, repeated or beyond the sum.
                    let index = if unit() < 0.8 { i % dimension } else { (unit() * (dimension as f64 + 0.05)) as usize };
                    let size = if kind < 0.5 { *clip } else { clip * 10f64.powf(8.0 * unit() - 4.0) };
                    let value =
                        if unit() < 0.1 { specials[(unit() * specials.len() as f64) as usize] } else { (2.0 * unit() - 1.0) * size };
                    (index as u32, value)
                })
                .collect()
        };
        let a = draw();
        // The worst partner: the opposite of the same term.
        let b = if case % 2 == 0 { a.iter().map(|&(i, x)| (i, -x)).collect() } else { draw() };
        let (a, b) = (one(&a, dimension, *clip, lattice), one(&b, dimension, *clip, lattice));
        let zero = vec![0; dimension];
        let (norm_a, norm_b) = (squared_distance(&a, &zero), squared_distance(&b, &zero));
        assert!(norm_a <= lattice.bound_squared && norm_b <= lattice.bound_squared, "case {case}");
        assert!(squared_distance(&a, &b) <= 4 * lattice.bound_squared, "case {case}");
        saturated += u32::from(squared_distance(&a, &b) * 100 > 399 * lattice.bound_squared);
    }
    assert!(saturated > 10_000, "the bound was hardly ever approached: {saturated}");
}

#[test]
fn clipping_loses_less_than_a_lattice_step_and_keeps_what_fits() {
    let lattice = Lattice::new(ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(1.0).unwrap()).unwrap();
    let steps = 1_048_576.0;
    // Inside the ball: plain truncation toward zero.
    assert_eq!(one(&[(0, 0.6), (2, -0.79999999)], 3, 1.0, &lattice), [(0.6 * steps) as i64, 0, (-0.79999999 * steps) as i64]);
    // On the sphere exactly.
    assert_eq!(one(&[(0, 1.0)], 1, 1.0, &lattice), [1 << 20]);
    // Outside: (3, 4) becomes (0.6, 0.8) up to one step.
    let clipped = one(&[(0, 3.0), (1, 4.0)], 2, 1.0, &lattice);
    for (x, expected) in clipped.iter().zip([0.6, 0.8]) {
        assert!((*x as f64 - expected * steps).abs() <= 1.0, "{clipped:?}");
    }
}

#[test]
fn what_falls_on_one_coordinate_accumulates_before_the_clip() {
    let lattice = Lattice::new(ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(1.0).unwrap()).unwrap();
    // +5 and −4.5 are 0.5: not clipped. Clipped one by one they would cancel.
    assert_eq!(one(&[(1, 5.0), (0, 0.25), (1, -4.5)], 2, 1.0, &lattice), [1 << 18, 1 << 19]);
    // Twice 1 on one coordinate is 2: clipped to one unit, not two.
    assert!(one(&[(0, 1.0), (0, 1.0)], 1, 1.0, &lattice)[0] <= 1 << 20);
    // Bulk and single additions are the same.
    let (mut sums, mut block, clipping) = (vec![0; 2], Block::default(), Clipping::new(1.0, &lattice, Terms::Units));
    block.term().add(0, 0.25);
    block.term().add(0, 0.25);
    let term = block.term();
    term.add(0, 0.25);
    term.extend([(1, 5.0), (1, -4.5)].into_iter());
    block.push(0, &mut sums, &clipping, None);
    block.add(&mut sums, &clipping, None);
    assert_eq!(sums, [1 << 18, 1 << 19]);
}

#[test]
fn terms_that_are_not_finite_or_do_not_fit_count_as_zero() {
    let lattice = Lattice::new(ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(1.0).unwrap()).unwrap();
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e200] {
        assert_eq!(one(&[(0, 0.5), (1, bad)], 2, 1.0, &lattice), [0, 0], "{bad}");
    }
    assert_eq!(one(&[(1, f64::INFINITY), (1, f64::NEG_INFINITY), (0, 0.5)], 2, 1.0, &lattice), [0, 0]);
    assert_eq!(one(&[(0, 0.5), (2, 0.1)], 2, 1.0, &lattice), [0, 0]);
    assert_eq!(one(&[(0, 0.5), (u32::MAX, 0.1)], 2, 1.0, &lattice), [0, 0]);
    assert_eq!(one(&[(u32::MAX, 0.1), (0, 0.5)], 2, 1.0, &lattice), [0, 0]);
    assert_eq!(one(&[], 2, 1.0, &lattice), [0, 0]);
}

/// The worst case that `new` admits stays below 2⁶³, and the addition itself is checked.
#[test]
fn the_worst_admitted_sum_does_not_wrap() {
    let mut noise = 1.0;
    while Lattice::new(ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(noise / 2.0).unwrap()).is_ok() {
        noise /= 2.0;
    }
    let lattice = Lattice::new(ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(noise).unwrap()).unwrap();
    let largest_term = one(&[(0, 1e300_f64.sqrt())], 1, 1.0, &lattice)[0].max(one(&[(0, 1.0)], 1, 1.0, &lattice)[0]);
    let worst = i128::from(largest_term) * i128::from(MAX_UNITS) + i128::from(bound(lattice.scale));
    assert!(worst < 1 << 63 && worst > 1 << 61, "{worst}");
    // Many units at the bound with the smallest admitted noise, through the real release.
    let mechanism = sum(2, 1.0, noise, None);
    let rows = vec![vec![(0, 1e100), (1, 0.0)]; 100_000];
    let released = release(&mechanism, &rows, 1);
    let expected = i128::from(one(&[(0, 1e100)], 1, 1.0, &lattice)[0]) * 100_000;
    assert!((i128::from(released[0]) - expected).unsigned_abs() <= u128::from(bound(lattice.scale)));
}

#[test]
fn the_release_is_the_exact_integer_sum_plus_noise_that_does_not_depend_on_data() {
    let mechanism = sum(3, 0.5, 4.0, None);
    let lattice = Lattice::new(ClipNorm::new(0.5).unwrap(), NoiseMultiplier::new(4.0).unwrap()).unwrap();
    let rows = [vec![(0, 0.1), (2, -0.3)], vec![(1, 7.0)], vec![(0, f64::NAN)], vec![(0, 0.2), (1, 0.2), (2, 0.2)]];
    let noise = release(&mechanism, &[], 5);
    let released = release(&mechanism, &rows, 5);
    let mut expected = noise.clone();
    for row in &rows {
        expected.iter_mut().zip(one(row, 3, 0.5, &lattice)).for_each(|(sum, x)| *sum += x);
    }
    assert_eq!(released, expected);
    assert!(noise.iter().all(|&y| y != 0 && y.unsigned_abs() <= bound(lattice.scale)), "{noise:?}");
    assert_ne!(noise, release(&mechanism, &[], 6));
}

/// Every unit is in with probability q, independently of the others and of the noise: 400 releases of 1,000 units.
#[test]
fn sampled_releases_include_every_unit_with_probability_q() {
    let rate = 0.2;
    let mechanism = sum(1, 1.0, 1.0, Some(rate));
    let rows = vec![vec![(0, 1.0)]; 1000];
    let mut total = 0.0;
    let mut squares = 0.0;
    for step in 0..400 {
        let permit = mint(mechanism.event().repeated(400)).into_steps().nth(step).unwrap();
        let again = mint(mechanism.event().repeated(400)).into_steps().nth(step).unwrap();
        let values = |rows: Vec<_>, permit| run(&mechanism, rows, permit, &Seeded(9)).unwrap()[0];
        let included = (values(rows.clone(), permit) - values(Vec::new(), again)) as f64 / 1_048_576.0;
        assert!((included - included.round()).abs() < 1e-9);
        total += included;
        squares += (included - 1000.0 * rate) * (included - 1000.0 * rate);
    }
    let sd = (1000.0 * rate * (1.0 - rate)).sqrt();
    assert!((total / 400.0 - 1000.0 * rate).abs() < 4.0 * sd / 20.0, "{total}");
    // The spread is that of independent coins.
    assert!((squares / 400.0 / (sd * sd) - 1.0).abs() < 4.0 * (2.0 / 400f64).sqrt(), "{squares}");
}

/// The event that breaks textbook floating-point noise ("off the lattice") never happens, for x = 0 and x = 1.
#[test]
fn a_million_outputs_lie_on_the_lattice_in_both_worlds() {
    for (data_set, dimension, z) in [(0.0, 500_000, 1.0), (1.0, 500_000, 0.9)] {
        let mechanism = sum(dimension, 1.0, z, None);
        let rows = vec![(0..dimension).map(|i| (i, data_set)).collect::<Vec<_>>()];
        let step = 2f64.powi(mechanism.exponent());
        let values = run(&mechanism, rows, permit(&mechanism), &SecureNoise).unwrap();
        let released = dp_pvi_names::LatticeVector { exponent: mechanism.exponent(), values };
        let off = released.to_f64().iter().filter(|x| (*x / step).fract() != 0.0).count();
        assert_eq!(off, 0);
        let mean_square = released.to_f64().iter().map(|x| x * x).sum::<f64>() / f64::from(dimension);
        assert!((mean_square / (z * z) - 1.0).abs() < 0.02, "data set {data_set}: {mean_square}");
    }
}

/// The other coordinates are 0 whatever the records hold; those that are released have value and noise, and the event is that of all.
#[test]
fn of_some_coordinates_the_others_are_constants() {
    let whole = sum(6, 2.0, 1.0, None);
    let some = whole.clone().on(vec![1, 3, 4]).unwrap();
    assert_eq!(some.event(), whole.event());
    let rows = [vec![(0, 0.5), (1, 0.25), (2, -1.0), (3, 0.5), (5, 1.0)], vec![(4, -0.5), (2, 0.5)]];
    for seed in 0..20 {
        let (full, empty) = (release(&some, &rows, seed), release(&some, &[], seed));
        assert_eq!([full[0], full[2], full[5]], [0; 3]);
        let step = 2f64.powi(some.exponent());
        let values: Vec<f64> = [1, 3, 4].iter().map(|&j| (full[j] - empty[j]) as f64 * step).collect();
        for (value, expected) in values.iter().zip([0.25, 0.5, -0.5]) {
            assert!((value - expected).abs() <= step, "{value} {expected}");
        }
        assert!([1, 3, 4].iter().all(|&j| empty[j] != 0), "noise of scale 2^20 is not 0");
    }
    assert!(whole.clone().on(vec![3, 1]).is_err() && whole.on(vec![6]).is_err());
}

#[test]
fn a_permit_for_another_event_releases_nothing() {
    let mechanism = sum(3, 1.0, 1.0, Some(0.5));
    for other in [sum(3, 1.0, 1.0, None), sum(3, 1.0, 1.0, Some(0.25)), sum(4, 1.0, 1.0, Some(0.5)), sum(3, 1.0, 2.0, Some(0.5))] {
        // The source is broken: an error other than a mismatch would show that something was drawn first.
        let result = run(&mechanism, Vec::new(), permit(&other), &Broken);
        assert!(matches!(result, Err(ReleaseError::PermitMismatch)));
    }
    let whole = mint(mechanism.event());
    let value = Units::new(Rows(Vec::new())).map(&Argument::nothing(), |(), _| 3.0);
    assert!(matches!(release_non_private(value, whole), Err(ReleaseError::PermitMismatch)));
    let value = Units::new(Rows(Vec::new())).map(&Argument::nothing(), |(), _| 3.0);
    let released = release_non_private(value, mint(DpEvent::NonPrivate)).unwrap();
    assert!((released.into_inner() - 3.0_f64).abs() < f64::EPSILON);
}

/// No randomness, no release.
#[test]
fn a_failing_generator_releases_nothing() {
    let mechanism = sum(3, 1.0, 1.0, Some(0.5));
    let result = run(&mechanism, Vec::new(), permit(&mechanism), &Broken);
    assert!(matches!(result, Err(ReleaseError::NoRandomness(_))));
}

#[test]
fn the_event_says_what_ran() {
    let mechanism = sum(7, 1.0, 2.0, Some(0.5));
    let DpEvent::PoissonSampled { rate, event } = mechanism.event() else { panic!("not sampled") };
    let DpEvent::DiscreteGaussian(noise) = *event else { panic!("not discrete") };
    assert_eq!((rate.numerator(), noise.dimension, noise.scale, noise.bound_squared, noise.exponent), (1 << 31, 7, 1 << 20, 1 << 38, -19));
    assert!((noise.sensitivity_ratio(Relation::AddRemove) - 0.5).abs() < 1e-12);
    assert!((noise.sensitivity_ratio(Relation::ReplaceOne) - 1.0).abs() < 1e-12);
    let refused = LatticeSum::new(7, ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(1.0).unwrap(), None, Terms::Units, LatticePath::Sum);
    assert!(refused.unwrap_err().to_string().contains("path `term`"));
}

/// A unit whose function panics contributes 0; the others are summed, and the site goes on.
#[test]
fn a_unit_that_panics_contributes_nothing() {
    let rows = vec![vec![(0, 0.25)], vec![(7, 0.0)], vec![(1, 0.5)], vec![(7, 0.0)]];
    let panics: fn(&(), Summation<'_, Rows>) -> Result<Summed, ReleaseError> = |(), sum| {
        Ok(sum.each(|row, position, (), term| {
            fill(row, term);
            assert!(row[0].0 != 7, "row {position} is {row:?}");
        }))
    };
    for sampled in [None, Some(1.0)] {
        let mechanism = sum(3, 1.0, 1.0, sampled);
        let (units, nothing) = (Units::new(Rows(rows.clone())), Argument::nothing());
        let (released, kept) =
            mechanism.release_sum_keeping(&units, &crate::Sensitive::NOTHING, &nothing, panics, permit(&mechanism), &Seeded(5)).unwrap();
        let expected = release(&mechanism, &[rows[0].clone(), rows[2].clone()], 5);
        assert_eq!(released.into_inner().values, expected);
        assert_eq!(kept.value().unwrap().to_dense(), [[0.25, 0.0, 0.0], [0.0; 3], [0.0, 0.5, 0.0], [0.0; 3]].concat());
    }
}

/// What a function says after it looked at a record is not heard; before, it is.
#[test]
fn an_error_after_a_record_was_looked_at_is_not_heard() {
    #[derive(Debug)]
    enum Told {
        Before,
        Record(f64),
        Release,
    }
    impl From<ReleaseError> for Told {
        fn from(_: ReleaseError) -> Self {
            Self::Release
        }
    }
    let mechanism = sum(1, 1.0, 1.0, None);
    let rows = || Units::new(Rows(vec![vec![(0, 0.25)]]));
    let nothing = Argument::nothing();
    let early = mechanism.release_sum(&rows(), &nothing, |(), _| Err(Told::Before), permit(&mechanism), &Seeded(5));
    assert!(matches!(early, Err(Told::Before)));
    let late = mechanism.release_sum(
        &rows(),
        &nothing,
        |(), sum| {
            let seen = std::cell::Cell::new(0.0);
            let _ = sum.each(|row, _, (), term| {
                seen.set(row[0].1);
                fill(row, term);
            });
            Err(Told::Record(seen.get()))
        },
        permit(&mechanism),
        &Seeded(5),
    );
    match late {
        Ok(sum) => assert_eq!(sum.into_inner().values, release(&mechanism, &[vec![(0, 0.25)]], 5)),
        Err(Told::Record(seen)) => panic!("told of {seen}"),
        Err(told) => panic!("{told:?}"),
    }
    let panics = mechanism.release_sum(&rows(), &nothing, |(), _| panic!("before a record"), permit(&mechanism), &Seeded(5));
    assert!(matches!(panics, Err(Told::Release)));
}

/// Shares of tables of any size lie within the bound that the ring was made for, and neighbours are as near as before.
#[test]
fn a_shared_sum_of_too_many_units_is_brought_into_its_box() {
    let shared = ShareSum::new(2, ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(2.0).unwrap(), 1, 10, None, Terms::Units).unwrap();
    let event = shared.event();
    let share = |units: usize, last: f64| {
        let mut rows = vec![vec![(0, 0.75), (1, -0.25)]; units];
        rows.push(vec![(0, last)]);
        let permit = mint(event.clone()).with_fallback(Some(shared.fallback_event())).into_steps().next().unwrap();
        let share = shared.share_sum(&Units::new(Rows(rows)), &Argument::nothing(), entries, permit, &Seeded(3)).unwrap();
        share.mask(&mut Zeros).into_inner().values
    };
    let noise = share(0, 0.0);
    let one = shared.clip_steps().cast_signed();
    let of = |units, last| -> Vec<i64> { share(units, last).iter().zip(&noise).map(|(x, noise)| x - noise).collect() };
    assert_eq!(of(9, 0.75), [10 * one / 4 * 3, -9 * one / 4]);
    // 100 units that agree, where 10 are declared.
    assert_eq!(of(100, 0.0), [10 * one, -10 * one]);
    for units in [9, 10, 12, 13, 14, 39, 40, 41, 100] {
        for last in [-1.0, 1.0] {
            let (a, b) = (of(units, 0.0), of(units, last));
            assert!(squared_distance(&a, &b) <= u128::from(shared.clip_steps()).pow(2), "{units} {last}");
            assert!(b.iter().all(|x| x.unsigned_abs() <= 10 * shared.clip_steps()));
        }
    }
}

/// A site declares 3 units and has 4,000: its honest sum is beyond what a receiver takes of 3. What it releases is within.
#[test]
fn an_honest_site_with_more_units_than_declared_is_never_turned_away() {
    let mechanism = sum(3, 1.0, 1.0, None);
    let bound = SumBound::of_event(&mechanism.event(), 3).unwrap();
    let released = |units: usize, declared: Option<u64>| {
        let units = Units::new(Rows(vec![vec![(0, 0.75), (2, -0.25)]; units]));
        let units = match declared {
            Some(declared) => units.over_slots(declared),
            None => units,
        };
        let sum = || mechanism.release_sum(&units, &Argument::nothing(), entries, permit(&mechanism), &Seeded(3)).unwrap().into_inner();
        let kept =
            mechanism.release_sum_keeping(&units, &Sensitive::NOTHING, &Argument::nothing(), entries, permit(&mechanism), &Seeded(3));
        assert_eq!(kept.unwrap().0.into_inner(), sum());
        sum().values
    };
    assert!(!bound.admits(&released(4000, None)), "without the declared number it is too long");
    assert!(bound.admits(&released(4000, Some(3))));
    // With no more units than declared not a bit changes.
    for units in 0..=3 {
        assert_eq!(released(units, Some(3)), released(units, None));
    }
}

/// A pad that hides nothing.
struct Zeros;

impl rand_core::TryRng for Zeros {
    type Error = std::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(0)
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(0)
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.fill(0);
        Ok(())
    }
}

impl rand_core::TryCryptoRng for Zeros {}

/// The lattice's ε is that of the continuous noise with the margin, up to the rounding of the scale.
#[test]
fn lattice_events_cost_what_the_continuous_ones_do() {
    let clip = ClipNorm::new(0.37).unwrap();
    for (z, q) in [(1.0, None), (3.73, None), (5.0, Some(0.05)), (1.3, Some(0.01))] {
        let rate = q.map(|q| SamplingRate::nearest(q).unwrap());
        let z = NoiseMultiplier::new(z).unwrap();
        let lattice = LatticeSum::new(3, clip, z, rate, Terms::Units, LatticePath::Term).unwrap().event();
        for relation in [Relation::AddRemove, Relation::ReplaceOne] {
            let delta = Delta::new(1e-6).unwrap();
            let discrete = epsilon_upper([&lattice], relation, delta).unwrap();
            let gaussian = DpEvent::Gaussian { noise: z, terms: Terms::Units };
            let continuous = match rate {
                None => gaussian,
                Some(rate) => DpEvent::PoissonSampled { rate, event: Box::new(gaussian) },
            };
            let continuous = epsilon_upper([&continuous], relation, delta).unwrap();
            assert!((discrete.epsilon.get() / continuous.epsilon.get() - 1.0).abs() < 1e-5, "{discrete:?} {continuous:?}");
            assert!(discrete.numerical_margin && !continuous.numerical_margin);
        }
    }
}
