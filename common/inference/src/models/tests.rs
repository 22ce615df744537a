//! Models against the reference vectors, and their gradients against finite differences.

use std::num::NonZeroUsize;

use dp_pvi_accounting::{ClipNorm, LatticePath, NoiseMultiplier, SamplingRate, Terms};
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::svec;
use dp_pvi_math::quadrature::logit_moments;
use dp_pvi_models::linear_regression::{self, LinearRegression};
use dp_pvi_models::logistic_regression::LogisticRegression;
use dp_pvi_models::predictor::{Lanes, Predicted, Predictor, Statistics};
use dp_pvi_posterior::task::ModelSpec;
use dp_pvi_privacy::mechanism::{LatticeSum, ReleaseError, Summation, Summed, Term};
use dp_pvi_privacy::{Argument, Units};
use nalgebra::{DMatrix, DVector};
use serde_json::Value;

use super::{Model, from_spec};
use crate::capabilities::Gradients;
use crate::capabilities::glm::project;
use crate::mean_field::{MeanField, ScaleCoordinate};
use crate::testing::{SeededNoise, close, logistic, matrix, models, random_units, rows, step_permit, table, vector, vectors};
use dp_pvi_records::RecordTable;

fn diagonal(h: &[f64], precision: &[f64]) -> Gaussian {
    let natural = h.iter().chain(precision).copied().collect();
    Gaussian::from_natural(Family::DiagonalGaussian { dimension: h.len() }, natural).unwrap()
}

fn full(mean: &[f64], covariance: &[Vec<f64>]) -> Gaussian {
    let d = mean.len();
    let covariance = DMatrix::from_fn(d, d, |i, j| covariance[i][j]);
    let precision = covariance.try_inverse().unwrap();
    let h = &precision * DVector::from_column_slice(mean);
    Gaussian::from_natural(Family::FullGaussian { dimension: d }, h.iter().copied().chain(svec(&precision)).collect()).unwrap()
}

/// Clients' tables, by contiguous slices.
fn clients(data: &Value) -> Vec<RecordTable> {
    let (x, y) = (matrix(&data["X"]), vector(&data["y"]));
    let mut start = 0;
    let sizes: Vec<usize> = vector(&data["client_sizes"]).iter().map(|&n| n as usize).collect();
    sizes
        .iter()
        .map(|&n| {
            let part = table(x[0].len(), &rows(&x[start..start + n], &y[start..start + n]));
            start += n;
            part
        })
        .collect()
}

fn linear(data: &Value) -> Box<dyn Model> {
    from_spec(&ModelSpec::from(linear_regression::LinearRegression { noise_sd: data["noise_var"].as_f64().unwrap().sqrt() })).unwrap()
}

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// λ + ρΔ.
fn moved(a: &[f64], rho: f64, change: &[f64]) -> Vec<f64> {
    a.iter().zip(change).map(|(a, c)| a + rho * c).collect()
}

/// PVI over models, without server or wire: the natural parameters after every visit (sequential) or round (synchronous), and the factors.
fn pvi(
    model: &dyn Model,
    parts: &[RecordTable],
    prior: &Gaussian,
    sequential: bool,
    rho: f64,
    rounds: usize,
) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let family = *prior.family();
    let optimum = model.local_optimum().unwrap();
    let mut lambda = prior.natural().to_vec();
    let mut factors = vec![vec![0.0; lambda.len()]; parts.len()];
    let mut trace = Vec::new();
    for _ in 0..rounds {
        let start = lambda.clone();
        for (part, factor) in parts.iter().zip(&mut factors) {
            let global = if sequential { lambda.clone() } else { start.clone() };
            let cavity = Gaussian::from_natural(family, minus(&global, factor)).unwrap();
            let q = optimum.local_optimum(part, &cavity, &Gaussian::from_natural(family, global.clone()).unwrap()).unwrap();
            let change = minus(q.natural(), &global);
            *factor = moved(factor, rho, &change);
            lambda = moved(&lambda, rho, &change);
            if sequential {
                trace.push(lambda.clone());
            }
        }
        if !sequential {
            trace.push(lambda.clone());
        }
    }
    (trace, factors)
}

