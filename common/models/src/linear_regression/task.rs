//! y ~ N(xᵀθ, noise_sd²).

use std::fmt::{Display, Formatter};

use serde::Deserialize;

use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require};
use crate::spec::words::Short;
use crate::{ModelRules, ModelSpec, StatisticsForm, options};
use dp_pvi_schema::{LabelKind, Schema};

pub(crate) struct LinearRegression {
    pub(crate) noise_sd: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    noise_sd: Option<f64>,
}

pub(crate) fn resolve(table: &toml::Table) -> Result<ModelSpec, TaskError> {
    match options::<Raw>(table, "linear-regression")?.noise_sd {
        Some(noise_sd) => Ok(ModelSpec::LinearRegression { noise_sd }),
        None => invalid("linear-regression needs noise_sd, the known standard deviation of an observation"),
    }
}

impl ModelRules for LinearRegression {
    fn statistics(&self) -> Option<StatisticsForm> {
        Some(StatisticsForm::LinearNoise { noise_sd: self.noise_sd })
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(positive(self.noise_sd), "noise_sd must be a number between 1e-30 and 1e30")?;
        require(
            matches!(schema.label().kind, LabelKind::Number(_)),
            "linear-regression predicts a number: give the schema's label kind = \"number\"",
        )
    }
}

impl Display for LinearRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "linear regression, noise sd {}", Short(self.noise_sd))
    }
}
