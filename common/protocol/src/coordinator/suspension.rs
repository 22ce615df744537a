//! What becomes of a run that loses its quorum: it is suspended, and goes on when sites return.
//!
//! * **In a round.** The open round stays open beyond its deadline, under the header that it has, and takes the updates that it would have taken
//!   before. So no visit is asked for twice, and no sum is made over two sets of sites. As soon as it has as many updates as it needs the run
//!   goes on, with a whole deadline for the others. A turn of a sequential run stays open where the sweep would have too few updates without it.
//! * **Between rounds.** No round opens until enough sites are there. A hello says that a site is.
//! * **The summer** of an aggregated run is waited for in the same way. The set of sites whose masks it is asked for does not change meanwhile.
//!
//! A suspended run ends when it was suspended for [`Settings::suspend_for`](super::Settings), by the operator, or when so many sites have refused for
//! good that no quorum can come back.

use dp_pvi_names::ClientId;

use super::run::{Open, Phase};
use super::{Closing, Control, Coordinator, Lack, Record, Upcoming};
use crate::aggregation::host::Host;
use crate::message::{Role, RoundOutcome, RunOutcome};
use crate::time::Timestamp;

/// Since when what is waited for is waited for, by the time that [`Coordinator::poll`] is given.
///
/// Not records: time counts only while this server could take an answer, so a restarted one gives every open deadline anew.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// The phase: sites, or updates of the open round.
    pub(super) phase: Option<Timestamp>,
    /// A suspended run's quorum.
    pub(super) suspended: Option<Timestamp>,
    /// The summer.
    pub(super) summer: Option<Timestamp>,
}

impl Waits {
    /// What a record begins is waited for from the next poll on.
    pub(super) fn follow(&mut self, record: &Record) {
        let begins = matches!(
            record,
            Record::RunOpened { .. }
                | Record::RoundOpened { .. }
                | Record::RoundClosed { .. }
                | Record::Resumed { .. }
                | Record::RunEnded { .. }
        );
        if begins {
            (self.phase, self.suspended) = (None, None);
        }
    }
}

/// Whether a run that lost its quorum may get it back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hope {
    /// Sites or the summer may come back.
    Some,
    /// So many have refused for good, or are not enrolled any more, that no quorum can come back.
    None,
}

impl Hope {
    fn of(hope: bool) -> Self {
        if hope { Self::Some } else { Self::None }
    }
}

impl Coordinator {
    /// Time was lost: this server was stopped, or its clock jumped. No one could answer meanwhile, so every open deadline begins anew.
    pub fn begin_anew(&mut self) {
        self.waits = Waits::default();
    }

    /// Notes since when what is waited for is waited for.
    pub(super) fn begin_waits(&mut self, now: Timestamp) {
        self.waits.phase.get_or_insert(now);
        if self.run.suspended.is_some() {
            self.waits.suspended.get_or_insert(now);
        }
    }

