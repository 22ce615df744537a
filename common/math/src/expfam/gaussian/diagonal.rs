//! Independent Gaussian coordinates (mean field).

use super::LN_TWO_PI;
use crate::expfam::{ExponentialFamily, InvalidParameters, check};

/// The family of N(μ, diag v) over `dimension` coordinates: natural parameters [h; Λ], mean parameters [μ; v + μ²].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diagonal {
    /// Number of coordinates d.
    pub dimension: usize,
}

/// Means and variances.
#[derive(Debug, Clone, PartialEq)]
pub struct Standard {
    mean: Vec<f64>,
    variance: Vec<f64>,
}

impl Standard {
    /// N(mean, diag variance).
    ///
    /// # Errors
    /// Different lengths, an entry that is not finite, or a variance that is not positive.
    pub fn new(mean: Vec<f64>, variance: Vec<f64>) -> Result<Self, InvalidParameters> {
        check(&mean, mean.len())?;
        check(&variance, mean.len())?;
        if variance.iter().any(|&v| v <= 0.0) {
            return Err(InvalidParameters::Domain("a variance is not positive"));
        }
        Ok(Self { mean, variance })
    }

    /// μ.
    #[must_use]
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// v.
    #[must_use]
    pub fn variance(&self) -> &[f64] {
        &self.variance
    }

    fn iter(&self) -> impl Iterator<Item = (f64, f64)> {
        self.mean.iter().copied().zip(self.variance.iter().copied())
    }
}

impl ExponentialFamily for Diagonal {
    type Standard = Standard;

    fn of(standard: &Standard) -> Self {
        Self { dimension: standard.mean.len() }
    }

    fn len(&self) -> usize {
        2 * self.dimension
    }

    fn standard(&self, natural: &[f64]) -> Result<Standard, InvalidParameters> {
        check(natural, self.len())?;
        let (h, precision) = natural.split_at(self.dimension);
        if precision.iter().any(|&l| l <= 0.0) {
            return Err(InvalidParameters::Domain("a precision is not positive"));
        }
        Standard::new(h.iter().zip(precision).map(|(h, l)| h / l).collect(), precision.iter().map(|l| 1.0 / l).collect())
    }

    fn standard_of_mean(&self, mean: &[f64]) -> Result<Standard, InvalidParameters> {
        check(mean, self.len())?;
        let (first, second) = mean.split_at(self.dimension);
        Standard::new(first.to_vec(), first.iter().zip(second).map(|(m, s)| s - m * m).collect())
    }

    fn natural(standard: &Standard) -> Vec<f64> {
        standard.iter().map(|(m, v)| m / v).chain(standard.variance.iter().map(|v| 1.0 / v)).collect()
    }

    fn mean(standard: &Standard) -> Vec<f64> {
        standard.mean.iter().copied().chain(standard.iter().map(|(m, v)| v + m * m)).collect()
    }

    fn log_partition(standard: &Standard) -> f64 {
        standard.iter().map(|(m, v)| 0.5 * (m * m / v + v.ln() + LN_TWO_PI)).sum()
    }

    fn kl(q: &Standard, p: &Standard) -> f64 {
        let term = |((mq, vq), (mp, vp)): ((f64, f64), (f64, f64))| vq / vp + (mq - mp).powi(2) / vp - 1.0 + (vp / vq).ln();
        0.5 * q.iter().zip(p.iter()).map(term).sum::<f64>()
    }

    fn expectation(&self, natural: &[f64], mean: &[f64]) -> f64 {
        let (h, precision) = natural.split_at(self.dimension);
        let (first, second) = mean.split_at(self.dimension);
        dot(h, first) - 0.5 * dot(precision, second)
    }
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
