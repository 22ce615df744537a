//! What the tests share: a seeded noise source (tests only), permits from a ledger in memory, tasks, tables and vectors.

use std::fs::read_to_string;
use std::path::PathBuf;
use std::sync::Once;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_accounting::{ClipNorm, Delta, DpEvent, Epsilon, NoiseMultiplier, PrivacyUnit, Relation, SamplingRate};
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_models::robust_regression::Student;
use dp_pvi_models::{linear_regression, logistic_regression};
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_posterior::task::{
    Approximation, DpOptimisationSpec, ENGINE, ModelSpec, Optimizer, PriorSpec, PrivacySpec, ResolvedTask, ScheduleSpec, Trust, UpdateSpec,
};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::noise::NoRandomness;
use dp_pvi_privacy::{Ledger, NoiseSource, Permit, Purpose, StepPermit};
use ed25519_dalek::SigningKey;
use rand_core::Rng;
use serde_json::Value;

use crate::capabilities::Model;
use crate::capabilities::glm;
use crate::capabilities::predictor::PredictorModel;
use crate::gamma::GammaRegression;
use dp_pvi_privacy::UnitTable;
use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_schema::public::Extra;
use dp_pvi_unsealed::{Sealed, Unsealed};

/// Noise and coins as a function of (seed, release, step, purpose); `coins` may have a seed of their own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeededNoise {
    pub(crate) noise: u64,
    pub(crate) coins: u64,
}

impl SeededNoise {
    pub(crate) fn new(seed: u64) -> Self {
        Self { noise: seed, coins: seed }
    }
}

impl Sealed for SeededNoise {}

impl NoiseSource for SeededNoise {
    type Stream = ChaCha20Rng;

    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        let (seed, name) = match purpose {
            Purpose::Noise => (self.noise, "noise"),
            Purpose::Coins => (self.coins, "coins"),
            Purpose::Draws => (self.noise, "draws"),
        };
        let release = release.to_string();
        let key = Hash::of("test stream", &[&seed.to_le_bytes(), release.as_bytes(), &step.to_le_bytes(), name.as_bytes()]);
        Ok(ChaCha20Rng::from_seed(key.0))
    }
}

pub(crate) fn release(round: u32) -> ReleaseId {
    ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client: ClientId::new("site").unwrap(), round }
}

/// A permit from a ledger that allows everything.
pub(crate) fn permit(event: &DpEvent, round: u32) -> Permit {
    permit_under(PrivacyUnit::Record, Relation::ReplaceOne, event, round)
}

/// Adds the models of other crates that pass the suites as well: the worked example of the guide. A visit needs a permit, and the first visit seals the
/// registry, so [`permit_under`] calls this.
pub(crate) fn register_guests() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        dp_pvi_models::register::<GammaRegression>().unwrap();
    });
}

/// A permit from a ledger of this unit and relation that allows everything.
pub(crate) fn permit_under(unit: PrivacyUnit, relation: Relation, event: &DpEvent, round: u32) -> Permit {
    register_guests();
    let identity = LedgerIdentity { data: "test".into(), unit, relation };
    let delta = Delta::new(1e-5).unwrap();
    let budget = Budget { epsilon: Epsilon::INFINITE, delta, per_run: None, max_fallback: None, allow_non_private: true };
    let key = SigningKey::from_bytes(&[7; 32]);
    let mut ledger = Ledger::open(MemoryStore::new(Unsealed), key, identity, budget).unwrap();
    ledger.reserve(&release(round), event, Hash::default()).unwrap()
}

/// Permits for single steps; all of them are the same step of the same release, so that coins and noise repeat.
pub(crate) fn step_permit(event: &DpEvent) -> StepPermit {
    permit(event, 0).into_steps().next().unwrap()
}

pub(crate) fn models() -> [ModelSpec; 2] {
    [linear_regression::LinearRegression { noise_sd: 0.7 }.into(), logistic_regression::LogisticRegression {}.into()]
}

