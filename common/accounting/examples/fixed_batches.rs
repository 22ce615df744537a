//! Batches of fixed size where a term is replaced: what fixed data lose for certain, what choosing by the outcomes gets, and the bound.
//!
//! `cargo run --release -p dp-pvi-accounting --example fixed_batches` prints a row for each plan. The first and the last ε are certified; the one
//! between is the recursion of `proofs/fixed_batches.md` over pairs on a line, by sums over a grid: a figure, not a bound.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example prints its table")]

use dp_pvi_accounting::{Delta, Neighbours, Phase, Plan, Sampling};

/// Width of the grid of losses, and its ends.
const WIDTH: f64 = 0.004;
const REACH: (i32, i32) = (-750, 1000);
/// Nodes of an outcome.
const NODES: u32 = 20_000;

/// Masses of one step's loss in multiples of the width, the first index first: losses are split between two points so that E e^{−L} stays.
fn step(a: f64, r: f64, q: f64) -> (i32, Vec<f64>) {
    let term = |x: f64, y: f64| (q * (x * y - 0.5 * x * x).exp_m1()).ln_1p();
    let (low, high) = (-9.0, 9.0 + 2.0 * r);
    let dy = (high - low) / f64::from(NODES);
    let first = -2000;
    let mut masses = vec![0.0; 6000];
    for i in 0..NODES {
        let y = low + (f64::from(i) + 0.5) * dy;
        let (up, down) = (term(a, y), term(a - 2.0 * r, y));
        let mass = (up - 0.5 * y * y).exp() / std::f64::consts::TAU.sqrt() * dy;
        let place = (up - down) / WIDTH;
        let part = (-(place - place.floor()) * WIDTH).exp_m1() / (-WIDTH).exp_m1();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "losses are within the table")]
        let at = (place.floor() as i32 - first) as usize;
        masses[at] += mass * (1.0 - part);
        masses[at + 1] += mass * part;
    }
    let start = masses.iter().position(|m| *m > 1e-16).unwrap();
    let end = masses.iter().rposition(|m| *m > 1e-16).unwrap();
    (first + i32::try_from(start).unwrap(), masses[start..=end].to_vec())
}

/// ε(δ) of the recursion over the pairs of a line with these distances from w to u.
fn recursion(distances: &[f64], r: f64, q: f64, steps: u64, delta: f64) -> f64 {
    let pairs: Vec<_> = distances.iter().map(|a| step(*a, r, q)).collect();
    let end = |x: i32| (-(f64::from(x) * WIDTH).exp_m1()).max(0.0);
    let mut values: Vec<f64> = (REACH.0..REACH.1).map(end).collect();
    for _ in 0..steps {
        let value = |x: i32| usize::try_from(x - REACH.0).map_or_else(|_| end(x), |at| values.get(at).copied().unwrap_or(0.0));
        let best = |x: i32| {
            let sums = pairs.iter().map(|(first, masses)| (*first..).zip(masses).map(|(loss, mass)| mass * value(x - loss)).sum::<f64>());
            sums.fold(0.0, f64::max)
        };
        values = (REACH.0..REACH.1).map(best).collect();
    }
    let (x, pair) = (REACH.0..).zip(values.windows(2)).find(|(_, pair)| pair[1] <= delta).unwrap();
    (f64::from(x) + (pair[0] / delta).ln() / (pair[0] / pair[1]).ln()) * WIDTH
}

fn main() {
    println!(
        "| σ, q, steps, δ | fixed data | chosen by the outcomes, over one choice | bound | bound over fixed data |\n|---|---|---|---|---|"
    );
    for (sigma, q, steps, delta, within) in [
        (2.0, 0.01, 100, 1e-5, true),
        (5.0, 0.02, 500, 1e-6, true),
        (8.0, 0.1, 200, 1e-5, true),
        (4.0, 0.01, 10_000, 1e-5, false),
        (3.0, 0.005, 5000, 1e-8, false),
        (2.0, 0.001, 10_000, 1e-6, false),
    ] {
        let plan = Plan::of(Neighbours::ReplaceOne, Phase::gaussian(sigma, Sampling::WithoutReplacement(q), steps)).unwrap();
        let at = Delta::new(delta).unwrap();
        let (low, high) = (plan.attained(at), plan.epsilon(at).upper);
        let r = 1.0 / sigma;
        let chosen = if within {
            let line = [0.0, 0.5 * r, r, 1.5 * r, 2.0 * r];
            let gain = recursion(&line, r, q, steps, delta) / recursion(&line[4..], r, q, steps, delta) - 1.0;
            format!("{:+.1} %", 100.0 * gain)
        } else {
            String::from("not within reach")
        };
        println!("| {sigma}, {q}, {steps}, {delta:e} | {low:.4} | {chosen} | {high:.4} | {:+.1} % |", 100.0 * (high / low - 1.0));
    }
}
