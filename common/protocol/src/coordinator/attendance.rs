//! Who is waited for, who has refused, and what that means for the run.
//!
//! * A site that said nothing for [`SILENT_ROUNDS`] rounds that asked it is still asked and still heard, and a round does not wait for it. How a
//!   round closed is in its entry ([`RoundOutcome::WithoutSilent`]), and that a site was silent follows from the records alone, so a
//!   restarted server waits for the same sites. Asynchronous rounds have a rule of their own, which drops a site after one missed deadline.
//! * If so many sites refused for good that too few are left, the run ends at once ([`RunOutcome::Refused`]), and the records have their public reasons.

use std::sync::Arc;

use crate::shape;
use crate::shape::{At, Shape};
use dp_pvi_names::{ClientId, Hash, PayloadKind};
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_privacy::mechanism::SumBound;

use super::run::{Open, Phase, Run};
use super::types::{MAX_RETURNS, SILENT_ROUNDS};
use super::{Coordinator, Member, Rejected};
use crate::bounds::{ENTRIES, ENTRIES_BYTES, entry_bytes};
use crate::message::{RefusalReason, Role, RoundOutcome, RunOutcome, TranscriptEntry, Update};
use crate::witness::{SignedHead, Witnessed};

impl Member {
    /// Whether rounds do not wait for it.
    #[must_use]
    pub(crate) fn is_silent(&self) -> bool {
        self.silent >= SILENT_ROUNDS
    }

    /// It spoke, and sent no update in time. Where no one waited for it one round waits for it again, [`MAX_RETURNS`] times until an update of it
    /// is in time: who is always late must not draw every round out to its deadline.
    pub(super) fn says_that_it_is_there(&mut self) {
        if self.is_silent() && self.returned < MAX_RETURNS {
            self.silent = SILENT_ROUNDS - 1;
            self.returned += 1;
        }
    }

    /// Its highest head, as the server of a later run is told.
    #[must_use]
    pub fn witnessed(&self) -> Option<Witnessed> {
        let head = self.head?;
        Some(Witnessed { head, signed: self.signed.clone().filter(|message| message.peek() == Some(head)) })
    }

    /// Keeps the message that a head was signed in, if it is the highest; of two about one head the one that says more.
    pub(super) fn keep_signed(&mut self, message: impl FnOnce() -> SignedHead) {
        let known = self.signed.as_ref().filter(|known| known.peek().is_some() && known.peek() == self.head);
        if known.is_some_and(SignedHead::is_update) {
            return;
        }
        let message = message();
        if known.is_some() && !message.is_update() {
            return;
        }
        // A head of an earlier run may be higher than that of a hello.
        self.signed = Some(message).filter(|message| message.peek() == self.head).or(self.signed.take());
    }
}

impl RefusalReason {
    /// Whether a site that withdrew with this reason is not expected back. Others are waited for until the start deadline: an operator
    /// approves or opens a data set that was frozen, a disk gets room.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Budget | Self::Policy | Self::Spent | Self::Visited | Self::Task => true,
            Self::Approval | Self::Frozen | Self::Unable | Self::Posterior => false,
        }
    }
}

impl Run {
    /// Whether rounds do not wait for this site.
    pub(super) fn is_silent(&self, client: &ClientId) -> bool {
        self.members.get(client).is_some_and(Member::is_silent)
    }

    /// A round is over: who said nothing although it was asked.
    pub(super) fn attend(&mut self, open: &Open, outcome: RoundOutcome) {
        let waited = matches!(outcome, RoundOutcome::Deadline | RoundOutcome::Skipped | RoundOutcome::WithoutSilent);
        if self.staleness().is_some() || !waited {
            return;
        }
        for client in &open.asked {
            let spoke = open.refused.contains(client) || self.receipts.get(client).is_some_and(|of| of.contains_key(&open.round));
            if let Some(member) = self.members.get_mut(client).filter(|member| !spoke && !member.withdrawn) {
                member.silent = member.silent.saturating_add(1);
            }
        }
    }
}

impl Coordinator {
    /// Fewest updates with which a round may close.
    pub(super) fn contributors_needed(&self) -> usize {
        let min_sites = self.run.task.min_sites.max(1);
        match &self.run.aggregation {
            Some(host) => min_sites.max(host.spec().min_contributors()) as usize,
            None if self.run.sequential() => 1,
            None => min_sites as usize,
        }
    }

    /// Whether so many of the enrolled sites have refused for good that the run cannot start.
    pub(super) fn too_many_refused(&self, enrolled: usize) -> bool {
        let refused = |client: &ClientId| {
            self.run
                .members
                .get(client)
                .is_some_and(|member| member.withdrawn && member.refused.is_some_and(|(_, reason)| reason.is_final()))
        };
        let refusing = self.sites().filter(|client| refused(client)).count();
        refusing > 0 && enrolled.saturating_sub(refusing) < self.sites_needed()
    }

    /// How a run ends that lost its sites: for the reason that is given, or because too many refused.
    pub(super) fn lost(&self, otherwise: RunOutcome) -> RunOutcome {
        let refusing = self.sites().filter(|client| self.refuses(client)).count();
        let left = self.sites().count().saturating_sub(refusing);
        if refusing > 0 && left < self.sites_needed() { RunOutcome::Refused } else { otherwise }
    }

    /// Whether a site's last word is a refusal: of the run, or of a round of the last sweep (of the last round, where all work at once).
    pub(super) fn refuses(&self, client: &ClientId) -> bool {
        let Some(member) = self.run.members.get(client) else { return false };
        let Some((round, _)) = member.refused else { return false };
        let turns = self.run.sweep.as_ref().map_or(1, |sweep| sweep.position.max(1));
        let since = self.run.rounds().saturating_sub(u32::try_from(turns).unwrap_or(u32::MAX));
        let lately = match self.run.staleness() {
            Some(_) => self.run.last_answer(client).is_none_or(|answered| answered < round),
            None => round >= since && round < self.run.rounds() && !self.run.receipts.get(client).is_some_and(|of| of.contains_key(&round)),
        };
        member.withdrawn || lately
    }

