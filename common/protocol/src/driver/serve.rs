//! The server's loop body: takes inputs, makes the coordinator's records durable, then answers. The server process adds
//! sockets and a store, the simulation an in-memory network and store.

use std::collections::BTreeMap;
use std::sync::Arc;

use dp_pvi_names::{ClientId, Hash, Payload, PayloadKind};

use crate::aggregation::{SummerReply, SummerRequest};
use crate::coordinator::{Action, Answered, Begin, Close, Control, Coordinator, Durable, Heeded, Peer, Record, Rejected};
use crate::message::{Hello, MetricsReport, Next, Receipt, Refusal, Signed, Update};
use crate::sum::{Accumulator, PayloadError, Sum};
use crate::time::Timestamp;
use crate::witness::Greeting;

/// The store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// What is there is not what was written.
    #[error("the server's state is damaged ({0}): restore it from a copy")]
    Corrupt(String),
    /// Lock, disk full, permissions.
    #[error("the server's state cannot be written or read now ({0})")]
    Unavailable(String),
}

/// Durable state of a server.
pub trait Store {
    /// Appends records in one transaction, in order; returns when they would survive a power loss.
    ///
    /// # Errors
    /// Nothing was appended.
    fn persist(&mut self, records: &[Record]) -> Result<(), StoreError>;

    /// Feeds a stored payload to `sink`, in chunks, from the start. `update` is the hash of the update message.
    ///
    /// # Errors
    /// It is not there or cannot be read, or `sink` failed ([`ServeError::Payload`]).
    fn payload(
        &mut self,
        client: &ClientId,
        update: &Hash,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), PayloadError>,
    ) -> Result<(), ServeError>;

    /// The payload of an update that the run's first closed round took, as it came. `None` where it was not kept, cannot be read, or is not what was stored.
    fn first_payload(&mut self, client: &ClientId, update: &Hash) -> Option<Vec<u8>>;
}

/// Why a call has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ServeError {
    /// The message is not accepted; nothing changed.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The store failed. The server must be restarted: memory may be ahead of the disk, and every later call fails too.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored payload is not what was stored.
    #[error("a stored payload is damaged ({0})")]
    Payload(#[from] PayloadError),
}

/// Why an answer of the summer brought nothing, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SummerTrouble {
    /// It is to be asked again later.
    Again(String),
    /// It refused for good: the run ends.
    Never(String),
}

/// A coordinator with its store. Every method returns only what is durable already.
#[derive(Debug)]
pub struct Server<S> {
    coordinator: Coordinator,
    store: S,
    revision: u64,
    /// What sites sent at their first visit, as far as it was asked for; by the hash of the update.
    first_parts: BTreeMap<ClientId, (Hash, Arc<[f64]>)>,
    /// The store failed: memory may be ahead of the disk.
    broken: Option<StoreError>,
}

impl<S: Store> Server<S> {
    /// Puts a restored coordinator and its store together. Call [`Server::tick`] next.
    #[must_use]
    pub fn new(coordinator: Coordinator, store: S) -> Self {
        Self { coordinator, store, revision: 0, first_parts: BTreeMap::new(), broken: None }
    }

    /// The coordinator, for views.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The coordinator, for [`Coordinator::set_enrolled`].
    #[must_use]
    pub fn coordinator_mut(&mut self) -> &mut Coordinator {
        &mut self.coordinator
    }

