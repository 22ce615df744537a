//! A learned scale of the observations for rules that move λ by the sites' changes: 1/σ² ~ Gamma has one factor of every site too.
//!
//! The state is [state of the rule | shape, rate], and what a site sends ends with the changes of its own shape and rate, ½ Σ w and ½σ² Σ w t of its records at its fit. With
//! the prior's they add up to q(1/σ²) of [`observation`](dp_pvi_math::observation), and σ² := rate/shape is what sites fit with at their next visit. Nothing here is noised.

use super::{PviRule, Rule, Step, VisitSum};
use dp_pvi_math::observation::Precision;

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

    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        let (own, scale) = state.split_at(state.len().saturating_sub(2));
        let (sum, of_scale) = received.sum.split_at(received.sum.len().saturating_sub(2));
        let step = self.inner.apply(own, received.visit, sum);
        let rho = self.inner.damping(received.visit);
        let moved = match (scale, of_scale) {
            ([shape, rate], [of_shape, of_rate]) => Precision { shape: shape + rho * of_shape, rate: rate + rho * of_rate },
            _ => self.prior,
        };
        // A sum that could not be used says nothing of the scale either.
        let used = step.state != own || sum.iter().all(|change| *change == 0.0);
        let kept = used && moved.is_within(&self.prior);
        let undone: Vec<f64> = of_scale.iter().map(|change| if kept { 0.0 } else { -rho * change }).collect();
        let correction = match step.correction {
            None if kept => None,
            moved => Some([moved.unwrap_or_else(|| vec![0.0; own.len()]), undone].concat()),
        };
        let scale = if kept { vec![moved.shape, moved.rate] } else { scale.to_vec() };
        Step { state: [step.state, scale].concat(), correction, floored: step.floored }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_math::expfam::any::Family;

    use super::WithScale;
    use crate::methods::{PviRule, Rule, VisitSum};
    use dp_pvi_math::floor::PrecisionFloor;
    use dp_pvi_math::observation::Precision;

    /// The two numbers move with λ, and where they cannot, or λ cannot, the correction says what was left out.
    #[test]
    fn shape_and_rate_move_with_the_factors() {
        let family = Family::DiagonalGaussian { dimension: 1 };
        let inner = PviRule::from_parts(family, vec![0.0, 1.0], PrecisionFloor::LogConcave, vec![0.5]);
        let rule = WithScale { inner, prior: Precision { shape: 1.0, rate: 0.25 } };
        let start = rule.initial();
        assert_eq!(start, [0.0, 1.0, 1.0, 0.25]);
        let apply = |sum: &[f64]| rule.apply(&start, &VisitSum { visit: 0, sites: 1, sum });
        let step = apply(&[1.0, 2.0, 4.0, 8.0]);
        assert_eq!((step.state, step.correction), (vec![0.5, 2.0, 3.0, 4.25], None));
        for refused in [[1.0, 2.0, 4.0, 1e12], [1.0, 2.0, f64::NAN, 8.0], [1.0, 2.0, -4.0, 8.0], [f64::INFINITY, 2.0, 4.0, 8.0]] {
            let step = apply(&refused);
            assert_eq!(step.state[2..], start[2..], "{refused:?}");
            let undone = step.correction.unwrap();
            assert!(undone.len() == 4 && (refused[3] == 8.0 || undone[3] == -5e11), "{undone:?}");
        }
        assert_eq!(apply(&[1.0]).state, start, "a sum of another length");
    }
}
