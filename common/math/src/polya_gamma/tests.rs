#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use crate::expfam::any::{Family, Gaussian, Standard};
use crate::expfam::gaussian::full::{svec, triangle, unsvec};
use nalgebra::{DMatrix, DVector, SymmetricEigen};

use super::{Relevance, bound, m_step, mean, noise_aware_posterior, noise_floor, raise_to, tilt};

fn prior(d: usize, scale: f64) -> Gaussian {
    let family = Family::FullGaussian { dimension: d };
    Gaussian::from_natural(family, family.isotropic(0.0, scale * scale)).unwrap()
}

#[test]
fn the_mean_is_continuous_and_bounded() {
    assert!((mean(0.0) - 0.25).abs() < 1e-16);
    // The series and the closed form meet.
    assert!((mean(0.05 - 1e-14) - mean(0.05 + 1e-14)).abs() < 1e-14);
    let mut last = 0.25;
    for k in 1..400 {
        let c = 0.1 * f64::from(k);
        assert!(mean(c) > 0.0 && mean(c) < last && (mean(-c) - mean(c)).abs() < 1e-16);
        last = mean(c);
    }
    assert!((tilt(3.0, 16.0) - 5.0).abs() < 1e-15);
}

/// The bound's share is the logarithm of a Gaussian lower bound on σ, tight where q is a point.
#[test]
fn the_bound_touches_the_likelihood_at_a_point() {
    for a in [-8.0, -1.0, 0.0, 0.3, 5.0, 700.0] {
        for y in [0.0, 1.0] {
            let sign: f64 = if y > 0.5 { a } else { -a };
            let exact = if sign < -700.0 { sign } else { -(-sign).exp().ln_1p() };
            assert!((bound(y, a, 0.0) - exact).abs() < 1e-12 * (1.0 + exact.abs()), "{a} {y}");
            assert!(bound(y, a, 1.0) < exact);
        }
    }
}

#[test]
fn the_m_step_adds_statistics_and_refuses_other_shapes() {
    let second = svec(&DMatrix::from_row_slice(2, 2, &[2.0, 0.5, 0.5, 1.0]));
    let q = m_step(&prior(2, 0.5), &[1.0, -1.0], &second).unwrap();
    let Standard::Full(standard) = q.standard() else { panic!("full covariance") };
    let precision = DMatrix::from_row_slice(2, 2, &[6.0, 0.5, 0.5, 5.0]);
    assert!((standard.precision() - &precision).norm() < 1e-14);
    assert!((standard.mean() - precision.try_inverse().unwrap() * DVector::from_row_slice(&[1.0, -1.0])).norm() < 1e-14);
    assert!(m_step(&prior(2, 0.5), &[1.0], &second).is_err());
    assert!(m_step(&prior(2, 1.0), &[1.0, 1.0], &[-9.0, 0.0, 0.0]).is_err());
}

#[test]
fn the_floor_raises_what_is_below_the_noise_and_nothing_else() {
    let d = 6;
    let (sd, level) = (2.0, 0.5 * 2.0 * 3.0_f64.sqrt());
    let basis = SymmetricEigen::new(DMatrix::from_fn(d, d, |i, j| ((i * j + i + j) as f64).sin())).eigenvectors;
    let values = DVector::from_row_slice(&[-4.0, 0.1, 1.0, 2.0, 30.0, 7.0]);
    let matrix = &basis * DMatrix::from_diagonal(&values) * basis.transpose();
    let raised = noise_floor(&svec(&matrix), d, sd);
    assert_eq!(raised.directions, 3);
    let expected = &basis * DMatrix::from_diagonal(&values.map(|v| v.max(level))) * basis.transpose();
    assert!((unsvec(&raised.second, d) - expected).norm() < 1e-12);
    let above = svec(&(&basis * DMatrix::from_diagonal(&values.map(|v| v.abs() + level + 0.1)) * basis.transpose()));
    assert_eq!(noise_floor(&above, d, sd).second, above);
    // z = 0: only what is negative moves.
    assert_eq!(noise_floor(&svec(&matrix), d, 0.0).directions, 1);
    let nothing = raise_to(&vec![f64::NAN; triangle(d)], d, 1.0);
    assert!(nothing.second.iter().all(|v| v.is_finite()));
}

#[test]
fn relevance_shrinks_what_is_small() {
    let start = Relevance { shape: 1e-2, rate: 1e-2 };
    let small = start.updated(&prior(4, 0.1));
    assert!((small.shape - 2.01).abs() < 1e-15 && (small.rate - (0.01 + 0.5 * 0.04)).abs() < 1e-15);
    assert!(small.expected_precision() > start.updated(&prior(4, 3.0)).expected_precision());
}

/// Gaussian convolution, computed a second way, and its two limits.
#[test]
fn noise_aware_posteriors_widen_with_the_noise() {
    let curvature = DMatrix::from_row_slice(2, 2, &[40.0, 8.0, 8.0, 10.0]);
    let first = [6.0, -3.0];
    let prior = prior(2, 1.0);
    let naive = m_step(&prior, &first, &svec(&curvature)).unwrap();
    let without = noise_aware_posterior(&prior, &naive, &[0.0; 2], &first, &svec(&curvature), [0.0, 0.0]).unwrap();
    assert!(without.natural().iter().zip(naive.natural()).all(|(a, b)| (a - b).abs() < 1e-12));

    let aware = noise_aware_posterior(&prior, &naive, &[0.0; 2], &first, &svec(&curvature), [5.0, 0.0]).unwrap();
    let inverse = curvature.clone().try_inverse().unwrap();
    let likelihood = (&inverse + &inverse * 25.0 * &inverse).try_inverse().unwrap();
    let precision = &likelihood + DMatrix::identity(2, 2);
    let h = &likelihood * &inverse * DVector::from_row_slice(&first);
    let Standard::Full(standard) = aware.standard() else { panic!("full covariance") };
    assert!((standard.precision() - &precision).norm() < 1e-10);
    assert!((standard.mean() - precision.try_inverse().unwrap() * h).norm() < 1e-12);
    let drowned = noise_aware_posterior(&prior, &naive, &[0.0; 2], &first, &svec(&curvature), [1e9, 1e9]).unwrap();
    assert!(drowned.natural().iter().zip(prior.natural()).all(|(a, b)| (a - b).abs() < 1e-6));
}
