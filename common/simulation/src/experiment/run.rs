//! The runs of an experiment.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use dp_pvi_accounting::Epsilon;
use dp_pvi_accounting::Prices;
use dp_pvi_data::{Public, load_public, select_public};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::Budget;
use dp_pvi_privacy::{NoiseSource, UnitTable, Units};
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::driver::{TrainError, TrainErrorKind};
use dp_pvi_protocol::message::{RefusalReason, RunOutcome};
use dp_pvi_protocol::metrics::{HeldOutMetrics, evaluate};
use dp_pvi_protocol::participant::{TrainJob, Trained};
use dp_pvi_protocol::predictive::Predictor;
use dp_pvi_schema::Schema;

use super::config::{Experiment, Slicing};
use super::report::{RoundLine, SeedLine};
use super::{ExperimentError, column, split};
use crate::federation;
use crate::federation::{Compute, Federation, Outcome, Site, Visit};
use crate::noise::SeededNoise;

/// Processors of this machine.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// An experiment with its data.
pub struct Session {
    experiment: Experiment,
    task: ResolvedTask,
    /// One table for every file with `slicing = "files"`, else one.
    tables: Vec<Public<RecordTable>>,
    /// Where the task has effects of sites: the records as rows of each client.
    own: Vec<Public<RecordTable>>,
    /// With `slicing = "column"` the client of every unit, if it has one.
    of_client: Vec<Option<usize>>,
    test: Option<Public<RecordTable>>,
    /// What the task's visits cost; for all runs.
    prices: OnceLock<Prices>,
}

/// A finished run.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedResult {
    /// Its rounds.
    pub rounds: Vec<RoundLine>,
    /// Its end.
    pub end: SeedLine,
    /// λ at the end.
    pub lambda: Vec<f64>,
}

impl Session {
    /// Resolves the task and loads the data. `data` is the directory of the data files.
    ///
    /// # Errors
    /// See [`ExperimentError`].
    pub fn open(experiment: Experiment, path: &Path, data: &Path) -> Result<Self, ExperimentError> {
        let (task, schema) = experiment.resolve(path)?;
        let locate = |files: &[PathBuf]| files.iter().map(|file| data.join(file)).collect::<Vec<_>>();
        let files = locate(&experiment.data.files);
        let load = |schema: &Schema, files: &[PathBuf]| {
            if let Some(missing) = files.iter().find(|file| !file.is_file()) {
                // Of records, as at a site.
                let source = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(dp_pvi_data::DataError::Io { path: missing.clone(), source }.into());
            }
            Ok(load_public(schema, files, None)?)
        };
        let tables = match experiment.clients.slicing {
            Slicing::Files => files.iter().map(|file| load(&schema, std::slice::from_ref(file))).collect::<Result<_, _>>()?,
            Slicing::Contiguous | Slicing::Hashed | Slicing::Column => vec![load(&schema, &files)?],
        };
        let of_client = match (experiment.clients.slicing, tables.first()) {
            (Slicing::Column, Some(table)) => {
                let side = column::schema(&task.schema, task.design.as_ref().map_or("", |design| &design.formula), &experiment.clients)?;
                column::clients(table.get(), load(&side, &files)?.get(), &side, &experiment.clients)?
            }
            _ => Vec::new(),
        };
        let test = experiment.data.test_files.as_deref().map(|files| load(&schema, &locate(files))).transpose()?;
        let of_sites = task.design.as_ref().is_some_and(|design| !design.sites.is_empty());
        let own = |number: usize| -> Result<Public<RecordTable>, ExperimentError> {
            let schema = schema.clone().of_site(client(number, experiment.number_of_clients()).as_str());
            let schema = schema.map_err(|problem| {
                ExperimentError::Config(format!(
                    "{problem}; the clients of an experiment are client-1, client-2, …, with as many digits as the last"
                ))
            })?;
            match experiment.clients.slicing {
                Slicing::Files => load(&schema, std::slice::from_ref(&files[number])),
                Slicing::Contiguous | Slicing::Hashed | Slicing::Column => load(&schema, &files),
            }
        };
        let own = if of_sites { (0..experiment.number_of_clients()).map(own).collect::<Result<_, _>>()? } else { Vec::new() };
        Ok(Self { experiment, task, tables, own, of_client, test, prices: OnceLock::new() })
    }

