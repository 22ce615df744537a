//! The posterior predictive distribution of a new row: parameter uncertainty and observation noise together.
//!
//! A logistic prediction is exact by quadrature.

use dp_pvi_expfam::InvalidParameters;
use dp_pvi_expfam::any::Standard;
use dp_pvi_expfam::any::{Family, Gaussian};

use crate::methods::VipsRule;
use crate::methods::network_posterior;
use crate::models::gaussian_mixture::{Components, Density, MixtureShape};
use crate::models::latent_dirichlet::Topics;
use crate::models::latent_dirichlet::document::{Document, DocumentLength, Sweeps};
use crate::models::neural_network::NetworkPredictor;
use crate::models::pbp_network;
use crate::models::poisson_regression::count;
pub use crate::models::prediction::{Example, Prediction};
use crate::models::sigmoid_belief::hidden::{Batch, Prepared};
use crate::numerics::normal;
use crate::numerics::quadrature::{log_sigmoid_expectation, sigmoid_moments};
use crate::task::{ModelSpec, ResolvedTask};

/// Samples of a network's hidden layers behind a prediction.
const NETWORK_SAMPLES: usize = 100;

/// Predicts from a posterior.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictor {
    model: ModelSpec,
    posterior: Gaussian,
    law: Law,
}

/// How a row predicts.
#[derive(Debug, Clone, PartialEq)]
enum Law {
    /// y ~ N(xᵀθ, noise_sd²).
    Normal { noise_sd: f64 },
    /// P(y = 1) = σ(xᵀθ).
    Logit,
    /// A network, over samples of its hidden layers.
    Network(Box<NetworkPredictor>),
    /// P(y = 1) = Φ(xᵀθ).
    Probit,
    /// y ~ Poisson(exp(xᵀθ)).
    Count,
    /// A mixture: the row itself is what has a density.
    Mixture(Box<Density>),
    /// Topics: a document is what has a density.
    Topics(Box<Topics>),
    /// A sigmoid belief network: an image is what has a density.
    Images(Box<Prepared<'static>>),
    /// A network, by moments.
    Moments(Box<pbp_network::Network>, Box<pbp_network::Posterior>),
}

impl Predictor {
    /// From natural parameters.
    ///
    /// # Errors
    /// They are not the parameters of a distribution of `family`, or not as many as the model has.
    pub fn new(model: ModelSpec, family: Family, natural: &[f64]) -> Result<Self, InvalidParameters> {
        let posterior = Gaussian::from_natural(family, natural.to_vec())?;
        let law = match &model {
            ModelSpec::LinearRegression { noise_sd } => Law::Normal { noise_sd: *noise_sd },
            ModelSpec::LogisticRegression {} => Law::Logit,
            ModelSpec::NeuralNetwork(spec) => {
                let network =
                    spec.network_of(family.dimension()).map_err(|_| InvalidParameters::Domain("not the weights of this network"))?;
                let standard = posterior.standard();
                Law::Network(Box::new(NetworkPredictor::new(network, standard.mean(), &standard.variances(), NETWORK_SAMPLES)?))
            }
            ModelSpec::ProbitRegression {} => Law::Probit,
            ModelSpec::PoissonRegression {} => Law::Count,
            ModelSpec::GaussianMixture { components, noise_sd, .. } => {
                let shape = MixtureShape::of_family(*components as usize, family);
                let blocks: Vec<f64> = shape.positions().iter().map(|&position| natural[position]).collect();
                Law::Mixture(Box::new(Density::predictive(&Components::from_natural(shape, &blocks)?, noise_sd * noise_sd)?))
            }
            ModelSpec::LatentDirichlet(_) => {
                return Err(InvalidParameters::Domain("a topic model predicts from the whole state of its run"));
            }
            ModelSpec::SigmoidBelief(spec) => {
                let network = spec.network(natural).ok_or(InvalidParameters::Domain("not the weights of this network"))?;
                Law::Images(Box::new(Prepared::owned(network)))
            }
            ModelSpec::PbpNetwork { hidden, .. } => {
                let network = pbp_network::Network::of_weights(family.dimension() - 1, hidden)?;
                let posterior = network_posterior(&network, posterior.standard());
                Law::Moments(Box::new(network), Box::new(posterior))
            }
        };
        Ok(Self { model, posterior, law })
    }

    /// From a state of a run of `task`.
    ///
    /// # Errors
    /// Its head is not a distribution of the task's family.
    pub fn of_state(task: &ResolvedTask, state: &[f64]) -> Result<Self, InvalidParameters> {
        if matches!(task.model, ModelSpec::LatentDirichlet(_)) {
            let topics = VipsRule::topics(&task.setting(), state).map_err(|_| InvalidParameters::Domain("the state holds no topics"))?;
            let posterior = Gaussian::from_natural(task.family(), task.posterior(state).to_vec())?;
            return Ok(Self { model: task.model.clone(), posterior, law: Law::Topics(Box::new(topics)) });
        }
        let model = match (&task.model, task.update.rules().learned_noise(state)) {
            // Learned with the coefficients.
            (ModelSpec::LinearRegression { .. }, Some(noise_sd)) => ModelSpec::LinearRegression { noise_sd },
            (model, _) => model.clone(),
        };
        Self::new(model, task.family(), task.posterior(state))
    }

