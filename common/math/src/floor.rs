//! Lower bounds on a precision that noise may have spoilt: of the global posterior after an update, which is
//! post-processing of public values, and of a cavity.

use crate::expfam::any::Family;
use crate::expfam::gaussian::full::{svec, triangle, unsvec};
use nalgebra::{Cholesky, DMatrix, SymmetricEigen};

/// How much of the prior's precision must remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrecisionFloor {
    /// Log-concave likelihoods only add precision: the floor is the prior's, Λ ≥ Λ0.
    LogConcave,
    /// Other models: Λ ≥ ½Λ0.
    General,
    /// A cavity before a local fit: Λ ≥ Λ0/10; its h stays as it is.
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

    /// Whether nothing is below the floor, so that [`apply`](Self::apply) would change nothing and the precision is positive definite.
    /// One comparison a coordinate in a mean field, one Cholesky factorisation with full covariance.
    #[must_use]
    pub fn holds(self, family: Family, prior: &[f64], candidate: &[f64]) -> bool {
        let share = self.share() * (1.0 - SLACK);
        match family {
            // NaN is not above.
            Family::DiagonalGaussian { .. } => candidate.iter().zip(prior).all(|(value, prior)| *value >= share * prior),
            Family::FullGaussian { dimension } => above(dimension, prior, candidate, share),
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
        let share = self.share();
        if above(dimension, prior, candidate, share * (1.0 - SLACK)) {
            return None;
        }
        let (prior, matrix) = (unsvec(prior, dimension), unsvec(candidate, dimension));
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

/// Whether Λ − share·Λ0 is positive definite. The difference is built once, in the lower triangle that the factorisation reads, and
/// factorised in place: at d = 1413 one matrix of 16 MB.
fn above(dimension: usize, prior: &[f64], candidate: &[f64], share: f64) -> bool {
    assert_eq!(candidate.len(), triangle(dimension), "svec of another dimension");
    let mut matrix = DMatrix::zeros(dimension, dimension);
    let mut start = 0;
    for i in 0..dimension {
        // Row i of svec from the diagonal on is column i of the lower triangle, contiguous in memory.
        let row = candidate[start..start + dimension - i].iter().zip(&prior[start..]);
        let mut column = matrix.column_mut(i);
        for (entry, (value, prior)) in column.iter_mut().skip(i).zip(row) {
            *entry = (value - share * prior) * std::f64::consts::FRAC_1_SQRT_2;
        }
        column[i] *= std::f64::consts::SQRT_2;
        start += dimension - i;
    }
    Cholesky::new(matrix).is_some_and(|factor| factor.l_dirty().diagonal().iter().all(|v| v.is_finite()))
}

/// Relative excess below the floor that is put down to rounding.
const SLACK: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use crate::expfam::any::Family;
    use crate::expfam::gaussian::full::svec;
    use nalgebra::DMatrix;
    use proptest::prelude::*;

    use super::PrecisionFloor;

    proptest! {
        /// The cheap check and the eigenvalues agree, whatever the matrices are (rounding aside).
        #[test]
        fn a_floor_holds_iff_nothing_is_raised(
            entries in prop::collection::vec(-2.0..2.0_f64, 25), scale in 0.2..2.0_f64, shift in -2.0..3.0_f64, full in any::<bool>(),
        ) {
            let d = 5;
            let root = DMatrix::from_vec(d, d, entries);
            let prior = DMatrix::identity(d, d) * scale + DMatrix::from_fn(d, d, |i, j| if i + 1 == j || j + 1 == i { 0.05 } else { 0.0 });
            let candidate = (&root + root.transpose()) * 0.3 + &prior * shift;
            let (family, prior, candidate) = if full {
                (Family::FullGaussian { dimension: d }, svec(&prior), svec(&candidate))
            } else {
                (Family::DiagonalGaussian { dimension: d }, prior.diagonal().as_slice().to_vec(), candidate.diagonal().as_slice().to_vec())
            };
            for floor in [PrecisionFloor::LogConcave, PrecisionFloor::General, PrecisionFloor::Cavity] {
                let raised = floor.apply(family, &prior, &candidate);
                prop_assert_eq!(floor.holds(family, &prior, &candidate), raised.is_none());
                if let Some(raised) = raised {
                    let precision: Vec<f64> = raised.precision.iter().map(|l| l * (1.0 + 1e-9)).collect();
                    prop_assert!(full || floor.holds(family, &prior, &precision));
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_is_not_above_a_floor() {
        for bad in [f64::NAN, f64::NEG_INFINITY] {
            assert!(!PrecisionFloor::LogConcave.holds(Family::DiagonalGaussian { dimension: 2 }, &[1.0, 1.0], &[2.0, bad]));
            assert!(!PrecisionFloor::LogConcave.holds(Family::FullGaussian { dimension: 2 }, &[1.0, 0.0, 1.0], &[2.0, bad, 2.0]));
        }
    }
}
