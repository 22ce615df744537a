//! A whole run whose peers hold valid keys and say what the input says: hello, update, refusal, report, in any order, until the server
//! ends the run and exports its result.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use dp_pvi_accounting::Epsilon;
use dp_pvi_names::{ClientId, Hash, PayloadKind, ReleaseId, RunId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::{Budget, LedgerHead};
use dp_pvi_programs::identity::{Party, public_identity_to_pem};
use dp_pvi_protocol::coordinator::{Begin, Coordinator, Peer, Record, Settings};
use dp_pvi_protocol::driver::{ServeError, Server};
use dp_pvi_protocol::message::{
    Body, HeldOutMetrics, Hello, Intent, MetricsReport, Next, Refusal, RefusalReason, Role, Signed, Update, payload_hash,
};
use dp_pvi_protocol::participant::TrainJob;
use dp_pvi_protocol::sum::PayloadCheck;
use dp_pvi_protocol::time::Timestamp;
use dp_pvi_server::ServerError;
use dp_pvi_server::ca::{Enrolled, Member};
use dp_pvi_server::config::{Config, SAMPLE};
use dp_pvi_server::export::{export, export_transcript};
use dp_pvi_server::store::Store;
use dp_pvi_simulation::disk::ServerDisk;
use dp_pvi_simulation::federation::{Compute, FEDERATION, Federation, Site, Visit, client_key, server_key};
use dp_pvi_simulation::network::tls_key;
use ed25519_dalek::Signer;

use super::{Input, aggregated};

const NAMES: [&str; 3] = ["alpha", "beta", "judge"];
pub(super) const SCHEMA: &str = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n\
    [[columns]]\nname = \"a\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";

pub(super) fn task(mark: u8) -> ResolvedTask {
    let pvi = match mark % 4 {
        0 => "schedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\"",
        1 => "schedule = \"sequential\"\nsweeps = 1\nupdate = \"dp-optimisation\"\nsteps = 2\nexpected_sites = 2",
        _ => "schedule = \"asynchronous\"\nsweeps = 2\nmax_staleness = 1\nupdate = \"dp-optimisation\"\nsteps = 2",
    };
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{pvi}\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "fuzz", update_deadline_seconds: 60, min_sites: 1, expected_sites: 2 };
    RawTask::parse(&text).and_then(|task| task.resolve(SCHEMA, context)).expect("the task is valid")
}

/// The input plays the sites.
pub(super) struct Nobody;

impl Compute for Nobody {
    fn train(&mut self, _job: TrainJob) -> Visit {
        unreachable!("the input plays the sites")
    }
}

pub(super) fn client(name: &str) -> ClientId {
    ClientId::new(name).expect("a name")
}

pub(super) fn settings(task: &ResolvedTask) -> Settings {
    let budget =
        Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: true };
    let site = |name: &&str| Site::new(client(name), 1, task, budget, Rc::new(RefCell::new(Nobody)));
    let mut federation = Federation::new(task, 1, NAMES[..2].iter().map(site).collect());
    federation.evaluators.push((client(NAMES[2]), Rc::new(RefCell::new(|_: &[f64]| unreachable!("the input plays it")))));
    federation.settings_of(1)
}

/// Runs in which everyone joins, some answer, and some lie.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    // Bytes in the order in which `run` and its steps read them; edge 7 is the number 100, edge 2 the largest.
    let declares = |who: u8, units: u8| vec![0, who, units, 0, 0, 7, 0];
    let hello = |who: u8| declares(who, 7);
    let submit = |who: u8| vec![2, who, 0, 0, 0, 0, 7, 0, 1, 0];
    let calm = [hello(0), hello(1), vec![4, 1], submit(0), submit(1), vec![4, 1], submit(0), submit(1), vec![4, 1]].concat();
    let boasting = [declares(0, 2), declares(1, 2), vec![4, 1], submit(0), submit(1), vec![4, 1]].concat();
    let local = (0..3).flat_map(|schedule| [&calm, &boasting].map(|steps| [&[schedule][..], steps].concat()));
    local.chain(aggregated::seeds().into_iter().map(|steps| [&[3][..], &steps].concat())).collect()
}

/// The records of a calm run.
pub(super) fn played() -> Vec<Record> {
    play(&mut Input(&seeds()[0][..])).disk.records()
}

