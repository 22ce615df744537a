#![allow(clippy::unwrap_used)]

use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use nalgebra::{DMatrix, DVector};
use proptest::prelude::*;

use super::PviRule;
use dp_pvi_math::floor::PrecisionFloor;

fn rule(family: Family, rho: f64) -> PviRule {
    PviRule::from_parts(family, family.isotropic(0.0, 1.0), PrecisionFloor::LogConcave, vec![rho])
}

#[test]
fn without_noise_the_step_is_a_damped_sum() {
    let family = Family::DiagonalGaussian { dimension: 2 };
    let step = rule(family, 0.5).apply(&[1.0, 2.0, 3.0, 4.0], 0, &[0.5, -0.5, 1.0, -2.0]);
    assert_eq!(step.state, [1.25, 1.75, 3.5, 3.0]);
    assert_eq!(step.correction, None);
    assert_eq!(step.floored, 0);
}

#[test]
fn a_floored_coordinate_keeps_its_mean_and_takes_the_centred_step() {
    let family = Family::DiagonalGaussian { dimension: 2 };
    let lambda = [4.0, 1.0, 2.0, 2.0];
    let sum = [0.3, 0.2, -6.0, 1.0];
    let step = rule(family, 0.5).apply(&lambda, 0, &sum);
    // Coordinate 0: 2 − 3 < 1. Mean 2, so h′ = 1·2 + ½(0.3 + 6·2); nothing else moves by the floor.
    assert!((step.state[0] - (2.0 + 0.5 * 12.3)).abs() < 1e-14);
    assert!((step.state[2] - 1.0).abs() < 1e-15);
    assert!((step.state[1] - 1.1).abs() < 1e-15 && (step.state[3] - 2.5).abs() < 1e-15);
    assert_eq!(step.floored, 1);
    // The noisy h over the floored precision would have been (4 + 0.15)/1, with no regard to the mean that ΔΛ belongs to.
    for (((l, s), r), new) in lambda.iter().zip(sum).zip(&step.correction.unwrap()).zip(&step.state) {
        assert!((l + 0.5 * s + r - new).abs() < 1e-14);
    }
}

#[test]
fn pure_noise_on_the_precision_does_not_move_a_floored_mean() {
    let family = Family::DiagonalGaussian { dimension: 1 };
    // An update that keeps the mean μ = 3: Δh = μΔΛ.
    let step = rule(family, 1.0).apply(&[6.0, 2.0], 0, &[-60.0, -20.0]);
    assert!((step.state[0] / step.state[1] - 3.0).abs() < 1e-13, "{step:?}");
}

#[test]
fn sums_that_are_no_numbers_leave_lambda_where_it_is() {
    for family in [Family::DiagonalGaussian { dimension: 2 }, Family::FullGaussian { dimension: 2 }] {
        let rule = rule(family, 0.5);
        let lambda = rule.initial();
        for bad in [vec![f64::NAN; family.len()], vec![f64::INFINITY; family.len()], vec![f64::MAX; family.len()], vec![1.0]] {
            let step = rule.apply(&lambda, 0, &bad);
            assert!(Gaussian::from_natural(family, step.state.clone()).is_ok(), "{bad:?}");
            assert!(step.correction.is_none_or(|c| c.len() == lambda.len()));
        }
        assert_eq!(rule.apply(&lambda, 0, &vec![f64::NAN; family.len()]).state, lambda);
    }
}

#[test]
fn a_full_covariance_floor_raises_eigenvalues_only() {
    let family = Family::FullGaussian { dimension: 3 };
    let rule = rule(family, 1.0);
    let rotation = DMatrix::from_row_slice(3, 3, &[0.8, 0.6, 0.0, -0.6, 0.8, 0.0, 0.0, 0.0, 1.0]);
    let wanted = &rotation * DMatrix::from_diagonal(&DVector::from_vec(vec![-2.0, 5.0, 1.0])) * rotation.transpose();
    let mut sum = vec![0.0; 3];
    sum.extend(svec(&(wanted - DMatrix::identity(3, 3))));
    let step = rule.apply(&rule.initial(), 0, &sum);
    let expected = &rotation * DMatrix::from_diagonal(&DVector::from_vec(vec![1.0, 5.0, 1.0])) * rotation.transpose();
    assert!((unsvec(&step.state[3..], 3) - expected).norm() < 1e-12);
    assert_eq!(step.floored, 1, "an eigenvalue of exactly 1 is not below the floor");
}

proptest! {
    #[test]
    fn every_step_is_a_distribution_above_the_floor_and_the_books_balance(
        full in any::<bool>(),
        rho in 0.05..1.0_f64,
        steps in prop::collection::vec(prop::collection::vec(-1.0..1.0_f64, 14), 1..6),
        exponent in -3..60_i32,
    ) {
        let family = if full { Family::FullGaussian { dimension: 4 } } else { Family::DiagonalGaussian { dimension: 4 } };
        let rule = rule(family, rho);
        let scale = 2f64.powi(exponent);
        let mut lambda = rule.initial();
        let mut total: Vec<f64> = lambda.clone();
        for step in &steps {
            let sum: Vec<f64> = step[..family.len()].iter().map(|v| v * scale).collect();
            let result = rule.apply(&lambda, 0, &sum);
            let correction = result.correction.unwrap_or_else(|| vec![0.0; family.len()]);
            total.iter_mut().zip(&sum).zip(&correction).for_each(|((t, s), r)| *t += rho * s + r);
            lambda = result.state;
            prop_assert!(Gaussian::from_natural(family, lambda.clone()).is_ok());
        }
        let size = scale.max(1.0) * 10.0;
        for (t, l) in total.iter().zip(&lambda) {
            prop_assert!((t - l).abs() <= 1e-9 * size * (1.0 + l.abs() / size), "{} against {}", t, l);
        }
        let floor = PrecisionFloor::LogConcave.apply(family, &rule.initial()[4..], &lambda[4..]);
        if scale < 1e4 {
            prop_assert!(floor.is_none_or(|f| f.precision.iter().zip(&lambda[4..]).all(|(a, b)| (a - b).abs() < 1e-8)));
        }
    }
}
