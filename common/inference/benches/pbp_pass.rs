//! One pass of a regression network over data of the shape of kin8nm: 8,192 rows of 8 features, 50 hidden units (501 weights), one core.
//!
//! ```text
//! cargo bench -p dp-pvi-inference --bench pbp_pass
//! ```
//!
//! 62 ms of processor time, 7.6 µs a row (one core of an Intel Xeon). By form: `deploy/guide/src/results/speed.md`.

#![allow(clippy::disallowed_types, reason = "divan's attribute keeps its registry in a lock; no library code is in here")]

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use divan::Bencher;
use dp_pvi_inference::methods::propagation::{Adf, Factors, Shared};
use dp_pvi_inference::models::pbp_network::PbpNetwork;
use dp_pvi_models::pbp_network::{Network, PriorFactors};
use dp_pvi_posterior::methods::NOISE_PRIOR;
use dp_pvi_records::RecordTable;
use rand_core::Rng;

const ROWS: usize = 8_192;
const FEATURES: usize = 8;
const HIDDEN: usize = 50;

fn main() {
    divan::main();
}

struct Setting {
    model: PbpNetwork,
    prior: Vec<f64>,
    start: Vec<f64>,
    table: RecordTable,
}

fn setting() -> Setting {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut uniform = move || f64::from(rng.next_u32()) / f64::from(u32::MAX) * 3.4 - 1.7;
    let mut builder = RecordTable::builder(FEATURES);
    let indices: Vec<u32> = (0..8).collect();
    for _ in 0..ROWS {
        let x: Vec<f64> = (0..FEATURES).map(|_| uniform()).collect();
        let y = (x[0] + x[1] * x[2]).sin() + 0.1 * uniform();
        builder.start_unit();
        builder.push(&indices, &x, y).expect("a row of 8 features");
    }
    let network = Network::new(FEATURES, &[HIDDEN]).expect("a network");
    let prior = PriorFactors::new(&network).natural(NOISE_PRIOR);
    let mut start = prior.clone();
    let weights = network.weights();
    network.initial_means(1).iter().enumerate().for_each(|(i, m)| start[i] = m * prior[weights + i]);
    Setting { model: PbpNetwork { network }, prior, start, table: builder.finish() }
}

/// Assumed density filtering: the published "PBP" pass.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn filtering(bencher: Bencher<'_, '_>) {
    let Setting { model, start, table, .. } = setting();
    let mut adf = Adf::new(&model, start);
    bencher.bench_local(|| adf.pass(table.records()));
}

/// One shared factor.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn shared_factor(bencher: Bencher<'_, '_>) {
    let Setting { model, prior, start, table } = setting();
    let mut sep = Shared::new(&model, prior, start, 8_192.0);
    bencher.bench_local(|| sep.pass(table.records(), 0.3));
}

/// A factor for every record (66 MB).
#[divan::bench(sample_count = 20, sample_size = 1)]
fn own_factors(bencher: Bencher<'_, '_>) {
    let Setting { model, prior, start, table } = setting();
    let first: Vec<f64> = start.iter().zip(&prior).map(|(l, p)| (l - p) / 8_192.0).collect();
    let mut ep = Factors::new(&model, &prior, &first, ROWS);
    bencher.bench_local(|| ep.pass(table.records(), 1.0));
}
