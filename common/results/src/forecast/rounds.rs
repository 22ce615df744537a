//! `rounds = "auto"`: the number of rounds with which a task is resolved, chosen from public values before the run.
//!
//! The task is simulated with every number of rounds of a short ladder, always over the same drawn federations. A run has converged if its own posterior ends
//! within `CONVERGES` standard deviations of the point to which the released sums extrapolate, overall. Of the numbers with which runs converge, the smallest is
//! taken that is as good as the best: intervals at most `AS_WIDE` times as wide as the narrowest, and at least `AS_MUCH` of the information gained,
//! ln(prior's width/width). If none converges, all numbers compete, because noise decides then.

use crate::convergence::Convergence;
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, Rounds, TaskError};
use dp_pvi_protocol::predictive::Predictor;
use serde::{Deserialize, Serialize};

use super::{NotForecast, interval_widths, simulated, widest};

/// Numbers of rounds that are tried.
const LADDER: [u32; 8] = [4, 6, 8, 10, 15, 20, 30, 40];
/// Distance up to which a run counts as converged, overall: less than noise alone makes of a single coefficient.
const CONVERGES: f64 = 0.5;
/// Intervals that are wider by less count as equally good: a handful of federations does not tell them apart.
const AS_WIDE: f64 = 1.03;
/// Share of what is learned at best that counts as equally good.
const AS_MUCH: f64 = 0.97;
/// Federations, and rows of each. A large model has fewer federations, in which more coefficients are averaged.
const FEDERATIONS: f64 = 6.0;
const ROWS: u32 = 400;
/// Coefficients from which on a federation costs so much that there are fewer.
const LARGE: f64 = 48.0;
/// Most coefficients for which the choice takes no more than some seconds.
const LARGEST: u32 = 160;

/// What a number of rounds is worth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// The number.
    pub rounds: u32,
    /// Geometric mean of the widths of 90 % intervals, over coefficients and federations.
    pub width: f64,
    /// Mean over federations of the distance of the run's own posterior from the noise-aware one, overall.
    pub distance: f64,
}

/// A resolved task, and how its number of rounds was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The task.
    pub task: ResolvedTask,
    /// What was tried; empty where the task itself says how many rounds it has.
    pub tried: Vec<Candidate>,
}

/// Resolves a task, whose number of rounds may be `"auto"`.
///
/// # Errors
/// As [`RawTask::resolve`]; and `"auto"` for a task that cannot be forecast, or that says nothing of how large its sites are.
pub fn resolve(raw: &RawTask, schema: &str, context: ResolveContext<'_>) -> Result<Resolved, TaskError> {
    if raw.pvi.rounds != Some(Rounds::Auto) {
        return Ok(Resolved { task: raw.resolve(schema, context)?, tried: Vec::new() });
    }
    let sites = raw.pvi.expected_sites.unwrap_or(context.expected_sites).max(1) as usize;
    let limit = raw.aggregation.map(|aggregation| aggregation.max_units).or(raw.privacy.max_units);
    let Some(units) = raw.pvi.expected_units.or(limit) else {
        let text = "rounds = \"auto\" needs a public guess of the number of records of a site: set expected_units in [pvi]";
        return Err(TaskError::Invalid(text.into()));
    };
    let units = vec![units.max(1); sites];
    let (mut tried, mut tasks, mut refused) = (Vec::new(), Vec::new(), None);
    for rounds in LADDER {
        // A number that other options do not allow is none that can be chosen.
        match raw.with_rounds(rounds).resolve(schema, context) {
            Ok(task) => {
                tried.push(candidate(&task, rounds, &units).map_err(|why| not_chosen(&why))?);
                tasks.push(task);
            }
            Err(error) => refused = Some(error),
        }
    }
    let Some(best) = choice(&tried, tasks.first().map_or(f64::INFINITY, widest)) else {
        return Err(refused.unwrap_or_else(|| not_chosen(&NotForecast::Fails)));
    };
    Ok(Resolved { task: tasks.swap_remove(best), tried })
}

fn not_chosen(why: &NotForecast) -> TaskError {
    TaskError::Invalid(format!("rounds = \"auto\" is chosen by a forecast, and there is none ({why}): write a number"))
}

/// Position of the number to take; no interval is wider than `widest`.
fn choice(tried: &[Candidate], widest: f64) -> Option<usize> {
    let converges = |candidate: &&Candidate| candidate.distance <= CONVERGES;
    let all = tried.iter().find(converges).is_none();
    let narrowest =
        tried.iter().filter(|candidate| all || converges(candidate)).map(|candidate| candidate.width).fold(f64::INFINITY, f64::min);
    let learned = |width: f64| (widest / width).ln();
    let as_good = |candidate: &Candidate| {
        candidate.width <= AS_WIDE * narrowest && (candidate.width <= narrowest || learned(candidate.width) >= AS_MUCH * learned(narrowest))
    };
    tried.iter().position(|candidate| (all || converges(&candidate)) && as_good(candidate))
}

/// Simulates the task with its number of rounds.
fn candidate(task: &ResolvedTask, rounds: u32, units: &[u64]) -> Result<Candidate, NotForecast> {
    if task.dimension > LARGEST {
        return Err(NotForecast::TooLarge(LARGEST));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 2 and 6")]
    let federations = (FEDERATIONS * (LARGE / f64::from(task.dimension)).powi(3)).clamp(2.0, FEDERATIONS) as u32;
    let (mut logs, mut intervals, mut distance) = (0.0, 0.0, 0.0);
    for number in 0..federations {
        let simulated = simulated(task, units, ROWS, number)?;
        let posterior = of_run(task, &simulated.history).map_err(NotForecast::Intervals)?;
        let predictor = Predictor::new(&task.model, task.family(), &posterior.natural_parameters).map_err(|_| NotForecast::Fails)?;
        for width in interval_widths(&predictor) {
            logs += width.max(f64::MIN_POSITIVE).ln();
            intervals += 1.0;
        }
        distance += Convergence::of_run(task, &simulated.history).map_err(NotForecast::Intervals)?.overall;
    }
    Ok(Candidate { rounds, width: f64::exp(logs / f64::max(intervals, 1.0)), distance: distance / f64::from(federations) })
}

#[cfg(test)]
mod tests;