    /// Fewest sites without which the run has no sense.
    fn sites_needed(&self) -> usize {
        let min_sites = self.run.task.min_sites.max(1);
        match (&self.run.aggregation, &self.run.phase) {
            // All sites of the task sign the charter.
            (Some(host), Phase::New(_) | Phase::Gathering(_)) => host.spec().sites as usize,
            (Some(host), _) => min_sites.max(host.spec().min_contributors()) as usize,
            (None, _) => min_sites as usize,
        }
    }

    /// Enrolled sites.
    pub(super) fn sites(&self) -> impl Iterator<Item = &ClientId> {
        self.settings.clients.iter().filter(|(_, enrolled)| enrolled.role == Role::Site).map(|(client, _)| client)
    }

    /// How many of the entries that a client lacks go into one answer: as many as its bounds allow, and at least one.
    pub(super) fn first_entries(&self, lacking: &[Arc<TranscriptEntry>]) -> usize {
        let mut bytes = 0_usize;
        let fits = |entry: &&Arc<TranscriptEntry>| {
            bytes = bytes.saturating_add(entry_bytes(entry));
            bytes <= ENTRIES_BYTES
        };
        lacking.iter().take(ENTRIES).take_while(fits).count().max(lacking.len().min(1))
    }

    /// The message in which a site signed this head: of this run, or of an earlier one.
    pub(super) fn signed_head(&self, client: &ClientId, head: Option<LedgerHead>) -> Option<SignedHead> {
        let here = self.run.members.get(client).and_then(|member| member.signed.as_ref());
        let earlier = self.settings.witnessed.get(client).and_then(|seen| seen.signed.as_ref());
        let about = || [here, earlier].into_iter().flatten().filter(|message| message.peek() == head);
        about().find(|message| message.is_update()).or_else(|| about().next()).cloned()
    }

    /// What the lattice payload of a site that follows the protocol can be, by the units that it declared and the visit that it was asked for;
    /// `None` for payloads of other kinds.
    ///
    /// # Errors
    /// The bound of a lattice payload cannot be computed: the payload is not taken.
    pub(super) fn bound(&self, client: &ClientId, update: &Update) -> Result<Option<SumBound>, Rejected> {
        if !matches!(update.kind, PayloadKind::Lattice { .. }) {
            return Ok(None);
        }
        let units = self.run.members.get(client).and_then(|member| member.nominal_units).ok_or(Rejected::Unbounded("no declared units"))?;
        let sum = self.run.task.sum_of_site(self.visit_of(update)?, units).map_err(|_| Rejected::Unbounded("the numbers of its visit"))?;
        let bound = sum.and_then(|(event, terms)| SumBound::of_event(&event, terms));
        bound.map(Some).ok_or(Rejected::Unbounded("it is not one noised sum"))
    }

    /// What the payload of a site that follows the protocol can be beside that: by its units, the visit, the state of the round whose header it answers, and what it sent at its first
    /// visit, where that is known. `None` where no more is known.
    ///
    /// # Errors
    /// It cannot be computed: the payload is not taken.
    pub(crate) fn shape(&self, client: &ClientId, update: &Update, first: Option<&[f64]>) -> Result<Option<Arc<Shape>>, Rejected> {
        if matches!(update.kind, PayloadKind::Masked { .. }) {
            return Ok(None);
        }
        let units = self.run.members.get(client).and_then(|member| member.nominal_units).ok_or(Rejected::Unbounded("no declared units"))?;
        let state = self.run.state_of(update.release.round).ok_or(Rejected::UnknownRound)?;
        let shape = shape::of_site(&self.run.task, self.visit_of(update)?, units, At { state, first });
        Ok(shape.map_err(|_| Rejected::Unbounded("the numbers of its visit"))?.map(Arc::new))
    }

    /// The update that a site sent at its first visit, where that bounds its later ones and is in the posterior.
    pub(crate) fn first_update(&self, client: &ClientId) -> Option<Hash> {
        let informs = shape::first_visit_informs(&self.run.task) && self.run.aggregation.is_none();
        let first =
            self.run.entries.iter().take_while(|_| informs).find(|entry| entry.header.peek().is_ok_and(|header| header.visit == 0))?;
        first.included.iter().find(|(included, _)| included == client).map(|(_, update)| *update)
    }

    /// The coordinates that a lattice payload may fill where the task has effects of sites; `None`: all.
    ///
    /// # Errors
    /// The site is not in the task's list of sites.
    pub(super) fn places(&self, client: &ClientId, update: &Update) -> Result<Option<Arc<[u32]>>, Rejected> {
        if !matches!(update.kind, PayloadKind::Lattice { .. }) {
            return Ok(None);
        }
        let places = self.run.task.places_of_site(self.visit_of(update)?, client.as_str());
        Ok(places.map_err(|_| Rejected::OtherTask("the site is not in its list of sites"))?.map(Arc::from))
    }

    /// The visit that an update answers.
    fn visit_of(&self, update: &Update) -> Result<u32, Rejected> {
        match &self.run.phase {
            Phase::Open(open) if open.header_hash == update.header => Ok(open.visit),
            _ => Ok(self.run.entries.get(update.release.round as usize).ok_or(Rejected::UnknownRound)?.header.peek()?.visit),
        }
    }
}

#[cfg(test)]
mod tests;
