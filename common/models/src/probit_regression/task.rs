//! P(y = 1) = Φ(xᵀθ).

use std::fmt::{Display, Formatter};

use serde::Deserialize;

use crate::spec::TaskError;
use crate::spec::check::require;
use crate::{ModelRules, ModelSpec, options};
use crate::{PredictorBounds, TiltedForm};
use dp_pvi_schema::{LabelKind, Schema};

pub(crate) struct ProbitRegression;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {}

pub(crate) fn resolve(table: &toml::Table) -> Result<ModelSpec, TaskError> {
    let Raw {} = options(table, "probit-regression")?;
    Ok(ModelSpec::ProbitRegression {})
}

impl ModelRules for ProbitRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(
            matches!(schema.label().kind, LabelKind::Binary { .. }),
            "probit-regression predicts a class: give the schema's label kind = \"binary\"",
        )
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

    /// −∂² ln Φ < 1. A residual grows like the distance from the right side, so it is cut, at what a record two standard deviations on the wrong
    /// side has.
    fn predictor_bounds(&self) -> Option<PredictorBounds> {
        Some(PredictorBounds { residual: 2.4, curvature: 1.0, of_class: false, free_curvature: None })
    }
}

impl Display for ProbitRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("probit regression")
    }
}
