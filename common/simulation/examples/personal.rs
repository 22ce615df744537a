//! Personal posteriors where sites differ: UCI Adult and the diabetes records, each shared out by a column, ε = 1. For every site three predictions of
//! its own held-out records: with the posterior of all, with its personal one, and with what its own records say alone.
//!
//! `cargo run --release -p dp-pvi-simulation --example personal -- DATA_DIR [SEEDS]` prints the tables of `deploy/guide/src/results/personal.md`.
//!
//! Aggregated trust is played with the noise of one trusted party, which is that of a summer when every site's share is counted on.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "an example")]

use std::error::Error;
use std::path::{Path, PathBuf};

use dp_pvi_accounting::Epsilon;
use dp_pvi_data::{Public, load_public, select_public};
use dp_pvi_expfam::any::Gaussian;
use dp_pvi_inference::methods::{Job, run};
use dp_pvi_inference::models;
use dp_pvi_inference::personal::{Known, fit, of_table};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_posterior::methods::Arrived;
use dp_pvi_posterior::reading::noise_aware::{ClosedRound, Contribution, History, OwnNoise, of_run};
use dp_pvi_posterior::reading::personal::Released;
use dp_pvi_posterior::reading::predictive::{Example, Predictor};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, Trust};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{ClientId, Hash, Ledger, Payload, ReleaseId, RunId, SiteState, UnitTable, Units};
use dp_pvi_simulator::noise::{SeededNoise, stream};
use ed25519_dalek::SigningKey;
use rand_core::Rng;

/// Fewest training units of a site; smaller ones are left out.
const SMALLEST: usize = 300;
const ROUNDS: u32 = 10;

/// A data set, shared out by a column with levels.
struct Split {
    name: &'static str,
    files: &'static [&'static str],
    schema: &'static str,
    column: &'static str,
}

const SPLITS: [Split; 5] = [
    Split { name: "Adult by occupation", files: ADULT, schema: "adult.schema.toml", column: "occupation" },
    Split { name: "Adult by education", files: ADULT, schema: "adult.schema.toml", column: "education" },
    Split { name: "Adult by family", files: ADULT, schema: "adult.schema.toml", column: "relationship" },
    Split { name: "diabetes by age", files: DIABETES, schema: "diabetes.schema.toml", column: "age" },
    Split { name: "diabetes by way of discharge", files: DIABETES, schema: "diabetes.schema.toml", column: "discharge_disposition_id" },
];
const ADULT: &[&str] = &["adult/adult.data.gz", "adult/adult.test.gz"];
const DIABETES: &[&str] = &["health/diabetes-130/diabetic_data.csv.gz"];

/// One site's records.
struct Site {
    level: String,
    training: RecordTable,
    held_out: Public<RecordTable>,
}

/// Held-out log-likelihood a record: posterior of all, personal, own records alone.
type Row = [f64; 3];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let data = PathBuf::from(arguments.next().ok_or("name the directory of the data")?);
    let seeds: u64 = arguments.next().map_or(Ok(3), |seeds| seeds.parse())?;
    let mut summary = Vec::new();
    for split in &SPLITS {
        let schema = std::fs::read_to_string(Path::new("deploy/experiments").join(split.schema))?;
        for trust in [Trust::Local, Trust::Aggregated] {
            let mut rows: Vec<(String, usize, Row)> = Vec::new();
            for seed in 1..=seeds {
                let task = task(&schema, trust)?;
                let sites = sites(split, &task, &data, seed)?;
                let found = federation(&task, trust, &sites, seed)?;
                if rows.is_empty() {
                    rows = sites.iter().map(|site| (site.level.clone(), site.training.len(), [0.0; 3])).collect();
                }
                for ((_, _, sum), row) in rows.iter_mut().zip(found) {
                    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value / seeds as f64);
                }
            }
            let words = match trust {
                Trust::Local => "local trust",
                Trust::Aggregated => "aggregated trust",
            };
            println!("### {}, {words}\n", split.name);
            println!("| site | records | all | personal | alone |\n|---|---|---|---|---|");
            for (level, records, [all, personal, alone]) in &rows {
                println!("| {level} | {records} | {all:.4} | {personal:.4} | {alone:.4} |");
            }
            println!();
            let count = |better: fn(&Row) -> bool| rows.iter().filter(|(_, _, row)| better(row)).count();
            let both = count(|[all, personal, alone]| personal > all && personal > alone);
            let (over_all, over_alone) = (count(|row| row[1] > row[0]), count(|row| row[1] > row[2]));
            let mean = |k: usize| rows.iter().map(|(_, _, row)| row[k]).sum::<f64>() / rows.len() as f64;
            summary.push(format!(
                "| {} | {words} | {} | {over_all} | {over_alone} | {both} | {:.4} | {:.4} | {:.4} |",
                split.name,
                rows.len(),
                mean(0),
                mean(1),
                mean(2)
            ));
        }
    }
    println!("| split | trust | sites | better than all | better than alone | better than both | all | personal | alone |");
    println!("|---|---|---|---|---|---|---|---|---|\n{}", summary.join("\n"));
    Ok(())
}

