//! One joint release of several statistics: blocks with their own sensitivities share one Gaussian mechanism.
//!
//! Statistics of one round come from the same records and the same coins, so they are one vector, clipped and noised together. A
//! block with scale a enters that vector divided by a; the mechanism has C = √Σ(Δ_b/a_b)² and adds zC to every scaled coordinate, so the
//! block's own noise is a·z·C. Choosing the scales is choosing how the noise is shared out.

/// Standard deviations of the blocks' noise that minimise Σ ω_b σ_b² at the joint cost Σ Δ_b²/σ_b² = 1/z²:
/// σ_b² = z² Δ_b (Σ_c Δ_c √ω_c)/√ω_b. `importances` ω are expected harm per unit of noise variance times the number of coordinates.
///
/// # Panics
/// The slices differ in length, are empty, or hold a number that is not finite and positive.
#[must_use]
pub(crate) fn block_noise(sensitivities: &[f64], importances: &[f64], multiplier: f64) -> Vec<f64> {
    assert!(sensitivities.len() == importances.len() && !sensitivities.is_empty(), "one importance for every block");
    assert!(sensitivities.iter().chain(importances).all(|v| v.is_finite() && *v > 0.0), "sensitivities and importances are positive");
    let total: f64 = sensitivities.iter().zip(importances).map(|(d, w)| d * w.sqrt()).sum();
    sensitivities.iter().zip(importances).map(|(d, w)| multiplier * (d * total / w.sqrt()).sqrt()).collect()
}

/// Scales a_b of the blocks for which the joint mechanism with C = 1 adds `block_noise`: σ_b at z = 1, so that Σ(Δ_b/a_b)² = 1.
///
/// # Panics
/// As `block_noise`.
#[must_use]
pub fn block_scales(sensitivities: &[f64], importances: &[f64]) -> Vec<f64> {
    block_noise(sensitivities, importances, 1.0)
}

#[cfg(test)]
mod tests {
    use super::{block_noise, block_scales};

    #[test]
    fn the_joint_cost_is_that_of_one_mechanism() {
        for z in [0.3, 1.0, 7.0] {
            let sds = block_noise(&[1.0, 0.25, 30.0], &[3.0, 100.0, 0.1], z);
            let cost: f64 = [1.0, 0.25, 30.0].iter().zip(&sds).map(|(d, s): (&f64, &f64)| (d / s).powi(2)).sum();
            assert!((cost * z * z - 1.0).abs() < 1e-13, "{cost}");
        }
        let norm: f64 = [2.0, 5.0].iter().zip(block_scales(&[2.0, 5.0], &[1.0, 4.0])).map(|(d, a): (&f64, f64)| (d / a).powi(2)).sum();
        assert!((norm - 1.0).abs() < 1e-14);
    }

    /// No other split of the same cost has less weighted noise.
    #[test]
    fn the_weighted_noise_is_the_least_possible() {
        let (deltas, weights) = ([1.0, 0.25, 30.0], [3.0, 100.0, 0.1]);
        let harm = |sds: &[f64]| sds.iter().zip(weights).map(|(s, w)| w * s * s).sum::<f64>();
        let best = block_noise(&deltas, &weights, 1.0);
        for i in 0..3 {
            for factor in [0.5, 0.9, 0.99, 1.01, 1.1, 2.0] {
                let mut other = best.clone();
                other[i] *= factor;
                let cost: f64 = deltas.iter().zip(&other).map(|(d, s)| (d / s).powi(2)).sum();
                other.iter_mut().for_each(|s| *s *= cost.sqrt());
                assert!(harm(&other) > harm(&best), "{i} {factor}");
            }
        }
    }

    /// Equal shares of the budget: noise √B·Δ for ω ∝ 1/Δ².
    #[test]
    fn the_rule_of_equal_shares_is_a_special_case() {
        let deltas: [f64; 7] = [28.0, 10.0, 280.0, 7.0, 70.0, 700.0, 1.0];
        let weights = deltas.map(|d| 1.0 / (d * d));
        for (s, d) in block_noise(&deltas, &weights, 1.0).iter().zip(deltas) {
            assert!((s / d - 7.0_f64.sqrt()).abs() < 1e-13);
        }
    }
}
