//! Experiments: one TOML file, several seeds, the production protocol in memory, figures as JSON lines.

mod column;
mod config;
mod cpu;
pub mod liar;
mod report;
mod run;
mod split;

use std::path::PathBuf;

pub use self::config::{ClientsSection, DataSection, Experiment, NoiseKind, PhasesSection, Setting, Slicing, TrialsKind, TuneSection};
pub use self::cpu::cpu_seconds;
pub use self::report::{RoundLine, SeedLine, SummaryLine};
pub use self::run::{SeedResult, Session, processors};
pub use self::split::SplitError;

/// Why an experiment has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The experiment file, or a file that it names, is wrong.
    #[error("{0}")]
    Config(String),
    /// A file cannot be read.
    #[error("{}: cannot be read ({source}); paths are relative to the file that names them, data files to --data", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The data.
    #[error(transparent)]
    Data(#[from] dp_pvi_data::DataError),
    /// The split.
    #[error("[clients] {0}")]
    Split(#[from] SplitError),
    /// The task.
    #[error(transparent)]
    Task(#[from] dp_pvi_posterior::task::TaskError),
    /// A site refused for its budget.
    #[error("seed {seed}: a site refused for its budget: the task states less than it costs")]
    Budget {
        /// The run.
        seed: u64,
    },
    /// Fewer sites than `min_sites`.
    #[error("seed {seed}: the quorum was lost: lower [phases] min_sites, or the faults")]
    Quorum {
        /// The run.
        seed: u64,
    },
    /// No secure sum.
    #[error(
        "seed {seed}: there was no secure sum: the largest one must fit its lattice (lower [task.aggregation] max_units, or raise max_rounding_loss), and enough sites \
         must stay (fewer [faults])"
    )]
    Aggregation {
        /// The run.
        seed: u64,
    },
    /// Anything else.
    #[error("seed {seed}: {problem}")]
    Run {
        /// The run.
        seed: u64,
        /// What happened.
        problem: String,
    },
}

impl ExperimentError {
    /// Exit code of the program.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Split(_) | Self::Task(_) => 2,
            Self::Unreadable { .. } => 4,
            Self::Data(_) => 10,
            Self::Budget { .. } => 8,
            Self::Quorum { .. } | Self::Aggregation { .. } => 9,
            Self::Run { .. } => 1,
        }
    }
}
