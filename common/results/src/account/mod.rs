//! Questions to the accountant as commands: `account`, `calibrate` and `plan`. `dp-pvi-server` has them for who decides about a budget, `dp-pvi-sim` for
//! who works out an experiment.
//!
//! The mathematics is in [`dp_pvi_accounting`]; nothing here touches a record, a ledger or a network.

mod certificate;
mod curves;
mod patience;
mod plan;
mod plot;
mod queries;
mod run_forecast;
mod steps;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use dp_pvi_accounting::unit::{InvalidUnit, rounded_down, rounded_up};
use dp_pvi_accounting::{AccountantError, Delta, Epsilon, Interval, Plan, Relation};
use dp_pvi_exchange::{self as exchange, EventsError};
use dp_pvi_posterior::task::{ResolvedTask, TaskError};
use serde::Serialize;

use self::patience::patiently;
use self::queries::{Answer, Answers, QueryError};
pub use self::run_forecast::{Sizes, draw};
use self::steps::{Calibrated, Steps};
pub use crate::forecast::whole;

/// A question on the command line.
#[derive(Debug, Subcommand)]
pub enum Question {
    /// Says what steps cost: ε(δ) between certified bounds, or answers a table of questions.
    Account {
        /// Noise standard deviation over the clipping norm.
        #[arg(long, required_unless_present_any = ["queries", "events"], allow_hyphen_values = true)]
        sigma: Option<f64>,
        /// Number of steps.
        #[arg(long, required_unless_present_any = ["queries", "events"], value_parser = steps::whole, allow_hyphen_values = true)]
        steps: Option<u64>,
        /// What a step is.
        #[command(flatten)]
        how: Steps,
        /// Answers the rows of this file, a JSON line each: {id, lower, estimate, upper, seconds} or {id, error}.
        #[arg(long, conflicts_with_all = ["sigma", "steps", "plot", "curves", "events"])]
        queries: Option<PathBuf>,
        /// Steps of several kinds, as dp_accounting for Python prints its events, or as JSON with class_name, or measure and loss.
        #[arg(long, conflicts_with_all = ["sigma", "steps", "q", "sampling"])]
        events: Option<PathBuf>,
        /// Draws δ(ε), the trade-off curve and ε over the steps to this SVG file.
        #[arg(long)]
        plot: Option<PathBuf>,
        /// Writes ε(δ), δ(ε) and the trade-off curve as numbers to this CSV file.
        #[arg(long)]
        curves: Option<PathBuf>,
        /// Writes a certificate to this file: a claim, for an epsilon that is a little larger, that `dp-pvi-verify` checks.
        #[arg(long, value_name = "FILE", conflicts_with = "queries")]
        certificate: Option<PathBuf>,
    },
    /// Finds what is not given for a target ε: the smallest sigma, the most steps, or the highest Poisson rate; on the safe side.
    Calibrate {
        /// ε that must not be exceeded.
        #[arg(long, allow_hyphen_values = true)]
        epsilon: f64,
        /// Noise standard deviation over the clipping norm.
        #[arg(long, allow_hyphen_values = true)]
        sigma: Option<f64>,
        /// Number of steps.
        #[arg(long, value_parser = steps::whole, allow_hyphen_values = true)]
        steps: Option<u64>,
        /// What a step is.
        #[command(flatten)]
        how: Steps,
    },
    /// Says before a run what a task costs each site, and how many rounds a budget leaves.
    Plan {
        /// The resolved task (`dp-pvi-server check -o FILE` writes it).
        task: PathBuf,
        /// A site's budget.
        #[arg(long, allow_hyphen_values = true)]
        epsilon: Option<f64>,
        /// At this δ instead of the task's.
        #[arg(long, requires = "epsilon", allow_hyphen_values = true)]
        delta: Option<f64>,
        /// Runs of this task that the site's ledger has charged already.
        #[arg(long, default_value_t = 0, requires = "epsilon", allow_hyphen_values = true)]
        booked: u32,
        /// For how many records of how many sites.
        #[command(flatten)]
        sizes: Sizes,
        /// Writes what the run will be worth to forecast.svg and forecast.json in this folder.
        #[arg(short, long, value_name = "DIR", requires = "units")]
        output: Option<PathBuf>,
    },
}

