//! Experiments on federations in memory ([`dp_pvi_simulator`]), and what is done before a run: audits, synthetic data. All of it is behind
//! the program `dp-pvi-sim`.
//!
//! * [`experiment`]: one TOML file, several seeds, figures as JSON lines (`dp-pvi-sim run`).
//! * [`audit`]: what an attack on the shipped updates can prove, beside what is claimed (`dp-pvi-sim audit`).
//! * [`tune`]: private choice between settings (`dp-pvi-sim tune`).
//! * [`generate`]: synthetic hospitals and a survival study with a known truth (`dp-pvi-sim generate`).
//!
//! The production client cannot name this crate.

pub mod audit;
pub mod experiment;
pub mod generate;
pub mod tune;
