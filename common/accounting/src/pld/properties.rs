//! Properties of every plan, and the ways in which an accountant has been wrong before.

use super::{Composition, GAP, Interval, Pair};
use crate::plan::Plan;
use crate::steps::{Mechanism, Neighbours, Phase, Sampling};
use crate::unit::{Delta, Epsilon};

fn at(delta: f64) -> Delta {
    Delta::new(delta).unwrap()
}

fn plan(relation: Neighbours, sampling: Sampling, sigma: f64, steps: u64) -> Plan {
    Plan::of(relation, Phase::gaussian(sigma, sampling, steps)).unwrap()
}

fn estimate(relation: Neighbours, sampling: Sampling, sigma: f64, steps: u64, delta: f64) -> f64 {
    plan(relation, sampling, sigma, steps).epsilon_estimate(at(delta))
}

const BOTH: [Neighbours; 2] = [Neighbours::AddRemove, Neighbours::ReplaceOne];

#[test]
fn epsilon_is_monotone_in_sigma_rate_steps_and_delta() {
    for relation in BOTH {
        let base = estimate(relation, Sampling::Poisson(0.02), 1.5, 400, 1e-6);
        assert!(estimate(relation, Sampling::Poisson(0.02), 1.6, 400, 1e-6) < base);
        assert!(estimate(relation, Sampling::Poisson(0.03), 1.5, 400, 1e-6) > base);
        assert!(estimate(relation, Sampling::Poisson(0.02), 1.5, 500, 1e-6) > base);
        assert!(estimate(relation, Sampling::Poisson(0.02), 1.5, 400, 1e-7) > base);
    }
}

#[test]
fn order_and_splitting_of_phases_do_not_matter() {
    let (a, b) = (Phase::gaussian(1.0, Sampling::Poisson(0.01), 300), Phase::gaussian(4.0, Sampling::None, 2));
    let part = |steps| Phase { steps, ..a };
    let mut first = Plan::new(Neighbours::AddRemove);
    let mut second = Plan::new(Neighbours::AddRemove);
    for phase in [a, b] {
        first.append(phase).unwrap();
    }
    for phase in [part(100), b, part(200)] {
        second.append(phase).unwrap();
    }
    assert_eq!(first.to_bytes(), second.to_bytes());
    assert_eq!(first.epsilon(at(1e-5)), second.epsilon(at(1e-5)));
    assert_eq!(Plan::from_bytes(&first.to_bytes()).unwrap(), first);
    let mut longer = first.to_bytes();
    longer.push(0);
    assert!(Plan::from_bytes(&longer).is_err());
}

#[test]
fn a_rate_near_one_is_the_plain_gaussian() {
    for (relation, sampling) in
        [(Neighbours::AddRemove, Sampling::Poisson(1.0 - 1e-10)), (Neighbours::ReplaceOne, Sampling::Poisson(1.0 - 1e-10))]
    {
        let (near, plain) = (estimate(relation, sampling, 5.0, 20, 1e-6), estimate(relation, Sampling::None, 5.0, 20, 1e-6));
        assert!((near - plain).abs() < 1e-6, "{near} {plain}");
    }
}

#[test]
fn without_replacement_costs_at_least_poisson() {
    for relation in BOTH {
        for (sigma, q, steps) in [(2.0, 0.01, 100), (8.0, 0.1, 200)] {
            let fixed = estimate(relation, Sampling::WithoutReplacement(q), sigma, steps, 1e-6);
            assert!(fixed >= estimate(relation, Sampling::Poisson(q), sigma, steps, 1e-6));
        }
    }
}

#[test]
fn delta_of_epsilon_is_its_inverse() {
    for relation in BOTH {
        let plan = plan(relation, Sampling::Poisson(0.02), 2.0, 500);
        let epsilon = plan.epsilon_estimate(at(1e-6));
        let back = plan.delta(Epsilon::new(epsilon).unwrap());
        assert!(back.lower <= 1e-6 && 1e-6 <= back.upper && (back.estimate / 1e-6 - 1.0).abs() < 1e-8, "{back:?}");
    }
}