/// A question without an answer.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// A number out of range.
    #[error(transparent)]
    Number(#[from] InvalidUnit),
    /// No bound, or a target out of reach.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
    /// A task that cannot be accounted.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The flags do not fit together.
    #[error("{0}")]
    Usage(&'static str),
    /// No certificate that can be checked.
    #[error("no certificate of this can be checked: {0}")]
    Certificate(dp_pvi_verifier::Refusal),
    /// A file of events that cannot be accounted.
    #[error(transparent)]
    Events(#[from] EventsError),
    /// A file of questions that is none.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// Questions of a table that have no answer.
    #[error("{0} rows have no answer: see their error")]
    Refused(usize),
    /// A file that cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// A file that cannot be written.
    #[error("{path}: {error}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// Standard output takes no more.
    #[error("results cannot be printed ({0})")]
    Print(#[from] std::io::Error),
    /// The same, while they were made JSON.
    #[error("results cannot be printed ({0})")]
    Json(#[from] serde_json::Error),
}

impl AccountError {
    /// The exit code of a program that ends with it, as all programs have it: 2 for a wrong question, 4 for a file that cannot be read, 12 for one that cannot be written and
    /// for standard output, 1 for everything else.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Number(_)
            | Self::Accountant(_)
            | Self::Task(_)
            | Self::Usage(_)
            | Self::Events(_)
            | Self::Query(_)
            | Self::Certificate(_) => 2,
            // What is there is needed.
            Self::Write { error, .. } if error.kind() == std::io::ErrorKind::InvalidInput => 2,
            Self::Read { .. } => 4,
            Self::Write { .. } | Self::Print(_) => 12,
            Self::Refused(_) | Self::Json(_) => 1,
        }
    }
}

impl Question {
    /// The file that the question reads, which no output may take the place of.
    #[must_use]
    pub fn reads(&self) -> Option<&Path> {
        match self {
            Self::Account { queries, events, .. } => queries.as_deref().or(events.as_deref()),
            Self::Calibrate { .. } => None,
            Self::Plan { task, .. } => Some(task.as_path()),
        }
    }

    /// Whether a file is written beside the answer.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self {
            Self::Account { plot, curves, certificate, .. } => plot.is_some() || curves.is_some() || certificate.is_some(),
            Self::Calibrate { .. } => false,
            Self::Plan { output, .. } => output.is_some(),
        }
    }

    /// Answers on `out`: as sentences, or as JSON, one object a line. Files that the question names are written by `file`.
    ///
    /// # Errors
    /// What is wrong with the question, or with a file that it names.
    pub fn answer(&self, out: &mut dyn Write, json: bool, file: WriteFile) -> Result<(), AccountError> {
        let mut print = Printer { out, json, file };
        patiently(|row| self.answered(&mut print, row))
    }

    fn answered(&self, print: &mut Printer<'_>, row: &patience::Row) -> Result<(), AccountError> {
        match self {
            Self::Account { queries: Some(file), .. } => answer(file, print, row),
            Self::Account { events: Some(file), how, plot, curves, certificate, .. } => {
                let all = exchange::read_plan(&String::from_utf8_lossy(&read(file)?), how.relation()?)?;
                let rounds = |_: Delta| Ok(Vec::new());
                cost(&all, how.delta, plot.as_deref().map(|file| (file, rounds)), print)?;
                write_curves(curves.as_deref(), &all, how.delta, print)?;
                certify(certificate.as_deref(), &all, how.delta, print)
            }
            Self::Account { sigma, steps, how, plot, curves, certificate, .. } => {
                let (sigma, steps) = sigma.zip(*steps).ok_or(AccountError::Usage("give --sigma and --steps"))?;
                let rounds = |delta: Delta| over_steps(how, sigma, steps, delta);
                let all = how.plan(sigma, steps)?;
                cost(&all, how.delta, plot.as_deref().map(|file| (file, rounds)), print)?;
                write_curves(curves.as_deref(), &all, how.delta, print)?;
                certify(certificate.as_deref(), &all, how.delta, print)
            }
            Self::Calibrate { epsilon, sigma, steps, how } => calibrate(how, *sigma, *steps, *epsilon, print),
            Self::Plan { task, epsilon, delta, booked, sizes, output } => {
                plan((task, sizes, output.as_deref()), *epsilon, *delta, *booked, print)
            }
        }
    }
}

