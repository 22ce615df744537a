//! y ~ N(xᵀθ, noise_sd²).

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Law, Outcome, Prediction, PredictorLaw, of_predictor};
use crate::predictor::{Predictor, Shape, Statistics};
use crate::response::Response;
use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require, require_outcome};
use crate::spec::words::Short;
use crate::{ModelOptions, ModelRules, StatisticsForm};
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a linear regression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearRegression {
    /// Known standard deviation of the observation noise.
    pub noise_sd: f64,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    noise_sd: Option<f64>,
}

impl ModelOptions for LinearRegression {
    const NAME: &'static str = "linear-regression";
    const HELP: &'static str = "a number, linear in the features, with known noise";
    type Raw = Raw;

    fn explicit(Raw { noise_sd }: Raw) -> Result<Self, TaskError> {
        match noise_sd {
            Some(noise_sd) => Ok(Self { noise_sd }),
            None => invalid(
                "linear-regression needs noise_sd, the known standard deviation of an observation, or the first guess of an update that learns it",
            ),
        }
    }
}

impl ModelRules for LinearRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(positive(self.noise_sd), "noise_sd must be a number between 1e-30 and 1e30")?;
        require_outcome(
            matches!(schema.label().kind, LabelKind::Number { .. }),
            schema,
            "linear-regression",
            "a number, a column with kind = \"number\"",
        )
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of(*self)
    }

    fn parameters(&self, features: u32) -> Parameters {
        Parameters::of_row(features)
    }

    fn response(&self) -> Response<'_> {
        Response::number(self.noise_sd)
    }

    /// With the noise that the run learned, where it did.
    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        Ok(of_predictor(outcome, Normal { noise_sd: outcome.noise_sd.unwrap_or(self.noise_sd) }))
    }
}

/// r = (y − a)/noise_sd², c = 1/noise_sd².
impl Predictor for LinearRegression {
    #[inline]
    fn statistics(&self, mean: f64, _variance: f64, target: f64) -> Statistics {
        let precision = self.noise_sd.powi(-2);
        Statistics { residual: (target - mean) * precision, curvature: precision }
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let precision = self.noise_sd.powi(-2);
        0.5 * ((precision / std::f64::consts::TAU).ln() - precision * ((target - mean).powi(2) + variance))
    }

    fn typical_curvature(&self, _target: f64) -> f64 {
        self.noise_sd.powi(-2)
    }

    fn shape(&self) -> Shape {
        Shape::Normal { precision: self.noise_sd.powi(-2) }
    }

    fn expected_statistics(&self) -> Option<StatisticsForm> {
        Some(StatisticsForm::LinearNoise { noise_sd: self.noise_sd })
    }
}

#[derive(Debug)]
struct Normal {
    noise_sd: f64,
}

impl PredictorLaw for Normal {
    fn predict(&self, mean: f64, variance: f64) -> Prediction {
        Prediction::Number { mean, variance: variance + self.noise_sd * self.noise_sd }
    }

    fn log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let total = variance + self.noise_sd * self.noise_sd;
        -0.5 * ((2.0 * std::f64::consts::PI * total).ln() + (target - mean).powi(2) / total)
    }
}

impl Display for LinearRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "linear regression, noise sd {}", Short(self.noise_sd))
    }
}

#[cfg(test)]
mod tests {
    use super::LinearRegression;
    use crate::ModelSpec;

    #[test]
    fn the_model_is_described_in_words() {
        assert_eq!(ModelSpec::from(LinearRegression { noise_sd: 0.5 }).to_string(), "linear regression, noise sd 0.5");
    }
}
