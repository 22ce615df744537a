//! DP optimisation of neural networks, through the real gate.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use dp_pvi_accounting::{ClipNorm, DpEvent, Relation, Terms};
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::neural_network::{NetworkOutput, NeuralNetworkSpec};
use dp_pvi_names::Payload;
use dp_pvi_posterior::task::{AdaptiveClipSpec, Approximation, ModelSpec, Optimizer, ResolvedTask, UpdateSpec};
use dp_pvi_privacy::mechanism::batch::compare;
use dp_pvi_privacy::mechanism::{BatchTerms, ReleaseError};
use dp_pvi_privacy::{SiteState, Units};

use super::{GradientSum, Iterate};
use crate::capabilities::WithIndicator;
use crate::error::InferenceError;
use crate::mean_field::{MeanField, ScaleCoordinate};
use crate::methods::{Job, Output, run};
use crate::models;
use crate::testing::{SeededNoise, permit, random_units, spec, step_permit, table, task};
use dp_pvi_records::RecordTable;

const FEATURES: usize = 5;

type RawUnits = Vec<Vec<(Vec<f64>, f64)>>;

fn network_task(rate: f64, steps: u32, clip: f64, noise: f64) -> ResolvedTask {
    let network = NeuralNetworkSpec { hidden: vec![7], output: NetworkOutput::Binary {}, samples: 3 };
    let d = network.network(FEATURES).unwrap().dimension();
    let mut update = spec(Optimizer::Adam, steps, rate, clip, noise);
    update.max_units = Some(10_000);
    update.initial_log_scale = 0.05f64.ln();
    let update = UpdateSpec::DpOptimisation(update);
    ResolvedTask { features: FEATURES as u32, ..task(ModelSpec::from(network), Approximation::MeanField, d as u32, update) }
}

fn visit(task: &ResolvedTask, raw: &RawUnits, event: &DpEvent, seed: u64) -> Result<Output, InferenceError> {
    let lambda = task.prior_natural();
    let job = Job { site: None, task, visit: 0, lambda: &lambda, state: &SiteState::None };
    run(&job, &Units::new(table(FEATURES, raw)), permit(event, 0), &SeededNoise::new(seed))
}

fn change(output: &Output) -> Vec<f64> {
    match output.message.released().unwrap().get() {
        Payload::Values(values) => values.clone(),
        other => panic!("values are sent, not {other:?}"),
    }
}

#[test]
fn a_visit_consumes_the_event_of_the_task_and_no_other() {
    let raw = random_units(1, 40, FEATURES);
    for rate in [1.0, 0.4] {
        let task = network_task(rate, 3, 1.5, 0.8);
        let event = task.visit_event(0).unwrap();
        let of = |seed| change(&visit(&task, &raw, &event, seed).unwrap());
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        for wrong in [DpEvent::NonPrivate, network_task(rate, 3, 1.5, 0.7).visit_event(0).unwrap()] {
            let result = visit(&task, &raw, &wrong, 1);
            assert!(matches!(result, Err(InferenceError::Release(ReleaseError::PermitMismatch))), "{result:?}");
        }
    }
}

