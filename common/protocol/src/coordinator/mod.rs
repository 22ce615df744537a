//! The server's side of the protocol as a state machine without I/O and without a clock.
//!
//! A run is the fold of its [`Record`]s. An input is checked against the state and either rejected, leaving the state as it
//! was, or answered by a [`Durable`]: the records that must be durable (in one transaction, in order) before the answer may be
//! given or the action taken. A restarted server hands the stored records to [`Coordinator::restore`] and is where it was.
//!
//! Sequential and synchronous rounds wait for all that were asked. An asynchronous round closes with the first update that it has, and takes
//! updates that answer a header of up to `max_staleness` rounds before; it waits only for a site whose next update would be older than
//! that, and for no one who has missed a deadline and not answered since. Every update enters one round or none; a site has at most the
//! task's number of visits, missed deadlines and refusals included.
//!
//! When a caller cannot make the records of a `Durable` durable it must drop the coordinator and restore another one: the
//! memory is ahead of the disk then.

mod aggregated;
mod ahead;
mod asynchronous;
mod attendance;
mod early_end;
mod operator;
mod record;
mod run;
mod suspension;
mod types;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_posterior::methods::{Rule, VisitSum};
use dp_pvi_posterior::task::{MessageForm, ResolvedTask};

use dp_pvi_secagg::transcript::SignedEntry;

pub use self::ahead::AheadClients;
pub use self::record::{Control, Record};
use self::run::{Given, Open, Phase, Progress, Run};
use self::suspension::Waits;
pub use self::types::{
    Action, Answered, Begin, Close, Committed, Durable, Enrolled, Expected, Heeded, Joins, Lack, Member, Peer, Rejected, RestoreError,
    Settings, Stage, SummerParty,
};
use crate::aggregation::host::Host;
use crate::bounds;
use crate::message::{
    Catchup, HeldOutMetrics, Hello, Intent, InvalidMessage, MetricsReport, Next, PROTOCOL_VERSIONS, Receipt, ReceiptOutcome, Refusal, Role,
    RoundHeader, RoundOutcome, RoundStart, RunEnd, RunOutcome, Signed, TranscriptEntry, Update, Welcome, end_mark, end_reason, vector_hash,
};
use crate::sum::{Sum, SumTotal};
use crate::time::Timestamp;
use crate::witness::Greeting;

/// The server's state machine.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
    rule: Box<dyn Rule>,
    run: Run,
    /// Most units that a site may declare.
    most_units: u64,
    /// The last update of each site whose signature was verified: it is looked at twice, before and after its payload. Not a record: a
    /// restarted server verifies again.
    verified: BTreeMap<ClientId, Signed<Update>>,
    waits: Waits,
}

impl Coordinator {
    /// A coordinator of the run that `records` tell (none: a new run; the first [`poll`](Self::poll) opens it).
    ///
    /// # Errors
    /// The task cannot be read, or the records are of another run.
    pub fn restore(settings: Settings, records: impl IntoIterator<Item = Record>) -> Result<Self, RestoreError> {
        let task = Arc::new(ResolvedTask::from_bytes(&settings.task)?);
        let rule = task.rule();
        let aggregation = match (&task.aggregation, settings.summer) {
            (Some(spec), Some(party)) => Some(Host::new(*spec, &party.key, party.authority)),
            (Some(_), None) => return Err(RestoreError::NoSummer),
            (None, _) => None,
        };
        let mut run = Run::new(task, settings.run, rule.initial(), aggregation);
        let key = settings.key.verifying_key();
        for record in records {
            run.check(&record, &key)?;
            run.apply(&record);
        }
        let most_units = run.task.most_units()?;
        Ok(Self { settings, rule, run, most_units, verified: BTreeMap::new(), waits: Waits::default() })
    }

