//! The private side: everything that touches records.

pub mod error;
pub mod model;
pub mod point;
pub mod records;
pub mod update;

pub use error::InferenceError;
