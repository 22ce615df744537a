//! The site's state machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::origin::Origin;
use crate::shape;
use crate::shape::{At, Moments, Shape};
use crate::statement::{Booked, StatementError, statement};
use dp_pvi_accounting::{Prices, PrivacyLoss};
use dp_pvi_names::{Hash, LatticeVector, Payload, PayloadKind, ReleaseId, RunId};
use dp_pvi_posterior::task::{MessageForm, ResolvedTask, TaskError};
use dp_pvi_privacy::ledger::{Attachment, ChargeStore, Claim, LedgerError, LedgerHead, LedgerIdentity, ReleaseState, RowBody, RowSigner};
use dp_pvi_privacy::mechanism::Message;
use dp_pvi_privacy::{Argument, Ledger};
use dp_pvi_secagg::charter::SignedCharter;
use dp_pvi_secagg::client::Accepted;
use dp_pvi_secagg::upload::OpenedUpload;
use ed25519_dalek::SigningKey;
use rand_core::CryptoRng;

use super::chain::{Chain, Closed, aggregation_header};
use super::identity::{Declared, Identity, Policy};
use super::{Outgoing, SiteError, Step, TrainJob, Trained};
use crate::aggregation::member::{CharterStep, MaskedUpload, Membership, Site};
use crate::message::{
    Hello, Next, Receipt, ReceiptOutcome, Refusal, RefusalReason, RoundStart, Signed, TranscriptEntry, Update, payload_hash,
};
use crate::witness::{Greeting, SignedHead};

/// The site's state machine.
pub struct Participant<S, K> {
    identity: Identity,
    policy: Policy,
    nominal_units: u64,
    rows: Origin,
    ledger: Ledger<S, K>,
    state: State,
    /// The run of the last welcome, whatever else was wrong with it: so a refusal can name it.
    greeted: Option<(RunId, u32)>,
    /// A head that the server says this ledger had, without this site's word for it.
    unproved: Option<LedgerHead>,
}

/// How far the site is.
enum State {
    /// Not welcomed yet.
    Unjoined,
    /// In a run.
    Joined(Box<Joined>),
}

/// A run that the site was welcomed to.
struct Joined {
    task: Arc<ResolvedTask>,
    chain: Chain,
    /// Last visit for which this site has a release.
    visit: Option<u32>,
    /// Headers under which this site reserved, by round.
    headers: BTreeMap<u32, Hash>,
    /// Rounds whose header this site answered with an update that an entry listed (asynchronous).
    counted: BTreeSet<u32>,
    /// What this process sent at the first visit.
    first: Option<Vec<f64>>,
    /// The visit that is being computed.
    training: Option<Training>,
    /// This site's part of the aggregation, where the task has one.
    membership: Option<Membership>,
}

/// A visit that is being computed.
struct Training {
    release: ReleaseId,
    header: Hash,
    visit: u32,
    form: MessageForm,
    /// What a sum of the declared units can be.
    moments: Option<Moments>,
    /// The aggregation's header, accepted.
    accepted: Option<Accepted>,
}

impl<S: ChargeStore, K: RowSigner> Participant<S, K> {
    /// A site that has not said hello. `nominal_units` is the declared public number of units.
    #[must_use]
    pub fn new(identity: Identity, policy: Policy, nominal_units: u64, ledger: Ledger<S, K>) -> Self {
        Self { identity, policy, nominal_units, rows: Origin::default(), ledger, state: State::Unjoined, greeted: None, unproved: None }
    }

    /// A site whose rows come from here, and not from files.
    #[must_use]
    pub fn with_rows(self, rows: Origin) -> Self {
        Self { rows, ..self }
    }

    /// The ledger, for reports.
    #[must_use]
    pub fn ledger(&self) -> &Ledger<S, K> {
        &self.ledger
    }

    /// The first message of a connection.
    #[must_use]
    pub fn hello(&self) -> Signed<Hello> {
        let LedgerIdentity { unit, relation, .. } = *self.ledger.identity();
        let ledger = (unit, relation);
        self.identity.hello(Some(Declared { nominal_units: self.nominal_units, ledger, head: self.ledger.head(), rows: self.rows.clone() }))
    }

