//! Whether a run has settled: the public rule by which it may end before its plan does ([`EarlyEndSpec`]).
//!
//! After visit t the result is N(m_t, S_t): the noise-aware posterior, or where no noise was added the run's own. Visit t moved it by
//! max_j |m_t − m_{t−1}|_j / √(S_t)_jj. The run has settled once each of the last visits moved it by no more than the rule's distance, and the released
//! sums tell where it leads (`noise_share` of [`Posterior`](dp_pvi_posterior::methods::noise_aware::Posterior) at least ½).
//!
//! A posterior that is updated moves by as much as it narrows: E(m_t − m_{t−1})² = S_{t−1} − S_t. So the rule waits as long as rounds still make the
//! intervals narrower, and is met where they do not.
//!
//! The answer is a function of closed rounds alone: anyone who has their states and the declared units finds the same.

use dp_pvi_math::expfam::any::Gaussian;

use dp_pvi_posterior::methods::noise_aware::{Absent, ClosedRound, History};
use dp_pvi_posterior::noise_aware;
use dp_pvi_posterior::task::{EarlyEndSpec, ResolvedTask};

/// Share of noise in the noise-aware posterior's extra width below which the rest of the way decides.
pub const LEAST_NOISE_SHARE: f64 = 0.5;
/// By how much another machine's last digits may move the border.
const OTHER_MACHINE: f64 = 1.0 + 1e-6;

/// Whether a run of these closed rounds may end by its task's rule. All sites have had their turn of the last visit.
#[must_use]
pub fn is_met(task: &ResolvedTask, history: &History) -> bool {
    met(task, history, 1.0)
}

/// The same about a run that ended by the rule, perhaps on another machine.
#[must_use]
pub fn was_met(task: &ResolvedTask, history: &History) -> bool {
    met(task, history, OTHER_MACHINE)
}

fn met(task: &ResolvedTask, history: &History, slack: f64) -> bool {
    let Some(EarlyEndSpec { distance, rounds }) = task.early_end else { return false };
    let mut ends = ends_of_visits(&history.rounds).into_iter().rev();
    let Some(mut after) = ends.next().and_then(|end| result(task, history, end, slack)) else { return false };
    // The newest first: most rounds are distinguished by their last move.
    for _ in 0..rounds {
        let Some(before) = ends.next().and_then(|end| result(task, history, end, slack)) else { return false };
        if after.moved_from(&before) > distance * slack {
            return false;
        }
        after = before;
    }
    true
}

/// How many rounds there are up to the end of every visit.
fn ends_of_visits(rounds: &[ClosedRound]) -> Vec<usize> {
    (1..=rounds.len()).filter(|&end| rounds.get(end).is_none_or(|next| next.visit != rounds[end - 1].visit)).collect()
}

/// Mean and standard deviation of every coordinate of what the run would leave if it ended here.
struct Marginals {
    mean: Vec<f64>,
    sd: Vec<f64>,
}

impl Marginals {
    /// Largest move of a coordinate, in standard deviations; infinite where a number is not one.
    fn moved_from(&self, before: &Self) -> f64 {
        let moves = self.mean.iter().zip(&before.mean).zip(&self.sd).map(|((after, before), sd)| (after - before).abs() / sd);
        moves.map(|moved| if moved.is_nan() { f64::INFINITY } else { moved }).fold(0.0, f64::max)
    }
}

/// The result after the first `end` rounds; none where the last visit brought nothing, or where there is none that could be trusted.
fn result(task: &ResolvedTask, history: &History, end: usize, slack: f64) -> Option<Marginals> {
    let rounds = history.rounds.get(..end)?;
    let last = rounds.last()?;
    rounds.iter().rev().take_while(|round| round.visit == last.visit).find(|round| !round.included.is_empty())?;
    let natural = match noise_aware::is_known(task) {
        Ok(()) => {
            let before = rounds.iter().rev().find(|round| round.visit != last.visit);
            // A sum that could not be used left the state as it was: that is no sign of rest.
            before.filter(|before| before.state != last.state)?;
            let so_far = History { shares: history.shares.clone(), rounds: rounds.to_vec() };
            let posterior = noise_aware::of_run(task, &so_far).ok()?;
            posterior.noise_share.is_none_or(|share| share * slack >= LEAST_NOISE_SHARE).then_some(posterior.natural_parameters)?
        }
        Err(Absent::NoNoise) => task.posterior(&last.state).to_vec(),
        Err(_) => return None,
    };
    let posterior = Gaussian::from_natural(task.family(), natural).ok()?;
    let sd = posterior.standard().variances().iter().map(|variance| variance.sqrt()).collect();
    Some(Marginals { mean: posterior.standard().mean().to_vec(), sd })
}

#[cfg(test)]
mod tests;
