//! The posterior predictive distribution of a new row: parameter uncertainty and observation noise together.

use dp_pvi_expfam::InvalidParameters;
use dp_pvi_expfam::any::Standard;
use dp_pvi_expfam::any::{Family, Gaussian};

use crate::quadrature::{log_sigmoid_expectation, sigmoid_moments};
use crate::summary::{Interval, Level};
use crate::task::{ModelSpec, ResolvedTask};

/// One row of features with its target: public test data, or a new row to predict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Example<'a> {
    /// Ascending positions of the non-zero features, below d.
    pub indices: &'a [u32],
    /// Their values.
    pub values: &'a [f64],
    /// Class 0 or 1, or the number to be predicted.
    pub target: f64,
}

/// Predicts from a posterior.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictor {
    model: ModelSpec,
    posterior: Gaussian,
}

/// A prediction with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Prediction {
    /// y ~ N(mean, variance): xᵀΣx of the parameters plus the observation noise.
    Number {
        /// xᵀμ.
        mean: f64,
        /// Predictive variance.
        variance: f64,
    },
    /// P(y = 1), with the Gaussian distribution of the logit behind it.
    Class {
        /// B1 = E σ(xᵀθ), exact for the Gaussian posterior.
        probability: f64,
        /// xᵀμ.
        logit_mean: f64,
        /// √(xᵀΣx).
        logit_sd: f64,
    },
}

impl Predictor {
    /// From natural parameters.
    ///
    /// # Errors
    /// They are not the parameters of a distribution of `family`.
    pub fn new(model: ModelSpec, family: Family, natural: &[f64]) -> Result<Self, InvalidParameters> {
        Ok(Self { model, posterior: Gaussian::from_natural(family, natural.to_vec())? })
    }

    /// From a state of a run of `task`.
    ///
    /// # Errors
    /// Its head is not a distribution of the task's family.
    pub fn of_state(task: &ResolvedTask, state: &[f64]) -> Result<Self, InvalidParameters> {
        Self::new(task.model.clone(), task.family(), task.posterior(state))
    }

    /// Number of features d.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.posterior.family().dimension()
    }

    /// The posterior.
    #[must_use]
    pub fn posterior(&self) -> &Standard {
        self.posterior.standard()
    }

    /// The likelihood.
    #[must_use]
    pub fn model(&self) -> &ModelSpec {
        &self.model
    }

    /// The prediction for a row; its target is not looked at. Positions must be below d.
    #[must_use]
    pub fn predict(&self, row: Example<'_>) -> Prediction {
        let (mean, variance) = self.posterior.standard().project(row.indices, row.values);
        match self.model {
            ModelSpec::LinearRegression { noise_sd } => Prediction::Number { mean, variance: variance + noise_sd * noise_sd },
            ModelSpec::LogisticRegression {} => {
                Prediction::Class { probability: sigmoid_moments(mean, variance).sigmoid, logit_mean: mean, logit_sd: variance.sqrt() }
            }
        }
    }

    /// ln p(target | row, released data).
    #[must_use]
    pub fn log_density(&self, row: Example<'_>) -> f64 {
        let (mean, variance) = self.posterior.standard().project(row.indices, row.values);
        match self.model {
            ModelSpec::LinearRegression { noise_sd } => {
                let total = variance + noise_sd * noise_sd;
                -0.5 * ((2.0 * std::f64::consts::PI * total).ln() + (row.target - mean).powi(2) / total)
            }
            ModelSpec::LogisticRegression {} => log_sigmoid_expectation(if row.target > 0.5 { mean } else { -mean }, variance),
        }
    }
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
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_expfam::any::Family;
    use dp_pvi_expfam::gaussian::full::svec;
    use nalgebra::DMatrix;

    use super::{Example, Prediction, Predictor};
    use crate::summary::Level;
    use crate::task::ModelSpec;

    #[test]
    fn linear_predictions_add_parameter_and_observation_variance() {
        // Λ = diag(4, 1), μ = (0.5, −1), noise sd 0.3; x = (2, 0, …) sparse.
        let family = Family::DiagonalGaussian { dimension: 2 };
        let predictor = Predictor::new(ModelSpec::LinearRegression { noise_sd: 0.3 }, family, &[2.0, -1.0, 4.0, 1.0]).unwrap();
        let row = Example { indices: &[0], values: &[2.0], target: 1.5 };
        let Prediction::Number { mean, variance } = predictor.predict(row) else { panic!("a number") };
        assert!((mean - 1.0).abs() < 1e-15 && (variance - 1.09).abs() < 1e-15);
        let expected = -0.5 * ((2.0 * std::f64::consts::PI * 1.09).ln() + 0.25 / 1.09);
        assert!((predictor.log_density(row) - expected).abs() < 1e-15);
        let interval = predictor.predict(row).interval(Level::P95);
        assert!((interval.upper - 1.0 - 1.959_963_984_540_054 * 1.09_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn both_classes_have_probabilities_that_sum_to_one() {
        let family = Family::FullGaussian { dimension: 2 };
        let precision = DMatrix::from_row_slice(2, 2, &[2.0, 0.5, 0.5, 1.0]);
        let mut natural = vec![0.3, -0.8];
        natural.extend(svec(&precision));
        let predictor = Predictor::new(ModelSpec::LogisticRegression {}, family, &natural).unwrap();
        let row = |target| Example { indices: &[0, 1], values: &[1.0, -2.0], target };
        let Prediction::Class { probability, logit_mean, logit_sd } = predictor.predict(row(1.0)) else { panic!("a class") };
        assert!((predictor.log_density(row(1.0)).exp() + predictor.log_density(row(0.0)).exp() - 1.0).abs() < 1e-14);
        assert!((predictor.log_density(row(1.0)).exp() - probability).abs() < 1e-15);
        let covariance = precision.try_inverse().unwrap();
        let x = nalgebra::dvector![1.0, -2.0];
        assert!((logit_sd.powi(2) - (x.transpose() * &covariance * &x)[0]).abs() < 1e-13);
        assert!((logit_mean - x.dot(&(&covariance * nalgebra::dvector![0.3, -0.8]))).abs() < 1e-13);
        let interval = predictor.predict(row(1.0)).interval(Level::P90);
        assert!(interval.lower < probability && probability < interval.upper && interval.upper < 1.0);
    }
}