#[test]
fn plain_gaussians_through_the_transform_keep_far_tails() {
    // A transform without tilting reports 127.4 here.
    let losses = super::Composition::new(vec![(super::Pair::gaussian(1.0 / 30.0), 100_000)]);
    let Interval { lower, upper, .. } = losses.epsilon(1e-12, super::GAP).unwrap();
    assert!(upper >= 128.940_199 && lower <= 128.940_200 && upper - lower <= 0.01, "[{lower}, {upper}]");
}

#[test]
fn a_shuffled_sampler_is_charged_as_passes_without_amplification() {
    // 2000 steps of a tenth: 200 passes.
    let passes = plan(Neighbours::ReplaceOne, Sampling::ShuffledPasses(200.0), 17.8307, 1);
    assert_eq!(passes, plan(Neighbours::ReplaceOne, Sampling::None, 17.8307, 200));
    assert!(passes.epsilon(at(1e-5)).lower > 7.5);
    let begun = plan(Neighbours::ReplaceOne, Sampling::ShuffledPasses(199.1), 17.8307, 1);
    assert_eq!(begun, passes);
}

#[test]
fn the_default_of_dp_pvi_costs_what_its_sampler_costs() {
    let upper = plan(Neighbours::ReplaceOne, Sampling::WithoutReplacement(0.1), 17.8307, 2000).epsilon(at(1e-5)).upper;
    assert!(upper >= 2.015_53 && (upper - 2.0943).abs() < 2e-4, "{upper}");
}

#[test]
fn renyi_bounds_agree_and_are_never_below() {
    for relation in BOTH {
        for sampling in [Sampling::None, Sampling::Poisson(0.02), Sampling::WithoutReplacement(0.02)] {
            let plan = plan(relation, sampling, 3.0, 300);
            let (renyi, _) = plan.renyi_epsilon(at(1e-6));
            let exact = plan.epsilon(at(1e-6));
            assert!(renyi >= exact.lower && renyi <= 1.6 * exact.upper, "{relation:?} {sampling:?}: {renyi} {exact:?}");
        }
    }
}

#[test]
fn unsupported_pairs_are_refused() {
    let laplace = Phase { mechanism: Mechanism::Laplace { scale: 1.0 }, sampling: Sampling::Poisson(0.1), steps: 1 };
    assert!(Plan::of(Neighbours::AddRemove, laplace).is_err());
    assert!(Plan::of(Neighbours::ZeroOut, Phase::gaussian(1.0, Sampling::WithoutReplacement(0.1), 1)).is_err());
    for q in [0.0, -0.1, 1.1, f64::NAN] {
        assert!(Plan::of(Neighbours::AddRemove, Phase::gaussian(1.0, Sampling::Poisson(q), 1)).is_err());
    }
    assert!(Plan::of(Neighbours::AddRemove, Phase::gaussian(f64::NAN, Sampling::None, 1)).is_err());
}

/// δ(ε) of two steps by a double sum over outcomes, for `rounds` random questions.
#[test]
fn two_steps_equal_the_double_integral() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from(u32::try_from(state >> 32).unwrap()) / 4_294_967_296.0
    };
    for case in 0..40 {
        let (sigma, q) = (0.7 + 3.0 * uniform(), 0.01 + 0.9 * uniform());
        let epsilon = 0.05 + 1.5 * uniform();
        let relation = BOTH[case % 2];
        let interval = plan(relation, Sampling::Poisson(q), sigma, 2).delta(Epsilon::new(epsilon).unwrap());
        let (r, step) = (1.0 / sigma, 0.01);
        let ratio = |y: f64| (q * (r * y - 0.5 * r * r).exp_m1()).ln_1p();
        let points: Vec<f64> = (-1000..=1000).map(|i| f64::from(i) * step).collect();
        let normal = |y: f64| (-0.5 * y * y).exp() * step / std::f64::consts::TAU.sqrt();
        // (loss, mass) under P for every direction.
        let directions: Vec<Vec<(f64, f64)>> = if relation == Neighbours::ReplaceOne {
            vec![points.iter().map(|&y| (ratio(y) - ratio(-y), normal(y) * ratio(y).exp())).collect()]
        } else {
            vec![
                points.iter().map(|&y| (ratio(y), normal(y) * ratio(y).exp())).collect(),
                points.iter().map(|&y| (-ratio(y), normal(y))).collect(),
            ]
        };
        let exact = directions
            .iter()
            .map(|steps| {
                let mut sum = 0.0;
                for (loss, mass) in steps {
                    sum += mass
                        * steps
                            .iter()
                            .filter(|(other, _)| loss + other > epsilon)
                            .map(|(other, mass)| -mass * (epsilon - loss - other).exp_m1())
                            .sum::<f64>();
                }
                sum
            })
            .fold(0.0, f64::max);
        // The double sum meets the kink at L = ε with an error of order step².
        let slack = 2e-5 * exact + 1e-12;
        assert!(
            interval.lower <= exact + slack && interval.upper >= exact - slack,
            "{relation:?} {sigma} {q} {epsilon}: {exact:e} {interval:?}"
        );
    }
}

