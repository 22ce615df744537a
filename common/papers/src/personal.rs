//! Personal posteriors where sites differ: UCI Adult and the diabetes records, each shared out by a column, ε = 1. For every site predictions of its own
//! held-out records: with the posterior of all, with its personal one (also without heterogeneity between sites), and with what its own records say alone.
//!
//! `cargo run --release -p dp-pvi-papers -- run personal DATA_DIR [SPLITS [FILE DATE]]` prints the tables, and writes the page of the guide. Every
//! split is another division into training and held-out records, with noise of its own: there are several in order to measure, not to choose.
//!
//! Aggregated trust is played with the noise of one trusted party, which is that of a summer when every site's share is counted on.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "an example")]
#![allow(clippy::disallowed_methods, reason = "it writes its page")]

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

use dp_pvi_accounting::Epsilon;
use dp_pvi_data::{Public, load_public, select_public};
use dp_pvi_inference::methods::{Job, run};
use dp_pvi_inference::models;
use dp_pvi_inference::personal::others::Released;
use dp_pvi_inference::personal::{Heterogeneity, Known, fit, of_table};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, Payload, ReleaseId, RunId};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, Contribution, History, OwnNoise};
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, Trust};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, SiteState, UnitTable, Units};
use dp_pvi_protocol::predictive::Predictor;
use dp_pvi_simulation::noise::{SeededNoise, stream};
use dp_pvi_unsealed::Unsealed;
use ed25519_dalek::SigningKey;
use rand_core::Rng;

/// Fewest training units of a site; smaller ones are left out.
const SMALLEST: usize = 300;
/// Below so many training units a site is counted as small in the summary.
const SMALL: usize = 2000;
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

/// Held-out log-likelihood a record: posterior of all, personal, own records alone, personal without heterogeneity between sites.
type Row = [f64; 4];

/// A site over all splits.
struct Measured {
    level: String,
    training: usize,
    rows: Vec<Row>,
}

impl Measured {
    fn mean(&self, k: usize) -> f64 {
        self.rows.iter().map(|row| row[k]).sum::<f64>() / self.rows.len() as f64
    }

    /// By how much the personal posterior is better than its records alone, and the standard error over splits.
    fn over_alone(&self) -> (f64, f64) {
        let (mean, count) = (self.mean(1) - self.mean(2), self.rows.len() as f64);
        let squares: f64 = self.rows.iter().map(|row| (row[1] - row[2] - mean).powi(2)).sum();
        (mean, (squares / (count - 1.0).max(1.0) / count).sqrt())
    }

    fn better_than_both(&self, k: usize) -> bool {
        self.mean(k) > self.mean(0) && self.mean(k) > self.mean(2)
    }
}

/// In how many of so many sites.
#[derive(Default)]
struct Counts {
    sites: usize,
    over_all: usize,
    over_alone: usize,
    over_both: usize,
    exact_over_both: usize,
    clearly_over_alone: usize,
    clearly_below_alone: usize,
}

impl Counts {
    fn of(sites: &[&Measured]) -> Self {
        let count = |holds: &dyn Fn(&Measured) -> bool| sites.iter().filter(|site| holds(site)).count();
        Self {
            sites: sites.len(),
            over_all: count(&|site| site.mean(1) > site.mean(0)),
            over_alone: count(&|site| site.over_alone().0 > 0.0),
            over_both: count(&|site| site.better_than_both(1)),
            exact_over_both: count(&|site| site.better_than_both(3)),
            clearly_over_alone: count(&|site| site.over_alone().0 > 2.0 * site.over_alone().1),
            clearly_below_alone: count(&|site| site.over_alone().0 < -2.0 * site.over_alone().1),
        }
    }

    fn row(&self, name: &str) -> String {
        let Self { sites, over_all, over_alone, over_both, exact_over_both, clearly_over_alone, clearly_below_alone } = self;
        let share = 100.0 * *over_both as f64 / *sites as f64;
        format!(
            "| {name} | {sites} | {over_all} | {over_alone} | **{over_both}** ({share:.0} %) | {clearly_over_alone} | {clearly_below_alone} | {exact_over_both} |\n"
        )
    }
}