    /// The store.
    #[must_use]
    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Does all that time and earlier inputs brought: opens, sums, closes, ends. Every other method calls it itself.
    /// Returns when to call it again if nothing comes in.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn tick(&mut self, now: Timestamp) -> Result<Option<Timestamp>, ServeError> {
        self.usable()?;
        loop {
            let polled = self.coordinator.poll(now);
            match self.settle(polled)? {
                Action::Rest => return Ok(self.coordinator.wake_at()),
                Action::Again => {}
                Action::Close(close) => {
                    let sum = self.sum(close).inspect_err(|error| self.fail(error))?;
                    let closed = self.coordinator.on_sum(&sum, now);
                    self.settle(closed)?;
                }
            }
        }
    }

    /// Answers a hello.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn hello(&mut self, hello: &Signed<Hello>, peer: &Peer, now: Timestamp) -> Result<Greeting, ServeError> {
        self.input(now, |coordinator| coordinator.on_hello(hello, peer, now))
    }

    /// What there is for a client.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn next(&mut self, client: &ClientId, seen: u32, now: Timestamp) -> Result<Next, ServeError> {
        self.tick(now)?;
        Ok(self.coordinator.next_for(client, seen)?)
    }

    /// An update's message came; its payload follows if accepted.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn begin(&mut self, client: &ClientId, update: &Signed<Update>, now: Timestamp) -> Result<Begin, ServeError> {
        let mut begin = self.input(now, |coordinator| coordinator.on_update_begin(client, update, now))?;
        if let (Begin::Accept(expected), Some(first)) = (&mut begin, self.first_part(client))
            && let Ok(Some(shape)) =
                update.peek().map_err(Rejected::from).and_then(|body| self.coordinator.shape(client, &body, Some(&first)))
        {
            expected.shape = Some(shape);
        }
        Ok(begin)
    }

    /// What a site sent at its first visit, where that bounds what it sends later and the store has kept it.
    fn first_part(&mut self, client: &ClientId) -> Option<Arc<[f64]>> {
        let update = self.coordinator.first_update(client)?;
        if let Some((_, part)) = self.first_parts.get(client).filter(|(of, _)| *of == update) {
            return Some(Arc::clone(part));
        }
        let PayloadKind::Lattice { exponent } = self.coordinator.task().message(0).ok()?.kind else { return None };
        let bytes = self.store.first_payload(client, &update)?;
        let Payload::Lattice(vector) = Payload::from_bytes(PayloadKind::Lattice { exponent }, &bytes)? else { return None };
        let part: Arc<[f64]> = vector.to_f64().into();
        self.first_parts.insert(client.clone(), (update, Arc::clone(&part)));
        Some(part)
    }

    /// The accepted update's payload is checked and durable.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn stored(&mut self, client: &ClientId, update: &Signed<Update>, now: Timestamp) -> Result<Answered, ServeError> {
        self.input(now, |coordinator| coordinator.on_update_stored(client, update, now))
    }

    /// The receipt of an update that was answered. For many see [`Coordinator::receipts`].
    ///
    /// # Errors
    /// It was answered by another server.
    pub fn receipt(&self, answered: &Answered) -> Result<Signed<Receipt>, ServeError> {
        let receipts = self.coordinator.receipts(std::slice::from_ref(answered));
        receipts.into_iter().next().ok_or(ServeError::Rejected(Rejected::UnknownRound))
    }

    /// A refusal came.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn refuse(&mut self, client: &ClientId, refusal: &Signed<Refusal>, now: Timestamp) -> Result<Heeded, ServeError> {
        self.input(now, |coordinator| coordinator.on_refusal(client, refusal, now))
    }

    /// Metrics came.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn report(&mut self, client: &ClientId, report: &Signed<MetricsReport>, now: Timestamp) -> Result<(), ServeError> {
        self.input(now, |coordinator| coordinator.on_metrics(client, report, now))
    }

    /// A site signed the charter.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn consent(&mut self, client: &ClientId, signature: &[u8], now: Timestamp) -> Result<(), ServeError> {
        self.input(now, |coordinator| coordinator.on_consent(client, signature, now))
    }

    /// What the summer is to be asked now, if anything: the same until something changed.
    #[must_use]
    pub fn summer_request(&self, now: Timestamp) -> Option<SummerRequest> {
        self.coordinator.summer_request(now)
    }

    /// The summer's answer. `Ok` says why it brought nothing, if so.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn summer_replied(&mut self, reply: SummerReply, now: Timestamp) -> Result<Option<SummerTrouble>, ServeError> {
        self.tick(now)?;
        let trouble = match self.coordinator.on_summer(reply, now) {
            Ok(durable) => self.settle(durable)?.map(SummerTrouble::Never),
            Err(error) => Some(SummerTrouble::Again(error.to_string())),
        };
        self.tick(now)?;
        Ok(trouble)
    }

    /// An operator pauses or resumes.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn control(&mut self, control: Control, now: Timestamp) -> Result<(), ServeError> {
        self.input(now, |coordinator| Ok(coordinator.control(control, now)))
    }

    /// An operator ends the run.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn stop(&mut self, now: Timestamp) -> Result<(), ServeError> {
        self.input(now, |coordinator| Ok(coordinator.stop(now)))
    }

    /// One input: time first, so that a message after a deadline finds the round closed however late the timer is; then the
    /// input, durable; then what it brings about.
    fn input<T>(&mut self, now: Timestamp, handle: impl FnOnce(&mut Coordinator) -> Result<Durable<T>, Rejected>) -> Result<T, ServeError> {
        self.tick(now)?;
        let handled = handle(&mut self.coordinator)?;
        let answer = self.settle(handled)?;
        self.tick(now)?;
        Ok(answer)
    }

    /// Persists, then hands out.
    fn settle<T>(&mut self, durable: Durable<T>) -> Result<T, ServeError> {
        if !durable.records.is_empty() {
            self.store.persist(&durable.records).map_err(ServeError::Store).inspect_err(|error| self.fail(error))?;
            self.revision += 1;
        }
        Ok(durable.then)
    }

    fn sum(&mut self, close: Close) -> Result<Sum, ServeError> {
        let mut accumulator = Accumulator::new(close);
        while let Some((client, update)) = accumulator.wants().cloned() {
            self.store.payload(&client, &update, &mut |chunk| accumulator.add(chunk))?;
            accumulator.end_of_payload()?;
        }
        Ok(accumulator.finish()?)
    }

    fn usable(&self) -> Result<(), ServeError> {
        self.broken.clone().map_or(Ok(()), |error| Err(ServeError::Store(error)))
    }

    fn fail(&mut self, error: &ServeError) {
        self.broken = Some(match error {
            ServeError::Store(error) => error.clone(),
            other => StoreError::Corrupt(other.to_string()),
        });
    }
}
