//! Cost of one logistic expectation. Figures: `deploy/guide/src/results/speed.md`.

use dp_pvi_math::quadrature::{SigmoidMoments, sigmoid_moments, sigmoid_moments_of, softplus};

fn main() {
    divan::main();
}

/// B1 and B2, 1,000 logits of one width a sample.
#[divan::bench(args = [0.5, 1.0, 3.0, 10.0, 100.0])]
fn thousand_sigmoid_moments(bencher: divan::Bencher<'_, '_>, sd: f64) {
    let means: Vec<f64> = (0..1000).map(|i| f64::from(i) * 0.01 - 5.0).collect();
    bencher.bench(|| {
        means
            .iter()
            .map(|&mean| sigmoid_moments(divan::black_box(mean), sd * sd))
            .fold((0.0, 0.0), |sum, m| (sum.0 + m.sigmoid, sum.1 + m.curvature))
    });
}

/// The same side by side in the processor's lanes.
#[divan::bench(args = [0.5, 1.0, 3.0, 10.0])]
fn thousand_sigmoid_moments_in_lanes(bencher: divan::Bencher<'_, '_>, sd: f64) {
    let mut logits: Vec<[f64; 3]> = (0..1000).map(|i| [f64::from(i) * 0.01 - 5.0, 0.0, 0.0]).collect();
    bencher.bench_local(|| {
        let put = |logit: &mut [f64; 3], m: SigmoidMoments| (logit[1], logit[2]) = (m.sigmoid, m.curvature);
        sigmoid_moments_of(divan::black_box(&mut logits), |logit| (logit[0], sd * sd), put);
    });
}

/// B0, 1,000 logits of one width a sample.
#[divan::bench(args = [0.5, 1.0, 3.0])]
fn thousand_softplus(bencher: divan::Bencher<'_, '_>, sd: f64) {
    let means: Vec<f64> = (0..1000).map(|i| f64::from(i) * 0.01 - 5.0).collect();
    bencher.bench(|| means.iter().map(|&mean| softplus(divan::black_box(mean), sd * sd)).sum::<f64>());
}
