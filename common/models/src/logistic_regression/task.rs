//! P(y = 1) = σ(xᵀθ).

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Law, Outcome, Prediction, PredictorLaw, of_predictor};
use crate::predictor::{Lanes, Predictor, Shape, Statistics, TiltedPredictor};
use crate::response::Response;
use crate::spec::TaskError;
use crate::spec::check::require_outcome;
use crate::{Bounds, ModelOptions, ModelRules, PredictorBounds, Ranges, StatisticsForm};
use dp_pvi_math::quadrature::{log_sigmoid_expectation, sigmoid_moments, softplus};
use dp_pvi_math::tilted::Tilted;
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a logistic regression: none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogisticRegression {}

impl ModelOptions for LogisticRegression {
    const NAME: &'static str = "logistic-regression";
    const HELP: &'static str = "one of two classes, through a logit";
    type Raw = Self;

    fn explicit(written: Self) -> Result<Self, TaskError> {
        Ok(written)
    }
}

impl ModelRules for LogisticRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require_outcome(
            matches!(schema.label().kind, LabelKind::Binary { .. }),
            schema,
            "logistic-regression",
            "one of two classes, a column with kind = \"boolean\"",
        )
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of(*self)
    }

    fn parameters(&self, features: u32) -> Parameters {
        Parameters::of_row(features)
    }

    fn response(&self) -> Response<'_> {
        Response::classes(2)
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        Ok(of_predictor(outcome, Logit))
    }

    /// |y − E σ| ≤ 1, so the gradient is at most R.
    fn bounds(&self, ranges: Ranges) -> Bounds {
        Bounds::of(ranges, PredictorBounds::logit()).with_gradient(ranges.row)
    }
}

/// With B0 = E softplus(z), B1 = E σ(z) and B2 = E σ(z)(1−σ(z)): f = ya − B0, r = y − B1, c = B2.
impl Predictor for LogisticRegression {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        let moments = sigmoid_moments(mean, variance);
        Statistics { residual: target - moments.sigmoid, curvature: moments.curvature }
    }

    fn residual_is_of_class(&self) -> bool {
        true
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

    fn shape(&self) -> Shape {
        Shape::LogConcave
    }

    fn cost(&self) -> u32 {
        3
    }

    fn tilted(&self) -> Option<Arc<dyn TiltedPredictor>> {
        Some(Arc::new(*self))
    }

    fn expected_statistics(&self) -> Option<StatisticsForm> {
        Some(StatisticsForm::PolyaGamma)
    }
}

impl TiltedPredictor for LogisticRegression {
    fn tilted(&self, mean: f64, variance: f64, target: f64) -> Tilted {
        Tilted::of_logit(if target > 0.5 { 1.0 } else { -1.0 }, mean, variance)
    }
}

/// Exact by quadrature.
#[derive(Debug)]
struct Logit;

impl PredictorLaw for Logit {
    fn predict(&self, mean: f64, variance: f64) -> Prediction {
        Prediction::Class { probability: sigmoid_moments(mean, variance).sigmoid, logit_mean: mean, logit_sd: variance.sqrt() }
    }

    fn log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        log_sigmoid_expectation(if target > 0.5 { mean } else { -mean }, variance)
    }
}

impl Display for LogisticRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("logistic regression")
    }
}