pub(crate) fn spec(optimizer: Optimizer, steps: u32, rate: f64, clip: f64, noise: f64) -> DpOptimisationSpec {
    DpOptimisationSpec {
        steps,
        sampling_rate: SamplingRate::nearest(rate).unwrap(),
        batches: None,
        clip_norm: ClipNorm::new(clip).unwrap(),
        noise_multiplier: NoiseMultiplier::new(noise).unwrap(),
        optimizer,
        learning_rate: if optimizer == Optimizer::Adam { 0.05 } else { 0.3 },
        learning_rate_decay: 1.0,
        initial_log_scale: 0.0,
        step_precision: 5.0,
        curvature_weight: 1.0,
        averaging: 0.5,
        max_units: None,
        adaptive_clip: None,
        level_exponent: None,
        weighted: false,
        measured: false,
    }
}

pub(crate) fn task(model: ModelSpec, approximation: Approximation, dimension: u32, update: UpdateSpec) -> ResolvedTask {
    ResolvedTask {
        format: 1,
        engine: ENGINE.into(),
        name: "test".into(),
        model,
        approximation,
        prior: PriorSpec { mean: 0.0, scale: 1.0 },
        coefficients: Vec::new(),
        schema: String::new(),
        design: None,
        features: dimension,
        dimension,
        feature_bound: 4.0,
        max_nonzeros: dimension,
        schedule: ScheduleSpec::Sequential { sweeps: 4 },
        damping: vec![1.0; 4],
        update,
        privacy: PrivacySpec {
            unit: PrivacyUnit::Record,
            relation: Relation::ReplaceOne,
            epsilon: None,
            delta: Delta::new(1e-5).unwrap(),
            trust: Trust::Local,
            max_units: None,
        },
        aggregation: None,
        update_deadline_seconds: 60,
        min_sites: 1,
        expected_sites: None,
        release_tick_seconds: 0,
        early_end: None,
        even_if_worthless: false,
        promise: dp_pvi_posterior::task::Derived,
    }
}

/// A table of units, each a list of dense rows.
pub(crate) fn table(dimension: usize, units: &[Vec<(Vec<f64>, f64)>]) -> RecordTable {
    let mut builder = RecordTable::builder(dimension);
    for unit in units {
        builder.start_unit();
        for (row, target) in unit {
            let (indices, values): (Vec<u32>, Vec<f64>) =
                row.iter().enumerate().filter(|(_, x)| **x != 0.0).map(|(j, &x)| (j as u32, x)).unzip();
            builder.push(&indices, &values, *target).unwrap();
        }
    }
    builder.finish()
}

/// A table of a task's units. Where the label is a survival time, a target below 0 is the time of an event, and one above 0 that of a record that was not watched longer.
pub(crate) fn table_for(task: &ResolvedTask, units: &[Vec<(Vec<f64>, f64)>]) -> RecordTable {
    if task.model.rules().response().as_survival().is_none() {
        return table(task.features as usize, units);
    }
    let plain = table(task.features as usize, units);
    let mut builder = RecordTable::builder(plain.dimension());
    for unit in 0..plain.len() {
        builder.start_unit();
        for record in plain.unit(unit).records() {
            let extra = Extra { event: record.target < 0.0, ..Extra::NONE };
            builder.push_record(RecordView { target: record.target.abs(), extra, ..record }).unwrap();
        }
    }
    builder.finish()
}

/// Units of one record each.
pub(crate) fn rows(x: &[Vec<f64>], y: &[f64]) -> Vec<Vec<(Vec<f64>, f64)>> {
    x.iter().zip(y).map(|(row, &target)| vec![(row.clone(), target)]).collect()
}

/// Uniform on [−1, 1).
pub(crate) fn uniform(rng: &mut ChaCha20Rng) -> f64 {
    f64::from(rng.next_u32()) / 2_147_483_648.0 - 1.0
}

