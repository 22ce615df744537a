//! Forecast against outcome: how wide did intervals become in simulated federations, and how wide were they said to become before?
//!
//! `cargo run --release -p dp-pvi-inference --example forecast -- [RUNS [FILE]]` prints a row a problem, and writes a table for the guide.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on invented records: it shows its progress and writes its page")]

#[path = "../tests/federation/mod.rs"]
mod federation;

use std::fmt::Write as _;
use std::time::Instant;

use dp_pvi_forecast::{Effort, forecast};
use dp_pvi_posterior::reading::summary::Level;
use dp_pvi_posterior::task::ResolvedTask;
use federation::{Features, Likelihood, Problem};

const NATURAL: &str = "schedule = \"synchronous\"\nrounds = 10\nupdate = \"natural-gradient\"";
const OPTIMISATION: &str = "schedule = \"synchronous\"\nrounds = 10\nupdate = \"dp-optimisation\"";

/// Mean and standard deviation of every column, as a register would publish them.
fn moments(features: Features) -> Vec<(f64, f64)> {
    match features {
        Features::Independent | Features::Correlated => vec![(0.0, 0.99); 4],
        Features::Rare => {
            let shares = [0.5, 0.3, 0.14, 0.03, 0.03];
            [(0.0, 0.99); 2].into_iter().chain(shares.map(|p: f64| (p, (p * (1.0 - p)).sqrt()))).collect()
        }
    }
}

/// The task with published moments in its schema.
fn published(task: &ResolvedTask, features: Features) -> ResolvedTask {
    let parts: Vec<&str> = task.schema.split("[[columns]]\n").collect();
    let columns = parts[1..]
        .iter()
        .zip(moments(features))
        .map(|(column, (mean, sd))| format!("[[columns]]\n{column}mean = {mean}\nsd = {sd}\nsource = \"known\"\n"));
    let schema = std::iter::once(parts[0].to_owned()).chain(columns).collect();
    ResolvedTask { schema, ..task.clone() }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runs: u64 = arguments.first().map_or(10, |text| text.parse().unwrap());
    let mut page = String::from(
        "| model | update | ε | sites | features | outcome | forecast | in range | published | within 1.5 |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let (mut inside, mut near, mut all) = (0, 0, 0);
    let began = Instant::now();
    for features in [Features::Independent, Features::Correlated, Features::Rare] {
        for (likelihood, pvi, approximation) in [
            (Likelihood::Logistic, NATURAL, "full-covariance"),
            (Likelihood::Logistic, NATURAL, "mean-field"),
            (Likelihood::Linear, NATURAL, "full-covariance"),
            (Likelihood::Probit, NATURAL, "full-covariance"),
            (Likelihood::Poisson, NATURAL, "full-covariance"),
            (Likelihood::Logistic, OPTIMISATION, "mean-field"),
            (Likelihood::Linear, OPTIMISATION, "mean-field"),
        ] {
            for epsilon in [0.3, 1.0, 4.0] {
                for (sites, rows) in [(3, 500), (5, 6000)] {
                    let mut pvi = pvi.to_owned();
                    if likelihood == Likelihood::Poisson || likelihood == Likelihood::Linear && pvi == NATURAL {
                        pvi += "\nresidual_bound = 6.0\ncurvature_bound = 8.0";
                    }
                    if likelihood == Likelihood::Linear && pvi == OPTIMISATION {
                        pvi += "\nclip_norm = 4";
                    }
                    let prior = if likelihood == Likelihood::Poisson { 0.3 } else { 1.0 };
                    let problem = Problem { likelihood, features, pvi, approximation, sites, rows, epsilon, prior, spread: prior };
                    let task = problem.task();
                    let units = vec![u64::from(rows); sites as usize];
                    let start = Instant::now();
                    let drawn = match forecast(&task, &units, Effort::of(&task, units.len())) {
                        Ok(drawn) => drawn,
                        Err(why) => {
                            println!("{likelihood:?} {approximation} {features:?} {epsilon}: {why}");
                            continue;
                        }
                    };
                    let seconds = start.elapsed().as_secs_f64();
                    let known = forecast(&published(&task, features), &units, Effort::of(&task, units.len())).unwrap();
                    let (mut in_range, mut close, mut count, mut outcome) = (0, 0, 0, 0.0);
                    for seed in 1..=runs {
                        let Some(aware) = problem.replicate(&task, seed).aware else { continue };
                        for (j, variance) in aware.standard().variances().iter().enumerate() {
                            let width = 2.0 * Level::P90.half_width() * variance.sqrt();
                            outcome += width;
                            count += 1;
                            in_range += u32::from((drawn.coefficients[j].width.low..=drawn.coefficients[j].width.high).contains(&width));
                            let ratio = width / known.coefficients[j].width.median;
                            close += u32::from((1.0 / 1.5..=1.5).contains(&ratio));
                        }
                    }
                    let middle = |f: &dp_pvi_forecast::Forecast| f.width;
                    let row = format!(
                        "| {likelihood:?} | {}, {approximation} | {epsilon} | {sites} × {rows} | {features:?} | {:.2} | {:.2} ({:.2}–{:.2}) | {:.2} | {:.2} ({:.2}–{:.2}) | {:.2} |",
                        if problem.pvi.contains("natural") { "natural gradients" } else { "DP optimisation" },
                        outcome / f64::from(count),
                        middle(&drawn).median,
                        middle(&drawn).low,
                        middle(&drawn).high,
                        f64::from(in_range) / f64::from(count),
                        middle(&known).median,
                        middle(&known).low,
                        middle(&known).high,
                        f64::from(close) / f64::from(count),
                    );
                    println!("{:.1} s, {seconds:.2} s a forecast: {row} loss {:.4}", began.elapsed().as_secs_f64(), drawn.loss.median);
                    let _ = writeln!(page, "{row}");
                    inside += in_range;
                    near += close;
                    all += count;
                }
            }
        }
    }
    println!(
        "{all} intervals: {:.3} in the range, {:.3} within a factor 1.5",
        f64::from(inside) / f64::from(all),
        f64::from(near) / f64::from(all)
    );
    if let Some(file) = arguments.get(1) {
        std::fs::write(file, &page).unwrap();
    }
}
