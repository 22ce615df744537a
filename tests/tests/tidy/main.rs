//! The house rules: who may import whom, and the invariants that are absences. Each test names its rule and fails when it is broken.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod layers;
mod links;
mod modules;
mod proofs;
mod references;
mod samples;
mod sources;
mod surface;
mod tree;
