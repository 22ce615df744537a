use super::noise::{log_normalisers, matched_gamma, slopes};
use super::{Activations, Network, Posterior, PriorFactors, Site, refine_site};

fn network() -> Network {
    Network::new(2, &[3, 2]).unwrap()
}

fn posterior(network: &Network) -> Posterior {
    let mut mean = network.initial_means(3);
    mean[4] = 0.7;
    let variance = (0..network.weights()).map(|i| 0.05 + 0.02 * f64::from(u32::try_from(i % 5).unwrap())).collect();
    Posterior { mean, variance, shape: 6.0, rate: 4.0 }
}

#[test]
fn shapes_count_weights_with_biases() {
    let network = network();
    assert_eq!(network.weights(), 3 * 3 + 2 * 4 + 3);
    assert_eq!((network.len(), network.inputs()), (42, 2));
    assert!(Network::new(0, &[3]).is_err() && Network::new(3, &[]).is_err() && Network::new(3, &[2, 0]).is_err());
    assert!(Network::new(1 << 20, &[1 << 20]).is_err() && Network::new(usize::MAX, &[2]).is_err());
}

#[test]
fn natural_parameters_round_trip_and_invalid_ones_are_refused() {
    let network = network();
    let q = posterior(&network);
    let natural = q.natural();
    let back = Posterior::from_natural(&network, &natural).unwrap();
    assert!(q.mean.iter().zip(&back.mean).all(|(a, b)| (a - b).abs() < 1e-14));
    assert!((back.shape - 6.0).abs() < 1e-14 && (back.rate - 4.0).abs() < 1e-14);
    for (position, value) in [(network.weights(), -1.0), (0, f64::NAN), (2 * network.weights(), -0.5), (2 * network.weights() + 1, 1.0)] {
        let mut wrong = natural.clone();
        wrong[position] = value;
        assert!(Posterior::from_natural(&network, &wrong).is_err());
    }
    assert!(Posterior::from_natural(&network, &natural[1..]).is_err());
}

#[test]
fn initial_means_are_public_normal_and_of_the_stated_scale() {
    let wide = Network::new(99, &[200]).unwrap();
    let means = wide.initial_means(11);
    assert_eq!(means, wide.initial_means(11));
    assert!(means != wide.initial_means(12));
    let first = &means[..200 * 100];
    let moment = |k: i32| first.iter().map(|m| (m * 10.0).powi(k)).sum::<f64>() / 20_000.0;
    assert!(moment(1).abs() < 0.03 && (moment(2) - 1.0).abs() < 0.04 && (moment(4) - 3.0).abs() < 0.3);
}

/// Weights of no variance make an ordinary network.
#[test]
fn certain_weights_give_the_ordinary_forward_pass() {
    let network = network();
    let mut q = posterior(&network);
    q.variance.fill(1e-300);
    let x = [0.4, -1.3];
    let mut z = x.to_vec();
    for (l, layer) in network.layers().iter().enumerate() {
        z.push(1.0);
        let rows = q.mean[layer.weights()].chunks_exact(layer.width());
        z = rows.map(|row| row.iter().zip(&z).map(|(w, z)| w * z).sum::<f64>() * layer.scale().sqrt()).collect();
        if l < 2 {
            z.iter_mut().for_each(|a| *a = a.max(0.0));
        }
    }
    let mut activations = Activations::new(&network);
    activations.set_input(x.iter().copied().enumerate());
    activations.forward(&network, &q.mean, &q.variance);
    let [mean, variance] = activations.output();
    assert!((mean - z[0]).abs() < 1e-14 && (0.0..1e-200).contains(&variance), "{mean} {variance} {z:?}");
}