/// One unit exchanged for any other, the same coins, draws and noise: integer sums move by at most what the event says.
#[test]
fn neighbouring_data_sets_move_a_sum_by_at_most_the_declared_sensitivity() {
    let row = |x: f64, y: f64| vec![(vec![x; FEATURES], y)];
    let mut pool: RawUnits =
        vec![vec![], row(0.0, 0.0), row(f64::NAN, 1.0), row(1e300, 1.0), row(1e9, 0.0), row(-1e17, 1.0), row(1.0, f64::NAN)];
    pool.extend([vec![(vec![1.0; FEATURES], 1.0); 30], row(1e-200, 1.0), row(1.0, 1e300)]);
    pool.extend(random_units(12, 8, FEATURES));
    let mut largest = 0.0f64;
    for rate in [1.0, 0.5] {
        let task = network_task(rate, 1, 0.05, 0.8);
        let UpdateSpec::DpOptimisation(spec) = &task.update else { panic!("DP optimisation") };
        let d = task.dimension as usize;
        let scales = spec.feature_scales(&task.setting()).unwrap();
        let gradients = GradientSum::new(spec, &task.model, &scales).unwrap();
        let event = task.visit_event(0).unwrap();
        let step = match &event {
            DpEvent::Composed { event, .. } => event.as_ref().clone(),
            event => event.clone(),
        };
        let inner = match &step {
            DpEvent::DiscreteGaussian(inner) => *inner,
            DpEvent::PoissonSampled { event, .. } => match event.as_ref() {
                DpEvent::DiscreteGaussian(inner) => *inner,
                other => panic!("unexpected event {other:?}"),
            },
            other => panic!("unexpected event {other:?}"),
        };
        assert!(inner.excess > 0, "rounding is charged");
        let mean = task.model.fit_start(task.features).unwrap();
        let point = MeanField::new(mean, vec![0.3; d], ScaleCoordinate::LogScale).unwrap();
        let base = random_units(11, 12, FEATURES);
        let sum = |unit: &Vec<(Vec<f64>, f64)>| {
            let mut raw = base.clone();
            raw[5] = unit.clone();
            let units = Units::new(table(FEATURES, &raw));
            gradients.release((&point, None), &units, step_permit(&step), &SeededNoise::new(3)).unwrap().into_inner().values
        };
        let sums: Vec<Vec<i64>> = pool.iter().map(sum).collect();
        let allowed =
            |relation: Relation| relation.sensitivity_factor(Terms::Units) * (inner.bound_squared as f64).sqrt() + inner.excess as f64;
        for (i, here) in sums.iter().enumerate() {
            for (j, there) in sums.iter().enumerate() {
                let moved = here.iter().zip(there).map(|(a, b)| (a.abs_diff(*b) as f64).powi(2)).sum::<f64>().sqrt();
                let relation = if i == 0 || j == 0 { Relation::AddRemove } else { Relation::ReplaceOne };
                assert!(moved <= allowed(relation), "units {i} and {j}: {moved} of {}", allowed(relation));
                largest = largest.max(moved / allowed(relation));
            }
        }
    }
    // The bound is nearly reached, so the test can fail.
    assert!(largest > 0.9, "{largest}");
}

/// With hardly any noise and a clip that rarely binds, a visit learns a class that no linear predictor can tell: the sign of x₀x₁.
#[test]
fn a_visit_fits_what_a_linear_model_cannot() {
    let raw: RawUnits = random_units(21, 900, FEATURES)
        .into_iter()
        .filter(|unit| unit.len() == 1)
        .map(|unit| {
            unit.into_iter().map(|(x, _)| ([&x[..FEATURES - 1], &[1.0]].concat(), f64::from(u8::from(x[0] * x[1] > 0.0)))).collect()
        })
        .collect();
    let task = network_task(1.0, 400, 30.0, 1e-3);
    let lambda = task.prior_natural();
    let fitted = change(&visit(&task, &raw, &task.visit_event(0).unwrap(), 1).unwrap());
    let natural = lambda.iter().zip(&fitted).map(|(l, c)| l + c).collect();
    let q = Gaussian::from_natural(task.family(), natural).unwrap();
    let model = models::from_spec(&task.model).unwrap();
    let table = table(FEATURES, &raw);
    let total: f64 = table.records().map(|record| model.expected_log_likelihood(record, &q)).sum();
    let mean = total / table.records().len() as f64;
    // A constant predictor, and any linear one, stays near ln ½ = −0.69.
    assert!(mean > -0.45, "{mean}");
}

const ADAPTIVE: AdaptiveClipSpec = AdaptiveClipSpec { expected_units: 40.0, target: 0.9, rate: 0.3, weight: 0.4 };

fn adaptive_task(rate: f64, steps: u32, clip: f64, noise: f64) -> ResolvedTask {
    let task = network_task(rate, steps, clip, noise);
    let UpdateSpec::DpOptimisation(spec) = task.update else { panic!("DP optimisation") };
    let expected_units = 40.0 * rate;
    let adaptive_clip = Some(AdaptiveClipSpec { expected_units, ..ADAPTIVE });
    ResolvedTask { update: UpdateSpec::DpOptimisation(dp_pvi_posterior::task::DpOptimisationSpec { adaptive_clip, ..spec }), ..task }
}

