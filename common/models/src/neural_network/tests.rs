#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use super::{Network, NetworkPrediction, NetworkPredictor, Output, public_normals};
use crate::prediction::{Example, Level};

const INDICES: [u32; 3] = [0, 2, 3];
const VALUES: [f64; 3] = [1.0, -0.5, 1.0];

fn row(target: f64) -> Example<'static> {
    Example { indices: &INDICES, values: &VALUES, target, offset: 0.0, extra: Default::default() }
}

/// A posterior over the weights of a network.
fn posterior(network: &Network) -> (Vec<f64>, Vec<f64>) {
    let mean = public_normals(11, network.dimension()).iter().map(|x| 0.8 * x).collect();
    let variance = public_normals(12, network.dimension()).iter().map(|x| 0.05 + 0.2 * x * x).collect();
    (mean, variance)
}

#[test]
fn parameters_are_laid_out_layer_by_layer() {
    let network = Network::new(105, &[50], Output::Binary).unwrap();
    assert_eq!(network.dimension(), 105 * 50 + 51);
    assert_eq!((network.features(), network.draws(), network.samples(7)), (105, 50, 7));
    let network = Network::new(4, &[3, 2], Output::Classes { count: 5 }).unwrap();
    let shapes: Vec<_> = network.layers().iter().map(|l| (l.inputs, l.outputs, l.offset)).collect();
    assert_eq!(shapes, [(4, 3, 0), (4, 2, 12), (3, 5, 20)]);
    assert_eq!((network.dimension(), network.draws()), (35, 10));
    assert_eq!(Network::new(4, &[], Output::Binary).unwrap().samples(9), 1);
    for (features, hidden, output) in [
        (0, vec![2], Output::Binary),
        (3, vec![2, 0], Output::Binary),
        (3, vec![], Output::Classes { count: 0 }),
        (1 << 30, vec![2], Output::Binary),
    ] {
        assert!(Network::new(features, &hidden, output).is_err());
    }
}

#[test]
fn a_start_is_random_and_the_same_for_everybody() {
    let network = Network::new(40, &[30], Output::Binary).unwrap();
    let mean = network.initial_mean();
    assert_eq!(mean, network.initial_mean());
    let square: f64 = mean[..1200].iter().map(|w| w * w).sum::<f64>() / 1200.0;
    assert!((square * 40.0 - 1.0).abs() < 0.2, "{square}");
    assert!(mean[1230] == 0.0 && mean[..1230].iter().all(|w| *w != 0.0), "only the bias is 0");
    assert!(Network::new(4, &[], Output::Binary).unwrap().initial_mean().iter().all(|w| *w == 0.0));
}

/// Without hidden layers a network is a generalised linear model, whose predictions are exact.
/// The same distribution as drawing weights, which is the definition of the predictive distribution: 40,000 draws of all weights
/// against 20,000 samples of the hidden layers, within 4 standard errors of the former.
#[test]
fn local_samples_predict_what_drawn_weights_predict() {
    const DRAWS: usize = 40_000;
    for hidden in [vec![6], vec![5, 4]] {
        for output in [Output::Binary, Output::Number { noise_sd: 0.5 }, Output::Classes { count: 3 }] {
            let network = Network::new(4, &hidden, output).unwrap();
            let (mean, variance) = posterior(&network);
            let d = network.dimension();
            let mut sums = vec![(0.0, 0.0); output.len()];
            let noise = public_normals(13, DRAWS * d);
            for u in noise.chunks_exact(d) {
                let theta: Vec<f64> = mean.iter().zip(&variance).zip(u).map(|((m, v), u)| m + v.sqrt() * u).collect();
                let mut input = vec![0.0; 4];
                INDICES.iter().zip(VALUES).for_each(|(&k, x)| input[k as usize] = x);
                for (number, layer) in network.layers().iter().enumerate() {
                    if number > 0 {
                        input.iter_mut().for_each(|a| *a = a.max(0.0));
                        input.push(1.0);
                    }
                    let weights = layer.of(&theta);
                    input =
                        (0..layer.outputs).map(|j| (0..layer.inputs).map(|k| weights[k * layer.outputs + j] * input[k]).sum()).collect();
                }
                let total: f64 = input.iter().map(|z| z.exp()).sum();
                for (sum, z) in sums.iter_mut().zip(&input) {
                    let value = match output {
                        Output::Binary => 1.0 / (1.0 + (-z).exp()),
                        Output::Number { .. } => (-0.5 * (1.0 - z) * (1.0 - z) / 0.25).exp() / (std::f64::consts::TAU * 0.25).sqrt(),
                        Output::Classes { .. } => z.exp() / total,
                    };
                    *sum = (sum.0 + value, sum.1 + value * value);
                }
            }
            let predictor = NetworkPredictor::new(network, &mean, &variance, 20_000).unwrap();
            for (class, (sum, squares)) in sums.into_iter().enumerate() {
                let n = DRAWS as f64;
                let (expected, error) = (sum / n, ((squares / n - (sum / n).powi(2)) / n).sqrt());
                let target = if output == Output::Binary || output.len() == 1 { 1.0 } else { class as f64 };
                let found = predictor.log_density(row(target)).exp();
                assert!(
                    (found - expected).abs() < 4.0 * error * 1.5f64.sqrt(),
                    "{hidden:?} {output:?}: {found} instead of {expected} ± {error}"
                );
            }
        }
    }
}

#[test]
fn predictions_are_distributions() {
    let network = Network::new(4, &[6], Output::Classes { count: 3 }).unwrap();
    let (mean, variance) = posterior(&network);
    let predictor = NetworkPredictor::new(network, &mean, &variance, 50).unwrap();
    let NetworkPrediction::Classes { probabilities } = predictor.predict(row(0.0)) else { panic!("classes") };
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-14);
    assert!(predictor.log_density(row(3.0)).is_nan() && predictor.log_density(row(0.5)).is_nan());
    assert!((predictor.log_density(row(2.0)) - probabilities[2].ln()).abs() < 1e-14);

    let network = Network::new(4, &[6], Output::Binary).unwrap();
    let (mean, variance) = posterior(&network);
    let predictor = NetworkPredictor::new(network.clone(), &mean, &variance, 50).unwrap();
    assert!((predictor.log_density(row(1.0)).exp() + predictor.log_density(row(0.0)).exp() - 1.0).abs() < 1e-12);
    let prediction = predictor.predict(row(0.0));
    let NetworkPrediction::Binary { probability, logit } = &prediction else { panic!("binary") };
    let (wide, narrow) = (prediction.interval(Level::P95).unwrap(), prediction.interval(Level::P90).unwrap());
    assert!(wide.lower < narrow.lower && narrow.lower < *probability && *probability < narrow.upper && narrow.upper < wide.upper);
    let interval = logit.interval(Level::P90);
    assert!((logit.distribution(interval.upper) - 0.95).abs() < 1e-9 && (logit.distribution(interval.lower) - 0.05).abs() < 1e-9);
    for (mean, variance) in [(&mean[1..], &variance[..]), (&mean[..], &variance[1..]), (&vec![f64::NAN; mean.len()][..], &variance[..])] {
        assert!(NetworkPredictor::new(network.clone(), mean, variance, 50).is_err());
    }
    // No uncertainty about the weights: one point, whatever the samples.
    let certain = NetworkPredictor::new(network, &mean, &vec![0.0; variance.len()], 7).unwrap();
    let NetworkPrediction::Binary { logit, .. } = certain.predict(row(0.0)) else { panic!("binary") };
    assert!(logit.variance() < 1e-28);
}
