//! The protocol's store on top of the database and the payload files.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dp_pvi_names::{ClientId, Hash, PayloadKind};
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::driver::{ServeError, Store as ProtocolStore, StoreError};
use dp_pvi_protocol::message::{PayloadHasher, payload_hash};
use dp_pvi_protocol::sum::PayloadError;

use crate::clock;
use crate::config::KeepUpdates;
use crate::error::{Result, ServerError};
use crate::resource_backoff::with_backoff;
use crate::store::{PayloadStore, SmallPayload, Store, StoredRun, WriteError};
use crate::telemetry::Telemetry;

/// Store of one run. `persist` puts records into the transaction in progress; they are durable after [`RunStore::commit`], which
/// the engine calls before it gives any answer that follows from them. Nothing is written before that: small payloads whose round
/// closes in the same transaction, the usual case where sites are equally fast, never reach the database.
pub(super) struct RunStore {
    store: Store,
    run: StoredRun,
    payload_store: PayloadStore,
    updates: KeepUpdates,
    /// Records of the transaction in progress.
    fresh: Vec<Record>,
    /// Small payloads of the transaction in progress that someone may still read.
    payloads: HashMap<(ClientId, Hash), Vec<u8>>,
    /// Payload of the small update that the protocol decides about now.
    offered: Option<SmallPayload>,
    /// What the payloads that may still be summed must be.
    announced: Announced,
    telemetry: Arc<Telemetry>,
    /// First and last payload of the last sum.
    summing: Option<(Instant, Instant)>,
}

/// What stored updates say of their payloads, by client and hash of the update. A payload is held against it when it is read: a disk may give back other bytes than it got.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// Until a round has taken them.
    open: HashMap<(ClientId, Hash), Payload>,
    /// Those that the first round took: what a site sends later is compared with them.
    first: HashMap<(ClientId, Hash), Payload>,
    /// Whether a round has closed.
    closed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Payload {
    kind: PayloadKind,
    bytes: u64,
    hash: Hash,
}

impl Announced {
    /// Follows the records of a run.
    pub(super) fn note(&mut self, record: &Record) {
        match record {
            Record::UpdateStored { client, update, .. } => {
                // An update that cannot be read is not in the map, so its payload is not summed.
                if let Ok(body) = update.peek() {
                    let payload = Payload { kind: body.kind, bytes: body.coordinates.saturating_mul(8), hash: body.payload };
                    self.open.insert((client.clone(), update.hash()), payload);
                }
            }
            Record::RoundClosed { entry, .. } => {
                let taken: Vec<_> = entry.included.iter().filter_map(|update| self.open.remove_entry(update)).collect();
                if !std::mem::replace(&mut self.closed, true) {
                    self.first.extend(taken);
                }
            }
            _ => {}
        }
    }
}

impl RunStore {
    pub(super) fn new(
        store: Store,
        run: StoredRun,
        payload_store: PayloadStore,
        updates: KeepUpdates,
        announced: Announced,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        let (fresh, payloads) = (Vec::new(), HashMap::new());
        Self { store, run, payload_store, updates, fresh, payloads, offered: None, announced, telemetry, summing: None }
    }

    /// A small payload: it is stored in the row of its update's record, if there will be one.
    pub(super) fn offer(&mut self, payload: SmallPayload) {
        self.offered = Some(payload);
    }

    /// Drops what was offered and not taken.
    pub(super) fn withdraw(&mut self) {
        self.offered = None;
    }

    /// Makes the transaction in progress durable and returns its records.
    pub(super) fn commit(&mut self) -> Result<Vec<Record>> {
        let (records, payloads) = (std::mem::take(&mut self.fresh), std::mem::take(&mut self.payloads));
        let telemetry = Arc::clone(&self.telemetry);
        with_backoff(
            &telemetry,
            "records could not be stored",
            |error| matches!(error, ServerError::Exhausted(_)),
            || self.write(&records, &payloads).inspect_err(|_| self.store.roll_back()),
        )?;
        if self.updates == KeepUpdates::OpenRound {
            let closed = records.iter().rposition(|record| matches!(record, Record::RoundClosed { .. }));
            if let Some(closed) = closed {
                let open = records[closed..].iter().filter_map(|record| match record {
                    Record::UpdateStored { client, update, .. } => Some((client.clone(), update.hash())),
                    _ => None,
                });
                // Left-overs go at the next close or the next start.
                if let Err(problem) = self.payload_store.retain_finished(&open.collect::<HashSet<_>>()) {
                    self.telemetry.resource_exhausted("payloads that nobody needs any more could not be removed", &problem);
                }
            }
        }
        Ok(records)
    }

