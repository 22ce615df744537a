//! How far the run is from where its released sums lead: computed from the store beside the run, at most once after each round.

use std::sync::Arc;

use tokio::sync::Mutex;
use tracing::warn;

use crate::config::Config;
use crate::export::{self, Standing};

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

    /// What is known after so many closed rounds. Who asks while it is being computed for somebody else gets none: nobody waits in a queue for it.
    pub(crate) async fn after(&self, rounds: u32) -> Option<Standing> {
        let mut last = Arc::clone(&self.last).try_lock_owned().ok()?;
        if rounds > 0 && last.as_ref().is_none_or(|last| last.rounds < rounds) {
            let config = Arc::clone(&self.config);
            // It goes on, and is kept, where whoever asked has gone.
            let computed = tokio::task::spawn_blocking(move || {
                match export::standing(&config) {
                    Ok(standing) => *last = Some(standing),
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
