//! Answers to the last bit, for anyone who calls this crate from another language: a line of JSON for each question.
//!
//! `cargo run --release -p dp-pvi-accounting --example bits` prints them; `common/python/test.sh` compares them with what Python is told. They are not kept
//! in the tree: fast Fourier transforms of different processors may differ in their last bits.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example prints its table")]

use dp_pvi_accounting::calibrate::{Target, sigma};
use dp_pvi_accounting::{Delta, Epsilon, Interval, Mechanism, Neighbours, Phase, Plan, Sampling};
use serde_json::{Value, json};

/// The names that Python uses.
const RELATIONS: [(&str, Neighbours); 3] =
    [("ADD_OR_REMOVE_ONE", Neighbours::AddRemove), ("REPLACE_ONE", Neighbours::ReplaceOne), ("REPLACE_SPECIAL", Neighbours::ZeroOut)];
const DELTAS: [f64; 3] = [1e-9, 1e-6, 1e-3];
const EPSILONS: [f64; 3] = [0.0, 0.5, 2.0];

fn phase(mechanism: Mechanism, steps: u64) -> Phase {
    Phase { mechanism, sampling: Sampling::None, steps }
}

/// Events as text, and the same steps made by hand.
fn cases() -> Vec<(&'static str, Vec<Phase>)> {
    vec![
        ("GaussianDpEvent(noise_multiplier=2.5)", vec![Phase::gaussian(2.5, Sampling::None, 1)]),
        (
            "SelfComposedDpEvent(event=PoissonSampledDpEvent(sampling_probability=0.01, event=GaussianDpEvent(noise_multiplier=1.0)), count=1000)",
            vec![Phase::gaussian(1.0, Sampling::Poisson(0.01), 1000)],
        ),
        (
            "SelfComposedDpEvent(event=PoissonSampledDpEvent(sampling_probability=0.001, event=GaussianDpEvent(noise_multiplier=0.7)), count=300)",
            vec![Phase::gaussian(0.7, Sampling::Poisson(0.001), 300)],
        ),
        ("SelfComposedDpEvent(event=LaplaceDpEvent(noise_multiplier=3.0), count=12)", vec![phase(Mechanism::Laplace { scale: 3.0 }, 12)]),
        (
            "UnivariateDiscreteGaussianDpEvent(scale=4.0, sensitivity=3)",
            vec![phase(Mechanism::DiscreteGaussian { scale: 4.0, sensitivity: 3 }, 1)],
        ),
        (
            "ComposedDpEvent(events=[EpsilonDeltaDpEvent(epsilon=0.25, delta=1e-10), NoOpDpEvent(), ZCDpEvent(rho=0.125, xi=0.0)])",
            vec![phase(Mechanism::Approximate { epsilon: 0.25, delta: 1e-10 }, 1), phase(Mechanism::Zcdp { rho: 0.125 }, 1)],
        ),
        (
            "ComposedDpEvent(events=[SelfComposedDpEvent(event=PoissonSampledDpEvent(sampling_probability=0.05, \
             event=GaussianDpEvent(noise_multiplier=3.0)), count=200), LaplaceDpEvent(noise_multiplier=2.0), \
             GaussianDpEvent(noise_multiplier=4.0)])",
            vec![
                Phase::gaussian(3.0, Sampling::Poisson(0.05), 200),
                phase(Mechanism::Laplace { scale: 2.0 }, 1),
                Phase::gaussian(4.0, Sampling::None, 1),
            ],
        ),
    ]
}

fn bits(interval: Interval) -> Value {
    json!([interval.lower, interval.estimate, interval.upper].map(|value| format!("{:016x}", value.to_bits())))
}

fn main() {
    for (events, phases) in cases() {
        for (name, relation) in RELATIONS {
            let mut plan = Plan::new(relation);
            phases.iter().for_each(|phase| plan.append(*phase).unwrap());
            let epsilon = DELTAS.map(|delta| bits(plan.epsilon(Delta::new(delta).unwrap())));
            let delta = EPSILONS.map(|epsilon| bits(plan.delta(Epsilon::new(epsilon).unwrap())));
            println!(
                "{}",
                json!({"events": events, "relation": name, "deltas": DELTAS, "epsilon": epsilon, "epsilons": EPSILONS, "delta": delta})
            );
        }
    }
    let target = Target { epsilon: Epsilon::new(2.0).unwrap(), delta: Delta::new(1e-5).unwrap() };
    for (name, relation) in RELATIONS {
        let found = sigma(relation, Sampling::Poisson(0.1), 2000, target).unwrap();
        println!("{}", json!({"relation": name, "noise_multiplier": bits(found)}));
    }
}
