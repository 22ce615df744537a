//! y ~ Poisson(exp(xᵀθ)): counts.

use std::fmt::{Display, Formatter};

use serde::Deserialize;

use crate::spec::TaskError;
use crate::spec::check::require;
use crate::{ModelRules, ModelSpec, options};
use dp_pvi_schema::{LabelKind, Schema};

pub(crate) struct PoissonRegression;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {}

pub(crate) fn resolve(table: &toml::Table) -> Result<ModelSpec, TaskError> {
    let Raw {} = options(table, "poisson-regression")?;
    Ok(ModelSpec::PoissonRegression {})
}

impl ModelRules for PoissonRegression {
    /// A count is the entry itself: a transform, a centre or a scale would make another number of it.
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        let LabelKind::Number(rule) = &schema.label().kind else {
            return require(false, "poisson-regression predicts a count: give the schema's label kind = \"number\"");
        };
        require(
            (0..=3).all(|count| (rule.decode(f64::from(count)) - f64::from(count)).abs() < 1e-12) && rule.lower >= 0.0,
            "poisson-regression predicts a count: give the schema's label lower = 0, centre = 0, scale = 1 and no transform",
        )
    }

    fn is_linear(&self) -> bool {
        true
    }
}

impl Display for PoissonRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("Poisson regression")
    }
}