    /// Number of features of a row.
    #[must_use]
    pub fn dimension(&self) -> usize {
        match &self.law {
            Law::Normal { .. } | Law::Logit | Law::Probit | Law::Count => self.posterior.family().dimension(),
            Law::Mixture(density) => density.dimension(),
            Law::Topics(topics) => topics.shape().words(),
            Law::Images(prepared) => prepared.shape().visible(),
            Law::Moments(network, _) => network.inputs(),
            Law::Network(network) => network.network().features(),
        }
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
        let projected = || self.posterior.standard().project(row.indices, row.values);
        match &self.law {
            Law::Normal { noise_sd } => {
                let (mean, variance) = projected();
                Prediction::Number { mean, variance: variance + noise_sd * noise_sd }
            }
            Law::Logit => {
                let (mean, variance) = projected();
                Prediction::Class { probability: sigmoid_moments(mean, variance).sigmoid, logit_mean: mean, logit_sd: variance.sqrt() }
            }
            Law::Network(network) => network.predict(row).into(),
            Law::Probit => {
                let (mean, variance) = projected();
                Prediction::Probit { probability: normal::cdf(mean / (1.0 + variance).sqrt()), mean, sd: variance.sqrt() }
            }
            Law::Count => {
                let (mean, variance) = projected();
                let rate = (mean + 0.5 * variance).exp();
                // Of the count: that of its rate, and Poisson's own.
                Prediction::Number { mean: rate, variance: rate + rate * rate * variance.exp_m1() }
            }
            Law::Mixture(density) => {
                let responsibilities = density.score(&dense(row, density.dimension())).1;
                let best = responsibilities.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
                let (component, probability) = best.unwrap_or((0, 0.0));
                Prediction::Component { component, probability }
            }
            Law::Topics(topics) => {
                // The topic that most of the document's words are from, and its share of them.
                let shares = document(topics, row).map(|document| document.shares()).unwrap_or_default();
                let best = shares.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
                let (component, probability) = best.unwrap_or((0, 0.0));
                Prediction::Component { component, probability }
            }
            Law::Images(prepared) => {
                // The hidden unit that is on most surely.
                let batch = image(prepared, row);
                let best = batch.hidden(0).iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
                let (component, probability) = best.unwrap_or((0, 0.0));
                Prediction::Component { component, probability }
            }
            Law::Moments(network, posterior) => {
                let (mean, variance) = pbp_network::predictive::NetworkPredictor::new(network, posterior).predict(entries(row));
                Prediction::Number { mean, variance }
            }
        }
    }

    /// What an image's hidden units say about its pixels; only of models of images.
    #[must_use]
    pub fn reconstruct(&self, row: Example<'_>) -> Option<Reconstructed> {
        let Law::Images(prepared) = &self.law else { return None };
        let batch = image(prepared, row);
        Some(Reconstructed { log_density: prepared.batch_bound(&batch), accuracy: prepared.reconstruction(&batch).accuracy })
    }

    /// ln p(target | row, released data).
    #[must_use]
    pub fn log_density(&self, row: Example<'_>) -> f64 {
        let projected = || self.posterior.standard().project(row.indices, row.values);
        match &self.law {
            Law::Normal { noise_sd } => {
                let (mean, variance) = projected();
                let total = variance + noise_sd * noise_sd;
                -0.5 * ((2.0 * std::f64::consts::PI * total).ln() + (row.target - mean).powi(2) / total)
            }
            Law::Logit => {
                let (mean, variance) = projected();
                log_sigmoid_expectation(if row.target > 0.5 { mean } else { -mean }, variance)
            }
            Law::Network(network) => network.log_density(row),
            Law::Probit => {
                let (mean, variance) = projected();
                let sign = if row.target > 0.5 { 1.0 } else { -1.0 };
                normal::log_cdf(sign * mean / (1.0 + variance).sqrt()).value
            }
            Law::Count => {
                let (mean, variance) = projected();
                count::log_mass(row.target, mean, variance)
            }
            Law::Mixture(density) => density.score(&dense(row, density.dimension())).0,
            Law::Topics(topics) => document(topics, row).map_or(0.0, |document| document.bound(topics, row.indices).0),
            Law::Images(prepared) => prepared.batch_bound(&image(prepared, row)),
            Law::Moments(network, posterior) => {
                pbp_network::predictive::NetworkPredictor::new(network, posterior).log_density(entries(row), row.target)
            }
        }
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

/// Sweeps behind an image's prediction.
const IMAGE_SWEEPS: u32 = 10;

/// The E-step of an image.
fn image(prepared: &Prepared<'_>, row: Example<'_>) -> Batch {
    prepared.fit_one(dense(row, prepared.shape().visible()), IMAGE_SWEEPS)
}

/// Sweeps behind a document's prediction.
const SWEEPS: u32 = 100;

/// The E-step of a document; none without words.
fn document(topics: &Topics, row: Example<'_>) -> Option<Document> {
    let mut document = Document::default();
    document.fit(topics, DocumentLength::AsIs, row.indices, row.values, Sweeps::Exactly(SWEEPS)).then_some(document)
}

/// Pairs (position, value) of a row.
fn entries<'a>(row: Example<'a>) -> impl Iterator<Item = (usize, f64)> + 'a {
    row.indices.iter().zip(row.values).map(|(&i, &x)| (i as usize, x))
}

/// A row with its zeros.
fn dense(row: Example<'_>, dimension: usize) -> Vec<f64> {
    let mut x = vec![0.0; dimension];
    entries(row).for_each(|(i, value)| x[i] = value);
    x
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_expfam::any::Family;
    use dp_pvi_expfam::gaussian::full::svec;
    use nalgebra::DMatrix;

    use super::{Example, Prediction, Predictor};
    use crate::reading::summary::Level;
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