    /// Whether the open round is waited for no longer.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        // A suspended round was due before.
        self.run.suspended.is_some() || self.round_deadline().is_some_and(|deadline| now >= deadline)
    }

    /// When the open round closes at the latest.
    pub(super) fn round_deadline(&self) -> Option<Timestamp> {
        self.waits.phase.map(|since| since.plus(self.update_deadline()))
    }

    /// When a suspended run ends. Not while an operator has paused it.
    pub(super) fn suspended_until(&self) -> Option<Timestamp> {
        let since = self.waits.suspended.filter(|_| self.run.suspended.is_some() && self.run.control != Control::Paused)?;
        Some(since.plus(self.settings.suspend_for))
    }

    fn suspended_too_long(&self, now: Timestamp) -> bool {
        self.suspended_until().is_some_and(|until| now >= until)
    }

    /// Whether the open round is over, and how, in a run that may be suspended.
    pub(super) fn closed(&self, open: &Open, now: Timestamp) -> Closing {
        let lack = match self.closing(open, now) {
            Closing::Lost(lack) => lack,
            Closing::No => return Closing::No,
            // No one else's time was up while the run was suspended: they have a whole deadline from here.
            Closing::Records(_) | Closing::Sum(_) if self.run.suspended.is_some() => {
                return Closing::Records(vec![Record::Resumed { at: now }]);
            }
            closing => return closing,
        };
        Closing::Records(match self.hope_in(open, &lack) {
            Hope::Some if self.suspended_too_long(now) => self.given_up(open, now),
            Hope::Some if self.run.suspended.as_ref() == Some(&lack) => return Closing::No,
            Hope::Some => vec![Record::Suspended { lack, at: now }],
            // Later rounds may have what this one lacks.
            Hope::None if self.run.sequential() || self.run.staleness().is_some() => {
                vec![self.entry(open, self.unchanged(RoundOutcome::Skipped), now)]
            }
            Hope::None => self.given_up(open, now),
        })
    }

    /// Between rounds of a run without its quorum: suspends it, waits, or ends it.
    pub(super) fn without_quorum(&self, lack: Lack, hope: Hope, now: Timestamp) -> Vec<Record> {
        if hope == Hope::Some && !self.suspended_too_long(now) {
            let known = self.run.suspended.as_ref() == Some(&lack);
            return if known { Vec::new() } else { vec![Record::Suspended { lack, at: now }] };
        }
        vec![match lack {
            Lack::Sites(_) => self.end(self.lost(RunOutcome::QuorumLost), now),
            Lack::Summer => self.end(RunOutcome::AggregationLost, now),
        }]
    }

    /// What becomes of a run that has a round to open, or lacks the sites for it.
    pub(super) fn opened(&self, now: Timestamp) -> Vec<Record> {
        if self.run.control == Control::Paused {
            return Vec::new();
        }
        match self.upcoming() {
            Upcoming::End(outcome) => vec![self.end(outcome, now)],
            Upcoming::Lost => self.without_quorum(Lack::Sites(self.missing()), self.hope_between(), now),
            Upcoming::Round { .. } if matches!(self.run.suspended, Some(Lack::Sites(_))) => vec![Record::Resumed { at: now }],
            Upcoming::Round { visit, turn, asked } => match self.header_parts() {
                Some(_) if self.run.suspended.is_some() => vec![Record::Resumed { at: now }],
                Some(parts) => {
                    let header = self.header(turn, visit, self.run.task.update_deadline_seconds, parts);
                    vec![Record::RoundOpened { header, asked, at: now }]
                }
                None if self.run.suspended.is_some() || self.waited_too_long(now) => self.without_quorum(Lack::Summer, Hope::Some, now),
                None => Vec::new(),
            },
        }
    }

    /// Whether a suspended run waits for a word of this site although it has not left. A hello is one.
    pub(super) fn is_missed(&self, client: &ClientId) -> bool {
        self.run.suspended.is_some() && self.run.lagging.contains(client)
    }

    /// Whether a site of the run may answer a later round, or the open one, although it does not now.
    fn may_return(&self, client: &ClientId) -> bool {
        let left = |member: &super::Member| member.withdrawn && member.refused.is_some_and(|(_, reason)| reason.is_final());
        let enrolled = self.settings.clients.get(client).is_some_and(|enrolled| enrolled.role == Role::Site);
        enrolled && self.run.members.get(client).is_some_and(|member| !left(member))
    }

    /// Sites of the run that may return and would take part in no round now.
    fn missing(&self) -> Vec<ClientId> {
        let away = |client: &&ClientId| {
            let member = &self.run.members[*client];
            member.withdrawn || member.is_silent() || self.run.lagging.contains(*client)
        };
        self.members_that_may_return().filter(away).cloned().collect()
    }

    fn members_that_may_return(&self) -> impl Iterator<Item = &ClientId> {
        self.run.members.keys().filter(|client| self.may_return(client))
    }

    fn hope_between(&self) -> Hope {
        let needed = self.run.task.min_sites.max(1) as usize;
        Hope::of(match &self.run.sweep {
            Some(sweep) if sweep.position < sweep.order.len() || sweep.included < needed => {
                let left = sweep.order[sweep.position..].iter().filter(|client| self.may_return(client)).count();
                sweep.included + left >= needed
            }
            _ => self.members_that_may_return().count() >= needed,
        })
    }

    fn hope_in(&self, open: &Open, lack: &Lack) -> Hope {
        if *lack == Lack::Summer {
            return Hope::Some;
        }
        let waited = open.waiting().filter(|client| self.may_return(client)).count();
        Hope::of(if self.run.aggregation.as_ref().is_some_and(|host| host.closing().is_some()) {
            // The set is fixed, and one that was in it is left out.
            false
        } else if self.run.sequential() {
            waited > 0
        } else if self.run.staleness().is_some() {
            self.on_time_without(open) + waited >= self.run.task.min_sites.max(1) as usize
        } else {
            open.stored.len() + waited >= self.contributors_needed()
        })
    }

    /// Sites that an asynchronous run would still have if it waited no longer for those that the open round waits for.
    pub(super) fn on_time_without(&self, open: &Open) -> usize {
        let away = |client: &ClientId| self.run.lagging.contains(client) || open.waiting().any(|waiting| waiting == client);
        self.available().iter().filter(|client| !away(client)).count()
    }

    /// Whether a sweep keeps its quorum although the open turn brought nothing.
    pub(super) fn sweep_can_do_without(&self) -> bool {
        let Some(sweep) = &self.run.sweep else { return true };
        let available = self.available();
        let left = sweep.order.get(sweep.position + 1..).unwrap_or_default();
        let there = left.iter().filter(|client| available.contains(client) && !self.run.is_silent(client)).count();
        sweep.included + there >= self.run.task.min_sites as usize
    }

    /// The open round ends without its updates, and with it the run.
    fn given_up(&self, open: &Open, now: Timestamp) -> Vec<Record> {
        vec![self.aborted(open, now)]
    }

    /// What the run's end says beside its outcome: who broke it, as far as that is known.
    pub(super) fn reason(&self, outcome: RunOutcome) -> Option<String> {
        if outcome.is_regular() {
            return None;
        }
        let broken = self.run.aggregation.as_ref().and_then(Host::broken);
        if let Some(reason) = broken {
            return Some(reason.to_owned());
        }
        if outcome == RunOutcome::Refused {
            let refusals = self.sites().filter(|client| self.refuses(client)).filter_map(|client| {
                let (_, reason) = self.run.members.get(client)?.refused?;
                let reason = format!("{reason:?}").to_lowercase();
                Some(format!("{client} ({reason})"))
            });
            return Some(format!("refused: {}", names(refusals)));
        }
        let unsigned = self.run.aggregation.as_ref().map(Host::unsigned).unwrap_or_default();
        match (&self.run.suspended, &self.run.phase) {
            (Some(Lack::Summer), _) => self.run.aggregation.as_ref().map(|host| host.summer_s_fault().to_owned()),
            (Some(Lack::Sites(missing)), _) if !missing.is_empty() => {
                Some(format!("too few sites answered; waited in vain for {}", names(missing.iter().map(ToString::to_string))))
            }
            (None, Phase::Gathering(_)) if !unsigned.is_empty() => {
                Some(format!("the charter was not signed by {}", names(unsigned.into_iter())))
            }
            (None, Phase::Gathering(_)) => {
                let absent = self.sites().filter(|client| !self.run.active().any(|active| active == *client));
                Some(format!("too few sites joined before start_deadline; not there: {}", names(absent.map(ToString::to_string))))
            }
            _ => None,
        }
    }
}

/// At most this many names are in a reason.
const MOST_NAMES: usize = 8;

/// A list for people.
pub(super) fn names(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    let shown = all.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => "nobody".into(),
        count if count <= MOST_NAMES => shown,
        count => format!("{shown} and {} more", count - MOST_NAMES),
    }
}

#[cfg(test)]
mod tests;
