//! Where nothing is protected, where noise is little, where numbers reach at one δ and not at the next.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small numbers of a test")]

use crate::plan::Plan;
use crate::pld::Interval;
use crate::steps::{Mechanism, Neighbours, Phase, Sampling};
use crate::unit::{Delta, Epsilon};

fn at(delta: f64) -> Delta {
    Delta::new(delta).unwrap()
}

fn plan(relation: Neighbours, phases: &[Phase]) -> Plan {
    let mut plan = Plan::new(relation);
    for phase in phases {
        plan.append(*phase).unwrap();
    }
    plan
}

/// Numbers in [0, 1), the same in every run.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / 4_294_967_296.0
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + self.next() * (high / low).ln()).exp()
    }

    fn plan(&mut self) -> Plan {
        let relation = [Neighbours::AddRemove, Neighbours::ReplaceOne][usize::from(self.next() < 0.5)];
        let phases: Vec<_> = (0..1 + (self.next() * 3.0) as usize)
            .map(|_| {
                let steps = self.between(1.0, 1000.0) as u64;
                let sigma = self.between(0.3, 10.0);
                let q = self.between(1e-3, 0.9);
                let sampling = match (self.next() * 6.0) as u32 {
                    0 => Sampling::None,
                    1 => Sampling::WithoutReplacement(q),
                    _ => Sampling::Poisson(q),
                };
                match (self.next() * 12.0) as u32 {
                    0 => Phase { mechanism: Mechanism::Laplace { scale: 5.0 * sigma }, sampling: Sampling::None, steps: 1 + steps / 50 },
                    1 => Phase {
                        mechanism: Mechanism::Approximate { epsilon: 0.3 / sigma, delta: 0.0 },
                        sampling: Sampling::None,
                        steps: 1 + steps / 50,
                    },
                    _ => Phase::gaussian(sigma, sampling, steps),
                }
            })
            .collect();
        plan(relation, &phases)
    }
}

fn box_of(epsilon: f64, delta: f64, steps: u64) -> Phase {
    Phase { mechanism: Mechanism::Approximate { epsilon, delta }, sampling: Sampling::None, steps }
}

fn upper(phases: &[Phase], delta: f64) -> Interval {
    let plan = plan(Neighbours::AddRemove, phases);
    let (interval, alone) = (plan.epsilon(at(delta)), plan.epsilon_upper(at(delta), 1e-4));
    assert_eq!(alone.is_infinite(), interval.upper.is_infinite(), "{phases:?} {delta:e}: {alone} {interval:?}");
    interval
}

