//! The noise-aware posterior of a run: intervals that include the noise which protects the records ([`dp_pvi_posterior::methods::noise_aware`]).

use dp_pvi_expfam::any::Gaussian;
pub use dp_pvi_posterior::methods::noise_aware::{Absent, ClosedRound, Contribution, History, LOW_SIGNAL, OwnNoise, Posterior};
use dp_pvi_posterior::task::ResolvedTask;

/// Whether [`of_run`] may have an answer: only then need the states of all rounds be read.
///
/// # Errors
/// Why there is none whatever the run does.
pub fn is_known(task: &ResolvedTask) -> Result<(), Absent> {
    task.noise_is_known()?;
    // A late update started from the state before earlier rounds, of which the recursion knows nothing.
    if task.schedule.staleness().is_some() { Err(Absent::Late) } else { Ok(()) }
}

/// The noise-aware posterior of a run.
///
/// # Errors
/// Why there is none.
pub fn of_run(task: &ResolvedTask, history: &History) -> Result<Posterior, Absent> {
    is_known(task)?;
    let posterior = task.noise_aware(history)?;
    // A run may have left the numbers of a computer where the plain posterior has come back.
    match Gaussian::from_natural(task.family(), posterior.natural_parameters.clone()) {
        Ok(_) => Ok(posterior),
        Err(_) => Err(Absent::Diverged),
    }
}

/// The noise-aware posterior of the other sites: what is left of a run's sums when one site's part is taken out of them.
///
/// # Errors
/// Why there is none.
pub fn without(task: &ResolvedTask, history: &History, part: &Contribution) -> Result<Posterior, Absent> {
    is_known(task)?;
    let posterior = task.noise_aware_without(history, part)?;
    match Gaussian::from_natural(task.family(), posterior.natural_parameters.clone()) {
        Ok(_) => Ok(posterior),
        Err(_) => Err(Absent::Diverged),
    }
}

/// λ_k: what a site's released sums added to the posterior as it came out of the run; `None` where that is not known.
#[must_use]
pub(crate) fn released_factor(task: &ResolvedTask, history: &History, part: &Contribution) -> Option<Vec<f64>> {
    task.released_factor(history, part)
}
