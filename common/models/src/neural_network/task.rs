//! A Bayesian neural network with ReLU layers: shape, parameters and where a fit begins.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::neural_network::{InvalidShape, Network, NetworkPredictor, Output};
use crate::parameters::Parameters;
use crate::prediction::{Example, Law, Outcome, Prediction};
use crate::response::{Response, ResponseKind};
use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require, require_outcome};
use crate::spec::words::Short;
use crate::{ModelOptions, ModelRules, Own};
use dp_pvi_schema::{LabelKind, Schema};

/// Numbers of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeuralNetworkSpec {
    /// Units of every hidden layer.
    pub hidden: Vec<u32>,
    /// What is predicted.
    pub output: NetworkOutput,
    /// Monte-Carlo samples S of a record's gradient, averaged before anything is clipped.
    pub samples: u32,
}

/// What a network predicts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum NetworkOutput {
    /// y ~ N(output, noise_sd²).
    Number {
        /// Known standard deviation of the observation noise.
        noise_sd: f64,
    },
    /// P(y = 1) = σ(output).
    Binary {},
    /// P(y = k) ∝ exp(output k).
    Classes {
        /// Number of classes, and of outputs.
        count: u32,
    },
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// Default: one layer of 50 units.
    hidden: Option<Vec<u32>>,
    /// Given: a number is predicted.
    noise_sd: Option<f64>,
    /// Given: one of this many classes is predicted. Neither: one of two.
    classes: Option<u32>,
    /// Default: 10.
    samples: Option<u32>,
}

impl ModelOptions for NeuralNetworkSpec {
    const NAME: &'static str = "neural-network";
    const HELP: &'static str = "a number or a class, through ReLU layers";
    type Raw = Raw;

    fn explicit(written: Raw) -> Result<Self, TaskError> {
        let output = match (written.noise_sd, written.classes) {
            (Some(_), Some(_)) => {
                return invalid("a neural network predicts a number (noise_sd) or a class (classes): leave one of them out");
            }
            (Some(noise_sd), None) => NetworkOutput::Number { noise_sd },
            (None, Some(count)) => NetworkOutput::Classes { count },
            (None, None) => NetworkOutput::Binary {},
        };
        Ok(Self { hidden: written.hidden.unwrap_or_else(|| vec![50]), output, samples: written.samples.unwrap_or(10) })
    }
}

impl NeuralNetworkSpec {
    /// The network over rows of this many features.
    ///
    /// # Errors
    /// A layer without units, or too many weights.
    pub fn network(&self, features: usize) -> Result<Network, InvalidShape> {
        let hidden: Vec<usize> = self.hidden.iter().map(|&units| units as usize).collect();
        let output = match self.output {
            NetworkOutput::Number { noise_sd } => Output::Number { noise_sd },
            NetworkOutput::Binary {} => Output::Binary,
            NetworkOutput::Classes { count } => Output::Classes { count: count as usize },
        };
        Network::new(features, &hidden, output)
    }

    /// The network that has this many parameters: the number of features follows.
    ///
    /// # Errors
    /// There is none.
    pub fn network_of(&self, parameters: usize) -> Result<Network, InvalidShape> {
        let slope = self.hidden.first().map_or(1, |&units| units as usize).max(1);
        let one = self.network(1)?.dimension();
        let features = parameters.checked_sub(one).ok_or(InvalidShape)? / slope + 1;
        self.network(features).ok().filter(|network| network.dimension() == parameters).ok_or(InvalidShape)
    }
}

/// Most Monte-Carlo samples of a record: more gain nothing beside the noise.
const MAX_SAMPLES: u32 = 1000;

/// Most classes.
const MAX_CLASSES: u32 = 1000;

/// Samples of the hidden layers behind a prediction.
const PREDICTION_SAMPLES: usize = 100;

