//! A federation on one machine, and what is done with it before a run. All of it is behind the program `dp-pvi-sim`.
//!
//! * [`federation`]: the production state machines and loops ([`dp_pvi_protocol`]) over an in-memory network with faults, in virtual time and with seeded noise: a server, its
//!   sites and evaluators. Every machine may crash at any write and starts again from its disk.
//! * [`network`]: what is lost, delayed, repeated and replayed. [`disk`]: the server's disk. [`executor`]: virtual time.
//! * [`noise`]: randomness as a pure function of (seed, client, release, step, purpose), so that a run that crashed and went on draws what an undisturbed one draws, and the two
//!   can be compared bit by bit.
//! * [`experiment`]: one TOML file, several seeds, figures as JSON lines (`dp-pvi-sim run`).
//! * [`audit`]: what an attack on the shipped updates can prove, beside what is claimed (`dp-pvi-sim audit`).
//! * [`tune`]: private choice between settings (`dp-pvi-sim tune`).
//! * [`generate`]: synthetic hospitals and a survival study with a known truth (`dp-pvi-sim generate`).
//!
//! The production client cannot name this crate.

pub mod audit;
pub mod disk;
pub mod executor;
pub mod experiment;
pub mod federation;
pub mod generate;
pub mod network;
pub mod noise;
pub mod tune;
