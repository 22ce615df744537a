//! The posterior predictive distribution of a new row: parameter uncertainty and observation noise together. How a model predicts is its own
//! [`Law`].

use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};

use dp_pvi_models::prediction::{Example, Prediction, Reconstructed, Scores};
use dp_pvi_models::prediction::{Law, Outcome};
use dp_pvi_posterior::task::{ModelSpec, ResolvedTask};

/// Predicts from a posterior.
#[derive(Debug, Clone)]
pub struct Predictor {
    posterior: Arc<Gaussian>,
    law: Arc<dyn Law>,
}

impl Predictor {
    /// From natural parameters.
    ///
    /// # Errors
    /// They are not the parameters of a distribution of `family`, or not as many as the model has.
    pub fn new(model: &ModelSpec, family: Family, natural: &[f64]) -> Result<Self, InvalidParameters> {
        Self::with_noise(model, family, natural, None)
    }

    /// The same with the standard deviation of an observation's noise, where a run learned it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_noise(model: &ModelSpec, family: Family, natural: &[f64], noise_sd: Option<f64>) -> Result<Self, InvalidParameters> {
        Self::of(model, family, natural, None, noise_sd)
    }

    /// From a state of a run of `task`.
    ///
    /// # Errors
    /// Its head is not a distribution of the task's family.
    pub fn of_state(task: &ResolvedTask, state: &[f64]) -> Result<Self, InvalidParameters> {
        let noise_sd = task.learned_noise(state);
        Self::of(&task.model, task.family(), task.posterior(state), Some(state), noise_sd)
    }

    fn of(
        model: &ModelSpec,
        family: Family,
        natural: &[f64],
        state: Option<&[f64]>,
        noise_sd: Option<f64>,
    ) -> Result<Self, InvalidParameters> {
        let posterior = Arc::new(Gaussian::from_natural(family, natural.to_vec())?);
        let law = model.rules().law(&Outcome { posterior: Arc::clone(&posterior), state, noise_sd })?;
        Ok(Self { posterior, law })
    }

    /// The same posterior with another law: for tests of what is made of predictions.
    #[cfg(test)]
    pub(crate) fn with_law(self, law: impl Law + 'static) -> Self {
        Self { law: Arc::new(law), ..self }
    }

    /// Number of features of a row.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.law.dimension()
    }

    /// The posterior.
    #[must_use]
    pub fn posterior(&self) -> &Standard {
        self.posterior.standard()
    }

    /// The prediction for a row; its target is not looked at. Positions must be below d.
    #[must_use]
    pub fn predict(&self, row: Example<'_>) -> Prediction {
        self.law.predict(row)
    }

    /// What an image's hidden units say about its pixels; only of models of images.
    #[must_use]
    pub fn reconstruct(&self, row: Example<'_>) -> Option<Reconstructed> {
        self.law.reconstruct(row)
    }

    /// ln p(target | row, released data).
    #[must_use]
    pub fn log_density(&self, row: Example<'_>) -> f64 {
        self.law.log_density(row)
    }

    /// By what else the prediction for a row is judged.
    #[must_use]
    pub fn scores(&self, row: Example<'_>) -> Scores {
        self.law.scores(row)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_math::expfam::any::Family;
    use dp_pvi_math::expfam::gaussian::full::svec;
    use nalgebra::DMatrix;

    use super::{Example, Prediction, Predictor};
    use dp_pvi_models::linear_regression::LinearRegression;
    use dp_pvi_models::logistic_regression::LogisticRegression;
    use dp_pvi_models::prediction::Level;

    #[test]
    fn linear_predictions_add_parameter_and_observation_variance() {
        // Λ = diag(4, 1), μ = (0.5, −1), noise sd 0.3; x = (2, 0, …) sparse.
        let family = Family::DiagonalGaussian { dimension: 2 };
        let predictor = Predictor::new(&LinearRegression { noise_sd: 0.3 }.into(), family, &[2.0, -1.0, 4.0, 1.0]).unwrap();
        let row = Example { indices: &[0], values: &[2.0], target: 1.5, offset: 0.0, extra: Default::default() };
        let Prediction::Number { mean, variance } = predictor.predict(row) else { panic!("a number") };
        assert!((mean - 1.0).abs() < 1e-15 && (variance - 1.09).abs() < 1e-15);
        let expected = -0.5 * ((2.0 * std::f64::consts::PI * 1.09).ln() + 0.25 / 1.09);
        assert!((predictor.log_density(row) - expected).abs() < 1e-15);
        let interval = predictor.predict(row).interval(Level::P95);
        assert!((interval.upper - 1.0 - 1.959_963_984_540_054 * 1.09_f64.sqrt()).abs() < 1e-12);
        // A run that learned the noise predicts with that.
        let learned = Predictor::with_noise(&LinearRegression { noise_sd: 0.3 }.into(), family, &[2.0, -1.0, 4.0, 1.0], Some(0.6)).unwrap();
        let Prediction::Number { variance, .. } = learned.predict(row) else { panic!("a number") };
        assert!((variance - 1.36).abs() < 1e-15);
    }

    #[test]
    fn both_classes_have_probabilities_that_sum_to_one() {
        let family = Family::FullGaussian { dimension: 2 };
        let precision = DMatrix::from_row_slice(2, 2, &[2.0, 0.5, 0.5, 1.0]);
        let mut natural = vec![0.3, -0.8];
        natural.extend(svec(&precision));
        let predictor = Predictor::new(&LogisticRegression {}.into(), family, &natural).unwrap();
        let row = |target| Example { indices: &[0, 1], values: &[1.0, -2.0], target, offset: 0.0, extra: Default::default() };
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
