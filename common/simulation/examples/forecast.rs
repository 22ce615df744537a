//! Forecast against outcome on real data: how wide did intervals become, and how wide were they said to become before?
//!
//! `cargo run --release -p dp-pvi-simulation --example forecast -- [DATA_DIR [RUNS [FILE]]]` prints a row a federation, and writes the table of the guide.
//! What would be published is computed from the data set itself here, which stands for a register over the same population; in a federation it never
//! is.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on public records: it shows its progress and writes its page")]

#[path = "../../inference/tests/federation/mod.rs"]
mod federation;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use dp_pvi_data::load_public;
use dp_pvi_expfam::any::Gaussian;
use dp_pvi_forecast::{Effort, Forecast, forecast};
use dp_pvi_posterior::reading::noise_aware::of_run;
use dp_pvi_posterior::reading::summary::Level;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::UnitTable;
use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_schema::{ColumnKind, LabelKind, Schema};
use federation::{Random, federate};
use toml::Value;

/// A data set.
struct Set {
    name: &'static str,
    schema: String,
    files: &'static [&'static str],
}

const HEART: &[&str] = &[
    "health/heart-disease/processed.cleveland.data",
    "health/heart-disease/processed.hungarian.data",
    "health/heart-disease/processed.switzerland.data",
    "health/heart-disease/processed.va.data",
];

/// Cleveland's 13 columns; ranges and centres are those of an ordinary examination.
fn heart() -> String {
    let mut text = String::from(
        "version = 2\nnorm_bound = 4.0\n[csv]\nnames = [\"age\", \"sex\", \"cp\", \"trestbps\", \"chol\", \"fbs\", \"restecg\", \"thalach\", \"exang\", \"oldpeak\", \"slope\", \"ca\", \"thal\", \"num\"]\n\
         [missing]\ntokens = [\"?\"]\n[label]\ncolumn = \"num\"\nkind = \"binary\"\npositive = [\"1\", \"2\", \"3\", \"4\"]\n",
    );
    for (name, lower, upper, centre, scale) in [
        ("age", 20, 90, 55, 20),
        ("trestbps", 80, 220, 130, 40),
        ("chol", 100, 600, 220, 100),
        ("thalach", 60, 220, 150, 40),
        ("oldpeak", -3, 7, 0, 2),
        ("ca", 0, 3, 0, 2),
    ] {
        let _ = write!(
            text,
            "[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = {lower}\nupper = {upper}\ncentre = {centre}\nscale = {scale}\nmissing = \"centre\"\n"
        );
    }
    for (name, values) in [
        ("sex", "\"0\", \"1\""),
        ("cp", "\"1\", \"2\", \"3\", \"4\""),
        ("fbs", "\"0\", \"1\""),
        ("restecg", "\"0\", \"1\", \"2\""),
        ("exang", "\"0\", \"1\""),
        ("slope", "\"1\", \"2\", \"3\""),
        ("thal", "\"3\", \"6\", \"7\""),
    ] {
        let _ = write!(
            text,
            "[[columns]]\nname = \"{name}\"\nkind = \"category\"\nvalues = [{values}]\nmatching = \"number\"\nmissing = \"zero\"\n"
        );
    }
    text
}

/// Ten means of a cell nucleus; ranges as they are possible, in units of about a fifth of them.
fn breast_cancer() -> String {
    let columns = [
        ("radius", 5.0, 30.0),
        ("texture", 5.0, 40.0),
        ("perimeter", 40.0, 190.0),
        ("area", 100.0, 2600.0),
        ("smoothness", 0.05, 0.17),
        ("compactness", 0.0, 0.35),
        ("concavity", 0.0, 0.45),
        ("points", 0.0, 0.21),
        ("symmetry", 0.1, 0.31),
        ("fractal", 0.04, 0.1),
    ];
    let rest: Vec<String> = (0..20).map(|i| format!("\"other{i}\"")).collect();
    let names: Vec<String> = columns.iter().map(|(name, ..)| format!("\"{name}\"")).collect();
    let mut text = format!(
        "version = 2\nnorm_bound = 4.0\nother_columns = \"ignore\"\n[csv]\nnames = [\"id\", \"diagnosis\", {}, {}]\n[label]\ncolumn = \"diagnosis\"\nkind = \"binary\"\npositive = [\"M\"]\nnegative = [\"B\"]\n",
        names.join(", "),
        rest.join(", ")
    );
    for (name, lower, upper) in columns {
        let (centre, scale) = (lower + 0.4 * (upper - lower), 0.25 * (upper - lower));
        let _ = write!(
            text,
            "[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = {lower:?}\nupper = {upper:?}\ncentre = {centre:?}\nscale = {scale:?}\n"
        );
    }
    text
}

