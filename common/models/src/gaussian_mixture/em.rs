//! The M-step of DP-EM: weights, means and covariances from one released sum.
//!
//! A record x with responsibilities r contributes u = (a·r, b·r⊗x, c·r⊗svec(xxᵀ)), one vector of J(1 + D + D(D+1)/2) entries, of norm
//! ‖r‖ √(a² + b²‖x‖² + c²‖x‖⁴) ≤ √(a² + b²R² + c²R⁴) for ‖x‖ ≤ R. All three statistics are **one** release: a minibatch's coins and a full batch's
//! budget are shared by them. What follows is post-processing.

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::gaussian::full::{svec, triangle, unsvec};
use nalgebra::{DMatrix, DVector, SymmetricEigen};

use super::Density;

/// Smallest count of a component: below, noise would be divided by noise.
const SMALLEST_COUNT: f64 = 1.0;
/// Smallest eigenvalue of a covariance, as a share of R².
const SMALLEST_EIGENVALUE: f64 = 1e-3;

/// Factors a, b, c on the three statistics inside the joint release.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// Of the responsibilities.
    pub weight: f64,
    /// Of the first moments.
    pub mean: f64,
    /// Of the second moments.
    pub second: f64,
}

impl Scales {
    /// Scales for points of norm at most `bound` that give all three statistics the same share of the joint sensitivity.
    #[must_use]
    pub fn balanced(bound: f64) -> Self {
        Self { weight: 1.0, mean: 1.0 / bound, second: 1.0 / (bound * bound) }
    }

    /// √(a² + b²R² + c²R⁴): no record's term is longer.
    #[must_use]
    pub fn sensitivity(&self, bound: f64) -> f64 {
        (self.weight * self.weight + (self.mean * bound).powi(2) + (self.second * bound * bound).powi(2)).sqrt()
    }
}

/// Number of entries of the statistics of J components in D dimensions.
#[must_use]
pub fn statistics_len(components: usize, dimension: usize) -> usize {
    components * (1 + dimension + triangle(dimension))
}

/// Adds the scaled statistics of a point with these responsibilities to `out`.
///
/// # Panics
/// `out` does not have [`statistics_len`] entries.
pub fn add_statistics(scales: &Scales, x: &[f64], responsibilities: &[f64], out: &mut [f64]) {
    let (components, d) = (responsibilities.len(), x.len());
    assert_eq!(out.len(), statistics_len(components, d), "statistics of another shape");
    let (counts, rest) = out.split_at_mut(components);
    let (means, seconds) = rest.split_at_mut(components * d);
    for (j, r) in responsibilities.iter().enumerate() {
        counts[j] += scales.weight * r;
        means[j * d..(j + 1) * d].iter_mut().zip(x).for_each(|(sum, x)| *sum += scales.mean * r * x);
        let mut entries = seconds[j * triangle(d)..].iter_mut();
        for (i, a) in x.iter().enumerate() {
            for (k, b) in x.iter().enumerate().skip(i) {
                let Some(sum) = entries.next() else { return };
                *sum += scales.second * r * a * b * if i == k { 1.0 } else { std::f64::consts::SQRT_2 };
            }
        }
    }
}

/// A mixture as maximum likelihood sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    /// Weights, positive, of sum 1.
    pub weights: Vec<f64>,
    /// Means.
    pub means: Vec<DVector<f64>>,
    /// Covariances.
    pub covariances: Vec<DMatrix<f64>>,
}

impl Mixture {
    /// Equal weights, these means, and covariance `variance`·I.
    #[must_use]
    pub fn start(means: Vec<DVector<f64>>, variance: f64) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "a number of components is far below 2^52")]
        let share = 1.0 / means.len() as f64;
        let covariance = |m: &DVector<f64>| DMatrix::from_diagonal_element(m.len(), m.len(), variance);
        Self { weights: vec![share; means.len()], covariances: means.iter().map(covariance).collect(), means }
    }

    /// The mixture's density and responsibilities.
    ///
    /// # Errors
    /// A covariance is not positive definite (never after [`m_step`]).
    pub fn density(&self) -> Result<Density, InvalidParameters> {
        let parts = self.weights.iter().zip(&self.means).zip(&self.covariances);
        Density::new(parts.map(|((w, m), c)| (*w, m.clone(), c.clone())))
    }
}

/// Weights, means and covariances from a (noisy) sum of statistics. N_k = max(Ñ_k, 1), mean S_k/N_k, covariance Q_k/N_k − mmᵀ with eigenvalues of at
/// least 10⁻³R²; means are drawn back to norm R, weights renormalised. Total: any finite sum gives a mixture.
///
/// # Panics
/// `sum` does not have [`statistics_len`] entries.
#[must_use]
pub fn m_step(scales: &Scales, sum: &[f64], components: usize, dimension: usize, bound: f64) -> Mixture {
    assert_eq!(sum.len(), statistics_len(components, dimension), "statistics of another shape");
    let (counts, rest) = sum.split_at(components);
    let (means, seconds) = rest.split_at(components * dimension);
    let counts: Vec<f64> = counts.iter().map(|n| (n / scales.weight).max(SMALLEST_COUNT)).collect();
    let total: f64 = counts.iter().sum();
    let mut mixture = Mixture { weights: counts.iter().map(|n| n / total).collect(), means: Vec::new(), covariances: Vec::new() };
    for (k, n) in counts.iter().enumerate() {
        let mut mean = DVector::from_column_slice(&means[k * dimension..(k + 1) * dimension]) / (scales.mean * n);
        // No mean of points of norm at most R is longer than R.
        let norm = mean.norm();
        if norm > bound {
            mean *= bound / norm;
        }
        let second = unsvec(&seconds[k * triangle(dimension)..(k + 1) * triangle(dimension)], dimension) / (scales.second * n);
        mixture.covariances.push(raised(second - &mean * mean.transpose(), SMALLEST_EIGENVALUE * bound * bound));
        mixture.means.push(mean);
    }
    mixture
}

/// The symmetric matrix with its eigenvalues raised to `floor`.
fn raised(matrix: DMatrix<f64>, floor: f64) -> DMatrix<f64> {
    let SymmetricEigen { eigenvectors, eigenvalues } = SymmetricEigen::new(matrix);
    let values = eigenvalues.map(|value| value.max(floor));
    let result = &eigenvectors * DMatrix::from_diagonal(&values) * eigenvectors.transpose();
    // Exactly symmetric, for a Cholesky factorisation that reads one triangle.
    unsvec(&svec(&result), result.nrows())
}
