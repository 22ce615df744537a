//! An experiment file.
//!
//! ```toml
//! name = "adult-dp-optimisation"
//! seeds = [1, 2, 3, 4, 5]
//! threads = 2                                   # seeds at the same time, and sites where there are fewer seeds. Default: one per processor
//! noise = "lattice"                             # exact discrete Gaussian noise, as production adds
//! evaluate_every = 1                            # held-out metrics at every so many rounds, and at the last one
//! task = "task.toml"                            # relative to this file; or the task's sections as [task.model], …
//!
//! [data]
//! files = ["adult/adult.data.gz", "adult/adult.test.gz"]   # below --data DIR; joined in this order
//! test_fraction = 0.2                           # of all units, by a seeded permutation; or test_files = [...]
//!
//! balance = false                               # keep only as many units of the larger class as there are of the smaller
//! limit = 2000                                  # keep only so many units, by a seeded permutation; default: all
//!
//! [clients]
//! number = 10
//! rho = 0.0                                     # sizes: half the clients have n/M (1 - rho) units, half n/M (1 + rho)
//! kappa = 0.0                                   # share of the majority class at small clients: l + (1 - l) kappa
//! slicing = "contiguous"                        # or "hashed": a unit's client depends on no other unit; or "files"; or "column":
//! column = "ward"                               # what a unit's first record says here decides its client
//! values = ["surgery", "medicine"]              # client-1, client-2; every other unit is left out
//!
//! [phases]                                      # as the server's
//! min_sites = 10
//! update_deadline_seconds = 1800
//!
//! [faults]                                      # see `Faults`; default: none
//! drop_request = 0.1
//! ```
//!
//! `dp-pvi-sim run FILE --set KEY=VALUE` puts other values in the place of these ([`Setting`]).

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_results::forecast::rounds;
use dp_pvi_schema::Schema;
use serde::Deserialize;

use super::ExperimentError;
use crate::network::Faults;

/// An experiment file as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name for people.
    pub name: String,
    /// One run for each.
    pub seeds: Vec<u64>,
    /// Runs at the same time, and sites of a run where there are fewer of them. Default: one per processor.
    pub threads: Option<usize>,
    /// Kind of noise.
    #[serde(default)]
    pub noise: NoiseKind,
    /// Held-out metrics are computed at rounds whose number (from 1) is a multiple of this, and at the last one.
    #[serde(default = "every_round")]
    pub evaluate_every: NonZeroU32,
    /// Path of a task file, or its sections.
    task: toml::Value,
    /// What replaces values of the task.
    #[serde(skip)]
    task_settings: Vec<Setting>,
    /// Records.
    pub data: DataSection,
    /// How they are shared out.
    pub clients: ClientsSection,
    /// Deadlines and quorum.
    #[serde(default)]
    pub phases: PhasesSection,
    /// Faults.
    #[serde(default)]
    pub faults: Faults,
    /// What `dp-pvi-sim tune` chooses from; runs take no notice of it.
    pub tune: Option<TuneSection>,
}

/// `[tune]`: options of `[pvi]` to choose from, privately.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuneSection {
    /// ε of the whole selection, all trials and the choice between them, for every site.
    pub epsilon: f64,
    /// Expected number of trials.
    pub expected_trials: f64,
    /// Distribution of the number of trials.
    #[serde(default)]
    pub trials: TrialsKind,
    /// Options of `[pvi]` that take the place of the task's, one table for every candidate.
    pub candidates: Vec<toml::Table>,
}

/// Distributions of the number of trials.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialsKind {
    /// Logarithmic, the negative binomial distribution of shape 0: at least one trial.
    #[default]
    Logarithmic,
    /// Poisson: with none there is no choice, and the charge stays.
    Poisson,
}

/// Kinds of noise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseKind {
    /// Exact discrete Gaussian on the lattice, as production adds, from a seeded stream.
    #[default]
    Lattice,
}

/// `[data]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSection {
    /// Files below the data directory, one data set together.
    pub files: Vec<PathBuf>,
    /// Share of the units that are held out, by a seeded permutation.
    pub test_fraction: Option<f64>,
    /// Files that are held out.
    pub test_files: Option<Vec<PathBuf>>,
    /// Whether only as many units of the larger class are kept, by a seeded permutation, as there are of the smaller: a data set whose
    /// rare class would otherwise hide what methods differ in. Which units are kept depends on all labels: ε is that of the training on
    /// those that are kept, and does not cover the choice.
    #[serde(default)]
    pub balance: bool,
    /// Most units that are kept, by a seeded permutation.
    pub limit: Option<usize>,
}

