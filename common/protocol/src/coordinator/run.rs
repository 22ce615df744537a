//! A run as the fold of its records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_posterior::task::{ResolvedTask, ScheduleSpec};
use dp_pvi_privacy::ledger::LedgerHead;
use ed25519_dalek::VerifyingKey;

use super::early_end::Watch;
use super::{Control, Joins, Lack, Member, Record, RestoreError};
use crate::aggregation::host::{AggregationRecord, Host};
use crate::codec::decode;
use crate::message::{HeldOutMetrics, ReceiptOutcome, Role, RoundHeader, RoundOutcome, RunOutcome, Signed, TranscriptEntry, vector_hash};
use crate::witness::SignedHead;

/// Everything that a run's records say.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) task: Arc<ResolvedTask>,
    pub(super) members: BTreeMap<ClientId, Member>,
    pub(super) entries: Vec<Arc<TranscriptEntry>>,
    /// Hash of the last entry.
    pub(super) previous: Hash,
    pub(super) lambda: Arc<[f64]>,
    pub(super) lambda_hash: Hash,
    /// States with which the last rounds began, as far as their headers may still be answered (asynchronous).
    earlier: BTreeMap<u32, Arc<[f64]>>,
    /// What the receipts of answered releases say, by client and round.
    pub(super) receipts: BTreeMap<ClientId, BTreeMap<u32, Given>>,
    /// Metrics by rounds in λ, then client.
    pub(super) metrics: BTreeMap<u32, BTreeMap<ClientId, HeldOutMetrics>>,
    pub(super) control: Control,
    /// The sweep in progress (sequential).
    pub(super) sweep: Option<Sweep>,
    /// Stored updates that no round has taken yet (asynchronous; while a run is paused).
    pub(super) held: BTreeMap<ClientId, Hash>,
    /// Visits that a site let pass: refusals, and deadlines that it missed (asynchronous).
    pub(super) passed: BTreeMap<ClientId, u32>,
    /// Sites that missed a deadline and have not answered since; rounds do not wait for them (asynchronous).
    pub(super) lagging: BTreeSet<ClientId>,
    /// The aggregation, where the task has one.
    pub(super) aggregation: Option<Host>,
    /// What the rule of an early end looks at, where the task has one.
    pub(super) watch: Option<Watch>,
    /// What the run lacks, where it is suspended; of a run that ended while it was, too.
    pub(super) suspended: Option<Lack>,
    pub(super) phase: Phase,
}

/// What a receipt says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    /// Hash of the update.
    pub(super) update: Hash,
    pub(super) outcome: ReceiptOutcome,
    pub(super) witnessed: Option<LedgerHead>,
}

/// One pass over the sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sweep {
    /// Its number.
    pub(super) visit: u32,
    /// The cycle, ascending.
    pub(super) order: Vec<ClientId>,
    /// Turns that are over.
    pub(super) position: usize,
    /// Updates that entered the posterior.
    pub(super) included: usize,
}

/// Where a run is.
#[derive(Debug)]
pub(super) enum Phase {
    New(New),
    Gathering(Gathering),
    Open(Open),
    Between(Between),
    Ended(Ended),
}

/// Not opened yet.
#[derive(Debug)]
pub(super) struct New;

/// Waiting for sites.
#[derive(Debug)]
pub(super) struct Gathering;

/// A round in progress.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) round: u32,
    pub(super) visit: u32,
    pub(super) turn: Option<ClientId>,
    pub(super) header: Signed<RoundHeader>,
    pub(super) header_hash: Hash,
    pub(super) asked: Vec<ClientId>,
    /// Stored updates.
    pub(super) stored: BTreeMap<ClientId, Hash>,
    pub(super) refused: BTreeSet<ClientId>,
    /// Whether more updates are taken. Not a record: a restarted server decides again.
    pub(super) progress: Progress,
}

/// Whether more updates are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Collecting,
    /// The sum is being computed; the outcome is fixed.
    Closing(RoundOutcome),
}

/// No round is open.
#[derive(Debug)]
pub(super) struct Between;