fn task(schema: &str, trust: Trust) -> Result<ResolvedTask, Box<dyn Error>> {
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\napproximation = \"full-covariance\"\nprior_scale = 1.0\n[schema]\nfile = \"schema.toml\"\n[pvi]\n\
         schedule = \"synchronous\"\nrounds = {ROUNDS}\nupdate = \"natural-gradient\"\n[privacy]\nunit = \"{}\"\nadjacency = \"replace-one\"\n\
         epsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\n",
        if schema.contains("unit_column") { "person" } else { "record" }
    );
    // Under aggregated trust one trusted party adds the noise.
    let sites = if trust == Trust::Local { 10 } else { 1 };
    let context = ResolveContext { name: "personal", update_deadline_seconds: 60, min_sites: 1, expected_sites: sites };
    Ok(RawTask::parse(&text)?.resolve(schema, context)?)
}

/// The sites of a split, in the order of the schema's levels.
fn sites(split: &Split, task: &ResolvedTask, data: &Path, seed: u64) -> Result<Vec<Site>, Box<dyn Error>> {
    let files: Vec<PathBuf> = split.files.iter().map(|file| data.join(file)).collect();
    let records = load_public(&task.parsed_schema()?, &files, None)?;
    let table = records.get();
    let names = task.parameter_names()?;
    let prefix = format!("{}=", split.column);
    let levels = names.iter().enumerate().filter(|(_, name)| name.starts_with(&prefix));
    let mut sites = Vec::new();
    for (entry, name) in levels {
        // A person belongs where the first of its records does.
        let belongs = |unit: &usize| {
            table.unit(*unit).records().next().is_some_and(|record| record.indices.iter().any(|index| *index as usize == entry))
        };
        let mut units: Vec<usize> = (0..table.len()).filter(belongs).collect();
        shuffle(&mut units, seed);
        let training = units.split_off(units.len() / 5);
        if training.len() < SMALLEST {
            continue;
        }
        let select = |units: &[usize]| select_public(table.dimension(), &[(&records, units)]);
        sites.push(Site { level: name[prefix.len()..].to_owned(), training: select(&training).get().clone(), held_out: select(&units) });
    }
    Ok(sites)
}

fn shuffle(units: &mut [usize], seed: u64) {
    let mut random = stream(seed, "personal split", 0);
    for last in (1..units.len()).rev() {
        units.swap(last, usize::try_from(random.next_u64() % (last as u64 + 1)).unwrap_or(0));
    }
}

