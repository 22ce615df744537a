//! What no other crate may implement: where randomness comes from, where the ledger is kept, and who signs it.
//!
//! A trait with this supertrait can be implemented in this crate only, because the supertrait cannot be named outside. With the feature
//! `unsealed`, for simulation and tests, every type has it. Client and server do not ask for the feature, and a test over their dependencies
//! holds that. But cargo compiles this crate once for all packages of one command: a build of the whole workspace compiles the traits open,
//! for the client too. What a site runs is therefore built apart (`deploy/build-programs.sh`).

/// The seal.
pub trait Sealed {}

#[cfg(any(test, feature = "unsealed"))]
impl<T: ?Sized> Sealed for T {}
