//! Encoded rows become units: one a record, or one a person.

use crate::cache::{Cache, Place, Writer};
use crate::changes::Changes;
use crate::encode::{Encoded, Encoder, Fate, Purpose};
use crate::error::{DataError, RowProblem};
use crate::screen::{Reasons, Screen};
use crate::source::{RowError, Sink, field_name};
use crate::{Changed, LocalCounts, Unreadable};
use dp_pvi_privacy::stored::UnitStore;
use dp_pvi_records::{LineProblem, RecordTable, RecordView, Row};
use dp_pvi_schema::public::Extra;
use dp_pvi_schema::{Blanks, Schema, text};
use std::collections::HashMap;
use std::fs::File;

/// Collects the rows of a data set.
pub(crate) struct Assembler<'s> {
    schema: &'s Schema,
    purpose: Purpose,
    encoder: Encoder<'s>,
    row: Encoded,
    units: UnitsOf,
    table: Place,
    records: u64,
    dropped: u64,
    /// Why records contribute nothing.
    reasons: Reasons,
    /// Rows to be predicted that cannot be read.
    unreadable: Vec<Unreadable>,
    /// What the schema changed in rows that are to be predicted.
    changes: Option<Changes>,
    /// Most entries of one unit, where there is a limit: a unit that has more contributes nothing.
    room: Option<u64>,
    /// Field of the column whose text is wanted, and that text of every row.
    id: Option<usize>,
    ids: Vec<String>,
}

/// What was collected.
pub(crate) struct Assembled {
    pub(crate) table: RecordTable,
    pub(crate) counts: LocalCounts,
    /// For the site's own screen.
    pub(crate) screen: Screen,
    /// Of rows to be predicted.
    pub(crate) predicted: Predicted,
}

/// The same, wherever the units are.
struct Ended {
    place: Place,
    counts: LocalCounts,
    screen: Screen,
    predicted: Predicted,
}

/// What is known of rows to be predicted beside the table.
#[derive(Default)]
pub(crate) struct Predicted {
    pub(crate) unreadable: Vec<Unreadable>,
    pub(crate) changed: Vec<Changed>,
    /// One a row, where they are wanted.
    pub(crate) ids: Vec<String>,
}

/// What a unit is.
enum UnitsOf {
    Records,
    Persons(Persons),
}

/// Rows of all persons in file order; put side by side at the end.
#[derive(Default)]
struct Persons {
    id: Vec<u8>,
    numbers: HashMap<Box<[u8]>, u32>,
    /// Entries of every person's kept records.
    entries: Vec<u64>,
    records: Vec<OfPerson>,
    indices: Vec<u32>,
    values: Vec<f64>,
    /// Records that do not fit, of persons who have too many.
    left_out: u64,
}

/// A kept record: whose it is, where its entries end, and its other numbers.
#[derive(Clone, Copy)]
struct OfPerson {
    person: u32,
    end: usize,
    target: f64,
    offset: f64,
    extra: Extra,
}

impl<'s> Assembler<'s> {
    pub(crate) fn new(schema: &'s Schema, purpose: Purpose) -> Self {
        let grouped = purpose.has_labels() && schema.unit_column().is_some();
        Self {
            schema,
            purpose,
            encoder: Encoder::new(schema, purpose),
            row: Encoded::default(),
            units: if grouped { UnitsOf::Persons(Persons::default()) } else { UnitsOf::Records },
            table: Place::Memory(RecordTable::builder(schema.dimension() as usize)),
            records: 0,
            dropped: 0,
            reasons: Reasons::default(),
            unreadable: Vec::new(),
            changes: (purpose == Purpose::Prediction).then(Changes::default),
            room: None,
            id: None,
            ids: Vec::new(),
        }
    }

    /// Keeps the text of one more column beside the rows.
    pub(crate) fn keeping_ids(self) -> Self {
        let fields = Encoder::unit_field(self.schema) + usize::from(self.schema.unit_column().is_some());
        Self { id: Some(fields), ..self }
    }

    /// Puts the units into a file in place of memory.
    pub(crate) fn onto_disk(self, file: File) -> Self {
        Self { table: Place::Disk(Writer::new(file, self.schema.dimension() as usize)), ..self }
    }

    /// Units with more entries contribute nothing.
    pub(crate) fn holding(self, entries: Option<u64>) -> Self {
        Self { room: entries, ..self }
    }

    /// The finished table, in memory.
    pub(crate) fn finish(self) -> Result<Assembled, DataError> {
        let Ended { place, counts, screen, predicted } = self.end()?;
        let table = match place {
            Place::Memory(table) => table.finish(),
            Place::Disk(writer) => writer.finish()?.whole()?,
        };
        Ok(Assembled { table, counts, screen, predicted })
    }

