//! Curves of age with a learned scale under noise: in how many federations intervals hold the truth, and how wide they are.
//!
//! `cargo run --release -p dp-pvi-papers -- run curves [REPLICATIONS]` prints the table of the guide: 12,000 records, the formula
//! `y ~ s(age) + s(x, k = 6) + sex * ward`, and differences to an age of 54 at nine ages. Under local trust there are three sites, each with noise of its own.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on invented records prints its table")]

use crate::synthetic::curves::{CURVES, Federation, Outcome};

const FORMULA: &str = "y ~ s(age) + s(x, k = 6) + sex * ward";
const TWENTY: &str = "schedule = \"synchronous\"\nrounds = 20\nupdate = \"natural-gradient\"";
const FORTY: &str = "schedule = \"synchronous\"\nrounds = 40\nupdate = \"natural-gradient\"";
/// Of a standard normal.
const P95: f64 = 1.96;

/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let replications: u64 = arguments.first().map_or(100, |text| text.parse().unwrap());
    println!(
        "| model | trust | ε | curve | 95 % intervals hold | error | standard deviation | largest error in standard deviations | median τ |\n|---|---|---|---|---|---|---|---|---|"
    );
    for (family, pvi) in [("logistic-regression", TWENTY), ("ordinal-regression", FORTY)] {
        for (local, epsilon) in [(true, 1.0), (true, 4.0), (false, 1.0), (false, 4.0)] {
            let (sites, records) = if local { (3, 4000) } else { (1, 12_000) };
            let federation = Federation { sites, records, epsilon, family, formula: FORMULA, pvi };
            let task = federation.task();
            for (name, curve) in CURVES {
                let outcomes: Vec<Outcome> = (1..=replications).filter_map(|seed| federation.run(&task, curve, seed)).collect();
                let all: Vec<(f64, f64)> = outcomes.iter().flat_map(|outcome| outcome.differences.clone()).collect();
                let mean = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
                let inside = all.iter().filter(|(error, sd)| error.abs() <= P95 * sd).count() as f64 / all.len() as f64;
                let largest = all.iter().map(|(error, sd)| error.abs() / sd).fold(0.0, f64::max);
                let mut scales: Vec<f64> = outcomes.iter().map(|outcome| outcome.scale).collect();
                scales.sort_by(f64::total_cmp);
                println!(
                    "| {family} | {} | {epsilon} | {name} | {inside:.3} | {:.3} | {:.3} | {largest:.1} | {:.2} |",
                    if local { "local" } else { "aggregated" },
                    mean(|(error, _)| error * error).sqrt(),
                    mean(|(_, sd)| *sd),
                    scales[scales.len() / 2]
                );
            }
        }
    }
}
