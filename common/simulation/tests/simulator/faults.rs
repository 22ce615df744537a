//! Whole federations under random faults, in virtual time: requests and answers that are lost, repeated, late or out of order, sites
//! that are cut off, clocks that jump, and a server, sites and a summer that crash at any write.
//!
//! Every seed draws its own mixture. After every run:
//! * nothing was charged twice, and nothing arrived that was not charged ([`crate::support::check`]);
//! * every charged event is one that the plan has, each visit's at most once, so the plan's statement covers the ledger;
//! * a run whose faults end before its deadlines (a *live* seed) is complete, and its posterior has the bits of the undisturbed run
//!   under the same noise, where the schedule fixes the order of updates;
//! * the asynchronous schedule has no such order: there the books of sites and server balance.
//!
//! 100 seeds; `DP_PVI_FAULT_SEEDS=1000 cargo test -p dp-pvi-simulation faults::` for more.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{SCHEMA, bits, boundless, check, client, complete};
use chacha20::ChaCha20Rng;
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::RowBody;
use dp_pvi_privacy::{Ledger, Units};
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::participant::{TrainJob, Trained};
use dp_pvi_protocol::statement;
use dp_pvi_simulation::federation::{Compute, Federation, Outcome, Site, Visit, client_key};
use dp_pvi_simulation::network::{ClockJump, Faults, Machine, Partition, Span};
use dp_pvi_simulation::noise::{SeededNoise, stream};
use rand_core::Rng;

const NAMES: [&str; 4] = ["alpha", "beta", "delta", "gamma"];
/// Of keys and noise: the same in every run, so that posteriors can be compared.
const SEED: u64 = 17;

/// What is run. Deadlines are half an hour; live faults are shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scenario {
    Sequential,
    Synchronous,
    Asynchronous,
    Aggregated,
}

impl Scenario {
    const ALL: [Self; 4] = [Self::Sequential, Self::Synchronous, Self::Asynchronous, Self::Aggregated];

    fn task(self) -> ResolvedTask {
        let (pvi, aggregation) = match self {
            Self::Sequential => {
                ("schedule = \"sequential\"\nsweeps = 2\nupdate = \"dp-optimisation\"\nsteps = 2\nexpected_sites = 4", "max_units = 50\n")
            }
            Self::Synchronous => ("schedule = \"synchronous\"\nrounds = 4\nupdate = \"natural-gradient\"", "max_units = 50\n"),
            Self::Asynchronous => {
                ("schedule = \"asynchronous\"\nsweeps = 3\nmax_staleness = 2\nupdate = \"dp-optimisation\"\nsteps = 2", "max_units = 50\n")
            }
            Self::Aggregated => (
                "schedule = \"synchronous\"\nrounds = 4\nupdate = \"natural-gradient\"",
                "[aggregation]\nsites = 4\ndropouts = 0\ncolluders = 1\nmax_units = 50\n",
            ),
        };
        let trust = if self == Self::Aggregated { "aggregated" } else { "local" };
        let text = format!(
            "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\nprior_units = \"encoded\"\napproximation = \"mean-field\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{pvi}\n\
             [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"{trust}\"\n{aggregation}"
        );
        let context = ResolveContext { name: "faults", update_deadline_seconds: 1800, min_sites: 2, expected_sites: 4 };
        RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
    }
}

/// The real update on a site's records, with seeded noise.
struct Real(Units<RecordTable>);

impl Compute for Real {
    fn train(&mut self, job: TrainJob) -> Visit {
        let TrainJob { task, visit, lambda, state, permit } = job;
        let job = Job { site: None, task: &task, visit, lambda: &lambda, state: &state };
        let output = methods::run(&job, &self.0, permit, &SeededNoise::new(SEED)).unwrap();
        Box::new(move || Ok(Trained { message: output.message, pending: output.pending }))
    }
}

