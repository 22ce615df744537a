//! Encoded rows become units: one a record, or one a person.

use crate::cache::{Cache, Place, Writer};
use crate::changes::Changes;
use crate::encode::{Encoded, Encoder, Fate, Form, Purpose};
use crate::error::{DataError, RowProblem};
use crate::rows::places;
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
    /// Of the table's records.
    dimension: usize,
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
    records: Vec<OfPerson>,
    indices: Vec<u32>,
    values: Vec<f64>,
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
    pub(crate) fn new(schema: &'s Schema, purpose: Purpose, form: Form) -> Self {
        let grouped = purpose.has_labels() && schema.unit_column().is_some();
        let dimension = match form {
            Form::Cells => places(schema),
            Form::Rows => schema.dimension() as usize,
        };
        Self {
            schema,
            purpose,
            encoder: Encoder::new(schema, purpose, form),
            dimension,
            row: Encoded::default(),
            units: if grouped { UnitsOf::Persons(Persons::default()) } else { UnitsOf::Records },
            table: Place::Memory(RecordTable::builder(dimension)),
            records: 0,
            dropped: 0,
            reasons: Reasons::default(),
            unreadable: Vec::new(),
            changes: (purpose == Purpose::Prediction).then(Changes::default),
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
        Self { table: Place::Disk(Writer::new(file, self.dimension)), ..self }
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
                persons.fill(&mut self.table)?;
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
                self.row.dropped.into_iter().for_each(|fault| self.reasons.dropped(fault));
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
        match &mut self.units {
            UnitsOf::Records => {
                self.table.start_unit();
                self.table.holds()?;
                if fate == Fate::Kept {
                    self.table.push_record(self.row.view())?;
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
                if fate == Fate::Kept {
                    let RecordView { indices, values, target, offset, extra } = self.row.view();
                    persons.indices.extend_from_slice(indices);
                    persons.values.extend_from_slice(values);
                    let end = persons.indices.len();
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

impl Persons {
    /// The number of the person with the current id; persons are numbered as they first occur.
    fn number(&mut self) -> u32 {
        if let Some(&number) = self.numbers.get(self.id.as_slice()) {
            return number;
        }
        // A table holds fewer than 2^32 units; `fill` would fail before this count is reached.
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(self.id.as_slice().into(), number);
        number
    }

    /// Puts the records of every person side by side, in file order within the person.
    fn fill(&self, table: &mut Place) -> Result<(), DataError> {
        let mut order: Vec<usize> = (0..self.records.len()).collect();
        order.sort_by_key(|&record| self.records[record].person);
        let mut next = order.into_iter().peekable();
        for person in (0_u32..).take(self.numbers.len()) {
            table.start_unit();
            table.holds()?;
            while let Some(record) = next.next_if(|&record| self.records[record].person == person) {
                let OfPerson { end, target, offset, extra, .. } = self.records[record];
                let start = record.checked_sub(1).map_or(0, |before| self.records[before].end);
                let (indices, values) = (&self.indices[start..end], &self.values[start..end]);
                table.push_record(RecordView { indices, values, target, offset, extra })?;
            }
        }
        Ok(())
    }
}
