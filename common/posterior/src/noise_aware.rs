//! The noise-aware posterior of a run: intervals that include the noise which protects the records ([`crate::methods::noise_aware`]).

use crate::methods::noise_aware::{Absent, ClosedRound, Contribution, History, Posterior};
use crate::task::{ResolvedTask, UpdateSpec};
use dp_pvi_math::expfam::any::Gaussian;

/// Whether [`of_run`] may have an answer: only then need the states of all rounds be read.
///
/// # Errors
/// Why there is none whatever the run does.
pub fn is_known(task: &ResolvedTask) -> Result<(), Absent> {
    task.noise_is_known()?;
    // A late update started from the state before earlier rounds, of which the recursion knows nothing.
    if task.schedule.staleness().is_some() { Err(Absent::Late) } else { Ok(()) }
}

/// Whether the states between rounds determine the intervals: through the noise, or, without noise, through whether the run has settled.
#[must_use]
pub fn states_tell(task: &ResolvedTask) -> bool {
    match is_known(task) {
        Ok(()) => true,
        Err(absent) => absent == Absent::NoNoise && settles(task),
    }
}

/// Whether it can be seen if a run without noise has settled: all sites answer the same visit, and either there are several visits or one takes a part of its way only. The
/// states of all rounds must be held for it, so there is a largest number of numbers in them.
fn settles(task: &ResolvedTask) -> bool {
    let (visits, sites) = (u64::from(task.visits()), u64::from(task.min_sites.max(1)));
    let held = (task.family().len() as u64).saturating_mul(visits).saturating_mul(sites);
    matches!(task.update, UpdateSpec::Pvi {})
        && task.schedule.staleness().is_none()
        && held <= LARGEST_HELD
        && (visits > 1 || rho(task, 0) < 1.0)
}

/// Numbers in the states of all rounds.
const LARGEST_HELD: u64 = 1 << 22;
/// A run has settled when its last visit, had it gone all of its way, moved every mean by at most so many standard deviations,
const MOVED: f64 = 0.1;
/// and every standard deviation by at most this share.
const NARROWED: f64 = 0.02;

/// The share of its way that a visit goes.
fn rho(task: &ResolvedTask, visit: u32) -> f64 {
    task.damping.get(visit as usize).or(task.damping.last()).copied().unwrap_or(1.0)
}

/// Whether the last visit, of all sites that took part, left the posterior where it was. A visit that brought nothing, or whose step the server could not take, is no sign
/// of rest.
fn settled(task: &ResolvedTask, history: &History) -> bool {
    let answered: Vec<&ClosedRound> = history.rounds.iter().filter(|round| !round.included.is_empty()).collect();
    let Some(last) = answered.last() else { return false };
    let first = answered.iter().position(|round| round.visit == last.visit).unwrap_or(0);
    let of_visit = &answered[first..];
    let everybody = answered.iter().flat_map(|round| &round.included);
    let all_of_them = everybody.into_iter().all(|site| of_visit.iter().any(|round| round.included.contains(site)));
    if !all_of_them || of_visit.iter().any(|round| round.correction.is_some()) {
        return false;
    }
    let initial = task.rule().initial();
    let before = first.checked_sub(1).map_or(&initial, |before| &answered[before].state);
    let marginals = |state: &[f64]| {
        let q = Gaussian::from_natural(task.family(), task.posterior(state).to_vec()).ok()?;
        let sds: Vec<f64> = q.standard().variances().iter().map(|variance| variance.sqrt()).collect();
        Some((q.standard().mean().to_vec(), sds))
    };
    let (Some((mean, sd)), Some((mean_before, sd_before))) = (marginals(&last.state), marginals(before)) else { return false };
    let part = rho(task, last.visit);
    let moved = mean.iter().zip(&mean_before).zip(&sd).all(|((now, then), sd)| (now - then).abs() <= MOVED * part * sd);
    moved && last.state != initial && sd.iter().zip(&sd_before).all(|(now, then)| (now / then).ln().abs() <= NARROWED * part)
}

/// The noise-aware posterior of a run.
///
/// # Errors
/// Why there is none.
pub fn of_run(task: &ResolvedTask, history: &History) -> Result<Posterior, Absent> {
    match is_known(task) {
        Err(Absent::NoNoise) if settles(task) && !settled(task, history) => return Err(Absent::Unsettled),
        known => known?,
    }
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
pub fn released_factor(task: &ResolvedTask, history: &History, part: &Contribution) -> Option<Vec<f64>> {
    task.released_factor(history, part)
}
