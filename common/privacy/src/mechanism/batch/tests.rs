//! The path `sum` against its claims, with a small model that keeps its promises and some that do not.

use std::cell::RefCell;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::ledger::Permit;
use crate::noise::NoRandomness;
use crate::shards::{PermitScope, ShardSalt};
use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_unsealed::Sealed;

const D: usize = 4;

struct Rows(Vec<[f64; D]>);

impl UnitTable for Rows {
    type Unit<'a> = &'a [f64; D];
    fn len(&self) -> usize {
        self.0.len()
    }
    fn unit(&self, position: usize) -> &[f64; D] {
        &self.0[position]
    }
}

/// How a model breaks its promises.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Fault {
    None,
    Norm,
    Company,
    Factors,
    Silent,
}

/// The term of a row is the row itself, with the sign of the unit's own coin.
#[derive(Serialize, Deserialize)]
struct Model {
    chunk: usize,
    coins: bool,
    fault: Fault,
}

thread_local! {
    /// Units of every call of [`Model::norms`]: a test may look.
    static CALLS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl Model {
    fn new(chunk: usize) -> Self {
        Self { chunk, coins: false, fault: Fault::None }
    }

    fn broken(fault: Fault) -> Self {
        Self { fault, coins: true, ..Self::new(100) }
    }
}

impl BatchTerms<Rows> for Model {
    type Work = Vec<[f64; D]>;

    fn start(&self, draws: &mut dyn Rng) -> Self::Work {
        draws.next_u64();
        Vec::new()
    }

    fn chunk(&self) -> usize {
        self.chunk
    }

    fn norms(&self, units: &[&[f64; D]], words: &[u64], work: &mut Self::Work, norms: &mut Vec<f64>) {
        CALLS.with_borrow_mut(|calls| calls.push(units.len()));
        work.clear();
        for (i, (unit, word)) in units.iter().zip(words).enumerate() {
            let sign = if self.coins && word >> 63 == 1 { -1.0 } else { 1.0 };
            let mut term = unit.map(|x| sign * x);
            if self.fault == Fault::Company && i > 0 {
                term[0] *= 1.0 + f64::EPSILON;
                term[1] *= 1.0 + 1e-13;
            }
            work.push(term);
            let norm = length(&term);
            norms.push(if self.fault == Fault::Norm { norm * (1.0 - 1e-9) } else { norm });
        }
        if self.fault == Fault::Silent {
            norms.pop();
        }
    }

    fn add(&self, work: &mut Self::Work, factors: &[f64], sums: &mut [f64]) {
        for (term, &factor) in work.iter().zip(factors).filter(|(_, factor)| **factor != 0.0) {
            let factor = if self.fault == Fault::Factors && factor < 1.0 { factor * (1.0 + 1e-12) } else { factor };
            sums.iter_mut().zip(term).for_each(|(sum, x)| *sum += factor * x);
        }
    }
}

struct Seeded(u8);

impl Sealed for Seeded {}

impl NoiseSource for Seeded {
    type Stream = ChaCha20Rng;
    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        Ok(ChaCha20Rng::from_seed(Hash::of("test", &[&[self.0], format!("{release}/{step}/{purpose:?}").as_bytes()]).0))
    }
}

fn mechanism(clip: f64, noise: f64, rate: Option<f64>, max_units: u64) -> BatchSum {
    BatchSum::new(
        D as u32,
        ClipNorm::new(clip).unwrap(),
        NoiseMultiplier::new(noise).unwrap(),
        rate.map(|q| SamplingRate::nearest(q).unwrap()),
        Terms::Units,
        max_units,
    )
    .unwrap()
}

fn permit(mechanism: &BatchSum) -> StepPermit {
    let release = ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client: ClientId::new("here").unwrap(), round: 0 };
    let scope = PermitScope { unit: PrivacyUnit::Record, relation: Relation::AddRemove, salt: ShardSalt::new([0; 32]) };
    Permit::mint(mechanism.event(), release, scope).into_steps().next().unwrap()
}

fn run(mechanism: &BatchSum, rows: &[[f64; D]], model: &Model, permit: StepPermit, seed: u8) -> Result<Vec<i64>, ReleaseError> {
    let model = Argument::copy_of(model)?;
    let released = mechanism.release_sum(&Units::new(Rows(rows.to_vec())), &model, |model, sum| Ok(sum.of(model)), permit, &Seeded(seed));
    released.map(|sum| sum.into_inner().values)
}

