//! What the rows add up to: states of releases and totals of charges, as a pure function of the rows.

use std::collections::BTreeMap;

use crate::ledger::error::LedgerError;
use crate::ledger::reserve::MOST_RETRIES;
use crate::ledger::row::{FreezeState, RowBody};
use crate::ledger::stage::ReleaseState;
use crate::ledger::store::StoreError;
use crate::release::{Hash, ReleaseId, RunId};
use dp_pvi_accounting::adjacency::Relation;
use dp_pvi_accounting::event::DpEvent;
use dp_pvi_accounting::{Composition, Prices};

/// Hash of a factor's bytes, as in a SETTLED row.
pub(crate) fn factor_hash(bytes: &[u8]) -> Hash {
    Hash::of("dp-pvi ledger factor v1", &[bytes])
}

/// A charged release.
pub(crate) struct Reservation {
    event: Vec<u8>,
    fallback: Option<Vec<u8>>,
    header: Hash,
    state: ReleaseState,
    attachment: Option<Hash>,
    retries: u32,
    order: usize,
}

impl Reservation {
    /// Whether it was made for these events and this header.
    pub(crate) fn matches(&self, event: &[u8], fallback: Option<&[u8]>, header: Hash) -> bool {
        self.event == event && self.fallback.as_deref() == fallback && self.header == header
    }

    /// How often a permit was given out again.
    pub(crate) fn retries(&self) -> u32 {
        self.retries
    }

    /// Hash of the header that asked for it.
    pub(crate) fn header(&self) -> Hash {
        self.header
    }
}

/// States and totals.
pub(crate) struct Totals {
    releases: BTreeMap<ReleaseId, Reservation>,
    total: Composition,
    runs: BTreeMap<RunId, Composition>,
    /// The same with the fallback in place of an aggregated sum.
    fallback_total: Composition,
    fallback_runs: BTreeMap<RunId, Composition>,
    factors: BTreeMap<RunId, Hash>,
    prices: Prices,
    frozen: FreezeState,
    units: Option<String>,
}

impl Totals {
    pub(crate) fn new(relation: Relation) -> Self {
        Self {
            releases: BTreeMap::new(),
            total: Composition::default(),
            runs: BTreeMap::new(),
            fallback_total: Composition::default(),
            fallback_runs: BTreeMap::new(),
            factors: BTreeMap::new(),
            prices: Prices::new(relation),
            frozen: FreezeState::Open,
            units: None,
        }
    }

    pub(crate) fn state(&self, release: &ReleaseId) -> Option<ReleaseState> {
        self.releases.get(release).map(|r| r.state)
    }

    pub(crate) fn reservation(&self, release: &ReleaseId) -> Option<&Reservation> {
        self.releases.get(release)
    }

    pub(crate) fn attachment(&self, release: &ReleaseId) -> Option<Hash> {
        self.releases.get(release).and_then(|r| r.attachment)
    }

    pub(crate) fn attachments(&self) -> Vec<(ReleaseId, Hash)> {
        self.releases.iter().filter_map(|(id, r)| Some((id.clone(), r.attachment?))).collect()
    }

    pub(crate) fn factor(&self, run: &RunId) -> Option<Hash> {
        self.factors.get(run).copied()
    }

    pub(crate) fn factors(&self) -> Vec<(RunId, Hash)> {
        self.factors.iter().map(|(run, hash)| (*run, *hash)).collect()
    }

    pub(crate) fn total(&self) -> &Composition {
        &self.total
    }

    pub(crate) fn run(&self, run: &RunId) -> Composition {
        self.runs.get(run).cloned().unwrap_or_default()
    }

    pub(crate) fn fallback_total(&self) -> &Composition {
        &self.fallback_total
    }

    pub(crate) fn fallback_run(&self, run: &RunId) -> Composition {
        self.fallback_runs.get(run).cloned().unwrap_or_default()
    }

    pub(crate) fn frozen(&self) -> bool {
        self.frozen == FreezeState::Frozen
    }

    /// What a unit is, as last written down.
    pub(crate) fn units(&self) -> Option<&str> {
        self.units.as_deref()
    }

