//! Learned scales for rules that move λ by the sites' changes: after a round, λ ← λ + λ0(τ_new) − λ0(τ_old).
//!
//! The state is [state of the rule | τ²]. What the rule does and what sites compute is unchanged: their factors are likelihoods, and the prior is the server's
//! alone. The first round, whose answers come from the prior's mean, leaves τ as it is. Post-processing of released values.

use dp_pvi_math::expfam::any::{Family, Gaussian};

use super::{Rule, Setting, Step, VisitSum};
use dp_pvi_math::scales::NoisyScales;
use dp_pvi_models::spec::Prior;

/// The likelihood that a round estimates, with its noise accounted for: [p; P] as [`NoisyScales::new`] takes it, from the rule's state.
pub(super) type NoisyLikelihood = Box<dyn Fn(&[f64], &VisitSum<'_>) -> Option<Vec<f64>> + Send + Sync>;

/// The rule for a λ0: floors are relative to it.
pub(super) type ForPrior = Box<dyn Fn(Vec<f64>) -> Box<dyn Rule> + Send + Sync>;

/// A rule whose prior has learned scales.
pub(super) struct ScaledRule {
    inner: ForPrior,
    family: Family,
    prior: Prior,
    /// Absent without noise: τ then follows from the posterior itself.
    noisy: Option<NoisyLikelihood>,
}

impl std::fmt::Debug for ScaledRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScaledRule").field("prior", &self.prior).finish_non_exhaustive()
    }
}

/// Number of τ² at the end of a state; 0 where no scale is learned.
pub(crate) fn learned(task: &Setting<'_>) -> u64 {
    let prior = task.priors();
    if prior.learns_scales() { prior.groups.len() as u64 } else { 0 }
}

impl ScaledRule {
    /// The rule of a task: `inner` alone where no scale is learned.
    pub(super) fn over(inner: ForPrior, task: &Setting<'_>, noisy: Option<NoisyLikelihood>) -> Box<dyn Rule> {
        let prior = task.priors();
        if prior.learns_scales() {
            Box::new(Self { inner, family: task.family(), prior, noisy })
        } else {
            inner(prior.natural(task.family()))
        }
    }

    fn scales(&self, state: &[f64], scales: &[f64], received: &VisitSum<'_>) -> Option<Vec<f64>> {
        match &self.noisy {
            Some(noisy) => {
                let noisy = noisy(state, received)?;
                let known = NoisyScales::new(self.family, &noisy, (&self.prior.mean, &self.prior.precision), &self.prior.groups);
                Some(known.fixed_point(scales)?.scales)
            }
            None => {
                let q = Gaussian::from_natural(self.family, state.get(..self.family.len())?.to_vec()).ok()?;
                let variances = q.standard().variances();
                Some(self.prior.groups.iter().map(|group| group.scale(q.standard().mean(), &variances)).collect())
            }
        }
    }
}

impl Rule for ScaledRule {
    fn initial(&self) -> Vec<f64> {
        [(self.inner)(self.prior.natural(self.family)).initial(), self.prior.starts()].concat()
    }

    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        let (own, scales) = state.split_at(state.len().saturating_sub(self.prior.groups.len()));
        let step = (self.inner)(self.prior.with(scales).natural(self.family)).apply(own, received);
        let whole = |step: Step, scales: &[f64]| Step { state: [step.state.as_slice(), scales].concat(), ..step };
        // A sum that could not be used says nothing of τ either; one of sites that have converged is 0.
        let unused = step.state == own && !received.sum.iter().take(self.family.len()).all(|change| *change == 0.0);
        if received.visit == 0 || unused || received.sum.len() < self.family.len() {
            return whole(step, scales);
        }
        let moved = || {
            let new = self.scales(&step.state, scales, received)?;
            let (before, after) = (self.prior.with(scales).natural(self.family), self.prior.with(&new).natural(self.family));
            let change: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
            let mut state = step.state.clone();
            state.iter_mut().zip(&change).for_each(|(value, change)| *value += change);
            Gaussian::from_natural(self.family, state[..self.family.len()].to_vec()).ok()?;
            let correction = match &step.correction {
                Some(floor) => floor.iter().zip(&change).map(|(floor, change)| floor + change).collect(),
                None => change,
            };
            Some((Step { state, correction: Some(correction), floored: step.floored }, new))
        };
        match moved() {
            Some((step, new)) => whole(step, &new),
            None => whole(step, scales),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
