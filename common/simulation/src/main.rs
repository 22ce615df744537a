//! `dp-pvi-sim`: federations on one machine.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use dp_pvi_posterior::task::names;
use dp_pvi_results::account::{AccountError, Question};
use dp_pvi_simulation::audit::{self, AuditError};
use dp_pvi_simulation::experiment::{Experiment, ExperimentError, SeedLine, SeedResult, Session, Setting, SummaryLine, processors};
use dp_pvi_simulation::generate::{self, GenerateError, HospitalSummary, Options, WriteError};
use dp_pvi_simulation::tune::{self, Book, Limits, TuneError};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Federations on one machine: experiments with the production protocol, and synthetic data.
#[derive(Parser)]
#[command(name = "dp-pvi-sim", version)]
struct Arguments {
    /// How results are printed.
    #[arg(long, global = true, default_value = "text")]
    format: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people: a line per run, and the summary.
    Text,
    /// One JSON object a line: every round, every run, and the summary last.
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Runs an experiment file.
    #[command(after_help = names())]
    Run {
        /// The experiment (see deploy/experiments).
        file: PathBuf,
        /// Directory of the data files.
        #[arg(long, default_value = "../shared/data")]
        data: PathBuf,
        /// Seeds instead of those in the file.
        #[arg(long, value_delimiter = ',', value_parser = dp_pvi_results::account::whole, allow_hyphen_values = true)]
        seeds: Vec<u64>,
        /// Runs (and sites, where there are fewer runs) at the same time, instead of what the file says.
        #[arg(long, allow_hyphen_values = true, value_parser = threads)]
        threads: Option<usize>,
        /// Another value for a key of the experiment or of its task: `--set clients.number=200 --set task.privacy.epsilon=0.5`.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
        /// No progress bar.
        #[arg(short, long)]
        quiet: bool,
    },
    /// Writes synthetic data with a known truth.
    Generate {
        #[command(subcommand)]
        what: Generate,
    },
    #[command(flatten)]
    Question(Question),
    /// Chooses between the candidates of an experiment's `[tune]` section, privately: a random number of trials, of which only the best is
    /// released. Coins and noise come from the operating system; trials are scored on the experiment's public test files.
    Tune {
        /// The experiment, with a `[tune]` section.
        file: PathBuf,
        /// Directory of the data files.
        #[arg(long, default_value = "../shared/data")]
        data: PathBuf,
        /// Say what it costs and how much each trial may spend; run nothing.
        #[arg(long)]
        plan: bool,
        /// Folder of the records' ledger: every selection on them is written there before its first trial, and counts when the next is asked for.
        /// It is made where there is none. One folder for the same records, for ever.
        #[arg(long, value_name = "FOLDER", required_unless_present_any = ["plan", "no_ledger"], conflicts_with = "no_ledger")]
        ledger: Option<PathBuf>,
        /// Write the charge nowhere: anyone who uses the records again has to count what is printed.
        #[arg(long)]
        no_ledger: bool,
        /// epsilon that all selections of the ledger may cost together, instead of that of `[tune]`.
        #[arg(long, requires = "ledger", allow_hyphen_values = true)]
        budget_epsilon: Option<f64>,
        /// delta of that budget, instead of the task's, which one selection uses up.
        #[arg(long, requires = "ledger", allow_hyphen_values = true)]
        budget_delta: Option<f64>,
    },
    /// Attacks the shipped updates with canaries, and prints what the attack proves beside what is claimed: exit code 1 where a claim is refuted.
    ///
    /// One row for every update, model, relation and kind of trust that a task may name. Each runs the shipped mechanism with the operating system's randomness in
    /// two neighbouring data sets, with and without a canary (or with its opposite in its place). `mu A <= B` says: at least A is proved (95 % for the whole
    /// table), B is what the accountant claims; "this pair" is the exact value for the two neighbours that were run. More runs prove
    /// more of it.
    /// A row is FLAGGED where a claim is refuted: in 50 runs of the whole table that happens to correct code with probability at most 1e-4.
    Audit {
        /// Only updates whose name begins so, for example "virtual-clients".
        #[arg(long)]
        update: Option<String>,
        /// Runs of each of the two neighbours of a row. Rows that repeat another one with other numbers, and slow ones, get a quarter or a sixteenth.
        #[arg(long, default_value_t = 400, allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(40..))]
        trials: u32,
        /// Plants every known fault in turn, so many times, and says whether the audit sees it.
        #[cfg(feature = "fault-injection")]
        #[arg(long, value_name = "TIMES", num_args = 0..=1, default_missing_value = "1", conflicts_with = "update")]
        injected_faults: Option<u32>,
        /// Also writes the table as Markdown to this file.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// No progress bar.
        #[arg(short, long)]
        quiet: bool,
    },
    /// Prints a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// What a generated table is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Container {
    /// Text.
    Csv,
    /// Columns, compressed.
    Parquet,
}

