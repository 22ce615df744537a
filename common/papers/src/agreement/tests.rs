//! Sites of natural-gradient federations against each other: level and power of the test, and a posterior without a site. The example `agreement` does it with
//! thousands of federations.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use crate::synthetic::sites::{Cells, Differences, Federation, Labels, Random, run};
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_results::agreement::Verdict;
use dp_pvi_results::convergence::{Convergence, Verdict as Convergences};
use dp_pvi_results::divided::{Noise, without};

const FEDERATION: Federation = Federation {
    sites: 5,
    records: 6000,
    epsilon: 1.0,
    approximation: "full-covariance",
    rounds: 10,
    truth: 1.0,
    differences: Differences::NONE,
    labels: Labels::Right,
};

/// In how many of so many federations some right site is said to differ, and in how many the flipped one is.
fn count(federation: &Federation, federations: u64) -> (u32, u32) {
    let (task, cells) = (federation.task(), Cells::new());
    let (mut blamed, mut found) = (0, 0);
    for seed in 1..=federations {
        let tested = federation.test(&task, &cells, seed);
        let differs: Vec<bool> = tested.sites.iter().map(|site| site.verdict == Verdict::Differs).collect();
        let (right, flipped) = differs.split_at(differs.len() - usize::from(federation.labels == Labels::FlippedAtTheLast));
        blamed += u32::from(right.contains(&true));
        found += u32::from(flipped.contains(&true));
    }
    (blamed, found)
}

/// Family-wise level 5 % with like sites and with ordinary ones, over 400 federations each: 5 % are 20, with a standard error of 4.4.
#[test]
fn sites_with_ordinary_differences_agree() {
    for approximation in ["full-covariance", "mean-field"] {
        for differences in [Differences::NONE, Differences::ORDINARY] {
            let (blamed, _) = count(&Federation { approximation, differences, ..FEDERATION }, 400);
            assert!(blamed <= 20, "{approximation}, {differences:?}: {blamed} of 400");
        }
    }
}

/// A site whose labels are flipped is found in at least 80 % of the federations, and hardly ever another one in its place; coefficients of standard deviation 1
/// and of 0.3.
#[test]
fn a_site_with_flipped_labels_is_found() {
    for truth in [1.0, 0.3] {
        let federation = Federation { truth, labels: Labels::FlippedAtTheLast, differences: Differences::ORDINARY, ..FEDERATION };
        let (blamed, found) = count(&federation, 100);
        assert!(found >= 80 && blamed <= 5, "{truth}: {found} found, {blamed} blamed, of 100");
    }
}

/// Two rounds from the prior do not say where the run leads, whatever the noise is. Ten do. The interval of what is left without a site is no narrower than that
/// of all.
#[test]
fn a_run_that_was_too_short_says_so_also_without_a_site() {
    for (rounds, arrived) in [(2, false), (10, true)] {
        let federation = Federation { rounds, epsilon: 40.0, ..FEDERATION };
        let (task, cells, mut random) = (federation.task(), Cells::new(), Random(7 << 24));
        let sites = federation.draw(&cells, &mut random);
        let all = run(&task, &cells, &sites, &mut random);
        let convergence = Convergence::of_run(&task, &all.history).unwrap();
        assert_eq!(convergence.verdict != Convergences::NotConverged, arrived, "{rounds} rounds: {convergence:?}");
        let variances = |natural: Vec<f64>| Gaussian::from_natural(task.family(), natural).unwrap().standard().variances().to_vec();
        let whole = variances(of_run(&task, &all.history).unwrap().natural_parameters);
        let left = variances(without(&task, &all.releases(), 4).unwrap().natural_parameters);
        assert!(whole.iter().zip(&left).all(|(whole, left)| left > &(0.8 * whole)), "{rounds} rounds: {whole:?} {left:?}");
    }
}

/// The largest distance of the means of two posteriors, in standard deviations of the first.
fn distance(a: &Gaussian, b: &Gaussian) -> f64 {
    let means = a.standard().mean().iter().zip(b.standard().mean());
    means.zip(a.standard().variances()).map(|((a, b), v)| (a - b).abs() / v.sqrt()).fold(0.0, f64::max)
}

/// What is left without a site against the run that never had it, and the run with it: (left, never, with).
fn three(federation: &Federation, seed: u64) -> (Gaussian, Gaussian, Gaussian) {
    let (task, cells, mut random) = (federation.task(), Cells::new(), Random(seed << 24));
    let sites = federation.draw(&cells, &mut random);
    let all = run(&task, &cells, &sites, &mut random);
    let divided = without(&task, &all.releases(), 4).unwrap();
    assert!(matches!(divided.noise, Noise::Contained { .. }));
    let never = run(&task, &cells, &sites[..4], &mut random);
    let gaussian = |natural: Vec<f64>| Gaussian::from_natural(task.family(), natural).unwrap();
    let aware = |history| gaussian(of_run(&task, history).unwrap().natural_parameters);
    (gaussian(divided.natural_parameters), aware(&never.history), aware(&all.history))
}

/// Next to no noise, and sites that differ as sites do: what is left is nearly the run that never had the site.
///
/// Its variances are larger by what is not known of the curvature on the way back: an error ρ of the curvature, relative to itself, moves a mean by up to ρ times
/// the way, so that a variance is multiplied by up to 1 + ρ² m² where the site had drawn the run away by m standard deviations. ρ is what the path has shown
/// of changes of the curvature: less than 0.15 here, and less than 0.4 with a mean field, which shows the diagonal only. Smaller than the variances of the run
/// that never had the site they are by the difference of the curvatures at the two ends of the way, a few percent.
#[test]
fn without_an_ordinary_site_a_run_is_nearly_the_run_that_never_had_it() {
    for (approximation, most, rho, narrower) in [("full-covariance", 0.3, 0.15_f64, 0.95), ("mean-field", 0.5, 0.4, 0.92)] {
        for seed in 1..=10 {
            let federation = Federation { epsilon: 2000.0, rounds: 16, approximation, differences: Differences::ORDINARY, ..FEDERATION };
            let (left, never, with) = three(&federation, seed);
            assert!(distance(&left, &never) < most, "{approximation} {seed}: {}", distance(&left, &never));
            let wider = 1.1 * (1.0 + (rho * distance(&never, &with)).powi(2));
            for (a, b) in left.standard().variances().iter().zip(never.standard().variances()) {
                assert!((narrower..wider).contains(&(a / b)), "{approximation} {seed}: variances {a} {b}, at most {wider} times");
            }
        }
    }
}

/// A site whose labels are flipped has drawn the run far away. What is left comes back by half of the way or more, and its intervals say how exactly: with
/// full covariance to within a standard deviation; with a mean field to within half a one, for most of its intervals are as wide as the prior (they are never wider), and say little else.
#[test]
fn without_a_flipped_site_the_intervals_reach_back() {
    for (approximation, most) in [("full-covariance", 0.8), ("mean-field", 0.5)] {
        for epsilon in [2000.0, 1.0] {
            for seed in 1..=10 {
                let federation = Federation { epsilon, approximation, labels: Labels::FlippedAtTheLast, ..FEDERATION };
                let (left, never, with) = three(&federation, seed);
                let (sds, moved) = (distance(&left, &never), distance(&never, &with));
                assert!(sds < most, "{approximation} at {epsilon}, {seed}: {sds}");
                assert!(
                    distance(&never, &left) < 0.5 * moved,
                    "{approximation} at {epsilon}, {seed}: {} of {moved}",
                    distance(&never, &left)
                );
            }
        }
    }
}
