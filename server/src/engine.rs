//! The one thread that owns the run.
//!
//! It takes all messages that wait, lets the protocol's [`Server`] decide about each, makes all records durable in one
//! transaction, and only then answers. Ten sites that send at the same time so share one disk flush and one signature over their
//! receipts, and no lock is held anywhere. When records cannot be made durable nothing is answered and the server ends: memory
//! would be ahead of the disk.

mod command;
mod durable;
mod observe;
mod snapshot;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use dp_pvi_names::{ClientId, Hash};
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::aggregation::host::AggregationRecord;
use dp_pvi_protocol::coordinator::{AheadClients, Answered, Begin, Coordinator, Enrolled, Heeded, Record, Rejected, Settings, Stage};
use dp_pvi_protocol::driver::{ServeError, Server, StoreError, SummerTrouble};
use dp_pvi_protocol::message::{Intent, Next, Receipt, ReceiptOutcome, Role, RunOutcome, Signed};
use dp_pvi_protocol::sum::PayloadCheck;
use dp_pvi_protocol::time::{AttendedClock, Passed, Timestamp};
use tokio::sync::{oneshot, watch};
use tracing::{error, warn};

pub(crate) use self::command::{Answer, Begun, EngineHandle, Refused};
use self::command::{Command, Reply, WorkRequest};
use self::durable::{Announced, RunStore};
use self::observe::Observer;
pub use self::observe::{Event, EventSink};
pub use self::snapshot::{MemberView, RefusedHello, Snapshot, SummerView};
use self::snapshot::{Presences, RefusedHellos};
use crate::clock;
use crate::config::KeepUpdates;
use crate::error::{Result, ServerError};
use crate::mailbox::Mailbox;
pub(crate) use crate::mailbox::Presence;
use crate::store::{PayloadStore, SmallPayload, Store, StoredRun};
use crate::telemetry::{Telemetry, UpdateResult};

/// A point in time that passed without consequence is looked at again after this long.
const IDLE: Duration = Duration::from_secs(1);
/// The engine looks at the clock at least this often: so it knows when it was stopped.
const LOOK: Duration = Duration::from_millis(250);

/// Messages that share one transaction.
const BATCH: usize = 64;

/// Updates of a round that waits for more are not made durable at once: as long as others follow within a step, they share the
/// flush, the signature and the answer's way back. Nothing can go on before the last of them anyway.
const GATHER_STEP: Duration = Duration::from_micros(500);
/// But none of them waits for its receipt longer than this.
const GATHER_MOST: Duration = Duration::from_millis(5);

/// Where the engine is, for those who wait for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The run goes on.
    Running,
    /// The run is over, but not everyone knows.
    Ended(RunOutcome),
    /// The run is over and every member has fetched that.
    Known(RunOutcome),
}

/// What an engine is made from.
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) run: StoredRun,
    pub(crate) payload_store: PayloadStore,
    pub(crate) updates: KeepUpdates,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) events: EventSink,
    /// Where questions to the summer go; none without aggregation.
    pub(crate) mailbox: Option<Mailbox>,
}

/// A started engine.
pub(crate) struct Started {
    pub(crate) handle: EngineHandle,
    pub(crate) progress: watch::Receiver<Progress>,
    /// Resolves when the thread ends.
    pub(crate) done: oneshot::Receiver<Result<()>>,
}

struct Engine {
    server: Server<RunStore>,
    telemetry: Arc<Telemetry>,
    observer: Observer,
    receiver: Receiver<Command>,
    progress: watch::Sender<Progress>,
    /// TLS key of every client's last accepted hello.
    hellos: BTreeMap<ClientId, Hash>,
    /// Clients that wait for work.
    waiting: Vec<Waiting>,
    /// Members that have fetched the end.
    fetched: HashSet<ClientId>,
    /// Enrolled names with their roles.
    enrolled: BTreeMap<ClientId, Role>,
    /// When this process heard each client last.
    heard: BTreeMap<ClientId, Instant>,
    /// Whose last hello was refused, and why.
    refused: RefusedHellos,
    /// Who has seen more of the run than this server.
    ahead: AheadClients,
    mailbox: Option<Mailbox>,
    /// Counts the time in which this process could answer.
    clock: AttendedClock,
    began: Instant,
    now: Timestamp,
    /// Closes with the engine.
    _alive: watch::Sender<()>,
}

