//! Bayesian Poisson regression: y ~ Poisson(exp(xᵀθ)), y = 0, 1, 2, …
//!
//! For a Gaussian predictor with mean a and variance s² all expectations are closed forms: with the expected rate m = exp(a + s²/2),
//! f = ya − m − ln y!, r = y − m and c = m. Neither r nor c is bounded: private updates cut them (natural gradients, by public
//! `residual_bound` and `curvature_bound`) or clip the gradient (the others).

use dp_pvi_expfam::any::Gaussian;
use dp_pvi_expfam::special::ln_gamma;
use dp_pvi_posterior::models::poisson_regression as public;
use dp_pvi_posterior::models::predictor::Predictor;

use crate::capabilities::glm::{self, LinearPredictor, LogConcave, Statistics};
use crate::capabilities::{Gradients, LocalOptimum, Model};
use crate::models::PrivateHalf;
use dp_pvi_records::RecordView;

/// y ~ Poisson(exp(xᵀθ)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Poisson;

impl LinearPredictor for Poisson {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        public::PoissonRegression {}.statistics(mean, variance, target)
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        target * mean - (mean + 0.5 * variance).exp() - ln_gamma(target + 1.0)
    }

    /// At an optimum rates are about as large as counts.
    fn typical_curvature(&self, target: f64) -> f64 {
        target.clamp(0.5, 1e6)
    }
}

impl LogConcave for Poisson {}

impl PrivateHalf for public::PoissonRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(Poisson)
    }
}

impl Model for Poisson {
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64 {
        glm::expected_log_likelihood(self, record, q)
    }

    fn local_optimum(&self) -> Option<&dyn LocalOptimum> {
        Some(self)
    }

    fn linear_predictor(&self) -> Option<&dyn LinearPredictor> {
        Some(self)
    }

    fn gradients(&self) -> Option<&dyn Gradients> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::Poisson;
    use crate::capabilities::glm::LinearPredictor;
    use crate::models::probit_regression::Probit;
    use crate::testing::{check_derivatives, check_optimum};

    #[test]
    fn expectations_of_the_log_density_have_the_stated_derivatives() {
        check_derivatives(&Poisson, &[(0.3, 0.5, 1.0), (-2.0, 3.0, 0.0), (2.0, 0.1, 9.0)]);
        // A certain predictor: the log mass of 3 at rate 2.
        assert!((Poisson.expected_log_density(2f64.ln(), 0.0, 3.0) - (8.0 * (-2f64).exp() / 6.0).ln()).abs() < 1e-12);
    }

    #[test]
    fn exact_fits_of_probit_and_poisson_are_optima() {
        check_optimum(&Probit, |y| y);
        check_optimum(&Poisson, |y| 3.0 * y);
    }
}
