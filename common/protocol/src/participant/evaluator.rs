//! The evaluator's side: checks the same chain as a site, holds no ledger, and reports metrics on public data.

use std::sync::Arc;

use dp_pvi_posterior::task::ResolvedTask;

use super::{Identity, SiteError};
use crate::message::{HeldOutMetrics, Hello, MetricsReport, Next, RunEnd, Signed, Welcome};

/// A posterior to evaluate.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Number of rounds that λ contains (0 = prior).
    pub round: u32,
    /// λ.
    pub lambda: Arc<[f64]>,
}

/// What to do next.
#[derive(Debug)]
pub enum EvaluatorStep {
    /// Ask again later.
    Wait,
    /// Evaluate, then send [`EvaluatorParticipant::report`].
    Evaluate(Evaluation),
    /// The run is over; the final posterior is to be evaluated and reported too.
    Finished(Evaluation, Box<RunEnd>),
}

/// The evaluator's state machine.
#[derive(Debug)]
pub struct EvaluatorParticipant {
    identity: Identity,
}

impl EvaluatorParticipant {
    /// An evaluator that has not said hello.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { identity }
    }

    /// The first message of a connection.
    #[must_use]
    pub fn hello(&self) -> Signed<Hello> {
        let _ = &self.identity;
        unimplemented!("contract")
    }

    /// Checks the server's answer.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub fn on_welcome(&mut self, hello: &Signed<Hello>, welcome: &Signed<Welcome>) -> Result<Arc<ResolvedTask>, SiteError> {
        let _ = (hello, welcome);
        unimplemented!("contract")
    }

    /// Number of transcript entries that were received and checked.
    #[must_use]
    pub fn seen(&self) -> u32 {
        unimplemented!("contract")
    }

    /// What the server has.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub fn on_next(&mut self, next: Next) -> Result<EvaluatorStep, SiteError> {
        let _ = next;
        unimplemented!("contract")
    }

    /// Signs metrics.
    #[must_use]
    pub fn report(&self, evaluation: &Evaluation, metrics: HeldOutMetrics) -> Signed<MetricsReport> {
        let _ = (evaluation, metrics);
        unimplemented!("contract")
    }
}
