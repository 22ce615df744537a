//! A network in memory between simulated clients and one simulated server. It loses, delays, repeats and replays messages,
//! as a seed says; server and clients run the production state machines and loops.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use chacha20::ChaCha20Rng;
use dp_pvi_names::{ClientId, Hash, ReleaseId};
use dp_pvi_privacy::ledger::Attachment;
use dp_pvi_protocol::aggregation::summer::{SummerNode, SummerStores};
use dp_pvi_protocol::aggregation::{SummerReply, SummerRequest};
use dp_pvi_protocol::coordinator::{Begin, Coordinator, Peer, Record, Settings};
use dp_pvi_protocol::driver::{Clock, ServeError, Server};
use dp_pvi_protocol::message::{Hello, MetricsReport, Next, Receipt, Refusal, Signed, Update, payload_hash};
use dp_pvi_protocol::sum::PayloadCheck;
use dp_pvi_protocol::time::{AttendedClock, Passed, Reading, Timestamp};
use dp_pvi_protocol::transport::{Rejection, Transport, TransportError};
use dp_pvi_protocol::witness::Greeting;
use dp_pvi_secagg::signed::PublicKey;
use dp_pvi_secagg::summer::memory::{MemoryStore, MemoryVault};
use dp_pvi_secagg::summer::{KeyVault, RoundRecord, Slot, StoreError as SummerStoreError, SummerStore};
use dp_pvi_secagg::transcript::Head;
use ed25519_dalek::{SigningKey, VerifyingKey};
use rand_core::Rng;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::disk::ServerDisk;
use crate::executor::Executor;
use crate::noise::stream;

/// What goes wrong, how often.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Probability that a request is lost.
    #[serde(deserialize_with = "probability")]
    pub drop_request: f64,
    /// Probability that an answer is lost although the server acted.
    #[serde(deserialize_with = "probability")]
    pub drop_response: f64,
    /// Probability that a request arrives twice.
    #[serde(deserialize_with = "probability")]
    pub duplicate: f64,
    /// Probability that a copy of a request arrives once more, up to a minute later.
    #[serde(deserialize_with = "probability")]
    pub replay: f64,
    /// Probability that a request arrives only after its sender has given it up, up to a minute later: behind later requests.
    #[serde(deserialize_with = "probability")]
    pub late: f64,
    /// Every message takes up to this many milliseconds.
    pub delay_milliseconds: u64,
    /// Probability of a site's crash at each write of its ledger (half before, half after the write).
    #[serde(deserialize_with = "probability")]
    pub crash_site: f64,
    /// Probability of the server's crash at each of its writes.
    #[serde(deserialize_with = "probability")]
    pub crash_server: f64,
    /// Probability that the summer starts again from its stores before it answers a request.
    #[serde(deserialize_with = "probability")]
    pub crash_summer: f64,
    /// Times at which server and summer do not reach each other.
    pub summer_cut_off: Vec<Span>,
    /// Times in which a client is cut off.
    pub partitions: Vec<Partition>,
    /// Jumps of the machines' clocks.
    pub clock_jumps: Vec<ClockJump>,
}

/// At least 0, and below 1: what always fails never ends.
fn probability<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if (0.0..1.0).contains(&value) {
        Ok(value)
    } else {
        Err(serde::de::Error::custom("a probability of a fault is at least 0 and below 1"))
    }
}

impl Faults {
    /// How far a machine's clock is off after so much time.
    #[must_use]
    pub(crate) fn skew(&self, machine: &Machine, since_start: Duration) -> Skew {
        let due = self.clock_jumps.iter().filter(|jump| jump.machine == *machine && jump.at_seconds <= since_start.as_secs());
        Skew { milliseconds: due.map(|jump| jump.by_seconds * 1000).sum() }
    }
}

/// A machine that has a clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Machine {
    /// The server's.
    Server,
    /// A client's.
    Client(ClientId),
    /// The summer's. It says nothing by its clock; but its supervisor starts it again by it.
    Summer,
}

