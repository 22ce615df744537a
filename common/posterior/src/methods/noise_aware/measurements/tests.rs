#![allow(clippy::unwrap_used)]

use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use dp_pvi_schema::EntryKind;
use nalgebra::{DMatrix, DVector};

use super::{MOST, Measurement, Measurements, OnTheWay, changes, error};
use crate::methods::noise_aware::{correlations::Correlations, full};
use dp_pvi_models::spec::Prior;

const PRIOR: (f64, f64) = (0.2, 0.5);

fn curvature() -> DMatrix<f64> {
    DMatrix::from_row_slice(3, 3, &[60.0, 10.0, -5.0, 10.0, 40.0, 2.0, -5.0, 2.0, 20.0])
}

/// Visits to a quadratic likelihood with its maximum at `best`, at points far from it and from each other.
fn quadratic(best: &DVector<f64>, noises: &[f64], curvature_noise: f64) -> Vec<Measurement> {
    let visit = |(t, &noise): (usize, &f64)| {
        let far = 3.0 - f64::from(u32::try_from(t).unwrap());
        let point = DVector::from_vec(vec![far, -far, 0.5 * far]);
        let gradient = curvature() * (best - &point);
        Measurement {
            point,
            gradient,
            curvature: DVector::from_vec(svec(&curvature())),
            noise: DVector::from_element(3, noise),
            curvature_noise: DVector::from_element(6, curvature_noise),
        }
    };
    noises.iter().enumerate().map(visit).collect()
}

fn released(measurements: Vec<Measurement>) -> Measurements {
    Measurements {
        family: Family::FullGaussian { dimension: 3 },
        measurements,
        correlations: Correlations::of_gram(curvature()),
        weighted: None,
        on_the_way: OnTheWay::Linear,
        prior: Prior { mean: vec![PRIOR.0; 3], precision: vec![PRIOR.1; 3], groups: Vec::new() },
        near: None,
    }
}

fn prior() -> Vec<f64> {
    [vec![PRIOR.0 * PRIOR.1; 3], svec(&(DMatrix::identity(3, 3) * PRIOR.1))].concat()
}

fn close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).for_each(|(a, b)| assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} {b}"));
}

/// Of a quadratic likelihood one gradient anywhere tells everything: no visit has to be near the maximum.
#[test]
fn without_noise_it_is_the_exact_posterior_wherever_the_run_stands() {
    let best = DVector::from_vec(vec![0.4, -1.0, 2.0]);
    let expected: Vec<f64> =
        prior().iter().zip([(curvature() * &best).as_slice(), &svec(&curvature())].concat()).map(|(a, b)| a + b).collect();
    for visits in [1, 2, 7] {
        let posterior = released(quadratic(&best, &vec![1e-12; visits], 1e-16)).posterior().unwrap();
        close(&posterior.natural_parameters, &expected, 1e-9);
    }
}

/// Noise of a known curvature: all visits count by their budget, and what is left is that of one release with the whole budget.
#[test]
fn visits_add_up_to_one_release_with_the_whole_budget() {
    let best = DVector::from_vec(vec![0.4, -1.0, 2.0]);
    let noises = [400.0, 100.0, 100.0];
    let posterior = released(quadratic(&best, &noises, 1e-16)).posterior().unwrap();
    let variance = noises.iter().map(|v| v.recip()).sum::<f64>().recip();
    let statistics = [(curvature() * &best).as_slice(), &svec(&curvature())].concat();
    let expected = full(&prior(), &statistics, &(DMatrix::identity(3, 3) * variance)).unwrap();
    close(&posterior.natural_parameters, &expected, 1e-9);
    assert!((posterior.noise_share.unwrap() - 1.0).abs() < 1e-9);
}

