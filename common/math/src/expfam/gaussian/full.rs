//! Gaussian with full covariance: Cholesky factorisations only, symmetric after every step.

use nalgebra::{Cholesky, DMatrix, DVector};

use super::LN_TWO_PI;
use super::diagonal::dot;
use crate::expfam::{ExponentialFamily, InvalidParameters, check};

/// The family of N(μ, Σ) over `dimension` coordinates: natural parameters [h; svec Λ], mean parameters [μ; svec(Σ + μμᵀ)].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// Number of coordinates d.
    pub dimension: usize,
}

/// Mean, covariance and precision.
#[derive(Debug, Clone, PartialEq)]
pub struct Standard {
    mean: DVector<f64>,
    covariance: DMatrix<f64>,
    precision: DMatrix<f64>,
    log_det_precision: f64,
}

impl Standard {
    /// N(mean, covariance); the covariance is symmetrised first.
    ///
    /// # Errors
    /// Different sizes, an entry that is not finite, or a covariance that is not positive definite.
    pub fn new(mean: DVector<f64>, covariance: DMatrix<f64>) -> Result<Self, InvalidParameters> {
        check(mean.as_slice(), mean.len())?;
        check(covariance.as_slice(), mean.len() * mean.len())?;
        let covariance = symmetrised(covariance);
        let factor = Cholesky::new(covariance.clone()).ok_or(InvalidParameters::Domain("the covariance is not positive definite"))?;
        let precision = symmetrised(factor.inverse());
        Ok(Self { mean, covariance, precision, log_det_precision: -log_det(&factor) })
    }

    /// μ.
    #[must_use]
    pub fn mean(&self) -> &DVector<f64> {
        &self.mean
    }

    /// Σ.
    #[must_use]
    pub fn covariance(&self) -> &DMatrix<f64> {
        &self.covariance
    }

    /// Λ = Σ⁻¹.
    #[must_use]
    pub fn precision(&self) -> &DMatrix<f64> {
        &self.precision
    }
}

/// Upper triangle of a symmetric matrix row by row, off-diagonal entries times √2: ‖svec A‖₂ = ‖A‖_F.
///
/// # Panics
/// The matrix is not square.
#[must_use]
pub fn svec(matrix: &DMatrix<f64>) -> Vec<f64> {
    let d = matrix.nrows();
    assert_eq!(d, matrix.ncols(), "svec of a matrix that is not square");
    let mut out = Vec::with_capacity(triangle(d));
    for i in 0..d {
        out.push(matrix[(i, i)]);
        out.extend((i + 1..d).map(|j| 0.5 * (matrix[(i, j)] + matrix[(j, i)]) * std::f64::consts::SQRT_2));
    }
    out
}

/// The symmetric d×d matrix of an [`svec`].
///
/// # Panics
/// `values` does not have d(d+1)/2 entries.
#[must_use]
pub fn unsvec(values: &[f64], d: usize) -> DMatrix<f64> {
    assert_eq!(values.len(), triangle(d), "svec of another dimension");
    let mut out = DMatrix::zeros(d, d);
    let mut rest = values.iter();
    for i in 0..d {
        for (j, &value) in (i..d).zip(rest.by_ref().take(d - i)) {
            let entry = if i == j { value } else { value / std::f64::consts::SQRT_2 };
            out[(i, j)] = entry;
            out[(j, i)] = entry;
        }
    }
    out
}

/// The product of the symmetric matrix of an [`svec`] with a vector, without building the matrix.
///
/// # Panics
/// `values` does not have d(d+1)/2 entries for the vector's d.
#[must_use]
pub fn svec_times(values: &[f64], vector: &[f64]) -> Vec<f64> {
    let d = vector.len();
    assert_eq!(values.len(), triangle(d), "svec of another dimension");
    let mut product = vec![0.0; d];
    let mut rest = values;
    for i in 0..d {
        let (row, after) = rest.split_at(d - i);
        let mut sum = 0.0;
        for ((value, x), y) in row[1..].iter().zip(&vector[i + 1..]).zip(&mut product[i + 1..]) {
            sum += value * x;
            *y += value * std::f64::consts::FRAC_1_SQRT_2 * vector[i];
        }
        product[i] += row[0] * vector[i] + sum * std::f64::consts::FRAC_1_SQRT_2;
        rest = after;
    }
    product
}