#[derive(Subcommand)]
enum Generate {
    /// Hospitals with their own sizes and case mixes, a public evaluation file, and the true coefficients.
    Hospitals {
        /// Directory to write to.
        #[arg(short, long)]
        output: PathBuf,
        /// Number of hospitals.
        #[arg(long, default_value_t = 3, allow_hyphen_values = true)]
        sites: u32,
        /// Seed: the same gives the same files.
        #[arg(long, default_value_t = 1, value_parser = dp_pvi_results::account::whole, allow_hyphen_values = true)]
        seed: u64,
        /// Stays of an average hospital.
        #[arg(long, default_value_t = 4000, allow_hyphen_values = true)]
        rows: u32,
        /// Files of the hospitals; Parquet takes little memory whatever their size.
        #[arg(long, value_enum, default_value_t = Container::Csv)]
        container: Container,
    },
    /// Hospitals that watch treated and untreated patients until death, a public evaluation file, and the true hazards and their ratios.
    Survival {
        /// Directory to write to.
        #[arg(short, long)]
        output: PathBuf,
        /// Number of hospitals.
        #[arg(long, default_value_t = 5, allow_hyphen_values = true)]
        sites: u32,
        /// Seed: the same gives the same files.
        #[arg(long, default_value_t = 1, value_parser = dp_pvi_results::account::whole, allow_hyphen_values = true)]
        seed: u64,
        /// Patients of each hospital.
        #[arg(long, default_value_t = 2000, allow_hyphen_values = true)]
        rows: u32,
    },
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Generate(#[from] GenerateError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("{0} rows are flagged: a claim does not hold, or the audit is wrong; see the reasons above")]
    Flagged(usize),
    #[error("{path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    /// Standard output takes no more.
    #[error("results cannot be printed ({0})")]
    Print(#[from] std::io::Error),
    #[error("results cannot be printed ({0})")]
    Json(#[from] serde_json::Error),
}

impl Failure {
    /// Whether the reader of standard output has seen enough. Of an audit that is cut off no one knows whether it is passed.
    fn is_enough(&self, audit: bool) -> bool {
        matches!(self, Self::Print(error) | Self::Account(AccountError::Print(error)) if error.kind() == ErrorKind::BrokenPipe) && !audit
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Experiment(error) => error.exit_code(),
            Self::Tune(error) => error.exit_code(),
            Self::Account(error) => error.exit_code(),
            Self::Generate(GenerateError::Write(_)) | Self::Write(_) | Self::Read { .. } | Self::Print(_) => 12,
            Self::Generate(_) | Self::Audit(AuditError::NoSuchUpdate(_)) => 2,
            Self::Json(_) | Self::Audit(_) | Self::Flagged(_) => 1,
        }
    }
}

/// Private records pass through this process: none of them ends up in a core file. The programs of a federation do the same
/// (`dp_pvi_programs::process`), which this crate may not import.
fn forbid_core_dumps() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let limited = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(limited?)
}

fn main() -> ExitCode {
    if let Err(error) = forbid_core_dumps() {
        let _ = writeln!(std::io::stderr(), "dp-pvi-sim: core files cannot be forbidden ({error})");
    }
    let mut out = std::io::stdout();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => return ended(help.print().and_then(|()| out.flush()).map_err(Failure::from), false),
    };
    let audit = matches!(arguments.command, Command::Audit { .. });
    let result = match arguments.command {
        Command::Run { file, data, seeds, threads, settings, quiet } => {
            Experiment::read_with(&file, &settings).map_err(Failure::from).and_then(|mut experiment| {
                experiment.threads = threads.or(experiment.threads);
                if !seeds.is_empty() {
                    experiment.seeds = seeds;
                }
                run(experiment, &file, &data, &mut Printer { out: &mut out, format: arguments.format }, quiet)
            })
        }
        Command::Generate { what: Generate::Hospitals { output, sites, seed, rows, container } } => {
            let options = Options { seed, hospitals: sites, rows, ..Options::default() };
            hospitals(&output, options, container, &mut Printer { out: &mut out, format: arguments.format })
        }
        Command::Generate { what: Generate::Survival { output, sites, seed, rows } } => survival(
            &output,
            Options { seed, hospitals: sites, rows, ..Options::default() },
            &mut Printer { out: &mut out, format: arguments.format },
        ),
        Command::Question(question) => {
            question.reads().into_iter().for_each(dp_pvi_programs::outputs::needs);
            question.answer(&mut out, arguments.format == Format::Json, dp_pvi_programs::outputs::write).map_err(Failure::from)
        }
        Command::Tune { file, data, plan, ledger, no_ledger: _, budget_epsilon, budget_delta } => {
            let book = ledger.map_or(Book::Forgotten, Book::Folder);
            let limits = Limits { epsilon: budget_epsilon, delta: budget_delta };
            choose(&file, &data, (!plan).then_some((book, limits)), &mut Printer { out: &mut out, format: arguments.format })
        }
        #[cfg(feature = "fault-injection")]
        Command::Audit { injected_faults: Some(times), trials, .. } => {
            faults(times, trials, &mut Printer { out: &mut out, format: arguments.format })
        }
        Command::Audit { update, trials, output, quiet, .. } => {
            let attack = Attack { update: update.as_deref(), trials, output: output.as_deref(), quiet };
            attack.run(&mut Printer { out: &mut out, format: arguments.format })
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "dp-pvi-sim", &mut script);
            out.write_all(&script).map_err(Failure::from)
        }
    };
    ended(result.and_then(|()| out.flush().map_err(Failure::from)), audit)
}

