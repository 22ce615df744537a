#![allow(clippy::unwrap_used)]

use rand_core::SeedableRng;

use super::*;
use crate::mechanism::LatticeSum;
use crate::sampler::DiscreteGaussianSampler;
use dp_pvi_accounting::adjacency::Terms;
use dp_pvi_accounting::unit::{ClipNorm, NoiseMultiplier};

fn sum(dimension: u32, noise: f64, rate: Option<f64>) -> LatticeSum {
    let (clip, noise) = (ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(noise).unwrap());
    let rate = rate.map(|q| SamplingRate::nearest(q).unwrap());
    LatticeSum::new(dimension, clip, noise, rate, Terms::Units, LatticePath::Term).unwrap()
}

/// With C = z = 1: C_int = s = 2²⁰, and the bounds are those of the formulas.
#[test]
fn the_bounds_are_the_stated_ones() {
    let bound = SumBound::of_event(&sum(4, 1.0, None).event(), 10).unwrap();
    let steps = 1u128 << 20;
    assert_eq!(bound.coordinate(), 10 * steps + 64 * (steps + 1));
    let norm = (1 << 20) as f64 * (10.0 + 2.0 + (2.0 * TAIL).sqrt());
    assert!((bound.norm() / norm - 1.0).abs() < 2e-9, "{}", bound.norm());
    // All terms at their bound, and not one step more.
    let most = i64::try_from(bound.coordinate()).unwrap();
    let fits = |values: &[i64]| SumBound { norm: f64::INFINITY, ..bound }.admits(values);
    assert!(fits(&[most, 0, 0, -most]) && !fits(&[most + 1, 0, 0, 0]) && !fits(&[0, 0, 0, -most - 1]));
    #[allow(clippy::cast_possible_truncation)]
    let longest = bound.norm() as i64;
    let fits = |values: &[i64]| SumBound { coordinate: u128::MAX, ..bound }.admits(values);
    assert!(fits(&[longest, 0, 0, 0]) && !fits(&[longest, longest / 1000, 0, 0]));
    assert!(!bound.admits(&[i64::MIN, 0, 0, 0]) && !bound.admits(&[i64::MAX; 4]) && !bound.admits(&[i64::MIN; 4]));
}

#[test]
fn a_sample_is_shorter_than_all_units_and_never_longer() {
    let all = SumBound::of_event(&sum(4, 1.0, None).event(), 100_000).unwrap();
    let sample = SumBound::of_event(&sum(4, 1.0, Some(0.01)).event(), 100_000).unwrap();
    assert!(sample.coordinate() < all.coordinate() / 50 && sample.norm() < all.norm() / 50.0);
    for terms in [0, 1, 5, 100] {
        assert!(sampled(SamplingRate::nearest(0.9).unwrap(), terms) <= terms);
    }
    // Bernstein's bound against the exact tail of a binomial number: 40 of 40 coins at rate 0.001 have probability 1e-120.
    assert!(sampled(SamplingRate::nearest(0.5).unwrap(), 1_000_000) < 510_000);
}

/// Honest noise alone and honest sums of the largest terms pass, over many draws.
#[test]
fn honest_vectors_pass() {
    let mechanism = sum(50, 3.0, None);
    let bound = SumBound::of_event(&mechanism.event(), 7).unwrap();
    let DpEvent::DiscreteGaussian(release) = mechanism.event() else { panic!("one sum") };
    let sampler = DiscreteGaussianSampler::new(release.scale).unwrap();
    let mut rng = chacha20::ChaCha20Rng::from_seed([7; 32]);
    let term = i64::try_from(release.bound_squared.isqrt()).unwrap();
    let mut longest = 0.0_f64;
    for _ in 0..2000 {
        let mut values: Vec<i64> = (0..50).map(|_| sampler.sample(&mut rng).unwrap()).collect();
        longest = longest.max(values.iter().map(|&x| (x as f64) * (x as f64)).sum::<f64>().sqrt());
        assert!(bound.admits(&values));
        values[3] += 7 * term;
        assert!(bound.admits(&values));
    }
    // The bound is no giant: at most 2.7 times the longest noise seen, beside the terms.
    assert!(bound.norm() - 7.0 * term as f64 <= 2.7 * longest);
}

