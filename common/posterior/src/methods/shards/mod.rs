//! The engine of the methods that fit whole shards: `parameter-perturbation`, `local-averaging`, `virtual-clients`, `client-level`.
//!
//! A site cuts its units into K shards. Every shard fits its records to the cavity, the change is written in the coordinates of the clip metric,
//! each block is cut to its bound and scaled, and one noised sum over the shards is released. Server and site decode with the same public λ.
//! What sets the four methods apart is a `ShardTraits` each, in the rooms of their names.
//!
//! **Sensitivity.** Another content of one unit changes one shard's term to any other vector of the ball: 2C under either relation. In a
//! client-level update the site is the unit and its term is a unit's: C or 2C. A site's factor is *released* (what it sent so far), *tied* (a public
//! share of λ − λ0) or *private-clean* (the terms that were summed, before noise); none of them holds noise that was not released.
//!
//! **Noise and size.** The noise on a sum is 2Cz whatever a shard holds, and a shard of b records has a change of about √b times one record's.
//! So the sum says the same of the data while its noise grows with C. Figures: `deploy/guide/src/results/defaults.md`.

mod rule;
mod task;

pub use rule::{Coding, ShardRule};
pub(crate) use task::{Combined, DefaultState, Factors, Protects, ShardCount, ShardTraits, resolve, too_few_sites};
pub use task::{FactorState, ShardMethod, ShardSpec};