/// Runs the federation; what each site then predicts of its own held-out records.
fn federation(task: &ResolvedTask, trust: Trust, sites: &[Site], seed: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let own: Vec<&RecordTable> = sites.iter().map(|site| &site.training).collect();
    // Who adds noise: every site, or one trusted party to the sum of all.
    let mut parties = match trust {
        Trust::Local => own.iter().enumerate().map(|(number, table)| Party::new(task, (*table).clone(), number)).collect(),
        Trust::Aggregated => vec![Party::new(task, joined(&own), 0)],
    };
    let mut seen = task.clone();
    seen.privacy.trust = trust;
    let rule = seen.rule();
    let mut state = rule.initial();
    let mut history = History { shares: vec![1.0 / sites.len() as f64; sites.len()], rounds: Vec::new() };
    let mut sent: Vec<Vec<Option<Vec<f64>>>> = vec![Vec::new(); sites.len()];
    for visit in 0..task.visits() {
        let mut sum: Vec<f64> = Vec::new();
        for (number, party) in parties.iter_mut().enumerate() {
            let message = party.visit(task, visit, &state, seed)?;
            sum.resize(message.len(), 0.0);
            sum.iter_mut().zip(&message).for_each(|(sum, value)| *sum += value);
            if trust == Trust::Local {
                sent[number].push(Some(message));
            }
        }
        state = rule.apply(&state, &Arrived { visit, sites: u32::try_from(sites.len())?, sum: &sum }).state;
        let included = (0..sites.len()).collect();
        history.rounds.push(ClosedRound { visit, included, state: state.clone(), correction: None });
    }
    let (family, prior) = (task.family(), task.prior_natural());
    let all = of_run(&seen, &history)?.natural_parameters;
    let model = models::from_spec(&task.model)?;
    let mut rows = Vec::new();
    for (number, site) in sites.iter().enumerate() {
        let mut sums = std::mem::take(&mut sent[number]);
        sums.resize(history.rounds.len(), None);
        let released = Released::Sums(history.clone(), Contribution { site: number, sums, noise: OwnNoise::Goes });
        // Behind a summer a site knows no sum of its own.
        let released = &released;
        let personal = of_table(&Known { task: &seen, plain: task.posterior(&state), released }, &site.training)?;
        let (alone, _) = fit(model.as_ref(), &site.training, family, &prior, &prior[family.dimension()..]).ok_or("no optimum")?;
        let of = |natural: &[f64]| Predictor::new(&task.model, family, natural).map(|predictor| held_out(&predictor, site));
        rows.push([of(&all)?, of(&personal.natural)?, of(natural(&alone))?]);
    }
    Ok(rows)
}

fn natural(q: &Gaussian) -> &[f64] {
    q.natural()
}

fn held_out(predictor: &Predictor, site: &Site) -> f64 {
    let records: Vec<_> = site.held_out.get().records().collect();
    let density = |record: &dp_pvi_inference::records::RecordView<'_>| {
        predictor.log_density(Example { indices: record.indices, values: record.values, target: record.target })
    };
    records.iter().map(density).sum::<f64>() / records.len().max(1) as f64
}

fn joined(tables: &[&RecordTable]) -> RecordTable {
    let mut builder = RecordTable::builder(tables.first().map_or(0, |table| table.dimension()));
    for table in tables {
        for unit in 0..table.len() {
            builder.start_unit();
            for record in table.unit(unit).records() {
                // Rows of a table fit a table.
                builder.push(record.indices, record.values, record.target).unwrap_or_default();
            }
        }
    }
    builder.finish()
}

/// Who releases a sum.
struct Party {
    units: Units<RecordTable>,
    ledger: Ledger<MemoryStore, SigningKey>,
    client: String,
}

impl Party {
    fn new(task: &ResolvedTask, table: RecordTable, number: usize) -> Self {
        let client = format!("site-{number}");
        let identity = LedgerIdentity { data: client.clone(), unit: task.privacy.unit, relation: task.privacy.relation };
        let epsilon = task.privacy.epsilon.unwrap_or(Epsilon::INFINITE);
        let budget = Budget { epsilon, delta: task.privacy.delta, per_run: None, allow_non_private: false };
        let ledger = Ledger::open(MemoryStore::new(), SigningKey::from_bytes(&[1; 32]), identity, budget);
        // A ledger in memory is empty, and an empty one opens.
        Self { units: Units::new(table), ledger: ledger.expect("a ledger in memory opens"), client }
    }

    fn visit(&mut self, task: &ResolvedTask, visit: u32, state: &[f64], seed: u64) -> Result<Vec<f64>, Box<dyn Error>> {
        let run_of = RunId { task: task.hash(), number: 0 };
        let release = ReleaseId { run: run_of, client: ClientId::new(&self.client)?, round: visit };
        let permit = self.ledger.reserve(&release, &task.visit_event(visit)?, Hash::default())?;
        let job = Job { task, visit, lambda: state, state: &SiteState::None };
        let output = run(&job, &self.units, permit, &SeededNoise::new(seed))?;
        let released = output.message.released().ok_or("a share of noise")?;
        Ok(match released.get() {
            Payload::Values(values) => values.clone(),
            Payload::Lattice(sum) | Payload::Masked(sum) => sum.to_f64(),
        })
    }
}
