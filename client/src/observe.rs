//! What a run shows while it goes on: a progress bar on a terminal, log lines elsewhere, JSON lines on request. Public values only:
//! the driver hands out nothing else.

use std::io::IsTerminal;
use std::time::Duration;

use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_protocol::driver::{Event, Observer};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::keys::fingerprint;
use crate::output::{Format, Output};

/// Shows a run's events.
pub struct RunObserver {
    output: Output,
    bar: Option<ProgressBar>,
    shows_bar: bool,
}

impl RunObserver {
    /// An observer for this process's stdout and stderr. `quiet` = no bar.
    #[must_use]
    pub fn new(output: Output, bar: Bar) -> Self {
        let shows_bar = bar == Bar::OnTerminal && output.format() == Format::Text && std::io::stderr().is_terminal();
        Self { output, bar: None, shows_bar }
    }

    fn start(&mut self, rounds: u64) {
        if !self.shows_bar || self.bar.is_some() {
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(rounds), ProgressDrawTarget::stderr_with_hz(4));
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] round {pos}/{len} {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        self.bar = Some(bar);
    }

    fn say(&self, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(message.to_owned());
        }
    }
}

/// Whether a progress bar may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bar {
    /// Where stderr is a terminal.
    OnTerminal,
    /// Never.
    Never,
}

impl Observer for RunObserver {
    fn on_event(&mut self, event: &Event<'_>) {
        log(event);
        if self.output.format() == Format::Json {
            self.output.line(&describe(event).to_string());
        }
        match event {
            Event::Joined { task, .. } => self.start(u64::from(task.visits())),
            Event::Charter { .. } => self.say("looking at the charter"),
            Event::UnprovedWitness { .. } => self.say("the server names a ledger head that this site did not sign"),
            Event::Retrying { wait, .. } => self.say(&format!("server away, next try in {} s", wait.as_secs())),
            Event::Seen { entries } => {
                if let Some(bar) = &self.bar {
                    // The number of rounds is only known to the server when a visit is a site's turn: the bar grows with it.
                    bar.set_length(bar.length().unwrap_or(0).max(u64::from(*entries)));
                    bar.set_position(u64::from(*entries));
                }
            }
            Event::Training { visit, .. } => self.say(&format!("computing visit {visit}")),
            Event::Committed { .. } => self.say("update stored"),
            Event::Waiting { wait, .. } => self.say(&format!("waiting {} s for the release tick", wait.as_secs())),
            Event::Sending { .. } => self.say("sending"),
            Event::Receipted { .. } => self.say("receipted"),
            Event::Refused { .. } => self.say("refused"),
            Event::Reported { .. } => self.say("metrics reported"),
            Event::Finished { .. } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
        }
    }
}

impl Drop for RunObserver {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn log(event: &Event<'_>) {
    match event {
        Event::Joined { run, task } => info!(task = %run.task, run = run.number, name = %task.name, "joined the run"),
        Event::Charter { hash, text } => {
            info!(
                charter = %hash,
                sites = text.members.len(),
                min_contributors = text.min_contributors,
                honest = text.honest,
                colluders = text.colluders,
                rounds = text.rounds(),
                "the server asks for a signature on the charter"
            );
            for member in &text.members {
                info!(site = %member.id, key = fingerprint(&member.key.0), "in the charter");
            }
        }
        Event::UnprovedWitness { claimed, here } => warn!(
            claimed,
            here,
            "the server claims to have seen a row of this ledger that the ledger does not have, without this site's signature: it lies, or runs from an old state; this site goes by its own ledger"
        ),
        Event::Retrying { failures, wait, error } => warn!(failures, wait_ms = millis(*wait), %error, "the server is away"),
        Event::Seen { entries } => info!(rounds = entries, "rounds closed"),
        Event::Training { round, visit } => info!(round, visit, "budget reserved, computing"),
        Event::Committed { round } => info!(round, "update stored"),
        Event::Waiting { round, wait } => info!(round, wait_ms = millis(*wait), "waiting for the release tick"),
        Event::Sending { round, bytes } => info!(round, bytes, "sending"),
        Event::Receipted { round, outcome } => info!(round, ?outcome, "receipt stored"),
        Event::Refused { round, reason } => warn!(round, ?reason, "refused"),
        Event::Reported { round, metrics } => info!(round, log_likelihood = metrics.log_likelihood, "metrics reported"),
        Event::Finished { outcome } => info!(?outcome, "the run is over"),
    }
}

fn describe(event: &Event<'_>) -> Value {
    match event {
        Event::Joined { run, task } => json!({"event": "joined", "task": run.task.to_string(), "run": run.number, "name": task.name}),
        Event::Charter { hash, text } => json!({
            "event": "charter",
            "charter": hash.to_string(),
            "summer": fingerprint(&text.summer.0),
            "min_contributors": text.min_contributors,
            "honest": text.honest,
            "colluders": text.colluders,
            "rounds": text.rounds(),
            "sites": text.members.iter().map(|member| json!({"site": member.id, "key": fingerprint(&member.key.0)})).collect::<Vec<_>>(),
        }),
        Event::UnprovedWitness { claimed, here } => json!({"event": "unproved-witness", "claimed": claimed, "here": here}),
        Event::Retrying { failures, wait, error } => {
            json!({"event": "retrying", "failures": failures, "wait_ms": millis(*wait), "error": error.to_string()})
        }
        Event::Seen { entries } => json!({"event": "seen", "rounds": entries}),
        Event::Training { round, visit } => json!({"event": "training", "round": round, "visit": visit}),
        Event::Committed { round } => json!({"event": "committed", "round": round}),
        Event::Waiting { round, wait } => json!({"event": "waiting", "round": round, "wait_ms": millis(*wait)}),
        Event::Sending { round, bytes } => json!({"event": "sending", "round": round, "bytes": bytes}),
        Event::Receipted { round, outcome } => {
            json!({"event": "receipted", "round": round, "outcome": format!("{outcome:?}").to_lowercase()})
        }
        Event::Refused { round, reason } => json!({"event": "refused", "round": round, "reason": reason}),
        Event::Reported { round, metrics } => json!({"event": "reported", "round": round, "metrics": metrics}),
        Event::Finished { outcome } => json!({"event": "finished", "outcome": outcome}),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A ledger head as JSON.
#[must_use]
pub(crate) fn head_json(head: LedgerHead) -> Value {
    json!({"seq": head.seq, "hash": head.hash.to_string()})
}
