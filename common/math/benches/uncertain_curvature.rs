//! Cost of the mean of a noise-aware posterior. Every closed round of a run with `end_early` asks for it up to 12 times, from the second time on near the answer.
#![allow(clippy::unwrap_used)]

use dp_pvi_math::uncertain_curvature::UncertainCurvature;
use nalgebra::{DMatrix, DVector};

fn main() {
    divan::main();
}

/// From the point of reference, with errors of the curvature as large as its small entries.
#[divan::bench(args = [32, 128, 512], sample_count = 3)]
fn mode(bencher: divan::Bencher<'_, '_>, dimension: usize) {
    #[allow(clippy::cast_precision_loss)]
    let wave = |i: usize| (i as f64 * 0.7).sin();
    let curvature = DMatrix::from_fn(dimension, dimension, |i, j| if i == j { 200.0 } else { 20.0 * wave(i) * wave(j) });
    let reference = DVector::from_fn(dimension, |i, _| 0.3 * wave(i));
    let gradient = DVector::from_fn(dimension, |i, _| 60.0 * wave(3 * i + 1));
    let noise = DMatrix::identity(dimension, dimension) * 400.0;
    let variances = DMatrix::from_element(dimension, dimension, 100.0);
    let known = UncertainCurvature {
        reference: &reference,
        gradient: &gradient,
        curvature: &curvature,
        noise: &noise,
        variances: &variances,
        prior_mean: &DVector::zeros(dimension),
        prior_precision: &DVector::from_element(dimension, 1.0),
    };
    let starts = [reference.clone()];
    bencher.bench(|| known.mode(divan::black_box(&starts)).unwrap());
}
