//! P(y = 1) = σ(xᵀθ).

use std::fmt::{Display, Formatter};

use serde::Deserialize;

use crate::spec::TaskError;
use crate::spec::check::require;
use crate::{ModelRules, ModelSpec, options};
use crate::{PredictorBounds, StatisticsForm, TiltedForm};
use dp_pvi_schema::{LabelKind, Schema};

pub(crate) struct LogisticRegression;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {}

pub(crate) fn resolve(table: &toml::Table) -> Result<ModelSpec, TaskError> {
    let Raw {} = options(table, "logistic-regression")?;
    Ok(ModelSpec::LogisticRegression {})
}

impl ModelRules for LogisticRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(
            matches!(schema.label().kind, LabelKind::Binary { .. }),
            "logistic-regression predicts a class: give the schema's label kind = \"binary\"",
        )
    }

    fn classes(&self) -> Option<u32> {
        Some(2)
    }

    fn tilted(&self) -> Option<TiltedForm> {
        Some(TiltedForm::Predictor)
    }

    fn statistics(&self) -> Option<StatisticsForm> {
        Some(StatisticsForm::PolyaGamma)
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn predictor_bounds(&self) -> Option<PredictorBounds> {
        Some(PredictorBounds::logit())
    }

    /// |y − E σ| ≤ 1, so the gradient is at most R.
    fn gradient_bound(&self, feature_bound: f64) -> Option<f64> {
        Some(feature_bound)
    }
}

impl Display for LogisticRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("logistic regression")
    }
}
