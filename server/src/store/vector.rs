//! λ′ of a closed round, kept outside the record's bytes: in the same row, and a long one in pieces.

use std::io::{Read, Write};
use std::sync::Arc;

use dp_pvi_protocol::coordinator::Record;
use rusqlite::blob::Blob;
use rusqlite::{Connection, MAIN_DB};

const WORDS: usize = 1 << 13;

/// A record without its vector, and the vector; `None` where the record has none and is stored as it is.
pub(super) fn split(record: &Record) -> (Option<Record>, Option<&[f64]>) {
    match record {
        Record::RoundClosed { entry, lambda, correction, at } => {
            let light =
                Record::RoundClosed { entry: entry.clone(), lambda: Arc::from(Vec::new()), correction: correction.clone(), at: *at };
            (Some(light), Some(lambda))
        }
        _ => (None, None),
    }
}

/// Little-endian bytes of a short vector.
pub(super) fn to_bytes(vector: &[f64]) -> Vec<u8> {
    vector.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Puts a vector back into its record.
pub(super) fn join(record: Record, vector: Vec<f64>) -> Record {
    match record {
        Record::RoundClosed { entry, correction, at, .. } => Record::RoundClosed { entry, lambda: Arc::from(vector), correction, at },
        other => other,
    }
}

/// Writes a vector into the zeroes that a row reserves for it.
pub(super) fn write(connection: &Connection, row: i64, vector: &[f64]) -> rusqlite::Result<()> {
    let mut blob = open(connection, row, false)?;
    let mut bytes = Vec::with_capacity(WORDS * 8);
    for words in vector.chunks(WORDS) {
        bytes.clear();
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        blob.write_all(&bytes).map_err(io_error)?;
    }
    blob.close()
}

/// Reads a row's vector.
pub(super) fn read(connection: &Connection, row: i64) -> rusqlite::Result<Vec<f64>> {
    let mut blob = open(connection, row, true)?;
    let mut vector = Vec::with_capacity(blob.len() / 8);
    let mut bytes = vec![0; WORDS * 8];
    let mut left = blob.len();
    while left > 0 {
        let part = &mut bytes[..left.min(WORDS * 8)];
        blob.read_exact(part).map_err(io_error)?;
        let (words, _) = part.as_chunks::<8>();
        vector.extend(words.iter().map(|word| f64::from_le_bytes(*word)));
        left -= part.len();
    }
    Ok(vector)
}

fn open(connection: &Connection, row: i64, read_only: bool) -> rusqlite::Result<Blob<'_>> {
    connection.blob_open(MAIN_DB, "records", "vector", row, read_only)
}

fn io_error(error: std::io::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}
