#![allow(clippy::unwrap_used)]

use super::*;
use crate::Epsilon;
use crate::steps::{Mechanism, Neighbours, Phase, Sampling};

fn delta() -> Delta {
    Delta::new(1e-5).unwrap()
}

fn plan(relation: Neighbours, runs: &[(f64, f64, u64)]) -> Plan {
    let mut plan = Plan::new(relation);
    for &(sigma, rate, steps) in runs {
        let sampling = if rate < 1.0 { Sampling::Poisson(rate) } else { Sampling::None };
        plan.append(Phase { mechanism: Mechanism::Gaussian { sigma }, sampling, steps }).unwrap();
    }
    plan
}

/// ε of one run, or of several that were fixed beforehand.
fn shown(envelope: Envelope) -> f64 {
    envelope.gaussian.epsilon_upper(Delta::new(delta().get() - envelope.failure).unwrap()).get()
}

/// A Gaussian's own envelope is that Gaussian, to the width of the gaps.
#[test]
fn a_gaussian_is_within_itself() {
    let plan = plan(Neighbours::AddRemove, &[(4.0, 1.0, 20)]);
    let profile = Profile::of(&plan, delta()).unwrap();
    let envelope = profile.envelope(2e-8).unwrap();
    let mu = 20f64.sqrt() / 4.0;
    assert!((0.999 * mu..1.003 * mu).contains(&envelope.gaussian.mu()), "{}", envelope.gaussian.mu());
    assert!(!profile.is_within(Gdp::of_ratio(0.99 * mu), 2e-8));
    assert!(profile.is_within(Gdp::of_ratio(1.01 * mu), 2e-8));
}

/// Runs of the kinds that are in use cost at most 1 % more than their plan.
#[test]
fn one_run_costs_what_its_plan_costs() {
    for relation in [Neighbours::AddRemove, Neighbours::ReplaceOne] {
        for run in
            [(1.0, 0.01, 1000), (2.0, 0.05, 200), (0.8, 0.02, 100), (1.0, 0.1, 10), (3.0, 0.02, 3000), (1.5, 0.1, 40), (4.0, 1.0, 20)]
        {
            let plan = plan(relation, &[run]);
            let own = plan.epsilon(delta());
            let profile = Profile::of(&plan, delta()).unwrap();
            let shares = [0.02, 0.05, 0.1, 0.2, 0.4, 0.7];
            let shown = shares.map(|share| shown(profile.envelope(share * 1e-5).unwrap())).into_iter().fold(f64::INFINITY, f64::min);
            assert!(shown >= own.lower && shown <= 1.01 * own.upper, "{run:?}: {shown} {own:?}");
        }
    }
}

/// At multiples of 0.0113, between the points, too.
fn envelopes_are_above(steps: impl Iterator<Item = u32> + Clone) {
    for relation in [Neighbours::AddRemove, Neighbours::ReplaceOne] {
        let plan = plan(relation, &[(0.8, 0.02, 100)]);
        let profile = Profile::of(&plan, delta()).unwrap();
        let envelopes = [0.01, 0.3].map(|share| profile.envelope(share * 1e-5).unwrap());
        for step in steps.clone() {
            let epsilon = Epsilon::new(0.0113 * f64::from(step)).unwrap();
            let own = plan.delta(epsilon).lower;
            for envelope in &envelopes {
                let cover = envelope.gaussian.delta(epsilon) + envelope.failure;
                assert!(own <= cover * (1.0 + 1e-9), "{epsilon:?}: {own:e} {cover:e}");
            }
        }
    }
}

#[test]
fn no_profile_is_above_its_envelope() {
    envelopes_are_above((0..400).step_by(13));
}

#[test]
#[ignore = "long: tests/long.sh grids"]
fn whole_grid_no_profile_is_above_its_envelope() {
    envelopes_are_above(0..400);
}

/// Three runs of different kinds, each booked on the others: against the plan of all of them.
#[test]
fn several_runs_cost_little_more_than_their_composition() {
    let kinds = [(1.0, 0.01, 1000), (2.0, 0.05, 200), (0.8, 0.02, 100), (3.0, 0.02, 3000), (5.0, 0.1, 2000), (4.0, 1.0, 20)];
    for (three, most) in [([1, 3, 4], 1.05), ([0, 3, 4], 1.05), ([4, 3, 5], 1.05), ([0, 1, 2], 1.25)] {
        let runs = three.map(|k: usize| kinds[k]);
        let whole = plan(Neighbours::AddRemove, &runs).epsilon(delta());
        let mut booked = Envelope::default();
        for run in runs {
            let next =
                Profile::of(&plan(Neighbours::AddRemove, &[run]), delta()).unwrap().largest_within(0.01 * 1e-5, delta(), 0.0).unwrap();
            booked = booked.and(next);
        }
        let shown = shown(booked);
        assert!(shown >= whole.lower && shown <= most * whole.upper, "{runs:?}");
    }
}

/// Inequality (1) of the proof, by sums over a grid: a sampled step, then a Gaussian, against the step's envelope, then the same Gaussian.
#[test]
fn a_gaussian_after_a_run_is_covered_by_the_envelope() {
    let (sigma, rate, after) = (1.0, 0.2, Gdp::of_ratio(0.7));
    let profile = Profile::of(&plan(Neighbours::AddRemove, &[(sigma, rate, 1)]), delta()).unwrap();
    let normal = |x: f64| (-0.5 * x * x / (sigma * sigma)).exp() / (sigma * (2.0 * std::f64::consts::PI).sqrt());
    for failure in [3e-8, 3e-6] {
        let envelope = profile.envelope(failure).unwrap();
        let both = envelope.gaussian.and(after);
        for log_gamma in [0.0_f64, 0.5, 1.0, 2.0, 3.0, 4.0] {
            for remove in [true, false] {
                let sum: f64 = (-24_000..=26_000)
                    .map(|step| {
                        let x = f64::from(step) * 4e-4;
                        let (plain, mixed) = (normal(x), (1.0 - rate) * normal(x) + rate * normal(x - 1.0));
                        let (p, q) = if remove { (mixed, plain) } else { (plain, mixed) };
                        // H of a Gaussian at γ q/p; below 1 by the identity of the proof.
                        let epsilon = log_gamma + (q / p).ln();
                        let h = |epsilon: f64| after.delta(Epsilon::new(epsilon).unwrap());
                        p * if epsilon >= 0.0 { h(epsilon) } else { 1.0 - epsilon.exp() + epsilon.exp() * h(-epsilon) }
                    })
                    .sum();
                let most = both.delta(Epsilon::new(log_gamma).unwrap()) + failure;
                assert!(sum * 4e-4 <= most * (1.0 + 1e-6), "{failure:e} {log_gamma} {remove}: {:e} {most:e}", sum * 4e-4);
            }
        }
    }
}

/// Beyond the range of numbers nothing could be compared, so nothing is certified.
#[test]
fn plans_that_protect_nothing_have_no_envelope() {
    assert!(Profile::of(&plan(Neighbours::AddRemove, &[(0.01, 1.0, 1)]), delta()).is_none());
    assert!(Profile::of(&plan(Neighbours::AddRemove, &[(0.02, 0.5, 10)]), delta()).is_none());
}
