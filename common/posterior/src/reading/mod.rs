//! What a posterior says, for people and programs that read it: predictions, held-out metrics, intervals, the file that a run leaves
//! behind and the statement of what was guaranteed to whom.

pub mod agreement;
pub mod convergence;
pub mod divided;
pub mod document;
pub mod early_end;
pub mod metrics;
pub mod noise_aware;
pub mod personal;
pub mod predictive;
pub mod statement;
pub mod summary;

pub use dp_pvi_models::effects;
pub use dp_pvi_schema::public;

#[cfg(test)]
mod predictive_tests;
