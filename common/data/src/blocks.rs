//! A site's units in a folder that other processes of the site read, for sums that are made in parts ([`dp_pvi_privacy::partial_sums`]).
//!
//! The folder holds Parquet files of three columns: the number of a block's first unit (`first`), how many units it holds (`units`), and the units themselves (`sealed`), in the form of
//! [`dp_pvi_records::write_record`], encrypted. A unit is in one block with all of its records: a person's records are together before any process reads them, and no one has to
//! bring them together by sending them around.
//!
//! # Privacy
//! Blocks are encrypted and authenticated (ChaCha20-Poly1305) under a key that follows from the site's key and the snapshot's random name; the nonce is the number of the first unit, and the number of
//! units is bound to it. A block that is not to the last bit what was written, or is in another place or snapshot, is refused.
//!
//! Anyone who reads the folder learns how many units there are. The blocks' number, their places and their lengths are functions of that number and of the schema; where a unit has no public length, they tell
//! between which powers of two a block lies (`length`). No block has fewer than 32 units, except where the snapshot has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::basic::{Repetition, Type as Physical};
use ::parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{Type, TypePtr};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce};
use dp_pvi_names::Hash;
use dp_pvi_privacy::Units;
use dp_pvi_privacy::partial_sums::SiteKey;
use dp_pvi_privacy::stored::UnitStore;
use dp_pvi_records::RecordTable;
use zeroize::Zeroizing;

use crate::cache::Cache;
use crate::error::DataError;

mod length;
pub(crate) use length::Length;

/// Blocks of a row group, which one process reads as a whole, and of a file.
const GROUP: usize = 4;
const FILE: usize = 1 << 10;

/// What the names of snapshots begin with.
pub(crate) const PREFIX: &str = "snapshot-";

/// Opens blocks of one snapshot, in a process that sums their units.
pub struct Blocks {
    cipher: ChaCha20Poly1305,
    dimension: usize,
}

/// A block that is not what the site's head wrote at this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a block of the site's snapshot is not what was written: check that all processes have the same key, and that nobody changed the folder"
)]
pub struct BadBlock;

impl Blocks {
    /// Of the snapshot of this name, whose records have so many features.
    #[must_use]
    pub fn new(key: &SiteKey, snapshot: Hash, dimension: usize) -> Self {
        Self { cipher: cipher(key, snapshot), dimension }
    }

    /// The units of a block, behind the gate.
    ///
    /// # Errors
    /// It is not what was written.
    pub fn open(&self, first: u64, units: u32, sealed: &[u8]) -> Result<Units<RecordTable>, BadBlock> {
        let aad = &units.to_le_bytes();
        let bytes = self.cipher.decrypt(&nonce(first), Payload { msg: sealed, aad }).map(Zeroizing::new).map_err(|_| BadBlock)?;
        let mut table = RecordTable::empty(self.dimension);
        table.append(&bytes, 0..units as usize).map_err(|_| BadBlock)?;
        Ok(Units::new(table))
    }
}

fn cipher(key: &SiteKey, snapshot: Hash) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new(&Key::from(*key.derived("blocks of units", &snapshot.0)))
}

fn nonce(first: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&first.to_le_bytes());
    Nonce::from(nonce)
}

/// Folder of a snapshot.
pub(crate) fn folder_of(parent: &Path, snapshot: Hash) -> PathBuf {
    parent.join(format!("{PREFIX}{snapshot}"))
}

/// Writes the units of a cache into a new folder.
pub(crate) fn write(cache: &Cache, length: Length, folder: &Path, key: &SiteKey, snapshot: Hash) -> Result<(), DataError> {
    let full = |source: io::Error| DataError::Cache { source };
    fs::create_dir(folder).map_err(full)?;
    let cipher = cipher(key, snapshot);
    let mut writer =
        Writer { folder, cipher, length, padded: Zeroizing::default(), group: Group::default(), blocks: 0, files: 0, file: None };
    cache.in_runs(length.units(cache.len()), |first, units, bytes| writer.push(first, units, bytes))?;
    writer.finish().map_err(full)
}

