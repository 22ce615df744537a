//! A coordinator with known clients, for this crate's tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::origin::Origin;
use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_names::{ClientId, Hash, PayloadKind, ReleaseId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::LedgerHead;
use ed25519_dalek::SigningKey;

use crate::coordinator::{Action, Coordinator, Durable, Enrolled, Peer, Record, Rejected, Settings};
use crate::message::{
    Hello, Intent, Next, PROTOCOL_VERSIONS, Receipt, Refusal, RefusalReason, Role, RoundHeader, RoundStart, Signed, Update, Welcome,
    payload_hash,
};
use crate::sum::Accumulator;
use crate::time::Timestamp;

const SCHEMA: &str = r#"
[[columns]]
name = "a"
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

/// A task over two parameters (four natural ones), deadline 1800 s.
pub(crate) fn task(pvi: &str, privacy: &str, min_sites: u32) -> ResolvedTask {
    task_of("", pvi, privacy, min_sites)
}

/// A task with more lines about its model.
pub(crate) fn task_of(model: &str, pvi: &str, privacy: &str, min_sites: u32) -> ResolvedTask {
    let most = if privacy.contains("max_units") { "" } else { "max_units = 4294967296" };
    let approximation = if model.contains("approximation") { "" } else { "approximation = \"mean-field\"\n" };
    let units =
        if model.contains("prior") || !pvi.contains("pvi") && !pvi.contains("natural") { "" } else { "prior_units = \"encoded\"\n" };
    let question = if model.contains("formula") { "" } else { "outcome = \"y\"\n" };
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\n{question}{approximation}{units}{model}\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{pvi}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\n{most}\n{privacy}\n"
    );
    let context = ResolveContext { name: "test", update_deadline_seconds: 1800, min_sites, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

pub(crate) fn synchronous(rounds: u32, min_sites: u32) -> ResolvedTask {
    task(&format!("schedule = \"synchronous\"\nrounds = {rounds}\ndamping = 0.5\nupdate = \"pvi\""), "", min_sites)
}

pub(crate) fn sequential(sweeps: u32, min_sites: u32) -> ResolvedTask {
    task(&format!("schedule = \"sequential\"\nsweeps = {sweeps}\ndamping = 0.5\nupdate = \"pvi\""), "", min_sites)
}

/// Staleness 1, damping ¼.
pub(crate) fn asynchronous(sweeps: u32, min_sites: u32) -> ResolvedTask {
    let pvi = format!("schedule = \"asynchronous\"\nsweeps = {sweeps}\nmax_staleness = 1\ndamping = 0.25\nupdate = \"pvi\"");
    task(&pvi, "", min_sites)
}

pub(crate) fn client(name: &str) -> ClientId {
    ClientId::new(name).unwrap()
}

pub(crate) fn key(name: &str) -> SigningKey {
    SigningKey::from_bytes(&Hash::of("test key", &[name.as_bytes()]).0)
}

pub(crate) fn tls(name: &str) -> Hash {
    Hash::of("test tls", &[name.as_bytes()])
}

pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1000)
}

/// A coordinator, its records, and what was stored.
pub(crate) struct Desk {
    pub(crate) coordinator: Coordinator,
    pub(crate) records: Vec<Record>,
    pub(crate) payloads: BTreeMap<(ClientId, Hash), Vec<u8>>,
    pub(crate) now: Timestamp,
}

pub(crate) fn settings(task: &ResolvedTask) -> Settings {
    let enrol = |name: &str, role| (client(name), Enrolled { role, key: key(name).verifying_key() });
    Settings {
        federation: "test".into(),
        task: task.to_bytes(),
        run: 1,
        key: key("server").into(),
        clients: [enrol("a", Role::Site), enrol("b", Role::Site), enrol("c", Role::Site), enrol("eve", Role::Evaluator)].into(),
        start_deadline: Duration::from_secs(60),
        suspend_for: Duration::from_secs(86_400),
        witnessed: BTreeMap::new(),
        summer: None,
    }
}

impl Desk {
    pub(crate) fn new(task: &ResolvedTask) -> Self {
        let coordinator = Coordinator::restore(settings(task), []).unwrap();
        let mut desk = Self { coordinator, records: Vec::new(), payloads: BTreeMap::new(), now: at(0) };
        desk.poll();
        desk
    }

    /// With all three sites in.
    pub(crate) fn joined(task: &ResolvedTask) -> Self {
        let mut desk = Self::new(task);
        for name in ["a", "b", "c"] {
            desk.hello(name).unwrap();
        }
        desk.poll();
        desk
    }

    pub(crate) fn durable<T>(&mut self, durable: Durable<T>) -> T {
        self.records.extend(durable.records);
        durable.then
    }

