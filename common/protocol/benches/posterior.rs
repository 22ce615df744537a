//! The server's step and a table of predictions. Figures: `deploy/guide/src/results/speed.md`.

use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_models::logistic_regression;
use dp_pvi_models::prediction::{Example, Prediction};
use dp_pvi_posterior::methods::PviRule;
use dp_pvi_posterior::task::ModelSpec;
use dp_pvi_protocol::predictive::Predictor;

fn main() {
    divan::main();
}

/// λ ← λ + ρΣΔ with full covariance: d = 1413 are 1,000,404 numbers.
#[divan::bench(args = [105, 500, 1413], sample_count = 10)]
fn full_covariance_step(bencher: divan::Bencher<'_, '_>, dimension: usize) {
    let family = Family::FullGaussian { dimension };
    let rule = PviRule::from_parts(family, family.isotropic(0.0, 1.0), PrecisionFloor::LogConcave, vec![0.5]);
    let lambda = rule.initial();
    // Positive definite by diagonal dominance.
    let sum: Vec<f64> = family.isotropic(0.3, 0.01).iter().map(|v| v + 1e-3).collect();
    bencher.bench(|| rule.apply(divan::black_box(&lambda), 0, divan::black_box(&sum)));
}

/// Probability and credible interval of 9,768 rows with 14 of 105 features, as one-hot Adult has them: the logit's mean and sd, and the
/// exact E σ.
#[divan::bench]
fn predictions_with_uncertainty_9768_rows(bencher: divan::Bencher<'_, '_>) {
    let family = Family::DiagonalGaussian { dimension: 105 };
    let natural: Vec<f64> = (0..210_i32).map(|i| if i < 105 { f64::from(i % 7) - 3.0 } else { 2.0 + f64::from(i % 11) }).collect();
    let Ok(predictor) = Predictor::new(&ModelSpec::from(logistic_regression::LogisticRegression {}), family, &natural) else { return };
    let rows: Vec<(Vec<u32>, Vec<f64>)> = (0..9768_u32)
        .map(|row| ((0..14).map(|k| 7 * k + (row * 31 + k * 13) % 7).collect(), (0..14).map(|k| if k < 5 { 0.3 } else { 1.0 }).collect()))
        .collect();
    bencher.bench(|| {
        let total = |(indices, values): &(Vec<u32>, Vec<f64>)| match predictor.predict(Example {
            indices,
            values,
            target: 0.0,
            offset: 0.0,
            extra: Default::default(),
        }) {
            Prediction::Class { probability, logit_sd, .. } => probability + logit_sd,
            _ => 0.0,
        };
        rows.iter().map(total).sum::<f64>()
    });
}
