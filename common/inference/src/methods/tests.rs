//! Conformance of every model with every update: what ran is what was permitted, what is summed moves by no more than the
//! declared sensitivity, and nothing depends on anything but its arguments.

use dp_pvi_accounting::{DpEvent, Relation, Terms};
use dp_pvi_models::{linear_regression, logistic_regression};
use dp_pvi_names::{LatticeVector, Payload, ReleaseId};
use dp_pvi_posterior::task::{Approximation, DpOptimisationSpec, ModelSpec, Optimizer, ResolvedTask, UpdateSpec};
use dp_pvi_privacy::mechanism::{LatticeSum, ReleaseError};
use dp_pvi_privacy::noise::NoRandomness;
use dp_pvi_privacy::{NoiseSource, Purpose, SecureNoise, SiteState, Units};

use super::dp_optimisation::GradientSum;
use super::{Job, Local, Output, dp_optimisation, run};
use crate::InferenceError;
use crate::mean_field::{MeanField, ScaleCoordinate};
use crate::testing::{SeededNoise, models, permit, random_units, spec, step_permit, table, task};
use dp_pvi_records::RecordTable;
use dp_pvi_unsealed::Sealed;

const D: usize = 5;

type RawUnits = Vec<Vec<(Vec<f64>, f64)>>;

fn units(raw: &RawUnits) -> Units<RecordTable> {
    Units::new(table(D, raw))
}

fn updates() -> Vec<UpdateSpec> {
    vec![
        UpdateSpec::Pvi {},
        UpdateSpec::DpOptimisation(spec(Optimizer::Preconditioned, 6, 1.0, 1.5, 0.8)),
        UpdateSpec::DpOptimisation(spec(Optimizer::Preconditioned, 6, 0.4, 1.5, 0.8)),
        UpdateSpec::DpOptimisation(spec(Optimizer::Adam, 6, 0.4, 1.5, 0.8)),
        UpdateSpec::DpOptimisation(spec(Optimizer::PositivityPreserving, 6, 0.4, 1.5, 0.8)),
    ]
}

/// Every task that the registry can serve.
fn registry() -> Vec<ResolvedTask> {
    let mut tasks = Vec::new();
    for model in models() {
        for update in updates() {
            tasks.push(task(model.clone(), Approximation::MeanField, D as u32, update));
        }
        tasks.push(task(model, Approximation::FullCovariance, D as u32, UpdateSpec::Pvi {}));
    }
    tasks
}

fn visit(task: &ResolvedTask, raw: &RawUnits, noise: &impl NoiseSource) -> Result<Output, InferenceError> {
    let lambda = task.prior_natural();
    let job = Job { site: None, task, visit: 0, lambda: &lambda, state: &SiteState::None };
    run(&job, &units(raw), permit(&task.visit_event(0).unwrap(), 0), noise)
}

fn values(output: &Output) -> Vec<f64> {
    match output.message.released().unwrap().get() {
        Payload::Values(values) => values.clone(),
        Payload::Lattice(_) | Payload::Masked(_) => panic!("these updates send values"),
    }
}

#[test]
fn same_seed_same_result_and_another_seed_another_one() {
    let raw = random_units(1, 40, D);
    for task in registry() {
        let first = visit(&task, &raw, &SeededNoise::new(1)).unwrap();
        let again = visit(&task, &raw, &SeededNoise::new(1)).unwrap();
        let other = visit(&task, &raw, &SeededNoise::new(2)).unwrap();
        assert_eq!(values(&first), values(&again));
        assert_eq!(first.pending.public(), Some(values(&first).as_slice()));
        assert_eq!(values(&first).len(), task.family().len());
        assert!(values(&first).iter().all(|v| v.is_finite()));
        assert_eq!(values(&first) == values(&other), matches!(task.update, UpdateSpec::Pvi {}), "{:?}", task.update);
    }
}

