//! Predictions of a network: 9,768 rows of the shape of Adult (105 columns, 14 non-zero), 50 hidden units, 100 samples.
//! Figures: `deploy/guide/src/results/speed.md`.

use divan::Bencher;
use dp_pvi_models::neural_network::{Network, NetworkPredictor, Output, public_normals};
use dp_pvi_models::prediction::Example;

fn main() {
    divan::main();
}

fn predict(bencher: Bencher<'_, '_>, hidden: &[usize], rows: usize) {
    let network = Network::new(105, hidden, Output::Binary).expect("a shape");
    let mean = network.initial_mean();
    let predictor = NetworkPredictor::new(network, &mean, &vec![0.0025; mean.len()], 100).expect("a posterior");
    // Which columns are set hardly matters: as many as in Adult.
    let table: Vec<(Vec<u32>, Vec<f64>)> = (0..rows)
        .map(|i| {
            let start = u32::try_from(i % 7).unwrap_or(0);
            ((0..14).map(|k| 7 * k + start).collect(), public_normals(i as u64, 14))
        })
        .collect();
    bencher.bench(|| {
        table
            .iter()
            .map(|(indices, values)| {
                predictor.log_density(Example { indices, values, target: 1.0, offset: 0.0, extra: Default::default() })
            })
            .sum::<f64>()
    });
}

/// Log predictive density of 9,768 rows.
#[divan::bench(sample_count = 20)]
fn one_hidden_layer(bencher: Bencher<'_, '_>) {
    predict(bencher, &[50], 9_768);
}

/// Of 977 rows, with two hidden layers.
#[divan::bench(sample_count = 20)]
fn two_hidden_layers(bencher: Bencher<'_, '_>) {
    predict(bencher, &[50, 50], 977);
}