fn linear_prior(data: &Value) -> Gaussian {
    let precision = vector(&data["prior_prec"]);
    let h: Vec<f64> = vector(&data["prior_mean"]).iter().zip(&precision).map(|(m, l)| m * l).collect();
    diagonal(&h, &precision)
}

fn natural(entry: &Value) -> Vec<f64> {
    vector(&entry["h"]).into_iter().chain(vector(&entry["prec"])).collect()
}

#[test]
fn linear_regression_mean_field_follows_the_reference_traces() {
    let data = vectors("linreg");
    let (model, parts, prior, reference) = (linear(&data), clients(&data), linear_prior(&data), &data["mean_field"]);

    let (trace, _) = pvi(model.as_ref(), &parts, &prior, true, 1.0, 2);
    let expected = reference["sequential_undamped_trace_first_two_sweeps"].as_array().unwrap();
    assert_eq!(trace.len(), expected.len());
    trace.iter().zip(expected).for_each(|(found, expected)| close(found, &natural(expected), 1e-10));

    let (trace, _) = pvi(model.as_ref(), &parts, &prior, false, 0.3, 3);
    let expected = reference["synchronous_damping_0p3_trace_first_three_rounds"].as_array().unwrap();
    trace.iter().zip(expected).for_each(|(found, expected)| close(found, &natural(expected), 1e-10));

    let (trace, factors) = pvi(model.as_ref(), &parts, &prior, true, 1.0, 200);
    let q = Gaussian::from_natural(*prior.family(), trace.last().unwrap().clone()).unwrap();
    close(q.standard().mean(), &vector(&reference["mean"]), 1e-10);
    close(&q.standard().variances(), &vector(&reference["var"]), 1e-10);
    for (found, expected) in factors.iter().zip(reference["pvi_fixed_point_factors"].as_array().unwrap()) {
        close(found, &natural(expected), 1e-9);
    }
    // The update that drops the off-diagonal of XᵀX must not come out.
    let wrong = vector(&data["wrong_diag_update"]["mean"]);
    assert!(q.standard().mean().iter().zip(&wrong).any(|(a, b)| (a - b).abs() > 0.05));
}

#[test]
fn linear_regression_with_full_covariance_is_exact_after_one_sweep() {
    let data = vectors("linreg");
    let (model, parts, reference) = (linear(&data), clients(&data), &data["full"]);
    let mean_field = linear_prior(&data);
    let precision = DMatrix::from_diagonal(&DVector::from_vec(vector(&data["prior_prec"])));
    let d = precision.nrows();
    let prior_natural = mean_field.natural()[..d].iter().copied().chain(svec(&precision)).collect();
    let prior = Gaussian::from_natural(Family::FullGaussian { dimension: d }, prior_natural).unwrap();
    for (sequential, rounds) in [(true, 1), (false, 1)] {
        let (trace, factors) = pvi(model.as_ref(), &parts, &prior, sequential, 1.0, rounds);
        let q = Gaussian::from_natural(*prior.family(), trace.last().unwrap().clone()).unwrap();
        close(q.standard().mean(), &vector(&reference["mean"]), 1e-10);
        let expected = full(&vector(&reference["mean"]), &matrix(&reference["cov"]));
        close(q.natural(), expected.natural(), 1e-9);
        for (found, expected) in factors.iter().zip(reference["client_factors"].as_array().unwrap()) {
            let precision = matrix(&expected["prec"]);
            let expected: Vec<f64> =
                vector(&expected["h"]).into_iter().chain(svec(&DMatrix::from_fn(d, d, |i, j| precision[i][j]))).collect();
            close(found, &expected, 1e-10);
        }
    }
}