struct Machines {
    server: Server<ServerDisk>,
    disk: ServerDisk,
    now: Timestamp,
}

/// Signs bytes as the body of a message, whatever they are.
fn sign<B: Body>(body: Vec<u8>, who: &ClientId) -> Signed<B> {
    let signature = client_key(1, who).sign(&Hash::of(B::DOMAIN, &[&body]).0).to_bytes().to_vec();
    Signed::from_parts(body, signature)
}

/// The body as it is, or with one byte changed, signed in both cases.
fn sealed<B: Body>(body: &B, who: &ClientId, input: &mut Input<'_>) -> Signed<B> {
    let honest = Signed::seal(body, &client_key(1, who));
    match input.byte() {
        0..=200 => honest,
        change => {
            let mut bytes = honest.body;
            let at = usize::from(input.byte()) % bytes.len();
            bytes[at] ^= change;
            sign(bytes, who)
        }
    }
}

/// A rejection is an answer; anything else that goes wrong is a fault of the server.
pub(super) fn answered<T>(result: Result<T, ServeError>) -> Option<T> {
    match result {
        Ok(answer) => Some(answer),
        Err(ServeError::Rejected(_)) => None,
        Err(error) => panic!("a peer's words broke the server: {error}"),
    }
}

impl Machines {
    fn hello(&mut self, who: &ClientId, input: &mut Input<'_>) {
        let role = if who.as_str() == NAMES[2] { Role::Evaluator } else { Role::Site };
        let units = input.number();
        let intent = if input.byte() & 7 == 7 { Intent::Observe } else { Intent::Join };
        let software = String::from_utf8_lossy(input.take(1)).into_owned();
        let seq = input.number();
        let hello = Hello {
            versions: vec![1],
            federation: FEDERATION.into(),
            client: who.clone(),
            role,
            intent,
            tls_key: tls_key(who),
            task: None,
            nominal_units: (role == Role::Site).then_some(units),
            ledger: (role == Role::Site).then_some((dp_pvi_accounting::PrivacyUnit::Record, dp_pvi_accounting::Relation::ReplaceOne)),
            ledger_head: (role == Role::Site).then_some(LedgerHead { seq, hash: Hash([1; 32]) }),
            rows: Some(dp_pvi_protocol::origin::Origin::default()),
            software,
        };
        let hello = sealed(&hello, who, input);
        let peer = Peer { client: who.clone(), tls_key: tls_key(who) };
        answered(self.server.hello(&hello, &peer, self.now));
    }

    fn round(&mut self, who: &ClientId) -> Option<(Hash, ReleaseId, PayloadKind, u64)> {
        let Next::Round(round) = answered(self.server.next(who, 0, self.now))? else { return None };
        let header = round.header.peek().expect("the server's own header");
        let message = self.server.coordinator().task().message(header.visit).ok()?;
        Some((
            round.header.hash(),
            ReleaseId { run: header.run, client: who.clone(), round: header.round },
            message.kind,
            message.coordinates,
        ))
    }

    fn submit(&mut self, who: &ClientId, input: &mut Input<'_>) {
        let Some((header, mut release, mut kind, mut coordinates)) = self.round(who) else { return };
        match input.byte() {
            250 => release.round = u32::try_from(input.number() & 0xFFFF_FFFF).unwrap_or(0),
            251 => kind = PayloadKind::Values,
            252 => kind = PayloadKind::Lattice { exponent: i32::from(input.byte()) - 128 },
            253 => coordinates = input.number() % 64,
            254 => coordinates = input.number(),
            _ => {}
        }
        let words = usize::try_from(coordinates.min(64)).unwrap_or(0);
        let payload: Vec<u8> = (0..words).flat_map(|_| input.number().to_le_bytes()).collect();
        let update = Update {
            release,
            header,
            kind,
            coordinates,
            payload: payload_hash(kind, &payload),
            ledger_head: LedgerHead { seq: input.number(), hash: Hash([2; 32]) },
            upload: None,
        };
        let update = sealed(&update, who, input);
        let Some(Begin::Accept(expected)) = answered(self.server.begin(who, &update, self.now)) else { return };
        let mut check = PayloadCheck::new(*expected);
        if payload.chunks(24).try_for_each(|chunk| check.update(chunk)).is_err() || check.finish().is_err() {
            return;
        }
        self.disk.spool(who, update.hash(), &payload).expect("the disk in memory takes it");
        answered(self.server.stored(who, &update, self.now));
    }

