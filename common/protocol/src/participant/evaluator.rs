//! The evaluator's side: checks the same chain as a site, holds no ledger, and reports metrics on public data.

use std::sync::Arc;

use dp_pvi_posterior::task::ResolvedTask;

use super::chain::Chain;
use super::{Identity, SiteError};
use crate::message::{Hello, MetricsReport, Next, PublicMetrics, RunEnd, Signed, TranscriptEntry, Welcome};

/// A posterior to evaluate.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Number of rounds that λ contains (0 = prior).
    pub round: u32,
    /// λ.
    pub lambda: Arc<[f64]>,
}

/// What an evaluator does next.
#[derive(Debug)]
pub enum EvaluatorStep {
    /// Ask again later.
    Wait,
    /// Ask again at once: the server has more entries.
    More,
    /// Evaluate, then send [`EvaluatorParticipant::report`].
    Evaluate(Evaluation),
    /// The run is over; the final posterior is to be evaluated and reported too.
    Finished(Evaluation, Box<RunEnd>),
}

/// The evaluator's state machine.
#[derive(Debug)]
pub struct EvaluatorParticipant {
    identity: Identity,
    chain: Option<Chain>,
}

impl EvaluatorParticipant {
    /// An evaluator that has not said hello.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { identity, chain: None }
    }

    /// The first message of a connection.
    #[must_use]
    pub fn hello(&self) -> Signed<Hello> {
        self.identity.hello(None)
    }

    /// Checks the server's answer.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub(crate) fn on_welcome(&mut self, hello: &Signed<Hello>, welcome: &Signed<Welcome>) -> Result<Arc<ResolvedTask>, SiteError> {
        let (welcome, task) = self.identity.check_welcome(hello, welcome)?;
        if self.chain.as_ref().is_none_or(|chain| chain.run != welcome.run) {
            self.chain = Some(Chain::new(welcome.run, self.identity.server, &task));
        }
        Ok(task)
    }

    /// Number of transcript entries that were received and checked.
    #[must_use]
    pub fn seen(&self) -> u32 {
        self.chain.as_ref().map_or(0, |chain| chain.rounds)
    }

    /// What the server has.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub(crate) fn on_next(&mut self, next: Next) -> Result<EvaluatorStep, SiteError> {
        match next {
            // A charter is for sites.
            Next::Wait | Next::Charter(_) => Ok(EvaluatorStep::Wait),
            Next::Entries(some) => {
                self.follow(some.entries)?;
                Ok(EvaluatorStep::More)
            }
            Next::Round(mut start) => {
                let chain = self.follow(std::mem::take(&mut start.entries))?;
                chain.open(&start)?;
                Ok(EvaluatorStep::Evaluate(Evaluation { round: chain.rounds, lambda: start.lambda }))
            }
            Next::Finished(mut end) => {
                let chain = self.follow(std::mem::take(&mut end.entries))?;
                chain.end(&end)?;
                Ok(EvaluatorStep::Finished(Evaluation { round: chain.rounds, lambda: Arc::clone(&end.lambda) }, end))
            }
        }
    }

    /// Signs metrics; `None` before the welcome.
    #[must_use]
    pub fn report(&self, evaluation: &Evaluation, metrics: PublicMetrics) -> Option<Signed<MetricsReport>> {
        let run = self.chain.as_ref()?.run;
        Some(Signed::seal(&MetricsReport { run, round: evaluation.round, metrics: metrics.into_inner() }, &self.identity.key))
    }

    fn follow(&mut self, entries: Vec<Arc<TranscriptEntry>>) -> Result<&mut Chain, SiteError> {
        let chain = self.chain.as_mut().ok_or(SiteError::Order("a round came before the welcome"))?;
        for entry in entries {
            chain.close(entry)?;
        }
        Ok(chain)
    }
}