/// A time of the run, in seconds of true time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// First second.
    pub from_seconds: u64,
    /// First second after it.
    pub until_seconds: u64,
}

/// A clock that jumps, forth or back, and stays there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockJump {
    /// Whose clock.
    pub machine: Machine,
    /// After this many seconds of true time.
    pub at_seconds: u64,
    /// By so many seconds; back if negative.
    pub by_seconds: i64,
}

/// The difference between a machine's clock and true time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skew {
    milliseconds: i64,
}

impl Skew {
    /// What the machine takes for the time.
    #[must_use]
    pub fn of(self, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.as_millis().saturating_add_signed(self.milliseconds))
    }
}

/// A machine's clock: true time and its jumps. It waits by true time, as an operating system's timers do.
#[derive(Clone)]
pub struct MachineClock {
    executor: Executor,
    start: Timestamp,
    machine: Machine,
    faults: Rc<Faults>,
}

impl MachineClock {
    /// The clock of a machine that was right at `start`.
    #[must_use]
    pub fn new(executor: Executor, start: Timestamp, machine: Machine, faults: Rc<Faults>) -> Self {
        Self { executor, start, machine, faults }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        let now = self.executor.now();
        self.faults.skew(&self.machine, now.since(self.start)).of(now)
    }

    async fn sleep(&self, duration: Duration) {
        self.executor.sleep(duration).await;
    }
}

/// A time in which a client is cut off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Who.
    pub client: ClientId,
    /// From this many seconds after the start.
    pub from_seconds: u64,
    /// To this many seconds after the start.
    pub until_seconds: u64,
}

/// A request as it travels.
#[derive(Debug, Clone)]
pub enum Request {
    /// Hello.
    Hello(Signed<Hello>),
    /// Next.
    Next(u32),
    /// An update with its payload.
    Submit(Signed<Update>, Vec<u8>),
    /// A signature on the charter.
    Consent(Vec<u8>),
    /// A refusal.
    Refuse(Signed<Refusal>),
    /// Metrics.
    Report(Signed<MetricsReport>),
}

/// Its answer.
#[derive(Debug, Clone)]
pub enum Answer {
    /// To a hello.
    Welcome(Box<Greeting>),
    /// To `next`.
    Next(Next),
    /// To an update.
    Receipt(Signed<Receipt>),
    /// To the rest.
    Done,
}

/// What has been transmitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Requests that arrived.
    pub requests: u64,
    /// Updates that arrived, copies included.
    pub submissions: u64,
    /// Payload bytes that arrived, copies included.
    pub payload_bytes: u64,
}

/// The server's machine: it may be down.
pub struct Host {
    server: Option<Server<ServerDisk>>,
    disk: ServerDisk,
    settings: Settings,
    /// Jumps of its clock, and since when they are counted.
    clock: (Rc<Faults>, Timestamp),
    /// The time that its server is given.
    attended: AttendedClock,
    up_again: Timestamp,
    /// Crashes so far.
    pub crashes: u32,
    /// What arrived.
    pub traffic: Traffic,
    /// Hashes of the payloads that arrived for every release, whatever became of them.
    pub arrived: BTreeMap<ReleaseId, BTreeSet<Hash>>,
    /// Something that is not an injected failure.
    pub fault: Option<String>,
    watch: Box<dyn FnMut(&Record)>,
    watched: usize,
    summer: Option<SimulatedSummer>,
}