    /// Answers a hello. The connection's peer and the message must agree. Who only looks gets the same answer, with what was
    /// witnessed before; nothing of it is kept.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub(crate) fn on_hello(&mut self, hello: &Signed<Hello>, peer: &Peer, now: Timestamp) -> Result<Durable<Greeting>, Rejected> {
        let enrolled = self.enrolled(&peer.client)?;
        if hello.body.len() > bounds::HELLO_BYTES {
            return Err(Rejected::Invalid(InvalidMessage::Malformed));
        }
        let body = hello.open(&enrolled.key)?;
        let task = &self.run.task;
        if body.client != peer.client {
            return Err(Rejected::Foreign("client id"));
        }
        if body.tls_key != peer.tls_key {
            return Err(Rejected::Foreign("TLS key"));
        }
        if body.federation != self.settings.federation {
            return Err(Rejected::Foreign("federation"));
        }
        if body.role != enrolled.role {
            return Err(Rejected::Foreign("role"));
        }
        let Some(&version) = PROTOCOL_VERSIONS.iter().find(|version| body.versions.contains(version)) else {
            return Err(Rejected::Version { here: PROTOCOL_VERSIONS, there: body.versions });
        };
        if body.task.is_some_and(|known| known != self.run.id.task) {
            return Err(Rejected::OtherTask("task hash"));
        }
        let known = self.run.members.get(&peer.client);
        // What was remembered before this hello is told. Only where nothing was, its own head is what is kept: a ledger may be an old copy that
        // has grown past the remembered row, and its site notices that by the welcome. Later heads come with updates, after that.
        let (before, head) = match (body.role, body.nominal_units, body.ledger, body.ledger_head) {
            (Role::Site, Some(units), Some((unit, relation)), Some(head)) => {
                if unit != task.privacy.unit {
                    return Err(Rejected::OtherTask("privacy unit of the site's ledger"));
                }
                if !relation.may_book(task.privacy.relation) {
                    return Err(Rejected::OtherTask("relation of the site's ledger"));
                }
                if known.is_some_and(|member| member.nominal_units != Some(units)) {
                    return Err(Rejected::Changed("the number of units"));
                }
                if units > self.most_units {
                    return Err(Rejected::TooManyUnits { declared: units, most: self.most_units });
                }
                let before = known.map_or_else(|| self.settings.witnessed.get(&peer.client).map(|seen| seen.head), |member| member.head);
                (before, before.or(Some(head)))
            }
            (Role::Evaluator, None, None, None) => (None, None),
            _ => return Err(Rejected::Foreign("what a client of this role declares")),
        };
        let joined = || Record::Joined {
            client: peer.client.clone(),
            role: body.role,
            nominal_units: body.nominal_units,
            head,
            hello: hello.clone(),
            at: now,
        };
        let records = match known {
            _ if body.intent == Intent::Observe => Vec::new(),
            Some(member) if member.head == head && !member.withdrawn && !member.is_silent() && !self.is_missed(&peer.client) => Vec::new(),
            Some(member) => match member.joins.wait(now) {
                None => vec![joined()],
                Some(wait) if member.withdrawn => return Err(Rejected::TooOften { seconds: wait.as_secs() }),
                Some(_) => Vec::new(),
            },
            None => vec![joined()],
        };
        let welcome = Welcome { version, run: self.run.id, task: self.settings.task.clone(), witnessed: before, hello: hello.hash() };
        let welcome = Signed::seal(&welcome, &self.settings.key);
        let mut greeting = self.durable(records, Greeting { welcome, signed: None });
        greeting.then.signed = self.signed_head(&peer.client, before);
        Ok(greeting)
    }

    /// Decides about an update before its payload is read.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub(crate) fn on_update_begin(
        &mut self,
        client: &ClientId,
        update: &Signed<Update>,
        now: Timestamp,
    ) -> Result<Durable<Begin>, Rejected> {
        let (body, verdict) = self.check_update(client, update)?;
        self.verified.insert(client.clone(), update.clone());
        Ok(match verdict {
            Verdict::Fits => {
                let commitment = self.committed(client, &body)?;
                let Update { kind, coordinates, payload, .. } = body;
                let (bound, shape, places) = (self.bound(client, &body)?, self.shape(client, &body, None)?, self.places(client, &body)?);
                let expected = Expected { kind, coordinates, payload, commitment, bound, shape, places };
                self.durable(Vec::new(), Begin::Accept(Box::new(expected)))
            }
            Verdict::Known(outcome) => self.durable(Vec::new(), Begin::Answered(answered(body, outcome))),
            Verdict::Late => {
                let record = Record::UpdateExcluded { client: client.clone(), update: update.clone(), at: now };
                self.durable(vec![record], Begin::Answered(answered(body, ReceiptOutcome::Excluded)))
            }
        })
    }

    /// The payload announced in [`Begin::Accept`] is durable and was checked. If the round closed meanwhile the receipt says `Excluded`.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub(crate) fn on_update_stored(
        &mut self,
        client: &ClientId,
        update: &Signed<Update>,
        now: Timestamp,
    ) -> Result<Durable<Answered>, Rejected> {
        let (body, verdict) = self.check_update(client, update)?;
        let (client, update, at) = (client.clone(), update.clone(), now);
        Ok(match verdict {
            Verdict::Known(outcome) => self.durable(Vec::new(), answered(body, outcome)),
            Verdict::Fits => self.durable(vec![Record::UpdateStored { client, update, at }], answered(body, ReceiptOutcome::Stored)),
            Verdict::Late => self.durable(vec![Record::UpdateExcluded { client, update, at }], answered(body, ReceiptOutcome::Excluded)),
        })
    }

    /// The receipts of updates that were answered, in their order, under one signature. They may be given once the records that came
    /// with the answers are durable. An answer of another run has none and is left out.
    #[must_use]
    pub fn receipts(&self, answered: &[Answered]) -> Vec<Signed<Receipt>> {
        let body = |answered: &Answered| {
            let Answered { client, round, .. } = answered;
            let given = self.run.receipts.get(client)?.get(round)?;
            let release = ReleaseId { run: self.run.id, client: client.clone(), round: *round };
            let Given { update, outcome, witnessed } = *given;
            Some(Receipt { release, update, outcome, witnessed, reserved: Vec::new() })
        };
        let bodies: Vec<_> = answered.iter().filter_map(body).collect();
        Signed::seal_all(&bodies, &self.settings.key)
    }

    /// How many answers the open round still waits for.
    #[must_use]
    pub fn awaited(&self) -> usize {
        match &self.run.phase {
            Phase::Open(open) => open.waiting().filter(|client| !self.run.is_silent(client)).count(),
            _ => 0,
        }
    }

    /// A site sends no update in the open round (or, where the refusal names no header, in no further round).
    ///
    /// # Errors
    /// See [`Rejected`].
    pub(crate) fn on_refusal(&mut self, client: &ClientId, refusal: &Signed<Refusal>, now: Timestamp) -> Result<Durable<Heeded>, Rejected> {
        let body = refusal.open(&self.member(client, Role::Site)?.key)?;
        self.own_release(client, &body.release)?;
        let withdraws = body.header == Hash::default();
        let heeded = match &self.run.phase {
            _ if withdraws && self.run.members[client].withdrawn => Heeded::Before,
            _ if withdraws => Heeded::Now,
            Phase::Open(open) if open.round == body.release.round => {
                if open.header_hash != body.header {
                    return Err(Rejected::UnknownRound);
                }
                if !open.asked.contains(client) {
                    return Err(Rejected::NotAsked);
                }
                if open.stored.contains_key(client) {
                    return Err(Rejected::Conflict);
                }
                if open.refused.contains(client) { Heeded::Before } else { Heeded::Now }
            }
            _ => match self.run.entries.get(body.release.round as usize) {
                Some(entry) if entry.header.hash() == body.header => Heeded::TooLate,
                _ => return Err(Rejected::UnknownRound),
            },
        };
        let record = || Record::Refused { client: client.clone(), refusal: refusal.clone(), at: now };
        let records = if heeded == Heeded::Now { vec![record()] } else { Vec::new() };
        Ok(self.durable(records, heeded))
    }

    /// An evaluator's metrics: kept and shown, without influence on anything (decision 23). Numbers that are not finite are a finding, too: the
    /// posterior is at fault, not the message.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub(crate) fn on_metrics(
        &mut self,
        client: &ClientId,
        report: &Signed<MetricsReport>,
        now: Timestamp,
    ) -> Result<Durable<()>, Rejected> {
        let body = report.open(&self.member(client, Role::Evaluator)?.key)?;
        if body.run != self.run.id {
            return Err(Rejected::OtherTask("run"));
        }
        if body.round > self.run.rounds() {
            return Err(Rejected::UnknownRound);
        }
        match self.run.metrics.get(&body.round).and_then(|of| of.get(client)) {
            Some(known) if known.is_same(&body.metrics) => Ok(self.durable(Vec::new(), ())),
            Some(_) => Err(Rejected::Conflict),
            None => {
                let record = Record::Metrics { client: client.clone(), report: report.clone(), at: now };
                Ok(self.durable(vec![record], ()))
            }
        }
    }

    /// What time brings: opens the run and rounds, closes rounds, ends the run. To be called after every input and at
    /// [`wake_at`](Self::wake_at), until it says [`Action::Rest`] (or the sum that it asks for was given).
    pub fn poll(&mut self, now: Timestamp) -> Durable<Action> {
        self.begin_waits(now);
        let records = match &self.run.phase {
            Phase::New(_) => vec![Record::RunOpened { run: self.run.id, task: self.settings.task.clone(), at: now }],
            Phase::Gathering(_) => self.gathered(now),
            Phase::Between(_) => self.opened(now),
            Phase::Open(open) => match self.closed(open, now) {
                Closing::No => Vec::new(),
                Closing::Records(records) => records,
                Closing::Sum(outcome) => return self.close(outcome),
                // `closed` says what becomes of it.
                Closing::Lost(_) => Vec::new(),
            },
            Phase::Ended(_) => Vec::new(),
        };
        let action = if records.is_empty() { Action::Rest } else { Action::Again };
        let durable = self.durable(records, action);
        self.watch_summer(now);
        durable
    }

    /// The sum that [`Action::Close`] asked for: closes the round with λ′ = λ + ρΣΔ + r, r the public correction of the floor.
    /// A sum of something else than the closing round changes nothing.
    pub(crate) fn on_sum(&mut self, sum: &Sum, now: Timestamp) -> Durable<()> {
        let Phase::Open(open) = &self.run.phase else { return self.durable(Vec::new(), ()) };
        let Progress::Closing(outcome) = open.progress else { return self.durable(Vec::new(), ()) };
        // More may have come meanwhile where rounds do not wait for each other.
        let stored = match self.run.staleness() {
            None => sum.included.iter().map(|(c, h)| (c, h)).eq(&open.stored),
            Some(_) => sum.included.iter().all(|(client, update)| open.stored.get(client) == Some(update)),
        };
        if sum.round != open.round || !stored {
            return self.durable(Vec::new(), ());
        }
        // At most as many sites as are enrolled.
        let sites = u32::try_from(sum.included.len()).unwrap_or(u32::MAX);
        let (delta, aggregation) = match &sum.total {
            SumTotal::Values(values) => (Cow::Borrowed(values), None),
            SumTotal::Masked(words) => match self.unmasked(words) {
                Ok((values, entry)) => (Cow::Owned(values), Some(entry)),
                // No one can say whose part is wrong: the round ends, and with it the run.
                Err(error) => {
                    let records = self.without_sum(open, &error, now);
                    return self.durable(records, ());
                }
            },
        };
        let step = self.rule.apply(&self.run.lambda, &VisitSum { visit: open.visit, sites, sum: &delta });
        let ending =
            Ending { included: sum.included.clone(), outcome, lambda: step.state.into(), correction: step.correction, aggregation };
        let record = self.entry(open, ending, now);
        self.durable(vec![record], ())
    }

    /// Other enrolled clients from now on (a removed one is not heard and not asked any more).
    pub fn set_enrolled(&mut self, clients: BTreeMap<ClientId, Enrolled>) {
        self.settings.clients = clients;
        // Keys may have changed.
        self.verified.clear();
    }

    /// What there is for a client that has `seen` transcript entries. λ and entries are shared, not copied.
    ///
    /// A site gets a round exactly as long as it is asked and has not answered; an evaluator as long as it has not reported on its λ.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn next_for(&self, client: &ClientId, seen: u32) -> Result<Next, Rejected> {
        self.enrolled(client)?;
        let member = self.run.members.get(client).ok_or(Rejected::HelloFirst)?;
        let here = self.run.rounds();
        if seen > here {
            return Err(Rejected::AheadOfServer { seen, here });
        }
        let lacking = &self.run.entries[seen as usize..];
        let first = self.first_entries(lacking);
        if first < lacking.len() {
            return Ok(Next::Entries(Box::new(Catchup { entries: lacking[..first].to_vec(), charter: self.charter_for(seen) })));
        }
        let entries = || lacking.to_vec();
        let lambda = Arc::clone(&self.run.lambda);
        Ok(match &self.run.phase {
            Phase::Ended(ended) => Next::Finished(Box::new(RunEnd {
                outcome: ended.outcome,
                lambda,
                entries: entries(),
                header: ended.header.clone(),
                charter: self.charter_for(seen),
            })),
            Phase::Open(open) => {
                let asked = match member.role {
                    Role::Site => self.collects(open) && !member.withdrawn && open.waiting().any(|waiting| waiting == client),
                    Role::Evaluator => !self.run.metrics.get(&here).is_some_and(|of| of.contains_key(client)),
                };
                if asked {
                    Next::Round(Box::new(RoundStart {
                        header: open.header.clone(),
                        lambda,
                        entries: entries(),
                        charter: self.charter_for(seen),
                    }))
                } else {
                    Next::Wait
                }
            }
            Phase::New(_) | Phase::Gathering(_) | Phase::Between(_) => self.unsigned_charter(client).map_or(Next::Wait, Next::Charter),
        })
    }

    /// When [`poll`](Self::poll) may have something to do although nothing came in.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        let due = match &self.run.phase {
            // Nothing opens and nothing ends until someone resumes.
            Phase::Gathering(_) | Phase::Open(_) | Phase::Between(_) if self.run.suspended.is_some() => return self.suspended_until(),
            Phase::Gathering(_) if self.run.control == Control::Paused => None,
            Phase::Gathering(_) => self.gathering_deadline(),
            Phase::Open(open) if self.collects(open) => self.round_deadline(),
            Phase::Open(_) | Phase::New(_) | Phase::Between(_) | Phase::Ended(_) => None,
        };
        [due, self.summer_deadline()].into_iter().flatten().min()
    }

    /// Why the run ended early, where that is known.
    #[must_use]
    pub fn end_reason(&self) -> Option<String> {
        let Phase::Ended(ended) = &self.run.phase else { return None };
        end_reason(&ended.header.peek().ok()?.reserved)
    }

    /// The task.
    #[must_use]
    pub fn task(&self) -> &Arc<ResolvedTask> {
        &self.run.task
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run.id
    }

    /// λ after all closed rounds.
    #[must_use]
    pub fn lambda(&self) -> &Arc<[f64]> {
        &self.run.lambda
    }

    /// Transcript, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[Arc<TranscriptEntry>] {
        &self.run.entries
    }

    /// Clients that ever joined.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<ClientId, Member> {
        &self.run.members
    }

    /// Metrics by number of rounds in λ, then evaluator.
    #[must_use]
    pub fn metrics(&self) -> &BTreeMap<u32, BTreeMap<ClientId, HeldOutMetrics>> {
        &self.run.metrics
    }

    /// State of the run.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match (&self.run.phase, &self.run.suspended) {
            (Phase::Ended(ended), _) => Stage::Ended(ended.outcome),
            (_, Some(lack)) => Stage::Suspended { lack: lack.clone(), until: self.suspended_until() },
            (Phase::New(_) | Phase::Gathering(_), None) => Stage::Gathering,
            (Phase::Open(open), None) => Stage::Open {
                round: open.round,
                turn: open.turn.clone(),
                waiting: open.waiting().cloned().collect(),
                deadline: self.round_deadline(),
            },
            (Phase::Between(_), None) if self.run.control == Control::Paused => Stage::Paused,
            (Phase::Between(_), None) => Stage::Between,
        }
    }

    // What follows decides; only `durable` (and `close`, `stop`) move the state.

    /// Applies records and hands them out together with the answer that depends on them.
    fn durable<T>(&mut self, records: Vec<Record>, then: T) -> Durable<T> {
        for record in &records {
            self.run.apply(record);
            self.waits.follow(record);
        }
        Durable { records, then }
    }

    fn enrolled(&self, client: &ClientId) -> Result<&Enrolled, Rejected> {
        self.settings.clients.get(client).ok_or_else(|| Rejected::NotEnrolled(client.clone()))
    }

    fn member(&self, client: &ClientId, role: Role) -> Result<&Enrolled, Rejected> {
        let enrolled = self.enrolled(client)?;
        if enrolled.role != role {
            return Err(Rejected::WrongRole);
        }
        if !self.run.members.contains_key(client) {
            return Err(Rejected::HelloFirst);
        }
        Ok(enrolled)
    }

    fn own_release(&self, client: &ClientId, release: &ReleaseId) -> Result<(), Rejected> {
        if release.client != *client {
            return Err(Rejected::Foreign("client of the release"));
        }
        if release.run != self.run.id {
            return Err(Rejected::OtherTask("run"));
        }
        Ok(())
    }

    fn check_update(&self, client: &ClientId, update: &Signed<Update>) -> Result<(Update, Verdict), Rejected> {
        let key = &self.member(client, Role::Site)?.key;
        let body = if self.verified.get(client) == Some(update) { update.peek()? } else { update.open(key)? };
        self.own_release(client, &body.release)?;
        let round = body.release.round;
        if let Some(given) = self.run.receipts.get(client).and_then(|of| of.get(&round)) {
            if given.update != update.hash() {
                return Err(Rejected::Conflict);
            }
            return Ok((body, Verdict::Known(given.outcome)));
        }
        let (header, visit, verdict) = match &self.run.phase {
            Phase::Open(_) | Phase::Between(_) if self.run.staleness().is_some() => self.asynchronous_verdict(client, round)?,
            Phase::Open(open) if open.round == round => {
                if !open.asked.contains(client) || open.refused.contains(client) {
                    return Err(Rejected::NotAsked);
                }
                let late = !self.collects(open);
                (open.header_hash, open.visit, if late { Verdict::Late } else { Verdict::Fits })
            }
            _ => {
                let entry = self.run.entries.get(round as usize).ok_or(Rejected::UnknownRound)?;
                // Our own header: it can be read.
                let opened = entry.header.peek().map_err(Rejected::Invalid)?;
                if opened.turn.is_some_and(|turn| turn != *client) {
                    return Err(Rejected::NotAsked);
                }
                (entry.header.hash(), opened.visit, Verdict::Late)
            }
        };
        if body.header != header {
            return Err(Rejected::UnknownRound);
        }
        let form = self.form(visit);
        if body.kind != form.kind {
            return Err(Rejected::WrongSize("kind"));
        }
        if body.coordinates != form.coordinates {
            return Err(Rejected::WrongSize("coordinates"));
        }
        Ok((body, verdict))
    }

    /// What a site sends at a visit.
    fn form(&self, visit: u32) -> MessageForm {
        // Reading the task computed the form of every visit.
        self.run.task.message(visit).expect("a task that was read says what is sent")
    }

    /// Active sites that are still enrolled, ascending.
    fn available(&self) -> Vec<ClientId> {
        self.run.active().filter(|client| self.settings.clients.contains_key(*client)).cloned().collect()
    }

    fn gathered(&self, now: Timestamp) -> Vec<Record> {
        if self.run.control == Control::Paused {
            return Vec::new();
        }
        if self.run.aggregation.as_ref().is_some_and(Host::is_agreed) {
            return self.opened(now);
        }
        let available = self.available().len();
        let expected = self.settings.clients.values().filter(|enrolled| enrolled.role == Role::Site).count();
        let quorum = available >= self.run.task.min_sites as usize && available > 0;
        let due = self.waits.phase.is_some_and(|since| now >= since.plus(self.settings.start_deadline));
        if self.too_many_refused(expected) {
            return vec![self.end(RunOutcome::Refused, now)];
        }
        match (quorum, available == expected || due) {
            (true, true) => match &self.run.aggregation {
                Some(host) => self.agree(host, now),
                None => self.opened(now),
            },
            (false, _) if due => vec![self.end(self.lost(RunOutcome::QuorumLost), now)],
            _ => Vec::new(),
        }
    }

    fn upcoming(&self) -> Upcoming {
        let available = self.available();
        let min_sites = self.run.task.min_sites as usize;
        let visits = self.run.task.visits();
        if self.run.entries.last().is_some_and(|entry| entry.outcome == RoundOutcome::Aborted) {
            let lost = if self.run.aggregation.is_some() { RunOutcome::AggregationLost } else { RunOutcome::QuorumLost };
            return Upcoming::End(self.lost(lost));
        }
        if self.run.staleness().is_some() {
            return self.upcoming_asynchronous(&available);
        }
        if !self.run.sequential() {
            let visit = self.run.rounds();
            return match visit {
                _ if visit >= visits => Upcoming::End(RunOutcome::Complete),
                _ if self.run.has_converged() => Upcoming::End(RunOutcome::Converged),
                _ if available.is_empty() || available.len() < min_sites => Upcoming::Lost,
                _ => Upcoming::Round { visit, turn: None, asked: available },
            };
        }
        // A site that is silent gets no turn until it speaks.
        let available: Vec<ClientId> = available.into_iter().filter(|client| !self.run.is_silent(client)).collect();
        let turn = |visit, client: &ClientId| Upcoming::Round { visit, turn: Some(client.clone()), asked: vec![client.clone()] };
        let visit = match &self.run.sweep {
            None => 0,
            Some(sweep) => {
                let there: Vec<_> = sweep.order[sweep.position..].iter().filter(|client| available.contains(client)).collect();
                // A sweep in which fewer than the quorum took part is no sweep of this task.
                if sweep.included + there.len() < min_sites {
                    return Upcoming::Lost;
                }
                if let Some(client) = there.first() {
                    return turn(sweep.visit, client);
                }
                sweep.visit + 1
            }
        };
        match available.first() {
            _ if visit >= visits => Upcoming::End(RunOutcome::Complete),
            _ if self.run.has_converged() => Upcoming::End(RunOutcome::Converged),
            Some(client) if available.len() >= min_sites => turn(visit, client),
            _ => Upcoming::Lost,
        }
    }

    /// Whether the open round is over, and how, or what it lacks.
    fn closing(&self, open: &Open, now: Timestamp) -> Closing {
        if let Progress::Closing(outcome) = open.progress {
            return Closing::Sum(outcome);
        }
        let gone = |client: &ClientId| {
            !self.settings.clients.contains_key(client) || self.run.members.get(client).is_none_or(|member| member.withdrawn)
        };
        if let Some(staleness) = self.run.staleness() {
            return match self.closed_asynchronous(open, staleness, gone, now) {
                None => Closing::No,
                Some(RoundOutcome::Skipped) if self.on_time_without(open) >= self.contributors_needed() => {
                    Closing::Records(vec![self.entry(open, self.unchanged(RoundOutcome::Skipped), now)])
                }
                Some(RoundOutcome::Skipped) => Closing::Lost(Lack::Sites(open.waiting().cloned().collect())),
                Some(outcome) => Closing::Sum(outcome),
            };
        }
        let answered = open.waiting().all(gone);
        let due = self.is_due(now);
        let outcome = match (answered, due) {
            (true, _) => RoundOutcome::Complete,
            (false, true) => RoundOutcome::Deadline,
            (false, false) => RoundOutcome::WithoutSilent,
        };
        let needed = self.contributors_needed();
        // Fewer than a round needs wait for the silent, too.
        let but_silent = || open.stored.len() >= needed && open.waiting().all(|client| gone(client) || self.run.is_silent(client));
        let over = answered || due || but_silent();
        if let Some(host) = &self.run.aggregation {
            return self.closed_aggregation(host, open, over.then_some(outcome), now);
        }
        if !over {
            return Closing::No;
        }
        if open.stored.len() >= needed {
            Closing::Sum(outcome)
        } else if self.run.sequential() && self.sweep_can_do_without() {
            Closing::Records(vec![self.entry(open, self.unchanged(RoundOutcome::Skipped), now)])
        } else {
            Closing::Lost(Lack::Sites(open.waiting().cloned().collect()))
        }
    }

    /// From here on the open round takes no more updates.
    fn close(&mut self, outcome: RoundOutcome) -> Durable<Action> {
        let Phase::Open(open) = &self.run.phase else { return Durable { records: Vec::new(), then: Action::Rest } };
        let MessageForm { kind, coordinates } = self.form(open.visit);
        let Phase::Open(open) = &mut self.run.phase else { return Durable { records: Vec::new(), then: Action::Rest } };
        open.progress = Progress::Closing(outcome);
        let included = open.stored.iter().map(|(client, update)| (client.clone(), *update)).collect();
        Durable { records: Vec::new(), then: Action::Close(Close { round: open.round, kind, coordinates, included }) }
    }

    /// The record of a round's end.
    fn entry(&self, open: &Open, ending: Ending, at: Timestamp) -> Record {
        let Ending { included, outcome, lambda, correction, aggregation } = ending;
        let hash = vector_hash(&lambda);
        let entry =
            TranscriptEntry { header: open.header.clone(), included, outcome, lambda: hash, previous: self.run.previous, aggregation };
        Record::RoundClosed { entry, lambda, correction, at }
    }

    /// A round that leaves λ where it is.
    fn unchanged(&self, outcome: RoundOutcome) -> Ending {
        Ending { included: Vec::new(), outcome, lambda: Arc::clone(&self.run.lambda), correction: None, aggregation: None }
    }

    fn header(&self, turn: Option<ClientId>, visit: u32, deadline_seconds: u64, reserved: Vec<Vec<u8>>) -> Signed<RoundHeader> {
        let header = RoundHeader {
            run: self.run.id,
            round: self.run.rounds(),
            turn,
            visit,
            lambda: self.run.lambda_hash,
            previous: self.run.previous,
            deadline_seconds,
            reserved,
        };
        Signed::seal(&header, &self.settings.key)
    }

    fn end(&self, outcome: RunOutcome, at: Timestamp) -> Record {
        self.end_because(outcome, self.reason(outcome).as_deref(), at)
    }

    fn end_because(&self, outcome: RunOutcome, reason: Option<&str>, at: Timestamp) -> Record {
        let header = self.header(None, self.run.task.visits(), 0, end_mark(outcome, reason));
        Record::RunEnded { outcome, header, at }
    }
}

