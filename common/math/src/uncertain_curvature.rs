//! Coefficients from a gradient and a curvature that are both known with errors.
//!
//! The gradient g at a point μ and the curvature H were released with noise. With δ = θ − μ the residual r = g − Hδ has the covariance
//!
//! S(δ) = H + N + E(δδᵀ),
//!
//! where H is that of the records' own scores, N that of the gradient's noise, and E that of the errors of H on δ ([`error`]). E grows with the distance from μ,
//! so the size of the residual carries information on θ as well. [`UncertainCurvature::mode`] maximises
//!
//! ℓ(θ) = −½ rᵀS⁻¹r − ½ log det S − ½ (θ − m0)ᵀΛ0(θ − m0).
//!
//! Source: this project; a regression with errors in its variables whose error variances are known.

use crate::expfam::gaussian::full::unsvec;
use nalgebra::{Cholesky, DMatrix, DVector, Dyn, SymmetricEigen};

/// Steps at most, and halvings of a step.
const STEPS: usize = 30;
const HALVINGS: usize = 20;

/// Steps end where the next one would raise ℓ by less than this: about 4e-7 posterior standard deviations from the maximum.
const PRECISE: f64 = 1e-13;

/// Covariance of Δv for a symmetric Δ with independent entries of these variances on and above its diagonal, and a v with second moments Q: entry
/// (i, i) is Σ_j V_ij Q_jj, entry (i, j) is V_ij Q_ij.
///
/// # Panics
/// Matrices of different dimensions.
#[must_use]
pub fn error(variances: &DMatrix<f64>, square: &DMatrix<f64>) -> DMatrix<f64> {
    let mut error = variances.component_mul(square);
    error.set_diagonal(&(variances * square.diagonal()));
    error
}

/// Covariance of an error of a gradient that is Hw along a way w, and in other coordinates what Cauchy and Schwarz's bound leaves to them, as a mean.
///
/// # Panics
/// A way of another dimension.
#[must_use]
pub fn error_along(way: &DVector<f64>, curvature: &DMatrix<f64>) -> DMatrix<f64> {
    let along = curvature * way;
    #[allow(clippy::cast_precision_loss, reason = "a dimension")]
    let share = along.dot(way).max(0.0) / way.len() as f64;
    &along * along.transpose() + DMatrix::from_diagonal(&(curvature.diagonal() * share))
}

/// A symmetric matrix with its negative eigenvalues at 0. `None` where they are not found, as for numbers that are not finite.
#[must_use]
pub fn without_negative_eigenvalues(matrix: DMatrix<f64>) -> Option<DMatrix<f64>> {
    let limit = 1000 * matrix.nrows().max(10);
    let eigen = SymmetricEigen::try_new(matrix, f64::EPSILON, limit)?;
    Some(&eigen.eigenvectors * DMatrix::from_diagonal(&eigen.eigenvalues.map(|e| e.max(0.0))) * eigen.eigenvectors.transpose())
}

/// Variances of the noise on the entries of a matrix, from the variances of the noise on its svec: the svec multiplies entries off the diagonal by √2 before noise is added.
#[must_use]
pub fn variances_of_entries(svec: &DVector<f64>, dimension: usize) -> DMatrix<f64> {
    // unsvec divides entries off the diagonal by √2.
    let matrix = unsvec(svec.as_slice(), dimension);
    DMatrix::from_fn(dimension, dimension, |i, j| if i == j { matrix[(i, j)] } else { std::f64::consts::FRAC_1_SQRT_2 * matrix[(i, j)] })
}

/// The part of a symmetric matrix whose eigenvalues exceed a limit. `Some(None)` if no eigenvalue does, which one factorisation shows. `None` if the eigenvalues are not found.
#[must_use]
pub fn above(matrix: DMatrix<f64>, limit: f64) -> Option<Option<DMatrix<f64>>> {
    let d = matrix.nrows();
    if Cholesky::new(DMatrix::identity(d, d) * limit - &matrix).is_some() {
        return Some(None);
    }
    let eigen = SymmetricEigen::try_new(matrix, f64::EPSILON, 1000 * d.max(10))?;
    let kept = eigen.eigenvalues.map(|value| if value > limit { value } else { 0.0 });
    Some(Some(&eigen.eigenvectors * DMatrix::from_diagonal(&kept) * eigen.eigenvectors.transpose()))
}

