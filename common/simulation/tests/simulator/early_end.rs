//! Runs that end by their task's rule: for everyone in order, at the same round after any crash, and checked by anyone who has the records.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::support::{bits, boundless, check, client, task};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, History};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::Units;
use dp_pvi_privacy::ledger::memory::Failure;
use dp_pvi_protocol::coordinator::{Coordinator, Record, RestoreError};
use dp_pvi_protocol::driver::{TrainError, TrainErrorKind};
use dp_pvi_protocol::early_end;
use dp_pvi_protocol::message::RunOutcome;
use dp_pvi_protocol::participant::{TrainJob, Trained};
use dp_pvi_simulation::federation::{Compute, Federation, Outcome, Site, Visit};
use dp_pvi_simulation::network::Faults;
use dp_pvi_simulation::noise::SeededNoise;

const SEED: u64 = 5;

/// The real update with seeded noise.
struct Real(Arc<Units<RecordTable>>);

impl Compute for Real {
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

fn records(number: usize) -> RecordTable {
    let mut builder = RecordTable::builder(3);
    for unit in 0..100 {
        let x = |k: usize| ((unit * 7 + number * 3 + k * 5) % 11) as f64 / 5.0 - 1.0;
        builder.start_unit();
        // A fifth of the labels is turned around: where a line divides them, the fixed point is far away and the run does not get there.
        let label = (x(1) + 0.3 * x(3) > 0.1) != (unit % 5 == 0);
        builder.push(&[0, 1, 2], &[x(1), x(2), 1.0], f64::from(u8::from(label))).unwrap();
    }
    builder.finish()
}

fn federation(task: &ResolvedTask, seed: u64) -> Federation {
    let sites = ["alpha", "beta", "gamma"].iter().enumerate();
    let site = |(number, name): (usize, &&str)| {
        Site::new(client(name), 100, task, boundless(), Rc::new(RefCell::new(Real(Arc::new(Units::new(records(number)))))))
    };
    Federation::new(task, seed, sites.map(site).collect())
}

const RULE: &str = "end_early = { distance = 0.2, rounds = 2 }";

fn natural_gradient(rule: &str) -> ResolvedTask {
    task(&format!("schedule = \"synchronous\"\nrounds = 25\nupdate = \"natural-gradient\"\n{rule}"), "epsilon = 30.0", 2)
}

/// Without noise every sweep moves less than the one before.
const FINE: &str = "end_early = { distance = 0.02, rounds = 2 }";

fn in_turn() -> ResolvedTask {
    task(&format!("schedule = \"sequential\"\nsweeps = 30\ndamping = 0.5\nupdate = \"pvi\"\n{FINE}"), "", 2)
}

fn run(federation: Federation, what: &str) -> Outcome {
    let (seed, sites) = (federation.seed, federation.sites.clone());
    let outcome = federation.simulate();
    check(&outcome, &sites, seed, what);
    for (client, result) in &outcome.sites {
        assert!(result.is_ok(), "{what}: {client}: {:?}", result.as_ref().err().map(ToString::to_string));
    }
    outcome
}

/// The closed rounds as an outsider reads them off the records; all sites declare the same number of units.
fn history(records: &[Record]) -> Vec<ClosedRound> {
    let closed = |record: &Record| match record {
        Record::RoundClosed { entry, lambda, correction, .. } => {
            let position = |name: &str| ["alpha", "beta", "gamma"].iter().position(|known| *known == name).unwrap();
            let included = entry.included.iter().map(|(client, _)| position(client.as_str())).collect();
            let visit = entry.header.peek().unwrap().visit;
            Some(ClosedRound { visit, included, state: lambda.to_vec(), correction: correction.clone() })
        }
        _ => None,
    };
    records.iter().filter_map(closed).collect()
}

fn ended(outcome: &Outcome) -> RunOutcome {
    outcome.end.as_ref().unwrap().outcome
}

/// It ends where the rule is met for the first time, and everyone is told the same.
fn ends_by_its_rule(task: &ResolvedTask, turns: usize) {
    let outcome = run(federation(task, SEED), "undisturbed");
    assert_eq!(ended(&outcome), RunOutcome::Converged);
    let rounds = history(&outcome.records);
    assert!(
        rounds.len() > 3 * turns && rounds.len() < task.visits() as usize * turns && rounds.len().is_multiple_of(turns),
        "{}",
        rounds.len()
    );
    let met = |rounds: &[ClosedRound]| early_end::is_met(task, &History::new(&[100; 3], rounds.to_vec()));
    let first = (turns..=rounds.len()).step_by(turns).find(|&end| met(&rounds[..end]));
    assert_eq!(first, Some(rounds.len()));
    // Visits that were not made are not in any ledger: `check` has seen that charges are those of what arrived.
    assert_eq!(outcome.arrived.len(), rounds.len() * 3 / turns);
}

#[test]
fn a_private_run_ends_by_its_rule() {
    ends_by_its_rule(&natural_gradient(RULE), 1);
    // The same plan without a rule goes on, and costs the same.
    let (with, without) = (natural_gradient(RULE), natural_gradient(""));
    let (early, whole) = (run(federation(&with, SEED), "with"), run(federation(&without, SEED), "without"));
    assert_eq!((ended(&whole), history(&whole.records).len()), (RunOutcome::Complete, 25));
    assert_eq!(with.loss(25).unwrap(), without.loss(25).unwrap(), "the plan's guarantee");
    assert!(history(&early.records).len() < 25);
}

#[test]
fn sites_in_turn_end_after_a_whole_sweep() {
    ends_by_its_rule(&in_turn(), 3);
}

/// The decision is a function of stored rounds: a server that is killed before, in and after it decides the same.
#[test]
fn a_crash_at_any_write_of_the_server_changes_no_decision() {
    let task = natural_gradient(RULE);
    let calm = federation(&task, SEED);
    let disk = calm.disk.clone();
    let undisturbed = run(calm, "undisturbed");
    // The last rounds and the end.
    let writes = disk.writes();
    for failure in [Failure::Refused, Failure::WrittenUnheard] {
        for write in writes.saturating_sub(12)..writes {
            let what = format!("the server crashes at write {write} ({failure:?})");
            let shaken = federation(&task, SEED);
            shaken.disk.fail_after(write, failure);
            let outcome = run(shaken, &what);
            assert_eq!(outcome.server_crashes, 1, "{what}");
            assert_eq!((ended(&outcome), bits(&outcome)), (RunOutcome::Converged, bits(&undisturbed)), "{what}");
        }
    }
}

#[test]
fn stormy_runs_end_at_the_same_round() {
    let task = in_turn();
    let calm = run(federation(&task, SEED), "calm");
    for seed in 0..10 {
        let mut stormy = federation(&task, seed);
        stormy.faults =
            Faults { drop_request: 0.1, drop_response: 0.1, duplicate: 0.1, crash_site: 0.03, crash_server: 0.03, ..Faults::default() };
        let outcome = run(stormy, &format!("storm {seed}"));
        assert_eq!((ended(&outcome), bits(&outcome)), (RunOutcome::Converged, bits(&calm)), "storm {seed}");
    }
}

/// A store that says that the rule was met where it was not is not continued.
#[test]
fn an_end_that_the_rule_does_not_allow_is_refused() {
    let task = natural_gradient(RULE);
    let federation = federation(&task, SEED);
    let settings = federation.settings_of(1);
    let outcome = run(federation, "undisturbed");
    Coordinator::restore(settings.clone(), outcome.records.clone()).unwrap();
    // Another rule, and with it another task, would not restore at all: the same rounds without the last one do not meet it.
    let closed = outcome.records.iter().rposition(|record| matches!(record, Record::RoundClosed { .. })).unwrap();
    let opened = outcome.records[..closed].iter().rposition(|record| matches!(record, Record::RoundClosed { .. })).unwrap();
    let mut shorter = outcome.records[..=opened].to_vec();
    shorter.push(outcome.records.last().unwrap().clone());
    assert!(matches!(Coordinator::restore(settings, shorter), Err(RestoreError::Inconsistent(why)) if why.contains("rule")));
}
