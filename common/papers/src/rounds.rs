//! How many rounds? The whole private path on synthetic federations, for plans from 4 to 40 rounds under the same budget.
//!
//! `cargo run --release -p dp-pvi-papers -- run rounds [REPLICATIONS [FILE [METHOD [SITES [MADE]]]]]` prints a line a cell, and writes the page of
//! the guide. The truth is drawn from the prior. METHOD and SITES pick a part of the cells; MADE says when and with which version.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on invented records: it shows its progress and writes its page")]

use std::fmt::Write as _;
use std::time::Instant;

use crate::synthetic::federation::{Counts, Features, Likelihood, Problem, Replication};
use dp_pvi_math::expfam::any::Gaussian;

const ROUNDS: [u32; 8] = [4, 6, 8, 10, 15, 20, 30, 40];
const EPSILONS: [f64; 4] = [0.3, 1.0, 4.0, 20.0];
/// Sites and records of a site.
const SIZES: [(u32, u32); 3] = [(3, 500), (5, 6000), (10, 3900)];
/// Name, update, approximation, features: DP optimisation takes coefficients for independent.
const METHODS: [(&str, &str, &str, Features); 2] = [
    ("natural gradients, full covariance", "natural-gradient", "full-covariance", Features::Correlated),
    ("DP optimisation", "dp-optimisation", "mean-field", Features::Independent),
];

/// What the replications of a cell gave.
struct Cell {
    counts: Counts,
    /// Mean over runs of the distance of plain from noise-aware means, in standard deviations of the latter.
    distance: f64,
}

impl Cell {
    fn mean(&self, sum: f64) -> f64 {
        sum / f64::from(self.counts.intervals.max(1))
    }

    fn of(problem: &Problem, replications: u64) -> Self {
        let task = problem.task();
        let (mut counts, mut distance) = (Counts::default(), 0.0);
        for seed in 1..=replications {
            let replication = problem.replicate(&task, seed);
            counts.add(&replication);
            distance += apart(&replication).unwrap_or(0.0);
        }
        let runs = replications - u64::from(counts.absent);
        Self { counts, distance: distance / runs.max(1) as f64 }
    }
}

/// √ mean ((plain mean − mean) / sd)².
fn apart(replication: &Replication) -> Option<f64> {
    let (aware, plain): (&Gaussian, &Gaussian) = (replication.aware.as_ref()?, &replication.plain);
    let (aware, plain) = (aware.standard(), plain.standard());
    let squares = aware.mean().iter().zip(plain.mean()).zip(aware.variances()).map(|((a, b), variance)| (a - b).powi(2) / variance);
    Some((squares.sum::<f64>() / aware.mean().len() as f64).sqrt())
}

/// A table of the page: its title, and what it shows of a cell (and of the whole row).
type Table = (&'static str, fn(&Cell, &[Cell]) -> String);

const TABLES: [Table; 5] = [
    ("Share of 90 % intervals of the noise-aware posterior that hold the true coefficient", |cell, _| {
        format!("{:.2}", cell.counts.share(cell.counts.aware))
    }),
    ("The same of the plain posterior", |cell, _| format!("{:.2}", cell.counts.share(cell.counts.plain))),
    ("Mean width of noise-aware intervals, over that of the best number of rounds", |cell, row| {
        let best = row.iter().map(|cell| cell.mean(cell.counts.width.0)).fold(f64::INFINITY, f64::min);
        format!("{:.2}", cell.mean(cell.counts.width.0) / best)
    }),
    ("Error of the noise-aware mean (rmse), over that of the best number of rounds; in brackets that of the plain mean", |cell, row| {
        let rmse = |sum: f64, cell: &Cell| cell.mean(sum).sqrt();
        let best = row.iter().map(|cell| rmse(cell.counts.squares.0, cell)).fold(f64::INFINITY, f64::min);
        format!("{:.2} ({:.2})", rmse(cell.counts.squares.0, cell) / best, rmse(cell.counts.squares.1, cell) / best)
    }),
    ("Distance of the plain from the noise-aware mean, in its standard deviations, overall", |cell, _| format!("{:.2}", cell.distance)),
];

/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let replications: u64 = arguments.first().map_or(40, |text| text.parse().unwrap());
    let only = |at: usize, name: &str| arguments.get(at).is_none_or(|wanted| name.contains(wanted));
    let began = Instant::now();
    let mut rows: Vec<(&str, String, Vec<Cell>)> = Vec::new();
    for (name, update, approximation, features) in METHODS.into_iter().filter(|method| only(2, method.1)) {
        for (sites, records) in SIZES.into_iter().filter(|(sites, _)| only(3, &sites.to_string())) {
            for epsilon in EPSILONS {
                let words = format!("{sites} × {records} | {epsilon}");
                let mut cells = Vec::new();
                for rounds in ROUNDS {
                    let problem = Problem {
                        likelihood: Likelihood::Logistic,
                        features,
                        pvi: format!("schedule = \"synchronous\"\nrounds = {rounds}\nupdate = \"{update}\""),
                        approximation,
                        sites,
                        rows: records,
                        epsilon,
                        prior: 1.0,
                        spread: 1.0,
                        shift: 0.0,
                    };
                    cells.push(Cell::of(&problem, replications));
                }
                for (title, show) in TABLES {
                    let line: Vec<String> = cells.iter().map(|cell| show(cell, &cells)).collect();
                    println!("{name} | {words} | {title}: {}", line.join(" "));
                }
                println!("after {} s", began.elapsed().as_secs());
                rows.push((name, words, cells));
                if let Some(file) = arguments.get(1) {
                    std::fs::write(file, page(&rows, &arguments)).unwrap();
                }
            }
        }
    }
}

fn page(rows: &[(&str, String, Vec<Cell>)], arguments: &[String]) -> String {
    let (replications, method) = (&arguments[0], arguments.get(2).map_or("", String::as_str));
    let made = arguments.get(4).map_or(String::new(), |made| format!("*Made on {made}.*\n\n"));
    let mut page = format!(
        "# How many rounds\n\n{made}```\ncargo run --release -p dp-pvi-papers -- run rounds {replications} FILE {method}\n```\n\n\
         Logistic regression on {replications} synthetic federations a cell, every site with its own noise, defaults; the truth is drawn from the prior. Natural \
         gradients have features with correlation 0.8, DP optimisation independent ones. The budget is the same for every number of rounds.\n"
    );
    for (title, show) in TABLES {
        let _ = write!(page, "\n## {title}\n\n| method | sites | ε |");
        for rounds in ROUNDS {
            let _ = write!(page, " {rounds} |");
        }
        let _ = writeln!(page, "\n|---|---|---|{}", "---|".repeat(ROUNDS.len()));
        for (name, words, cells) in rows {
            let line: Vec<String> = cells.iter().map(|cell| show(cell, cells)).collect();
            let _ = writeln!(page, "| {name} | {words} | {} |", line.join(" | "));
        }
    }
    page
}