/// A gradient from where the curvature is another one does not count, and a run that has nothing else says so.
#[test]
fn visits_where_the_curvature_was_another_one_lose_their_weight() {
    let best = DVector::from_vec(vec![0.4, -1.0, 2.0]);
    // The run has converged.
    let mut visits = quadratic(&best, &[1.0; 6], 1e-6);
    for (visit, far) in visits.iter_mut().zip([3.0, 0.04, -0.03, 0.02, -0.01, 0.01]) {
        visit.point = best.add_scalar(far);
        visit.gradient = curvature() * DVector::from_element(3, -far);
    }
    let exact = released(visits[1..].to_vec()).posterior().unwrap();
    visits[0].curvature *= 0.3;
    visits[0].gradient *= 0.3;
    let posterior = released(visits).posterior().unwrap();
    close(&posterior.natural_parameters, &exact.natural_parameters, 1e-3);
    let mut visits = quadratic(&best, &[1.0; 6], 1e-6);
    visits[0].curvature *= 0.3;
    let alone = released(visits[..2].to_vec());
    assert!(changes(&alone.measurements)[0] > 0.6 && changes(&alone.measurements)[1] < 1e-9, "{:?}", changes(&alone.measurements));
    // The curvature changes from visit to visit, and the steps are long.
    visits.iter_mut().zip([0.2, 0.5, 0.9, 1.4, 2.0, 2.7]).for_each(|(visit, factor)| visit.curvature *= factor);
    assert!(released(visits).posterior().unwrap().noise_share.unwrap() < 0.5);
}

/// Measurements of a run that still moves agree with each other. How far it has to go, and how the curvature has changed on its way, tells how wrong they can be.
#[test]
fn the_rest_of_the_way_is_in_the_intervals() {
    let best = DVector::from_vec(vec![0.4, -1.0, 2.0]);
    let width = |left: f64, repeated: usize| {
        let mut visits = Vec::new();
        for done in [3.0, 2.0, 1.0, 0.1, 0.05, 0.0] {
            let mut visit = quadratic(&best, &[1.0], 1e-6).remove(0);
            visit.point = best.add_scalar(left + done);
            visit.gradient = curvature() * DVector::from_element(3, -left - done);
            if done > 2.5 {
                visit.curvature *= 0.5;
            }
            visits.extend(std::iter::repeat_n(visit, repeated));
        }
        let natural = released(visits).posterior().unwrap().natural_parameters;
        unsvec(&natural[3..], 3).try_inverse().unwrap().trace()
    };
    let widths = [0.05, 1.0, 3.0].map(|left| width(left, 1));
    let known = (curvature() + DMatrix::identity(3, 3) * PRIOR.1).try_inverse().unwrap().trace();
    assert!(widths[0] < 1.1 * known && widths[1] > 1.2 * widths[0] && widths[2] > 1.5 * widths[1], "{widths:?} {known}");
    // All measurements are wrong in the same way: more of them do not help.
    assert!(width(1.0, 8) > 0.95 * widths[1], "{} {}", width(1.0, 8), widths[1]);
}

/// Noise on the curvature is no change of it: with 200 draws of noise alone the mean of what counts as a change is small.
#[test]
fn noise_is_not_taken_for_a_change_of_the_curvature() {
    let mut state = 7_u64;
    let mut normal = || {
        (0..12)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                f64::from(u32::try_from(state >> 32).unwrap()) / f64::from(u32::MAX)
            })
            .sum::<f64>()
            - 6.0
    };
    let best = DVector::from_vec(vec![0.4, -1.0, 2.0]);
    let (mut total, mut count) = (0.0, 0.0);
    for _ in 0..200 {
        let mut visits = quadratic(&best, &[1.0; 6], 25.0);
        visits.iter_mut().for_each(|visit| visit.curvature.iter_mut().for_each(|entry| *entry += 5.0 * normal()));
        for change in changes(&visits) {
            total += change * change;
            count += 1.0;
        }
    }
    // Noise of squared norm 6·25·(1 + 1/3) on a matrix of squared norm 5,658, if it were taken for a change: 0.035.
    assert!(total / count < 0.008, "{}", total / count);
}

