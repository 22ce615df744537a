//! Adaptive clipping by a private quantile (Andrew et al. 2021).
//!
//! The bound of the next round follows a quantile of the units' norms. Units report whether they were within the bound, in the same
//! release as the sum itself: b_i = 1[‖u_i‖ ≤ C] − ½. A percentile taken from the norms without noise, as some implementations do, has no
//! guarantee: one record moves the bound, and with it every clipped term and the noise.
//!
//! Where a model has a public bound on a unit's contribution (generalised linear models) use that and do not adapt. Otherwise start
//! from the largest plausible bound with [`TARGET`] and [`RATE`]: a low quantile starves the sum, because most units are nearly silent.

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier};

/// γ: share of units within the bound that is aimed at.
pub const TARGET: f64 = 0.9;
/// η_C: step of log C.
pub const RATE: f64 = 0.3;
/// The bound stays within these factors of the first one.
pub const RANGE: (f64, f64) = (1e-3, 1e3);

/// C·exp(−η(b̃ − γ)), within 10^±3 of the first bound. `within` = b̃ is the noised share of units with ‖u‖ ≤ C; without a finite one the
/// bound stays.
///
/// # Panics
/// Bounds so large or small that a thousandfold is no `f64`.
#[must_use]
pub fn next_bound(current: ClipNorm, first: ClipNorm, within: f64, target: f64, rate: f64) -> ClipNorm {
    let factor = (-rate * (within - target)).exp();
    if !within.is_finite() {
        return current;
    }
    let next = (current.get() * factor).clamp(RANGE.0 * first.get(), RANGE.1 * first.get());
    ClipNorm::new(next).expect("between positive finite bounds")
}

/// b̃ = Σ̃b/(qn) + ½ from the noised sum of the units' b_i = ±½; `expected` = qn is the public expected number of units in it.
#[must_use]
pub fn share_within(noised_sum: f64, expected: f64) -> f64 {
    noised_sum / expected + 0.5
}

/// Multiplier for the clipped sum that makes sum and indicator together cost one mechanism with multiplier z:
/// z_Δ = (z⁻² − (2σ_b)⁻²)^{−1/2}, with σ_b the noise on Σb. `None` where the indicator alone costs as much.
///
/// # Privacy
/// A unit's joint contribution (u/(z_Δ C), b/σ_b) has squared norm ≤ z_Δ⁻² + (2σ_b)⁻² = z⁻²: the release is that of one Gaussian with
/// multiplier z, under add-remove; under replace-one both terms double, and so does their root.
#[must_use]
pub fn split_noise(multiplier: NoiseMultiplier, indicator_sd: f64) -> Option<NoiseMultiplier> {
    let rest = multiplier.get().powi(-2) - (2.0 * indicator_sd).powi(-2);
    NoiseMultiplier::new(rest.powf(-0.5)).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{RATE, TARGET, next_bound, share_within, split_noise};
    use dp_pvi_accounting::{ClipNorm, NoiseMultiplier};

    fn norm(value: f64) -> ClipNorm {
        ClipNorm::new(value).unwrap()
    }

    /// Without noise the bound settles at the quantile of the norms, from either side.
    #[test]
    fn the_bound_finds_the_quantile() {
        let norms: Vec<f64> = (1..=1000).map(|i| f64::from(i) / 100.0).collect();
        for start in [0.1, 80.0] {
            let mut bound = norm(start);
            for _ in 0..300 {
                let sum: f64 = norms.iter().map(|n| if *n <= bound.get() { 0.5 } else { -0.5 }).sum();
                bound = next_bound(bound, norm(start), share_within(sum, 1000.0), TARGET, RATE);
            }
            assert!((bound.get() - 9.0).abs() < 0.1, "{}", bound.get());
        }
    }

    #[test]
    fn the_bound_stays_in_its_range_and_ignores_what_is_no_number() {
        let mut bound = norm(1.0);
        for _ in 0..100 {
            bound = next_bound(bound, norm(1.0), 1e9, TARGET, RATE);
        }
        assert!((bound.get() - 1e-3).abs() < 1e-18);
        assert_eq!(next_bound(bound, norm(1.0), f64::NAN, TARGET, RATE), bound);
    }

    #[test]
    fn both_parts_together_cost_the_whole() {
        let z = NoiseMultiplier::new(0.8).unwrap();
        let sum = split_noise(z, 12.0).unwrap();
        assert!((sum.get().powi(-2) + 24.0_f64.powi(-2) - 0.8_f64.powi(-2)).abs() < 1e-14);
        assert!(split_noise(z, 0.4).is_none() && split_noise(z, 0.1).is_none());
    }
}
