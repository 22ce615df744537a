//! What each site sent in every round of a run under local trust: read from the store, and held against what the site signed.

use std::collections::HashMap;

use dp_pvi_names::{ClientId, Hash, PayloadKind};
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::message::payload_hash;

use super::history::History;
use crate::config::Config;
use crate::error::{Result, ServerError};
use crate::store::{PayloadStore, Reader, StoredRun};

/// Most numbers that are held at once: a gigabyte.
const MOST_NUMBERS: u64 = 1 << 27;

/// Vectors of a run.
pub(super) struct Releases {
    /// Sites in the order of their positions.
    pub(super) sites: Vec<ClientId>,
    pub(super) rounds: dp_pvi_posterior::methods::noise_aware::History,
    /// For every round and every included site, in that order.
    pub(super) vectors: Vec<Vec<Vec<f64>>>,
}

/// What is left of them.
pub(super) enum Kept {
    All(Releases),
    /// A payload is gone.
    Not,
    /// A payload is not the one that its site signed.
    Damaged(ClientId),
    TooMany,
}

impl Releases {
    /// # Errors
    /// The store does not answer.
    pub(super) fn read(config: &Config, reader: &Reader, run: &StoredRun, history: &History) -> Result<Kept> {
        let sites: Vec<ClientId> = history.sites().map(|(client, _)| client.clone()).collect();
        let Some(rounds) = history.closed_rounds_or_last(&sites.iter().collect::<Vec<_>>()) else { return Ok(Kept::Not) };
        let included: Vec<&(ClientId, Hash)> =
            history.entries.iter().flat_map(|entry| &entry.included).filter(|(client, _)| sites.contains(client)).collect();
        let mut stored = HashMap::new();
        for seq in 0.. {
            match reader.light_record(run, seq)? {
                Some(Record::UpdateStored { client, update, .. }) => drop(stored.insert((client, update.hash()), (seq, update))),
                Some(_) => {}
                None => break,
            }
        }
        let files = PayloadStore::existing(&config.state, &run.id);
        let (mut numbers, mut read) = (0, HashMap::new());
        for key in included {
            let (client, hash) = key;
            let Some((seq, update)) = stored.get(key) else { return Ok(Kept::Not) };
            let Ok(body) = update.peek() else { return Ok(Kept::Damaged(client.clone())) };
            numbers += body.coordinates;
            if numbers > MOST_NUMBERS {
                return Ok(Kept::TooMany);
            }
            let file = || files.whole(client, *hash).map_err(|e| ServerError::unavailable(&config.state, e));
            let bytes = match reader.payload(run, *seq)? {
                Some(bytes) => Some(bytes),
                None => file()?,
            };
            let Some(bytes) = bytes else { return Ok(Kept::Not) };
            if bytes.len() as u64 != body.coordinates.saturating_mul(8) || payload_hash(body.kind, &bytes) != body.payload {
                return Ok(Kept::Damaged(client.clone()));
            }
            read.insert(key, numbers_of(body.kind, &bytes));
        }
        let round =
            |entry: &dp_pvi_protocol::message::TranscriptEntry| entry.included.iter().filter_map(|key| read.get(key).cloned()).collect();
        let vectors = history.entries.iter().map(round).collect();
        Ok(Kept::All(Self { sites, rounds, vectors }))
    }
}

/// The numbers of a payload. A masked payload is no site's vector and is never asked for.
fn numbers_of(kind: PayloadKind, bytes: &[u8]) -> Vec<f64> {
    let (words, _) = bytes.as_chunks::<8>();
    match kind {
        PayloadKind::Values => words.iter().map(|word| f64::from_le_bytes(*word)).collect(),
        PayloadKind::Lattice { exponent } | PayloadKind::Masked { exponent } => {
            let step = 2f64.powi(exponent);
            #[allow(clippy::cast_precision_loss, reason = "post-processing of an exact vector, rounded once")]
            words.iter().map(|word| i64::from_le_bytes(*word) as f64 * step).collect()
        }
    }
}
