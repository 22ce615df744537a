//! What the rows add up to: states of releases and totals of charges, as a pure function of the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::error::LedgerError;
use crate::ledger::row::{FreezeState, PlannedEvents, RowBody};
use crate::ledger::stage::{MOST_RETRIES, ReleaseState};
use crate::ledger::store::StoreError;
use crate::release::{Hash, ReleaseId, RunId};
use dp_pvi_accounting::adjacency::Relation;
use dp_pvi_accounting::event::DpEvent;
use dp_pvi_accounting::unit::{Delta, Epsilon};
use dp_pvi_accounting::{Charge, Composition, Envelope, FilterRule, Prices, PrivacyLoss, RunCost, Runs};

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
    rule: FilterRule,
    releases: BTreeMap<ReleaseId, Reservation>,
    total: Sum,
    runs: BTreeMap<RunId, Sum>,
    /// The same with the fallback in place of an aggregated sum.
    fallback_total: Sum,
    fallback_runs: BTreeMap<RunId, Sum>,
    /// Visits of planned runs that were not reserved yet.
    left: BTreeMap<RunId, Left>,
    factors: BTreeMap<RunId, Hash>,
    prices: Prices,
    frozen: FreezeState,
    units: Option<String>,
    /// Whether the ledger was ever put back from a copy: then nothing is given back.
    restored: bool,
}

impl Totals {
    pub(crate) fn new(relation: Relation) -> Self {
        let rule = FilterRule::FirstCharge;
        Self {
            rule,
            releases: BTreeMap::new(),
            total: Sum::new(rule),
            runs: BTreeMap::new(),
            fallback_total: Sum::new(rule),
            fallback_runs: BTreeMap::new(),
            left: BTreeMap::new(),
            factors: BTreeMap::new(),
            prices: Prices::new(relation),
            frozen: FreezeState::Open,
            units: None,
            restored: false,
        }
    }

    /// Takes the rule that the first row names, before anything is booked.
    pub(crate) fn under(&mut self, rule: FilterRule) {
        self.rule = rule;
        (self.total, self.fallback_total) = (Sum::new(rule), Sum::new(rule));
    }

    /// What these events would be charged as, together.
    pub(crate) fn priced(&self, events: &[(DpEvent, u64)], delta: Delta) -> Result<Priced, LedgerError> {
        self.priced_after(events, delta, self.failure())
    }

    /// The same where the φ of all runs come to `failure`.
    pub(crate) fn priced_after(&self, events: &[(DpEvent, u64)], delta: Delta, failure: f64) -> Result<Priced, LedgerError> {
        Ok(match self.rule {
            FilterRule::Envelopes => {
                let cost = RunCost::of(events, &self.prices, delta)?;
                let envelope = cost.envelope_after(failure);
                Priced::Run(cost, envelope)
            }
            FilterRule::Unnamed | FilterRule::FirstCharge => {
                let priced = events.iter().map(|(event, times)| Ok((self.prices.of(event)?, *times)));
                Priced::Each(priced.collect::<Result<_, LedgerError>>()?)
            }
        })
    }