/// Far in the tail, where loss distributions tell δ at one ε and not at the next: it falls, and is never above what Rényi divergences say. At 0.05·1.4^k.
fn tail_falls(plan: &Plan, powers: impl Iterator<Item = i32>, orders: &[f64]) {
    let divergences: Vec<_> = orders.iter().map(|&order| (order, plan.renyi(order).upper)).collect();
    let mut before = Interval { lower: 1.0, estimate: 1.0, upper: 1.0 };
    for k in powers {
        let epsilon = 0.05 * 1.4f64.powi(k);
        let found = plan.delta(Epsilon::new(epsilon).unwrap());
        let name = format!("{:?} {:?} {epsilon}: {before:?} {found:?}", plan.relation(), plan.phases());
        assert!(found.upper <= before.upper && found.estimate <= before.estimate, "{name}");
        for (order, divergence) in &divergences {
            let log = (order - 1.0) * (divergence - epsilon + (-1.0 / order).ln_1p()) - order.ln();
            assert!(found.upper <= log.exp() * 1.001 + 1e-300, "{name} {order}: {:e}", log.exp());
        }
        before = found;
    }
}

fn plans_with_tails() -> [Plan; 3] {
    [(Neighbours::ReplaceOne, 0.004, 4.0, 8), (Neighbours::AddRemove, 0.004, 4.0, 100), (Neighbours::AddRemove, 1e-5, 0.7, 100_000)]
        .map(|(relation, q, sigma, steps)| plan(relation, Sampling::Poisson(q), sigma, steps))
}

/// As the whole grid below, with some of its points.
#[test]
fn the_tail_of_delta_falls_and_is_below_renyi_bounds() {
    let [substitute, _, rare] = plans_with_tails();
    for plan in [substitute, rare] {
        tail_falls(&plan, [0, 5, 10].into_iter(), &[1.5, 4.0, 16.0, 64.0, 256.0, 1000.0]);
    }
}

#[test]
#[ignore = "long: tests/long.sh grids"]
fn whole_grid_the_tail_of_delta_falls_and_is_below_renyi_bounds() {
    for plan in plans_with_tails() {
        tail_falls(&plan, 0..14, &[1.5, 4.0, 16.0, 64.0, 256.0, 1000.0]);
    }
}

/// Estimates that were once wrong, with values of another program (a plain trapezoidal contour with a period of 45 standard deviations).
#[test]
fn estimates_that_were_once_wrong() {
    // Far below the saddle point the contour's sum is rounding: it must not say that ε is 0.
    let steep = plan(Neighbours::AddRemove, Sampling::Poisson(0.426_479_806_522_993_67), 3.0, 2015).epsilon(at(1e-10));
    assert!((steep.estimate - 62.075_506_746_7).abs() < 1e-8, "{steep:?}");
    // Outcomes cut off where the tilted law still has weight made the transform decay slowly.
    let mut mixed = Plan::of(Neighbours::ReplaceOne, Phase::gaussian(4.0, Sampling::None, 1)).unwrap();
    mixed.append(Phase::gaussian(5.666_117_001_222_714, Sampling::Poisson(0.004_519_362_558_026_645), 10)).unwrap();
    let estimate = mixed.epsilon_estimate(at(1e-6));
    assert!((estimate - 2.254_210_688_497_49).abs() < 1e-11, "{estimate}");
    // A tilted law with a long tail does not fit into 18 of its standard deviations.
    let long = estimate_of_long_tail();
    assert!((long - 0.067_627_746_785_4).abs() < 1e-12, "{long}");
}

