#![allow(clippy::unwrap_used)]

use super::*;
use crate::adjacency::{Relation, Terms};
use crate::event::{DiscreteGaussian, LatticePath, Rho};
use crate::unit::SamplingRate;
use crate::{Neighbours, Phase, Plan, Sampling};

fn delta() -> Delta {
    Delta::new(1e-5).unwrap()
}

/// A lattice release of 100 numbers with noise over clip `sigma`, on a sample where `rate` is below 1.
fn event(sigma: f64, rate: f64) -> DpEvent {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let scale = (sigma * f64::from(1u32 << 30)) as u64;
    let event = DpEvent::DiscreteGaussian(DiscreteGaussian {
        exponent: -30,
        scale,
        bound_squared: 1 << 60,
        excess: 0,
        dimension: 100,
        terms: Terms::Units,
        path: LatticePath::Term,
    });
    if rate < 1.0 { DpEvent::PoissonSampled { rate: SamplingRate::nearest(rate).unwrap(), event: Box::new(event) } } else { event }
}

fn run(steps: &[(f64, f64, u64)], relation: Relation) -> Arc<RunCost> {
    let events: Vec<_> = steps.iter().map(|(sigma, rate, times)| (event(*sigma, *rate), *times)).collect();
    RunCost::of(&events, &Prices::new(relation), delta()).unwrap()
}

fn plan(steps: &[(f64, f64, u64)], relation: Neighbours) -> f64 {
    let mut plan = Plan::new(relation);
    for &(sigma, rate, times) in steps {
        plan.append(Phase::gaussian(sigma, if rate < 1.0 { Sampling::Poisson(rate) } else { Sampling::None }, times)).unwrap();
    }
    plan.epsilon(delta()).upper
}

fn book(runs: &mut Runs, run: &Arc<RunCost>) {
    let envelope = run.envelope_after(runs.envelope().failure);
    runs.add(run, envelope);
}

/// Issue: one run of sampled releases costs a ledger at most 1 % more than its plan, three different ones at most 5 % more than the plan of all. Cases: noise over clip,
/// rate, steps; δ = 1e-5; every run is chosen after the one before.
#[test]
fn runs_cost_what_their_plans_cost_and_little_more_together() {
    for (relation, neighbours) in [(Relation::AddRemove, Neighbours::AddRemove), (Relation::ReplaceOne, Neighbours::ReplaceOne)] {
        let steps = [(2.0, 0.05, 200), (3.0, 0.02, 3000), (5.0, 0.1, 2000)];
        let mut all = Runs::default();
        for one in steps {
            let run = run(&[one], relation);
            let mut alone = Runs::default();
            book(&mut alone, &run);
            let exact = plan(&[one], neighbours);
            let read = alone.loss(delta()).epsilon.get();
            assert!((exact..1.0002 * exact).contains(&read), "{one:?}: {read} {exact}");
            book(&mut all, &run);
        }
        let (read, exact) = (all.loss(delta()), plan(&steps, neighbours));
        assert_eq!(read.method, Method::Envelopes);
        assert!((exact..1.05 * exact).contains(&read.epsilon.get()), "{read:?} {exact}");
    }
}

/// A budget of a run's own ε admits the run, and nothing after it.
#[test]
fn a_first_run_is_admitted_by_its_own_epsilon() {
    let first = run(&[(0.8, 0.02, 100)], Relation::AddRemove);
    let budget = first.loss(delta()).epsilon;
    let mut runs = Runs::default();
    book(&mut runs, &first);
    assert!(runs.loss(delta()).epsilon <= budget);
    book(&mut runs, &run(&[(1000.0, 1.0, 1)], Relation::AddRemove));
    assert!(runs.loss(delta()).epsilon > budget);
}

/// Unsampled releases: μ² adds, whatever the order, and the failure is next to nothing. F is kept for other runs all the same.
#[test]
fn gaussian_runs_cost_less_than_a_hundredth_more() {
    let mut runs = Runs::default();
    for (sigma, times) in [(4.0, 4), (2.0, 3), (8.0, 1)] {
        book(&mut runs, &run(&[(sigma, 1.0, times)], Relation::AddRemove));
    }
    let mu = (4.0 / 16.0 + 3.0 / 4.0 + 1.0 / 64.0_f64).sqrt();
    let exact = Gdp::of_ratio(mu).epsilon_upper(delta()).get();
    let read = runs.loss(delta()).epsilon.get();
    let rest = Gdp::of_ratio(mu).epsilon_upper(Delta::new(0.9e-5).unwrap()).get();
    assert!((rest..rest * (1.0 + 1e-8)).contains(&read) && read < 1.01 * exact, "{read} {exact}");
    assert!(runs.envelope().failure < 1e-15);
}

