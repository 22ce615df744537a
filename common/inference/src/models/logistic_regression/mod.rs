//! Bayesian logistic regression: P(y = 1) = σ(xᵀθ), y ∈ {0, 1}.

pub mod polya_gamma;
mod tilted;

use dp_pvi_expfam::any::{Family, Gaussian};
use dp_pvi_posterior::models::logistic_regression as public;
use dp_pvi_posterior::models::predictor::Predictor;
use dp_pvi_posterior::numerics::quadrature::softplus;

use crate::capabilities::glm::{self, Lanes, LinearPredictor, LogConcave, Statistics};
use crate::capabilities::tilted::{MomentMatching, PredictorMatching};
use crate::capabilities::{Gradients, LocalOptimum, Model};
use crate::models::PrivateHalf;
use dp_pvi_records::RecordView;

/// P(y = 1) = σ(xᵀθ). With B0 = E softplus(z), B1 = E σ(z) and B2 = E σ(z)(1−σ(z)) for the Gaussian logit z:
/// f = y a − B0, r = y − B1, c = B2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogisticRegression;

impl LinearPredictor for LogisticRegression {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        public::LogisticRegression {}.statistics(mean, variance, target)
    }

    fn lanes(&self) -> Lanes {
        Lanes::Sigmoid
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        target * mean - softplus(mean, variance)
    }

    /// The bound of Böhning and Lindsay.
    fn typical_curvature(&self, _target: f64) -> f64 {
        0.25
    }
}

impl LogConcave for LogisticRegression {}

impl PrivateHalf for public::LogisticRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(LogisticRegression)
    }
}

impl Model for LogisticRegression {
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64 {
        glm::expected_log_likelihood(self, record, q)
    }

    fn local_optimum(&self) -> Option<&dyn LocalOptimum> {
        Some(self)
    }

    fn linear_predictor(&self) -> Option<&dyn LinearPredictor> {
        Some(self)
    }

    fn moment_matching(&self, family: Family) -> Option<Box<dyn MomentMatching>> {
        Some(Box::new(PredictorMatching { model: *self, family }))
    }

    fn gradients(&self) -> Option<&dyn Gradients> {
        Some(self)
    }
}
