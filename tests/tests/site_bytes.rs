//! What leaves a site over a whole run does not depend on what is wrong with a record. The site is the shipped one: its loader, its trainer,
//! its ledger and its loop, over a transport that writes down every byte and hands it to the coordinator in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dp_pvi_accounting::Epsilon;
use dp_pvi_client::config::Config;
use dp_pvi_client::keys;
use dp_pvi_client::snapshot::Snapshot;
use dp_pvi_client::train::SiteTrainer;
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Attachment, Budget, LedgerIdentity};
use dp_pvi_privacy::{ClientId, Ledger, NoiseSource, RunId, SecureNoise};
use dp_pvi_protocol::aggregation::member::AggregationPolicy;
use dp_pvi_protocol::coordinator::{Enrolled, Settings};
use dp_pvi_protocol::driver::{Clock, DriveError, Patience, SiteOutcome, TrainError, TrainErrorKind, Trainer, drive_site};
use dp_pvi_protocol::message::{Hello, MetricsReport, Next, Receipt, Refusal, Role, Signed};
use dp_pvi_protocol::participant::{Approve, Identity, PartialRuns, Participant, Policy, TrainJob, Trained};
use dp_pvi_protocol::time::Timestamp;
use dp_pvi_protocol::transport::{Transport, TransportError};
use dp_pvi_protocol::witness::Greeting;
use dp_pvi_simulator::disk::ServerDisk;
use dp_pvi_simulator::federation::FEDERATION;
use dp_pvi_simulator::network::{Answer, Host, Request, tls_key};
use dp_pvi_simulator::noise::SeededNoise;
use dp_pvi_tests::methods::{MODELS, task, tried};
use ed25519_dalek::SigningKey;

const SITE: &str = "hospital";

/// One number and one category, each with the strictest rules that a schema has.
const SCHEMA: &str = r##"
[csv]
comment = "#"
[label]
column = "died"
kind = "binary"
positive = ["yes"]
negative = ["no"]
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
outside = "reject"
centre = 50
scale = 50
[[columns]]
name = "ward"
kind = "category"
values = ["surgery", "medicine"]
[[columns]]
name = "note"
kind = "boolean"
missing = "drop"
"##;

/// A record that the schema itself drops.
const DROPPED: &str = "40,surgery,,no";

/// What may stand in one line of a file.
fn spoiled() -> Vec<(&'static str, Vec<u8>)> {
    let text = |what, row: &str| (what, row.as_bytes().to_vec());
    vec![
        text("a missing number", ",surgery,1,no"),
        text("not a number", "old,surgery,1,no"),
        text("not finite", "inf,surgery,1,no"),
        text("above the range", "100.01,surgery,1,no"),
        text("an unknown category", "40,radiology,1,no"),
        text("neither true nor false", "40,surgery,perhaps,no"),
        text("an unknown label", "40,surgery,1,perhaps"),
        text("a ragged row", "40,surgery"),
        text("a quote that is not closed", "40,\"surgery,1,no"),
        text("a comment", "# 40,surgery,1,no"),
        text("an empty line", ""),
        ("bytes that are no UTF-8", b"\xff,surgery,1,no".to_vec()),
        ("a zero", b"40,surgery\0,1,no".to_vec()),
        ("a huge cell", [b"40,".as_slice(), &vec![b'x'; 1 << 20], b",1,no"].concat()),
    ]
}

/// A file of a dozen records, the fifth of which is this one.
fn file(row: &[u8]) -> Vec<u8> {
    let mut bytes = b"age,ward,note,died\n".to_vec();
    for i in 0..12 {
        match i {
            4 => bytes.extend_from_slice(row),
            _ => bytes
                .extend_from_slice(format!("{},{},1,{}", 5 + 7 * i, ["surgery", "medicine"][i % 2], ["yes", "no"][i % 3 % 2]).as_bytes()),
        }
        bytes.push(b'\n');
    }
    bytes
}

/// One message that left the site.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    kind: &'static str,
    bytes: Vec<u8>,
}

/// Hands every message to the coordinator, and keeps it.
struct Recorder {
    host: Host,
    clock: Steps,
    client: ClientId,
    sent: Rc<RefCell<Vec<Sent>>>,
}

