//! How many units a block has and how long it is: functions of the schema and of the number of units.
//!
//! # Privacy
//! A table leaves out entries that are 0, so the bytes of a unit tell how many of them it has. A block is padded before it is encrypted: to the length of as many units whose records have all entries that the
//! schema allows. Two things have no public bound, the records of a person and the words of a document. Where a block of those is longer than the schema makes likely, its length is doubled
//! until it fits: then its length tells between which two powers of two the sum over its units lies.

use dp_pvi_records::record_bytes;
use dp_pvi_schema::content::Content;
use dp_pvi_schema::{LabelKind, Schema};

/// Bytes that a block has about.
const BYTES: usize = 1 << 20;
/// Most units of a block, and about how many blocks a small snapshot has: enough to share out.
const UNITS: usize = 1 << 13;
const FEW: usize = 1 << 8;
/// Records for which a person has room, and different words for which a document has.
const RECORDS: usize = 4;
const WORDS: usize = 1 << 8;

/// Lengths of a snapshot's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Length {
    /// Bytes for which a unit has room.
    unit: usize,
}

impl Length {
    /// For records as a schema's formula makes them.
    pub(crate) fn of(schema: &Schema) -> Self {
        let most = schema.max_nonzeros() as usize;
        let entries = if matches!(schema.content(), Content::Documents(_)) { most.min(WORDS) } else { most };
        let extra = matches!(schema.label().kind, LabelKind::Survival(_));
        let records = if schema.unit_column().is_some() { RECORDS } else { 1 };
        Self { unit: 4 + records * record_bytes(entries, schema.dimension() as usize, false, extra) }
    }

    /// How many units a block has, of so many in all.
    pub(crate) fn units(self, all: usize) -> usize {
        all.div_ceil(FEW).min(UNITS).min(BYTES / self.unit)
    }

    /// Length of a block of so many units, whose bytes are so many.
    pub(crate) fn padded(self, units: u32, bytes: usize) -> usize {
        let mut length = self.unit * units as usize;
        while length < bytes {
            length *= 2;
        }
        length
    }
}
