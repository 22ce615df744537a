//! The predictive distribution of a network.

use dp_pvi_math::expfam::InvalidParameters;

use super::output::probabilities;
use super::{Forward, Network, Output, PREDICTIVE_SEQUENCE, Weights, public_normals};
use crate::prediction::{Example, Interval, Level, Prediction};
use dp_pvi_math::quadrature::sigmoid_moments;

/// Predicts from a mean-field posterior over the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPredictor {
    network: Network,
    weights: Weights,
    samples: usize,
    draws: Vec<f64>,
}

/// An equally weighted mixture of Gaussians, one for every sample of the hidden layers: distribution of an output.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    /// Means.
    pub means: Vec<f64>,
    /// Variances.
    pub variances: Vec<f64>,
}

/// A prediction with its uncertainty.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkPrediction {
    /// Distribution of y, the observation noise included.
    Number(Mixture),
    /// P(y = 1), with the distribution of the logit behind it.
    Binary {
        /// E σ(logit).
        probability: f64,
        /// The logit.
        logit: Mixture,
    },
    /// P(y = k) of every class.
    Classes {
        /// Sums to 1.
        probabilities: Vec<f64>,
    },
}

impl From<NetworkPrediction> for Prediction {
    /// Mean and standard deviation in place of the mixture.
    fn from(prediction: NetworkPrediction) -> Self {
        match prediction {
            NetworkPrediction::Number(mixture) => Self::Number { mean: mixture.mean(), variance: mixture.variance() },
            NetworkPrediction::Binary { probability, logit } => {
                Self::Class { probability, logit_mean: logit.mean(), logit_sd: logit.variance().sqrt() }
            }
            NetworkPrediction::Classes { probabilities } => Self::Classes { probabilities },
        }
    }
}

impl NetworkPredictor {
    /// From the mean and variance of every weight, with this number of samples of the hidden layers (100 are usual; none are drawn
    /// where there is no hidden layer).
    ///
    /// # Errors
    /// A length is not the network's dimension, a number is not finite, or a variance is negative.
    pub fn new(network: Network, mean: &[f64], variance: &[f64], samples: usize) -> Result<Self, InvalidParameters> {
        for parameters in [mean, variance] {
            if parameters.len() != network.dimension() {
                return Err(InvalidParameters::Length { expected: network.dimension(), found: parameters.len() });
            }
        }
        if !mean.iter().all(|m| m.is_finite()) || !variance.iter().all(|v| v.is_finite() && *v >= 0.0) {
            return Err(InvalidParameters::Domain("a mean is not finite or a variance is negative"));
        }
        let weights = Weights::new(&network, mean.iter().copied(), variance.iter().copied());
        let samples = network.samples(samples);
        // Antithetic pairs: an error that is odd in the draws cancels.
        let width = network.draws();
        let mut draws = public_normals(PREDICTIVE_SEQUENCE, samples.div_ceil(2) * width);
        draws = draws.chunks(width.max(1)).flat_map(|half| half.iter().copied().chain(half.iter().map(|x| -x))).collect();
        Ok(Self { network, weights, samples, draws })
    }

    /// The shape.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The prediction for a row; its target is not looked at. Positions must be below the number of features.
    #[must_use]
    pub fn predict(&self, row: Example<'_>) -> NetworkPrediction {
        let Forward { mean: means, variance: variances, .. } = self.forward(row);
        match self.network.output() {
            Output::Number { noise_sd } => {
                let variances = variances.iter().map(|v| v + noise_sd * noise_sd).collect();
                NetworkPrediction::Number(Mixture { means, variances })
            }
            Output::Binary => NetworkPrediction::Binary {
                probability: average(means.iter().zip(&variances).map(|(m, v)| sigmoid_moments(*m, *v).sigmoid)),
                logit: Mixture { means, variances },
            },
            Output::Classes { .. } => NetworkPrediction::Classes { probabilities: self.class_probabilities(&means, &variances) },
        }
    }