fn sets() -> Vec<Set> {
    let read =
        |name: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/experiments").join(name)).unwrap();
    let version_2 = |text: String| format!("version = 2\n{text}");
    // Every record is a unit here.
    let of_records = |text: String| text.lines().filter(|line| !line.starts_with("unit_column")).collect::<Vec<_>>().join("\n");
    const ADULT: &[&str] = &["adult/adult.data.gz", "adult/adult.test.gz"];
    const DIABETES: &[&str] = &["health/diabetes-130/diabetic_data.csv.gz"];
    vec![
        Set { name: "heart disease", schema: heart(), files: HEART },
        Set { name: "breast cancer", schema: breast_cancer(), files: &["health/breast-cancer-wdbc/wdbc.data"] },
        Set { name: "Adult", schema: version_2(read("adult.schema.toml")), files: ADULT },
        Set { name: "Adult, full coding", schema: read("adult.schema.toml"), files: ADULT },
        Set { name: "diabetes, death", schema: version_2(read("diabetes-mortality.schema.toml")), files: DIABETES },
        Set { name: "diabetes, readmission", schema: version_2(of_records(read("diabetes.schema.toml"))), files: DIABETES },
    ]
}

fn load(schema: &str, files: &[PathBuf]) -> RecordTable {
    load_public(&Schema::parse(schema).unwrap(), files, None).unwrap().into_inner()
}

/// The schema with what a register over the same population would publish.
fn published(text: &str, files: &[PathBuf]) -> String {
    // Rows that are not shortened, and an entry for every level.
    let mut table: toml::Table = text.parse().unwrap();
    table.remove("norm_bound");
    table.remove("version");
    let records = load(&table.to_string(), files);
    let full = Schema::parse(&table.to_string()).unwrap();
    let count = records.len() as f64;
    let mut table: toml::Table = text.parse().unwrap();
    let label = |record: RecordView<'_>| record.target;
    let mean = |of: &dyn Fn(RecordView<'_>) -> f64| records.records().map(of).sum::<f64>() / count;
    let entry = |record: RecordView<'_>, at: u32| record.indices.iter().position(|&j| j == at).map_or(0.0, |k| record.values[k]);
    for (column, raw) in full.columns().iter().zip(table["columns"].as_array_mut().unwrap()) {
        let raw = raw.as_table_mut().unwrap();
        match &column.kind {
            ColumnKind::Ignored => continue,
            ColumnKind::Number(rule) => {
                let value = |record: RecordView<'_>| rule.decode(entry(record, column.offset));
                let centre = mean(&value);
                let sd = mean(&|record| (value(record) - centre).powi(2)).sqrt();
                raw.insert("mean".into(), Value::Float(centre));
                raw.insert("sd".into(), Value::Float(sd));
            }
            ColumnKind::Boolean(_) => {
                raw.insert("share".into(), Value::Float(mean(&|record| entry(record, column.offset))));
            }
            ColumnKind::Category(rule) => {
                let share = |level: u32| Value::Float(mean(&|record| entry(record, column.offset + level)));
                raw.insert("share".into(), Value::Array((0..u32::try_from(rule.values.len()).unwrap()).map(share).collect()));
            }
        }
        raw.insert("source".into(), Value::String("the same population".into()));
    }
    if let LabelKind::Binary { .. } = full.label().kind {
        let raw = table["label"].as_table_mut().unwrap();
        raw.insert("share".into(), Value::Float(mean(&label)));
        raw.insert("source".into(), Value::String("the same population".into()));
    }
    table.to_string()
}

fn task(schema: &str, approximation: &str, epsilon: f64, sites: u32) -> ResolvedTask {
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\napproximation = \"{approximation}\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 10\n\
         update = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = {epsilon}\ndelta = 1e-5\ntrust = \"local\"\n"
    );
    let context = ResolveContext { name: "forecast", update_deadline_seconds: 60, min_sites: sites, expected_sites: sites };
    RawTask::parse(&text).unwrap().resolve(schema, context).unwrap()
}

