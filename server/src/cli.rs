//! The command line. stdout is data, stderr is the log.

mod ca;
mod output;
mod sites;
mod summer;

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use dp_pvi_posterior::task::{ResolvedTask, names};
use dp_pvi_programs::log;
use dp_pvi_programs::log::Colour;
use dp_pvi_programs::outputs;
use dp_pvi_programs::problem::Problem;
use dp_pvi_programs::process::ignores_hangup;
use dp_pvi_protocol::message::RunOutcome;
use dp_pvi_results::account::{Question, Sizes};
use dp_pvi_results::forecast::rounds::Resolved;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;
use tracing_subscriber::EnvFilter;

use self::output::{LostOutput, Output};
use crate::admin::{self, Request};
use crate::config::{self, Config};
use crate::engine::{Event, EventSink};
use crate::error::{Result, ServerError};
use crate::server::Start;
use crate::store::{Reader, Store};
use crate::task::resolve_with_rounds;
use crate::{clock, expiry, export, server};

/// Coordinates a federation: holds the posterior, opens rounds, sums what sites send. It never sees a record.
#[derive(Debug, Parser)]
#[command(
    name = "dp-pvi-server",
    version,
    after_help = "Exit codes: 0 ok, 1 failed, 2 usage or configuration, 4 invalid file, 5 no server answers, 6 authentication, 7 state of another \
                  task, 9 quorum or aggregation lost, 11 state damaged, 12 state or resource unavailable (lock, disk full, port), 129/130/143 signals."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Global {
    /// Configuration file (default: server.toml, for `summer` summer.toml).
    #[arg(long, global = true, value_name = "FILE", env = "DP_PVI_SERVER_CONFIG")]
    config: Option<PathBuf>,
    /// Form of the data on stdout; json is one object a line.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Form of the log on stderr.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// More log lines (twice: all of ours). `RUST_LOG` decides over this.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Only warnings and errors.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until the run of the configured task ends; then write posterior.json and report.html.
    Run {
        /// Start the next run of a task whose last run has ended.
        #[arg(long)]
        new_run: bool,
    },
    /// Check configuration, certificates and task, and show what will be computed.
    #[command(after_help = names())]
    Check {
        /// Write the resolved task into this file, for `dp-pvi-client plan --task` and `dp-pvi-server plan`.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// What the run will be worth, for so many records.
        #[command(flatten)]
        sizes: Sizes,
        /// Draw it into this SVG file.
        #[arg(long, value_name = "FILE", requires = "units")]
        forecast: Option<PathBuf>,
    },
    /// Show where the run of a running server stands.
    Status,
    /// Open no more rounds; the open one goes on.
    Pause,
    /// Open rounds again.
    Resume,
    /// End the run now; without a running server, the unfinished run of the state, whatever its task.
    Stop,
    /// Write posterior.json and report.html of the last run, also while it goes on.
    Export {
        /// Directory (default: the configured one).
        #[arg(short, long, visible_alias = "out", value_name = "DIR")]
        output: Option<PathBuf>,
        /// Write the transcript too, one JSON object a line.
        #[arg(long, value_name = "FILE")]
        transcript: Option<PathBuf>,
        /// Write only posterior-without-SITE.json: the posterior without what this site released. It erases nothing.
        #[arg(long, value_name = "SITE", conflicts_with = "transcript")]
        without: Option<String>,
    },
    #[command(flatten)]
    Question(Question),
    /// The federation's certificate authority.
    Ca {
        #[command(subcommand)]
        command: ca::CaCommand,
    },
    /// The second party of aggregated runs: a process of its own, on a machine of its own.
    Summer {
        #[command(subcommand)]
        command: summer::SummerCommand,
    },
    /// The configuration file itself.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say whether this program reads the state that is there. Nothing is changed: no version so far has a way to another.
    Migrate,
    /// Drop what comes after the damage in a write-ahead log that `run` refuses; what was there is kept beside it. The error of `run` says
    /// whether a copy of the folder would be better.
    CutLog,
    /// Print a completion script.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every key, what it means and a value that works.
    Schema,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    // Before any key is read, whatever the command.
    let dumps = dp_pvi_programs::process::forbid_core_dumps();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A message that cannot be printed has no better place to go. Help and version are results.
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return match printed {
                _ if error.use_stderr() => ExitCode::from(2),
                Err(lost) if lost.kind() != ErrorKind::BrokenPipe => {
                    log::start(log::Form::Text, EnvFilter::new("error"), Colour::Never, std::io::stderr);
                    ended(log::Form::Text, &output::not_written(lost))
                }
                _ => ExitCode::SUCCESS,
            };
        }
    };
    let serves = match &cli.command {
        Command::Run { .. } => true,
        Command::Summer { command } => command.serves(),
        _ => false,
    };
    let form = start_log(&cli.global, serves);
    if let Err(problem) = dumps {
        warn!(%problem, "this system may write keys into core files: switch them off for this user");
    }
    match execute(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => ended(form, &problem),
    }
}