/// Gradient and indicator are one term of norm at most 1, whatever C is, so a step costs what it does with a fixed C.
#[test]
fn gradients_with_an_indicator_keep_the_promises_of_a_batch() {
    let network = NeuralNetworkSpec { hidden: vec![7], output: NetworkOutput::Binary {}, samples: 3 }.network(FEATURES).unwrap();
    let model = crate::models::neural_network::NeuralNetwork::new(NeuralNetworkSpec {
        hidden: vec![7],
        output: NetworkOutput::Binary {},
        samples: 3,
    });
    let d = network.dimension();
    let point = MeanField::new(network.initial_mean(), vec![0.1; d], ScaleCoordinate::LogScale).unwrap();
    let table = table(FEATURES, &random_units(31, 40, FEATURES));
    for clip in [1e-3, 0.3, 1e3] {
        let terms = WithIndicator::new(model.gradients(&network, &point), ADAPTIVE, ClipNorm::new(clip).unwrap());
        compare(&table, &terms, 2 * d + 1, ChaCha20Rng::seed_from_u64).unwrap_or_else(|broken| panic!("{clip}: {broken}"));
        // Every unit's term has a norm between the indicator's half weight and 1, and 1 where the gradient is cut.
        let mut work = BatchTerms::<RecordTable>::start(&terms, &mut ChaCha20Rng::seed_from_u64(0));
        let units: Vec<_> = (0..40).map(|unit| dp_pvi_privacy::UnitTable::unit(&table, unit)).collect();
        let mut norms = Vec::new();
        let words: Vec<u64> = (0..40).map(|unit| ChaCha20Rng::seed_from_u64(unit).next_u64()).collect();
        BatchTerms::<RecordTable>::norms(&terms, &units, &words, &mut work, &mut norms);
        assert!(norms.iter().all(|norm| (0.2..=1.0 + 1e-15).contains(norm)), "{norms:?}");
        assert!(clip > 1.0 || norms.iter().any(|norm| *norm > 1.0 - 1e-12));
    }
}

/// The adapting step has the event of a fixed one with C = 1 and one coordinate more, and a visit of it runs.
#[test]
fn an_adapting_visit_costs_what_a_fixed_one_does() {
    for rate in [1.0, 0.5] {
        let (fixed, adaptive) = (network_task(rate, 4, 1.0, 0.8), adaptive_task(rate, 4, 3.0, 0.8));
        assert_eq!(fixed.loss(3).unwrap().epsilon.get().to_bits() >> 12, adaptive.loss(3).unwrap().epsilon.get().to_bits() >> 12);
        let raw = random_units(1, 40, FEATURES);
        let event = adaptive.visit_event(0).unwrap();
        assert!(change(&visit(&adaptive, &raw, &event, 1).unwrap()).iter().all(|value| value.is_finite()));
        let wrong = fixed.visit_event(0).unwrap();
        assert!(matches!(visit(&adaptive, &raw, &wrong, 1), Err(InferenceError::Release(ReleaseError::PermitMismatch))));
    }
}

/// C falls while more units than aimed at are within it, rises while fewer are, and begins anew at the next visit.
#[test]
fn the_clipping_norm_follows_the_share_of_units_within_it() {
    let task = adaptive_task(1.0, 10, 2.0, 0.8);
    let UpdateSpec::DpOptimisation(spec) = &task.update else { panic!("DP optimisation") };
    let lambda = task.prior_natural();
    let job = Job { site: None, task: &task, visit: 0, lambda: &lambda, state: &SiteState::None };
    let start = || Iterate::start(spec, &super::local(spec, &job).unwrap()).unwrap();
    assert_eq!(start().clip().unwrap().get(), 2.0);
    let released = |within: f64| {
        let mut sum = vec![0.0; 2 * task.dimension as usize + 1];
        // Σ ±w/2 over 40 units of which this share is within C.
        *sum.last_mut().unwrap() = ADAPTIVE.weight * 40.0 * (within - 0.5);
        sum
    };
    for (within, expected) in [(1.0, 2.0 * (-0.03f64).exp()), (0.9, 2.0), (0.0, 2.0 * 0.27f64.exp())] {
        let clip = start().advance(&released(within)).clip().unwrap().get();
        assert!((clip - expected).abs() < 1e-12, "{within}: {clip} {expected}");
    }
    // A broken sum leaves it where it is.
    assert_eq!(start().advance(&released(f64::NAN)).clip().unwrap().get(), 2.0);
}