/// The records in random order, cut into sites of one size.
fn split(records: &RecordTable, sites: usize, seed: u64) -> Vec<RecordTable> {
    let mut random = Random(seed);
    let mut order: Vec<usize> = (0..records.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, (random.uniform() * (i as f64 + 1.0)) as usize);
    }
    let all: Vec<RecordView<'_>> = records.records().collect();
    let site = |positions: &[usize]| {
        let mut builder = RecordTable::builder(records.dimension());
        for &at in positions {
            builder.start_unit();
            builder.push(all[at].indices, all[at].values, all[at].target).unwrap();
        }
        builder.finish()
    };
    order.chunks(order.len().div_ceil(sites)).map(site).collect()
}

/// Widths of the 90 % intervals of one run.
fn outcome(task: &ResolvedTask, records: &RecordTable, sites: usize, seed: u64) -> Option<Vec<f64>> {
    let (_, history) = federate(task, split(records, sites, seed), seed);
    let aware = Gaussian::from_natural(task.family(), of_run(task, &history).ok()?.natural_parameters).ok()?;
    Some(aware.standard().variances().iter().map(|v| 2.0 * Level::P90.half_width() * v.sqrt()).collect())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let data = PathBuf::from(arguments.first().map_or("../shared/data", String::as_str));
    let runs: u64 = arguments.get(1).map_or(1, |text| text.parse().unwrap());
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut page = String::from(
        "| data | sites | ε | outcome | forecast | in the range | with published figures | within 1.5 |\n|---|---|---|---|---|---|---|---|\n",
    );
    let (mut inside, mut near, mut all) = (0, 0, 0);
    let began = Instant::now();
    for set in sets().into_iter().filter(|set| set.name.contains(&only)) {
        let files: Vec<PathBuf> = set.files.iter().map(|file| data.join(file)).collect();
        let records = load(&set.schema, &files);
        let known = published(&set.schema, &files);
        for sites in [1_u32, 5] {
            for epsilon in [0.5, 1.0, 4.0] {
                let approximation = "full-covariance";
                let units = vec![records.len() as u64 / u64::from(sites); sites as usize];
                let forecast_of = |schema: &str| -> Forecast {
                    let task = task(schema, approximation, epsilon, sites);
                    forecast(&task, &units, Effort::of(&task, units.len())).unwrap()
                };
                let start = Instant::now();
                let drawn = forecast_of(&set.schema);
                let seconds = start.elapsed().as_secs_f64();
                let informed = forecast_of(&known);
                let own = task(&set.schema, approximation, epsilon, sites);
                let (mut in_range, mut close, mut count, mut widths, mut logs) = (0, 0, 0, Vec::new(), Vec::new());
                for seed in 1..=runs {
                    let Some(outcome) = outcome(&own, &records, sites as usize, seed) else { continue };
                    for (j, width) in outcome.into_iter().enumerate() {
                        let range = drawn.coefficients[j].width;
                        in_range += u32::from((range.low..=range.high).contains(&width));
                        let ratio = width / informed.coefficients[j].width.median;
                        close += u32::from((1.0 / 1.5..=1.5).contains(&ratio));
                        count += 1;
                        logs.push(ratio.ln());
                        widths.push(width);
                    }
                }
                widths.sort_by(f64::total_cmp);
                logs.sort_by(f64::total_cmp);
                let quantile = |share: f64| logs[((logs.len() - 1) as f64 * share) as usize].exp();
                let share = |part: u32| f64::from(part) / f64::from(count);
                let row = format!(
                    "| {} | {} | {epsilon} | {:.2} | {:.2} ({:.2}–{:.2}) | {:.2} | {:.2} ({:.2}–{:.2}) | {:.2} |",
                    set.name,
                    if sites == 1 { "1, or aggregated".to_owned() } else { format!("{sites}, local") },
                    widths[widths.len() / 2],
                    drawn.width.median,
                    drawn.width.low,
                    drawn.width.high,
                    share(in_range),
                    informed.width.median,
                    informed.width.low,
                    informed.width.high,
                    share(close),
                );
                println!(
                    "{:.0} s, {seconds:.2} s a forecast of {} worlds, d = {}: {row} outcome over forecast {:.2} {:.2} {:.2} loss {:.4}",
                    began.elapsed().as_secs_f64(),
                    drawn.worlds,
                    own.dimension,
                    quantile(0.05),
                    quantile(0.5),
                    quantile(0.95),
                    informed.loss.median
                );
                let _ = writeln!(page, "{row}");
                inside += in_range;
                near += close;
                all += count;
            }
        }
    }
    println!(
        "{all} intervals: {:.3} in the range, {:.3} within a factor 1.5",
        f64::from(inside) / f64::from(all),
        f64::from(near) / f64::from(all)
    );
    if let Some(file) = arguments.get(2) {
        std::fs::write(file, &page).unwrap();
    }
}
