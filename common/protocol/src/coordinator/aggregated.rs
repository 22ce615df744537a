//! What an aggregated run does beside every run: charter, summer, masks.

use std::time::Duration;

use dp_pvi_names::{ClientId, Hash};
use dp_pvi_secagg::error::SecAggError;
use dp_pvi_secagg::transcript::SignedEntry;

use super::run::{Open, Phase, Progress};
use super::suspension::names;
use super::{Closing, Committed, Control, Coordinator, Durable, Ending, Lack, Record, Rejected, Upcoming};
use crate::aggregation::host::{AggregationRecord, DraftError, Host, NextRound, ReplyError};
use crate::aggregation::{SummerReply, SummerRequest};
use crate::codec::encode;
use crate::message::{Role, RoundOutcome, RunOutcome, Update};
use crate::time::Timestamp;

impl Coordinator {
    /// What the summer is to be asked now; the same as long as nothing has changed. None without aggregation.
    #[must_use]
    pub fn summer_request(&self, now: Timestamp) -> Option<SummerRequest> {
        self.run.aggregation.as_ref()?.ask(self.due_round(now))
    }

    /// Hash of the charter's text, once it is drafted.
    #[must_use]
    pub fn charter_hash(&self) -> Option<Hash> {
        self.run.aggregation.as_ref()?.charter().map(dp_pvi_secagg::charter::SignedCharter::hash)
    }

    /// The summer's answer to [`summer_request`](Self::summer_request). Call [`poll`](Self::poll) next. Says why the run ends, where the
    /// summer refused for good.
    ///
    /// # Errors
    /// It refused, or what it says does not fit; ask again later.
    pub fn on_summer(&mut self, reply: SummerReply, now: Timestamp) -> Result<Durable<Option<String>>, ReplyError> {
        let next = self.due_round(now);
        let ended = matches!(self.run.phase, Phase::Ended(_));
        let Some(host) = self.run.aggregation.as_mut().filter(|_| !ended) else { return Ok(self.durable(Vec::new(), None)) };
        match host.on_reply(reply, next, &self.settings.key) {
            Ok(record) => {
                let records = record.map(|record| Record::Aggregation { record, at: now }).into_iter().collect();
                Ok(self.durable(records, None))
            }
            Err(never @ ReplyError::Never(_)) => {
                let reason = never.to_string();
                let end = match &self.run.phase {
                    // The run ends after it.
                    Phase::Open(open) => self.aborted(open, now),
                    _ => self.end_because(RunOutcome::AggregationLost, Some(&reason), now),
                };
                let records = vec![Record::Aggregation { record: AggregationRecord::Broken(reason.clone()), at: now }, end];
                Ok(self.durable(records, Some(reason)))
            }
            Err(error) => Err(error),
        }
    }

