//! What a model says of a row: a number, a class or a component, with its uncertainty; and the [`Law`] that says it.

use std::fmt::Debug;
use std::sync::Arc;

use dp_pvi_math::expfam::any::Gaussian;
use serde::{Deserialize, Serialize};

pub use dp_pvi_schema::public::Example;

use dp_pvi_math::count::{negative_binomial, ranked_probability_score};
use dp_pvi_math::normal;
use dp_pvi_math::student::NormalPlusStudent;

/// The predictive distribution of a posterior: parameter uncertainty and observation noise together.
pub trait Law: Debug + Send + Sync {
    /// Number of features of a row.
    fn dimension(&self) -> usize;

    /// The prediction for a row; its target is not looked at. Positions must be below [`Self::dimension`].
    fn predict(&self, row: Example<'_>) -> Prediction;

    /// ln p(target | row, released data); a lower bound where only one can be computed.
    fn log_density(&self, row: Example<'_>) -> f64;

    /// By what else the prediction for a row is judged, now that its target is known.
    fn scores(&self, row: Example<'_>) -> Scores {
        let _ = row;
        Scores::NONE
    }

    /// What hidden units say about an image's pixels; only of models of images.
    fn reconstruct(&self, row: Example<'_>) -> Option<Reconstructed> {
        let _ = row;
        None
    }
}

/// What there is to predict from.
#[derive(Debug, Clone)]
pub struct Outcome<'a> {
    /// The posterior of the parameters.
    pub posterior: Arc<Gaussian>,
    /// The whole state of the run, whose head is the posterior; absent where only the posterior was exported.
    pub state: Option<&'a [f64]>,
    /// Standard deviation of an observation's noise, where the run learned it.
    pub noise_sd: Option<f64>,
}

/// What a likelihood of a linear predictor xᵀθ says, given the predictor's mean and variance under the posterior.
pub trait PredictorLaw: Debug + Send + Sync + 'static {
    /// The prediction.
    fn predict(&self, mean: f64, variance: f64) -> Prediction;

    /// ln p(target | row, released data).
    fn log_density(&self, mean: f64, variance: f64, target: f64) -> f64;

    /// By what else a prediction is judged: as [`Law::scores`].
    fn scores(&self, mean: f64, variance: f64, target: f64) -> Scores {
        let _ = (mean, variance, target);
        Scores::NONE
    }
}

/// The law of a likelihood of a linear predictor.
#[must_use]
pub fn of_predictor(outcome: &Outcome<'_>, law: impl PredictorLaw) -> Arc<dyn Law> {
    Arc::new(OfPredictor { posterior: Arc::clone(&outcome.posterior), law })
}

#[derive(Debug)]
struct OfPredictor<L> {
    posterior: Arc<Gaussian>,
    law: L,
}

impl<L> OfPredictor<L> {
    /// Mean and variance of xᵀθ and the row's offset.
    fn predictor(&self, row: Example<'_>) -> (f64, f64) {
        let (mean, variance) = self.posterior.standard().project(row.indices, row.values);
        (mean + row.offset, variance)
    }
}

impl<L: PredictorLaw> Law for OfPredictor<L> {
    fn dimension(&self) -> usize {
        self.posterior.family().dimension()
    }

    fn predict(&self, row: Example<'_>) -> Prediction {
        let (mean, variance) = self.predictor(row);
        self.law.predict(mean, variance)
    }

    fn log_density(&self, row: Example<'_>) -> f64 {
        let (mean, variance) = self.predictor(row);
        self.law.log_density(mean, variance, row.target)
    }

    fn scores(&self, row: Example<'_>) -> Scores {
        let (mean, variance) = self.predictor(row);
        self.law.scores(mean, variance, row.target)
    }
}

/// Scores of one prediction beside the density of what came; of each, lower is better, and 0 a certain prediction that is right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// Unit deviance: twice the log likelihood that a prediction of just what came would have more. Of counts, at the predicted mean, and of survival times.
    pub deviance: Option<f64>,
    /// Σ_k (P(y ≤ k) − 1[y ≤ k])² over the classes but the last, or over all counts. Of ordered classes and of counts.
    pub ranked_probability: Option<f64>,
}

impl Scores {
    /// Of what has neither.
    pub const NONE: Self = Self { deviance: None, ranked_probability: None };

    /// Of a count whose predicted mean is `mean`, with z ~ N(log_rate) and the dispersion φ as in [`Prediction::Count`]: the deviance is
    /// 2 (y ln(y/m) − (y + φ) ln((y + φ)/(m + φ))), and 2 (y ln(y/m) − y + m) for φ = ∞.
    #[must_use]
    pub(crate) fn of_count(count: f64, mean: f64, (log_mean, variance): (f64, f64), dispersion: f64) -> Self {
        let own = if count > 0.0 { count * (count / mean).ln() } else { 0.0 };
        let rest =
            if dispersion.is_infinite() { count - mean } else { (count + dispersion) * ((count + dispersion) / (mean + dispersion)).ln() };
        Self { deviance: Some(2.0 * (own - rest)), ranked_probability: ranked_probability_score(count, dispersion, log_mean, variance) }
    }

