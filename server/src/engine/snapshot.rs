//! State of a run, for people and programs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dp_pvi_names::ClientId;
use dp_pvi_posterior::task::ScheduleSpec;
use dp_pvi_protocol::coordinator::{AheadClients, Coordinator, Lack, Rejected, Stage};
use dp_pvi_protocol::message::{RefusalReason, Role, RunOutcome};
use dp_pvi_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::Presence;
use crate::error::name_of;
use crate::export::ConvergenceStatus;

/// State of a run. Everything in it is public.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Name of the task.
    pub task: String,
    /// Its hash.
    pub task_hash: String,
    /// Number of the run.
    pub run: u32,
    /// `gathering`, `open`, `between`, `paused`, `suspended` or `ended`.
    pub stage: String,
    /// Whether an operator paused the run: a round that is open is still collected, and no other opens.
    pub paused: bool,
    /// Rounds that were closed.
    pub rounds_closed: u32,
    /// Visits per site that the task asks for.
    pub visits: u32,
    /// Rounds that the task has, where all sites work at once; elsewhere that depends on the sites.
    pub rounds_planned: Option<u32>,
    /// How far the run is from where its released sums lead, where a round has closed and no one else asks at the moment.
    pub convergence: Option<ConvergenceStatus>,
    /// Order of work, in words.
    pub schedule: String,
    /// Whose turn it is.
    pub turn: Option<ClientId>,
    /// Sites that were asked and have not answered; before the first round, enrolled sites that have not joined.
    pub waiting_for: Vec<ClientId>,
    /// Seconds until the open round closes, or the suspended run ends, at the latest.
    pub deadline_in_seconds: Option<u64>,
    /// How the run ended.
    pub outcome: Option<RunOutcome>,
    /// Clients that joined.
    pub members: Vec<MemberView>,
    /// Enrolled clients that have not joined, with their parts.
    pub absent: BTreeMap<ClientId, Role>,
    /// Clients whose last hello was refused, and why: one for each that is enrolled, since this process started.
    pub refused_hellos: BTreeMap<ClientId, RefusedHello>,
    /// What an operator should know beside the run: certificates that end soon, a state that is an old copy.
    pub warnings: Vec<String>,
    /// The second party of an aggregated run.
    pub summer: Option<SummerView>,
    /// Why the run ended early, where that is known: who refused, did not answer or broke it.
    pub reason: Option<String>,
    /// Whether a suspended run waits for its summer, and not for sites.
    pub lacks_summer: bool,
}

/// The second party of an aggregated run, as the server sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummerView {
    /// Whether it is connected.
    pub state: Presence,
    /// The last round whose masks it summed, if there was one.
    pub last_round: Option<u32>,
    /// Whether the run waits for its answer now.
    pub asked: bool,
}

impl SummerView {
    /// Where it stands, in words.
    #[must_use]
    pub fn text(&self) -> String {
        let state = match (self.state, self.asked) {
            (Presence::Connected, false) => "connected",
            (Presence::Connected, true) => "connected, and asked",
            (Presence::Gone, false) => "not connected (no round closes without it; on its machine: `dp-pvi-server summer run`)",
            (Presence::Gone, true) => "not connected, and the run waits for it: start it on its machine (`dp-pvi-server summer run`)",
        };
        let closed = self.last_round.map_or_else(|| "no round closed yet".to_owned(), |round| format!("last round closed: {round}"));
        format!("{state}; {closed}")
    }
}

/// A refused hello, with the reason that the client got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedHello {
    /// Why, in at most [`RefusedHello::LONGEST`] characters.
    pub reason: String,
    /// How many in a row.
    pub times: u64,
    /// Seconds since the last one.
    pub seconds_ago: u64,
}

impl RefusedHello {
    /// Characters of a reason that are kept: it may repeat what the client sent.
    pub const LONGEST: usize = 300;
}

/// The last refused hello of every enrolled client.
#[derive(Debug, Default)]
pub(super) struct RefusedHellos(BTreeMap<ClientId, (String, u64, Instant)>);

