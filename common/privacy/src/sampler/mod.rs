//! Exact samplers: integers in, integers out, no floating point, no approximation.

pub mod allocation;
mod bernoulli;
pub mod coins;
pub mod gaussian;
mod strips;

#[cfg(test)]
mod tests;

pub use allocation::Allocation;
pub use coins::Coins;
pub use gaussian::{DiscreteGaussianSampler, SamplerError};
