//! P(y = 1) = Φ(xᵀθ).

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Law, Outcome, Prediction, PredictorLaw, of_predictor};
use crate::predictor::{Predictor, Shape, Statistics, TiltedPredictor};
use crate::response::{Response, ResponseKind};
use crate::spec::TaskError;
use crate::spec::check::require_outcome;
use crate::{Bounds, ModelOptions, ModelRules, PredictorBounds, PredictorScale, Ranges};
use dp_pvi_math::expectation::expectation;
use dp_pvi_math::normal;
use dp_pvi_math::normal::log_cdf;
use dp_pvi_math::tilted::Tilted;
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a probit regression: none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbitRegression {}

impl ModelOptions for ProbitRegression {
    const NAME: &'static str = "probit-regression";
    const HELP: &'static str = "one of two classes, through a probit";
    type Raw = Self;

    fn explicit(written: Self) -> Result<Self, TaskError> {
        Ok(written)
    }
}

impl ModelRules for ProbitRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require_outcome(
            matches!(schema.label().kind, LabelKind::Binary { .. }),
            schema,
            "probit-regression",
            "one of two classes, a column with kind = \"boolean\"",
        )
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of(*self)
    }

    fn parameters(&self, features: u32) -> Parameters {
        Parameters::of_row(features)
    }

    /// The standard deviation is that of the latent normal score.
    fn response(&self) -> Response<'_> {
        Response { kind: ResponseKind::Classes(2), scale: Some(PredictorScale::Probit), sd: 1.0 }
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        Ok(of_predictor(outcome, Probit))
    }

    /// −∂² ln Φ < 1. A residual grows like the distance from the right side, so it is cut, at what a record two standard deviations on the wrong
    /// side has.
    fn bounds(&self, ranges: Ranges) -> Bounds {
        Bounds::of(ranges, PredictorBounds { residual: 2.4, curvature: 1.0, free_curvature: None })
    }
}

/// r = E ∂ ln p/∂z, c = −E ∂² ln p/∂z² (Bonnet's and Price's theorems).
impl Predictor for ProbitRegression {
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        let sign = if target > 0.5 { 1.0 } else { -1.0 };
        let [residual, curvature] = expectation(mean, variance, |z| {
            let at = normal::slope(sign * z);
            [sign * at.ratio, at.ratio * at.excess]
        });
        Statistics { residual, curvature }
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let sign = if target > 0.5 { 1.0 } else { -1.0 };
        expectation(mean, variance, |z| [log_cdf(sign * z).value])[0]
    }

    /// −∂² ln Φ at 0 is 2/π.
    fn typical_curvature(&self, _target: f64) -> f64 {
        std::f64::consts::FRAC_2_PI
    }

    fn shape(&self) -> Shape {
        Shape::LogConcave
    }

    /// About one a node of the rule for predictors of which little is known.
    fn cost(&self) -> u32 {
        73
    }

    fn tilted(&self) -> Option<Arc<dyn TiltedPredictor>> {
        Some(Arc::new(*self))
    }
}

impl TiltedPredictor for ProbitRegression {
    /// Closed form: with t = √(1 + s²), w = ya/t and r = φ(w)/Φ(w), ln Z = ln Φ(w), α = yr/t, β = r(w + r)/(1 + s²).
    fn tilted(&self, mean: f64, variance: f64, target: f64) -> Tilted {
        let sign = if target > 0.5 { 1.0 } else { -1.0 };
        let t2 = 1.0 + variance.max(0.0);
        let at = log_cdf(sign * mean / t2.sqrt());
        Tilted { log_normaliser: at.value, slope: sign * at.ratio / t2.sqrt(), curvature: at.ratio * at.excess / t2 }
    }
}

#[derive(Debug)]
struct Probit;

impl PredictorLaw for Probit {
    fn predict(&self, mean: f64, variance: f64) -> Prediction {
        Prediction::Probit { probability: normal::cdf(mean / (1.0 + variance).sqrt()), mean, sd: variance.sqrt() }
    }

    fn log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let sign = if target > 0.5 { 1.0 } else { -1.0 };
        log_cdf(sign * mean / (1.0 + variance).sqrt()).value
    }
}

impl Display for ProbitRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("probit regression")
    }
}

#[cfg(test)]
mod tests {
    use super::{Predictor, ProbitRegression};

    #[test]
    fn residuals_of_the_two_classes_have_opposite_signs() {
        let of = |target| ProbitRegression {}.statistics(0.4, 0.01, target);
        assert!(of(1.0).residual > 0.0 && of(0.0).residual < 0.0);
    }
}
