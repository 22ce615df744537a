//! Predictions by networks without hidden layers against those of linear models.
#![allow(clippy::unwrap_used)]

use dp_pvi_math::expfam::any::Family;

use super::predictive::Predictor;
use dp_pvi_models::neural_network::{Network, NetworkPrediction, NetworkPredictor, Output, public_normals};
use dp_pvi_models::prediction::{Example, Level, Prediction};
use dp_pvi_models::{linear_regression, logistic_regression};
use dp_pvi_posterior::task::ModelSpec;

fn row(target: f64) -> Example<'static> {
    Example { indices: &[0, 2, 3], values: &[1.0, -0.5, 1.0], target, offset: 0.0, extra: Default::default() }
}

/// A posterior over the weights of a network.
fn posterior(network: &Network) -> (Vec<f64>, Vec<f64>) {
    let mean = public_normals(11, network.dimension()).iter().map(|x| 0.8 * x).collect();
    let variance = public_normals(12, network.dimension()).iter().map(|x| 0.05 + 0.2 * x * x).collect();
    (mean, variance)
}

#[test]
fn without_hidden_layers_predictions_are_those_of_linear_models() {
    for (output, model) in [
        (Output::Number { noise_sd: 0.3 }, ModelSpec::from(linear_regression::LinearRegression { noise_sd: 0.3 })),
        (Output::Binary, ModelSpec::from(logistic_regression::LogisticRegression {})),
    ] {
        let network = Network::new(4, &[], output).unwrap();
        let (mean, variance) = posterior(&network);
        let natural: Vec<f64> = mean.iter().zip(&variance).map(|(m, v)| m / v).chain(variance.iter().map(|v| 1.0 / v)).collect();
        let linear = Predictor::new(&model, Family::DiagonalGaussian { dimension: 4 }, &natural).unwrap();
        let network = NetworkPredictor::new(network, &mean, &variance, 100).unwrap();
        for target in [0.0, 1.0] {
            assert!((network.log_density(row(target)) - linear.log_density(row(target))).abs() < 1e-12);
        }
        match (network.predict(row(0.0)), linear.predict(row(0.0))) {
            (NetworkPrediction::Number(found), Prediction::Number { mean, variance }) => {
                assert!((found.mean() - mean).abs() < 1e-14 && (found.variance() - variance).abs() < 1e-14);
            }
            (NetworkPrediction::Binary { probability: found, .. }, Prediction::Class { probability, .. }) => {
                assert!((found - probability).abs() < 1e-14);
            }
            other => panic!("{other:?}"),
        }
        let (found, expected) = (network.predict(row(0.0)).interval(Level::P90).unwrap(), linear.predict(row(0.0)).interval(Level::P90));
        assert!((found.lower - expected.lower).abs() < 1e-10 && (found.upper - expected.upper).abs() < 1e-10);
    }
}

#[test]
fn a_run_without_protection_says_so() {
    assert!(dp_pvi_posterior::task::UpdateSpec::Pvi {}.to_string().contains("without privacy protection"));
}
