//! `report.html` of a run's history.

use dp_pvi_protocol::message::Role;
use dp_pvi_protocol::time::Timestamp;
use dp_pvi_results::document::PosteriorDocument;
use dp_pvi_results::forecast::{Effort, forecast};
use dp_pvi_results::report::{Member, Round, Run};

use super::history::History;
use crate::clock;

/// The whole page.
pub(super) fn render(federation: &str, history: &History, document: &PosteriorDocument) -> String {
    let answered: std::collections::BTreeMap<_, _> = history.sites().collect();
    let members = history.members.iter().map(|(client, member)| {
        let answered = answered.get(client).copied().unwrap_or(0);
        (client, Member { role: member.role, units: member.units, answered })
    });
    let rounds = history
        .entries
        .iter()
        .map(|entry| Round { outcome: entry.outcome, included: entry.included.iter().map(|(client, _)| client.clone()).collect() });
    let sites = history.members.values().filter(|member| member.role == Role::Site);
    // A store of another version may hold any number.
    let declared = |units: &u64| (1..=1 << 32).contains(units);
    let units: Option<Vec<u64>> = sites.map(|member| member.units.filter(declared)).collect();
    let run = Run {
        federation,
        task: &history.task,
        number: history.run.number,
        outcome: history.outcome,
        suspended: history.suspended,
        reason: history.reason.as_deref(),
        started: time(history.started),
        last: time(history.last),
        rounds: rounds.collect(),
        forecast: units.map(|units| forecast(&history.task, &units, Effort::of(&history.task, units.len()))),
        refusals: &history.refusals,
        members: members.collect(),
    };
    dp_pvi_results::report::render(&run, document)
}

/// A point in time for people.
fn time(at: Timestamp) -> String {
    clock::rfc3339(clock::date(at)).replace('T', " ").replace('Z', " UTC")
}
