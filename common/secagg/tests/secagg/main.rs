//! The protocol of masked sums: equality with plain sums, the attacks on it, what survives a crash.
#![allow(clippy::unwrap_used, reason = "tests")]

mod durable;
mod faults;
mod harness;
mod masks;
mod noise;
mod protocol;
