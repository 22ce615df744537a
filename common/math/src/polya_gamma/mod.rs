//! Bayesian logistic regression with Pólya–Gamma augmentation, public side: expectations of the augmentation
//! variables, M-step, automatic relevance determination, and what noise does to both.
//!
//! With ω_i ~ PG(1, c_i) the likelihood of y_i is Gaussian in θ: statistics Σ x_i(y_i − ½), which does not depend on the posterior,
//! and S2 = Σ E ω_i x_i x_iᵀ. M-step: Λ = Λ0 + S2, h = Λ0 m0 + Σ x_i(y_i − ½).

#[cfg(test)]
mod tests;

use crate::expfam::any::{Family, Gaussian};
use crate::expfam::gaussian::full::{svec, unsvec};
use crate::expfam::{ExponentialFamily, InvalidParameters, gaussian};
use nalgebra::{Cholesky, DMatrix, SymmetricEigen};
use serde::{Deserialize, Serialize};

use crate::noisy_likelihood;

/// E ω = tanh(c/2)/(2c) of PG(1, c), in (0, ¼]; a series near 0.
#[inline]
#[must_use]
pub fn mean(c: f64) -> f64 {
    let c = c.abs();
    if c < 0.05 {
        let q = c * c;
        return 0.25 - q * (1.0 / 48.0 - q * (1.0 / 480.0 - q * 17.0 / 80_640.0));
    }
    // tanh(c/2) with the one exponential that it needs.
    let e = (-c).exp();
    (1.0 - e) / ((1.0 + e) * 2.0 * c)
}

/// Argument c of the optimal q(ω) for a linear predictor with this mean and variance under q: √E (xᵀθ)².
#[inline]
#[must_use]
pub fn tilt(mean: f64, variance: f64) -> f64 {
    mean.hypot(variance.max(0.0).sqrt())
}

/// One record's share of the lower bound at its own c: ln σ(c) + (y−½) E xᵀθ − c/2. The bound is the sum of these minus KL(q‖prior).
#[must_use]
pub fn bound(target: f64, mean: f64, variance: f64) -> f64 {
    let c = tilt(mean, variance);
    // ln σ(c) = −ln(1 + e^{−c}) for c ≥ 0.
    (target - 0.5) * mean - 0.5 * c - (-c).exp().ln_1p()
}

/// Norm bounds of one record's two statistics for ‖x‖ ≤ R: ‖x(y−½)‖ ≤ R/2 and ‖svec E ω xxᵀ‖ ≤ R²/4.
#[must_use]
pub fn sensitivities(feature_bound: f64) -> [f64; 2] {
    [0.5 * feature_bound, 0.25 * feature_bound * feature_bound]
}

/// M-step: the Gaussian with Λ = Λ0 + S2 and h = h0 + s1. `second` is svec S2, which must be positive semi-definite (see
/// [`noise_floor`]).
///
/// # Errors
/// Other lengths, or a precision that is not positive definite.
pub fn m_step(prior: &Gaussian, first: &[f64], second: &[f64]) -> Result<Gaussian, InvalidParameters> {
    let dimension = prior.family().dimension();
    let full = gaussian::full::Full { dimension };
    if first.len() + second.len() != full.len() || first.len() != dimension {
        return Err(InvalidParameters::Length { expected: full.len(), found: first.len() + second.len() });
    }
    let sum = |(a, b): (&f64, &f64)| a + b;
    let natural = prior.natural().iter().zip(first.iter().chain(second)).map(sum).collect();
    Gaussian::from_natural(Family::FullGaussian { dimension }, natural)
}

/// A released S2 whose eigenvalues were raised to the level of its noise.
#[derive(Debug, Clone, PartialEq)]
pub struct RaisedStatistic {
    /// svec S2.
    pub second: Vec<f64>,
    /// Number of eigenvalues that were raised.
    pub directions: usize,
}

/// Raises eigenvalues of a released svec S2 below ½ s √(d/2) to that level, where s is the noise's standard deviation per svec
/// coordinate. Without noise that is the projection onto positive semi-definite matrices.
///
/// A floor near zero, as published, leaves directions in which Λ ≈ Λ0 while h is large with noise: the mean explodes there.
///
/// # Panics
/// `second` is no svec of dimension `dimension`.
#[must_use]
pub fn noise_floor(second: &[f64], dimension: usize, noise_sd: f64) -> RaisedStatistic {
    #[allow(clippy::cast_precision_loss, reason = "a dimension")]
    let level = 0.5 * noise_sd * (0.5 * dimension as f64).sqrt();
    raise_to(second, dimension, level)
}

