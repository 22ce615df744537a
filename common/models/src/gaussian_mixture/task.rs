//! x ~ (1/J) Σ_j N(μ_j, σ²I) over the feature columns; the label is not read.

use std::fmt::{Display, Formatter};

use serde::Deserialize;

use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require};
use crate::spec::words::Short;
use crate::{MixtureForm, ModelRules, ModelSpec, TiltedForm, options};
use dp_pvi_numerics::floor::PrecisionFloor;
use dp_pvi_schema::Schema;

/// Most components.
const LARGEST: u32 = 1024;

pub(crate) struct GaussianMixture(pub(crate) MixtureForm);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// J. Required.
    components: Option<u32>,
    /// σ. Required.
    noise_sd: Option<f64>,
    /// Public seed of the means at which inference starts. Default: 0.
    seed: Option<u32>,
}

pub(crate) fn resolve(table: &toml::Table) -> Result<ModelSpec, TaskError> {
    match options(table, "gaussian-mixture")? {
        Raw { components: Some(components), noise_sd: Some(noise_sd), seed } => {
            Ok(ModelSpec::GaussianMixture { components, noise_sd, seed: seed.unwrap_or(0) })
        }
        _ => invalid("family = \"gaussian-mixture\" needs components, and noise_sd, the known standard deviation around every mean"),
    }
}

impl ModelRules for GaussianMixture {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(positive(self.0.noise_sd), "noise_sd must be a number between 1e-30 and 1e30")?;
        require((1..=LARGEST).contains(&self.0.components), "components must be between 1 and 1024")?;
        require(schema.intercept().is_none(), "family = \"gaussian-mixture\" has no intercept: set intercept = false in the schema")
    }

    /// J means over all columns.
    fn parameters(&self, features: u32) -> u32 {
        features.saturating_mul(self.0.components)
    }

    fn mixture(&self) -> Option<MixtureForm> {
        Some(self.0)
    }

    fn tilted(&self) -> Option<TiltedForm> {
        Some(TiltedForm::Mixture(self.0))
    }

    /// Sites may take precision away.
    fn floor(&self) -> PrecisionFloor {
        PrecisionFloor::General
    }
}

impl Display for GaussianMixture {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "mixture of {} Gaussians, sd {} around every mean", self.0.components, Short(self.0.noise_sd))
    }
}
