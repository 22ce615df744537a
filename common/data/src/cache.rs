//! A site's units in a private file, for tables that are larger than memory.
//!
//! The loader writes units in their order ([`dp_pvi_records::write_record`]), and notes where every 32nd begins: a quarter of a byte a unit stays in memory. Sums read windows of units, and a sample reads
//! the blocks of 32 units in which its units lie ([`dp_pvi_privacy::stored`]). The file belongs to this process alone: anyone who opens it gives it without a name.
//!
//! # Privacy
//! Every block is encrypted and authenticated (ChaCha20-Poly1305, the number of the block as nonce) under a key that is drawn for this file and that this process alone has: what stays on the disk
//! tells the lengths of blocks to anyone who finds it. A block that is not to the last bit what was written is an error, whatever it holds: an error tells of the disk and of no record.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use chacha20poly1305::aead::Aead;
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce};
use dp_pvi_privacy::SecureNoise;
use dp_pvi_privacy::stored::{Positions, UnitReader, UnitStore, Unread, Unreadable};
use dp_pvi_records::{NotUnits, RecordError, RecordTable, RecordTableBuilder, RecordView, write_record};
use rand_core::Rng;

use crate::error::DataError;
use crate::source::RowError;

/// Units between two places that are noted.
const BLOCK: usize = 32;

/// What encryption adds to a block.
const TAG: u64 = 16;

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

/// Where the loader puts units.
pub(crate) enum Place {
    Memory(RecordTableBuilder),
    Disk(Writer),
}

impl Place {
    /// Starts the next unit. A disk that is full says so at the next record, or at the end.
    pub(crate) fn start_unit(&mut self) {
        match self {
            Self::Memory(table) => table.start_unit(),
            Self::Disk(writer) => writer.start_unit(),
        }
    }

    /// Adds a record to the current unit.
    pub(crate) fn push_record(&mut self, record: RecordView<'_>) -> Result<(), RowError> {
        match self {
            Self::Memory(table) => table.push_record(record).map_err(RowError::Table),
            Self::Disk(writer) => writer.push_record(record),
        }
    }

    /// Whether the disk took everything so far.
    pub(crate) fn holds(&mut self) -> Result<(), RowError> {
        match self {
            Self::Disk(Writer { failed, .. }) if failed.is_some() => {
                Err(RowError::Cache(failed.take().unwrap_or_else(|| ErrorKind::Other.into())))
            }
            _ => Ok(()),
        }
    }
}

/// Writes units one after the other.
pub(crate) struct Writer {
    file: BufWriter<File>,
    dimension: usize,
    cipher: Option<ChaCha20Poly1305>,
    /// Where every block begins, and where the last one ends.
    starts: Vec<u64>,
    written: u64,
    units: usize,
    /// Units of the current block.
    block: Vec<u8>,
    /// Records of the current unit and their bytes.
    records: u32,
    bytes: Vec<u8>,
    /// The first error of the disk.
    failed: Option<io::Error>,
}

impl Writer {
    /// Into an empty file that can be read and written.
    pub(crate) fn new(file: File, dimension: usize) -> Self {
        let file = BufWriter::with_capacity(BUFFER, file);
        let drawn = SecureNoise::fresh().map(|mut random| {
            let mut key = Key::default();
            random.fill_bytes(&mut key);
            ChaCha20Poly1305::new(&key)
        });
        let (cipher, failed) = match drawn {
            Ok(cipher) => (Some(cipher), None),
            Err(none) => (None, Some(io::Error::other(none))),
        };
        Self { file, dimension, cipher, starts: Vec::new(), written: 0, units: 0, block: Vec::new(), records: 0, bytes: Vec::new(), failed }
    }

    fn start_unit(&mut self) {
        self.end_unit();
        if self.units.is_multiple_of(BLOCK) {
            self.end_block();
            self.starts.push(self.written);
        }
        self.units += 1;
    }

    /// Writes the units of the current block.
    fn end_block(&mut self) {
        let Some(number) = self.starts.len().checked_sub(1) else { return };
        let sealed = self.cipher.as_ref().and_then(|cipher| cipher.encrypt(&nonce(number), self.block.as_slice()).ok());
        let written = sealed.ok_or_else(|| io::Error::other("a block cannot be encrypted")).and_then(|sealed| self.file.write_all(&sealed));
        self.failed = self.failed.take().or(written.err());
        self.written += self.block.len() as u64 + TAG;
        self.block.clear();
    }

