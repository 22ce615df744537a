//! What a posterior says, for people and programs that read it: predictions, held-out metrics, intervals, the file that a run leaves
//! behind and the statement of what was guaranteed to whom. All of it comes from released values ([`dp_pvi_posterior`]) and costs no privacy.
//!
//! No record enters this crate, except [`public`] test records in [`metrics`] and rows to be predicted in [`predictive`].

pub mod agreement;
pub mod certificate;
mod classes;
pub mod concordance;
pub mod convergence;
pub mod divided;
pub mod document;
pub mod early_end;
pub mod metrics;
pub mod noise_aware;
pub mod origin;
pub mod personal;
pub mod predictive;
pub mod shape;
pub mod statement;
pub mod summary;
pub mod witness;

pub use dp_pvi_models::effects;
pub use dp_pvi_schema::public;

#[cfg(test)]
mod predictive_tests;
