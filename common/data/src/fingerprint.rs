//! A keyed fingerprint of a table: whether records were changed, told to nobody who has not the site's key.

use dp_pvi_privacy::{Hash, UnitTable};
use dp_pvi_records::RecordTable;
use dp_pvi_schema::public::Extra;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes that are handed to the hash at once.
const CHUNK: usize = 1 << 16;

/// HMAC-SHA256 over the units in order: every number of every record, and where records and units end.
pub(crate) fn of(table: &RecordTable, key: &[u8; 32]) -> Hash {
    // HMAC fills a short key with zeros up to the block of its hash.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(b"dp-pvi data fingerprint v1");
    let mut bytes = Vec::with_capacity(2 * CHUNK);
    let mut word = |word: u64| {
        bytes.extend_from_slice(&word.to_le_bytes());
        if bytes.len() >= CHUNK {
            mac.update(&bytes);
            bytes.clear();
        }
    };
    word(table.dimension() as u64);
    word(table.len() as u64);
    for position in 0..table.len() {
        word(table.unit(position).records().count() as u64);
        for record in table.unit(position).records() {
            word(record.indices.len() as u64);
            word(record.target.to_bits());
            if record.offset != 0.0 {
                // No number of entries is this large.
                word(u64::MAX);
                word(record.offset.to_bits());
            }
            if record.extra != Extra::NONE {
                word(u64::MAX - 1);
                dp_pvi_records::words(record.extra).into_iter().for_each(&mut word);
            }
            record.indices.iter().for_each(|&index| word(index.into()));
            record.values.iter().for_each(|value| word(value.to_bits()));
        }
    }
    mac.update(&bytes);
    Hash(mac.finalize().into_bytes().into())
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