    /// The experiment.
    #[must_use]
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// The resolved task.
    #[must_use]
    pub fn task(&self) -> &ResolvedTask {
        &self.task
    }

    /// Rounds of a run without faults, for a progress bar.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        use dp_pvi_posterior::task::ScheduleSpec;
        match self.task.schedule {
            ScheduleSpec::Sequential { sweeps } | ScheduleSpec::Asynchronous { sweeps, .. } => {
                u64::from(sweeps) * self.experiment.number_of_clients() as u64
            }
            ScheduleSpec::Synchronous { rounds } => rounds.into(),
        }
    }

    /// Training tables of all clients, and the held-out one.
    ///
    /// # Errors
    /// The experiment's fractions and limits leave a table empty.
    pub fn split(&self, seed: u64) -> Result<(Vec<RecordTable>, Public<RecordTable>), ExperimentError> {
        let fraction = self.experiment.data.test_fraction;
        let cut = |table: &RecordTable, seed| {
            fraction.map_or_else(
                || (split::permutation(table.len(), seed, "test split"), Vec::new()),
                |f| split::hold_out(table.len(), f, seed),
            )
        };
        let mut clients = Vec::new();
        let mut held_out = Vec::new();
        for (number, public) in self.tables.iter().enumerate() {
            let table = public.get();
            let (mut training, mut test) = cut(table, seed);
            let super::config::DataSection { balance, limit, .. } = self.experiment.data;
            if balance || limit.is_some() {
                let class = |unit| split::is_positive(table.unit(unit));
                let kept = split::kept(table.len(), balance.then_some(class), limit.unwrap_or(usize::MAX), seed);
                training.retain(|&unit| kept[unit]);
                test.retain(|&unit| kept[unit]);
            }
            // With effects of sites every client has its own rows of the same records.
            let own = |client: usize| self.own.get(client).map_or(table, Public::get);
            if self.experiment.clients.slicing == Slicing::Column {
                // Held-out units of a client have its effect.
                for client in 0..self.experiment.number_of_clients() {
                    let of =
                        |units: &[usize]| units.iter().copied().filter(|&unit| self.of_client[unit] == Some(client)).collect::<Vec<_>>();
                    clients.push(split::select(own(client), &of(&training)));
                    held_out.push((self.own.get(client).unwrap_or(public), of(&test)));
                }
                continue;
            }
            if self.experiment.clients.slicing == Slicing::Files {
                clients.push(split::select(own(clients.len()), &training));
            } else {
                let class = |unit| split::is_positive(table.unit(unit));
                let number = self.experiment.number_of_clients();
                let shares = split::share_out(&training, class, number, &self.experiment.clients, seed)?;
                clients.extend(shares.iter().enumerate().map(|(client, share)| split::select(own(client), share)));
            }
            // Held-out records of a file are a site's, and have its effect.
            let of_site = if self.experiment.clients.slicing == Slicing::Files { self.own.get(number) } else { None };
            held_out.push((of_site.unwrap_or(public), test));
        }
        let test = match &self.test {
            Some(test) => test.clone(),
            None => {
                let parts: Vec<_> = held_out.iter().map(|(table, positions)| (*table, positions.as_slice())).collect();
                select_public(self.task.dimension as usize, &parts)
            }
        };
        Ok((clients, test))
    }

    /// One run, with visits of so many sites computed at the same time: what comes out does not depend on it. `progress` is called after
    /// every round.
    ///
    /// # Errors
    /// See [`ExperimentError`].
    pub fn run(&self, seed: u64, threads: usize, progress: impl Fn() + 'static) -> Result<SeedResult, ExperimentError> {
        self.run_with(seed, SeededNoise::new(seed), threads, progress)
    }

    /// The same with this noise; the seed is of the split, the network and the keys alone.
    ///
    /// # Errors
    /// See [`ExperimentError`].
    pub(crate) fn run_with<N: NoiseSource + Clone + 'static>(
        &self,
        seed: u64,
        noise: N,
        threads: usize,
        progress: impl Fn() + 'static,
    ) -> Result<SeedResult, ExperimentError> {
        self.run_spoiled(seed, noise, threads, progress, |_| ())
    }

    /// The same, with sites that someone has changed: see [`super::liar`].
    pub(super) fn run_spoiled<N: NoiseSource + Clone + 'static>(
        &self,
        seed: u64,
        noise: N,
        threads: usize,
        progress: impl Fn() + 'static,
        spoil: impl FnOnce(&mut Vec<Site>),
    ) -> Result<SeedResult, ExperimentError> {
        let (tables, test) = self.split(seed)?;
        let count = tables.len();
        let sites = tables.into_iter().enumerate().map(|(number, table)| {
            let client = client(number, count);
            let units = table.len() as u64;
            // As a site's program does: layouts and bounds go by the declared number.
            let site = self.task.site(client.as_str()).ok().flatten();
            let compute = Inference { units: Arc::new(Units::new(table).over_slots(units)), site, noise: noise.clone() };
            Site::new(client, units, &self.task, self.budget(), Rc::new(RefCell::new(compute)))
        });
        let mut sites: Vec<Site> = sites.collect();
        spoil(&mut sites);
        let mut federation = Federation::new(&self.task, seed, sites);
        federation.faults = self.experiment.faults.clone();
        federation.threads = threads;
        federation.prices = self.prices.get_or_init(|| federation::prices(&self.task)).clone();
        federation.start_deadline = Duration::from_secs(self.experiment.phases.start_deadline_seconds);
        let lines = Lines::new(self, seed, federation.prices.clone(), Evaluations::new(&self.task, test, threads));
        let lines = Rc::new(RefCell::new(lines));
        let watch = Rc::clone(&lines);
        federation.watch = Box::new(move |record| {
            if watch.borrow_mut().record(record) {
                progress();
            }
        });
        let outcome = federation.simulate();
        let mut lines = lines.borrow_mut();
        self.judge(seed, &outcome)?;
        for record in outcome.records.iter().skip(lines.seen) {
            lines.record(record);
        }
        let lambda = outcome.end.as_ref().map(|end| Arc::clone(&end.lambda)).unwrap_or_default();
        let last = lines.evaluations.start(&lambda);
        let metrics = lines.evaluations.finish().map_err(|problem| ExperimentError::Run { seed, problem })?;
        let rounds: Vec<_> = std::mem::take(&mut lines.rounds).into_iter().map(|(number, line)| line(&metrics[number])).collect();
        let metrics = &metrics[last];
        let end = SeedLine {
            kind: "seed",
            experiment: self.experiment.name.clone(),
            seed,
            rounds: lines.closed,
            client_updates: lines.updates,
            log_likelihood: metrics.log_likelihood,
            accuracy: metrics.accuracy,
            rmse: metrics.rmse,
            auc: metrics.auc,
            epsilon: rounds
                .last()
                .map_or(Some(0.0), |round| round.epsilon.values().copied().reduce(|a, b| Some(a?.max(b?))).unwrap_or(Some(0.0))),
            epsilon_fallback: lines.fallback(),
            site_crashes: outcome.site_crashes,
            server_crashes: outcome.server_crashes,
            requests: outcome.traffic.requests,
        };
        Ok(SeedResult { rounds, end, lambda: lambda.to_vec() })
    }

    /// Exactly what the task states: more would hide an accounting error of ours.
    fn budget(&self) -> Budget {
        let epsilon = self.task.privacy.epsilon.unwrap_or(Epsilon::INFINITE);
        Budget {
            epsilon,
            delta: self.task.privacy.delta,
            per_run: None,
            max_fallback: None,
            allow_non_private: self.task.privacy.epsilon.is_none(),
        }
    }

    fn judge(&self, seed: u64, outcome: &Outcome) -> Result<(), ExperimentError> {
        let failed = |problem: String| Err(ExperimentError::Run { seed, problem });
        if let Some(fault) = &outcome.fault {
            return failed(format!("the server failed: {fault}"));
        }
        for (client, result) in &outcome.sites {
            match result {
                Err(error) => return failed(format!("{client}: {error}")),
                Ok(site) if site.refusals.iter().any(|(_, reason)| *reason == RefusalReason::Budget) => {
                    return Err(ExperimentError::Budget { seed });
                }
                Ok(_) => {}
            }
        }
        match outcome.end.as_ref().map(|end| end.outcome) {
            Some(RunOutcome::Complete | RunOutcome::Converged) => Ok(()),
            Some(RunOutcome::AggregationLost) => Err(ExperimentError::Aggregation { seed }),
            Some(RunOutcome::QuorumLost | RunOutcome::Refused) => Err(ExperimentError::Quorum { seed }),
            _ => failed(format!("the run did not end ({:?})", outcome.stopped)),
        }
    }
}

