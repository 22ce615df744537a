//! Hospitals that differ, and a treatment that the better ones give more often: what `(1 | site)` takes out of the error of the treatment's coefficient, and in how
//! many federations intervals hold the truth.
//!
//! `cargo run --release -p dp-pvi-papers -- run site_effects [REPLICATIONS]` prints the table of the guide. Ten sites with 2,000 records each; y is 1 with log odds
//! 0.3 + 0.5 treatment − 0.4 x + u_k, u_k ~ N(0, 0.7²), and a record of site k is treated with log odds 2 u_k. Noise is that of every site (local trust, where a site
//! sends its own effect alone), or once that of the sum (aggregated: all effects have the sum's noise).
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#![allow(clippy::disallowed_methods, reason = "an experiment on invented records prints its table")]

use crate::synthetic::federation::{Random, federate};
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::effects::scales;
use dp_pvi_posterior::methods::noise_aware::Posterior;
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_protocol::summary::coefficients;
use dp_pvi_records::RecordTable;
use dp_pvi_schema::formula::{Cell, Record, RowSpace};

const SITES: u32 = 10;
const ROWS: u32 = 2000;
const INTERCEPT: f64 = 0.3;
const TREATMENT: f64 = 0.5;
const SLOPE: f64 = -0.4;
const TAU: f64 = 0.7;

fn names() -> Vec<String> {
    (0..SITES).map(|site| format!("site-{site}")).collect()
}

fn task(formula: &str, local: bool, epsilon: f64) -> ResolvedTask {
    let schema = format!(
        "version = 2\n[[columns]]\nname = \"treated\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -3.0\n\
         upper = 3.0\ncentre = 0.0\nscale = 1.0\n[[columns]]\nname = \"hospital\"\nkind = \"category\"\nvalues = {:?}\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\n\
         true_values = [\"1\"]\nfalse_values = [\"0\"]\n",
        names()
    );
    let sites = if formula.contains("site") { format!("sites = {:?}\n", names()) } else { String::new() };
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\napproximation = \"full-covariance\"\nformula = {formula:?}\n{sites}[schema]\nfile = \"schema.toml\"\n[pvi]\n\
         schedule = \"synchronous\"\nrounds = 20\nupdate = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = {epsilon}\n\
         delta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let count = if local { SITES } else { 1 };
    let context = ResolveContext { name: "sites", update_deadline_seconds: 60, min_sites: count, expected_sites: count };
    RawTask::parse(&text).unwrap().resolve(&schema, context).unwrap()
}

/// A record: site, treatment, x, y.
type Drawn = (u32, bool, f64, f64);

fn records(effects: &[f64], random: &mut Random) -> Vec<Drawn> {
    let sigmoid = |eta: f64| 1.0 / (1.0 + (-eta).exp());
    let mut records = Vec::new();
    for (site, effect) in (0..SITES).zip(effects) {
        for _ in 0..ROWS {
            let treated = random.uniform() < sigmoid(2.0 * effect);
            let x = random.normal().clamp(-3.0, 3.0);
            let eta = INTERCEPT + TREATMENT * f64::from(u8::from(treated)) + SLOPE * x + effect;
            records.push((site, treated, x, f64::from(u8::from(random.uniform() < sigmoid(eta)))));
        }
    }
    records
}

/// Rows by the task's formula, of all records or of one site's.
fn table(task: &ResolvedTask, records: &[Drawn], only: Option<u32>) -> RecordTable {
    let schema = task.parsed_schema().unwrap();
    let design = schema.design().unwrap();
    let mut builder = RecordTable::builder(task.features as usize);
    let mut space = RowSpace::default();
    for (site, treated, x, y) in records.iter().filter(|record| only.is_none_or(|only| only == record.0)) {
        // Names with one digit: their order is that of their numbers.
        let cells = [Cell::Level(u32::from(*treated)), Cell::Number(*x), Cell::Level(*site)];
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        let record = Record { cells: &cells, filled: &[false; 3], site: only };
        design.row(&record, &mut space, |position, value| {
            indices.push(position);
            values.push(value);
        });
        builder.start_unit();
        builder.push(&indices, &values, *y).unwrap();
    }
    builder.finish()
}

#[derive(Default)]
struct Row {
    squares: f64,
    runs: u32,
    fixed: u32,
    sites: u32,
    scale: u32,
    scales: Vec<f64>,
}

impl Row {
    /// One federation's posterior beside the truth.
    fn add(&mut self, task: &ResolvedTask, posterior: Posterior, effects: &[f64]) {
        let q = Gaussian::from_natural(task.family(), posterior.natural_parameters).unwrap();
        let names = task.parameter_names().unwrap();
        let treated = names.iter().position(|name| name.starts_with("treated")).unwrap();
        self.squares += (q.standard().mean()[treated] - TREATMENT).powi(2);
        self.runs += 1;
        let found = coefficients(&names, q.standard());
        let inside = |j: usize, truth: f64| u32::from((found[j].interval_90.lower..=found[j].interval_90.upper).contains(&truth));
        self.fixed += inside(treated, TREATMENT) + inside(names.iter().position(|name| name == "x").unwrap(), SLOPE);
        let prior = task.setting().priors();
        if let Some(group) = prior.groups.first() {
            self.sites += (0..effects.len()).map(|k| inside(group.first + k, effects[k])).sum::<u32>();
            let scale = scales(&task.model, &prior, &task.parsed_schema().unwrap(), &names, q.standard(), &posterior.scales).remove(0);
            let interval = scale.interval_90.unwrap();
            self.scale += u32::from((interval.lower..=interval.upper).contains(&TAU));
            self.scales.push(scale.estimate);
        }
    }

    fn rmse(&self) -> f64 {
        (self.squares / f64::from(self.runs)).sqrt()
    }
}

/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let replications: u64 = arguments.first().map_or(200, |text| text.parse().unwrap());
    println!(
        "| trust | ε | error without (1 \\| site) | with | ratio | fixed effects | site effects | τ | median τ |\n|---|---|---|---|---|---|---|---|---|"
    );
    for (local, epsilon) in [(true, 1.0), (false, 1.0), (true, 4.0), (false, 4.0)] {
        let with = task(if local { "y ~ treated + x + (1 | site)" } else { "y ~ treated + x + (1 | hospital)" }, local, epsilon);
        let without = task("y ~ treated + x", local, epsilon);
        let (mut plain, mut grouped) = (Row::default(), Row::default());
        for seed in 1..=replications {
            let mut random = Random(seed << 20);
            let effects: Vec<f64> = (0..SITES).map(|_| TAU * random.normal()).collect();
            let records = records(&effects, &mut random);
            for (task, row) in [(&with, &mut grouped), (&without, &mut plain)] {
                let one = |site: u32| table(task, &records, Some(site));
                let tables = if local { (0..SITES).map(one).collect() } else { vec![table(task, &records, None)] };
                let (_, history) = federate(task, tables, seed);
                row.add(task, of_run(task, &history).unwrap(), &effects);
            }
        }
        let share = |count: u32, of: u32| f64::from(count) / f64::from(of * grouped.runs);
        grouped.scales.sort_by(f64::total_cmp);
        println!(
            "| {} | {epsilon} | {:.3} | {:.3} | {:.2} | {:.3} | {:.3} | {:.3} | {:.2} |",
            if local { "local" } else { "aggregated" },
            plain.rmse(),
            grouped.rmse(),
            grouped.rmse() / plain.rmse(),
            share(grouped.fixed, 2),
            share(grouped.sites, SITES),
            share(grouped.scale, 1),
            grouped.scales[grouped.scales.len() / 2]
        );
    }
}
