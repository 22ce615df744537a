//! y ~ Poisson(exp(xᵀθ)): counts.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::special::ln_gamma;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Law, Outcome, Prediction, PredictorLaw, Scores, of_predictor};
use crate::predictor::{Predictor, Shape, Statistics};
use crate::response::Response;
use crate::spec::TaskError;
use crate::spec::check::{require, wrong_outcome};
use crate::{ModelOptions, ModelRules};
use dp_pvi_math::count;
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a Poisson regression: none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoissonRegression {}

impl ModelOptions for PoissonRegression {
    const NAME: &'static str = "poisson-regression";
    const HELP: &'static str = "a count, whose logarithm is linear in the features";
    type Raw = Self;

    fn explicit(written: Self) -> Result<Self, TaskError> {
        Ok(written)
    }
}

impl ModelRules for PoissonRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        let LabelKind::Number { rule, .. } = &schema.label().kind else {
            return wrong_outcome(schema, "poisson-regression", "a count, a column with kind = \"number\" and lower = 0");
        };
        require(rule.lower >= 0.0, "a count is 0 or more: give the outcome's column lower = 0")
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of(*self)
    }

    fn parameters(&self, features: u32) -> Parameters {
        Parameters::of_row(features)
    }

    fn response(&self) -> Response<'_> {
        Response::count()
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        Ok(of_predictor(outcome, Count))
    }
}

/// With the expected rate m = exp(a + s²/2): f = ya − m − ln y!, r = y − m, c = m.
impl Predictor for PoissonRegression {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        let rate = (mean + 0.5 * variance).exp();
        Statistics { residual: target - rate, curvature: rate }
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        target * mean - (mean + 0.5 * variance).exp() - ln_gamma(target + 1.0)
    }

    /// At an optimum rates are about as large as counts.
    fn typical_curvature(&self, target: f64) -> f64 {
        target.clamp(0.5, 1e6)
    }

    fn shape(&self) -> Shape {
        Shape::LogConcave
    }
}

#[derive(Debug)]
struct Count;

impl PredictorLaw for Count {
    fn predict(&self, mean: f64, variance: f64) -> Prediction {
        let rate = (mean + 0.5 * variance).exp();
        // Of the count: that of its rate, and Poisson's own.
        Prediction::Count {
            mean: rate,
            variance: rate + rate * rate * variance.exp_m1(),
            log_rate: (mean, variance),
            dispersion: f64::INFINITY,
        }
    }

    fn log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        count::log_mass(target, mean, variance)
    }

    fn scores(&self, mean: f64, variance: f64, target: f64) -> Scores {
        Scores::of_count(target, (mean + 0.5 * variance).exp(), (mean, variance), f64::INFINITY)
    }
}

impl Display for PoissonRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("Poisson regression")
    }
}
