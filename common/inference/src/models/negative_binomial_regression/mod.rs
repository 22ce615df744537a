//! Bayesian negative binomial regression: y of mean m = exp(xᵀθ) and variance m + m²/φ, y = 0, 1, 2, …
//!
//! With w = z − ln φ and B0 = E softplus(w), f = ln Γ(y + φ) − ln Γ(φ) − ln y! + y(a − ln φ) − (y + φ)B0. Its derivatives are those of a logit times counts
//! ([`Predictor`]), so that they are bounded wherever counts are.

use dp_pvi_expfam::any::Gaussian;
use dp_pvi_posterior::models::negative_binomial_regression as public;
use dp_pvi_posterior::models::predictor::Predictor;
use dp_pvi_posterior::numerics::count::negative_binomial::log_constant;
use dp_pvi_posterior::numerics::quadrature::softplus;

use crate::capabilities::glm::{self, LinearPredictor, LogConcave, Statistics};
use crate::capabilities::{Gradients, LocalOptimum, Model};
use crate::models::PrivateHalf;
use dp_pvi_records::RecordView;

/// y of mean exp(xᵀθ) and dispersion φ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NegativeBinomial {
    public: public::NegativeBinomialRegression,
}

impl NegativeBinomial {
    /// With this φ, which a resolved task has checked to be positive.
    #[must_use]
    pub fn new(dispersion: f64) -> Self {
        Self { public: public::NegativeBinomialRegression { dispersion } }
    }
}

impl LinearPredictor for NegativeBinomial {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        self.public.statistics(mean, variance, target)
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let dispersion = self.public.dispersion;
        let centred = mean - dispersion.ln();
        log_constant(target, dispersion) + target * centred - (target + dispersion) * softplus(centred, variance)
    }

    fn largest_curvature(&self, bound: f64, target: f64) -> f64 {
        self.public.largest_curvature(bound, target)
    }

    /// At an optimum rates are about as large as counts, and c = mφ/(m + φ) where the rate is the count.
    fn typical_curvature(&self, target: f64) -> f64 {
        let (rate, dispersion) = (target.clamp(0.5, 1e6), self.public.dispersion);
        rate * dispersion / (rate + dispersion)
    }
}

/// ln p is a sum of a linear function and of −softplus, times a positive number.
impl LogConcave for NegativeBinomial {}

impl PrivateHalf for public::NegativeBinomialRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(NegativeBinomial::new(self.dispersion))
    }
}

impl Model for NegativeBinomial {
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
    use super::NegativeBinomial;
    use crate::capabilities::glm::LinearPredictor;
    use crate::models::poisson_regression::Poisson;
    use crate::testing::{check_derivatives, check_optimum};

    #[test]
    fn expectations_of_the_log_density_have_the_stated_derivatives() {
        for dispersion in [0.3, 1.7, 60.0] {
            check_derivatives(&NegativeBinomial::new(dispersion), &[(0.3, 0.5, 1.0), (-2.0, 3.0, 0.0), (2.0, 0.1, 9.0)]);
        }
    }

    #[test]
    fn a_certain_predictor_gives_the_log_mass_itself() {
        // φ = 1 is the geometric distribution: of 3 at mean 2, (1/3)(2/3)³.
        let found = NegativeBinomial::new(1.0).expected_log_density(2f64.ln(), 0.0, 3.0);
        assert!((found - (8.0_f64 / 81.0).ln()).abs() < 1e-13);
    }

    #[test]
    fn a_large_dispersion_is_poisson() {
        let (wide, poisson) = (NegativeBinomial::new(1e6), Poisson);
        let (at, expected) = (wide.statistics(0.4, 0.3, 2.0), poisson.statistics(0.4, 0.3, 2.0));
        assert!((at.residual - expected.residual).abs() < 1e-5 && (at.curvature - expected.curvature).abs() < 1e-5);
        assert!((wide.expected_log_density(0.4, 0.3, 2.0) - poisson.expected_log_density(0.4, 0.3, 2.0)).abs() < 1e-5);
    }

    #[test]
    fn the_exact_fit_is_an_optimum() {
        check_optimum(&NegativeBinomial::new(1.7), |y| 3.0 * y);
    }
}
