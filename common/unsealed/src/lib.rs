//! The seal of the release gate.
//!
//! `dp-pvi-privacy` has traits that decide whether its guarantee holds: where noise comes from, where the ledger is kept, who signs it. Each of them
//! has [`Sealed`] as a supertrait. It also has functions for tests that open the gate. Each of them takes an [`Unsealed`].
//!
//! `dp-pvi-privacy` does not export either name. So a crate can implement such a trait, or call such a function, only if its manifest names this
//! crate. Simulation and tests do. A test over manifests and sources (`tests/tests/tidy`) fails when anything that is linked into `dp-pvi-client` or
//! `dp-pvi-server` does, the gate itself excepted.

/// Supertrait of the traits that the gate's guarantee rests on. Implement it for a source of noise, a ledger's store or a signer of a simulation
/// or a test.
pub trait Sealed {}

/// The site's identity key signs its ledger.
impl Sealed for ed25519_dalek::SigningKey {}

/// The right to open the gate: an argument of every function that does.
#[derive(Debug, Clone, Copy)]
pub struct Unsealed;
