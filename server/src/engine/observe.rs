//! What the outside sees of a run: events on stdout, the log, and metrics. All of it is public by the protocol.
//!
//! What is an event is told once: on stdout. The log has it only where more lines are asked for (`--verbose`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dp_pvi_names::ClientId;
use dp_pvi_protocol::aggregation::host::AggregationRecord;
use dp_pvi_protocol::coordinator::{Control, Lack, Record};
use dp_pvi_protocol::message::{Refusal, RefusalReason, Role, RoundOutcome, RunOutcome, Signed, end_reason};
use dp_pvi_protocol::sum::PayloadError;
use dp_pvi_protocol::time::Timestamp;
use serde::Serialize;
use tracing::{debug, info, warn};

use super::Presence;
use crate::error::name_of;
use crate::telemetry::{Phase, Telemetry, UpdateResult};

/// One thing that happened, as `--format json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The ports are open.
    Listening {
        /// gRPC address.
        address: String,
        /// HTTP address.
        http: Option<String>,
    },
    /// A client joined the run.
    Joined {
        /// Who.
        client: ClientId,
        /// As what.
        role: Role,
    },
    /// The summer connected, or its connection ended.
    Summer {
        /// Which.
        state: Presence,
    },
    /// The summer refused for good: the run ends.
    SummerRefused {
        /// Why.
        reason: String,
    },
    /// The charter of an aggregated run waits for the signatures of all parties.
    CharterDrafted {
        /// Hash of its text, which the parties can compare.
        charter: String,
    },
    /// A round is open.
    RoundOpened {
        /// Its number, from 0.
        round: u32,
        /// Whose turn it is, if sites work one after the other.
        turn: Option<ClientId>,
        /// It closes at the latest after this long.
        deadline_seconds: u64,
    },
    /// A round closed.
    RoundClosed {
        /// Its number.
        round: u32,
        /// How.
        outcome: RoundOutcome,
        /// Whose updates are in the posterior.
        included: Vec<ClientId>,
    },
    /// A site sends no update.
    Refused {
        /// Who.
        client: ClientId,
        /// For which round.
        round: u32,
        /// Why.
        reason: RefusalReason,
    },
    /// A site's update was not taken: it is none of a site that follows the protocol.
    NotTaken {
        /// The sender.
        client: ClientId,
        /// For which round.
        round: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// An evaluator reported.
    Metrics {
        /// Who.
        client: ClientId,
        /// Rounds in the evaluated posterior.
        round: u32,
        /// Mean log predictive density.
        log_likelihood: f64,
        /// Share of correct classes.
        accuracy: Option<f64>,
    },
    /// An operator paused or resumed the run.
    Control {
        /// Which.
        state: Control,
    },
    /// The run lost its quorum, or its summer: it goes on when what it lacks returns.
    Suspended {
        /// The sites that it waits for; no one where it waits for the summer.
        waiting_for: Vec<ClientId>,
        /// It ends after this long.
        ends_in_seconds: u64,
    },
    /// A suspended run goes on.
    Resumed,
    /// The run is over.
    RunEnded {
        /// How.
        outcome: RunOutcome,
        /// Why it ended early, where that is known.
        reason: Option<String>,
    },
    /// The results were written.
    Exported {
        /// `posterior.json`.
        posterior: String,
        /// `report.html`.
        report: String,
    },
}

/// Takes events as they happen.
pub type EventSink = Arc<dyn Fn(&Event) + Send + Sync>;

/// Turns records into events, log lines and metrics.
pub(crate) struct Observer {
    events: EventSink,
    telemetry: Arc<Telemetry>,
    opened: Option<Timestamp>,
    /// Sites that the open round asks.
    asked: usize,
    /// Why sites sent no update the last time, and in which round.
    refusals: BTreeMap<ClientId, (u32, RefusalReason)>,
    /// Last round whose late refusal was reported, by site: each is reported once, however often it comes.
    reported_late: BTreeMap<ClientId, u32>,
    /// Last round whose rejected update was reported, by site.
    reported_wrong: BTreeMap<ClientId, u32>,
    /// Whether the run is over.
    ended: bool,
    /// How long a run may be suspended.
    suspend_for: Duration,
}