/// The event is a pure function of the task, and the only one whose permit runs it; every step permit of it is used.
#[test]
fn the_permit_must_be_for_the_event_of_the_task_and_is_used_up() {
    let raw = random_units(1, 10, D);
    for task in registry() {
        let lambda = task.prior_natural();
        let job = Job { site: None, task: &task, visit: 0, lambda: &lambda, state: &SiteState::None };
        let counting = Counting::new();
        let event = task.visit_event(0).unwrap();
        run(&job, &units(&raw), permit(&event, 0), &counting).unwrap();
        let (steps, per_step) = match &event {
            DpEvent::NonPrivate => (0, 0),
            DpEvent::Composed { event, count } => (*count, if matches!(**event, DpEvent::PoissonSampled { .. }) { 2 } else { 1 }),
            other => panic!("unexpected event {other:?}"),
        };
        if let UpdateSpec::DpOptimisation(spec) = &task.update {
            assert_eq!(steps, u64::from(spec.steps));
        }
        // One noise stream a step, and one of coins where units are sampled.
        assert_eq!(counting.streams(), (0..steps).flat_map(|step| vec![step; per_step]).collect::<Vec<_>>());
        for wrong in [DpEvent::NonPrivate, event.clone().repeated(2), DpEvent::NonPrivate.repeated(3)] {
            if wrong != event {
                let result = run(&job, &units(&raw), permit(&wrong, 0), &counting);
                assert!(matches!(result, Err(InferenceError::Release(ReleaseError::PermitMismatch))), "{result:?}");
            }
        }
    }
}

/// Counts the streams that were asked for. Tests may lock; the crate may not.
#[allow(clippy::disallowed_types)]
struct Counting(std::sync::Mutex<Vec<u64>>);

#[allow(clippy::disallowed_types)]
impl Counting {
    fn new() -> Self {
        Self(std::sync::Mutex::new(Vec::new()))
    }

    fn streams(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }
}

impl Sealed for Counting {}

impl NoiseSource for Counting {
    type Stream = chacha20::ChaCha20Rng;
    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<Self::Stream, NoRandomness> {
        self.0.lock().unwrap().push(step);
        SeededNoise::new(5).stream(release, step, purpose)
    }
}

/// Records that no schema lets pass, but that must not break a guarantee if one did.
fn adversarial() -> Vec<Vec<(Vec<f64>, f64)>> {
    let row = |x: f64| vec![(vec![x; D], 1.0)];
    vec![
        vec![],
        row(0.0),
        row(f64::NAN),
        row(f64::INFINITY),
        row(1e300),
        row(-1e300),
        row(1e160),
        row(1e-300),
        row(1e6),
        vec![(vec![1.0; D], f64::NAN)],
        vec![(vec![1.0; D], 1e300)],
        vec![(vec![1.0; D], 1e9)],
        vec![(vec![1.0; D], -1e9)],
        vec![(vec![1.0; D], 1.0); 50],
        vec![(vec![1e308; D], 1.0); 3],
        vec![(vec![3.0, -3.0, 3.0, -3.0, 3.0], 0.0), (vec![f64::NAN; D], 0.0)],
    ]
}

/// One released sum without its noise: the noise does not depend on records, so it is what the same step releases on nothing.
fn without_noise(
    model: &ModelSpec,
    spec: &DpOptimisationSpec,
    mechanism: &LatticeSum,
    point: &MeanField,
    raw: &RawUnits,
    noise: &SeededNoise,
) -> Vec<i64> {
    let gradients = GradientSum::new(spec, model, &[1.0; D]).unwrap();
    let release = |raw: &RawUnits| -> LatticeVector {
        gradients.release((point, None), &units(raw), step_permit(&mechanism.event()), noise).unwrap().into_inner()
    };
    let silent = vec![vec![]; raw.len()];
    release(raw).values.iter().zip(&release(&silent).values).map(|(a, b)| a - b).collect()
}

fn squared_factor(relation: Relation) -> u128 {
    u128::from(relation.squared_sensitivity_factor(Terms::Units))
}

fn distance_squared(a: &[i64], b: &[i64]) -> u128 {
    a.iter().zip(b).map(|(a, b)| u128::from(a.abs_diff(*b)).pow(2)).sum()
}