/// Tells why the program ends.
fn ended(form: log::Form, problem: &ServerError) -> ExitCode {
    log::ended(form, problem.code(), &problem.shown(), std::io::stderr());
    problem.exit_code()
}

fn execute(cli: Cli) -> Result<()> {
    let output = Output::new(cli.global.format == Format::Json);
    let file = |default: &str| cli.global.config.clone().unwrap_or_else(|| default.into());
    let load = || Config::load(&file("server.toml"));
    match cli.command {
        Command::Run { new_run } => run(load()?, if new_run { Start::NewRun } else { Start::Continue }, output),
        Command::Check { output: file, sizes, forecast } => check(&load()?, file.as_deref(), (&sizes, forecast.as_deref()), &output),
        Command::Status => control(&load()?, Request::Status, &output),
        Command::Pause => control(&load()?, Request::Pause, &output),
        Command::Resume => control(&load()?, Request::Resume, &output),
        Command::Stop => stop(&load()?, &output),
        Command::Export { output: directory, transcript, without } => {
            let config = load()?;
            let directory = directory.unwrap_or_else(|| config.output.clone());
            if let Some(site) = without {
                return output.files("posterior without a site", &[export::export_without(&config, &site, &directory)?]);
            }
            if let Some(file) = &transcript {
                crate::task::refuse_to_overwrite(file)?;
            }
            let exported = export::export(&config, &directory)?;
            if let Some(file) = transcript {
                export::FILES.iter().for_each(|name| outputs::needs(&directory.join(name)));
                crate::task::refuse_to_overwrite(&file)?;
                export::export_transcript(&config, &file)?;
            }
            let text = |path: &Path| path.display().to_string();
            output.event(&Event::Exported { posterior: text(&exported.posterior), report: text(&exported.report) })
        }
        Command::Question(question) => output.question(&question, &file("server.toml")),
        Command::Ca { command } => ca::execute(command, &output),
        Command::Summer { command } => summer::execute(command, &file("summer.toml"), output),
        Command::Config(ConfigCommand::Schema) => output.raw(config::SAMPLE.as_bytes()),
        Command::Migrate => {
            let database = load()?.store.database;
            output.state(&database, Reader::open(&database)?.version())
        }
        Command::CutLog => {
            let (round, kept) = Store::cut_log(&load()?.store.database)?;
            output.cut(round, &kept)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "dp-pvi-server", &mut script);
            output.raw(&script)
        }
    }
}

fn run(config: Config, start_as: Start, output: Output) -> Result<()> {
    export::prepare(&config)?;
    // One worker moves the bytes of hundreds of sites; a second one would spend more on waking up than it saves. Sums, the database
    // and large payloads have threads of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| ServerError::Failed(Problem::said(format!("the runtime cannot be started: {e}"), e)))?;
    let untold = LostOutput::default();
    let noted = untold.clone();
    let events: EventSink = Arc::new(move |event| noted.note(output.event(event)));
    let result = runtime.block_on(async {
        let shutdown = signals()?;
        server::run(config, start_as, events, shutdown).await
    });
    // Uploads that were in progress are of no use any more.
    runtime.shutdown_background();
    untold.after(result.map(drop))
}

/// "File size limit exceeded": the same number on every platform that this runs on.
const SIGXFSZ: i32 = 25;

/// Resolves to the number of the first signal that asks the process to end.
fn signals() -> Result<impl Future<Output = u8>> {
    let failed = |e: std::io::Error| ServerError::Failed(Problem::said(format!("signals cannot be watched: {e}"), e));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    // A terminal that closes: the end is in order, as after SIGTERM. Under `nohup` there is no end.
    let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup()).map_err(failed)?) };
    // A limit on the size of files is then an error of the write, told like a full disk, and not the end of the process.
    let size_limit = signal(SignalKind::from_raw(SIGXFSZ)).map_err(failed)?;
    Ok(async move {
        let _size_limit = size_limit;
        tokio::select! {
            _ = interrupt.recv() => 2,
            _ = terminate.recv() => 15,
            () = hung_up(hangup) => 1,
        }
    })
}