/// Runs it with the arguments that follow its name.
///
/// # Errors
/// What it reads or writes.
pub fn main(arguments: Vec<String>) -> Result<(), Box<dyn Error>> {
    let data = PathBuf::from(arguments.first().ok_or("name the directory of the data")?);
    let splits: u64 = arguments.get(1).map_or(Ok(10), |splits| splits.parse())?;
    let (mut tables, mut summary, mut all) = (String::new(), String::new(), Vec::new());
    for split in &SPLITS {
        let schema = std::fs::read_to_string(Path::new("deploy/experiments").join(split.schema))?;
        for trust in [Trust::Local, Trust::Aggregated] {
            let sites = measured(split, &schema, trust, &data, splits)?;
            let name = format!("{}, {}", split.name, if trust == Trust::Local { "local trust" } else { "aggregated trust" });
            let mut table = format!(
                "### {name}\n\n| site | records | all | personal | alone | personal − alone | ± | better than both |\n|---|---|---|---|---|---|---|---|\n"
            );
            for site in &sites {
                let (difference, error) = site.over_alone();
                let _ = writeln!(
                    table,
                    "| {} | {} | {:.4} | {:.4} | {:.4} | {difference:+.5} | {error:.5} | {} |",
                    site.level,
                    site.training,
                    site.mean(0),
                    site.mean(1),
                    site.mean(2),
                    if site.better_than_both(1) { "yes" } else { "no" }
                );
            }
            let row = Counts::of(&sites.iter().collect::<Vec<_>>()).row(&name);
            println!("{table}\n{row}");
            let _ = writeln!(tables, "{table}");
            summary += &row;
            all.extend(sites);
        }
    }
    summary += &Counts::of(&all.iter().collect::<Vec<_>>()).row("all");
    let (small, large): (Vec<&Measured>, Vec<&Measured>) = all.iter().partition(|site| site.training < SMALL);
    summary += &Counts::of(&small).row(&format!("of these: fewer than {SMALL} training records"));
    summary += &Counts::of(&large).row(&format!("of these: {SMALL} and more"));
    println!("{summary}");
    if let [_, _, file, date] = arguments.as_slice() {
        std::fs::write(file, page(date, splits, &summary, &tables))?;
    }
    Ok(())
}

fn page(date: &str, splits: u64, summary: &str, tables: &str) -> String {
    format!(
        "# Personal posteriors\n\n\
         *Made on {date} by `cargo run --release -p dp-pvi-papers -- run personal DATA_DIR {splits} FILE {date}`.*\n\n\
         Sites that differ, ε = 1: does a site predict its own patients better with its \
         [personal posterior](../site.md#the-personal-posterior-for-the-site-alone) than with the posterior of all, and than with its own records alone?\n\n\
         UCI Adult and diabetes data, shared out by a column: a site for each of its levels with at least {SMALLEST} training units. Natural gradients with full covariance, \
         {ROUNDS} rounds. Figures are the held-out log-likelihood a record, means over {splits} divisions of each site into training (four fifths) and held-out units, each \
         with noise of its own. One division alone cannot tell posteriors of a site apart: their difference is smaller than what its held-out records make of it.\n\n\
         *Clearly* better or worse is a difference of more than twice its standard error over divisions. Where a site is neither, these data do not tell. The standard \
         error is a little too small, because divisions share records. *Personal* is `personalise --heterogeneity learned`. *Exactly q/t_k* is the personal posterior without heterogeneity, the default, for which all sites are samples of one model.\n\n\
         | split | sites | better than all | better than alone | better than both | clearly better than alone | clearly worse than alone | better than both, exactly q/t_k |\n\
         |---|---|---|---|---|---|---|---|\n{summary}\n\
         ## Every site\n\n{}\n",
        tables.trim_end()
    )
}

