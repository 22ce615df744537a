#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::cast_possible_truncation)]

use dp_pvi_math::expfam::gaussian::full::svec;
use nalgebra::{DMatrix, DVector};

use super::hidden::Prepared;
use super::shrinkage::Shrinkage;
use super::{Network, NetworkError, Priors, Shape, m_step};
use dp_pvi_math::polya_gamma;
use dp_pvi_math::start::uniform;

fn network(visible: u32, hidden: u32, seed: u64) -> Network {
    let shape = Shape::new(visible, hidden).unwrap();
    let mut state = seed;
    let mut u = || 2.0 * uniform(&mut state) - 1.0;
    let (j, k) = (visible as usize, hidden as usize);
    let weights = DMatrix::from_fn(j, k, |_, _| 2.0 * u());
    let variances = DMatrix::from_fn(j, k, |_, _| 0.2 + 0.1 * u());
    Network::new(shape, weights, variances, DVector::from_fn(j, |_, _| u()), DVector::from_fn(k, |_, _| u())).unwrap()
}

fn images(visible: usize, count: usize, seed: u64) -> DMatrix<f64> {
    let mut state = seed;
    DMatrix::from_fn(visible, count, |_, _| f64::from(u8::from(uniform(&mut state) < 0.4)))
}

/// The formulas, image by image and unit by unit.
fn plain(network: &Network, v: &[f64], sweeps: u32) -> (Vec<f64>, Vec<f64>) {
    let (j, k) = network.weights().shape();
    let (m, var, c, b) = (network.weights(), network.variances(), network.visible_bias(), network.hidden_bias());
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut pi: Vec<f64> = b.iter().map(|&b| sigmoid(b)).collect();
    let mut omega = vec![0.0; j];
    for _ in 0..sweeps {
        let mut t: Vec<f64> = (0..j).map(|i| c[i] + (0..k).map(|h| m[(i, h)] * pi[h]).sum::<f64>()).collect();
        omega = t.iter().map(|&t| if t.abs() < 1e-3 { 0.25 - t * t / 48.0 } else { (t / 2.0).tanh() / (2.0 * t) }).collect();
        for h in 0..k {
            let mut x = b[h];
            for i in 0..j {
                x += m[(i, h)] * (v[i] - 0.5 - omega[i] * (t[i] - m[(i, h)] * pi[h]));
                x -= 0.5 * omega[i] * (m[(i, h)] * m[(i, h)] + var[(i, h)]);
            }
            let new = sigmoid(x);
            (0..j).for_each(|i| t[i] += m[(i, h)] * (new - pi[h]));
            pi[h] = new;
        }
    }
    (pi, omega)
}

#[test]
fn the_batched_kernel_equals_the_formulas() {
    for (visible, hidden) in [(5, 3), (16, 7), (29, 1)] {
        let network = network(visible, hidden, 1);
        let v = images(visible as usize, 6, 2);
        for sweeps in [1, 2, 12] {
            let batch = Prepared::new(&network).fit(v.clone(), sweeps);
            for i in 0..6 {
                let (pi, omega) = plain(&network, v.column(i).as_slice(), sweeps);
                batch.hidden(i).iter().zip(&pi).for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{a} {b}"));
                batch.omega(i).iter().zip(&omega).for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{a} {b}"));
            }
        }
    }
}

/// The proof of the batched sum needs it to the last bit: a result depends on its image only.
#[test]
fn an_image_has_the_same_result_whatever_else_is_in_the_batch() {
    let network = network(300, 7, 8);
    let v = images(300, 70, 9);
    let prepared = Prepared::new(&network);
    let all = prepared.fit(v.clone(), 5);
    for count in [1, 2, 7, 31, 33, 53] {
        let some = prepared.fit(v.columns(70 - count, count).into_owned(), 5);
        for i in 0..count {
            let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(some.hidden(i)), bits(all.hidden(70 - count + i)), "{count} {i}");
            assert_eq!(bits(some.omega(i)), bits(all.omega(70 - count + i)));
        }
    }
}

/// Statistics of one image in full, as the definitions say.
fn statistics(v: &[f64], pi: &[f64], omega: &[f64]) -> Vec<Vec<f64>> {
    let outer = |a: &[f64], b: &[f64]| a.iter().flat_map(|x| b.iter().map(move |y| x * y)).collect::<Vec<_>>();
    let k = pi.len();
    let pairs = svec(&DMatrix::from_fn(k, k, |a, b| if a == b { pi[a] } else { pi[a] * pi[b] }));
    vec![v.to_vec(), pi.to_vec(), outer(v, pi), omega.to_vec(), outer(omega, pi), outer(omega, &pairs)]
}

