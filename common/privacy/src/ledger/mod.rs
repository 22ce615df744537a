//! The ledger: checks the budget, appends durably, then mints a permit. No permit, no release.
//!
//! A ledger belongs to a data set, not to a task, a server or a directory. Its first row names the data, the privacy unit and
//! the relation; a later one, written before the first charge, says what one unit of the files is. The others are steps of releases:
//!
//! ```text
//! RESERVED ──► COMMITTED ──► SENT ──► RECEIPTED
//!     │            │           │          │
//!     └────────────┴───────────┴──────────┴──► SETTLED (included or not)
//! ```
//!
//! * Rows are chained by hash and signed by the site's identity key; events are stored, charges are derived.
//! * A run is charged as a whole by a PLANNED row before its first visit ([`dp_pvi_accounting::proofs::envelopes`]); RESERVED rows are then visits of its plan.
//! * RESERVED is durable before anything runs, and is never refunded: a crash after it discards all noise and trains again
//!   under the same reservation, because nothing had left the process; a RETRIED row says so, and there are few ([`reserve`]).
//! * RESTORED closes all plans of a copy that was put back ([`Ledger::close_open`]).
//! * RENOUNCED closes the plan of one run for good ([`Ledger::renounce`]).
//! * RECORDS, before the first visit of a run, says which records it has; no visit of the run is made with others ([`Ledger::of_records`]).
//! * COMMITTED stores the payload; from then on only the same bytes are ever sent.
//! * A site's state in a run is public or private for the whole run ([`state`]); SETTLED moves it iff the update was included.
//! * The highest row is kept in a second file, the rollback guard too ([`HeadPlace`]): row first, then the place, then the permit. A ledger that is
//!   behind it is an old copy, and is refused; one that is ahead had a crash in between, and is not.
//! * After a write that failed or may have failed, the ledger refuses everything until it is opened (and verified) again.

mod attachment;
pub mod decoders;
mod error;
pub mod memory;
mod permit;
mod place;
pub mod reserve;
mod row;
mod seal;
mod stage;
pub mod state;
mod store;
mod totals;
mod upkeep;
mod words;

#[cfg(test)]
mod tests;

pub use attachment::{Attachment, Claim};
pub use error::LedgerError;
pub(crate) use permit::NoBatch;
pub use permit::{Permit, StepPermit};
pub use place::{HeadPlace, Kept};
pub use reserve::Visit;
pub use row::{Budget, FreezeState, LedgerHead, LedgerIdentity, PlannedEvents, Row, RowBody, StoredRow};
pub use stage::{MOST_RETRIES, ReleaseState};
pub use state::{OtherState, Pending, SiteState, StateKind};
pub use store::{ChargeStore, Extra, LedgerStore, RowSigner, StoreError};
pub use upkeep::Closed;

use std::collections::BTreeSet;

use crate::ledger::seal::{Seal, Secret};
use crate::ledger::totals::{Priced, Totals};
use crate::shards::ShardSalt;
use dp_pvi_accounting::adjacency::{PrivacyUnit, Relation};
use dp_pvi_accounting::event::DpEvent;
use dp_pvi_accounting::unit::Epsilon;
use dp_pvi_accounting::{Prices, PrivacyLoss, Runs};
use dp_pvi_names::{Hash, ReleaseId, RunId};

/// By this number in its header (SQLite's `application_id`) a ledger's file is known.
pub const APPLICATION_ID: u32 = 0x6470_504c;

/// The ledger of one data set.
pub struct Ledger<S, K> {
    store: S,
    signer: K,
    identity: LedgerIdentity,
    budget: Budget,
    rows: Vec<(Row, Hash)>,
    totals: Totals,
    /// Releases whose permit was given out since this ledger was opened.
    minted: BTreeSet<ReleaseId>,
    /// Set for good by a write that failed: what the store holds is then unknown.
    doubtful: bool,
    /// Where the highest head is kept apart from the rows.
    second: Option<Box<dyn HeadPlace>>,
    /// What a unit is by the schema, until a charge has written it down.
    units_now: Option<String>,
    /// Which records this process has ([`Ledger::of_records`]).
    records_now: Option<Hash>,
}

