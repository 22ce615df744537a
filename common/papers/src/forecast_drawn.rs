//! Forecast against outcome on drawn records: how wide did intervals become, and how much was lost, and what was said of it before?
//!
//! `cargo run --release -p dp-pvi-papers -- run forecast_drawn [RUNS [FIRST [FILE [PART]]]]` prints a row a problem, and puts its section into a
//! page. FIRST is the seed of the first run. PART picks the problems whose name contains it: a model, an update, a kind of features.
//!
//! What would be published is computed from the run's own records here, which stand for a register over the same population; in a federation it never
//! is.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on invented records: it shows its progress and writes its page")]

use std::path::Path;
use std::time::Instant;

use crate::synthetic::federation::{Features, Likelihood, Problem, federate};
use crate::synthetic::forecasts::{Outcome, Tallies, Tally, write_section};
use dp_pvi_posterior::methods::prior_predictive::NotForecast;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_results::forecast::{Effort, Forecast, forecast};

const NATURAL: &str = "schedule = \"synchronous\"\nrounds = 10\nupdate = \"natural-gradient\"";
const OPTIMISATION: &str = "schedule = \"synchronous\"\nrounds = 10\nupdate = \"dp-optimisation\"";

/// The task with published figures in its schema: moments of columns, and the share or the moments of the label.
fn published(task: &ResolvedTask, problem: &Problem, tables: &[RecordTable]) -> ResolvedTask {
    let records = || tables.iter().flat_map(RecordTable::records);
    let count = records().count() as f64;
    let moments = |of: &dyn Fn(RecordView<'_>) -> f64| {
        let mean = records().map(of).sum::<f64>() / count;
        (mean, (records().map(|record| (of(record) - mean).powi(2)).sum::<f64>() / count).sqrt())
    };
    let source = "source = \"the run's own records\"\n";
    let (mean, sd) = moments(&|record| record.target);
    let label = match problem.likelihood {
        Likelihood::Logistic | Likelihood::Probit => format!("share = {mean:?}\n"),
        Likelihood::Linear | Likelihood::Poisson | Likelihood::NegativeBinomial | Likelihood::Robust | Likelihood::RobustLearned => {
            format!("mean = {mean:?}\nsd = {sd:?}\n")
        }
        // Nothing can be published of times and events.
        Likelihood::Survival | Likelihood::Weibull => String::new(),
    };
    let (head, columns) = task.schema.split_once("[[columns]]\n").unwrap();
    let mut schema = format!("{head}{label}{source}");
    for (j, column) in (0_u32..).zip(columns.split("[[columns]]\n")) {
        let entry = |record: RecordView<'_>, at: u32| record.indices.iter().position(|&i| i == at).map_or(0.0, |k| record.values[k]);
        let law = if column.contains("\"category\"") {
            // The first level is the reference, and has no entry.
            let shares: Vec<f64> = (j..j + 4).map(|at| moments(&|record| f64::from(u8::from(entry(record, at) != 0.0))).0).collect();
            format!(
                "share = [{:?}, {}]\n",
                1.0 - shares.iter().sum::<f64>(),
                shares.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", ")
            )
        } else {
            let (mean, sd) = moments(&|record| entry(record, j));
            format!("mean = {mean:?}\nsd = {sd:?}\n")
        };
        schema += &format!("[[columns]]\n{column}{law}{source}");
    }
    ResolvedTask { schema, ..task.clone() }
}

/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    let (runs, first) = (number(0, 2), number(1, 1));
    let only = |name: &str| arguments.get(3).is_none_or(|wanted| name.contains(wanted));
    let (mut by_features, mut by_problem, mut by_size) = (Tallies::default(), Tallies::default(), Tallies::default());
    let mut total = Tally::default();
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
            let update = if pvi == NATURAL { "natural gradients" } else { "DP optimisation" };
            let name = format!("{likelihood:?} | {update}, {approximation} | {features:?}");
            if !only(&name) {
                continue;
            }
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
                    let problem =
                        Problem { likelihood, features, pvi, approximation, sites, rows, epsilon, prior, spread: prior, shift: 0.0 };
                    match compare(&problem, first..first + runs) {
                        Ok(tally) => {
                            println!("{:.0} s | {name} | {epsilon} | {sites} × {rows} | {}", began.elapsed().as_secs_f64(), tally.cells());
                            by_problem.merge(name.clone(), &tally);
                            by_size.merge(format!("{epsilon} | {sites} × {rows}"), &tally);
                            by_features.merge(format!("{features:?}"), &tally);
                            total.merge(&tally);
                        }
                        Err(why) => println!("{likelihood:?} {approximation} {features:?} {epsilon}: {why}"),
                    }
                }
            }
        }
    }
    by_features.merge("all".into(), &total);
    let (part, last) = (arguments.get(3).map_or("all", String::as_str), first + runs - 1);
    let command = arguments.get(3).map_or(String::new(), |part| format!(" '{part}'"));
    let text = format!(
        "```\ncargo run --release -p dp-pvi-papers -- run forecast_drawn {runs} {first} PAGE{command}\n```\n\n{}\n{}\n{}",
        by_features.table("features"),
        by_problem.table("model | update | features"),
        by_size.table("ε | sites")
    );
    println!("{text}");
    if let Some(page) = arguments.get(2) {
        write_section(Path::new(page), &format!("Drawn records, {part}, seeds {first} to {last}"), &text);
    }
}

/// Runs a problem with these seeds. Without figures it has one forecast, with them one a run.
fn compare(problem: &Problem, seeds: std::ops::Range<u64>) -> Result<Tally, NotForecast> {
    let task = problem.task();
    let units = vec![u64::from(problem.rows); problem.sites as usize];
    let of = |task: &ResolvedTask| -> Result<Forecast, NotForecast> { forecast(task, &units, Effort::of(task, units.len())) };
    let drawn = of(&task)?;
    let mut tally = Tally::default();
    for seed in seeds {
        let (_, mut tables) = problem.drawn(problem.sites + 4000_u32.div_ceil(problem.rows), seed);
        let held_out = tables.split_off(problem.sites as usize);
        let known = of(&published(&task, problem, &tables))?;
        let (_, history) = federate(&task, tables.clone(), seed);
        if let Some(outcome) = Outcome::of(&task, &history, &tables, &held_out) {
            tally.add(&outcome, &drawn, &known);
        }
    }
    Ok(tally)
}