/// Name of a client, by its number from 0.
fn client(number: usize, clients: usize) -> ClientId {
    let width = clients.to_string().len();
    // Digits and hyphens only, at most 64 bytes.
    ClientId::new(format!("client-{:0width$}", number + 1)).expect("a valid name")
}

/// The real update on a site's records.
struct Inference<N> {
    units: Arc<Units<RecordTable>>,
    site: Option<u32>,
    noise: N,
}

impl<N: NoiseSource + Clone + 'static> Compute for Inference<N> {
    fn train(&mut self, job: TrainJob) -> Visit {
        let (units, site, noise) = (Arc::clone(&self.units), self.site, self.noise.clone());
        Box::new(move || {
            let TrainJob { task, visit, lambda, state, permit } = job;
            let job = Job { site, task: &task, visit, lambda: &lambda, state: &state };
            let output = methods::run(&job, &units, permit, &noise)
                .map_err(|error| TrainError { kind: TrainErrorKind::Internal, message: error.to_string() })?;
            Ok(Trained { message: output.message, pending: output.pending })
        })
    }
}

/// A round's line, once its metrics are there.
type ToLine = dyn FnOnce(&HeldOutMetrics) -> RoundLine;

/// Makes lines of records as they become durable.
struct Lines {
    experiment: String,
    seed: u64,
    task: ResolvedTask,
    evaluations: Evaluations,
    /// Charged visits by client.
    visits: BTreeMap<ClientId, u32>,
    /// ε by number of visits.
    epsilon: BTreeMap<u32, Option<f64>>,
    prices: Prices,
    updates: u32,
    /// Evaluations of the closed rounds, and the lines that they make.
    rounds: Vec<(usize, Box<ToLine>)>,
    /// Records seen.
    seen: usize,
    every: u32,
    /// Rounds closed.
    closed: u32,
    /// Rounds of the whole run.
    last_round: u64,
}

