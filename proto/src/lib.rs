//! The wire of a federation: the generated gRPC service, conversions between its frames and the types of
//! [`dp_pvi_protocol`], and the names and files by which server and sites know each other.
//!
//! This is the only crate that knows protobuf. Signed bodies pass through it as opaque bytes: it never encodes one again.
//!
//! # What a client can send
//!
//! [`client`] has no function that takes a plain vector. An update goes through [`client::submission`], which takes the
//! [`Attachment`](dp_pvi_privacy::ledger::Attachment) that the site's ledger committed (its payload can only come from a
//! [`Released`](dp_pvi_privacy::Released) value); an evaluator's metrics are a signed
//! [`MetricsReport`](dp_pvi_protocol::message::MetricsReport).
//!
//! # Limits
//!
//! Vectors travel in chunks of [`CHUNK_BYTES`], so a message never comes near [`MESSAGE_BYTES`], whatever the dimension.

pub mod client;
pub mod connection;
mod convert;
pub mod names;
pub mod server;
pub mod summer;

pub use convert::FrameError;

/// Generated from `proto/dp_pvi/v1/federation.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("dp_pvi.v1");
}

/// Most bytes of a vector in one frame: long enough that frames cost nothing, short enough that a server with many clients holds little.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Limit on one message that both sides set.
pub const MESSAGE_BYTES: usize = 4 << 20;

/// Most bytes of a welcome: a task with a schema of a million named columns fits.
pub(crate) const WELCOME_BYTES: usize = 64 << 20;

/// Most bytes of the message that is beside a welcome: a hello, or an update without its payload.
pub(crate) const WITNESS_BYTES: usize = 64 << 10;

/// Response metadata that names the reason of an error status, for programs.
pub(crate) const ERROR_KEY: &str = "dp-pvi-error";

#[cfg(test)]
mod tests;
