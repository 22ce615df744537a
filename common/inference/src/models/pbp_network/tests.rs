use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_models::pbp_network::noise::log_normalisers;
use dp_pvi_models::pbp_network::predictive::NetworkPredictor;
use dp_pvi_models::pbp_network::{Activations, Network, Posterior, PriorFactors};

use rand_core::Rng;

use super::baseline::{Fit, Objective, fit};
use super::{NetworkSites, PbpNetwork};
use crate::capabilities::tilted::{Scratch, Sites};
use crate::methods::propagation::{Adf, Factors, Shared};
use crate::testing::{rows, table};
use dp_pvi_records::{RecordTable, RecordView};

fn deep() -> (Network, Posterior) {
    let network = Network::new(3, &[4, 3]).unwrap();
    let variance = (0..network.weights()).map(|i| 0.02 + 0.05 * ((i * 7 % 11) as f64)).collect();
    let posterior = Posterior { mean: network.initial_means(5), variance, shape: 7.0, rate: 3.0 };
    (network, posterior)
}

fn log_z(network: &Network, q: &Posterior, record: RecordView<'_>) -> f64 {
    let mut activations = Activations::new(network);
    activations.set_input(record.entries());
    activations.forward(network, &q.mean, &q.variance);
    log_normalisers(record.target, activations.output(), q.shape, q.rate)[0]
}

const RECORD: RecordView<'static> =
    RecordView { indices: &[0, 1, 2], values: &[0.6, -1.1, 0.3], target: 0.8, offset: 0.0, extra: dp_pvi_schema::public::Extra::NONE };

#[test]
fn gradients_equal_finite_differences_through_two_hidden_layers() {
    let (network, q) = deep();
    let sites = NetworkSites::at(network.clone(), &q.natural()).unwrap();
    let (by_mean, by_variance) = sites.gradients(RECORD);
    let h = 1e-6;
    for i in 0..network.weights() {
        let moved = |dm: f64, dv: f64| {
            let mut q = q.clone();
            q.mean[i] += dm;
            q.variance[i] += dv;
            log_z(&network, &q, RECORD)
        };
        assert!(((moved(h, 0.0) - moved(-h, 0.0)) / (2.0 * h) - by_mean[i]).abs() < 1e-8, "weight {i}");
        assert!(((moved(0.0, h) - moved(0.0, -h)) / (2.0 * h) - by_variance[i]).abs() < 1e-8, "weight {i}");
    }
}

#[test]
fn sites_turn_the_cavity_into_the_matched_moments() {
    let (network, q) = deep();
    let natural = q.natural();
    let sites = NetworkSites::at(network.clone(), &natural).unwrap();
    let (g, gv) = sites.gradients(RECORD);
    let mut site = vec![0.0; network.len()];
    assert!(sites.site(RECORD, &mut Scratch::default(), &mut site));
    let new: Vec<f64> = natural.iter().zip(&site).map(|(c, s)| c + s).collect();
    let new = Posterior::from_natural(&network, &new).unwrap();
    for i in 0..network.weights() {
        let (m, v) = (q.mean[i], q.variance[i]);
        assert!((new.mean[i] - (m + v * g[i])).abs() < 1e-12);
        assert!((new.variance[i] - (v - v * v * (g[i] * g[i] - 2.0 * gv[i]))).abs() < 1e-12);
    }
    assert!(new.shape > q.shape);
}

/// What a record cannot move keeps its factor; a record that is not finite has no site.
#[test]
fn weights_that_cannot_move_keep_their_factor() {
    let (network, mut q) = deep();
    // So wide that v² B exceeds v for an outlier.
    q.variance.fill(1e3);
    let sites = NetworkSites::at(network.clone(), &q.natural()).unwrap();
    let outlier = RecordView { target: 1e4, ..RECORD };
    let mut site = vec![0.125; network.len()];
    let mut scratch = Scratch::default();
    let _ = sites.site(outlier, &mut scratch, &mut site);
    assert!(site.iter().all(|s| s.is_finite()));
    let lambda: Vec<f64> = q.natural().iter().zip(&site).map(|(c, s)| c + s).collect();
    // Kept factors are the ones that were there; all others leave a positive variance.
    for i in 0..network.weights() {
        let kept = (site[i] - 0.125).abs() < 1e-15;
        assert!(kept || lambda[network.weights() + i] > 0.0);
    }
    for target in [f64::NAN, f64::INFINITY, 1e300] {
        let mut site = vec![0.125; network.len()];
        let _ = sites.site(RecordView { target, ..RECORD }, &mut scratch, &mut site);
        assert!(site.iter().all(|s| s.is_finite()), "{target}");
    }
}

/// The cubic toy: 20 points of y = x³ with noise.
fn cubic() -> RecordTable {
    let noise = Network::new(19, &[1]).unwrap().initial_means(77);
    let x: Vec<f64> = (0..20).map(|i| -4.0 + 8.0 * f64::from(i) / 19.0).collect();
    let y: Vec<f64> = x.iter().zip(&noise).map(|(x, n)| (x.powi(3) + 3.0 * n * 20_f64.sqrt()) / 30.0).collect();
    table(1, &rows(&x.iter().map(|x| vec![x / 2.5]).collect::<Vec<_>>(), &y))
}

fn rmse(network: &Network, lambda: &[f64], table: &RecordTable) -> f64 {
    let posterior = Posterior::from_natural(network, lambda).unwrap();
    let mut predictor = NetworkPredictor::new(network, &posterior);
    let squares = table.records().map(|r| (predictor.predict(r.entries()).0 - r.target).powi(2));
    (squares.sum::<f64>() / table.records().len() as f64).sqrt()
}

