//! How far the run is from where its released sums lead: computed from the store beside the run, at most once after each round.

use std::sync::Arc;

use dp_pvi_posterior::reading::convergence::Verdict;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tracing::warn;

use crate::config::Config;
use crate::engine::Snapshot;
use crate::export;

/// Convergence after a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Closed rounds that it is about.
    pub rounds: u32,
    /// Whether the run has arrived; none where that is not known.
    pub verdict: Option<Verdict>,
    /// Root mean square over the coefficients of the distance between the run's own posterior and where its released sums place it, in standard
    /// deviations.
    pub overall: Option<f64>,
    /// What that means, or why it is not known.
    pub sentence: String,
}

impl Standing {
    /// On one line, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let overall = self.overall.map_or_else(String::new, |overall| format!("{overall:.2} standard deviations overall. "));
        format!("after round {}: {overall}{}", self.rounds, self.sentence)
    }
}

/// The last standing that was computed.
#[derive(Clone)]
pub(crate) struct Standings {
    config: Arc<Config>,
    last: Arc<Mutex<Option<Standing>>>,
}

impl Standings {
    pub(crate) fn new(config: Config) -> Self {
        Self { config: Arc::new(config), last: Arc::new(Mutex::new(None)) }
    }

    /// Adds to a snapshot what is known. Who asks while it is being computed for somebody else gets none: nobody waits in a queue for it.
    pub(crate) async fn add_to(&self, snapshot: &mut Snapshot) {
        let Ok(mut last) = Arc::clone(&self.last).try_lock_owned() else { return };
        if snapshot.rounds_closed > 0 && last.as_ref().is_none_or(|last| last.rounds < snapshot.rounds_closed) {
            let config = Arc::clone(&self.config);
            // It goes on, and is kept, where whoever asked has gone.
            let computed = tokio::task::spawn_blocking(move || {
                match export::standing(&config) {
                    Ok(standing) => *last = Some(standing),
                    Err(problem) => warn!(%problem, "the run's convergence could not be computed"),
                }
                last.clone()
            });
            snapshot.standing = computed.await.ok().flatten();
        } else {
            snapshot.standing.clone_from(&last);
        }
    }
}
