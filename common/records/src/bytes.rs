//! Units as bytes, for a site's own cache of them on its disk.
//!
//! A unit is its number of records (4 bytes) and then, record by record: the number of entries, with what else the record has in the highest bits (4 bytes); the
//! target; the offset, where there is one; weight, entry and event, where there are any; the indices (2 bytes each in tables of at most 2¹⁶ features,
//! 4 bytes in others); the values (8 bytes each). All numbers are little-endian and are read to the last bit.

use dp_pvi_schema::public::Extra;

use crate::{RecordTable, RecordView, words};

/// Bit of a record that has an offset.
const OFFSET: u32 = 1 << 31;
/// Bit of a record that has a weight or a survival time.
const EXTRA: u32 = 1 << 30;
/// Most features for which two bytes name one.
const NARROW: usize = 1 << 16;

/// Bytes that are not those of a unit: of another table, or cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these are not the units that were written")]
pub struct NotUnits;

/// Appends one record of a unit, for a table of `dimension` features. The number of records of the unit, 4 bytes, comes before its records.
///
/// # Errors
/// The record is none of such a table.
pub fn write_record(record: RecordView<'_>, dimension: usize, bytes: &mut Vec<u8>) -> Result<(), crate::RecordError> {
    let RecordView { indices, values, target, offset, extra } = record;
    let entries = u32::try_from(indices.len()).ok().filter(|entries| *entries < EXTRA).ok_or(crate::RecordError::TooLarge)?;
    crate::check(indices, values, dimension)?;
    let flags = if offset != 0.0 { OFFSET } else { 0 } | if extra != Extra::NONE { EXTRA } else { 0 };
    bytes.extend_from_slice(&(entries | flags).to_le_bytes());
    bytes.extend_from_slice(&target.to_le_bytes());
    if offset != 0.0 {
        bytes.extend_from_slice(&offset.to_le_bytes());
    }
    if extra != Extra::NONE {
        words(extra).iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }
    if width(dimension) == 2 {
        // Below the dimension, so below 2¹⁶.
        #[allow(clippy::cast_possible_truncation, reason = "below 2^16")]
        indices.iter().for_each(|&index| bytes.extend_from_slice(&(index as u16).to_le_bytes()));
    } else {
        indices.iter().for_each(|index| bytes.extend_from_slice(&index.to_le_bytes()));
    }
    values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    Ok(())
}

/// Bytes of a record of so many entries, in a table of `dimension` features.
#[must_use]
pub fn record_bytes(entries: usize, dimension: usize, offset: bool, extra: bool) -> usize {
    12 + if offset { 8 } else { 0 } + if extra { 24 } else { 0 } + entries * (width(dimension) + 8)
}

/// Bytes that name a feature.
fn width(dimension: usize) -> usize {
    if dimension <= NARROW { 2 } else { 4 }
}

/// Takes bytes from the front of a slice.
struct Front<'b>(&'b [u8]);

impl<'b> Front<'b> {
    fn take(&mut self, bytes: usize) -> Result<&'b [u8], NotUnits> {
        let (front, rest) = self.0.split_at_checked(bytes).ok_or(NotUnits)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NotUnits> {
        let (front, rest) = self.0.split_first_chunk::<N>().ok_or(NotUnits)?;
        self.0 = rest;
        Ok(*front)
    }

    fn u32(&mut self) -> Result<u32, NotUnits> {
        self.array().map(u32::from_le_bytes)
    }

    fn f64(&mut self) -> Result<f64, NotUnits> {
        self.array().map(f64::from_le_bytes)
    }

    /// What a record's first number says, and the bytes of its entries.
    fn record(&mut self, dimension: usize) -> Result<(usize, bool, bool), NotUnits> {
        let head = self.u32()?;
        let entries = (head & !(OFFSET | EXTRA)) as usize;
        if entries > dimension { Err(NotUnits) } else { Ok((entries, head & OFFSET != 0, head & EXTRA != 0)) }
    }
}

impl RecordTable {
    /// A table without units, to be filled by [`RecordTable::append`].
    #[must_use]
    pub fn empty(dimension: usize) -> Self {
        Self::builder(dimension).finish()
    }

    /// Forgets all units and keeps the memory.
    pub fn clear(&mut self) {
        self.units.truncate(1);
        self.rows.truncate(1);
        self.indices.clear();
        self.values.clear();
        self.targets.clear();
        self.offsets.clear();
        self.extras.clear();
    }

    /// Appends those of the units in `bytes`, of which there are `wanted.end` or more, that are at the positions `wanted` among them.
    ///
    /// # Errors
    /// The bytes are not units of a table of this dimension, or not so many; or the table is full.
    pub fn append(&mut self, bytes: &[u8], wanted: std::ops::Range<usize>) -> Result<(), NotUnits> {
        let mut front = Front(bytes);
        for _ in 0..wanted.start {
            self.pass_over(&mut front)?;
        }
        for _ in wanted {
            for _ in 0..front.u32()? {
                self.append_record(&mut front)?;
            }
            self.units.push(u32::try_from(self.targets.len()).map_err(|_| NotUnits)?);
        }
        Ok(())
    }

    fn pass_over(&self, front: &mut Front<'_>) -> Result<(), NotUnits> {
        for _ in 0..front.u32()? {
            let (entries, offset, extra) = front.record(self.dimension)?;
            front.take(record_bytes(entries, self.dimension, offset, extra) - 4)?;
        }
        Ok(())
    }

    fn append_record(&mut self, front: &mut Front<'_>) -> Result<(), NotUnits> {
        let (entries, has_offset, has_extra) = front.record(self.dimension)?;
        let target = front.f64()?;
        if has_offset {
            let offset = front.f64()?;
            // Records before the first one with an offset have none.
            self.offsets.resize(self.targets.len(), 0.0);
            self.offsets.push(offset);
        }
        if has_extra {
            let (weight, entry, event) = (front.f64()?, front.f64()?, front.array().map(u64::from_le_bytes)?);
            self.extras.resize(self.targets.len(), Extra::NONE);
            self.extras.push(Extra { weight, entry, event: event != 0 });
        }
        let start = self.indices.len();
        if width(self.dimension) == 2 {
            let (narrow, _) = front.take(2 * entries)?.as_chunks::<2>();
            self.indices.extend(narrow.iter().map(|bytes| u32::from(u16::from_le_bytes(*bytes))));
        } else {
            let (wide, _) = front.take(4 * entries)?.as_chunks::<4>();
            self.indices.extend(wide.iter().map(|bytes| u32::from_le_bytes(*bytes)));
        }
        let (values, _) = front.take(8 * entries)?.as_chunks::<8>();
        self.values.extend(values.iter().map(|bytes| f64::from_le_bytes(*bytes)));
        let indices = &self.indices[start..];
        if !indices.is_sorted_by(|a, b| a < b) || indices.last().is_some_and(|last| *last as usize >= self.dimension) {
            return Err(NotUnits);
        }
        self.rows.push(u32::try_from(self.indices.len()).map_err(|_| NotUnits)?);
        self.targets.push(target);
        Ok(())
    }
}
