//! The private side: everything that touches records. What is computed from released values only lives in `dp-pvi-posterior`.
//!
//! * [`records`] (dp-pvi-records) holds a site's records as privacy units, behind `Units` from the moment a loader has built them.
//! * [`capabilities`] has the engines: an exact local optimum, gradients of E_q log p(record | θ), tilted moments, for any likelihood of `dp-pvi-models`.
//!   [`models`] has a module for every model that sums records by itself.
//! * [`methods`] has a module for every update: what a site does in one visit. [`methods::run`] takes the task, λ, the site's factor, the units, a permit
//!   and a noise source, and gives back a released payload. It has no state, no clock, no I/O and no log.
//!
//! * [`personal`] is for the site's own people: the posterior with the exact likelihood of its records, which never leaves the site.
//!
//! Models and methods meet in capabilities, so a new model serves every update whose capability it offers, and a new update
//! every model that offers what it needs. A likelihood is a module of `dp-pvi-models`, and nothing here; an update is one folder here and one on the public side, and an
//! arm in [`methods::run`].
//!
//! Functions over records are `fn`s, which capture nothing, and are told public values as a copy ([`dp_pvi_privacy::records`]). The crate's
//! `clippy.toml` bars what is left: locks, cells, atomics, threads, files and sockets. This stops mistakes, not a malicious author.

pub mod capabilities;
pub mod error;
pub mod mean_field;
pub mod methods;
pub mod models;
pub mod personal;

#[cfg(test)]
#[path = "../../../tests/tests/models/gamma.rs"]
mod gamma;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
mod testing;

/// So that a model of another crate, which names this one, can be tested here.
#[cfg(test)]
extern crate self as dp_pvi_inference;

pub use dp_pvi_records as records;
pub use error::InferenceError;
