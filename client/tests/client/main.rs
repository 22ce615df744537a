//! The client: its commands, configuration, ledger and connection.
#![allow(clippy::unwrap_used, reason = "tests")]

mod commands;
mod common;
mod config;
mod contrast;
mod dry_run;
mod forget;
mod ledger;
mod output;
mod plan;
mod predictions;
mod screen;
mod signals;
mod transport;
