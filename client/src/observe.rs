//! What a run shows while it goes on: a progress bar on a terminal, log lines elsewhere, JSON lines on request. Public values only:
//! the driver hands out nothing else. What the server wrote is shown with its hidden
//! characters as codes.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dp_pvi_names::Hash;
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_protocol::driver::{Event, Observer};
use dp_pvi_protocol::text::{Visible, visible};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::approvals;
use crate::keys::fingerprint;
use crate::output::{Format, Output};
use crate::progress::Progress;

/// Shows a run's events, and notes the hashes of the tasks and charters that it was shown.
pub struct RunObserver {
    output: Output,
    progress: Option<Progress>,
    shows_bar: bool,
    state: PathBuf,
}

impl RunObserver {
    /// An observer for this process's stdout and stderr; `state` is the state folder.
    #[must_use]
    pub fn new(output: Output, bar: Bar, state: &Path) -> Self {
        let shows_bar = bar == Bar::OnTerminal && output.format() == Format::Text && std::io::stderr().is_terminal();
        Self { output, progress: None, shows_bar, state: state.to_owned() }
    }

    fn say(&self, message: &str) {
        if let Some(progress) = &self.progress {
            progress.say(message.to_owned());
        }
    }

    fn saw(&self, hash: &Hash) {
        if let Err(error) = approvals::saw(&self.state, hash) {
            // A convenience of `approve` is lost, nothing else.
            warn!(error = %error.shown(), "the hash cannot be noted: `approve` needs all of its digits");
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
            self.output.json_line(&describe(event));
        }
        match event {
            Event::Joined { run, task } => {
                self.saw(&run.task);
                if self.shows_bar && self.progress.is_none() {
                    self.progress = Some(Progress::over(u64::from(task.visits())));
                }
                self.say("waiting for a round");
            }
            Event::Charter { hash, .. } => {
                self.saw(hash);
                self.say("looking at the charter");
            }
            Event::UnprovedWitness { .. } => self.say("the server names a ledger head that this site did not sign"),
            Event::Retrying { wait, .. } => self.say(&format!("server away, next try in {} s", wait.as_secs())),
            Event::Seen { entries } => {
                if let Some(progress) = &self.progress {
                    progress.reach(u64::from(*entries));
                }
                self.say("waiting for a round");
            }
            Event::Training { visit, .. } => self.say(&format!("computing visit {visit}")),
            Event::Committed { .. } => self.say("update stored"),
            Event::Waiting { wait, .. } => self.say(&format!("waiting {} s for the release tick", wait.as_secs())),
            Event::Sending { .. } => self.say("sending"),
            Event::Receipted { .. } => self.say("receipted, waiting for the round to close"),
            Event::Refused { .. } => self.say("refused, waiting for the round to close"),
            Event::Reported { .. } => self.say("metrics reported, waiting for a round"),
            Event::Finished { .. } => self.progress = None,
        }
    }
}

fn log(event: &Event<'_>) {
    match event {
        Event::Joined { run, task } => info!(task = %run.task, run = run.number, name = %Visible(&task.name), "joined the run"),
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
                info!(site = %Visible(member.id.as_str()), key = fingerprint(&member.key.0), "in the charter");
            }
        }
        Event::UnprovedWitness { claimed, here } => warn!(
            claimed,
            here,
            "the server claims to have seen a row of this ledger that the ledger does not have, without this site's signature: it lies, or runs from an old state; this site goes by its own ledger"
        ),
        Event::Retrying { failures, wait, error } => {
            warn!(failures, wait_ms = millis(*wait), error = %visible(&error.to_string()), "the server is away");
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use dp_pvi_programs::log::{Colour, Form};
    use dp_pvi_protocol::transport::TransportError;
    use tracing_subscriber::EnvFilter;

    use super::*;
    use crate::error::ClientError;

    const FORGED: &str = "away\u{1b}[2K\r\n2026-11-22 INFO joined the run\u{7}\u{202e}";

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_server_s_words_stay_one_line_of_the_log() {
        let log = Log::default();
        let writer = log.clone();
        // The log as the program starts it, in both forms: also words that no one thought of making visible stay on their line.
        let json = Log::default();
        for (form, to) in [(Form::Text, writer), (Form::Json, json.clone())] {
            let subscriber = dp_pvi_programs::log::to(form, EnvFilter::new("info"), Colour::Never, move || to.clone());
            let error = TransportError::Unreachable(FORGED.into());
            tracing::subscriber::with_default(subscriber, || {
                super::log(&Event::Retrying { failures: 1, wait: Duration::ZERO, error: &error });
                tracing::warn!(reason = FORGED, words = %FORGED, "{FORGED}");
            });
        }
        let written = String::from_utf8(json.0.lock().unwrap().clone()).unwrap();
        assert!(written.lines().count() == 2 && !written.contains(['\u{1b}', '\r', '\u{7}', '\u{202e}']), "{written:?}");
        let last: Value = serde_json::from_str(written.lines().last().unwrap()).unwrap();
        assert_eq!(last["fields"]["message"], FORGED, "a program reads what was said");
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("the server is away") && text.contains("joined the run"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        let hidden = ['\u{1b}', '\r', '\u{7}', '\u{202e}'];
        assert!(!text.contains(hidden), "{text:?}");
        let shown = ClientError::Version(FORGED.into()).shown();
        assert!(!shown.contains(hidden) && shown.lines().count() == 1, "{shown:?}");
    }
}
