//! Private hyperparameter selection: `dp-pvi-sim tune`.
//!
//! Trying candidates one after the other on the same private records and keeping the best is not free: the choice itself says something
//! about a record, and so does every run that is started again because it diverged. Here a random number of trials is run, each with a
//! candidate that is drawn at random, and only the best is released, with its score (Liu and Talwar 2019; Papernot and Steinke 2022).
//!
//! # Privacy
//! * One trial is one private run with coins and noise from the operating system. Its score is computed from what the run released and from
//!   *public* test files, so it adds nothing. An experiment that would look at private records otherwise is refused: records that are held out
//!   of the private ones (`test_fraction`), choices by label or number (`balance`, `limit`, `kappa`), and slices that move other
//!   records when one comes or goes (add-remove with anything but a file for each site).
//! * The number of trials has exactly the law of the theorem (module `count`).
//! * The charge of every site is one event with the ε and δ of the whole selection (module `cost`): all trials, those that fail, and the
//!   choice between them. It is reserved before the first trial and never given back, in the ledger of a folder that belongs to the records
//!   (module `book`): the next selection on them reads it. What is printed is what that ledger then says at the task's δ.
//! * The event's δ is half the task's, so that a ledger with the task's δ has room beside the failure of a black box.
//! * How many trials there were is not printed, nor how the others did: the proof counts on that. How long the program runs does tell
//!   the number, so that is for the eyes of those only who hold the records.
//! * A trial that fails takes its turn like any other.

mod book;
mod cost;
mod count;

use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};

use dp_pvi_accounting::{AccountantError, epsilon_upper};
use dp_pvi_accounting::{Delta, DpEvent, Epsilon, Relation};
use dp_pvi_posterior::task::{ResolvedTask, TaskError};
use dp_pvi_privacy::SecureNoise;
use dp_pvi_privacy::ledger::{Budget, LedgerError, LedgerIdentity};
use dp_pvi_privacy::noise::NoRandomness;
use serde::Serialize;

pub use self::book::Book;
use self::book::Charge;
pub use self::count::{Gamma, Mean, Trials};
use crate::experiment::{Experiment, ExperimentError, Session, Slicing, TuneSection, processors};

/// Why nothing was chosen.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The `[tune]` section.
    #[error("[tune] {0}")]
    Config(String),
    /// The experiment, or a trial.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A candidate's task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A candidate's event.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
    /// No randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The budget, or the ledger.
    #[error("the ledger refuses the selection, and nothing was run: {0}")]
    Ledger(#[from] LedgerError),
    /// The folder of the ledger.
    #[error("{}: {problem}", path.display())]
    Folder {
        /// Which file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
}

impl TuneError {
    /// Exit code of the program.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Task(_) | Self::Accountant(_) => 2,
            Self::Experiment(error) => error.exit_code(),
            Self::Ledger(LedgerError::Store(_)) | Self::Folder { .. } | Self::NoRandomness(_) => 12,
            Self::Ledger(LedgerError::OtherIdentity(_)) => 7,
            Self::Ledger(_) => 8,
        }
    }
}

/// What a selection costs every site.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// ε of the whole selection at `delta`, as a ledger with nothing else in it states it.
    pub epsilon: f64,
    /// The task's δ.
    pub delta: f64,
    /// ε and δ of the event that is booked.
    pub event: (f64, f64),
    /// ε with which the task of every trial is resolved.
    pub epsilon_of_a_trial: f64,
    /// Expected number of trials.
    pub expected_trials: f64,
    /// Number of candidates.
    pub candidates: usize,
}

/// A selection that was calibrated and not run.
#[derive(Debug)]
pub struct Selection {
    experiment: Experiment,
    path: PathBuf,
    section: TuneSection,
    trials: Trials,
    cost: Cost,
}

/// What is released.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Position of the best candidate, from 0; absent: no trial was drawn, or all failed.
    pub candidate: Option<usize>,
    /// Its options, as TOML.
    pub options: String,
    /// Its mean log-likelihood on the test records.
    pub log_likelihood: Option<f64>,
    /// λ of the best trial: it is paid for and may be used.
    pub lambda: Vec<f64>,
    /// What the ledger of the records has booked, in words.
    pub booked: String,
}

/// What all selections of one ledger may cost together, where it is more than one selection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// ε, instead of that of `[tune]`.
    pub epsilon: Option<f64>,
    /// δ, instead of the task's.
    pub delta: Option<f64>,
}

/// Bisections of ε of a trial: to a relative 1e-4.
const BISECTIONS: u32 = 14;