impl Recorder {
    fn call(&mut self, kind: &'static str, bytes: Vec<u8>, request: &Request) -> Result<Answer, TransportError> {
        self.sent.borrow_mut().push(Sent { kind, bytes });
        self.clock.advance(Duration::from_millis(1));
        self.host.tick(self.clock.now());
        let answer = self.host.deliver(&self.client, request, self.clock.now());
        assert_eq!(self.host.fault, None);
        answer
    }
}

impl Transport for Recorder {
    async fn hello(&mut self, hello: &Signed<Hello>) -> Result<Greeting, TransportError> {
        match self.call("hello", hello.to_bytes(), &Request::Hello(hello.clone()))? {
            Answer::Welcome(welcome) => Ok(*welcome),
            other => panic!("{other:?}"),
        }
    }

    async fn next(&mut self, seen: u32) -> Result<Next, TransportError> {
        match self.call("next", seen.to_le_bytes().to_vec(), &Request::Next(seen))? {
            Answer::Next(next) => Ok(next),
            other => panic!("{other:?}"),
        }
    }

    async fn submit(&mut self, update: &Attachment) -> Result<Signed<Receipt>, TransportError> {
        let payload = update.payload().to_bytes();
        let bytes = [update.message(), &payload].concat();
        match self.call("update", bytes, &Request::Submit(Signed::from_bytes(update.message()).unwrap(), payload))? {
            Answer::Receipt(receipt) => Ok(receipt),
            other => panic!("{other:?}"),
        }
    }

    async fn consent(&mut self, signature: &[u8]) -> Result<(), TransportError> {
        self.call("consent", signature.to_vec(), &Request::Consent(signature.to_vec())).map(drop)
    }

    async fn refuse(&mut self, refusal: &Signed<Refusal>) -> Result<(), TransportError> {
        self.call("refusal", refusal.to_bytes(), &Request::Refuse(refusal.clone())).map(drop)
    }

    async fn report(&mut self, report: &Signed<MetricsReport>) -> Result<(), TransportError> {
        self.call("report", report.to_bytes(), &Request::Report(report.clone())).map(drop)
    }
}

/// Time that only waiting and calling move.
#[derive(Clone)]
struct Steps(Rc<Cell<u64>>);

impl Steps {
    fn advance(&self, duration: Duration) {
        self.0.set(self.0.get() + u64::try_from(duration.as_millis()).unwrap());
    }
}

impl Clock for Steps {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.get())
    }

    async fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

/// The site's records as it reads them, and noise that two runs share.
struct SameNoise(Snapshot);

impl Trainer for SameNoise {
    type Random = <SecureNoise as NoiseSource>::Stream;

    fn randomness(&mut self) -> Result<Self::Random, TrainError> {
        Ok(SecureNoise::fresh().unwrap())
    }

    async fn prepare(&mut self, _run: &RunId, task: &Arc<ResolvedTask>) -> Result<(), TrainError> {
        self.0.schema().is_of(task).map_err(|message| TrainError { kind: TrainErrorKind::Data, message })
    }

    async fn train(&mut self, job: TrainJob) -> Result<Trained, TrainError> {
        let TrainJob { task, visit, lambda, state, permit } = job;
        let job = Job { task: &task, visit, lambda: &lambda, state: &state };
        let output = methods::run(&job, &self.0.units(), permit, &SeededNoise::new(1))
            .map_err(|error| TrainError { kind: TrainErrorKind::Internal, message: error.to_string() })?;
        Ok(Trained { message: output.message, pending: output.pending })
    }
}

/// Which noise.
#[derive(Clone, Copy)]
enum Noise {
    Secure,
    Same,
}