    fn refuse(&mut self, who: &ClientId, input: &mut Input<'_>) {
        let Some((header, release, ..)) = self.round(who) else { return };
        let reasons = [RefusalReason::Budget, RefusalReason::Policy, RefusalReason::Frozen, RefusalReason::Spent, RefusalReason::Visited];
        let refusal = Refusal { release, header, reason: reasons[usize::from(input.byte()) % reasons.len()] };
        let refusal = sealed(&refusal, who, input);
        answered(self.server.refuse(who, &refusal, self.now));
    }

    fn report(&mut self, who: &ClientId, input: &mut Input<'_>) {
        let metrics = HeldOutMetrics { records: input.number(), ..HeldOutMetrics::default() };
        let report = MetricsReport { run: self.server.coordinator().run(), round: u32::from(input.byte()), metrics };
        let report = sealed(&report, who, input);
        answered(self.server.report(who, &report, self.now));
    }
}

/// Plays the run, ends it, and exports it.
pub(super) fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    if input.0.first().is_some_and(|mark| mark % 4 == 3) {
        input.byte();
        let records = aggregated::run(&mut input);
        write_result(aggregated::run_id(), &records);
        return;
    }
    let machines = play(&mut input);
    write_result(machines.server.coordinator().run(), &machines.disk.records());
}

fn play(input: &mut Input<'_>) -> Machines {
    let task = task(input.byte());
    let disk = ServerDisk::default();
    let coordinator = Coordinator::restore(settings(&task), Vec::new()).expect("a new run");
    let mut machines = Machines { server: Server::new(coordinator, disk.clone()), disk, now: Timestamp::from_millis(1_000_000) };
    answered(machines.server.tick(machines.now));
    // Longer inputs say nothing new, and each step costs signatures.
    for _ in 0..60 {
        if input.0.is_empty() {
            break;
        }
        let (step, who) = (input.byte() % 6, client(NAMES[usize::from(input.byte()) % NAMES.len()]));
        match step {
            0 | 5 => machines.hello(&who, input),
            1 => machines.refuse(&who, input),
            2 => machines.submit(&who, input),
            3 => machines.report(&who, input),
            _ => {
                machines.now = machines.now.plus(Duration::from_secs(20));
                answered(machines.server.tick(machines.now));
            }
        }
    }
    answered(machines.server.stop(machines.now));
    machines
}

/// Writes the records to a real database, and exports them: whatever was said, there is a result.
fn write_result(id: RunId, records: &[Record]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = config(folder.path());
    let mut store = Store::open(&config.store.database).expect("a new database");
    let run = store.create_run(id).expect("a new run");
    for record in records {
        store.append(&run, record, None).expect("the record is stored");
    }
    store.commit().expect("the disk takes it");
    drop(store);
    match export(&config, &folder.path().join("out")) {
        Ok(_) | Err(ServerError::NothingYet) => {}
        Err(error) => panic!("a peer's words broke the result: {error}"),
    }
    export_transcript(&config, &folder.path().join("transcript.jsonl")).expect("the transcript is written");
}

/// The settings of the sample, with the keys of this federation in a folder.
fn config(folder: &Path) -> Config {
    let mut config = Config::parse(SAMPLE, &folder.join("server.toml"), []).expect("the sample is valid");
    config.store.database = folder.join("state.db");
    config.tls.ca = folder.join("server.pub.pem");
    config.tls.enrolled = folder.join("enrolled.json");
    let public = public_identity_to_pem(&server_key(1).verifying_key()).expect("a key has a form");
    let member = |name: &&str| {
        let (client, role) = (client(name), if *name == NAMES[2] { Party::Evaluator } else { Party::Site });
        let identity = client_key(1, &client).verifying_key().to_bytes();
        (client, Member { role, identity, revoked: None, certificates: Vec::new() })
    };
    let enrolled = Enrolled {
        federation: FEDERATION.into(),
        server_names: Vec::new(),
        revocation_list_days: 30,
        server_certificates: Vec::new(),
        clients: NAMES.iter().map(member).collect(),
    };
    let written = std::fs::write(&config.tls.ca, public)
        .and_then(|()| std::fs::write(&config.tls.enrolled, serde_json::to_vec(&enrolled).expect("plain data")));
    written.expect("the temporary folder takes it");
    config
}
