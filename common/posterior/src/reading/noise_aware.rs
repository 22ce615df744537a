//! The noise-aware posterior of a run: intervals that include the noise which protects the records ([`crate::methods::noise_aware`]).

pub use crate::methods::noise_aware::{ClosedRound, History, LOW_SIGNAL, Posterior};
use crate::task::ResolvedTask;

/// Whether [`of_run`] may have an answer: only then need the states of all rounds be read.
#[must_use]
pub fn is_known(task: &ResolvedTask) -> bool {
    // A late update started from the state before earlier rounds, of which the recursion knows nothing.
    task.schedule.staleness().is_none() && task.update.rules().knows_noise()
}

/// The noise-aware posterior of a run. `None` where the noise on the posterior is not known: exact updates have none, Adam divides by
/// what it has seen, late updates of an asynchronous run started from older states, and other updates bring their own covariance.
#[must_use]
pub fn of_run(task: &ResolvedTask, history: &History) -> Option<Posterior> {
    if !is_known(task) {
        return None;
    }
    task.update.rules().noise_aware(&task.setting(), history)
}