    /// Of one of several ordered classes.
    #[must_use]
    pub(crate) fn of_ordered(class: usize, probabilities: &[f64]) -> Self {
        let mut below = 0.0;
        let terms = probabilities.iter().enumerate().take(probabilities.len().saturating_sub(1)).map(|(k, probability)| {
            below += probability;
            (below - f64::from(u8::from(class <= k))).powi(2)
        });
        Self { deviance: None, ranked_probability: Some(terms.sum()) }
    }
}

/// An image and its reconstruction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reconstructed {
    /// Lower bound of ln p(image).
    pub log_density: f64,
    /// Share of its pixels that come back right.
    pub accuracy: f64,
}

/// Pairs (position, value) of a row.
pub fn entries<'a>(row: Example<'a>) -> impl Iterator<Item = (usize, f64)> + 'a {
    row.indices.iter().zip(row.values).map(|(&i, &x)| (i as usize, x))
}

/// A row with its zeros.
#[must_use]
pub fn dense(row: Example<'_>, dimension: usize) -> Vec<f64> {
    let mut x = vec![0.0; dimension];
    entries(row).for_each(|(i, value)| x[i] = value);
    x
}

/// The component with the largest probability.
#[must_use]
pub(crate) fn most_likely(probabilities: &[f64]) -> Prediction {
    let (component, probability) = largest(probabilities);
    Prediction::Component { component, probability }
}

/// Position and value of the largest probability, the last of equal ones; (0, 0) of none.
#[must_use]
pub fn largest(probabilities: &[f64]) -> (usize, f64) {
    probabilities.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
}

/// ln H(t) of a row, normal by the delta method; H is −ln of the probability that the event has not come until t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogCumulativeHazard {
    /// At the posterior's mean; −∞ where nothing can have come.
    pub mean: f64,
    /// Standard deviation.
    pub sd: f64,
}

impl LogCumulativeHazard {
    /// Of a row that was watched for no time.
    pub const NOTHING: Self = Self { mean: f64::NEG_INFINITY, sd: 0.0 };

    /// S = exp(−e^L).
    #[must_use]
    pub fn survival(&self) -> f64 {
        survival(self.mean)
    }

    /// exp(−e^(L ± z sd)).
    #[must_use]
    pub fn band(&self, level: Level) -> Interval {
        if self.mean == f64::NEG_INFINITY {
            return Interval { lower: 1.0, upper: 1.0 };
        }
        let hazard = level.interval(self.mean, self.sd);
        Interval { lower: survival(hazard.upper), upper: survival(hazard.lower) }
    }
}

fn survival(log_hazard: f64) -> f64 {
    (-log_hazard.exp()).exp()
}

