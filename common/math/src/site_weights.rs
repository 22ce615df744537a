//! Numbers by which the vectors of unequal sites are multiplied under local trust.
//!
//! Every site adds noise of the same variance v to a coordinate, however few records it has. A site of n records adds about n i to the information, i that of a record. By the best linear
//! combination its vector counts with n i/(n i + v), over the largest of all sites: a site of which noise is all counts for nearly nothing, and many small sites do not make intervals wider. The
//! numbers depend on declared units and noise alone.
//!
//! **Source**: this project; the weights are those of a random-effects mean.

/// v: the variance of the noise that is left on a coordinate of one site after all visits which have this share of the budget; `noise` is the standard deviation that one visit
/// with the whole budget would have, the run's noise multiplier times the clipping norm.
#[must_use]
pub fn noise_variance(noise: f64, share: f64) -> f64 {
    noise.powi(2) / share
}

/// a_m of sites with these units; the largest is 1. `information` is i.
#[must_use]
pub fn weights(units: &[f64], information: f64, noise_variance: f64) -> Vec<f64> {
    let of = |units: &f64| units * information / (units * information + noise_variance);
    let most = units.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    units.iter().map(|units| of(units) / most).collect()
}

/// Σ a_m v_m.
///
/// # Panics
/// Vectors of different lengths.
#[must_use]
pub fn weighted_sum(weights: &[f64], vectors: &[Vec<f64>]) -> Vec<f64> {
    let mut sum = vec![0.0; vectors.first().map_or(0, Vec::len)];
    for (weight, vector) in weights.iter().zip(vectors) {
        assert_eq!(vector.len(), sum.len(), "the vectors of all sites are as long");
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += weight * value);
    }
    sum
}

/// √Σ a_m²: the noise of the weighted sum over that of one site.
#[must_use]
pub fn noise_factor(weights: &[f64]) -> f64 {
    weights.iter().map(|weight| weight * weight).sum::<f64>().sqrt()
}

/// Σ a²n/Σ an: the covariance of the weighted sum's scores over its curvature.
#[must_use]
pub fn score_share(weights: &[f64], units: &[f64]) -> f64 {
    let sum = |power: i32| weights.iter().zip(units).map(|(weight, units)| weight.powi(power) * units).sum::<f64>();
    sum(2) / sum(1)
}

#[cfg(test)]
mod tests {
    use super::{noise_factor, score_share, weights};

    #[test]
    fn equal_sites_are_a_plain_sum() {
        let of = weights(&[500.0; 4], 0.15, 900.0);
        assert_eq!((of.as_slice(), noise_factor(&of), score_share(&of, &[500.0; 4])), (&[1.0; 4][..], 2.0, 1.0));
    }

    /// Eight sites of 50 beside two of 10,000 add next to no noise.
    #[test]
    fn small_sites_add_little_noise() {
        let units: Vec<f64> = [10_000.0; 2].into_iter().chain([50.0; 8]).collect();
        let of = weights(&units, 0.15, 900.0);
        assert!(noise_factor(&of) < 1.01 * std::f64::consts::SQRT_2 && of[2] > 0.0, "{of:?}");
    }
}