impl RefusedHellos {
    /// Notes how a hello was answered. Only an enrolled client gets as far as this, so there are no more entries than clients.
    pub(super) fn note(&mut self, client: &ClientId, refused: Option<&Rejected>, now: Instant) {
        match refused {
            None => drop(self.0.remove(client)),
            Some(rejected) => {
                let times = self.0.get(client).map_or(0, |(_, times, _)| *times).saturating_add(1);
                let reason = rejected.to_string().chars().take(RefusedHello::LONGEST).collect();
                self.0.insert(client.clone(), (reason, times, now));
            }
        }
    }

    /// Those of the clients that are enrolled now.
    fn shown(&self, enrolled: &BTreeMap<ClientId, Role>, now: Instant) -> BTreeMap<ClientId, RefusedHello> {
        let entries = self.0.iter().filter(|(client, _)| enrolled.contains_key(*client));
        entries
            .map(|(client, (reason, times, at))| {
                (
                    client.clone(),
                    RefusedHello { reason: reason.clone(), times: *times, seconds_ago: now.saturating_duration_since(*at).as_secs() },
                )
            })
            .collect()
    }
}

/// One client of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberView {
    /// Its name.
    pub client: ClientId,
    /// Its part.
    pub role: Role,
    /// Declared number of units.
    pub nominal_units: Option<u64>,
    /// Updates that entered the posterior.
    pub included: u32,
    /// Last row of its ledger that was seen.
    pub ledger_row: Option<u64>,
    /// Round and reason of the last refusal.
    pub refused: Option<(u32, RefusalReason)>,
    /// Whether it left the run.
    pub withdrawn: bool,
    /// Seconds since it was heard last, where it does not wait for work now; none where this process has not heard it.
    pub silent_seconds: Option<u64>,
    /// Whether this process has heard it since it started.
    pub heard: bool,
}

/// A client that has said nothing for longer than a request for work lasts is told as silent.
const SILENT_SECONDS: u64 = 60;

impl Snapshot {
    /// Whom the run waits for, in words.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        let mut names: Vec<&str> = self.waiting_for.iter().map(ClientId::as_str).collect();
        // Before the first round the charter needs it as it needs the sites; an ended run needs no one.
        let needed = match self.stage.as_str() {
            "gathering" => self.summer.as_ref().is_some_and(|summer| summer.state == Presence::Gone),
            "ended" => false,
            _ => self.summer.as_ref().is_some_and(|summer| summer.asked),
        };
        if self.lacks_summer {
            names.clear();
        }
        if self.lacks_summer || needed {
            names.push("the summer");
        }
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Closed rounds, of how many, in words.
    #[must_use]
    pub fn progress(&self) -> String {
        match self.rounds_planned {
            Some(planned) => format!("{} closed of {planned} planned", self.rounds_closed),
            None => format!("{} closed; {} visits of every site are planned", self.rounds_closed, self.visits),
        }
    }
}

impl MemberView {
    /// Where it stands, in words.
    #[must_use]
    pub fn state(&self) -> String {
        let silent = match (self.heard, self.silent_seconds) {
            _ if self.withdrawn => String::new(),
            (false, _) => ", not heard since the server started".into(),
            (true, Some(seconds)) if seconds >= SILENT_SECONDS => {
                format!(", silent for {}", humantime::format_duration(Duration::from_secs(seconds)))
            }
            (true, _) => String::new(),
        };
        let state = match (&self.refused, self.withdrawn) {
            (Some((round, reason)), true) => format!("left, refused round {round} ({})", name_of(reason)),
            (None, true) => "left".into(),
            (Some((round, reason)), false) => format!("refused round {round} ({})", name_of(reason)),
            (None, false) => format!("{} updates included", self.included),
        };
        state + &silent
    }
}

