//! Bayesian probit regression: P(y = 1) = Φ(xᵀθ), y ∈ {0, 1}.

use dp_pvi_expfam::any::{Family, Gaussian};
use dp_pvi_posterior::models::predictor::Predictor;
use dp_pvi_posterior::models::probit_regression as public;
use dp_pvi_posterior::numerics::expectation::expectation;
use dp_pvi_posterior::numerics::normal::log_cdf;

use crate::capabilities::glm::{self, LinearPredictor, LogConcave, Statistics};
use crate::capabilities::tilted::{MomentMatching, PredictorMatching, Tilted, TiltedPredictor};
use crate::capabilities::{Gradients, LocalOptimum, Model};
use crate::models::PrivateHalf;
use dp_pvi_records::RecordView;

/// P(y = 1) = Φ(xᵀθ).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probit;

impl TiltedPredictor for Probit {
    /// Closed form: with t = √(1 + s²), w = ya/t and r = φ(w)/Φ(w), ln Z = ln Φ(w), α = yr/t, β = r(w + r)/(1 + s²).
    fn tilted(&self, mean: f64, variance: f64, target: f64) -> Tilted {
        let sign = if target > 0.5 { 1.0 } else { -1.0 };
        let t2 = 1.0 + variance.max(0.0);
        let at = log_cdf(sign * mean / t2.sqrt());
        Tilted { log_normaliser: at.value, slope: sign * at.ratio / t2.sqrt(), curvature: at.ratio * at.excess / t2 }
    }
}

impl LinearPredictor for Probit {
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        public::ProbitRegression {}.statistics(mean, variance, target)
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let sign = if target > 0.5 { 1.0 } else { -1.0 };
        expectation(mean, variance, |z| [log_cdf(sign * z).value])[0]
    }

    /// −∂² ln Φ at 0 is 2/π.
    fn typical_curvature(&self, _target: f64) -> f64 {
        std::f64::consts::FRAC_2_PI
    }
}

impl LogConcave for Probit {}

impl PrivateHalf for public::ProbitRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(Probit)
    }
}

impl Model for Probit {
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64 {
        glm::expected_log_likelihood(self, record, q)
    }

    fn moment_matching(&self, family: Family) -> Option<Box<dyn MomentMatching>> {
        Some(Box::new(PredictorMatching { model: *self, family }))
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
    use super::Probit;
    use crate::capabilities::glm::LinearPredictor;
    use crate::capabilities::tilted::TiltedPredictor;
    use crate::models::logistic_regression::LogisticRegression;

    /// ln Z is a function of a and s²; its slopes are α and −β, and the heat equation ties the derivative by s² to both.
    fn check(model: &impl TiltedPredictor, tolerance: f64) {
        for mean in [-30.0, -6.0, -1.0, 0.0, 0.4, 3.0, 12.0] {
            for variance in [1e-6, 0.04, 1.0, 9.0, 400.0] {
                for target in [0.0, 1.0] {
                    let at = model.tilted(mean, variance, target);
                    let h = 1e-4;
                    let (up, down) = (model.tilted(mean + h, variance, target), model.tilted(mean - h, variance, target));
                    let slope = (up.log_normaliser - down.log_normaliser) / (2.0 * h);
                    assert!((slope - at.slope).abs() <= tolerance * (1.0 + at.slope.abs()), "{mean} {variance}: {slope} {at:?}");
                    let curvature = -(up.slope - down.slope) / (2.0 * h);
                    assert!((curvature - at.curvature).abs() <= tolerance, "{mean} {variance}: {curvature} {at:?}");
                    // Heat equation: ∂ ln Z/∂s² = ½(α² − β).
                    let k = 1e-4 * variance;
                    let wide = model.tilted(mean, variance + k, target).log_normaliser;
                    let narrow = model.tilted(mean, variance - k, target).log_normaliser;
                    let heat = 0.5 * (at.slope * at.slope - at.curvature);
                    let spread = (wide - narrow) / (2.0 * k);
                    assert!(
                        variance < 0.01 || (spread - heat).abs() <= 100.0 * tolerance * (1.0 + heat.abs()),
                        "{mean} {variance}: {spread} {heat}"
                    );
                    // Log-concave: the variance shrinks and stays positive.
                    assert!(at.curvature >= 0.0 && variance * at.curvature < 1.0, "{mean} {variance} {at:?}");
                }
            }
        }
    }

    #[test]
    fn derivatives_of_log_normalisers_are_consistent() {
        check(&Probit, 1e-6);
        check(&LogisticRegression, 1e-6);
    }

    #[test]
    fn predictors_as_wide_as_they_come_stay_finite() {
        for (mean, variance) in [(0.0, 1e12), (-1e6, 1.0), (1e6, 1e3), (-1e9, 1e18), (-700.0, 1e-12)] {
            for target in [0.0, 1.0] {
                for at in [Probit.tilted(mean, variance, target), LogisticRegression.tilted(mean, variance, target)] {
                    assert!(at.log_normaliser <= 0.0 && at.log_normaliser.is_finite() && at.slope.is_finite(), "{mean} {variance} {at:?}");
                    assert!(at.curvature >= 0.0 && at.curvature.is_finite());
                }
            }
        }
    }

    /// The gradient statistics by finite differences of the expected log density.
    #[test]
    fn expectations_of_the_log_density_have_the_stated_derivatives() {
        for (mean, variance, target) in [(0.3, 0.5, 1.0), (-2.0, 3.0, 1.0), (4.0, 0.1, 0.0)] {
            let f = |a: f64, v: f64| Probit.expected_log_density(a, v, target);
            let at = Probit.statistics(mean, variance, target);
            let h = 1e-5;
            assert!(((f(mean + h, variance) - f(mean - h, variance)) / (2.0 * h) - at.residual).abs() < 1e-8);
            assert!((-(f(mean, variance + h) - f(mean, variance - h)) / h - at.curvature).abs() < 1e-8);
        }
        // Certain predictors: ln Φ itself.
        assert!((Probit.expected_log_density(0.7, 0.0, 1.0) - Probit.tilted(0.7, 0.0, 1.0).log_normaliser).abs() < 1e-15);
    }
}
