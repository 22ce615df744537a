//! Cells of a figure: run in parallel, kept on disk, found again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dp_pvi_names::Hash;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::vips::write;
use super::{Options, ReproduceError};
use dp_pvi_simulation::experiment::{Experiment, SeedResult, Session, processors};

/// One experiment of a figure: a split and a method.
pub(super) struct Plan {
    pub(super) name: String,
    /// The experiment file.
    pub(super) text: String,
    pub(super) split: &'static str,
    pub(super) method: &'static str,
    pub(super) sites: u32,
}

/// A finished cell: one seed of a plan.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub(super) split: &'static str,
    pub(super) method: &'static str,
    pub(super) seed: u64,
    pub(super) kept: Kept,
}

/// What a cell leaves in the output directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Hash of the experiment, the seed and the program's version: a cell of other settings is run anew.
    key: String,
    /// Largest ε of a site at the end; absent: no protection.
    pub(super) epsilon: Option<f64>,
    pub(super) points: Vec<Point>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    /// Messages that an average site has sent.
    pub(super) communications: f64,
    pub(super) accuracy: f64,
    pub(super) log_likelihood: f64,
}

type Opened = Option<Arc<Session>>;

/// Runs what is not there yet, seeds and experiments in parallel; cells in the order of the plans and seeds.
pub(super) fn run_cells(options: &Options<'_>, plans: &[Plan], seeds: &[u64]) -> Result<Vec<Cell>, ReproduceError> {
    let directory = options.output.join("cells");
    std::fs::create_dir_all(&directory).map_err(|source| ReproduceError::Write { path: directory, source })?;
    for plan in plans {
        write(&experiment_file(options, plan), &plan.text)?;
    }
    let jobs: Vec<(usize, u64)> = (0..plans.len()).flat_map(|plan| seeds.iter().map(move |&seed| (plan, seed))).collect();
    let bar = if options.quiet { ProgressBar::hidden() } else { ProgressBar::new(jobs.len() as u64) };
    bar.set_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let sessions: Vec<Mutex<Opened>> = plans.iter().map(|_| Mutex::new(None)).collect();
    let results: Vec<Mutex<Option<Result<Kept, ReproduceError>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let threads = processors().min(jobs.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, &(plan, seed))) = take(&next, &jobs)
                    && !failed.load(Ordering::Relaxed)
                {
                    let result = one(options, &plans[plan], &sessions[plan], seed);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    bar.inc(1);
                    *lock(&results[number]) = Some(result);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut cells = Vec::new();
    for ((plan, seed), result) in jobs.iter().zip(results) {
        // A job that was not begun has an earlier or later one that failed.
        let Some(kept) = result.into_inner().unwrap_or_else(PoisonError::into_inner) else { continue };
        let Plan { split, method, .. } = plans[*plan];
        cells.push(Cell { split, method, seed: *seed, kept: kept? });
    }
    Ok(cells)
}

fn take<'a, T>(next: &AtomicUsize, jobs: &'a [T]) -> Option<(usize, &'a T)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(number).map(|job| (number, job))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn experiment_file(options: &Options<'_>, plan: &Plan) -> PathBuf {
    options.output.join(format!("{}.toml", plan.name))
}

/// A cell from disk, or run.
fn one(options: &Options<'_>, plan: &Plan, session: &Mutex<Opened>, seed: u64) -> Result<Kept, ReproduceError> {
    let file = options.output.join("cells").join(format!("{}-{seed}.json", plan.name));
    let key = Hash::of("dp-pvi reproduce cell v1", &[env!("CARGO_PKG_VERSION").as_bytes(), plan.text.as_bytes(), &seed.to_le_bytes()])
        .to_string();
    let known = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
    if let Some(known) = known.filter(|known| known.key == key) {
        return Ok(known);
    }
    let session = {
        let mut opened = lock(session);
        match &*opened {
            Some(session) => Arc::clone(session),
            None => {
                let path = experiment_file(options, plan);
                Arc::clone(opened.insert(Arc::new(Session::open(Experiment::read(&path)?, &path, options.data)?)))
            }
        }
    };
    let result = session.run(seed, 1, || ())?;
    let kept = Kept { key, epsilon: result.end.epsilon, points: points(&result, plan.sites) };
    let text = serde_json::to_string(&kept).map_err(|error| ReproduceError::Result(error.to_string()))?;
    // Whole or not at all: an interrupted program leaves no half of a cell.
    let partial = file.with_extension("partial");
    write(&partial, &text)?;
    std::fs::rename(&partial, &file).map_err(|source| ReproduceError::Write { path: file, source })?;
    Ok(kept)
}

fn points(result: &SeedResult, sites: u32) -> Vec<Point> {
    let point = |round: &dp_pvi_simulation::experiment::RoundLine| Point {
        communications: f64::from(round.client_updates) / f64::from(sites),
        accuracy: round.accuracy.unwrap_or(f64::NAN),
        log_likelihood: round.log_likelihood,
    };
    result.rounds.iter().map(point).collect()
}
