//! Small federations with known answers.
#![allow(dead_code, clippy::unwrap_used, reason = "every test file uses a part")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dp_pvi_accounting::{Delta, DpEvent, Epsilon};
use dp_pvi_names::{ClientId, Hash, ReleaseId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::{Budget, RowBody};
use dp_pvi_privacy::mechanism::Message;
use dp_pvi_privacy::{Ledger, NoiseSource, Pending, Purpose, danger};
use dp_pvi_protocol::message::RunOutcome;
use dp_pvi_protocol::participant::{TrainJob, Trained};
use dp_pvi_protocol::statement::{Booked, statement};
use dp_pvi_simulation::federation::{Compute, Federation, Outcome, Site, Visit, client_key};
use dp_pvi_simulation::noise::SeededNoise;
use dp_pvi_unsealed::Unsealed;
use rand_core::Rng;

pub(crate) const SCHEMA: &str = r#"
[[columns]]
name = "a"
kind = "number"
lower = -1
upper = 1
centre = 0
scale = 1

[[columns]]
name = "b"
kind = "number"
lower = -1
upper = 1
centre = 0
scale = 1
[[columns]]
name = "y"
kind = "boolean"
true_values = ["1"]
false_values = ["0"]
"#;

/// A task over three parameters; `pvi` are further lines of its section.
pub(crate) fn task(pvi: &str, privacy: &str, min_sites: u32) -> ResolvedTask {
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\nprior_units = \"encoded\"\napproximation = \"mean-field\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{pvi}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n{privacy}\n"
    );
    let context = ResolveContext { name: "test", update_deadline_seconds: 1800, min_sites, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

pub(crate) fn sequential(sweeps: u32) -> ResolvedTask {
    task(&format!("schedule = \"sequential\"\nsweeps = {sweeps}\ndamping = 0.5\nupdate = \"pvi\""), "", 2)
}

pub(crate) fn synchronous(rounds: u32) -> ResolvedTask {
    task(&format!("schedule = \"synchronous\"\nrounds = {rounds}\ndamping = 0.25\nupdate = \"pvi\""), "", 2)
}

pub(crate) fn private(sweeps: u32) -> ResolvedTask {
    let pvi = format!(
        "schedule = \"sequential\"\nsweeps = {sweeps}\ndamping = 0.5\nupdate = \"dp-optimisation\"\nsteps = 2\nmeasured = false\nexpected_sites = 3"
    );
    task(&pvi, "epsilon = 1.0", 1)
}

/// A budget that allows everything.
pub(crate) fn boundless() -> Budget {
    Budget { epsilon: Epsilon::INFINITE, delta: Delta::new(1e-5).unwrap(), per_run: None, max_fallback: None, allow_non_private: true }
}

/// What a toy site computed, in order.
pub(crate) type Log = Rc<RefCell<Vec<(ReleaseId, Vec<f64>)>>>;

/// Where a toy site's numbers come from.
#[derive(Clone, Copy)]
pub(crate) enum Numbers {
    /// A function of release, λ and factor: any other order or content of updates shows in the last bits.
    Sensitive(SeededNoise),
    /// Other numbers at every call, as with real noise.
    Fresh(u64),
    /// 2^k in the first coordinate, another k for every release: the sum tells which updates are in it, and how often.
    Unique {
        /// k of round 0.
        first: u32,
    },
}

pub(crate) struct Toy {
    pub(crate) numbers: Numbers,
    pub(crate) log: Log,
    pub(crate) calls: u64,
}

impl Compute for Toy {
    fn train(&mut self, job: TrainJob) -> Visit {
        let release = job.permit.release().clone();
        let d = job.lambda.len() / 2;
        self.calls += 1;
        let mut payload = vec![0.0; 2 * d];
        let noise = match self.numbers {
            Numbers::Sensitive(noise) => noise,
            Numbers::Fresh(seed) => SeededNoise::new(seed ^ (self.calls << 32)),
            Numbers::Unique { first } => {
                payload[0] = 2f64.powi(i32::try_from(first + release.round).unwrap());
                self.log.borrow_mut().push((release, payload.clone()));
                return Box::new(move || {
                    Ok(Trained { message: Message::values(danger::assume_released(Unsealed, payload)), pending: Pending::None })
                });
            }
        };
        let factor = job.state.public(2 * d).unwrap();
        let mut stream = noise.stream(&release, 0, Purpose::Noise).unwrap();
        let mut unit = || f64::from(stream.next_u32()) / 4_294_967_296.0;
        for j in 0..d {
            payload[j] = unit() - 0.5 - 0.3 * job.lambda[j] + 0.1 * factor[j];
            payload[d + j] = unit() * 2.0 + 0.05 * (job.lambda[d + j] - factor[d + j]);
        }
        self.log.borrow_mut().push((release, payload.clone()));
        let released = danger::assume_released(Unsealed, payload);
        Box::new(move || Ok(Trained { message: Message::values(released.clone()), pending: Pending::Public(released) }))
    }
}

pub(crate) fn client(name: &str) -> ClientId {
    ClientId::new(name).unwrap()
}

pub(crate) fn site(name: &str, task: &ResolvedTask, budget: Budget, numbers: Numbers) -> (Site, Log) {
    let log = Log::default();
    let toy = Toy { numbers, log: Rc::clone(&log), calls: 0 };
    (Site::new(client(name), 100, task, budget, Rc::new(RefCell::new(toy))), log)
}

/// Three sites.
pub(crate) fn federation(task: &ResolvedTask, seed: u64, numbers: Numbers) -> (Federation, Vec<Log>) {
    let (sites, logs) = ["alpha", "beta", "gamma"].iter().map(|name| site(name, task, boundless(), numbers)).unzip();
    (Federation::new(task, seed, sites), logs)
}

/// λ's bits after every round.
pub(crate) fn bits(outcome: &Outcome) -> Vec<Vec<u64>> {
    outcome.posteriors().map(|lambda| lambda.iter().map(|x| x.to_bits()).collect()).collect()
}

/// What must hold after any run, whatever went wrong in it. `sites` are copies made before.
pub(crate) fn check(outcome: &Outcome, sites: &[Site], seed: u64, what: &str) {
    use dp_pvi_protocol::coordinator::Record;
    assert_eq!(outcome.fault, None, "{what}");
    // The release of every stored update: where rounds do not wait for each other it may be older than the round that lists it.
    let releases: BTreeMap<Hash, u32> = outcome
        .records
        .iter()
        .filter_map(|record| match record {
            Record::UpdateStored { update, .. } => Some((update.hash(), update.peek().unwrap().release.round)),
            _ => None,
        })
        .collect();
    let included: BTreeSet<(ClientId, u32, Hash)> = outcome
        .records
        .iter()
        .filter_map(|record| match record {
            Record::RoundClosed { entry, .. } => Some(entry),
            _ => None,
        })
        .flat_map(|entry| entry.included.iter().map(|(client, update)| (client.clone(), releases[update], *update)))
        .collect();
    let task = outcome.records.iter().find_map(|record| match record {
        Record::RunOpened { task, .. } => Some(ResolvedTask::from_bytes(task).unwrap()),
        _ => None,
    });
    for site in sites {
        let ledger = Ledger::open(site.disk.clone(), client_key(seed, &site.client), site.ledger.clone(), site.budget).unwrap();
        let mut charged = BTreeMap::new();
        for (row, _) in ledger.rows() {
            if let RowBody::Reserved { release, .. } = &row.body {
                assert_eq!(charged.insert(release.round, release.clone()), None, "{what}: charged twice");
            }
        }
        // The site's statement covers what its ledger booked, event by event.
        let decoded = |bytes: &[u8]| DpEvent::from_bytes(bytes).unwrap();
        let booked: Vec<Booked> = ledger
            .rows()
            .iter()
            .filter_map(|(row, _)| match &row.body {
                RowBody::Reserved { event, fallback, .. } => {
                    Some(Booked { event: decoded(event), fallback: fallback.as_deref().map(decoded) })
                }
                _ => None,
            })
            .collect();
        let answered = u32::try_from(charged.len()).unwrap();
        match &task {
            Some(task) => {
                let compared = statement(task, &site.client, answered).unwrap().compare(task, &booked);
                assert!(compared.is_ok(), "{what}: {}: {compared:?}", site.client);
            }
            None => assert!(booked.is_empty(), "{what}: charged before there was a run"),
        }
        // Whatever ever arrived was charged before, and no release ever showed two payloads.
        let arrived: BTreeMap<u32, BTreeSet<Hash>> = outcome
            .arrived
            .iter()
            .filter(|(release, _)| release.client == site.client)
            .map(|(release, hashes)| (release.round, hashes.clone()))
            .collect();
        for (round, hashes) in &arrived {
            assert!(charged.contains_key(round), "{what}: {} released round {round} without a charge", site.client);
            assert_eq!(hashes.len(), 1, "{what}: two payloads for one release");
        }
        for (client, round, _) in included.iter().filter(|(client, ..)| *client == site.client) {
            assert!(arrived.contains_key(round), "{what}: {client} round {round}");
        }
        if let Some(Ok(site_outcome)) = outcome.sites.get(&site.client) {
            assert_eq!(site_outcome.end.outcome, outcome.end.as_ref().unwrap().outcome);
            let run = site_outcome.end.header.peek().unwrap().run;
            assert!(ledger.unsettled(&run).is_empty(), "{what}: {} has unsettled releases", site.client);
        }
    }
}

/// Everyone came through and all rounds ran.
pub(crate) fn complete(outcome: &Outcome, what: &str) {
    for (client, result) in &outcome.sites {
        assert!(result.is_ok(), "{what}: {client}: {:?}", result.as_ref().err().map(ToString::to_string));
    }
    assert_eq!(outcome.end.as_ref().map(|end| end.outcome), Some(RunOutcome::Complete), "{what}: {:?}", outcome.stopped);
}