/// How long a crashed machine is down.
const OUTAGE: Duration = Duration::from_secs(3);
/// How long a caller waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Host {
    /// A machine that starts its server at the first tick. `watch` sees every durable record.
    #[must_use]
    pub fn new(settings: Settings, disk: ServerDisk, watch: Box<dyn FnMut(&Record)>, summer: Option<SimulatedSummer>) -> Self {
        let up_again = Timestamp::from_millis(0);
        let clock = (Rc::new(Faults::default()), up_again);
        let (traffic, arrived) = (Traffic::default(), BTreeMap::new());
        let attended = AttendedClock::default();
        Self {
            server: None,
            disk,
            settings,
            clock,
            attended,
            up_again,
            crashes: 0,
            traffic,
            arrived,
            fault: None,
            watch,
            watched: 0,
            summer,
        }
    }

    /// The running coordinator, if it runs.
    #[must_use]
    pub fn coordinator(&self) -> Option<&Coordinator> {
        self.server.as_ref().map(Server::coordinator)
    }

    /// The same machine with a clock that was right at `start` and jumps as the faults say.
    #[must_use]
    pub(crate) fn with_clock(self, faults: Rc<Faults>, start: Timestamp) -> Self {
        Self { clock: (faults, start), ..self }
    }

    /// What the server takes for the time.
    fn here(&mut self, now: Timestamp) -> Timestamp {
        let (faults, start) = &self.clock;
        let steady = now.since(*start);
        let (here, passed) = self.attended.look(Reading { wall: faults.skew(&Machine::Server, steady).of(now), steady });
        if let (Passed::Lost, Some(server)) = (passed, &mut self.server) {
            server.coordinator_mut().begin_anew();
        }
        here
    }

    /// What the summer takes for the time, as long as the server reaches it.
    fn there(&self, now: Timestamp) -> Option<Timestamp> {
        let (faults, start) = &self.clock;
        let seconds = now.since(*start).as_secs();
        let cut_off = faults.summer_cut_off.iter().any(|span| (span.from_seconds..span.until_seconds).contains(&seconds));
        (!cut_off).then(|| faults.skew(&Machine::Summer, now.since(*start)).of(now))
    }

    /// Crashes of the summer so far.
    #[must_use]
    pub fn summer_crashes(&self) -> u32 {
        self.summer.as_ref().map_or(0, |summer| summer.crashes)
    }

    /// Starts the server where it is down and due, and lets time pass in it. `now` is the true time.
    pub fn tick(&mut self, now: Timestamp) {
        let (here, there) = (self.here(now), self.there(now));
        if self.server.is_none() && now >= self.up_again && self.fault.is_none() {
            match Coordinator::restore(self.settings.clone(), self.disk.records()) {
                Ok(coordinator) => self.server = Some(Server::new(coordinator, self.disk.clone())),
                Err(error) => self.fault = Some(error.to_string()),
            }
        }
        if let Some(server) = &mut self.server
            && let Err(error) = server.tick(here).and_then(|_| ask(server, self.summer.as_mut(), here, there))
        {
            self.failed(&error, now);
        }
        for record in self.disk.records_from(self.watched) {
            self.watched += 1;
            (self.watch)(&record);
        }
    }

    /// Hands a request to the server. `now` is the true time.
    ///
    /// # Errors
    /// The server is down, goes down over it, or rejects it.
    pub fn deliver(&mut self, client: &ClientId, request: &Request, now: Timestamp) -> Result<Answer, TransportError> {
        let (disk, here, there) = (self.disk.clone(), self.here(now), self.there(now));
        if let Request::Submit(update, payload) = request
            && let Ok(update) = update.peek()
        {
            // An eavesdropper sees it even if the server is down.
            self.arrived.entry(update.release).or_default().insert(payload_hash(update.kind, payload));
        }
        let Some(server) = &mut self.server else { return Err(TransportError::Unreachable("the server is down".into())) };
        self.traffic.requests += 1;
        if let Request::Submit(_, payload) = request {
            self.traffic.submissions += 1;
            self.traffic.payload_bytes += payload.len() as u64;
        }
        let answer = handle(server, &disk, client, request, here);
        let answer = answer.and_then(|answer| ask(server, self.summer.as_mut(), here, there).map(|()| answer));
        answer.map_err(|error| match error {
            ServeError::Rejected(rejected) => TransportError::Rejected { kind: rejected.kind(), message: rejected.to_string() },
            error => {
                self.failed(&error, now);
                TransportError::Unreachable("the server went down".into())
            }
        })
    }

    fn failed(&mut self, error: &ServeError, now: Timestamp) {
        self.server = None;
        self.crashes += 1;
        self.up_again = now.plus(OUTAGE);
        if !matches!(error, ServeError::Store(dp_pvi_protocol::driver::StoreError::Unavailable(_))) {
            self.fault = Some(error.to_string());
        }
    }
}

