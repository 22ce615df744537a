//! One step of DP optimisation: mean-field logistic regression, a Poisson sample of 200 expected from 3,907 rows, the Adult
//! encoding (105 columns, 14 non-zero entries a row: 8 categories, 5 numbers, intercept), one core, `f64`. It runs the real
//! mechanism: 3,907 secret coins, gradients, clipping, truncation to the lattice, integer norm check, discrete Gaussian noise.
//!
//! ```text
//! cargo bench -p dp-pvi-inference --bench dp_sgd_step
//! ```
//!
//! The cost of a step without its noise sampling is `step` minus `noise` (the same 210 coordinates of noise, no unit, no coins).
//! Figures: `deploy/guide/src/results/speed.md`.

#![allow(clippy::disallowed_types, reason = "divan's attribute keeps its registry in a lock; no library code is in here")]

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use divan::Bencher;
use dp_pvi_accounting::{ClipNorm, Delta, DpEvent, Epsilon, LatticePath, NoiseMultiplier, PrivacyUnit, Relation, SamplingRate, Terms};
use dp_pvi_inference::mean_field::{MeanField, ScaleCoordinate};
use dp_pvi_inference::models;
use dp_pvi_models::logistic_regression;
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_posterior::task::ModelSpec;
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::mechanism::LatticeSum;
use dp_pvi_privacy::mechanism::{ReleaseError, Summation, Summed};
use dp_pvi_privacy::{Argument, Ledger, SecureNoise, StepPermit, Units};
use dp_pvi_records::RecordTable;
use dp_pvi_unsealed::Unsealed;
use ed25519_dalek::SigningKey;
use rand_core::Rng;

const ROWS: usize = 3_907;
const BATCH: f64 = 200.0;
const CATEGORIES: [u32; 8] = [8, 16, 7, 14, 6, 5, 2, 41];
const NUMBERS: u32 = 5;
const D: usize = 105;

fn main() {
    divan::main();
}

/// Rows with the shape of the Adult encoding; what they say does not matter.
fn table() -> RecordTable {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut builder = RecordTable::builder(D);
    for _ in 0..ROWS {
        let (mut indices, mut values, mut start) = (Vec::new(), Vec::new(), 0);
        for levels in CATEGORIES {
            // The square of a uniform number: some levels are frequent, others rare.
            let u = f64::from(rng.next_u32()) / f64::from(u32::MAX);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a level")]
            indices.push(start + ((u * u * f64::from(levels)) as u32).min(levels - 1));
            values.push(1.0);
            start += levels;
        }
        for number in 0..NUMBERS {
            indices.push(start + number);
            values.push(f64::from(rng.next_u32()) / f64::from(u32::MAX) - 0.5);
        }
        indices.push(start + NUMBERS);
        values.push(1.0);
        builder.start_unit();
        builder.push(&indices, &values, f64::from(rng.next_u32() % 4 / 3)).expect("a row of the encoding");
    }
    builder.finish()
}

fn mechanism(sampling: Option<SamplingRate>) -> LatticeSum {
    let clip = ClipNorm::new(2.25).expect("above 0");
    let noise = NoiseMultiplier::new(4.0).expect("above 0");
    LatticeSum::new(2 * 105, clip, noise, sampling, Terms::Units, LatticePath::Term).expect("fits the lattice")
}

/// As many step permits as a benchmark may use, from one reservation.
fn permits(event: DpEvent) -> impl Iterator<Item = StepPermit> {
    let delta = Delta::new(1e-5).expect("in (0, 1)");
    let identity = LedgerIdentity { data: "bench".into(), unit: PrivacyUnit::Record, relation: Relation::ReplaceOne };
    let budget = Budget { epsilon: Epsilon::INFINITE, delta, per_run: None, max_fallback: None, allow_non_private: false };
    let mut ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[1; 32]), identity, budget).expect("an empty ledger");
    let release = ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client: ClientId::new("bench").expect("a name"), round: 0 };
    ledger.reserve(&release, &event.repeated(1 << 30), Hash::default()).expect("an infinite budget").into_steps()
}

fn run(bencher: Bencher, table: RecordTable, sampling: Option<SamplingRate>) {
    let mechanism = mechanism(sampling);
    let mean = (0..D).map(|j| 0.01 * f64::from(u32::try_from(j % 7).unwrap_or(0))).collect();
    let point = MeanField::new(mean, vec![0.02; D], ScaleCoordinate::HalfVariance { weight: 1.0 }).expect("a point");
    let point = Argument::copy_of(&point).expect("a copy");
    let units = Units::new(table);
    let mut permits = permits(mechanism.event());
    bencher
        .with_inputs(|| permits.next().expect("enough permits"))
        .bench_local_values(|permit| mechanism.release_sum(&units, &point, gradients, permit, &SecureNoise).expect("a release"));
}

fn gradients(point: &MeanField, sum: Summation<'_, RecordTable>) -> Result<Summed, ReleaseError> {
    let model = models::from_spec(&ModelSpec::from(logistic_regression::LogisticRegression {})).expect("a model of this program");
    Ok(model.gradients().expect("logistic regression has gradients").sum(point, sum))
}

#[divan::bench(sample_count = 2000, sample_size = 4)]
fn step(bencher: Bencher) {
    let rate = SamplingRate::nearest(BATCH / 3_907.0).expect("in (0, 1]");
    run(bencher, table(), Some(rate));
}

#[divan::bench(sample_count = 2000, sample_size = 4)]
fn noise(bencher: Bencher) {
    run(bencher, RecordTable::builder(D).finish(), None);
}

/// All rows in every step: what the default q = 1 costs without weights; with them, bench `dp_optimisation_visit` of `dp-pvi-simulation`.
#[divan::bench(sample_count = 200, sample_size = 1)]
fn full_batch_step(bencher: Bencher) {
    run(bencher, table(), None);
}
