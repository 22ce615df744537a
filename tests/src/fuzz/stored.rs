//! What programs keep on disk and read again: a copy, a restored file, or a disk that gives back other bytes must not bring them down.

use std::path::PathBuf;

use dp_pvi_accounting::{Delta, DpEvent, Epsilon, PrivacyUnit, Relation};
use dp_pvi_names::{Hash, ReleaseId, RunId};
use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::ledger::{Budget, Extra, LedgerIdentity, LedgerStore, RowSigner, StoreError, StoredRow, decoders};
use dp_pvi_programs::ledger::{RollbackGuard, SqliteLedger, ViewStore};
use dp_pvi_protocol::coordinator::{Coordinator, Record};
use dp_pvi_protocol::driver::Server;
use dp_pvi_protocol::time::Timestamp;
use dp_pvi_protocol::witness::SignedHead;
use dp_pvi_secagg::summer::RoundRecord;
use dp_pvi_server::ca::{Enrolled, IssuedCertificate, Member};
use dp_pvi_simulation::disk::ServerDisk;
use ed25519_dalek::SigningKey;

use super::run::client;
use super::{Input, aggregated, files, run};
use dp_pvi_unsealed::{Sealed, Unsealed};

fn key() -> SigningKey {
    SigningKey::from_bytes(&[3; 32])
}

fn identity() -> LedgerIdentity {
    LedgerIdentity { data: "fuzz".into(), unit: PrivacyUnit::Record, relation: Relation::ReplaceOne }
}

fn budget() -> Budget {
    Budget {
        epsilon: Epsilon::INFINITE,
        delta: Delta::new(1e-5).expect("a delta"),
        per_run: None,
        max_fallback: None,
        allow_non_private: true,
    }
}

/// Whoever signed, the signature is good: what is read behind it is what the target is about.
struct Trusting;

impl Sealed for Trusting {}

impl RowSigner for Trusting {
    fn sign(&self, hash: &Hash) -> Vec<u8> {
        hash.0.to_vec()
    }

    fn verify(&self, _hash: &Hash, _signature: &[u8]) -> bool {
        true
    }
}

/// Rows as an input says them, with the attachment and state that it ends with.
struct Given {
    rows: Vec<StoredRow>,
    blob: Vec<u8>,
}

impl Sealed for Given {}

impl LedgerStore for Given {
    fn rows(&mut self) -> Result<Vec<StoredRow>, StoreError> {
        Ok(self.rows.clone())
    }

    fn append(&mut self, row: &StoredRow, _extra: Option<&Extra>) -> Result<(), StoreError> {
        self.rows.push(row.clone());
        Ok(())
    }

    fn attachment(&mut self, _release: &ReleaseId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(Some(self.blob.clone()))
    }

    fn factor(&mut self, _run: &RunId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(Some(self.blob.clone()))
    }
}

fn long(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.iter().flat_map(|part| [&u16::try_from(part.len()).expect("short").to_le_bytes()[..], part].concat()).collect()
}

fn next_part<'a>(input: &mut Input<'a>) -> &'a [u8] {
    let length = usize::from(input.byte()) | usize::from(input.byte()) << 8;
    input.take(length)
}

fn release(round: u32) -> ReleaseId {
    ReleaseId { run: RunId { task: Hash([1; 32]), number: 1 }, client: client("alpha"), round }
}

/// A real ledger of a few releases: its rows, its file, and its rollback guard.
pub(super) fn ledgers() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, place) = (folder.path().join("ledger"), folder.path().join("head"));
    let store = SqliteLedger::create(&path).expect("a new ledger").expect("there was none");
    let ledger = Ledger::open(store, key(), identity(), budget()).and_then(|ledger| ledger.kept_in(RollbackGuard::at(&place)));
    let mut ledger = ledger.expect("a new ledger");
    for round in 0..3 {
        drop(ledger.reserve(&release(round), &DpEvent::NonPrivate, Hash([2; 32])).expect("the budget is infinite"));
    }
    drop(ledger);
    let rows = ViewStore::open(&path).and_then(|mut view| view.rows()).expect("it was written above");
    let rows: Vec<Vec<u8>> = rows.into_iter().map(|row| row.bytes).collect();
    let read = |path: &PathBuf| std::fs::read(path).expect("it was written above");
    let mut seeds = vec![[&[0][..], &long(&rows)].concat(), [&[3], &read(&place)[..]].concat(), [&[4], &read(&path)[..]].concat()];
    seeds.extend(decoders::attachments(Unsealed).into_iter().map(|bytes| [&[1], &bytes[..]].concat()));
    seeds.extend(decoders::states(Unsealed).into_iter().map(|bytes| [&[2], &bytes[..]].concat()));
    seeds
}

