//! What a filter shows for runs that are chosen one after another, beside the ε of their exact composition, which holds only if all were fixed beforehand.
//!
//! `cargo run --release -p dp-pvi-accounting --example filters` prints the table of the guide, `results/filters.md`.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "an experiment prints its table")]

use dp_pvi_accounting::unit::{Delta, Epsilon};
use dp_pvi_accounting::{
    DpEvent, Mechanism, Neighbours, NoiseMultiplier, Phase, Plan, Prices, Relation, RunCost, Runs, Sampling, SamplingRate, Terms,
    epsilon_filtered,
};

/// Noise over clip, share of the units that a step draws, steps.
type Run = (f64, f64, u64);

const DELTA: f64 = 1e-5;
const CASES: [&[Run]; 10] = [
    &[(1.0, 0.01, 1000)],
    &[(2.0, 0.05, 200)],
    &[(0.8, 0.02, 100)],
    &[(1.0, 0.1, 10)],
    &[(3.0, 0.02, 3000)],
    &[(2.0, 0.05, 200), (3.0, 0.02, 3000), (5.0, 0.1, 2000)],
    &[(1.0, 0.01, 1000), (3.0, 0.02, 3000), (5.0, 0.1, 2000)],
    &[(5.0, 0.1, 2000), (3.0, 0.02, 3000), (4.0, 1.0, 20)],
    &[(1.0, 0.01, 1000), (2.0, 0.05, 200), (0.8, 0.02, 100)],
    &[(1.0, 0.1, 10), (1.5, 0.1, 40), (0.8, 0.02, 100)],
];

fn plan(runs: &[Run]) -> Plan {
    let mut plan = Plan::new(Neighbours::AddRemove);
    for &(sigma, rate, steps) in runs {
        let sampling = if rate < 1.0 { Sampling::Poisson(rate) } else { Sampling::None };
        plan.append(Phase { mechanism: Mechanism::Gaussian { sigma }, sampling, steps }).unwrap();
    }
    plan
}

/// Events of a run.
fn events(&(sigma, rate, steps): &Run) -> DpEvent {
    let step = DpEvent::Gaussian { noise: NoiseMultiplier::new(sigma).unwrap(), terms: Terms::Units };
    if rate < 1.0 { DpEvent::PoissonSampled { rate: SamplingRate::nearest(rate).unwrap(), event: Box::new(step) } } else { step }
        .repeated(steps)
}

/// ε of the filter of Gaussian envelopes, as a ledger reads it after the runs in their order.
fn envelopes(runs: &[Run], delta: Delta) -> f64 {
    let (mut booked, prices) = (Runs::default(), Prices::new(Relation::AddRemove));
    for run in runs {
        let cost = RunCost::of(&[(events(run), 1)], &prices, delta).unwrap();
        let envelope = cost.envelope_after(booked.envelope().failure);
        booked.add(&cost, envelope);
    }
    booked.loss(delta).epsilon.get()
}

/// Every run with its own ε at an equal share of δ, and the sum of these.
fn basic(runs: &[Run], delta: Delta) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "three")]
    let share = Delta::new(delta.get() / runs.len() as f64).unwrap();
    runs.iter().map(|run| plan(&[*run]).epsilon(share).upper).sum()
}

/// One Rényi order, which the first run fixes, of a filter whose budget is just enough.
fn renyi(runs: &[Run], delta: Delta) -> f64 {
    let events: Vec<DpEvent> = runs.iter().map(events).collect();
    epsilon_filtered(&events, Relation::AddRemove, Epsilon::new(8.0).unwrap(), delta).unwrap().epsilon.get()
}

fn main() {
    let delta = Delta::new(DELTA).unwrap();
    println!("| runs (noise, rate, steps) | composition | envelopes | over it | one Rényi order | sum of ε |\n|---|---|---|---|---|---|");
    for runs in CASES {
        let names: Vec<String> = runs.iter().map(|(sigma, rate, steps)| format!("({sigma}, {rate}, {steps})")).collect();
        let exact = plan(runs).epsilon(delta).upper;
        let (envelopes, renyi, basic) = (envelopes(runs, delta), renyi(runs, delta), basic(runs, delta));
        println!(
            "| {} | {exact:.3} | {envelopes:.3} | {:+.2} % | {renyi:.3} | {basic:.3} |",
            names.join(", "),
            100.0 * (envelopes / exact - 1.0)
        );
    }
}