/// Asks the summer as long as there is something to ask and it helps. `here` is the server's time; `there` the summer's, where it is reached.
fn ask(
    server: &mut Server<ServerDisk>,
    summer: Option<&mut SimulatedSummer>,
    here: Timestamp,
    there: Option<Timestamp>,
) -> Result<(), ServeError> {
    let (Some(summer), Some(now)) = (summer, there) else { return Ok(()) };
    while let Some(request) = server.summer_request(here) {
        if now < summer.up_again {
            break;
        }
        let Some(reply) = summer.answer(&request, now) else { break };
        if server.summer_replied(reply, here)?.is_some() {
            break;
        }
    }
    Ok(())
}

/// The second party's machine. Its stores survive its crashes.
pub struct SimulatedSummer {
    key: SigningKey,
    server: PublicKey,
    stores: SummerMemory,
    node: SummerNode<SummerMemory>,
    dice: ChaCha20Rng,
    /// Probability of a crash at a request.
    crash: f64,
    /// Crashes so far.
    pub crashes: u32,
    /// It does not answer before this, by its own clock.
    pub up_again: Timestamp,
}

impl SimulatedSummer {
    /// A summer with a seeded generator, and its probability of a crash at a request.
    #[must_use]
    pub fn new(key: SigningKey, server: &VerifyingKey, seed: u64, crash: f64) -> Self {
        let (server, stores) = (PublicKey(server.to_bytes()), SummerMemory::default());
        let node = SummerNode::new(key.clone(), server, stores.clone());
        let dice = stream(seed, "summer", 0);
        Self { key, server, stores, node, dice, crash, crashes: 0, up_again: Timestamp::from_millis(0) }
    }

    /// The answer; none if the machine went down before or after it was made. `now` is its own time.
    pub fn answer(&mut self, request: &SummerRequest, now: Timestamp) -> Option<SummerReply> {
        // No draw without this fault: seeds keep their runs.
        let crashes = self.crash > 0.0 && f64::from(self.dice.next_u32()) < self.crash * 4_294_967_296.0;
        if !crashes {
            return Some(self.node.handle(request, &mut self.dice));
        }
        if self.dice.next_u32() & 1 == 0 {
            let _unheard = self.node.handle(request, &mut self.dice);
        }
        self.crashes += 1;
        self.up_again = now.plus(OUTAGE);
        self.node = SummerNode::new(self.key.clone(), self.server, self.stores.clone());
        None
    }
}

/// Stores in memory, one for every charter. Clones are handles to the same disk.
#[derive(Clone, Default)]
struct SummerMemory(Rc<RefCell<BTreeMap<Hash, SummerDisk>>>);

/// Store and vault of one charter; clones are handles to the same.
#[derive(Clone, Default)]
struct SummerDisk {
    store: Rc<RefCell<MemoryStore>>,
    vault: Rc<RefCell<MemoryVault>>,
}

impl SummerStores for SummerMemory {
    type Store = SummerDisk;
    type Vault = SummerDisk;

    fn open(&mut self, charter: Hash) -> Result<(SummerDisk, SummerDisk), SummerStoreError> {
        let disk = self.0.borrow_mut().entry(charter).or_default().clone();
        Ok((disk.clone(), disk))
    }
}

impl SummerStore for SummerDisk {
    fn head(&self) -> Result<Option<Head>, SummerStoreError> {
        self.store.borrow().head()
    }