    /// Checks the server's answer to `hello`: signature, version, task, witness, the ledger's unit and relation, own ε,
    /// policy.
    ///
    /// # Errors
    /// See [`SiteError`]. [`Participant::withdrawal`] tells the server.
    pub(crate) fn on_welcome(&mut self, hello: &Signed<Hello>, greeting: &Greeting) -> Result<Arc<ResolvedTask>, SiteError> {
        let run = self.identity.open_welcome(hello, &greeting.welcome)?.run;
        self.greeted = Some((run, self.seen_of(run)));
        let (welcome, task) = self.identity.check_welcome(hello, &greeting.welcome)?;
        if let Some(witnessed) = welcome.witnessed {
            self.check_witness(witnessed, greeting.signed.as_ref())?;
        }
        self.check_ledger_fits(&task)?;
        if let Some(stated) = task.privacy.epsilon {
            // What the ledger has priced under this relation is not priced again.
            let mut prices = Prices::new(task.privacy.relation);
            prices.take_over(self.ledger.prices());
            let own = task.loss_at(&mut prices, task.privacy.delta, task.visits()).map_err(unfit)?.epsilon;
            if own > stated {
                return Err(SiteError::Understated { stated: stated.get(), own: own.get() });
            }
        }
        self.policy.check(&task, welcome.run.task)?;
        self.check_paid_to_the_end(&task, &welcome.run).map_err(|error| match self.ledger.was_renounced(&welcome.run) {
            true => SiteError::GivenUp(welcome.run.number),
            false => error,
        })?;
        // Last: λ is built for a task that this site takes part in, and for no other.
        if !matches!(&self.state, State::Joined(joined) if joined.chain.run == welcome.run) {
            let joined = Joined {
                chain: Chain::new(welcome.run, self.identity.server, &task),
                membership: task.aggregation.map(|spec| Membership::new(spec, welcome.run)),
                task: Arc::clone(&task),
                visit: None,
                headers: self.headers(&welcome.run),
                counted: BTreeSet::new(),
                first: None,
                training: None,
            };
            self.state = State::Joined(Box::new(joined));
        }
        Ok(task)
    }