impl Observer {
    pub(crate) fn new(events: EventSink, telemetry: Arc<Telemetry>, suspend_for: Duration) -> Self {
        Self {
            events,
            telemetry,
            opened: None,
            asked: 0,
            refusals: BTreeMap::new(),
            reported_late: BTreeMap::new(),
            reported_wrong: BTreeMap::new(),
            ended: false,
            suspend_for,
        }
    }

    /// A payload was refused: reported once a round, however often it comes.
    pub(crate) fn not_taken(&mut self, client: &ClientId, round: u32, problem: PayloadError) {
        if self.reported_wrong.insert(client.clone(), round) != Some(round) {
            debug!(%client, round, %problem, "the update of this site is not taken");
            (self.events)(&Event::NotTaken { client: client.clone(), round, reason: problem.to_string() });
        }
    }

    /// A record of an earlier process: counted, but not news.
    pub(crate) fn restored(&mut self, record: &Record) {
        self.suspended(record);
        match record {
            Record::RoundOpened { at, asked, .. } => (self.opened, self.asked) = (Some(*at), asked.len()),
            Record::RoundClosed { .. } => drop(self.telemetry.round.inc()),
            Record::Refused { client, refusal, .. } => {
                if let Ok(refusal) = refusal.peek() {
                    self.refusals.insert(client.clone(), (refusal.release.round, refusal.reason));
                }
            }
            Record::RunEnded { .. } => self.ended = true,
            _ => {}
        }
    }

    /// Keeps the metric that says whether the run is suspended.
    fn suspended(&self, record: &Record) {
        match record {
            Record::Suspended { .. } => drop(self.telemetry.suspended.set(1)),
            Record::Resumed { .. } | Record::RunEnded { .. } => drop(self.telemetry.suspended.set(0)),
            _ => {}
        }
    }

    /// A refusal of a round that had closed before: it is no record of the run, so the log is where it is found.
    pub(crate) fn too_late(&mut self, client: &ClientId, refusal: &Signed<Refusal>) {
        let Ok(refusal) = refusal.peek() else { return };
        let round = refusal.release.round;
        if self.reported_late.get(client).is_some_and(|reported| *reported >= round) {
            return;
        }
        self.reported_late.insert(client.clone(), round);
        let when = if self.ended { "after the run had ended" } else { "after its round had closed" };
        warn!(%client, round, reason = name_of(&refusal.reason), "a site's refusal came {when}; it changes nothing");
    }

    /// The summer came or went.
    pub(crate) fn summer(&self, state: Presence) {
        debug!(?state, "the summer");
        self.telemetry.summer_connected.set(i64::from(state == Presence::Connected));
        (self.events)(&Event::Summer { state });
    }

    /// The summer refused for good.
    pub(crate) fn lost_summer(&self, reason: String) {
        (self.events)(&Event::SummerRefused { reason });
    }

    pub(crate) fn summed(&self, took: Duration) {
        self.telemetry.rounds.get_or_create(&Phase { phase: "sum" }).observe(took.as_secs_f64());
    }

