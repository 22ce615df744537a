//! Mixtures of Gaussians with known variance σ² and equal weights: what is public of them.
//!
//! Unknown are the J component means μ_j in D dimensions; q = Π_j N(μ_j; m_j, V_j) with V_j diagonal or full. Natural parameters are one
//! vector [h_1 … h_J; Λ_1 … Λ_J], Λ_j as D entries or as svec (D(D+1)/2): with diagonal blocks, the mean-field Gaussian over J·D coordinates. Full
//! blocks are the part of a full-covariance Gaussian over all J·D coordinates that is not 0 ([`MixtureShape::positions`]).
//!
//! * [`MixtureShape`] is the layout, [`Components`] the moments, [`Density`] the predictive distribution.
//! * [`matching`] pairs components by a minimum-cost assignment and measures distances of matched posteriors.
//! * [`em`] is the M-step of DP-EM.
//!
//! **Assumes** rows without a label, of bounded norm, and a schema without intercept. **Defaults**: means begin at draws from the prior with seed 0.
//! **When**: groups of similar rows. The numbers of components mean nothing by themselves; compare runs by [`matching`].

pub mod em;
pub mod matching;
mod task;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use task::GaussianMixture;

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::{svec, triangle, unsvec};
use nalgebra::{Cholesky, DMatrix, DVector};

/// What is assumed of a component's posterior covariance V_j.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Covariance {
    /// Independent coordinates.
    Diagonal,
    /// Full D × D.
    Full,
}

/// Layout of the natural parameters of J components in D dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MixtureShape {
    /// J.
    pub components: usize,
    /// D.
    pub dimension: usize,
    /// Form of every V_j.
    pub covariance: Covariance,
}

impl MixtureShape {
    /// The layout of an approximation over all J·D coordinates.
    #[must_use]
    pub fn of_family(components: usize, family: Family) -> Self {
        let covariance = match family {
            Family::DiagonalGaussian { .. } => Covariance::Diagonal,
            Family::FullGaussian { .. } => Covariance::Full,
        };
        Self { components, dimension: family.dimension() / components.max(1), covariance }
    }

    /// Where the layout's numbers stand among the natural parameters of the family over all J·D coordinates, in ascending order. With full
    /// covariance what is between them belongs to two components and is 0.
    #[must_use]
    pub fn positions(&self) -> Vec<usize> {
        let (d, block) = (self.means(), self.dimension);
        match self.covariance {
            Covariance::Diagonal => (0..self.len()).collect(),
            Covariance::Full => {
                // Row i of svec begins after the d + (d − 1) + … entries of the rows above it.
                let row = |i: usize| d + triangle(d) - triangle(d - i);
                let entries = (0..d).flat_map(|i| row(i)..row(i) + block - i % block);
                (0..d).chain(entries).collect()
            }
        }
    }

    /// J·D, the length of the h block.
    #[must_use]
    pub fn means(&self) -> usize {
        self.components * self.dimension
    }

    /// Entries of one Λ_j.
    #[must_use]
    pub fn block(&self) -> usize {
        match self.covariance {
            Covariance::Diagonal => self.dimension,
            Covariance::Full => triangle(self.dimension),
        }
    }

    /// Number of natural parameters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.means() + self.components * self.block()
    }

    /// Whether there is no component or no dimension.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// h_j of a vector of natural parameters.
    #[must_use]
    pub fn h<'a>(&self, natural: &'a [f64], component: usize) -> &'a [f64] {
        &natural[component * self.dimension..(component + 1) * self.dimension]
    }

    /// Λ_j of a vector of natural parameters, in the shape's coordinates.
    #[must_use]
    pub fn precision<'a>(&self, natural: &'a [f64], component: usize) -> &'a [f64] {
        &natural[self.means() + component * self.block()..self.means() + (component + 1) * self.block()]
    }

    /// Λ_j as a matrix.
    #[must_use]
    pub fn matrix(&self, natural: &[f64], component: usize) -> DMatrix<f64> {
        let block = self.precision(natural, component);
        match self.covariance {
            Covariance::Diagonal => DMatrix::from_diagonal(&DVector::from_column_slice(block)),
            Covariance::Full => unsvec(block, self.dimension),
        }
    }

    /// Natural parameters of Π_j N(mean_j, `variance`·I). Means must differ between components, or symmetry keeps them equal for ever.
    #[must_use]
    pub fn isotropic(&self, means: &[f64], variance: f64) -> Vec<f64> {
        let identity = DMatrix::from_diagonal_element(self.dimension, self.dimension, 1.0 / variance);
        let block = self.coordinates(&identity);
        means.iter().map(|m| m / variance).chain((0..self.components).flat_map(|_| block.clone())).collect()
    }

    /// A symmetric matrix in the coordinates of one Λ_j.
    #[must_use]
    pub fn coordinates(&self, matrix: &DMatrix<f64>) -> Vec<f64> {
        match self.covariance {
            Covariance::Diagonal => matrix.diagonal().as_slice().to_vec(),
            Covariance::Full => svec(matrix),
        }
    }
}

