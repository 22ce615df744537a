//! Bayesian linear regression with unknown noise, public side: y ~ N(xᵀθ, 1/τ), θ ~ N(m0, Λ0⁻¹), τ ~ Gamma(a0, b0),
//! q(θ)q(τ) by variational Bayes.
//!
//! Σ xy, Σ xxᵀ and Σ y² say everything, and none depends on the posterior: they are released once, and the server iterates to the fixed
//! point Λ = Λ0 + E τ S2, h = h0 + E τ s1, a = a0 + n/2, b = b0 + ½ (Σ y² − 2 μᵀs1 + tr S2(Σ + μμᵀ)).

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::{Gaussian, Standard};
use dp_pvi_math::expfam::gaussian::full::svec;

use dp_pvi_math::polya_gamma::{Relevance, m_step};

/// Released sums over n records.
#[derive(Debug, Clone, Copy)]
pub struct Sums<'a> {
    /// Σ xy.
    pub first: &'a [f64],
    /// svec Σ xxᵀ, positive semi-definite.
    pub second: &'a [f64],
    /// Σ y².
    pub squares: f64,
    /// n, public.
    pub records: f64,
}

/// Norm bounds of one record's three statistics for ‖x‖ ≤ R and |y| ≤ Y: RY, R², Y².
#[must_use]
pub fn sensitivities(feature_bound: f64, target_bound: f64) -> [f64; 3] {
    [feature_bound * target_bound, feature_bound * feature_bound, target_bound * target_bound]
}

/// Most iterations; each is a factorisation of a d × d matrix.
const ITERATIONS: u32 = 200;

/// The fixed point: q(θ) and q(τ). Noise can make the residual sum of squares negative; it counts as 0 then.
///
/// # Errors
/// The sums belong to another dimension, or give no positive definite precision.
pub fn fit(prior: &Gaussian, precision: Relevance, sums: Sums<'_>) -> Result<(Gaussian, Relevance), InvalidParameters> {
    let mut tau = precision;
    let mut q = prior.clone();
    for _ in 0..ITERATIONS {
        let scale = tau.expected_precision();
        let [first, second] = [sums.first, sums.second].map(|sum| sum.iter().map(|s| scale * s).collect::<Vec<_>>());
        q = m_step(prior, &first, &second)?;
        let Standard::Full(standard) = q.standard() else { return Err(InvalidParameters::Domain("a covariance is needed")) };
        let mean = standard.mean();
        let moment = svec(&(standard.covariance() + mean * mean.transpose()));
        let fitted: f64 = sums.second.iter().zip(&moment).map(|(s, m)| s * m).sum();
        let crossed: f64 = sums.first.iter().zip(mean).map(|(s, m)| s * m).sum();
        let residual = (sums.squares - 2.0 * crossed + fitted).max(0.0);
        let next = Relevance { shape: precision.shape + 0.5 * sums.records, rate: precision.rate + 0.5 * residual };
        let change = (next.expected_precision() / scale - 1.0).abs();
        tau = next;
        if change < 1e-13 {
            break;
        }
    }
    Ok((q, tau))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_math::expfam::any::{Family, Gaussian};
    use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
    use nalgebra::{DMatrix, DVector};

    use super::{Sums, fit};
    use dp_pvi_math::polya_gamma::Relevance;
    use dp_pvi_math::start::uniform;

    /// Both blocks are stationary, the noise is found, and sums that only noise could make give a posterior all the same.
    #[test]
    fn the_fixed_point_is_one_and_finds_the_noise() {
        let (n, d) = (4000, 3);
        let mut state = 9;
        let mut normal = move || (0..12).map(|_| uniform(&mut state)).sum::<f64>() - 6.0;
        let truth = DVector::from_vec(vec![0.7, -1.1, 0.4]);
        let (mut first, mut second, mut squares) = (DVector::zeros(d), DMatrix::zeros(d, d), 0.0);
        for _ in 0..n {
            let x = DVector::from_fn(d, |_, _| normal());
            let y = x.dot(&truth) + 0.5 * normal();
            first += &x * y;
            second += &x * x.transpose();
            squares += y * y;
        }
        let family = Family::FullGaussian { dimension: d };
        let prior = Gaussian::from_natural(family, family.isotropic(0.0, 4.0)).unwrap();
        let start = Relevance { shape: 1.0, rate: 1.0 };
        let packed = svec(&second);
        let sums = Sums { first: first.as_slice(), second: &packed, squares, records: f64::from(n) };
        let (q, tau) = fit(&prior, start, sums).unwrap();
        assert!((tau.expected_precision().recip().sqrt() - 0.5).abs() < 0.02);
        let mean = DVector::from_column_slice(q.standard().mean());
        assert!((&mean - &truth).norm() < 0.05);
        // Λ = Λ0 + E τ S2, to the last digits.
        let expected = DMatrix::identity(d, d) * 0.25 + unsvec(&packed, d) * tau.expected_precision();
        assert!((unsvec(&q.natural()[d..], d) - &expected).norm() < 1e-8 * expected.norm());
        let covariance = expected.try_inverse().unwrap();
        let residual = squares - 2.0 * mean.dot(&first) + (&second * (covariance + &mean * mean.transpose())).trace();
        assert!((tau.rate - 1.0 - 0.5 * residual).abs() < 1e-8 * residual);
        let broken = Sums { squares: -5.0, ..sums };
        let (_, tau) = fit(&prior, start, broken).unwrap();
        assert!(tau.rate >= 1.0 && tau.expected_precision().is_finite());
    }
}
