//! The private side: everything that touches records. What is computed from released values only lives in `dp-pvi-posterior`.
//!
//! * [`records`] holds a site's records as privacy units, behind `Units` from the moment a loader has built them.
//! * [`model`] holds likelihoods and their capabilities: an exact local optimum, or gradients of E_q log p(record | θ).
//! * [`update`] holds what a site does in one visit. [`update::run`] takes the task, λ, the site's factor, the units, a permit
//!   and a noise source, and gives back a released payload. It has no state, no clock, no I/O and no log.
//!
//! Models and updates meet in capabilities, so a new model serves every update whose capability it offers, and a new update
//! every model that offers what it needs. Either is one folder and one registry arm ([`model::from_spec`], [`update::run`]).
//!
//! Functions over records are `fn`s, which capture nothing, and are told public values as a copy ([`dp_pvi_privacy::records`]). The crate's
//! `clippy.toml` bars what is left: locks, cells, atomics, threads, files and sockets. This stops mistakes, not a malicious author.

pub mod error;
pub mod model;
pub mod point;
pub mod records;
pub mod update;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
mod testing;

pub use error::InferenceError;