    fn push_record(&mut self, record: RecordView<'_>) -> Result<(), RowError> {
        if self.units == 0 {
            return Err(RowError::Table(RecordError::NoUnit));
        }
        let records = self.records.checked_add(1).ok_or(RowError::Table(RecordError::TooLarge))?;
        write_record(record, self.dimension, &mut self.bytes).map_err(RowError::Table)?;
        self.records = records;
        Ok(())
    }

    fn end_unit(&mut self) {
        if self.units == 0 {
            return;
        }
        self.block.extend_from_slice(&self.records.to_le_bytes());
        self.block.extend_from_slice(&self.bytes);
        self.records = 0;
        self.bytes.clear();
    }

    /// The finished cache.
    pub(crate) fn finish(mut self) -> Result<Cache, DataError> {
        self.end_unit();
        self.end_block();
        self.starts.push(self.written);
        self.starts.shrink_to_fit();
        let full = |source| DataError::Cache { source };
        match (self.failed, self.cipher) {
            (Some(failed), _) => Err(full(failed)),
            (None, None) => Err(full(io::Error::other("no key was drawn"))),
            (None, Some(cipher)) => {
                let file = self.file.into_inner().map_err(|e| full(e.into_error()))?;
                // A disk that keeps less than it took says so here at the latest.
                if let Err(e) = file.sync_data()
                    && !matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
                {
                    return Err(full(e));
                }
                if u32::try_from(self.units).is_err() {
                    return Err(DataError::Table(RecordError::TooLarge));
                }
                Ok(Cache { file, cipher, dimension: self.dimension, starts: self.starts, units: self.units })
            }
        }
    }
}

/// Units in a file.
pub(crate) struct Cache {
    file: File,
    cipher: ChaCha20Poly1305,
    dimension: usize,
    starts: Vec<u64>,
    units: usize,
}

impl Cache {
    /// A table that is in memory already.
    pub(crate) fn of(table: &RecordTable, file: File) -> Result<Self, DataError> {
        use dp_pvi_privacy::UnitTable;

        let mut writer = Writer::new(file, table.dimension());
        for position in 0..table.len() {
            writer.start_unit();
            for record in table.unit(position).records() {
                writer.push_record(record).map_err(DataError::from)?;
            }
        }
        writer.finish()
    }

    /// d.
    pub(crate) fn dimension(&self) -> usize {
        self.dimension
    }

    /// Units in their order, run by run: the number of the first one, how many they are, and their bytes. A run has so many units, rounded up to whole blocks; fewer than a block has are in the run before them.
    #[cfg(feature = "parquet")]
    pub(crate) fn in_runs(&self, units: usize, mut f: impl FnMut(u64, u32, &[u8]) -> io::Result<()>) -> Result<(), DataError> {
        let (mut buffer, blocks, most) = (Buffer::default(), self.starts.len() - 1, units.div_ceil(BLOCK).max(1));
        let mut start = 0;
        while start < blocks {
            let mut end = (start + most).min(blocks);
            if end + 1 == blocks && !self.units.is_multiple_of(BLOCK) {
                end = blocks;
            }
            let count = (end * BLOCK).min(self.units) - start * BLOCK;
            let count = u32::try_from(count).map_err(|_| DataError::Table(RecordError::TooLarge))?;
            f((start * BLOCK) as u64, count, self.bytes(start..end, &mut buffer)?).map_err(|source| DataError::Cache { source })?;
            start = end;
        }
        Ok(())
    }

