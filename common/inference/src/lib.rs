//! The private side: everything that touches records.

pub mod error;
pub mod records;
pub mod update;

pub use error::InferenceError;