/// Rows, attachments, states, the rollback guard, and the ledger's file itself.
pub(super) fn read_ledgers(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.byte() % 5 {
        0 => {
            let mut rows = Vec::new();
            while !input.0.is_empty() && rows.len() < 64 {
                rows.push(decoders::sealed(Unsealed, next_part(&mut input).to_vec(), &Trusting));
            }
            let given = Given { rows, blob: Vec::new() };
            if let Ok(ledger) = Ledger::open(given, Trusting, identity(), budget()) {
                let _losses = ledger.losses();
                let _losses = ledger.losses();
            }
        }
        1 => decoders::read_attachment(Unsealed, input.0),
        2 => decoders::read_state(Unsealed, input.0),
        3 => {
            let path = files::written("head", input.0);
            drop(RollbackGuard::at(&path).head(&Trusting));
            drop(RollbackGuard::at(&path).head(&key()));
        }
        _ => {
            let path = files::written("ledger", input.0);
            if let Ok(ledger) = ViewStore::open(&path).map_err(Into::into).and_then(|view| Ledger::open(view, key(), identity(), budget()))
            {
                let _losses = ledger.losses();
            }
            drop(dp_pvi_programs::ledger::restore(&path, &path.with_extension("restored"), |_| Ok::<(), StoreError>(())));
            files::forget("ledger.restored");
        }
    }
}

/// The records of a run under local and one under aggregated trust, one by one and all together; a summer's records; and files of JSON.
pub(super) fn stored() -> Vec<Vec<u8>> {
    let encode = |record: &Record| postcard::to_stdvec(record).expect("records are plain data");
    let (played, local) = (aggregated::played(), run::played());
    let mut seeds = vec![
        [&[0], &long(&local.iter().map(encode).collect::<Vec<_>>())[..]].concat(),
        [&[1], &long(&played.records().iter().map(encode).collect::<Vec<_>>())[..]].concat(),
    ];
    seeds.extend(aggregated::summer_records(&played).iter().map(|record| {
        let bytes = postcard::to_stdvec(record).expect("records are plain data");
        [&[2], &bytes[..]].concat()
    }));
    let certificate = IssuedCertificate {
        serial: "01".into(),
        tls_key: Hash([1; 32]),
        issued: "2026-01-01T00:00:00Z".into(),
        expires: "2027-01-01T00:00:00Z".into(),
        revoked: None,
    };
    let identity = key().verifying_key().to_bytes();
    let role = dp_pvi_programs::identity::Party::Site;
    let member = Member { role, identity, revoked: Some("2026-02-01T00:00:00Z".into()), certificates: vec![certificate.clone()] };
    let enrolled = Enrolled {
        federation: "fuzz".into(),
        server_names: vec!["localhost".into()],
        revocation_list_days: 30,
        server_certificates: vec![certificate],
        clients: [(client("alpha"), member.clone()), (client("beta"), Member { revoked: None, ..member })].into(),
    };
    seeds.push([&[3], &serde_json::to_vec(&enrolled).expect("plain data")[..]].concat());
    let joined = format!("{{\"runs\":{{\"run 1 of task {0}\":\"{0}\"}}}}", Hash([4; 32]));
    seeds.push([&[4], joined.as_bytes()].concat());
    seeds
}

/// A server's records, a summer's, `enrolled.json`, and a client's `records-NAME.json`.
pub(super) fn read_stored(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.byte() % 6 {
        mark @ (0 | 1) => {
            let settings = if mark == 0 { run::settings(&run::task(0)) } else { aggregated::settings(&aggregated::task()) };
            let mut records = Vec::new();
            while !input.0.is_empty() && records.len() < 64 {
                let Ok(record) = postcard::from_bytes::<Record>(next_part(&mut input)) else { break };
                records.push(record);
            }
            // A store that fits is a run that goes on.
            if let Ok(coordinator) = Coordinator::restore(settings, records) {
                let mut server = Server::new(coordinator, ServerDisk::default());
                let now = Timestamp::from_millis(2_000_000);
                drop(server.tick(now));
                drop(server.next(&client("alpha"), 0, now));
                drop(server.summer_request(now));
                drop(server.stop(now));
            }
        }
        2 => drop(postcard::from_bytes::<RoundRecord>(input.0)),
        3 => {
            let path = files::written("enrolled.json", input.0);
            if let Ok(enrolled) = Enrolled::load(&path) {
                drop(enrolled.active());
                enrolled.clients.keys().for_each(|name| drop(enrolled.summer(name)));
            }
        }
        4 => {
            if let Ok(text) = std::str::from_utf8(input.0) {
                drop(dp_pvi_client::snapshot::runs_in(text));
            }
        }
        _ => {
            if let Some(head) = SignedHead::from_bytes(input.0) {
                let _head = head.peek();
            }
        }
    }
}
