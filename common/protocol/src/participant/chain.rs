//! What every client checks of the server's word: signatures, the chain of entries, rounds in order, λ's hash.

use std::sync::Arc;

use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_posterior::task::bounds::MAX_SITES;
use dp_pvi_posterior::task::{EarlyEndSpec, ResolvedTask, ScheduleSpec};
use dp_pvi_secagg::header::SignedHeader;
use dp_pvi_secagg::transcript::SignedEntry;
use ed25519_dalek::VerifyingKey;

use super::SiteError;
use crate::codec::decode;
use crate::message::{RoundHeader, RoundStart, RunEnd, RunOutcome, Signed, TranscriptEntry, is_end, vector_hash};

/// The part of a run that a client has seen.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) run: RunId,
    server: VerifyingKey,
    visits: u32,
    /// Most rounds of the run.
    most_rounds: u32,
    /// The rule by which the run may end before its last round.
    early_end: Option<EarlyEndSpec>,
    /// Numbers of λ.
    coordinates: usize,
    /// Closed rounds.
    pub(super) rounds: u32,
    /// Hash of the last entry.
    previous: Hash,
    /// Hash of λ after it.
    lambda: Hash,
    /// Header of the open round, once it was seen.
    open: Option<Hash>,
    /// Whether headers carry a part of an aggregation.
    parts: HeaderParts,
}

/// What a round's header carries beside its own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderParts {
    None,
    Aggregation,
}

/// A closed round.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) round: u32,
    pub(super) visit: u32,
    pub(super) header: Hash,
    pub(super) included: Vec<(ClientId, Hash)>,
    /// The aggregation's header and entry.
    pub(super) aggregation: Option<(SignedHeader, SignedEntry)>,
}

impl Chain {
    /// A run of which nothing was seen; `initial` is λ₀.
    pub(super) fn new(run: RunId, server: VerifyingKey, task: &ResolvedTask) -> Self {
        let parts = if task.aggregation.is_some() { HeaderParts::Aggregation } else { HeaderParts::None };
        let initial = task.rule().initial();
        let (lambda, coordinates, visits) = (vector_hash(&initial), initial.len(), task.visits());
        let most_rounds = match task.schedule {
            ScheduleSpec::Synchronous { rounds } => rounds,
            ScheduleSpec::Sequential { .. } | ScheduleSpec::Asynchronous { .. } => visits.saturating_mul(MAX_SITES),
        };
        Self {
            run,
            server,
            visits,
            most_rounds,
            early_end: task.early_end,
            coordinates,
            rounds: 0,
            previous: Hash::default(),
            lambda,
            open: None,
            parts,
        }
    }

    /// Checks the next entry.
    pub(super) fn close(&mut self, entry: Arc<TranscriptEntry>) -> Result<Closed, SiteError> {
        let header = self.header(&entry.header)?;
        if entry.previous != self.previous {
            return Err(SiteError::Server("its transcript does not continue the one that it gave before"));
        }
        if self.rounds >= self.most_rounds {
            return Err(SiteError::Server("its transcript has more rounds than the task"));
        }
        self.rounds += 1;
        self.previous = entry.hash();
        self.lambda = entry.lambda;
        self.open = None;
        let entry = Arc::unwrap_or_clone(entry);
        let aggregation = match (self.parts, entry.aggregation) {
            (HeaderParts::None, None) => None,
            (HeaderParts::Aggregation, Some(part)) => Some((aggregation_header(&header)?, part)),
            _ => return Err(SiteError::Server("its transcript does not say how a round was aggregated")),
        };
        Ok(Closed { round: header.round, visit: header.visit, header: entry.header.hash(), included: entry.included, aggregation })
    }

    /// Checks an open round, after its entries.
    pub(super) fn open(&mut self, start: &RoundStart) -> Result<RoundHeader, SiteError> {
        let header = self.header(&start.header)?;
        self.lambda(&start.lambda)?;
        self.open = Some(start.header.hash());
        Ok(header)
    }

    /// Checks the end of the run, after its entries.
    pub(super) fn end(&self, end: &RunEnd) -> Result<(), SiteError> {
        let header = end.header.open(&self.server)?;
        self.follows(&header)?;
        if !is_end(&header.reserved, end.outcome) {
            return Err(SiteError::Server("it says that the run is over without signing it"));
        }
        if end.outcome == RunOutcome::Converged && self.early_end.is_none_or(|rule| self.rounds <= rule.rounds) {
            return Err(SiteError::Server("it ends the run by a rule that the task does not have, or before it can be met"));
        }
        self.lambda(&end.lambda)
    }

    fn header(&self, signed: &Signed<RoundHeader>) -> Result<RoundHeader, SiteError> {
        let header = signed.open(&self.server)?;
        self.follows(&header)?;
        if self.open.is_some_and(|known| known != signed.hash()) {
            return Err(SiteError::Server("it opened one round in two different ways"));
        }
        let parts = match self.parts {
            HeaderParts::None => 0,
            HeaderParts::Aggregation => 1,
        };
        if header.visit >= self.visits || header.reserved.len() != parts {
            return Err(SiteError::Server("it asks for more than the task states"));
        }
        Ok(header)
    }

    fn follows(&self, header: &RoundHeader) -> Result<(), SiteError> {
        if header.run != self.run {
            return Err(SiteError::Server("it sent a round of another run"));
        }
        if header.round != self.rounds || header.previous != self.previous || header.lambda != self.lambda {
            return Err(SiteError::Server("a round does not continue the transcript that it gave before"));
        }
        Ok(())
    }

    fn lambda(&self, lambda: &[f64]) -> Result<(), SiteError> {
        if lambda.len() != self.coordinates {
            return Err(SiteError::Server("its posterior has another length than the task's"));
        }
        if vector_hash(lambda) != self.lambda {
            return Err(SiteError::Server("its posterior is not the one in the transcript"));
        }
        Ok(())
    }
}

/// The aggregation's header inside a round's header; its signatures are not checked yet.
pub(super) fn aggregation_header(header: &RoundHeader) -> Result<SignedHeader, SiteError> {
    let part = header.reserved.first().and_then(|part| decode(part));
    part.ok_or(SiteError::Server("a round's header holds no readable part of the aggregation"))
}
