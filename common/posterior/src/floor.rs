//! Lower bounds on a precision that noise may have spoilt (algorithms section 1.6): of the global posterior after an update, which is
//! post-processing of public values, and of a cavity.

use dp_pvi_expfam::any::Family;
use dp_pvi_expfam::gaussian::full::{svec, unsvec};
use nalgebra::{Cholesky, DMatrix, SymmetricEigen};

/// How much of the prior's precision must remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrecisionFloor {
    /// Log-concave likelihoods only add precision: the floor is the prior's, Λ ≥ Λ0.
    LogConcave,
    /// Other models: Λ ≥ ½Λ0.
    General,
    /// A cavity before a local fit: Λ ≥ Λ0/10 (section 1.6(1)); its h stays as it is.
    Cavity,
}

/// Precision parameters after the floor, and in how many directions it was active.
#[derive(Debug, Clone, PartialEq)]
pub struct Floored {
    /// Λ or svec Λ.
    pub precision: Vec<f64>,
    /// Number of coordinates (mean field) or eigenvectors (full covariance) that were raised.
    pub directions: usize,
}

impl PrecisionFloor {
    fn share(self) -> f64 {
        match self {
            Self::LogConcave => 1.0,
            Self::General => 0.5,
            Self::Cavity => 0.1,
        }
    }

    /// Raises the precision block of a candidate to the floor: coordinate by coordinate in a mean field; over the eigenvalues of
    /// Λ0^{-1/2} Λ Λ0^{-1/2} with full covariance. Rounding (a relative 1e-12) is no violation. `prior` and `candidate` are precision
    /// blocks; the prior's must be positive definite.
    ///
    /// Returns `None` when nothing was below the floor.
    #[must_use]
    pub fn apply(self, family: Family, prior: &[f64], candidate: &[f64]) -> Option<Floored> {
        match family {
            Family::DiagonalGaussian { .. } => self.diagonal(prior, candidate),
            Family::FullGaussian { dimension } => self.full(dimension, prior, candidate),
        }
    }

    fn diagonal(self, prior: &[f64], candidate: &[f64]) -> Option<Floored> {
        let mut directions = 0;
        let raise = |(&value, &prior): (&f64, &f64)| {
            let floor = self.share() * prior;
            if value < floor * (1.0 - SLACK) {
                directions += 1;
                floor
            } else {
                value
            }
        };
        let precision = candidate.iter().zip(prior).map(raise).collect();
        (directions > 0).then_some(Floored { precision, directions })
    }

    fn full(self, dimension: usize, prior: &[f64], candidate: &[f64]) -> Option<Floored> {
        let (prior, matrix) = (unsvec(prior, dimension), unsvec(candidate, dimension));
        let share = self.share();
        // The usual case is cheap: Λ − (1 − slack)·share·Λ0 is positive definite.
        if Cholesky::new(&matrix - &prior * (share * (1.0 - SLACK))).is_some() {
            return None;
        }
        let root = Cholesky::new(prior)?.unpack();
        let half = root.solve_lower_triangular(&matrix)?;
        let whitened = root.solve_lower_triangular(&half.transpose())?;
        let whitened = (&whitened + whitened.transpose()) * 0.5;
        // A bound on the iterations: values of wild magnitude may not converge, and then nothing is raised (the caller checks).
        let eigen = SymmetricEigen::try_new(whitened, f64::EPSILON, 100 * dimension.max(10))?;
        let directions = eigen.eigenvalues.iter().filter(|&&e| e < share * (1.0 - SLACK)).count();
        if directions == 0 {
            return None;
        }
        let basis = root * &eigen.eigenvectors;
        let raised = DMatrix::from_diagonal(&eigen.eigenvalues.map(|e| e.max(share)));
        Some(Floored { precision: svec(&(&basis * raised * basis.transpose())), directions })
    }
}

/// Relative excess below the floor that is put down to rounding.
const SLACK: f64 = 1e-12;