/// d(d+1)/2, the length of an [`svec`].
#[must_use]
pub fn triangle(d: usize) -> usize {
    d * (d + 1) / 2
}

impl ExponentialFamily for Full {
    type Standard = Standard;

    fn of(standard: &Standard) -> Self {
        Self { dimension: standard.mean.len() }
    }

    fn len(&self) -> usize {
        self.dimension + triangle(self.dimension)
    }

    fn standard(&self, natural: &[f64]) -> Result<Standard, InvalidParameters> {
        check(natural, self.len())?;
        let (h, precision) = natural.split_at(self.dimension);
        let precision = unsvec(precision, self.dimension);
        let factor = Cholesky::new(precision.clone()).ok_or(InvalidParameters::Domain("the precision is not positive definite"))?;
        let mean = factor.solve(&DVector::from_column_slice(h));
        let covariance = symmetrised(factor.inverse());
        check(mean.as_slice(), self.dimension)?;
        check(covariance.as_slice(), self.dimension * self.dimension)?;
        Ok(Standard { mean, covariance, precision, log_det_precision: log_det(&factor) })
    }

    fn standard_of_mean(&self, mean: &[f64]) -> Result<Standard, InvalidParameters> {
        check(mean, self.len())?;
        let (first, second) = mean.split_at(self.dimension);
        let first = DVector::from_column_slice(first);
        let covariance = unsvec(second, self.dimension) - &first * first.transpose();
        Standard::new(first, covariance)
    }

    fn natural(standard: &Standard) -> Vec<f64> {
        let mut natural: Vec<f64> = (&standard.precision * &standard.mean).iter().copied().collect();
        natural.extend(svec(&standard.precision));
        natural
    }

    fn mean(standard: &Standard) -> Vec<f64> {
        let mut mean = standard.mean.as_slice().to_vec();
        mean.extend(svec(&(&standard.covariance + &standard.mean * standard.mean.transpose())));
        mean
    }

    fn log_partition(standard: &Standard) -> f64 {
        let quadratic = standard.mean.dot(&(&standard.precision * &standard.mean));
        #[allow(clippy::cast_precision_loss, reason = "a dimension is far below 2^52")]
        let d = standard.mean.len() as f64;
        0.5 * (quadratic - standard.log_det_precision + d * LN_TWO_PI)
    }

    fn kl(q: &Standard, p: &Standard) -> f64 {
        let shift = &p.mean - &q.mean;
        let trace = p.precision.dot(&q.covariance);
        #[allow(clippy::cast_precision_loss, reason = "a dimension is far below 2^52")]
        let d = q.mean.len() as f64;
        0.5 * (trace + shift.dot(&(&p.precision * &shift)) - d + q.log_det_precision - p.log_det_precision)
    }

    fn expectation(&self, natural: &[f64], mean: &[f64]) -> f64 {
        let (h, precision) = natural.split_at(self.dimension);
        let (first, second) = mean.split_at(self.dimension);
        dot(h, first) - 0.5 * dot(precision, second)
    }
}

fn symmetrised(matrix: DMatrix<f64>) -> DMatrix<f64> {
    let transposed = matrix.transpose();
    (matrix + transposed) * 0.5
}

fn log_det(factor: &Cholesky<f64, nalgebra::Dyn>) -> f64 {
    2.0 * factor.l_dirty().diagonal().iter().map(|v| v.ln()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use nalgebra::{DMatrix, DVector};

    use super::{svec, svec_times};

    #[test]
    fn products_with_a_packed_matrix_are_those_of_the_matrix() {
        let matrix = DMatrix::from_fn(5, 5, |i, j| f64::from(u8::try_from(i * j + i + j).unwrap_or(0)).sin());
        let vector = DVector::from_fn(5, |i, _| f64::from(u8::try_from(i).unwrap_or(0)) - 1.7);
        let product = svec_times(&svec(&matrix), vector.as_slice());
        assert!((DVector::from_vec(product) - matrix * vector).norm() < 1e-14);
        assert!(svec_times(&[], &[]).is_empty());
    }
}
