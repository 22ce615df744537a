//! Without protection, partitioned inference over real gRPC and TLS ends where the whole data would: at the exact posterior of linear
//! regression, and at the variational optimum of logistic regression, to 1e-8, in both schedules.

use std::path::Path;

use dp_pvi_tests::federation::{Federation, complete};
use dp_pvi_tests::place::vectors;
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use serde_json::Value;

const TOLERANCE: f64 = 1e-8;

/// Runs the federation and returns (mean, variance) of every coefficient.
fn posterior(task: &Task, records: &Records, sizes: &[usize]) -> (Vec<f64>, Vec<f64>) {
    let sites = records.sites(sizes, task.likelihood);
    let federation = Federation::new(&task.toml(), &task.schema(records.x[0].len()), &sites);
    complete(&federation, &sites);
    let document = federation.posterior();
    let coefficients = document["coefficients"].as_array().unwrap();
    let of = |key: &str| coefficients.iter().map(|c| c[key].as_f64().unwrap()).collect::<Vec<_>>();
    let sds = of("sd");
    (of("mean"), sds.iter().map(|sd| sd * sd).collect())
}

#[track_caller]
fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (j, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= TOLERANCE, "{what}[{j}]: {f} instead of {e}, off by {:e}", (f - e).abs());
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn reference() -> Value {
    serde_json::from_str(&std::fs::read_to_string(vectors("inference.json")).unwrap()).unwrap()
}