/// Writes a file of results.
pub type WriteFile = fn(&Path, &[u8]) -> std::io::Result<()>;

struct Printer<'a> {
    out: &'a mut dyn Write,
    json: bool,
    file: WriteFile,
}

impl Printer<'_> {
    fn json(&mut self, line: &impl Serialize) -> Result<(), AccountError> {
        writeln!(self.out, "{}", serde_json::to_string(line)?)?;
        Ok(())
    }

    /// Writes a file that the question names.
    fn file(&mut self, file: &Path, bytes: &[u8]) -> Result<(), AccountError> {
        // What was printed comes first where both are one place.
        self.out.flush()?;
        (self.file)(file, bytes).map_err(|error| AccountError::Write { path: file.to_owned(), error })
    }
}

/// A line of an answered table.
#[derive(Serialize)]
struct AnswerLine<'a> {
    id: &'a serde_json::Value,
    #[serde(flatten)]
    answer: Answer,
    seconds: f64,
}

/// A line of a refused row.
#[derive(Serialize)]
struct RefusedLine<'a> {
    id: &'a serde_json::Value,
    error: String,
}

fn read(file: &Path) -> Result<Vec<u8>, AccountError> {
    std::fs::read(file).map_err(|error| AccountError::Read { path: file.to_owned(), error })
}

fn answer(file: &Path, print: &mut Printer<'_>, at: &patience::Row) -> Result<(), AccountError> {
    let (mut refused, mut answers) = (0, Answers::default());
    let rows = queries::rows(&String::from_utf8_lossy(&read(file)?))?;
    for (number, row) in (1..).zip(&rows) {
        at.is(number, rows.len());
        #[allow(clippy::disallowed_methods, reason = "the time an answer takes is part of the output")]
        let start = std::time::Instant::now();
        match answers.answer(row) {
            Ok(answer) => print.json(&AnswerLine { id: &row["id"], answer, seconds: start.elapsed().as_secs_f64() })?,
            Err(error) => {
                refused += 1;
                print.json(&RefusedLine { id: &row["id"], error: error.to_string() })?;
            }
        }
        print.out.flush()?;
    }
    if refused > 0 { Err(AccountError::Refused(refused)) } else { Ok(()) }
}

/// What a plan costs; with a file to draw to, and ε after parts of the plan for it.
fn cost(
    plan: &Plan,
    delta: f64,
    plot: Option<(&Path, impl Fn(Delta) -> Result<Vec<(f64, f64)>, AccountError>)>,
    print: &mut Printer<'_>,
) -> Result<(), AccountError> {
    let at = Delta::new(delta)?;
    let result = steps::account(plan, at);
    if print.json {
        print.json(&result)?;
    } else {
        writeln!(print.out, "epsilon at delta {delta:e}: {}", said(result.epsilon))?;
        writeln!(print.out, "attack advantage: at most {}", rounded_up(result.advantage.upper, 4))?;
        for (false_positives, true_positives) in result.true_positive_rate {
            let at_most = rounded_up(true_positives, 4);
            writeln!(print.out, "true positive rate at a false positive rate of {false_positives}: at most {at_most}")?;
        }
        writeln!(print.out, "by Renyi divergences: epsilon {} (order {:.2})", rounded_up(result.renyi_epsilon, 6), result.renyi_order)?;
    }
    if let Some((file, rounds)) = plot {
        let drawing = plot::plot(plan, at, &rounds(at)?);
        print.file(file, drawing.as_bytes())?;
    }
    Ok(())
}

/// A certified interval as a sentence goes on.
fn said(epsilon: Interval) -> String {
    let Interval { lower, upper, .. } = epsilon;
    let (below, above) = (rounded_down(lower, 6), rounded_up(upper, 6));
    match epsilon.known_estimate() {
        Some(estimate) => format!("at most {above} (certified); the accounted pair's own value is about {estimate:.6}"),
        None if lower.is_infinite() => {
            "infinite: with more probability than this delta nothing is protected, and no epsilon is enough (certified)".to_owned()
        }
        None if upper.is_infinite() => format!("at least {below} (certified); no upper bound is within reach of the numbers here"),
        None => {
            format!("at most {above} and at least {below} (both certified); no estimate between them is within reach of the numbers here")
        }
    }
}