/// A number of threads.
fn threads(text: &str) -> Result<usize, String> {
    let number = dp_pvi_results::account::whole(text)?;
    usize::try_from(number).map_err(|error| error.to_string())
}

fn ended(result: Result<(), Failure>, audit: bool) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_enough(audit) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nothing can be done if standard error is closed, too.
            let _ = writeln!(std::io::stderr(), "dp-pvi-sim: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

struct Printer<'a> {
    out: &'a mut dyn Write,
    format: Format,
}

impl Printer<'_> {
    fn json(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        writeln!(self.out, "{}", serde_json::to_string(line)?)?;
        Ok(())
    }

    fn run(&mut self, run: &SeedResult) -> Result<(), Failure> {
        if self.format == Format::Json {
            for round in &run.rounds {
                self.json(round)?;
            }
            return self.json(&run.end);
        }
        let SeedLine { seed, rounds, client_updates, log_likelihood, accuracy, rmse, auc, epsilon, .. } = &run.end;
        let fit = fit(*accuracy, *rmse, *auc);
        let epsilon = finite(*epsilon);
        writeln!(
            self.out,
            "seed {seed}: {rounds} rounds, {client_updates} updates, log-likelihood {log_likelihood:.4}{fit}, epsilon {epsilon} if the noise were secret"
        )?;
        Ok(())
    }

    fn summary(&mut self, line: &SummaryLine) -> Result<(), Failure> {
        if self.format == Format::Json {
            return self.json(line);
        }
        let error = |e: Option<f64>| e.map_or_else(String::new, |e| format!(" ± {e:.4}"));
        let (likelihood, fit) = (line.test_log_likelihood_mean, fit(line.accuracy_mean, line.rmse_mean, line.auc_mean));
        let fit_error = error(line.accuracy_se.or(line.rmse_se).or(line.auc_se));
        writeln!(
            self.out,
            "{}: log-likelihood {likelihood:.4}{}{fit}{fit_error}, epsilon {}{}{} at delta {:e} if the noise were secret (here it follows from the seed), {} updates a run, {} s of processor time",
            line.experiment,
            error(line.test_log_likelihood_se),
            finite(line.epsilon),
            error(line.epsilon_se.filter(|e| *e > 0.0)),
            line.epsilon_fallback.map_or_else(String::new, |e| format!(" (at worst {e:.4})")),
            line.delta,
            line.client_updates,
            line.cpu_seconds.map_or_else(|| "unknown".to_owned(), |s| format!("{s:.1}")),
        )?;
        Ok(())
    }
}

