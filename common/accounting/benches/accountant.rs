//! Costs of the accountant: `cargo bench -p dp-pvi-accounting --bench accountant`.
//!
//! ε between certified bounds, 1,000 steps with σ 1 and rate 0.01: 4.4 ms, width 1.3e-4 (one core of a 2.5 GHz machine).
//! Both bounds after each of 100 different rounds: 0.15 s of processor time (add-remove), 0.08 s (replace-one). 10,000 different rounds at once: 3.2 s.
//! Rounds that differ in noise and rate, on a machine that other work shared: 0.75 s (add-remove), 0.24 s (replace-one) in the median of five.
//! Rare steps with outcomes far out: 73 ms; a calibration of such: 0.65 s.
//! Other questions, and what other tools need: `deploy/guide/src/results/speed.md`.
#![allow(clippy::unwrap_used, missing_docs)]

use divan::{Bencher, black_box};
use dp_pvi_accounting::calibrate::{self, Target};
use dp_pvi_accounting::{
    Delta, DpEvent, Epsilon, Filter, Neighbours, NoiseMultiplier, Phase, Plan, Relation, Sampling, SamplingRate, Terms,
};

fn main() {
    divan::main();
}

fn delta(value: f64) -> Delta {
    Delta::new(value).unwrap()
}

fn plan(relation: Neighbours, sigma: f64, q: f64, steps: u64) -> Plan {
    Plan::of(relation, Phase::gaussian(sigma, Sampling::Poisson(q), steps)).unwrap()
}

#[divan::bench]
fn certified_add_remove(bencher: Bencher) {
    bencher.with_inputs(|| plan(Neighbours::AddRemove, 1.0, 0.01, 1000)).bench_values(|plan| plan.epsilon(delta(1e-5)));
}

#[divan::bench]
fn certified_replace_one(bencher: Bencher) {
    bencher.with_inputs(|| plan(Neighbours::ReplaceOne, 1.0, 0.01, 1000)).bench_values(|plan| plan.epsilon(delta(1e-5)));
}

#[divan::bench]
fn certified_fixed_batches_replace_one(bencher: Bencher) {
    let phase = Phase::gaussian(17.83, Sampling::WithoutReplacement(0.1), 2000);
    bencher.with_inputs(|| Plan::of(Neighbours::ReplaceOne, phase).unwrap()).bench_values(|plan| plan.epsilon(delta(1e-5)));
}

