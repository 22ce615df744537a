#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use nalgebra::{Cholesky, DMatrix, DVector};

use super::{Allowance, Evidence, compare, low};

const D: usize = 4;
/// The last coordinate.
const INTERCEPT: Option<usize> = Some(D - 1);
const ORDINARY: Allowance = Allowance { intercept: 0.3, others: 0.1 };

/// SplitMix64.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn vector(&mut self) -> DVector<f64> {
        DVector::from_fn(D, |_, _| self.normal())
    }
}

/// Sites of so many records whose coefficients are these; noise of this standard deviation on every coordinate of a score.
fn draw(coefficients: &[DVector<f64>], records: &[f64], noise: f64, random: &mut Random) -> Vec<Evidence> {
    let site = |(own, records): (&DVector<f64>, &f64)| {
        let factor = DMatrix::from_fn(D, D, |i, j| if i == j { 1.0 } else { 0.15 * random.normal() });
        let curvature = &factor * factor.transpose() * (0.2 * records);
        let sampling = Cholesky::new(curvature.clone()).unwrap().l() * random.vector();
        Evidence {
            score: &curvature * own + sampling + random.vector() * noise,
            noise: DMatrix::identity(D, D) * (noise * noise),
            curvature,
            doubt: 0.0,
        }
    };
    coefficients.iter().zip(records).map(site).collect()
}

/// Coefficients of so many sites about common ones, with so many times the ordinary differences.
fn around(sites: usize, times: f64, random: &mut Random) -> Vec<DVector<f64>> {
    let common = random.vector();
    let sd = |j: usize| times * if Some(j) == INTERCEPT { ORDINARY.intercept } else { ORDINARY.others };
    (0..sites).map(|_| &common + DVector::from_fn(D, |j, _| sd(j) * random.normal())).collect()
}

/// Two sites that differ by exactly the allowance: the statistic is chi-square in as many directions as have a signal, with sites of very different sizes, and
/// from little noise to much. Standard errors, the two statistics of a pair being nearly one: 0.004 at 5 %, 0.008 at 50 %, 2 % of the mean.
#[test]
fn the_statistic_is_chi_square() {
    let mut random = Random(1);
    for noise in [0.1, 20.0, 100.0] {
        let (mut below, mut ratio, mut count) = ([0_u32; 2], 0.0, 0_u32);
        for _ in 0..4000 {
            let coefficients = around(2, 1.0, &mut random);
            let sites = draw(&coefficients, &[400.0, 3000.0], noise, &mut random);
            for compared in compare(&sites, ORDINARY, INTERCEPT, 1e-6).unwrap() {
                assert!(compared.degrees > 0, "{noise}");
                [0.05, 0.5].iter().zip(&mut below).for_each(|(level, below)| *below += u32::from(compared.p < *level));
                ratio += compared.statistic / f64::from(compared.degrees);
                count += 1;
            }
        }
        let share = |below: u32| f64::from(below) / f64::from(count);
        assert!((share(below[0]) - 0.05).abs() < 0.012 && (share(below[1]) - 0.5).abs() < 0.024, "{noise}: {below:?} of {count}");
        assert!((ratio / f64::from(count) - 1.0).abs() < 0.06, "{noise}: {}", ratio / f64::from(count));
    }
}

/// Where the others differ by three times the allowance among themselves, it is raised for all: few are blamed, and by about that factor.
#[test]
fn the_others_raise_what_is_allowed() {
    let mut random = Random(2);
    let (mut blamed, mut heterogeneity, mut intercepts) = (0_u32, 0.0, 0.0);
    for _ in 0..300 {
        let coefficients = around(8, 3.0, &mut random);
        for compared in compare(&draw(&coefficients, &[2000.0; 8], 5.0, &mut random), ORDINARY, INTERCEPT, 1e-6).unwrap() {
            blamed += u32::from(compared.p < 0.05);
            heterogeneity += compared.heterogeneity.others / 2400.0;
            intercepts += compared.heterogeneity.intercept / 2400.0;
        }
    }
    // 5 % of 2,400 are 120; the upper limits of variances are above the variances.
    assert!(blamed < 130, "{blamed}");
    assert!((2.8..4.5).contains(&heterogeneity) && (2.8..6.0).contains(&intercepts), "{heterogeneity} {intercepts}");
}

/// One of five has the opposite coefficients: it is found, and the four others are not blamed for it.
#[test]
fn one_site_that_is_otherwise_is_found() {
    let mut random = Random(3);
    let (mut found, mut blamed) = (0_u32, 0_u32);
    for _ in 0..200 {
        let mut coefficients = around(5, 0.5, &mut random);
        coefficients[4] *= -1.0;
        let compared = compare(&draw(&coefficients, &[3000.0; 5], 10.0, &mut random), ORDINARY, INTERCEPT, 1e-6).unwrap();
        found += u32::from(compared[4].p < 0.01);
        blamed += u32::from(compared[..4].iter().any(|other| other.p < 0.01));
    }
    assert!(found > 180 && blamed < 10, "{found} {blamed}");
}

/// A single coefficient that differs is the one that is named, with its sign.
#[test]
fn the_coefficient_that_differs_is_named() {
    let mut random = Random(4);
    let mut coefficients = vec![DVector::zeros(D); 4];
    coefficients[2][1] = -1.0;
    let compared = compare(&draw(&coefficients, &[3000.0; 4], 10.0, &mut random), ORDINARY, INTERCEPT, 1e-6).unwrap();
    assert_eq!(compared[2].farthest.0, 1);
    assert!(compared[2].farthest.1 < -4.0, "{:?}", compared[2]);
}

/// Noise that hides everything leaves nothing to test, and a coefficient that only one site has no way to differ.
#[test]
fn directions_without_a_signal_do_not_count() {
    let mut random = Random(5);
    let sites = draw(&around(3, 1.0, &mut random), &[100.0; 3], 1e5, &mut random);
    assert!(compare(&sites, ORDINARY, INTERCEPT, 1e-6).unwrap().iter().all(|c| (c.degrees, c.p) == (0, 1.0)));
    let mut sites = draw(&vec![DVector::zeros(D); 3], &[3000.0; 3], 1.0, &mut random);
    for (i, site) in sites.iter_mut().enumerate() {
        if i > 0 {
            site.curvature.row_mut(0).fill(0.0);
            site.curvature.column_mut(0).fill(0.0);
            site.score[0] = random.normal();
        }
    }
    // Far from everyone, in a coordinate of which the others know nothing.
    let far = sites[0].curvature.column(0) * 3.0;
    sites[0].score += far;
    let compared = compare(&sites, ORDINARY, INTERCEPT, 1e-4).unwrap();
    assert!(compared[0].p > 0.01 && compared[1].degrees as usize == D - 1, "{compared:?}");
    assert!(compare(&[], ORDINARY, INTERCEPT, 1.0).is_none());
}

/// Against 20 % points of chi-square tables.
#[test]
fn the_low_point_is_that_of_a_mean_of_squares() {
    for (degrees, point) in [(1.0, 0.0642), (3.0, 1.005 / 3.0), (12.0, 7.807 / 12.0), (50.0, 41.449 / 50.0)] {
        assert!((low(degrees) - point).abs() < 0.012, "{degrees}: {} {point}", low(degrees));
    }
}
