//! What leaves a site over a whole run does not depend on what is wrong with a record. The site is the shipped one: its loader, its trainer,
//! its ledger and its loop, over a transport that writes down every byte and hands it to the coordinator in memory. In an aggregated run a
//! summer and more sites are beside it.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dp_pvi_accounting::{Epsilon, PrivacyUnit};
use dp_pvi_client::config::Config;
use dp_pvi_client::keys;
use dp_pvi_client::snapshot::Snapshot;
use dp_pvi_client::train::SiteTrainer;
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_names::{ClientId, ReleaseId, RunId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Attachment, Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, NoiseSource, SecureNoise};
use dp_pvi_protocol::aggregation::member::AggregationPolicy;
use dp_pvi_protocol::coordinator::{Enrolled, Settings, SummerParty};
use dp_pvi_protocol::driver::{Clock, DriveError, Patience, SiteOutcome, TrainError, TrainErrorKind, Trainer, drive_site};
use dp_pvi_protocol::message::{Hello, MetricsReport, Next, Receipt, Refusal, Role, Signed};
use dp_pvi_protocol::participant::{Approve, Identity, Participant, Policy, TrainJob, Trained};
use dp_pvi_protocol::time::Timestamp;
use dp_pvi_protocol::transport::{Transport, TransportError};
use dp_pvi_protocol::witness::Greeting;
use dp_pvi_secagg::charter::Floors;
use dp_pvi_simulation::disk::ServerDisk;
use dp_pvi_simulation::federation::{FEDERATION, summer_key};
use dp_pvi_simulation::network::{Answer, Host, Request, SimulatedSummer, tls_key};
use dp_pvi_simulation::noise::SeededNoise;
use dp_pvi_tests::methods::{Trust, model, task, tried, tried_aggregated};
use dp_pvi_unsealed::Unsealed;
use ed25519_dalek::SigningKey;
use futures_util::future::join_all;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// One number and one category, each with the strictest rules that a schema has.
const SCHEMA: &str = r##"
[csv]
comment = "#"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
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
coding = "full"
values = ["surgery", "medicine"]
[[columns]]
name = "note"
kind = "boolean"
missing = "drop"
"##;

/// A record that the schema itself drops.
const DROPPED: &str = "40,surgery,,no";

/// What may be in one line of a file.
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
    host: Rc<RefCell<Host>>,
    clock: Steps,
    client: ClientId,
    sent: Rc<RefCell<Vec<Sent>>>,
}

impl Recorder {
    fn call(&mut self, kind: &'static str, bytes: Vec<u8>, request: &Request) -> Result<Answer, TransportError> {
        self.sent.borrow_mut().push(Sent { kind, bytes });
        self.clock.advance(Duration::from_millis(1));
        let mut host = self.host.borrow_mut();
        host.tick(self.clock.now());
        let answer = host.deliver(&self.client, request, self.clock.now());
        assert_eq!(host.fault, None);
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
        // The other sites of the run have their turn.
        tokio::task::yield_now().await;
    }
}

/// The site's records as it reads them, and noise that two runs share. It computes without a thread of its own, so that virtual time stands still meanwhile.
struct SameNoise(Snapshot);

impl Trainer for SameNoise {
    type Random = <SecureNoise as NoiseSource>::Stream;

    fn randomness(&mut self, _release: &ReleaseId) -> Result<Self::Random, TrainError> {
        Ok(SecureNoise::fresh().unwrap())
    }

    async fn prepare(&mut self, _run: &RunId, task: &Arc<ResolvedTask>) -> Result<(), TrainError> {
        self.0.schema().is_of(task).map_err(|message| TrainError { kind: TrainErrorKind::Data, message })
    }

    async fn train(&mut self, job: TrainJob) -> Result<Trained, TrainError> {
        let TrainJob { task, visit, lambda, state, permit } = job;
        let job = Job { site: None, task: &task, visit, lambda: &lambda, state: &state };
        let units = self.0.units(&task).map_err(|error| TrainError { kind: TrainErrorKind::Resource, message: error.to_string() })?;
        let output = methods::run(&job, &units, permit, &SeededNoise::new(1))
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
    client: ClientId,
    key: SigningKey,
    /// Name of the data file.
    data: &'static str,
}

impl Home {
    fn new() -> Self {
        Self::of("hospital", "cohort.csv")
    }