/// A site's folder.
struct Home {
    folder: tempfile::TempDir,
    key: SigningKey,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        keys::make_request(FEDERATION, ClientId::new(SITE).unwrap(), Role::Site, &folder.path().join("tls")).unwrap();
        let key = keys::identity(&folder.path().join(format!("tls/{SITE}.identity"))).unwrap();
        Self { folder, key }
    }

    fn config(&self) -> Config {
        let text = format!(
            "[site]\nname = \"{SITE}\"\nserver = \"localhost:1\"\nfederation = \"{FEDERATION}\"\n\
             [tls]\nca = \"tls/ca.pem\"\ncert = \"tls/x.pem\"\nkey = \"tls/{SITE}.key\"\nidentity = \"tls/{SITE}.identity\"\n\
             [data]\nname = \"cohort\"\nuri = \"cohort.csv\"\nschema = \"schema.toml\"\nledger = \"ledger.db\"\nnominal_units = 12\n\
             [budget]\nepsilon = 100.0\ndelta = 1e-5\n"
        );
        Config::parse(&text, self.folder.path(), []).unwrap()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::join(self.folder.path(), name)
    }

    /// A whole run of `task` on the file that is there: what the site sent, and how it ended.
    fn run(&self, task: &ResolvedTask, noise: Noise) -> (Vec<Sent>, Result<SiteOutcome, DriveError>) {
        let client = ClientId::new(SITE).unwrap();
        let server = SigningKey::from_bytes(&[3; 32]);
        let settings = Settings {
            federation: FEDERATION.into(),
            task: task.to_bytes(),
            run: 1,
            key: server.clone().into(),
            clients: [(client.clone(), Enrolled { role: Role::Site, key: self.key.verifying_key() })].into(),
            start_deadline: Duration::from_secs(60),
            witnessed: [].into(),
            summer: None,
        };
        let clock = Steps(Rc::new(Cell::new(1_000_000)));
        let sent = Rc::new(RefCell::new(Vec::new()));
        let host = Host::new(settings, ServerDisk::default(), Box::new(|_| {}), None);
        let mut transport = Recorder { host, clock: clock.clone(), client: client.clone(), sent: Rc::clone(&sent) };
        let identity = Identity {
            federation: FEDERATION.into(),
            client: client.clone(),
            key: self.key.clone(),
            server: server.verifying_key(),
            tls_key: tls_key(&client),
            software: "test".into(),
            task: None,
        };
        let policy = Policy {
            approve: Approve::Policy,
            allow_trust: vec![task.privacy.trust],
            partial_runs: PartialRuns::Allow,
            min_release_tick_seconds: 0,
            aggregation: AggregationPolicy::default(),
        };
        let ledger = LedgerIdentity { data: "cohort".into(), unit: task.privacy.unit, relation: task.privacy.relation };
        let budget = Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, allow_non_private: true };
        let ledger = Ledger::open(MemoryStore::new(), self.key.clone(), ledger, budget).unwrap();
        let mut participant = Participant::new(identity, policy, 12, ledger);
        let patience = Patience { give_up_after: Duration::from_secs(3600), ..Patience::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let config = self.config();
        let outcome = runtime.block_on(async {
            match noise {
                Noise::Secure => {
                    let mut trainer = SiteTrainer::load(&config).await.unwrap();
                    let outcome = drive_site(&mut participant, &mut transport, &mut trainer, &clock, &mut (), &patience).await;
                    trainer.leave().unwrap();
                    outcome
                }
                Noise::Same => {
                    let mut trainer = SameNoise(Snapshot::load(&config, &self.key).unwrap());
                    drive_site(&mut participant, &mut transport, &mut trainer, &clock, &mut (), &patience).await
                }
            }
        });
        drop(transport);
        (Rc::into_inner(sent).unwrap().into_inner(), outcome)
    }
}

fn resolve(text: &str, schema: &str) -> ResolvedTask {
    let context = ResolveContext { name: FEDERATION, update_deadline_seconds: 60, min_sites: 1, expected_sites: 1 };
    RawTask::parse(text).unwrap().resolve(schema, context).unwrap()
}

fn plain_task() -> String {
    "[model]\nfamily = \"logistic-regression\"\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 3\nupdate = \"dp-optimisation\"\n\
     [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\n"
        .into()
}

fn shape(sent: &[Sent]) -> Vec<(&'static str, usize)> {
    sent.iter().map(|message| (message.kind, message.bytes.len())).collect()
}

/// The shipped trainer with noise from the operating system: lengths, kinds and order are those of a good file, whatever a line holds.
#[test]
fn finding_privacy_2_what_a_site_sends_has_one_shape_whatever_a_record_holds() {
    let home = Home::new();
    home.write("schema.toml", SCHEMA);
    let task = resolve(&plain_task(), SCHEMA);
    home.write("cohort.csv", file(b"40,surgery,1,no"));
    let (good, outcome) = home.run(&task, Noise::Secure);
    assert_eq!(outcome.unwrap().sent, 3);
    assert_eq!(good.iter().filter(|message| message.kind == "update").count(), 3);
    for (what, row) in spoiled() {
        home.write("cohort.csv", file(&row));
        let (sent, outcome) = home.run(&task, Noise::Secure);
        assert!(outcome.is_ok_and(|outcome| outcome.sent == 3 && outcome.refusals.is_empty()), "{what}");
        assert_eq!(shape(&sent), shape(&good), "{what}");
    }
    // Nor does it depend on how many records there are.
    for records in ["age,ward,note,died\n".to_owned(), format!("age,ward,note,died\n{}", "40,surgery,1,no\n".repeat(500))] {
        home.write("cohort.csv", &records);
        assert_eq!(shape(&home.run(&task, Noise::Secure).0), shape(&good));
    }
}

