//! A learned scale of the observations for rules that move λ by the sites' changes: 1/σ² ~ Gamma has one factor of every site too.
//!
//! The state is [state of the rule | shape, rate], and what a site sends ends with the changes of its own shape and rate, ½ Σ w and ½σ² Σ w t of its records at its fit. With
//! the prior's they add up to q(1/σ²) of [`observation`](crate::numerics::observation), and σ² := rate/shape is what sites fit with at their next visit. Nothing here is noised.

use super::{Arrived, PviRule, Rule, Step};
use crate::numerics::observation::Precision;

/// A rule of changes with the two numbers behind λ.
#[derive(Debug)]
pub(super) struct WithScale {
    pub(super) inner: PviRule,
    pub(super) prior: Precision,
}

impl Rule for WithScale {
    fn initial(&self) -> Vec<f64> {
        [self.inner.initial().as_slice(), &[self.prior.shape, self.prior.rate]].concat()
    }

    fn apply(&self, state: &[f64], arrived: &Arrived<'_>) -> Step {
        let (own, scale) = state.split_at(state.len().saturating_sub(2));
        let (sum, told) = arrived.sum.split_at(arrived.sum.len().saturating_sub(2));
        let step = self.inner.apply(own, arrived.visit, sum);
        let rho = self.inner.damping(arrived.visit);
        let moved = match (scale, told) {
            ([shape, rate], [of_shape, of_rate]) => Precision { shape: shape + rho * of_shape, rate: rate + rho * of_rate },
            _ => self.prior,
        };
        // A sum that could not be used says nothing of the scale either.
        let used = step.state != own || sum.iter().all(|change| *change == 0.0);
        let scale = if used && moved.is_within(&self.prior) { vec![moved.shape, moved.rate] } else { scale.to_vec() };
        Step { state: [step.state, scale].concat(), ..step }
    }
}
