//! The protocol's store on top of the database and the payload files.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use dp_pvi_privacy::{ClientId, Hash};
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::driver::{ServeError, Store as ProtocolStore, StoreError};
use dp_pvi_protocol::sum::PayloadError;

use crate::clock;
use crate::config::KeepUpdates;
use crate::error::{Result, ServerError};
use crate::store::{SmallPayload, Spool, Store, StoredRun, WriteError};

/// Store of one run. `persist` puts records into the transaction in progress; they are durable after [`RunStore::commit`], which
/// the engine calls before it gives any answer that follows from them. Nothing is written before that: small payloads whose round
/// closes in the same transaction, the usual case where sites are equally fast, never reach the database.
pub(super) struct RunStore {
    store: Store,
    run: StoredRun,
    spool: Spool,
    updates: KeepUpdates,
    /// Records of the transaction in progress.
    fresh: Vec<Record>,
    /// Small payloads of the transaction in progress that somebody may still read.
    payloads: HashMap<(ClientId, Hash), Vec<u8>>,
    /// Payload of the small update that the protocol decides about now.
    offered: Option<SmallPayload>,
    /// First and last payload of the last sum.
    summing: Option<(Instant, Instant)>,
}

impl RunStore {
    pub(super) fn new(store: Store, run: StoredRun, spool: Spool, updates: KeepUpdates) -> Self {
        Self { store, run, spool, updates, fresh: Vec::new(), payloads: HashMap::new(), offered: None, summing: None }
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
        for record in &records {
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
        self.store.commit()?;
        if self.updates == KeepUpdates::OpenRound {
            let closed = records.iter().rposition(|record| matches!(record, Record::RoundClosed { .. }));
            if let Some(closed) = closed {
                let open = records[closed..].iter().filter_map(|record| match record {
                    Record::UpdateStored { client, update, .. } => Some((client.clone(), update.hash())),
                    _ => None,
                });
                self.spool.retain_finished(&open.collect::<HashSet<_>>())?;
            }
        }
        Ok(records)
    }

    /// How long the payloads of the last sum took, once.
    pub(super) fn summing_took(&mut self) -> Option<Duration> {
        self.summing.take().map(|(first, last)| last.duration_since(first))
    }

    /// Removes the payload of an update that was excluded.
    pub(super) fn forget(&self, client: &ClientId, update: Hash) {
        self.spool.remove(client, update);
    }
}

impl ProtocolStore for RunStore {
    fn persist(&mut self, records: &[Record]) -> std::result::Result<(), StoreError> {
        for record in records {
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
        let stored;
        let small = match self.payloads.get(&(client.clone(), *update)) {
            Some(fresh) => Some(fresh),
            None => {
                stored = self.store.payload(&self.run, client, *update).map_err(store_error)?;
                stored.as_ref()
            }
        };
        let result = match small {
            Some(bytes) => sink(bytes).map_err(ServeError::Payload),
            None => self.spool.read(client, *update, sink).map_err(|error| match error {
                WriteError::Payload(error) => ServeError::Payload(error),
                WriteError::Io(error) => ServeError::Store(StoreError::Unavailable(format!("the payload of {client}: {error}"))),
            }),
        };
        let first = self.summing.map_or(started, |(first, _)| first);
        self.summing = Some((first, clock::instant()));
        result
    }
}

fn store_error(error: ServerError) -> StoreError {
    match error {
        ServerError::Corrupt(problem) => StoreError::Corrupt(problem),
        other => StoreError::Unavailable(other.to_string()),
    }
}