    /// What this site has not reserved of a run yet must be within its limits, all of it. What else the ledger refuses (a release
    /// without protection) it refuses in the round.
    fn check_paid_to_the_end(&self, task: &ResolvedTask, run: &RunId) -> Result<(), SiteError> {
        // Visits are reserved in order; a skipped one costs nothing, so this is at most too careful.
        let reserved = u32::try_from(self.headers(run).len()).unwrap_or(u32::MAX).min(task.visits());
        let unpaid = if self.ledger.is_planned(run) { task.visits() } else { reserved };
        let left = task.visit_events(unpaid..task.visits()).map_err(unfit)?;
        let fallback = task.aggregation.map(|_| task.visit_fallbacks(unpaid..task.visits())).transpose().map_err(unfit)?;
        match self.ledger.would_admit(run, &left, fallback.as_deref()) {
            Err(error @ (LedgerError::OverBudget { .. } | LedgerError::OverRunBudget { .. } | LedgerError::OverFallback { .. })) => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// What a visit is charged as means something only for the unit and the relation that the ledger was made for. The server
    /// compares them too, but what it says is not believed.
    fn check_ledger_fits(&self, task: &ResolvedTask) -> Result<(), SiteError> {
        let LedgerIdentity { unit, relation, .. } = *self.ledger.identity();
        if task.privacy.unit != unit {
            return Err(SiteError::Unit { task: task.privacy.unit, ledger: unit });
        }
        for (event, _) in task.visit_events(0..task.visits()).map_err(unfit)? {
            if !relation.may_book_event(task.privacy.relation, &event) {
                return Err(SiteError::Relation { task: task.privacy.relation, ledger: relation });
            }
        }
        Ok(())
    }

    /// The signed word that this site takes no (further) part in the run that it was welcomed to.
    #[must_use]
    pub(crate) fn withdrawal(&self, reason: RefusalReason) -> Option<Signed<Refusal>> {
        let (run, welcomed) = self.greeted?;
        let round = welcomed.max(self.seen_of(run));
        let release = ReleaseId { run, client: self.identity.client.clone(), round };
        Some(Signed::seal(&Refusal { release, header: Hash::default(), reason }, &self.identity.key))
    }

    /// A ledger head that the server claims to have seen, above or beside this ledger's, and cannot prove with this site's own signature:
    /// the server lies, or runs from a state that holds no such messages. Told once.
    pub(crate) fn take_unproved(&mut self) -> Option<LedgerHead> {
        self.unproved.take()
    }

    /// Compares the ledger with what the server saw of it. Only this site's own word can say that the ledger is an old copy: a server that
    /// names a head without it could lock this site out.
    fn check_witness(&mut self, witnessed: LedgerHead, signed: Option<&SignedHead>) -> Result<(), SiteError> {
        let Err(error) = self.ledger.check_witness(witnessed) else { return self.check_update_is_held(witnessed, signed) };
        let LedgerIdentity { unit, relation, .. } = *self.ledger.identity();
        let own = signed.and_then(|signed| signed.open(&self.identity.client, &self.identity.key.verifying_key(), (unit, relation)));
        if own == Some(witnessed) {
            return Err(error.into());
        }
        self.unproved = Some(witnessed);
        Ok(())
    }

    /// An update signs the head that the ledger had before the row that keeps the update. A copy of the ledger that was made just then ends with
    /// this head, and would release once more under the reservation that the update has used. So the ledger must hold the update, too.
    fn check_update_is_held(&mut self, witnessed: LedgerHead, signed: Option<&SignedHead>) -> Result<(), SiteError> {
        let Some(SignedHead::Update(signed)) = signed else { return Ok(()) };
        let Ok(update) = signed.open(&self.identity.key.verifying_key()) else { return Ok(()) };
        if update.release.client != self.identity.client || update.ledger_head != witnessed {
            return Ok(());
        }
        let held = self.ledger.message(&update.release)?.map(|message| update_hash(&message)).transpose()?;
        if held == Some(signed.hash()) {
            return Ok(());
        }
        let (seq, here) = (witnessed.seq.saturating_add(1), self.ledger.head().seq);
        Err(if seq > here { LedgerError::RolledBack { witnessed: seq, here } } else { LedgerError::Forked { seq } }.into())
    }

    /// Transcript entries of this run that were checked.
    fn seen_of(&self, run: RunId) -> u32 {
        match &self.state {
            State::Joined(joined) if joined.chain.run == run => joined.chain.rounds,
            _ => 0,
        }
    }

    /// Compares what the ledger booked for the run with what the task states for all of its visits, event by event. `None` before a welcome.
    ///
    /// # Errors
    /// The ledger holds a charge that the task does not plan, or more of them, or they cost more than is stated.
    pub fn check_books(&self) -> Result<Option<PrivacyLoss>, StatementError> {
        let State::Joined(joined) = &self.state else { return Ok(None) };
        let Joined { task, chain, .. } = joined.as_ref();
        if self.ledger.went_on_after_restore(&chain.run) {
            return Err(StatementError::Restored);
        }
        let booked = Booked::of_run(self.ledger.rows(), &chain.run)?;
        let stated = statement(task, &self.identity.client, u32::try_from(booked.len()).unwrap_or(u32::MAX))?;
        let mut prices = Prices::new(task.privacy.relation);
        prices.take_over(self.ledger.prices());
        stated.compare_at(&mut prices, task, &booked).map(Some)
    }

    /// The run is over: renounces the visits of its plan that this site never reserved ([`Ledger::renounce`]). Returns ε that is spent, before and after; `None`
    /// where nothing was left to renounce.
    ///
    /// # Errors
    /// The ledger's store.
    pub fn renounce(&mut self) -> Result<Option<(f64, f64)>, LedgerError> {
        let State::Joined(joined) = &self.state else { return Ok(None) };
        let run = joined.chain.run;
        self.ledger.renounce(&run)
    }

    /// Number of transcript entries that were received and checked.
    #[must_use]
    pub fn seen(&self) -> u32 {
        match &self.state {
            State::Unjoined => 0,
            State::Joined(joined) => joined.chain.rounds,
        }
    }

    /// What the server has: checks it, settles earlier releases, and says what to do.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub(crate) fn on_next(&mut self, next: Next) -> Result<Step, SiteError> {
        match next {
            Next::Wait => Ok(Step::Wait),
            Next::Charter(charter) => match self.charter(&charter)? {
                CharterStep::Sign(signature) => Ok(Step::Consent(signature)),
                CharterStep::Agreed => Ok(Step::Wait),
            },
            Next::Entries(some) => {
                self.agreed(some.charter.as_deref())?;
                self.settle(some.entries)?;
                Ok(Step::More)
            }
            Next::Round(mut start) => {
                self.agreed(start.charter.as_deref())?;
                self.settle(std::mem::take(&mut start.entries))?;
                self.round(&start)
            }
            Next::Finished(mut end) => {
                if !end.entries.is_empty() {
                    self.agreed(end.charter.as_deref())?;
                }
                self.settle(std::mem::take(&mut end.entries))?;
                self.joined()?.chain.end(&end)?;
                if self.joined()?.task.schedule.staleness().is_some() {
                    // No later round can list what none has listed.
                    self.settle_older_than(u32::MAX)?;
                }
                Ok(Step::Finished(end))
            }
        }
    }

    /// Whether this may ask for a visit that is still to be computed, by what it says of itself: [`Self::on_next`] checks it.
    pub(crate) fn would_train(&self, next: &Next) -> bool {
        let (Next::Round(start), State::Joined(joined)) = (next, &self.state) else { return false };
        let Ok(header) = start.header.peek() else { return false };
        let turn = header.turn.as_ref().is_none_or(|turn| *turn == self.identity.client);
        turn && matches!(self.ledger.state(&self.release(joined, header.round)), None | Some(ReleaseState::Reserved))
    }

    /// The visit was computed: masks it where the run is aggregated, signs and commits it. `rng` gives the seed of the mask.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub(crate) fn on_trained(&mut self, trained: Trained, rng: &mut impl CryptoRng) -> Result<Outgoing, SiteError> {
        let joined = self.joined()?;
        let Some(Training { release, header, visit, form, moments, accepted }) = joined.training.take() else {
            return Err(SiteError::Order("a visit was computed that nobody asked for"));
        };
        let fits = |kind: PayloadKind, coordinates: usize| {
            let fits = (kind, coordinates as u64) == (form.kind, form.coordinates);
            fits.then_some(()).ok_or(SiteError::Order("the update has another form than the task asks for"))
        };
        let mut first = None;
        let attachment = match (trained.message, &joined.membership, accepted) {
            (Message::Released(released), None, None) => {
                fits(released.get().kind(), released.get().len())?;
                let moments = Argument::copy_of(&moments).map_err(|_| SiteError::Order("a shape that cannot be copied"))?;
                let released = released.map(&moments, within);
                if let (0, Payload::Lattice(vector)) = (visit, released.get()) {
                    first = Some(vector.to_f64());
                }
                let (claim, key) = self.claim(&release, header);
                Attachment::new(claim, released, trained.pending, key, |claim, payload, key| message(claim, payload, None, key))
            }
            (Message::Share(share), Some(membership), Some(accepted)) => {
                let MaskedUpload { upload, vector } = membership.mask(accepted, share, rng)?;
                fits(PayloadKind::Masked { exponent: vector.get().exponent }, vector.get().values.len())?;
                let upload = Argument::copy_of(&upload).map_err(|_| SiteError::Order("an upload that cannot be copied"))?;
                let (claim, key) = self.claim(&release, header);
                Attachment::masked(claim, vector, &upload, trained.pending, key, |claim, payload, upload, key| {
                    message(claim, payload, Some(upload.clone()), key)
                })
            }
            _ => return Err(SiteError::Order("the update has another trust model than the task asks for")),
        };
        self.ledger.commit(&release, &attachment)?;
        if first.is_some() {
            self.joined()?.first = first;
        }
        Ok(Outgoing { release, attachment })
    }

