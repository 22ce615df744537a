//! Rounds that do not wait for each other: the asynchronous schedule with bounded staleness.

use dp_pvi_names::{ClientId, Hash};

use super::{Coordinator, Open, Phase, Rejected, Upcoming, Verdict};
use crate::message::{RoundOutcome, RunOutcome};
use crate::time::Timestamp;

impl Coordinator {
    /// Header, visit and verdict for an update of an asynchronous run: it enters the round that is open when it comes, unless it is older
    /// than the schedule allows or the site has had its visits.
    pub(super) fn asynchronous_verdict(&self, client: &ClientId, round: u32) -> Result<(Hash, u32, Verdict), Rejected> {
        let (open, waits) = match &self.run.phase {
            Phase::Open(open) => (Some(open), open.stored.contains_key(client)),
            _ => (None, self.run.held.contains_key(client)),
        };
        // One update at a time, and none for a header before one that was answered.
        if waits || self.run.last_answer(client).is_some_and(|last| round <= last) {
            return Err(Rejected::NotAsked);
        }
        let (header, opened) = match open {
            Some(open) if open.round == round => (open.header_hash, open.visit),
            _ => {
                let entry = self.run.entries.get(round as usize).ok_or(Rejected::UnknownRound)?;
                // Our own header: it can be read.
                (entry.header.hash(), entry.header.peek().map_err(Rejected::Invalid)?.visit)
            }
        };
        let current = open.map_or_else(|| self.run.rounds(), |open| open.round);
        let fresh = current <= round.saturating_add(self.run.staleness().unwrap_or(0));
        let verdict = if fresh && self.run.visits_of(client) < self.run.task.visits() { Verdict::Fits } else { Verdict::Late };
        Ok((header, opened, verdict))
    }

    /// The next round of an asynchronous run: all sites that have visits left are asked.
    pub(super) fn upcoming_asynchronous(&self, available: &[ClientId]) -> Upcoming {
        let visits = self.run.task.visits();
        let present = || available.iter().filter(|client| !self.run.lagging.contains(*client));
        let unfinished = |client: &&ClientId| self.run.visits_of(client) < visits;
        match present().filter(unfinished).map(|client| self.run.visits_of(client)).min() {
            _ if present().count() < (self.run.task.min_sites as usize).max(1) => Upcoming::Lost,
            // Visits that all were refused or missed are no run.
            None if self.run.entries.iter().all(|entry| entry.included.is_empty()) => Upcoming::End(self.lost(RunOutcome::QuorumLost)),
            None => Upcoming::End(RunOutcome::Complete),
            // ρ follows the slowest site that is there.
            Some(visit) => Upcoming::Round { visit, turn: None, asked: available.iter().filter(unfinished).cloned().collect() },
        }
    }

    /// Whether the open round of an asynchronous run is over: something has come, and no one would fall too far behind.
    pub(super) fn closed_asynchronous(
        &self,
        open: &Open,
        staleness: u32,
        gone: impl Fn(&ClientId) -> bool,
        now: Timestamp,
    ) -> Option<RoundOutcome> {
        let due = self.is_due(now);
        let nobody = open.waiting().all(&gone);
        let keep_up = || open.waiting().all(|client| gone(client) || self.run.keeps_up(client, open.round, staleness));
        match open.stored.is_empty() {
            false if nobody || keep_up() => Some(RoundOutcome::Complete),
            false if due => Some(RoundOutcome::Deadline),
            true if due || nobody => Some(RoundOutcome::Skipped),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
