//! A keyed fingerprint of a table: whether records were changed, told to no one who has not the site's key.

use dp_pvi_names::Hash;
use dp_pvi_privacy::UnitTable;
use dp_pvi_privacy::stored::{Positions, UnitStore};
use dp_pvi_records::RecordTable;
use dp_pvi_schema::public::Extra;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::cache::Cache;
use crate::error::DataError;

/// Bytes that are handed to the hash at once.
const CHUNK: usize = 1 << 16;

/// Units that are read at once of those that are not in memory.
const WINDOW: usize = 1 << 12;

/// HMAC-SHA256 over the units in order: every number of every record, and where records and units end.
pub(crate) fn of(table: &RecordTable, key: &[u8; 32]) -> Hash {
    let mut fingerprint = Fingerprint::new(table.dimension(), table.len(), key);
    fingerprint.take_in(table);
    fingerprint.finish()
}

/// The same of units that are not in memory.
///
/// # Errors
/// They cannot be read.
pub(crate) fn of_stored(cache: &Cache, key: &[u8; 32]) -> Result<Hash, DataError> {
    let mut fingerprint = Fingerprint::new(cache.dimension(), cache.len(), key);
    let mut reader = cache.reader();
    for start in (0..cache.len()).step_by(WINDOW) {
        fingerprint.take_in(reader.read(Positions::Run(start..(start + WINDOW).min(cache.len())))?);
    }
    Ok(fingerprint.finish())
}

struct Fingerprint {
    mac: Hmac<Sha256>,
    bytes: Vec<u8>,
}

impl Fingerprint {
    fn new(dimension: usize, units: usize, key: &[u8; 32]) -> Self {
        // HMAC fills a short key with zeros up to the block of its hash.
        let mut block = [0; 64];
        block[..key.len()].copy_from_slice(key);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(b"dp-pvi data fingerprint v1");
        let mut fingerprint = Self { mac, bytes: Vec::with_capacity(2 * CHUNK) };
        fingerprint.word(dimension as u64);
        fingerprint.word(units as u64);
        fingerprint
    }

    fn word(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
        if self.bytes.len() >= CHUNK {
            self.mac.update(&self.bytes);
            self.bytes.clear();
        }
    }

    /// The next units.
    fn take_in(&mut self, table: &RecordTable) {
        for position in 0..table.len() {
            self.word(table.unit(position).records().count() as u64);
            for record in table.unit(position).records() {
                self.word(record.indices.len() as u64);
                self.word(record.target.to_bits());
                if record.offset != 0.0 {
                    // No number of entries is this large.
                    self.word(u64::MAX);
                    self.word(record.offset.to_bits());
                }
                if record.extra != Extra::NONE {
                    self.word(u64::MAX - 1);
                    dp_pvi_records::words(record.extra).into_iter().for_each(|word| self.word(word));
                }
                record.indices.iter().for_each(|&index| self.word(index.into()));
                record.values.iter().for_each(|value| self.word(value.to_bits()));
            }
        }
    }

    fn finish(mut self) -> Hash {
        self.mac.update(&self.bytes);
        Hash(self.mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn table(units: &[&[(u32, f64, f64)]]) -> RecordTable {
        let mut table = RecordTable::builder(4);
        for unit in units {
            table.start_unit();
            unit.iter().for_each(|(index, value, target)| table.push(&[*index], &[*value], *target).unwrap());
        }
        table.finish()
    }

    #[test]
    fn every_number_every_boundary_and_the_key_count() {
        let a = (0, 1.0, 1.0);
        let tables: [&[&[_]]; 8] = [
            &[&[a], &[a]],
            &[&[a, a]],
            &[&[a, a], &[]],
            &[&[], &[a, a]],
            &[&[a], &[(1, 1.0, 1.0)]],
            &[&[a], &[(0, 1.5, 1.0)]],
            &[&[a], &[(0, 1.0, 0.0)]],
            &[&[a], &[a], &[]],
        ];
        let mut seen: Vec<Hash> = tables.iter().map(|units| of(&table(units), &[1; 32])).collect();
        assert_eq!(seen[0], of(&table(tables[0]), &[1; 32]));
        seen.push(of(&table(tables[0]), &[2; 32]));
        let distinct: std::collections::BTreeSet<_> = seen.iter().map(|hash| hash.0).collect();
        assert_eq!(distinct.len(), seen.len());
    }
}
