//! Sigmoid belief network with one hidden layer: binary images, weights under three-parameter-beta-normal shrinkage.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Example, Law, Outcome, Prediction, Reconstructed, dense, most_likely};
use crate::response::{Response, ResponseKind};
use crate::sigmoid_belief::hidden::{Batch, Prepared};
use crate::sigmoid_belief::{Network, Shape};
use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require};
use crate::{ModelOptions, ModelRules, Own, StatisticsForm};
use dp_pvi_schema::Schema;
use dp_pvi_schema::content::Content;

/// Numbers of a sigmoid belief network. The prior of the weights is learned from released values (shrinkage); that of the task is not
/// used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigmoidBeliefSpec {
    /// K: hidden units.
    pub hidden: u32,
    /// σ_b and σ_c: prior standard deviation of the biases.
    pub bias_scale: f64,
    /// Public seed of the weights at which inference starts.
    pub start_seed: u32,
    /// Their standard deviation.
    pub start_scale: f64,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// K.
    hidden: u32,
    /// Default: 10.
    bias_scale: Option<f64>,
    /// Default: 1.
    start_seed: Option<u32>,
    /// Default: 0.1.
    start_scale: Option<f64>,
}

impl ModelOptions for SigmoidBeliefSpec {
    const NAME: &'static str = "sigmoid-belief";
    const HELP: &'static str = "binary images from hidden binary units";
    type Raw = Raw;

    fn explicit(written: Raw) -> Result<Self, TaskError> {
        Ok(Self {
            hidden: written.hidden,
            bias_scale: written.bias_scale.unwrap_or(10.0),
            start_seed: written.start_seed.unwrap_or(1),
            start_scale: written.start_scale.unwrap_or(0.1),
        })
    }
}

impl SigmoidBeliefSpec {
    /// J and K over images of `pixels` pixels.
    ///
    /// # Errors
    /// No hidden unit, or too many of both for one vector of statistics.
    pub fn shape(&self, pixels: u32) -> Result<Shape, TaskError> {
        Shape::new(pixels, self.hidden).map_err(|error| TaskError::Invalid(error.to_string()))
    }

    /// The network with these natural parameters, of as many pixels as follow from their number; `None` where that is no number of
    /// pixels, or they are not the parameters of a distribution.
    #[must_use]
    pub fn network(&self, natural: &[f64]) -> Option<Network> {
        // J(K + 1) + K parameters.
        let parameters = u32::try_from(natural.len() / 2).ok()?;
        let pixels = parameters.checked_sub(self.hidden)? / self.hidden.checked_add(1)?;
        Network::from_natural(self.shape(pixels).ok()?, natural).ok()
    }
}

impl ModelRules for SigmoidBeliefSpec {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        if !matches!(schema.content(), Content::Images(_)) {
            return invalid("sigmoid-belief learns from images: use a schema with kind = \"binary-image\"");
        }
        require(positive(self.bias_scale), "bias_scale must be a number between 1e-30 and 1e30")?;
        require(self.start_scale >= 1e-3 && self.start_scale <= 10.0, "start_scale must lie between 0.001 and 10")?;
        self.shape(schema.dimension()).map(|_| ())
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::Own(Own::Statistics(StatisticsForm::Images(*self)))
    }

    /// W, visible unit by visible unit, then c and b. A weight of a hidden unit whose number is arbitrary means nothing by itself.
    fn parameters(&self, features: u32) -> Parameters {
        Parameters::unnamed(features.saturating_mul(self.hidden).saturating_add(features).saturating_add(self.hidden))
    }

    fn response(&self) -> Response<'_> {
        Response::of(ResponseKind::Row)
    }

    fn law(&self, Outcome { posterior, .. }: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        let network = self.network(posterior.natural()).ok_or(InvalidParameters::Domain("not the weights of this network"))?;
        Ok(Arc::new(Prepared::owned(network)))
    }
}

/// Sweeps behind an image's prediction.
const SWEEPS: u32 = 10;

/// The E-step of an image.
fn image(prepared: &Prepared<'_>, row: Example<'_>) -> Batch {
    prepared.fit_one(dense(row, prepared.shape().visible()), SWEEPS)
}

/// An image is what has a density.
impl Law for Prepared<'static> {
    fn dimension(&self) -> usize {
        self.shape().visible()
    }

    /// The hidden unit that is on most surely.
    fn predict(&self, row: Example<'_>) -> Prediction {
        most_likely(image(self, row).hidden(0))
    }

    fn log_density(&self, row: Example<'_>) -> f64 {
        self.batch_bound(&image(self, row))
    }

    fn reconstruct(&self, row: Example<'_>) -> Option<Reconstructed> {
        let batch = image(self, row);
        Some(Reconstructed { log_density: self.batch_bound(&batch), accuracy: self.reconstruction(&batch).accuracy })
    }
}

impl Display for SigmoidBeliefSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "sigmoid belief network with {} hidden units", self.hidden)
    }
}
