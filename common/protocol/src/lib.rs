//! The protocol without sockets and clocks.
pub mod message;
pub mod transport;