/// Every sample is another σ: what is known of one is not made again.
fn allocation(relation: Neighbours, batches: u64) -> impl Fn() -> Plan {
    let asked = std::sync::atomic::AtomicU32::new(0);
    move || {
        let sigma = 1.0 + 1e-9 * f64::from(asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        Plan::of(relation, Phase::gaussian(sigma, Sampling::RandomAllocation(batches), 1)).unwrap()
    }
}

#[divan::bench(args = [100, 10_000], sample_count = 10)]
fn certified_epoch_of_random_allocation(bencher: Bencher, batches: u64) {
    bencher.with_inputs(allocation(Neighbours::AddRemove, batches)).bench_values(|plan| plan.epsilon(delta(1e-5)));
}

#[divan::bench(args = [100, 10_000], sample_count = 10)]
fn certified_epoch_of_random_allocation_replace_one(bencher: Bencher, batches: u64) {
    bencher.with_inputs(allocation(Neighbours::ReplaceOne, batches)).bench_values(|plan| plan.epsilon(delta(1e-5)));
}

#[divan::bench]
fn certified_100_000_steps(bencher: Bencher) {
    bencher.with_inputs(|| plan(Neighbours::AddRemove, 2.0, 0.001, 100_000)).bench_values(|plan| plan.epsilon(delta(1e-6)));
}

#[divan::bench]
fn certified_100_000_rare_steps(bencher: Bencher) {
    bencher.with_inputs(|| plan(Neighbours::AddRemove, 1.0, 1e-4, 100_000)).bench_values(|plan| plan.epsilon(delta(1e-5)));
}

/// Some thousandths of a hit in all: ε is decided by one or two outcomes far out.
#[divan::bench(sample_count = 20)]
fn certified_rare_steps_far_out(bencher: Bencher) {
    bencher.with_inputs(|| plan(Neighbours::ReplaceOne, 0.81, 1.5e-5, 60_423)).bench_values(|plan| plan.epsilon(delta(1.5e-12)));
}

#[divan::bench]
fn estimate(bencher: Bencher) {
    bencher.with_inputs(|| plan(Neighbours::AddRemove, 1.0, 0.01, 1000)).bench_values(|plan| plan.epsilon_estimate(delta(1e-5)));
}

#[divan::bench(sample_count = 5)]
fn calibration_of_rare_steps() -> f64 {
    let target = Target { epsilon: Epsilon::new(12.1).unwrap(), delta: delta(1.2e-9) };
    calibrate::sigma(Neighbours::AddRemove, Sampling::Poisson(0.00018), 351, black_box(target)).unwrap().upper
}

#[divan::bench]
fn calibration(bencher: Bencher) {
    let target = Target { epsilon: Epsilon::new(2.0).unwrap(), delta: delta(1e-5) };
    bencher.bench(|| calibrate::sigma(Neighbours::AddRemove, Sampling::Poisson(0.1), 2000, black_box(target)).unwrap());
}

/// A hundred rounds of ten steps each, with `epsilon` asked after every round.
fn rounds(epsilon: impl Fn(&Plan) -> f64) -> f64 {
    let mut plan = Plan::new(Neighbours::AddRemove);
    let mut sum = 0.0;
    for _ in 0..100 {
        plan.append(Phase::gaussian(1.0, Sampling::Poisson(0.01), 10)).unwrap();
        sum += epsilon(&plan);
    }
    sum
}

#[divan::bench(sample_count = 5)]
fn ledger_of_100_rounds_certified_upper() -> f64 {
    rounds(|plan| plan.epsilon_upper(delta(1e-5), 1e-4))
}

#[divan::bench(sample_count = 5)]
fn ledger_of_100_rounds_both_bounds() -> f64 {
    rounds(|plan| plan.epsilon(delta(1e-5)).upper)
}

#[divan::bench(sample_count = 5)]
fn ledger_of_100_rounds_estimate() -> f64 {
    rounds(|plan| plan.epsilon_estimate(delta(1e-5)))
}

/// A hundred rounds that all differ, with both bounds asked for after every one.
fn different_rounds(relation: Neighbours, steps: u64) -> f64 {
    let mut plan = Plan::new(relation);
    let mut sum = 0.0;
    for i in 0..100 {
        plan.append(Phase::gaussian(1.0 + 0.01 * f64::from(i), Sampling::Poisson(0.01), steps)).unwrap();
        sum += plan.epsilon(delta(1e-5)).upper;
    }
    sum
}

/// Of ten steps each, and of one: few steps have transforms that decay slowly.
#[divan::bench(args = [10, 1], sample_count = 5)]
fn ledger_of_100_different_rounds_add_remove(steps: u64) -> f64 {
    different_rounds(Neighbours::AddRemove, steps)
}

#[divan::bench(args = [10, 1], sample_count = 5)]
fn ledger_of_100_different_rounds_replace_one(steps: u64) -> f64 {
    different_rounds(Neighbours::ReplaceOne, steps)
}

/// A hundred rounds of ten steps each that differ in noise and in rate, in no order, with both bounds asked for after every one.
fn unlike_rounds(relation: Neighbours) -> f64 {
    let mut plan = Plan::new(relation);
    let mut sum = 0.0;
    for i in 0..100 {
        let (a, b) = ((0.618_034 * f64::from(i)).fract(), (0.414_214 * f64::from(i)).fract());
        plan.append(Phase::gaussian(0.8 + 2.0 * a, Sampling::Poisson(0.002 * 10f64.powf(b)), 10)).unwrap();
        sum += plan.epsilon(delta(1e-5)).upper;
    }
    sum
}

#[divan::bench(sample_count = 5)]
fn ledger_of_100_unlike_rounds_add_remove() -> f64 {
    unlike_rounds(Neighbours::AddRemove)
}

#[divan::bench(sample_count = 5)]
fn ledger_of_100_unlike_rounds_replace_one() -> f64 {
    unlike_rounds(Neighbours::ReplaceOne)
}

fn many_different_rounds() -> Plan {
    let mut plan = Plan::new(Neighbours::AddRemove);
    for i in 0..10_000 {
        plan.append(Phase::gaussian(1.0 + 0.0003 * f64::from(i), Sampling::Poisson(0.01), 10)).unwrap();
    }
    plan
}

#[divan::bench(sample_count = 3)]
fn ten_thousand_different_rounds_cold(bencher: Bencher) {
    bencher.with_inputs(many_different_rounds).bench_local_values(|plan| plan.epsilon(delta(1e-5)));
}

#[divan::bench(sample_count = 3)]
fn one_more_than_ten_thousand_different_rounds(bencher: Bencher) {
    let mut plan = many_different_rounds();
    let _ = plan.epsilon(delta(1e-5));
    bencher.bench_local(|| {
        plan.append(Phase::gaussian(1.5, Sampling::Poisson(0.02), 10)).unwrap();
        plan.epsilon(delta(1e-5))
    });
}

#[divan::bench]
fn ledger_of_100_rounds_as_filter() -> f64 {
    let noise = DpEvent::Gaussian { noise: NoiseMultiplier::new(1.0).unwrap(), terms: Terms::Units };
    let event = DpEvent::PoissonSampled { rate: SamplingRate::nearest(0.01).unwrap(), event: Box::new(noise) }.repeated(10);
    let mut filter = Filter::new(Relation::AddRemove, Epsilon::new(100.0).unwrap(), delta(1e-5));
    (0..100).map(|_| if filter.admit(&event).unwrap() { filter.spent().epsilon.get() } else { 0.0 }).sum()
}

#[divan::bench]
fn append(bencher: Bencher) {
    let mut plan = plan(Neighbours::AddRemove, 1.0, 0.01, 10);
    bencher.bench_local(|| plan.append(Phase::gaussian(1.0, Sampling::Poisson(0.01), 10)).unwrap());
}