impl<S: LedgerStore, K: RowSigner> Ledger<S, K> {
    /// Opens the ledger: verifies every row, the chain, signatures, transitions, attachments and factors, and derives all
    /// charges again; writes the genesis row into an empty store.
    ///
    /// # Errors
    /// Anything doubtful.
    pub fn open(store: S, signer: K, identity: LedgerIdentity, budget: Budget) -> Result<Self, LedgerError> {
        let mut store = store;
        let stored = store.rows()?;
        let mut ledger = Self {
            store,
            signer,
            totals: Totals::new(identity.relation),
            identity,
            budget,
            rows: Vec::with_capacity(stored.len()),
            minted: BTreeSet::new(),
            doubtful: false,
            second: None,
            units_now: None,
            records_now: None,
        };
        if stored.is_empty() {
            if ledger.identity.unit == PrivacyUnit::Site && ledger.identity.relation == Relation::AddRemove {
                return Err(LedgerError::SiteAddRemove);
            }
            ledger.append(RowBody::Genesis(ledger.identity.clone()), None)?;
            return Ok(ledger);
        }
        for row in &stored {
            let row = row.verify(ledger.next_seq(), ledger.last_hash(), &ledger.signer)?;
            match (&row.0.body, ledger.rows.is_empty()) {
                (RowBody::Genesis(found), true) => ledger.identity.check(found)?,
                (_, true) => return Err(StoreError::Corrupt("row 0: it does not name a data set".into()).into()),
                (body, false) => ledger.totals.apply(body)?,
            }
            ledger.rows.push(row);
        }
        ledger.verify_contents()?;
        Ok(ledger)
    }

    /// Spares this ledger the accounting of mechanisms whose price is known: where one program has many ledgers. Prices under another relation
    /// than this ledger's are not taken.
    #[must_use]
    pub fn knowing(mut self, prices: &Prices) -> Self {
        self.totals.prices_mut().take_over(prices);
        self
    }

    /// What the ledger is about.
    #[must_use]
    pub fn identity(&self) -> &LedgerIdentity {
        &self.identity
    }

    /// Where the chain ends.
    #[must_use]
    pub fn head(&self) -> LedgerHead {
        LedgerHead { seq: self.next_seq() - 1, hash: self.last_hash() }
    }

    /// Compares the chain with the head that a witness (the server) saw: it must be a row of this ledger.
    ///
    /// # Errors
    /// The witness saw a later row ([`LedgerError::RolledBack`]) or another one ([`LedgerError::Forked`]).
    pub fn check_witness(&self, witnessed: LedgerHead) -> Result<(), LedgerError> {
        let here = self.head().seq;
        match usize::try_from(witnessed.seq).ok().and_then(|seq| self.rows.get(seq)) {
            None => Err(LedgerError::RolledBack { witnessed: witnessed.seq, here }),
            Some((_, hash)) if *hash == witnessed.hash => Ok(()),
            Some(_) => Err(LedgerError::Forked { seq: witnessed.seq }),
        }
    }

    /// Compares the chain with the highest head in `place`, and keeps that one at the chain's end from now on: after every row, and
    /// before the permit, message or answer that the row is for. An empty place takes the head as it is.
    ///
    /// # Errors
    /// [`LedgerError::Behind`], [`LedgerError::Apart`], [`LedgerError::OtherLedger`]; the place cannot be read or written, or another program
    /// keeps heads there.
    pub fn kept_in(mut self, mut place: impl HeadPlace + 'static) -> Result<Self, LedgerError> {
        place.claim()?;
        self.check_kept(&mut place)?;
        place.keep(self.end(), &self.signer)?;
        self.second = Some(Box::new(place));
        Ok(self)
    }

    /// Compares the chain with the highest head in `place`, and changes neither.
    ///
    /// # Errors
    /// [`LedgerError::Behind`], [`LedgerError::Apart`], [`LedgerError::OtherLedger`]; the place cannot be read.
    pub fn check_kept(&self, place: &mut impl HeadPlace) -> Result<(), LedgerError> {
        let Some(Kept { genesis, head }) = place.kept(&self.signer)? else { return Ok(()) };
        let shown = || place.name();
        if genesis != self.genesis() {
            return Err(LedgerError::OtherLedger { place: shown(), kept: head.seq });
        }
        self.check_witness(head).map_err(|error| match error {
            LedgerError::RolledBack { witnessed, here } => LedgerError::Behind { kept: witnessed, here, place: shown() },
            LedgerError::Forked { seq } => LedgerError::Apart { kept: seq, place: shown() },
            other => other,
        })
    }

