//! Normalised members of a family.

use crate::expfam::{ExponentialFamily, Factor, InvalidParameters};

/// A probability distribution: its natural parameters are valid, and its standard parameters were computed from them once.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution<F: ExponentialFamily> {
    factor: Factor<F>,
    standard: F::Standard,
}

impl<F: ExponentialFamily> TryFrom<Factor<F>> for Distribution<F> {
    type Error = InvalidParameters;
    fn try_from(factor: Factor<F>) -> Result<Self, InvalidParameters> {
        let standard = factor.family().standard(factor.natural())?;
        Ok(Self { factor, standard })
    }
}

impl<F: ExponentialFamily> From<Distribution<F>> for Factor<F> {
    fn from(distribution: Distribution<F>) -> Self {
        distribution.factor
    }
}

impl<F: ExponentialFamily> Distribution<F> {
    /// The member with these standard parameters, which were checked when they were built.
    ///
    /// # Panics
    /// Never: a family's natural parameters have the family's length.
    #[must_use]
    pub fn from_standard(standard: F::Standard) -> Self {
        // `natural` and `len` of one family agree by the trait's contract, which the tests of every family check.
        let factor = Factor::new(F::of(&standard), F::natural(&standard)).expect("natural parameters have the family's length");
        Self { factor, standard }
    }

    /// The member of natural parameters.
    ///
    /// # Errors
    /// Not the parameters of a distribution of `family`.
    pub fn from_natural(family: F, natural: Vec<f64>) -> Result<Self, InvalidParameters> {
        Factor::new(family, natural)?.try_into()
    }

    /// The member with these mean parameters.
    ///
    /// # Errors
    /// Not expectations under any member of `family`.
    pub fn from_mean_parameters(family: &F, mean: &[f64]) -> Result<Self, InvalidParameters> {
        Ok(Self::from_standard(family.standard_of_mean(mean)?))
    }

    /// The family.
    #[must_use]
    pub fn family(&self) -> &F {
        self.factor.family()
    }

    /// Natural parameters, as a factor.
    #[must_use]
    pub fn factor(&self) -> &Factor<F> {
        &self.factor
    }

    /// Natural parameters.
    #[must_use]
    pub fn natural(&self) -> &[f64] {
        self.factor.natural()
    }

    /// Standard parameters.
    #[must_use]
    pub fn standard(&self) -> &F::Standard {
        &self.standard
    }

    /// Expected statistics, in the order of the natural parameters.
    #[must_use]
    pub fn mean_parameters(&self) -> Vec<f64> {
        F::mean(&self.standard)
    }

    /// A(λ), the logarithm of the normaliser.
    #[must_use]
    pub fn log_partition(&self) -> f64 {
        F::log_partition(&self.standard)
    }

    /// KL(self‖other).
    ///
    /// # Panics
    /// The distributions are of different families.
    #[must_use]
    pub fn kl(&self, other: &Self) -> f64 {
        assert!(self.family() == other.family(), "distributions of different families were compared");
        F::kl(&self.standard, &other.standard)
    }

    /// E[log of the unnormalised `factor`]: linear in the factor and defined for any sign of it, so that an invalid cavity is no
    /// special case (algorithms: section 1.1).
    ///
    /// # Panics
    /// The factor is of another family.
    #[must_use]
    pub fn expected_log(&self, factor: &Factor<F>) -> f64 {
        assert!(self.family() == factor.family(), "a factor of another family was averaged");
        self.family().expectation(factor.natural(), &self.mean_parameters())
    }
}
