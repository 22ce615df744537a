//! Bayesian robust regression: y = xᵀθ + σ t, t of Student's distribution with ν degrees of freedom.
//!
//! t is normal with precision ω ~ Gamma(ν/2, ν/2). With ω of a record integrated by a distribution of its own, and Q = (y − a)² + s²,
//! f = ln Γ((ν + 1)/2) − ln Γ(ν/2) − ½ ln(πνσ²) − ((ν + 1)/2) ln(1 + Q/(νσ²)), a lower bound of E log p by Jensen's inequality, and log p itself where s² = 0.
//!
//! f is not concave in a, but convex in Q. A step of natural-gradient ascent maximises the tangent of f in Q, which lies below f, so that no step of the local fit
//! makes the bound smaller; it ends at an optimum near its start.

use dp_pvi_expfam::InvalidParameters;
use dp_pvi_expfam::any::Gaussian;
use dp_pvi_expfam::special::ln_gamma;
use dp_pvi_posterior::models::predictor::Predictor;
use dp_pvi_posterior::models::robust_regression as public;

use crate::capabilities::glm::{self, LinearPredictor, Statistics};
use crate::capabilities::optimum::ascent_on_support;
use crate::capabilities::{Gradients, LocalOptimum, Model};
use crate::models::PrivateHalf;
use dp_pvi_records::{RecordTable, RecordView};

/// y = xᵀθ + σ t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Robust {
    public: public::RobustRegression,
    /// What of f does not depend on Q.
    log_constant: f64,
}

impl Robust {
    /// With this ν and σ, which a resolved task has checked to be positive.
    #[must_use]
    pub fn new(degrees_of_freedom: f64, scale: f64) -> Self {
        let gamma = ln_gamma(0.5 * (degrees_of_freedom + 1.0)) - ln_gamma(0.5 * degrees_of_freedom);
        let log_constant = gamma - 0.5 * (std::f64::consts::PI * degrees_of_freedom * scale * scale).ln();
        Self { public: public::RobustRegression { degrees_of_freedom, scale, learned: None }, log_constant }
    }
}

impl LinearPredictor for Robust {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        self.public.statistics(mean, variance, target)
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let public::RobustRegression { degrees_of_freedom: nu, scale, .. } = self.public;
        let square = (target - mean).powi(2) + variance;
        self.log_constant - 0.5 * (nu + 1.0) * (square / (nu * scale * scale)).ln_1p()
    }

    /// E c where y has its distribution.
    fn typical_curvature(&self, _target: f64) -> f64 {
        self.public.scale.powi(-2)
    }
}

impl LocalOptimum for Robust {
    fn weighted_optimum(
        &self,
        table: &RecordTable,
        weight: f64,
        tolerance: f64,
        cavity: &Gaussian,
        start: &Gaussian,
    ) -> Result<Gaussian, InvalidParameters> {
        ascent_on_support(self, table, weight, tolerance, cavity, start)
    }
}

impl PrivateHalf for public::RobustRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(Robust::new(self.degrees_of_freedom, self.scale))
    }
}

impl Model for Robust {
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
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_expfam::any::{Family, Gaussian};

    use super::Robust;
    use crate::capabilities::LocalOptimum;
    use crate::capabilities::glm::{self, LinearPredictor};
    use crate::models::linear_regression::LinearRegression;
    use crate::testing::{check_derivatives, check_optimum, random_units, table};

    #[test]
    fn expectations_of_the_log_density_have_the_stated_derivatives() {
        for (nu, scale) in [(4.0, 0.8), (2.5, 3.0), (200.0, 0.5)] {
            check_derivatives(&Robust::new(nu, scale), &[(0.3, 0.5, 1.0), (-2.0, 3.0, 0.0), (2.0, 0.1, 9.0)]);
        }
    }

    #[test]
    fn a_certain_predictor_gives_the_log_density_itself() {
        // That of t with four degrees of freedom at 0 is 3/8.
        assert!((Robust::new(4.0, 0.5).expected_log_density(1.0, 0.0, 1.0) - 0.75_f64.ln()).abs() < 1e-14);
    }

    #[test]
    fn the_exact_fit_is_an_optimum() {
        check_optimum(&Robust::new(4.0, 0.8), |y| 3.0 * y);
    }

    #[test]
    fn an_outlier_moves_the_fit_less_than_it_moves_that_of_linear_regression() {
        let mut raw = random_units(7, 60, 2);
        let family = Family::FullGaussian { dimension: 2 };
        let prior = Gaussian::from_natural(family, family.isotropic(0.0, 1.0)).unwrap();
        let mut moved = |model: &dyn LocalOptimum| {
            let mut fit = |target: f64| {
                raw[0] = vec![(vec![1.0, 1.0], target)];
                let q = model.local_optimum(&table(2, &raw), &prior, &prior).unwrap();
                q.standard().mean()[0]
            };
            (fit(1e3) - fit(0.0)).abs()
        };
        let (robust, linear) = (moved(&Robust::new(4.0, 0.8)), moved(&LinearRegression::new(0.8)));
        assert!(robust < 0.1 && linear > 10.0 * robust, "{robust} {linear}");
    }

    /// A record whose label contradicts the prior: the bound has two maxima then.
    #[test]
    fn the_fit_never_falls_below_its_start_where_the_bound_has_two_maxima() {
        let data = table(1, &[vec![(vec![1.0], 9.0)]]);
        for family in [Family::DiagonalGaussian { dimension: 1 }, Family::FullGaussian { dimension: 1 }] {
            let prior = Gaussian::from_natural(family, family.isotropic(0.0, 1.0)).unwrap();
            let model = Robust::new(3.0, 0.1);
            for mean in [-3.0, 0.0, 4.0, 9.0, 12.0] {
                let start = Gaussian::from_natural(family, family.isotropic(mean, 0.01)).unwrap();
                let q = model.weighted_optimum(&data, 8.0, 1e-10, &prior, &start).unwrap();
                let bound = |q: &Gaussian| 8.0 * glm::total(&model, &data, q) - q.kl(&prior);
                assert!(bound(&q) >= bound(&start), "{mean}");
                let moved = Gaussian::from_natural(family, vec![q.natural()[0] + 1e-3, q.natural()[1]]).unwrap();
                assert!(bound(&q) >= bound(&moved), "{mean}");
            }
        }
    }
}