fn write_curves(file: Option<&Path>, plan: &Plan, delta: f64, print: &mut Printer<'_>) -> Result<(), AccountError> {
    let Some(file) = file else { return Ok(()) };
    let table = curves::table(plan, Delta::new(delta)?);
    print.file(file, table.as_bytes())
}

/// Writes a certificate, where a file is named.
fn certify(file: Option<&Path>, plan: &Plan, delta: f64, print: &mut Printer<'_>) -> Result<(), AccountError> {
    let Some(file) = file else { return Ok(()) };
    let (certificate, bytes) = certificate::certify(plan, Delta::new(delta)?)?;
    print.file(file, &bytes)?;
    if !print.json {
        writeln!(print.out, "certificate: epsilon {} in {}", certificate.epsilon(), file.display())?;
    }
    Ok(())
}

/// ε after parts of the steps.
fn over_steps(how: &Steps, sigma: f64, steps: u64, delta: Delta) -> Result<Vec<(f64, f64)>, AccountError> {
    let mut done: Vec<u64> = (1..=24u64).map(|i| (steps * i).div_ceil(24)).collect();
    done.dedup();
    #[allow(clippy::cast_precision_loss, reason = "a drawing")]
    let rounds = done.into_iter().map(|done| Ok((done as f64, how.plan(sigma, done)?.epsilon_estimate(delta))));
    rounds.collect()
}

fn calibrate(how: &Steps, sigma: Option<f64>, steps: Option<u64>, epsilon: f64, print: &mut Printer<'_>) -> Result<(), AccountError> {
    let found = steps::calibrate(how, sigma, steps, epsilon)?;
    if print.json {
        return print.json(&found);
    }
    match found {
        Calibrated::Sigma(sigma) => writeln!(print.out, "sigma {} (certified; not below {:.9})", rounded_up(sigma.upper, 9), sigma.lower)?,
        Calibrated::Steps(steps) => writeln!(print.out, "steps {steps}")?,
        Calibrated::Q(rate) => writeln!(print.out, "q {rate:e}")?,
    }
    Ok(())
}