#[test]
fn logistic_regression_reaches_the_mean_field_optimum_from_one_site_and_from_many() {
    let data = vectors("logreg");
    let reference = &data["mean_field_optimum"];
    let (x, y) = (matrix(&data["X"]), vector(&data["y"]));
    let d = x[0].len();
    let prior = diagonal(&vec![0.0; d], &vec![1.0; d]);
    let whole = [table(d, &rows(&x, &y))];
    let parts = clients(&data);
    for (parts, rounds) in [(&whole[..], 1), (&parts[..], 60)] {
        for sequential in [true, false] {
            let (trace, factors) = pvi(&logistic(), parts, &prior, sequential, 1.0, rounds);
            let q = Gaussian::from_natural(*prior.family(), trace.last().unwrap().clone()).unwrap();
            close(q.standard().mean(), &vector(&reference["mean"]), 1e-8);
            close(&q.standard().variances(), &vector(&reference["var"]), 1e-8);
            let elbo = crate::capabilities::glm::total(&LogisticRegression {}, &whole[0], &q) - q.kl(&prior);
            assert!((elbo - reference["elbo"].as_f64().unwrap()).abs() < 1e-8, "{elbo}");
            if parts.len() > 1 {
                for (found, expected) in factors.iter().zip(reference["pvi_fixed_point_factors"].as_array().unwrap()) {
                    close(found, &natural(expected), 1e-8);
                }
            }
        }
    }
}

#[test]
fn logistic_regression_reaches_the_full_covariance_optimum() {
    let data = vectors("logreg");
    let (x, y) = (matrix(&data["X"]), vector(&data["y"]));
    let d = x[0].len();
    let prior_natural = vec![0.0; d].into_iter().chain(svec(&DMatrix::identity(d, d))).collect();
    let prior = Gaussian::from_natural(Family::FullGaussian { dimension: d }, prior_natural).unwrap();
    let q = logistic().local_optimum().unwrap().local_optimum(&table(d, &rows(&x, &y)), &prior, &prior).unwrap();
    let reference = &data["full_cov_optimum"];
    close(q.standard().mean(), &vector(&reference["mean"]), 1e-8);
    close(q.natural(), full(&vector(&reference["mean"]), &matrix(&reference["cov"])).natural(), 1e-7);
}

#[test]
fn logistic_regression_statistics_and_gradients_per_record_equal_the_reference() {
    let data = vectors("logreg");
    let point = &data["at_point"];
    let (mean, variance) = (vector(&point["mean"]), vector(&point["var"]));
    let (x, y) = (matrix(&data["X"]), vector(&data["y"]));
    let d = mean.len();
    let q = MeanField::new(mean.clone(), variance.clone(), ScaleCoordinate::LogScale).unwrap();
    let halved = MeanField::new(mean.clone(), variance, ScaleCoordinate::HalfVariance { weight: 0.5 }).unwrap();
    let list = |key: &str| vector(&point[key]);
    let mut term = Term::default();
    let records = table(d, &rows(&x, &y));
    for (i, record) in records.records().enumerate() {
        let (a, s2) = project(record, &q);
        close(&[a, s2], &[list("logit_mean")[i], list("logit_var")[i]], 1e-12);
        let moments = logit_moments(a, s2);
        let expected = [list("E_softplus")[i], list("E_sigma")[i], list("E_sigma_1m_sigma")[i]];
        close(&[moments.softplus, moments.sigmoid, moments.curvature], &expected, 1e-11);
        let gradient = dense(&logistic(), record, &q, &mut term);
        close(&gradient[..d], &matrix(&point["grad_mu_per_example"])[i], 1e-10);
        close(&gradient[d..], &matrix(&point["grad_logsigma_per_example"])[i], 1e-10);
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        close(&[norm], &[list("norm_mu_logsigma_per_example")[i]], 1e-10);
        // The other coordinate of the scale differs by a public factor only.
        let other = dense(&logistic(), record, &halved, &mut term);
        let back: Vec<f64> = (0..d).map(|j| other[d + j] * halved.to_log_scale(j)).collect();
        close(&back, &gradient[d..], 1e-14);
        // Natural parameters: h = r x + c x∘x∘μ, Λ = c x∘x.
        let Statistics { residual, curvature } = Predictor::statistics(&LogisticRegression {}, a, s2, record.target);
        let h: Vec<f64> = (0..d).map(|j| residual * x[i][j] + curvature * x[i][j] * x[i][j] * mean[j]).collect();
        close(&h, &matrix(&point["nat_h_per_example"])[i], 1e-10);
        let precision: Vec<f64> = x[i].iter().map(|x| curvature * x * x).collect();
        close(&precision, &matrix(&point["nat_prec_per_example"])[i], 1e-10);
    }
}

