//! The Gaussian families of federated tasks, chosen at run time: flat vectors on the wire, typed values inside.

use serde::{Deserialize, Serialize};

use crate::expfam::gaussian::{diagonal, full};
use crate::expfam::{ExponentialFamily, InvalidParameters};

/// Families that a task can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Family {
    /// Independent coordinates: natural parameters [h (d); Λ (d)].
    DiagonalGaussian {
        /// Number of coordinates d.
        dimension: usize,
    },
    /// Full covariance: natural parameters [h (d); svec Λ (d(d+1)/2)].
    FullGaussian {
        /// Number of coordinates d.
        dimension: usize,
    },
}

/// Standard parameters of a [`Family`].
#[derive(Debug, Clone, PartialEq)]
pub enum Standard {
    /// Independent coordinates.
    Diagonal(diagonal::Standard),
    /// Full covariance.
    Full(full::Standard),
}

/// A member of a [`Family`].
pub type Gaussian = crate::expfam::Distribution<Family>;

impl Family {
    /// Number of coordinates d.
    #[must_use]
    pub fn dimension(&self) -> usize {
        match *self {
            Self::DiagonalGaussian { dimension } | Self::FullGaussian { dimension } => dimension,
        }
    }

    /// Number of natural parameters.
    #[must_use]
    pub fn len(&self) -> usize {
        match *self {
            Self::DiagonalGaussian { dimension } => diagonal::Diagonal { dimension }.len(),
            Self::FullGaussian { dimension } => full::Full { dimension }.len(),
        }
    }

    /// Whether there is no parameter at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Natural parameters of N(mean, diag variance) in this family; one mean and variance for every coordinate.
    #[must_use]
    pub fn isotropic(&self, mean: f64, variance: f64) -> Vec<f64> {
        let d = self.dimension();
        let precision = 1.0 / variance;
        let mut natural = vec![precision * mean; d];
        match self {
            Self::DiagonalGaussian { .. } => natural.extend(std::iter::repeat_n(precision, d)),
            Self::FullGaussian { .. } => {
                natural.extend((0..d).flat_map(|i| (i..d).map(move |j| if i == j { precision } else { 0.0 })));
            }
        }
        natural
    }
}

impl Standard {
    /// μ.
    #[must_use]
    pub fn mean(&self) -> &[f64] {
        match self {
            Self::Diagonal(s) => s.mean(),
            Self::Full(s) => s.mean().as_slice(),
        }
    }

    /// Marginal variances.
    #[must_use]
    pub fn variances(&self) -> Vec<f64> {
        match self {
            Self::Diagonal(s) => s.variance().to_vec(),
            Self::Full(s) => s.covariance().diagonal().iter().copied().collect(),
        }
    }

    /// Mean and variance of xᵀθ for a sparse x: ascending `indices` below d and their `values`. Cost: non-zeros (diagonal) or
    /// their square (full).
    #[must_use]
    pub fn project(&self, indices: &[u32], values: &[f64]) -> (f64, f64) {
        let at = |i: u32| i as usize;
        let mean = self.mean();
        let location = indices.iter().zip(values).map(|(&i, x)| x * mean[at(i)]).sum();
        let variance = match self {
            Self::Diagonal(s) => indices.iter().zip(values).map(|(&i, x)| x * x * s.variance()[at(i)]).sum(),
            Self::Full(s) => {
                let row =
                    |(&i, x): (&u32, &f64)| x * indices.iter().zip(values).map(|(&j, y)| y * s.covariance()[(at(i), at(j))]).sum::<f64>();
                indices.iter().zip(values).map(row).sum::<f64>().max(0.0)
            }
        };
        (location, variance)
    }
}

impl ExponentialFamily for Family {
    type Standard = Standard;

    fn of(standard: &Standard) -> Self {
        match standard {
            Standard::Diagonal(s) => Self::DiagonalGaussian { dimension: s.mean().len() },
            Standard::Full(s) => Self::FullGaussian { dimension: s.mean().len() },
        }
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn standard(&self, natural: &[f64]) -> Result<Standard, InvalidParameters> {
        match *self {
            Self::DiagonalGaussian { dimension } => diagonal::Diagonal { dimension }.standard(natural).map(Standard::Diagonal),
            Self::FullGaussian { dimension } => full::Full { dimension }.standard(natural).map(Standard::Full),
        }
    }

    fn standard_of_mean(&self, mean: &[f64]) -> Result<Standard, InvalidParameters> {
        match *self {
            Self::DiagonalGaussian { dimension } => diagonal::Diagonal { dimension }.standard_of_mean(mean).map(Standard::Diagonal),
            Self::FullGaussian { dimension } => full::Full { dimension }.standard_of_mean(mean).map(Standard::Full),
        }
    }

    fn natural(standard: &Standard) -> Vec<f64> {
        match standard {
            Standard::Diagonal(s) => diagonal::Diagonal::natural(s),
            Standard::Full(s) => full::Full::natural(s),
        }
    }

    fn mean(standard: &Standard) -> Vec<f64> {
        match standard {
            Standard::Diagonal(s) => <diagonal::Diagonal as ExponentialFamily>::mean(s),
            Standard::Full(s) => <full::Full as ExponentialFamily>::mean(s),
        }
    }

    fn log_partition(standard: &Standard) -> f64 {
        match standard {
            Standard::Diagonal(s) => diagonal::Diagonal::log_partition(s),
            Standard::Full(s) => full::Full::log_partition(s),
        }
    }

    /// # Panics
    /// The distributions are of different families.
    fn kl(q: &Standard, p: &Standard) -> f64 {
        match (q, p) {
            (Standard::Diagonal(q), Standard::Diagonal(p)) => diagonal::Diagonal::kl(q, p),
            (Standard::Full(q), Standard::Full(p)) => full::Full::kl(q, p),
            _ => panic!("distributions of different families were compared"),
        }
    }

    fn expectation(&self, natural: &[f64], mean: &[f64]) -> f64 {
        match *self {
            Self::DiagonalGaussian { dimension } => diagonal::Diagonal { dimension }.expectation(natural, mean),
            Self::FullGaussian { dimension } => full::Full { dimension }.expectation(natural, mean),
        }
    }
}
