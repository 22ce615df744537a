//! Charging a release and minting its permit.
//!
//! # One charge, one result that leaves
//!
//! A site that crashes after RESERVED trains again without a new charge: nothing of the first attempt had left the process. So a permit is
//! minted again for a reservation that is still open. What keeps that from being a way to many results for one charge:
//!
//! * A ledger that is opened for reading mints nothing ([`ChargeStore`]).
//! * A process mints once for a release of a ledger's file, however often it opens the file.
//! * Every further permit is written first, as a durable RETRIED row, and there are at most `MOST_RETRIES`. Then the release is refused for ever;
//!   its charge stays.
//!
//! So at most 1 + `MOST_RETRIES` results are ever computed for one charge, each in a process of its own, and the ledger shows how many. One is committed,
//! and only what is committed is sent. That the others end with their processes is up to the code above this crate: what a
//! mechanism released can be read before it is committed (an inner step of a visit needs the one before).
//!
//! Every attempt has fresh noise. To draw the same noise again would be worse where the inputs are not the same to the last bit: the difference of two results
//! would then show the inputs without any noise.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ledger::Ledger;
use crate::ledger::error::LedgerError;
use crate::ledger::permit::Permit;
use crate::ledger::row::{LedgerIdentity, PlannedEvents, RowBody};
use crate::ledger::stage::{MOST_RETRIES, ReleaseState};
use crate::ledger::store::{ChargeStore, RowSigner};
use crate::ledger::totals::Priced;
use crate::local_only;
use crate::shards::PermitScope;
use dp_pvi_accounting::event::DpEvent;
use dp_pvi_names::{Hash, ReleaseId, RunId};

impl<S: ChargeStore, K: RowSigner> Ledger<S, K> {
    /// Charges a run as a whole: `events` are all its visits, each with how often it comes, and for an aggregated run `fallback` what this site's own parts are if
    /// everything else is known. Its visits are then reserved without a further charge. A run that is charged already stays as it is.
    ///
    /// # Errors
    /// Over budget, frozen, an event that no engine bounds, store; this process has local access ([`local_only`]).
    pub fn plan_run(&mut self, run: &RunId, events: &[(DpEvent, u64)], fallback: Option<&[(DpEvent, u64)]>) -> Result<(), LedgerError> {
        self.refuse_doubt()?;
        local_only::charges()?;
        if self.is_planned(run) {
            return Ok(());
        }
        if self.totals.frozen() {
            return Err(LedgerError::Frozen);
        }
        self.append_plan(run, events, fallback)
    }

    /// Whether the run was charged as a whole: it is paid to its end, whichever of its visits came.
    #[must_use]
    pub fn is_planned(&self, run: &RunId) -> bool {
        self.totals.is_planned(run)
    }

    fn append_plan(&mut self, run: &RunId, events: &[(DpEvent, u64)], fallback: Option<&[(DpEvent, u64)]>) -> Result<(), LedgerError> {
        let delta = self.budget.delta;
        let (joint, worst) = (self.totals.priced(events, delta)?, self.totals.priced(fallback.unwrap_or(events), delta)?);
        // What is compared is what is written.
        self.check(run, &joint, &worst)?;
        let planned = |events: &[(DpEvent, u64)], priced: &Priced| {
            let events = events.iter().map(|(event, times)| (event.to_bytes(), *times)).collect();
            PlannedEvents { events, envelope: priced.envelope.map(|envelope| envelope.parts()) }
        };
        let (joint, fallback) = (planned(events, &joint), fallback.map(|events| planned(events, &worst)));
        self.write_units()?;
        self.append(RowBody::Planned { run: *run, delta, joint, fallback }, None)
    }