fn dense(model: &dyn super::Gradients, record: dp_pvi_records::RecordView<'_>, q: &MeanField, term: &mut Term) -> Vec<f64> {
    term.clear();
    model.gradient(record, q, term);
    let mut dense = vec![0.0; 2 * q.dimension()];
    term.entries().for_each(|(j, value)| dense[j as usize] += value);
    dense
}

/// Conformance: the gradient of E_q log p(record | θ) in (μ, log σ), by central differences, at three points.
#[test]
fn gradients_of_every_model_agree_with_finite_differences() {
    let d = 4;
    let records = table(d, &random_units(3, 20, d));
    let points = [(0.0, 0.0), (0.4, -1.0), (-1.5, 0.5)];
    let mut term = Term::default();
    for spec in models() {
        let model = from_spec(&spec).unwrap();
        let gradients = model.gradients().unwrap();
        for (mu, l) in points {
            let mean: Vec<f64> = (0..d).map(|j| mu + 0.1 * j as f64).collect();
            let log_scale: Vec<f64> = (0..d).map(|j| l - 0.05 * j as f64).collect();
            let value = |record, mean: &[f64], log_scale: &[f64]| {
                let variance: Vec<f64> = log_scale.iter().map(|l| (2.0 * l).exp()).collect();
                let h: Vec<f64> = mean.iter().zip(&variance).map(|(m, v)| m / v).collect();
                model.expected_log_likelihood(record, &diagonal(&h, &variance.iter().map(|v| 1.0 / v).collect::<Vec<_>>()))
            };
            let variance = log_scale.iter().map(|l| (2.0 * l).exp()).collect();
            let q = MeanField::new(mean.clone(), variance, ScaleCoordinate::LogScale).unwrap();
            for record in records.records() {
                let gradient = dense(gradients, record, &q, &mut term);
                let step = 1e-5;
                let difference: Vec<f64> = (0..2 * d)
                    .map(|k| {
                        let at = |by: f64| {
                            let (mut mean, mut log_scale) = (mean.clone(), log_scale.clone());
                            if k < d {
                                mean[k] += by
                            } else {
                                log_scale[k - d] += by
                            }
                            value(record, &mean, &log_scale)
                        };
                        (at(step) - at(-step)) / (2.0 * step)
                    })
                    .collect();
                close(&gradient, &difference, 1e-6);
            }
        }
    }
}

/// The search along the step, where undamped Newton steps fail: large features.
#[test]
fn the_logistic_optimum_is_stationary_for_large_features() {
    let d = 5;
    let mut units = random_units(9, 120, d);
    units.iter_mut().flatten().for_each(|(row, _)| row.iter_mut().for_each(|x| *x *= 5.0));
    let records = table(d, &units);
    let prior = diagonal(&vec![0.0; d], &vec![1.0; d]);
    let q = logistic().local_optimum().unwrap().local_optimum(&records, &prior, &prior).unwrap();
    let (mean, variance) = (q.standard().mean().to_vec(), q.standard().variances());
    let point = MeanField::new(mean.clone(), variance.clone(), ScaleCoordinate::LogScale).unwrap();
    let mut gradient = vec![0.0; 2 * d];
    let mut term = Term::default();
    for record in records.records() {
        dense(&logistic(), record, &point, &mut term).iter().zip(&mut gradient).for_each(|(g, sum)| *sum += g);
    }
    for j in 0..d {
        // Prior: −μ and 1 − σ².
        assert!((gradient[j] - mean[j]).abs() < 1e-6, "mean {j}");
        assert!((gradient[d + j] + 1.0 - variance[j]).abs() < 1e-6, "scale {j}");
    }
}

