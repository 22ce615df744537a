//! How a client reaches a server: gRPC in production, a faulty in-memory network in simulation, the same driver on both.

use dp_pvi_privacy::ledger::Attachment;

use crate::message::{Hello, MetricsReport, Next, Receipt, Refusal, Signed};
use crate::witness::Greeting;

/// Why a call did not give an answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Try again: the network or the server is away.
    #[error("the server cannot be reached ({0})")]
    Unreachable(String),
    /// The server refuses this client or message; trying again does not help.
    #[error("the server refused: {message}")]
    Rejected {
        /// Kind, for the exit code.
        kind: Rejection,
        /// The server's words.
        message: String,
    },
}

/// Kinds of rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// Certificate, identity or role.
    Authentication,
    /// Version or task hash.
    Version,
    /// Stale or unknown round, wrong size, wrong form.
    Message,
    /// A copy of this client is at work.
    Copy,
    /// The server does not know this client in this run yet: say hello, then try again.
    HelloFirst,
    /// Anything else.
    Other,
}

/// One client's connection. Implementations reconnect by themselves; a call fails only when its own patience is over.
#[allow(async_fn_in_trait, reason = "used generically inside this workspace only")]
pub trait Transport {
    /// Introduces the client.
    async fn hello(&mut self, hello: &Signed<Hello>) -> Result<Greeting, TransportError>;
    /// The server's answer to the hello was verified, and its task belongs to this client's schema: λ has at most so many numbers. A
    /// transport that puts vectors together from parts takes none after a hello before this.
    fn admit(&mut self, numbers: u64) {
        let _ = numbers;
    }
    /// Asks for work; `seen` = number of transcript entries that the client has. May hold the call open for a while.
    async fn next(&mut self, seen: u32) -> Result<Next, TransportError>;
    /// Sends a committed update: always the same bytes.
    async fn submit(&mut self, update: &Attachment) -> Result<Signed<Receipt>, TransportError>;
    /// Sends this site's signature on the run's charter.
    async fn consent(&mut self, signature: &[u8]) -> Result<(), TransportError>;
    /// Says that no update will come.
    async fn refuse(&mut self, refusal: &Signed<Refusal>) -> Result<(), TransportError>;
    /// Sends an evaluator's metrics.
    async fn report(&mut self, report: &Signed<MetricsReport>) -> Result<(), TransportError>;
}