    /// All records of a transaction, durably.
    fn write(&mut self, records: &[Record], payloads: &HashMap<(ClientId, Hash), Vec<u8>>) -> Result<()> {
        for record in records {
            let payload = match record {
                Record::UpdateStored { client, update, .. } => payloads.get(&(client.clone(), update.hash())),
                _ => None,
            };
            self.store.append(&self.run, record, payload.map(Vec::as_slice))?;
            if matches!(record, Record::RoundClosed { .. }) {
                match self.updates {
                    KeepUpdates::OpenRound => self.store.forget_payloads(&self.run)?,
                    KeepUpdates::All => self.store.rounds_closed(&self.run),
                }
            }
        }
        self.store.commit()
    }

    /// How long the payloads of the last sum took, once.
    pub(super) fn summing_took(&mut self) -> Option<Duration> {
        self.summing.take().map(|(first, last)| last.duration_since(first))
    }

    /// Removes the payload of an update that was excluded.
    pub(super) fn forget(&self, client: &ClientId, update: Hash) {
        self.payload_store.remove(client, update);
    }
}

impl ProtocolStore for RunStore {
    fn persist(&mut self, records: &[Record]) -> std::result::Result<(), StoreError> {
        for record in records {
            self.announced.note(record);
            match record {
                Record::UpdateStored { client, update, .. } => {
                    let key = (client.clone(), update.hash());
                    if let Some(offered) = self.offered.take_if(|offered| (&offered.client, &offered.update) == (&key.0, &key.1)) {
                        self.payloads.insert(key, offered.bytes);
                    }
                }
                Record::RoundClosed { .. } if self.updates == KeepUpdates::OpenRound => self.payloads.clear(),
                _ => {}
            }
        }
        self.fresh.extend_from_slice(records);
        Ok(())
    }

    fn payload(
        &mut self,
        client: &ClientId,
        update: &Hash,
        sink: &mut dyn FnMut(&[u8]) -> std::result::Result<(), PayloadError>,
    ) -> std::result::Result<(), ServeError> {
        let started = clock::instant();
        let damaged =
            || ServeError::Store(StoreError::Corrupt(format!("the payload of {client} is not the one that its update announced")));
        let key = (client.clone(), *update);
        let announced = *self.announced.open.get(&key).ok_or_else(damaged)?;
        let (mut hasher, mut length) = (PayloadHasher::new(announced.kind, announced.bytes), 0_u64);
        let mut checked = |chunk: &[u8]| {
            hasher.update(chunk);
            length += chunk.len() as u64;
            sink(chunk)
        };
        let stored;
        let small = match self.payloads.get(&key) {
            Some(fresh) => Some(fresh),
            None => {
                stored = self.store.payload(&self.run, client, *update).map_err(store_error)?;
                stored.as_ref()
            }
        };
        match small {
            Some(bytes) => checked(bytes).map_err(ServeError::Payload)?,
            None => self.payload_store.read(client, *update, &self.telemetry, &mut checked).map_err(|error| match error {
                WriteError::Payload(error) => ServeError::Payload(error),
                WriteError::Io(error) => ServeError::Store(StoreError::Unavailable(format!("the payload of {client}: {error}"))),
            })?,
        }
        let first = self.summing.map_or(started, |(first, _)| first);
        self.summing = Some((first, clock::instant()));
        if length != announced.bytes || hasher.finish() != announced.hash {
            return Err(damaged());
        }
        Ok(())
    }

    fn first_payload(&mut self, client: &ClientId, update: &Hash) -> Option<Vec<u8>> {
        let key = (client.clone(), *update);
        let announced = *self.announced.first.get(&key)?;
        let small = match self.payloads.get(&key) {
            Some(fresh) => Some(fresh.clone()),
            None => self.store.payload(&self.run, client, *update).ok()?,
        };
        let bytes = match small {
            Some(bytes) => bytes,
            None => {
                let mut bytes = Vec::new();
                let mut keep = |chunk: &[u8]| -> std::result::Result<(), PayloadError> {
                    bytes.extend_from_slice(chunk);
                    Ok(())
                };
                self.payload_store.read(client, *update, &self.telemetry, &mut keep).ok()?;
                bytes
            }
        };
        (payload_hash(announced.kind, &bytes) == announced.hash).then_some(bytes)
    }
}

fn store_error(error: ServerError) -> StoreError {
    match error {
        ServerError::Corrupt(problem) => StoreError::Corrupt(problem.to_string()),
        other => StoreError::Unavailable(other.to_string()),
    }
}
