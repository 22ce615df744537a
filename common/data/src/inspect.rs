//! What the schema does to a data set, counted. For the people at the site: the counts are as private as the records.

use crate::assemble::Assembled;
use crate::distinct::{Shared, read_files};
use crate::encode::{CellEvent, Encoded, Encoder, Fate, Form, Purpose, Watch};
use crate::error::{DataError, Fault, RowProblem};
use crate::near::{Near, Place};
use crate::screen::{Reasons, Screen};
use crate::source::{Reading, RecordFile, RowError, Sink, field_name};
use dp_pvi_records::{LineProblem, RecordView, Row};
use dp_pvi_schema::content::Content;
use dp_pvi_schema::{ColumnKind, LabelKind, Schema};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

/// Bars of the norm histogram.
const NORM_BINS: usize = 10;
/// Rejected cells that are listed one by one.
const LISTED_REJECTIONS: usize = 10;

/// Counts over a data set. Not for anyone outside the site: nothing here has been protected.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// Privacy units.
    pub units: u64,
    /// Records.
    pub records: u64,
    /// Records that the schema drops.
    pub dropped: u64,
    /// Lines that are empty or comments: records that contribute nothing, wherever they stand. They are among `records`.
    pub empty_lines: u64,
    /// Rejected records: with a rejected cell, or lines that are no row. In a run they contribute nothing.
    pub rejected: u64,
    /// The first rejected records.
    pub rejections: Vec<Rejection>,
    /// Records that contribute nothing, dropped and rejected ones, by their reasons.
    pub screen: Screen,
    /// Units whose ids are near another's.
    pub near: Near,
    /// Records that two files have.
    pub shared: Vec<Shared>,
    /// Entries of all kept records: a table in memory holds fewer than 2³².
    pub entries_held: u64,
    /// Of survival times: records that were watched for no time.
    pub unwatched: Unwatched,
    /// Most records of one unit.
    pub largest_unit: u64,
    /// The columns in the order of the schema.
    pub columns: Vec<ColumnReport>,
    /// Coefficients of a formula, with the number of records whose entry is not 0; empty without a formula.
    pub entries: Vec<(String, u64)>,
    /// R; infinite without a formula, where there are no rows.
    pub norm_bound: f64,
    /// Kept records by their norm before scaling: ten bars of equal width from 0 to R, then those above R, which are scaled down.
    pub norms: Vec<u64>,
}

/// Records of survival times that were watched for no time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unwatched {
    /// Whose event came at the time of entry: they count.
    pub events: u64,
    /// That left at the time of entry without an event: they carry no information.
    pub nothing: u64,
    /// That left before they came: they contribute nothing, and are most likely a mistake.
    pub reversed: u64,
}

impl Unwatched {
    fn note(&mut self, RecordView { target: time, extra, .. }: RecordView<'_>) {
        match time.partial_cmp(&extra.entry) {
            Some(Ordering::Less) => self.reversed += 1,
            Some(Ordering::Equal) if extra.event => self.events += 1,
            Some(Ordering::Equal) => self.nothing += 1,
            Some(Ordering::Greater) | None => {}
        }
    }
}

/// A record that the schema rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Position of the file in the list, from 1.
    pub file: usize,
    /// Row from 1.
    pub row: u64,
    /// Why.
    pub problem: RowProblem,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnReport {
    /// Name in the schema.
    pub name: String,
    /// `number`, `category`, `boolean`.
    pub kind: &'static str,
    /// What happened to its cells.
    pub counts: FieldCounts,
    /// Names of its levels, with the number of their cells; empty for numbers.
    pub levels: Vec<(String, u64)>,
}

/// What happened to the cells of a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FieldCounts {
    /// Cells that are in the range or list.
    pub regular: u64,
    /// Missing cells.
    pub missing: u64,
    /// Numbers below the range.
    pub below: u64,
    /// Numbers above the range.
    pub above: u64,
    /// Cells that hold no value of the column.
    pub invalid: u64,
}

/// Counts what the schema does to files. Rows that the schema rejects are counted instead of ending the reading; a row is left at
/// its first rejected cell.
///
/// # Errors
/// See [`DataError`]; not [`DataError::Cell`] or [`DataError::Line`].
pub fn inspect(schema: &Schema, files: &[impl RecordFile]) -> Result<Inspection, DataError> {
    if *schema.content() != Content::Table {
        return without_columns(schema, files);
    }
    let reading = Reading { schema, purpose: Purpose::Check, id: None, others: false };
    let shared = reading.check_distinct(files)?;
    let mut counter = Counter::new(schema);
    for (file, path) in files.iter().enumerate() {
        (counter.file, counter.row) = (file + 1, 0);
        read_files(reading, std::slice::from_ref(path), &mut counter)?;
    }
    if files.is_empty() {
        return Err(DataError::NoFiles);
    }
    Ok(Inspection { shared, ..counter.finish() })
}

