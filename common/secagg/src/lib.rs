#![cfg_attr(test, allow(clippy::unwrap_used))]
#![doc = include_str!("../README.md")]

pub mod account;
pub mod bounds;
pub mod charter;
pub mod client;
pub mod closing;
pub mod commitment;
pub mod error;
pub mod header;
pub mod mask;
pub mod plan;
pub mod ring;
pub mod seal;
pub mod server;
pub mod signed;
pub mod summer;
pub mod transcript;
pub mod upload;
