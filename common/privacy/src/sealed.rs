//! What no other crate may implement: where randomness comes from, where the ledger is kept, and who signs it.
//!
//! A trait with this supertrait can be implemented in this crate only, because the supertrait cannot be named outside. With the feature
//! `unsealed`, for simulation and tests, every type has it; the programs that sites and coordinators run do not enable the feature, and a test over
//! their dependencies holds that.

/// The seal.
pub trait Sealed {}

#[cfg(any(test, feature = "unsealed"))]
impl<T: ?Sized> Sealed for T {}
