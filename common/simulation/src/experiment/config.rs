//! An experiment file.
//!
//! ```toml
//! name = "adult-dp-optimisation"
//! seeds = [1, 2, 3, 4, 5]
//! threads = 2                                   # seeds at the same time. Default: one per processor
//! noise = "lattice"                             # exact discrete Gaussian noise, as production adds
//! task = "task.toml"                            # relative to this file; or the task's sections as [task.model], …
//!
//! [data]
//! files = ["adult/adult.data.gz", "adult/adult.test.gz"]   # below --data DIR; joined in this order
//! test_fraction = 0.2                           # of all units, by a seeded permutation; or test_files = [...]
//!
//! [clients]
//! number = 10
//! rho = 0.0                                     # sizes: half the clients have n/M (1 - rho) units, half n/M (1 + rho)
//! kappa = 0.0                                   # share of the majority class at small clients: l + (1 - l) kappa
//! slicing = "contiguous"                        # or "hashed": a unit's client depends on no other unit; or "files"
//!
//! [phases]                                      # as the server's
//! min_sites = 10
//! update_deadline_seconds = 1800
//!
//! [faults]                                      # see `Faults`; default: none
//! drop_request = 0.1
//! ```

use std::path::{Path, PathBuf};

use dp_pvi_posterior::schema::Schema;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
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
    /// Runs at the same time. Default: one per processor.
    pub threads: Option<usize>,
    /// Kind of noise.
    #[serde(default)]
    pub noise: NoiseKind,
    /// Path of a task file, or its sections.
    task: toml::Value,
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
}

/// `[clients]`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientsSection {
    /// M. With `slicing = "files"` it is the number of files and may be left out.
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

impl Experiment {
    /// Reads an experiment file.
    ///
    /// # Errors
    /// Not readable, not an experiment, or contradictory.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let experiment: Self = toml::from_str(&read(path)?).map_err(|e| ExperimentError::Config(format!("{}: {e}", path.display())))?;
        experiment.check().map_err(|problem| ExperimentError::Config(format!("{}: {problem}", path.display())))?;
        Ok(experiment)
    }

    fn check(&self) -> Result<(), &'static str> {
        let ClientsSection { number, rho, kappa, slicing } = self.clients;
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
            (_, Some(n)) if n > 0 => {}
            _ => return Err("[clients] needs number, at least 1"),
        }
        #[allow(clippy::float_cmp, reason = "0 is the default and means off")]
        let plain = rho == 0.0 && kappa == 0.0;
        if slicing == Slicing::Files && !plain {
            return Err("slicing = \"files\" takes sizes and classes as they are: leave rho and kappa out");
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
    pub fn number_of_clients(&self) -> usize {
        self.clients.number.unwrap_or(self.data.files.len())
    }

    /// Reads and resolves the task.
    ///
    /// # Errors
    /// It or its schema cannot be read or does not hold together.
    pub fn resolve(&self, path: &Path) -> Result<(ResolvedTask, Schema), ExperimentError> {
        let here = path.parent().unwrap_or(Path::new("."));
        let wrong = |file: &Path, error: &dyn std::fmt::Display| ExperimentError::Config(format!("{}: {error}", file.display()));
        let (raw, file) = match &self.task {
            toml::Value::String(name) => {
                let file = here.join(name);
                (RawTask::parse(&read(&file)?).map_err(|e| wrong(&file, &e))?, file)
            }
            inline => (inline.clone().try_into::<RawTask>().map_err(|e| wrong(path, &e))?, path.to_owned()),
        };
        let schema_file = file.parent().unwrap_or(here).join(&raw.schema.file);
        let text = read(&schema_file)?;
        let schema = Schema::parse(&text).map_err(|e| wrong(&schema_file, &e))?;
        let expected_sites = u32::try_from(self.number_of_clients()).map_err(|e| wrong(path, &e))?;
        let context = ResolveContext {
            name: &self.name,
            update_deadline_seconds: self.phases.update_deadline_seconds,
            min_sites: self.phases.min_sites,
            expected_sites,
        };
        let task = raw.resolve(&text, context).map_err(|e| wrong(&file, &e))?;
        Ok((task, schema))
    }
}

fn read(path: &Path) -> Result<String, ExperimentError> {
    std::fs::read_to_string(path).map_err(|source| ExperimentError::Unreadable { path: path.to_owned(), source })
}