/// With more probability than δ a black box protects nothing: no ε is enough, and none is stated.
#[test]
fn no_epsilon_is_finite_where_black_boxes_fail_more_often_than_delta() {
    let gaussian = Phase::gaussian(2.0, Sampling::None, 3);
    let sampled = Phase::gaussian(2.0, Sampling::Poisson(0.1), 30);
    let laplace = Phase { mechanism: Mechanism::Laplace { scale: 2.0 }, sampling: Sampling::None, steps: 2 };
    let rho = Phase { mechanism: Mechanism::Zcdp { rho: 0.1 }, sampling: Sampling::None, steps: 1 };
    for (boxes, delta) in [
        (vec![box_of(0.5, 1e-3, 1)], 1e-5),
        (vec![box_of(0.1, 1e-6, 50)], 1e-5),
        (vec![box_of(0.1, 1e-6, 5), box_of(0.2, 3e-6, 2)], 1e-5),
        (vec![box_of(0.0, 0.5, 1)], 0.4),
        (vec![box_of(1.0, 1e-299, 2)], 1e-300),
        (vec![box_of(1.0, 1.000_000_1e-5, 1)], 1e-5),
    ] {
        for others in [vec![], vec![gaussian], vec![sampled], vec![laplace], vec![rho], vec![gaussian, sampled, laplace]] {
            let phases = [boxes.clone(), others].concat();
            assert_eq!(upper(&phases, delta), Interval::exact(f64::INFINITY), "{phases:?} at {delta:e}");
            let text = serde_json::to_string(&upper(&phases, delta)).unwrap();
            assert_eq!(text, r#"{"lower":null,"estimate":null,"upper":null}"#);
        }
    }
    // All of δ is gone: what has no largest loss is not protected either.
    assert!(upper(&[box_of(1.0, 1e-5, 1), gaussian], 1e-5).upper.is_infinite());
}

#[test]
fn black_boxes_that_fail_just_as_often_as_delta_cost_the_sum_of_their_epsilons() {
    for (boxes, delta, sum) in [
        (vec![box_of(1.0, 1e-5, 1)], 1e-5, 1.0),
        (vec![box_of(0.5, 1e-6, 10)], 1e-5, 5.0),
        (vec![box_of(0.25, 1e-6, 4), box_of(1.0, 6e-6, 1)], 1e-5, 2.0),
        (vec![box_of(1.0, 1e-300, 1)], 1e-300, 1.0),
        (vec![box_of(2.0, 1e-20, 3)], 3e-20, 6.0),
        (vec![box_of(0.5, 0.0, 3)], 1e-300, 1.5),
        (vec![box_of(600.0, 0.3, 1)], 0.3, 600.0),
    ] {
        let found = upper(&boxes, delta);
        assert!(found.upper <= sum * (1.0 + 1e-15) && found.lower >= 0.0 && found.lower <= found.estimate, "{boxes:?}: {found:?} {sum}");
        assert!(boxes.len() > 1 || boxes[0].steps > 1 || found.upper == sum, "{boxes:?}: {found:?}");
    }
    random_black_boxes(4);
}

#[test]
#[ignore = "long: tests/long.sh grids"]
fn whole_grid_black_boxes_that_fail_less_often_than_delta_cost_the_sum_of_their_epsilons() {
    random_black_boxes(40);
}

/// With all of their δ they cost their sum, and with less than what fails no ε is enough.
fn random_black_boxes(number: u32) {
    let mut draws = Draws(1_234_567);
    for _ in 0..number {
        let boxes: Vec<_> = (0..1 + (draws.next() * 4.0) as usize)
            .map(|_| box_of(draws.between(1e-2, 3.0), draws.between(1e-12, 1e-3), 1 + (draws.next() * 5.0) as u64))
            .collect();
        let times = |phase: &Phase| phase.steps as f64;
        let one = |phase: &Phase| match phase.mechanism {
            Mechanism::Approximate { epsilon, delta } => (epsilon, delta),
            _ => unreachable!(),
        };
        let (epsilon, delta) = boxes.iter().fold((0.0, 0.0), |(e, d), b| (e + times(b) * one(b).0, d + times(b) * one(b).1));
        let found = upper(&boxes, delta * (1.0 + 1e-12));
        assert!(found.upper <= epsilon * (1.0 + 1e-12), "{boxes:?}: {found:?} {epsilon}");
        // 1 − Π(1 − δ) > Σδ(1 − Σδ).
        assert!(upper(&boxes, delta * (1.0 - delta)).upper.is_infinite(), "{boxes:?} below {delta:e}");
    }
}

/// A δ that is too small to be told is above 0 where something can be lost, and 0 only where nothing can.
#[test]
fn an_upper_bound_on_delta_is_above_0_where_something_can_be_lost() {
    let gaussian = Phase::gaussian(1.0, Sampling::None, 1);
    let sampled = Phase::gaussian(2.0, Sampling::Poisson(0.1), 30);
    let rho = Phase { mechanism: Mechanism::Zcdp { rho: 0.1 }, sampling: Sampling::None, steps: 1 };
    let kinds = [box_of(0.3, 0.0, 700), box_of(0.31, 0.0, 700)];
    for phases in [vec![gaussian], vec![sampled], vec![rho], vec![gaussian, sampled], kinds.to_vec()] {
        let plan = plan(Neighbours::AddRemove, &phases);
        let mut before = 1.0;
        for epsilon in [1.0, 10.0, 50.0, 100.0, 400.0, 426.9] {
            let found = plan.delta(Epsilon::new(epsilon).unwrap());
            assert!(found.upper > 0.0 && found.upper <= before && found.lower <= found.upper, "{phases:?} {epsilon}: {found:?}");
            before = found.upper;
        }
    }
    let plan = plan(Neighbours::AddRemove, &kinds);
    assert_eq!(plan.delta(Epsilon::new(428.0).unwrap()), Interval::exact(0.0), "beyond the largest loss");
    assert!(plan.epsilon(at(1e-300)).upper < 427.0);
}

/// ε(δ) falls over 0.1 and powers of 10^−20, and δ(ε) falls over shares of 64ths of the last ε: also where transforms reach at one and not at the next.
fn falls(plan: &Plan, powers: impl Iterator<Item = i32>, roots: impl Iterator<Item = u32>) {
    let mut before = 0.0;
    for k in powers {
        let delta = 10f64.powi(if k == 0 { -1 } else { -20 * k });
        let found = plan.epsilon(at(delta));
        let name = format!("{:?} {:?} at {delta:e}: {found:?} after {before}", plan.relation(), plan.phases());
        assert!(found.upper >= before && found.upper.is_finite(), "{name}");
        assert!(found.lower <= found.estimate && found.estimate <= found.upper, "{name}");
        before = found.upper;
    }
    let (end, mut least) = (before, 1.0);
    for k in roots {
        let epsilon = end * (f64::from(k) / 8.0).powi(2);
        let found = plan.delta(Epsilon::new(epsilon).unwrap());
        let name = format!("{:?} {:?} at {epsilon}: {found:?} after {least:e}", plan.relation(), plan.phases());
        assert!(found.upper <= least * (1.0 + 1e-9) && found.lower <= found.estimate && found.estimate <= found.upper, "{name}");
        least = found.upper;
    }
}

/// Plans where numbers reach at one δ and not at the next, and some of any kind.
fn falling_plans() -> Vec<Plan> {
    let mut draws = Draws(88_172_645_463_325_252);
    let poisson = |relation, sigma: f64, q: f64, steps| plan(relation, &[Phase::gaussian(sigma, Sampling::Poisson(q), steps)]);
    let mut plans = vec![
        poisson(Neighbours::ReplaceOne, 1.0, 0.5, 3),
        poisson(Neighbours::AddRemove, 0.02, 1e-9, 1000),
        plan(Neighbours::AddRemove, &[Phase::gaussian(7.509_554_3, Sampling::WithoutReplacement(0.008_041), 1), box_of(0.968_286, 0.0, 1)]),
    ];
    plans.extend((0..3).map(|_| draws.plan()));
    plans
}

/// As the whole grid below, with some of its points.
#[test]
fn epsilon_and_delta_fall_down_to_the_smallest_numbers() {
    // The fourth of them takes as long as all others.
    for (_, plan) in falling_plans().iter().enumerate().filter(|(k, _)| *k != 3) {
        falls(plan, [0, 1, 15].into_iter(), [0, 6].into_iter());
    }
}

#[test]
#[ignore = "long: tests/long.sh grids"]
fn whole_grid_epsilon_and_delta_fall_down_to_the_smallest_numbers() {
    for plan in falling_plans() {
        falls(&plan, 0..16, 0..8);
    }
}

/// Bounds in closed form hold what transforms and the grid say, and are near to each other where there is little noise.
#[test]
fn gaussians_whose_number_is_random_lie_between_closed_forms() {
    for relation in [Neighbours::AddRemove, Neighbours::ReplaceOne] {
        for (sigma, sampling, steps, near) in [
            (1.0, Sampling::Poisson(0.1), 20, false),
            (0.6, Sampling::Poisson(0.01), 300, false),
            (2.0, Sampling::WithoutReplacement(0.2), 10, false),
            (1.0, Sampling::RandomAllocation(10), 2, false),
            (0.3, Sampling::Poisson(0.5), 4, false),
            (0.01, Sampling::Poisson(0.5), 10, true),
            (0.002, Sampling::Poisson(0.3), 3, true),
            (0.01, Sampling::WithoutReplacement(0.5), 6, true),
        ] {
            let phases = [Phase::gaussian(sigma, sampling, steps), Phase::gaussian(20.0 * sigma, Sampling::None, 2)];
            let plan = plan(relation, &phases);
            let engine = super::Engine::new(relation, plan.phases());
            for delta in [1e-2, 1e-5, 1e-9] {
                let (closed, found) = (engine.sandwich(at(delta)), plan.epsilon(at(delta)));
                let name = format!("{relation:?} {phases:?} {delta}: {closed:?} {found:?}");
                assert!(closed.lower <= found.upper * (1.0 + 1e-9) && found.lower <= closed.upper * (1.0 + 1e-9), "{name}");
                // From below opposite terms are taken for half as far from each other as they are.
                let opposite = relation == Neighbours::ReplaceOne && matches!(sampling, Sampling::Poisson(_));
                assert!(!near || opposite || closed.is_narrow(1e-3, 0.05), "{name}");
            }
            for epsilon in [0.0, 0.3, 3.0] {
                let (closed, found) = (engine.sandwich_delta(epsilon), plan.delta(Epsilon::new(epsilon).unwrap()));
                assert!(
                    closed.lower <= found.upper * (1.0 + 1e-9) && found.lower <= closed.upper * (1.0 + 1e-9),
                    "{relation:?} {phases:?} {epsilon}: {closed:?} {found:?}"
                );
            }
        }
    }
}

/// Lower bounds by draws of random allocations (the audit's Jensen bounds): nothing that is stated is below them.
#[test]
fn no_estimate_of_random_allocation_is_below_what_is_lost_for_sure() {
    for (sigma, batches, delta, truth) in [(0.001, 2, 1e-5, 504_263.0), (0.05, 1000, 1e-8, 304.4), (0.3, 2, 1e-300, 128.1)] {
        let plan = plan(Neighbours::AddRemove, &[Phase::gaussian(sigma, Sampling::RandomAllocation(batches), 1)]);
        let found = plan.epsilon(at(delta));
        assert!(found.upper >= truth && found.lower > 0.9 * truth, "{found:?} {truth}");
        assert!(found.known_estimate().is_none_or(|estimate| estimate >= truth), "{found:?} {truth}");
    }
}

/// What took up to 47 s of processor time is answered in closed form, at every δ and ε.
#[test]
fn little_noise_is_answered_in_closed_form() {
    for (sigma, q, steps) in [(0.001, 0.5, 1), (0.002, 1e-9, 1), (0.02, 1e-9, 1000), (0.1, 1e-9, 1000)] {
        let plan = plan(Neighbours::AddRemove, &[Phase::gaussian(sigma, Sampling::Poisson(q), steps)]);
        let engine = super::Engine::new(plan.relation(), plan.phases());
        assert!(engine.sandwich_delta(0.0).is_narrow(1e-4, 0.0) && engine.slow_uppers(&[0.0, 1.0]).is_some(), "{sigma} {q} {steps}");
        let (found, advantage) = (plan.epsilon(at(1e-5)), plan.advantage().upper);
        let drawn = -(steps as f64 * (-q).ln_1p()).exp_m1();
        assert!(found.is_narrow(1e-4, 0.05) && advantage <= drawn * (1.0 + 1e-6), "{found:?} {advantage:e} of {drawn:e}");
        assert!(drawn > 1e-5 || found == Interval::exact(0.0));
    }
}

/// Rows of the table are above what is lost for sure, and attacks reach by them no more than a search over δ(ε) by bounds finds (the numbers), to two per cent.
#[test]
fn what_attacks_reach_is_read_from_bounds_where_estimates_take_long() {
    let of = |sigma, q, steps| plan(Neighbours::AddRemove, &[Phase::gaussian(sigma, Sampling::Poisson(q), steps)]);
    for (sigma, q, steps, searched) in [
        (0.3, 1e-6, 100_000, [0.002_137_034, 0.013_113_749, 0.107_523_441]),
        (0.7, 1e-5, 100_000, [0.001_030_740, 0.010_238_597, 0.101_535_084]),
    ] {
        let plan = of(sigma, q, steps);
        let engine = super::Engine::new(plan.relation(), plan.phases());
        let rows = engine.rare_table(&[0.0, 0.01, 0.1, 1.0]).unwrap();
        assert!(rows.len() > 20 && rows[0].0 <= 0.0 && rows.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{rows:?}");
        for (epsilon, delta) in rows.iter().step_by(12) {
            let found = engine.delta(*epsilon);
            assert!(found.lower <= delta * (1.0 + 1e-9) && *delta <= 1.1 * found.upper, "{epsilon}: {delta:e} {found:?}");
        }
        for (alarms, searched) in [1e-3, 1e-2, 0.1].into_iter().zip(searched) {
            let reached = plan.true_positive_rate(alarms);
            assert!(reached > alarms && reached - alarms <= 1.02 * (searched - alarms), "{alarms}: {reached} {searched}");
        }
    }
    for (sigma, q, steps) in [(1.0, 0.01, 1000), (10.0, 1e-6, 100_000)] {
        let plan = of(sigma, q, steps);
        assert_eq!(super::Engine::new(plan.relation(), plan.phases()).rare_table(&[0.0, 1e-6, 1e-5]), None, "{sigma} {q}");
    }
}

#[test]
fn a_plan_that_goes_on_from_another_one_is_told_from_others() {
    let (a, b) = (Phase::gaussian(1.0, Sampling::Poisson(0.01), 300), Phase::gaussian(4.0, Sampling::None, 2));
    let all = plan(Neighbours::AddRemove, &[a, b]);
    let part = plan(Neighbours::AddRemove, &[Phase { steps: 100, ..a }]);
    assert_eq!(all.beyond(&part), Some(vec![Phase { steps: 200, ..a }, b]));
    assert_eq!(all.beyond(&all), Some(vec![]));
    assert_eq!(part.beyond(&all), None);
    assert_eq!(all.beyond(&plan(Neighbours::ReplaceOne, &[a])), None);
    assert_eq!(all.beyond(&plan(Neighbours::AddRemove, &[Phase { steps: 301, ..a }])), None);
}