/// How a round ends, and with what.
struct Ending {
    included: Vec<(ClientId, Hash)>,
    outcome: RoundOutcome,
    lambda: Arc<[f64]>,
    correction: Option<Vec<f64>>,
    aggregation: Option<SignedEntry>,
}

fn answered(update: Update, outcome: ReceiptOutcome) -> Answered {
    Answered { client: update.release.client, round: update.release.round, outcome }
}

/// What to do with an update.
enum Verdict {
    Fits,
    Known(ReceiptOutcome),
    Late,
}

enum Upcoming {
    Round {
        visit: u32,
        turn: Option<ClientId>,
        asked: Vec<ClientId>,
    },
    /// Too few sites are there for another round.
    Lost,
    End(RunOutcome),
}

enum Closing {
    No,
    Records(Vec<Record>),
    Sum(RoundOutcome),
    /// It is over and has not what it needs.
    Lost(Lack),
}

#[cfg(test)]
impl Coordinator {
    /// The whole state, to see whether anything changed.
    pub(crate) fn state_for_tests(&self) -> String {
        format!("{:?}", self.run)
    }

    /// Verifies every update again.
    pub(crate) fn forget_verified_for_tests(&mut self) {
        self.verified.clear();
    }
}

#[cfg(test)]
mod tests;
