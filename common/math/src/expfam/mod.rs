//! Exponential families: densities exp(⟨λ, s(θ)⟩ − A(λ)) by their natural parameters λ.
//!
//! Two types keep two ideas apart:
//!
//! * [`Factor<F>`] is any point of parameter space: an element of an additive group, of any sign. Client factors, cavities and
//!   changes of parameters are factors; they need not be normalisable, and nothing here ever turns one into moments.
//! * [`Distribution<F>`] holds valid parameters only. It exists through [`TryFrom<Factor<F>>`](Distribution#impl-TryFrom), or from
//!   standard or mean parameters that were checked, and has moments, a log-partition and Kullback–Leibler divergences.
//!
//! Families: [`gaussian::diagonal`], [`gaussian::full`], [`gamma`], [`dirichlet`], and [`any`] for the Gaussian families of
//! federated tasks, chosen at run time. Gaussians are parametrised by (h, Λ) with h = Λμ and log-density −½θᵀΛθ + hᵀθ; matrices
//! are flattened by [`gaussian::full::svec`], which keeps Euclidean norms.
//!
//! Everything is `f64`, pure, and agrees with independent reference values to 1e-10 or better.

pub mod any;
pub mod dirichlet;
mod distribution;
mod factor;
pub mod gamma;
pub mod gaussian;
pub mod special;

pub use distribution::Distribution;
pub use factor::Factor;

/// Parameters that are not of the family that they were meant for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidParameters {
    /// Wrong number of parameters.
    #[error("{expected} parameters were expected, {found} were given")]
    Length {
        /// Number that the family has.
        expected: usize,
        /// Number that was given.
        found: usize,
    },
    /// Outside the domain of the family.
    #[error("not the parameters of a probability distribution: {0}")]
    Domain(&'static str),
}

/// A family of distributions, as a value that knows its size.
pub trait ExponentialFamily: Clone + PartialEq + std::fmt::Debug {
    /// Checked standard parameters, with what computing them gave on the way.
    type Standard: Clone + PartialEq + std::fmt::Debug;

    /// The family that standard parameters belong to.
    fn of(standard: &Self::Standard) -> Self;

    /// Number of natural parameters.
    fn len(&self) -> usize;

    /// Whether there is no parameter at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Standard parameters of natural ones.
    ///
    /// # Errors
    /// Wrong length, not finite, or not normalisable.
    fn standard(&self, natural: &[f64]) -> Result<Self::Standard, InvalidParameters>;

    /// Standard parameters of mean parameters, the expected statistics in the order of the natural parameters.
    ///
    /// # Errors
    /// Wrong length, not finite, or not expectations under any member.
    fn standard_of_mean(&self, mean: &[f64]) -> Result<Self::Standard, InvalidParameters>;

    /// Natural parameters.
    fn natural(standard: &Self::Standard) -> Vec<f64>;

    /// Mean parameters.
    fn mean(standard: &Self::Standard) -> Vec<f64>;

    /// A(λ), the logarithm of the normaliser.
    fn log_partition(standard: &Self::Standard) -> f64;

    /// KL(q‖p).
    fn kl(q: &Self::Standard, p: &Self::Standard) -> f64;

    /// E[log of the unnormalised factor `natural`] from mean parameters: linear in both, defined for any sign of the factor.
    fn expectation(&self, natural: &[f64], mean: &[f64]) -> f64;
}

/// Checks a length and that every entry is finite.
fn check(values: &[f64], expected: usize) -> Result<(), InvalidParameters> {
    if values.len() != expected {
        return Err(InvalidParameters::Length { expected, found: values.len() });
    }
    if values.iter().all(|v| v.is_finite()) { Ok(()) } else { Err(InvalidParameters::Domain("an entry is not finite")) }
}
