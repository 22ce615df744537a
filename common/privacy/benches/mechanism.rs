//! Costs of a release: `cargo bench -p dp-pvi-privacy`.
//!
//! A step without its noise costs `step` minus `step_on_an_empty_table` (which is the noise alone). The table is as large as
//! one of ten shards of UCI Adult: 3,907 units, a Poisson batch of 200, 28 entries a term, 210 coordinates.
//!
//! Figures: `deploy/guide/src/results/speed.md`.
#![allow(clippy::unwrap_used, missing_docs)]

use divan::{Bencher, black_box};
use dp_pvi_accounting::{self, Curve};
use dp_pvi_accounting::{ClipNorm, Delta, Epsilon, LatticePath, NoiseMultiplier, PrivacyUnit, Relation, SamplingRate, Terms};
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::mechanism::{LatticeSum, ReleaseError};
use dp_pvi_privacy::sampler::{Coins, DiscreteGaussianSampler};
use dp_pvi_privacy::{Argument, Ledger, NoiseSource, Purpose, SecureNoise, StepPermit, UnitTable, Units};
use dp_pvi_unsealed::Unsealed;
use ed25519_dalek::SigningKey;

fn main() {
    divan::main();
}

const UNITS: usize = 3907;
const ENTRIES: usize = 28;
const DIMENSION: u32 = 210;

/// Rows that stay in the fastest cache, so that the mechanism is measured and not the memory behind a model's records.
const DISTINCT: usize = 16;

struct Table {
    rows: Vec<[(u32, f64); ENTRIES]>,
    units: usize,
}

impl UnitTable for Table {
    type Unit<'a> = &'a [(u32, f64); ENTRIES];

    fn len(&self) -> usize {
        self.units
    }

    fn unit(&self, position: usize) -> Self::Unit<'_> {
        &self.rows[position % DISTINCT]
    }
}

fn table(units: usize) -> Units<Table> {
    let row = |unit: usize| {
        std::array::from_fn(|i| {
            let index = i as u32 * (DIMENSION / ENTRIES as u32) + (unit as u32 * 7 + i as u32 * 3) % (DIMENSION / ENTRIES as u32);
            (index, f64::from((unit as u32 * 31 + index * 17) % 200) / 100.0 - 1.0)
        })
    };
    Units::new(Table { rows: (0..DISTINCT).map(row).collect(), units })
}

fn mechanism() -> LatticeSum {
    let rate = SamplingRate::nearest(200.0 / UNITS as f64).unwrap();
    LatticeSum::new(DIMENSION, ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(5.0).unwrap(), Some(rate), Terms::Units, LatticePath::Term)
        .unwrap()
}

fn release_id(round: u32) -> ReleaseId {
    ReleaseId { run: RunId { task: Hash::default(), number: 1 }, client: ClientId::new("bench").unwrap(), round }
}

fn permits(mechanism: &LatticeSum, steps: u64) -> impl Iterator<Item = StepPermit> + use<> {
    let identity = LedgerIdentity { data: "bench".into(), unit: PrivacyUnit::Record, relation: Relation::AddRemove };
    let budget = Budget {
        epsilon: Epsilon::INFINITE,
        delta: Delta::new(1e-5).unwrap(),
        per_run: None,
        max_fallback: None,
        allow_non_private: false,
    };
    let mut ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[7; 32]), identity, budget).unwrap();
    ledger.reserve(&release_id(0), &mechanism.event().repeated(steps), Hash::default()).unwrap().into_steps()
}

fn run_step(bencher: Bencher, units: usize) {
    let (table, mechanism) = (table(units), mechanism());
    let mut permits = permits(&mechanism, 1 << 40);
    bencher.with_inputs(|| permits.next().unwrap()).bench_local_values(|permit| {
        let sum: Result<_, ReleaseError> = mechanism.release_sum(
            &table,
            &Argument::nothing(),
            |(), sum| Ok(sum.each(|row, _, (), term| term.extend(row.iter().copied()))),
            permit,
            &SecureNoise,
        );
        sum.unwrap()
    });
}

#[divan::bench]
fn step(bencher: Bencher) {
    run_step(bencher, UNITS);
}

#[divan::bench]
fn step_on_an_empty_table(bencher: Bencher) {
    run_step(bencher, 0);
}

#[divan::bench]
fn coins(bencher: Bencher) {
    let coins = Coins::new(SamplingRate::nearest(200.0 / UNITS as f64).unwrap());
    bencher.bench(|| {
        let mut stream = SecureNoise.stream(&release_id(0), 0, Purpose::Coins).unwrap();
        let mut sum = 0;
        coins.toss(&mut stream, UNITS, |position| sum += position);
        sum
    });
}

/// Nanoseconds here are for 1,000 coordinates.
#[divan::bench(args = [4, 1 << 20, 1 << 28])]
fn noise_1000(bencher: Bencher, scale: u64) {
    let sampler = DiscreteGaussianSampler::new(scale).unwrap();
    let mut stream = SecureNoise.stream(&release_id(0), 0, Purpose::Noise).unwrap();
    let mut noise = vec![0; 1000];
    bencher.bench_local(|| sampler.fill(&mut stream, black_box(&mut noise)).unwrap());
}

#[divan::bench]
fn rdp_curve_replace_one(bencher: Bencher) {
    bencher.bench(|| Curve::poisson_replace(black_box(0.2), SamplingRate::nearest(0.05).unwrap()));
}

#[divan::bench]
fn rdp_curve_add_remove(bencher: Bencher) {
    bencher.bench(|| Curve::poisson_add_remove(black_box(0.2), SamplingRate::nearest(0.05).unwrap()));
}

#[divan::bench]
fn calibrate_replace_one(bencher: Bencher) {
    bencher.bench(|| {
        let event = |z| {
            let rate = SamplingRate::nearest(0.05).unwrap();
            let sum = LatticeSum::new(DIMENSION, ClipNorm::new(1.0).unwrap(), z, Some(rate), Terms::Units, LatticePath::Term);
            sum.map_or(dp_pvi_accounting::DpEvent::NonPrivate, |sum| sum.event().repeated(1000))
        };
        dp_pvi_accounting::calibrate(event, Relation::ReplaceOne, Epsilon::new(1.0).unwrap(), Delta::new(1e-5).unwrap()).unwrap()
    });
}