/// Documents and images: only their number and their norms can be told.
fn without_columns(schema: &Schema, files: &[impl RecordFile]) -> Result<Inspection, DataError> {
    let Assembled { table, counts, .. } = crate::table(schema, files, Purpose::Check, Form::Rows)?;
    let shared = Reading { schema, purpose: Purpose::Check, id: None, others: false }.check_distinct(files)?;
    let (bound, norms) = (schema.row_norm_bound(), vec![0; NORM_BINS + 1]);
    let mut tally = Tally { counts: Vec::new(), levels: Vec::new(), filled: Vec::new(), bound, norms, entries: 0 };
    for record in table.records() {
        tally.entries += record.indices.len() as u64;
        tally.row(&[], record.values.iter().map(|value| value * value).sum::<f64>().sqrt());
    }
    Ok(Inspection {
        units: counts.units,
        records: counts.records,
        dropped: counts.dropped,
        empty_lines: 0,
        rejected: 0,
        rejections: Vec::new(),
        screen: Screen::of_all(counts.records),
        near: Near::default(),
        shared,
        entries_held: tally.entries,
        unwatched: Unwatched::default(),
        largest_unit: 1,
        columns: Vec::new(),
        entries: Vec::new(),
        norm_bound: tally.bound,
        norms: tally.norms,
    })
}

struct Counter<'s> {
    schema: &'s Schema,
    encoder: Encoder<'s>,
    encoded: Encoded,
    tally: Tally,
    file: usize,
    row: u64,
    records: u64,
    dropped: u64,
    empty_lines: u64,
    rejected: u64,
    rejections: Vec<Rejection>,
    reasons: Reasons,
    unwatched: Unwatched,
    id: Vec<u8>,
    persons: HashMap<Box<[u8]>, Person>,
}

/// How many records a person has, and where the first of them stands.
struct Person {
    records: u64,
    first: Place,
}

/// Counts per field.
struct Tally {
    counts: Vec<FieldCounts>,
    levels: Vec<Vec<u64>>,
    /// Records whose entry is not 0, one a coefficient of a formula.
    filled: Vec<u64>,
    bound: f64,
    norms: Vec<u64>,
    /// Of all kept records.
    entries: u64,
}

impl<'s> Counter<'s> {
    fn new(schema: &'s Schema) -> Self {
        let levels: Vec<Vec<u64>> = schema.columns().iter().map(|column| vec![0; level_count(&column.kind)]).collect();
        let tally = Tally {
            counts: vec![FieldCounts::default(); levels.len()],
            levels,
            filled: vec![0; schema.design().filter(|design| !design.is_coded()).map_or(0, |design| design.dimension() as usize)],
            bound: schema.row_norm_bound(),
            norms: vec![0; NORM_BINS + 1],
            entries: 0,
        };
        Self {
            schema,
            encoder: Encoder::new(schema, Purpose::Check, Form::Rows),
            encoded: Encoded::default(),
            tally,
            file: 1,
            row: 0,
            records: 0,
            dropped: 0,
            empty_lines: 0,
            rejected: 0,
            rejections: Vec::new(),
            reasons: Reasons::default(),
            unwatched: Unwatched::default(),
            id: Vec::new(),
            persons: HashMap::new(),
        }
    }

    /// Counts a row for its person.
    fn person(&mut self, row: &impl Row) -> Result<(), Fault> {
        self.encoder.unit_id(row, &mut self.id)?;
        match self.persons.get_mut(self.id.as_slice()) {
            Some(person) => person.records += 1,
            None => {
                let first = Place { file: self.file, row: self.row };
                self.persons.insert(self.id.as_slice().into(), Person { records: 1, first });
            }
        }
        Ok(())
    }

    fn reject(&mut self, problem: RowProblem) {
        self.rejected += 1;
        if self.rejections.len() < LISTED_REJECTIONS {
            self.rejections.push(Rejection { file: self.file, row: self.row, problem });
        }
    }

