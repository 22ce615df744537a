//! dp-pvi-client: the resident process of one site.
//!
//! A site keeps its records, its keys and its privacy budget; what leaves is a signed, clipped and noised vector per round, over one
//! outbound connection. The library behind the program is here so that tests can put the same pieces together:
//!
//! * [`config`]: `client.toml`, checked once.
//! * [`database`]: records in PostgreSQL. `engine`: records that a cluster of the site sums.
//! * [`ledger`]: the data set's ledger, compared with what is kept about it in a rollback guard.
//! * [`keys`], [`tls`], [`transport`]: who this client is, and its gRPC connection.
//! * [`snapshot`]: data behind the release gate, read before the hello. `screen`: what the site's own people are told of them.
//! * [`train`]: updates on a blocking thread.
//! * [`history`]: what the site keeps of a run beside its ledger; [`personal`]: what it may learn of its records for itself.
//! * [`run`]: one run from hello to end. The loop itself is `dp_pvi_protocol::driver`, which simulation and tests share.
//! * [`commands`], [`cli`]: the command line.
//!
//! # Interruptions
//!
//! The ledger is the only state that matters. A client that is killed at any instant and started again does what the ledger
//! says: a RESERVED visit is computed again under the same reservation, a COMMITTED or SENT one is sent again as it was.
//!
//! # Exit codes
//!
//! See [`error::ClientError::exit_code`].

pub mod approvals;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
#[cfg(feature = "postgres")]
pub mod database;
#[cfg(not(feature = "postgres"))]
#[path = "database/absent.rs"]
mod database;
pub mod dry_run;
#[cfg(feature = "parquet")]
mod engine;
#[cfg(not(feature = "parquet"))]
#[path = "engine/absent.rs"]
mod engine;
pub mod error;
pub mod history;
pub mod keys;
pub mod ledger;
pub mod observe;
pub mod output;
pub mod personal;
mod progress;
pub mod run;
mod screen;
pub mod snapshot;
pub mod telemetry;
pub mod tls;
pub mod train;
pub mod transport;