    /// ln p(target | row, released data); NaN for a target that is no class.
    #[must_use]
    pub fn log_density(&self, row: Example<'_>) -> f64 {
        let Forward { mean, variance, .. } = self.forward(row);
        match self.network.output() {
            Output::Number { noise_sd } => {
                let log_densities = mean.iter().zip(&variance).map(|(m, v)| {
                    let total = v + noise_sd * noise_sd;
                    -0.5 * ((std::f64::consts::TAU * total).ln() + (row.target - m).powi(2) / total)
                });
                let log_densities: Vec<f64> = log_densities.collect();
                #[allow(clippy::cast_precision_loss, reason = "a number of samples")]
                let samples = log_densities.len() as f64;
                super::output::log_sum_exp(&log_densities) - samples.ln()
            }
            Output::Binary => {
                let sign = if row.target > 0.5 { 1.0 } else { -1.0 };
                // The smaller of the two probabilities has no cancellation.
                let of = |sign: f64| average(mean.iter().zip(&variance).map(|(m, v)| sigmoid_moments(sign * m, *v).sigmoid));
                let probability = of(sign);
                if probability < 0.5 { probability.ln() } else { (-of(-sign)).ln_1p() }
            }
            output @ Output::Classes { .. } => {
                let probabilities = self.class_probabilities(&mean, &variance);
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an admitted target is a small whole number")]
                if output.admits(row.target) { probabilities[row.target as usize].ln() } else { f64::NAN }
            }
        }
    }

    fn forward(&self, row: Example<'_>) -> Forward {
        let mut forward = Forward::default();
        forward.start(&self.network, 1);
        forward.project(&self.weights, 0, row.indices, row.values);
        forward.run(&self.network, &self.weights, self.samples, |column| self.draws_of(column));
        forward
    }

    fn draws_of(&self, sample: usize) -> &[f64] {
        let width = self.network.draws();
        &self.draws[sample * width..][..width]
    }

    fn class_probabilities(&self, means: &[f64], variances: &[f64]) -> Vec<f64> {
        let count = self.network.output().len();
        let hidden = self.network.draws() - count;
        let (mut sum, mut one) = (vec![0.0; count], vec![0.0; count]);
        for (sample, (mean, variance)) in means.chunks_exact(count).zip(variances.chunks_exact(count)).enumerate() {
            probabilities(mean, variance, &self.draws_of(sample)[hidden..], &mut one);
            sum.iter_mut().zip(&one).for_each(|(sum, p)| *sum += p);
        }
        let total: f64 = sum.iter().sum();
        sum.iter().map(|p| p / total).collect()
    }
}

impl Mixture {
    /// E y.
    #[must_use]
    pub fn mean(&self) -> f64 {
        average(self.means.iter().copied())
    }

    /// Var y: of the components, and between them.
    #[must_use]
    pub fn variance(&self) -> f64 {
        let mean = self.mean();
        average(self.variances.iter().copied()) + average(self.means.iter().map(|m| (m - mean).powi(2)))
    }

    /// P(y ≤ x).
    #[must_use]
    pub fn distribution(&self, x: f64) -> f64 {
        let component = |(mean, variance): (&f64, &f64)| {
            let distance = x - mean;
            if *variance > 0.0 { 0.5 * libm::erfc(-distance / (2.0 * variance).sqrt()) } else { f64::from(u8::from(distance >= 0.0)) }
        };
        average(self.means.iter().zip(&self.variances).map(component))
    }

    /// The central interval.
    #[must_use]
    pub fn interval(&self, level: Level) -> Interval {
        let tail = 0.5 * libm::erfc(level.half_width() / std::f64::consts::SQRT_2);
        Interval { lower: self.quantile(tail), upper: self.quantile(1.0 - tail) }
    }

    /// The point below which y lies with this probability, in (0, 1).
    #[must_use]
    pub fn quantile(&self, probability: f64) -> f64 {
        let edge = |sign: f64| self.means.iter().zip(&self.variances).map(move |(m, v)| m + sign * 10.0 * v.sqrt());
        let mut lower = edge(-1.0).fold(f64::INFINITY, f64::min);
        let mut upper = edge(1.0).fold(f64::NEG_INFINITY, f64::max);
        // Halving 80 times leaves nothing of any interval of doubles that matters.
        for _ in 0..80 {
            let middle = 0.5 * (lower + upper);
            if self.distribution(middle) < probability {
                lower = middle;
            } else {
                upper = middle;
            }
        }
        0.5 * (lower + upper)
    }
}

impl NetworkPrediction {
    /// Central interval: of the number itself, or of the success probability under the posterior of the weights. For several classes
    /// there is none.
    #[must_use]
    pub fn interval(&self, level: Level) -> Option<Interval> {
        match self {
            Self::Number(mixture) => Some(mixture.interval(level)),
            Self::Binary { logit, .. } => {
                let logit = logit.interval(level);
                let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
                Some(Interval { lower: sigmoid(logit.lower), upper: sigmoid(logit.upper) })
            }
            Self::Classes { .. } => None,
        }
    }
}

fn average(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a number of samples")]
    let count = values.len() as f64;
    values.sum::<f64>() / count
}
