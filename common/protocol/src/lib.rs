//! The protocol without sockets and clocks.
pub mod coordinator;
pub mod driver;
pub mod message;
pub mod participant;
pub mod sum;
pub mod time;
pub mod transport;