fn plan(
    (file, sizes, output): (&Path, &Sizes, Option<&Path>),
    epsilon: Option<f64>,
    delta: Option<f64>,
    booked: u32,
    print: &mut Printer<'_>,
) -> Result<(), AccountError> {
    let task = ResolvedTask::from_document(&read(file)?)?;
    let allowance = match epsilon {
        None => None,
        Some(epsilon) => {
            Some(plan::Allowance { epsilon: Epsilon::new(epsilon)?, delta: delta.map_or(Ok(task.privacy.delta), Delta::new)?, booked })
        }
    };
    let mut forecast = plan::forecast(&task, allowance)?;
    forecast.forecast = sizes.forecast(&task, None)?;
    if let (Some(folder), Some(predicted)) = (output, &forecast.forecast) {
        let failed = |error| AccountError::Write { path: folder.to_owned(), error };
        std::fs::create_dir_all(folder).map_err(failed)?;
        print.file(&folder.join("forecast.json"), &serde_json::to_vec_pretty(predicted)?)?;
        if let Some(drawing) = draw(predicted) {
            print.file(&folder.join("forecast.svg"), drawing.as_bytes())?;
        }
    }
    if print.json {
        return print.json(&forecast);
    }
    let said = |epsilon: Option<f64>| epsilon.map_or_else(|| "infinite (no protection)".to_owned(), |e| rounded_up(e, 4));
    writeln!(
        print.out,
        "{}: {} visits of each site cost it epsilon {} at delta {:e} ({})",
        forecast.name,
        forecast.visits,
        said(forecast.epsilon),
        forecast.delta,
        match forecast.relation {
            Relation::AddRemove => "add-remove",
            Relation::ReplaceOne => "replace-one",
        }
    )?;
    if forecast.fallback.is_some() {
        writeln!(print.out, "epsilon {} if all other parties work together", said(forecast.fallback))?;
    }
    for (visits, epsilon) in &forecast.after {
        writeln!(print.out, "after {visits} visits: epsilon {}", said(*epsilon))?;
    }
    if let Some(room) = forecast.budget {
        writeln!(
            print.out,
            "of epsilon {} at delta {:e}: {} spent by {} runs, {} left; the run {}",
            room.epsilon,
            room.delta,
            said(room.spent),
            room.booked,
            if room.runs_left >= plan::MANY { format!("over {}", plan::MANY) } else { room.runs_left.to_string() },
            if room.run_fits { "fits" } else { "does not fit" }
        )?;
    }
    if let Some(predicted) = &forecast.forecast {
        print.out.write_all(predicted.text().as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;
    use dp_pvi_accounting::{Mechanism, Neighbours, Phase, Sampling};

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(subcommand)]
        question: Question,
    }

    fn asked(line: &str) -> Result<String, String> {
        let program = Program::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        program.question.answer(&mut out, false, |file, bytes| std::fs::write(file, bytes)).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    /// An error about a number names the number, not its flag.
    #[test]
    fn messages_speak_of_the_number() {
        for (line, word) in [
            ("p account --sigma -1 --steps 1 --relation add-remove --sampling none", "sigma"),
            ("p account --sigma 1 --steps -3 --relation add-remove --sampling none", "whole number"),
            ("p account --sigma 1 --steps 1.5 --relation add-remove --sampling none", "whole number"),
            ("p account --sigma 1 --steps 1 --q -0.1 --relation add-remove --sampling poisson", "sampling rate"),
            ("p account --sigma 1 --steps 1 --delta -1e-5 --relation add-remove --sampling none", "delta"),
            ("p account --sigma 1 --steps 10 --batches -2 --relation add-remove --sampling random-allocation", "whole number"),
            ("p account --sigma inf --steps 1 --relation add-remove --sampling none", "sigma"),
            ("p calibrate --epsilon inf --steps 100 --q 0.1 --relation add-remove --sampling poisson", "finite number above 0"),
            ("p calibrate --epsilon 0 --sigma 2 --relation add-remove --sampling none", "finite number above 0"),
            ("p calibrate --epsilon inf --sigma 2 --steps 3 --relation add-remove --sampling poisson", "finite number above 0"),
            ("p calibrate --epsilon -1 --steps 100 --relation add-remove --sampling none", "epsilon"),
            ("p calibrate --epsilon nan --steps 100 --relation add-remove --sampling none", "epsilon"),
        ] {
            let error = asked(line).unwrap_err();
            assert!(error.contains(word) && !error.contains("unexpected argument") && !error.contains("raise epsilon"), "{line}: {error}");
        }
        let (short, long) = (
            "p account --sigma 50 --steps 1e3 --relation add-remove --sampling none",
            "p account --sigma 50 --steps 1000 --relation add-remove --sampling none",
        );
        assert_eq!(asked(short).unwrap(), asked(long).unwrap());
    }

    /// What is certified is said; an estimate only where it is known.
    #[test]
    fn an_estimate_that_nobody_knows_is_not_printed() {
        let of = |mechanism, sampling, steps, delta| {
            let plan = Plan::of(Neighbours::AddRemove, Phase { mechanism, sampling, steps }).unwrap();
            said(plan.epsilon(Delta::new(delta).unwrap()))
        };
        let boxes = of(Mechanism::Approximate { epsilon: 0.1, delta: 1e-6 }, Sampling::None, 50, 1e-5);
        assert!(boxes.starts_with("infinite: ") && !boxes.contains("about"), "{boxes}");
        let boxes = of(Mechanism::Approximate { epsilon: 1.0, delta: 1e-5 }, Sampling::None, 1, 1e-5);
        assert!(boxes.starts_with("at most 1.000000 (certified)"), "{boxes}");
        let known = of(Mechanism::Gaussian { sigma: 1.0 }, Sampling::Poisson(0.01), 100, 1e-5);
        assert!(known.contains("about"), "{known}");
        let (below, above) =
            (Interval { lower: 1.0, estimate: 2.0, upper: 3.0 }, Interval { lower: 1.0, estimate: 2.0, upper: f64::INFINITY });
        assert_eq!(
            said(below),
            "at most 3.000000 and at least 1.000000 (both certified); no estimate between them is within reach of the numbers here"
        );
        assert_eq!(said(above), "at least 1.000000 (certified); no upper bound is within reach of the numbers here");
    }
}
