//! P(y = 1) = σ(xᵀθ).

use std::fmt::{Display, Formatter};

use serde::Deserialize;

use super::{ModelRules, ModelSpec, options};
use crate::schema::{LabelKind, Schema};
use crate::task::TaskError;
use crate::task::check::require;
use crate::task::update::PredictorBounds;

pub(super) struct LogisticRegression;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {}

pub(super) fn resolve(table: &toml::Table) -> Result<ModelSpec, TaskError> {
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

    fn is_linear(&self) -> bool {
        true
    }

    fn predictor_bounds(&self) -> Option<PredictorBounds> {
        Some(PredictorBounds::logit())
    }

    /// |y − E σ| ≤ 1, so the gradient is at most R (algorithms section 2).
    fn gradient_bound(&self, feature_bound: f64) -> Option<f64> {
        Some(feature_bound)
    }
}

impl Display for LogisticRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("logistic regression")
    }
}
