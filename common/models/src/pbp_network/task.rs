//! y = f(x; W) + noise of unknown precision, f a network with rectified hidden layers (probabilistic back-propagation).

use std::fmt::{Display, Formatter};

use serde::Deserialize;

use crate::pbp_network::Network;
use crate::spec::TaskError;
use crate::spec::check::require;
use crate::{ModelRules, ModelSpec, TiltedForm, options};
use dp_pvi_numerics::floor::PrecisionFloor;
use dp_pvi_schema::{LabelKind, Schema};

pub(crate) struct PbpNetwork {
    pub(crate) hidden: Vec<u32>,
    pub(crate) seed: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// Units of every hidden layer. Default: one layer of 50.
    hidden: Option<Vec<u32>>,
    /// Public seed of the means at which inference starts. Default: 0.
    seed: Option<u32>,
}

pub(crate) fn resolve(table: &toml::Table) -> Result<ModelSpec, TaskError> {
    let Raw { hidden, seed } = options(table, "pbp-network")?;
    Ok(ModelSpec::PbpNetwork { hidden: hidden.unwrap_or_else(|| vec![50]), seed: seed.unwrap_or(0) })
}

impl PbpNetwork {
    fn network(&self, features: u32) -> Option<Network> {
        let hidden: Vec<usize> = self.hidden.iter().map(|&units| units as usize).collect();
        Network::new(features as usize, &hidden).ok()
    }
}

impl ModelRules for PbpNetwork {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(
            matches!(schema.label().kind, LabelKind::Number(_)),
            "pbp-network predicts a number: give the schema's label kind = \"number\"",
        )?;
        require(schema.intercept().is_none(), "family = \"pbp-network\" has biases of its own: set intercept = false in the schema")?;
        require(
            self.network(schema.dimension()).is_some(),
            "hidden needs one to many layers of at least one unit, of at most 2^26 weights in all",
        )
    }

    /// All weights, and the precision of the noise as the last coordinate (see `PropagationRule` of dp-pvi-posterior).
    fn parameters(&self, features: u32) -> u32 {
        self.network(features).map_or(0, |network| u32::try_from(network.weights() + 1).unwrap_or(0))
    }

    fn tilted(&self) -> Option<TiltedForm> {
        Some(TiltedForm::Network { hidden: self.hidden.clone(), seed: self.seed })
    }

    /// Not log-concave.
    fn floor(&self) -> PrecisionFloor {
        PrecisionFloor::General
    }
}

impl Display for PbpNetwork {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let layers: Vec<String> = self.hidden.iter().map(u32::to_string).collect();
        write!(f, "network with hidden layers of {} units by probabilistic back-propagation", layers.join(", "))
    }
}