/// What is known of a likelihood near a point.
#[derive(Debug, Clone)]
pub struct UncertainCurvature<'a> {
    /// μ.
    pub reference: &'a DVector<f64>,
    /// g at μ.
    pub gradient: &'a DVector<f64>,
    /// H, positive semidefinite.
    pub curvature: &'a DMatrix<f64>,
    /// N.
    pub noise: &'a DMatrix<f64>,
    /// Variances of the errors of the entries of H.
    pub variances: &'a DMatrix<f64>,
    /// m0.
    pub prior_mean: &'a DVector<f64>,
    /// The diagonal of Λ0.
    pub prior_precision: &'a DVector<f64>,
}

/// A θ with its log density.
#[derive(Debug, Clone)]
pub struct Found {
    /// θ.
    pub theta: DVector<f64>,
    /// ℓ(θ). Plus ½ log det Λ0, minus ½ log det of the [`precision`](UncertainCurvature::precision), it is Laplace's approximation of the log marginal likelihood
    /// of the released values under this prior, up to a constant.
    pub value: f64,
}

/// ℓ at a θ, with the factor that the next step uses.
struct At {
    theta: DVector<f64>,
    value: f64,
    factor: Cholesky<f64, Dyn>,
}

impl UncertainCurvature<'_> {
    /// S at a θ.
    #[must_use]
    pub fn covariance(&self, theta: &DVector<f64>) -> DMatrix<f64> {
        let distance = theta - self.reference;
        self.curvature + self.noise + error(self.variances, &(&distance * distance.transpose()))
    }

    /// Λ0 + H S⁻¹ H for a given S: the precision if the covariance of the residual were known.
    ///
    /// `None` where S is not positive definite.
    #[must_use]
    pub fn precision(&self, covariance: DMatrix<f64>) -> Option<DMatrix<f64>> {
        Some(self.precision_by(&Cholesky::new(covariance)?))
    }

    /// The θ with the largest ℓ that steps uphill from `starts` find. Where H is hardly known, ℓ can have a maximum near μ and one where the residual is small.
    ///
    /// A start costs about 50 ms at 128 coefficients and 4.5 s at 512 (`cargo bench -p dp-pvi-math --bench uncertain_curvature`).
    ///
    /// `None` where S(δ) is not positive definite, as for numbers that are not finite, or without a start.
    #[must_use]
    pub fn mode(&self, starts: &[DVector<f64>]) -> Option<Found> {
        let found = starts.iter().filter_map(|start| self.climb(start));
        found.max_by(|a, b| a.value.total_cmp(&b.value)).map(|at| Found { theta: at.theta, value: at.value })
    }

    /// θ where H and S at θ = `near` are taken for exact: Bayes' rule for a Gaussian.
    ///
    /// `None` where S is not positive definite.
    #[must_use]
    pub fn gaussian(&self, near: &DVector<f64>) -> Option<Found> {
        let factor = Cholesky::new(self.covariance(near))?;
        let weighted = self.curvature * factor.solve(&(self.gradient + self.curvature * self.reference));
        let theta = Cholesky::new(self.precision_by(&factor))?.solve(&(weighted + self.prior_mean.component_mul(self.prior_precision)));
        let value = self.value(&theta, &factor);
        Some(Found { theta, value })
    }

    /// Steps uphill, each halved until ℓ does not fall.
    fn climb(&self, start: &DVector<f64>) -> Option<At> {
        let mut at = self.at(start.clone())?;
        for _ in 0..STEPS {
            let (step, promised) = self.step(&at)?;
            if promised < PRECISE {
                break;
            }
            let higher = (0..HALVINGS)
                .filter_map(|halvings| self.at(&at.theta + &step * 0.5_f64.powi(i32::try_from(halvings).ok()?)))
                .find(|next| next.value >= at.value);
            let Some(next) = higher else { break };
            at = next;
        }
        Some(at)
    }

    fn at(&self, theta: DVector<f64>) -> Option<At> {
        let factor = Cholesky::new(self.covariance(&theta))?;
        let value = self.value(&theta, &factor);
        value.is_finite().then_some(At { theta, value, factor })
    }

    /// ℓ for an S.
    fn value(&self, theta: &DVector<f64>, covariance: &Cholesky<f64, Dyn>) -> f64 {
        let residual = self.residual(theta);
        let half_log_determinant: f64 = covariance.l_dirty().diagonal().iter().map(|entry| entry.ln()).sum();
        let from_prior = theta - self.prior_mean;
        let from_prior = from_prior.component_mul(self.prior_precision).dot(&from_prior);
        -0.5 * residual.dot(&covariance.solve(&residual)) - half_log_determinant - 0.5 * from_prior
    }

    fn residual(&self, theta: &DVector<f64>) -> DVector<f64> {
        self.gradient - self.curvature * (theta - self.reference)
    }

    fn precision_by(&self, factor: &Cholesky<f64, Dyn>) -> DMatrix<f64> {
        let mut whitened = self.curvature.clone();
        // A factor of a positive definite matrix has no 0 on its diagonal.
        factor.l_dirty().solve_lower_triangular_mut(&mut whitened);
        let mut precision = whitened.tr_mul(&whitened);
        (0..precision.nrows()).for_each(|j| precision[(j, j)] += self.prior_precision[j]);
        precision
    }

    /// A step uphill, (Λ0 + H S⁻¹ H + K)⁻¹ ∇ℓ, and by how much it would raise a parabola. With u = S⁻¹r the gradient is Hu + (B − K)δ − Λ0(θ − m0). B is [`error`] of the
    /// variances and uuᵀ, K that of the variances and S⁻¹, which is the mean of B.
    fn step(&self, at: &At) -> Option<(DVector<f64>, f64)> {
        let distance = &at.theta - self.reference;
        let u = at.factor.solve(&self.residual(&at.theta));
        let restoring = error(self.variances, &at.factor.inverse());
        let pulling = error(self.variances, &(&u * u.transpose()));
        let prior = (&at.theta - self.prior_mean).component_mul(self.prior_precision);
        let gradient = self.curvature * u + (pulling - &restoring) * distance - prior;
        let step = Cholesky::new(self.precision_by(&at.factor) + restoring)?.solve(&gradient);
        let promised = 0.5 * step.dot(&gradient);
        Some((step, promised))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{UncertainCurvature, error};
    use nalgebra::{DMatrix, DVector};

    #[test]
    fn errors_act_on_a_vector() {
        let (variances, v) = (DMatrix::from_row_slice(2, 2, &[2.0, 4.0, 4.0, 0.5]), DVector::from_vec(vec![1.0, 3.0]));
        // Δv = (a + 3c, c + 3b) with Var a = 2, Var b = 0.5, Var c = 4.
        let got = error(&variances, &(&v * v.transpose()));
        assert!((got - DMatrix::from_row_slice(2, 2, &[38.0, 12.0, 12.0, 8.5])).norm() < 1e-12);
    }

    fn curvature() -> DMatrix<f64> {
        DMatrix::from_row_slice(3, 3, &[60.0, 10.0, -5.0, 10.0, 40.0, 2.0, -5.0, 2.0, 20.0])
    }

    /// A curvature that is known leaves Bayes' rule for a Gaussian.
    #[test]
    fn without_errors_it_is_the_mean_of_the_gaussian_posterior() {
        let (reference, gradient) = (DVector::from_vec(vec![1.0, -1.0, 0.5]), DVector::from_vec(vec![-30.0, 12.0, 8.0]));
        let (noise, none) = (DMatrix::identity(3, 3) * 15.0, DMatrix::zeros(3, 3));
        let known = curvature();
        let likelihood = UncertainCurvature {
            reference: &reference,
            gradient: &gradient,
            curvature: &known,
            noise: &noise,
            variances: &none,
            prior_mean: &DVector::from_element(3, 0.2),
            prior_precision: &DVector::from_element(3, 0.5),
        };
        let weight = &known * (&known + &noise).try_inverse().unwrap();
        let precision = &weight * &known + DMatrix::identity(3, 3) * 0.5;
        let expected =
            precision.clone().try_inverse().unwrap() * (&weight * (&gradient + &known * &reference) + DVector::from_element(3, 0.1));
        assert!((likelihood.mode(&[DVector::zeros(3)]).unwrap().theta - &expected).norm() < 1e-9);
        assert!((likelihood.gaussian(&reference).unwrap().theta - &expected).norm() < 1e-9);
        assert!((likelihood.precision(likelihood.covariance(&expected)).unwrap() - precision).norm() < 1e-9);
    }

    /// With errors: no coordinate's difference quotient of ℓ, written out, is other than 0.
    #[test]
    fn with_errors_it_is_a_maximum() {
        let (reference, gradient) = (DVector::from_vec(vec![1.0, -1.0, 0.5]), DVector::from_vec(vec![-30.0, 12.0, 8.0]));
        let (noise, known) = (DMatrix::identity(3, 3) * 15.0, curvature());
        let variances = DMatrix::from_row_slice(3, 3, &[90.0, 40.0, 10.0, 40.0, 120.0, 0.0, 10.0, 0.0, 60.0]);
        let likelihood = UncertainCurvature {
            reference: &reference,
            gradient: &gradient,
            curvature: &known,
            noise: &noise,
            variances: &variances,
            prior_mean: &DVector::from_element(3, 0.2),
            prior_precision: &DVector::from_element(3, 0.5),
        };
        let value = |theta: &DVector<f64>| {
            let distance = theta - &reference;
            let mut spread = &known + &noise;
            for (i, j) in (0..3).flat_map(|i| (i..3).map(move |j| (i, j))) {
                let mut unit = DMatrix::zeros(3, 3);
                (unit[(i, j)], unit[(j, i)]) = (variances[(i, j)].sqrt(), variances[(i, j)].sqrt());
                let moved = unit * &distance;
                spread += &moved * moved.transpose();
            }
            let residual = &gradient - &known * &distance;
            let prior = 0.5 * theta.add_scalar(-0.2).norm_squared();
            -0.5 * residual.dot(&(spread.clone().try_inverse().unwrap() * &residual)) - 0.5 * spread.determinant().ln() - 0.5 * prior
        };
        let mode = likelihood.mode(std::slice::from_ref(&reference)).unwrap().theta;
        for j in 0..3 {
            let mut step = DVector::zeros(3);
            step[j] = 1e-4;
            let (up, down) = (value(&(&mode + &step)), value(&(&mode - &step)));
            assert!(((up - down) / 2e-4).abs() < 1e-2, "{} {}", up, down);
            assert!(value(&mode) >= up.max(down) - 1e-6);
        }
    }

    #[test]
    fn numbers_that_are_not_finite_have_no_mode() {
        let (reference, gradient) = (DVector::zeros(1), DVector::from_element(1, f64::NAN));
        let one = DMatrix::identity(1, 1);
        let likelihood = UncertainCurvature {
            reference: &reference,
            gradient: &gradient,
            curvature: &one,
            noise: &one,
            variances: &one,
            prior_mean: &DVector::from_element(1, 0.0),
            prior_precision: &DVector::from_element(1, 1.0),
        };
        assert!(likelihood.mode(&[DVector::zeros(1)]).is_none());
    }

    /// A curvature that is hardly known: from μ the steps end beside it, and a start where the residual is small finds the higher maximum.
    #[test]
    fn of_two_maxima_the_higher_one_is_found() {
        let one = |value: f64| DMatrix::from_element(1, 1, value);
        let (reference, gradient) = (DVector::from_element(1, -5.44), DVector::from_element(1, -164.0));
        let (curvature, noise, variances) = (one(166.0), one(45.0), one(59.5 * 59.5));
        let likelihood = UncertainCurvature {
            reference: &reference,
            gradient: &gradient,
            curvature: &curvature,
            noise: &noise,
            variances: &variances,
            prior_mean: &DVector::from_element(1, 0.0),
            prior_precision: &DVector::from_element(1, 3.7),
        };
        let starts = [reference.clone(), DVector::zeros(1), likelihood.gaussian(&reference).unwrap().theta];
        let (near, found) = (likelihood.mode(&starts[..1]).unwrap().theta[0], likelihood.mode(&starts).unwrap().theta[0]);
        assert!(near < -5.0 && found.abs() < 1.0, "{near} {found}");
    }
}