    fn save_head(&mut self, head: Head) -> Result<(), SummerStoreError> {
        self.store.borrow_mut().save_head(head)
    }

    fn round(&self, round: u32) -> Result<Option<RoundRecord>, SummerStoreError> {
        self.store.borrow().round(round)
    }

    fn save_round(&mut self, round: u32, record: &RoundRecord) -> Result<(), SummerStoreError> {
        self.store.borrow_mut().save_round(round, record)
    }
}

impl KeyVault for SummerDisk {
    fn slot(&self, round: u32) -> Result<Slot, SummerStoreError> {
        self.vault.borrow().slot(round)
    }

    fn keep(&mut self, round: u32, key: Zeroizing<[u8; 32]>) -> Result<(), SummerStoreError> {
        self.vault.borrow_mut().keep(round, key)
    }

    fn destroy_through(&mut self, round: u32) -> Result<(), SummerStoreError> {
        self.vault.borrow_mut().destroy_through(round)
    }
}

/// What the gRPC service of the production server does with a request.
fn handle(
    server: &mut Server<ServerDisk>,
    disk: &ServerDisk,
    client: &ClientId,
    request: &Request,
    now: Timestamp,
) -> Result<Answer, ServeError> {
    Ok(match request {
        Request::Hello(hello) => {
            let peer = Peer { client: client.clone(), tls_key: tls_key(client) };
            Answer::Welcome(Box::new(server.hello(hello, &peer, now)?))
        }
        Request::Next(seen) => Answer::Next(server.next(client, *seen, now)?),
        Request::Submit(update, payload) => Answer::Receipt(match server.begin(client, update, now)? {
            Begin::Answered(answered) => server.receipt(&answered)?,
            Begin::Accept(expected) => {
                let mut check = PayloadCheck::new(*expected);
                let checked = payload.chunks(1000).try_for_each(|chunk| check.update(chunk)).and_then(|()| check.finish());
                checked.map_err(|error| ServeError::Rejected(error.into()))?;
                disk.spool(client, update.hash(), payload)?;
                let answered = server.stored(client, update, now)?;
                server.receipt(&answered)?
            }
        }),
        Request::Consent(signature) => {
            server.consent(client, signature, now)?;
            Answer::Done
        }
        Request::Refuse(refusal) => {
            server.refuse(client, refusal, now)?;
            Answer::Done
        }
        Request::Report(report) => {
            server.report(client, report, now)?;
            Answer::Done
        }
    })
}

/// The TLS key hash of a simulated client.
#[must_use]
pub fn tls_key(client: &ClientId) -> Hash {
    Hash::of("dp-pvi simulated TLS key", &[client.as_str().as_bytes()])
}

/// One client's connection.
pub struct SimulatedTransport {
    host: Rc<RefCell<Host>>,
    clock: Executor,
    start: Timestamp,
    client: ClientId,
    faults: Rc<Faults>,
    dice: ChaCha20Rng,
}

impl SimulatedTransport {
    /// A connection. `incarnation` counts the client's starts, so that each has its own luck.
    #[must_use]
    pub fn new(
        host: Rc<RefCell<Host>>,
        clock: Executor,
        start: Timestamp,
        client: ClientId,
        faults: Rc<Faults>,
        seed: u64,
        incarnation: u64,
    ) -> Self {
        let dice = stream(seed, &format!("network/{client}"), incarnation);
        Self { host, clock, start, client, faults, dice }
    }

    fn happens(&mut self, probability: f64) -> bool {
        f64::from(self.dice.next_u32()) < probability * 4_294_967_296.0
    }

    async fn delay(&mut self) {
        let longest = self.faults.delay_milliseconds;
        // A call takes a millisecond at least, or a loop of calls would stop virtual time.
        let millis = 1 + if longest == 0 { 0 } else { u64::from(self.dice.next_u32()) % longest };
        self.clock.sleep(Duration::from_millis(millis)).await;
    }

