//! Intervals on real data: is the noise-aware posterior where the unprotected one is, and does it predict as well as the plain one?
//!
//! `cargo run --release -p dp-pvi-papers -- run real [DATA_DIR [RUNS [FILE DATE [PRIOR_SCALE]]]]` prints a row a setting, and writes the page of the guide.
//! A fifth of the records is held out. The unprotected posterior is the fit of all others, pooled. z is the distance of a coefficient's noise-aware mean from
//! the unprotected one, in standard deviations of the noise-aware posterior; with treatment coding every coefficient but the intercept is a contrast.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on public records: it shows its progress and writes its page")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use crate::synthetic::federation::federate;
use crate::synthetic::sets::{Set, load, sets, split};
use dp_pvi_inference::models::from_spec;
use dp_pvi_inference::personal::fit;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::UnitTable;
use dp_pvi_protocol::predictive::Predictor;
use dp_pvi_records::RecordTable;

const ROUNDS: u32 = 20;
const SITES: usize = 5;

/// Regressions of a set: as sites protect their records, or the sum of all.
fn task(set: &Set, epsilon: f64, sites: usize, prior_scale: f64) -> ResolvedTask {
    let text = format!(
        "[model]\noutcome = \"{}\"\n{}\nprior_units = \"encoded\"\nprior_scale = {prior_scale}\napproximation = \"full-covariance\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = {ROUNDS}\n\
         update = \"natural-gradient\"\n{}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = {epsilon}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n",
        set.outcome, set.model, set.bounds
    );
    let sites = u32::try_from(sites).unwrap();
    let context = ResolveContext { name: "real", update_deadline_seconds: 60, min_sites: sites, expected_sites: sites };
    RawTask::parse(&text).unwrap().resolve(&set.schema, context).unwrap()
}

/// Mean log predictive density of records.
fn held_out(task: &ResolvedTask, natural: &[f64], records: &RecordTable) -> f64 {
    let predictor = Predictor::new(&task.model, task.family(), natural).unwrap();
    let all = records.records().map(|record| predictor.log_density(record.example()));
    all.sum::<f64>() / records.len() as f64
}

fn joined(tables: &[RecordTable]) -> RecordTable {
    let mut builder = RecordTable::builder(tables[0].dimension());
    for record in tables.iter().flat_map(RecordTable::records) {
        builder.start_unit();
        builder.push(record.indices, record.values, record.target).unwrap();
    }
    builder.finish()
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a position")]
    let position = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len());
    values[position - 1]
}

/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let data = PathBuf::from(arguments.first().map_or("../shared/data", String::as_str));
    let runs: u64 = arguments.get(1).map_or(3, |text| text.parse().unwrap());
    let prior_scale: f64 = arguments.get(4).map_or(1.0, |text| text.parse().unwrap());
    let began = Instant::now();
    let date = arguments.get(3).map_or("a day that was not given", String::as_str);
    let mut page = format!(
        "# Intervals and predictions on real data\n\n*Made on {date} by `cargo run --release -p dp-pvi-papers -- run real DATA_DIR {runs} FILE {date}`.*\n\n\
         Is the noise-aware posterior where the unprotected one is, and does it predict as well as the plain one, the posterior as it came out of the run? Natural \
         gradients with full covariance, {ROUNDS} rounds, five sites (*local*) or one sum (*aggregated*), δ = 1e-5, replace-one, defaults; the noise of the two \
         linear regressions is given. A fifth of the records is held out. Figures are over {runs} divisions, each with noise of its own.\n\n\
         *|z| at 95 %* is the 95 % quantile over coefficients of the distance between noise-aware and unprotected means, in standard deviations of the \
         noise-aware posterior, without the intercept: with treatment coding all others are contrasts. *Worst* is the run with the largest one. Log-likelihoods are held-out ones a record.\n\n\
         | data | coefficients | noise | ε | \\|z\\| at 95 % | worst | inside the 90 % interval | noise-aware | plain | unprotected |\n|---|---|---|---|---|---|---|---|---|---|\n"
    );
    let (mut all, mut within, mut settings, mut no_worse) = (0, 0, 0, 0);
    let only = std::env::var("ONLY").unwrap_or_default();
    for set in sets().into_iter().filter(|set| set.name.contains(&only)) {
        let files: Vec<PathBuf> = set.files.iter().map(|file| data.join(file)).collect();
        let records = load(set.outcome, &set.schema, &files);
        for (words, divided) in [("local", SITES), ("aggregated", 1)] {
            for epsilon in [0.5, 1.0, 4.0, 20.0] {
                let task = task(&set, epsilon, divided, prior_scale);
                let intercept = task.parsed_schema().unwrap().intercept().map(|j| j as usize);
                let (mut ratios, mut worst, mut predicted) = (Vec::new(), 0.0_f64, [0.0; 3]);
                for seed in 1..=runs {
                    let (test, sites) = split(&records, divided, seed);
                    let (family, prior) = (task.family(), task.prior_natural());
                    let model = from_spec(&task.model).unwrap();
                    let (open, _) = fit(model.as_ref(), &joined(&sites), family, &prior, &prior[family.dimension()..]).unwrap();
                    let (state, history) = federate(&task, sites, seed);
                    let Ok(aware) = of_run(&task, &history) else {
                        println!("{}: no noise-aware posterior", set.name);
                        continue;
                    };
                    let q = gaussian(family, &aware.natural_parameters);
                    let sds: Vec<f64> = q.standard().variances().iter().map(|v| v.sqrt()).collect();
                    let means = q.standard().mean().iter().zip(open.standard().mean());
                    let contrasts = means.zip(&sds).enumerate().filter(|(j, _)| intercept != Some(*j));
                    let mut own: Vec<f64> = contrasts.map(|(_, ((a, b), sd))| (a - b).abs() / sd).collect();
                    let at_95 = quantile(&mut own, 0.95);
                    worst = worst.max(at_95);
                    all += 1;
                    within += u32::from(at_95 <= 2.5);
                    ratios.extend(own);
                    let of =
                        [aware.natural_parameters.as_slice(), task.posterior(&state), &natural(&open)].map(|q| held_out(&task, q, &test));
                    predicted.iter_mut().zip(of).for_each(|(sum, value)| *sum += value / runs as f64);
                }
                settings += 1;
                no_worse += u32::from(predicted[0] >= predicted[1] - 0.0005);
                let inside = ratios.iter().filter(|z| **z <= 1.645).count() as f64 / ratios.len() as f64;
                let row = format!(
                    "| {} | {} | {words} | {epsilon} | {:.2} | {worst:.2} | {inside:.3} | {:.4} | {:.4} | {:.4} |",
                    set.name,
                    task.dimension,
                    quantile(&mut ratios, 0.95),
                    predicted[0],
                    predicted[1],
                    predicted[2]
                );
                println!("{:.0} s: {row}", began.elapsed().as_secs_f64());
                let _ = writeln!(page, "{row}");
            }
        }
    }
    let _ = writeln!(
        page,
        "\nIn {within} of {all} runs the 95 % quantile of \\|z\\| is at most 2.5. In {no_worse} of {settings} settings the noise-aware posterior predicts held-out records at least as well as the plain one, to 0.0005 a record."
    );
    println!("{page}");
    if let Some(file) = arguments.get(2) {
        std::fs::write(file, &page).unwrap();
    }
}

fn gaussian(family: Family, natural: &[f64]) -> Gaussian {
    Gaussian::from_natural(family, natural.to_vec()).unwrap()
}

fn natural(q: &Gaussian) -> Vec<f64> {
    q.natural().to_vec()
}
