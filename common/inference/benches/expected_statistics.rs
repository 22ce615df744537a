//! E-steps of expected sufficient statistics, one core: documents of a topic model (K = 50, V = 6,906, 50 sweeps, 103 distinct words, which is
//! the average of KOS) and images of a sigmoid belief network (784 pixels, 100 hidden units, 10 sweeps).
//!
//! ```text
//! cargo bench -p dp-pvi-inference --bench expected_statistics
//! ```
//!
//! 2,100 documents or 700 images a second of processor time (one core of an AMD EPYC). How: `deploy/guide/src/results/speed.md`.

#![allow(clippy::disallowed_types, reason = "divan's attribute keeps its registry in a lock; no library code is in here")]

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use divan::Bencher;
use divan::counter::ItemsCount;
use dp_pvi_inference::capabilities::statistics::ExpectedStatistics;
use dp_pvi_inference::models::latent_dirichlet::DocumentStatistics;
use dp_pvi_inference::models::sigmoid_belief::ImageStatistics;
use dp_pvi_models::latent_dirichlet::document::DocumentLength;
use dp_pvi_models::latent_dirichlet::{Shape, Topics};
use dp_pvi_models::sigmoid_belief;
use dp_pvi_models::sigmoid_belief::Network;
use dp_pvi_privacy::mechanism::Term;
use dp_pvi_records::RecordTable;
use rand_core::Rng;

const WORDS: u32 = 6_906;
const DISTINCT: usize = 103;
const DOCUMENTS: usize = 64;
const PIXELS: u32 = 784;
const IMAGES: usize = 128;

fn main() {
    divan::main();
}

fn table(columns: u32, rows: usize, entries: usize) -> RecordTable {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut builder = RecordTable::builder(columns as usize);
    for _ in 0..rows {
        let mut indices: Vec<u32> = (0..2 * entries).map(|_| rng.next_u32() % columns).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.truncate(entries);
        builder.start_unit();
        builder.push(&indices, &vec![1.0; indices.len()], 0.0).expect("ascending positions below the number of columns");
    }
    builder.finish()
}

/// E-step and term of a document.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn documents(bencher: Bencher<'_, '_>) {
    let shape = Shape::new(50, WORDS, 0.02, 0.02).expect("a topic model");
    let topics = Topics::new(shape, shape.start(1, 1e6)).expect("topics");
    let statistics = DocumentStatistics::new(&topics, DocumentLength::Exactly(500.0), 50);
    let table = table(WORDS, DOCUMENTS, DISTINCT);
    let mut term = Term::default();
    bencher.counter(ItemsCount::new(DOCUMENTS)).bench_local(|| {
        for record in table.records() {
            term.clear();
            statistics.add(record, &mut term);
        }
        term.entries().len()
    });
}

fn network() -> Network {
    Network::start(sigmoid_belief::Shape::new(PIXELS, 100).expect("a network"), 1, 0.3)
}

/// E-step of a chunk of images.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn images(bencher: Bencher<'_, '_>) {
    let network = network();
    let statistics = ImageStatistics::new(&network, [1.0; sigmoid_belief::BLOCKS], 10);
    let table = table(PIXELS, IMAGES, 150);
    bencher.counter(ItemsCount::new(IMAGES)).bench_local(|| statistics.fit(table.records()));
}

/// E-step of a chunk of images, their norms, and their clipped sum of 4.1 million coordinates.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn clipped_images(bencher: Bencher<'_, '_>) {
    let network = network();
    let scales = network.shape().sensitivities();
    let statistics = ImageStatistics::new(&network, scales, 10);
    let table = table(PIXELS, IMAGES, 150);
    let mut sums = vec![0.0; statistics.coordinates()];
    bencher.counter(ItemsCount::new(IMAGES)).bench_local(|| {
        let batch = statistics.fit(table.records());
        statistics.add_clipped(&batch, 1.0, &mut sums)
    });
}
