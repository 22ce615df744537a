//! Times until an event in five hospitals: hazard ratios of a federation beside those of one fit of all records without protection, in how many federations intervals hold the
//! truth, and how well records are put in order.
//!
//! `cargo run --release -p dp-pvi-papers -- run survival [REPLICATIONS] [SVG]` prints the tables of the guide and writes its picture. Five sites with 2,000 records each; hazards a month
//! are `HAZARDS` between `CUTS`, times e to the predictor −0.5 treated + 0.45 age (per 15 years) + 0.5 (stage II) or 1.1 (stage III); watching ends between 12 and 60 months. Noise is
//! that of every site (local trust), or once that of the sum (aggregated).
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#![allow(clippy::disallowed_methods, reason = "an experiment on invented records prints its table")]

use std::fmt::Write;

use crate::synthetic::federation::{Random, federate};
use dp_pvi_inference::models::from_spec;
use dp_pvi_math::expfam::any::{Gaussian, Standard};
use dp_pvi_models::prediction::Level;
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_protocol::summary::{Coefficient, coefficients};
use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_schema::formula::{Cell, Record, RowSpace};
use dp_pvi_schema::public::{Example, Extra};

const SITES: usize = 5;
const ROWS: usize = 2000;
const TEST: usize = 2000;
const CUTS: [f64; 5] = [0.0, 6.0, 18.0, 36.0, 60.0];
const HAZARDS: [f64; 4] = [0.03, 0.02, 0.012, 0.012];
const RATIOS: [f64; 4] = [-0.5, 0.45, 0.5, 1.1];
const NAMES: [&str; 4] = ["treated", "age, 15 years more", "stage II", "stage III"];
const SCHEMA: &str = "version = 2\n[[columns]]\nname = \"months\"\nkind = \"number\"\nlower = 0\nupper = 60\ncentre = 0\nscale = 1\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\n\
    [[columns]]\nname = \"treated\"\nkind = \"boolean\"\n[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 30\nupper = 90\ncentre = 60\nscale = 15\n\
    [[columns]]\nname = \"stage\"\nkind = \"category\"\nvalues = [\"I\", \"II\", \"III\"]\n";