fn estimate_of_long_tail() -> f64 {
    estimate(Neighbours::ReplaceOne, Sampling::Poisson(0.001_156_145_254_923_973), 1.409_104_854_729_475_6, 632, 1e-3)
}

/// Over the whole box of questions: an interval for every question, never an exception. What an answer may cost is bounded by the
/// engine's own limits on nodes, cells and points, not by a clock.
mod everywhere {
    use super::*;
    use proptest::prelude::*;

    fn sound(sigma: f64, q: f64, steps: f64, delta: f64, kind: usize) -> Result<(), TestCaseError> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1..1e9")]
        let steps = 10f64.powf(steps) as u64;
        let (sigma, q, delta) = (10f64.powf(sigma), 10f64.powf(q), 10f64.powf(delta));
        let (relation, sampling) = (BOTH[kind % 2], if kind < 2 { Sampling::Poisson(q) } else { Sampling::WithoutReplacement(q) });
        let whole = plan(relation, sampling, sigma, steps);
        let interval = whole.epsilon(at(delta));
        let Interval { lower, estimate, upper } = interval;
        prop_assert!(0.0 <= lower && lower <= estimate && estimate <= upper && upper.is_finite(), "{interval:?}");
        // Other engines' valid upper bounds are above the lower bound ...
        let unsampled = plan(relation, Sampling::None, if kind < 2 { sigma } else { 0.5 * sigma }, steps).epsilon(at(delta)).upper;
        prop_assert!(lower <= unsampled * (1.0 + 1e-9), "{interval:?} above the unsampled {unsampled}");
        let (renyi, _) = whole.renyi_epsilon(at(delta));
        prop_assert!(lower <= renyi * (1.0 + 1e-6) + 1e-9, "{interval:?} above Renyi {renyi}");
        // ... and what fewer steps or a smaller rate lose is below the upper bound.
        let fewer = plan(relation, sampling, sigma, steps.div_ceil(7)).epsilon(at(delta)).lower;
        prop_assert!(fewer <= upper, "{interval:?} below a seventh of the steps, {fewer}");
        let rarer = match sampling {
            Sampling::Poisson(q) => Sampling::Poisson(0.8 * q),
            _ => Sampling::WithoutReplacement(0.8 * q),
        };
        let rarer = plan(relation, rarer, sigma, steps).epsilon(at(delta)).lower;
        prop_assert!(rarer <= upper, "{interval:?} below a lower rate, {rarer}");
        // δ(upper) is at most δ, up to what is certified there.
        let back = whole.delta(Epsilon::new(upper).unwrap());
        prop_assert!(back.lower <= delta * (1.0 + 1e-9), "{interval:?} has {back:?}");
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

        #[test]
        fn every_question_has_a_sound_interval(
            sigma in -1.301f64..6.0, q in -9.0f64..0.0, steps in 0.0f64..9.0, delta in -15.0f64..-0.302, kind in 0usize..4,
        ) {
            sound(sigma, q, steps, delta, kind)?;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        #[ignore = "long: tests/long.sh grids"]
        fn whole_grid_every_question_has_a_sound_interval(
            sigma in -1.301f64..6.0, q in -9.0f64..0.0, steps in 0.0f64..9.0, delta in -15.0f64..-0.302, kind in 0usize..4,
        ) {
            sound(sigma, q, steps, delta, kind)?;
        }
    }
}