    /// The bytes of some blocks, in `buffer`.
    fn bytes<'b>(&self, blocks: std::ops::Range<usize>, buffer: &'b mut Buffer) -> Result<&'b [u8], Unread> {
        let (start, end) = (self.starts[blocks.start], self.starts[blocks.end]);
        let length = usize::try_from(end - start).map_err(|_| Unread(Unreadable::TooLarge))?;
        if buffer.sealed.len() < length {
            buffer.sealed.resize(length, 0);
        }
        let sealed = &mut buffer.sealed[..length];
        self.file.read_exact_at(sealed, start).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => Unread(Unreadable::Damaged),
            kind => Unread(Unreadable::Disk(kind)),
        })?;
        buffer.open.clear();
        let mut rest = &*sealed;
        for block in blocks {
            let length = usize::try_from(self.starts[block + 1] - self.starts[block]).map_err(|_| Unread(Unreadable::TooLarge))?;
            let (own, others) = rest.split_at(length);
            rest = others;
            buffer.open.extend(self.cipher.decrypt(&nonce(block), own).map_err(|_| Unread(Unreadable::Damaged))?);
        }
        Ok(&buffer.open)
    }
}

/// What was read, and what it says.
#[derive(Default)]
struct Buffer {
    sealed: Vec<u8>,
    open: Vec<u8>,
}

/// One key seals one file, and a block of it once.
fn nonce(block: usize) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&(block as u64).to_le_bytes());
    Nonce::from(nonce)
}

impl UnitStore<RecordTable> for Cache {
    fn len(&self) -> usize {
        self.units
    }

    fn whole(&self) -> Result<RecordTable, Unread> {
        let (mut table, mut buffer) = (RecordTable::empty(self.dimension), Buffer::default());
        let blocks = self.starts.len() - 1;
        for start in (0..blocks).step_by(BLOCK) {
            let end = (start + BLOCK).min(blocks);
            let units = (end * BLOCK).min(self.units) - start * BLOCK;
            table.append(self.bytes(start..end, &mut buffer)?, 0..units).map_err(damaged)?;
        }
        Ok(table)
    }

    fn reader(&self) -> Box<dyn UnitReader<RecordTable> + '_> {
        Box::new(Reader { cache: self, buffer: Buffer::default(), window: RecordTable::empty(self.dimension) })
    }
}

/// A cache that others use, too.
pub(crate) struct OfMany(pub(crate) Arc<Cache>);

impl UnitStore<RecordTable> for OfMany {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn whole(&self) -> Result<RecordTable, Unread> {
        self.0.whole()
    }

    fn reader(&self) -> Box<dyn UnitReader<RecordTable> + '_> {
        self.0.reader()
    }
}

/// Reads for one thread.
struct Reader<'c> {
    cache: &'c Cache,
    buffer: Buffer,
    window: RecordTable,
}

impl UnitReader<RecordTable> for Reader<'_> {
    fn read(&mut self, positions: Positions<'_>) -> Result<&RecordTable, Unread> {
        self.window.clear();
        match positions {
            Positions::Run(run) if run.is_empty() => {}
            Positions::Run(run) => {
                let first = run.start / BLOCK;
                let bytes = self.cache.bytes(first..run.end.div_ceil(BLOCK), &mut self.buffer)?;
                self.window.append(bytes, run.start - first * BLOCK..run.end - first * BLOCK).map_err(damaged)?;
            }
            Positions::Some(positions) => {
                for of_block in positions.chunk_by(|a, b| a / BLOCK == b / BLOCK) {
                    let block = of_block[0] / BLOCK;
                    let bytes = self.cache.bytes(block..block + 1, &mut self.buffer)?;
                    for position in of_block {
                        let place = position - block * BLOCK;
                        self.window.append(bytes, place..place + 1).map_err(damaged)?;
                    }
                }
            }
        }
        Ok(&self.window)
    }
}

