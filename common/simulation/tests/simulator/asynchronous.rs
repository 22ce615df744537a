//! The asynchronous schedule on whole federations: bounded staleness, books that balance through faults and crashes, and the same optimum.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::support::{Numbers, boundless, check, client, complete, federation, task};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::models;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_names::Hash;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::RowBody;
use dp_pvi_privacy::ledger::memory::Failure;
use dp_pvi_privacy::{Ledger, Units};
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::message::RoundOutcome;
use dp_pvi_protocol::participant::{TrainJob, Trained};
use dp_pvi_simulation::federation::{Compute, Federation, Outcome, Site, Visit, client_key};
use dp_pvi_simulation::network::{Faults, Partition};
use dp_pvi_simulation::noise::{SeededNoise, stream};
use rand_core::Rng;

const STALENESS: u32 = 2;

fn asynchronous(sweeps: u32) -> ResolvedTask {
    task(&format!("schedule = \"asynchronous\"\nsweeps = {sweeps}\nmax_staleness = {STALENESS}\nupdate = \"pvi\""), "", 2)
}

fn slow_network() -> Faults {
    Faults { delay_milliseconds: 4000, ..Faults::default() }
}

fn numbers() -> Numbers {
    Numbers::Sensitive(SeededNoise::new(3))
}

/// Rounds between the header that an update answers and the round that it entered, of every included update.
fn staleness(outcome: &Outcome) -> Vec<u32> {
    let mut answers: BTreeMap<Hash, u32> = BTreeMap::new();
    let mut found = Vec::new();
    for record in &outcome.records {
        match record {
            Record::UpdateStored { update, .. } => drop(answers.insert(update.hash(), update.peek().unwrap().release.round)),
            Record::RoundClosed { entry, .. } => {
                let round = entry.header.peek().unwrap().round;
                found.extend(entry.included.iter().map(|(_, update)| round - answers[update]));
            }
            _ => {}
        }
    }
    found
}

/// λ = λ0 + Σ factors of the sites' ledgers + Σ corrections, and no site was charged for more than its visits.
fn books_balance(outcome: &Outcome, sites: &[Site], task: &ResolvedTask, seed: u64, what: &str) {
    let end = outcome.end.as_ref().unwrap();
    let run = end.header.peek().unwrap().run;
    let mut total = task.prior_natural();
    let mut add = |values: &[f64]| total.iter_mut().zip(values).for_each(|(total, value)| *total += value);
    for site in sites {
        let mut ledger = Ledger::open(site.disk.clone(), client_key(seed, &site.client), site.ledger.clone(), site.budget).unwrap();
        let charged = ledger.rows().iter().filter(|(row, _)| matches!(row.body, RowBody::Reserved { .. })).count();
        assert!(charged <= task.visits() as usize, "{what}: {} was charged {charged} times", site.client);
        add(&ledger.site_state(&run).unwrap().public(task.family().len()).unwrap());
    }
    for record in &outcome.records {
        if let Record::RoundClosed { correction: Some(correction), .. } = record {
            add(correction);
        }
    }
    for (j, (total, lambda)) in total.iter().zip(end.lambda.iter()).enumerate() {
        assert!((total - lambda).abs() <= 1e-9 * (1.0 + lambda.abs()), "{what}: entry {j}: {total} {lambda}");
    }
}

fn run(federation: Federation, task: &ResolvedTask, what: &str) -> Outcome {
    let (seed, sites) = (federation.seed, federation.sites.clone());
    let outcome = federation.simulate();
    check(&outcome, &sites, seed, what);
    complete(&outcome, what);
    books_balance(&outcome, &sites, task, seed, what);
    let late = staleness(&outcome);
    assert!(late.iter().all(|rounds| *rounds <= STALENESS), "{what}: {late:?}");
    outcome
}

#[test]
fn updates_are_late_and_never_later_than_the_task_allows() {
    let task = asynchronous(6);
    let (mut some, mut rounds) = (0, 0);
    for seed in 0..20 {
        let (mut federation, _) = federation(&task, seed, numbers());
        federation.faults = slow_network();
        let outcome = run(federation, &task, "slow network");
        let late = staleness(&outcome);
        // Nothing is lost without faults: every site had all its visits.
        assert_eq!(late.len(), 18);
        some += late.iter().filter(|rounds| **rounds > 0).count();
        rounds += outcome.posteriors().count();
    }
    // No one waited for everyone: more than a quarter of the updates were computed from an older posterior, in far more rounds than six.
    assert!(4 * some > 20 * 18 && rounds > 20 * 9, "{some} late updates, {rounds} rounds");
}