/// 13.2: whatever curvature comes, precisions stay positive and never fall below half in a step.
#[test]
fn positivity_preserving_steps_stay_positive() {
    let mut task = network_task(1.0, 10, 2.0, 0.8);
    let UpdateSpec::DpOptimisation(spec) = &mut task.update else { panic!("DP optimisation") };
    (spec.optimizer, spec.learning_rate) = (Optimizer::PositivityPreserving, 1.0);
    let (spec, lambda) = (*spec, task.prior_natural());
    let job = Job { site: None, task: &task, visit: 0, lambda: &lambda, state: &SiteState::None };
    let d = task.dimension as usize;
    let start = Iterate::start(&spec, &super::local(&spec, &job).unwrap()).unwrap();
    let before: Vec<f64> = start.point().variance().collect();
    for curvature in [-1e12, -1e3, -1.0, 0.0, 1.0, 1e3, 1e12] {
        let sum: Vec<f64> = vec![0.0; d].into_iter().chain(vec![-curvature; d]).collect();
        let next = start.clone().advance(&sum);
        for (old, new) in before.iter().zip(next.point().variance()) {
            assert!(new > 0.0 && new.is_finite() && new <= 2.0 * old * (1.0 + 1e-12), "{curvature}: {old} {new}");
        }
    }
}

/// Numbers of a task that no one means: with them squares of gradients vanished, so that the norm of a record of any length was told as 0. The
/// resolver refuses them; where no resolver is between, there is no mechanism for such a C, and with another one nothing is added that has no norm.
#[test]
fn a_record_is_clipped_whatever_the_noise_of_the_output_is() {
    let build = |noise_sd: f64, clip: f64| {
        let network = NeuralNetworkSpec { hidden: vec![], output: NetworkOutput::Number { noise_sd }, samples: 1 };
        let d = network.network(FEATURES).unwrap().dimension();
        let task = network_task(1.0, 1, clip, 0.8);
        ResolvedTask { model: ModelSpec::from(network), dimension: d as u32, ..task }
    };
    let largest = |task: &ResolvedTask| -> Result<f64, InferenceError> {
        let UpdateSpec::DpOptimisation(spec) = &task.update else { panic!("DP optimisation") };
        let scales = vec![1.0; task.dimension as usize];
        let gradients = GradientSum::new(spec, &task.model, &scales)?;
        let event = spec.batch_mechanism(2 * task.dimension, 10_000).unwrap().event();
        let DpEvent::DiscreteGaussian(noise) = &event else { panic!("{event:?}") };
        let d = task.dimension as usize;
        let point = MeanField::new(vec![0.0; d], vec![0.3; d], ScaleCoordinate::LogScale).unwrap();
        let sum = |target: f64| {
            let units = Units::new(table(FEATURES, &[vec![(vec![1.0; FEATURES], target)]]));
            gradients.release((&point, None), &units, step_permit(&event), &SeededNoise::new(3)).unwrap().into_inner().values
        };
        let sums = [1.0, -1.0, 1e100, -1e160, 1e300, 5e-324].map(sum);
        let distance = |a: &[i64], b: &[i64]| a.iter().zip(b).map(|(a, b)| (a.abs_diff(*b) as f64).powi(2)).sum::<f64>().sqrt();
        let allowed = 2.0 * (noise.bound_squared as f64).sqrt() + noise.excess as f64;
        Ok(sums.iter().flat_map(|a| sums.iter().map(move |b| distance(a, b) / allowed)).fold(0.0, f64::max))
    };
    // The C of the finding: a thousand times less than a record's gradient, whose square is 0.
    assert!(largest(&build(1e85, 1e-174)).is_err());
    for noise_sd in [1e-150, 1e-30, 1.0, 1e15, 1e30, 1e60, 1e85, 1e150] {
        for clip in [1e-30, 1e-9, 1.0, 1e30] {
            let found = largest(&build(noise_sd, clip)).unwrap();
            assert!(found <= 1.0, "{noise_sd:e} {clip:e}: {found}");
        }
    }
    assert!(largest(&build(1.0, 1.0)).unwrap() > 0.9);
}

