//! From cells to rows: a data set is read once, into the cells of its records, and a task's formula makes rows of them.
//!
//! A record of cells has two places a column: the value in the unit of the file, or the number of the level (place 2p of column p); and 1 where it has no value (place 2p + 1).

use std::fs::File;
use std::sync::Arc;

use dp_pvi_privacy::UnitTable;
use dp_pvi_privacy::stored::{Positions, UnitStore};
use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_schema::content::Content;
use dp_pvi_schema::public::Extra;
use dp_pvi_schema::{LabelKind, Schema};

use crate::cache::{Cache, Place, Writer};
use crate::cells::{Cells, Row, target};
use crate::error::{CellProblem, DataError, Fault};

/// Units that are read at once of those that are not in memory.
const WINDOW: usize = 1 << 12;

/// Entries of a table of rows that a formula makes, where they can be more than the cells of a record; 12 bytes each. What a record takes depends on what is in it, so memory
/// must not grow without a public bound.
pub const MOST_FORMULA_ENTRIES: u64 = 1 << 28;

/// What the records of a data set are held as.
pub(crate) enum Held {
    /// Rows as they are, of documents and images, in memory.
    Rows(RecordTable),
    /// The same in a private file.
    Kept(Arc<Cache>),
    /// Cells, in memory.
    Memory(RecordTable),
    /// Cells, in a private file.
    Disk(Cache),
}

/// The units of a task.
pub struct Made {
    /// Behind the release gate.
    pub units: dp_pvi_privacy::Units<RecordTable>,
    /// Its records that contribute nothing.
    pub omitted: Omitted,
}

/// Records that contribute nothing to a task, counted for the people at the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Omitted {
    /// Without an outcome.
    pub without_outcome: u64,
    /// Watched for no time: their time is that of their entry.
    pub unwatched: u64,
    /// Counts that are not whole, and times that end before they begin.
    pub left_out: u64,
}

/// Number of places of a record of cells.
pub(crate) fn places(schema: &Schema) -> usize {
    2 * schema.columns().len()
}

/// Whether rows of so many declared units fit into memory, by what is public, where the formula can make more of a record than it has cells; the error is the number of entries that they
/// can have.
///
/// # Privacy
/// Every unit is held whole, in memory as on the disk. A limit on all units together would let one unit push another out, and a sum would move by two terms.
///
/// # Errors
/// They do not.
pub fn fits(schema: &Schema, slots: Option<u64>) -> Result<(), u64> {
    let grows = u64::from(schema.max_nonzeros()) > places(schema) as u64 + 1;
    let entries = slots.unwrap_or(0).saturating_mul(schema.max_nonzeros().into());
    if grows && entries > MOST_FORMULA_ENTRIES { Err(entries) } else { Ok(()) }
}

/// Makes the rows of units one after the other.
struct Maker<'s> {
    schema: &'s Schema,
    place: Place,
    omitted: Omitted,
    cells: Cells,
    row: Row,
    /// The records of a unit: their entries so far, and what they have beside them.
    indices: Vec<u32>,
    values: Vec<f64>,
    records: Vec<(usize, f64, f64, Extra)>,
}

impl<'s> Maker<'s> {
    fn new(schema: &'s Schema, file: Option<File>) -> Self {
        let dimension = schema.dimension() as usize;
        let place = match file {
            Some(file) => Place::Disk(Writer::new(file, dimension)),
            None => Place::Memory(RecordTable::builder(dimension)),
        };
        let (cells, row) = (Cells::default(), Row::default());
        Self { schema, place, omitted: Omitted::default(), cells, row, indices: Vec::new(), values: Vec::new(), records: Vec::new() }
    }

    /// Reads a record's cells.
    fn open(&mut self, record: RecordView<'_>) {
        self.cells.clear();
        let mut entries = record.indices.iter().zip(record.values).peekable();
        for (place, column) in (0_u32..).step_by(2).zip(self.schema.columns()) {
            let value = entries.next_if(|(index, _)| **index == place).map_or(0.0, |(_, value)| *value);
            let is_missing = entries.next_if(|(index, _)| **index == place + 1).is_some();
            self.cells.push(&column.kind, (!is_missing).then_some(value));
        }
    }