struct Waiting {
    client: ClientId,
    ask: WorkRequest,
}

/// What one batch leaves to be done once its records are durable.
#[derive(Default)]
struct Batch {
    answers: Vec<Box<dyn FnOnce()>>,
    /// Updates that get a receipt, and who waits for it.
    receipts: Vec<(Answered, Reply<Signed<Receipt>>)>,
    /// Number of messages.
    messages: usize,
    excluded: Vec<(ClientId, Hash)>,
    asked: bool,
    closing: bool,
}

impl Batch {
    /// Whether no message is in it: time alone woke the engine.
    fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Keeps an update's answer for later, as [`Batch::keep`].
    fn receipt(
        &mut self,
        result: std::result::Result<Answered, ServeError>,
        reply: Reply<Signed<Receipt>>,
        telemetry: &Telemetry,
    ) -> Result<()> {
        match result {
            Ok(answered) => {
                self.receipts.push((answered, reply));
                Ok(())
            }
            Err(error) => self.keep(Err(error), reply, telemetry),
        }
    }

    /// Keeps an answer for later. Only the protocol's own rejections are answers; a store that fails ends the engine.
    fn keep<T: 'static>(&mut self, result: std::result::Result<T, ServeError>, reply: Reply<T>, telemetry: &Telemetry) -> Result<()> {
        let answer = match result {
            Ok(answer) => Ok(answer),
            Err(ServeError::Rejected(rejected)) => {
                telemetry.rejections.inc();
                Err(Refused::Rejected(rejected))
            }
            Err(ServeError::Store(StoreError::Unavailable(problem))) => return Err(ServerError::Unavailable(problem.into())),
            Err(ServeError::Store(StoreError::Corrupt(problem))) => return Err(ServerError::Corrupt(problem.into())),
            Err(ServeError::Payload(problem)) => return Err(ServerError::Corrupt(Problem::of(problem))),
        };
        self.answers.push(Box::new(move || drop(reply.send(answer))));
        Ok(())
    }
}

/// Restores the run and starts its thread.
///
/// # Errors
/// The stored run does not fit the settings, or the thread cannot be started.
pub(crate) fn start(parts: Parts) -> Result<Started> {
    let Parts { settings, store, run, payload_store, updates, telemetry, events, mailbox } = parts;
    let mut observer = Observer::new(events, telemetry.clone(), settings.suspend_for);
    let enrolled = roles(&settings.clients);
    let (coordinator, hellos, announced) = restore(settings, &store, &run, &payload_store, updates, &mut observer)?;
    let server = Server::new(coordinator, RunStore::new(store, run, payload_store, updates, announced, telemetry.clone()));
    let (sender, receiver) = channel();
    let (progress, progress_receiver) = watch::channel(Progress::Running);
    let (done_sender, done) = oneshot::channel();
    let (alive, gone) = watch::channel(());
    let (waiting, fetched, heard) = (Vec::new(), HashSet::new(), BTreeMap::new());
    let mut engine = Engine {
        server,
        telemetry,
        observer,
        receiver,
        progress,
        hellos,
        waiting,
        fetched,
        enrolled,
        heard,
        refused: RefusedHellos::default(),
        ahead: AheadClients::default(),
        mailbox,
        clock: AttendedClock::default(),
        began: clock::instant(),
        now: clock::now(),
        _alive: alive,
    };
    std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || {
            let result = engine.run();
            if let Err(problem) = &result {
                error!(%problem, "the run cannot go on");
            }
            // Waiting clients get no answer: their channels close with the engine.
            drop(engine);
            drop(done_sender.send(result));
        })
        .map_err(|e| ServerError::Failed(Problem::said(format!("the engine's thread cannot be started: {e}"), e)))?;
    Ok(Started { handle: EngineHandle::new(sender, gone), progress: progress_receiver, done })
}

