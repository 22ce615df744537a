//! A federation on one machine: the production state machines and loops over an in-memory network with faults, in virtual
//! time and with seeded noise.

pub mod disk;
pub mod executor;
pub mod experiment;
pub mod federation;
pub mod generate;
pub mod network;
pub mod noise;
