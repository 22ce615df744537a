//! What the rows add up to: states of releases and totals of charges, as a pure function of the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::error::LedgerError;
use crate::ledger::row::{FreezeState, PlannedEvents, RowBody};
use crate::ledger::stage::{MOST_RETRIES, ReleaseState};
use crate::ledger::store::StoreError;
use dp_pvi_accounting::adjacency::Relation;
use dp_pvi_accounting::event::DpEvent;
use dp_pvi_accounting::unit::Delta;
use dp_pvi_accounting::{Charge, Envelope, Prices, RunCost, Runs};
use dp_pvi_names::{Hash, ReleaseId, RunId};

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
    total: Runs,
    runs: BTreeMap<RunId, Runs>,
    /// The same with the fallback in place of an aggregated sum.
    fallback_total: Runs,
    fallback_runs: BTreeMap<RunId, Runs>,
    /// Visits of planned runs that were not reserved yet.
    left: BTreeMap<RunId, Left>,
    factors: BTreeMap<RunId, Hash>,
    prices: Prices,
    frozen: FreezeState,
    units: Option<String>,
    /// Whether the ledger was ever put back from a copy: then nothing is given back.
    restored: bool,
    /// Runs of which visits were renounced.
    renounced: BTreeSet<RunId>,
    /// What the records of a run are.
    records: BTreeMap<RunId, Hash>,
}

impl Totals {
    pub(crate) fn new(relation: Relation) -> Self {
        Self {
            releases: BTreeMap::new(),
            total: Runs::default(),
            runs: BTreeMap::new(),
            fallback_total: Runs::default(),
            fallback_runs: BTreeMap::new(),
            left: BTreeMap::new(),
            factors: BTreeMap::new(),
            prices: Prices::new(relation),
            frozen: FreezeState::Open,
            units: None,
            restored: false,
            renounced: BTreeSet::new(),
            records: BTreeMap::new(),
        }
    }

    /// What these events would be charged as, together.
    pub(crate) fn priced(&self, events: &[(DpEvent, u64)], delta: Delta) -> Result<Priced, LedgerError> {
        // One envelope of a run is for both sums.
        self.priced_after(events, delta, self.total.envelope().failure.max(self.fallback_total.envelope().failure))
    }

    /// The same where the φ of all runs come to `failure`.
    pub(crate) fn priced_after(&self, events: &[(DpEvent, u64)], delta: Delta, failure: f64) -> Result<Priced, LedgerError> {
        let cost = RunCost::of(events, &self.prices, delta)?;
        let envelope = cost.envelope_after(failure);
        Ok(Priced { cost, envelope })
    }

    /// Whether the run has sums of several sites, whose fallback costs something else.
    pub(crate) fn is_aggregated(&self, run: &RunId) -> bool {
        self.releases.iter().any(|(release, known)| release.run == *run && known.fallback.is_some())
            || self.left.get(run).is_some_and(|left| left.fallback.is_some())
    }

    /// Whether a plan with or without a fallback could follow: all plans of a run are aggregated, or none is.
    pub(crate) fn may_follow(&self, run: &RunId, aggregated: bool) -> bool {
        self.left.get(run).is_none_or(|left| left.fallback.is_some() == aggregated)
    }

    /// Whether the run was charged as a whole.
    pub(crate) fn is_planned(&self, run: &RunId) -> bool {
        self.left.contains_key(run)
    }