    /// Charges a visit durably, then mints the permit. A visit that the run's plan has left costs nothing more; any other is charged as a run of its own. The same
    /// release with the same events and header that is still RESERVED (a crash) is minted again without a new charge, after a durable RETRIED row: once a
    /// process, and at most `MOST_RETRIES` times.
    ///
    /// # Errors
    /// Over budget, frozen, conflict, permit already given out, too many crashes, store; this process has local access ([`local_only`]).
    pub fn reserve<'e>(&mut self, release: &ReleaseId, visit: impl Into<Visit<'e>>, header: Hash) -> Result<Permit, LedgerError> {
        let Visit { event, fallback } = visit.into();
        self.refuse_doubt()?;
        local_only::charges()?;
        if self.totals.frozen() {
            return Err(LedgerError::Frozen);
        }
        let place = self.store.place().map(Path::to_path_buf);
        if self.minted.contains(release) || place.as_ref().is_some_and(|place| Minted::lock().has(place, release)) {
            return Err(LedgerError::PermitOutstanding(release.clone()));
        }
        self.bind_records(&release.run)?;
        let bytes = event.to_bytes();
        let fallback_bytes = fallback.map(DpEvent::to_bytes);
        let retries = match self.totals.reservation(release) {
            None => None,
            Some(known)
                if known.matches(&bytes, fallback_bytes.as_deref(), header) && self.state(release) == Some(ReleaseState::Reserved) =>
            {
                Some(known.retries())
            }
            Some(_) => return Err(LedgerError::Conflict(release.clone())),
        };
        if retries.is_some_and(|retries| retries >= MOST_RETRIES) {
            return Err(LedgerError::RetriesSpent(release.clone()));
        }
        let (events, worst) = ([(event.clone(), 1)], fallback.map(|fallback| [(fallback.clone(), 1)]));
        let worst = worst.as_ref().map(<[_; 1]>::as_slice);
        let charge = self.totals.prices_mut().learn(event)?;
        if let Some(fallback) = fallback {
            self.totals.prices_mut().learn(fallback)?;
        }
        if retries.is_some() || self.totals.covers(&release.run, &events, worst) {
            // Paid, but consent may have been withdrawn, or a limit lowered.
            if charge.is_non_private() && !self.budget.allow_non_private {
                return Err(LedgerError::NonPrivateForbidden);
            }
            let nothing = self.totals.priced(&[], self.budget.delta)?;
            self.check(&release.run, &nothing, &nothing)?;
        } else if self.totals.may_follow(&release.run, fallback.is_some()) {
            self.append_plan(&release.run, &events, worst)?;
        } else {
            return Err(LedgerError::Conflict(release.clone()));
        }
        let release = release.clone();
        let body = match retries {
            None => RowBody::Reserved { release: release.clone(), event: bytes, header, fallback: fallback_bytes },
            Some(_) => RowBody::Retried { release: release.clone() },
        };
        if retries.is_none() {
            self.write_units()?;
        }
        self.append(body, None)?;
        self.minted.insert(release.clone());
        if let Some(place) = place {
            Minted::lock().insert(place, release.clone());
        }
        let LedgerIdentity { unit, relation, .. } = self.identity;
        let scope = PermitScope { unit, relation, salt: self.shard_salt(&release.run) };
        Ok(Permit::mint(event.clone(), release, scope).with_fallback(fallback.cloned()))
    }
}

/// What a visit releases.
#[derive(Debug, Clone, Copy)]
pub struct Visit<'e> {
    /// What is released: where it is one of several sites' parts of a sum, what the *sum* is. Charged to the budget.
    pub event: &'e DpEvent,
    /// For a part of a sum: what the part is to anyone who knows all others. Compared with [`Budget::max_fallback`](crate::ledger::Budget::max_fallback).
    pub fallback: Option<&'e DpEvent>,
}

impl<'e> From<&'e DpEvent> for Visit<'e> {
    fn from(event: &'e DpEvent) -> Self {
        Self { event, fallback: None }
    }
}

impl<'e> From<(&'e DpEvent, Option<&'e DpEvent>)> for Visit<'e> {
    fn from((event, fallback): (&'e DpEvent, Option<&'e DpEvent>)) -> Self {
        Self { event, fallback }
    }
}

/// Permits that this process gave out, whichever handle to a ledger's file gave them.
struct Minted(MutexGuard<'static, BTreeMap<PathBuf, BTreeSet<ReleaseId>>>);

static MINTED: Mutex<BTreeMap<PathBuf, BTreeSet<ReleaseId>>> = Mutex::new(BTreeMap::new());

impl Minted {
    fn lock() -> Self {
        // Nothing below leaves the set half-changed.
        Self(MINTED.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has(&self, place: &Path, release: &ReleaseId) -> bool {
        self.0.get(place).is_some_and(|minted| minted.contains(release))
    }

    fn insert(&mut self, place: PathBuf, release: ReleaseId) {
        self.0.entry(place).or_default().insert(release);
    }
}

/// Forgets what this process minted from the ledger at `place`, as a restart would: for `danger`.
pub(crate) fn forget(place: &Path) {
    let place = place.canonicalize().unwrap_or_else(|_| place.to_path_buf());
    Minted::lock().0.remove(&place);
}