/// Means and covariances of all components.
#[derive(Debug, Clone, PartialEq)]
pub struct Components {
    /// m_j and V_j.
    pub parts: Vec<(DVector<f64>, DMatrix<f64>)>,
}

impl Components {
    /// Moments of natural parameters.
    ///
    /// # Errors
    /// Wrong length, or a Λ_j that is not positive definite.
    pub fn from_natural(shape: MixtureShape, natural: &[f64]) -> Result<Self, InvalidParameters> {
        if natural.len() != shape.len() {
            return Err(InvalidParameters::Length { expected: shape.len(), found: natural.len() });
        }
        let part = |j| {
            let factor = Cholesky::new(shape.matrix(natural, j))
                .ok_or(InvalidParameters::Domain("a component's precision is not positive definite"))?;
            let covariance = factor.inverse();
            Ok((factor.solve(&DVector::from_column_slice(shape.h(natural, j))), (&covariance + covariance.transpose()) * 0.5))
        };
        Ok(Self { parts: (0..shape.components).map(part).collect::<Result<_, InvalidParameters>>()? })
    }
}

/// Densities of a fixed mixture, with factors computed once for many points: Σ_j w_j N(x; m_j, S_j).
#[derive(Debug, Clone)]
pub struct Density {
    /// m_j, Cholesky factor of S_j, and ln w_j minus half the log determinant of 2πS_j.
    parts: Vec<(DVector<f64>, Cholesky<f64, nalgebra::Dyn>, f64)>,
}

impl PartialEq for Density {
    fn eq(&self, other: &Self) -> bool {
        let key = |(mean, factor, _): &(DVector<f64>, Cholesky<f64, nalgebra::Dyn>, f64)| (mean.clone(), factor.l());
        self.parts.iter().map(key).eq(other.parts.iter().map(key))
    }
}

impl Density {
    /// The predictive density of a new point, (1/J) Σ_j N(x; m_j, V_j + σ²I), of components whose points have variance `s2`.
    ///
    /// # Errors
    /// A covariance plus `s2` is not positive definite.
    pub fn predictive(components: &Components, s2: f64) -> Result<Self, InvalidParameters> {
        #[allow(clippy::cast_precision_loss, reason = "a number of components is far below 2^52")]
        let weight = 1.0 / components.parts.len() as f64;
        let part = |(mean, covariance): &(DVector<f64>, DMatrix<f64>)| {
            (weight, mean.clone(), covariance + DMatrix::from_diagonal_element(mean.len(), mean.len(), s2))
        };
        Self::new(components.parts.iter().map(part))
    }

    /// Of weights, means and covariances.
    ///
    /// # Errors
    /// A covariance is not positive definite.
    pub fn new(parts: impl Iterator<Item = (f64, DVector<f64>, DMatrix<f64>)>) -> Result<Self, InvalidParameters> {
        let part = |(weight, mean, covariance): (f64, DVector<f64>, DMatrix<f64>)| {
            let factor = Cholesky::new(covariance).ok_or(InvalidParameters::Domain("a covariance is not positive definite"))?;
            #[allow(clippy::cast_precision_loss, reason = "a dimension is far below 2^52")]
            let d = mean.len() as f64;
            let half_log_det = factor.l_dirty().diagonal().iter().map(|l| l.ln()).sum::<f64>();
            let constant = weight.ln() - 0.5 * d * std::f64::consts::TAU.ln() - half_log_det;
            Ok((mean, factor, constant))
        };
        Ok(Self { parts: parts.map(part).collect::<Result<_, InvalidParameters>>()? })
    }

    /// D.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.parts.first().map_or(0, |(mean, ..)| mean.len())
    }

    /// ln p(x) and the responsibilities r_j.
    #[must_use]
    pub fn score(&self, x: &[f64]) -> (f64, Vec<f64>) {
        let x = DVector::from_column_slice(x);
        let one = |(mean, factor, constant): &(DVector<f64>, Cholesky<f64, nalgebra::Dyn>, f64)| {
            let mut white = &x - mean;
            // Only a zero on the diagonal makes this fail, and a Cholesky factor has none.
            factor.l_dirty().solve_lower_triangular_mut(&mut white);
            constant - 0.5 * white.norm_squared()
        };
        let mut logs: Vec<f64> = self.parts.iter().map(one).collect();
        let sum = responsibilities(&mut logs);
        (sum, logs)
    }
}

/// Turns ln(w_j N_j) into r_j = w_j N_j/Σ in place; gives ln Σ w_j N_j.
pub fn responsibilities(logs: &mut [f64]) -> f64 {
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    for value in logs.iter_mut() {
        *value = (*value - largest).exp();
        total += *value;
    }
    logs.iter_mut().for_each(|value| *value /= total);
    largest + total.ln()
}
