//! The server as a program and as a library, over real sockets.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

mod connections;
mod damage;
mod outputs;
mod pages;
mod process;
mod run;
mod summer;
mod support;
mod suspension;
