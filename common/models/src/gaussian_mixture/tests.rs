use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::svec;
use nalgebra::{DMatrix, DVector, dmatrix, dvector};
use proptest::prelude::*;

use super::em::{Mixture, Scales, add_statistics, m_step, statistics_len};
use super::matching::{Distance, assignment};
use super::{Components, Covariance, Density, MixtureShape};

fn cost_of(cost: &DMatrix<f64>, pairs: &[usize]) -> f64 {
    pairs.iter().enumerate().map(|(i, &j)| cost[(i, j)]).sum()
}

/// The least cost over all permutations.
fn brute_force(cost: &DMatrix<f64>, used: &mut Vec<usize>) -> f64 {
    let n = cost.nrows();
    if used.len() == n {
        return 0.0;
    }
    let row = used.len();
    let mut best = f64::INFINITY;
    for column in 0..n {
        if !used.contains(&column) {
            used.push(column);
            best = best.min(cost[(row, column)] + brute_force(cost, used));
            used.pop();
        }
    }
    best
}

proptest! {
    #[test]
    fn an_assignment_is_a_permutation_of_least_cost(n in 1_usize..7, values in proptest::collection::vec(-5.0..5.0_f64, 36)) {
        let cost = DMatrix::from_fn(n, n, |i, j| values[i * 6 + j]);
        let pairs = assignment(&cost);
        let mut sorted = pairs.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..n).collect::<Vec<_>>());
        prop_assert!((cost_of(&cost, &pairs) - brute_force(&cost, &mut Vec::new())).abs() < 1e-12);
    }

    #[test]
    fn no_record_is_longer_than_the_sensitivity(x in proptest::collection::vec(-1.0..1.0_f64, 3), logs in proptest::collection::vec(-9.0..0.0_f64, 4), bound in 0.5..3.0_f64) {
        let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
        let x: Vec<f64> = x.iter().map(|v| v * bound / norm.max(1e-9)).collect();
        let mut r = logs;
        super::responsibilities(&mut r);
        let scales = Scales::balanced(bound);
        let mut out = vec![0.0; statistics_len(4, 3)];
        add_statistics(&scales, &x, &r, &mut out);
        let length = out.iter().map(|v| v * v).sum::<f64>().sqrt();
        prop_assert!(length <= scales.sensitivity(bound) * (1.0 + 1e-12));
        // The stated norm ‖r‖√(a² + b²‖x‖² + c²‖x‖⁴): svec keeps norms.
        let spread = r.iter().map(|v| v * v).sum::<f64>().sqrt();
        prop_assert!((length - spread * scales.sensitivity(bound)).abs() < 1e-9);
    }
}

/// The nearest component would be used twice here.
#[test]
fn matching_does_not_use_a_component_twice() {
    let part = |x: f64| (dvector![x], dmatrix![1.0]);
    let truth = Components { parts: vec![part(0.0), part(1.0)] };
    let other = Components { parts: vec![part(5.0), part(0.4)] };
    let distance = Distance::between(&truth, &other).unwrap();
    assert_eq!(distance.pairs, vec![1, 0]);
    assert!((distance.mean - (0.16_f64 + 16.0).sqrt()).abs() < 1e-12 && distance.covariance < 1e-12);
    assert!((distance.kl - 0.5 * (0.08 + 8.0)).abs() < 1e-12);
}

#[test]
fn both_layouts_round_trip_and_agree_on_diagonal_covariances() {
    let shape = |covariance| MixtureShape { components: 2, dimension: 3, covariance };
    let (diagonal, full) = (shape(Covariance::Diagonal), shape(Covariance::Full));
    assert_eq!((diagonal.len(), full.len()), (12, 18));
    let means = [1.0, -2.0, 0.5, 0.0, 3.0, -1.0];
    let from = |shape: MixtureShape| Components::from_natural(shape, &shape.isotropic(&means, 0.25)).unwrap();
    let (a, b) = (from(diagonal), from(full));
    let distance = Distance::between(&a, &b).unwrap();
    assert!(distance.mean < 1e-12 && distance.covariance < 1e-12 && distance.kl.abs() < 1e-12);
    assert!((a.parts[1].0[1] - 3.0).abs() < 1e-14);
    let mut invalid = full.isotropic(&means, 0.25);
    invalid[6] = -1.0;
    assert!(Components::from_natural(full, &invalid).is_err());
    assert!(Components::from_natural(full, &invalid[1..]).is_err());
}

#[test]
fn the_predictive_density_integrates_to_one() {
    let components = Components { parts: vec![(dvector![-1.0], dmatrix![0.3]), (dvector![2.0], dmatrix![0.1])] };
    let density = Density::predictive(&components, 0.25).unwrap();
    let step = 0.01;
    let total: f64 = (-1000..1000).map(|k| density.score(&[f64::from(k) * step]).0.exp() * step).sum();
    assert!((total - 1.0).abs() < 1e-10);
    let (_, r) = density.score(&[2.0]);
    assert!(r[1] > 0.99 && (r[0] + r[1] - 1.0).abs() < 1e-15);
}