/// E against errors of the entries of H, one after the other, acting on a θ of the posterior.
#[test]
fn the_error_of_the_curvature_is_that_of_random_matrices() {
    let best = DVector::from_vec(vec![0.4, -1.0, 2.0]);
    let numbers = Correlations::of_entries(vec![EntryKind::Number; 3], None);
    let all = Measurements { correlations: numbers, ..released(quadratic(&best, &[1.0; 4], 9.0)) };
    let likelihood = all.likelihood(&[0.25; 4], &DVector::zeros(3), None).unwrap();
    let mean = DVector::from_vec(vec![1.0, 0.5, -0.5]);
    // Every entry moves by itself, those off the diagonal with what is left of their noise beside the schema's doubt.
    let distance = &mean - &likelihood.reference;
    let error = error(&likelihood.doubt, &(&distance * distance.transpose()));
    let noise = likelihood.curvature_noise[0];
    let mut expected = DMatrix::zeros(3, 3);
    for (i, j) in [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)] {
        let guess = 0.25 * curvature()[(i, i)] * curvature()[(j, j)];
        let variance: f64 = if i == j { noise } else { 1.0 / (2.0 / noise + 1.0 / guess) };
        let mut unit = DMatrix::zeros(3, 3);
        (unit[(i, j)], unit[(j, i)]) = (variance.sqrt(), variance.sqrt());
        let moved = unit * &distance;
        expected += &moved * moved.transpose();
    }
    assert!((error - &expected).norm() < 1e-9 * expected.norm());
}

/// The mean is where −½ rᵀS⁻¹r − ½ ln det S plus the log prior is the largest, S(θ) with the errors of H on the way to that θ, and with what is above [`MOST`] times the rest of S of those on all
/// that is not known of θ.
#[test]
fn the_mean_is_the_mode_of_the_density_of_what_was_released() {
    let best = DVector::from_vec(vec![0.4, -1.0, 2.0]);
    let numbers = || Correlations::of_entries(vec![EntryKind::Number; 3], None);
    for (noise, curvature_noise, more) in [(30.0, 400.0, false), (0.3, 400.0, false), (30.0, 4e4, true)] {
        let mut measurements = quadratic(&best, &[noise; 3], curvature_noise);
        measurements.iter_mut().for_each(|measurement| measurement.gradient += DVector::from_vec(vec![300.0, -200.0, 250.0]));
        let all = Measurements { correlations: numbers(), ..released(measurements) };
        let extrapolated = all.extrapolated().unwrap();
        let likelihood = all.likelihood(&extrapolated.weights, &extrapolated.mean, None).unwrap();
        assert!(extrapolated.bends.iter().all(|bend| *bend == 0.0));
        let fixed = &likelihood.scores + DMatrix::identity(3, 3) * extrapolated.weights.iter().map(|w| w * w * noise).sum::<f64>();
        let unknown = error(&likelihood.doubt, &extrapolated.covariance);
        let (ratio, above) = (unknown.trace() / fixed.trace(), (1.0 - MOST * fixed.trace() / unknown.trace()).max(0.0));
        assert!(ratio > 0.5 && (above > 0.0) == more, "{ratio}");
        let density = |theta: &DVector<f64>| {
            let distance = theta - &likelihood.reference;
            let residual = &likelihood.gradient - &likelihood.curvature * &distance;
            let covariance = &fixed + &unknown * above + error(&likelihood.doubt, &(&distance * distance.transpose()));
            let prior = theta.add_scalar(-PRIOR.0).norm_squared() * PRIOR.1;
            -0.5 * (residual.dot(&(covariance.clone().try_inverse().unwrap() * &residual)) + covariance.determinant().ln() + prior)
        };
        let at_mean = density(&extrapolated.mean);
        for axis in 0..3 {
            let moved = |by: f64| {
                let mut theta = extrapolated.mean.clone();
                theta[axis] += by;
                density(&theta)
            };
            let (down, up) = (moved(-0.05), moved(0.05));
            assert!(
                down < at_mean && up < at_mean && (up - down).abs() < 0.1 * (2.0 * at_mean - up - down),
                "{axis} {ratio} {down} {at_mean} {up}"
            );
        }
    }
}