    /// The same for a ledger that was just made: whatever `place` knows, it must not be one with more than a first row.
    ///
    /// # Errors
    /// [`LedgerError::OtherLedger`]; the place cannot be read or written.
    pub fn begun_in(mut self, mut place: impl HeadPlace + 'static) -> Result<Self, LedgerError> {
        place.claim()?;
        if let Some(kept) = place.kept(&self.signer)?.filter(|kept| kept.head.seq > 0) {
            return Err(LedgerError::OtherLedger { place: place.name(), kept: kept.head.seq });
        }
        place.start_again(self.end(), &self.signer)?;
        self.second = Some(Box::new(place));
        Ok(self)
    }

    /// Takes this ledger for the latest one although `place` knows a later row, as an operator's decision: the ledger is frozen first, so
    /// that nothing is charged until someone has counted what is missing in it.
    ///
    /// # Errors
    /// The store, or the place.
    pub fn accept_loss(mut self, mut place: impl HeadPlace + 'static) -> Result<Self, LedgerError> {
        place.claim()?;
        self.set_frozen(FreezeState::Frozen)?;
        place.start_again(self.end(), &self.signer)?;
        self.second = Some(Box::new(place));
        Ok(self)
    }

    /// What a rollback guard keeps.
    fn end(&self) -> Kept {
        Kept { genesis: self.genesis(), head: self.head() }
    }

    /// Hash of the first row, which identifies this ledger.
    fn genesis(&self) -> Hash {
        self.rows.first().map_or_else(Hash::default, |(_, hash)| *hash)
    }

    /// State of a release.
    #[must_use]
    pub fn state(&self, release: &ReleaseId) -> Option<ReleaseState> {
        self.totals.state(release)
    }

    /// RESERVED → COMMITTED, with the attachment in the same transaction.
    ///
    /// # Errors
    /// Wrong state, a message that claims another release, header or head than this one, a pending change of another kind (of a public one, also
    /// of another length) than the run's state, store.
    pub fn commit(&mut self, release: &ReleaseId, attachment: &Attachment) -> Result<(), LedgerError> {
        self.expect(release, "committed", |state| state == ReleaseState::Reserved)?;
        let charged = self.totals.reservation(release).map(|known| known.header());
        if !attachment.claims(release, charged, self.head()) {
            return Err(LedgerError::Conflict(release.clone()));
        }
        self.check_kind(release, attachment.pending())?;
        let bytes = attachment.to_bytes(|words| self.pending_seal(release).close(words));
        let body = RowBody::Committed { release: release.clone(), attachment: Attachment::hash_of(&bytes)? };
        self.append(body, Some(&Extra::Attachment(release.clone(), bytes)))
    }

    /// What was committed and is not settled yet.
    ///
    /// # Errors
    /// Store, or bytes that do not match their hash.
    pub fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Attachment>, LedgerError> {
        let Some(expected) = self.totals.attachment(release) else { return Ok(None) };
        if matches!(self.state(release), Some(ReleaseState::Settled { .. })) {
            return Ok(None);
        }
        let bytes = self.stored_attachment(release, expected)?;
        Ok(Some(self.read_attachment(release, &bytes)?))
    }

    /// The signed update message of a release that was committed, for ever.
    ///
    /// # Errors
    /// Store, or bytes that do not match their hash.
    pub fn message(&mut self, release: &ReleaseId) -> Result<Option<Vec<u8>>, LedgerError> {
        let Some(expected) = self.totals.attachment(release) else { return Ok(None) };
        Ok(Some(Attachment::message_of(&self.stored_attachment(release, expected)?)?))
    }

    /// COMMITTED → SENT (no-op later).
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn sent(&mut self, release: &ReleaseId) -> Result<(), LedgerError> {
        match self.expect(release, "sent", |state| state != ReleaseState::Reserved)? {
            ReleaseState::Committed => self.append(RowBody::Sent { release: release.clone() }, None),
            _ => Ok(()),
        }
    }

    /// SENT → RECEIPTED (no-op later).
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn receipted(&mut self, release: &ReleaseId, receipt: Hash) -> Result<(), LedgerError> {
        let late = |state| !matches!(state, ReleaseState::Reserved | ReleaseState::Committed);
        match self.expect(release, "receipted", late)? {
            ReleaseState::Sent => self.append(RowBody::Receipted { release: release.clone(), receipt }, None),
            _ => Ok(()),
        }
    }