/// Over.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: RunOutcome,
    pub(super) header: Signed<RoundHeader>,
}

impl New {
    fn open(self) -> Phase {
        Phase::Gathering(Gathering)
    }
}

impl Open {
    fn new(header: &Signed<RoundHeader>, body: RoundHeader, asked: Vec<ClientId>) -> Self {
        Self {
            round: body.round,
            visit: body.visit,
            turn: body.turn,
            header_hash: header.hash(),
            header: header.clone(),
            asked,
            stored: BTreeMap::new(),
            refused: BTreeSet::new(),
            progress: Progress::Collecting,
        }
    }

    /// Sites that were asked and have neither sent nor refused.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &ClientId> {
        self.asked.iter().filter(|c| !self.stored.contains_key(*c) && !self.refused.contains(*c))
    }
}

impl Run {
    pub(super) fn new(task: Arc<ResolvedTask>, number: u32, initial: Vec<f64>, aggregation: Option<Host>) -> Self {
        Self {
            id: RunId { task: task.hash(), number },
            watch: Watch::of(&task),
            task,
            members: BTreeMap::new(),
            entries: Vec::new(),
            previous: Hash::default(),
            lambda_hash: vector_hash(&initial),
            lambda: initial.into(),
            earlier: BTreeMap::new(),
            receipts: BTreeMap::new(),
            metrics: BTreeMap::new(),
            control: Control::Running,
            sweep: None,
            held: BTreeMap::new(),
            passed: BTreeMap::new(),
            lagging: BTreeSet::new(),
            aggregation,
            suspended: None,
            phase: Phase::New(New),
        }
    }

    /// Number of closed rounds, which is the number of the next one.
    pub(super) fn rounds(&self) -> u32 {
        // A run has at most visits × sites rounds, both u32; stores are full long before 2^32 entries.
        u32::try_from(self.entries.len()).expect("fewer than 2^32 rounds")
    }

    /// Sites that take part, ascending.
    pub(super) fn active(&self) -> impl Iterator<Item = &ClientId> {
        self.members.iter().filter(|(_, member)| member.role == Role::Site && !member.withdrawn).map(|(client, _)| client)
    }

