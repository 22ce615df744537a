//! A Gaussian likelihood whose h was released with Gaussian noise of known covariance N, combined with a prior:
//!
//! Λ = Λ0 + H (H + N)⁻¹ H,  h = h0 + H (H + N)⁻¹ ĥ.
//!
//! That is Bayes' rule for known H. Without noise it is the plain posterior, under much noise the prior.

use crate::expfam::gaussian::full::{svec, svec_times, unsvec};
use nalgebra::{Cholesky, DMatrix, DVector};

/// Mean field: natural parameters [h; Λ] of the noise-aware posterior from those of the prior and of the released likelihood, and the
/// variance of the noise on every entry of the likelihood's h. A coordinate whose released precision is not positive says nothing:
/// the prior stays.
///
/// # Panics
/// Prior and likelihood do not have twice as many entries as there are variances.
#[must_use]
pub fn diagonal(prior: &[f64], likelihood: &[f64], noise: &[f64]) -> Vec<f64> {
    let d = noise.len();
    assert!(prior.len() == 2 * d && likelihood.len() == 2 * d, "mean-field parameters of another dimension");
    let mut natural = prior.to_vec();
    for (j, variance) in noise.iter().enumerate() {
        let precision = likelihood[d + j];
        if precision > 0.0 {
            let gain = precision / (precision + variance);
            natural[j] += gain * likelihood[j];
            natural[d + j] += gain * precision;
        }
    }
    natural
}

/// Full covariance: as [`diagonal`], with [h; svec Λ] and the covariance of the noise on h. `None` if H + N is not positive definite:
/// floor the released precision first.
///
/// # Panics
/// Blocks of different dimensions.
#[must_use]
pub fn full(prior: &[f64], likelihood: &[f64], noise: &DMatrix<f64>) -> Option<Vec<f64>> {
    let d = noise.nrows();
    let (h, precision) = likelihood.split_at(d);
    assert_eq!(prior.len(), likelihood.len(), "natural parameters of different families");
    let matrix = unsvec(precision, d);
    let factor = Cholesky::new(&matrix + noise)?;
    // H (H + N)⁻¹ H = WᵀW with W = L⁻¹H: symmetric and positive semidefinite whatever the rounding.
    let whitened = factor.l_dirty().solve_lower_triangular(&matrix)?;
    let shift = factor.solve(&DVector::from_column_slice(h));
    let mut natural = prior.to_vec();
    let (mean_block, precision_block) = natural.split_at_mut(d);
    mean_block.iter_mut().zip(svec_times(precision, shift.as_slice())).for_each(|(h, s)| *h += s);
    precision_block.iter_mut().zip(svec(&whitened.tr_mul(&whitened))).for_each(|(l, s)| *l += s);
    Some(natural)
}

/// Variance of the noise on every entry of h when h = Hμ + g is put together from a noisy gradient g at μ and a noisy precision H
/// released as svec: σ_g² + ½σ_H²(‖θ − μ‖² + …), where the error of H acts on the displacement of the posterior from μ.
/// `displacement` is ‖μ_posterior − μ‖² + tr Σ_posterior.
#[must_use]
pub fn statistic_variance(gradient_sd: f64, precision_sd: f64, displacement: f64) -> f64 {
    gradient_sd * gradient_sd + 0.5 * precision_sd * precision_sd * displacement
}
