//! One DP-SGD step of a Bayesian neural network: 105–50–1, mean field, a batch of 200 rows of the Adult encoding (14 non-zero entries of 105),
//! `f64`, one core, without noise: draws, norms of 200 gradients of 10,602 entries, clip factors, weighted sum, and the step of Adam.
//!
//! ```text
//! cargo bench -p dp-pvi-inference --bench network_step
//! ```
//!
//! Figures: `deploy/guide/src/results/speed.md`.

#![allow(clippy::disallowed_types, reason = "divan's attribute keeps its registry in a lock; no library code is in here")]

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use divan::Bencher;
use dp_pvi_inference::mean_field::{MeanField, ScaleCoordinate};
use dp_pvi_inference::models::neural_network::BatchGradients;
use dp_pvi_math::optim::Adam;
use dp_pvi_models::neural_network::{Network, Output};
use dp_pvi_privacy::UnitTable;
use dp_pvi_records::RecordTable;
use rand_core::Rng;

const BATCH: usize = 200;
const CATEGORIES: [u32; 8] = [8, 16, 7, 14, 6, 5, 2, 41];
const NUMBERS: u32 = 5;

fn main() {
    // As a program that has read its data: an allocator that has taken back a file's buffer no longer returns the buffers of every step to the system.
    drop(divan::black_box(vec![1_u8; 8 << 20]));
    divan::main();
}

/// Rows with the shape of the Adult encoding; what they say does not matter.
fn table() -> RecordTable {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut builder = RecordTable::builder(105);
    for _ in 0..BATCH {
        let (mut indices, mut values, mut start) = (Vec::new(), Vec::new(), 0);
        for levels in CATEGORIES {
            // The square of a uniform number: some levels are frequent, others rare.
            let u = f64::from(rng.next_u32()) / f64::from(u32::MAX);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a level")]
            indices.push(start + ((u * u * f64::from(levels)) as u32).min(levels - 1));
            values.push(1.0);
            start += levels;
        }
        for number in 0..NUMBERS {
            indices.push(start + number);
            values.push(f64::from(rng.next_u32()) / f64::from(u32::MAX) - 0.5);
        }
        indices.push(start + NUMBERS);
        values.push(1.0);
        builder.start_unit();
        builder.push(&indices, &values, f64::from(rng.next_u32() % 4 / 3)).expect("a row of the encoding");
    }
    builder.finish()
}

fn start(hidden: &[usize]) -> (Network, Vec<f64>, Vec<f64>) {
    let network = Network::new(105, hidden, Output::Binary).expect("a shape");
    let mean = network.initial_mean();
    let log_scale = vec![0.05f64.ln(); mean.len()];
    (network, mean, log_scale)
}

/// The gradients alone: `samples` samples.
fn gradients(bencher: Bencher, hidden: &[usize], samples: usize) {
    let (network, mean, log_scale) = start(hidden);
    let point = MeanField::new(mean, log_scale.iter().map(|l| (2.0 * l).exp()).collect(), ScaleCoordinate::LogScale).expect("a point");
    let table = table();
    let mut stream = ChaCha20Rng::seed_from_u64(2);
    bencher.bench_local(|| sum(&network, &point, samples, &table, &mut stream));
}

fn sum(network: &Network, point: &MeanField, samples: usize, table: &RecordTable, stream: &mut ChaCha20Rng) -> Vec<f64> {
    let gradients = BatchGradients::new(network, point, samples);
    let mut work = gradients.start(stream);
    let (mut norms, mut sums) = (Vec::new(), vec![0.0; gradients.len()]);
    for first in (0..BATCH).step_by(gradients.chunk()) {
        let end = BATCH.min(first + gradients.chunk());
        let words: Vec<u64> = (first..end).map(|_| stream.next_u64()).collect();
        gradients.norms((first..end).map(|i| table.unit(i)), &words, &mut work, &mut norms);
        let factors: Vec<f64> = norms.iter().map(|norm| (1.0 / norm).min(1.0)).collect();
        gradients.add(&mut work, &factors, &mut sums);
    }
    sums
}

/// The whole step.
#[divan::bench(sample_count = 500)]
fn step(bencher: Bencher) {
    let (network, mean, log_scale) = start(&[50]);
    let table = table();
    let mut stream = ChaCha20Rng::seed_from_u64(2);
    let mut adam = Adam::new(2 * mean.len());
    let d = mean.len();
    let mut parameters = [mean, log_scale].concat();
    bencher.bench_local(|| {
        let (mean, log_scale) = parameters.split_at(d);
        let variance = log_scale.iter().map(|l| (2.0 * l).exp()).collect();
        let point = MeanField::new(mean.to_vec(), variance, ScaleCoordinate::LogScale).expect("a point");
        let mut gradient = sum(&network, &point, 1, &table, &mut stream);
        for (g, mean) in gradient.iter_mut().zip(point.mean()) {
            *g = mean - 20.0 * *g;
        }
        for (g, variance) in gradient[d..].iter_mut().zip(point.variance()) {
            *g = variance - 1.0 - 20.0 * *g;
        }
        adam.step(&mut parameters, &gradient, 1e-4);
    });
}

#[divan::bench(sample_count = 500, args = [1, 10])]
fn one_hidden_layer(bencher: Bencher, samples: usize) {
    gradients(bencher, &[50], samples);
}

#[divan::bench(sample_count = 200, args = [1, 10])]
fn two_hidden_layers(bencher: Bencher, samples: usize) {
    gradients(bencher, &[50, 50], samples);
}