    /// What the message of a release says beside its payload, and the key that signs it.
    fn claim(&self, release: &ReleaseId, header: Hash) -> (Claim, &SigningKey) {
        (Claim { release: release.clone(), header, ledger_head: self.ledger.head() }, &self.identity.key)
    }

    /// Looks at a charter.
    fn charter(&mut self, charter: &[u8]) -> Result<CharterStep, SiteError> {
        let State::Joined(joined) = &mut self.state else { return Err(SiteError::Order("a charter came before the welcome")) };
        let Joined { membership: Some(membership), task, .. } = joined.as_mut() else {
            return Err(SiteError::Server("it sent a charter for a task without aggregation"));
        };
        let Identity { client, key, server, .. } = &self.identity;
        let site = Site { id: client, key, server, policy: &self.policy.aggregation };
        let charter = SignedCharter::from_bytes(charter)?;
        let step = membership.on_charter(&charter, task, &site)?;
        match step {
            CharterStep::Sign(_) => self.policy.check_charter(charter.hash()).map(|()| step),
            // This site has signed it already.
            CharterStep::Agreed => Ok(step),
        }
    }

    /// Before the first entry or round of an aggregated run: its charter, signed by all.
    fn agreed(&mut self, charter: Option<&[u8]>) -> Result<(), SiteError> {
        if self.joined()?.membership.as_ref().is_none_or(Membership::is_agreed) {
            return Ok(());
        }
        match charter.map(|charter| self.charter(charter)).transpose()? {
            Some(CharterStep::Agreed) => Ok(()),
            _ => Err(SiteError::Server("it opened a round before all parties had signed the charter")),
        }
    }