/// Resolves when the terminal closes; never if the signal is ignored.
async fn hung_up(hangup: Option<Signal>) {
    match hangup {
        Some(mut hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

fn control(config: &Config, request: Request, output: &Output) -> Result<()> {
    output.snapshot(&block_on(admin::ask(&config.state, request))?)
}

/// Ends the run of the running server, or of the state where there is none.
fn stop(config: &Config, output: &Output) -> Result<()> {
    match block_on(admin::ask(&config.state, Request::Stop)) {
        Err(not_running @ ServerError::NotRunning { .. }) if !config.store.database.exists() => Err(not_running),
        Err(ServerError::NotRunning { .. }) => {
            crate::stop_stored(config)?;
            output.event(&Event::RunEnded { outcome: RunOutcome::Stopped, reason: None })
        }
        snapshot => output.snapshot(&snapshot?),
    }
}

/// Runs one task on this thread.
fn block_on<T>(task: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| ServerError::Failed(Problem::said(format!("the runtime cannot be started: {e}"), e)))?;
    let result = runtime.block_on(task);
    // What blocks on a disk that does not answer must not hold up the end.
    runtime.shutdown_background();
    result
}

fn check(config: &Config, file: Option<&Path>, (sizes, drawing): (&Sizes, Option<&Path>), output: &Output) -> Result<()> {
    let Resolved { task, tried } = resolve_with_rounds(config)?;
    for file in file.into_iter().chain(drawing) {
        crate::task::refuse_to_overwrite(file)?;
    }
    if let Some(file) = file {
        crate::files::output(file, &task.to_bytes())?;
    }
    export::prepare(config)?;
    let credentials = crate::tls::Credentials::load(&config.tls, &config.federation)?;
    let (validities, now) = (expiry::of(&credentials, &config.tls), clock::date(clock::now()));
    expiry::refuse_expired(&validities, now)?;
    server::second_party(config, &task, &credentials.enrolled)?;
    crate::tls::load_identity(&config.tls.identity)?;
    let mut warnings = task.warnings();
    warnings.extend(expiry::warnings(&validities, now));
    warnings.extend(sites::unlisted(&task, &credentials.enrolled));
    let (least, most) = (config.phases.min_sites, config.phases.max_sites);
    if let Some(sites) = credentials.enrolled.sites() {
        if sites < least {
            warnings.push(format!("{sites} sites are enrolled, and [phases] min_sites = {least}: no run can begin before more are"));
        }
        if sites > most {
            warnings.push(format!("{sites} sites are enrolled, and [phases] max_sites = {most}: `run` will refuse that"));
        }
    }
    let predicted = sizes.forecast(&task, credentials.enrolled.sites()).map_err(|e| ServerError::Usage(Problem::of(e)))?;
    match (drawing, predicted.as_ref().and_then(dp_pvi_results::account::draw)) {
        (Some(file), Some(drawing)) => crate::files::output(file, drawing.as_bytes())?,
        // Why there is none is in the text of the forecast.
        (Some(file), None) => warnings.push(format!("{} was not written: there is no forecast of this task to draw", file.display())),
        (None, _) => {}
    }
    output.check(&task_summary(&task)?, &task, file, &tried, &credentials, &warnings, predicted.as_ref())
}

/// What a task costs a site over the whole run, and its hash.
pub(crate) struct TaskSummary {
    pub(crate) hash: String,
    pub(crate) epsilon: f64,
    /// Where all other parties of an aggregated run work together.
    pub(crate) fallback: Option<f64>,
    pub(crate) delta: f64,
    pub(crate) visits: u32,
}

fn task_summary(task: &ResolvedTask) -> Result<TaskSummary> {
    let loss = task.loss(task.visits()).map_err(|e| ServerError::Failed(Problem::of(e)))?;
    let fallback = task.fallback_loss(task.visits()).map_err(|e| ServerError::Failed(Problem::of(e)))?;
    Ok(TaskSummary {
        hash: task.hash().to_string(),
        epsilon: loss.epsilon.get(),
        fallback: fallback.map(|loss| loss.epsilon.get()),
        delta: task.privacy.delta.get(),
        visits: task.visits(),
    })
}

fn start_log(global: &Global, serving: bool) -> log::Form {
    let level = match (global.quiet, global.verbose) {
        (true, _) => "warn",
        (false, 0) if serving => "info",
        (false, 0) => "warn",
        (false, 1) => "debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(format!("warn,dp_pvi_server={level}")));
    let form = match global.log_format {
        Format::Text => log::Form::Text,
        Format::Json => log::Form::Json,
    };
    let colour = if std::io::stderr().is_terminal() { Colour::OnTerminal } else { Colour::Never };
    log::start(form, filter, colour, std::io::stderr);
    form
}