#[test]
fn events_that_are_no_single_sum_have_no_bound() {
    assert_eq!(SumBound::of_event(&DpEvent::NonPrivate, 3), None);
    assert_eq!(SumBound::of_event(&sum(3, 1.0, None).event().repeated(5), 3), None);
}

#[test]
fn shares_of_many_sites_are_one_sum() {
    let (clip, noise) = (ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(4.0).unwrap());
    let share = ShareSum::new(20, clip, noise, 4, 100, None, Terms::Units).unwrap();
    let bound = SumBound::of_shares(&share, 5);
    assert_eq!(bound.coordinate(), 5 * share.coordinate_bound());
    let sampled = ShareSum::new(20, clip, noise, 4, 100_000, Some(SamplingRate::nearest(0.01).unwrap()), Terms::Units).unwrap();
    assert!(SumBound::of_shares(&sampled, 5).coordinate() < 5 * sampled.coordinate_bound() / 20);
}

#[test]
fn what_is_brought_in_is_within_the_bound_and_what_was_within_is_not_changed() {
    let bound = SumBound::of_event(&sum(4, 1.0, None).event(), 10).unwrap();
    let most = i64::try_from(bound.coordinate()).unwrap();
    for values in [
        [0; 4],
        [1, -2, 3, 4],
        [most / 8; 4],
        [most, 0, 0, 1],
        [most + 1, 0, 0, 0],
        [most; 4],
        [-most, most, -most, 1],
        [i64::MAX; 4],
        [i64::MIN; 4],
        [i64::MIN, i64::MAX, 0, -1],
    ] {
        let mut inside = values;
        bound.bring_in(&mut inside);
        assert!(bound.admits(&inside), "{values:?}");
        if bound.admits(&values) {
            assert_eq!(inside, values);
        }
        assert!(values.iter().zip(&inside).all(|(before, after)| before.signum() * after.signum() >= 0), "{inside:?}");
    }
    // Cut to the length of the bound, in the same direction.
    let mut long = [most / 2, most / 2, 0, 0];
    let tight = SumBound { norm: bound.norm() / 100.0, ..bound };
    tight.bring_in(&mut long);
    let length = (long[0] as f64).hypot(long[1] as f64);
    assert!(long[0] == long[1] && length <= tight.norm() && length >= tight.norm() * (1.0 - 1e-4));
}

/// With three sites and one unit each, C = 1 and z = 4: the coordinate bound is 3·C_int + 3·64(s+1), the norm's 3(C_int+1) + s√3(√d + √(2L)).
/// In few dimensions the norm is the smaller one, in many the coordinate: each half alone turns a vector away.
#[test]
fn each_half_of_a_bound_of_shares_fails_alone() {
    let (clip, noise) = (ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(4.0).unwrap());
    let bound = |dimension| {
        let share = ShareSum::new(dimension, clip, noise, 3, 1, None, Terms::Units).unwrap();
        (SumBound::of_shares(&share, 3), share)
    };
    let (few, share) = bound(20);
    let (steps, scale) = (share.clip_steps() as f64, share.scale() as f64);
    assert_eq!(few.coordinate(), u128::from(3 * share.clip_steps() + 3 * 64 * (share.scale() + 1)));
    let norm = 3.0 * (steps + 1.0) + scale * 3f64.sqrt() * (20f64.sqrt() + (2.0 * TAIL).sqrt());
    assert!((few.norm() / norm - 1.0).abs() < 2e-9);
    #[allow(clippy::cast_possible_truncation)]
    let longest = few.norm().floor() as i64;
    // Norm alone.
    assert!(u128::from(longest.unsigned_abs()) < few.coordinate());
    assert!(few.admits(&[longest, 0, 0]) && !few.admits(&[longest, longest / 100, 0]));
    // Coordinate alone.
    let (many, _) = bound(20_000);
    let most = i64::try_from(many.coordinate()).unwrap();
    assert!((most + 1) as f64 <= many.norm() / 1.1);
    assert!(many.admits(&[0, -most]) && !many.admits(&[0, most + 1]) && !many.admits(&[-most - 1, 0]));
}