fn release(mechanism: &BatchSum, rows: &[[f64; D]], model: &Model, seed: u8) -> Vec<i64> {
    run(mechanism, rows, model, permit(mechanism), seed).unwrap()
}

/// The sum before noise: the noise of a seed does not depend on data.
fn sum(mechanism: &BatchSum, rows: &[[f64; D]], chunk: usize) -> Vec<i64> {
    let noise = release(mechanism, &[], &Model::new(chunk), 1);
    release(mechanism, rows, &Model::new(chunk), 1).iter().zip(noise).map(|(x, y)| x - y).collect()
}

fn norm_of_difference(a: &[i64], b: &[i64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| u128::from(x.abs_diff(*y)).pow(2)).sum::<u128>() as f64
}

fn sensitivity(mechanism: &BatchSum, relation: Relation) -> f64 {
    match mechanism.event() {
        DpEvent::DiscreteGaussian(event) => event.sensitivity_ratio(relation) * event.scale as f64,
        other => panic!("{other:?}"),
    }
}

fn rows() -> impl Strategy<Value = Vec<[f64; D]>> {
    let value =
        prop_oneof![6 => -3.0..3.0f64, 1 => -1e9..1e9f64, 1 => Just(0.0), 1 => Just(f64::NAN), 1 => Just(1e300), 1 => -1e-9..1e-9f64];
    proptest::collection::vec(proptest::array::uniform4(value), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the units are, and however their batches fall into chunks: neighbouring sums are within the charged sensitivity.
    #[test]
    fn neighbouring_sums_are_within_the_charged_sensitivity(
        rows in rows(), other in proptest::array::uniform4(-1e3..1e3f64), at in any::<prop::sample::Index>(), chunk in 1..9usize,
        clip in prop_oneof![Just(1.0), Just(0.1), Just(3.7)], noise in prop_oneof![Just(1.0), Just(0.004), Just(30.0)]
    ) {
        let mechanism = mechanism(clip, noise, None, 64);
        let whole = sum(&mechanism, &rows, chunk);
        let at = at.index(rows.len());
        let mut fewer = rows.clone();
        fewer.remove(at);
        let bound = sensitivity(&mechanism, Relation::AddRemove);
        prop_assert!(norm_of_difference(&whole, &sum(&mechanism, &fewer, chunk)) <= bound * bound);
        let bound = sensitivity(&mechanism, Relation::ReplaceOne);
        for other in [other, rows[at].map(|x| -x)] {
            let mut replaced = rows.clone();
            replaced[at] = other;
            prop_assert!(norm_of_difference(&whole, &sum(&mechanism, &replaced, chunk)) <= bound * bound);
        }
        // A few units in other chunks: rounding only.
        let excess = sensitivity(&mechanism, Relation::AddRemove) - clip * mechanism.lattice.per_step();
        prop_assert!(norm_of_difference(&whole, &sum(&mechanism, &rows, 1 + chunk % 5)) <= excess * excess);
    }
}

#[test]
fn the_sum_is_the_clipped_sum_rounded_once() {
    let mechanism = mechanism(1.0, 1.0, None, 10);
    let step = 2f64.powi(-20);
    // A third of a step from each of three units: the terms are not truncated one by one.
    assert_eq!(sum(&mechanism, &[[step / 3.0, 0.0, 0.0, 0.0]; 3], 2), [1, 0, 0, 0]);
    // Clipped to (0.6, 0.8); what is not a number, or has a norm above 2^700, counts as zero.
    let rows =
        [[3.0, 4.0, 0.0, 0.0], [f64::NAN, 0.0, 0.0, 9.0], [f64::INFINITY, 0.0, 0.0, 9.0], [1e300, 0.0, 0.0, 9.0], [0.0, 0.0, -0.25, 0.0]];
    let expected = [0.6 / step, 0.8 / step, -0.25 / step, 0.0];
    for (x, expected) in sum(&mechanism, &rows, 2).iter().zip(expected) {
        assert!((*x as f64 - expected).abs() <= 1.0, "{x} {expected}");
    }
}

#[test]
fn a_batch_of_any_size_comes_in_chunks_of_the_models_size() {
    let mechanism = mechanism(1.0, 1.0, None, 1000);
    let model = Model::new(7);
    CALLS.take();
    release(&mechanism, &[[0.1; D]; 30], &model, 1);
    assert_eq!(CALLS.take(), [7, 7, 7, 7, 2]);
    release(&mechanism, &[], &model, 1);
    assert_eq!(CALLS.take(), Vec::<usize>::new());
}

/// Poisson batches: every unit is in with probability q, and the empty batch is noise alone.
#[test]
fn sampled_batches_include_every_unit_with_probability_q() {
    let mechanism = mechanism(1.0, 1.0, Some(0.2), 1000);
    let rows = [[1.0, 0.0, 0.0, 0.0]; 1000];
    let (mut total, mut runs) = (0.0, 0.0);
    for seed in 0..100 {
        let included = (release(&mechanism, &rows, &Model::new(64), seed)[0] - release(&mechanism, &[], &Model::new(64), seed)[0]) as f64
            / 1_048_576.0;
        assert!((included - included.round()).abs() < 1e-6);
        total += included;
        runs += 1.0;
    }
    let sd = (1000.0f64 * 0.2 * 0.8).sqrt();
    assert!((total / runs - 200.0).abs() < 4.0 * sd / runs.sqrt(), "{total}");
}

#[test]
fn the_event_charges_rounding_and_says_which_path_ran() {
    let event = |mechanism: &BatchSum| match mechanism.event() {
        DpEvent::DiscreteGaussian(event) => event,
        other => panic!("{other:?}"),
    };
    // √4 = 2 and summation errors far below a step, and 2 for the floor.
    let small = event(&mechanism(1.0, 1.0, None, 100));
    assert_eq!((small.path, small.excess, small.bound_squared, small.dimension), (LatticePath::Sum, 5, 1 << 40, 4));
    // E = (2B+8)·2⁻⁵³·B·C: with B = 2²⁰ and C = 2²⁰ steps 2E is 2·(2²¹+8)·2⁻³³·2²⁰·2⁻²⁰ ≈ 2⁻¹¹·2²⁰ steps.
    let large = event(&mechanism(1.0, 1.0, None, 1 << 20));
    let exact =
        2.0 + 2.0 * (2f64.powi(21) + 8.0) * 2f64.powi(-53) * 2f64.powi(20) * 2f64.powi(20) * (1.0 + 2f64.powi(-34)) + 2f64.powi(-13);
    assert_eq!(large.excess, exact.ceil() as u64 + 2);
    assert!(large.sensitivity_ratio(Relation::AddRemove) < 1.001, "{large:?}");
    // It is charged.
    let loss = |event: DiscreteGaussian| {
        let delta = dp_pvi_accounting::Delta::new(1e-5).unwrap();
        dp_pvi_accounting::epsilon_upper([&DpEvent::DiscreteGaussian(event)], Relation::AddRemove, delta).unwrap().epsilon.get()
    };
    assert!(loss(large) > loss(DiscreteGaussian { excess: 0, ..large }));
    let clip = ClipNorm::new(1.0).unwrap();
    let noise = NoiseMultiplier::new(1.0).unwrap();
    for (dimension, units) in [(0, 10), (4, 0), (4, 1 << 27), (4, (1 << 32) + 1)] {
        assert!(BatchSum::new(dimension, clip, noise, None, Terms::Units, units).is_err(), "{dimension} {units}");
    }
}

/// Neither C nor a norm may bring a factor where it has lost digits: what is multiplied by it would be longer than C.
#[test]
fn factors_keep_all_their_digits() {
    let noise = NoiseMultiplier::new(1.0).unwrap();
    for (clip, fits) in [(1e-174, false), (1e-31, false), (8e-31, true), (1e30, true), (2e30, false)] {
        assert_eq!(BatchSum::new(4, ClipNorm::new(clip).unwrap(), noise, None, Terms::Units, 10).is_ok(), fits, "{clip}");
    }
    for exponent in -1074..1024 {
        let norm = if exponent == -1074 { f64::from_bits(1) } else { 1.7 * 2f64.powi(exponent) };
        for clip in [8e-31, 1.0, 1e30] {
            let factor = super::factor(norm, clip);
            assert!(factor == 0.0 || (f64::MIN_POSITIVE * 2f64.powi(200)..=1.0).contains(&factor), "{norm:e} {clip:e}: {factor:e}");
            assert!(factor * norm <= clip, "{norm:e} {clip:e}");
            assert!(norm > 2f64.powi(700) || factor * norm >= 0.999 * clip.min(norm), "{norm:e} {clip:e}: {factor:e}");
        }
    }
    for broken in [f64::NAN, f64::INFINITY, -1.0] {
        assert_eq!(super::factor(broken, 1.0), 0.0);
    }
}

#[test]
fn what_does_not_fit_releases_nothing() {
    let (mechanism, other) = (mechanism(1.0, 1.0, None, 10), mechanism(1.0, 1.0, None, 100_000));
    assert_ne!(mechanism.event(), other.event());
    let result = run(&mechanism, &[[0.1; D]], &Model::new(1), permit(&other), 1);
    assert!(matches!(result, Err(ReleaseError::PermitMismatch)));
    let scope = PermitScope { unit: PrivacyUnit::Site, relation: Relation::AddRemove, salt: ShardSalt::new([0; 32]) };
    let permit = Permit::mint(mechanism.event(), permit(&mechanism).release().clone(), scope).into_steps().next().unwrap();
    let result = run(&mechanism, &[[0.1; D]], &Model::new(1), permit, 1);
    assert!(matches!(result, Err(ReleaseError::Grouping(_))));
    // A model that tells too few norms: the rest counts as zero.
    let rows = [[0.5, 0.0, 0.0, 0.0]; 2];
    let silent = release(&mechanism, &rows, &Model { coins: false, ..Model::broken(Fault::Silent) }, 1);
    assert_eq!(silent[0] - release(&mechanism, &[], &Model::new(1), 1)[0], 1 << 19);
}

#[test]
fn the_comparison_passes_an_honest_model_and_finds_every_fault() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let mut draw = || (rng.next_u64() >> 11) as f64 / 4_503_599_627_370_496.0 - 1.0;
    let mut rows: Vec<[f64; D]> = (0..50).map(|i| std::array::from_fn(|_| draw() * 10f64.powi(i % 7 - 3))).collect();
    rows.push([0.0; D]);
    rows.push([f64::NAN; D]);
    let table = Rows(rows);
    let stream = |i: u64| ChaCha20Rng::from_seed(Hash::of("draws", &[&i.to_le_bytes()]).0);
    for chunk in [1, 5, 1000] {
        let honest = Model { coins: true, ..Model::new(chunk) };
        let worst = compare(&table, &honest, D, stream).unwrap();
        assert!(worst.norm < 1e-3 && worst.sum > 0.0 && worst.sum < 1.0, "{worst:?}");
    }
    assert!(matches!(compare(&table, &Model::broken(Fault::Norm), D, stream), Err(BrokenPromise::Norm { .. })));
    assert!(matches!(compare(&table, &Model::broken(Fault::Company), D, stream), Err(BrokenPromise::Company { .. })));
    assert!(matches!(compare(&table, &Model::broken(Fault::Factors), D, stream), Err(BrokenPromise::Sum { .. })));
    assert!(matches!(compare(&table, &Model::broken(Fault::Silent), D, stream), Err(BrokenPromise::Count { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Tables around B units, and far above it: whoever goes, comes or is replaced, the sums are within what is charged.
    #[test]
    fn sums_of_any_number_of_units_are_within_the_charged_sensitivity(
        rows in rows(), other in proptest::array::uniform4(-1e3..1e3f64), at in any::<prop::sample::Index>(), chunk in 1..9usize,
        most in 1..45u64, noise in prop_oneof![Just(1.0), Just(0.004), Just(30.0)]
    ) {
        let mechanism = mechanism(1.0, noise, None, most);
        let whole = sum(&mechanism, &rows, chunk);
        let at = at.index(rows.len());
        let (mut fewer, mut replaced) = (rows.clone(), rows.clone());
        fewer.remove(at);
        replaced[at] = other;
        for (neighbour, relation) in [(fewer, Relation::AddRemove), (replaced, Relation::ReplaceOne)] {
            let bound = sensitivity(&mechanism, relation);
            prop_assert!(norm_of_difference(&whole, &sum(&mechanism, &neighbour, chunk)) <= bound * bound);
        }
        // No unit is left out, and none takes another one's place: the sum is that of a mechanism for more units.
        let roomy = mechanism.clone();
        let roomy = sum(&BatchSum { max_units: 1000, ..roomy }, &rows, chunk);
        prop_assert!(norm_of_difference(&whole, &roomy) <= (mechanism.excess as f64).powi(2));
    }
}

/// One unit more than declared is an update like any other.
#[test]
fn no_number_of_units_is_refused() {
    let mechanism = mechanism(1.0, 1.0, None, 100);
    let rows = vec![[0.25, 0.0, -0.5, 0.0]; 101];
    CALLS.take();
    assert_eq!(sum(&mechanism, &rows[..100], 7), [100 << 18, 0, -100 << 19, 0]);
    assert_eq!(sum(&mechanism, &rows, 7), [101 << 18, 0, -101 << 19, 0]);
    assert!(CALLS.take().iter().skip(15).all(|units| *units == 1), "unit by unit, so that each is the same wherever it stands");
    assert_eq!(release(&mechanism, &vec![[f64::NAN; D]; 5000], &Model::new(7), 1), release(&mechanism, &[], &Model::new(7), 1));
}

/// Where the unit that differs is not in the sample the sums are the same to the last bit, whatever the table's size is: amplification rests on it.
#[test]
fn a_unit_outside_the_sample_changes_no_bit() {
    let mut outside = 0;
    for units in 1..16usize {
        for seed in 0..8 {
            let mechanism = mechanism(1.0, 0.004, Some(0.5), 5);
            let mut rows: Vec<[f64; D]> = (0..units).map(|i| [1.0 / (3.0 + i as f64), -0.1 * i as f64, 1.0 / 7.0, 0.0]).collect();
            rows.push([0.0, 0.0, 0.0, 1.0]);
            let noise = release(&mechanism, &[], &Model::new(3), seed);
            let sums = |rows: &[[f64; D]]| release(&mechanism, rows, &Model::new(3), seed);
            let whole = sums(&rows);
            if whole[3] == noise[3] {
                outside += 1;
                assert_eq!(whole, sums(&rows[..units]), "{units} {seed}");
            }
        }
    }
    assert!(outside > 30, "{outside}");
}

/// A record over whose term a model panics moves the sum as much as one that is left out: the others are summed as before, with the same draws.
#[test]
fn a_panic_over_one_unit_takes_no_other_along() {
    #[derive(Serialize, Deserialize)]
    struct PanicsOver(f64);
    impl BatchTerms<Rows> for PanicsOver {
        type Work = (u64, Vec<[f64; D]>);
        fn start(&self, draws: &mut dyn Rng) -> Self::Work {
            let mut bytes = [0; 12];
            draws.fill_bytes(&mut bytes);
            (draws.next_u64() ^ u64::from(draws.next_u32()) ^ u64::from(bytes[11]), Vec::new())
        }
        fn chunk(&self) -> usize {
            4
        }
        fn norms(&self, units: &[&[f64; D]], words: &[u64], (start, terms): &mut Self::Work, norms: &mut Vec<f64>) {
            terms.clear();
            for (unit, word) in units.iter().zip(words) {
                let sign = if (word ^ *start) & 1 == 1 { -1.0 } else { 1.0 };
                terms.push(unit.map(|x| sign * x));
                norms.push(length(*unit));
                assert!((unit[0] - self.0).abs() > 1e-9, "{unit:?}");
            }
        }
        fn add(&self, (_, terms): &mut Self::Work, factors: &[f64], sums: &mut [f64]) {
            for (term, &factor) in terms.iter().zip(factors).filter(|(_, factor)| **factor != 0.0) {
                sums.iter_mut().zip(term).for_each(|(sum, x)| *sum += factor * x);
            }
        }
    }
    for max_units in [100, 20] {
        let mechanism = mechanism(1.0, 1.0, None, max_units);
        let released = |bad: f64, rows: Vec<[f64; D]>| -> LatticeVector {
            let model = Argument::copy_of(&PanicsOver(bad)).unwrap();
            let sum: Result<_, ReleaseError> =
                mechanism.release_sum(&Units::new(Rows(rows)), &model, |model, sum| Ok(sum.of(model)), permit(&mechanism), &Seeded(1));
            sum.unwrap().into_inner()
        };
        for place in [0, 3, 17, 49] {
            let mut rows: Vec<[f64; D]> = (0..50).map(|i| [f64::from(i) / 100.0, 0.3, -0.2, 0.1]).collect();
            rows[place] = [70.01, 0.0, 0.0, 0.0];
            let with = released(70.01, rows.clone());
            // The same unit with a term of 0, over which nothing panics.
            rows[place] = [0.0; D];
            let without = released(70.01, rows);
            let rounding = i64::try_from(mechanism.excess).unwrap();
            for (a, b) in with.values.iter().zip(&without.values) {
                assert!((a - b).abs() <= rounding, "place {place}: {a} against {b}, {rounding} are charged");
            }
        }
    }
}

/// A model that panics over records ends nothing, and says nothing: what is released is the noise, as if no one were there.
#[test]
fn a_panic_of_a_model_says_nothing() {
    #[derive(Serialize, Deserialize)]
    struct Panics;
    impl BatchTerms<Rows> for Panics {
        type Work = ();
        fn start(&self, _: &mut dyn Rng) {}
        fn chunk(&self) -> usize {
            4
        }
        fn norms(&self, units: &[&[f64; D]], _: &[u64], (): &mut (), _: &mut Vec<f64>) {
            if units[0][0] > 0.0 {
                std::panic::panic_any(*units[0]);
            }
        }
        fn add(&self, (): &mut (), _: &[f64], _: &mut [f64]) {}
    }
    let mechanism = mechanism(1.0, 1.0, None, 100);
    let model = Argument::copy_of(&Panics).unwrap();
    let released = |rows: Vec<[f64; D]>| -> Result<_, ReleaseError> {
        mechanism.release_sum(&Units::new(Rows(rows)), &model, |model, sum| Ok(sum.of(model)), permit(&mechanism), &Seeded(1))
    };
    assert_eq!(released(vec![[70.01; D]]).unwrap(), released(Vec::new()).unwrap());
    assert_eq!(released(vec![[70.01; D]; 101]).unwrap(), released(Vec::new()).unwrap());
    // Before a record is looked at there is nothing to hide but the message.
    let early = mechanism.release_sum(
        &Units::new(Rows(vec![[70.01; D]])),
        &model,
        |_, _| -> Result<_, ReleaseError> { panic!("early") },
        permit(&mechanism),
        &Seeded(1),
    );
    assert!(matches!(early, Err(ReleaseError::PanicRedacted(_))), "{early:?}");
}

/// Where units come from changes no bit, also of a sum that rounds: chunks are the same.
#[test]
fn a_batch_of_units_that_are_not_in_memory_has_the_same_bits() {
    let rows: Vec<[f64; D]> =
        (0..2_345_u32).map(|i| std::array::from_fn(|j| f64::from((i * 7 + j as u32 * 13) % 101) / 37.0 - 1.0)).collect();
    let copy = |rows: &Rows, positions: &[usize]| Rows(positions.iter().map(|position| rows.0[*position]).collect());
    for (rate, most) in [(None, 3_000), (Some(0.2), 3_000), (None, 100)] {
        for chunk in [1, 64, 5_000] {
            let (mechanism, model) = (mechanism(0.7, 2.0, rate, most), Model { coins: true, ..Model::new(chunk) });
            let pieces = crate::stored::tests::Pieces::of(Rows(rows.clone()), copy);
            let released = |units: &Units<Rows>| {
                let model = Argument::copy_of(&model).unwrap();
                mechanism.release_sum(units, &model, |model, sum| Ok::<_, ReleaseError>(sum.of(model)), permit(&mechanism), &Seeded(8))
            };
            let stored = Units::stored(Box::new(pieces));
            assert_eq!(released(&stored).unwrap().into_inner().values, release(&mechanism, &rows, &model, 8), "{rate:?} {chunk}");
            assert!(!stored.is_in_memory());
            let broken = Units::stored(Box::new(crate::stored::tests::Pieces::of(Rows(rows.clone()), copy).breaking_at(0)));
            assert!(matches!(released(&broken), Err(ReleaseError::Unread(_))));
        }
    }
}