impl ModelRules for NeuralNetworkSpec {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require((1..=8).contains(&self.hidden.len()), "hidden must list the units of one to eight layers")?;
        require((1..=MAX_SAMPLES).contains(&self.samples), "samples must lie between 1 and 1000")?;
        if let NetworkOutput::Classes { count } = self.output {
            require((2..=MAX_CLASSES).contains(&count), "classes must lie between 2 and 1000")?;
        }
        if let Err(error) = self.network(schema.dimension() as usize) {
            return invalid(&format!("hidden: {error}"));
        }
        match self.output {
            NetworkOutput::Number { noise_sd } => {
                require(positive(noise_sd), "noise_sd must be a number between 1e-30 and 1e30")?;
                let needs = "a number where it has noise_sd, a column with kind = \"number\"";
                require_outcome(matches!(schema.label().kind, LabelKind::Number { .. }), schema, "neural-network", needs)
            }
            NetworkOutput::Binary {} => {
                let needs = "one of two classes where it has neither noise_sd nor classes, a column with kind = \"boolean\"";
                require_outcome(matches!(schema.label().kind, LabelKind::Binary { .. }), schema, "neural-network", needs)
            }
            NetworkOutput::Classes { count } => require(
                matches!(&schema.label().kind, LabelKind::Classes { values } if values.len() == count as usize),
                "classes must be the number of values that the outcome's column lists, which needs kind = \"category\"",
            ),
        }
    }

    /// From the prior's scale a first fit fails: every layer adds its own noise to the next.
    fn likelihood(&self) -> Likelihood {
        Likelihood::Own(Own::Gradients { initial_log_scale: 0.05f64.ln() })
    }

    fn parameters(&self, features: u32) -> Parameters {
        // A shape that is none has no parameter; `check` says what is wrong with it.
        Parameters::unnamed(self.network(features as usize).ok().and_then(|network| u32::try_from(network.dimension()).ok()).unwrap_or(0))
    }

    fn response(&self) -> Response<'_> {
        Response::of(match self.output {
            NetworkOutput::Number { .. } => ResponseKind::Number,
            NetworkOutput::Binary {} => ResponseKind::Classes(2),
            NetworkOutput::Classes { count } => ResponseKind::Classes(count),
        })
    }

    fn law(&self, Outcome { posterior, .. }: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        let network = self.network_of(posterior.family().dimension());
        let network = network.map_err(|_| InvalidParameters::Domain("not the weights of this network"))?;
        let standard = posterior.standard();
        Ok(Arc::new(NetworkPredictor::new(network, standard.mean(), &standard.variances(), PREDICTION_SAMPLES)?))
    }

    fn fit_start(&self, features: u32) -> Option<Vec<f64>> {
        self.network(features as usize).ok().map(|network| network.initial_mean())
    }
}

impl Law for NetworkPredictor {
    fn dimension(&self) -> usize {
        self.network().features()
    }

    fn predict(&self, row: Example<'_>) -> Prediction {
        Self::predict(self, row).into()
    }

    fn log_density(&self, row: Example<'_>) -> f64 {
        Self::log_density(self, row)
    }
}

impl Display for NeuralNetworkSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let units: Vec<String> = self.hidden.iter().map(u32::to_string).collect();
        write!(f, "neural network, hidden units {}", units.join(" and "))?;
        match self.output {
            NetworkOutput::Number { noise_sd } => write!(f, ", noise sd {}", Short(noise_sd))?,
            NetworkOutput::Binary {} => f.write_str(", two classes")?,
            NetworkOutput::Classes { count } => write!(f, ", {count} classes")?,
        }
        write!(f, ", {} samples of a gradient", self.samples)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{NetworkOutput, NeuralNetworkSpec};
    use crate::ModelFamily;

    #[test]
    fn options_have_defaults_and_no_others() {
        let of = |text: &str| ModelFamily::named("neural-network").unwrap().resolve(&text.parse().unwrap());
        let spec = |text: &str| of(text).unwrap().options::<NeuralNetworkSpec>().unwrap().clone();
        assert_eq!(spec(""), NeuralNetworkSpec { hidden: vec![50], output: NetworkOutput::Binary {}, samples: 10 });
        let spec = spec("hidden = [20, 10]\nnoise_sd = 0.5\nsamples = 3");
        assert_eq!(spec, NeuralNetworkSpec { hidden: vec![20, 10], output: NetworkOutput::Number { noise_sd: 0.5 }, samples: 3 });
        assert_eq!(spec.to_string(), "neural network, hidden units 20 and 10, noise sd 0.5, 3 samples of a gradient");
        let three = NetworkOutput::Classes { count: 3 };
        assert_eq!(of("classes = 3").unwrap().options::<NeuralNetworkSpec>().unwrap().output, three);
        assert!(of("width = 3").is_err() && of("classes = 3\nnoise_sd = 1.0").is_err());
    }

    #[test]
    fn the_number_of_features_follows_from_the_number_of_parameters() {
        for hidden in [vec![50], vec![3, 2], vec![1]] {
            let spec = NeuralNetworkSpec { hidden, output: NetworkOutput::Binary {}, samples: 1 };
            for features in [1, 2, 105] {
                let network = spec.network(features).unwrap();
                assert_eq!(spec.network_of(network.dimension()).unwrap(), network);
            }
            assert!(spec.network_of(0).is_err() && spec.network_of(2).is_err());
        }
        let spec = NeuralNetworkSpec { hidden: vec![50], output: NetworkOutput::Binary {}, samples: 1 };
        assert!(spec.network_of(5_300).is_err());
    }
}
