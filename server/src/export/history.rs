//! A finished or running run, as its records tell it.

use std::collections::{BTreeMap, BTreeSet};

use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_posterior::methods::noise_aware::{Absent, ClosedRound};
use dp_pvi_posterior::noise_aware;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::early_end;
use dp_pvi_protocol::ledger_head::Witness;
use dp_pvi_protocol::message::{MetricsReport, Refusal, Role, RunOutcome, Signed, TranscriptEntry, Update, end_reason};
use dp_pvi_protocol::origin::Origin;
use dp_pvi_protocol::time::Timestamp;

use super::chain::{Chain, Keys};
use crate::error::{Result, ServerError};
use crate::store::{Reader, StoredRun};

/// What there is to tell about a run.
pub(super) struct History {
    pub(super) task: ResolvedTask,
    pub(super) run: RunId,
    pub(super) started: Timestamp,
    pub(super) last: Timestamp,
    pub(super) outcome: Option<RunOutcome>,
    /// Why it ended early, where that is known.
    pub(super) reason: Option<String>,
    /// Whether it lacks its quorum.
    pub(super) suspended: bool,
    pub(super) entries: Vec<TranscriptEntry>,
    /// Reports in the order of rounds, then evaluators.
    pub(super) metrics: Vec<(ClientId, MetricsReport)>,
    pub(super) refusals: Vec<Refusal>,
    /// Joined clients: role, declared units, headers that they answered.
    pub(super) members: BTreeMap<ClientId, Member>,
    pub(super) lambda: Vec<f64>,
    /// Closed rounds with their states, where the noise-aware posterior needs them: included sites and visit come from `entries`.
    pub(super) states: Vec<(Vec<f64>, Option<Vec<f64>>)>,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) role: Role,
    pub(super) units: Option<u64>,
    /// Where a site's rows come from, by its own word.
    pub(super) rows: Origin,
    /// Its ledger's head by the last update, and that update.
    pub(super) head: Option<(LedgerHead, Signed<Update>)>,
    /// The same, where the key is known that signed it.
    pub(super) witness: Option<Witness>,
    /// Headers for which an update arrived, whether it entered the posterior or not.
    pub(super) answered: BTreeSet<Hash>,
    /// The heads that its ledger had with them.
    pub(super) heads: BTreeSet<Hash>,
}

impl History {
    /// # Errors
    /// [`ServerError::Corrupt`] where the records are not the signed chain of a run.
    pub(super) fn read(reader: &Reader, run: &StoredRun, keys: &Keys) -> Result<Self> {
        let mut history: Option<Self> = None;
        let mut chain = Chain::new(keys, run.id);
        for seq in 0.. {
            // Only the noise-aware posterior, and the rule of an early end, need the states between.
            let all = history.as_ref().is_some_and(Self::keeps_states);
            let record = if all { reader.record(run, seq)? } else { reader.light_record(run, seq)? };
            let Some(record) = record else { break };
            chain.follow(&record)?;
            match (record, &mut history) {
                (Record::RunOpened { run, task, at }, None) => {
                    let task = ResolvedTask::from_bytes(&task).map_err(|e| ServerError::OtherTask(Problem::of(e)))?;
                    history = Some(Self {
                        lambda: task.rule().initial(),
                        task,
                        run,
                        started: at,
                        last: at,
                        outcome: None,
                        reason: None,
                        suspended: false,
                        entries: Vec::new(),
                        metrics: Vec::new(),
                        refusals: Vec::new(),
                        members: BTreeMap::new(),
                        states: Vec::new(),
                    });
                }
                (record, Some(history)) => history.add(record),
                (_, None) => return Err(ServerError::Corrupt("the first record of the run".into())),
            }
        }
        let mut history = history.ok_or_else(|| ServerError::Unavailable("the run has no records yet; try again".into()))?;
        if let Some(lambda) = reader.last_vector(run)? {
            history.lambda = lambda;
        }
        chain.ends_with(&history.lambda)?;
        for (client, member) in &mut history.members {
            let signed = member.head.as_ref().zip(keys.of(client));
            member.witness =
                signed.and_then(|((head, update), key)| Witness::new(client, &run.id, *head, key, (update.hash(), &update.signature)));
        }
        history.ended_by_its_rule()?;
        history.metrics.sort_by(|a, b| (a.1.round, &a.0).cmp(&(b.1.round, &b.0)));
        Ok(history)
    }

    fn keeps_states(&self) -> bool {
        let learns_scale = self.task.model.rules().learned_scale().is_some();
        noise_aware::states_tell(&self.task) || self.task.early_end.is_some() || learns_scale
    }

    /// A run that ended by its task's rule is held against it.
    fn ended_by_its_rule(&self) -> Result<()> {
        let senders: BTreeSet<&ClientId> = self.entries.iter().flat_map(|entry| &entry.included).map(|(client, _)| client).collect();
        let met = || {
            self.closed_rounds(&senders.iter().copied().collect::<Vec<_>>()).is_some_and(|rounds| early_end::was_met(&self.task, &rounds))
        };
        if self.outcome == Some(RunOutcome::Converged) && !met() {
            let message = format!("run {}: it ended by a rule that was not met", self.run.number);
            return Err(ServerError::Corrupt(message.into()));
        }
        Ok(())
    }

