//! The tilted bound of a softmax, by number of classes: what a record of multinomial regression costs most.
//!
//! ```text
//! cargo bench -p dp-pvi-math --bench tilted_softmax
//! ```
#![allow(missing_docs)]

use dp_pvi_math::tilted_softmax::TiltedSoftmax;
use nalgebra::{DMatrix, DVector};

fn main() {
    divan::main();
}

#[divan::bench(args = [2, 3, 5, 10])]
fn classes(bencher: divan::Bencher<'_, '_>, classes: usize) {
    let count = classes - 1;
    let mean = DVector::from_fn(count, |k, _| 0.7 - 0.4 * k as f64);
    let covariance = DMatrix::from_fn(count, count, |i, j| if i == j { 0.3 } else { 0.1 });
    bencher.bench_local(|| TiltedSoftmax::new(divan::black_box(&mean), divan::black_box(&covariance)));
}
