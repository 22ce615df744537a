//! A federation on one machine: the production state machines and loops ([`dp_pvi_protocol`]) over an in-memory network with
//! faults, in virtual time and with seeded noise.
//!
//! * [`federation`]: a server, its sites and evaluators. Every machine may crash at any write and starts again from its disk.
//! * [`network`]: what is lost, delayed, repeated and replayed. [`disk`]: the server's disk. [`executor`]: virtual time.
//! * [`noise`]: randomness as a pure function of (seed, client, release, step, purpose), so that a run that crashed and went on
//!   draws what an undisturbed one draws, and the two can be compared bit by bit.
//!
//! Tests: `crashes` crashes every machine at every write of a run, and runs two hundred stormy federations: all end with the same
//! bits. `faults` runs seeds of every fault at once. `claims` has one check per claim of the protocol. The production client cannot name
//! this crate.

pub mod disk;
pub mod executor;
pub mod federation;
pub mod network;
pub mod noise;
