//! The right to run a mechanism. Only a ledger mints it, and only after the charge is durable.

use crate::release::ReleaseId;
use crate::shards::PermitScope;
use dp_pvi_accounting::event::DpEvent;

/// The right to run exactly one event once. Not `Clone`; only a ledger mints it.
#[derive(Debug)]
pub struct Permit {
    event: DpEvent,
    release: ReleaseId,
    scope: PermitScope,
    fallback: Option<DpEvent>,
}

impl Permit {
    pub(crate) fn mint(event: DpEvent, release: ReleaseId, scope: PermitScope) -> Self {
        Self { event, release, scope, fallback: None }
    }

    pub(crate) fn with_fallback(self, fallback: Option<DpEvent>) -> Self {
        Self { fallback, ..self }
    }

    /// What the ledger protects: decides how units come into shards.
    #[must_use]
    pub fn scope(&self) -> &PermitScope {
        &self.scope
    }

    /// The event.
    #[must_use]
    pub fn event(&self) -> &DpEvent {
        &self.event
    }

    /// The release.
    #[must_use]
    pub fn release(&self) -> &ReleaseId {
        &self.release
    }

    /// Consumes the permit into exactly as many step permits as its event composes (one if it composes none).
    pub fn into_steps(self) -> impl Iterator<Item = StepPermit> {
        let (event, count) = match self.event {
            DpEvent::Composed { event, count } => (*event, count),
            event => (event, 1),
        };
        // The fallback of one step; a fallback of another number of steps fits no step.
        let fallback = match self.fallback {
            Some(DpEvent::Composed { event, count: steps }) if steps == count => Some(*event),
            fallback => fallback,
        };
        let (release, scope) = (self.release, self.scope);
        (0..count).map(move |step| StepPermit {
            event: event.clone(),
            release: release.clone(),
            scope: scope.clone(),
            fallback: fallback.clone(),
            step,
        })
    }
}

/// The right to run one step. Not `Clone`.
#[derive(Debug)]
pub struct StepPermit {
    event: DpEvent,
    release: ReleaseId,
    scope: PermitScope,
    fallback: Option<DpEvent>,
    step: u64,
}

impl StepPermit {
    /// The event of this step.
    #[must_use]
    pub fn event(&self) -> &DpEvent {
        &self.event
    }

    /// What was booked for this site's own part of an aggregated step.
    #[must_use]
    pub fn fallback(&self) -> Option<&DpEvent> {
        self.fallback.as_ref()
    }

    /// The release that the step belongs to.
    #[must_use]
    pub fn release(&self) -> &ReleaseId {
        &self.release
    }

    /// What the ledger protects: decides how units come into shards.
    #[must_use]
    pub fn scope(&self) -> &PermitScope {
        &self.scope
    }

    /// Number of the step, from 0.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }
}