/// A prediction with its uncertainty.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// Mean and variance of a number, of the parameters and of the observation together: y ~ N(mean, variance) in a linear regression.
    Number {
        /// xᵀμ.
        mean: f64,
        /// Predictive variance.
        variance: f64,
    },
    /// A count of mean m = e^z and variance m + m²/`dispersion`, with z ~ N(mean, variance) of `log_rate`.
    Count {
        /// E y.
        mean: f64,
        /// Var y: of the rate, and the count's own.
        variance: f64,
        /// Mean and variance of z.
        log_rate: (f64, f64),
        /// Infinite for a Poisson count.
        dispersion: f64,
    },
    /// A number with heavy tails.
    HeavyTailed {
        /// xᵀμ.
        mean: f64,
        /// Predictive variance.
        variance: f64,
        /// Its distribution.
        law: NormalPlusStudent,
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
    /// P(y = k) of every class, of more than two: they sum to 1.
    Classes {
        /// In the order of the schema's list.
        probabilities: Vec<f64>,
    },
    /// Whether the event has come until the horizon.
    Survival {
        /// In the unit of the file's times.
        horizon: f64,
        /// ln H(horizon).
        hazard: LogCumulativeHazard,
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
    /// P(y ≤ target) for a number; for a count P(y < target) + ½ P(y = target). Uniform where predictions are calibrated, for a count nearly.
    #[must_use]
    pub fn transform(&self, target: f64) -> Option<f64> {
        match *self {
            Self::Number { mean, variance } => Some(0.5 * libm::erfc((mean - target) / (2.0 * variance).sqrt())),
            Self::Count { log_rate: (mean, variance), dispersion, .. } => {
                let below = negative_binomial::distribution(target - 1.0, dispersion, mean, variance);
                Some(below + 0.5 * negative_binomial::log_mass(target, dispersion, mean, variance).exp())
            }
            Self::HeavyTailed { law, .. } => Some(law.distribution(target)),
            Self::Class { .. } | Self::Classes { .. } | Self::Survival { .. } | Self::Probit { .. } | Self::Component { .. } => None,
        }
    }

    /// Central interval: of the number itself, or of the success probability σ(xᵀθ) under the posterior of θ, or of the probability that the event has not come until the
    /// horizon.
    #[must_use]
    pub fn interval(&self, level: Level) -> Interval {
        match *self {
            Self::Number { mean, variance } => level.interval(mean, variance.sqrt()),
            Self::Count { log_rate: (mean, variance), dispersion, .. } => {
                let quantile = |probability| negative_binomial::quantile(probability, dispersion, mean, variance);
                Interval { lower: quantile(level.tail()), upper: quantile(1.0 - level.tail()) }
            }
            Self::HeavyTailed { mean, law, .. } => {
                let upper = law.quantile(1.0 - level.tail());
                Interval { lower: 2.0 * mean - upper, upper }
            }
            Self::Class { logit_mean, logit_sd, .. } => {
                let logit = level.interval(logit_mean, logit_sd);
                let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
                Interval { lower: sigmoid(logit.lower), upper: sigmoid(logit.upper) }
            }
            Self::Probit { mean, sd, .. } => {
                let predictor = level.interval(mean, sd);
                Interval { lower: normal::cdf(predictor.lower), upper: normal::cdf(predictor.upper) }
            }
            // The name of a class or of a component has no interval.
            Self::Classes { ref probabilities } => {
                let (_, probability) = largest(probabilities);
                Interval { lower: probability, upper: probability }
            }
            Self::Survival { hazard, .. } => hazard.band(level),
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

    /// What is above an interval, and as much below.
    pub(crate) fn tail(self) -> f64 {
        normal::cdf(-self.half_width())
    }

    /// The interval of N(mean, sd²).
    #[must_use]
    pub fn interval(self, mean: f64, sd: f64) -> Interval {
        Interval { lower: mean - self.half_width() * sd, upper: mean + self.half_width() * sd }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_math::expfam::any::{Family, Gaussian};

    use super::{Example, Law, Outcome, Scores};
    use crate::{ModelSpec, negative_binomial_regression, ordinal_regression, poisson_regression};
    use dp_pvi_schema::public::Extra;

    /// A posterior that is certain of these coefficients.
    fn certain(model: impl Into<ModelSpec>, mean: &[f64]) -> std::sync::Arc<dyn Law> {
        let natural = mean.iter().map(|m| m * 1e14).chain(mean.iter().map(|_| 1e14)).collect();
        let posterior = Gaussian::from_natural(Family::DiagonalGaussian { dimension: mean.len() }, natural).unwrap();
        let outcome = Outcome { posterior: std::sync::Arc::new(posterior), state: None, noise_sd: None };
        model.into().rules().law(&outcome).unwrap()
    }

    fn close(found: Option<f64>, expected: f64) {
        assert!((found.unwrap() - expected).abs() < 1e-5, "{found:?} {expected}");
    }

    fn row(target: f64, extra: Extra) -> Example<'static> {
        Example { indices: &[0], values: &[1.0], target, offset: 0.0, extra }
    }

    #[test]
    fn scores_of_counts_equal_hand_computed_values() {
        let poisson = certain(poisson_regression::PoissonRegression {}, &[2_f64.ln()]);
        // 2 (3 ln 1.5 − 3 + 2), and 2 m without an event.
        close(poisson.scores(row(3.0, Extra::NONE)).deviance, 0.432_790_648_648_986);
        close(poisson.scores(row(0.0, Extra::NONE)).deviance, 4.0);
        // P(y ≤ k) of mean 2 for k = 0, 1, 2, …
        let below = |k: i32| (0..=k).map(|j| (-2_f64).exp() * 2_f64.powi(j) / (1..=j).map(f64::from).product::<f64>()).sum::<f64>();
        let ranked: f64 = (0..40).map(|k| (below(k) - f64::from(u8::from(k >= 3))).powi(2)).sum();
        close(poisson.scores(row(3.0, Extra::NONE)).ranked_probability, ranked);
        // Geometric: mean 1, φ = 1. 2 (2 ln 2 − 3 ln 1.5), and Σ 4^−(k+1) = 1/3 with 1/4 and 9/16 in the places of 1/4 and 1/16.
        let negative = certain(negative_binomial_regression::NegativeBinomialRegression { dispersion: 1.0 }, &[0.0]);
        close(negative.scores(row(2.0, Extra::NONE)).deviance, 0.339_798_073_590_795_6);
        close(negative.scores(row(2.0, Extra::NONE)).ranked_probability, 5.0 / 6.0);
    }

    #[test]
    fn scores_of_ordered_classes_equal_hand_computed_values() {
        // α = 0 and softplus(ln 2) = ln 3: the classes have ½, ¼ and ¼.
        let model = ordinal_regression::OrdinalRegression { classes: 3, threshold_mean: [0.0, 0.5], threshold_scale: [2.5, 1.0] };
        let law = certain(model, &[0.0, 0.0, 2_f64.ln()]);
        for (class, expected) in [(0.0, 0.25 + 1.0 / 16.0), (1.0, 0.25 + 1.0 / 16.0), (2.0, 0.25 + 9.0 / 16.0)] {
            close(law.scores(row(class, Extra::NONE)).ranked_probability, expected);
            assert_eq!(law.scores(row(class, Extra::NONE)).deviance, None);
        }
        assert_eq!(law.scores(row(3.0, Extra::NONE)), Scores::NONE);
    }
}