/// What a sum over records has from lanes is what each record has alone, to the last bit, in any order and company.
#[test]
fn many_predictors_are_told_what_each_is_told_alone() {
    let predictors: Vec<Predicted> = (0..500)
        .map(|k| {
            let k = f64::from(k);
            let variance = if k % 50.0 == 7.0 { f64::NAN } else { (0.013 * k).powi(3) };
            Predicted::new(((1.3 * k).sin() * 0.03 * k, variance), f64::from(u8::from(k % 3.0 == 1.0)))
        })
        .collect();
    let bits = |s: Statistics| [s.residual.to_bits(), s.curvature.to_bits()];
    // One of each kind of lanes.
    for (model, lanes) in [(&LogisticRegression {} as &dyn Predictor, Lanes::Sigmoid), (&LinearRegression { noise_sd: 0.7 }, Lanes::One)] {
        assert_eq!(model.lanes(), lanes);
        let alone: Vec<_> = predictors.iter().map(|p| bits(model.statistics(p.mean, p.variance, p.target))).collect();
        for (stride, piece) in [(1, 500), (3, 64), (7, 65), (499, 1), (11, 9)] {
            let order: Vec<usize> = (0..500).map(|k| k * stride % 500).collect();
            for places in order.chunks(piece) {
                let mut together: Vec<Predicted> = places.iter().map(|place| predictors[*place]).collect();
                model.statistics_of_many(&mut together);
                for (place, told) in places.iter().zip(together) {
                    assert_eq!(bits(told.statistics), alone[*place], "{place} among {piece}");
                }
            }
        }
    }
}

/// The sum that a model's gradients make in lanes.
fn in_lanes(point: &MeanField, sum: Summation<'_, RecordTable>) -> Result<Summed, ReleaseError> {
    Ok(logistic().sum(point, sum))
}

/// The same, record by record.
fn one_by_one(point: &MeanField, sum: Summation<'_, RecordTable>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|unit, _, (), term| unit.records().for_each(|record| logistic().gradient(record, point, term))))
}

/// What is released is the same, to the last bit, whether terms are made in lanes or one by one: for groups that end anywhere, persons of many records, samples, threads, and
/// records with numbers that are none.
#[test]
fn a_released_sum_is_the_one_that_is_made_record_by_record() {
    let d = 4;
    let (clip, noise) = (ClipNorm::new(1.5).unwrap(), NoiseMultiplier::new(2.0).unwrap());
    let point = MeanField::new(vec![0.4, -0.9, 0.1, 1.7], vec![0.3, 2.5, 9.0, 0.01], ScaleCoordinate::LogScale).unwrap();
    let point = Argument::copy_of(&point).unwrap();
    for (seed, count) in [(1, 1), (2, 7), (3, 63), (4, 64), (5, 65), (6, 700)] {
        let mut raw = random_units(seed, count, d);
        raw.iter_mut().flatten().enumerate().for_each(|(k, (row, _))| match k % 23 {
            5 => row[1] = f64::NAN,
            9 => row[2] = 1e300,
            _ => row.iter_mut().for_each(|x| *x *= f64::from(u32::try_from(k % 7).unwrap())),
        });
        // A person of many records.
        let many = raw.iter().step_by(5).flat_map(|unit| std::iter::repeat_n(unit, 9)).flatten().cloned().collect();
        raw.push(many);
        for rate in [None, Some(0.4)] {
            let sampling = rate.map(|rate| SamplingRate::nearest(rate).unwrap());
            let mechanism = LatticeSum::new(2 * 4, clip, noise, sampling, Terms::Units, LatticePath::Term).unwrap();
            let release = |threads: usize, f: fn(&MeanField, Summation<'_, RecordTable>) -> Result<Summed, ReleaseError>| {
                let units = Units::new(table(d, &raw)).on_threads(NonZeroUsize::new(threads).unwrap());
                let sum = mechanism.release_sum(&units, &point, f, step_permit(&mechanism.event()), &SeededNoise::new(11)).unwrap();
                sum.into_inner().values
            };
            let expected = release(1, one_by_one);
            for threads in [1, 2, 3] {
                assert_eq!(release(threads, in_lanes), expected, "{count} units, rate {rate:?}, {threads} threads");
            }
            assert_ne!(expected, vec![0; 8]);
        }
    }
}