/// The first there is. Survival times have neither accuracy nor RMSE.
fn fit(accuracy: Option<f64>, rmse: Option<f64>, concordance: Option<f64>) -> String {
    let of = |name: &str, value: Option<f64>| value.map(|value| format!(", {name} {value:.4}"));
    of("accuracy", accuracy).or(of("RMSE", rmse)).or(of("concordance", concordance)).unwrap_or_default()
}

fn finite(epsilon: Option<f64>) -> String {
    epsilon.map_or_else(|| "infinite (no protection)".to_owned(), |e| format!("{e:.4}"))
}

fn run(experiment: Experiment, file: &Path, data: &Path, print: &mut Printer<'_>, quiet: bool) -> Result<(), Failure> {
    let session = Session::open(experiment, file, data)?;
    let seeds = session.experiment().seeds.clone();
    let threads = session.experiment().threads.unwrap_or_else(processors);
    let (threads, sites) = (threads.clamp(1, seeds.len()), (threads / seeds.len()).max(1));
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(session.rounds() * seeds.len() as u64) };
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} rounds, {eta} left").unwrap_or_else(|_| ProgressStyle::default_bar()));
    let next = AtomicUsize::new(0);
    let (results, finished) = mpsc::channel();
    let ends = std::thread::scope(|scope| {
        for _ in 0..threads {
            let (results, session, seeds, next, bar) = (results.clone(), &session, &seeds, &next, &bar);
            scope.spawn(move || {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let bar = bar.clone();
                    if results.send((*seed, session.run(*seed, sites, move || bar.inc(1)))).is_err() {
                        // Another run failed, or printing did: no one waits for more.
                        break;
                    }
                }
            });
        }
        drop(results);
        in_order(&seeds, finished, |run| bar.suspend(|| print.run(run)))
    })?;
    bar.finish_and_clear();
    print.summary(&SummaryLine::of(&ends, session.task().hash().to_string(), session.task().privacy.delta.get()))
}

/// Prints runs in the order of their seeds, whichever finishes first.
fn in_order(
    seeds: &[u64],
    finished: mpsc::Receiver<(u64, Result<SeedResult, ExperimentError>)>,
    mut print: impl FnMut(&SeedResult) -> Result<(), Failure>,
) -> Result<Vec<SeedLine>, Failure> {
    let mut waiting = Vec::new();
    let mut ends = Vec::new();
    for (seed, result) in finished {
        waiting.push((seed, result?));
        while let Some(position) = waiting.iter().position(|(seed, _)| seeds.get(ends.len()) == Some(seed)) {
            let (_, run) = waiting.swap_remove(position);
            print(&run)?;
            ends.push(run.end);
        }
    }
    Ok(ends)
}

#[derive(Serialize)]
struct HospitalLine<'a> {
    hospital: &'a str,
    rows: u64,
    events: u64,
}

fn hospitals(output: &Path, options: Options, container: Container, print: &mut Printer<'_>) -> Result<(), Failure> {
    if container == Container::Parquet {
        return print_hospitals(&generate::write_columns(options, output)?.hospitals, output, print);
    }
    let cohort = generate::hospitals(options)?;
    written(&cohort.files(), &cohort.truth.hospitals, output, print)
}

fn survival(output: &Path, options: Options, print: &mut Printer<'_>) -> Result<(), Failure> {
    let study = generate::survival(options)?;
    written(&study.files(), &study.truth.hospitals, output, print)
}