fn federation(task: &ResolvedTask) -> Federation {
    let site = |(number, name): (usize, &&str)| {
        let mut builder = RecordTable::builder(3);
        for unit in 0..30 {
            let x = |k: usize| ((unit * 7 + number * 3 + k * 5) % 11) as f64 / 5.0 - 1.0;
            builder.start_unit();
            builder.push(&[0, 1, 2], &[x(1), x(2), 1.0], f64::from(u8::from(x(1) + 0.3 * x(3) > 0.1))).unwrap();
        }
        Site::new(client(name), 30, task, boundless(), Rc::new(RefCell::new(Real(Units::new(builder.finish())))))
    };
    Federation::new(task, SEED, NAMES.iter().enumerate().map(site).collect())
}

/// A mixture of faults. Live ones end before a round's deadline does.
fn faults(dice: &mut ChaCha20Rng, live: bool) -> Faults {
    // Half of the seeds have any one kind, so that kinds meet in all combinations.
    let mut up_to = |most: f64| if dice.next_u32() & 1 == 0 { 0.0 } else { most * f64::from(dice.next_u32()) / 4_294_967_296.0 };
    let mut faults = Faults {
        drop_request: up_to(0.15),
        drop_response: up_to(0.15),
        duplicate: up_to(0.3),
        replay: up_to(0.3),
        late: up_to(0.15),
        delay_milliseconds: up_to(2500.0) as u64,
        crash_site: up_to(0.06),
        crash_server: up_to(0.04),
        crash_summer: up_to(0.1),
        ..Faults::default()
    };
    let longest = if live { 240 } else { 4000 };
    let jump = if live { 400 } else { 4_000_000 };
    for _ in 0..dice.next_u32() % 3 {
        let (who, from) = (NAMES[dice.next_u32() as usize % NAMES.len()], u64::from(dice.next_u32() % 60));
        let until_seconds = from + u64::from(dice.next_u32()) % longest;
        faults.partitions.push(Partition { client: client(who), from_seconds: from, until_seconds });
    }
    for _ in 0..dice.next_u32() % 3 {
        let machine = match dice.next_u32() as usize % (NAMES.len() + 1) {
            0 => Machine::Server,
            position => Machine::Client(client(NAMES[position - 1])),
        };
        let by_seconds = i64::from(dice.next_u32()) % (2 * jump) - jump;
        faults.clock_jumps.push(ClockJump { machine, at_seconds: u64::from(dice.next_u32() % 60), by_seconds });
    }
    // The summer's clock, and its line. Last, so that all draws above are those of the seed.
    if dice.next_u32() & 1 == 0 {
        let by_seconds = i64::from(dice.next_u32()) % (2 * jump) - jump;
        faults.clock_jumps.push(ClockJump { machine: Machine::Summer, at_seconds: u64::from(dice.next_u32() % 60), by_seconds });
    }
    for _ in 0..dice.next_u32() % 3 {
        let from_seconds = u64::from(dice.next_u32() % 60);
        faults.summer_cut_off.push(Span { from_seconds, until_seconds: from_seconds + u64::from(dice.next_u32()) % longest });
    }
    faults
}

/// Every charged event is a visit's of the plan, each at most once; and the plan's statement is not below what the ledger holds.
fn statement_covers_ledger(task: &ResolvedTask, sites: &[Site], outcome: &Outcome, what: &str) {
    let Some(run) = outcome.records.iter().find_map(|record| match record {
        Record::RunOpened { run, .. } => Some(*run),
        _ => None,
    }) else {
        return;
    };
    let mut plan: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for visit in 0..task.visits() {
        *plan.entry(task.visit_event(visit).unwrap().to_bytes()).or_default() += 1;
    }
    for site in sites {
        let ledger = Ledger::open(site.disk.clone(), client_key(SEED, &site.client), site.ledger.clone(), site.budget).unwrap();
        let mut left = plan.clone();
        for (row, _) in ledger.rows() {
            if let RowBody::Reserved { event, .. } = &row.body {
                let visits = left.get_mut(event).unwrap_or_else(|| panic!("{what}: {} booked an event that is not planned", site.client));
                *visits = visits.checked_sub(1).unwrap_or_else(|| panic!("{what}: {} booked a visit twice", site.client));
            }
        }
        let stated = statement::statement(task, &site.client, task.visits()).unwrap().epsilon.unwrap();
        let booked = ledger.losses_in(&run).joint.epsilon.get();
        assert!(booked <= stated, "{what}: {} booked {booked}, the statement says {stated}", site.client);
    }
}

