//! The protocol between one server and its sites, without sockets, clocks and files.
//!
//! * [`message`]: what is said. A signed message is its bytes and a signature; bytes are stored and forwarded as they came.
//! * [`coordinator`]: the server as a state machine. A run is the fold of its [`Record`](coordinator::Record)s, so a restarted
//!   server is where it was; every answer comes with the records that must be durable before it may be given.
//! * [`participant`]: a site as a state machine over its privacy ledger, and an evaluator. Neither trusts the server.
//! * [`bounds`]: what a peer may say. [`witness`]: a ledger's head, in its site's own words.
//! * [`statement`]: what was guaranteed to a site's records. [`shape`]: what a message of an honest site can be. [`early_end`]: whether a run may end before its plan.
//! * [`predictive`], [`metrics`]: predictions from a state, and how well they do on public records, which evaluators report.
//! * [`sum`]: payloads in chunks, checked and summed in O(d) memory.
//! * [`text`]: words of a peer, made fit for people's eyes.
//! * [`driver`]: the loops of both sides, generic over transport, store, trainer and clock. Production and simulation run these.
//!
//! # A round
//! 1. The server opens a round: a signed header with λ's hash and the hash of the last transcript entry.
//! 2. A site checks it, settles its earlier update by the entries that came with it (λ_m ← λ_m + ρΔ iff it was included), and
//!    charges its ledger. Only then does it compute, once. What it computed is durable before it is sent, and what is sent once is
//!    what is sent for ever.
//! 3. The server stores payload and record, then gives a signed receipt. The same update gets the same receipt; another update
//!    under the same name gets none.
//! 4. The round closes when all who were asked have answered, or at its deadline. λ′ = λ + ρΣΔ + r and the transcript entry are one
//!    record. A sequential turn that brought nothing is skipped; without its quorum a run is suspended until sites return.
//!
//! # What is absent
//! No clock (time is an argument), no socket, no file, no randomness, no async runtime. Persist, then send: no method
//! hands out an answer apart from the records that it depends on.
pub mod aggregation;
pub mod bounds;
mod classes;
mod codec;
pub mod concordance;
pub mod coordinator;
pub mod driver;
pub mod early_end;
pub mod ledger_head;
pub mod message;
pub mod metrics;
pub mod origin;
pub mod participant;
pub mod predictive;
#[cfg(test)]
mod predictive_tests;
pub mod shape;
pub mod statement;
pub mod sum;
pub mod summary;
#[cfg(test)]
mod testing;
pub mod text;
pub mod time;
pub mod transport;
pub mod witness;
