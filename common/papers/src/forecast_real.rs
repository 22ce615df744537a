//! Forecast against outcome on real data: how wide did intervals become, and how much was lost, and what was said of it before?
//!
//! `cargo run --release -p dp-pvi-papers -- run forecast_real [DATA_DIR [RUNS [FILE [SET]]]]` prints a row a federation, and puts its section into
//! a page. A fifth of the records is held out. SET picks data sets by a part of their name.
//!
//! What would be published is computed from the data set itself here, which stands for a register over the same population; in a federation it never
//! is.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on public records: it shows its progress and writes its page")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::synthetic::federation::federate;
use crate::synthetic::forecasts::{Outcome, Tallies, Tally, write_section};
use crate::synthetic::sets::{full_coding, load, sets, split};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::UnitTable;
use dp_pvi_records::RecordView;
use dp_pvi_results::forecast::{Effort, Forecast, forecast};
use dp_pvi_schema::{ColumnKind, Schema};
use toml::Value;

/// The schema with what a register over the same population would publish.
fn published(outcome: &str, text: &str, files: &[PathBuf]) -> String {
    // Rows that are not shortened, and an entry for every level.
    let mut table: toml::Table = text.parse().unwrap();
    table.remove("norm_bound");
    table.remove("version");
    let records = load(outcome, &table.to_string(), files);
    let full = Schema::asking(&format!("{outcome} ~ ."), &table.to_string()).unwrap();
    let count = records.len() as f64;
    let mut table: toml::Table = text.parse().unwrap();
    let mean = |of: &dyn Fn(RecordView<'_>) -> f64| records.records().map(of).sum::<f64>() / count;
    let entry = |record: RecordView<'_>, at: u32| record.indices.iter().position(|&j| j == at).map_or(0.0, |k| record.values[k]);
    for ((position, column), raw) in full.columns().iter().enumerate().zip(table["columns"].as_array_mut().unwrap()) {
        let first = full.design().unwrap().only_place(position).unwrap_or_default();
        let is_outcome = full.outcome().contains(&position);
        let raw = raw.as_table_mut().unwrap();
        match &column.kind {
            ColumnKind::Ignored => continue,
            ColumnKind::Number(rule) => {
                let value = |record: RecordView<'_>| rule.decode(entry(record, first));
                let centre = mean(&value);
                let sd = mean(&|record| (value(record) - centre).powi(2)).sqrt();
                raw.insert("mean".into(), Value::Float(centre));
                raw.insert("sd".into(), Value::Float(sd));
            }
            ColumnKind::Boolean(_) => {
                raw.insert("share".into(), Value::Float(mean(&|record| if is_outcome { record.target } else { entry(record, first) })));
            }
            ColumnKind::Category(rule) => {
                let share = |level: u32| Value::Float(mean(&|record| entry(record, first + level)));
                raw.insert("share".into(), Value::Array((0..u32::try_from(rule.values.len()).unwrap()).map(share).collect()));
            }
        }
        raw.insert("source".into(), Value::String("the same population".into()));
    }
    table.to_string()
}

fn task(outcome: &str, schema: &str, approximation: &str, epsilon: f64, sites: u32) -> ResolvedTask {
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"{outcome}\"\napproximation = \"{approximation}\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 10\n\
         update = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = {epsilon}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "forecast", update_deadline_seconds: 60, min_sites: sites, expected_sites: sites };
    RawTask::parse(&text).unwrap().resolve(schema, context).unwrap()
}

/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let data = PathBuf::from(arguments.first().map_or("../shared/data", String::as_str));
    let runs: u64 = arguments.get(1).map_or(1, |text| text.parse().unwrap());
    let only = arguments.get(3).map_or("", String::as_str);
    let (mut rows, mut by_set) = (Tallies::default(), Tallies::default());
    let began = Instant::now();
    for set in sets()
        .into_iter()
        .filter(|set| set.files.iter().all(|file| !file.contains("uci-regression")))
        .chain([full_coding()])
        .filter(|set| set.name.contains(only))
    {
        let files: Vec<PathBuf> = set.files.iter().map(|file| data.join(file)).collect();
        let records = load(set.outcome, &set.schema, &files);
        let known = published(set.outcome, &set.schema, &files);
        for sites in [1_u32, 5] {
            for epsilon in [0.5, 1.0, 4.0] {
                let own = task(set.outcome, &set.schema, "full-covariance", epsilon, sites);
                let units = vec![(records.len() - records.len() / 5) as u64 / u64::from(sites); sites as usize];
                let forecast_of = |task: &ResolvedTask| -> Forecast { forecast(task, &units, Effort::of(task, units.len())).unwrap() };
                let drawn = forecast_of(&own);
                let informed = forecast_of(&task(set.outcome, &known, "full-covariance", epsilon, sites));
                let mut tally = Tally::default();
                for seed in 1..=runs {
                    let (held_out, tables) = split(&records, sites as usize, seed);
                    let (_, history) = federate(&own, tables.clone(), seed);
                    if let Some(outcome) = Outcome::of(&own, &history, &tables, &[held_out]) {
                        tally.add(&outcome, &drawn, &informed);
                    }
                }
                let name = format!("{} | {} | {epsilon}", set.name, if sites == 1 { "1, or aggregated" } else { "5, local" });
                println!("{:.0} s | {name} | {}", began.elapsed().as_secs_f64(), tally.cells());
                rows.merge(name, &tally);
                by_set.merge(set.name.into(), &tally);
                by_set.merge("all".into(), &tally);
            }
        }
    }
    let text = format!(
        "```\ncargo run --release -p dp-pvi-papers -- run forecast_real DATA_DIR {runs} PAGE\n```\n\n{}\n{}",
        by_set.table("data"),
        rows.table("data | sites | ε")
    );
    println!("{text}");
    if let Some(page) = arguments.get(2) {
        write_section(Path::new(page), "Real data", &text);
    }
}
