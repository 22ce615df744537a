//! The server's disk in memory: records are kept as bytes, as a real store would keep them, and writes can be made to fail.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use dp_pvi_names::{ClientId, Hash};
use dp_pvi_privacy::ledger::memory::Failure;
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::driver::{ServeError, Store, StoreError};
use dp_pvi_protocol::sum::PayloadError;

/// A disk. Clones are handles to the same one: it survives the server that wrote to it.
#[derive(Debug, Clone, Default)]
pub struct ServerDisk {
    content: Rc<RefCell<Content>>,
}

#[derive(Debug, Default)]
struct Content {
    records: Vec<Vec<u8>>,
    payloads: BTreeMap<(ClientId, Hash), Vec<u8>>,
    failures: BTreeMap<u64, Failure>,
    writes: u64,
}

impl ServerDisk {
    /// All records, oldest first.
    ///
    /// # Panics
    /// A record cannot be read back: a bug of the record's encoding.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.records_from(0)
    }

    /// Records from a position on.
    ///
    /// # Panics
    /// As [`ServerDisk::records`].
    #[must_use]
    pub(crate) fn records_from(&self, position: usize) -> Vec<Record> {
        let content = self.content.borrow();
        // Written by `persist` below, never changed.
        content.records[position..].iter().map(|bytes| postcard::from_bytes(bytes).expect("a record reads back")).collect()
    }

    /// Number of writes so far (transactions and payloads): the boundaries at which a crash makes a difference.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.content.borrow().writes
    }

    /// Lets the write go wrong that comes after `further` good ones (0 = the next).
    pub fn fail_after(&self, further: u64, failure: Failure) {
        let mut content = self.content.borrow_mut();
        let at = content.writes + further;
        content.failures.insert(at, failure);
    }

    /// Another disk with the same content and no failures ahead.
    #[must_use]
    pub fn copy(&self) -> Self {
        let content = self.content.borrow();
        let copy = Content { records: content.records.clone(), payloads: content.payloads.clone(), ..Content::default() };
        Self { content: Rc::new(RefCell::new(copy)) }
    }

    /// Keeps a checked payload.
    ///
    /// # Errors
    /// An injected failure.
    pub fn spool(&self, client: &ClientId, update: Hash, payload: &[u8]) -> Result<(), StoreError> {
        self.write(|content| {
            content.payloads.insert((client.clone(), update), payload.to_vec());
        })
    }

    fn write(&self, change: impl FnOnce(&mut Content)) -> Result<(), StoreError> {
        let mut content = self.content.borrow_mut();
        let at = content.writes;
        content.writes += 1;
        let failure = content.failures.remove(&at);
        if failure != Some(Failure::Refused) {
            change(&mut content);
        }
        failure.map_or(Ok(()), |_| Err(StoreError::Unavailable("injected failure".into())))
    }
}

impl Store for ServerDisk {
    fn persist(&mut self, records: &[Record]) -> Result<(), StoreError> {
        // Plain data: writing it into memory cannot fail.
        let bytes: Vec<_> = records.iter().map(|record| postcard::to_stdvec(record).expect("a record serialises")).collect();
        self.write(|content| content.records.extend(bytes))
    }

    fn payload(
        &mut self,
        client: &ClientId,
        update: &Hash,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), PayloadError>,
    ) -> Result<(), ServeError> {
        let content = self.content.borrow();
        let missing = || StoreError::Corrupt("a payload is missing".into());
        let payload = content.payloads.get(&(client.clone(), *update)).ok_or_else(missing)?;
        // An odd length, so that words straddle chunks.
        payload.chunks(1021).try_for_each(sink).map_err(ServeError::Payload)
    }

    fn first_payload(&mut self, client: &ClientId, update: &Hash) -> Option<Vec<u8>> {
        self.content.borrow().payloads.get(&(client.clone(), *update)).cloned()
    }
}