#[test]
fn sums_and_norms_are_those_of_the_full_statistics() {
    let network = network(9, 4, 3);
    let v = images(9, 5, 4);
    let batch = Prepared::new(&network).fit(v.clone(), 10);
    let scales = [1.0, 2.0, 0.5, 0.25, 3.0, 7.0];
    let factors = [1.0, 0.0, 0.3, 0.9, 1.0];
    let mut expected = vec![0.0; network.shape().coordinates()];
    for (i, factor) in factors.into_iter().enumerate() {
        let blocks = statistics(v.column(i).as_slice(), batch.hidden(i), batch.omega(i));
        for (block, norm) in blocks.iter().zip(batch.norms(i)) {
            assert!((block.iter().map(|x| x * x).sum::<f64>().sqrt() - norm).abs() < 1e-12 * (1.0 + norm));
        }
        let all = blocks.iter().zip(scales).flat_map(|(block, scale)| block.iter().map(move |x| x / scale));
        expected.iter_mut().zip(all).for_each(|(sum, x)| *sum += factor * x);
    }
    let mut sums = vec![0.0; expected.len()];
    batch.add_statistics(&factors, &scales, &mut sums);
    sums.iter().zip(&expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{a} {b}"));
    // A result that is not a number stays where it is.
    let mut broken = v.clone();
    broken[(0, 1)] = f64::NAN;
    let batch = Prepared::new(&network).fit(broken, 10);
    let mut sums = vec![0.0; expected.len()];
    batch.add_statistics(&factors, &scales, &mut sums);
    sums.iter().zip(&expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{a} {b}"));
}

#[test]
fn no_image_has_statistics_above_the_worst_case() {
    let mut worst = [0.0_f64; super::BLOCKS];
    for seed in 0..40 {
        let mut network = network(8, 5, seed);
        network.hidden_bias.fill(if seed % 2 == 0 { 40.0 } else { 0.0 });
        if seed % 4 == 0 {
            // Nothing is certain about the pixels and everything about the hidden units: the adversary's network.
            network.weights.fill(0.0);
            network.visible_bias.fill(0.0);
        }
        let mut v = images(8, 3, seed + 100);
        v.column_mut(0).fill(1.0);
        let batch = Prepared::new(&network).fit(v, 10);
        for i in 0..3 {
            worst.iter_mut().zip(batch.norms(i)).for_each(|(w, n)| *w = w.max(n));
        }
    }
    let bounds = network(8, 5, 0).shape().sensitivities();
    for (w, bound) in worst.iter().zip(bounds) {
        assert!(*w <= bound * (1.0 + 1e-12), "{w} {bound}");
        // And the bounds are attained.
        assert!(*w >= 0.99 * bound, "{w} {bound}");
    }
}

/// Records from a drawn network: the M-step without noise brings the reconstruction up.
#[test]
fn learning_without_noise_improves_reconstruction_and_bound() {
    let drawn = network(12, 2, 11);
    let mut state = 5;
    let n = 400;
    let mut v = DMatrix::zeros(12, n);
    for i in 0..n {
        let h: Vec<f64> = (0..2).map(|_| f64::from(u8::from(uniform(&mut state) < 0.5))).collect();
        for j in 0..12 {
            let t = 2.5 * (drawn.weights()[(j, 0)] * h[0] + drawn.weights()[(j, 1)] * h[1]) + drawn.visible_bias()[j];
            v[(j, i)] = f64::from(u8::from(uniform(&mut state) < 1.0 / (1.0 + (-t).exp())));
        }
    }
    let shape = Shape::new(12, 4).unwrap();
    let mut network = Network::start(shape, 1, 0.1);
    let mut shrinkage = Shrinkage::new(12, 4);
    let priors = Priors { visible_sd: 10.0, hidden_sd: 10.0, records: n as f64, noise_sd: 0.0 };
    let before = Prepared::new(&network).bound(v.clone(), 10);
    for _ in 0..30 {
        let mut sums = vec![0.0; shape.coordinates()];
        Prepared::new(&network).fit(v.clone(), 10).add_statistics(&vec![1.0; n], &[1.0; super::BLOCKS], &mut sums);
        network = m_step(&network, &mut shrinkage, &priors, &sums).unwrap().0;
    }
    let prepared = Prepared::new(&network);
    let after = prepared.bound(v.clone(), 10);
    assert!(after > before + 100.0, "{before} {after}");
    let accuracy = prepared.reconstruct(v.clone(), 10).accuracy;
    // The best that a constant per pixel can do.
    let constant: f64 = (0..12).map(|j| (v.row(j).sum() / n as f64).max(1.0 - v.row(j).sum() / n as f64)).sum::<f64>() / 12.0;
    assert!(accuracy > constant + 0.05, "{accuracy} {constant}");
}

#[test]
fn the_m_step_is_that_of_the_formulas() {
    let old = network(3, 2, 21);
    let v = images(3, 50, 22);
    let batch = Prepared::new(&old).fit(v.clone(), 10);
    let mut sums = vec![0.0; old.shape().coordinates()];
    batch.add_statistics(&[1.0; 50], &[1.0; super::BLOCKS], &mut sums);
    let mut shrinkage = Shrinkage::new(3, 2);
    shrinkage.update(&DMatrix::from_element(3, 2, 0.5));
    let scales = shrinkage.precision.clone();
    let priors = Priors { visible_sd: 2.0, hidden_sd: 3.0, records: 50.0, noise_sd: 0.0 };
    let (new, floored) = m_step(&old, &mut shrinkage, &priors, &sums).unwrap();
    assert_eq!(floored, 0);
    for j in 0..3 {
        let (mut precision, mut h) = (DMatrix::from_diagonal(&scales.row(j).transpose()), DVector::zeros(2));
        let (mut omega_pi, mut omega) = (DVector::zeros(2), 0.0);
        for i in 0..50 {
            let pi = DVector::from_column_slice(batch.hidden(i));
            let w = batch.omega(i)[j];
            let pairs = &pi * pi.transpose() + DMatrix::from_diagonal(&pi.map(|p| p * (1.0 - p)));
            precision += pairs * w;
            h += &pi * (v[(j, i)] - 0.5 - old.visible_bias()[j] * w);
            omega_pi += &pi * w;
            omega += w;
        }
        let covariance = precision.try_inverse().unwrap();
        let mean = &covariance * h;
        assert!((new.weights().row(j).transpose() - &mean).norm() < 1e-12);
        assert!((new.variances().row(j).transpose() - covariance.diagonal()).norm() < 1e-12);
        let c = (v.row(j).sum() - 25.0 - mean.dot(&omega_pi)) / (0.25 + omega);
        assert!((new.visible_bias()[j] - c).abs() < 1e-12);
    }
    for k in 0..2 {
        let b = new.hidden_bias()[k];
        let activity: f64 = (0..50).map(|i| batch.hidden(i)[k]).sum();
        assert!((b * (1.0 / 9.0 + 50.0 * polya_gamma::mean(b)) - (activity - 25.0)).abs() < 1e-9);
    }
}

#[test]
fn a_network_survives_its_natural_parameters() {
    let network = network(3, 2, 41);
    let again = Network::from_natural(network.shape(), &network.natural()).unwrap();
    assert!((again.weights() - network.weights()).norm() < 1e-14 && (again.variances() - network.variances()).norm() < 1e-14);
    assert!((again.hidden_bias() - network.hidden_bias()).norm() < 1e-14);
    assert!((again.visible_bias() - network.visible_bias()).norm() < 1e-14);
    assert!(Network::from_natural(network.shape(), &network.natural()[1..]).is_err());
    let mut broken = network.natural();
    *broken.last_mut().unwrap() = -1.0;
    assert!(Network::from_natural(network.shape(), &broken).is_err());
}

#[test]
fn huge_noise_gives_a_network_all_the_same() {
    let old = network(4, 3, 31);
    let mut state = 1;
    let sums: Vec<f64> = (0..old.shape().coordinates()).map(|_| 1e6 * (uniform(&mut state) - 0.5)).collect();
    let priors = Priors { visible_sd: 10.0, hidden_sd: 10.0, records: 100.0, noise_sd: 3e5 };
    let (new, floored) = m_step(&old, &mut Shrinkage::new(4, 3), &priors, &sums).unwrap();
    assert!(floored > 0);
    assert!(new.weights().iter().all(|w| w.is_finite() && w.abs() < 10.0));
    let sums = vec![f64::NAN; old.shape().coordinates()];
    assert!(matches!(m_step(&old, &mut Shrinkage::new(4, 3), &priors, &sums), Err(NetworkError::Statistics)));
    assert_eq!(Shape::new(70_000, 1000), Err(NetworkError::Size));
}
