//! A small federation on disk, and clients that speak the wire by hand: well-behaved ones and others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_names::{ClientId, Hash, PayloadKind, ReleaseId, RunId};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_programs::identity::{Enrolment, generate_identity, public_identity_from_pem, spki_hash};
use dp_pvi_proto::client::{self as wire, Answer, NextReader};
use dp_pvi_proto::v1::federation_client::FederationClient;
use dp_pvi_proto::{CHUNK_BYTES, v1};
use dp_pvi_protocol::message::{
    HeldOutMetrics, Hello, Intent, MetricsReport, Next, PROTOCOL_VERSIONS, Receipt, Refusal, RefusalReason, Role, RoundStart, Signed,
    Update, Welcome, payload_hash,
};
use dp_pvi_protocol::origin::Origin;
use dp_pvi_protocol::transport::TransportError;
use dp_pvi_server::ca::{Authority, NewFederation};
use dp_pvi_server::config::Config;
use dp_pvi_server::{Event, EventSink, Start};
use ed25519_dalek::{SigningKey, VerifyingKey};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use time::OffsetDateTime;
use tonic::transport::{Channel, Endpoint, Uri};

pub(crate) const FEDERATION: &str = "fed";

/// What the task of a test looks like.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) columns: usize,
    pub(crate) full_covariance: bool,
    pub(crate) rounds: u32,
    pub(crate) min_sites: u32,
    pub(crate) update_deadline: &'static str,
    pub(crate) start_deadline: &'static str,
    pub(crate) suspend_for: &'static str,
    pub(crate) linger: &'static str,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            columns: 1,
            full_covariance: false,
            rounds: 2,
            min_sites: 2,
            update_deadline: "10m",
            start_deadline: "10m",
            suspend_for: "10m",
            linger: "5s",
        }
    }
}

pub(crate) struct Fed {
    pub(crate) root: TempDir,
    pub(crate) members: BTreeMap<String, Member>,
}

#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) id: ClientId,
    pub(crate) role: Role,
    pub(crate) identity: Arc<SigningKey>,
    pub(crate) server_identity: VerifyingKey,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: Arc<PrivateKeyDer<'static>>,
    pub(crate) roots: Arc<rustls::RootCertStore>,
}

pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