    /// Rounds that were closed.
    pub(super) fn rounds(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// The noise-aware posterior, or why there is none.
    pub(super) fn noise_aware(&self) -> std::result::Result<dp_pvi_posterior::methods::noise_aware::Posterior, Absent> {
        let rounds = match self.rounds_so_far() {
            Err(Absent::NoNoise) if noise_aware::states_tell(&self.task) => self.all_rounds().ok_or(Absent::NoNoise)?,
            rounds => rounds?,
        };
        noise_aware::of_run(&self.task, &rounds)
    }

    /// What the noise-aware posterior needs of the closed rounds, or why there is none.
    pub(super) fn rounds_so_far(&self) -> std::result::Result<dp_pvi_posterior::methods::noise_aware::History, Absent> {
        noise_aware::is_known(&self.task)?;
        self.all_rounds().ok_or(Absent::NoRound)
    }

    fn all_rounds(&self) -> Option<dp_pvi_posterior::methods::noise_aware::History> {
        self.closed_rounds(&self.sites().map(|(client, _)| client).collect::<Vec<_>>())
    }

    /// The closed rounds as what these sites sent.
    fn closed_rounds(&self, sites: &[&ClientId]) -> Option<dp_pvi_posterior::methods::noise_aware::History> {
        self.rounds_with(sites, &self.states)
    }

    fn rounds_with(
        &self,
        sites: &[&ClientId],
        states: &[(Vec<f64>, Option<Vec<f64>>)],
    ) -> Option<dp_pvi_posterior::methods::noise_aware::History> {
        let units: Vec<u64> = sites.iter().map(|site| self.members.get(*site).and_then(|member| member.units).unwrap_or(1)).collect();
        let rounds = self.entries.iter().zip(states).map(|(entry, (state, correction))| {
            let included = entry.included.iter().filter_map(|(client, _)| sites.iter().position(|site| *site == client)).collect();
            Some(ClosedRound { visit: entry.header.peek().ok()?.visit, included, state: state.clone(), correction: correction.clone() })
        });
        Some(dp_pvi_posterior::methods::noise_aware::History::new(&units, rounds.collect::<Option<_>>()?))
    }

    /// The same where the states between were not kept: only the last one is known then, and the others are empty.
    pub(super) fn closed_rounds_or_last(&self, sites: &[&ClientId]) -> Option<dp_pvi_posterior::methods::noise_aware::History> {
        if self.keeps_states() {
            return self.closed_rounds(sites);
        }
        let last = self.entries.len().checked_sub(1)?;
        let states = (0..=last).map(|round| (if round == last { self.lambda.clone() } else { Vec::new() }, None)).collect::<Vec<_>>();
        self.rounds_with(sites, &states)
    }

    /// Sites with the number of visits that they answered.
    pub(super) fn sites(&self) -> impl Iterator<Item = (&ClientId, u32)> {
        let answered = |member: &Member| u32::try_from(member.answered.len()).unwrap_or(u32::MAX);
        self.members.iter().filter(|(_, member)| member.role == Role::Site).map(move |(client, member)| (client, answered(member)))
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::RunOpened { .. } | Record::RoundOpened { .. } | Record::Control { .. } | Record::Aggregation { .. } => {}
            Record::Joined { client, hello, role, nominal_units, at, .. } => {
                self.last = at;
                // A site reads its rows before it joins, and keeps them until the run is over.
                let rows = || hello.peek().ok().and_then(|hello| hello.rows).unwrap_or_default();
                let (answered, heads) = Default::default();
                let new = || Member { role, units: None, answered, heads, rows: rows(), head: None, witness: None };
                let member = self.members.remove(&client).unwrap_or_else(new);
                self.members.insert(client, Member { role, units: nominal_units, ..member });
            }
            Record::UpdateStored { client, update, at } | Record::UpdateExcluded { client, update, at } => {
                self.last = at;
                if let (Some(member), Ok(body)) = (self.members.get_mut(&client), update.peek()) {
                    member.answered.insert(body.header);
                    member.heads.insert(body.ledger_head.hash);
                    if member.head.as_ref().is_none_or(|(head, _)| head.seq < body.ledger_head.seq) {
                        member.head = Some((body.ledger_head, update));
                    }
                }
            }
            Record::Refused { refusal, at, .. } => {
                self.last = at;
                self.refusals.extend(refusal.peek().ok());
            }
            Record::RoundClosed { entry, at, lambda, correction } => {
                self.last = at;
                self.entries.push(entry);
                if self.keeps_states() {
                    self.states.push((lambda.to_vec(), correction));
                }
            }
            Record::Metrics { client, report, at } => {
                self.last = at;
                self.metrics.extend(report.peek().ok().map(|report| (client, report)));
            }
            Record::Suspended { at, .. } => (self.last, self.suspended) = (at, true),
            Record::Resumed { at } => (self.last, self.suspended) = (at, false),
            Record::RunEnded { outcome, at, header } => {
                (self.last, self.suspended) = (at, false);
                self.reason = header.peek().ok().and_then(|header| end_reason(&header.reserved));
                self.outcome = Some(outcome);
            }
        }
    }
}
