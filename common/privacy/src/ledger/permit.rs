//! The right to run a mechanism. Only a ledger mints it, and only after the charge is durable.

use std::sync::{Arc, OnceLock};

use crate::noise::{NoRandomness, NoiseSource, Purpose};
use crate::sampler::Allocation;
use crate::shards::PermitScope;
use dp_pvi_accounting::event::DpEvent;
use dp_pvi_names::ReleaseId;

/// Why a step has no batch of units.
#[derive(Debug)]
pub(crate) enum NoBatch {
    /// It is no batch of an epoch.
    NotOne,
    /// The epoch was drawn over another number of units.
    OtherUnits,
    /// No randomness.
    NoRandomness(NoRandomness),
}

impl From<NoRandomness> for NoBatch {
    fn from(error: NoRandomness) -> Self {
        Self::NoRandomness(error)
    }
}

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

    /// Consumes the permit into exactly as many step permits as its event composes (one if it composes none). An epoch of random allocation is as many
    /// steps as it has batches, which share one draw of the units' batches: it is made at the first of them, and is gone with the last. A permit is spent in one process
    /// and its release is one message, so that no draw outlives either.
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
        let batches = match event {
            DpEvent::RandomAllocation { batches, .. } => u32::try_from(batches).ok(),
            _ => None,
        };
        let steps_of_one = u64::from(batches.unwrap_or(1));
        (0..count).flat_map(move |repetition| {
            let first = repetition.saturating_mul(steps_of_one);
            let epoch = batches.map(|batches| Arc::new(Epoch { first, batches, allocation: OnceLock::new() }));
            let (event, release, scope, fallback) = (event.clone(), release.clone(), scope.clone(), fallback.clone());
            (0..batches.unwrap_or(1)).map(move |number| StepPermit {
                event: event.clone(),
                release: release.clone(),
                scope: scope.clone(),
                fallback: fallback.clone(),
                step: first.saturating_add(number.into()),
                batch: epoch.clone().map(|epoch| (epoch, number)),
            })
        })
    }
}

/// What the steps of one epoch share: the batches of the units, drawn once and never again.
#[derive(Debug)]
struct Epoch {
    /// Number of its first step.
    first: u64,
    batches: u32,
    allocation: OnceLock<Allocation>,
}

/// The right to run one step. Not `Clone`.
#[derive(Debug)]
pub struct StepPermit {
    event: DpEvent,
    release: ReleaseId,
    scope: PermitScope,
    fallback: Option<DpEvent>,
    step: u64,
    /// Which batch of which epoch it is, where the event is one.
    batch: Option<(Arc<Epoch>, u32)>,
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

    /// Positions of the units in this step's batch. The first step of an epoch that asks draws the batches of all.
    ///
    /// # Errors
    /// The step is no batch of an epoch; the epoch was drawn over another number of units; no randomness.
    pub(crate) fn batch<N: NoiseSource>(&self, units: usize, noise: &N) -> Result<Vec<usize>, NoBatch> {
        let Some((epoch, number)) = &self.batch else { return Err(NoBatch::NotOne) };
        let allocation = match epoch.allocation.get() {
            Some(allocation) => allocation,
            None => {
                let drawn = Allocation::draw(&mut noise.stream(&self.release, epoch.first, Purpose::Coins)?, epoch.batches, units);
                // Where two steps ask at once, the first draw is that of both.
                epoch.allocation.get_or_init(|| drawn)
            }
        };
        if allocation.units() != units {
            return Err(NoBatch::OtherUnits);
        }
        Ok(allocation.batch(*number).to_vec())
    }
}