#[test]
fn neighbouring_data_sets_move_a_sum_by_at_most_the_declared_sensitivity() {
    let noise = SeededNoise::new(3);
    let mut largest = 0.0f64;
    for spec_of_model in models() {
        for rate in [1.0, 0.5] {
            let spec = spec(Optimizer::Preconditioned, 1, rate, 1.5, 0.8);
            let mechanism = spec.mechanism(2 * D as u32).unwrap();
            let bound = match mechanism.event() {
                DpEvent::DiscreteGaussian(event) => event.bound_squared,
                DpEvent::PoissonSampled { event, .. } => match *event {
                    DpEvent::DiscreteGaussian(event) => event.bound_squared,
                    other => panic!("unexpected event {other:?}"),
                },
                other => panic!("unexpected event {other:?}"),
            };
            for coordinate in [ScaleCoordinate::LogScale, ScaleCoordinate::HalfVariance { weight: 1.0 }] {
                let point = MeanField::new(vec![0.3; D], vec![0.5; D], coordinate).unwrap();
                let base = random_units(11, 12, D);
                let with = |position: usize, unit: &Vec<(Vec<f64>, f64)>| {
                    let mut raw = base.clone();
                    raw[position] = unit.clone();
                    without_noise(&spec_of_model, &spec, &mechanism, &point, &raw, &noise)
                };
                let pool: Vec<_> = adversarial().into_iter().chain(random_units(12, 6, D)).collect();
                for position in [0, 5] {
                    let absent = with(position, &Vec::new());
                    let sums: Vec<_> = pool.iter().map(|unit| with(position, unit)).collect();
                    for (i, here) in sums.iter().enumerate() {
                        // Add-remove: an absent unit is one that contributes 0.
                        assert!(distance_squared(here, &absent) <= bound * squared_factor(Relation::AddRemove), "unit {i}");
                        for there in &sums {
                            let moved = distance_squared(here, there);
                            assert!(moved <= bound * squared_factor(Relation::ReplaceOne), "unit {i}");
                            largest = largest.max(moved as f64 / (bound * squared_factor(Relation::ReplaceOne)) as f64);
                        }
                    }
                }
            }
        }
    }
    // The bound is nearly reached, so the test can fail.
    assert!(largest > 0.9, "{largest}");
}

/// One person with many records counts as much as a person with one.
#[test]
fn the_records_of_a_person_are_summed_and_then_clipped_once() {
    let spec = spec(Optimizer::Preconditioned, 1, 1.0, 1.5, 0.8);
    let mechanism = spec.mechanism(2 * D as u32).unwrap();
    let point = MeanField::new(vec![0.0; D], vec![1.0; D], ScaleCoordinate::LogScale).unwrap();
    let record = (vec![1.0, -1.0, 0.5, 0.0, 2.0], 1.0);
    let sum = |raw: RawUnits| {
        let sum = without_noise(
            &ModelSpec::from(logistic_regression::LogisticRegression {}),
            &spec,
            &mechanism,
            &point,
            &raw,
            &SeededNoise::new(1),
        );
        sum.iter().map(|&v| (v as f64 * 2f64.powi(mechanism.exponent())).powi(2)).sum::<f64>().sqrt()
    };
    let apart = sum(vec![vec![record.clone()]; 10]);
    let together = sum(vec![vec![record; 10]]);
    assert!(apart > 5.0 * together);
    assert!((together - 1.5).abs() < 1e-3, "{together}");
}

/// A conjugate model needs one visit: the exact posterior comes out.
#[test]
fn conjugate_updates_are_exact() {
    let raw = random_units(21, 30, D);
    let task = task(
        ModelSpec::from(linear_regression::LinearRegression { noise_sd: 0.7 }),
        Approximation::FullCovariance,
        D as u32,
        UpdateSpec::Pvi {},
    );
    let change = values(&visit(&task, &raw, &SeededNoise::new(1)).unwrap());
    let mut expected = vec![0.0; change.len()];
    let precision = 0.7f64.powi(-2);
    for (row, target) in raw.iter().flatten() {
        let mut k = D;
        for i in 0..D {
            expected[i] += row[i] * target * precision;
            for j in i..D {
                expected[k] += row[i] * row[j] * precision * if i == j { 1.0 } else { std::f64::consts::SQRT_2 };
                k += 1;
            }
        }
    }
    crate::testing::close(&change, &expected, 1e-10);
}

