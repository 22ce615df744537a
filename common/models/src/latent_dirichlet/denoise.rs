//! Counts behind a noised release: what a topic model's server believes about the true sums.
//!
//! Most of the K·V cells of a release hold noise only: at ε = 4, 3,000 documents and 50 topics of 6,906 words its standard deviation is
//! twenty times the average count. Negative cells set to 0, as published, leave 0.4 standard deviations of mass in every empty cell, and
//! topics drown in it. Here every count s_kv has a prior: exponential with mean b_kv = S_k m_v, the topic's mass times the word's share of
//! all words. With ŝ ~ N(s, σ²) the posterior is a normal distribution cut off at 0, and its mean is
//! σ·e((ŝ − σ²/b)/σ) with e(w) = w + φ(w)/Φ(w). Where σ ≫ b that is b: the model backs off to the words' shares; where σ ≪ b it is ŝ.
//! Masses S are fitted by fixed-point iteration, shares m come from the totals of words, which do not depend on topics and are released
//! once, with far less noise than a sum of K cells has. Post-processing of released values: free.

use super::Shape;
use dp_pvi_math::normal;

/// Totals of words with the noise that is left on them.
#[derive(Debug, Clone, Copy)]
pub struct NoisedTotals<'a> {
    /// One for every word.
    pub totals: &'a [f64],
    /// Standard deviation of their noise.
    pub noise_sd: f64,
}

/// Iterations of the topics' masses.
const ITERATIONS: u32 = 10;

/// Mean of s under the exponential prior with mean `prior` and ŝ = s + N(0, `sd`²); ŝ itself, cut off at 0, without noise.
#[must_use]
pub(crate) fn expected_count(released: f64, sd: f64, prior: f64) -> f64 {
    if sd <= 0.0 {
        return released.max(0.0);
    }
    if prior <= 0.0 {
        return 0.0;
    }
    sd * normal::log_cdf(released / sd - sd / prior).excess
}

/// Share of every word of all words, from noised totals: expectations under an exponential prior with one mean for all words. They are
/// positive and sum to 1.
#[must_use]
pub fn word_shares(noised: NoisedTotals<'_>) -> Vec<f64> {
    let words = noised.totals.len().max(1);
    #[allow(clippy::cast_precision_loss, reason = "a number of words")]
    let count = words as f64;
    let mean = (noised.totals.iter().sum::<f64>() / count).max(noised.noise_sd / count.sqrt()).max(f64::MIN_POSITIVE);
    let expected: Vec<f64> = noised.totals.iter().map(|&total| expected_count(total, noised.noise_sd, mean)).collect();
    // No word is impossible.
    let least = 1e-3 * mean;
    let sum: f64 = expected.iter().map(|total| total.max(least)).sum();
    expected.iter().map(|total| total.max(least) / sum).collect()
}

/// Expected counts of all cells from their noised sums, word by word; `shares` are those of [`word_shares`].
///
/// # Panics
/// A slice has another length than the shape says.
#[must_use]
pub fn expected_counts(shape: &Shape, released: &[f64], noise_sd: f64, shares: &[f64]) -> Vec<f64> {
    assert!(released.len() == shape.coordinates() && shares.len() == shape.words(), "statistics of another shape");
    let topics = shape.topics();
    #[allow(clippy::cast_precision_loss, reason = "numbers of topics and cells")]
    let (count, cells) = (topics as f64, released.len() as f64);
    let total = released.iter().sum::<f64>().max(noise_sd * cells.sqrt());
    let mut masses = vec![total / count; topics];
    let mut expected = vec![0.0; released.len()];
    for _ in 0..ITERATIONS {
        let mut sums = vec![0.0; topics];
        for ((row, out), share) in released.chunks_exact(topics).zip(expected.chunks_exact_mut(topics)).zip(shares) {
            for (((out, &released), mass), sum) in out.iter_mut().zip(row).zip(&masses).zip(&mut sums) {
                *out = expected_count(released, noise_sd, mass * share);
                *sum += *out;
            }
        }
        masses = sums;
    }
    expected
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{NoisedTotals, expected_count, expected_counts, word_shares};
    use crate::latent_dirichlet::{Shape, uniform};

    /// The mean of the cut-off normal distribution, by integration.
    #[test]
    fn the_expectation_is_that_of_the_posterior() {
        for (released, sd, prior) in [(3.0, 1.0, 2.0), (-2.0, 1.0, 2.0), (0.5, 2.0, 0.3), (40.0, 5.0, 1.0), (-30.0, 5.0, 10.0)] {
            let (mut mass, mut first) = (0.0, 0.0);
            let step = 1e-4_f64;
            for i in 0..1_000_000 {
                let s = (f64::from(i) + 0.5) * step;
                let weight = (-s / prior - 0.5 * ((released - s) / sd).powi(2)).exp();
                mass += weight;
                first += s * weight;
            }
            let found = expected_count(released, sd, prior);
            assert!((found / (first / mass) - 1.0).abs() < 1e-6, "{released} {sd} {prior}: {found} {}", first / mass);
        }
        // Both limits.
        assert!((expected_count(7.0, 1e-6, 3.0) - 7.0).abs() < 1e-6 && expected_count(-7.0, 0.0, 3.0).abs() < 1e-300);
        assert!((expected_count(12.0, 1e6, 3.0) - 3.0).abs() < 1e-3 && expected_count(-1e9, 1.0, 1.0) > 0.0);
    }

    /// Empty cells under heavy noise get their share of the back-off and no more; a heavy cell stays where it is.
    #[test]
    fn noise_does_not_become_mass() {
        let shape = Shape::new(10, 200, 0.1, 0.1).unwrap();
        let mut state = 3;
        let mut normal = move || (0..12).map(|_| uniform(&mut state)).sum::<f64>() - 6.0;
        let mut truth = vec![1.0; 2000];
        (0..10).for_each(|k| truth[(20 * k) * 10 + k] = 2_000.0);
        let released: Vec<f64> = truth.iter().map(|s| s + 30.0 * normal()).collect();
        let totals: Vec<f64> = truth.chunks(10).map(|row| row.iter().sum::<f64>() + 30.0 * normal()).collect();
        let shares = word_shares(NoisedTotals { totals: &totals, noise_sd: 30.0 });
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12 && shares.iter().all(|s| *s > 0.0));
        let expected = expected_counts(&shape, &released, 30.0, &shares);
        let (total, true_total): (f64, f64) = (expected.iter().sum(), truth.iter().sum());
        let clamped: f64 = released.iter().map(|s| s.max(0.0)).sum();
        // Setting negative cells to 0 makes more mass than there is.
        assert!(clamped > 1.8 * true_total && total - true_total < 0.3 * (clamped - true_total), "{total} {clamped} {true_total}");
        let error = |found: &[f64]| found.iter().zip(&truth).map(|(a, b)| (a - b).abs()).sum::<f64>();
        let clamp: Vec<f64> = released.iter().map(|s| s.max(0.0)).collect();
        assert!(error(&expected) < 0.35 * error(&clamp), "{} {}", error(&expected), error(&clamp));
        assert!((expected[0] - released[0]).abs() < 5.0);
        // Nothing but noise, and no noise at all.
        let noise: Vec<f64> = (0..2000).map(|_| 30.0 * normal()).collect();
        assert!(expected_counts(&shape, &noise, 30.0, &shares).iter().all(|s| s.is_finite() && *s >= 0.0));
        assert_eq!(expected_counts(&shape, &truth, 0.0, &shares), truth);
    }
}
