//! The server's step of global DP variational inference: Adam on (μ, log σ) with the released gradient of the likelihood
//! and the prior's own, which is public and has no noise.
//!
//! The state is [λ | first moments | second moments], 2d numbers each.

use dp_pvi_math::expfam::any::{Family, Gaussian};

use crate::methods::{GlobalViSpec, Rule, Setting, Step, VisitSum};
use dp_pvi_math::optim::Adam;
use dp_pvi_models::spec::Prior;

/// Bounds of log σ.
const LOG_SCALE: (f64, f64) = (-10.0, 2.0);

/// The rule of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct GlobalViRule {
    spec: GlobalViSpec,
    family: Family,
    prior: Prior,
}

impl GlobalViRule {
    /// The rule of a task with this update.
    #[must_use]
    pub fn new(task: &Setting<'_>, spec: GlobalViSpec) -> Self {
        Self { spec, family: task.family(), prior: task.priors() }
    }

    fn step(&self, state: &[f64], received: &VisitSum<'_>) -> Option<Vec<f64>> {
        let d = self.family.dimension();
        if state.len() != 6 * d || received.sum.len() != 2 * d {
            return None;
        }
        let (lambda, moments) = state.split_at(2 * d);
        let (first, second) = moments.split_at(2 * d);
        let q = Gaussian::from_natural(self.family, lambda.to_vec()).ok()?;
        let (mean, variance) = (q.standard().mean(), q.standard().variances());
        let mut parameters: Vec<f64> = mean.iter().copied().chain(variance.iter().map(|v| 0.5 * v.ln())).collect();
        let weight = 1.0 / self.spec.sampling_rate.get();
        // Adam descends.
        let gradient: Vec<f64> = (0..d)
            .map(|j| -(weight * received.sum[j] + self.prior.precision[j] * (self.prior.mean[j] - mean[j])))
            .chain((0..d).map(|j| -(weight * received.sum[d + j] + 1.0 - self.prior.precision[j] * variance[j])))
            .collect();
        let mut adam = Adam::resume(first.to_vec(), second.to_vec(), received.visit);
        adam.step(&mut parameters, &gradient, self.spec.learning_rate);
        let precision = parameters[d..].iter().map(|l| (-2.0 * l.clamp(LOG_SCALE.0, LOG_SCALE.1)).exp());
        let precision: Vec<f64> = precision.collect();
        let lambda: Vec<f64> = parameters.iter().zip(&precision).map(|(m, p)| m * p).chain(precision.iter().copied()).collect();
        Gaussian::from_natural(self.family, lambda.clone()).ok()?;
        let (first, second) = adam.moments();
        let next = [lambda.as_slice(), first, second].concat();
        next.iter().all(|value| value.is_finite()).then_some(next)
    }
}

impl Rule for GlobalViRule {
    fn initial(&self) -> Vec<f64> {
        let d = self.family.dimension();
        let start = Prior { precision: vec![(-2.0 * self.spec.initial_log_scale).exp(); d], ..self.prior.clone() };
        let mut state = start.natural(self.family);
        state.resize(6 * d, 0.0);
        state
    }

    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        match self.step(state, received) {
            Some(state) => Step { state, correction: None, floored: 0 },
            None => Step { state: state.to_vec(), correction: None, floored: self.family.dimension() },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::GlobalViRule;
    use crate::methods::GlobalViSpec;
    use crate::methods::{Rule, VisitSum};
    use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, SamplingRate};
    use dp_pvi_math::expfam::any::{Family, Gaussian};
    use dp_pvi_models::spec::{Prior, PriorSpec};

    fn rule() -> GlobalViRule {
        let spec = GlobalViSpec {
            sampling_rate: SamplingRate::nearest(0.5).unwrap(),
            clip_norm: ClipNorm::new(1.0).unwrap(),
            noise_multiplier: NoiseMultiplier::new(1.0).unwrap(),
            learning_rate: 0.02,
            initial_log_scale: -1.0,
        };
        let prior = Prior::isotropic(PriorSpec { mean: 0.5, scale: 0.5 }, 2);
        GlobalViRule { spec, family: Family::DiagonalGaussian { dimension: 2 }, prior }
    }

    /// Without any record the optimum is the prior.
    #[test]
    fn without_records_the_state_falls_back_to_the_prior() {
        let rule = rule();
        let mut state = rule.initial();
        for visit in 0..3000 {
            state = rule.apply(&state, &VisitSum { visit, sites: 3, sum: &[0.0; 4] }).state;
        }
        for (found, expected) in state.iter().zip([2.0, 2.0, 4.0, 4.0]) {
            assert!((found - expected).abs() < 1e-3, "{state:?}");
        }
    }

    /// A quadratic log-likelihood with precision 12 around 2 in every coordinate, half of it in the sample.
    #[test]
    fn the_state_goes_to_the_optimum_of_the_bound() {
        let rule = rule();
        let mut state = rule.initial();
        for visit in 0..4000 {
            let q = Gaussian::from_natural(rule.family, state[..4].to_vec()).unwrap();
            let (mean, variance) = (q.standard().mean().to_vec(), q.standard().variances());
            let sum: Vec<f64> = mean.iter().map(|m| 0.5 * 12.0 * (2.0 - m)).chain(variance.iter().map(|v| -0.5 * 12.0 * v)).collect();
            state = rule.apply(&state, &VisitSum { visit, sites: 3, sum: &sum }).state;
        }
        // Precision 4 + 12, mean (4·0.5 + 12·2)/16.
        for (found, expected) in state.iter().zip([26.0, 26.0, 16.0, 16.0]) {
            assert!((found - expected).abs() < 1e-2, "{state:?}");
        }
    }

    #[test]
    fn sums_that_are_no_numbers_leave_the_state_where_it_is() {
        let rule = rule();
        let state = rule.initial();
        for sum in [vec![f64::NAN; 4], vec![f64::INFINITY; 4], vec![1.0]] {
            assert_eq!(rule.apply(&state, &VisitSum { visit: 3, sites: 1, sum: &sum }).state, state);
        }
    }
}
