#![allow(clippy::unwrap_used)]

use dp_pvi_accounting::ClipNorm;
use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use nalgebra::{DMatrix, DVector};
use proptest::prelude::*;

use super::{ClipMetric, Reference, clip, clip_blocks, joint_norm};

const ALL: [ClipMetric; 5] = [ClipMetric::Flat, ClipMetric::FlatHalf, ClipMetric::Block, ClipMetric::Centred, ClipMetric::Whitened];

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// (family, change, mean, precision) of dimension 1 to 5; the precision's diagonal is positive.
fn case() -> impl Strategy<Value = (Family, Vec<f64>, Vec<f64>, Vec<f64>)> {
    (1..6_usize, any::<bool>()).prop_flat_map(|(dimension, full)| {
        let family = if full { Family::FullGaussian { dimension } } else { Family::DiagonalGaussian { dimension } };
        let precision = prop::collection::vec(-2.0..2.0_f64, dimension * dimension).prop_map(move |entries| {
            let root = DMatrix::from_vec(dimension, dimension, entries);
            let matrix = &root * root.transpose() + DMatrix::identity(dimension, dimension) * 0.1;
            if full { svec(&matrix) } else { matrix.diagonal().as_slice().to_vec() }
        });
        let change = prop::collection::vec(-1e3..1e3_f64, family.len());
        (Just(family), change, prop::collection::vec(-5.0..5.0_f64, dimension), precision)
    })
}

proptest! {
    #[test]
    fn every_metric_is_a_bijection((family, change, mean, precision) in case()) {
        let at = Reference::new(family, &mean, &precision);
        for metric in ALL {
            let there = metric.decode(family, &metric.encode(family, &change, &at), &at);
            let back = metric.encode(family, &metric.decode(family, &change, &at), &at);
            for (a, b) in change.iter().chain(&change).zip(there.iter().chain(&back)) {
                prop_assert!((a - b).abs() <= 1e-9 * (1.0 + norm(&change)), "{metric:?}: {a} became {b}");
            }
        }
    }

    /// A message is linear in the change: the sum of messages is the message of the sum, so noise may be added to either.
    #[test]
    fn every_metric_is_linear((family, change, mean, precision) in case(), factor in -3.0..3.0_f64) {
        let at = Reference::new(family, &mean, &precision);
        for metric in ALL {
            let scaled: Vec<f64> = change.iter().map(|c| c * factor).collect();
            let message = metric.encode(family, &change, &at);
            for (a, b) in metric.encode(family, &scaled, &at).iter().zip(&message) {
                prop_assert!((a - b * factor).abs() <= 1e-9 * (1.0 + norm(&message)));
            }
        }
    }

    #[test]
    fn clipped_vectors_fit_and_keep_their_direction(values in prop::collection::vec(-1e6..1e6_f64, 1..20), bound in 1e-3..1e3_f64) {
        let bound = ClipNorm::new(bound).unwrap();
        let mut clipped = values.clone();
        clip(&mut clipped, bound);
        prop_assert!(norm(&clipped) <= bound.get() * (1.0 + 1e-12));
        let factor = (bound.get() / norm(&values)).min(1.0);
        for (c, v) in clipped.iter().zip(&values) {
            prop_assert!((c - v * factor).abs() <= 1e-9 * bound.get());
        }
    }

    #[test]
    fn blocks_fit_their_own_bounds(values in prop::collection::vec(-1e3..1e3_f64, 7), a in 1e-2..1e2_f64, b in 1e-2..1e2_f64) {
        let bounds = [ClipNorm::new(a).unwrap(), ClipNorm::new(b).unwrap()];
        let mut clipped = values;
        clip_blocks(&mut clipped, &[(3, bounds[0]), (4, bounds[1])]);
        prop_assert!(norm(&clipped[..3]) <= a * (1.0 + 1e-12) && norm(&clipped[3..]) <= b * (1.0 + 1e-12));
        prop_assert!(norm(&clipped) <= joint_norm(&bounds).get() * (1.0 + 1e-12));
    }
}

#[test]
fn norms_are_those_of_the_definitions() {
    let family = Family::FullGaussian { dimension: 2 };
    let (delta, precision) = (DMatrix::from_row_slice(2, 2, &[1.0, -0.5, -0.5, 3.0]), DMatrix::from_row_slice(2, 2, &[4.0, 0.3, 0.3, 9.0]));
    let (h, mean) = (DVector::from_vec(vec![0.7, -2.0]), DVector::from_vec(vec![1.5, 0.25]));
    let mut change = h.as_slice().to_vec();
    change.extend(svec(&delta));
    let reference = svec(&precision);
    let at = Reference::new(family, mean.as_slice(), &reference);
    let frobenius = delta.norm();
    assert!((norm(&ClipMetric::Flat.encode(family, &change, &at)) - h.norm().hypot(frobenius)).abs() < 1e-14);
    assert!((norm(&ClipMetric::FlatHalf.encode(family, &change, &at)) - h.norm().hypot(0.5 * frobenius)).abs() < 1e-14);
    let centred = ClipMetric::Centred.encode(family, &change, &at);
    assert!((norm(&centred[..2]) - (&h - &delta * &mean).norm()).abs() < 1e-14 && (norm(&centred[2..]) - frobenius).abs() < 1e-14);
    let whitened = ClipMetric::Whitened.encode(family, &change, &at);
    let root = DMatrix::from_diagonal(&DVector::from_vec(vec![0.5, 1.0 / 3.0]));
    assert!((norm(&whitened[..2]) - (&root * (&h - &delta * &mean)).norm()).abs() < 1e-14);
    assert!((unsvec(&whitened[2..], 2) - &root * &delta * &root).norm() < 1e-14);
}

/// What centring is for: noise in the precision block leaves the mean where it is.
#[test]
fn noise_in_the_centred_precision_does_not_move_the_mean() {
    let family = Family::DiagonalGaussian { dimension: 1 };
    let (mean, precision) = ([2.0], [10.0]);
    let at = Reference::new(family, &mean, &precision);
    for noise in [-4.0, 0.0, 7.0] {
        let change = ClipMetric::Centred.decode(family, &[0.0, noise], &at);
        assert!(((20.0 + change[0]) / (10.0 + change[1]) - 2.0).abs() < 1e-15);
    }
}

#[test]
fn vectors_without_a_norm_become_zero() {
    for bad in [f64::NAN, f64::INFINITY, 1e300] {
        let mut values = [1.0, bad];
        clip(&mut values, ClipNorm::new(1.0).unwrap());
        assert!(values.iter().all(|v| v.to_bits() == 0), "{bad}");
    }
}