impl Lines {
    fn new(session: &Session, seed: u64, prices: Prices, evaluations: Evaluations) -> Self {
        Self {
            experiment: session.experiment.name.clone(),
            seed,
            task: session.task.clone(),
            evaluations,
            visits: BTreeMap::new(),
            epsilon: BTreeMap::new(),
            prices,
            updates: 0,
            rounds: Vec::new(),
            seen: 0,
            every: session.experiment.evaluate_every.get(),
            closed: 0,
            last_round: session.rounds(),
        }
    }

    /// Whether a round ended.
    fn record(&mut self, record: &Record) -> bool {
        self.seen += 1;
        match record {
            Record::Joined { client, nominal_units: Some(_), .. } => drop(self.visits.entry(client.clone()).or_default()),
            // Charged whether or not it enters the posterior.
            Record::UpdateStored { client, .. } | Record::UpdateExcluded { client, .. } => {
                *self.visits.entry(client.clone()).or_default() += 1;
            }
            Record::RoundClosed { entry, lambda, .. } => {
                let Ok(header) = entry.header.peek() else { return false };
                self.updates += u32::try_from(entry.included.len()).unwrap_or(u32::MAX);
                self.closed += 1;
                if !self.closed.is_multiple_of(self.every) && u64::from(self.closed) != self.last_round {
                    return true;
                }
                let number = self.evaluations.start(lambda);
                let visits: Vec<_> = self.visits.iter().map(|(client, visits)| (client.to_string(), *visits)).collect();
                let epsilon = visits.into_iter().map(|(client, visits)| (client, self.epsilon(visits))).collect();
                let (experiment, seed, client_updates, included) = (self.experiment.clone(), self.seed, self.updates, entry.included.len());
                let line = move |metrics: &HeldOutMetrics| RoundLine {
                    kind: "round",
                    experiment,
                    seed,
                    round: header.round,
                    visit: header.visit,
                    turn: header.turn.as_ref().map(ToString::to_string),
                    included,
                    client_updates,
                    log_likelihood: metrics.log_likelihood,
                    accuracy: metrics.accuracy,
                    rmse: metrics.rmse,
                    auc: metrics.auc,
                    epsilon,
                };
                self.rounds.push((number, Box::new(line)));
                return true;
            }
            _ => {}
        }
        false
    }

