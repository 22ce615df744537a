//! Federations of real programs over TLS: what they compute, what they spend, and what they survive.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

mod accounting;
mod aggregated;
mod aggregated_restarts;
mod agreement;
mod asynchronous;
mod budget;
mod certificates;
mod clock;
mod convergence;
mod crash;
mod descriptions;
mod equality;
mod formulas;
mod fuzz;
mod hostile;
mod inputs;
mod methods;
mod oracles;
mod personal;
mod postgres;
mod private;
mod programs;
mod resource_exhaustion;
mod rogue_database;
mod site_bytes;
mod survival;
