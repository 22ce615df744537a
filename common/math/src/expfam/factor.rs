//! Unnormalised factors: a vector space over the natural parameters.

use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

use crate::expfam::{ExponentialFamily, InvalidParameters};

/// Natural parameters of a factor, of any sign. Products of densities are sums of factors, quotients are differences.
///
/// Arithmetic between factors of different families or sizes is a bug and panics.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor<F> {
    family: F,
    natural: Vec<f64>,
}

impl<F: ExponentialFamily> Factor<F> {
    /// The factor with these natural parameters.
    ///
    /// # Errors
    /// The length is not that of the family.
    pub fn new(family: F, natural: Vec<f64>) -> Result<Self, InvalidParameters> {
        if natural.len() == family.len() {
            Ok(Self { family, natural })
        } else {
            Err(InvalidParameters::Length { expected: family.len(), found: natural.len() })
        }
    }

    /// The neutral element: the constant factor 1.
    #[must_use]
    pub fn zero(family: F) -> Self {
        let natural = vec![0.0; family.len()];
        Self { family, natural }
    }

    /// The family.
    #[must_use]
    pub fn family(&self) -> &F {
        &self.family
    }

    /// Natural parameters.
    #[must_use]
    pub fn natural(&self) -> &[f64] {
        &self.natural
    }

    /// Natural parameters.
    #[must_use]
    pub fn into_natural(self) -> Vec<f64> {
        self.natural
    }

    /// The factor raised to the power `by`.
    #[must_use]
    pub fn scale(mut self, by: f64) -> Self {
        self.natural.iter_mut().for_each(|v| *v *= by);
        self
    }

    fn combine(&mut self, other: &Self, f: impl Fn(f64, f64) -> f64) {
        assert!(self.family == other.family, "factors of different families were combined");
        self.natural.iter_mut().zip(&other.natural).for_each(|(a, b)| *a = f(*a, *b));
    }
}

impl<F: ExponentialFamily> AddAssign<&Self> for Factor<F> {
    fn add_assign(&mut self, other: &Self) {
        self.combine(other, |a, b| a + b);
    }
}

impl<F: ExponentialFamily> SubAssign<&Self> for Factor<F> {
    fn sub_assign(&mut self, other: &Self) {
        self.combine(other, |a, b| a - b);
    }
}

impl<F: ExponentialFamily> Add<&Self> for Factor<F> {
    type Output = Self;
    fn add(mut self, other: &Self) -> Self {
        self += other;
        self
    }
}

impl<F: ExponentialFamily> Sub<&Self> for Factor<F> {
    type Output = Self;
    fn sub(mut self, other: &Self) -> Self {
        self -= other;
        self
    }
}

impl<F: ExponentialFamily> Neg for Factor<F> {
    type Output = Self;
    fn neg(self) -> Self {
        self.scale(-1.0)
    }
}
