//! What a model says of a row: a number, a class or a component, with its uncertainty.

use serde::{Deserialize, Serialize};

pub use dp_pvi_schema::public::Example;

use dp_pvi_numerics::normal;

/// A prediction with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Prediction {
    /// Mean and variance of a number, of the parameters and of the observation together: y ~ N(mean, variance) in a linear regression, a count
    /// with these moments in a Poisson regression.
    Number {
        /// xᵀμ.
        mean: f64,
        /// Predictive variance.
        variance: f64,
    },
    /// P(y = 1), with mean and standard deviation of the logit behind it: xᵀθ, Gaussian, or the output of a network.
    Class {
        /// E σ(logit): exact for xᵀθ under a Gaussian posterior.
        probability: f64,
        /// E logit: xᵀμ.
        logit_mean: f64,
        /// Its standard deviation: √(xᵀΣx).
        logit_sd: f64,
    },
    /// P(y = 1) = E Φ(xᵀθ), with mean and standard deviation of xᵀθ.
    Probit {
        /// Φ(mean/√(1 + sd²)).
        probability: f64,
        /// xᵀμ.
        mean: f64,
        /// √(xᵀΣx).
        sd: f64,
    },
    /// The component of a mixture that most likely made the row.
    Component {
        /// Its number, from 0.
        component: usize,
        /// Its responsibility.
        probability: f64,
    },
}

impl Prediction {
    /// Central interval: of the number itself, or of the success probability σ(xᵀθ) under the posterior of θ.
    #[must_use]
    pub fn interval(&self, level: Level) -> Interval {
        match *self {
            Self::Number { mean, variance } => level.interval(mean, variance.sqrt()),
            Self::Class { logit_mean, logit_sd, .. } => {
                let logit = level.interval(logit_mean, logit_sd);
                let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
                Interval { lower: sigmoid(logit.lower), upper: sigmoid(logit.upper) }
            }
            Self::Probit { mean, sd, .. } => {
                let predictor = level.interval(mean, sd);
                Interval { lower: normal::cdf(predictor.lower), upper: normal::cdf(predictor.upper) }
            }
            // A number of a component has no interval.
            Self::Component { probability, .. } => Interval { lower: probability, upper: probability },
        }
    }
}

/// A central interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// Probability content of a central interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// 90 %.
    P90,
    /// 95 %.
    P95,
}

impl Level {
    /// Half-width of the interval of a standard normal variable.
    #[must_use]
    pub fn half_width(self) -> f64 {
        match self {
            Self::P90 => 1.644_853_626_951_472_2,
            Self::P95 => 1.959_963_984_540_054,
        }
    }

    /// The interval of N(mean, sd²).
    #[must_use]
    pub fn interval(self, mean: f64, sd: f64) -> Interval {
        Interval { lower: mean - self.half_width() * sd, upper: mean + self.half_width() * sd }
    }
}