#[derive(Default)]
struct Group {
    first: Vec<i64>,
    units: Vec<i32>,
    sealed: Vec<ByteArray>,
}

struct Writer<'a> {
    folder: &'a Path,
    cipher: ChaCha20Poly1305,
    length: Length,
    /// The units of a block, and zeros after them, which no one reads.
    padded: Zeroizing<Vec<u8>>,
    group: Group,
    /// Blocks of the current file.
    blocks: usize,
    files: usize,
    file: Option<SerializedFileWriter<fs::File>>,
}

impl Writer<'_> {
    fn push(&mut self, first: u64, units: u32, bytes: &[u8]) -> io::Result<()> {
        self.padded.clear();
        self.padded.extend_from_slice(bytes);
        self.padded.resize(self.length.padded(units, bytes.len()), 0);
        let sealed = self.cipher.encrypt(&nonce(first), Payload { msg: self.padded.as_slice(), aad: &units.to_le_bytes() });
        self.group.sealed.push(sealed.map_err(|_| io::Error::other("a block cannot be encrypted"))?.into());
        // A table has fewer than 2³² units, and a block far fewer than 2³¹.
        self.group.first.push(first.cast_signed());
        self.group.units.push(units.cast_signed());
        self.blocks += 1;
        if self.group.first.len() == GROUP {
            self.end_group()?;
        }
        if self.blocks == FILE { self.end_file() } else { Ok(()) }
    }

    fn end_group(&mut self) -> io::Result<()> {
        let Group { first, units, sealed } = std::mem::take(&mut self.group);
        if first.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(self.next_file()?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut write = || {
            let mut group = file.next_row_group()?;
            // In the order of `form`.
            let mut number = 0;
            while let Some(mut column) = group.next_column()? {
                match number {
                    0 => column.typed::<Int64Type>().write_batch(&first, None, None)?,
                    1 => column.typed::<Int32Type>().write_batch(&units, None, None)?,
                    _ => column.typed::<ByteArrayType>().write_batch(&sealed, None, None)?,
                };
                number += 1;
                column.close()?;
            }
            group.close().map(|_| ())
        };
        write().map_err(of_disk)
    }

    fn next_file(&self) -> io::Result<SerializedFileWriter<fs::File>> {
        let (schema, properties) = form().map_err(of_disk)?;
        let file = fs::File::create_new(self.folder.join(format!("units-{:06}.parquet", self.files)))?;
        SerializedFileWriter::new(file, schema, properties).map_err(of_disk)
    }

    fn end_file(&mut self) -> io::Result<()> {
        self.end_group()?;
        if let Some(file) = self.file.take() {
            file.into_inner().map_err(of_disk)?.sync_all()?;
            self.files += 1;
        }
        self.blocks = 0;
        Ok(())
    }

    /// A data set without units has a file, too, which says its columns.
    fn finish(mut self) -> io::Result<()> {
        if self.files == 0 && self.file.is_none() && self.group.first.is_empty() {
            self.file = Some(self.next_file()?);
        }
        self.end_file()
    }
}

fn form() -> Result<(TypePtr, WriterPropertiesPtr), ParquetError> {
    let column = |name, physical| Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED).build().map(Arc::new);
    let columns = vec![column("first", Physical::INT64)?, column("units", Physical::INT32)?, column("sealed", Physical::BYTE_ARRAY)?];
    let schema = Type::group_type_builder("snapshot").with_fields(columns).build()?;
    // Ciphertexts neither repeat nor have an order.
    let properties = WriterProperties::builder().set_dictionary_enabled(false).set_statistics_enabled(EnabledStatistics::None).build();
    Ok((Arc::new(schema), Arc::new(properties)))
}

fn of_disk(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => *source,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests;