/// With a fixed transcript (λ of every visit, released changes, inner released sums) and fixed coins, what a site sums
/// before noise is the same for every noise seed. `carry` decides what the factor is made of.
fn replay(carry: Carry, seed: u64) -> Vec<Vec<i64>> {
    let spec = spec(Optimizer::Preconditioned, 4, 0.5, 1.5, 0.8);
    let task = task(
        ModelSpec::from(logistic_regression::LogisticRegression {}),
        Approximation::MeanField,
        D as u32,
        UpdateSpec::DpOptimisation(spec),
    );
    let raw = random_units(31, 30, D);
    let mechanism = spec.mechanism(2 * D as u32).unwrap();
    let transcript = SeededNoise { noise: 100, coins: 1 };
    let own = SeededNoise { noise: seed, coins: 1 };
    let (mut lambda, mut factor) = (task.prior_natural(), vec![0.0; 2 * D]);
    let mut sums = Vec::new();
    for visit in 0..3 {
        let job = Job { site: None, task: &task, visit, lambda: &lambda, state: &SiteState::Public(factor.clone()) };
        let mut iterate = dp_optimisation::Iterate::start(&spec, &dp_optimisation::local(&spec, &job).unwrap()).unwrap();
        for _ in 0..spec.steps {
            sums.push(without_noise(&task.model, &spec, &mechanism, iterate.point(), &raw, &own));
            // The transcript's sum, whatever this run's noise is.
            // The transcript is fixed: it was made from the same public point.
            let point = MeanField::new(vec![0.1; D], vec![1.0; D], iterate.point().coordinate()).unwrap();
            let gradients = GradientSum::new(&spec, &task.model, &[1.0; D]).unwrap();
            let released = gradients.release((&point, None), &units(&raw), step_permit(&mechanism.event()), &transcript);
            iterate = iterate.advance(&released.unwrap().into_inner().to_f64());
        }
        let of = |noise: &SeededNoise| {
            let output = run(&job, &units(&raw), permit(&task.visit_event(0).unwrap(), visit), noise).unwrap();
            output.pending.public().unwrap().to_vec()
        };
        let public = of(&transcript);
        let carried = match carry {
            Carry::Transcript => public.clone(),
            Carry::OwnNoise => of(&own),
        };
        let rho = 0.5;
        factor.iter_mut().zip(&carried).for_each(|(f, c)| *f += rho * c);
        // λ is the server's: it moves by what the transcript says.
        lambda.iter_mut().zip(&public).for_each(|(l, c)| *l += rho * c);
    }
    sums
}

#[derive(Clone, Copy)]
enum Carry {
    /// What the protocol does: the factor moves by the released change.
    Transcript,
    /// The forbidden design: the factor keeps noise that only this site knows.
    OwnNoise,
}

/// State purity: what a site carries on is a function of what it sent, whatever the noise was.
#[test]
fn sums_before_noise_do_not_depend_on_earlier_noise() {
    let first = replay(Carry::Transcript, 1);
    for seed in 2..=20 {
        assert_eq!(replay(Carry::Transcript, seed), first, "seed {seed}");
    }
    // The test must notice noise in the state.
    assert_ne!(replay(Carry::OwnNoise, 2), replay(Carry::OwnNoise, 3));
}

/// With the noise of production: the change of the factor that DP optimisation carries on is the released vector itself, to
/// the last bit. Anything else in it (noise that was not sent, or less noise than was sent) would be unaccounted state.
#[test]
fn dp_optimisation_carries_exactly_what_it_released() {
    let raw = random_units(12, 40, D);
    for task in registry().into_iter().filter(|task| matches!(task.update, UpdateSpec::DpOptimisation(_))) {
        let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let runs: Vec<_> = (0..2)
            .map(|_| {
                let output = visit(&task, &raw, &SecureNoise).unwrap();
                assert_eq!(bits(output.pending.public().unwrap()), bits(&values(&output)), "{}", task.update);
                bits(&values(&output))
            })
            .collect();
        assert_ne!(runs[0], runs[1], "there is noise");
    }
}

