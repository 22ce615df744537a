//! The server's step where visits measure: that of partitioned variational inference, and what the last round measured.
//!
//! A message is [Δ | ḡ | μ̄ | H̄]: the change of λ, and means over the visit's steps. The state is [λ | Σḡ | mean of μ̄ | ΣH̄], sums and mean over the sites of the last
//! round. Nothing but λ enters a later step.

use crate::methods::pvi::PviRule;
use crate::methods::{Rule, Step, VisitSum};

/// The rule of one task.
#[derive(Debug)]
pub(super) struct MeasuredRule {
    pub(super) pvi: PviRule,
    /// d.
    pub(super) dimension: usize,
}

/// What a state holds beside λ.
pub(super) struct Measured<'a> {
    pub(super) gradient: &'a [f64],
    pub(super) point: &'a [f64],
    pub(super) curvature: &'a [f64],
}

impl<'a> Measured<'a> {
    /// `None` where this is no state of the rule, or not finite.
    pub(super) fn of(state: &'a [f64], dimension: usize) -> Option<Self> {
        let (_, measured) = state.split_at_checked(2 * dimension)?;
        if measured.len() != 3 * dimension || !state.iter().all(|v| v.is_finite()) {
            return None;
        }
        let (gradient, rest) = measured.split_at(dimension);
        let (point, curvature) = rest.split_at(dimension);
        Some(Self { gradient, point, curvature })
    }
}

impl Rule for MeasuredRule {
    fn initial(&self) -> Vec<f64> {
        [self.pvi.initial(), vec![0.0; 3 * self.dimension]].concat()
    }

    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        let d = self.dimension;
        let (lambda, measured) = state.split_at(state.len().min(2 * d));
        let usable = received.sum.len() == 5 * d && received.sum.iter().all(|v| v.is_finite());
        let Some((change, seen)) = received.sum.split_at_checked(2 * d).filter(|_| usable) else {
            // Of a wrong length: λ stays, and so does the rest.
            let step = self.pvi.apply(lambda, received.visit, &[]);
            return Step { state: [&step.state, measured].concat(), ..step };
        };
        let step = self.pvi.apply(lambda, received.visit, change);
        let sites = f64::from(received.sites.max(1));
        let averaged = |(i, value): (usize, &f64)| if (d..2 * d).contains(&i) { value / sites } else { *value };
        let seen: Vec<f64> = seen.iter().enumerate().map(averaged).collect();
        Step { state: [step.state, seen].concat(), ..step }
    }
}