/// What the engine knows of the clients beside the run's records.
pub(super) struct Presences<'a> {
    /// Enrolled names.
    pub(super) enrolled: &'a BTreeMap<ClientId, Role>,
    /// When each was heard last.
    pub(super) heard: &'a BTreeMap<ClientId, Instant>,
    /// Clients that wait for work on an open stream.
    pub(super) waiting: BTreeSet<&'a ClientId>,
    /// Whose hello was refused.
    pub(super) refused: &'a RefusedHellos,
    /// Who has seen more of the run than this server.
    pub(super) ahead: &'a AheadClients,
}

/// When a snapshot is taken: by the clock of deadlines, and by the one that measures.
pub(super) struct Looked {
    pub(super) now: Timestamp,
    pub(super) instant: Instant,
}

pub(super) fn of(coordinator: &Coordinator, summer: Option<(Presence, bool)>, presences: &Presences<'_>, at: &Looked) -> Snapshot {
    let task = coordinator.task();
    let over = matches!(coordinator.stage(), Stage::Ended(_));
    let not_joined = |(client, _): &(&ClientId, &Role)| !over && !coordinator.members().contains_key(*client);
    let absent: BTreeMap<ClientId, Role> =
        presences.enrolled.iter().filter(not_joined).map(|(client, role)| (client.clone(), *role)).collect();
    let absent_sites = || absent.iter().filter(|(_, role)| **role == Role::Site).map(|(client, _)| client.clone()).collect();
    let left = |until: Option<Timestamp>| until.map(|until| until.since(at.now).as_secs());
    let (stage, turn, waiting_for, deadline, outcome) = match coordinator.stage() {
        Stage::Gathering => ("gathering", None, absent_sites(), None, None),
        Stage::Open { turn, waiting, deadline, .. } => ("open", turn, waiting, left(deadline), None),
        Stage::Suspended { lack: Lack::Sites(missing), until } => ("suspended", None, missing, left(until), None),
        Stage::Suspended { lack: Lack::Summer, until } => ("suspended", None, Vec::new(), left(until), None),
        Stage::Between => ("between", None, Vec::new(), None, None),
        Stage::Paused => ("paused", None, Vec::new(), None, None),
        Stage::Ended(outcome) => ("ended", None, Vec::new(), None, Some(outcome)),
    };
    let members = coordinator.members().iter().map(|(client, member)| MemberView {
        client: client.clone(),
        role: member.role,
        nominal_units: member.nominal_units,
        included: member.included,
        ledger_row: member.head.map(|head| head.seq),
        refused: member.refused,
        withdrawn: member.withdrawn,
        silent_seconds: presences
            .heard
            .get(client)
            .filter(|_| !presences.waiting.contains(client))
            .map(|heard| at.instant.saturating_duration_since(*heard).as_secs()),
        heard: presences.heard.contains_key(client),
    });
    // An entry lists who is in its sum; without one nothing was summed.
    let summed = coordinator.entries().iter().rev().find(|entry| !entry.included.is_empty());
    let last_round = summed.and_then(|entry| entry.header.peek().ok()).map(|header| header.round);
    Snapshot {
        task: task.name.clone(),
        task_hash: coordinator.run().task.to_string(),
        run: coordinator.run().number,
        stage: stage.into(),
        paused: coordinator.is_paused(),
        rounds_closed: u32::try_from(coordinator.entries().len()).unwrap_or(u32::MAX),
        visits: task.visits(),
        rounds_planned: match task.schedule {
            ScheduleSpec::Synchronous { rounds } => Some(rounds),
            ScheduleSpec::Sequential { .. } | ScheduleSpec::Asynchronous { .. } => None,
        },
        convergence: None,
        schedule: task.schedule.to_string(),
        turn,
        waiting_for,
        deadline_in_seconds: deadline,
        outcome,
        members: members.collect(),
        absent,
        refused_hellos: presences.refused.shown(presences.enrolled, at.instant),
        warnings: presences.ahead.words(),
        summer: summer.map(|(state, asked)| SummerView { state, last_round, asked }),
        reason: coordinator.end_reason(),
        lacks_summer: matches!(coordinator.stage(), Stage::Suspended { lack: Lack::Summer, .. }),
    }
}
