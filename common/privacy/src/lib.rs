#![cfg_attr(test, allow(clippy::unwrap_used))]
//! The release gate: what protects a record, and the ledger that remembers what it cost.
//!
//! **Claim.** Let a ledger name a privacy unit and a relation, and let its budget be (ε, δ). Whatever servers, tasks and later choices follow,
//! everything that this crate lets out about the data set to anyone but the site itself is (ε, δ)-differentially private for that unit and relation,
//! against observers of bounded computing time. The whole argument, with what is proved, measured and assumed, is [`proofs::argument`]; in short:
//!
//! 1. **One door.** Private data sits in [`Units`] and [`Sensitive`]. Functions over them are `fn`s, which capture nothing. Each call has
//!    its own copy of its [`Argument`] ([`records`]), and one that panics makes a value without content, and no error ([`panic_redaction`]). Only
//!    mechanisms make a [`Released`] value, and what is sent is made of one ([`ledger::Attachment`]). What a site's
//!    own people may see without noise has an exit of its own, in processes that release nothing ([`local_only`]).
//! 2. **What is accounted is what runs.** A mechanism takes a [`StepPermit`] that must equal its [`DpEvent`](dp_pvi_accounting::DpEvent). Permits come from
//!    [`Ledger::reserve`] only, after the charge is durable: one for a release, and after crashes at most eight more, each with a row of its
//!    own ([`ledger::reserve`]). One result is committed, and only that one is sent.
//! 3. **Sensitivity** ([`mechanism`]). Terms are clipped, truncated onto a lattice, and their integer norms checked.
//! 4. **Noise** ([`sampler`]). The discrete Gaussian, exact in integers, from a stream that no one can seed.
//! 5. **One release** costs what its pair says ([`dp_pvi_accounting`], [`dp_pvi_accounting::proofs::discrete_gaussian`]).
//! 6. **All releases** stay within the budget: the ledger is a privacy filter ([`dp_pvi_accounting::proofs::filter`]), and what was reserved is never refunded.
//! 7. **State** that a site carries holds no noise that was not released ([`ledger::state`], [`proofs::carried_state`]).
//!
//! # What rests on the code above
//!
//! * A permit does not name its data set: nothing ties [`Units`] to the ledger that charges for them.
//! * A released value can be read before it is committed. Who keeps results of attempts that were given up has up to nine for one charge.
//! * A `static`, a file, a panic hook, an abort: lints and tests bar the first three from the crates that see records.
//!
//! The gate stops mistakes, not an author who wants to cheat.

pub mod audit;
pub mod clipping;
pub mod danger;
#[cfg(feature = "fault-injection")]
pub mod injected;
pub mod ledger;
pub mod local_only;
pub mod mechanism;
pub mod noise;
pub mod panic_redaction;
pub mod partial_sums;
pub mod proofs;
pub mod records;
pub mod sampler;
pub mod shards;
pub mod stored;
mod table;

pub use ledger::{Ledger, Pending, Permit, SiteState, StepPermit};
pub use local_only::{LocalAccess, LocalOnly};
pub use noise::{NoRandomness, NoiseSource, Purpose, SecureNoise};
pub use records::{Argument, Released, Sensitive, UnitTable, Units};
pub use shards::{ContentId, PermitScope, Shard, Shards, StableIds, WholeSite};
