//! The public side of dp-pvi: everything that is computed from released values only, and therefore costs no privacy.
//!
//! No record enters this crate, except [`public`] test records in [`metrics`] and rows to be predicted in [`predictive`]. What is here:
//!
//! * [`schema`], [`task`]: the public statement of a run. A person writes `task.toml` ([`task::RawTask`]); it is resolved into one
//!   canonical document in which every number is explicit ([`task::ResolvedTask`]), whose hash all parties sign.
//! * [`rule`], [`floor`], [`schedule`], [`optim`]: how the posterior moves.
//! * [`quadrature`], [`predictive`], [`metrics`], [`summary`]: what the posterior says.
//! * [`network`]: the shape, forward pass and predictive distribution of neural networks.
//! * [`statement`], [`document`]: what was guaranteed to whom, and the file that a run leaves behind.

pub mod adaptive_clip;
pub mod blocks;
pub mod clip_metric;
pub mod count;
pub mod document;
pub mod floor;
pub mod lda;
pub mod metrics;
pub mod mixture;
pub mod network;
pub mod noise_aware;
pub mod normal;
pub mod optim;
pub mod pbp;
pub mod polya_gamma;
pub mod predictive;
pub mod public;
pub mod quadrature;
pub mod rule;
pub mod schedule;
pub mod schema;
pub mod sigmoid_belief;
pub mod simplex;
pub mod statement;
pub mod summary;
pub mod task;
pub mod unknown_noise;
