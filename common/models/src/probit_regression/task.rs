//! P(y = 1) = Φ(xᵀθ).

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::prediction::{Law, Outcome, Prediction, PredictorLaw, of_predictor};
use crate::predictor::{Predictor, Statistics};
use crate::spec::TaskError;
use crate::spec::check::require;
use crate::{ModelRules, PredictorBounds, PredictorScale, PublicHalf, Ranges, TiltedForm};
use dp_pvi_numerics::expectation::expectation;
use dp_pvi_numerics::normal;
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a probit regression: none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbitRegression {}

impl PublicHalf for ProbitRegression {
    const NAME: &'static str = "probit-regression";
    const HELP: &'static str = "one of two classes, through a probit";
    type Written = Self;

    fn explicit(written: Self) -> Result<Self, TaskError> {
        Ok(written)
    }
}

impl ModelRules for ProbitRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(
            matches!(schema.label().kind, LabelKind::Binary { .. }),
            "probit-regression predicts a class: give the schema's label kind = \"binary\"",
        )
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        Ok(of_predictor(outcome, Probit))
    }

    fn classes(&self) -> Option<u32> {
        Some(2)
    }

    fn tilted(&self) -> Option<TiltedForm> {
        Some(TiltedForm::Predictor)
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn predictor_scale(&self) -> Option<PredictorScale> {
        Some(PredictorScale::Probit)
    }

    fn predictor(&self) -> Option<&dyn Predictor> {
        Some(self)
    }

    /// That of the latent normal score.
    fn outcome_sd(&self) -> f64 {
        1.0
    }

    /// −∂² ln Φ < 1. A residual grows like the distance from the right side, so it is cut, at what a record two standard deviations on the wrong
    /// side has.
    fn predictor_bounds(&self, _ranges: Ranges) -> Option<PredictorBounds> {
        Some(PredictorBounds { residual: 2.4, curvature: 1.0, free_curvature: None })
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

    /// About one a node of the rule for predictors of which little is known.
    fn cost(&self) -> u32 {
        73
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
        normal::log_cdf(sign * mean / (1.0 + variance).sqrt()).value
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