/// Writes generated files and says what they hold.
fn written(files: &[(String, String)], hospitals: &[HospitalSummary], output: &Path, print: &mut Printer<'_>) -> Result<(), Failure> {
    generate::write(files, output)?;
    print_hospitals(hospitals, output, print)
}

fn print_hospitals(hospitals: &[HospitalSummary], output: &Path, print: &mut Printer<'_>) -> Result<(), Failure> {
    for hospital in hospitals {
        if print.format == Format::Json {
            print.json(&HospitalLine { hospital: &hospital.name, rows: hospital.rows, events: hospital.events })?;
        } else {
            writeln!(print.out, "{}: {} rows, {} with an event", hospital.name, hospital.rows, hospital.events)?;
        }
    }
    if print.format == Format::Text {
        writeln!(print.out, "written to {}", output.display())?;
    }
    Ok(())
}

/// Plans a selection, and runs it where there is something to book it in.
fn choose(file: &Path, data: &Path, run: Option<(Book, Limits)>, print: &mut Printer<'_>) -> Result<(), Failure> {
    let selection = tune::Selection::plan(Experiment::read(file)?, file)?;
    if print.format == Format::Json {
        print.json(selection.cost())?;
    } else {
        writeln!(print.out, "{}", selection.cost())?;
    }
    let Some((book, limits)) = run else { return Ok(()) };
    let choice = selection.run(data, &book, limits)?;
    if print.format == Format::Json { print.json(&choice) } else { Ok(writeln!(print.out, "{choice}")?) }
}

/// Options of `audit`.
struct Attack<'a> {
    update: Option<&'a str>,
    trials: u32,
    output: Option<&'a Path>,
    quiet: bool,
}

impl Attack<'_> {
    /// Prints every row as soon as it is known.
    fn run(&self, print: &mut Printer<'_>) -> Result<(), Failure> {
        let cases = audit::cases(self.update);
        if let (true, Some(update)) = (cases.is_empty(), self.update) {
            return Err(AuditError::NoSuchUpdate(update.to_owned()).into());
        }
        if self.update.is_none()
            && let missing = audit::missing(&cases)
            && !missing.is_empty()
        {
            return Err(AuditError::NoRow(missing.join(", ")).into());
        }
        let bar = if self.quiet { ProgressBar::hidden() } else { ProgressBar::new(cases.len() as u64) };
        bar.set_style(
            ProgressStyle::with_template("{bar:40} {pos}/{len} rows, {elapsed} gone, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        if print.format == Format::Text {
            let trials = self.trials;
            writeln!(
                print.out,
                "what about {trials} runs of each data set prove (95 % for the whole table) <= what the accountant claims"
            )?;
        }
        // The rows go on where standard output is closed: the file may still be wanted.
        let mut printed = Ok(());
        let rows = audit::audit(&cases, self.trials, |row| {
            let mut line = || {
                if print.format == Format::Json {
                    print.json(row)?
                } else {
                    writeln!(print.out, "{row}")?
                }
                Ok::<_, Failure>(print.out.flush()?)
            };
            if printed.is_ok() {
                printed = bar.suspend(&mut line);
            }
            bar.inc(1);
        })?;
        bar.finish_and_clear();
        if let Some(path) = self.output {
            dp_pvi_programs::outputs::write(path, audit::table(&rows).as_bytes())
                .map_err(|error| Failure::Read { path: path.to_owned(), error })?;
        }
        printed?;
        match rows.iter().filter(|row| row.flag.is_some()).count() {
            0 => Ok(()),
            flagged => Err(Failure::Flagged(flagged)),
        }
    }
}

#[cfg(feature = "fault-injection")]
fn faults(times: u32, trials: u32, print: &mut Printer<'_>) -> Result<(), Failure> {
    let mut wrong = 0;
    for _ in 0..times {
        let outcomes = audit::injected::run(trials, |_| ())?;
        for outcome in outcomes {
            wrong += usize::from(!outcome.right);
            if print.format == Format::Json {
                print.json(&outcome)?;
            } else {
                writeln!(print.out, "{outcome}")?;
            }
            print.out.flush()?;
        }
    }
    if wrong == 0 { Ok(()) } else { Err(Failure::Flagged(wrong)) }
}
