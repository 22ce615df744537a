//! `dp-pvi-papers reproduce NAME`: figures and tables of the papers, over the production protocol on one machine. Every reproduction writes
//! NAME.csv, NAME.svg and NAME.md, and the experiment files that it ran, into the output directory.

mod dp_pvi;
mod dp_pvi_cells;
mod dp_pvi_figure;
mod dp_pvi_methods;
mod dp_pvi_report;
mod dp_pvi_table1;
mod dp_sep;
mod dp_sep_mixture;
mod dp_sep_networks;
mod dp_sep_sets;
mod erm;
mod thesis;
mod thesis_linear;
mod vips;
mod vips_blr;
mod vips_lda;
mod vips_sbn;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

/// What can be reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Topics of blog entries: perplexity against ε.
    VipsLda,
    /// Logistic regression by Pólya–Gamma augmentation.
    VipsBlr,
    /// Sigmoid belief network on digits: pixel accuracy against ε.
    VipsSbn,
    /// Mixture of Gaussians: distance of posteriors from a Gibbs sampler's.
    DpSepTable1,
    /// Regression networks: RMSE.
    DpSepTable3,
    /// Regression networks: log-likelihood.
    DpSepTable4,
    /// Regression networks beside a constant prediction.
    DpSepTable5,
    /// Mixture of Gaussians: the same runs as the first table, drawn.
    DpSepFigure1,
    /// Logistic regression on Adult by all methods: 10 sites, three splits, epsilon 1.
    DpPviFigure1,
    /// The same on a balanced health data set that stands in for MIMIC-III.
    DpPviFigure2,
    /// The same on Adult with 200 sites, epsilon 1/2.
    DpPviFigure3,
    /// A Bayesian neural network on Adult: 10 sites, three splits, epsilon 2.
    DpPviFigure4,
    /// What the noise of every method depends on.
    DpPviTable1,
    /// What an aggregated update costs towards a server that sees single messages.
    #[value(name = "thesis-figure-3.3")]
    ThesisFigure33,
    /// A private linear regression of five sites.
    #[value(name = "thesis-figure-4.1")]
    ThesisFigure41,
    /// Its sampling rates and clipping norms.
    #[value(name = "thesis-figure-4.2")]
    ThesisFigure42,
    /// Clipping norms that follow the data.
    #[value(name = "thesis-figure-4.3")]
    ThesisFigure43,
    /// The same where a fixed norm is unstable.
    #[value(name = "thesis-figure-4.4")]
    ThesisFigure44,
    /// The same on other data.
    #[value(name = "thesis-figure-4.5")]
    ThesisFigure45,
}

/// Where data is and results go.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Directory of the data files.
    pub data: &'a Path,
    /// Directory of the results; it must exist.
    pub output: &'a Path,
    /// Seed of splits, coins and noise.
    pub seed: u64,
    /// Fewer rounds and settings, to see that it runs.
    pub quick: bool,
    /// No progress bar.
    pub quiet: bool,
    /// Splits of every regression set instead of what a full run takes.
    pub splits: Option<usize>,
    /// Regression sets by name; none: all that there are.
    pub sets: &'a [String],
    /// Standardise private runs by training rows, as the DP-SEP paper did: their ε is then not valid, and the report says so.
    pub paper_protocol: bool,
}

/// Why there is no reproduction.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// An experiment failed.
    #[error(transparent)]
    Experiment(#[from] dp_pvi_simulation::experiment::ExperimentError),
    /// The data.
    #[error(transparent)]
    Data(#[from] dp_pvi_data::DataError),
    /// The task.
    #[error(transparent)]
    Task(#[from] dp_pvi_posterior::task::TaskError),
    /// The results cannot be written.
    #[error("{}: cannot be written ({source})", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A regression set that is none.
    #[error("there is no set {0}: see --help for the names")]
    Set(String),
    /// A run came out in a form that a reproduction cannot read: a bug of ours.
    #[error("{0}")]
    Result(String),
}

impl ReproduceError {
    /// Exit code of the program.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Experiment(error) => error.exit_code(),
            Self::Data(_) => 10,
            Self::Task(_) | Self::Set(_) => 2,
            Self::Write { .. } => 12,
            Self::Result(_) => 1,
        }
    }
}

/// Runs a reproduction.
///
/// # Errors
/// See [`ReproduceError`].
pub fn run(name: Name, options: &Options<'_>) -> Result<(), ReproduceError> {
    match name {
        Name::VipsLda => vips_lda::run(options),
        Name::VipsBlr => vips_blr::run(options),
        Name::VipsSbn => vips_sbn::run(options),
        Name::DpSepTable1 => dp_sep_mixture::run(options, "dp-sep-table1"),
        Name::DpSepFigure1 => dp_sep_mixture::run(options, "dp-sep-figure1"),
        Name::DpSepTable3 => dp_sep_networks::run(options, "dp-sep-table3"),
        Name::DpSepTable4 => dp_sep_networks::run(options, "dp-sep-table4"),
        Name::DpPviFigure1 => dp_pvi::run(options, dp_pvi_figure::Figure::One),
        Name::DpPviFigure2 => dp_pvi::run(options, dp_pvi_figure::Figure::Two),
        Name::DpPviFigure3 => dp_pvi::run(options, dp_pvi_figure::Figure::Three),
        Name::DpPviFigure4 => dp_pvi::run(options, dp_pvi_figure::Figure::Four),
        Name::DpPviTable1 => dp_pvi_table1::run(options),
        Name::ThesisFigure33 => thesis::run(options),
        Name::ThesisFigure41 => thesis_linear::run(options, thesis_linear::Figure::One),
        Name::ThesisFigure42 => thesis_linear::run(options, thesis_linear::Figure::Two),
        Name::ThesisFigure43 => thesis_linear::run(options, thesis_linear::Figure::Three),
        Name::ThesisFigure44 => thesis_linear::run(options, thesis_linear::Figure::Four),
        Name::ThesisFigure45 => thesis_linear::run(options, thesis_linear::Figure::Five),
        Name::DpSepTable5 => dp_sep_networks::run(options, "dp-sep-table5"),
    }
}
