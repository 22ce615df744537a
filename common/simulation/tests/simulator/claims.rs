//! One check per claim of the protocol, on a whole federation.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use crate::support::{Numbers, bits, boundless, check, client, complete, federation, private, sequential, site, synchronous};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_models::prediction::Example;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerError, RowBody};
use dp_pvi_privacy::{Ledger, Units};
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::driver::{DriveError, TrainError};
use dp_pvi_protocol::message::{RefusalReason, RoundOutcome, RunOutcome};
use dp_pvi_protocol::metrics::evaluate;
use dp_pvi_protocol::participant::{SiteError, TrainJob, Trained};
use dp_pvi_protocol::predictive::Predictor;
use dp_pvi_schema::public::Public;
use dp_pvi_simulation::federation::{Compute, Federation, Site, Visit, client_key};
use dp_pvi_simulation::network::{ClockJump, Machine, Partition};
use dp_pvi_simulation::noise::SeededNoise;

fn numbers() -> Numbers {
    Numbers::Sensitive(SeededNoise::new(3))
}

fn outcomes(records: &[Record]) -> Vec<RoundOutcome> {
    let outcome = |record: &Record| match record {
        Record::RoundClosed { entry, .. } => Some(entry.outcome),
        _ => None,
    };
    records.iter().filter_map(outcome).collect()
}

/// A budget for exactly `visits` visits of a task, and not one more.
fn budget_for(task: &ResolvedTask, visits: u32) -> Budget {
    let event = task.visit_event(0).unwrap();
    let cost = |visits: u32| {
        let events = std::iter::repeat_n(&event, visits as usize);
        dp_pvi_accounting::epsilon_upper(events, task.privacy.relation, task.privacy.delta).unwrap().epsilon
    };
    assert!(cost(visits) < cost(visits + 1));
    Budget { epsilon: cost(visits), delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: false }
}

/// A run is charged whole: a budget for less than all of its rounds pays for none, and one for all of them for the first run only. A signed refusal leaves then, and
/// nothing else.
#[test]
fn a_run_is_charged_whole_or_refused() {
    let task = private(5);
    for (visits, paid) in [(4, 0), (5, 1)] {
        let (poor, log) = site("poor", &task, budget_for(&task, visits), numbers());
        let (rich, _) = site("rich", &task, boundless(), numbers());
        for run in 1..3 {
            let mut federation = Federation::new(&task, 1, vec![poor.clone(), rich.clone()]);
            federation.run = run;
            let sites = federation.sites.clone();
            let outcome = federation.simulate();
            // The check is about the releases of one run.
            if run == 1 {
                check(&outcome, &sites, 1, "whole");
            }
            assert_eq!(outcome.end.as_ref().map(|end| end.outcome), Some(RunOutcome::Complete));
            assert_eq!(log.borrow().len(), 5 * paid, "{visits} {run}");
            let arrived = outcome.arrived.keys().filter(|release| release.client == client("poor")).count();
            let refusals: Vec<_> = outcome
                .records
                .iter()
                .filter_map(|record| match record {
                    Record::Refused { refusal, .. } => Some(refusal.open(&client_key(1, &client("poor")).verifying_key()).unwrap().reason),
                    _ => None,
                })
                .collect();
            if run as usize <= paid {
                assert_eq!((arrived, refusals.len()), (5, 0));
                assert!(outcome.sites[&client("poor")].as_ref().unwrap().refusals.is_empty());
            } else {
                assert_eq!((arrived, refusals.as_slice()), (0, &[RefusalReason::Budget][..]));
                let over = |error: &DriveError| matches!(error, DriveError::Site(SiteError::Ledger(LedgerError::OverBudget { .. })));
                assert!(outcome.sites[&client("poor")].as_ref().is_err_and(over));
            }
        }
    }
}

/// For two servers: one ledger per data set, whoever asks.
#[test]
fn two_federations_share_one_budget() {
    let task = private(5);
    let (shared, log) = site("a", &task, budget_for(&task, 7), numbers());
    // The second one would need more than the first left, and gets nothing: the site leaves before it hears of an end.
    for (run, end, arrived) in [(1, Some(RunOutcome::Complete), 5), (2, None, 0)] {
        let mut federation = Federation::new(&task, 1, vec![shared.clone()]);
        federation.run = run;
        let outcome = federation.simulate();
        assert_eq!(outcome.sites[&client("a")].is_ok(), end.is_some());
        assert_eq!((outcome.end.map(|end| end.outcome), outcome.arrived.len(), log.borrow().len()), (end, arrived, 5));
    }
}

