//! A matrix of second moments that was released with noise, and whose small eigenvalues were raised to a floor.

use nalgebra::{DMatrix, SymmetricEigen};

/// Σ xxᵀ, as it was released.
#[derive(Debug, Clone)]
pub struct Products {
    /// d × d.
    pub matrix: DMatrix<f64>,
    /// Variance of the noise on the entries of its svec.
    pub noise: f64,
    /// The part of the matrix that is not known: eigenvalues that were raised to a floor lie anywhere below it.
    pub raised: DMatrix<f64>,
}

impl Products {
    /// A matrix whose eigenvalues below this floor were raised to it. They are taken for half of it.
    #[must_use]
    pub fn new(matrix: DMatrix<f64>, noise: f64, floor: f64) -> Self {
        let d = matrix.nrows();
        let raised = || -> Option<DMatrix<f64>> {
            let eigen = SymmetricEigen::try_new(matrix.clone(), f64::EPSILON, 1000 * d.max(10))?;
            // As far as rounding goes in a state.
            let limit = floor + 1e-9 * eigen.eigenvalues.max().abs();
            let raised = eigen.eigenvalues.map(|value| if value <= limit { value } else { 0.0 });
            Some(&eigen.eigenvectors * DMatrix::from_diagonal(&raised) * eigen.eigenvectors.transpose())
        };
        let raised = if floor > 0.0 { raised() } else { None };
        match raised {
            Some(raised) => Self { matrix: matrix - 0.5 * &raised, noise, raised },
            None => Self { matrix, noise, raised: DMatrix::zeros(d, d) },
        }
    }

    /// Error variance of an entry due to the floor: at most the variance of eigenvalues that are uniform below it.
    #[must_use]
    pub fn below_floor(&self, i: usize, j: usize) -> f64 {
        self.raised[(i, i)] * self.raised[(j, j)] / 12.0
    }

    /// The same times a number.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        Self { matrix: &self.matrix * factor, noise: self.noise * factor * factor, raised: &self.raised * factor }
    }
}
