//! The commands of the simulation.
#![allow(clippy::unwrap_used, reason = "tests")]

mod audit;
mod experiment;
mod larger;