fn roles(clients: &BTreeMap<ClientId, Enrolled>) -> BTreeMap<ClientId, Role> {
    clients.iter().map(|(client, enrolled)| (client.clone(), enrolled.role)).collect()
}

type Restored = (Coordinator, BTreeMap<ClientId, Hash>, Announced);

fn restore(
    settings: Settings,
    store: &Store,
    run: &StoredRun,
    payload_store: &PayloadStore,
    updates: KeepUpdates,
    observer: &mut Observer,
) -> Result<Restored> {
    let mut failure = None;
    let mut hellos = BTreeMap::new();
    let mut payloads = HashSet::new();
    let mut announced = Announced::default();
    let records = (0..).map_while(|seq| match store.record(run, seq) {
        Ok(Some(record)) => {
            match &record {
                Record::Joined { client, hello, .. } => {
                    if let Ok(hello) = hello.peek() {
                        hellos.insert(client.clone(), hello.tls_key);
                    }
                }
                Record::UpdateStored { client, update, .. } => {
                    payloads.insert((client.clone(), update.hash()));
                }
                Record::RoundClosed { .. } if updates == KeepUpdates::OpenRound => payloads.clear(),
                _ => {}
            }
            observer.restored(&record);
            announced.note(&record);
            Some(record)
        }
        Ok(None) => None,
        Err(error) => {
            failure = Some(error);
            None
        }
    });
    let restored = Coordinator::restore(settings, records);
    if let Some(failure) = failure {
        return Err(failure);
    }
    let coordinator = restored.map_err(|e| ServerError::OtherTask(Problem::of(e)))?;
    payload_store.retain(&payloads)?;
    Ok((coordinator, hellos, announced))
}

impl Engine {
    fn run(&mut self) -> Result<()> {
        self.settle(Batch::default())?;
        let mut idle = false;
        loop {
            let Ok(mut next) = self.wait(idle) else { return Ok(()) };
            let mut batch = Batch::default();
            let rounds = self.server.coordinator().entries().len();
            let gathering = clock::instant();
            while let Some(command) = next {
                self.take(command, &mut batch)?;
                next = if batch.messages < BATCH { self.receiver.try_recv().ok() } else { None };
                let more = |server: &Server<RunStore>| server.coordinator().entries().len() == rounds && server.coordinator().awaited() > 0;
                if next.is_none()
                    && !batch.receipts.is_empty()
                    && batch.messages < BATCH
                    && more(&self.server)
                    && gathering.elapsed() < GATHER_MOST
                {
                    std::thread::sleep(GATHER_STEP);
                    next = self.receiver.try_recv().ok();
                }
            }
            let (closing, timer) = (batch.closing, batch.is_empty());
            let changed = self.settle(batch)?;
            idle = timer && !changed;
            if closing {
                return Ok(());
            }
        }
    }

    /// Waits for a message, or until there may be something to do without one. An error says that no one is left who could send one.
    fn wait(&mut self, idle: bool) -> std::result::Result<Option<Command>, RecvTimeoutError> {
        // A point in time that has passed without consequence (a paused run, for example) must not be waited for again and again.
        let least = self.now.plus(if idle { IDLE } else { Duration::ZERO });
        let again = self.mailbox.as_ref().and_then(Mailbox::wake_at);
        let due = [self.server.coordinator().wake_at(), again].into_iter().flatten().min().map(|at| at.max(least));
        loop {
            let patience = due.map_or(LOOK, |at| at.since(self.now).min(LOOK));
            match self.receiver.recv_timeout(patience) {
                Ok(command) => return Ok(Some(command)),
                Err(RecvTimeoutError::Timeout) => {
                    if self.look() == Passed::Lost || due.is_some_and(|at| self.now >= at) {
                        return Ok(None);
                    }
                }
                Err(gone @ RecvTimeoutError::Disconnected) => return Err(gone),
            }
        }
    }