/// Moments of one rectified unit by quadrature.
#[test]
fn rectified_moments_equal_quadrature_and_their_slopes_finite_differences() {
    let network = Network::new(1, &[1]).unwrap();
    let mut activations = Activations::new(&network);
    // Mean and variance of the unit's sum for input 1: √½(w + b) and ½(v + v).
    let moments = |activations: &mut Activations, mean: f64, variance: f64| {
        let root = 0.5_f64.sqrt();
        activations.set_input([(0, 1.0)].into_iter());
        activations.forward(&network, &[mean / root, 0.0, 0.0, 0.0], &[variance, variance, 1.0, 1.0]);
        (activations.input_means(1)[0], activations.input_variances(1)[0], activations.slopes()[0])
    };
    for (mean, variance) in [(0.3, 0.5), (-1.0, 0.2), (2.0, 0.1), (0.0, 1.0), (-4.0, 0.3)] {
        let (m, v, slopes) = moments(&mut activations, mean, variance);
        let sd = f64::sqrt(variance);
        let step = 1e-4;
        let (mut first, mut second) = (0.0, 0.0);
        for k in 0..200_000_u32 {
            let a = (f64::from(k) + 0.5) * step;
            let weight = (-0.5 * ((a - mean) / sd).powi(2)).exp() / (sd * std::f64::consts::TAU.sqrt()) * step;
            first += weight * a;
            second += weight * a * a;
        }
        assert!((m - first).abs() < 1e-9 && (v - (second - first * first)).abs() < 1e-9, "{mean}: {m} {v}");
        let h = 1e-6;
        let up = moments(&mut activations, mean + h, variance);
        let down = moments(&mut activations, mean - h, variance);
        assert!(((up.0 - down.0) / (2.0 * h) - slopes.mean_by_mean).abs() < 1e-8);
        assert!(((up.1 - down.1) / (2.0 * h) - slopes.variance_by_mean).abs() < 1e-8);
        let up = moments(&mut activations, mean, variance + h);
        let down = moments(&mut activations, mean, variance - h);
        assert!(((up.0 - down.0) / (2.0 * h) - slopes.mean_by_variance).abs() < 1e-8);
        assert!(((up.1 - down.1) / (2.0 * h) - slopes.variance_by_variance).abs() < 1e-8);
    }
    // Far from 0 on either side nothing is negative or undefined.
    for mean in [-1e3, -40.0, -31.0, -29.0, 40.0, 1e3] {
        let (m, v, _) = moments(&mut activations, mean, 0.9);
        assert!(m >= 0.0 && v >= 0.0 && m.is_finite() && v.is_finite());
        assert!(mean < 0.0 || ((m - mean).abs() < 1e-9 && (v - 0.9).abs() < 1e-9));
    }
}

#[test]
fn the_gamma_update_keeps_shape_and_rate_of_an_exact_observation() {
    // With no variance in the output the tilted Gamma's moments are known: log Z ratios of a Student density. Certain targets raise E γ.
    let log_z = log_normalisers(0.2, [0.2, 1e-12], 6.0, 6.0);
    let (shape, rate) = matched_gamma(log_z, 6.0, 6.0).unwrap();
    assert!(shape / rate > 1.0);
    let far = matched_gamma(log_normalisers(9.0, [0.2, 1e-12], 6.0, 6.0), 6.0, 6.0).unwrap();
    assert!(far.0 / far.1 < 1.0);
    let h = 1e-6;
    let z = |m: f64, v: f64| log_normalisers(0.9, [m, v], 6.0, 6.0)[0];
    let [by_mean, by_variance] = slopes(0.9, [0.1, 0.3], 6.0, 6.0);
    assert!(((z(0.1 + h, 0.3) - z(0.1 - h, 0.3)) / (2.0 * h) - by_mean).abs() < 1e-8);
    assert!(((z(0.1, 0.3 + h) - z(0.1, 0.3 - h)) / (2.0 * h) - by_variance).abs() < 1e-8);
}

#[test]
fn refinement_keeps_the_product_of_factors_and_skips_what_has_no_cavity() {
    let network = network();
    let mut prior = PriorFactors::new(&network);
    let start = prior.natural((6.0, 6.0));
    // Likelihood factors of a posterior that is tighter than the prior.
    let mut lambda: Vec<f64> = start.iter().enumerate().map(|(i, p)| if i < network.weights() { 2.0 } else { p + 3.0 }).collect();
    let likelihood: Vec<f64> = lambda.iter().zip(&start).map(|(l, p)| l - p).collect();
    assert_eq!(prior.refine(&mut lambda), 0);
    let after = prior.natural((6.0, 6.0));
    for i in 0..2 * network.weights() {
        assert!((lambda[i] - after[i] - likelihood[i]).abs() < 1e-12);
    }
    // Means of 0.5 in size: the hyperposterior follows the weights, and the shape grows by up to a half a weight.
    let (shape, rate) = prior.hyperposterior();
    assert!(shape > 6.0 && rate > 0.0 && shape < 6.0 + 0.5 * 20.0 + 1e-9);
    // A weight without any likelihood has no cavity.
    assert!(refine_site(0.0, 1.2, 6.0, 6.0, Site { precision: 1.0 / 1.2, ..Site::default() }).is_none());
    assert!(refine_site(0.0, 1.0, 6.0, 6.0, Site { shape: 5.5, ..Site::default() }).is_none());
}