/// Exact statistics give the moments of the points; EM increases the likelihood.
#[test]
fn the_m_step_inverts_the_statistics_and_em_climbs() {
    let scales = Scales { weight: 1.0, mean: 0.5, second: 0.2 };
    let points: Vec<[f64; 2]> = (0..40_i32)
        .map(|i| {
            let t = f64::from(i) * 2.399_963;
            let side = if i % 3 == 0 { 1.5 } else { -1.0 };
            [side + 0.3 * t.cos(), 0.5 * side + 0.2 * t.sin() * (1.0 + 0.3 * t.cos())]
        })
        .collect();
    let mut mixture = Mixture::start(vec![dvector![0.5, 0.0], dvector![-0.5, 0.0]], 1.0);
    let mut before = f64::NEG_INFINITY;
    for _ in 0..30 {
        let density = mixture.density().unwrap();
        let mut sum = vec![0.0; statistics_len(2, 2)];
        let mut likelihood = 0.0;
        for x in &points {
            let (log, r) = density.score(x);
            likelihood += log;
            add_statistics(&scales, x, &r, &mut sum);
        }
        assert!(likelihood >= before - 1e-9, "{likelihood} after {before}");
        before = likelihood;
        mixture = m_step(&scales, &sum, 2, 2, 3.0);
        assert!((mixture.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
    // One component holds every third point.
    let small = usize::from(mixture.weights[1] < mixture.weights[0]);
    assert!((mixture.weights[small] - 14.0 / 40.0).abs() < 0.01, "{:?}", mixture.weights);
    assert!((mixture.means[small][0] - 1.5).abs() < 0.15);
    let mut sum = vec![0.0; statistics_len(1, 2)];
    points.iter().for_each(|x| add_statistics(&scales, x, &[1.0], &mut sum));
    let one = m_step(&scales, &sum, 1, 2, 3.0);
    let mean = points.iter().fold(DVector::zeros(2), |m, x| m + dvector![x[0], x[1]]) / 40.0;
    assert!((&one.means[0] - &mean).norm() < 1e-12);
    let covariance = points.iter().fold(DMatrix::zeros(2, 2), |c, x| {
        let z = dvector![x[0], x[1]] - &mean;
        c + &z * z.transpose()
    }) / 40.0;
    assert!((&one.covariances[0] - covariance).norm() < 1e-12);
}

#[test]
fn huge_noise_still_gives_a_mixture() {
    for scale in [1e4, 1e12] {
        let sum: Vec<f64> = (0..statistics_len(3, 2)).map(|i| scale * f64::from(i32::try_from(i).unwrap() % 5 - 2)).collect();
        let mixture = m_step(&Scales::balanced(2.0), &sum, 3, 2, 2.0);
        assert!(mixture.density().is_ok());
        assert!(mixture.means.iter().all(|m| m.norm() <= 2.0 + 1e-9) && mixture.weights.iter().all(|w| *w > 0.0));
    }
}

/// Blocks of a joint precision stand where the layout says, and all else is 0.
#[test]
fn full_blocks_are_part_of_a_joint_gaussian() {
    let (components, dimension) = (3, 2);
    let d = components * dimension;
    let entry = |i: usize, j: usize| f64::from(u32::try_from(1 + i.min(j) * d + i.max(j)).unwrap());
    let joint = DMatrix::from_fn(d, d, |i, j| if i / dimension == j / dimension { entry(i, j) } else { 0.0 });
    let h: Vec<f64> = (0..d).map(|i| -entry(i, 0)).collect();
    let all = [h.clone(), svec(&joint)].concat();
    let family = Family::FullGaussian { dimension: d };
    let shape = MixtureShape::of_family(components, family);
    assert_eq!((shape.covariance, shape.dimension, all.len()), (Covariance::Full, dimension, family.len()));
    let positions = shape.positions();
    let blocks: Vec<f64> = positions.iter().map(|&position| all[position]).collect();
    assert_eq!(blocks.len(), shape.len());
    for j in 0..components {
        assert_eq!(shape.h(&blocks, j), &h[j * dimension..][..dimension]);
        let block = joint.view((j * dimension, j * dimension), (dimension, dimension)).into_owned();
        assert!((shape.matrix(&blocks, j) - block).norm() < 1e-12);
    }
    assert!((0..all.len()).all(|position| positions.contains(&position) || all[position] == 0.0));
    let diagonal = MixtureShape::of_family(components, Family::DiagonalGaussian { dimension: d });
    assert_eq!((diagonal.covariance, diagonal.positions()), (Covariance::Diagonal, (0..2 * d).collect()));
}