/// λ before any record: the prior, with means that differ between units.
fn start(network: &Network, lambda0: &[f64]) -> Vec<f64> {
    let (mut lambda, weights) = (lambda0.to_vec(), network.weights());
    network.initial_means(1).iter().enumerate().for_each(|(i, m)| lambda[i] = m * lambda0[weights + i]);
    lambda
}

#[test]
fn the_cubic_toy_is_learnt_by_filtering() {
    let network = Network::new(1, &[50]).unwrap();
    let model = PbpNetwork { network: network.clone() };
    let data = cubic();
    let mut prior = PriorFactors::new(&network);
    let mut adf = Adf::new(&model, start(&network, &prior.natural((6.0, 6.0))));
    let before = rmse(&network, &adf.lambda, &data);
    for _ in 0..40 {
        adf.pass(data.records());
        prior.refine(&mut adf.lambda);
        let q = Posterior::from_natural(&network, &adf.lambda).unwrap();
        assert!(q.variance.iter().all(|v| *v > 0.0));
    }
    let after = rmse(&network, &adf.lambda, &data);
    assert!(after < 0.3 * before, "{after} from {before}");
}

/// Factors per record and one shared factor do not count the data again: 1,000 points of a wave, noise sd 0.1.
#[test]
fn factors_and_a_shared_factor_learn_a_wave_and_its_noise() {
    let network = Network::new(1, &[20]).unwrap();
    let model = PbpNetwork { network: network.clone() };
    let noise = Network::new(999, &[1]).unwrap().initial_means(3);
    let x: Vec<f64> = (0..1000).map(|i| -1.5 + 3.0 * f64::from(i * 389 % 1000) / 999.0).collect();
    let y: Vec<f64> = x.iter().zip(&noise).map(|(x, n)| (2.0 * x).sin() + 0.1 * n * 1000_f64.sqrt()).collect();
    let data = table(1, &rows(&x.iter().map(|x| vec![*x]).collect::<Vec<_>>(), &y));
    let gamma = (6.0, 6.0);

    let mut prior = PriorFactors::new(&network);
    let lambda0 = prior.natural(gamma);
    let lambda = start(&network, &lambda0);
    let factor: Vec<f64> = lambda.iter().zip(&lambda0).map(|(l, p)| (l - p) / 1000.0).collect();
    let mut ep = Factors::new(&model, &lambda0, &factor, 1000);
    for _ in 0..60 {
        ep.pass(data.records(), 1.0);
        prior.refine(&mut ep.lambda);
    }
    let mut prior = PriorFactors::new(&network);
    let mut sep = Shared::new(&model, lambda0, lambda, 1000.0);
    for _ in 0..100 {
        sep.pass(data.records(), 0.5);
        let mut lambda = sep.lambda.clone();
        prior.refine(&mut lambda);
        sep.set_prior(prior.natural(gamma), lambda);
    }
    for lambda in [&ep.lambda, &sep.lambda] {
        let error = rmse(&network, lambda, &data);
        let q = Posterior::from_natural(&network, lambda).unwrap();
        let sd = (q.rate / q.shape).sqrt();
        assert!(error < 0.16 && (0.08..0.17).contains(&sd), "rmse {error}, noise {sd}");
        // 1,000 records were counted once: the shape of γ is 6 + 500.
        assert!((q.shape - 506.0).abs() < 25.0, "{}", q.shape);
    }
}

/// Both baselines learn a curve; certain weights stay certain, uncertain ones learn how uncertain they are.
#[test]
fn baselines_learn_a_curve() {
    let network = Network::new(1, &[12]).unwrap();
    let mut builder = RecordTable::builder(1);
    for i in 0..600_u32 {
        let x = f64::from(i) / 200.0 - 1.5;
        builder.start_unit();
        builder.push(&[0], &[x], x.powi(3) - x + 0.05 * f64::from(i % 5) - 0.1).unwrap();
    }
    let table = builder.finish();
    let records: Vec<_> = table.records().collect();
    let means = network.initial_means(4);
    let shuffle = || {
        let mut rng = ChaCha20Rng::seed_from_u64(6);
        move |order: &mut [usize]| (1..order.len()).rev().for_each(|i| order.swap(i, rng.next_u32() as usize % (i + 1)))
    };
    let error = |q: &Posterior| {
        let mut predictor = NetworkPredictor::new(&network, q);
        let squares: f64 = records.iter().map(|r| (predictor.predict(r.entries()).0 - r.target).powi(2)).sum();
        (squares / 600.0).sqrt()
    };
    for objective in [Objective::Variational, Objective::Point] {
        let options = Fit { objective, passes: 100, batch: 10, rate: 0.03 };
        let q = fit(&network, &records, &means, options, shuffle());
        assert!(error(&q) < 0.12, "{objective:?}: {}", error(&q));
        // The noise has a standard deviation of 0.07.
        let noise = (q.rate / (q.shape - 1.0)).sqrt();
        assert!((0.05..0.3).contains(&noise), "{objective:?}: {noise}");
        let spread = q.variance.iter().cloned().fold(0.0, f64::max);
        assert!(if objective == Objective::Point { spread < 1e-9 } else { spread > 1e-3 && spread < 10.0 }, "{objective:?}: {spread}");
        assert_eq!(q, fit(&network, &records, &means, options, shuffle()));
    }
}