/// Crashes of every machine at every one of its writes, before and after it: books balance, nothing is spent twice, everyone comes through.
#[test]
fn a_crash_at_any_write_leaves_the_books_balanced() {
    let task = asynchronous(2);
    let make = || {
        let (mut federation, _) = federation(&task, 7, numbers());
        federation.faults = slow_network();
        federation
    };
    let undisturbed = make();
    let (disk, sites) = (undisturbed.disk.clone(), undisturbed.sites.clone());
    run(undisturbed, &task, "undisturbed");
    for failure in [Failure::Refused, Failure::WrittenUnheard] {
        for (position, site) in sites.iter().enumerate() {
            for write in 0..site.disk.len() as u64 {
                let federation = make();
                federation.sites[position].disk.fail_after(write, failure);
                run(federation, &task, &format!("{} crashes at write {write} ({failure:?})", site.client));
            }
        }
        for write in 0..disk.writes() {
            let federation = make();
            federation.disk.fail_after(write, failure);
            run(federation, &task, &format!("the server crashes at write {write} ({failure:?})"));
        }
    }
}

#[test]
fn storms_leave_the_books_balanced() {
    let task = asynchronous(4);
    for seed in 100..130 {
        let (mut federation, _) = federation(&task, seed, numbers());
        federation.faults = Faults {
            drop_request: 0.1,
            drop_response: 0.1,
            duplicate: 0.1,
            replay: 0.1,
            delay_milliseconds: 1500,
            crash_site: 0.05,
            crash_server: 0.03,
            ..Faults::default()
        };
        run(federation, &task, &format!("storm {seed}"));
    }
}

/// A site that is away holds no one up for longer than one deadline; when it is back in time it goes on.
#[test]
fn a_site_that_is_away_costs_one_deadline() {
    let task = asynchronous(6);
    for until in [4000, 4_000_000] {
        let (mut federation, _) = federation(&task, 5, numbers());
        federation.faults =
            Faults { partitions: vec![Partition { client: client("gamma"), from_seconds: 3, until_seconds: until }], ..slow_network() };
        federation.limit = std::time::Duration::from_secs(10_000);
        let (seed, sites) = (federation.seed, federation.sites.clone());
        let outcome = federation.simulate();
        assert_eq!(outcome.fault, None);
        let deadlines = outcome.records.iter().filter(|record| match record {
            Record::RoundClosed { entry, .. } => matches!(entry.outcome, RoundOutcome::Deadline | RoundOutcome::Skipped),
            _ => false,
        });
        assert_eq!(deadlines.count(), 1);
        for name in ["alpha", "beta"] {
            let site = outcome.sites[&client(name)].as_ref().unwrap();
            assert_eq!(site.sent, 6, "{name}");
        }
        assert!(staleness(&outcome).iter().all(|rounds| *rounds <= STALENESS));
        if until == 4000 {
            check(&outcome, &sites, seed, "away");
        }
    }
}

/// The real update on a site's records.
struct Real {
    units: Units<RecordTable>,
}

impl Compute for Real {
    fn train(&mut self, job: TrainJob) -> Visit {
        let TrainJob { task, visit, lambda, state, permit } = job;
        let job = Job { site: None, task: &task, visit, lambda: &lambda, state: &state };
        let output = methods::run(&job, &self.units, permit, &SeededNoise::new(1)).unwrap();
        Box::new(move || Ok(Trained { message: output.message, pending: output.pending }))
    }
}

fn records(seed: u64, count: usize) -> Vec<(Vec<f64>, f64)> {
    let mut dice = stream(seed, "records", 0);
    let mut unit = || f64::from(dice.next_u32()) / 2_147_483_648.0 - 1.0;
    (0..count)
        .map(|_| {
            let row = vec![1.0, unit(), unit()];
            let logit = 0.5 * row[0] + 2.0 * row[1] - row[2];
            let positive = unit() < (0.5 * logit).tanh();
            (row, f64::from(u8::from(positive)))
        })
        .collect()
}

fn table(rows: &[(Vec<f64>, f64)]) -> RecordTable {
    let mut builder = RecordTable::builder(3);
    for (row, target) in rows {
        builder.start_unit();
        builder.push(&[0, 1, 2], row, *target).unwrap();
    }
    builder.finish()
}

/// Algorithms, section 5: with exact local fits the fixed point is the optimum of all records on one machine, whoever is late.
#[test]
fn late_updates_end_at_the_optimum_of_all_records() {
    let task = asynchronous(80);
    let rows = records(3, 150);
    let sites = ["alpha", "beta", "gamma"].iter().zip(rows.chunks(50)).map(|(name, rows)| {
        let compute = Real { units: Units::new(table(rows)) };
        Site::new(client(name), 50, &task, boundless(), Rc::new(RefCell::new(compute)))
    });
    let mut federation = Federation::new(&task, 11, sites.collect());
    federation.faults = slow_network();
    let outcome = run(federation, &task, "real");
    assert!(staleness(&outcome).iter().any(|rounds| *rounds > 0));
    let prior = Gaussian::from_natural(task.family(), task.prior_natural()).unwrap();
    let model = models::from_spec(&task.model).unwrap();
    let optimum = model.local_optimum().unwrap().local_optimum(&table(&rows), &prior, &prior).unwrap();
    for (found, expected) in outcome.end.unwrap().lambda.iter().zip(optimum.natural()) {
        assert!((found - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{found} {expected}");
    }
}