    /// What the φ of all runs come to, in the sum where that is more: one envelope of a run is for both.
    fn failure(&self) -> f64 {
        self.total.failure().max(self.fallback_total.failure())
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

    /// Whether visits of these events are paid for already.
    pub(crate) fn covers(&self, run: &RunId, events: &[(DpEvent, u64)]) -> bool {
        self.left.get(run).is_some_and(|left| has(&left.joint, events))
    }

    /// The same of what a site's own parts of aggregated sums are.
    pub(crate) fn covers_fallback(&self, run: &RunId, events: &[(DpEvent, u64)]) -> bool {
        self.left.get(run).and_then(|left| left.fallback.as_ref()).is_some_and(|left| has(left, events))
    }

    /// Whether a visit of this event and fallback is paid for already.
    pub(crate) fn covers_visit(&self, run: &RunId, event: &[u8], fallback: Option<&[u8]>) -> bool {
        let Some(left) = self.left.get(run) else { return false };
        let one = |left: &BTreeMap<Vec<u8>, u64>, event: &[u8]| left.get(event).is_some_and(|times| *times > 0);
        one(&left.joint, event)
            && match (fallback, &left.fallback) {
                (Some(fallback), Some(own)) => one(own, fallback),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
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

    pub(crate) fn total(&self) -> &Sum {
        &self.total
    }

    pub(crate) fn run(&self, run: &RunId) -> Sum {
        self.runs.get(run).cloned().unwrap_or_else(|| Sum::new(self.rule))
    }

    pub(crate) fn fallback_total(&self) -> &Sum {
        &self.fallback_total
    }

    pub(crate) fn fallback_run(&self, run: &RunId) -> Sum {
        self.fallback_runs.get(run).cloned().unwrap_or_else(|| Sum::new(self.rule))
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
            RowBody::Renounced { run } => self.renounce(run).map(drop),
        }
    }

    fn reserve(&mut self, release: &ReleaseId, bytes: &[u8], fallback: Option<&[u8]>, header: Hash) -> Result<(), LedgerError> {
        if self.releases.contains_key(release) {
            return Err(corrupt("a release that is charged twice"));
        }
        if self.rule == FilterRule::Envelopes {
            self.take(&release.run, bytes, fallback)?;
        } else {
            let charge = self.prices.learn(&read(bytes)?)?;
            let worst = match fallback {
                Some(fallback) => self.prices.learn(&read(fallback)?)?,
                None => charge.clone(),
            };
            self.book(release.run, &Priced::Each(vec![(charge, 1)]), &Priced::Each(vec![(worst, 1)]))?;
        }
        let order = self.releases.len();
        let fallback = fallback.map(<[u8]>::to_vec);
        let reservation =
            Reservation { event: bytes.to_vec(), fallback, header, state: ReleaseState::Reserved, attachment: None, retries: 0, order };
        self.releases.insert(release.clone(), reservation);
        Ok(())
    }

    /// Adds what a run is charged as.
    fn book(&mut self, run: RunId, joint: &Priced, fallback: &Priced) -> Result<(), LedgerError> {
        self.total.add(joint)?;
        self.fallback_total.add(fallback)?;
        self.runs.entry(run).or_insert_with(|| Sum::new(self.rule)).add(joint)?;
        self.fallback_runs.entry(run).or_insert_with(|| Sum::new(self.rule)).add(fallback)
    }

    /// Books a run as a whole: as what its row states, or as more where that does not cover it any more.
    fn plan(&mut self, run: RunId, delta: Delta, joint: &PlannedEvents, fallback: Option<&PlannedEvents>) -> Result<(), LedgerError> {
        if self.rule != FilterRule::Envelopes {
            return Err(corrupt("a whole run in a ledger of single visits"));
        }
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
            Ok(Priced::Run(cost, envelope))
        };
        let priced = booked(joint)?;
        let worst = fallback.map(&mut booked).transpose()?;
        self.book(run, &priced, worst.as_ref().unwrap_or(&priced))?;
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
        if !self.covers_visit(run, event, fallback) {
            return Err(corrupt("a visit that its run does not have"));
        }
        let one = |left: &mut BTreeMap<Vec<u8>, u64>, event: &[u8]| {
            if let Some(times) = left.get_mut(event) {
                *times -= 1;
            }
        };
        if let Some(left) = self.left.get_mut(run) {
            one(&mut left.joint, event);
            if let (Some(left), Some(event)) = (&mut left.fallback, fallback) {
                one(left, event);
            }
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
}

/// Events that are charged together.
#[derive(Clone)]
pub(crate) enum Priced {
    /// Each by itself, by how often it comes.
    Each(Vec<(Charge, u64)>),
    /// As a run with this envelope.
    Run(Arc<RunCost>, Option<Envelope>),
}

impl Priced {
    /// The envelope of a run.
    pub(crate) fn envelope(&self) -> Option<Envelope> {
        match self {
            Self::Each(_) => None,
            Self::Run(_, envelope) => *envelope,
        }
    }

    /// Whether a release without protection is in it.
    pub(crate) fn non_private(&self) -> bool {
        match self {
            Self::Each(charges) => charges.iter().any(|(charge, _)| charge.is_non_private()),
            Self::Run(cost, _) => cost.non_private(),
        }
    }
}

/// What is booked, under a rule.
#[derive(Clone)]
pub(crate) enum Sum {
    Each(Box<Composition>),
    Runs(Runs),
}

impl Sum {
    fn new(rule: FilterRule) -> Self {
        match rule {
            FilterRule::Envelopes => Self::Runs(Runs::default()),
            FilterRule::Unnamed | FilterRule::FirstCharge => Self::Each(Box::default()),
        }
    }

    /// Adds what was priced under the same rule.
    pub(crate) fn add(&mut self, priced: &Priced) -> Result<(), LedgerError> {
        match (self, priced) {
            (Self::Each(sum), Priced::Each(charges)) => charges.iter().for_each(|(charge, times)| sum.add(charge, *times)),
            (Self::Runs(runs), Priced::Run(cost, envelope)) => runs.add(cost, *envelope),
            (Self::Each(_), Priced::Run(..)) | (Self::Runs(_), Priced::Each(_)) => {
                return Err(corrupt("prices of another rule than the first row's"));
            }
        }
        Ok(())
    }

    /// Gives back what will never be released; nothing where visits are added up.
    fn renounce(&mut self, visits: &[(Charge, u64)]) -> f64 {
        match self {
            Self::Each(_) => 0.0,
            Self::Runs(runs) => runs.renounce(visits),
        }
    }

    /// What the φ of all runs come to; nothing where visits are added up.
    pub(crate) fn failure(&self) -> f64 {
        match self {
            Self::Each(_) => 0.0,
            Self::Runs(runs) => runs.envelope().failure,
        }
    }

    pub(crate) fn non_private(&self) -> bool {
        match self {
            Self::Each(sum) => sum.non_private(),
            Self::Runs(runs) => runs.non_private(),
        }
    }

    /// What the filter compares with this limit, releases without protection left out: above it if and only if the filter would not have admitted them, each at its
    /// time.
    pub(crate) fn admitted(&self, limit: Epsilon, delta: Delta) -> PrivacyLoss {
        match self {
            Self::Each(sum) => sum.protected_filtered(limit, delta),
            Self::Runs(runs) => runs.protected_loss(delta),
        }
    }

    /// What is spent of this limit; ε = ∞ with a release without protection.
    pub(crate) fn filtered(&self, limit: Epsilon, delta: Delta) -> PrivacyLoss {
        match self {
            Self::Each(sum) => sum.filtered(limit, delta),
            Self::Runs(runs) => runs.spent(limit, delta),
        }
    }

    /// What it costs if all of it was fixed beforehand.
    pub(crate) fn loss(&self, delta: Delta) -> PrivacyLoss {
        match self {
            Self::Each(sum) => sum.loss(delta),
            Self::Runs(runs) => runs.loss(delta),
        }
    }
}

/// Whether so many visits of these events are left.
fn has(left: &BTreeMap<Vec<u8>, u64>, events: &[(DpEvent, u64)]) -> bool {
    let mut wanted: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (event, times) in events {
        let sum = wanted.entry(event.to_bytes()).or_default();
        *sum = sum.saturating_add(*times);
    }
    wanted.iter().all(|(event, times)| left.get(event).is_some_and(|left| left >= times))
}

fn read(bytes: &[u8]) -> Result<DpEvent, LedgerError> {
    DpEvent::from_bytes(bytes).map_err(|_| corrupt("an event that this version does not know"))
}

fn corrupt(what: &str) -> LedgerError {
    StoreError::Corrupt(format!("its rows hold {what}")).into()
}