/// An old copy of the ledger, with the server as only witness.
#[test]
fn a_ledger_from_three_rounds_back_is_refused_while_the_server_remembers() {
    let task = sequential(4);
    for seed in 0..20 {
        let (mut federation, _) = federation(&task, seed, numbers());
        let (sites, disk) = (federation.sites.clone(), federation.disk.clone());
        let old: Rc<RefCell<Option<MemoryStore>>> = Rc::default();
        let (snapshot, live) = (Rc::clone(&old), sites[0].disk.clone());
        let mut rounds = 0;
        federation.watch = Box::new(move |record| {
            rounds += u32::from(matches!(record, Record::RoundClosed { .. }));
            if rounds == 3 && snapshot.borrow().is_none() {
                *snapshot.borrow_mut() = Some(live.copy());
            }
        });
        complete(&federation.simulate(), "before");
        let restored = Site { disk: old.take().unwrap(), ..sites[0].clone() };
        let before = restored.disk.len();
        // The same server, and a new run of it that was told of the earlier heads.
        for run in [1, 2] {
            let mut again = Federation::new(&task, seed, vec![restored.clone(), sites[1].clone(), sites[2].clone()]);
            if run == 1 {
                again.disk = disk.copy();
            } else {
                again.run = 2;
                again.witnessed = dp_pvi_protocol::coordinator::Coordinator::restore(again.settings_of(1), disk.records())
                    .unwrap()
                    .members()
                    .iter()
                    .filter_map(|(client, member)| Some((client.clone(), member.witnessed()?)))
                    .collect();
            }
            let outcome = again.simulate();
            let result = outcome.sites[&client("alpha")].as_ref().unwrap_err();
            assert!(matches!(result, DriveError::Site(SiteError::Ledger(LedgerError::RolledBack { .. }))), "{result}");
            assert_eq!(restored.disk.len(), before, "nothing was charged or released");
        }
    }
}

/// A site is cut off until the deadline: the round closes with the other two, its charge stays, its factor does not move.
#[test]
fn a_site_that_is_cut_off_misses_the_round_and_comes_back() {
    let task = synchronous(3);
    let (mut federation, _) = federation(&task, 1, numbers());
    federation.faults.partitions = vec![Partition { client: client("beta"), from_seconds: 1, until_seconds: 2400 }];
    federation.faults.delay_milliseconds = 900;
    let sites = federation.sites.clone();
    let outcome = federation.simulate();
    check(&outcome, &sites, 1, "cut off");
    complete(&outcome, "cut off");
    assert_eq!(outcomes(&outcome.records), [RoundOutcome::Deadline, RoundOutcome::Complete, RoundOutcome::Complete]);
}

/// Two of three sites are cut off for longer than a deadline: the run is suspended, and ends when that lasts too long.
#[test]
fn without_a_quorum_the_run_waits_for_its_sites_and_everybody_hears_its_end() {
    let task = synchronous(3);
    for (suspend_for, end) in [(3600, RunOutcome::Complete), (600, RunOutcome::QuorumLost)] {
        let (mut federation, _) = federation(&task, 1, numbers());
        let cut = |name: &str| Partition { client: client(name), from_seconds: 2, until_seconds: 4000 };
        federation.faults.partitions = vec![cut("beta"), cut("gamma")];
        federation.faults.delay_milliseconds = 1500;
        federation.suspend_for = std::time::Duration::from_secs(suspend_for);
        let sites = federation.sites.clone();
        let outcome = federation.simulate();
        check(&outcome, &sites, 1, "cut off");
        assert!(outcome.records.iter().any(|record| matches!(record, Record::Suspended { .. })));
        assert!(outcome.sites.values().all(|result| result.as_ref().unwrap().end.outcome == end));
    }
}

/// The server's clock is set forth by days in the middle of a round: no round closes early by it.
#[test]
fn a_server_s_clock_that_jumps_costs_no_round() {
    let task = synchronous(3);
    let (mut federation, _) = federation(&task, 1, numbers());
    federation.faults.delay_milliseconds = 1500;
    federation.faults.clock_jumps =
        [1, 2, 3, 4, 5, 6, 8].map(|at_seconds| ClockJump { machine: Machine::Server, at_seconds, by_seconds: 200_000 }).into();
    let outcome = federation.simulate();
    complete(&outcome, "jumps");
    assert_eq!(outcomes(&outcome.records), [RoundOutcome::Complete; 3]);
}