    /// Applies or drops the pending change of the site's state: state += rho·pending iff `included`. Idempotent. Returns the state.
    ///
    /// Payload and pending change are dropped in the same transaction: nothing needs them any more, and a ledger of many rounds
    /// stays small. The message and the hash of everything stay.
    ///
    /// A release that never left (RESERVED) can only be settled as not included; its reservation is then closed.
    ///
    /// # Errors
    /// Wrong state, another outcome than the one that was settled before, store.
    pub fn settle(&mut self, release: &ReleaseId, included: bool, rho: f64) -> Result<SiteState, LedgerError> {
        let step = self.expect(release, "settled", |state| !(included && state == ReleaseState::Reserved))?;
        let state = self.site_state(&release.run)?;
        if let ReleaseState::Settled { included: before } = step {
            return if before == included { Ok(state) } else { Err(LedgerError::Conflict(release.clone())) };
        }
        let stored = match self.totals.attachment(release) {
            Some(expected) => Some(self.stored_attachment(release, expected)?),
            None => None,
        };
        let attachment = stored.as_deref().map(|bytes| self.read_attachment(release, bytes)).transpose()?;
        let kept = stored.as_deref().map(Attachment::settled).transpose()?;
        let state = match attachment.filter(|_| included) {
            Some(attachment) => state.moved(attachment.pending(), rho).map_err(|_| mixed())?,
            None => state,
        };
        let bytes = state.to_bytes(|words| self.state_seal(&release.run).close(words));
        let body = RowBody::Settled { release: release.clone(), included, factor: totals::factor_hash(&bytes) };
        self.append(body, Some(&Extra::Settled { release: release.clone(), factor: bytes, attachment: kept }))?;
        Ok(state)
    }

    /// The site's state in a run, as last settled.
    ///
    /// # Errors
    /// Store, or bytes that do not match their hash.
    pub fn site_state(&mut self, run: &RunId) -> Result<SiteState, LedgerError> {
        let Some(expected) = self.totals.factor(run) else { return Ok(SiteState::None) };
        let bytes = self.stored_factor(run, expected)?;
        Ok(SiteState::from_bytes(&bytes, |sealed| self.state_seal(run).open(sealed))?)
    }

    /// Releases of a run that are not settled yet, with their states, oldest first.
    #[must_use]
    pub fn unsettled(&self, run: &RunId) -> Vec<(ReleaseId, ReleaseState)> {
        self.totals.unsettled(run)
    }

    /// What mechanisms cost under this ledger's relation, as far as it had to know.
    #[must_use]
    pub fn prices(&self) -> &Prices {
        self.totals.prices()
    }

    /// The joint loss of [`Ledger::losses`] after each row, by this build's accountant: the readings of an odometer, at the budget's δ.
    ///
    /// # Errors
    /// None for rows that were opened.
    pub fn cumulative_losses(&self) -> Result<Vec<PrivacyLoss>, LedgerError> {
        let mut totals = Totals::new(self.identity.relation);
        totals.prices_mut().take_over(self.totals.prices());
        let read = |totals: &Totals| totals.total().spent(self.budget.epsilon, self.budget.delta);
        let mut last = read(&totals);
        let mut readings = Vec::with_capacity(self.rows.len());
        for (row, _) in &self.rows {
            match &row.body {
                RowBody::Genesis(..) => {}
                body @ (RowBody::Planned { .. } | RowBody::Renounced { .. }) => {
                    totals.apply(body)?;
                    last = read(&totals);
                }
                // A visit of a run that was charged as a whole costs nothing more.
                body => totals.apply(body)?,
            }
            readings.push(last);
        }
        Ok(readings)
    }