    /// The finished units, in the file.
    pub(crate) fn finish_onto_disk(self) -> Result<Option<(Cache, Screen)>, DataError> {
        let Ended { place, screen, .. } = self.end()?;
        match place {
            Place::Memory(_) => Ok(None),
            Place::Disk(writer) => Ok(Some((writer.finish()?, screen))),
        }
    }

    fn end(mut self) -> Result<Ended, DataError> {
        let units = match self.units {
            UnitsOf::Records => self.records,
            UnitsOf::Persons(persons) => {
                self.reasons.room += persons.fill(&mut self.table, self.room)?;
                persons.numbers.len() as u64
            }
        };
        let counts = LocalCounts { units, records: self.records, dropped: self.dropped };
        let changed = self.changes.map(|changes| changes.rows).unwrap_or_default();
        let predicted = Predicted { unreadable: self.unreadable, changed, ids: self.ids };
        Ok(Ended { place: self.table, counts, screen: self.reasons.screen(self.schema, self.records), predicted })
    }

    /// A record that contributes nothing: a unit where every record is one. Of a person it cannot be told whose it is, so it makes none.
    fn nothing_of_anybody(&mut self) {
        self.records += 1;
        self.dropped += 1;
        if matches!(self.units, UnitsOf::Records) {
            self.table.start_unit();
        }
    }

    /// Keeps the text by which people know a row.
    fn keep_id(&mut self, row: &impl Row) {
        if let Some(field) = self.id {
            self.ids.push(row.cell(field).with_text(|text| String::from_utf8_lossy(&text::cell(text, Blanks::Trimmed)).into_owned()));
        }
    }

    /// Remembers why a row has no prediction.
    fn unreadable(&mut self, problem: impl FnOnce() -> RowProblem) {
        if self.purpose == Purpose::Prediction {
            self.unreadable.push(Unreadable { row: self.records, problem: problem() });
        }
    }
}

impl Sink for Assembler<'_> {
    fn row(&mut self, row: &impl Row) -> Result<(), RowError> {
        self.records += 1;
        self.keep_id(row);
        let encoded = match &mut self.changes {
            None => self.encoder.encode(row, &mut self.row, &mut ()),
            Some(changes) => changes.of_row(self.records, self.schema, |watch| self.encoder.encode(row, &mut self.row, watch)),
        };
        let fate = match encoded {
            Ok(fate) => {
                self.row.dropped.into_iter().for_each(|fault| self.reasons.cell(fault));
                fate
            }
            Err(fault) if self.purpose.rejects() => return Err(RowError::Fault(fault)),
            Err(fault) => {
                self.reasons.cell(fault);
                let column = field_name(self.schema, fault.field);
                self.unreadable(|| RowProblem::Cell { column: column.to_owned(), problem: fault.problem });
                Fate::Dropped
            }
        };
        self.dropped += u64::from(fate == Fate::Dropped);
        let entries = self.row.indices.len() as u64;
        // No word of other units, nor of how many there are: see "Surplus under add-remove" in `layouts.md`.
        let fits = |entries: u64| self.room.is_none_or(|most| entries <= most);
        match &mut self.units {
            UnitsOf::Records => {
                self.table.start_unit();
                self.table.holds()?;
                match fate {
                    Fate::Kept if fits(entries) => self.table.push_record(self.row.view())?,
                    Fate::Kept => self.reasons.room += 1,
                    Fate::Dropped => {}
                }
            }
            UnitsOf::Persons(persons) => {
                match self.encoder.unit_id(row, &mut persons.id) {
                    Ok(()) => {}
                    Err(fault) if self.purpose.rejects() => return Err(RowError::Fault(fault)),
                    Err(fault) => {
                        if fate == Fate::Kept {
                            self.dropped += 1;
                            self.reasons.cell(fault);
                        }
                        return Ok(());
                    }
                }
                let person = persons.number();
                let held = &mut persons.entries[person as usize];
                if fate == Fate::Kept {
                    *held = held.saturating_add(entries);
                }
                if fate == Fate::Kept && !fits(*held) {
                    persons.left_out += 1;
                } else if fate == Fate::Kept {
                    persons.indices.extend_from_slice(&self.row.indices);
                    persons.values.extend_from_slice(&self.row.values);
                    let end = persons.indices.len();
                    let Encoded { target, offset, extra, .. } = self.row;
                    persons.records.push(OfPerson { person, end, target, offset, extra });
                }
            }
        }
        Ok(())
    }

    fn broken(&mut self, problem: LineProblem, rest: &impl Row) -> Result<(), RowError> {
        if self.purpose.rejects() {
            return Err(RowError::Line(problem));
        }
        self.keep_id(rest);
        self.reasons.line();
        self.nothing_of_anybody();
        self.unreadable(|| RowProblem::Line(problem));
        Ok(())
    }

    fn nothing(&mut self) {
        if self.id.is_some() {
            self.ids.push(String::new());
        }
        self.reasons.empty();
        self.nothing_of_anybody();
    }
}

