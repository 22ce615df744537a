//! x ~ (1/J) Σ_j N(μ_j, σ²I) over the feature columns; the label is not read.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use super::{Components, Density, MixtureShape};
use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Example, Law, Outcome, Prediction, dense, most_likely};
use crate::response::{Response, ResponseKind};
use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require};
use crate::spec::words::Short;
use crate::{MixtureForm, ModelOptions, ModelRules, Own, TiltedForm};
use dp_pvi_schema::Schema;

/// Most components.
const LARGEST: u32 = 1024;

/// Options of a mixture of Gaussians.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianMixture {
    /// J.
    pub components: u32,
    /// Known standard deviation around every mean.
    pub noise_sd: f64,
    /// Public seed of the means at which inference starts.
    pub seed: u32,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// J. Required.
    components: Option<u32>,
    /// σ. Required.
    noise_sd: Option<f64>,
    /// Public seed of the means at which inference starts. Default: 0.
    seed: Option<u32>,
}

impl ModelOptions for GaussianMixture {
    const NAME: &'static str = "gaussian-mixture";
    const HELP: &'static str = "groups of rows around unknown means";
    type Raw = Raw;

    fn explicit(written: Raw) -> Result<Self, TaskError> {
        match written {
            Raw { components: Some(components), noise_sd: Some(noise_sd), seed } => {
                Ok(Self { components, noise_sd, seed: seed.unwrap_or(0) })
            }
            _ => invalid("family = \"gaussian-mixture\" needs components, and noise_sd, the known standard deviation around every mean"),
        }
    }
}

impl GaussianMixture {
    fn form(&self) -> MixtureForm {
        MixtureForm { components: self.components, noise_sd: self.noise_sd, seed: self.seed }
    }
}

impl ModelRules for GaussianMixture {
    fn check(&self, _: &Schema) -> Result<(), TaskError> {
        require(positive(self.noise_sd), "noise_sd must be a number between 1e-30 and 1e30")?;
        require((1..=LARGEST).contains(&self.components), "components must be between 1 and 1024")
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::Own(Own::Tilted(TiltedForm::Mixture(self.form())))
    }

    /// J means over all columns.
    fn parameters(&self, features: u32) -> Parameters {
        Parameters::from_columns(features.saturating_mul(self.components))
    }

    fn response(&self) -> Response<'_> {
        Response::of(ResponseKind::Row)
    }

    /// The row itself is what has a density.
    fn law(&self, Outcome { posterior, .. }: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        let (family, natural) = (*posterior.family(), posterior.natural());
        let shape = MixtureShape::of_family(self.components as usize, family);
        let blocks: Vec<f64> = shape.positions().iter().map(|&position| natural[position]).collect();
        Ok(Arc::new(Density::predictive(&Components::from_natural(shape, &blocks)?, self.noise_sd * self.noise_sd)?))
    }
}

impl Law for Density {
    fn dimension(&self) -> usize {
        Self::dimension(self)
    }

    fn predict(&self, row: Example<'_>) -> Prediction {
        most_likely(&self.score(&dense(row, self.dimension())).1)
    }

    fn log_density(&self, row: Example<'_>) -> f64 {
        self.score(&dense(row, self.dimension())).0
    }
}

impl Display for GaussianMixture {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "mixture of {} Gaussians, sd {} around every mean", self.components, Short(self.noise_sd))
    }
}