/// Decision 23: with and without evaluators, working or failing, the bits are the same.
#[test]
fn evaluators_do_not_change_a_bit() {
    let alone = federation(&synchronous(3), 1, numbers()).0.simulate();
    let (mut watched, _) = federation(&synchronous(3), 1, numbers());
    let records: Public<Vec<Example<'static>>> =
        Public::declare(vec![Example { indices: &[0], values: &[1.0], target: 1.0, offset: 0.0, extra: Default::default() }]);
    let task = synchronous(3);
    let good = move |lambda: &[f64]| {
        let predictor = Predictor::new(&task.model, task.family(), lambda).unwrap();
        Ok(evaluate(&predictor, &records))
    };
    let bad = |_: &[f64]| Err(TrainError { kind: dp_pvi_protocol::driver::TrainErrorKind::Data, message: "no data".into() });
    watched.evaluators = vec![(client("good"), Rc::new(RefCell::new(good))), (client("bad"), Rc::new(RefCell::new(bad)))];
    let outcome = watched.simulate();
    complete(&outcome, "watched");
    assert_eq!(bits(&alone), bits(&outcome));
    assert!(outcome.evaluators[&client("good")].is_ok() && outcome.evaluators[&client("bad")].is_err());
    let reports = outcome.records.iter().filter(|record| matches!(record, Record::Metrics { .. })).count();
    assert!((1..=4).contains(&reports), "{reports} reports");
}

/// Decision 22: whatever a visit takes, its update leaves at a multiple of the tick.
#[test]
fn updates_leave_at_multiples_of_the_release_tick() {
    let pvi = "schedule = \"synchronous\"\nrounds = 3\ndamping = 0.25\nupdate = \"pvi\"\nrelease_tick_seconds = 30";
    let (mut federation, _) = federation(&crate::support::task(pvi, "", 2), 1, numbers());
    federation.faults.delay_milliseconds = 1;
    let outcome = federation.simulate();
    complete(&outcome, "tick");
    let mut stored = 0;
    for record in &outcome.records {
        if let Record::UpdateStored { at, .. } = record {
            // A message takes a millisecond.
            assert!(at.as_millis() % 30_000 <= 2, "{}", at.as_millis() % 30_000);
            stored += 1;
        }
    }
    assert_eq!(stored, 9);
}

struct Broken;

impl Compute for Broken {
    fn train(&mut self, _: TrainJob) -> Visit {
        Box::new(|| Err(TrainError { kind: dp_pvi_protocol::driver::TrainErrorKind::Internal, message: "no randomness".into() }))
    }
}

/// A site whose computation fails says so: the others do not wait for the deadline of this round, and of none after it.
#[test]
fn a_site_whose_computation_fails_is_not_waited_for() {
    let (mut federation, _) = federation(&synchronous(3), 1, numbers());
    federation.sites[1].compute = Rc::new(RefCell::new(Broken));
    let outcome = federation.simulate();
    assert!(outcome.sites[&client("alpha")].is_ok() && outcome.sites[&client("gamma")].is_ok());
    assert_eq!(outcome.end.as_ref().map(|end| end.outcome), Some(RunOutcome::Complete));
    assert!(matches!(outcome.sites[&client("beta")], Err(DriveError::Train(_))));
    assert_eq!(outcomes(&outcome.records), [RoundOutcome::Complete; 3], "closed by the deadline");
    let withdrawals = outcome.records.iter().filter(|record| matches!(record, Record::Refused { .. })).count();
    assert_eq!(withdrawals, 1);
}

/// Says before a visit that it cannot compute it.
struct Unready;

impl Compute for Unready {
    fn ready(&mut self) -> Result<(), TrainError> {
        Err(TrainError { kind: dp_pvi_protocol::driver::TrainErrorKind::Resource, message: "no cluster".into() })
    }

    fn train(&mut self, _: TrainJob) -> Visit {
        panic!("it is not ready");
    }
}

/// A site that cannot compute says so before it charges anything, and is not waited for. One that fails at computing has its charge, and a try less.
#[test]
fn a_site_that_is_not_ready_charges_nothing() {
    let broken: [(Rc<RefCell<dyn Compute>>, usize); 2] = [(Rc::new(RefCell::new(Unready)), 0), (Rc::new(RefCell::new(Broken)), 1)];
    for (compute, reserved) in broken {
        let (mut federation, _) = federation(&synchronous(3), 1, numbers());
        federation.sites[1].compute = compute;
        let beta = federation.sites[1].clone();
        let outcome = federation.simulate();
        assert!(outcome.sites[&client("alpha")].is_ok() && outcome.sites[&client("gamma")].is_ok());
        assert!(matches!(outcome.sites[&client("beta")], Err(DriveError::Train(_))));
        assert_eq!(outcomes(&outcome.records), [RoundOutcome::Complete; 3], "closed by the deadline");
        let ledger = Ledger::open(beta.disk.clone(), client_key(1, &beta.client), beta.ledger.clone(), beta.budget).unwrap();
        let of_visits = |body: &RowBody| matches!(body, RowBody::Reserved { .. } | RowBody::Retried { .. });
        assert_eq!(ledger.rows().iter().filter(|(row, _)| of_visits(&row.body)).count(), reserved);
        assert_eq!(ledger.rows().iter().any(|(row, _)| matches!(row.body, RowBody::Planned { .. })), reserved > 0);
    }
}