    pub(crate) fn unsettled(&self, run: &RunId) -> Vec<(ReleaseId, ReleaseState)> {
        let mut open: Vec<_> = self
            .releases
            .iter()
            .filter(|(id, r)| id.run == *run && !matches!(r.state, ReleaseState::Settled { .. }))
            .map(|(id, r)| (r.order, id.clone(), r.state))
            .collect();
        open.sort_by_key(|(order, ..)| *order);
        open.into_iter().map(|(_, id, state)| (id, state)).collect()
    }

    /// Releases that are charged and not committed, in all runs.
    pub(crate) fn reserved(&self) -> Vec<ReleaseId> {
        self.releases.iter().filter(|(_, r)| r.state == ReleaseState::Reserved).map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn prices(&self) -> &Prices {
        &self.prices
    }

    pub(crate) fn prices_mut(&mut self) -> &mut Prices {
        &mut self.prices
    }

    /// Books a row that follows the ones before; a row that cannot follow them is damage.
    pub(crate) fn apply(&mut self, body: &RowBody) -> Result<(), LedgerError> {
        match body {
            RowBody::Genesis(..) => Err(corrupt("a second first row")),
            RowBody::Reserved { release, event, header, fallback } => self.reserve(release, event, fallback.as_deref(), *header),
            RowBody::Retried { release } => {
                let few = self.reservation(release).is_some_and(|known| known.retries < MOST_RETRIES);
                let reservation = self.step(release, ReleaseState::Reserved, |state| state == ReleaseState::Reserved && few)?;
                reservation.retries += 1;
                Ok(())
            }
            RowBody::Committed { release, attachment } => {
                self.step(release, ReleaseState::Committed, |state| state == ReleaseState::Reserved)?.attachment = Some(*attachment);
                Ok(())
            }
            RowBody::Sent { release } => self.step(release, ReleaseState::Sent, |state| state == ReleaseState::Committed).map(drop),
            RowBody::Receipted { release, .. } => {
                self.step(release, ReleaseState::Receipted, |state| state == ReleaseState::Sent).map(drop)
            }
            RowBody::Settled { release, included, factor } => {
                let allowed = |state| match state {
                    ReleaseState::Settled { .. } => false,
                    // What never left cannot be in the posterior.
                    ReleaseState::Reserved => !included,
                    ReleaseState::Committed | ReleaseState::Sent | ReleaseState::Receipted => true,
                };
                self.step(release, ReleaseState::Settled { included: *included }, allowed)?;
                self.factors.insert(release.run, *factor);
                Ok(())
            }
            RowBody::Frozen(state) => {
                self.frozen = *state;
                Ok(())
            }
            RowBody::Units(words) => {
                self.units = Some(words.clone());
                Ok(())
            }
        }
    }

    fn reserve(&mut self, release: &ReleaseId, bytes: &[u8], fallback: Option<&[u8]>, header: Hash) -> Result<(), LedgerError> {
        if self.releases.contains_key(release) {
            return Err(corrupt("a release that is charged twice"));
        }
        let read = |bytes| DpEvent::from_bytes(bytes).map_err(|_| corrupt("an event that this version does not know"));
        let charge = self.prices.learn(&read(bytes)?)?;
        let worst = match fallback {
            Some(fallback) => self.prices.learn(&read(fallback)?)?,
            None => charge.clone(),
        };
        self.total.add(&charge, 1);
        self.runs.entry(release.run).or_default().add(&charge, 1);
        self.fallback_total.add(&worst, 1);
        self.fallback_runs.entry(release.run).or_default().add(&worst, 1);
        let order = self.releases.len();
        let fallback = fallback.map(<[u8]>::to_vec);
        let reservation =
            Reservation { event: bytes.to_vec(), fallback, header, state: ReleaseState::Reserved, attachment: None, retries: 0, order };
        self.releases.insert(release.clone(), reservation);
        Ok(())
    }

    fn step(
        &mut self,
        release: &ReleaseId,
        to: ReleaseState,
        allowed: impl Fn(ReleaseState) -> bool,
    ) -> Result<&mut Reservation, LedgerError> {
        let reservation =
            self.releases.get_mut(release).filter(|r| allowed(r.state)).ok_or_else(|| corrupt("a step that cannot follow"))?;
        reservation.state = to;
        Ok(reservation)
    }
}

fn corrupt(what: &str) -> LedgerError {
    StoreError::Corrupt(format!("its rows hold {what}")).into()
}
