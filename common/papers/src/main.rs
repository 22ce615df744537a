//! `dp-pvi-papers`: the papers' figures, and the guide's pages of results.

use std::error::Error;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use dp_pvi_papers::{
    agreement, calibration, choose_defaults, curves, forecast_drawn, forecast_real, larger, liar, personal, real, reproduce, rounds,
    site_effects, survival,
};

/// The papers' figures, and the guide's pages of results.
#[derive(Parser)]
#[command(name = "dp-pvi-papers", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the experiments behind a figure or table of the papers and writes NAME.csv, NAME.svg and NAME.md.
    Reproduce {
        /// What to reproduce.
        name: reproduce::Name,
        /// Directory to write to.
        #[arg(short, long)]
        output: PathBuf,
        /// Directory of the data files.
        #[arg(long, default_value = "../shared/data")]
        data: PathBuf,
        /// Seed of splits, coins and noise.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Fewer settings, to see that it runs.
        #[arg(long)]
        quick: bool,
        /// Splits of every regression set (dp-sep-table3, 4, 5) instead of what a full run takes.
        #[arg(long)]
        splits: Option<usize>,
        /// Regression sets (dp-sep-table3, 4, 5) instead of all: wine, power, kin8nm, naval, protein, year.
        #[arg(long, value_delimiter = ',')]
        sets: Vec<String>,
        /// Standardise the private runs of dp-sep-table3, 4, 5 by the training rows, as the paper did; their epsilon is then not valid, and the report says so.
        #[arg(long)]
        paper_protocol: bool,
        /// No progress bar.
        #[arg(short, long)]
        quiet: bool,
    },
    /// Runs an experiment of the guide. Its arguments are at the top of common/papers/src/NAME.rs.
    #[command(name = "run")]
    Run {
        /// Which one.
        name: Experiment,
        /// What it takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// Experiments of the guide.
#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Experiment {
    /// Level and power of the test whether sites agree.
    Agreement,
    /// Coverage of intervals over known truths.
    Calibration,
    /// Settings that were compared for the defaults.
    ChooseDefaults,
    /// Curves of a number.
    Curves,
    /// Forecasts beside outcomes, on drawn records.
    ForecastDrawn,
    /// The same on real data sets.
    ForecastReal,
    /// A visit over records that are larger than memory.
    Larger,
    /// What one lying site can do.
    Liar,
    /// Personal posteriors of real sites.
    Personal,
    /// Intervals and predictions on real data sets.
    Real,
    /// How many rounds.
    Rounds,
    /// Effects of sites.
    SiteEffects,
    /// Survival times.
    Survival,
}

impl Experiment {
    fn run(self, arguments: Vec<String>) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Larger => return larger::main(arguments),
            Self::Liar => return liar::main(arguments),
            Self::Personal => return personal::main(arguments),
            Self::Agreement => agreement::main(arguments),
            Self::Calibration => calibration::main(arguments),
            Self::ChooseDefaults => choose_defaults::main(arguments),
            Self::Curves => curves::main(arguments),
            Self::ForecastDrawn => forecast_drawn::main(arguments),
            Self::ForecastReal => forecast_real::main(arguments),
            Self::Real => real::main(arguments),
            Self::Rounds => rounds::main(arguments),
            Self::SiteEffects => site_effects::main(arguments),
            Self::Survival => survival::main(arguments),
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let failed = |error: &dyn Error, code: u8| {
        let _ = writeln!(std::io::stderr(), "dp-pvi-papers: {error}");
        ExitCode::from(code)
    };
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => {
            return match help.print().and_then(|()| std::io::stdout().flush()) {
                Err(lost) if lost.kind() != ErrorKind::BrokenPipe => failed(&lost, 12),
                _ => ExitCode::SUCCESS,
            };
        }
    };
    match arguments.command {
        Command::Reproduce { name, output, data, seed, quick, splits, sets, paper_protocol, quiet } => {
            if let Err(error) = std::fs::create_dir_all(&output) {
                let _ = writeln!(std::io::stderr(), "dp-pvi-papers: {}: {error}", output.display());
                return ExitCode::from(12);
            }
            let options = reproduce::Options { data: &data, output: &output, seed, quick, quiet, splits, sets: &sets, paper_protocol };
            reproduce::run(name, &options).map_or_else(|error| failed(&error, error.exit_code()), |()| ExitCode::SUCCESS)
        }
        Command::Run { name, arguments } => name.run(arguments).map_or_else(|error| failed(&*error, 1), |()| ExitCode::SUCCESS),
    }
}
