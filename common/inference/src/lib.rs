//! The private side: everything that touches records.

pub mod error;
pub mod model;
pub mod point;
pub mod records;
pub mod update;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
mod testing;

pub use error::InferenceError;