    /// A record that was just made durable.
    pub(crate) fn happened(&mut self, record: &Record) {
        self.suspended(record);
        let event = match record {
            Record::RunOpened { run, .. } => {
                info!(run = run.number, task = %run.task, "the run is open; waiting for sites");
                return;
            }
            Record::Joined { client, role, nominal_units, .. } => {
                debug!(%client, ?role, nominal_units, "joined");
                Event::Joined { client: client.clone(), role: *role }
            }
            Record::RoundOpened { header, asked, at } => {
                (self.opened, self.asked) = (Some(*at), asked.len());
                let Ok(header) = header.peek() else { return };
                debug!(round = header.round, turn = ?header.turn.as_ref().map(ClientId::as_str), sites = asked.len(), "round open");
                Event::RoundOpened { round: header.round, turn: header.turn, deadline_seconds: header.deadline_seconds }
            }
            Record::Aggregation { record, .. } => {
                match record {
                    AggregationRecord::Drafted(draft) => {
                        let charter = draft.hash().to_string();
                        debug!(charter, "the charter waits for the signatures of all sites and of the summer");
                        (self.events)(&Event::CharterDrafted { charter });
                    }
                    AggregationRecord::LeftOut(client) => {
                        warn!(%client, "the summer cannot open this site's seed; the round closes without it");
                    }
                    AggregationRecord::Broken(reason) => warn!(reason, "the aggregation is broken, and the run ends"),
                    AggregationRecord::Signed { .. } | AggregationRecord::Proposed(_) | AggregationRecord::Closing(_) => {}
                }
                return;
            }
            Record::UpdateStored { client, .. } => {
                self.telemetry.update(UpdateResult::Stored);
                debug!(%client, "update stored");
                return;
            }
            Record::UpdateExcluded { client, .. } => {
                self.telemetry.update(UpdateResult::Excluded);
                warn!(%client, "an update came after its round had closed; it is excluded");
                return;
            }
            Record::Refused { client, refusal, .. } => {
                self.telemetry.update(UpdateResult::Refused);
                let Ok(refusal) = refusal.peek() else { return };
                let (round, reason) = (refusal.release.round, name_of(&refusal.reason));
                if self.ended {
                    warn!(%client, round, reason, "a site refused after the run had ended; it changes nothing");
                } else {
                    debug!(%client, round, reason, "a site sends no update");
                }
                self.refusals.insert(client.clone(), (refusal.release.round, refusal.reason));
                Event::Refused { client: client.clone(), round: refusal.release.round, reason: refusal.reason }
            }
            Record::RoundClosed { entry, at, .. } => {
                self.telemetry.round.inc();
                if let Some(opened) = self.opened.take() {
                    self.telemetry.rounds.get_or_create(&Phase { phase: "collect" }).observe(at.since(opened).as_secs_f64());
                }
                if entry.aggregation_bytes().is_some() {
                    self.telemetry.aggregation_dropouts.inc_by(self.asked.saturating_sub(entry.included.len()) as u64);
                    self.telemetry.aggregation_aborts.inc_by(u64::from(entry.outcome == RoundOutcome::Aborted));
                }
                let Ok(header) = entry.header.peek() else { return };
                let included: Vec<ClientId> = entry.included.iter().map(|(client, _)| client.clone()).collect();
                debug!(round = header.round, outcome = ?entry.outcome, included = included.len(), "round closed");
                Event::RoundClosed { round: header.round, outcome: entry.outcome, included }
            }
            Record::Metrics { client, report, .. } => {
                let Ok(report) = report.peek() else { return };
                let metrics = &report.metrics;
                debug!(%client, round = report.round, log_likelihood = metrics.log_likelihood, accuracy = metrics.accuracy, "held-out metrics");
                Event::Metrics {
                    client: client.clone(),
                    round: report.round,
                    log_likelihood: metrics.log_likelihood,
                    accuracy: metrics.accuracy,
                }
            }
            Record::Control { control, .. } => {
                debug!(state = ?control, "an operator changed the run");
                Event::Control { state: *control }
            }
            Record::Suspended { lack, .. } => {
                let ends_in = humantime::format_duration(self.suspend_for);
                let waiting_for = match lack {
                    Lack::Sites(sites) => sites.clone(),
                    Lack::Summer => Vec::new(),
                };
                let whom: Vec<&str> = match lack {
                    Lack::Sites(sites) => sites.iter().map(ClientId::as_str).collect(),
                    Lack::Summer => vec!["the summer"],
                };
                warn!(
                    waits_for = whom.join(", "),
                    %ends_in,
                    "the run is suspended: too few answer; it goes on when they return, and ends after [phases] suspend_for"
                );
                Event::Suspended { waiting_for, ends_in_seconds: self.suspend_for.as_secs() }
            }
            Record::Resumed { .. } => {
                info!("the run goes on");
                Event::Resumed
            }
            Record::RunEnded { outcome, header, .. } => {
                self.ended = true;
                debug!(?outcome, "the run is over");
                let reason = header.peek().ok().and_then(|header| end_reason(&header.reserved));
                if !outcome.is_regular() {
                    for (client, (round, reason)) in &self.refusals {
                        warn!(%client, round, reason = name_of(reason), "the run ended early; this site had refused");
                    }
                }
                Event::RunEnded { outcome: *outcome, reason }
            }
        };
        (self.events)(&event);
    }
}