    /// The update is about to be handed to the transport.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub(crate) fn on_sending(&mut self, outgoing: &Outgoing) -> Result<(), SiteError> {
        Ok(self.ledger.sent(&outgoing.release)?)
    }

    /// The server's receipt: checks and books it.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub(crate) fn on_receipt(&mut self, outgoing: &Outgoing, receipt: &Signed<Receipt>) -> Result<ReceiptOutcome, SiteError> {
        let body = receipt.open(&self.identity.server)?;
        if body.release != outgoing.release || body.update != update_hash(outgoing.attachment.message())? {
            return Err(SiteError::Server("its receipt is for another update"));
        }
        if let Some(witnessed) = body.witnessed {
            // A receipt has no room for this site's word. If the ledger is an old copy, the next welcome says so with it.
            self.check_witness(witnessed, None)?;
        }
        self.ledger.receipted(&outgoing.release, receipt.hash())?;
        Ok(body.outcome)
    }

    fn joined(&mut self) -> Result<&mut Joined, SiteError> {
        match &mut self.state {
            State::Joined(joined) => Ok(joined),
            State::Unjoined => Err(SiteError::Order("a round came before the welcome")),
        }
    }

    fn release(&self, joined: &Joined, round: u32) -> ReleaseId {
        ReleaseId { run: joined.chain.run, client: self.identity.client.clone(), round }
    }

    /// Headers under which this site ever reserved in a run.
    fn headers(&self, run: &RunId) -> BTreeMap<u32, Hash> {
        self.ledger
            .rows()
            .iter()
            .filter_map(|(row, _)| match &row.body {
                RowBody::Reserved { release, header, .. } if release.run == *run => Some((release.round, *header)),
                _ => None,
            })
            .collect()
    }

    /// Checks new entries and settles the releases that they tell about.
    fn settle(&mut self, entries: Vec<Arc<TranscriptEntry>>) -> Result<(), SiteError> {
        for entry in entries {
            let joined = self.joined()?;
            let closed = joined.chain.close(entry)?;
            let rho = joined.task.damping.get(closed.visit as usize).copied();
            let rho = rho.ok_or(SiteError::Server("it asks for more than the task states"))?;
            let reserved = joined.headers.get(&closed.round).copied();
            if let Some(staleness) = joined.task.schedule.staleness() {
                self.settle_asynchronous(&closed, reserved, staleness, rho)?;
                continue;
            }
            if reserved.is_some() {
                joined.visit = Some(closed.visit);
            }
            self.settle_round(&closed, reserved, rho)?;
        }
        Ok(())
    }

    fn settle_round(&mut self, closed: &Closed, reserved: Option<Hash>, rho: f64) -> Result<(), SiteError> {
        let own = closed.included.iter().find(|(client, _)| *client == self.identity.client).map(|(_, update)| *update);
        let Some(header) = reserved else {
            if own.is_none()
                && let State::Joined(joined) = &self.state
            {
                let release = self.release(joined, closed.round);
                self.settle_aggregation(closed, &release)?;
            }
            return if own.is_some() { Err(SiteError::Forgotten { round: closed.round }) } else { Ok(()) };
        };
        if header != closed.header {
            return Err(SiteError::Server("it closed another round than the one that it opened"));
        }
        let State::Joined(joined) = &self.state else { return Ok(()) };
        let release = self.release(joined, closed.round);
        if let Some(listed) = own {
            let message = self.ledger.message(&release)?.ok_or(SiteError::Forgotten { round: closed.round })?;
            if update_hash(&message)? != listed {
                return Err(SiteError::Server("it counted an update that this site did not send"));
            }
        }
        self.settle_aggregation(closed, &release)?;
        if let Some(ReleaseState::Settled { included }) = self.ledger.state(&release) {
            return if included == own.is_some() { Ok(()) } else { Err(SiteError::Server("it tells a closed round differently")) };
        }
        self.ledger.settle(&release, own.is_some(), rho)?;
        Ok(())
    }

    /// A closed round of an asynchronous run: it may list an update that answers an earlier header; what is older than the schedule
    /// allows and was not listed never will be.
    fn settle_asynchronous(&mut self, closed: &Closed, reserved: Option<Hash>, staleness: u32, rho: f64) -> Result<(), SiteError> {
        if reserved.is_some_and(|header| header != closed.header) {
            return Err(SiteError::Server("it closed another round than the one that it opened"));
        }
        let own = closed.included.iter().find(|(client, _)| *client == self.identity.client).map(|(_, update)| *update);
        if let Some(listed) = own {
            let joined = self.joined()?;
            let answered: Vec<u32> = joined.headers.range(closed.round.saturating_sub(staleness)..=closed.round).map(|(r, _)| *r).collect();
            let mut found = None;
            for round in answered {
                let State::Joined(joined) = &self.state else { return Ok(()) };
                let release = self.release(joined, round);
                if let Some(message) = self.ledger.message(&release)?
                    && update_hash(&message)? == listed
                {
                    found = Some(release);
                }
            }
            let release = found.ok_or(SiteError::Forgotten { round: closed.round })?;
            if !self.joined()?.counted.insert(release.round) {
                return Err(SiteError::Server("it counted one update twice"));
            }
            match self.ledger.state(&release) {
                Some(ReleaseState::Settled { included: true }) => {}
                Some(ReleaseState::Settled { included: false }) => {
                    return Err(SiteError::Server("it tells a closed round differently"));
                }
                _ => drop(self.ledger.settle(&release, true, rho)?),
            }
        }
        match closed.round.checked_sub(staleness) {
            Some(oldest) => self.settle_older_than(oldest.saturating_add(1)),
            None => Ok(()),
        }
    }

    /// Asynchronous: answers to headers before this round can enter no posterior any more.
    fn settle_older_than(&mut self, round: u32) -> Result<(), SiteError> {
        let State::Joined(joined) = &self.state else { return Ok(()) };
        let older: Vec<_> = joined.headers.range(..round).map(|(r, _)| (self.release(joined, *r), joined.counted.contains(r))).collect();
        for (release, counted) in older {
            match self.ledger.state(&release) {
                Some(ReleaseState::Settled { included }) if included == counted => {}
                Some(ReleaseState::Settled { .. }) => return Err(SiteError::Server("it tells a closed round differently")),
                _ if counted => return Err(SiteError::Order("an update was counted and not settled")),
                _ => drop(self.ledger.settle(&release, false, 0.0)?),
            }
        }
        Ok(())
    }

    /// Asynchronous: what was committed before this round and may still enter a posterior is sent again. What was only reserved was
    /// computed from a λ that is gone: it stays charged, and nothing of it left this process.
    fn earlier(&mut self, round: u32, staleness: u32) -> Result<Option<Outgoing>, SiteError> {
        let State::Joined(joined) = &self.state else { return Ok(None) };
        let earlier: Vec<_> = joined.headers.range(..round).map(|(r, _)| self.release(joined, *r)).collect();
        for release in earlier {
            match self.ledger.state(&release) {
                Some(ReleaseState::Reserved) => drop(self.ledger.settle(&release, false, 0.0)?),
                Some(ReleaseState::Committed | ReleaseState::Sent) if round <= release.round.saturating_add(staleness) => {
                    let attachment = self.ledger.attachment(&release)?.ok_or(SiteError::Forgotten { round: release.round })?;
                    return Ok(Some(Outgoing { release, attachment }));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Follows the aggregation's own transcript.
    fn settle_aggregation(&mut self, closed: &Closed, release: &ReleaseId) -> Result<(), SiteError> {
        let Some((header, entry)) = &closed.aggregation else { return Ok(()) };
        let upload = match self.ledger.message(release)? {
            Some(message) => Signed::<Update>::from_bytes(&message)?.peek()?.upload,
            None => None,
        };
        let State::Joined(joined) = &mut self.state else { return Ok(()) };
        let Some(membership) = &mut joined.membership else { return Ok(()) };
        let included = closed.included.iter().map(|(client, _)| client.clone());
        membership.settle(entry, header, included, upload.as_ref().map(|upload| (&self.identity.client, &upload.signed)))?;
        Ok(())
    }

    fn round(&mut self, start: &RoundStart) -> Result<Step, SiteError> {
        let joined = self.joined()?;
        let header = joined.chain.open(start)?;
        let hash = start.header.hash();
        let before = joined.visit;
        if let Some((&seen, _)) = joined.headers.last_key_value()
            && seen > header.round
        {
            return Err(SiteError::ServerBehind { seen });
        }
        if joined.headers.get(&header.round).is_some_and(|known| *known != hash) {
            return Err(SiteError::Server("it opened one round in two different ways"));
        }
        if header.turn.as_ref().is_some_and(|turn| *turn != self.identity.client) {
            return Ok(Step::Wait);
        }
        let staleness = self.joined()?.task.schedule.staleness();
        if let Some(staleness) = staleness
            && let Some(outgoing) = self.earlier(header.round, staleness)?
        {
            return Ok(Step::Send(Box::new(outgoing)));
        }
        let State::Joined(joined) = &self.state else { return Ok(Step::Wait) };
        let release = self.release(joined, header.round);
        match self.ledger.state(&release) {
            // The schedule bounds a site's visits, not those that a header counts: that one follows the slowest site.
            None if staleness.is_some() && joined.headers.len() >= joined.task.visits() as usize => {
                let refusal = Refusal { release, header: hash, reason: RefusalReason::Visited };
                Ok(Step::Refuse(Box::new(Signed::seal(&refusal, &self.identity.key)), RefusalReason::Visited))
            }
            None | Some(ReleaseState::Reserved) if staleness.is_none() && before.is_some_and(|before| header.visit <= before) => {
                Err(SiteError::Server("it asks for one visit twice"))
            }
            None | Some(ReleaseState::Reserved) => {
                let accepted = match &joined.membership {
                    Some(membership) => Some(membership.accept(&aggregation_header(&header)?, &header.lambda)?),
                    None => None,
                };
                self.reserve(release, (hash, accepted), header.visit, &start.lambda)
            }
            Some(ReleaseState::Committed | ReleaseState::Sent | ReleaseState::Receipted) => {
                // A release in these states has an attachment: the ledger checked that when it was opened.
                let attachment = self.ledger.attachment(&release)?.ok_or(SiteError::Forgotten { round: header.round })?;
                Ok(Step::Send(Box::new(Outgoing { release, attachment })))
            }
            // Closed by an operator who put a copy back, not by the server.
            Some(ReleaseState::Settled { included: false }) if self.ledger.message(&release)?.is_none() => {
                let refusal = Refusal { release, header: hash, reason: RefusalReason::Spent };
                Ok(Step::Refuse(Box::new(Signed::seal(&refusal, &self.identity.key)), RefusalReason::Spent))
            }
            Some(ReleaseState::Settled { .. }) => Err(SiteError::Server("it opened a round again that it had closed")),
        }
    }

    /// Charges the visit, or refuses it.
    fn reserve(
        &mut self,
        release: ReleaseId,
        (header, accepted): (Hash, Option<Accepted>),
        visit: u32,
        lambda: &Arc<[f64]>,
    ) -> Result<Step, SiteError> {
        let State::Joined(joined) = &mut self.state else { return Ok(Step::Wait) };
        if self.ledger.was_renounced(&release.run) && !self.ledger.is_planned(&release.run) {
            return Err(SiteError::GivenUp(release.run.number));
        }
        // Before it is paid for: nothing can be computed from it.
        if !shape::is_state(&joined.task, visit, lambda) {
            let reason = RefusalReason::Posterior;
            return Ok(Step::Refuse(Box::new(Signed::seal(&Refusal { release, header, reason }, &self.identity.key)), reason));
        }
        let event = joined.task.visit_event(visit).map_err(unfit)?;
        let form = joined.task.message(visit).map_err(unfit)?;
        let fallback = joined.task.visit_fallback(visit).map_err(unfit)?;
        let at = At { state: lambda, first: joined.first.as_deref() };
        let moments = match shape::of_site(&joined.task, visit, self.nominal_units, at).map_err(unfit)? {
            Some(Shape::Moments(moments)) => Some(moments),
            _ => None,
        };
        let planned = if !self.ledger.is_planned(&release.run) {
            let all = 0..joined.task.visits();
            let events = joined.task.visit_events(all.clone()).map_err(unfit)?;
            let worst = joined.task.aggregation.map(|_| joined.task.visit_fallbacks(all)).transpose().map_err(unfit)?;
            self.ledger.plan_run(&release.run, &events, worst.as_deref())
        } else {
            Ok(())
        };
        let reserved = planned.and_then(|()| self.ledger.reserve(&release, (&event, fallback.as_ref()), header));
        let permit = match reserved {
            Ok(permit) => permit,
            Err(error) => {
                let reason = match error {
                    LedgerError::OverBudget { .. } | LedgerError::OverRunBudget { .. } | LedgerError::OverFallback { .. } => {
                        RefusalReason::Budget
                    }
                    LedgerError::NonPrivateForbidden => RefusalReason::Policy,
                    LedgerError::Frozen => RefusalReason::Frozen,
                    LedgerError::Conflict(_) | LedgerError::RetriesSpent(_) => RefusalReason::Spent,
                    error => return Err(error.into()),
                };
                let refusal = Signed::seal(&Refusal { release, header, reason }, &self.identity.key);
                return Ok(Step::Refuse(Box::new(refusal), reason));
            }
        };
        joined.headers.insert(release.round, header);
        joined.training = Some(Training { release: release.clone(), header, visit, form, moments, accepted });
        let state = self.ledger.site_state(&release.run)?;
        Ok(Step::Train(Box::new(TrainJob { task: Arc::clone(&joined.task), visit, lambda: Arc::clone(lambda), state, permit })))
    }
}

/// A noised sum, brought into the shape that a receiver knows of the declared units. Only that of a site with more units than it declared is outside of it.
///
/// # Privacy
/// Post-processing of a released sum by public values: the task and the declared number of units ([`Moments::factor_within`]).
fn within(moments: &Option<Moments>, payload: Payload) -> Payload {
    let (Some(moments), Payload::Lattice(vector)) = (moments, &payload) else { return payload };
    let factor = moments.factor_within(&vector.to_f64());
    if factor >= 1.0 {
        return payload;
    }
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "toward zero, and no longer than it was")]
    let values = vector.values.iter().map(|value| (*value as f64 * factor) as i64).collect();
    Payload::Lattice(LatticeVector { values, ..*vector })
}

/// A task whose numbers this engine cannot compute with.
fn unfit(error: TaskError) -> SiteError {
    SiteError::Version(error.to_string())
}

fn update_hash(message: &[u8]) -> Result<Hash, SiteError> {
    Ok(Signed::<Update>::from_bytes(message)?.hash())
}

#[cfg(test)]
impl<S, K> Participant<S, K> {
    /// To pin another task.
    pub(crate) fn identity_for_tests(&mut self) -> &mut Identity {
        &mut self.identity
    }
}

/// The signed message about a payload.
fn message(claim: &Claim, payload: &Payload, upload: Option<OpenedUpload>, key: &SigningKey) -> Vec<u8> {
    let Claim { release, header, ledger_head } = claim.clone();
    let (kind, bytes) = (payload.kind(), payload.to_bytes());
    let (coordinates, payload) = (bytes.len() as u64 / 8, payload_hash(kind, &bytes));
    let update = Update { release, header, kind, coordinates, payload, ledger_head, upload };
    Signed::seal(&update, key).to_bytes()
}