/// A network's visit of whole epochs: its permit is for epochs, gives as many steps as the task has, and is for no other number of batches.
#[test]
fn a_visit_over_random_batches_consumes_whole_epochs() {
    let raw = random_units(1, 40, FEATURES);
    let with = |batches: Option<u32>| {
        let mut task = network_task(batches.map_or(1.0, |batches| 1.0 / f64::from(batches)), 6, 1.5, 0.8);
        let UpdateSpec::DpOptimisation(spec) = &mut task.update else { panic!("DP optimisation") };
        spec.batches = batches;
        task
    };
    let task = with(Some(3));
    let event = task.visit_event(0).unwrap();
    assert!(
        matches!(&event, DpEvent::Composed { event, count: 2 } if matches!(**event, DpEvent::RandomAllocation { batches: 3, .. })),
        "{event:?}"
    );
    assert_eq!(permit(&event, 0).into_steps().count(), 6);
    let of = |seed| change(&visit(&task, &raw, &event, seed).unwrap());
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    for wrong in [with(Some(2)), with(Some(6)), with(None)] {
        let result = visit(&task, &raw, &wrong.visit_event(0).unwrap(), 1);
        assert!(matches!(result, Err(InferenceError::Release(ReleaseError::PermitMismatch))), "{result:?}");
    }
}

/// The mean gradient of a visit of whole epochs that hardly moves varies by its noise alone, under Poisson sampling by its samples besides; and by less than that where it moves.
/// Linear regression, whose gradient at the mean point follows from that at any other one: 600 visits with other draws each.
#[test]
fn the_mean_gradient_of_whole_epochs_varies_by_its_noise_alone() {
    const D: usize = 3;
    const VISITS: u32 = 600;
    let (steps, batches, clip, noise) = (8, 4u32, 1000.0, 0.005);
    let raw: RawUnits = random_units(41, 420, D)
        .into_iter()
        .map(|unit| unit.into_iter().map(|(x, y)| (x.clone(), 0.6 * x[0] - 0.4 * x[1] + y - 0.5)).collect())
        .collect();
    let weight = 1.0 / (0.7 * 0.7);
    let gram = |i: usize, j: usize| weight * raw.iter().flatten().map(|(x, _)| x[i] * x[j]).sum::<f64>();
    let variances = |batches: Option<u32>, learning_rate: f64| {
        let mut update = spec(Optimizer::Preconditioned, steps, 1.0 / 4.0, clip, noise);
        (update.measured, update.batches, update.learning_rate) = (true, batches, learning_rate);
        let model = dp_pvi_models::linear_regression::LinearRegression { noise_sd: 0.7 };
        let task = task(model.into(), Approximation::MeanField, D as u32, UpdateSpec::DpOptimisation(update));
        let event = task.visit_event(0).unwrap();
        let lambda = task.prior_natural();
        let units = Units::new(table(D, &raw));
        let told: Vec<Vec<f64>> = (0..VISITS)
            .map(|seed| {
                let job = Job { site: None, task: &task, visit: 0, lambda: &lambda, state: &SiteState::None };
                let sent = change(&run(&job, &units, permit(&event, 0), &SeededNoise::new(seed.into())).unwrap());
                let (gradient, point) = (&sent[2 * D..3 * D], &sent[3 * D..4 * D]);
                (0..D).map(|i| gradient[i] + (0..D).map(|j| gram(i, j) * point[j]).sum::<f64>()).collect()
            })
            .collect();
        (0..D)
            .map(|i| {
                let mean = told.iter().map(|g| g[i]).sum::<f64>() / f64::from(VISITS);
                told.iter().map(|g| (g[i] - mean).powi(2)).sum::<f64>() / f64::from(VISITS - 1)
            })
            .collect::<Vec<f64>>()
    };
    // (zCT)²/L.
    let expected = (noise * clip * f64::from(batches)).powi(2) / f64::from(steps);
    let spread = 4.0 * (2.0 / f64::from(VISITS)).sqrt();
    for variance in variances(Some(batches), 1e-9) {
        assert!((variance / expected - 1.0).abs() < spread, "{variance} against {expected}");
    }
    // What the test would see if batches were samples.
    let poisson = variances(None, 1e-9);
    assert!(poisson.iter().all(|variance| variance / expected > 1.0 + spread), "{poisson:?} against {expected}");
    // A visit that moves: what batches differ by is less than the term that stands for it, that of samples, (T − 1)/L·H.
    for (i, variance) in variances(Some(batches), 0.3).into_iter().enumerate() {
        let most = expected + f64::from(batches - 1) / f64::from(steps) * gram(i, i);
        assert!(variance > expected * (1.0 - spread) && variance < most * (1.0 + spread), "{expected} < {variance} < {most}");
    }
}
