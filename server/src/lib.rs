//! The server of a federation: it holds the posterior, opens rounds, takes signed updates and sums them. It cannot see a record:
//! nothing in it depends on the code that touches them.
//!
//! # Running a federation
//!
//! ```text
//! dp-pvi-server ca init --federation lung-fed --dns fed.example.org -o tls/    # once
//! dp-pvi-server ca sign hospital-1.csr.pem --ca tls/ -o out/                   # for every site, also while the server runs
//! dp-pvi-server check --config server.toml                                     # what will be computed, and its hash
//! dp-pvi-server run --config server.toml                                       # until the run ends
//! dp-pvi-server status | pause | resume | stop --config server.toml            # meanwhile; stop also later
//! dp-pvi-server export --config server.toml -o results/                        # at any time
//! dp-pvi-server summer csr | check | run --config summer.toml                  # the second party of aggregated runs, somewhere else
//! ```
//!
//! # How it is built
//!
//! * [`config`]: `server.toml` and the environment become checked values once.
//! * [`ca`], [`tls`]: who belongs to the federation; TLS 1.3 with client certificates and an enforced revocation list.
//! * `listener`, `service`: connections and calls, each bound to the name in its certificate.
//! * `service::session`: one stream for the rounds of a site. It sends an update and asks for the next round in the same breath, so a
//!   round is one exchange; every request gets one answer, in order, and a refusal ends the stream.
//! * `engine`: the one thread that owns the run. It batches messages, lets the protocol decide, commits, then answers: updates that
//!   follow each other closely share a flush, and their receipts a signature.
//! * [`store`]: one SQLite file with the run's records and small payloads, large payloads beside it. A killed server continues where it
//!   was.
//! * `mailbox`, `service::aggregation`: questions to the summer, which calls like every other party; an answer goes to the engine.
//! * [`summer`]: the second party of aggregated runs, a process of its own with its own keys and disk.
//! * [`export`]: `posterior.json`, `report.html`, the transcript.
//! * [`admin`], `http`, `convergence_status`, `telemetry`: operators and monitoring.
//!
//! # Exit codes
//!
//! 0 ok · 1 failed · 2 usage or configuration · 4 invalid file · 5 no server answers · 6 authentication · 7 state of another task · 9 quorum
//! or aggregation lost · 11 state damaged ·
//! 12 state or resource unavailable (lock, disk full, port) · 129/130/143 signals.

pub mod admin;
pub mod ca;
pub mod cli;
mod clock;
pub mod config;
mod connection_limiter;
mod convergence_status;
mod engine;
pub mod error;
mod expiry;
pub mod export;
mod files;
mod http;
mod listener;
mod mailbox;
mod resource_backoff;
mod server;
mod service;
mod stopped;
pub mod store;
pub mod summer;
mod task;
mod telemetry;
pub mod tls;

pub use engine::{Event, EventSink, MemberView, RefusedHello, Snapshot, SummerView};
pub use error::{Result, ServerError};
pub use export::ConvergenceStatus;
pub use server::{Running, Start, run, start};
pub use stopped::stop_stored;
pub use task::resolve_task;