    /// ε of so many visits; `None` is infinite.
    fn epsilon(&mut self, visits: u32) -> Option<f64> {
        *self.epsilon.entry(visits).or_insert_with(|| {
            let loss = self.task.loss_at(&mut self.prices, self.task.privacy.delta, visits).ok()?;
            Some(loss.epsilon.get()).filter(|epsilon| epsilon.is_finite())
        })
    }

    /// ε of the client with the most visits if all other shares of the noise are known.
    fn fallback(&self) -> Option<f64> {
        let visits = self.visits.values().copied().max()?;
        let loss = self.task.fallback_loss(visits).ok()??;
        Some(loss.epsilon.get()).filter(|epsilon| epsilon.is_finite())
    }
}

/// Held-out metrics of posteriors. Where sites compute in threads of their own, so does this, beside the training that follows.
struct Evaluations {
    held_out: Arc<(ResolvedTask, Public<RecordTable>)>,
    threads: usize,
    /// The last posterior.
    lambda: Option<Arc<[f64]>>,
    running: Option<JoinHandle<Evaluated>>,
    done: Vec<Evaluated>,
}

type Evaluated = Result<HeldOutMetrics, String>;

impl Evaluations {
    fn new(task: &ResolvedTask, test: Public<RecordTable>, threads: usize) -> Self {
        Self { held_out: Arc::new((task.clone(), test)), threads, lambda: None, running: None, done: Vec::new() }
    }

    /// Begins one, unless it would be the one before once more. Its number.
    fn start(&mut self, lambda: &Arc<[f64]>) -> usize {
        if self.lambda.as_ref() != Some(lambda) {
            self.wait();
            self.lambda = Some(Arc::clone(lambda));
            let (held_out, lambda) = (Arc::clone(&self.held_out), Arc::clone(lambda));
            let evaluated = move || {
                let (task, test) = &*held_out;
                let predictor = Predictor::of_state(task, &lambda).map_err(|error| error.to_string())?;
                Ok(evaluate(&predictor, test).into_inner())
            };
            if self.threads > 1 {
                self.running = Some(std::thread::spawn(evaluated));
            } else {
                self.done.push(evaluated());
            }
        }
        // The last that began is done or runs.
        self.done.len() + usize::from(self.running.is_some()) - 1
    }

    fn wait(&mut self) {
        if let Some(running) = self.running.take() {
            // It passes a panic on.
            self.done.push(running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    }

    /// All of them, in order.
    fn finish(&mut self) -> Result<Vec<HeldOutMetrics>, String> {
        self.wait();
        std::mem::take(&mut self.done).into_iter().collect()
    }
}