/// Two tables from one reading.
pub(crate) struct Both<'s> {
    pub(crate) plain: Assembler<'s>,
    pub(crate) by_formula: Assembler<'s>,
}

impl Sink for Both<'_> {
    fn row(&mut self, row: &impl Row) -> Result<(), RowError> {
        self.plain.row(row)?;
        self.by_formula.row(row)
    }

    fn broken(&mut self, problem: LineProblem, rest: &impl Row) -> Result<(), RowError> {
        self.plain.broken(problem, rest)?;
        self.by_formula.broken(problem, rest)
    }

    fn nothing(&mut self) {
        self.plain.nothing();
        self.by_formula.nothing();
    }
}

impl Persons {
    /// The number of the person with the current id; persons are numbered as they first occur.
    fn number(&mut self) -> u32 {
        if let Some(&number) = self.numbers.get(self.id.as_slice()) {
            return number;
        }
        // A table holds fewer than 2^32 units; `fill` would fail before this count is reached.
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(self.id.as_slice().into(), number);
        self.entries.push(0);
        number
    }

    /// Puts the records of every person side by side, in file order within the person. A person who has more entries than `most` contributes nothing, in whatever order
    /// the rows are; returns how many records these have.
    fn fill(&self, table: &mut Place, most: Option<u64>) -> Result<u64, DataError> {
        let mut left_out = self.left_out;
        let mut order: Vec<usize> = (0..self.records.len()).collect();
        order.sort_by_key(|&record| self.records[record].person);
        let mut next = order.into_iter().peekable();
        for person in (0_u32..).take(self.numbers.len()) {
            table.start_unit();
            table.holds()?;
            while let Some(record) = next.next_if(|&record| self.records[record].person == person) {
                let OfPerson { end, target, offset, extra, .. } = self.records[record];
                let start = record.checked_sub(1).map_or(0, |before| self.records[before].end);
                if most.is_some_and(|most| self.entries[person as usize] > most) {
                    left_out += 1;
                    continue;
                }
                let (indices, values) = (&self.indices[start..end], &self.values[start..end]);
                table.push_record(RecordView { indices, values, target, offset, extra })?;
            }
        }
        Ok(left_out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_privacy::UnitTable;
    use dp_pvi_schema::Schema;

    use super::{Assembled, Assembler};
    use crate::distinct::read_files;
    use crate::encode::Purpose;
    use crate::source::Reading;

    /// Records of every unit that are held with so many entries of each. A row has two entries where x is not 0, and one otherwise.
    fn held(rows: &str, unit_column: bool, room: u64) -> Vec<usize> {
        let table = assembled(rows, unit_column, room).table;
        (0..table.len()).map(|unit| table.unit(unit).records().count()).collect()
    }

    fn assembled(rows: &str, unit_column: bool, room: u64) -> Assembled {
        let head = if unit_column { "unit_column = \"patient\"\n" } else { "other_columns = \"ignore\"\n" };
        let text = format!(
            "{head}[label]\ncolumn = \"y\"\nkind = \"binary\"\npositive = [\"1\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = 0\nupper = 9\n\
             centre = 0\nscale = 1\n"
        );
        let schema = Schema::parse(&text).unwrap().with_formula("y ~ x", &[]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.csv");
        std::fs::write(&path, format!("patient,x,y\n{rows}")).unwrap();
        let mut assembler = Assembler::new(&schema, Purpose::Run).holding(Some(room));
        read_files(Reading { schema: &schema, purpose: Purpose::Run, id: None, others: false }, &[path], &mut assembler).unwrap();
        assembler.finish().unwrap()
    }

    /// The site's own people hear of it; a file without a formula leaves nothing out so.
    #[test]
    fn what_a_formula_leaves_out_is_counted() {
        for (rows, unit_column, left_out) in
            [("a,1,1\na,1,1\na,0,1\nb,1,1\n", true, 3), ("a,0,1\na,1,1\nb,1,1\na,1,1\n", true, 3), ("a,1,1\nb,0,1\n", false, 0)]
        {
            let screen = assembled(rows, unit_column, 4).screen;
            assert_eq!((screen.left_out(), screen.count()), (left_out, left_out), "{rows}");
        }
        assert_eq!(assembled("a,1,1\nb,0,1\n", false, 1).screen.left_out(), 1);
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