/// λ is λ0 and the sites' factors and the public corrections, once everyone has heard the end.
fn books_balance(outcome: &Outcome, sites: &[Site], task: &ResolvedTask, what: &str) {
    let end = outcome.end.as_ref().unwrap();
    let run = end.header.peek().unwrap().run;
    let mut total = task.prior_natural();
    let mut add = |values: &[f64]| total.iter_mut().zip(values).for_each(|(total, value)| *total += value);
    for site in sites {
        let mut ledger = Ledger::open(site.disk.clone(), client_key(SEED, &site.client), site.ledger.clone(), site.budget).unwrap();
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

fn seeds() -> u64 {
    std::env::var("DP_PVI_FAULT_SEEDS").map_or(100, |seeds| seeds.parse().expect("DP_PVI_FAULT_SEEDS is a number of seeds"))
}

#[test]
fn no_mixture_of_faults_spends_twice_or_changes_a_posterior() {
    let mut undisturbed = BTreeMap::new();
    for scenario in Scenario::ALL {
        let task = scenario.task();
        let calm = federation(&task);
        let sites = calm.sites.clone();
        let outcome = calm.simulate();
        complete(&outcome, "undisturbed");
        check(&outcome, &sites, SEED, "undisturbed");
        statement_covers_ledger(&task, &sites, &outcome, "undisturbed");
        undisturbed.insert(scenario, (task, bits(&outcome)));
    }
    let (mut crashes, mut ended) = ([0_u32; 3], [0_u32; 2]);
    for seed in 0..seeds() {
        let mut dice = stream(seed, "faults", 0);
        let scenario = Scenario::ALL[dice.next_u32() as usize % Scenario::ALL.len()];
        // One seed in five is hit harder than its deadlines bear: it may end early, but nothing may be spent twice.
        let live = !dice.next_u32().is_multiple_of(5);
        let (task, expected) = &undisturbed[&scenario];
        let mut federation = federation(task);
        federation.faults = faults(&mut dice, live);
        federation.fault_seed = seed;
        let what = format!("seed {seed} ({scenario:?}, live: {live}): {:?}", federation.faults);
        // A run that is suspended more than once is looked at as it stands.
        federation.suspend_for = Duration::from_secs(1800);
        federation.limit = Duration::from_secs(6 * 3600);
        let sites = federation.sites.clone();
        let outcome = federation.simulate();
        check(&outcome, &sites, SEED, &what);
        statement_covers_ledger(task, &sites, &outcome, &what);
        if live {
            complete(&outcome, &what);
            match scenario {
                Scenario::Asynchronous => books_balance(&outcome, &sites, task, &what),
                _ => assert_eq!(&bits(&outcome), expected, "{what}"),
            }
        }
        let counted = [outcome.site_crashes, outcome.server_crashes, outcome.summer_crashes];
        crashes.iter_mut().zip(counted).for_each(|(total, more)| *total += more);
        ended[usize::from(live)] += 1;
    }
    let [sites, server, summer] = crashes;
    println!("{} live and {} hard seeds; crashes: {sites} of sites, {server} of the server, {summer} of the summer", ended[1], ended[0]);
    assert!(sites > 50 && server > 20 && summer > 5, "{sites}, {server}, {summer} crashes: the faults do not happen");
}
