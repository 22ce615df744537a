//! Gamma regression: positive numbers y with mean exp(xᵀθ) and a known shape k, so that their standard deviation is the mean over √k.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::count::log_mass;
use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::special::ln_gamma;
use dp_pvi_models::likelihood::Likelihood;
use dp_pvi_models::parameters::Parameters;
use dp_pvi_models::prediction::{Law, Outcome, Prediction, PredictorLaw, of_predictor};
use dp_pvi_models::predictor::{Predictor, Shape, Statistics};
use dp_pvi_models::response::{Response, ResponseKind};
use dp_pvi_models::spec::TaskError;
use dp_pvi_models::spec::check::{positive, require};
use dp_pvi_models::{ModelOptions, ModelRules};
use dp_pvi_schema::{LabelKind, Schema};
use serde::{Deserialize, Serialize};

/// Options of a gamma regression, as they are in a resolved task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GammaRegression {
    /// k; 1 is the exponential distribution.
    shape: f64,
}

/// Options as a person writes them in `[model]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raw {
    /// Default: 1.
    shape: Option<f64>,
}

impl ModelOptions for GammaRegression {
    const NAME: &'static str = "gamma-regression";
    const HELP: &'static str = "a positive number, whose logarithm is linear in the features";
    type Raw = Raw;

    fn explicit(written: Raw) -> Result<Self, TaskError> {
        Ok(Self { shape: written.shape.unwrap_or(1.0) })
    }
}

impl ModelRules for GammaRegression {
    /// The outcome is the number itself: a centre or a scale would make another number of it, which may not be positive.
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(positive(self.shape), "shape must be a number between 1e-30 and 1e30")?;
        let LabelKind::Number { rule, .. } = &schema.label().kind else {
            return require(false, "gamma-regression predicts a number: name a column with kind = \"number\" before `~`");
        };
        require(
            rule.lower > 0.0 && [1.0, 2.0].iter().all(|y| (rule.decode(*y) - y).abs() < 1e-12),
            "gamma-regression predicts a positive number: give the outcome's column lower above 0, centre = 0, scale = 1 and no transform",
        )
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of(*self)
    }

    fn parameters(&self, features: u32) -> Parameters {
        Parameters::of_row(features)
    }

    fn response(&self) -> Response<'_> {
        Response::of(ResponseKind::Number)
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        Ok(of_predictor(outcome, GammaLaw { shape: self.shape }))
    }
}

/// The likelihood: what one record contributes.
impl Predictor for GammaRegression {
    /// With m = y exp(−a + s²/2): r = k (m − 1) and c = k m.
    fn statistics(&self, a: f64, s2: f64, y: f64) -> Statistics {
        let m = y * (0.5 * s2 - a).exp();
        Statistics { residual: self.shape * (m - 1.0), curvature: self.shape * m }
    }

    /// f = k ln k − ln Γ(k) + (k − 1) ln y − k a − k m.
    fn expected_log_density(&self, a: f64, s2: f64, y: f64) -> f64 {
        let k = self.shape;
        k * k.ln() - ln_gamma(k) + (k - 1.0) * y.ln() - k * a - k * y * (0.5 * s2 - a).exp()
    }

    /// At an optimum m is about 1.
    fn typical_curvature(&self, _y: f64) -> f64 {
        self.shape
    }

    fn shape(&self) -> Shape {
        Shape::LogConcave
    }
}

/// Words of the report.
impl Display for GammaRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "gamma regression, shape {}", self.shape)
    }
}

/// What a predictor xᵀθ ~ N(a, s²) says of y.
#[derive(Debug)]
struct GammaLaw {
    shape: f64,
}

impl PredictorLaw for GammaLaw {
    /// E y = E e^z and Var y = E Var(y | z) + Var E(y | z), with E e^(2z) = (E e^z)² e^(s²).
    fn predict(&self, a: f64, s2: f64) -> Prediction {
        let mean = (a + 0.5 * s2).exp();
        let square = mean * mean;
        Prediction::Number { mean, variance: square * s2.exp() / self.shape + square * s2.exp_m1() }
    }

    /// As a function of −z, the density of y is the probability of the count k at rate k y e^(−z), times k/y.
    fn log_density(&self, a: f64, s2: f64, y: f64) -> f64 {
        log_mass(self.shape, (self.shape * y).ln() - a, s2) + (self.shape / y).ln()
    }
}
