//! The protocol's claims, on whole federations in virtual time.
#![allow(clippy::unwrap_used)]

mod aggregated;
mod asynchronous;
mod claims;
mod crashes;
mod early_end;
mod faults;
mod support;