impl Fed {
    /// A federation with sites `a`, `b`, … and an evaluator `eve`.
    pub(crate) fn new(sites: usize, plan: &Plan) -> Self {
        let root = TempDir::new().unwrap();
        let tls = root.path().join("tls");
        let new = NewFederation {
            name: FEDERATION.into(),
            dns: vec!["localhost".into()],
            addresses: vec!["127.0.0.1".parse().unwrap()],
            days: 90,
            revocation_list_days: 90,
        };
        drop(Authority::init(&tls, &new, now()).unwrap());
        let mut fed = Self { root, members: BTreeMap::new() };
        for i in 0..sites {
            fed.enrol(&site_name(i), Role::Site, now());
        }
        fed.enrol("eve", Role::Evaluator, now());
        fed.write_config(plan);
        fed
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn config_path(&self) -> PathBuf {
        self.path("server.toml")
    }

    pub(crate) fn write_config(&self, plan: &Plan) {
        let config = format!(
            "[server]\nname = \"{FEDERATION}\"\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nstate = \"state\"\n\
             [tls]\nca = \"tls/ca.pem\"\ncert = \"tls/server.pem\"\nkey = \"tls/server.key\"\n[task]\nfile = \"task.toml\"\n\
             [phases]\nmin_sites = {}\nmax_sites = 20\nupdate_deadline = \"{}\"\nstart_deadline = \"{}\"\n\
             suspend_for = \"{}\"\nlinger = \"{}\"\n",
            plan.min_sites, plan.update_deadline, plan.start_deadline, plan.suspend_for, plan.linger
        );
        std::fs::write(self.config_path(), config).unwrap();
        let approximation = if plan.full_covariance { "full-covariance" } else { "mean-field" };
        let task = format!(
            "name = \"a test\"\n[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\napproximation = \"{approximation}\"\n[schema]\nfile = \"schema.toml\"\n\
             [pvi]\nschedule = \"synchronous\"\nrounds = {}\ndamping = 0.1\nupdate = \"pvi\"\n\
             [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n",
            plan.rounds
        );
        std::fs::write(self.path("task.toml"), task).unwrap();
        let values: Vec<String> = (0..plan.columns).map(|i| format!("\"v{i}\"")).collect();
        let schema = format!(
            "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [{}]\n",
            values.join(", ")
        );
        std::fs::write(self.path("schema.toml"), schema).unwrap();
    }

    /// Enrols a client with new keys, as of `at`.
    pub(crate) fn enrol(&mut self, name: &str, role: Role, at: OffsetDateTime) -> Member {
        let identity = generate_identity().unwrap();
        let member = sign(&self.path("tls"), self.root.path(), name, role, identity, at, 30);
        self.members.insert(name.into(), member.clone());
        member
    }

    pub(crate) fn revoke(&self, name: &str) {
        Authority::open(&self.path("tls")).unwrap().revoke(&ClientId::new(name).unwrap(), now()).unwrap();
    }

    pub(crate) fn config(&self) -> Config {
        let path = self.config_path();
        Config::parse(&std::fs::read_to_string(&path).unwrap(), &path, []).unwrap()
    }

    pub(crate) fn task(&self) -> ResolvedTask {
        dp_pvi_server::resolve_task(&self.config()).unwrap()
    }

    pub(crate) fn member(&self, name: &str) -> &Member {
        &self.members[name]
    }

    /// What `status` prints.
    pub(crate) fn status(&self) -> String {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
            .args(["status", "--format", "json", "--config"])
            .arg(self.config_path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a server inside this process.
    pub(crate) async fn start(&self) -> Server {
        let events = Events::default();
        let running = dp_pvi_server::start(self.config(), Start::Continue, events.sink()).await.unwrap();
        Server { address: running.address, running: Some(Box::new(running)), events }
    }
}

/// Lets the authority in `tls` enrol a client whose enrolment file is written below `directory`.
pub(crate) fn sign(tls: &Path, directory: &Path, name: &str, role: Role, identity: SigningKey, at: OffsetDateTime, days: u16) -> Member {
    let id = ClientId::new(name).unwrap();
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default().serialize_request(&key).unwrap();
    let file = directory.join(format!("{name}.csr.pem"));
    std::fs::write(&file, Enrolment::file(FEDERATION, id.clone(), role, csr.der(), &identity)).unwrap();
    let (_, pem) = Authority::open(tls).unwrap().sign(&file, at, days).unwrap();
    let ca = std::fs::read_to_string(tls.join("ca.pem")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    Member {
        id,
        role,
        identity: Arc::new(identity),
        server_identity: public_identity_from_pem(&ca).unwrap(),
        chain: vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()],
        key: Arc::new(PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap()),
        roots: Arc::new(roots),
    }
}

pub(crate) fn site_name(i: usize) -> String {
    char::from(b'a' + u8::try_from(i).unwrap()).to_string()
}

/// Events that a server reported.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<Event>>>);

impl Events {
    pub(crate) fn sink(&self) -> EventSink {
        let list = self.0.clone();
        Arc::new(move |event| list.lock().unwrap().push(event.clone()))
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) running: Option<Box<dp_pvi_server::Running>>,
    pub(crate) events: Events,
}

impl Server {
    /// Waits for the run's end.
    pub(crate) async fn finish(mut self) -> dp_pvi_server::Result<dp_pvi_server::export::Exported> {
        self.running.take().unwrap().finish(std::future::pending()).await
    }

    /// Ends the server as SIGTERM does.
    pub(crate) async fn terminate(mut self) {
        let ended = self.running.take().unwrap().finish(std::future::ready(15)).await;
        assert_eq!(ended.unwrap_err().code(), 143);
    }
}

impl Member {
    /// The same with another certificate and its key.
    pub(crate) fn with(&self, certificate: &str, key: &str) -> Self {
        Self {
            chain: vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            key: Arc::new(PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()),
            ..self.clone()
        }
    }

    pub(crate) fn tls_config(&self) -> rustls::ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    pub(crate) async fn connect(&self, address: SocketAddr) -> Result<Client, String> {
        let channel = connect(address, self.tls_config()).await?;
        let tls_key = spki_hash(&self.chain[0]).unwrap();
        Ok(Client { member: self.clone(), tls_key, stub: FederationClient::new(channel), work: None, run: None, coordinates: 0, seen: 0 })
    }

    /// Connects and says hello.
    pub(crate) async fn join(&self, address: SocketAddr) -> Client {
        let mut client = self.connect(address).await.unwrap();
        client.hello().await.unwrap();
        client
    }
}

pub(crate) async fn connect(address: SocketAddr, config: rustls::ClientConfig) -> Result<Channel, String> {
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let service = tower::service_fn(move |_: Uri| {
        let connector = connector.clone();
        async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
            Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://localhost")
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(2 << 20)
        .timeout(Duration::from_secs(60))
        .connect_with_connector(service)
        .await
        .map_err(|e| format!("{:?}", e))
}

/// A client's stream of work.
pub(crate) struct Work {
    requests: tokio::sync::mpsc::UnboundedSender<v1::SiteFrame>,
    answers: tonic::Streaming<v1::WorkFrame>,
    /// Work was asked for, and the answer has not been read.
    asked: bool,
}

/// A connected client that does what a test says.
pub(crate) struct Client {
    pub(crate) work: Option<Work>,
    pub(crate) member: Member,
    pub(crate) tls_key: Hash,
    pub(crate) stub: FederationClient<Channel>,
    pub(crate) run: Option<RunId>,
    pub(crate) coordinates: usize,
    pub(crate) seen: u32,
}

impl Client {
    pub(crate) fn hello_body(&self) -> Hello {
        let site = self.member.role == Role::Site;
        Hello {
            versions: PROTOCOL_VERSIONS.to_vec(),
            federation: FEDERATION.into(),
            client: self.member.id.clone(),
            role: self.member.role,
            intent: Intent::Join,
            tls_key: self.tls_key,
            task: None,
            nominal_units: site.then_some(100),
            ledger: site.then_some((PrivacyUnit::Record, Relation::ReplaceOne)),
            ledger_head: site.then_some(head(0)),
            rows: site.then(Origin::default),
            software: "test".into(),
        }
    }

    pub(crate) async fn say(&mut self, hello: &Hello) -> Result<Welcome, TransportError> {
        let signed = Signed::seal(hello, &self.member.identity);
        let mut frames = self.stub.join(wire::hello(&signed)).await.map_err(|e| wire::transport_error(&e))?.into_inner();
        let mut reader = wire::WelcomeReader::default();
        while let Some(frame) = frames.message().await.map_err(|e| wire::transport_error(&e))? {
            reader.frame(frame).map_err(wire::frame_error)?;
        }
        let welcome = reader.finish().map_err(wire::frame_error)?.welcome.open(&self.member.server_identity).unwrap();
        assert_eq!(welcome.hello, signed.hash());
        Ok(welcome)
    }

    pub(crate) async fn hello(&mut self) -> Result<Welcome, TransportError> {
        let welcome = self.say(&self.hello_body()).await?;
        let task = ResolvedTask::from_bytes(&welcome.task).unwrap();
        self.coordinates = task.family().len();
        self.run = Some(welcome.run);
        Ok(welcome)
    }

    /// The stream of work; a failure takes it away.
    pub(crate) async fn work(&mut self) -> Result<Work, TransportError> {
        if let Some(work) = self.work.take() {
            return Ok(work);
        }
        let (requests, queue) = tokio::sync::mpsc::unbounded_channel();
        let queue = tokio_stream::wrappers::UnboundedReceiverStream::new(queue);
        let answers = self.stub.work(queue).await.map_err(|e| wire::transport_error(&e))?.into_inner();
        Ok(Work { requests, answers, asked: false })
    }

    pub(crate) async fn next(&mut self) -> Result<Next, TransportError> {
        let mut work = self.work().await?;
        if !work.asked {
            let _ = work.requests.send(wire::next(self.seen));
        }
        let mut reader = NextReader::new(self.coordinates);
        loop {
            let frame = work.answers.message().await.map_err(|e| wire::transport_error(&e))?;
            let frame = frame.ok_or_else(|| TransportError::Unreachable("the stream ended".into()))?;
            if reader.frame(frame).map_err(wire::frame_error)? == Answer::Complete {
                break;
            }
        }
        work.asked = false;
        self.work = Some(work);
        reader.finish().map_err(wire::frame_error)
    }

    /// Waits for an open round.
    pub(crate) async fn round(&mut self) -> RoundStart {
        loop {
            match self.next().await.unwrap() {
                Next::Wait | Next::Charter(_) | Next::Entries(_) => {}
                Next::Round(round) => {
                    self.seen += u32::try_from(round.entries.len()).unwrap();
                    return *round;
                }
                Next::Finished(end) => panic!("the run is over: {:?}", end.outcome),
            }
        }
    }

    /// Waits for an open round, as long as the server is there.
    pub(crate) async fn try_round(&mut self) -> Result<RoundStart, ()> {
        loop {
            match self.next().await.map_err(drop)? {
                Next::Wait | Next::Charter(_) | Next::Entries(_) => {}
                Next::Round(round) => {
                    self.seen += u32::try_from(round.entries.len()).unwrap();
                    return Ok(*round);
                }
                Next::Finished(_) => return Err(()),
            }
        }
    }

    pub(crate) async fn finished(&mut self) -> dp_pvi_protocol::message::RunEnd {
        loop {
            match self.next().await.unwrap() {
                Next::Wait | Next::Charter(_) | Next::Entries(_) => {}
                Next::Finished(end) => {
                    self.seen += u32::try_from(end.entries.len()).unwrap();
                    // With all entries in hand: the server need not wait for this one.
                    let _ = self.next().await;
                    return *end;
                }
                // A round that no one answers closes at its deadline.
                Next::Round(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    pub(crate) fn update(&self, round: &RoundStart, values: &[f64]) -> (Update, Vec<u8>) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let header = round.header.open(&self.member.server_identity).unwrap();
        let update = Update {
            release: ReleaseId { run: self.run.unwrap(), client: self.member.id.clone(), round: header.round },
            header: round.header.hash(),
            kind: PayloadKind::Values,
            coordinates: values.len() as u64,
            payload: payload_hash(PayloadKind::Values, &bytes),
            ledger_head: head(u64::from(header.round) + 1),
            upload: None,
        };
        (update, bytes)
    }

    /// Submits on a stream of its own, which ends after it.
    pub(crate) async fn submit(&mut self, update: &Signed<Update>, bytes: &[u8]) -> Result<Receipt, TransportError> {
        let frames = futures_util::stream::iter(submission(update, bytes));
        let mut answers = self.stub.work(frames).await.map_err(|e| wire::transport_error(&e))?.into_inner();
        let frame = answers.message().await.map_err(|e| wire::transport_error(&e))?.expect("an answer");
        Ok(wire::receipt(frame).unwrap().open(&self.member.server_identity).unwrap())
    }

    /// Submits and asks for the next round in the same breath, as the shipped client does; [`Client::next`] reads the answer.
    pub(crate) async fn submit_and_ask(&mut self, update: &Signed<Update>, bytes: &[u8]) -> Result<Receipt, TransportError> {
        let mut work = self.work().await?;
        for frame in submission(update, bytes) {
            let _ = work.requests.send(frame);
        }
        let _ = work.requests.send(wire::next(self.seen));
        work.asked = true;
        let frame = work.answers.message().await.map_err(|e| wire::transport_error(&e))?.expect("an answer");
        self.work = Some(work);
        Ok(wire::receipt(frame).unwrap().open(&self.member.server_identity).unwrap())
    }

    /// Signs and submits values for a round.
    pub(crate) async fn send(&mut self, round: &RoundStart, values: &[f64]) -> Result<Receipt, TransportError> {
        let (update, bytes) = self.update(round, values);
        self.submit_and_ask(&Signed::seal(&update, &self.member.identity), &bytes).await
    }

    pub(crate) async fn report(&mut self, rounds: u32) -> Result<(), TransportError> {
        let metrics = HeldOutMetrics {
            records: 500,
            log_likelihood: -0.7 + 0.03 * f64::from(rounds.min(10)),
            accuracy: Some(0.5 + 0.03 * f64::from(rounds.min(10))),
            brier: Some(0.25 - 0.01 * f64::from(rounds.min(10))),
            calibration_error: Some(0.05),
            reliability: (0..15).map(|i| (f64::from(i) / 15.0 + 0.03, f64::from(i) / 15.0 + 0.05, 33)).collect(),
            ..HeldOutMetrics::default()
        };
        let report = MetricsReport { run: self.run.unwrap(), round: rounds, metrics };
        let signed = Signed::seal(&report, &self.member.identity);
        self.stub.report(wire::report(&signed)).await.map_err(|e| wire::transport_error(&e)).map(drop)
    }

    /// Refuses a round, or (with the hash of no header) the run.
    pub(crate) async fn refuse(&mut self, round: u32, header: Hash, reason: RefusalReason) -> Result<(), TransportError> {
        let release = ReleaseId { run: self.run.unwrap(), client: self.member.id.clone(), round };
        let signed = Signed::seal(&Refusal { release, header, reason }, &self.member.identity);
        self.stub.refuse(wire::refusal(&signed)).await.map_err(|e| wire::transport_error(&e)).map(drop)
    }
}

/// The frames of an update, whatever is in it.
fn submission(update: &Signed<Update>, bytes: &[u8]) -> impl Iterator<Item = v1::SiteFrame> + Send + 'static {
    use v1::site_frame::Frame;
    let head = Frame::Update(v1::SignedMessage { body: update.body.clone().into(), signature: update.signature.clone().into() });
    let payload = bytes::Bytes::copy_from_slice(bytes);
    let chunks = (0..payload.len().div_ceil(CHUNK_BYTES))
        .map(move |i| Frame::Payload(payload.slice(i * CHUNK_BYTES..payload.len().min((i + 1) * CHUNK_BYTES))));
    std::iter::once(head).chain(chunks).map(|frame| v1::SiteFrame { frame: Some(frame) })
}

pub(crate) fn head(seq: u64) -> LedgerHead {
    LedgerHead { seq, hash: Hash([u8::try_from(seq % 251).unwrap(); 32]) }
}

/// A server in a process of its own.
pub(crate) struct Process {
    pub(crate) child: std::process::Child,
    pub(crate) address: SocketAddr,
    /// Address of the status pages.
    pub(crate) http: SocketAddr,
    lines: std::sync::mpsc::Receiver<serde_json::Value>,
}

impl Process {
    pub(crate) fn spawn(fed: &Fed, environment: &[(&str, &str)]) -> Self {
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
            .args(["run", "--format", "json", "--quiet", "--config"])
            .arg(fed.config_path())
            .envs(environment.iter().copied())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        Self::from_child(child)
    }

    /// A server that may have this many files open, and no more.
    pub(crate) fn spawn_with_descriptors(fed: &Fed, descriptors: u32) -> Self {
        let script = format!("ulimit -n {descriptors}; exec \"$0\" run --format json --quiet --config \"$1\"");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_dp-pvi-server")]).arg(fed.config_path());
        let child = command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        Self::from_child(child.spawn().unwrap())
    }

    /// Takes a child whose stdout is piped.
    pub(crate) fn from_child(mut child: std::process::Child) -> Self {
        use std::io::BufRead;
        let stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let nowhere = ([127, 0, 0, 1], 0).into();
        let mut process = Self { child, address: nowhere, http: nowhere, lines };
        let listening = process.event("listening");
        process.address = listening["address"].as_str().unwrap().parse().unwrap();
        process.http = listening["http"].as_str().unwrap().parse().unwrap();
        process
    }

    /// Waits for an event of this kind.
    pub(crate) fn event(&self, kind: &str) -> serde_json::Value {
        loop {
            let event = self.lines.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("no event {kind}"));
            if event["event"] == kind {
                return event;
            }
        }
    }

    /// A field of `/proc/PID/status`, in bytes.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Lets `VmHWM` count from here.
    #[allow(dead_code, reason = "the benchmark uses it")]
    pub(crate) fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    /// CPU time so far.
    pub(crate) fn cpu(&self) -> Duration {
        cpu_of(&self.child.id().to_string())
    }

    /// Ends the process as a power cut would, as far as a process can.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        // The shell's own `kill`: a small system has no program of that name.
        assert!(std::process::Command::new("sh").args(["-c", &format!("kill -s {name} {pid}")]).status().unwrap().success());
    }

    pub(crate) fn exit_code(mut self) -> Option<i32> {
        for _ in 0..200 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the status port answers.
pub(crate) fn page(address: SocketAddr, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// CPU time of a process, by `/proc/PID/schedstat` of all its threads (nanoseconds).
pub(crate) fn cpu_of(pid: &str) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}
