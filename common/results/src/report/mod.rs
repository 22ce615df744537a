//! `report.html`: what a run leaves behind for people, as one file without scripts and without links to elsewhere.
//!
//! [`render`] is a pure function of public values: the [`PosteriorDocument`], and a [`Run`], which is what the history of the run says besides.
//! Times come in as text; nothing is read, and nothing is computed from records. [`html`] is what the server's status page shares with the report.

use std::collections::BTreeMap;

use crate::document::PosteriorDocument;
use crate::forecast::Forecast;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::methods::prior_predictive::NotForecast;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_protocol::message::{Refusal, Role, RoundOutcome, RunOutcome};

pub(crate) mod axis;
mod curves;
pub mod html;
pub(crate) mod numbers;
mod rows;
mod sections;
mod style;
#[cfg(test)]
mod tests;

/// What the history of a run says beside its posterior.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// Name of the federation.
    pub federation: &'a str,
    /// What was computed.
    pub task: &'a ResolvedTask,
    /// Number of the run of that task.
    pub number: u32,
    /// How it ended; none while it goes on.
    pub outcome: Option<RunOutcome>,
    /// Whether it is suspended because too few sites, or not the summer, answer.
    pub suspended: bool,
    /// Why it ended early, in the server's words, where that is known.
    pub reason: Option<&'a str>,
    /// When it started, as text.
    pub started: String,
    /// Time of its last record, as text.
    pub last: String,
    /// Closed rounds, oldest first.
    pub rounds: Vec<Round>,
    /// What a run of this task over sites of these sizes is worth, as it could be said before the run; absent where no one asked.
    pub forecast: Option<Result<Forecast, NotForecast>>,
    /// Visits that a site refused.
    pub refusals: &'a [Refusal],
    /// Parties that joined.
    pub members: BTreeMap<&'a ClientId, Member>,
}

/// A closed round.
#[derive(Debug, Clone)]
pub struct Round {
    /// How it closed.
    pub outcome: RoundOutcome,
    /// Sites whose update entered the posterior.
    pub included: Vec<ClientId>,
}

/// A client that joined.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// As what.
    pub role: Role,
    /// Units that it declared.
    pub units: Option<u64>,
    /// Visits for which an update arrived, whether it entered the posterior or not.
    pub answered: u32,
}

impl Run<'_> {
    /// Sites with the number of visits that they answered.
    fn sites(&self) -> impl Iterator<Item = (&ClientId, u32)> {
        self.members.iter().filter(|(_, member)| member.role == Role::Site).map(|(client, member)| (*client, member.answered))
    }

    /// Rounds that were closed.
    fn closed(&self) -> u32 {
        u32::try_from(self.rounds.len()).unwrap_or(u32::MAX)
    }
}

/// The whole page.
#[must_use]
pub fn render(run: &Run<'_>, document: &PosteriorDocument) -> String {
    sections::page(run, document)
}