    /// Both losses of all charged events, at the budget's δ, as the filters of the two limits read them ([`dp_pvi_accounting::proofs::envelopes`]), less what
    /// renounced visits gave back.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.read(self.totals.total(), self.totals.fallback_total())
    }

    fn read(&self, joint: &Runs, fallback: &Runs) -> Losses {
        let Budget { epsilon, delta, max_fallback, .. } = self.budget;
        Losses { joint: joint.spent(epsilon, delta), fallback: fallback.spent(max_fallback.unwrap_or(epsilon), delta) }
    }

    /// Both losses of the events of one run. With a limit on one run: as the filter of that limit reads it. Without: that of a plan, which holds for
    /// visits that the task fixed before the run began. No limit is set on the fallback of one run.
    #[must_use]
    pub fn losses_in(&self, run: &RunId) -> Losses {
        let Budget { delta, per_run, .. } = self.budget;
        let events = self.totals.run(run);
        let joint = per_run.map_or_else(|| events.loss(delta), |limit| events.spent(limit, delta));
        // Without aggregated sums the two are one figure.
        let fallback = if self.totals.is_aggregated(run) { self.totals.fallback_run(run).loss(delta) } else { joint };
        Losses { joint, fallback }
    }

    /// How many more runs of these events the budget and the cap on the fallback hold, `most` at most. `fallback` as in [`Ledger::plan_run`].
    ///
    /// # Errors
    /// An event that no engine bounds.
    pub fn further_runs(&self, events: &[(DpEvent, u64)], fallback: Option<&[(DpEvent, u64)]>, most: u64) -> Result<u64, LedgerError> {
        let Budget { epsilon, delta, max_fallback, allow_non_private, .. } = self.budget;
        let fallback = fallback.unwrap_or(events);
        let (mut total, mut fallback_total) = (self.totals.total().clone(), self.totals.fallback_total().clone());
        if self.totals.priced(events, delta)?.non_private() && !allow_non_private {
            return Ok(0);
        }
        for fits in 0..most {
            let failure = total.envelope().failure.max(fallback_total.envelope().failure);
            self.totals.priced_after(events, delta, failure)?.add_to(&mut total);
            self.totals.priced_after(fallback, delta, failure)?.add_to(&mut fallback_total);
            let within = |sum: &Runs, limit: Epsilon| sum.protected_loss(delta).epsilon <= limit;
            if !within(&total, epsilon) || max_fallback.is_some_and(|cap| !within(&fallback_total, cap)) {
                return Ok(fits);
            }
        }
        Ok(most)
    }

    /// Both losses of all charged events and of a run of these, each with how often it comes. `fallback` as in [`Ledger::plan_run`].
    ///
    /// # Errors
    /// An event that no engine bounds.
    pub fn would_cost(&self, events: &[(DpEvent, u64)], fallback: Option<&[(DpEvent, u64)]>) -> Result<Losses, LedgerError> {
        let (mut joint, mut worst) = (self.totals.total().clone(), self.totals.fallback_total().clone());
        self.totals.priced(events, self.budget.delta)?.add_to(&mut joint);
        self.totals.priced(fallback.unwrap_or(events), self.budget.delta)?.add_to(&mut worst);
        Ok(self.read(&joint, &worst))
    }

    /// Whether these events, each with how often it comes, would keep `run` to all limits, as [`Ledger::plan_run`] compares them. Visits of a planned run
    /// are paid for. `fallback` as in [`Ledger::plan_run`].
    ///
    /// # Errors
    /// [`LedgerError::OverBudget`], [`LedgerError::OverRunBudget`], [`LedgerError::OverFallback`], [`LedgerError::NonPrivateForbidden`], or an event that no
    /// engine bounds.
    pub fn would_admit(&self, run: &RunId, events: &[(DpEvent, u64)], fallback: Option<&[(DpEvent, u64)]>) -> Result<(), LedgerError> {
        let (events, worst) =
            if self.totals.covers(run, events, fallback) { (&[][..], &[][..]) } else { (events, fallback.unwrap_or(events)) };
        self.check(run, &self.totals.priced(events, self.budget.delta)?, &self.totals.priced(worst, self.budget.delta)?)
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Verified rows, oldest first.
    #[must_use]
    pub fn rows(&self) -> &[(Row, Hash)] {
        &self.rows
    }

    /// Whether the data set is frozen.
    #[must_use]
    pub fn frozen(&self) -> bool {
        self.totals.frozen()
    }

    /// Freezes or opens the data set. A state that it is in already is not written again.
    ///
    /// # Errors
    /// Store.
    pub fn set_frozen(&mut self, state: FreezeState) -> Result<(), LedgerError> {
        self.refuse_doubt()?;
        if self.totals.frozen() == (state == FreezeState::Frozen) {
            return Ok(());
        }
        self.append(RowBody::Frozen(state), None)
    }

    /// All limits, with these charges more.
    fn check(&self, run: &RunId, more: &Priced, worst: &Priced) -> Result<(), LedgerError> {
        self.check_budget(run, more)?;
        self.check_fallback(worst)
    }

    /// The budget and the limit on one run, with these charges more.
    ///
    /// Releases without protection need the site's consent and are then left out of the comparison: they are reported as
    /// ε = ∞, and the limits still hold for everything else.
    fn check_budget(&self, run: &RunId, more: &Priced) -> Result<(), LedgerError> {
        if more.non_private() && !self.budget.allow_non_private {
            return Err(LedgerError::NonPrivateForbidden);
        }
        let limits = [(self.totals.total(), Some(self.budget.epsilon)), (&self.totals.run(run), self.budget.per_run)];
        for (scope, (spent, limit)) in [Scope::DataSet, Scope::Run].into_iter().zip(limits) {
            // Nothing exceeds a limit that is infinite or absent, so the loss need not be computed.
            let Some(limit) = limit.filter(|limit| limit.get().is_finite()) else { continue };
            let mut total = spent.clone();
            more.add_to(&mut total);
            // Runs are chosen by people who saw earlier results; so is where a run ends that the site need not pay to its end.
            let loss = total.protected_loss(self.budget.delta);
            let would_be = if total.non_private() && !self.budget.allow_non_private { Epsilon::INFINITE } else { loss.epsilon };
            if would_be > limit {
                return Err(scope.exceeded(would_be, limit));
            }
        }
        Ok(())
    }

    /// One kind of state in a run, and one length of a public one: what is settled, and what may still be settled.
    fn check_kind(&mut self, release: &ReleaseId, pending: &Pending) -> Result<(), LedgerError> {
        let mut fits = self.site_state(&release.run)?.admits(pending);
        for (open, _) in self.totals.unsettled(&release.run) {
            let Some(expected) = self.totals.attachment(&open) else { continue };
            let bytes = self.stored_attachment(&open, expected)?;
            let other = self.read_attachment(&open, &bytes)?;
            fits &= SiteState::None.moved(other.pending(), 1.0).is_ok_and(|state| state.admits(pending));
        }
        if fits { Ok(()) } else { Err(LedgerError::OtherState(release.clone())) }
    }

    /// The secret by which units come into shards, the same for the whole run ([`crate::shards`]).
    fn shard_salt(&self, run: &RunId) -> ShardSalt {
        ShardSalt::new(Secret::derive(&self.signer, "shards", &[&run.task.0, &run.number.to_le_bytes()]).0)
    }

    /// What encrypts the pending change of a release.
    fn pending_seal(&self, release: &ReleaseId) -> Seal<'_, K> {
        Seal::new(&self.signer, self.first_hash(), "pending", release.to_string())
    }

    /// What encrypts the site's state in a run.
    fn state_seal(&self, run: &RunId) -> Seal<'_, K> {
        Seal::new(&self.signer, self.first_hash(), "state", format!("{}/{}", run.task, run.number))
    }

    fn read_attachment(&self, release: &ReleaseId, bytes: &[u8]) -> Result<Attachment, StoreError> {
        Attachment::from_bytes(bytes, |sealed| self.pending_seal(release).open(sealed))
    }

    /// The cap on the fallback, with these charges more. As with the budget, releases without protection are left out where the site
    /// allows them.
    fn check_fallback(&self, more: &Priced) -> Result<(), LedgerError> {
        let Some(cap) = self.budget.max_fallback else { return Ok(()) };
        let mut total = self.totals.fallback_total().clone();
        more.add_to(&mut total);
        let forbidden = total.non_private() && !self.budget.allow_non_private;
        let would_be = if forbidden { Epsilon::INFINITE } else { total.protected_loss(self.budget.delta).epsilon };
        if would_be > cap { Err(LedgerError::OverFallback { would_be: would_be.get(), limit: cap.get() }) } else { Ok(()) }
    }

    /// The state of a release, if it allows `step`.
    fn expect(&self, release: &ReleaseId, step: &'static str, allowed: impl Fn(ReleaseState) -> bool) -> Result<ReleaseState, LedgerError> {
        self.refuse_doubt()?;
        let state = self.state(release);
        state.filter(|&state| allowed(state)).ok_or_else(|| LedgerError::WrongState { release: release.clone(), state, step })
    }

    fn refuse_doubt(&self) -> Result<(), LedgerError> {
        if self.doubtful {
            return Err(StoreError::Unavailable("an earlier write failed; restart, so that it is read and verified again".into()).into());
        }
        Ok(())
    }

    /// Signs, stores and books a row; the totals changes only after the store says that the row is durable.
    fn append(&mut self, body: RowBody, extra: Option<&Extra>) -> Result<(), LedgerError> {
        let row = Row { seq: self.next_seq(), previous: self.last_hash(), body };
        let stored = StoredRow::seal(&row, &self.signer);
        if let Err(error) = self.store.append(&stored, extra) {
            self.doubtful = true;
            return Err(error.into());
        }
        if !self.rows.is_empty()
            && let Err(error) = self.totals.apply(&row.body)
        {
            self.doubtful = true;
            return Err(error);
        }
        self.rows.push((row, stored.hash));
        let end = self.end();
        if let Some(place) = &mut self.second
            && let Err(error) = place.keep(end, &self.signer)
        {
            // The row stands: it is found again, as after a crash.
            self.doubtful = true;
            return Err(error.into());
        }
        Ok(())
    }

    /// Attachments and factors against the hashes in the signed rows.
    fn verify_contents(&mut self) -> Result<(), LedgerError> {
        for (release, expected) in self.totals.attachments() {
            let bytes = self.stored_attachment(&release, expected)?;
            match self.state(&release) {
                Some(ReleaseState::Settled { .. }) => {
                    if Attachment::settled(&bytes)? != bytes {
                        return Err(StoreError::Corrupt("the payload of a settled release is still there".into()).into());
                    }
                }
                _ => drop(self.read_attachment(&release, &bytes)?),
            }
        }
        for (run, expected) in self.totals.factors() {
            let bytes = self.stored_factor(&run, expected)?;
            let state = SiteState::from_bytes(&bytes, |sealed| self.state_seal(&run).open(sealed))?;
            for (open, _) in self.totals.unsettled(&run) {
                let Some(expected) = self.totals.attachment(&open) else { continue };
                let bytes = self.stored_attachment(&open, expected)?;
                if !state.admits(self.read_attachment(&open, &bytes)?.pending()) {
                    return Err(mixed().into());
                }
            }
        }
        Ok(())
    }

    fn stored_attachment(&mut self, release: &ReleaseId, expected: Hash) -> Result<Vec<u8>, StoreError> {
        let bytes = self.store.attachment(release)?.ok_or_else(|| StoreError::Corrupt("a stored update is missing".into()))?;
        if Attachment::hash_of(&bytes)? == expected { Ok(bytes) } else { Err(StoreError::Corrupt("a stored update was changed".into())) }
    }

    fn stored_factor(&mut self, run: &RunId, expected: Hash) -> Result<Vec<u8>, StoreError> {
        let bytes = self.store.factor(run)?.ok_or_else(|| StoreError::Corrupt("the site's factor is missing".into()))?;
        if totals::factor_hash(&bytes) == expected { Ok(bytes) } else { Err(StoreError::Corrupt("the site's factor was changed".into())) }
    }

    fn next_seq(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Names this ledger among all.
    fn first_hash(&self) -> Hash {
        self.rows.first().map_or_else(Hash::default, |(_, hash)| *hash)
    }

    fn last_hash(&self) -> Hash {
        self.rows.last().map_or_else(Hash::default, |(_, hash)| *hash)
    }
}

fn mixed() -> StoreError {
    StoreError::Corrupt("a stored update changes the site's factor as another kind or length than it has".into())
}

/// The two figures that a statement about aggregated sums shows side by side; for everything else they are the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Losses {
    /// With the honest sites' shares of noise in every sum.
    pub joint: PrivacyLoss,
    /// If all other parties work together: this site's own shares of noise alone.
    pub fallback: PrivacyLoss,
}

/// What a limit is about.
enum Scope {
    DataSet,
    Run,
}

impl Scope {
    fn exceeded(&self, would_be: Epsilon, limit: Epsilon) -> LedgerError {
        let (would_be, limit) = (would_be.get(), limit.get());
        match self {
            Self::DataSet => LedgerError::OverBudget { would_be, limit },
            Self::Run => LedgerError::OverRunBudget { would_be, limit },
        }
    }
}
