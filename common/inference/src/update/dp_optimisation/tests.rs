//! DP optimisation of neural networks, through the real gate.

use dp_pvi_expfam::any::Gaussian;
use dp_pvi_posterior::task::{Approximation, ModelSpec, NetworkOutput, NeuralNetworkSpec, Optimizer, ResolvedTask, UpdateSpec};
use dp_pvi_privacy::mechanism::ReleaseError;
use dp_pvi_privacy::{DpEvent, Payload, Relation, SiteState, Terms, Units};

use super::GradientSum;
use crate::error::InferenceError;
use crate::model;
use crate::point::{MeanField, ScaleCoordinate};
use crate::testing::{SeededNoise, permit, random_units, spec, step_permit, table, task};
use crate::update::{Job, Output, run};

const FEATURES: usize = 5;

type RawUnits = Vec<Vec<(Vec<f64>, f64)>>;

fn network_task(rate: f64, steps: u32, clip: f64, noise: f64) -> ResolvedTask {
    let network = NeuralNetworkSpec { hidden: vec![7], output: NetworkOutput::Binary {}, samples: 3 };
    let d = network.network(FEATURES).unwrap().dimension();
    let mut update = spec(Optimizer::Adam, steps, rate, clip, noise);
    update.max_units = Some(10_000);
    update.initial_log_scale = 0.05f64.ln();
    let update = UpdateSpec::DpOptimisation(update);
    ResolvedTask { features: FEATURES as u32, ..task(ModelSpec::NeuralNetwork(network), Approximation::MeanField, d as u32, update) }
}

fn visit(task: &ResolvedTask, raw: &RawUnits, event: &DpEvent, seed: u64) -> Result<Output, InferenceError> {
    let lambda = task.prior_natural();
    let job = Job { task, visit: 0, lambda: &lambda, state: &SiteState::None };
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
        let model = model::from_spec(&task.model);
        let d = task.dimension as usize;
        let gradients = GradientSum::new(spec, model.as_ref(), d).unwrap();
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
            gradients.release(&point, &units, step_permit(&step), &SeededNoise::new(3)).unwrap().into_inner().values
        };
        let sums: Vec<Vec<i64>> = pool.iter().map(sum).collect();
        let allowed = |relation: Relation| {
            f64::from(relation.sensitivity_factor(Terms::Units)) * (inner.bound_squared as f64).sqrt() + inner.excess as f64
        };
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
    let model = model::from_spec(&task.model);
    let table = table(FEATURES, &raw);
    let total: f64 = table.records().map(|record| model.expected_log_likelihood(record, &q)).sum();
    let mean = total / table.records().len() as f64;
    // A constant predictor, and any linear one, stays near ln ½ = −0.69.
    assert!(mean > -0.45, "{mean}");
}