/// What is left of δ − F and of F is fixed, and no path may exchange one for the other: a path that spends no φ does not read at a larger δ, and one that spends more than F
/// is refused.
#[test]
fn the_parts_of_delta_are_not_exchanged() {
    let read = |square: f64, failures: &[f64]| {
        let run = run(&[(1000.0, 1.0, 1)], Relation::AddRemove);
        let mut runs = Runs::default();
        runs.add(&run, Envelope::from_parts(square, 0.0));
        failures.iter().for_each(|failure| runs.add(&run, Envelope::from_parts(0.0, *failure)));
        runs.loss(delta()).epsilon
    };
    let rest = Gdp::of_ratio(1.0).epsilon_upper(Delta::new(0.9e-5).unwrap());
    for failures in [vec![0.0], vec![1e-8], vec![0.99e-6], vec![5e-7, 4.9e-7]] {
        assert!((read(1.0, &failures).get() / rest.get() - 1.0).abs() < 1e-9, "{failures:?}");
    }
    assert_eq!(read(1.0, &[5e-7, 5.1e-7]), Epsilon::INFINITE);
    assert_eq!(read(0.1, &[9e-6]), Epsilon::INFINITE);
}

/// What a row states is taken as long as it covers the run; a row that states too little is priced again.
#[test]
fn a_booked_envelope_is_confirmed_or_made_larger() {
    for run in [run(&[(2.0, 0.05, 200)], Relation::AddRemove), run(&[(4.0, 1.0, 4)], Relation::AddRemove)] {
        let booked = run.envelope_after(0.0).unwrap();
        assert_eq!(run.confirmed(booked), Some(booked));
        let (square, failure) = booked.parts();
        let larger = Envelope::from_parts(1.1 * square, failure).unwrap();
        assert_eq!(run.confirmed(larger), Some(larger));
        let smaller = Envelope::from_parts(0.9 * square, failure).unwrap();
        let again = run.confirmed(smaller).unwrap();
        assert!((again.parts().0 / square - 1.0).abs() < 1e-9 && again.failure >= failure);
    }
    for (square, failure) in [(-1.0, 0.0), (f64::NAN, 0.0), (f64::INFINITY, 0.0), (1.0, 1.0), (1.0, -0.1), (1.0, f64::NAN)] {
        assert_eq!(Envelope::from_parts(square, failure), None);
    }
}

/// A black box of ρ is covered by a Gaussian that covers the one with this ρ, and by no much larger one; a coarse lattice likewise.
#[test]
fn what_has_no_loss_distribution_is_covered_by_its_divergences() {
    let prices = Prices::new(Relation::AddRemove);
    let rho = |rho: f64| (DpEvent::Zcdp { rho: Rho::new(rho).unwrap() }, 1);
    let coarse = DpEvent::DiscreteGaussian(DiscreteGaussian {
        exponent: 0,
        scale: 1000,
        bound_squared: 250_000,
        excess: 0,
        dimension: 3,
        terms: Terms::Units,
        path: LatticePath::Term,
    });
    for (events, mu) in [(vec![rho(0.02)], 0.2), (vec![rho(0.1), rho(0.02)], 0.24_f64.sqrt()), (vec![(coarse, 2)], 0.5_f64.sqrt())] {
        let cost = RunCost::of(&events, &prices, delta()).unwrap();
        let envelope = cost.envelope_after(0.0).unwrap();
        for step in 0..300 {
            let epsilon = Epsilon::new(0.01 * f64::from(step)).unwrap();
            let (own, cover) = (Gdp::of_ratio(mu).delta(epsilon), envelope.gaussian.delta(epsilon) + envelope.failure);
            assert!(own <= cover, "{epsilon:?}: {own:e} {cover:e}");
        }
        assert!(envelope.gaussian.mu() < 1.5 * mu, "{} {mu}", envelope.gaussian.mu());
    }
    let boxed = DpEvent::Approximate { epsilon: Epsilon::new(0.5).unwrap(), delta: Delta::new(1e-7).ok() };
    let cost = RunCost::of(&[(boxed, 1)], &prices, delta()).unwrap();
    assert!(cost.envelope_after(0.0).unwrap().failure > 1e-7);
}

