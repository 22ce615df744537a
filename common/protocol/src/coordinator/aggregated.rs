//! What an aggregated run does beside every run: charter, summer, masks.

use dp_pvi_privacy::{ClientId, Hash};
use dp_pvi_secagg::error::SecAggError;
use dp_pvi_secagg::transcript::SignedEntry;

use super::run::{Gathering, Open, Phase, Progress};
use super::{Closing, Committed, Control, Coordinator, Durable, Ending, Record, Rejected, Upcoming};
use crate::aggregation::host::{AggregationRecord, DraftError, Host, NextRound, ReplyError};
use crate::aggregation::{SummerReply, SummerRequest};
use crate::message::{Role, RoundOutcome, RunOutcome, Update};
use crate::parts::encode;
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
                let end = match &self.run.phase {
                    // The run ends after it.
                    Phase::Open(open) => self.aborted(open, now),
                    _ => self.end(RunOutcome::AggregationLost, now),
                };
                Ok(self.durable(vec![end], Some(never.to_string())))
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
    pub(super) fn agree(&self, host: &Host, gathering: &Gathering, now: Timestamp) -> Vec<Record> {
        if host.is_agreed() {
            return self.opened(now);
        }
        if host.charter().is_some() {
            let end = || vec![self.end(self.lost(RunOutcome::AggregationLost), now)];
            return if now >= self.gathering_deadline(gathering) { end() } else { Vec::new() };
        }
        let available = self.available();
        let sites = available.iter().map(|client| (client, &self.settings.clients[client].key));
        vec![match host.draft(&self.run.task, self.run.id, &self.settings.key, sites) {
            Ok(record) => Record::Aggregation { record, at: now },
            Err(DraftError::Sites { .. }) => self.end(self.lost(RunOutcome::QuorumLost), now),
            Err(DraftError::SecAgg(_) | DraftError::Task(_)) => self.end(RunOutcome::AggregationLost, now),
        }]
    }

    /// When sites (and, where there is a charter to sign, signatures) are waited for no longer.
    pub(super) fn gathering_deadline(&self, gathering: &Gathering) -> Timestamp {
        let sites = gathering.since.plus(self.settings.start_deadline);
        let drafted = self.run.aggregation.as_ref().is_some_and(|host| host.charter().is_some());
        if drafted { sites.plus(self.patience()) } else { sites }
    }

    /// Whether the open round takes more updates.
    pub(super) fn collects(&self, open: &Open) -> bool {
        let closing = self.run.aggregation.as_ref().is_some_and(|host| host.closing().is_some());
        open.progress == Progress::Collecting && !closing
    }

    /// The part of a round's header that both have signed; `Err` while it is missing: nothing to do yet, or the end of the run.
    pub(super) fn header_parts(&self, now: Timestamp) -> Result<Vec<Vec<u8>>, Vec<Record>> {
        let Some(host) = &self.run.aggregation else { return Ok(Vec::new()) };
        match host.header() {
            Some(header) => Ok(vec![encode(header)]),
            None if self.waited_too_long(now) => Err(vec![self.end(RunOutcome::AggregationLost, now)]),
            None => Err(Vec::new()),
        }
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
            (Some(_), _) if enough && !self.waited_too_long(now) => Closing::No,
            _ => Closing::Records(vec![self.aborted(open, now)]),
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
        let reason = Record::Aggregation { record: AggregationRecord::NoSum(error.to_string()), at: now };
        vec![reason, self.aborted(open, now)]
    }

    /// Why a round of this run had no sum, if that happened.
    #[must_use]
    pub fn no_sum(&self) -> Option<&str> {
        self.run.aggregation.as_ref()?.no_sum()
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

    /// How long the summer may take: a round's deadline.
    fn patience(&self) -> std::time::Duration {
        std::time::Duration::from_secs(self.run.task.update_deadline_seconds)
    }

    fn waited_too_long(&self, now: Timestamp) -> bool {
        self.summer_since.is_some_and(|since| now >= since.plus(self.patience()))
    }

    /// When the patience with the summer ends.
    pub(super) fn summer_deadline(&self) -> Option<Timestamp> {
        self.summer_since.map(|since| since.plus(self.patience()))
    }

    /// Notes since when the summer is waited for.
    pub(super) fn watch_summer(&mut self, now: Timestamp) {
        let waits = self.run.aggregation.as_ref().is_some_and(|host| host.is_waiting(self.due_round(now)));
        self.summer_since = if waits { self.summer_since.or(Some(now)) } else { None };
    }
}
