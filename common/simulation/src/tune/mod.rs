//! Private hyperparameter selection (algorithms, R7): `dp-pvi-sim tune`.
//!
//! Trying candidates one after the other on the same private records and keeping the best is not free: the choice itself says something
//! about a record, and so does every run that is started again because it diverged. Here a random number of trials is run, each with a
//! candidate that is drawn at random, and only the best is released, with its score (Liu and Talwar 2019; Papernot and Steinke 2022).
//!
//! # Privacy
//! * One trial is one private run; its score is computed from what the run released and from public test records, so it adds nothing.
//! * The charge of every site is one `Approximate` event with the ε of the whole selection (`tune::cost`), reserved in its ledger before the
//!   first trial. It is not given back, whatever happens.
//! * The event's δ is half the task's, so that a ledger with the task's δ has room beside the failure of a black box.
//! * How many trials there were is not printed, nor how the others did: the proof counts on that.
//! * A trial that fails takes its turn like any other.

mod cost;

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};

use dp_pvi_posterior::task::{ResolvedTask, TaskError};
use dp_pvi_privacy::accountant::{AccountantError, epsilon_upper};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerError, LedgerIdentity};
use dp_pvi_privacy::{ClientId, Delta, DpEvent, Epsilon, Ledger, ReleaseId, RunId};
use ed25519_dalek::SigningKey;
use rand_core::Rng;
use serde::Serialize;

pub use self::cost::Trials;
use crate::experiment::{Experiment, ExperimentError, Session, TuneSection, processors};
use crate::federation::client_key;
use crate::noise::stream;

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
    /// A site's budget.
    #[error("a site's ledger refuses the selection: {0}")]
    Ledger(#[from] LedgerError),
}

impl TuneError {
    /// Exit code of the program.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Task(_) | Self::Accountant(_) => 2,
            Self::Experiment(error) => error.exit_code(),
            Self::Ledger(_) => 8,
        }
    }
}

/// What a selection costs every site.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// ε of the whole selection.
    pub epsilon: f64,
    /// At this δ.
    pub delta: f64,
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
    /// What every site's ledger has booked, in words.
    pub booked: String,
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
            .ok_or_else(|| TuneError::Config("expected_trials must be at least 1 and at most 10000".into()))?;
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
        let delta = half(tasks(lower)?[0].privacy.delta)?.get();
        let cost = Cost {
            epsilon: costs(lower)?.0,
            delta,
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
        event(self.cost.epsilon, self.cost.delta)
    }

    /// Charges every site's ledger, then runs the trials and releases the best.
    ///
    /// # Errors
    /// A ledger refuses, or the data cannot be read.
    pub fn run(&self, data: &Path, seed: u64) -> Result<Choice, TuneError> {
        let mut sessions: BTreeMap<usize, Session> = BTreeMap::new();
        let mut open = |candidate: usize| -> Result<(), TuneError> {
            if let std::collections::btree_map::Entry::Vacant(entry) = sessions.entry(candidate) {
                let experiment = self.experiment.with_options(&self.section.candidates[candidate], self.cost.epsilon_of_a_trial);
                entry.insert(Session::open(experiment, &self.path, data)?);
            }
            Ok(())
        };
        // All data is read before anything is charged: a file that is missing costs nothing.
        (0..self.section.candidates.len()).try_for_each(&mut open)?;
        self.charge(&sessions[&0], seed)?;
        let mut dice = stream(seed, "tune", 0);
        let count = self.trials.draw(f64::from(dice.next_u32()) / 4_294_967_296.0);
        let mut best: Option<(usize, f64, Vec<f64>)> = None;
        for trial in 0..count {
            let candidate = usize::try_from(dice.next_u64() % self.section.candidates.len() as u64).unwrap_or(0);
            let Ok(run) = sessions[&candidate].run(seed.wrapping_add(1 + u64::from(trial)), processors(), || ()) else { continue };
            let score = run.end.log_likelihood;
            if score.is_finite() && best.as_ref().is_none_or(|(_, before, _)| score > *before) {
                best = Some((candidate, score, run.lambda));
            }
        }
        let booked = format!("epsilon {:.4} at delta {:e}, before the first trial", self.cost.epsilon, self.cost.delta);
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

    /// Reserves the selection in a ledger of every site, whose budget is what `[tune]` allows.
    fn charge(&self, session: &Session, seed: u64) -> Result<(), TuneError> {
        let task = session.task();
        let budget = Budget {
            epsilon: Epsilon::new(self.section.epsilon).map_err(|error| TuneError::Config(error.to_string()))?,
            delta: task.privacy.delta,
            per_run: None,
            allow_non_private: false,
        };
        for number in 0..session.experiment().number_of_clients() {
            // Digits and a hyphen only.
            let client = ClientId::new(format!("client-{}", number + 1)).map_err(|error| TuneError::Config(error.to_string()))?;
            let identity = LedgerIdentity { data: client.to_string(), unit: task.privacy.unit, relation: task.privacy.relation };
            let key: SigningKey = client_key(seed, &client);
            let mut ledger = Ledger::open(MemoryStore::new(), key, identity, budget)?;
            let release = ReleaseId { run: RunId { task: task.hash(), number: 0 }, client, round: 0 };
            // The permit is for the whole selection; each trial works under the ledgers of its own federation.
            drop(ledger.reserve(&release, &self.event()?, task.hash())?);
        }
        Ok(())
    }
}

fn event(epsilon: f64, delta: f64) -> Result<DpEvent, TuneError> {
    let wrong = |error: dp_pvi_privacy::unit::InvalidUnit| TuneError::Config(error.to_string());
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