fn damaged(NotUnits: NotUnits) -> Unread {
    Unread(Unreadable::Damaged)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

    use dp_pvi_privacy::{StableIds, UnitTable};

    use super::*;

    /// Unit i has i mod 4 records, of up to 7 entries.
    fn table(units: u32) -> RecordTable {
        let mut builder = RecordTable::builder(9);
        for unit in 0..units {
            builder.start_unit();
            for record in 0..unit % 4 {
                let indices: Vec<u32> = (0..(unit + record) % 8).collect();
                let values: Vec<f64> = indices.iter().map(|i| f64::from(unit * 31 + i) / 7.0).collect();
                builder.push(&indices, &values, f64::from(unit)).unwrap();
            }
        }
        builder.finish()
    }

    #[test]
    fn windows_runs_and_samples_hold_the_units_that_were_written() {
        for units in [0, 1, 31, 32, 33, 2_500] {
            let table = table(units);
            let cache = Cache::of(&table, tempfile::tempfile().unwrap()).unwrap();
            let units = units as usize;
            assert_eq!((cache.len(), cache.whole().unwrap().len()), (units, units));
            let ids: Vec<u64> = (0..units).map(|unit| table.id(unit)).collect();
            let read = |table: &RecordTable| (0..table.len()).map(|unit| table.id(unit)).collect::<Vec<_>>();
            assert_eq!(read(&cache.whole().unwrap()), ids);
            let mut reader = cache.reader();
            for (start, end) in [(0, units), (0, units.min(1)), (units / 3, units / 2), (units.saturating_sub(40), units)] {
                assert_eq!(read(reader.read(Positions::Run(start..end)).unwrap()), ids[start..end]);
            }
            for step in [1, 3, 70] {
                let sample: Vec<usize> = (0..units).step_by(step).collect();
                let expected: Vec<u64> = sample.iter().map(|unit| ids[*unit]).collect();
                assert_eq!(read(reader.read(Positions::Some(&sample)).unwrap()), expected);
            }
        }
    }

    /// Cut off, or written over with whatever: an error, and no panic. A block of zeros would be 32 units without records.
    #[test]
    fn a_damaged_cache_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let cache = Cache::of(&table(500), file.try_clone().unwrap()).unwrap();
        let damaged = Unread(Unreadable::Damaged);
        let (mut first, mut second) = (vec![0; 64], vec![0; 64]);
        file.read_exact_at(&mut first, 900).unwrap();
        for other in [[0; 64], [0xff; 64]] {
            assert!(cache.whole().is_ok());
            file.write_all_at(&other, 900).unwrap();
            assert_eq!(cache.whole().map(|_| ()), Err(damaged));
            file.write_all_at(&first, 900).unwrap();
        }
        // One block in the place of another one of the same length.
        let same = (0..cache.starts.len() - 2).map(|b| (cache.starts[b], cache.starts[b + 1] - cache.starts[b])).collect::<Vec<_>>();
        let (a, b) = same.iter().enumerate().find_map(|(i, x)| same[i + 1..].iter().find(|y| y.1 == x.1).map(|y| (*x, *y))).unwrap();
        first.resize(usize::try_from(a.1).unwrap(), 0);
        second.resize(first.len(), 0);
        file.read_exact_at(&mut first, a.0).unwrap();
        file.read_exact_at(&mut second, b.0).unwrap();
        assert_ne!(first, second);
        file.write_all_at(&second, a.0).unwrap();
        assert_eq!(cache.whole().map(|_| ()), Err(damaged));
        file.write_all_at(&first, a.0).unwrap();
        file.set_len(2_000).unwrap();
        let mut reader = cache.reader();
        assert_eq!(reader.read(Positions::Run(400..450)).map(|_| ()), Err(damaged));
        assert!(reader.read(Positions::Some(&[499])).is_err());
    }

    /// What lies on the disk is not what the records hold.
    #[test]
    fn records_are_not_on_the_disk_as_they_are() {
        let file = tempfile::tempfile().unwrap();
        let mut builder = RecordTable::builder(2);
        for _ in 0..100 {
            builder.start_unit();
            builder.push(&[0, 1], &[1234.5, -0.125], 1.0).unwrap();
        }
        let cache = Cache::of(&builder.finish(), file.try_clone().unwrap()).unwrap();
        let mut all = vec![0; usize::try_from(*cache.starts.last().unwrap()).unwrap()];
        file.read_exact_at(&mut all, 0).unwrap();
        assert!(!all.windows(8).any(|bytes| bytes == 1234.5_f64.to_le_bytes()));
    }

    #[test]
    fn a_disk_that_is_full_is_an_error_of_the_loader() {
        // A file that cannot be written.
        let read_only = File::open("/dev/null").unwrap();
        let failed = Cache::of(&table(50), read_only).map(|_| ()).unwrap_err();
        assert!(failed.to_string().contains("make room"), "{failed}");
    }
}