    fn take(&mut self, table: &RecordTable) -> Result<(), DataError> {
        let is_survival = matches!(self.schema.label().kind, LabelKind::Survival(_));
        for unit in 0..table.len() {
            self.indices.clear();
            self.values.clear();
            self.records.clear();
            for record in table.unit(unit).records() {
                self.open(record);
                // Each a function of the record alone.
                let (target, extra) = match target(self.schema, &self.cells) {
                    Ok((time, extra)) if is_survival && extra.entry > time => {
                        self.omitted.left_out += 1;
                        continue;
                    }
                    Ok((time, extra)) => {
                        self.omitted.unwatched += u64::from(is_survival && extra.entry >= time);
                        (time, extra)
                    }
                    Err(Fault { problem: CellProblem::NotACount, .. }) => {
                        self.omitted.left_out += 1;
                        continue;
                    }
                    Err(_) => {
                        self.omitted.without_outcome += 1;
                        continue;
                    }
                };
                self.row.make(self.schema, &mut self.cells);
                self.indices.extend_from_slice(&self.row.indices);
                self.values.extend_from_slice(&self.row.values);
                let extra = Extra { weight: self.row.weight, ..extra };
                self.records.push((self.indices.len(), target, self.row.offset, extra));
            }
            self.place.start_unit();
            self.place.holds()?;
            let mut start = 0;
            for (end, target, offset, extra) in &self.records {
                let (indices, values) = (&self.indices[start..*end], &self.values[start..*end]);
                self.place.push_record(RecordView { indices, values, target: *target, offset: *offset, extra: *extra })?;
                start = *end;
            }
        }
        Ok(())
    }
}

impl Held {
    /// What a table in memory holds.
    pub(crate) fn of(schema: &Schema, table: RecordTable) -> Self {
        match schema.content() {
            Content::Table => Self::Memory(table),
            Content::Documents(_) | Content::Images(_) => Self::Rows(table),
        }
    }

    /// What a private file holds.
    pub(crate) fn in_file(schema: &Schema, cache: Cache) -> Self {
        match schema.content() {
            Content::Table => Self::Disk(cache),
            Content::Documents(_) | Content::Images(_) => Self::Kept(Arc::new(cache)),
        }
    }

    fn give(&self, maker: &mut Maker<'_>) -> Result<(), DataError> {
        match self {
            Self::Memory(table) => maker.take(table),
            Self::Disk(cache) => {
                let mut reader = cache.reader();
                for start in (0..cache.len()).step_by(WINDOW) {
                    maker.take(reader.read(Positions::Run(start..(start + WINDOW).min(cache.len())))?)?;
                }
                Ok(())
            }
            Self::Rows(_) | Self::Kept(_) => Ok(()),
        }
    }

    /// The units in memory, and the records that are none of theirs.
    pub(crate) fn table(&self, schema: &Schema) -> Result<(RecordTable, Omitted), DataError> {
        match self {
            Self::Rows(table) => return Ok((table.clone(), Omitted::default())),
            Self::Kept(cache) => return Ok((cache.whole()?, Omitted::default())),
            Self::Memory(_) | Self::Disk(_) => {}
        }
        let mut maker = Maker::new(schema, None);
        self.give(&mut maker)?;
        let table = match maker.place {
            Place::Memory(table) => table.finish(),
            Place::Disk(writer) => writer.finish()?.whole()?,
        };
        Ok((table, maker.omitted))
    }

    /// The same in a private file.
    pub(crate) fn cache(&self, schema: &Schema, file: File) -> Result<(Arc<Cache>, Omitted), DataError> {
        match self {
            Self::Rows(table) => return Ok((Arc::new(Cache::of(table, file)?), Omitted::default())),
            Self::Kept(cache) => return Ok((Arc::clone(cache), Omitted::default())),
            Self::Memory(_) | Self::Disk(_) => {}
        }
        let mut maker = Maker::new(schema, Some(file));
        self.give(&mut maker)?;
        match maker.place {
            Place::Disk(writer) => Ok((Arc::new(writer.finish()?), maker.omitted)),
            Place::Memory(table) => unreachable!("rows of {} entries that go into a file are not in memory", table.finish().dimension()),
        }
    }
}
