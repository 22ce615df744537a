//! Costs of the accountant; `cargo bench -p dp-pvi-accounting --bench accountant` prints them.
//!
//! Processor seconds of one thread of a 2-core 2.5 GHz machine whose other cores were busy with builds, fastest of several, beside what
//! other tools need for the same question (one thread of such a machine, too):
//!
//! | question | here | width here | others |
//! |---|---|---|---|
//! | ε between certified bounds, σ 1, q 0.01, 1000 steps, δ 1e-5, add-remove | 4.4 ms | 1.3e-4 | PLD 930 ms (upper only, +7e-6 at 1e-4); PRV 520 ms (2e-2), 4.6 s (2e-3) |
//! | the same, replace-one | 3.6 ms | 1.4e-4 | PLD 1.1 s (upper only) |
//! | estimate alone (good to 1e-10) | 0.7 ms | | Fourier 720 ms (+1.7e-6) |
//! | σ 2, q 0.001, 1e5 steps, δ 1e-6 | 14 ms | 2e-5 | PLD 55 ms (+2.2e-3), 410 ms (+2.2e-5); PRV 4.2 s (2e-2) |
//! | σ 1, q 1e-4, 1e5 steps, δ 1e-5 (hard: rare steps) | 60 ms | 4e-4 | PLD +7e-3 (5 %) |
//! | smallest σ for ε 2, q 0.1, 2000 steps, certified | 32 ms | 4e-5 of σ | PLD 2.9 s; Fourier 11 s; PRV 50 s |
//! | 100 rounds of 10 steps, certified upper ε after each | 0.30 s | 1e-4 | PLD 39 s |
//! | the same, between certified bounds | 0.96 s | 1e-4 | |
//! | the same, as the ledger's filter | 1.2 ms | | RDP 3.7 s |
//! | appending a phase to a plan | under 10 µs | | |
//!
//! Slowest rows of the reference table: 0.24 s where the contour decays too slowly for an estimate (σ 0.5, q 1e-4, 1000 steps), 0.13 s for
//! a calibration, 0.06 s for everything else. Slowest of 1250 questions drawn over the whole box of `pld::properties`: 0.76 s.
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

#[divan::bench]
fn certified_100_000_steps(bencher: Bencher) {
    bencher.with_inputs(|| plan(Neighbours::AddRemove, 2.0, 0.001, 100_000)).bench_values(|plan| plan.epsilon(delta(1e-6)));
}

#[divan::bench]
fn certified_100_000_rare_steps(bencher: Bencher) {
    bencher.with_inputs(|| plan(Neighbours::AddRemove, 1.0, 1e-4, 100_000)).bench_values(|plan| plan.epsilon(delta(1e-5)));
}

#[divan::bench]
fn estimate(bencher: Bencher) {
    bencher.with_inputs(|| plan(Neighbours::AddRemove, 1.0, 0.01, 1000)).bench_values(|plan| plan.epsilon_estimate(delta(1e-5)));
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