    /// Looks at the clock. Where time was lost every open deadline begins anew.
    fn look(&mut self) -> Passed {
        let (now, passed) = self.clock.look(clock::reading(self.began));
        self.now = now;
        if passed == Passed::Lost {
            self.server.coordinator_mut().begin_anew();
            if let Some(mailbox) = &mut self.mailbox {
                mailbox.begin_anew();
            }
            if !matches!(self.server.coordinator().stage(), Stage::Ended(_)) {
                warn!("this process was stopped, or the machine's clock jumped: open deadlines begin anew");
            }
        }
        passed
    }

    /// Lets the protocol decide about one message.
    fn take(&mut self, command: Command, batch: &mut Batch) -> Result<()> {
        self.look();
        let (now, heard) = (self.now, clock::instant());
        batch.messages += 1;
        if let Some(client) = command.client() {
            // Most are known: their names are not copied again.
            match self.heard.get_mut(client) {
                Some(at) => *at = heard,
                None => drop(self.heard.insert(client.clone(), heard)),
            }
        }
        let Self { server, telemetry, hellos, mailbox, observer, refused, .. } = self;
        let known = |client: &ClientId, tls_key: &Hash| match hellos.get(client) {
            Some(key) if key == tls_key => Ok(()),
            // Another connection, or a server that was restarted: the TLS key must be bound to the identity again.
            _ => Err(ServeError::Rejected(Rejected::HelloFirst)),
        };
        match command {
            Command::Hello { peer, hello, reply } => {
                let result = server.hello(&hello, &peer, now);
                match &result {
                    Ok(_) => refused.note(&peer.client, None, heard),
                    Err(ServeError::Rejected(rejected)) => refused.note(&peer.client, Some(rejected), heard),
                    Err(_) => {}
                }
                // Someone who only looks, perhaps with another certificate, does not take the site's running client away.
                if result.is_ok() && hello.peek().is_ok_and(|hello| hello.intent == Intent::Join) {
                    hellos.insert(peer.client, peer.tls_key);
                }
                batch.keep(result, reply, telemetry)
            }
            Command::Begin { peer, update, accept, reply } => {
                let result = known(&peer.client, &peer.tls_key).and_then(|()| server.begin(&peer.client, &update, now));
                count(&result, telemetry);
                match result {
                    Ok(Begin::Accept(expected)) => batch.keep(Ok(*expected), accept, telemetry),
                    Ok(Begin::Answered(answered)) => batch.receipt(Ok(answered), reply, telemetry),
                    Err(error) => batch.keep(Err(error), accept, telemetry),
                }
            }
            Command::Small { peer, update, payload, reply, next } => {
                let begun = known(&peer.client, &peer.tls_key).and_then(|()| server.begin(&peer.client, &update, now));
                count(&begun, telemetry);
                let result = begun.and_then(|begin| match begin {
                    Begin::Answered(answered) => Ok(answered),
                    Begin::Accept(expected) => {
                        let mut check = PayloadCheck::new(*expected);
                        check.update(&payload).and_then(|()| check.finish()).map_err(|problem| {
                            observer.not_taken(&peer.client, update.peek().map_or(0, |update| update.release.round), problem);
                            ServeError::Rejected(problem.into())
                        })?;
                        server.store().offer(SmallPayload { client: peer.client.clone(), update: update.hash(), bytes: payload });
                        let answered = server.stored(&peer.client, &update, now);
                        server.store().withdraw();
                        answered
                    }
                });
                // One that was not taken ends its stream.
                if let Some(ask) = next.filter(|_| result.is_ok()) {
                    self.waiting.push(Waiting { client: peer.client, ask });
                    batch.asked = true;
                }
                batch.receipt(result, reply, telemetry)
            }
            Command::Stored { client, update, reply } => {
                let result = server.stored(&client, &update, now);
                if result.as_ref().is_ok_and(|answered| answered.outcome == ReceiptOutcome::Excluded) {
                    batch.excluded.push((client, update.hash()));
                }
                batch.receipt(result, reply, telemetry)
            }
            Command::NotTaken { client, round, problem } => {
                observer.not_taken(&client, round, problem);
                Ok(())
            }
            Command::Consent { peer, signature, reply } => {
                let result = known(&peer.client, &peer.tls_key).and_then(|()| server.consent(&peer.client, &signature, now));
                batch.keep(result, reply, telemetry)
            }
            Command::Summer(presence) => {
                observer.summer(presence);
                if let Some(mailbox) = mailbox {
                    mailbox.seat(presence);
                }
                Ok(())
            }
            Command::SummerReply { number, reply } => {
                let Some(mailbox) = mailbox else { return Ok(()) };
                let Some(question) = mailbox.answered(number) else { return Ok(()) };
                let (ignored, _) = oneshot::channel();
                match server.summer_replied(*reply, now) {
                    Ok(trouble) => {
                        let same = || server.summer_request(now).as_ref() == Some(&question);
                        let words = match trouble {
                            Some(SummerTrouble::Never(words)) => {
                                error!(words, "the summer does not help");
                                observer.lost_summer(words);
                                return Ok(());
                            }
                            Some(SummerTrouble::Again(words)) => words,
                            None if same() => "its answer brought nothing new".into(),
                            None => return Ok(()),
                        };
                        warn!(words, "the summer does not help; it is asked again");
                        mailbox.in_vain(question, now);
                        Ok(())
                    }
                    Err(error) => batch.keep::<()>(Err(error), ignored, telemetry),
                }
            }
            Command::SummerNotified => {
                if let Some(mailbox) = mailbox {
                    mailbox.notify();
                }
                Ok(())
            }
            Command::Refuse { peer, refusal, reply } => {
                let result = known(&peer.client, &peer.tls_key).and_then(|()| server.refuse(&peer.client, &refusal, now));
                if matches!(result, Ok(Heeded::TooLate)) {
                    observer.too_late(&peer.client, &refusal);
                }
                batch.keep(result.map(drop), reply, telemetry)
            }
            Command::Report { peer, report, reply } => {
                let result = known(&peer.client, &peer.tls_key).and_then(|()| server.report(&peer.client, &report, now));
                batch.keep(result, reply, telemetry)
            }
            Command::Next { peer, next } => match known(&peer.client, &peer.tls_key) {
                Ok(()) => {
                    self.waiting.push(Waiting { client: peer.client, ask: next });
                    batch.asked = true;
                    Ok(())
                }
                Err(error) => batch.keep(Err(error), next.reply, telemetry),
            },
            Command::Control { control, reply } => batch.keep(server.control(control, now), reply, telemetry),
            Command::Stop { reply } => batch.keep(server.stop(now), reply, telemetry),
            Command::Enrolled(clients) => {
                self.enrolled = roles(&clients);
                server.coordinator_mut().set_enrolled(clients);
                Ok(())
            }
            Command::Status { reply } => {
                let waiting = self.waiting.iter().filter(|waiting| !waiting.ask.reply.is_closed()).map(|waiting| &waiting.client).collect();
                let presences = Presences { enrolled: &self.enrolled, heard: &self.heard, waiting, refused, ahead: &self.ahead };
                let summer = mailbox.as_ref().map(|mailbox| (mailbox.presence(), mailbox.waits()));
                let snapshot = snapshot::of(server.coordinator(), summer, &presences, &snapshot::Looked { now, instant: heard });
                batch.keep(Ok(snapshot), reply, telemetry)
            }
            Command::Fault(problem) => Err(problem),
            Command::Close => {
                batch.closing = true;
                Ok(())
            }
        }
    }

