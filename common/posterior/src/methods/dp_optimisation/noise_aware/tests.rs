#![allow(clippy::unwrap_used)]

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, SamplingRate};
use nalgebra::DVector;

use super::measurements;
use crate::methods::noise_aware::{ClosedRound, History};
use crate::methods::{DpOptimisationSpec, UpdateSpec};
use crate::task::{RawTask, ResolveContext};

fn spec() -> DpOptimisationSpec {
    let schema = "norm_bound = 2.0\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n\
                  [[columns]]\nname = \"a\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";
    let task = "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\napproximation = \"mean-field\"\n[schema]\nfile = \"s\"\n\
                [pvi]\nupdate = \"dp-optimisation\"\nschedule = \"synchronous\"\nrounds = 3\nsteps = 4\n\
                [privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n";
    let context = ResolveContext { name: "t", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    let task = RawTask::parse(task).unwrap().resolve(schema, context).unwrap();
    let UpdateSpec::DpOptimisation(spec) = task.update else { panic!("another update") };
    assert!(spec.measured);
    DpOptimisationSpec {
        clip_norm: ClipNorm::new(2.0).unwrap(),
        noise_multiplier: NoiseMultiplier::new(3.0).unwrap(),
        sampling_rate: SamplingRate::nearest(1.0).unwrap(),
        curvature_weight: 2.0,
        ..spec
    }
}

fn round(visit: u32, included: &[usize], measured: [f64; 3]) -> ClosedRound {
    let state = [&[0.1 * f64::from(visit), 1.0][..], &measured].concat();
    ClosedRound { visit, included: included.to_vec(), state, correction: None }
}

/// Sites in turn: their gradients, curvatures and noises add up, and their points count by size.
#[test]
fn the_sites_of_a_visit_are_one_measurement() {
    let rounds = vec![round(0, &[0], [3.0, 1.0, 10.0]), round(0, &[1], [5.0, 2.0, 30.0])];
    let history = History { shares: vec![0.25, 0.75], rounds };
    let measurements = measurements(&spec(), &DVector::from_element(1, 0.5), &history, 0).unwrap();
    assert_eq!(measurements.len(), 1);
    let measurement = &measurements[0];
    assert!((measurement.gradient[0] - 8.0).abs() < 1e-12 && (measurement.curvature[0] - 40.0).abs() < 1e-12);
    assert!((measurement.point[0] - 1.75).abs() < 1e-12);
    // Two sites, four steps: 2·(3·2/0.5)²/4.
    assert!((measurement.noise[0] - 72.0).abs() < 1e-12 && (measurement.curvature_noise[0] - 18.0).abs() < 1e-12);
}

#[test]
fn a_visit_of_some_sites_counts_as_their_part_of_the_whole() {
    let history = History { shares: vec![0.25, 0.75], rounds: vec![round(0, &[0], [3.0, 1.0, 10.0]), round(1, &[0, 1], [8.0, 1.5, 40.0])] };
    let measurements = measurements(&spec(), &DVector::from_element(1, 1.0), &history, 0).unwrap();
    assert!((measurements[0].gradient[0] - 12.0).abs() < 1e-12 && (measurements[0].noise[0] - 16.0 * 9.0).abs() < 1e-12);
    assert!((measurements[1].gradient[0] - 8.0).abs() < 1e-12 && (measurements[1].noise[0] - 18.0).abs() < 1e-12);
}

/// With q = ½ the noise on a step's sum is twice as large, and which records are drawn moves a gradient by (1 − q)/q·H.
#[test]
fn a_sampled_gradient_varies_by_its_sample() {
    let sampled = DpOptimisationSpec { sampling_rate: SamplingRate::nearest(0.5).unwrap(), ..spec() };
    let history = History { shares: vec![1.0], rounds: vec![round(0, &[0], [3.0, 1.0, 40.0])] };
    let measurement = measurements(&sampled, &DVector::from_element(1, 1.0), &history, 0).unwrap().remove(0);
    assert!((measurement.noise[0] - (36.0 + 10.0)).abs() < 1e-9, "{}", measurement.noise[0]);
}

/// A batch counts as a sample of its size: what batches differ by cancels at one point only.
#[test]
fn a_gradient_over_batches_counts_as_one_over_samples() {
    let allocated = DpOptimisationSpec { sampling_rate: SamplingRate::nearest(0.5).unwrap(), batches: Some(2), ..spec() };
    let history = History { shares: vec![1.0], rounds: vec![round(0, &[0], [3.0, 1.0, 40.0])] };
    let measurement = measurements(&allocated, &DVector::from_element(1, 1.0), &history, 0).unwrap().remove(0);
    assert!((measurement.noise[0] - (36.0 + 10.0)).abs() < 1e-9, "{}", measurement.noise[0]);
}

#[test]
fn states_of_another_rule_are_no_measurements() {
    let mut history = History { shares: vec![1.0], rounds: vec![round(0, &[0], [3.0, 1.0, 40.0])] };
    history.rounds[0].state.pop();
    assert!(measurements(&spec(), &DVector::from_element(1, 1.0), &history, 0).is_none());
}