/// H_γ of (1−q)N(w) + qN(u) against (1−q)N(w) + qN(v) in the plane.
fn three_points([u, v, w]: [[f64; 2]; 3], q: f64, gamma: f64) -> f64 {
    let normal = |x: f64, y: f64, at: [f64; 2]| (-0.5 * ((x - at[0]).powi(2) + (y - at[1]).powi(2))).exp() / std::f64::consts::TAU;
    let side = || (-160..=160).map(|i| 0.05 * f64::from(i));
    let sum: f64 = side()
        .flat_map(|x| side().map(move |y| (x, y)))
        .map(|(x, y)| ((1.0 - q) * (1.0 - gamma) * normal(x, y, w) + q * (normal(x, y, u) - gamma * normal(x, y, v))).max(0.0))
        .sum();
    sum * 0.05 * 0.05
}

#[test]
fn pair_d_holds_three_random_points_and_is_attained() {
    let (r, q) = (0.7, 0.2);
    let d = Composition::new(vec![(Pair::symmetrised(2.0 * r, q), 1)]);
    let mut state = 3_u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(state >> 32).unwrap()) / 4_294_967_296.0
    };
    for gamma in [1.05, 1.3, 2.0] {
        let most = d.delta(f64::ln(gamma), GAP).unwrap();
        for _ in 0..20 {
            let points = std::array::from_fn(|_| {
                let (radius, angle) = (r * uniform().sqrt(), std::f64::consts::TAU * uniform());
                [radius * angle.cos(), radius * angle.sin()]
            });
            assert!(three_points(points, q, gamma) <= most.upper + 5e-5, "{gamma} {points:?}");
        }
        // Both halves of the curve: this pair above γ = 1, and the swapped one below, where H_γ = 1 − γ + γH_{1/γ} of the pair the other way round.
        let attained = three_points([[r, 0.0], [-r, 0.0], [-r, 0.0]], q, gamma);
        assert!((attained - most.lower).abs() < 5e-5, "{gamma}: {attained} {most:?}");
        let below = three_points([[-r, 0.0], [r, 0.0], [-r, 0.0]], q, 1.0 / gamma);
        assert!((below - (1.0 - 1.0 / gamma + most.lower / gamma)).abs() < 5e-5, "{gamma}: {below} {most:?}");
    }
}

#[test]
fn on_a_line_the_ends_are_best() {
    let (r, q) = (0.7, 0.2);
    let at = |a: f64, gamma: f64| {
        let normal = |y: f64, at: f64| (-0.5 * (y - at).powi(2)).exp() / std::f64::consts::TAU.sqrt();
        let excess = |y: f64| (1.0 - q) * (1.0 - gamma) * normal(y, 0.0) + q * (normal(y, a) - gamma * normal(y, a - 2.0 * r));
        (-9000..=9000).map(|i| excess(0.001 * f64::from(i)).max(0.0)).sum::<f64>() * 0.001
    };
    for gamma in [0.6, 0.9, 1.1, 1.6] {
        let values: Vec<f64> = (0..=7).map(|k| at(0.2 * f64::from(k), gamma)).collect();
        let rises = values.windows(2).all(|pair| pair[1] > pair[0]);
        let falls = values.windows(2).all(|pair| pair[1] < pair[0]);
        assert!(if gamma > 1.0 { rises } else { falls }, "{gamma} {values:?}");
        // (1−q)(γ−1)φ(y), y where the loss is ln γ.
        let a = 1.0;
        let loss = |y: f64| {
            let term = |x: f64| (q * (x * y - 0.5 * x * x).exp_m1()).ln_1p();
            term(a) - term(a - 2.0 * r)
        };
        let (mut low, mut high) = (-20.0, 20.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if loss(middle) < f64::ln(gamma) { low = middle } else { high = middle }
        }
        let slope = (1.0 - q) * (gamma - 1.0) * (-0.5 * low * low).exp() / std::f64::consts::TAU.sqrt();
        let measured = (at(a + 0.01, gamma) - at(a - 0.01, gamma)) / 0.02;
        assert!((measured - slope).abs() < 0.01 * slope.abs(), "{gamma}: {measured} {slope}");
    }
}