    fn cut_off(&self) -> bool {
        let since = self.clock.now().since(self.start).as_secs();
        self.faults.partitions.iter().any(|p| p.client == self.client && (p.from_seconds..p.until_seconds).contains(&since))
    }

    async fn lost<T>(&self) -> Result<T, TransportError> {
        self.clock.sleep(TIMEOUT).await;
        Err(TransportError::Unreachable("no answer".into()))
    }

    /// Lets a request arrive within the next minute. No one hears its answer.
    fn deliver_later(&mut self, request: Request) {
        let later = Duration::from_millis(u64::from(self.dice.next_u32() % 60_000));
        let (host, clock, client) = (Rc::clone(&self.host), self.clock.clone(), self.client.clone());
        self.clock.spawn(async move {
            clock.sleep(later).await;
            let _unheard = host.borrow_mut().deliver(&client, &request, clock.now());
        });
    }

    async fn call(&mut self, request: Request) -> Result<Answer, TransportError> {
        let faults = Rc::clone(&self.faults);
        self.delay().await;
        if self.cut_off() || self.happens(faults.drop_request) {
            return self.lost().await;
        }
        if self.faults.late > 0.0 && self.happens(faults.late) {
            self.deliver_later(request);
            return self.lost().await;
        }
        let deliver = |transport: &Self| transport.host.borrow_mut().deliver(&transport.client, &request, transport.clock.now());
        let mut answer = deliver(self);
        if self.happens(faults.duplicate) {
            answer = deliver(self);
        }
        if self.happens(faults.replay) {
            self.deliver_later(request);
        }
        self.delay().await;
        if self.cut_off() || self.happens(faults.drop_response) {
            return self.lost().await;
        }
        answer
    }
}

fn unexpected<T>() -> Result<T, TransportError> {
    Err(TransportError::Rejected { kind: Rejection::Other, message: "an answer to something else".into() })
}

impl Transport for SimulatedTransport {
    async fn hello(&mut self, hello: &Signed<Hello>) -> Result<Greeting, TransportError> {
        match self.call(Request::Hello(hello.clone())).await? {
            Answer::Welcome(greeting) => Ok(*greeting),
            _ => unexpected(),
        }
    }

    async fn next(&mut self, seen: u32) -> Result<Next, TransportError> {
        match self.call(Request::Next(seen)).await? {
            Answer::Next(next) => Ok(next),
            _ => unexpected(),
        }
    }

    async fn submit(&mut self, update: &Attachment) -> Result<Signed<Receipt>, TransportError> {
        let message = Signed::from_bytes(update.message())
            .map_err(|error| TransportError::Rejected { kind: Rejection::Message, message: error.to_string() })?;
        match self.call(Request::Submit(message, update.payload().to_bytes())).await? {
            Answer::Receipt(receipt) => Ok(receipt),
            _ => unexpected(),
        }
    }

    async fn consent(&mut self, signature: &[u8]) -> Result<(), TransportError> {
        self.call(Request::Consent(signature.to_vec())).await.map(drop)
    }

    async fn refuse(&mut self, refusal: &Signed<Refusal>) -> Result<(), TransportError> {
        self.call(Request::Refuse(refusal.clone())).await.map(drop)
    }

    async fn report(&mut self, report: &Signed<MetricsReport>) -> Result<(), TransportError> {
        self.call(Request::Report(report.clone())).await.map(drop)
    }
}

/// Draws after how many writes a machine crashes, if it does within a thousand.
pub(crate) fn crash_point(dice: &mut ChaCha20Rng, probability: f64) -> Option<(u64, dp_pvi_privacy::ledger::memory::Failure)> {
    use dp_pvi_privacy::ledger::memory::Failure;
    let after = (0..1000).find(|_| f64::from(dice.next_u32()) < probability * 4_294_967_296.0)?;
    Some((after, if dice.next_u32() & 1 == 0 { Failure::Refused } else { Failure::WrittenUnheard }))
}