/// All sites of a split, over all divisions into training and held-out records. All cores take divisions in turn.
fn measured(split: &Split, schema: &str, trust: Trust, data: &Path, splits: u64) -> Result<Vec<Measured>, Box<dyn Error>> {
    let of = |seed: u64| -> Result<Vec<Measured>, String> {
        let made = || -> Result<Vec<Measured>, Box<dyn Error>> {
            let task = task(schema, trust)?;
            let sites = sites(split, &task, data, seed)?;
            let rows = federation(&task, trust, &sites, seed)?;
            let measured = |(site, row): (Site, Row)| Measured { level: site.level, training: site.training.len(), rows: vec![row] };
            Ok(sites.into_iter().zip(rows).map(measured).collect())
        };
        made().map_err(|e| e.to_string())
    };
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let step = usize::try_from(threads)?;
    let parts: Vec<Result<Vec<_>, String>> = thread::scope(|scope| {
        let part = |first: u64| scope.spawn(move || (first..=splits).step_by(step).map(of).collect());
        let parts: Vec<_> = (1..=threads).map(part).collect();
        // A part that panicked has said why.
        parts.into_iter().map(|part| part.join().unwrap_or_else(|_| Err("a division failed".into()))).collect()
    });
    let mut all: Vec<Measured> = Vec::new();
    for division in parts.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        match all.is_empty() {
            true => all = division,
            false => all.iter_mut().zip(division).for_each(|(site, more)| site.rows.extend(more.rows)),
        }
    }
    Ok(all)
}

fn task(schema: &str, trust: Trust) -> Result<ResolvedTask, Box<dyn Error>> {
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"{}\"\napproximation = \"full-covariance\"\nprior_units = \"encoded\"\nprior_scale = 1.0\n[schema]\nfile = \"schema.toml\"\n[pvi]\n\
         schedule = \"synchronous\"\nrounds = {ROUNDS}\nupdate = \"natural-gradient\"\n[privacy]\nunit = \"{}\"\nadjacency = \"replace-one\"\n\
         epsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n",
        if schema.contains("unit_column") { "readmitted" } else { "income" },
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
        state = rule.apply(&state, &VisitSum { visit, sites: u32::try_from(sites.len())?, sum: &sum }).state;
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
        let personal = |heterogeneity| {
            of_table(&Known { task: &seen, plain: task.posterior(&state), released, heterogeneity, scale: None }, &site.training)
        };
        let (alone, _) = fit(model.as_ref(), &site.training, family, &prior, &prior[family.dimension()..]).ok_or("no optimum")?;
        let of = |natural: &[f64]| Predictor::new(&task.model, family, natural).map(|predictor| held_out(&predictor, site));
        let (learned, exact) = (personal(Heterogeneity::Learned)?, personal(Heterogeneity::None)?);
        rows.push([of(&all)?, of(&learned.natural)?, of(alone.natural())?, of(&exact.natural)?]);
    }
    Ok(rows)
}

fn held_out(predictor: &Predictor, site: &Site) -> f64 {
    let records: Vec<_> = site.held_out.get().records().collect();
    let density = |record: &dp_pvi_inference::records::RecordView<'_>| predictor.log_density(record.example());
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
        let budget = Budget { epsilon, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: false };
        let ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[1; 32]), identity, budget);
        // A ledger in memory is empty, and an empty one opens.
        Self { units: Units::new(table), ledger: ledger.expect("a ledger in memory opens"), client }
    }

    fn visit(&mut self, task: &ResolvedTask, visit: u32, state: &[f64], seed: u64) -> Result<Vec<f64>, Box<dyn Error>> {
        let run_of = RunId { task: task.hash(), number: 0 };
        let release = ReleaseId { run: run_of, client: ClientId::new(&self.client)?, round: visit };
        if !self.ledger.is_planned(&release.run) {
            self.ledger.plan_run(&release.run, &task.visit_events(0..task.visits())?, None)?;
        }
        let permit = self.ledger.reserve(&release, &task.visit_event(visit)?, Hash::default())?;
        let job = Job { site: None, task, visit, lambda: state, state: &SiteState::None };
        let output = run(&job, &self.units, permit, &SeededNoise::new(seed))?;
        let released = output.message.released().ok_or("a share of noise")?;
        Ok(match released.get() {
            Payload::Values(values) => values.clone(),
            Payload::Lattice(sum) | Payload::Masked(sum) => sum.to_f64(),
        })
    }
}