impl Selection {
    /// Finds the ε of a trial for which a ledger books no more for the whole selection than `[tune]` allows.
    ///
    /// # Errors
    /// A section that is none, or a candidate that is no task.
    pub fn plan(experiment: Experiment, path: &Path) -> Result<Self, TuneError> {
        let Some(section) = experiment.tune.clone() else {
            return Err(TuneError::Config("is missing: it needs epsilon, expected_trials and candidates".into()));
        };
        if section.candidates.is_empty() {
            return Err(TuneError::Config("candidates is empty: give one table of [pvi] options for every candidate".into()));
        }
        if !(section.epsilon > 0.0 && section.epsilon.is_finite()) {
            return Err(TuneError::Config("epsilon must be a finite number above 0".into()));
        }
        let trials = Trials::new(section.trials, section.expected_trials)
            .ok_or_else(|| TuneError::Config("expected_trials must be at least 1 and at most 500".into()))?;
        refuse_looks(&experiment)?;
        let tasks = |epsilon: f64| -> Result<Vec<ResolvedTask>, TuneError> {
            let task = |options| Ok(experiment.with_options(options, epsilon).resolve(path)?.0);
            section.candidates.iter().map(task).collect()
        };
        let costs = |epsilon: f64| -> Result<(f64, f64), TuneError> {
            let tasks = tasks(epsilon)?;
            let delta = half(tasks[0].privacy.delta)?;
            if tasks.iter().any(|task| task.privacy.delta != tasks[0].privacy.delta || task.privacy.relation != tasks[0].privacy.relation) {
                return Err(TuneError::Config("candidates differ in more than options of [pvi]".into()));
            }
            let epsilon = cost::epsilon(&cost::worst(&tasks)?, trials, delta);
            // What a ledger makes of it: a little more, because it books a black box by its divergences.
            let booked = epsilon_upper([&event(epsilon, delta.get())?], tasks[0].privacy.relation, tasks[0].privacy.delta)?;
            Ok((epsilon, booked.epsilon.get()))
        };
        // A choice costs more than one run, so the whole ε is too much for a trial.
        let (mut lower, mut upper) = (0.0, section.epsilon);
        for _ in 0..BISECTIONS {
            let middle = if lower > 0.0 { f64::midpoint(lower, upper) } else { 0.25 * upper };
            if costs(middle)?.1 <= section.epsilon {
                lower = middle;
            } else {
                upper = middle;
            }
        }
        if lower <= 0.0 {
            return Err(TuneError::Config("epsilon is too small for so many trials: raise it, or lower expected_trials".into()));
        }
        let tasks = tasks(lower)?;
        if tasks[0].privacy.relation == Relation::AddRemove && experiment.clients.slicing != Slicing::Files {
            return Err(TuneError::Config(
                "under add-remove a record that comes or goes moves others to another site: give every site a file (slicing = \"files\"), or use \
                 adjacency = \"replace-one\""
                    .into(),
            ));
        }
        let delta = tasks[0].privacy.delta;
        let (epsilon, booked) = costs(lower)?;
        let cost = Cost {
            epsilon: booked,
            delta: delta.get(),
            event: (epsilon, half(delta)?.get()),
            epsilon_of_a_trial: lower,
            expected_trials: section.expected_trials,
            candidates: section.candidates.len(),
        };
        Ok(Self { experiment, path: path.to_owned(), section, trials, cost })
    }

    /// What it costs.
    #[must_use]
    pub fn cost(&self) -> &Cost {
        &self.cost
    }

    /// What a site's ledger books.
    ///
    /// # Errors
    /// Numbers out of range (never for a plan).
    pub fn event(&self) -> Result<DpEvent, TuneError> {
        event(self.cost.event.0, self.cost.event.1)
    }