    /// Everything that time brings.
    pub(crate) fn poll(&mut self) {
        loop {
            let polled = self.coordinator.poll(self.now);
            match self.durable(polled) {
                Action::Rest => return,
                Action::Again => {}
                Action::Close(close) => {
                    let mut sum = Accumulator::new(close);
                    while let Some(wanted) = sum.wants().cloned() {
                        sum.add(&self.payloads[&wanted]).unwrap();
                        sum.end_of_payload().unwrap();
                    }
                    let closed = self.coordinator.on_sum(&sum.finish().unwrap(), self.now);
                    self.durable(closed);
                }
            }
        }
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now = self.now.plus(Duration::from_secs(seconds));
        self.poll();
    }

    pub(crate) fn body(&self, name: &str) -> Hello {
        let role = if name == "eve" { Role::Evaluator } else { Role::Site };
        let site = role == Role::Site;
        Hello {
            versions: PROTOCOL_VERSIONS.to_vec(),
            federation: "test".into(),
            client: client(name),
            role,
            intent: Intent::Join,
            tls_key: tls(name),
            task: None,
            nominal_units: site.then_some(100),
            ledger: site.then_some((PrivacyUnit::Record, Relation::ReplaceOne)),
            ledger_head: site.then(|| head(0)),
            rows: site.then(Origin::default),
            software: "test".into(),
        }
    }

    pub(crate) fn hello(&mut self, name: &str) -> Result<Welcome, Rejected> {
        let body = self.body(name);
        self.say(name, &body)
    }

    pub(crate) fn say(&mut self, name: &str, body: &Hello) -> Result<Welcome, Rejected> {
        let peer = Peer { client: client(name), tls_key: tls(name) };
        let welcome = self.coordinator.on_hello(&Signed::seal(body, &key(name)), &peer, self.now)?;
        Ok(self.durable(welcome).welcome.open(&key("server").verifying_key()).unwrap())
    }

    /// The open round as a client sees it.
    pub(crate) fn round(&self, name: &str) -> Option<RoundStart> {
        match self.coordinator.next_for(&client(name), 0).unwrap() {
            Next::Round(start) => Some(*start),
            _ => None,
        }
    }

    /// The header of the open round, whoever asks.
    pub(crate) fn header(&self) -> (Signed<RoundHeader>, RoundHeader) {
        let header = self.records.iter().rev().find_map(|record| match record {
            Record::RoundOpened { header, .. } => Some(header.clone()),
            _ => None,
        });
        let header = header.unwrap();
        let body = header.peek().unwrap();
        (header, body)
    }

    /// A well-formed update for the last opened round.
    pub(crate) fn update(&self, name: &str, payload: &[f64]) -> (Update, Vec<u8>) {
        let (header, body) = self.header();
        let bytes: Vec<u8> = payload.iter().flat_map(|x| x.to_le_bytes()).collect();
        let update = Update {
            release: ReleaseId { run: self.coordinator.run(), client: client(name), round: body.round },
            header: header.hash(),
            kind: PayloadKind::Values,
            coordinates: payload.len() as u64,
            payload: payload_hash(PayloadKind::Values, &bytes),
            ledger_head: head(1 + 5 * u64::from(body.round)),
            upload: None,
        };
        (update, bytes)
    }

    pub(crate) fn send(&mut self, name: &str, update: &Signed<Update>, bytes: Vec<u8>) -> Result<Receipt, Rejected> {
        use crate::coordinator::Begin;
        let client = client(name);
        let begun = self.coordinator.on_update_begin(&client, update, self.now)?;
        let answered = match self.durable(begun) {
            Begin::Answered(answered) => answered,
            Begin::Accept(expected) => {
                let mut check = crate::sum::PayloadCheck::new(*expected);
                bytes.chunks(3).try_for_each(|chunk| check.update(chunk))?;
                check.finish()?;
                self.payloads.insert((client.clone(), update.hash()), bytes);
                let stored = self.coordinator.on_update_stored(&client, update, self.now)?;
                self.durable(stored)
            }
        };
        let receipt = self.coordinator.receipts(std::slice::from_ref(&answered)).remove(0).open(&key("server").verifying_key()).unwrap();
        assert_eq!(receipt.outcome, answered.outcome);
        Ok(receipt)
    }

    pub(crate) fn submit(&mut self, name: &str, payload: &[f64]) -> Result<Receipt, Rejected> {
        let (update, bytes) = self.update(name, payload);
        let receipt = self.send(name, &Signed::seal(&update, &key(name)), bytes)?;
        self.poll();
        Ok(receipt)
    }

    pub(crate) fn refuse(&mut self, name: &str) -> Result<(), Rejected> {
        let (header, body) = self.header();
        let release = ReleaseId { run: self.coordinator.run(), client: client(name), round: body.round };
        let refusal = Refusal { release, header: header.hash(), reason: RefusalReason::Budget };
        let refused = self.coordinator.on_refusal(&client(name), &Signed::seal(&refusal, &key(name)), self.now)?;
        self.durable(refused);
        self.poll();
        Ok(())
    }

    /// The whole state, to see whether anything changed.
    pub(crate) fn state(&self) -> String {
        self.coordinator.state_for_tests()
    }
}

pub(crate) fn head(seq: u64) -> LedgerHead {
    LedgerHead { seq, hash: Hash::of("test head", &[&seq.to_le_bytes()]) }
}