fn task(epsilon: f64, sites: u32) -> ResolvedTask {
    let text = format!(
        "[model]\nfamily = \"survival-regression\"\napproximation = \"full-covariance\"\nformula = \"Surv(months, died) ~ treated + age + stage\"\ncuts = {CUTS:?}\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = 20\nupdate = \"natural-gradient\"\nresidual_bound = 1.0\n[privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\n\
         epsilon = {epsilon}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "survival", update_deadline_seconds: 60, min_sites: sites, expected_sites: sites };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

/// Treated, age, stage, months, died.
type Drawn = (bool, f64, u32, f64, bool);

fn records(count: usize, random: &mut Random) -> Vec<Drawn> {
    let one = |_| {
        let (treated, age) = (random.uniform() < 0.5, (60.0 + 12.0 * random.normal()).clamp(30.0, 90.0));
        let stage = [0.5, 0.8].iter().filter(|end| random.uniform() >= **end).count() as u32;
        let stage_effect = [0.0, RATIOS[2], RATIOS[3]][stage as usize];
        let eta = RATIOS[0] * f64::from(u8::from(treated)) + RATIOS[1] * (age - 60.0) / 15.0 + stage_effect;
        let mut left = -(1.0 - random.uniform()).ln();
        let mut time = f64::INFINITY;
        for (ends, hazard) in CUTS.windows(2).zip(HAZARDS) {
            let part = hazard * eta.exp() * (ends[1] - ends[0]);
            if left <= part {
                time = ends[0] + (ends[1] - ends[0]) * left / part;
                break;
            }
            left -= part;
        }
        let end = 12.0 + 48.0 * random.uniform();
        (treated, age, stage, time.min(end), time <= end)
    };
    (0..count).map(one).collect()
}

/// The entries of a record's row by the formula.
fn row(task: &ResolvedTask, (treated, age, stage): (bool, f64, u32)) -> (Vec<u32>, Vec<f64>) {
    let schema = task.parsed_schema().unwrap();
    let cells = [Cell::Level(u32::from(treated)), Cell::Number(age), Cell::Level(stage)];
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    schema.design().unwrap().row(
        &Record { cells: &cells, filled: &[false; 3], site: None },
        &mut RowSpace::default(),
        |position, value| {
            indices.push(position);
            values.push(value);
        },
    );
    (indices, values)
}

fn table(task: &ResolvedTask, records: &[Drawn]) -> RecordTable {
    let mut builder = RecordTable::builder(task.features as usize);
    for &(treated, age, stage, target, event) in records {
        let (indices, values) = row(task, (treated, age, stage));
        builder.start_unit();
        let extra = Extra { event, ..Extra::NONE };
        builder.push_record(RecordView { indices: &indices, values: &values, target, offset: 0.0, extra }).unwrap();
    }
    builder.finish()
}

/// The posterior of all records together, without protection.
fn pooled(task: &ResolvedTask, records: &[Drawn]) -> Gaussian {
    let prior = Gaussian::from_natural(task.family(), task.setting().prior_natural()).unwrap();
    let model = from_spec(&task.model).unwrap();
    model.local_optimum().unwrap().weighted_optimum(&table(task, records), 1.0, 1e-8, &prior, &prior).unwrap()
}

/// The noise-aware posterior of a federation.
fn federation(task: &ResolvedTask, records: &[Drawn], local: bool, seed: u64) -> Gaussian {
    let tables = if local { records.chunks(ROWS).map(|site| table(task, site)).collect() } else { vec![table(task, records)] };
    let (_, history) = federate(task, tables, seed);
    Gaussian::from_natural(task.family(), of_run(task, &history).unwrap().natural_parameters).unwrap()
}

/// The four ratios' logarithms, and the logarithms of the hazards before them.
fn found(task: &ResolvedTask, q: &Gaussian) -> Vec<Coefficient> {
    coefficients(&task.parameter_names().unwrap(), q.standard())
}

/// Share of the comparable pairs in which the record with the earlier event has the larger predictor.
fn concordance(task: &ResolvedTask, q: &Standard, records: &[Drawn]) -> f64 {
    let own = HAZARDS.len();
    let risk = |record: &Drawn| -> f64 {
        let (indices, values) = row(task, (record.0, record.1, record.2));
        indices.iter().zip(values).map(|(j, x)| x * q.mean()[own + *j as usize]).sum()
    };
    let risks: Vec<f64> = records.iter().map(risk).collect();
    let (mut pairs, mut right) = (0.0, 0.0);
    for (i, first) in records.iter().enumerate().filter(|(_, record)| record.4) {
        for (j, _) in records.iter().enumerate().filter(|(_, other)| other.3 > first.3) {
            pairs += 1.0;
            right += if risks[i] > risks[j] {
                1.0
            } else if risks[i] < risks[j] {
                0.0
            } else {
                0.5
            };
        }
    }
    right / pairs
}

#[derive(Default)]
struct Sums {
    squares: f64,
    from_pooled: f64,
    ratios: u32,
    baseline: u32,
    width: f64,
    concordance: f64,
}

impl Sums {
    fn add(&mut self, task: &ResolvedTask, q: &Gaussian, pooled: &Gaussian, test: &[Drawn]) {
        let own = HAZARDS.len();
        let (found, other) = (found(task, q), found(task, pooled));
        let inside = |c: &Coefficient, truth: f64| u32::from((c.interval_90.lower..=c.interval_90.upper).contains(&truth));
        for j in 0..own {
            self.baseline += inside(&found[j], HAZARDS[j].ln());
            let (c, all, truth) = (&found[own + j], &other[own + j], RATIOS[j]);
            self.ratios += inside(c, truth);
            self.squares += (c.mean - truth).powi(2);
            self.from_pooled += (c.mean - all.mean).powi(2);
            self.width += c.interval_90.upper - c.interval_90.lower;
        }
        self.concordance += concordance(task, q.standard(), test);
    }
}

/// S(t) of an untreated and of a treated record of stage II, aged 60: without protection, and of a federation at ε = 1 with its band.
fn picture(task: &ResolvedTask, pooled: &Gaussian, private: &Gaussian) -> String {
    const SIZE: (f64, f64) = (560.0, 300.0);
    let x = |time: f64| 50.0 + (SIZE.0 - 70.0) * time / 60.0;
    let y = |survival: f64| 20.0 + (SIZE.1 - 70.0) * (1.0 - survival);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\"><title>Survival of an untreated and of a treated record</title>\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>",
        SIZE.0, SIZE.1
    );
    for tick in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let _ = write!(
            svg,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"42\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
            x(0.0),
            x(60.0),
            y(tick) + 4.0,
            at = y(tick)
        );
    }
    for tick in [0.0, 12.0, 24.0, 36.0, 48.0, 60.0] {
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>", x(tick), y(0.0) + 18.0);
    }
    let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">months</text>", x(30.0), y(0.0) + 38.0);
    for (treated, colour, name) in [(false, "#c0392b", "untreated"), (true, "#1f6fb2", "treated")] {
        let (indices, values) = row(task, (treated, 60.0, 1));
        let row = Example { indices: &indices, values: &values, target: 0.0, offset: 0.0, extra: Extra::NONE };
        let at =
            |q: &Gaussian, time: f64| task.model.rules().response().as_survival().unwrap().log_cumulative_hazard(q.standard(), row, time);
        let times = || (0..=60).map(f64::from);
        let path = |points: Vec<(f64, f64)>| points.iter().map(|(t, s)| format!("{:.1},{:.1}", x(*t), y(*s))).collect::<Vec<_>>().join(" ");
        let band = |t: f64| at(private, t).band(Level::P95);
        let outline =
            times().map(|t| (t, band(t).upper)).chain(times().collect::<Vec<_>>().into_iter().rev().map(|t| (t, band(t).lower))).collect();
        let _ = write!(
            svg,
            "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.18\"/><polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"5 4\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{colour}\">{name}</text>",
            path(outline),
            path(times().map(|t| (t, at(private, t).survival())).collect()),
            path(times().map(|t| (t, at(pooled, t).survival())).collect()),
            x(60.0),
            y(band(60.0).upper) - 6.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let mut arguments = arguments.into_iter();
    let replications: u64 = arguments.next().map_or(100, |text| text.parse().unwrap());
    let settings = [(1.0, true), (1.0, false), (4.0, true), (4.0, false)];
    let tasks: Vec<ResolvedTask> = settings.iter().map(|(epsilon, local)| task(*epsilon, if *local { SITES as u32 } else { 1 })).collect();
    let own = HAZARDS.len();
    let (mut all, mut sums) = (Sums::default(), [(); 4].map(|()| Sums::default()));
    let mut known = 0.0;
    for seed in 1..=replications {
        let mut random = Random(seed << 20);
        let drawn = records(SITES * ROWS, &mut random);
        let test = records(TEST, &mut random);
        let exact = pooled(&tasks[0], &drawn);
        all.add(&tasks[0], &exact, &exact, &test);
        let truth: Vec<f64> = HAZARDS.iter().map(|hazard| hazard.ln()).chain(RATIOS).collect();
        let certain = dp_pvi_math::expfam::gaussian::diagonal::Standard::new(truth, vec![1.0; own + RATIOS.len()]).unwrap();
        known += concordance(&tasks[0], &Standard::Diagonal(certain), &test);
        let private: Vec<Gaussian> = tasks.iter().zip(settings).map(|(task, (_, local))| federation(task, &drawn, local, seed)).collect();
        for ((sums, task), q) in sums.iter_mut().zip(&tasks).zip(&private) {
            sums.add(task, q, &exact, &test);
        }
        if seed == 1 {
            println!(
                "| hazard ratio | truth | no protection | ε = 1, local | ε = 1, aggregated | ε = 4, local | ε = 4, aggregated |\n|---|---|---|---|---|---|---|"
            );
            let cell = |task: &ResolvedTask, q: &Gaussian, j: usize| {
                let c = &found(task, q)[own + j];
                format!("{:.2} ({:.2} to {:.2})", c.mean.exp(), c.interval_90.lower.exp(), c.interval_90.upper.exp())
            };
            for (j, name) in NAMES.iter().enumerate() {
                let cells: Vec<String> = tasks.iter().zip(&private).map(|(task, q)| cell(task, q, j)).collect();
                println!("| {name} | {:.2} | {} | {} |", RATIOS[j].exp(), cell(&tasks[0], &exact, j), cells.join(" | "));
            }
            if let Some(path) = arguments.next() {
                std::fs::write(path, picture(&tasks[0], &exact, &private[0])).unwrap();
            }
            println!();
        }
    }
    println!("| fit | error | from the fit without protection | width | ratios | hazards | concordance |\n|---|---|---|---|---|---|---|");
    let count = replications as f64;
    let line = |name: &str, sums: &Sums| {
        let each = count * own as f64;
        println!(
            "| {name} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} |",
            (sums.squares / each).sqrt(),
            (sums.from_pooled / each).sqrt(),
            sums.width / each,
            f64::from(sums.ratios) / each,
            f64::from(sums.baseline) / each,
            sums.concordance / count
        );
    };
    line("no protection", &all);
    for ((epsilon, local), sums) in settings.iter().zip(&sums) {
        line(&format!("ε = {epsilon}, {}", if *local { "local" } else { "aggregated" }), sums);
    }
    println!("| the truth | | | | | | {:.3} |", known / count);
}