    /// Charges the ledger of the records, then runs the trials and releases the best.
    ///
    /// # Errors
    /// The ledger refuses, the data cannot be read, or the operating system gives no randomness.
    pub fn run(&self, data: &Path, book: &Book, limits: Limits) -> Result<Choice, TuneError> {
        self.refuse_private_tests(data)?;
        let mut sessions = Vec::with_capacity(self.section.candidates.len());
        // All data is read before anything is charged: a file that is missing costs nothing.
        for options in &self.section.candidates {
            let experiment = self.experiment.with_options(options, self.cost.epsilon_of_a_trial);
            sessions.push(Session::open(experiment, &self.path, data)?);
        }
        let mut coins = count::secure()?;
        let booked = self.charge(&sessions[0], book, limits, &coins.key())?;
        let count = self.trials.draw(&mut coins);
        let mut best: Option<(usize, f64, Vec<f64>)> = None;
        for _ in 0..count {
            let candidate = usize::try_from(coins.below(sessions.len() as u64)).unwrap_or(0);
            // The seed is of keys, of the simulated network, and of who gets which record.
            let Ok(run) = sessions[candidate].run_with(coins.word(), SecureNoise, processors(), || ()) else { continue };
            let score = run.end.log_likelihood;
            if score.is_finite() && best.as_ref().is_none_or(|(_, before, _)| score > *before) {
                best = Some((candidate, score, run.lambda));
            }
        }
        let delta = limits.delta.unwrap_or(self.cost.delta);
        let booked = match book {
            Book::Forgotten => format!("epsilon {booked:.4} at delta {delta:e}, before the first trial"),
            Book::Folder(folder) => format!("epsilon {booked:.4} at delta {delta:e} in {}, all selections together", folder.display()),
        };
        Ok(match best {
            None => Choice { candidate: None, options: String::new(), log_likelihood: None, lambda: Vec::new(), booked },
            Some((candidate, score, lambda)) => Choice {
                candidate: Some(candidate),
                options: self.section.candidates[candidate].to_string(),
                log_likelihood: Some(score),
                lambda,
                booked,
            },
        })
    }

    /// A test file that is one of the private files is not public.
    fn refuse_private_tests(&self, data: &Path) -> Result<(), TuneError> {
        let place = |file: &PathBuf| data.join(file).canonicalize().unwrap_or_else(|_| data.join(file));
        let private: Vec<_> = self.experiment.data.files.iter().map(place).collect();
        match self.experiment.data.test_files.iter().flatten().find(|file| private.contains(&place(file))) {
            Some(file) => Err(TuneError::Config(format!("test file {} is one of the private files: give public ones", file.display()))),
            None => Ok(()),
        }
    }

    /// Reserves the selection. The ε that the ledger then states.
    fn charge(&self, session: &Session, book: &Book, limits: Limits, seed: &[u8; 32]) -> Result<f64, TuneError> {
        let task = session.task();
        let wrong = |error: dp_pvi_accounting::unit::InvalidUnit| TuneError::Config(error.to_string());
        let budget = Budget {
            epsilon: Epsilon::new(limits.epsilon.unwrap_or(self.section.epsilon)).map_err(wrong)?,
            delta: limits.delta.map_or(Ok(task.privacy.delta), Delta::new).map_err(wrong)?,
            per_run: None,
            max_fallback: None,
            allow_non_private: false,
        };
        let identity = LedgerIdentity { data: "tune".into(), unit: task.privacy.unit, relation: task.privacy.relation };
        book.charge(&Charge { identity, budget, task: task.hash(), event: &self.event()? }, seed)
    }
}

/// Refuses what would look at private records outside a trial.
fn refuse_looks(experiment: &Experiment) -> Result<(), TuneError> {
    let refused = |problem: &str| Err(TuneError::Config(problem.to_owned()));
    let data = &experiment.data;
    if data.test_fraction.is_some() || data.test_files.is_none() {
        return refused(
            "scores trials on public records: give [data] test_files in the place of test_fraction, which holds out private records",
        );
    }
    if data.balance || data.limit.is_some() {
        return refused("cannot have [data] balance or limit: which records are kept would depend on private labels and numbers");
    }
    #[allow(clippy::float_cmp, reason = "0 is the default and means off")]
    if experiment.clients.kappa != 0.0 {
        return refused("cannot have [clients] kappa: it shares records out by their private labels");
    }
    Ok(())
}

fn event(epsilon: f64, delta: f64) -> Result<DpEvent, TuneError> {
    let wrong = |error: dp_pvi_accounting::unit::InvalidUnit| TuneError::Config(error.to_string());
    Ok(DpEvent::Approximate { epsilon: Epsilon::new(epsilon).map_err(wrong)?, delta: Some(Delta::new(delta).map_err(wrong)?) })
}

/// δ of the selection's event.
fn half(delta: Delta) -> Result<Delta, TuneError> {
    Delta::new(0.5 * delta.get()).map_err(|error| TuneError::Config(error.to_string()))
}

impl Display for Cost {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "choosing between {} candidates in {} expected trials costs every site epsilon {:.4} at delta {:e}; each trial may spend {:.4}",
            self.candidates, self.expected_trials, self.epsilon, self.delta, self.epsilon_of_a_trial
        )
    }
}

impl Display for Choice {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match (self.candidate, self.log_likelihood) {
            (Some(candidate), Some(score)) => {
                let options = self.options.trim().replace('\n', ", ");
                write!(f, "candidate {}: {options}; log-likelihood {score:.4}; booked: {}", candidate + 1, self.booked)
            }
            _ => write!(f, "no candidate: no trial was drawn, or none came to an end; booked all the same: {}", self.booked),
        }
    }
}