/// Runs without protection are told and left out; a run that nothing covers reads its own ε as long as it is alone.
#[test]
fn weak_runs_are_not_hidden() {
    let prices = Prices::new(Relation::AddRemove);
    let open = RunCost::of(&[(DpEvent::NonPrivate, 3)], &prices, delta()).unwrap();
    let mut runs = Runs::default();
    book(&mut runs, &open);
    assert!(runs.loss(delta()).epsilon == Epsilon::INFINITE && runs.protected_loss(delta()).epsilon == Epsilon::ZERO);
    let weak = run(&[(0.05, 0.5, 50)], Relation::AddRemove);
    assert_eq!(weak.envelope_after(0.0), None);
    let mut runs = Runs::default();
    book(&mut runs, &weak);
    assert!(runs.loss(delta()).epsilon.get().is_finite());
    book(&mut runs, &run(&[(100.0, 1.0, 1)], Relation::AddRemove));
    assert_eq!(runs.loss(delta()).epsilon, Epsilon::INFINITE);
}

/// However many runs there are, failures never use up δ, and readings rise.
#[test]
fn fifty_runs_are_read() {
    let one = run(&[(5.0, 0.1, 200)], Relation::AddRemove);
    let (mut runs, mut before) = (Runs::default(), Epsilon::ZERO);
    for _ in 0..50 {
        book(&mut runs, &one);
        let now = runs.loss(delta()).epsilon;
        assert!(now > before && now.get().is_finite());
        before = now;
    }
    let exact = plan(&[(5.0, 0.1, 10_000)], Neighbours::AddRemove);
    assert!((exact..1.1 * exact).contains(&before.get()), "{before:?} {exact}");
}

/// Proofs `envelopes.md`, (2): steps that are unsampled Gaussians, beside others, are one Gaussian with the sum of their squares.
#[test]
fn gaussian_steps_of_a_product_are_one_gaussian() {
    let profile = |gaussians: &[(f64, u64)], delta: f64| {
        let mut plan = Plan::new(Neighbours::ReplaceOne);
        plan.append(Phase::gaussian(3.0, Sampling::Poisson(0.1), 50)).unwrap();
        for &(sigma, times) in gaussians {
            plan.append(Phase::gaussian(sigma, Sampling::None, times)).unwrap();
        }
        plan.epsilon(Delta::new(delta).unwrap())
    };
    // 4/10² + 12/20² = 1/σ² + 3/20².
    let sigma = (4.0 / 100.0 + 9.0 / 400.0f64).sqrt().recip();
    for delta in [1e-3, 1e-6, 1e-10] {
        let (apart, together) = (profile(&[(10.0, 4), (20.0, 12)], delta), profile(&[(sigma, 1), (20.0, 3)], delta));
        assert!(apart.lower <= together.upper && together.lower <= apart.upper, "{delta}: {apart:?} {together:?}");
    }
}

/// What is given back is what is renounced of the sum, and never of what a budget must once have held.
#[test]
fn what_is_renounced_is_given_back_and_the_peak_stays() {
    let limit = Epsilon::new(100.0).unwrap();
    let (looks, steps) = (run(&[(10.0, 1.0, 30)], Relation::ReplaceOne), run(&[(3.0, 0.05, 200), (10.0, 1.0, 4)], Relation::ReplaceOne));
    let mut runs = Runs::default();
    book(&mut runs, &looks);
    book(&mut runs, &steps);
    let charge = |sigma: f64, rate: f64| Prices::new(Relation::ReplaceOne).of(&event(sigma, rate)).unwrap();
    let (before, failure) = (runs.envelope().parts().0, runs.envelope().failure);
    let read = runs.protected_loss(delta());
    assert_eq!(runs.protected_spent(limit, delta()), read);
    // Twenty looks of the first run, and all that is left of the second: 4/100 each, and nothing for what is sampled.
    let back = runs.renounce(&[(charge(10.0, 1.0), 20)]) + runs.renounce(&[(charge(3.0, 0.05), 200), (charge(10.0, 1.0), 4)]);
    assert!((back - 24.0 * 0.04).abs() < 1e-9, "{back}");
    let (after, same) = (runs.envelope().parts().0, runs.envelope().failure);
    assert!(after >= before - back && after <= (before - back) * (1.0 + 1e-12) && same == failure);
    assert_eq!(runs.protected_loss(delta()), read);
    assert!(runs.protected_spent(limit, delta()).epsilon < read.epsilon);
    // A budget that never held the sum at its largest gets nothing back.
    let tight = Epsilon::new(read.epsilon.get() * 0.999).unwrap();
    assert_eq!(runs.protected_spent(tight, delta()), read);
    // Never more than all.
    runs.renounce(&[(charge(1.0, 1.0), 1000)]);
    assert!(runs.envelope().parts().0 >= 0.0);
}
