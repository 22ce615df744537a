//! Linear regression with unknown noise: the state is [λ | E τ].

use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::triangle;

use crate::methods::{Intervals, LinearNoiseSpec, Setting, StatisticsSpec, VipsSpec};
use crate::methods::{Step, VisitSum};
use dp_pvi_math::polya_gamma::{noise_aware_posterior, raise_to};
use dp_pvi_models::linear_regression::unknown_noise::{Sums, fit};

/// What a run's rule knows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Linear {
    spec: LinearNoiseSpec,
    family: Family,
    prior: Vec<f64>,
}

impl VipsSpec {
    /// Standard deviation of the noise of an observation that a state has learned; `None` where the task says that it is known.
    #[must_use]
    pub fn noise_sd(&self, state: &[f64]) -> Option<f64> {
        let StatisticsSpec::LinearNoise(_) = self.statistics else { return None };
        state.last().map(|precision| precision.recip().sqrt()).filter(|sd| sd.is_finite() && *sd > 0.0)
    }
}

impl Linear {
    pub(crate) fn new(task: &Setting<'_>, spec: LinearNoiseSpec) -> Self {
        Self { spec, family: task.family(), prior: task.prior_natural() }
    }

    pub(crate) fn initial(&self) -> Vec<f64> {
        let mut state = self.prior.clone();
        state.push(self.spec.precision.expected_precision());
        state
    }

    /// The posterior; `noise` is the standard deviation on a coordinate of the sum that arrived.
    pub(crate) fn step(&self, noise: f64, scales: &[f64], received: &VisitSum<'_>) -> Option<Step> {
        let d = self.family.dimension();
        let &[one, two, three] = scales else { return None };
        let (first, rest) = received.sum.split_at_checked(d)?;
        let (second, &[squares]) = rest.split_at_checked(triangle(d))? else { return None };
        if !received.sum.iter().all(|v| v.is_finite()) {
            return None;
        }
        let first: Vec<f64> = first.iter().map(|s| s * one).collect();
        let second: Vec<f64> = second.iter().map(|s| s * two).collect();
        #[allow(clippy::cast_precision_loss, reason = "a dimension")]
        let level = self.spec.eigenvalue_floor * noise * two * (0.5 * d as f64).sqrt();
        let raised = raise_to(&second, d, level);
        let prior = Gaussian::from_natural(self.family, self.prior.clone()).ok()?;
        let sums = Sums { first: &first, second: &raised.second, squares: squares * three, records: self.spec.records };
        let (naive, tau) = fit(&prior, self.spec.precision, sums).ok()?;
        let tau = tau.expected_precision();
        let posterior = match self.spec.intervals {
            Intervals::Naive => naive,
            Intervals::NoiseAware => {
                let [first, second] = [&first, &raised.second].map(|sum| sum.iter().map(|s| tau * s).collect::<Vec<_>>());
                noise_aware_posterior(&prior, &naive, &vec![0.0; d], &first, &second, [tau * noise * one, tau * noise * two]).ok()?
            }
        };
        let mut state = posterior.natural().to_vec();
        state.push(tau);
        state.iter().all(|v| v.is_finite()).then_some(Step { state, correction: None, floored: raised.directions })
    }
}
