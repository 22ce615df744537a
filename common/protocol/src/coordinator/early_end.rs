//! The end of a run by its task's rule: a function of its closed rounds, so that a restarted server decides the same.

use std::collections::BTreeMap;
use std::fmt::{Debug, Formatter};
use std::sync::OnceLock;

use crate::early_end;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, History};
use dp_pvi_posterior::task::ResolvedTask;

use super::Member;
use crate::message::TranscriptEntry;

/// What the rule looks at. Only sites that have sent something count: who joins meanwhile changes no answer.
#[derive(Default)]
pub(super) struct Watch {
    /// Sites with their declared units, in the order in which they first were in a sum.
    sites: Vec<(ClientId, u64)>,
    rounds: Vec<ClosedRound>,
    /// The answer after the last of them, once someone asked.
    met: OnceLock<bool>,
}

impl Watch {
    /// For a task that has a rule.
    pub(super) fn of(task: &ResolvedTask) -> Option<Self> {
        task.early_end.map(|_| Self::default())
    }

    /// A round closed.
    pub(super) fn closed(
        &mut self,
        entry: &TranscriptEntry,
        members: &BTreeMap<ClientId, Member>,
        lambda: &[f64],
        correction: Option<&Vec<f64>>,
    ) {
        // Made by this coordinator, or checked: it can be read.
        let visit = entry.header.peek().expect("own header").visit;
        let included = entry.included.iter().map(|(client, _)| self.position(client, members)).collect();
        self.rounds.push(ClosedRound { visit, included, state: lambda.to_vec(), correction: correction.cloned() });
        self.met = OnceLock::new();
    }

    fn position(&mut self, client: &ClientId, members: &BTreeMap<ClientId, Member>) -> usize {
        let known = self.sites.iter().position(|(site, _)| site == client);
        known.unwrap_or_else(|| {
            let units = members.get(client).and_then(|member| member.nominal_units).unwrap_or(1);
            self.sites.push((client.clone(), units));
            self.sites.len() - 1
        })
    }

    /// Whether the run ends here.
    pub(super) fn is_met(&self, task: &ResolvedTask) -> bool {
        *self.met.get_or_init(|| early_end::is_met(task, &self.history()))
    }

    /// Whether a run that ended here may have, perhaps on another machine.
    pub(super) fn was_met(&self, task: &ResolvedTask) -> bool {
        early_end::was_met(task, &self.history())
    }

    fn history(&self) -> History {
        let units: Vec<u64> = self.sites.iter().map(|(_, units)| *units).collect();
        History::new(&units, self.rounds.clone())
    }
}

/// Without the answer: it is no part of the state.
impl Debug for Watch {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("sites", &self.sites).field("rounds", &self.rounds).finish_non_exhaustive()
    }
}