    /// A site's signature on the charter.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub(crate) fn on_consent(&mut self, client: &ClientId, signature: &[u8], now: Timestamp) -> Result<Durable<()>, Rejected> {
        let key = self.member(client, Role::Site)?.key;
        let Some(host) = &self.run.aggregation else { return Err(Rejected::Aggregation("this run has none".into())) };
        if host.charter().is_some() && !host.waits_for(&key) {
            return Ok(self.durable(Vec::new(), ()));
        }
        let record = host.on_signature(&key, signature).map_err(|error| Rejected::Aggregation(error.to_string()))?;
        Ok(self.durable(vec![Record::Aggregation { record, at: now }], ()))
    }

    /// The round that is to be opened as soon as its header has both signatures.
    fn due_round(&self, now: Timestamp) -> Option<NextRound> {
        let between = matches!(self.run.phase, Phase::Between(_) | Phase::Gathering(_));
        if !between || self.run.control == Control::Paused || !matches!(self.upcoming(), Upcoming::Round { .. }) {
            return None;
        }
        let deadline = now.since(Timestamp::from_millis(0)).as_secs() + self.run.task.update_deadline_seconds;
        Some(NextRound { round: self.run.rounds(), lambda: self.run.lambda_hash, deadline })
    }

    /// All sites of the task are here: the charter, then the first round.
    pub(super) fn agree(&self, host: &Host, now: Timestamp) -> Vec<Record> {
        if host.charter().is_some() {
            let end = || vec![self.end(self.lost(RunOutcome::AggregationLost), now)];
            return if self.gathering_deadline().is_some_and(|deadline| now >= deadline) { end() } else { Vec::new() };
        }
        let available = self.available();
        let sites = available.iter().map(|client| (client, &self.settings.clients[client].key));
        vec![match host.draft(&self.run.task, self.run.id, &self.settings.key, sites) {
            Ok(record) => Record::Aggregation { record, at: now },
            Err(error @ DraftError::Sites { .. }) => self.end_because(self.lost(RunOutcome::QuorumLost), Some(&error.to_string()), now),
            Err(error) => self.end_because(RunOutcome::AggregationLost, Some(&error.to_string()), now),
        }]
    }

    /// When sites (and, where there is a charter to sign, signatures) are waited for no longer.
    pub(super) fn gathering_deadline(&self) -> Option<Timestamp> {
        let sites = self.waits.phase?.plus(self.settings.start_deadline);
        let drafted = self.run.aggregation.as_ref().is_some_and(|host| host.charter().is_some());
        Some(if drafted { sites.plus(self.update_deadline()) } else { sites })
    }

    /// Whether the open round takes more updates.
    pub(super) fn collects(&self, open: &Open) -> bool {
        let closing = self.run.aggregation.as_ref().is_some_and(|host| host.closing().is_some());
        open.progress == Progress::Collecting && !closing
    }

    /// The part of a round's header that both have signed; `None` while it is missing.
    pub(super) fn header_parts(&self) -> Option<Vec<Vec<u8>>> {
        let Some(host) = &self.run.aggregation else { return Some(Vec::new()) };
        host.header().map(|header| vec![encode(header)])
    }

    /// Whether the open round of an aggregated run is over, and how.
    pub(super) fn closed_aggregation(&self, host: &Host, open: &Open, outcome: Option<RoundOutcome>, now: Timestamp) -> Closing {
        let enough = open.stored.len() >= self.contributors_needed();
        match (host.closing(), outcome) {
            (None, None) => Closing::No,
            (None, Some(outcome)) if enough => {
                Closing::Records(vec![Record::Aggregation { record: AggregationRecord::Closing(outcome), at: now }])
            }
            (Some(outcome), _) if enough && host.has_masks() => Closing::Sum(outcome),
            (Some(_), _) if enough && self.run.suspended.is_none() && !self.waited_too_long(now) => Closing::No,
            (Some(_), _) if enough => Closing::Lost(Lack::Summer),
            (Some(_), _) => {
                let left_out = names(host.left_out().iter().map(ToString::to_string));
                let needed = self.contributors_needed();
                let reason = format!("the summer cannot open the seed of {left_out}, and a sum needs {needed} sites");
                Closing::Records(self.broken(open, reason, now))
            }
            (None, Some(_)) => Closing::Lost(Lack::Sites(open.waiting().cloned().collect())),
        }
    }

    /// The open round ends without a sum.
    pub(super) fn aborted(&self, open: &Open, now: Timestamp) -> Record {
        let aggregation = self.run.aggregation.as_ref().and_then(|host| host.abort(&self.settings.key));
        self.entry(open, Ending { aggregation, ..self.unchanged(RoundOutcome::Aborted) }, now)
    }

    /// The masked sum of the closing round without its masks, with the entry that says so.
    pub(super) fn unmasked(&self, words: &[u8]) -> Result<(Vec<f64>, SignedEntry), SecAggError> {
        let host = self.run.aggregation.as_ref().ok_or(SecAggError::Charter("this run has none"))?;
        let (sum, entry) = host.finish(words, &self.settings.key)?;
        Ok((sum.to_f64(), entry))
    }

    /// The open round ends because its vectors have no sum. The reason is a fact of the run: log and status show it, also after a restart.
    pub(super) fn without_sum(&self, open: &Open, error: &SecAggError, now: Timestamp) -> Vec<Record> {
        self.broken(open, format!("{error}; nobody can say whose part was wrong"), now)
    }

    /// The open round ends for this reason, and with it the run.
    fn broken(&self, open: &Open, reason: String, now: Timestamp) -> Vec<Record> {
        vec![Record::Aggregation { record: AggregationRecord::Broken(reason), at: now }, self.aborted(open, now)]
    }

    /// What the update's masked vector must be, where it is one.
    pub(super) fn committed(&self, client: &ClientId, update: &Update) -> Result<Option<Committed>, Rejected> {
        let Some(host) = &self.run.aggregation else {
            return if update.upload.is_none() { Ok(None) } else { Err(Rejected::WrongSize("upload")) };
        };
        let upload = update.upload.as_ref().ok_or(Rejected::WrongSize("upload"))?;
        let (header, commitment) = host.check_upload(client, &upload.signed).map_err(|error| Rejected::Aggregation(error.to_string()))?;
        Ok(Some(Committed { client: client.clone(), header, commitment, salt: upload.salt.clone() }))
    }

    /// Charter for a client that has seen nothing.
    pub(super) fn charter_for(&self, seen: u32) -> Option<Vec<u8>> {
        let host = self.run.aggregation.as_ref().filter(|host| seen == 0 && host.is_agreed())?;
        host.charter().map(dp_pvi_secagg::charter::SignedCharter::to_bytes)
    }

    /// The charter that this site has not signed.
    pub(super) fn unsigned_charter(&self, client: &ClientId) -> Option<Vec<u8>> {
        let host = self.run.aggregation.as_ref()?;
        let key = &self.settings.clients.get(client).filter(|enrolled| enrolled.role == Role::Site)?.key;
        host.charter().filter(|_| host.waits_for(key)).map(dp_pvi_secagg::charter::SignedCharter::to_bytes)
    }

    /// How long updates, and the summer, may take.
    pub(super) fn update_deadline(&self) -> Duration {
        Duration::from_secs(self.run.task.update_deadline_seconds)
    }

    pub(super) fn waited_too_long(&self, now: Timestamp) -> bool {
        self.summer_deadline().is_some_and(|deadline| now >= deadline)
    }

    /// When the patience with the summer ends.
    pub(super) fn summer_deadline(&self) -> Option<Timestamp> {
        self.waits.summer.map(|since| since.plus(self.update_deadline()))
    }

    /// Notes since when the summer is waited for.
    pub(super) fn watch_summer(&mut self, now: Timestamp) {
        let waits = self.run.aggregation.as_ref().is_some_and(|host| host.is_waiting(self.due_round(now)));
        self.waits.summer = if waits { self.waits.summer.or(Some(now)) } else { None };
    }
}