/// Raises all eigenvalues below `level` to it. Of a statistic that is not finite nothing but the floor is left.
///
/// # Panics
/// `second` is no svec of dimension `dimension`.
#[must_use]
pub fn raise_to(second: &[f64], dimension: usize, level: f64) -> RaisedStatistic {
    if !second.iter().all(|v| v.is_finite()) {
        let floor = DMatrix::identity(dimension, dimension) * level;
        return RaisedStatistic { second: svec(&floor), directions: dimension };
    }
    let matrix = unsvec(second, dimension);
    let unchanged = || RaisedStatistic { second: second.to_vec(), directions: 0 };
    // The usual case is cheap.
    if Cholesky::new(&matrix - DMatrix::identity(dimension, dimension) * level).is_some() {
        return unchanged();
    }
    let Some(eigen) = SymmetricEigen::try_new(matrix, f64::EPSILON, 100 * dimension.max(10)) else {
        // Magnitudes for which the iteration does not end: the caller's Cholesky factorisation decides.
        return unchanged();
    };
    let directions = eigen.eigenvalues.iter().filter(|&&e| e < level).count();
    if directions == 0 {
        return unchanged();
    }
    let raised = DMatrix::from_diagonal(&eigen.eigenvalues.map(|e| e.max(level)));
    RaisedStatistic { second: svec(&(&eigen.eigenvectors * raised * eigen.eigenvectors.transpose())), directions }
}

/// q(α) = Gamma(shape, rate) of the common precision of all coefficients (automatic relevance determination).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relevance {
    /// a.
    pub shape: f64,
    /// b.
    pub rate: f64,
}

impl Relevance {
    /// E α = a/b.
    #[must_use]
    pub fn expected_precision(&self) -> f64 {
        self.shape / self.rate
    }

    /// The update after q(θ) moved: a = a0 + d/2, b = b0 + ½(‖μ‖² + tr Σ); `self` is the prior. Post-processing: free.
    #[must_use]
    pub fn updated(&self, posterior: &Gaussian) -> Self {
        let standard = posterior.standard();
        let square: f64 = standard.mean().iter().map(|m| m * m).chain(standard.variances()).sum();
        #[allow(clippy::cast_precision_loss, reason = "a dimension")]
        let d = posterior.family().dimension() as f64;
        Self { shape: self.shape + 0.5 * d, rate: self.rate + 0.5 * square }
    }
}

/// Posterior that knows the noise of what it was computed from ([`noisy_likelihood`]): with the likelihood's released s1 and S2
/// (S2 raised to its noise level), θ̂ = S2⁻¹ s1 has covariance S2⁻¹ + S2⁻¹ N S2⁻¹, where N = (σ₁² + ½σ₂²(‖μ − a‖² + tr Σ)) I is the noise of
/// s1 plus that of S2 at the displacement of the posterior `naive` from the point a = `centre` about which s1 was released; combined
/// with the prior.
///
/// # Errors
/// S2 is not positive definite.
pub fn noise_aware_posterior(
    prior: &Gaussian,
    naive: &Gaussian,
    centre: &[f64],
    first: &[f64],
    second: &[f64],
    noise_sds: [f64; 2],
) -> Result<Gaussian, InvalidParameters> {
    let dimension = prior.family().dimension();
    let standard = naive.standard();
    let moved = standard.mean().iter().zip(centre).map(|(m, a)| (m - a) * (m - a));
    let displacement: f64 = moved.chain(standard.variances()).sum();
    let variance = noisy_likelihood::statistic_variance(noise_sds[0], noise_sds[1], displacement);
    let likelihood = [first, second].concat();
    let noise = DMatrix::identity(dimension, dimension) * variance;
    let natural = noisy_likelihood::full(prior.natural(), &likelihood, &noise)
        .ok_or(InvalidParameters::Domain("the curvature is not positive semi-definite"))?;
    Gaussian::from_natural(Family::FullGaussian { dimension }, natural)
}