/// The same with a person as the unit: a record whose id cannot be read belongs to nobody.
#[test]
fn finding_privacy_2_what_a_site_sends_has_one_shape_whatever_an_id_is() {
    let home = Home::new();
    let schema = format!("unit_column = \"patient\"\n{SCHEMA}");
    home.write("schema.toml", &schema);
    let task = resolve(&plain_task().replace("unit = \"record\"", "unit = \"person\""), &schema);
    let file = |id: &str| {
        let others: String = (0..8).map(|i| format!("p{i},{},surgery,1,yes\n", 10 * i)).collect();
        format!("patient,age,ward,note,died\n{id}40,medicine,1,no\n{others}")
    };
    home.write("cohort.csv", file("p9,"));
    let (good, _) = home.run(&task, Noise::Secure);
    home.write("cohort.csv", file("p9,").replace("p9,40,medicine,1,no\n", ""));
    let without = home.run(&task, Noise::Same).0;
    for id in [",", "  ,", "", "\"p9,", "p9,1,"] {
        home.write("cohort.csv", file(id));
        let (sent, outcome) = home.run(&task, Noise::Secure);
        assert!(outcome.is_ok(), "{id:?}");
        assert_eq!(shape(&sent), shape(&good), "{id:?}");
        assert_eq!(home.run(&task, Noise::Same).0, without, "{id:?}");
    }
}

/// With the same noise every byte is what it is for a record that the schema drops: no other record moved. For every update that goes with
/// this model, those with a place for every unit included.
#[test]
fn finding_privacy_7_the_other_units_stay_where_they_are_in_every_update() {
    let home = Home::new();
    home.write("schema.toml", SCHEMA);
    let model = MODELS.iter().find(|model| model.name == "logistic").unwrap();
    let mut tasks = 0;
    for update in tried(model.name) {
        let task = resolve(&task(model, update, dp_pvi_tests::methods::Trust::Local), SCHEMA);
        home.write("cohort.csv", file(DROPPED.as_bytes()));
        let (dropped, outcome) = home.run(&task, Noise::Same);
        assert!(outcome.is_ok_and(|outcome| outcome.sent > 0), "{}", update.name);
        home.write("cohort.csv", file(b"90,medicine,1,yes"));
        assert_eq!(shape(&home.run(&task, Noise::Same).0), shape(&dropped), "{}", update.name);
        for (what, row) in spoiled().iter().filter(|(what, _)| *what != "a huge cell") {
            home.write("cohort.csv", file(row));
            let (sent, _) = home.run(&task, Noise::Same);
            assert!(sent == dropped, "{} with {what}", update.name);
        }
        tasks += 1;
    }
    assert!(tasks > 20, "{tasks}");
}

/// The coordinator moves a bound of the schema from hello to hello, to see at which one the site stops: the site's own schema is another, and
/// it says so whatever its records hold. Nothing is charged and nothing is sent but the refusal.
#[test]
fn finding_privacy_2_a_schema_of_the_coordinator_learns_nothing() {
    let home = Home::new();
    home.write("schema.toml", SCHEMA);
    let mut shapes = Vec::new();
    for oldest in ["20", "70", "99"] {
        home.write("cohort.csv", file(format!("{oldest},surgery,1,no").as_bytes()));
        for step in 1..=14 {
            let schema = SCHEMA.replace("upper = 100", &format!("upper = {}", 7 * step));
            let (sent, outcome) = home.run(&resolve(&plain_task(), &schema), Noise::Secure);
            match outcome {
                Err(DriveError::Train(error)) => assert!(error.message.contains("byte for byte"), "{error}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(sent.iter().map(|message| message.kind).collect::<Vec<_>>(), ["hello", "refusal"]);
            shapes.push(shape(&sent));
        }
    }
    assert!(shapes.iter().all(|shape| *shape == shapes[0]));
}
