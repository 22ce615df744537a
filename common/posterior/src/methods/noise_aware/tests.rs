#![allow(clippy::unwrap_used)]

use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use nalgebra::{DMatrix, DVector};

use super::{diagonal, full, signal_to_noise, statistic_variance};

fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-10 * (1.0 + b.abs()))
}

#[test]
fn without_noise_it_is_the_plain_posterior_and_under_much_noise_the_prior() {
    let (prior, likelihood) = ([0.1, -0.2, 1.0, 2.0], [3.0, 4.0, 5.0, 0.5]);
    assert!(close(&diagonal(&prior, &likelihood, &[0.0; 2]), &[3.1, 3.8, 6.0, 2.5]));
    assert!(diagonal(&prior, &likelihood, &[1e12; 2]).iter().zip(prior).all(|(a, b)| (a - b).abs() < 1e-9));
    // No precision, no statement.
    assert!(close(&diagonal(&prior, &[9.0, 9.0, -1.0, 0.0], &[1.0; 2]), &prior));
}

#[test]
fn full_covariance_agrees_with_bayes_rule_for_a_noisy_observation() {
    let h_matrix = DMatrix::from_row_slice(3, 3, &[6.0, 1.0, -0.5, 1.0, 4.0, 0.2, -0.5, 0.2, 2.0]);
    let noise = DMatrix::from_row_slice(3, 3, &[1.0, 0.3, 0.0, 0.3, 2.0, 0.1, 0.0, 0.1, 0.7]);
    let prior_matrix = DMatrix::from_diagonal(&DVector::from_vec(vec![1.0, 0.5, 2.0]));
    let (h, h0) = (DVector::from_vec(vec![1.0, -3.0, 0.5]), DVector::from_vec(vec![0.2, 0.0, -0.1]));
    // θ̂ = H⁻¹h is an observation of θ with covariance H⁻¹ + H⁻¹NH⁻¹.
    let inverse = h_matrix.clone().try_inverse().unwrap();
    let weight = (&inverse + &inverse * &noise * &inverse).try_inverse().unwrap();
    let expected_precision = &prior_matrix + &weight;
    let expected_h = &h0 + &weight * &inverse * &h;
    let natural = |h: &DVector<f64>, m: &DMatrix<f64>| [h.as_slice().to_vec(), svec(m)].concat();
    let got = full(&natural(&h0, &prior_matrix), &natural(&h, &h_matrix), &noise).unwrap();
    assert!(close(&got[..3], expected_h.as_slice()));
    assert!((unsvec(&got[3..], 3) - expected_precision).norm() < 1e-12);
    // A diagonal problem is the mean-field formula.
    let diagonal_likelihood = natural(&h, &DMatrix::from_diagonal(&h_matrix.diagonal()));
    let got = full(&natural(&h0, &prior_matrix), &diagonal_likelihood, &DMatrix::from_diagonal(&noise.diagonal())).unwrap();
    let expected = diagonal(
        &[h0.as_slice(), prior_matrix.diagonal().as_slice()].concat(),
        &[h.as_slice(), h_matrix.diagonal().as_slice()].concat(),
        noise.diagonal().as_slice(),
    );
    assert!(close(&got[..3], &expected[..3]) && close(unsvec(&got[3..], 3).diagonal().as_slice(), &expected[3..]));
}

/// In repeated simulation of a linear-Gaussian problem the 90 % intervals contain the truth 90 % of the time; the plain ones do not.
#[test]
fn intervals_cover_in_a_conjugate_problem() {
    let (information, variance) = (25.0_f64, 40.0_f64);
    let (mut aware, mut plain) = (0_u32, 0_u32);
    let (runs, mut state) = (20_000_u32, 1_u64);
    // Normal draws from a fixed congruential stream by the sum of twelve uniforms.
    let mut normal = || {
        (0..12)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                f64::from(u32::try_from(state >> 32).unwrap()) / f64::from(u32::MAX)
            })
            .sum::<f64>()
            - 6.0
    };
    for _ in 0..runs {
        let truth = normal();
        let h = information * truth + information.sqrt() * normal() + variance.sqrt() * normal();
        let inside = |natural: &[f64]| (natural[0] / natural[1] - truth).abs() < 1.644_853_626_951_472_2 / natural[1].sqrt();
        aware += u32::from(inside(&diagonal(&[0.0, 1.0], &[h, information], &[variance])));
        plain += u32::from(inside(&[h, 1.0 + information]));
    }
    let share = |count: u32| f64::from(count) / f64::from(runs);
    assert!((share(aware) - 0.9).abs() < 0.01, "{}", share(aware));
    assert!(share(plain) < 0.75, "{}", share(plain));
}

#[test]
fn the_error_of_the_precision_acts_on_the_displacement() {
    assert!((statistic_variance(2.0, 3.0, 0.0) - 4.0).abs() < 1e-15 && (statistic_variance(2.0, 3.0, 2.0) - 13.0).abs() < 1e-15);
}

#[test]
fn the_signal_to_noise_ratio_of_noise_is_one() {
    assert!((signal_to_noise(&[3.0, -3.0, 3.0], 3.0) - 1.0).abs() < 1e-15);
    assert!((signal_to_noise(&[0.0, 20.0], 2.0) - 50.0).abs() < 1e-12);
    assert!(signal_to_noise(&[], 1.0).abs() < f64::MIN_POSITIVE);
}