    /// Whether visits of these events, and for an aggregated run of these fallbacks, are paid for already.
    pub(crate) fn covers(&self, run: &RunId, events: &[(DpEvent, u64)], fallback: Option<&[(DpEvent, u64)]>) -> bool {
        self.left.get(run).is_some_and(|left| left.has(&counted(events), fallback.map(counted).as_ref()))
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

    pub(crate) fn total(&self) -> &Runs {
        &self.total
    }

    pub(crate) fn run(&self, run: &RunId) -> Runs {
        self.runs.get(run).cloned().unwrap_or_default()
    }

    pub(crate) fn fallback_total(&self) -> &Runs {
        &self.fallback_total
    }

    pub(crate) fn fallback_run(&self, run: &RunId) -> Runs {
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

    /// Whether a run was charged as a whole and has visits left.
    pub(crate) fn has_visits_left(&self, run: &RunId) -> bool {
        self.left.get(run).is_some_and(|left| !left.is_done())
    }

    /// Runs that were charged as a whole and have visits left.
    pub(crate) fn open_plans(&self) -> u64 {
        self.left.values().filter(|left| !left.is_done()).count() as u64
    }

    /// Releases that are charged and not committed, in all runs.
    pub(crate) fn reserved(&self) -> Vec<ReleaseId> {
        self.all_in(&[ReleaseState::Reserved])
    }

    /// The releases in one of these states.
    pub(crate) fn all_in(&self, states: &[ReleaseState]) -> Vec<ReleaseId> {
        self.releases.iter().filter(|(_, r)| states.contains(&r.state)).map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn records(&self, run: &RunId) -> Option<Hash> {
        self.records.get(run).copied()
    }

    pub(crate) fn was_renounced(&self, run: &RunId) -> bool {
        self.renounced.contains(run)
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
            RowBody::Planned { run, delta, joint, fallback } => self.plan(*run, *delta, joint, fallback.as_ref()),
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
            RowBody::Restored => {
                if !self.reserved().is_empty() {
                    return Err(corrupt("a ledger that was restored with open reservations"));
                }
                self.left.retain(|_, left| left.is_done());
                self.restored = true;
                Ok(())
            }
            RowBody::Records { run, of } => match self.records.insert(*run, *of) {
                None => Ok(()),
                Some(_) => Err(corrupt("a run with two sets of records")),
            },
            RowBody::Renounced { run } => {
                let first = self.renounced.insert(*run);
                if first && !self.left.contains_key(run) {
                    // Given up before anything was planned.
                    return Ok(());
                }
                self.renounce(run).map(drop)
            }
        }
    }

    fn reserve(&mut self, release: &ReleaseId, bytes: &[u8], fallback: Option<&[u8]>, header: Hash) -> Result<(), LedgerError> {
        if self.releases.contains_key(release) {
            return Err(corrupt("a release that is charged twice"));
        }
        self.take(&release.run, bytes, fallback)?;
        let order = self.releases.len();
        let fallback = fallback.map(<[u8]>::to_vec);
        let reservation =
            Reservation { event: bytes.to_vec(), fallback, header, state: ReleaseState::Reserved, attachment: None, retries: 0, order };
        self.releases.insert(release.clone(), reservation);
        Ok(())
    }

    /// Adds what a run is charged as.
    fn book(&mut self, run: RunId, joint: &Priced, fallback: &Priced) {
        joint.add_to(&mut self.total);
        fallback.add_to(&mut self.fallback_total);
        joint.add_to(self.runs.entry(run).or_default());
        fallback.add_to(self.fallback_runs.entry(run).or_default());
    }

    /// Books a run as a whole: as what its row states, or as more where that does not cover it any more.
    fn plan(&mut self, run: RunId, delta: Delta, joint: &PlannedEvents, fallback: Option<&PlannedEvents>) -> Result<(), LedgerError> {
        let mut booked = |planned: &PlannedEvents| -> Result<Priced, LedgerError> {
            let mut events = Vec::new();
            for (event, times) in &planned.events {
                let event = read(event)?;
                self.prices.learn(&event)?;
                events.push((event, *times));
            }
            let cost = RunCost::of(&events, &self.prices, delta)?;
            let envelope = match planned.envelope {
                Some((mu_squared, failure)) => {
                    let stated = Envelope::from_parts(mu_squared, failure).ok_or_else(|| corrupt("an envelope of impossible numbers"))?;
                    cost.confirmed(stated)
                }
                None => None,
            };
            Ok(Priced { cost, envelope })
        };
        let priced = booked(joint)?;
        let worst = fallback.map(&mut booked).transpose()?;
        self.book(run, &priced, worst.as_ref().unwrap_or(&priced));
        let left = self.left.entry(run).or_insert_with(|| Left { joint: BTreeMap::new(), fallback: fallback.map(|_| BTreeMap::new()) });
        let add = |left: &mut BTreeMap<Vec<u8>, u64>, planned: &PlannedEvents| {
            for (event, times) in &planned.events {
                let sum = left.entry(event.clone()).or_default();
                *sum = sum.saturating_add(*times);
            }
        };
        add(&mut left.joint, joint);
        match (&mut left.fallback, fallback) {
            (Some(left), Some(planned)) => add(left, planned),
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => return Err(corrupt("a run that is aggregated in part")),
        }
        Ok(())
    }

    /// What is left of a run's plan, which no visit will ever take; and the μ² that comes back, of both sums.
    fn renounce(&mut self, run: &RunId) -> Result<(f64, f64), LedgerError> {
        let Some(left) = self.left.remove(run) else { return Err(corrupt("a plan that is renounced and is none")) };
        if self.restored {
            return Ok((0.0, 0.0));
        }
        let visits = |left: &BTreeMap<Vec<u8>, u64>| -> Result<Vec<(Charge, u64)>, LedgerError> {
            left.iter().filter(|(_, times)| **times > 0).map(|(event, times)| Ok((self.prices.of(&read(event)?)?, *times))).collect()
        };
        let joint = visits(&left.joint)?;
        let worst = left.fallback.as_ref().map(visits).transpose()?;
        let back = self.total.renounce(&joint);
        Ok((back, self.fallback_total.renounce(worst.as_ref().unwrap_or(&joint))))
    }

    /// A visit of a planned run.
    fn take(&mut self, run: &RunId, event: &[u8], fallback: Option<&[u8]>) -> Result<(), LedgerError> {
        let one = |event: &[u8]| BTreeMap::from([(event.to_vec(), 1)]);
        let left = self.left.get_mut(run).filter(|left| left.has(&one(event), fallback.map(one).as_ref()));
        let left = left.ok_or_else(|| corrupt("a visit that its run does not have"))?;
        let take = |left: &mut BTreeMap<Vec<u8>, u64>, event: &[u8]| {
            if let Some(times) = left.get_mut(event) {
                *times -= 1;
            }
        };
        take(&mut left.joint, event);
        if let (Some(left), Some(event)) = (&mut left.fallback, fallback) {
            take(left, event);
        }
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

/// Visits that are left, by their events.
struct Left {
    joint: BTreeMap<Vec<u8>, u64>,
    /// Of aggregated runs.
    fallback: Option<BTreeMap<Vec<u8>, u64>>,
}

impl Left {
    /// Whether every visit was reserved.
    fn is_done(&self) -> bool {
        self.joint.values().all(|times| *times == 0)
    }

    /// Whether so many visits of these events and fallbacks are left.
    fn has(&self, joint: &BTreeMap<Vec<u8>, u64>, fallback: Option<&BTreeMap<Vec<u8>, u64>>) -> bool {
        let within = |left: &BTreeMap<Vec<u8>, u64>, wanted: &BTreeMap<Vec<u8>, u64>| {
            wanted.iter().all(|(event, times)| left.get(event).is_some_and(|left| left >= times))
        };
        within(&self.joint, joint)
            && match (fallback, &self.fallback) {
                (Some(wanted), Some(left)) => within(left, wanted),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            }
    }
}

/// A run as it is charged.
pub(crate) struct Priced {
    cost: Arc<RunCost>,
    pub(crate) envelope: Option<Envelope>,
}

impl Priced {
    /// Whether a release without protection is in it.
    pub(crate) fn non_private(&self) -> bool {
        self.cost.non_private()
    }

    pub(crate) fn add_to(&self, sum: &mut Runs) {
        sum.add(&self.cost, self.envelope);
    }
}

/// Events by their bytes, each with how often it comes.
fn counted(events: &[(DpEvent, u64)]) -> BTreeMap<Vec<u8>, u64> {
    let mut counted: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (event, times) in events {
        let sum = counted.entry(event.to_bytes()).or_default();
        *sum = sum.saturating_add(*times);
    }
    counted
}

fn read(bytes: &[u8]) -> Result<DpEvent, LedgerError> {
    DpEvent::from_bytes(bytes).map_err(|_| corrupt("an event that this version does not know"))
}

fn corrupt(what: &str) -> LedgerError {
    StoreError::Corrupt(format!("its rows hold {what}")).into()
}