struct Real(Units<RecordTable>);

impl Compute for Real {
    fn train(&mut self, job: TrainJob) -> Visit {
        let TrainJob { task, visit, lambda, state, permit } = job;
        let job = Job { site: None, task: &task, visit, lambda: &lambda, state: &state };
        let output = methods::run(&job, &self.0, permit, &SeededNoise::new(0)).unwrap();
        Box::new(move || Ok(Trained { message: output.message, pending: output.pending }))
    }
}

/// Every round of non-private PVI is the reference's round, in both schedules (section 5 of the algorithm specification).
#[test]
fn every_round_of_linear_regression_is_the_references() {
    let workspace = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let shared = std::env::var_os("DP_PVI_SHARED").map_or_else(|| workspace.join("../shared"), PathBuf::from);
    let places = [shared.join("reference/inference.json"), workspace.join("tests/vectors/inference.json")];
    let text = places.iter().find_map(|path| std::fs::read_to_string(path).ok()).expect("the vectors are in the tree");
    let reference: serde_json::Value = serde_json::from_str(&text).unwrap();
    let linreg = &reference["linreg"];
    let vector = |value: &serde_json::Value| value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let rows: Vec<_> = linreg["X"].as_array().unwrap().iter().map(vector).collect();
    let targets = vector(&linreg["y"]);
    let dimension = rows[0].len();
    let columns: String = (0..dimension)
        .map(|j| format!("[[columns]]\nname = \"x{j}\"\nkind = \"number\"\nlower = -100\nupper = 100\ncentre = 0\nscale = 1\n"))
        .collect();
    let schema = format!("[[columns]]\nname = \"y\"\nkind = \"number\"\nlower = -100\nupper = 100\ncentre = 0\nscale = 1\n{columns}");
    let scale = vector(&linreg["prior_prec"])[0].powf(-0.5);
    let noise = linreg["noise_var"].as_f64().unwrap().sqrt();
    for (schedule, trace) in [
        ("\"sequential\"\nsweeps = 2\ndamping = 1.0", "sequential_undamped_trace_first_two_sweeps"),
        ("\"synchronous\"\nrounds = 3\ndamping = 0.3", "synchronous_damping_0p3_trace_first_three_rounds"),
    ] {
        let text = format!(
            "[model]\nfamily = \"linear-regression\"\nformula = \"y ~ 0 + .\"\nnoise_sd = {noise:?}\nprior_units = \"encoded\"\nprior_scale = {scale:?}\n[schema]\nfile = \"-\"\n[pvi]\nupdate = \"pvi\"\nschedule = {schedule}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
        );
        let context = ResolveContext { name: "test", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
        let task = RawTask::parse(&text).unwrap().resolve(&schema, context).unwrap();
        let mut first = 0;
        let sites = vector(&linreg["client_sizes"]).into_iter().enumerate().map(|(number, size)| {
            let mut table = RecordTable::builder(dimension);
            let indices: Vec<u32> = (0..u32::try_from(dimension).unwrap()).collect();
            for row in first..first + size as usize {
                table.start_unit();
                table.push(&indices, &rows[row], targets[row]).unwrap();
            }
            first += size as usize;
            let compute = Rc::new(RefCell::new(Real(Units::new(table.finish()))));
            Site::new(client(&format!("c{number}")), size as u64, &task, boundless(), compute)
        });
        let outcome = Federation::new(&task, 1, sites.collect()).simulate();
        complete(&outcome, trace);
        let expected = linreg["mean_field"][trace].as_array().unwrap();
        assert_eq!(outcome.posteriors().count(), expected.len());
        for (round, (lambda, expected)) in outcome.posteriors().zip(expected).enumerate() {
            let expected = [vector(&expected["h"]), vector(&expected["prec"])].concat();
            for (got, expected) in lambda.iter().zip(&expected) {
                assert!((got - expected).abs() <= 1e-10 * expected.abs().max(1.0), "{trace}, round {round}: {got} is not {expected}");
            }
        }
    }
}

/// The ledgers' own account at the end is what the task states, at most.
#[test]
fn a_finished_run_costs_no_more_than_the_task_states() {
    let task = private(4);
    let (site, _) = site("a", &task, boundless(), numbers());
    let federation = Federation::new(&task, 1, vec![site.clone()]);
    let run = federation.run_id().unwrap();
    complete(&federation.simulate(), "private");
    let ledger = Ledger::open(site.disk, client_key(1, &site.client), site.ledger, site.budget).unwrap();
    let spent = ledger.losses_in(&run).joint.epsilon.get();
    assert!(spent <= 1.0 && spent > 0.99, "{spent}");
}