    /// Lets time act, makes everything durable, then answers. Says whether there was anything to make durable.
    fn settle(&mut self, mut batch: Batch) -> Result<bool> {
        let (ignored, _) = oneshot::channel();
        self.look();
        let now = self.now;
        let ticked = self.server.tick(now);
        batch.keep(ticked, ignored, &self.telemetry)?;
        let records = self.server.store().commit()?;
        if let Some(took) = self.server.store().summing_took() {
            self.observer.summed(took);
        }
        for (client, update) in &batch.excluded {
            self.server.store().forget(client, *update);
        }
        records.iter().for_each(|record| self.observer.happened(record));
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.put(self.server.summer_request(now), now);
        }
        // Only these change what a waiting client is told.
        let news = records.iter().any(|record| {
            matches!(
                record,
                Record::RoundOpened { .. }
                    | Record::RoundClosed { .. }
                    | Record::RunEnded { .. }
                    | Record::Metrics { .. }
                    | Record::Aggregation { record: AggregationRecord::Drafted(_), .. }
            )
        });
        if news || batch.asked {
            self.answer_waiting();
        }
        // After the next round: a site that gets both finds both when it wakes, and sends them in one piece.
        batch.answers.into_iter().for_each(|answer| answer());
        let (answered, replies): (Vec<_>, Vec<_>) = batch.receipts.into_iter().unzip();
        let receipts = self.server.coordinator().receipts(&answered);
        for (receipt, reply) in receipts.into_iter().zip(replies) {
            drop(reply.send(Ok(receipt)));
        }
        self.announce();
        Ok(!records.is_empty())
    }

    fn answer_waiting(&mut self) {
        let rounds = u32::try_from(self.server.coordinator().entries().len()).unwrap_or(u32::MAX);
        for Waiting { client, ask } in std::mem::take(&mut self.waiting) {
            if ask.reply.is_closed() {
                continue;
            }
            match self.server.coordinator().next_for(&client, ask.seen) {
                Ok(Next::Wait) => self.waiting.push(Waiting { client, ask }),
                Ok(next) => {
                    // A request that was on its way with an update may be one of a client that is gone. Who asks with all entries in hand
                    // has had the end, or gets nothing with it but that it is the end.
                    let knows = matches!(next, Next::Finished(_)) && ask.seen >= rounds;
                    if ask.reply.send(Ok(next)).is_ok() && knows {
                        self.fetched.insert(client);
                    }
                }
                Err(rejected) => {
                    self.telemetry.rejections.inc();
                    self.ahead.note(&client, &rejected).iter().for_each(|words| error!("{words}"));
                    drop(ask.reply.send(Err(Refused::Rejected(rejected))));
                }
            }
        }
    }

    /// Tells those who wait for the end how far it is.
    fn announce(&mut self) {
        let Stage::Ended(outcome) = self.server.coordinator().stage() else { return };
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.over(outcome, self.server.coordinator().charter_hash());
        }
        let rounds = u32::try_from(self.server.coordinator().entries().len()).unwrap_or(u32::MAX);
        let reported = |client: &ClientId| self.server.coordinator().metrics().get(&rounds).is_some_and(|of| of.contains_key(client));
        let knows = |client: &ClientId, role: Role| self.fetched.contains(client) && (role == Role::Site || reported(client));
        let done = self.mailbox.as_ref().is_none_or(Mailbox::is_notified);
        let all = done && self.server.coordinator().members().iter().all(|(client, member)| member.withdrawn || knows(client, member.role));
        let progress = if all { Progress::Known(outcome) } else { Progress::Ended(outcome) };
        self.progress.send_if_modified(|current| std::mem::replace(current, progress) != progress);
    }
}

/// Counts updates that were answered before their payload was read.
fn count(begun: &std::result::Result<Begin, ServeError>, telemetry: &Telemetry) {
    match begun {
        Ok(Begin::Answered(answered)) if answered.outcome == ReceiptOutcome::Stored => {
            telemetry.update(UpdateResult::Repeated);
            telemetry.retries.inc();
        }
        Err(_) => telemetry.update(UpdateResult::Rejected),
        Ok(_) => {}
    }
}
