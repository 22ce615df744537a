//! The protocol without sockets and clocks.
pub mod coordinator;
pub mod driver;
pub mod message;
pub mod participant;
pub mod sum;
#[cfg(test)]
mod testing;
pub mod time;
pub mod transport;
