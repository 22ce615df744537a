//! y = f(x; W) + noise of unknown precision, f a network with rectified hidden layers (probabilistic back-propagation).

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::pbp_network::predictive::NetworkPredictor;
use crate::pbp_network::{Network, Posterior, network_posterior};
use crate::prediction::{Example, Law, Outcome, Prediction, entries};
use crate::response::{Response, ResponseKind};
use crate::spec::TaskError;
use crate::spec::check::{require, require_outcome};
use crate::{ModelOptions, ModelRules, Own, TiltedForm};
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a network by probabilistic back-propagation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PbpNetwork {
    /// Units of every hidden layer.
    pub hidden: Vec<u32>,
    /// Public seed of the means at which inference starts.
    pub seed: u32,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// Units of every hidden layer. Default: one layer of 50.
    hidden: Option<Vec<u32>>,
    /// Public seed of the means at which inference starts. Default: 0.
    seed: Option<u32>,
}

impl ModelOptions for PbpNetwork {
    const NAME: &'static str = "pbp-network";
    const HELP: &'static str = "a number with unknown noise, through ReLU layers, by moments";
    type Raw = Raw;

    fn explicit(Raw { hidden, seed }: Raw) -> Result<Self, TaskError> {
        Ok(Self { hidden: hidden.unwrap_or_else(|| vec![50]), seed: seed.unwrap_or(0) })
    }
}

impl PbpNetwork {
    fn network(&self, features: u32) -> Option<Network> {
        let hidden: Vec<usize> = self.hidden.iter().map(|&units| units as usize).collect();
        Network::new(features as usize, &hidden).ok()
    }
}

impl ModelRules for PbpNetwork {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require_outcome(
            matches!(schema.label().kind, LabelKind::Number { .. }),
            schema,
            "pbp-network",
            "a number, a column with kind = \"number\"",
        )?;
        require(
            self.network(schema.dimension()).is_some(),
            "hidden needs one to many layers of at least one unit, of at most 2^26 weights in all",
        )
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::Own(Own::Tilted(TiltedForm::Network { hidden: self.hidden.clone(), seed: self.seed }))
    }

    /// All weights, and the precision of the noise as the last coordinate (see `PropagationRule` of dp-pvi-posterior).
    /// Biases are in the place of an intercept.
    fn parameters(&self, features: u32) -> Parameters {
        Parameters::from_columns(self.network(features).map_or(0, |network| u32::try_from(network.weights() + 1).unwrap_or(0)))
    }

    fn response(&self) -> Response<'_> {
        Response::of(ResponseKind::Number)
    }

    fn law(&self, Outcome { posterior, .. }: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        let network = Network::of_weights(posterior.family().dimension() - 1, &self.hidden)?;
        let posterior = network_posterior(&network, posterior.standard());
        Ok(Arc::new(Moments { network, posterior }))
    }
}

#[derive(Debug)]
struct Moments {
    network: Network,
    posterior: Posterior,
}

impl Law for Moments {
    fn dimension(&self) -> usize {
        self.network.inputs()
    }

    fn predict(&self, row: Example<'_>) -> Prediction {
        let (mean, variance) = NetworkPredictor::new(&self.network, &self.posterior).predict(entries(row));
        Prediction::Number { mean, variance }
    }

    fn log_density(&self, row: Example<'_>) -> f64 {
        NetworkPredictor::new(&self.network, &self.posterior).log_density(entries(row), row.target)
    }
}

impl Display for PbpNetwork {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let layers: Vec<String> = self.hidden.iter().map(u32::to_string).collect();
        write!(f, "network with hidden layers of {} units by probabilistic back-propagation", layers.join(", "))
    }
}