    fn finish(self) -> Inspection {
        let columns = self.schema.columns().iter().enumerate().filter(|(_, column)| column.kind != ColumnKind::Ignored);
        let reports: Vec<_> = columns
            .map(|(field, column)| {
                let (kind, names) = match &column.kind {
                    ColumnKind::Category(rule) => ("category", rule.values.clone()),
                    ColumnKind::Boolean(_) => ("boolean", vec!["false".to_owned(), "true".to_owned()]),
                    ColumnKind::Number(_) | ColumnKind::Ignored => ("number", Vec::new()),
                };
                self.tally.report(field, column.name.clone(), kind, names)
            })
            .collect();
        let grouped = self.schema.unit_column().is_some();
        Inspection {
            screen: self.reasons.screen(self.schema, self.records),
            shared: Vec::new(),
            near: Near::of(self.persons.iter().map(|(id, person)| (id.as_ref(), person.first))),
            entries_held: self.tally.entries,
            units: if grouped { self.persons.len() as u64 } else { self.records },
            records: self.records,
            dropped: self.dropped,
            empty_lines: self.empty_lines,
            rejected: self.rejected,
            rejections: self.rejections,
            unwatched: self.unwatched,
            largest_unit: if grouped { self.persons.values().map(|person| person.records).max().unwrap_or(0) } else { 1 },
            columns: reports,
            entries: self.schema.coefficient_names().into_iter().zip(self.tally.filled).collect(),
            norm_bound: if self.schema.design().is_some() { self.tally.bound } else { f64::INFINITY },
            norms: self.tally.norms,
        }
    }
}

fn level_count(kind: &ColumnKind) -> usize {
    match kind {
        ColumnKind::Category(rule) => rule.values.len(),
        ColumnKind::Boolean(_) => 2,
        ColumnKind::Number(_) | ColumnKind::Ignored => 0,
    }
}

impl Sink for Counter<'_> {
    fn row(&mut self, row: &impl Row) -> Result<(), RowError> {
        self.row += 1;
        self.records += 1;
        let fate = self.encoder.encode(row, &mut self.encoded, &mut self.tally);
        // A person is there whose records are all rejected, as in a run.
        let person = if self.schema.unit_column().is_some() { self.person(row) } else { Ok(()) };
        match fate.and_then(|fate| person.map(|()| fate)) {
            Ok(Fate::Kept) if matches!(self.schema.label().kind, LabelKind::Survival(_)) => self.unwatched.note(self.encoded.view()),
            // Without a formula a record is held as its cells.
            Ok(Fate::Kept) if self.schema.design().is_none() => self.tally.entries += self.schema.columns().len() as u64,
            Ok(Fate::Kept) => {}
            Ok(Fate::Dropped) => {
                self.dropped += 1;
                self.encoded.dropped.into_iter().for_each(|fault| self.reasons.dropped(fault));
            }
            Err(fault) => {
                self.reasons.cell(fault);
                let column = field_name(self.schema, fault.field).to_owned();
                self.reject(RowProblem::Cell { column, problem: fault.problem });
            }
        }
        Ok(())
    }

    fn broken(&mut self, problem: LineProblem, _: &impl Row) -> Result<(), RowError> {
        self.row += 1;
        self.records += 1;
        self.reasons.line();
        self.reject(RowProblem::Line(problem));
        Ok(())
    }

    fn nothing(&mut self) {
        self.row += 1;
        self.records += 1;
        self.dropped += 1;
        self.empty_lines += 1;
        self.reasons.empty();
    }
}

impl Tally {
    fn report(&self, field: usize, name: String, kind: &'static str, levels: Vec<String>) -> ColumnReport {
        let levels = levels.into_iter().zip(self.levels[field].iter().copied()).collect();
        ColumnReport { name, kind, counts: self.counts[field], levels }
    }
}

impl Watch for Tally {
    fn cell(&mut self, field: usize, event: CellEvent) {
        let counts = &mut self.counts[field];
        match event {
            CellEvent::Missing => counts.missing += 1,
            CellEvent::Invalid => counts.invalid += 1,
            CellEvent::Below => counts.below += 1,
            CellEvent::Above => counts.above += 1,
            CellEvent::Number => counts.regular += 1,
            CellEvent::Level(level) => {
                counts.regular += 1;
                self.levels[field][level] += 1;
            }
        }
    }

    fn row(&mut self, indices: &[u32], norm: f64) {
        self.entries += indices.len() as u64;
        if !self.filled.is_empty() {
            indices.iter().for_each(|index| self.filled[*index as usize] += 1);
        }
        let bin = (norm / self.bound * NORM_BINS as f64).floor();
        // A norm is not negative; above R everything is one bar, and R itself is in the last bar below it.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the number of bins")]
        let bin = if norm > self.bound { NORM_BINS } else { (bin as usize).min(NORM_BINS - 1) };
        self.norms[bin] += 1;
    }
}

impl Inspection {
    /// The first record that the schema rejects, as [`crate::load`] would say it; `files` are those that were looked at.
    #[must_use]
    pub fn first_rejection(&self, files: &[impl RecordFile]) -> Option<DataError> {
        let Rejection { file, row, problem } = self.rejections.first()?;
        let path = files.get(file - 1)?.name().to_owned();
        Some(match problem.clone() {
            RowProblem::Cell { column, problem } => DataError::Cell { path, row: *row, column, problem },
            RowProblem::Line(problem) => DataError::Line { path, row: *row, problem },
        })
    }