fn every_round() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// `[clients]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientsSection {
    /// M. With `slicing = "files"` it is the number of files, with `"column"` that of `values`, and may be left out.
    pub number: Option<usize>,
    /// Imbalance of sizes in [0, 1].
    #[serde(default)]
    pub rho: f64,
    /// Imbalance of classes.
    #[serde(default)]
    pub kappa: f64,
    /// How units are assigned.
    #[serde(default)]
    pub slicing: Slicing,
    /// The column that decides (`slicing = "column"`), whether or not the schema has it.
    pub column: Option<String>,
    /// Its values, one client each.
    #[serde(default)]
    pub values: Vec<String>,
}

/// How units are assigned to clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slicing {
    /// Slices of the permuted units.
    #[default]
    Contiguous,
    /// By a seeded hash of the unit's position: sizes vary, and no unit's client depends on another unit.
    Hashed,
    /// Every file is a client.
    Files,
    /// Every value of a column is a client. Units with another value are of no client, and not held out.
    Column,
}

impl Slicing {
    /// Whether the data say which client has a unit, so that held-out units have a client, too.
    pub(super) fn is_by_data(self) -> bool {
        matches!(self, Self::Files | Self::Column)
    }
}

/// `[phases]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PhasesSection {
    /// Fewest sites of a round.
    pub min_sites: u32,
    /// Deadline of a round.
    pub update_deadline_seconds: u64,
    /// How long the server waits for sites.
    pub start_deadline_seconds: u64,
}

impl Default for PhasesSection {
    fn default() -> Self {
        Self { min_sites: 1, update_deadline_seconds: 1800, start_deadline_seconds: 600 }
    }
}

/// A value that replaces the one in a file: `clients.number=200`, or `task.privacy.epsilon=0.5` for the task, wherever it stands. What is
/// not TOML is text.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    keys: Vec<String>,
    value: toml::Value,
}

impl FromStr for Setting {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "write KEY=VALUE, with dots in KEY: clients.number=200 or task.privacy.epsilon=0.5";
        let (key, value) = text.split_once('=').ok_or(wrong)?;
        let keys: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
        if keys.iter().any(String::is_empty) {
            return Err(wrong);
        }
        let parsed = format!("v = {value}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
        Ok(Self { keys, value: parsed.unwrap_or_else(|| toml::Value::String(value.trim().to_owned())) })
    }
}

impl Setting {
    fn apply(&self, table: &mut toml::Table) -> Result<(), String> {
        let (last, path) = self.keys.split_last().ok_or("an empty key")?;
        let mut inner = table;
        for key in path {
            inner = match inner.entry(key).or_insert_with(|| toml::Value::Table(toml::Table::new())) {
                toml::Value::Table(table) => table,
                _ => return Err(format!("{key} of {} is not a section", self.keys.join("."))),
            };
        }
        inner.insert(last.clone(), self.value.clone());
        Ok(())
    }
}

