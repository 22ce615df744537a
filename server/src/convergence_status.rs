//! How far the run is from where its released sums lead: computed from the store beside the run, at most once after each round.

use std::sync::Arc;

use tokio::sync::Mutex;
use tracing::warn;

use crate::config::Config;
use crate::export::{self, ConvergenceStatus};

/// The last convergence status that was computed.
#[derive(Clone)]
pub(crate) struct StatusCache {
    config: Arc<Config>,
    last: Arc<Mutex<Option<ConvergenceStatus>>>,
}

impl StatusCache {
    pub(crate) fn new(config: Config) -> Self {
        Self { config: Arc::new(config), last: Arc::new(Mutex::new(None)) }
    }

    /// The status after so many closed rounds; `None` while it is being computed for another caller.
    pub(crate) async fn after(&self, rounds: u32) -> Option<ConvergenceStatus> {
        let mut last = Arc::clone(&self.last).try_lock_owned().ok()?;
        if rounds > 0 && last.as_ref().is_none_or(|last| last.rounds < rounds) {
            let config = Arc::clone(&self.config);
            // It goes on, and is kept, where anyone who asked has gone.
            let computed = tokio::task::spawn_blocking(move || {
                match export::convergence(&config) {
                    Ok(convergence) => *last = Some(convergence),
                    Err(problem) => warn!(%problem, "the run's convergence could not be computed"),
                }
                last.clone()
            });
            computed.await.ok().flatten()
        } else {
            last.clone()
        }
    }
}