    /// Whether the run ends by its task's rule. All sites have had their turn.
    pub(super) fn has_converged(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_met(&self.task))
    }

    pub(super) fn sequential(&self) -> bool {
        matches!(self.task.schedule, ScheduleSpec::Sequential { .. })
    }

    /// Rounds by which an update may be late, in an asynchronous run.
    pub(super) fn staleness(&self) -> Option<u32> {
        self.task.schedule.staleness()
    }

    /// The state with which a round began whose header may still be answered.
    pub(super) fn state_of(&self, round: u32) -> Option<&[f64]> {
        match &self.phase {
            Phase::Open(open) if open.round == round => Some(&self.lambda),
            _ => self.earlier.get(&round).map(AsRef::as_ref),
        }
    }

    /// Last round whose header a site answered with an update.
    pub(super) fn last_answer(&self, client: &ClientId) -> Option<u32> {
        self.receipts.get(client)?.last_key_value().map(|(round, _)| *round)
    }

    /// Visits that a site has had: updates that it sent, and visits that it let pass (asynchronous).
    pub(super) fn visits_of(&self, client: &ClientId) -> u32 {
        let sent = self.receipts.get(client).map_or(0, BTreeMap::len);
        let passed = self.passed.get(client).copied().unwrap_or(0);
        u32::try_from(sent).unwrap_or(u32::MAX).saturating_add(passed)
    }

    /// Whether a round may close without this site: its next update will be no older than the schedule allows.
    pub(super) fn keeps_up(&self, client: &ClientId, round: u32, staleness: u32) -> bool {
        // Header `round` − `staleness` was answered, or there is no such header yet.
        let next = self.last_answer(client).map_or(0, |last| last.saturating_add(1));
        round < next.saturating_add(staleness) || self.lagging.contains(client)
    }

    /// The round whose header a stored update answers.
    fn round_of(&self, client: &ClientId, update: &Hash) -> Option<u32> {
        self.receipts.get(client)?.iter().rev().find(|(_, given)| given.update == *update).map(|(round, _)| *round)
    }

    /// An asynchronous round opens with what was held, as far as it is new enough.
    fn take_held(&mut self, open: &mut Open) {
        let Some(staleness) = self.staleness() else { return };
        for (client, update) in std::mem::take(&mut self.held) {
            if self.round_of(&client, &update).is_some_and(|round| open.round <= round.saturating_add(staleness)) {
                open.stored.insert(client, update);
            }
        }
    }

    /// What an asynchronous round leaves behind: updates that it did not take, and who missed its deadline.
    fn leave(&mut self, open: &Open, entry: &TranscriptEntry) {
        let Some(staleness) = self.staleness() else { return };
        let taken = |client: &ClientId| entry.included.iter().any(|(included, _)| included == client);
        self.held.extend(open.stored.iter().filter(|(client, _)| !taken(client)).map(|(client, update)| (client.clone(), *update)));
        let late = |client: &&ClientId| match entry.outcome {
            RoundOutcome::Deadline => !self.keeps_up(client, open.round, staleness),
            RoundOutcome::Skipped => true,
            RoundOutcome::Complete | RoundOutcome::Aborted | RoundOutcome::WithoutSilent => false,
        };
        let late: Vec<ClientId> = open.waiting().filter(late).cloned().collect();
        for client in late {
            *self.passed.entry(client.clone()).or_default() += 1;
            self.lagging.insert(client);
        }
    }

    /// Whether a record of our own store follows from this state.
    pub(super) fn check(&self, record: &Record, key: &VerifyingKey) -> Result<(), RestoreError> {
        let wrong = |what| Err(RestoreError::Inconsistent(what));
        match (&self.phase, record) {
            (Phase::New(_), Record::RunOpened { run, task, .. }) => {
                if *run != self.id || *task != self.task.to_bytes() {
                    return wrong("it is of another run");
                }
            }
            (Phase::New(_), _) | (_, Record::RunOpened { .. }) => return wrong("it does not start with the run"),
            (Phase::Gathering(_) | Phase::Between(_), Record::RoundOpened { header, .. }) => match header.open(key) {
                Ok(body) if self.follows(&body) => {}
                Ok(_) => return wrong("a round does not follow from the one before"),
                Err(_) => return wrong("a header is not signed by this server"),
            },
            (Phase::Open(open), Record::RoundClosed { entry, lambda, .. }) => {
                if entry.previous != self.previous || entry.header.hash() != open.header_hash {
                    return wrong("an entry does not follow from the one before");
                }
                if entry.lambda != vector_hash(lambda) || lambda.len() != self.lambda.len() {
                    return wrong("a posterior is not the one in the transcript");
                }
            }
            (Phase::Between(_), Record::UpdateStored { update, .. }) if self.staleness().is_some() => {
                if update.peek().is_err() {
                    return wrong("an update cannot be read");
                }
            }
            (Phase::Open(open), Record::UpdateStored { client, update, .. }) => {
                if !open.asked.contains(client) || update.peek().is_err() {
                    return wrong("an update does not belong to its round");
                }
            }
            (_, Record::UpdateExcluded { update, .. }) if update.peek().is_err() => return wrong("an update cannot be read"),
            (Phase::Open(_), Record::Refused { refusal, .. }) if refusal.peek().is_err() => return wrong("a refusal cannot be read"),
            (_, Record::Metrics { report, .. }) if report.peek().is_err() => return wrong("metrics cannot be read"),
            (Phase::Gathering(_) | Phase::Between(_), Record::RunEnded { outcome, header, .. }) => match header.open(key) {
                Ok(_) if *outcome == RunOutcome::Converged && !self.watch.as_ref().is_some_and(|watch| watch.was_met(&self.task)) => {
                    return wrong("the run ended by a rule that was not met");
                }
                Ok(body) if self.follows(&body) => {}
                _ => return wrong("the end does not follow from the last round"),
            },
            (Phase::Ended(_), Record::Suspended { .. } | Record::Resumed { .. })
            | (_, Record::RoundOpened { .. } | Record::RoundClosed { .. } | Record::UpdateStored { .. } | Record::RunEnded { .. }) => {
                return wrong("records are out of order");
            }
            (
                _,
                Record::UpdateExcluded { .. }
                | Record::Refused { .. }
                | Record::Metrics { .. }
                | Record::Joined { .. }
                | Record::Aggregation { .. }
                | Record::Control { .. }
                | Record::Suspended { .. }
                | Record::Resumed { .. },
            ) => {}
        }
        Ok(())
    }

    fn follows(&self, body: &RoundHeader) -> bool {
        body.run == self.id && body.round == self.rounds() && body.previous == self.previous && body.lambda == self.lambda_hash
    }

    /// Applies a record that was made from this state, or passed [`Run::check`].
    pub(super) fn apply(&mut self, record: &Record) {
        match record {
            Record::Joined { client, role, nominal_units, head, hello, at } => {
                let member = self.members.entry(client.clone()).and_modify(|member| member.joins.take(*at)).or_insert_with(|| Member {
                    role: *role,
                    nominal_units: *nominal_units,
                    head: None,
                    included: 0,
                    refused: None,
                    withdrawn: false,
                    joins: Joins::new(*at),
                    silent: 0,
                    returned: 0,
                    signed: None,
                });
                member.head = higher(member.head, *head);
                member.keep_signed(|| SignedHead::Hello(hello.clone()));
                member.withdrawn = false;
                member.says_that_it_is_there();
                if self.suspended.is_some() {
                    self.lagging.remove(client);
                }
            }
            Record::UpdateStored { client, update, .. } => {
                self.answered(client, update, ReceiptOutcome::Stored);
                match &mut self.phase {
                    Phase::Open(open) => drop(open.stored.insert(client.clone(), update.hash())),
                    // Only an asynchronous run takes updates between rounds.
                    _ => drop(self.held.insert(client.clone(), update.hash())),
                }
                if let (Some(host), Some(upload)) = (&mut self.aggregation, update.peek().ok().and_then(|body| body.upload)) {
                    host.stored(client, upload.signed);
                }
            }
            Record::UpdateExcluded { client, update, .. } => self.answered(client, update, ReceiptOutcome::Excluded),
            Record::Refused { client, refusal, .. } => self.refused(client, refusal),
            Record::Metrics { client, report, .. } => {
                if let Ok(report) = report.peek() {
                    self.metrics.entry(report.round).or_default().insert(client.clone(), report.metrics);
                }
            }
            Record::Control { control, .. } => self.control = *control,
            Record::Suspended { lack, .. } => self.suspended = Some(lack.clone()),
            Record::Resumed { .. } => self.suspended = None,
            Record::Aggregation { record, .. } => {
                if let Some(host) = &mut self.aggregation {
                    host.apply(record);
                }
                if let (AggregationRecord::LeftOut(client), Phase::Open(open)) = (record, &mut self.phase) {
                    open.stored.remove(client);
                }
            }
            Record::RunOpened { .. } | Record::RoundOpened { .. } | Record::RoundClosed { .. } | Record::RunEnded { .. } => {
                let phase = std::mem::replace(&mut self.phase, Phase::Between(Between));
                self.phase = self.transition(phase, record);
            }
        }
    }

    fn transition(&mut self, phase: Phase, record: &Record) -> Phase {
        match (phase, record) {
            (Phase::New(new), Record::RunOpened { .. }) => new.open(),
            (Phase::Gathering(_) | Phase::Between(_), Record::RoundOpened { header, asked, .. }) => {
                // Made by this coordinator, or checked: it can be read.
                let body = header.peek().expect("own header");
                if let Some(turn) = &body.turn {
                    self.turn(body.visit, turn);
                }
                if let (Some(host), Some(part)) = (&mut self.aggregation, body.reserved.first().and_then(|part| decode(part))) {
                    host.opened(part);
                }
                let mut open = Open::new(header, body, asked.clone());
                if let Some(staleness) = self.staleness() {
                    self.earlier.insert(open.round, Arc::clone(&self.lambda));
                    self.earlier.retain(|round, _| open.round <= round.saturating_add(staleness));
                }
                self.take_held(&mut open);
                Phase::Open(open)
            }
            (Phase::Open(open), Record::RoundClosed { entry, lambda, correction, .. }) => {
                self.leave(&open, entry);
                self.attend(&open, entry.outcome);
                for (client, _) in &entry.included {
                    if let Some(member) = self.members.get_mut(client) {
                        member.included += 1;
                    }
                }
                if let Some(sweep) = &mut self.sweep {
                    sweep.position += 1;
                    sweep.included += entry.included.len();
                }
                if entry.outcome != RoundOutcome::Aborted {
                    self.suspended = None;
                }
                if let (Some(host), Some(entry)) = (&mut self.aggregation, &entry.aggregation) {
                    host.closed(entry);
                }
                if let Some(watch) = &mut self.watch {
                    watch.closed(entry, &self.members, lambda, correction.as_ref());
                }
                self.previous = entry.hash();
                self.lambda_hash = entry.lambda;
                self.lambda = Arc::clone(lambda);
                self.entries.push(Arc::new(entry.clone()));
                Phase::Between(Between)
            }
            (_, Record::RunEnded { outcome, header, .. }) => Phase::Ended(Ended { outcome: *outcome, header: header.clone() }),
            // `check` and the callers of `apply` leave no other pair.
            (phase, _) => phase,
        }
    }

    /// A round of a sweep opened: its cycle is fixed by the members of the moment in which its first round opens.
    fn turn(&mut self, visit: u32, turn: &ClientId) {
        if self.sweep.as_ref().is_none_or(|sweep| sweep.visit != visit) {
            self.sweep = Some(Sweep { visit, order: self.active().cloned().collect(), position: 0, included: 0 });
        }
        if let Some(sweep) = &mut self.sweep {
            sweep.position = sweep.order.iter().position(|client| client == turn).unwrap_or(sweep.position);
        }
    }

    fn answered(&mut self, client: &ClientId, update: &Signed<crate::message::Update>, outcome: ReceiptOutcome) {
        // Made from a verified update, or checked: it can be read.
        let body = update.peek().expect("verified update");
        let mut witnessed = Some(body.ledger_head);
        if let Some(member) = self.members.get_mut(client) {
            witnessed = higher(member.head, witnessed);
            member.head = witnessed;
            member.keep_signed(|| SignedHead::Update(update.clone()));
            match outcome {
                ReceiptOutcome::Stored => (member.silent, member.returned) = (0, 0),
                ReceiptOutcome::Excluded => member.says_that_it_is_there(),
            }
        }
        self.lagging.remove(client);
        let given = Given { update: update.hash(), outcome, witnessed };
        self.receipts.entry(client.clone()).or_default().insert(body.release.round, given);
    }

    fn refused(&mut self, client: &ClientId, refusal: &Signed<crate::message::Refusal>) {
        let Ok(body) = refusal.peek() else { return };
        if let Some(member) = self.members.get_mut(client) {
            member.refused = Some((body.release.round, body.reason));
            member.withdrawn = body.header == Hash::default();
            member.says_that_it_is_there();
        }
        // Who leaves the run and comes back is asked again by the round that is open then.
        if let Phase::Open(open) = &mut self.phase
            && body.header != Hash::default()
            && !open.stored.contains_key(client)
        {
            open.refused.insert(client.clone());
            *self.passed.entry(client.clone()).or_default() += 1;
        }
    }
}

/// The later of two heads; of two heads at the same row the first that was seen, so that a forked ledger is not witnessed.
fn higher(known: Option<LedgerHead>, new: Option<LedgerHead>) -> Option<LedgerHead> {
    match (known, new) {
        (Some(known), Some(new)) => Some(if new.seq > known.seq { new } else { known }),
        (known, new) => known.or(new),
    }
}