/// All units in every step, a clipping norm that never binds and hardly any noise reach the exact optimum.
/// The lattice wants a noise multiplier far above 2⁻¹¹ for every clipping norm; the average over the last iterates removes what is left of the noise.
#[test]
fn without_noise_dp_optimisation_reaches_the_exact_local_optimum() {
    let raw: RawUnits = random_units(41, 700, D).into_iter().filter(|unit| unit.len() == 1).collect();
    for (model, clip) in models().into_iter().zip([60.0, 6.0]) {
        let exact = task(model.clone(), Approximation::MeanField, D as u32, UpdateSpec::Pvi {});
        let (mean, variance) = standard(&values(&visit(&exact, &raw, &SeededNoise::new(1)).unwrap()));
        for optimizer in [Optimizer::Preconditioned, Optimizer::Adam, Optimizer::PositivityPreserving] {
            let mut spec = spec(optimizer, 1000, 1.0, clip, 1e-3);
            match optimizer {
                Optimizer::Preconditioned => (spec.learning_rate, spec.step_precision) = (0.5, 20.0),
                Optimizer::Adam => spec.learning_rate_decay = 0.99,
                Optimizer::PositivityPreserving => (spec.learning_rate, spec.step_precision) = (0.3, 20.0),
            }
            let task = task(model.clone(), Approximation::MeanField, D as u32, UpdateSpec::DpOptimisation(spec));
            let (found_mean, found_variance) = standard(&fitted(&task, &raw, 10));
            crate::testing::close(&found_mean, &mean, 1e-5);
            crate::testing::close(&found_variance, &variance, 1e-5);
        }
    }
}

/// λ* − λ0 after some undamped visits to the only site.
fn fitted(task: &ResolvedTask, raw: &RawUnits, visits: u32) -> Vec<f64> {
    let prior = task.prior_natural();
    let mut factor = vec![0.0; prior.len()];
    for visit in 0..visits {
        let lambda: Vec<f64> = prior.iter().zip(&factor).map(|(p, f)| p + f).collect();
        let job = Job { site: None, task, visit, lambda: &lambda, state: &SiteState::Public(factor.clone()) };
        let output = run(&job, &units(raw), permit(&task.visit_event(0).unwrap(), visit), &SeededNoise::new(9)).unwrap();
        factor.iter_mut().zip(output.pending.public().unwrap()).for_each(|(f, c)| *f += c);
    }
    factor
}

/// Mean and variance of prior (0, 1) plus a factor.
fn standard(factor: &[f64]) -> (Vec<f64>, Vec<f64>) {
    (0..D).map(|j| (factor[j] / (1.0 + factor[D + j]), 1.0 / (1.0 + factor[D + j]))).unzip()
}

#[test]
fn a_job_that_does_not_fit_is_refused() {
    let task = task(ModelSpec::from(logistic_regression::LogisticRegression {}), Approximation::MeanField, D as u32, UpdateSpec::Pvi {});
    let raw = random_units(1, 5, D);
    let (good, zero) = (task.prior_natural(), vec![0.0; 2 * D]);
    let mut negative = good.clone();
    negative[D] = -1.0;
    for (lambda, factor) in [(&good[1..], &zero[..]), (&good, &zero[1..]), (&negative, &zero)] {
        let state = SiteState::Public(factor.to_vec());
        let job = Job { site: None, task: &task, visit: 0, lambda, state: &state };
        let result = run(&job, &units(&raw), permit(&DpEvent::NonPrivate, 0), &SeededNoise::new(1));
        assert!(matches!(result, Err(InferenceError::Job(_))), "{result:?}");
    }
    // A cavity of any sign is usable: its precision is raised to a tenth of the prior's.
    let factor: Vec<f64> = zero[..D].iter().copied().chain(vec![5.0; D]).collect();
    let job = Job { site: None, task: &task, visit: 0, lambda: &good, state: &SiteState::Public(factor) };
    let local = Local::new(&job).unwrap();
    assert_eq!(local.cavity.natural()[D..], vec![0.1; D]);
    assert!(run(&job, &units(&raw), permit(&DpEvent::NonPrivate, 0), &SeededNoise::new(1)).is_ok());
}

/// A local failure (numbers out of range) sends the zero change and says nothing.
#[test]
fn a_local_failure_is_the_zero_change() {
    let raw = vec![vec![(vec![1e200; D], 1.0)]];
    for approximation in [Approximation::MeanField, Approximation::FullCovariance] {
        for model in models() {
            let task = task(model, approximation, D as u32, UpdateSpec::Pvi {});
            let output = visit(&task, &raw, &SeededNoise::new(1)).unwrap();
            assert!(values(&output).iter().all(|v| *v == 0.0));
        }
    }
}
