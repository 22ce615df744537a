//! The command line.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use dp_pvi_inference::personal::Heterogeneity;
use dp_pvi_models::prediction::Level;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::task::DesignSpec;
use dp_pvi_privacy::NoiseSource;
use dp_pvi_privacy::ledger::ChargeStore;
use dp_pvi_programs::ledger::SqliteLedger;
use dp_pvi_programs::log;
use dp_pvi_programs::problem::Problem;
use dp_pvi_programs::process::ignores_hangup;
use dp_pvi_protocol::message::Role;
use dp_pvi_results::document::Which;
use rand_core::CryptoRng;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::commands::{budget, check, contrast, data, forget, ledger, personalise, plan, predict};
use crate::config::{self, Config};
use crate::error::{ClientError, Result};
use crate::observe::{Bar, RunObserver};
use crate::output::{self, Format, Output, name_of};
use crate::run::Ended;
use crate::snapshot::Changed;
use crate::telemetry::{self, LogFormat};
use crate::{approvals, keys, run};

/// One site of a dp-pvi federation: learns together with others, keeps its records and its privacy budget to itself.
#[derive(Debug, Parser)]
#[command(name = "dp-pvi-client", version, about, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Global {
    /// Configuration file.
    #[arg(long, global = true, default_value = "client.toml", env = "DP_PVI_CONFIG")]
    config: PathBuf,
    /// How results are written to stdout.
    #[arg(long, global = true, value_enum, default_value_t)]
    format: Format,
    /// How logs are written to stderr.
    #[arg(long, global = true, value_enum, default_value_t)]
    log_format: LogFormat,
    /// More logs.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Errors only, no progress bar.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take part in the run; start again after any interruption.
    Run,
    /// Check configuration, keys, certificate, data, ledger and server; names the failing field.
    Check {
        /// Do not connect to the server.
        #[arg(long)]
        offline: bool,
    },
    /// What the server's task would cost this data set, before anything runs.
    Plan {
        /// A local copy of the resolved task instead of asking the server.
        #[arg(long)]
        task: Option<PathBuf>,
        /// For the forecast: declared records of every site, this one included, or one number for all (default: as many as this site's).
        #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = dp_pvi_results::forecast::records, allow_hyphen_values = true)]
        units: Vec<u64>,
        /// Number of sites (default: as many as the task counts on).
        #[arg(long, allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        sites: Option<u32>,
    },
    /// Make the client's keys and the file by which it asks to be enrolled.
    Csr {
        /// Name of the site (a-z 0-9 - _ .).
        #[arg(long, value_parser = client_id)]
        name: ClientId,
        /// Part in the federation.
        #[arg(long, value_enum, default_value_t)]
        role: RoleArg,
        /// Name of the federation.
        #[arg(long)]
        federation: String,
        /// Folder for the files.
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Approve a task by the hash that `plan` prints, or the charter of an aggregated run by the hash that `run` logs.
    Approve {
        /// Hash of the task or charter, with or without `sha256:`. Its first 32 digits or more are enough for one that this site was shown.
        hash: String,
    },
    /// Give up a task's run that will not go on: renounces the visits that it has not released, and removes what this site kept of it.
    Forget {
        /// Hash of the task, with or without `sha256:`; of an open run its first 8 digits are enough.
        task: String,
        /// Only the run with this number.
        #[arg(long, allow_hyphen_values = true)]
        run: Option<u32>,
    },
    /// Look at the data set, and confirm what was seen; nothing leaves.
    #[command(subcommand)]
    Data(DataCommand),
    /// The data set's privacy budget.
    #[command(subcommand)]
    Budget(BudgetCommand),
    /// The data set's ledger.
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// The posterior for this site alone: what the others released, and the exact likelihood of the records here. PRIVATE; nothing leaves.
    Personalise {
        /// posterior.json, as the server exports it.
        #[arg(long)]
        posterior: PathBuf,
        /// File for the result, readable by its owner alone; in the state folder unless given.
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// How far the coefficients here may be from the others'.
        #[arg(long, value_enum, default_value_t)]
        heterogeneity: HeterogeneityArg,
        /// Go on although the records are not those with which this site took part in the run.
        #[arg(long)]
        changed_records: bool,
    },
    /// Predict new rows with a posterior.
    Predict {
        /// posterior.json, as the server exports it.
        #[arg(long, required_unless_present = "personal")]
        posterior: Option<PathBuf>,
        /// In its place the file of `personalise`: the predictions are PRIVATE then, too.
        #[arg(long, conflicts_with_all = ["posterior", "intervals"])]
        personal: Option<PathBuf>,
        /// CSV or Parquet file with the schema's columns; a label is not needed.
        #[arg(long, required = true)]
        data: Vec<PathBuf>,
        /// Probability content of the intervals.
        #[arg(long, value_enum, default_value_t)]
        level: LevelArg,
        /// Which posterior predicts.
        #[arg(long, value_enum, default_value_t)]
        intervals: IntervalsArg,
        /// Column whose text is written beside every prediction; without a name, the schema's unit_column.
        #[arg(long, value_name = "COLUMN", num_args = 0..=1, default_missing_value = "")]
        id: Option<String>,
        /// File for the result (CSV); stdout unless given.
        #[arg(short, long)]
        output: Option<PathBuf>,
    },
    /// Compare two records under a posterior: the odds ratio, rate ratio or difference between them, with intervals. Columns that are the
    /// same in both are left out: `contrast --posterior posterior.json age=70 ward=surgery --against age=60 ward=medicine`.
    Contrast {
        /// posterior.json, as the server exports it.
        #[arg(long)]
        posterior: PathBuf,
        /// What the one record has where they differ; values as they are in files.
        #[arg(required = true, value_name = "COLUMN=VALUE")]
        of: Vec<String>,
        /// What the other record has there.
        #[arg(long, required = true, num_args = 1.., value_name = "COLUMN=VALUE")]
        against: Vec<String>,
        /// Which posterior is asked.
        #[arg(long, value_enum, default_value_t)]
        intervals: IntervalsArg,
    },
    /// The configuration file itself.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a completion script for a shell to stdout.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every key, what it means and a value that works.
    Schema,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum HeterogeneityArg {
    /// Not at all: all sites are samples of one model.
    #[default]
    None,
    /// As far as the records here say.
    Learned,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum IntervalsArg {
    /// The posterior of posterior.json, whose intervals contain the noise that protects the records where that is known.
    #[default]
    NoiseAware,
    /// The variational posterior as it came out of the run.
    Plain,
}

impl IntervalsArg {
    fn which(self) -> Which {
        match self {
            Self::NoiseAware => Which::Posterior,
            Self::Plain => Which::Plain,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum LevelArg {
    /// 90 %.
    #[value(name = "90")]
    P90,
    /// 95 %.
    #[default]
    #[value(name = "95")]
    P95,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum RoleArg {
    /// Private records and a budget.
    #[default]
    Site,
    /// A public test set.
    Evaluator,
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// What the schema does to the data: counts per column, what clipping bounds mean.
    Inspect {
        /// Public schema; the one of the configuration unless given.
        #[arg(long)]
        schema: Option<PathBuf>,
        /// Formula of a task, as in 'died ~ age + sex*ward': also shows its coefficients and how many records have an entry for each.
        #[arg(long)]
        formula: Option<String>,
        /// A site of the federation, where the formula has effects of sites; once for every site.
        #[arg(long, requires = "formula")]
        site: Vec<String>,
        /// Leave the formula's intercept out, as survival-regression and ordinal-regression do: rows and R are then those of such a task.
        #[arg(long, requires = "formula")]
        no_intercept: bool,
    },
    /// Say that the records are as they should be, although so many contribute nothing that the data set was halted.
    Confirm,
}

#[derive(Debug, Subcommand)]
enum BudgetCommand {
    /// Spent and left.
    Show,
    /// Let nothing be charged any more.
    Freeze {
        /// Allow charges again.
        #[arg(long)]
        off: bool,
    },
    /// Every release and the total after it.
    History,
}

#[derive(Debug, Subcommand)]
enum LedgerCommand {
    /// Make the data set's ledger, once in its life; refuses where one exists.
    Create,
    /// Write the ledger as it is now to a new file, and verify that file; also while a client runs.
    Backup {
        /// File for the copy; one that exists is never overwritten.
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Put a backup to where the ledger was lost; refuses an old one, and never replaces a ledger.
    Restore {
        /// File of `ledger backup`.
        backup: PathBuf,
        /// Take an old backup all the same, because this many of the rows that came after it are lost for good. The ledger is then frozen.
        #[arg(long, value_name = "ROWS", value_parser = dp_pvi_results::forecast::whole, allow_hyphen_values = true)]
        lose_rows: Option<u64>,
        /// posterior.json of a run in which this site took part: a backup that lacks what this site had signed by then is refused.
        #[arg(long, value_name = "FILE")]
        posterior: Option<PathBuf>,
    },
    /// Say what one privacy unit is, by the ledger and by the schema.
    Units {
        /// Write the schema's words down where the ledger has others: the units are the same ones, under another name.
        #[arg(long)]
        accept: bool,
    },
    /// Check every row, signature, digest and attachment; against the server's transcript and posterior too where given.
    Verify {
        /// Transcript, as `dp-pvi-server export --transcript` writes it.
        #[arg(long)]
        transcript: Option<PathBuf>,
        /// posterior.json, as the server exports it: its certificate is checked, and compared with what this ledger charged for the run, the head that this
        /// site had signed by then with the ledger's rows, and where the rows come from with the configuration.
        #[arg(long)]
        posterior: Option<PathBuf>,
    },
    /// Print every row, and what all charges up to it come to: the certified epsilon at the budget's delta.
    Show,
    /// Write all rows to stdout.
    Export,
}

fn client_id(text: &str) -> std::result::Result<ClientId, dp_pvi_names::InvalidName> {
    ClientId::new(text)
}

/// The whole program: parses the process's arguments, runs, and reports an error on stderr. `decorate` may wrap the ledger store of
/// `run`; the shipped program passes it through, tests put a store there that ends the process at a chosen append.
pub fn main_with<S: ChargeStore + 'static>(
    decorate: impl FnOnce(SqliteLedger) -> S,
    noise: impl NoiseSource<Stream: CryptoRng> + Clone + 'static,
) -> ExitCode {
    // Keys must not end up in a core file; a system that refuses this has other barriers, and the program goes on.
    let _ = dp_pvi_programs::process::forbid_core_dumps();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // A message that cannot be printed has no better place to go. Help and version are results.
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => {
            return match help.print().and_then(|()| std::io::stdout().flush()) {
                Err(lost) if lost.kind() != ErrorKind::BrokenPipe => {
                    telemetry::init(LogFormat::Text, 0);
                    ended(LogFormat::Text, &not_written(&lost.to_string()))
                }
                _ => ExitCode::SUCCESS,
            };
        }
    };
    let verbosity = if cli.global.quiet { -1 } else { i8::try_from(cli.global.verbose).unwrap_or(i8::MAX) };
    let log_format = cli.global.log_format;
    telemetry::init(log_format, verbosity);
    let format = cli.global.format;
    match execute(cli, decorate, noise).and_then(|()| output::lost().map_or(Ok(()), |why| Err(not_written(why)))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if format == Format::Json {
                let object = json!({"event": "error", "kind": error.kind(), "code": error.exit_code(), "message": log::shortened(&error.to_string())});
                Output::new(format).json_line(&object);
            }
            ended(log_format, &error)
        }
    }
}

/// Standard output took no more.
fn not_written(why: &str) -> ClientError {
    ClientError::Unavailable(format!("results could not be written to standard output ({why}): make room there and ask again").into())
}

fn ended(form: LogFormat, error: &ClientError) -> ExitCode {
    telemetry::ended(form, error);
    ExitCode::from(error.exit_code())
}

fn execute<S: ChargeStore + 'static>(
    cli: Cli,
    decorate: impl FnOnce(SqliteLedger) -> S,
    noise: impl NoiseSource<Stream: CryptoRng> + Clone + 'static,
) -> Result<()> {
    let output = Output::new(cli.global.format);
    let file = cli.global.config.as_path();
    match cli.command {
        Command::Run => {
            let bar = if cli.global.quiet { Bar::Never } else { Bar::OnTerminal };
            run_to_end(&Config::load(file)?, output, bar, decorate, noise)
        }
        Command::Check { offline } => {
            let server = if offline { check::Server::Skip } else { check::Server::Connect };
            blocking_on(|| async { check::check(file, server, output).await })
        }
        Command::Plan { task, units, sites } => {
            let config = Config::load(file)?;
            blocking_on(|| async { plan::plan(&config, task.as_deref(), (&units, sites), output).await })
        }
        Command::Csr { name, role, federation, output: folder } => make_request(&federation, name, role, &folder, output),
        Command::Approve { hash } => {
            let config = Config::load(file)?;
            config.private()?;
            let hash = approvals::named(&config.site.state, "approve", &hash)?;
            approvals::record(&config.site.state, &hash)?;
            output.object(|| json!({"approved": hash.to_string()}), || format!("approved {hash}"));
            Ok(())
        }
        Command::Forget { task, run } => {
            let config = Config::load(file)?;
            blocking_on(|| async { forget::forget(&config, &task, run, output) })
        }
        Command::Data(DataCommand::Inspect { schema, formula, site, no_intercept }) => {
            let design = formula.map(|formula| DesignSpec { without_intercept: no_intercept, ..DesignSpec::of(formula, site) });
            data::inspect(&Config::load(file)?, schema.as_deref(), design.as_ref(), output)
        }
        Command::Data(DataCommand::Confirm) => data::confirm(&Config::load(file)?, output),
        Command::Budget(BudgetCommand::Show) => budget::show(&Config::load(file)?, output),
        Command::Budget(BudgetCommand::Freeze { off }) => {
            let state = if off { dp_pvi_privacy::ledger::FreezeState::Open } else { dp_pvi_privacy::ledger::FreezeState::Frozen };
            let config = Config::load(file)?;
            blocking_on(|| async { budget::freeze(&config, state, output) })
        }
        Command::Budget(BudgetCommand::History) => budget::history(&Config::load(file)?, output),
        Command::Ledger(LedgerCommand::Create) => ledger::create(&Config::load(file)?, output),
        Command::Ledger(LedgerCommand::Backup { output: target }) => ledger::backup(&Config::load(file)?, &target, output),
        Command::Ledger(LedgerCommand::Restore { backup, lose_rows, posterior }) => {
            ledger::restore(&Config::load(file)?, &backup, lose_rows, posterior.as_deref(), output)
        }
        Command::Ledger(LedgerCommand::Units { accept }) => {
            let other = if accept { ledger::OtherUnits::Accept } else { ledger::OtherUnits::Refuse };
            ledger::units(&Config::load(file)?, other, output)
        }
        Command::Ledger(LedgerCommand::Verify { transcript, posterior }) => {
            ledger::verify(&Config::load(file)?, transcript.as_deref(), posterior.as_deref(), output)
        }
        Command::Ledger(LedgerCommand::Show) => ledger::show(&Config::load(file)?, output),
        Command::Ledger(LedgerCommand::Export) => ledger::export(&Config::load(file)?, output),
        Command::Personalise { posterior, output: target, heterogeneity, changed_records } => {
            let heterogeneity = match heterogeneity {
                HeterogeneityArg::Learned => Heterogeneity::Learned,
                HeterogeneityArg::None => Heterogeneity::None,
            };
            let changed = if changed_records { Changed::Accept } else { Changed::Refuse };
            personalise::personalise(&Config::load(file)?, &posterior, target.as_deref(), (heterogeneity, changed), output)
        }
        Command::Predict { posterior, personal, data, level, intervals, id, output: target } => {
            let level = match level {
                LevelArg::P90 => Level::P90,
                LevelArg::P95 => Level::P95,
            };
            let which = intervals.which();
            let id = id.map(|column| if column.is_empty() { predict::Id::OfUnits } else { predict::Id::Column(column) });
            let basis = match (posterior, personal) {
                (Some(file), _) => predict::Basis::Posterior(file, which),
                (None, Some(file)) => predict::Basis::Personal(file),
                (None, None) => return Err(ClientError::config("--posterior", "name the server's posterior.json, or --personal FILE")),
            };
            if target.is_some() {
                // Rows are predicted without a configuration, too. What is named by one that is there stays.
                if let Err(error) = Config::load(file)
                    && file.exists()
                {
                    return Err(error);
                }
            }
            predict::predict(basis, &data, level, id, target.as_deref(), output)
        }
        Command::Contrast { posterior, of, against, intervals } => contrast::contrast(&posterior, &of, &against, intervals.which(), output),
        Command::Config(ConfigCommand::Schema) => {
            output.line(config::SAMPLE.trim_end());
            Ok(())
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "dp-pvi-client", &mut script);
            output::write_bytes(&script);
            Ok(())
        }
    }
}

fn make_request(federation: &str, name: ClientId, role: RoleArg, folder: &Path, output: Output) -> Result<()> {
    let role = match role {
        RoleArg::Site => Role::Site,
        RoleArg::Evaluator => Role::Evaluator,
    };
    let files = keys::make_request(federation, name, role, folder)?;
    output.object(
        || json!({"request": files.request, "tls_key": files.tls_key, "identity": files.identity}),
        || {
            format!(
                "send {} to the operator of the server (`dp-pvi-server ca sign`)\nkeep  {} and {} here: they are this client",
                files.request.display(),
                files.tls_key.display(),
                files.identity.display()
            )
        },
    );
    Ok(())
}

fn run_to_end<S: ChargeStore + 'static>(
    config: &Config,
    output: Output,
    bar: Bar,
    decorate: impl FnOnce(SqliteLedger) -> S,
    noise: impl NoiseSource<Stream: CryptoRng> + Clone + 'static,
) -> Result<()> {
    blocking_on(|| async {
        let mut observer = RunObserver::new(output, bar, &config.site.state);
        let ended = run::run(config, decorate, noise, &mut observer).await?;
        drop(observer);
        output.object(
            || {
                let Ended { end, sent, refusals } = &ended;
                json!({"event": "ended", "outcome": end.outcome, "reason": end.reason(), "updates_sent": sent, "refusals": refusals.len()})
            },
            || format!("the run is over ({}); updates sent by this process: {}", name_of(&ended.end.outcome), ended.sent),
        );
        run::verdict(&ended)
    })
}

/// Runs a future on a runtime of its own until it is done or a signal comes.
fn blocking_on<F: Future<Output = Result<()>>>(work: impl FnOnce() -> F) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| ClientError::Unavailable(Problem::said(format!("threads: {e}"), e)))?;
    let result = runtime.block_on(async {
        let failed = |e: std::io::Error| ClientError::Unavailable(Problem::said(format!("signals: {e}"), e));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        // A terminal that closes: the end is in order, as after SIGTERM. Under `nohup` there is no end.
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup()).map_err(failed)?) };
        // A file size limit must be an error of the write, which is handled, not the end of the process.
        let _file_size = signal(SignalKind::from_raw(SIGXFSZ)).map_err(failed)?;
        // The future is dropped at one of its awaits: ledger appends do not await, so none is torn.
        tokio::select! {
            result = work() => result,
            _ = interrupt.recv() => Err(ClientError::Signal { name: "SIGINT", number: 2 }),
            _ = terminate.recv() => Err(ClientError::Signal { name: "SIGTERM", number: 15 }),
            () = hung_up(hangup) => Err(ClientError::Signal { name: "SIGHUP", number: 1 }),
        }
    });
    // A visit that is being computed is abandoned: its reservation stays, and it is computed again after a restart.
    runtime.shutdown_background();
    result
}

/// Resolves when the terminal closes; never if the signal is ignored.
async fn hung_up(hangup: Option<Signal>) {
    match hangup {
        Some(mut hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

/// Linux: file size limit exceeded.
const SIGXFSZ: i32 = 25;