impl Experiment {
    /// Reads an experiment file.
    ///
    /// # Errors
    /// Not readable, not an experiment, or contradictory.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        Self::read_with(path, &[])
    }

    /// The same with other values for some keys.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with(path: &Path, settings: &[Setting]) -> Result<Self, ExperimentError> {
        let wrong = |problem: &dyn std::fmt::Display| ExperimentError::Config(format!("{}: {problem}", path.display()));
        let mut table: toml::Table = toml::from_str(&read(path)?).map_err(|e| wrong(&e))?;
        let (of_task, own): (Vec<_>, Vec<_>) =
            settings.iter().partition(|setting| setting.keys.len() > 1 && setting.keys.first().is_some_and(|key| key == "task"));
        own.iter().try_for_each(|setting| setting.apply(&mut table)).map_err(|problem| wrong(&problem))?;
        // Serialised again, so that messages quote the line with the key.
        let text = if own.is_empty() { read(path)? } else { toml::to_string(&table).map_err(|e| wrong(&e))? };
        let mut experiment: Self = toml::from_str(&text).map_err(|e| wrong(&e))?;
        let inside = |setting: &&Setting| Setting { keys: setting.keys[1..].to_vec(), value: setting.value.clone() };
        experiment.task_settings = of_task.iter().map(inside).collect();
        experiment.check().map_err(|problem| wrong(&problem))?;
        Ok(experiment)
    }

    fn check(&self) -> Result<(), &'static str> {
        let ClientsSection { number, rho, kappa, slicing, ref column, ref values } = self.clients;
        match (self.data.test_fraction, &self.data.test_files) {
            (Some(fraction), None) if (0.0..1.0).contains(&fraction) => {}
            (None, Some(_)) => {}
            _ => return Err("[data] needs either test_fraction in [0, 1) or test_files"),
        }
        if self.seeds.is_empty() {
            return Err("seeds is empty");
        }
        match (slicing, number) {
            (Slicing::Files, None) => {}
            (Slicing::Files, Some(n)) if n == self.data.files.len() => {}
            (Slicing::Files, _) => return Err("slicing = \"files\" makes one client of every file: leave number out"),
            (Slicing::Column, None) => {}
            (Slicing::Column, Some(n)) if n == values.len() => {}
            (Slicing::Column, _) => {
                return Err("slicing = \"column\" makes one client of every value: leave number out");
            }
            (_, Some(n)) if n > 0 => {}
            _ => return Err("[clients] needs number, at least 1"),
        }
        #[allow(clippy::float_cmp, reason = "0 is the default and means off")]
        let plain = rho == 0.0 && kappa == 0.0;
        if slicing == Slicing::Files && (self.data.balance || self.data.limit.is_some()) {
            return Err("slicing = \"files\" takes files as they are: leave balance and limit out");
        }
        if slicing.is_by_data() && !plain {
            return Err("slicing = \"files\" and \"column\" take sizes and classes as they are: leave rho and kappa out");
        }
        if (slicing == Slicing::Column) != (column.is_some() && !values.is_empty()) || (column.is_some() == values.is_empty()) {
            return Err("slicing = \"column\" needs column and values, and nothing else has them");
        }
        if !(0.0..=1.0).contains(&rho) || !kappa.is_finite() || kappa > 1.0 {
            return Err("rho must be in [0, 1] and kappa at most 1");
        }
        #[allow(clippy::float_cmp, reason = "0 is the default and means off")]
        if slicing == Slicing::Hashed && kappa != 0.0 {
            return Err("kappa looks at labels, hashed slicing at nothing but positions: choose one");
        }
        Ok(())
    }

    /// Number of clients.
    #[must_use]
    pub(crate) fn number_of_clients(&self) -> usize {
        match self.clients.slicing {
            Slicing::Column => self.clients.values.len(),
            _ => self.clients.number.unwrap_or(self.data.files.len()),
        }
    }

    /// The same experiment with other options of `[pvi]` and another ε in its task.
    #[must_use]
    pub(crate) fn with_options(&self, options: &toml::Table, epsilon: f64) -> Self {
        let setting = |section: &str, key: &str, value: toml::Value| Setting { keys: vec![section.to_owned(), key.to_owned()], value };
        let mut experiment = self.clone();
        experiment.task_settings.extend(options.iter().map(|(key, value)| setting("pvi", key, value.clone())));
        experiment.task_settings.push(setting("privacy", "epsilon", epsilon.into()));
        experiment
    }

    /// Reads and resolves the task.
    ///
    /// # Errors
    /// It or its schema cannot be read or does not hold together.
    pub fn resolve(&self, path: &Path) -> Result<(ResolvedTask, Schema), ExperimentError> {
        let here = path.parent().unwrap_or(Path::new("."));
        let wrong = |file: &Path, error: &dyn std::fmt::Display| ExperimentError::Config(format!("{}: {error}", file.display()));
        let (mut table, file) = match &self.task {
            toml::Value::String(name) => {
                let file = here.join(name);
                (read(&file)?.parse::<toml::Table>().map_err(|e| wrong(&file, &e))?, file)
            }
            toml::Value::Table(inline) => (inline.clone(), path.to_owned()),
            _ => return Err(wrong(path, &"task is the name of a file, or the sections of one")),
        };
        let raw = if self.task_settings.is_empty() && self.task.is_str() {
            // Messages quote the line with the key.
            RawTask::parse(&read(&file)?).map_err(|e| wrong(&file, &e))?
        } else {
            self.task_settings.iter().try_for_each(|setting| setting.apply(&mut table)).map_err(|e| wrong(&file, &e))?;
            toml::Value::Table(table).try_into::<RawTask>().map_err(|e| wrong(&file, &e))?
        };
        let schema_file = file.parent().unwrap_or(here).join(&raw.schema.file);
        let text = read(&schema_file)?;
        Schema::parse(&text).map_err(|e| wrong(&schema_file, &e))?;
        let expected_sites = u32::try_from(self.number_of_clients()).map_err(|e| wrong(path, &e))?;
        let context = ResolveContext {
            name: &self.name,
            update_deadline_seconds: self.phases.update_deadline_seconds,
            min_sites: self.phases.min_sites,
            expected_sites,
        };
        let task = rounds::resolve(&raw, &text, context).map_err(|e| wrong(&file, &e))?.task;
        let schema = task.parsed_schema().map_err(|e| wrong(&file, &e))?;
        Ok((task, schema))
    }
}

fn read(path: &Path) -> Result<String, ExperimentError> {
    dp_pvi_programs::files::read_text(path).map_err(|source| ExperimentError::Unreadable { path: path.to_owned(), source })
}
