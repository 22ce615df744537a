//! A federation of the tests in memory: the same task, the same files and the same state machines without processes, sockets and disks.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use dp_pvi_accounting::Epsilon;
use dp_pvi_data::load;
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, History};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::Units;
use dp_pvi_privacy::ledger::Budget;
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::driver::{TrainError, TrainErrorKind};
use dp_pvi_protocol::participant::{TrainJob, Trained};
use dp_pvi_simulation::federation::{Compute, Federation, Site, Visit};
use dp_pvi_simulation::noise::SeededNoise;

/// Computes visits on records as a client does; noise, where there is any, is seeded.
struct Records(Arc<Units<RecordTable>>);

impl Compute for Records {
    fn train(&mut self, job: TrainJob) -> Visit {
        let units = Arc::clone(&self.0);
        Box::new(move || {
            let TrainJob { task, visit, lambda, state, permit } = job;
            let job = Job { site: None, task: &task, visit, lambda: &lambda, state: &state };
            let output = methods::run(&job, &units, permit, &SeededNoise::new(1))
                .map_err(|error| TrainError { kind: TrainErrorKind::Internal, message: error.to_string() })?;
            Ok(Trained { message: output.message, pending: output.pending })
        })
    }
}

/// Natural parameters of the posterior at the end of the task's run over sites of these names with these files.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn posterior<'a>(task: &ResolvedTask, sites: impl Iterator<Item = (&'a str, &'a Path)>) -> Vec<f64> {
    run(task, sites).0
}

/// The same, and what is public about the run.
///
/// # Panics
/// When a file does not fit the schema, or the run does not end.
#[must_use]
pub fn run<'a>(task: &ResolvedTask, sites: impl Iterator<Item = (&'a str, &'a Path)>) -> (Vec<f64>, History) {
    let schema = task.parsed_schema().expect("a resolved task has a schema");
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: true };
    let sites = sites.map(|(name, file)| {
        let loaded = load(&schema, &[file]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let compute = Rc::new(RefCell::new(Records(Arc::new(loaded.units))));
        Site::new(ClientId::new(name).expect("a name"), loaded.counts.units, task, budget, compute)
    });
    let sites: Vec<Site> = sites.collect();
    let units: Vec<u64> = sites.iter().map(|site| site.nominal_units).collect();
    let names: Vec<ClientId> = sites.iter().map(|site| site.client.clone()).collect();
    let outcome = Federation::new(task, 1, sites).simulate();
    assert_eq!(outcome.fault, None, "the simulated server failed");
    let end = outcome.end.expect("the simulated run ends");
    let closed = |record: &Record| match record {
        Record::RoundClosed { entry, lambda, correction, .. } => {
            let position = |name: &ClientId| names.iter().position(|known| known == name);
            let included = entry.included.iter().filter_map(|(client, _)| position(client)).collect();
            let visit = entry.header.peek().expect("a header of this program").visit;
            Some(ClosedRound { visit, included, state: lambda.to_vec(), correction: correction.clone() })
        }
        _ => None,
    };
    let history = History::new(&units, outcome.records.iter().filter_map(closed).collect());
    (task.posterior(&end.lambda).to_vec(), history)
}
