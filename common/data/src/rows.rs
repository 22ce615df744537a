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
    /// Counts that are not whole, times that end before they begin, and records of units with more entries than are held of one.
    pub left_out: u64,
}

/// Number of places of a record of cells.
pub(crate) fn places(schema: &Schema) -> usize {
    2 * schema.columns().len()
}

/// Most entries of a unit, where the formula can make more of a record than it has cells.
///
/// # Privacy
/// What of a unit is kept follows from its own records and public numbers. A limit on all units together, or on their number, would let one unit push another out or
/// let it in, and a sum would move by two terms.
pub(crate) fn room(schema: &Schema, slots: Option<u64>) -> Option<u64> {
    let units = slots.filter(|_| u64::from(schema.max_nonzeros()) > places(schema) as u64 + 1)?;
    Some(MOST_FORMULA_ENTRIES / units.max(1))
}

/// Whether so many declared units fit, by what is public; the error is the number of entries that they can have.
///
/// # Errors
/// They do not.
pub fn fits(schema: &Schema, slots: Option<u64>) -> Result<(), u64> {
    let entries = slots.unwrap_or(0).saturating_mul(schema.max_nonzeros().into());
    if room(schema, slots).is_none() || entries <= MOST_FORMULA_ENTRIES { Ok(()) } else { Err(entries) }
}

/// Makes the rows of units one after the other.
struct Maker<'s> {
    schema: &'s Schema,
    place: Place,
    room: Option<u64>,
    omitted: Omitted,
    cells: Cells,
    row: Row,
    /// The records of a unit: their entries so far, and what they have beside them.
    indices: Vec<u32>,
    values: Vec<f64>,
    records: Vec<(usize, f64, f64, Extra)>,
}

impl<'s> Maker<'s> {
    fn new(schema: &'s Schema, slots: Option<u64>, file: Option<File>) -> Self {
        let dimension = schema.dimension() as usize;
        let (place, room) = match file {
            // On the disk there is room for all.
            Some(file) => (Place::Disk(Writer::new(file, dimension)), None),
            None => (Place::Memory(RecordTable::builder(dimension)), room(schema, slots)),
        };
        let (cells, row) = (Cells::default(), Row::default());
        Self { schema, place, room, omitted: Omitted::default(), cells, row, indices: Vec::new(), values: Vec::new(), records: Vec::new() }
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

    /// Whether the unit has more entries than are held of one.
    fn is_full(&self) -> bool {
        self.room.is_some_and(|most| self.indices.len() as u64 > most)
    }

    fn take(&mut self, table: &RecordTable) -> Result<(), DataError> {
        let is_survival = matches!(self.schema.label().kind, LabelKind::Survival(_));
        for unit in 0..table.len() {
            let before = self.omitted;
            self.indices.clear();
            self.values.clear();
            self.records.clear();
            for record in table.unit(unit).records() {
                if self.is_full() {
                    break;
                }
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
            // No word of other units, nor of how many there are: see "Surplus under add-remove" in `layouts.md`.
            if self.is_full() {
                self.omitted = Omitted { left_out: before.left_out + table.unit(unit).records().count() as u64, ..before };
                continue;
            }
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
    pub(crate) fn table(&self, schema: &Schema, slots: Option<u64>) -> Result<(RecordTable, Omitted), DataError> {
        match self {
            Self::Rows(table) => return Ok((table.clone(), Omitted::default())),
            Self::Kept(cache) => return Ok((cache.whole()?, Omitted::default())),
            Self::Memory(_) | Self::Disk(_) => {}
        }
        let mut maker = Maker::new(schema, slots, None);
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
        let mut maker = Maker::new(schema, None, Some(file));
        self.give(&mut maker)?;
        match maker.place {
            Place::Disk(writer) => Ok((Arc::new(writer.finish()?), maker.omitted)),
            Place::Memory(table) => unreachable!("rows of {} entries that go into a file are not in memory", table.finish().dimension()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Records of every unit that are held with so many entries of each. A row has two entries where x is not 0, and one otherwise.
    fn held(rows: &str, unit_column: bool, room: u64) -> Vec<usize> {
        let (table, _) = made(rows, unit_column, room);
        (0..table.len()).map(|unit| table.unit(unit).records().count()).collect()
    }

    fn made(rows: &str, unit_column: bool, room: u64) -> (RecordTable, u64) {
        let head = if unit_column { "unit_column = \"patient\"\n" } else { "other_columns = \"ignore\"\n" };
        let text = format!(
            "{head}[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = 0\nupper = 9\n\
             centre = 0\nscale = 1\n"
        );
        let schema = Schema::parse(&text).unwrap().with_formula("y ~ x", &[]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.csv");
        std::fs::write(&path, format!("patient,x,y\n{rows}")).unwrap();
        let read = crate::load_for_run(&schema, &[path], &[0; 32]).unwrap();
        let mut maker = Maker::new(&schema, None, None);
        maker.room = Some(room);
        read.held.give(&mut maker).unwrap();
        let Place::Memory(table) = maker.place else { panic!("in memory") };
        (table.finish(), maker.omitted.left_out)
    }

    /// The site's own people hear of it; a file without a formula leaves nothing out so.
    #[test]
    fn what_a_formula_leaves_out_is_counted() {
        for (rows, unit_column, left_out) in
            [("a,1,1\na,1,1\na,0,1\nb,1,1\n", true, 3), ("a,0,1\na,1,1\nb,1,1\na,1,1\n", true, 3), ("a,1,1\nb,0,1\n", false, 0)]
        {
            assert_eq!(made(rows, unit_column, 4).1, left_out, "{rows}");
        }
        assert_eq!(made("a,1,1\nb,0,1\n", false, 1).1, 1);
    }

    /// Otherwise one unit's records would decide whether another's are in the sum.
    #[test]
    fn what_is_held_of_a_unit_does_not_depend_on_other_units() {
        let room = 4;
        let others = "b,1,1\nb,1,0\nb,1,1\nc,0,1\n";
        for first in ["a,1,1\n", "a,0,1\n", "a,1,1\na,1,1\na,1,1\na,1,1\n"] {
            assert_eq!(held(&format!("{first}{others}"), true, room)[1..], [0, 1], "{first}");
        }
        for first in ["a,1,1\n", "a,0,1\n"] {
            assert_eq!(held(&format!("{first}b,1,1\nc,0,1\n"), false, 2)[1..], [1, 1], "{first}");
        }
    }

    /// Which of a person's rows come first may depend on others, where rows come from a database.
    #[test]
    fn a_person_with_more_than_fits_contributes_nothing_in_any_order() {
        assert_eq!(held("a,1,1\na,1,1\na,0,1\nb,1,1\n", true, 4), [0, 1]);
        assert_eq!(held("a,0,1\na,1,1\nb,1,1\na,1,1\n", true, 4), [0, 1]);
        assert_eq!(held("a,1,1\na,1,1\nb,1,1\n", true, 4), [2, 1]);
    }

    /// Sums have a term for every unit: otherwise removing one would let another in, and move a sum by two terms.
    #[test]
    fn removing_a_unit_lets_no_other_in() {
        assert_eq!(held("a,1,1\nb,1,1\nc,1,1\na,1,1\n", true, 4), [2, 1, 1]);
        assert_eq!(held("b,1,1\nc,1,1\n", true, 4), [1, 1]);
        assert_eq!(held("a,1,1\nb,1,1\nc,1,1\n", false, 2), [1, 1, 1]);
    }
}