    fn print_norms(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        writeln!(f, "norms of the rows, R = {:.4}; {:.3} % are longer and scaled down to R", self.norm_bound, 100.0 * self.scaled_share())?;
        let most = self.norms.iter().copied().max().unwrap_or(0).max(1);
        for (bin, &rows) in self.norms.iter().enumerate() {
            let from = self.norm_bound * bin as f64 / NORM_BINS as f64;
            let bar = "#".repeat((rows * 40).div_ceil(most) as usize);
            if bin < NORM_BINS {
                writeln!(f, "  {from:8.3} to {:8.3}  {rows:>9}  {bar}", self.norm_bound * (bin + 1) as f64 / NORM_BINS as f64)?;
            } else {
                writeln!(f, "  above R              {rows:>9}  {bar}")?;
            }
        }
        Ok(())
    }

    /// Share of the kept records that are scaled down to R.
    #[must_use]
    pub fn scaled_share(&self) -> f64 {
        share(self.norms.last().copied().unwrap_or(0), self.norms.iter().sum())
    }
}

impl FieldCounts {
    /// All cells that were looked at.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.regular + self.missing + self.below + self.above + self.invalid
    }

    /// Share of the cells outside the range.
    #[must_use]
    pub(crate) fn outside_share(&self) -> f64 {
        share(self.below + self.above, self.cells())
    }

    /// Share of the missing cells.
    #[must_use]
    pub(crate) fn missing_share(&self) -> f64 {
        share(self.missing, self.cells())
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A table for a terminal. It holds names of the schema and counts, no value of a record.
impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "PRIVATE: these counts are not protected. They must not leave this site, and no constant of the")?;
        writeln!(f, "schema may be chosen from them (a schema that depends on the records would be a release of its own).")?;
        writeln!(f)?;
        writeln!(
            f,
            "units {}   records {}   dropped {}   rejected {}   most records of one unit {}",
            self.units, self.records, self.dropped, self.rejected, self.largest_unit
        )?;
        writeln!(f)?;
        let width = self.columns.iter().map(|column| column.name.chars().count()).max().unwrap_or(0).max(6);
        writeln!(
            f,
            "{:width$}  {:8}  {:>9}  {:>9}  {:>7}  {:>9}  {:>7}  {:>9}",
            "column", "kind", "regular", "missing", "%", "outside", "%", "invalid"
        )?;
        for ColumnReport { name, kind, counts, levels } in &self.columns {
            writeln!(
                f,
                "{name:width$}  {kind:8}  {:>9}  {:>9}  {:>7.3}  {:>9}  {:>7.3}  {:>9}",
                counts.regular,
                counts.missing,
                100.0 * counts.missing_share(),
                counts.below + counts.above,
                100.0 * counts.outside_share(),
                counts.invalid
            )?;
            for (level, cells) in levels {
                writeln!(f, "{:width$}    {level}: {cells}", "")?;
            }
        }
        if !self.entries.is_empty() {
            let width = self.entries.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(11);
            writeln!(f, "\n{:width$}  {:>9}", "coefficient", "not zero")?;
            self.entries.iter().try_for_each(|(name, records)| writeln!(f, "{name:width$}  {records:>9}"))?;
        }
        if self.norm_bound.is_finite() {
            self.print_norms(f)?;
        }
        let Unwatched { events, nothing, reversed } = self.unwatched;
        if events + nothing + reversed > 0 {
            writeln!(f)?;
            writeln!(
                f,
                "Watched for no time: {}, with an event at the time of entry: {events}. Such an event counts with the task's least_exposure; {nothing}",
                events + nothing
            )?;
            writeln!(
                f,
                "without an event contribute nothing. Left before they came: {reversed}; these contribute nothing, and are most likely a mistake."
            )?;
        }
        if self.empty_lines > 0 {
            writeln!(f)?;
            writeln!(
                f,
                "{} lines are empty or comments. After the header every line is a record; these contribute nothing.",
                self.empty_lines
            )?;
        }
        if self.screen.count() > 0 {
            writeln!(f, "\n{}", self.screen)?;
        }
        if !self.near.is_empty() {
            writeln!(f, "\n{}", self.near)?;
        }
        self.shared.iter().try_for_each(|shared| writeln!(f, "\n{shared}"))?;
        if self.rejected > 0 {
            writeln!(f)?;
            writeln!(f, "The schema rejects {} records. `check` fails, and in a run they contribute nothing. The first:", self.rejected)?;
            for Rejection { file, row, problem } in &self.rejections {
                writeln!(f, "  file {file}, row {row}, {problem}")?;
            }
        }
        Ok(())
    }
}