    fn of(name: &str, data: &'static str) -> Self {
        let (folder, client) = (tempfile::tempdir().unwrap(), ClientId::new(name).unwrap());
        keys::make_request(FEDERATION, client.clone(), Role::Site, &folder.path().join("tls")).unwrap();
        let key = keys::identity(&folder.path().join(format!("tls/{name}.identity"))).unwrap();
        Self { folder, client, key, data }
    }

    fn config(&self) -> Config {
        let (name, data) = (&self.client, self.data);
        let text = format!(
            "[site]\nname = \"{name}\"\nserver = \"localhost:1\"\nfederation = \"{FEDERATION}\"\n\
             [tls]\nca = \"tls/ca.pem\"\ncert = \"tls/x.pem\"\nkey = \"tls/{name}.key\"\nidentity = \"tls/{name}.identity\"\n\
             [data]\nname = \"cohort\"\nuri = \"{data}\"\nschema = \"schema.toml\"\nledger = \"ledger.db\"\nnominal_units = 12\nhalt_above = 1.0\n\
             [budget]\nepsilon = 100.0\ndelta = 1e-5\n"
        );
        Config::parse(&text, self.folder.path(), []).unwrap()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Writes the data file.
    fn hold(&self, bytes: impl AsRef<[u8]>) {
        self.write(self.data, bytes);
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::join(self.folder.path(), name)
    }

    /// A whole run of `task` on the file that is there: what the site sent, and how it ended.
    fn run(&self, task: &ResolvedTask, noise: Noise) -> (Vec<Sent>, Result<SiteOutcome, DriveError>) {
        self.run_beside(&[], task, noise)
    }

    /// The same in a run that these sites are in, too.
    fn run_beside(&self, others: &[&Self], task: &ResolvedTask, noise: Noise) -> (Vec<Sent>, Result<SiteOutcome, DriveError>) {
        let (server, summer) = (SigningKey::from_bytes(&[3; 32]), summer_key(1));
        let homes: Vec<&Self> = std::iter::once(self).chain(others.iter().copied()).collect();
        let enrolled = |home: &&Self| (home.client.clone(), Enrolled { role: Role::Site, key: home.key.verifying_key() });
        let settings = Settings {
            federation: FEDERATION.into(),
            task: task.to_bytes(),
            run: 1,
            key: server.clone().into(),
            clients: homes.iter().map(enrolled).collect(),
            start_deadline: Duration::from_secs(60),
            suspend_for: Duration::from_secs(3600),
            witnessed: [].into(),
            summer: task.aggregation.map(|_| SummerParty { key: summer.verifying_key(), authority: dp_pvi_names::Hash::default() }),
        };
        let clock = Steps(Rc::new(Cell::new(1_000_000)));
        let helper = task.aggregation.map(|_| SimulatedSummer::new(summer, &server.verifying_key(), 1, 0.0));
        let host = Rc::new(RefCell::new(Host::new(settings, ServerDisk::default(), Box::new(|_| {}), helper)));
        let lives = homes.into_iter().map(|home| home.live(task, noise, &host, &clock));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(join_all(lives)).swap_remove(0)
    }

    /// One site of a run, from its files to its end.
    async fn live(
        &self,
        task: &ResolvedTask,
        noise: Noise,
        host: &Rc<RefCell<Host>>,
        clock: &Steps,
    ) -> (Vec<Sent>, Result<SiteOutcome, DriveError>) {
        let sent = Rc::new(RefCell::new(Vec::new()));
        let mut transport = Recorder { host: Rc::clone(host), clock: clock.clone(), client: self.client.clone(), sent: Rc::clone(&sent) };
        let identity = Identity {
            federation: FEDERATION.into(),
            client: self.client.clone(),
            key: self.key.clone(),
            server: SigningKey::from_bytes(&[3; 32]).verifying_key(),
            tls_key: tls_key(&self.client),
            software: "test".into(),
            task: None,
        };
        let floors = Floors { max_rounds: u32::MAX, max_honest: u32::MAX, ..Floors::default() };
        let policy = Policy {
            approve: Approve::Policy,
            allow_trust: vec![task.privacy.trust],
            min_release_tick_seconds: 0,
            aggregation: AggregationPolicy { summer: Some(summer_key(1).verifying_key()), floors },
        };
        let ledger = LedgerIdentity { data: "cohort".into(), unit: task.privacy.unit, relation: task.privacy.relation };
        let budget =
            Budget { epsilon: Epsilon::INFINITE, delta: task.privacy.delta, per_run: None, max_fallback: None, allow_non_private: true };
        let ledger = Ledger::open(MemoryStore::new(Unsealed), self.key.clone(), ledger, budget).unwrap();
        let mut participant = Participant::new(identity, policy, 12, ledger);
        let patience = Patience { give_up_after: Duration::from_secs(3600), ..Patience::default() };
        let config = self.config();
        let outcome = match noise {
            Noise::Secure => {
                let mut trainer = SiteTrainer::load(&config, SecureNoise).await.unwrap();
                let outcome = drive_site(&mut participant, &mut transport, &mut trainer, clock, &mut (), &patience).await;
                trainer.leave().unwrap();
                outcome
            }
            Noise::Same => {
                let mut trainer = SameNoise(Snapshot::load(&config, &self.key).unwrap());
                drive_site(&mut participant, &mut transport, &mut trainer, clock, &mut (), &patience).await
            }
        };
        drop(transport);
        (Rc::into_inner(sent).unwrap().into_inner(), outcome)
    }
}

fn resolve(text: &str, schema: &str) -> ResolvedTask {
    resolve_for(1, text, schema)
}

fn resolve_for(sites: u32, text: &str, schema: &str) -> ResolvedTask {
    let context = ResolveContext { name: FEDERATION, update_deadline_seconds: 60, min_sites: sites, expected_sites: sites };
    // Tasks of the catalogue name the outcome of its own schemas.
    let text = text.replace("outcome = \"y\"", "outcome = \"died\"");
    RawTask::parse(&text).unwrap().resolve(schema, context).unwrap()
}

fn plain_task() -> String {
    "[model]\nfamily = \"logistic-regression\"\noutcome = \"died\"\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 3\nupdate = \"dp-optimisation\"\n\
     [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
        .into()
}

fn shape(sent: &[Sent]) -> Vec<(&'static str, usize)> {
    sent.iter().map(|message| (message.kind, message.bytes.len())).collect()
}

/// The shipped trainer with noise from the operating system: lengths, kinds and order are those of a good file, whatever a line holds.
#[test]
fn what_a_site_sends_has_one_shape_whatever_a_record_holds() {
    let home = Home::new();
    home.write("schema.toml", SCHEMA);
    let task = resolve(&plain_task(), SCHEMA);
    home.hold(file(b"40,surgery,1,no"));
    let (good, outcome) = home.run(&task, Noise::Secure);
    assert_eq!(outcome.unwrap().sent, 3);
    assert_eq!(good.iter().filter(|message| message.kind == "update").count(), 3);
    for (what, row) in spoiled() {
        home.hold(file(&row));
        let (sent, outcome) = home.run(&task, Noise::Secure);
        assert!(outcome.is_ok_and(|outcome| outcome.sent == 3 && outcome.refusals.is_empty()), "{what}");
        assert_eq!(shape(&sent), shape(&good), "{what}");
    }
    // Nor does it depend on how many records there are.
    for records in ["age,ward,note,died\n".to_owned(), format!("age,ward,note,died\n{}", "40,surgery,1,no\n".repeat(500))] {
        home.hold(&records);
        assert_eq!(shape(&home.run(&task, Noise::Secure).0), shape(&good));
    }
}

/// The same with a person as the unit: a record whose id cannot be read belongs to no one.
#[test]
fn what_a_site_sends_has_one_shape_whatever_an_id_is() {
    let home = Home::new();
    let schema = format!("unit_column = \"patient\"\n{SCHEMA}");
    home.write("schema.toml", &schema);
    let task = resolve(&plain_task().replace("unit = \"record\"", "unit = \"person\""), &schema);
    let file = |id: &str| {
        let others: String = (0..8).map(|i| format!("p{i},{},surgery,1,yes\n", 10 * i)).collect();
        format!("patient,age,ward,note,died\n{id}40,medicine,1,no\n{others}")
    };
    home.hold(file("p9,"));
    let (good, _) = home.run(&task, Noise::Secure);
    home.hold(file("p9,").replace("p9,40,medicine,1,no\n", ""));
    let without = home.run(&task, Noise::Same).0;
    for id in [",", "  ,", "", "\"p9,", "p9,1,"] {
        home.hold(file(id));
        let (sent, outcome) = home.run(&task, Noise::Secure);
        assert!(outcome.is_ok(), "{id:?}");
        assert_eq!(shape(&sent), shape(&good), "{id:?}");
        assert_eq!(home.run(&task, Noise::Same).0, without, "{id:?}");
    }
}

/// With the same noise every byte is what it is for a record that the schema drops: no other record moved. For every update that goes with
/// this model, those with a place for every unit included.
#[test]
fn the_other_units_stay_where_they_are_in_every_update() {
    let home = Home::new();
    home.write("schema.toml", SCHEMA);
    let model = model("logistic-regression");
    let mut tasks = 0;
    for update in tried(model) {
        let task = resolve(&task(model, update, Trust::Local), SCHEMA);
        home.hold(file(DROPPED.as_bytes()));
        let (dropped, outcome) = home.run(&task, Noise::Same);
        assert!(outcome.is_ok_and(|outcome| outcome.sent > 0), "{}", update.name);
        home.hold(file(b"90,medicine,1,yes"));
        assert_eq!(shape(&home.run(&task, Noise::Same).0), shape(&dropped), "{}", update.name);
        for (what, row) in spoiled().iter().filter(|(what, _)| *what != "a huge cell") {
            home.hold(file(row));
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
fn a_schema_of_the_coordinator_learns_nothing() {
    let home = Home::new();
    home.write("schema.toml", SCHEMA);
    let mut shapes = Vec::new();
    for oldest in ["20", "70", "99"] {
        home.hold(file(format!("{oldest},surgery,1,no").as_bytes()));
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

/// Two sites that hold this.
fn others(schema: &str, data: &'static str, bytes: &[u8]) -> [Home; 2] {
    ["clinic", "practice"].map(|name| {
        let home = Home::of(name, data);
        home.write("schema.toml", schema);
        home.hold(bytes);
        home
    })
}

/// Under aggregated trust a site also signs a charter, masks its words and sends a sealed seed: nothing of that depends on a record, for every update that
/// may be aggregated.
#[test]
fn what_a_site_sends_under_aggregated_trust_has_one_shape_whatever_a_record_holds() {
    let home = Home::new();
    home.write("schema.toml", SCHEMA);
    let others = others(SCHEMA, "cohort.csv", &file(b"40,surgery,1,no"));
    let beside: Vec<&Home> = others.iter().collect();
    let model = model("logistic-regression");
    let mut updates = 0;
    for update in tried_aggregated(model).into_iter().filter(|update| update.unit == PrivacyUnit::Record && !update.open) {
        let task = resolve_for(3, &task(model, update, Trust::Aggregated(3)), SCHEMA);
        home.hold(file(b"40,surgery,1,no"));
        let (good, outcome) = home.run_beside(&beside, &task, Noise::Same);
        let visits = task.visits();
        assert!(outcome.is_ok_and(|outcome| outcome.sent == visits), "{}", update.name);
        assert_eq!(good.iter().filter(|message| message.kind == "update").count(), visits as usize);
        assert!(good.iter().any(|message| message.kind == "consent"), "a charter is signed");
        for (what, row) in spoiled() {
            home.hold(file(&row));
            let (sent, outcome) = home.run_beside(&beside, &task, Noise::Same);
            assert!(outcome.is_ok_and(|outcome| outcome.sent == visits && outcome.refusals.is_empty()), "{} with {what}", update.name);
            assert_eq!(shape(&sent), shape(&good), "{} with {what}", update.name);
        }
        for records in ["age,ward,note,died\n".to_owned(), format!("age,ward,note,died\n{}", "40,surgery,1,no\n".repeat(300))] {
            home.hold(&records);
            assert_eq!(shape(&home.run_beside(&beside, &task, Noise::Same).0), shape(&good), "{}", update.name);
        }
        updates += 1;
    }
    assert!(updates > 5, "{updates}");
}

/// Neighbouring files of documents, of images and of Parquet, through every update of their models, alone and with a summer: the bytes that leave
/// have the same lengths, kinds and order.
fn neighbours_look_the_same(model: &str, schema: &str, data: &'static str, first: &[u8], neighbours: &[(&str, Vec<u8>)]) {
    let home = Home::of("hospital", data);
    home.write("schema.toml", schema);
    let others = others(schema, data, first);
    let model = dp_pvi_tests::methods::model(model);
    let cases = tried(model).into_iter().map(|update| (update, Trust::Local, vec![]));
    let shared = tried_aggregated(model).into_iter().map(|update| (update, Trust::Aggregated(3), others.iter().collect()));
    let mut tasks = 0;
    for (update, trust, beside) in cases.chain(shared).filter(|(update, ..)| update.unit == PrivacyUnit::Record && !update.open) {
        let task = resolve_for(1 + beside.len() as u32, &task(model, update, trust), schema);
        let look = |bytes: &[u8]| {
            home.hold(bytes);
            let (sent, outcome) = home.run_beside(&beside, &task, Noise::Same);
            let outcome = outcome.unwrap_or_else(|error| panic!("{} ({trust:?}): {error}", update.name));
            assert!(outcome.sent == task.visits() && outcome.refusals.is_empty());
            shape(&sent)
        };
        let expected = look(first);
        for (what, bytes) in neighbours {
            assert_eq!(look(bytes), expected, "{} ({trust:?}) with {what}", update.name);
        }
        tasks += 1;
    }
    assert!(tasks > 1, "{tasks}");
}

#[test]
fn files_of_documents_that_are_neighbours_look_the_same() {
    let docword = |documents: usize, lines: &[&str]| format!("{documents}\n8\n{}\n{}\n", lines.len(), lines.join("\n")).into_bytes();
    let schema = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 8\ndocument_length = 20\n";
    let own = |line: &'static str| ["1 1 2", "1 3 1", line, "3 8 5"];
    let mut neighbours: Vec<(&str, Vec<u8>)> = vec![
        ("another document", docword(3, &own("2 7 9"))),
        ("a word that is none", docword(3, &own("2 9 1"))),
        ("no number", docword(3, &own("2 x 1"))),
        ("a line too short", docword(3, &own("2 1"))),
        ("a document that is none", docword(3, &own("7 1 1"))),
        ("an empty line", docword(3, &own(""))),
        ("an empty document", docword(3, &["1 1 2", "1 3 1", "3 8 5"])),
        ("a document less", docword(2, &["1 1 2", "1 3 1", "2 8 5"])),
        ("no document", docword(0, &[])),
    ];
    neighbours.push(("bytes that are no text", [&docword(3, &["1 1 2", "1 3 1"])[..], b"2 \xff\xfe 1\n3 8 5\n"].concat()));
    neighbours_look_the_same("latent-dirichlet", schema, "docword.txt", &docword(3, &own("2 2 4")), &neighbours);
    let schema =
        "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"text\"\nvocabulary = [\"war\", \"peace\", \"iraq\"]\ndocument_length = 6\n";
    let text = |line: &[u8]| [b"war peace\n".as_slice(), line, b"\niraq iraq war\n"].concat();
    let neighbours: Vec<(&str, Vec<u8>)> = vec![
        ("another document", text(b"peace peace peace")),
        ("words that nobody knows", text(b"x y z")),
        ("an empty line", text(b"")),
        ("bytes that are no text", text(b"\xff\xfe war")),
        ("the first bytes of other formats", text(b"PAR1 \x1f\x8b")),
        ("a long document", text(&b"war ".repeat(10_000))),
        ("a document less", b"war peace\niraq iraq war\n".to_vec()),
        ("no document", Vec::new()),
    ];
    neighbours_look_the_same("latent-dirichlet", schema, "documents.txt", &text(b"war war"), &neighbours);
}

#[test]
fn files_of_images_that_are_neighbours_look_the_same() {
    let schema = "kind = \"binary-image\"\n[binary_image]\nwidth = 3\nheight = 4\nthreshold = 63\n";
    let file = |images: &[[u8; 12]]| {
        let count = u8::try_from(images.len()).unwrap();
        [&[0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 4, 0, 0, 0, 3][..], &images.concat()].concat()
    };
    let (one, other) = ([200, 0, 0, 200, 0, 0, 200, 0, 0, 200, 0, 0], [0, 255, 255, 0, 255, 255, 0, 255, 255, 0, 255, 64]);
    let neighbours = [
        ("a dark image", file(&[one, [0; 12], other])),
        ("a white image", file(&[one, [255; 12], other])),
        ("at the threshold", file(&[one, [63; 12], other])),
        ("an image less", file(&[one, other])),
        ("no image", file(&[])),
        ("more images than were declared", file(&[one; 40])),
    ];
    neighbours_look_the_same("sigmoid-belief", schema, "images.idx", &file(&[one, other, other]), &neighbours);
}

/// What may be in the fifth row of a Parquet file: age, ward, note, label.
type ParquetRow = (Option<f64>, Option<&'static str>, Option<f64>, Option<&'static str>);

/// A Parquet file of a dozen records.
fn parquet_file(row: ParquetRow) -> Vec<u8> {
    const MESSAGE: &str = "message cohort { OPTIONAL DOUBLE age; OPTIONAL BYTE_ARRAY ward (STRING); OPTIONAL DOUBLE note; OPTIONAL BYTE_ARRAY died (STRING); }";
    let rows: Vec<ParquetRow> = (0..12)
        .map(|i| match i {
            4 => row,
            _ => (Some(5.0 + 7.0 * i as f64), Some(["surgery", "medicine"][i % 2]), Some(1.0), Some(["yes", "no"][i % 3 % 2])),
        })
        .collect();
    let levels = |present: &dyn Fn(&ParquetRow) -> bool| rows.iter().map(|row| i16::from(present(row))).collect::<Vec<_>>();
    let texts = |of: &dyn Fn(&ParquetRow) -> Option<&'static str>| rows.iter().filter_map(of).map(ByteArray::from).collect::<Vec<_>>();
    let message = Arc::new(parse_message_type(MESSAGE).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), message, Arc::new(WriterProperties::builder().build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    put::<DoubleType>(&mut group, &rows.iter().filter_map(|row| row.0).collect::<Vec<_>>(), &levels(&|row| row.0.is_some()));
    put::<ByteArrayType>(&mut group, &texts(&|row| row.1), &levels(&|row| row.1.is_some()));
    put::<DoubleType>(&mut group, &rows.iter().filter_map(|row| row.2).collect::<Vec<_>>(), &levels(&|row| row.2.is_some()));
    put::<ByteArrayType>(&mut group, &texts(&|row| row.3), &levels(&|row| row.3.is_some()));
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// Writes the next column.
fn put<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &[T::T], levels: &[i16]) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, Some(levels), None).unwrap();
    column.close().unwrap();
}

#[test]
fn parquet_files_that_are_neighbours_look_the_same() {
    let good: ParquetRow = (Some(40.0), Some("surgery"), Some(1.0), Some("no"));
    let rows: [(&str, ParquetRow); 10] = [
        ("another record", (Some(90.0), Some("medicine"), Some(0.0), Some("yes"))),
        ("a missing number", (None, good.1, good.2, good.3)),
        ("not a number", (Some(f64::NAN), good.1, good.2, good.3)),
        ("an infinite number", (Some(f64::INFINITY), good.1, good.2, good.3)),
        ("above the range", (Some(100.5), good.1, good.2, good.3)),
        ("a missing category", (good.0, None, good.2, good.3)),
        ("an unknown category", (good.0, Some("radiology"), good.2, good.3)),
        ("neither true nor false", (good.0, good.1, Some(0.5), good.3)),
        ("a missing label", (good.0, good.1, good.2, None)),
        ("an unknown label", (good.0, good.1, good.2, Some("perhaps"))),
    ];
    let neighbours = rows.map(|(what, row)| (what, parquet_file(row)));
    let first = parquet_file(good);
    assert!(neighbours.iter().all(|(_, bytes)| *bytes != first));
    neighbours_look_the_same("logistic-regression", SCHEMA, "cohort.parquet", &first, &neighbours);
    // With the same noise and no masks every byte is what it is for a record that the schema drops.
    let home = Home::of("hospital", "cohort.parquet");
    home.write("schema.toml", SCHEMA);
    let task = resolve(&plain_task(), SCHEMA);
    home.hold(parquet_file((Some(40.0), Some("surgery"), None, Some("no"))));
    let (dropped, _) = home.run(&task, Noise::Same);
    for (what, bytes) in &neighbours[1..] {
        home.hold(bytes);
        assert!(home.run(&task, Noise::Same).0 == dropped, "{what}");
    }
}