/// A number of either sign whose size is anything that double precision has: subnormal, in 1e-300 to 1e300, or 0.
pub(crate) fn anything(stream: &mut ChaCha20Rng) -> f64 {
    let word = stream.next_u64();
    let sign = if word & 1 == 0 { 1.0 } else { -1.0 };
    let fraction = 1.0 + (word >> 12) as f64 / 4_503_599_627_370_496.0;
    sign * match stream.next_u32() % 8 {
        0 => 0.0,
        1 => f64::from_bits(word >> (12 + stream.next_u32() % 50)),
        2..=4 => fraction * 2f64.powi((stream.next_u32() % 118) as i32 - 59),
        _ => {
            let exponent = (stream.next_u32() % 1994) as i32 - 997;
            fraction * 2f64.powi(exponent)
        }
    }
}

/// Random units: some of several records, some empty.
pub(crate) fn random_units(seed: u64, count: usize, dimension: usize) -> Vec<Vec<(Vec<f64>, f64)>> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    (0..count)
        .map(|unit| {
            let records = match unit % 7 {
                0 => 3,
                1 => 0,
                _ => 1,
            };
            (0..records)
                .map(|_| {
                    let row = (0..dimension).map(|_| 2.0 * uniform(&mut rng)).collect();
                    (row, f64::from(u8::from(uniform(&mut rng) > 0.0)))
                })
                .collect()
        })
        .collect()
}

/// A key of the golden vectors: of the folder that `DP_PVI_SHARED` names (by default `../shared` beside the workspace, where it is there), else of
/// the tree.
pub(crate) fn vectors(key: &str) -> Value {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("DP_PVI_SHARED").map_or_else(|| workspace.join("../shared"), PathBuf::from);
    let places = [shared.join("reference/inference.json"), workspace.join("tests/vectors/inference.json")];
    let text = places.iter().find_map(|path| read_to_string(path).ok()).expect("the vectors are in the tree");
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value[key].take()
}

pub(crate) fn vector(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

pub(crate) fn matrix(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().unwrap().iter().map(vector).collect()
}

#[track_caller]
pub(crate) fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= tolerance, "entry {i}: {a} instead of {b}");
    }
}

/// The engines of logistic regression.
pub(crate) fn logistic() -> PredictorModel {
    PredictorModel::of(logistic_regression::LogisticRegression {})
}

/// The engines of linear regression.
pub(crate) fn linear(noise_sd: f64) -> PredictorModel {
    PredictorModel::of(linear_regression::LinearRegression { noise_sd })
}

/// The engines of robust regression.
pub(crate) fn robust(degrees_of_freedom: f64, scale: f64) -> PredictorModel {
    PredictorModel::of(Student::new(degrees_of_freedom, scale))
}

/// At what the exact fit calls the optimum, the bound's derivatives vanish: μ = Λ0⁻¹ Σ r x and Λ = Λ0 + Σ c x∘x (or Σ c xxᵀ).
pub(crate) fn check_optimum(model: &PredictorModel, targets: impl Fn(f64) -> f64) {
    let mut raw = random_units(5, 150, 3);
    raw.iter_mut().flatten().for_each(|(_, target)| *target = targets(*target));
    let data = table(3, &raw);
    for family in [Family::DiagonalGaussian { dimension: 3 }, Family::FullGaussian { dimension: 3 }] {
        let prior = Gaussian::from_natural(family, family.isotropic(0.0, 1.0)).unwrap();
        let q = model.local_optimum().unwrap().local_optimum(&data, &prior, &prior).unwrap();
        let (slope, curvature) = glm::sums(&data, |record| {
            let (a, s2) = q.standard().project(record.indices, record.values);
            model.0.statistics(a, s2, record.target)
        });
        q.standard().mean().iter().zip(slope.iter()).for_each(|(mean, slope)| assert!((mean - slope).abs() < 1e-7, "{mean} {slope}"));
        // The packed order begins with the first diagonal entry in either family.
        assert!((q.natural()[3] - 1.0 - curvature[(0, 0)]).abs() < 1e-7 * curvature[(0, 0)]);
        let elsewhere = Gaussian::from_natural(family, q.natural().iter().map(|v| 1.01 * v).collect()).unwrap();
        let bound = |q: &Gaussian| glm::total(model.0.as_ref(), &data, q) - q.kl(&prior);
        assert!(bound(&q) > bound(&elsewhere));
    }
}