/// Records and client sizes of a section of the reference file.
fn problem(section: &Value) -> (Records, Vec<usize>) {
    let x = section["X"].as_array().unwrap().iter().map(numbers).collect();
    let sizes = section["client_sizes"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect();
    (Records { x, y: numbers(&section["y"]) }, sizes)
}

fn linear_task(section: &Value, schedule: Schedule, damping: f64, full_covariance: bool) -> Task {
    let precisions = numbers(&section["prior_prec"]);
    assert!(precisions.windows(2).all(|w| (w[0] - w[1]).abs() < 1e-15) && numbers(&section["prior_mean"]).iter().all(|m| m.abs() < 1e-300));
    Task {
        likelihood: Likelihood::Linear { noise_sd: section["noise_var"].as_f64().unwrap().sqrt() },
        full_covariance,
        prior_scale: precisions[0].powf(-0.5),
        schedule,
        damping: Some(damping),
        epsilon: None,
        tick: 0,
    }
}

fn check_linear_reference(schedule: Schedule, damping: f64) {
    let reference = reference();
    let section = &reference["linreg"];
    let (records, sizes) = problem(section);
    let (mean, variance) = posterior(&linear_task(section, schedule, damping, false), &records, &sizes);
    assert_close("mean-field mean", &mean, &numbers(&section["mean_field"]["mean"]));
    assert_close("mean-field variance", &variance, &numbers(&section["mean_field"]["var"]));
    let (mean, variance) = posterior(&linear_task(section, schedule, damping, true), &records, &sizes);
    assert_close("exact mean", &mean, &numbers(&section["full"]["mean"]));
    let diagonal: Vec<_> = section["full"]["cov"].as_array().unwrap().iter().enumerate().map(|(j, row)| numbers(row)[j]).collect();
    assert_close("exact variance", &variance, &diagonal);
}

#[test]
fn sequential_linear_regression_ends_at_the_reference_posterior() {
    check_linear_reference(Schedule::Sequential(40), 1.0);
}

#[test]
fn synchronous_linear_regression_ends_at_the_reference_posterior() {
    check_linear_reference(Schedule::Synchronous(120), 0.3);
}

fn check_logistic_reference(schedule: Schedule, damping: f64) {
    let reference = reference();
    let section = &reference["logreg"];
    let (records, sizes) = problem(section);
    let task = Task { schedule, damping: Some(damping), epsilon: None, ..Task::default() };
    let (mean, variance) = posterior(&task, &records, &sizes);
    assert_close("mean", &mean, &numbers(&section["mean_field_optimum"]["mean"]));
    assert_close("variance", &variance, &numbers(&section["mean_field_optimum"]["var"]));
}

#[test]
fn sequential_logistic_regression_ends_at_the_reference_optimum() {
    check_logistic_reference(Schedule::Sequential(40), 1.0);
}

#[test]
fn synchronous_logistic_regression_ends_at_the_reference_optimum() {
    check_logistic_reference(Schedule::Synchronous(100), 0.3);
}

/// Without the reference file: at the variational optimum the mean solves μ/s² = Σ x(y − E σ) and the precision is
/// 1/s² + Σ x² E σ(1−σ), with expectations under the logit's N(xᵀμ, Σ x²v), integrated here by the trapezoid rule.
#[test]
fn logistic_regression_is_stationary_on_generated_records() {
    let records = Records::generated(60, 4, 0);
    for (schedule, damping) in [(Schedule::Sequential(30), 1.0), (Schedule::Synchronous(80), 0.3)] {
        let task = Task { prior_scale: 0.8, schedule, damping: Some(damping), epsilon: None, ..Task::default() };
        let (mean, variance) = posterior(&task, &records, &[25, 20, 15]);
        let prior = 1.0 / (task.prior_scale * task.prior_scale);
        let mut gradient: Vec<_> = mean.iter().map(|m| -m * prior).collect();
        let mut precision = vec![prior; mean.len()];
        for (x, y) in records.x.iter().zip(&records.y) {
            let a: f64 = x.iter().zip(&mean).map(|(x, m)| x * m).sum();
            let s: f64 = x.iter().zip(&variance).map(|(x, v)| x * x * v).sum::<f64>().sqrt();
            let (mut total, mut sigmoid, mut curvature) = (0.0, 0.0, 0.0);
            for k in -600..=600 {
                let u = f64::from(k) / 64.0;
                let weight = (-0.5 * u * u).exp();
                let p = 1.0 / (1.0 + (-(a + s * u)).exp());
                total += weight;
                sigmoid += weight * p;
                curvature += weight * p * (1.0 - p);
            }
            for (j, x) in x.iter().enumerate() {
                gradient[j] += x * (y - sigmoid / total);
                precision[j] += x * x * curvature / total;
            }
        }
        assert_close("gradient", &gradient, &vec![0.0; mean.len()]);
        let inverse: Vec<_> = precision.iter().map(|p| 1.0 / p).collect();
        assert_close("variance", &variance, &inverse);
    }
}

/// Without the reference file: the exact posterior mean solves (XᵀX/σ² + I/s²) μ = Xᵀy/σ², and mean field keeps that matrix's diagonal.
#[test]
fn linear_regression_solves_the_normal_equations_on_generated_records() {
    let mut records = Records::generated(40, 3, 5);
    for (x, y) in records.x.iter().zip(&mut records.y) {
        *y = 0.3 * *y + 2.0 * x[0] - x[2];
    }
    let task = Task {
        likelihood: Likelihood::Linear { noise_sd: 0.5 },
        prior_scale: 2.0,
        schedule: Schedule::Sequential(40),
        damping: Some(1.0),
        epsilon: None,
        ..Task::default()
    };
    let (mean, variance) = posterior(&task, &records, &[15, 15, 10]);
    let entry = |j: usize, k: usize| records.x.iter().map(|x| x[j] * x[k]).sum::<f64>() / 0.25 + if j == k { 0.25 } else { 0.0 };
    let residual: Vec<f64> = (0..3)
        .map(|j| {
            let right: f64 = records.x.iter().zip(&records.y).map(|(x, y)| x[j] * y).sum::<f64>() / 0.25;
            // In units of the mean, not of the precision.
            ((0..3).map(|k| entry(j, k) * mean[k]).sum::<f64>() - right) / entry(j, j)
        })
        .collect();
    assert_close("residual", &residual, &[0.0; 3]);
    assert_close("variance", &variance, &[1.0 / entry(0, 0), 1.0 / entry(1, 1), 1.0 / entry(2, 2)]);
}

/// The shipped client takes its noise as an argument: with seeded noise two federations end with the same bits, and with another seed with others.
#[test]
fn with_seeded_noise_a_federation_repeats_to_the_last_bit() {
    let numbers = |seed: &str| {
        let task = Task { schedule: Schedule::Synchronous(2), ..Task::default() };
        let sites = Records::generated(40, 3, 0).sites(&[20, 20], Likelihood::Logistic);
        let federation = Federation::new(&task.toml(), &task.schema(3), &sites);
        let mut server = federation.start_server();
        let seeded = Path::new(env!("CARGO_BIN_EXE_seeded-client"));
        let clients = ["site-1", "site-2"].map(|site| {
            let mut command = federation.client_command_of(seeded, site, &["run", "--format", "json"]);
            command.env("DP_PVI_TEST_SEED", seed);
            federation.start(site, &server.address, command)
        });
        for mut client in clients {
            client.expect(0);
        }
        server.process.expect(0);
        federation.posterior()["natural_parameters"].clone()
    };
    let first = numbers("1");
    assert!(first.as_array().is_some_and(|numbers| !numbers.is_empty()));
    assert_eq!(numbers("1"), first);
    assert_ne!(numbers("2"), first);
}
