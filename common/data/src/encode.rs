//! One row through the schema: cells in, entries of the feature row and target out.

use crate::error::CellProblem;
use dp_pvi_records::{CellValue, RecordView, Row};
use dp_pvi_schema::dates::DateRule;
use dp_pvi_schema::formula::{Cell, Design, Record, RowSpace};
use dp_pvi_schema::public::Extra;
use dp_pvi_schema::{
    BooleanRule, CategoryRule, CellPolicy, Column, ColumnKind, EntryRule, LabelKind, Matching, NumberRule, Outside, Place, Schema,
    SurvivalRule,
};
use std::collections::HashMap;

/// What the rows are read for, and so what happens to one that the schema rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be looked through by the people at the site: the first rejected row ends the reading.
    Check,
    /// To be summed in a run: a rejected row contributes nothing, and nobody hears of it.
    Run,
    /// Public records: the first rejected row ends the reading.
    Public,
    /// To be predicted: label and unit id are not looked at, and a rejected row has no prediction.
    Prediction,
}

impl Purpose {
    /// Whether label and unit id are needed.
    pub(crate) fn has_labels(self) -> bool {
        self != Self::Prediction
    }

    /// Whether the first rejected row ends the reading.
    pub(crate) fn rejects(self) -> bool {
        matches!(self, Self::Check | Self::Public)
    }
}

/// Watches what happens to cells, to count it. Loading watches nothing.
pub(crate) trait Watch {
    fn cell(&mut self, _field: usize, _event: CellEvent) {}
    /// A kept row: its entries that are not 0, and the norm that it had before it was shortened.
    fn row(&mut self, _indices: &[u32], _norm: f64) {}
}

impl Watch for () {}

/// What happened to a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CellEvent {
    Missing,
    Invalid,
    Below,
    Above,
    /// A number inside its range.
    Number,
    /// A level of a category, a truth value (0, 1) or a class, from 0.
    Level(usize),
}

/// An encoded row; reused from row to row.
#[derive(Default)]
pub(crate) struct Encoded {
    pub(crate) indices: Vec<u32>,
    pub(crate) values: Vec<f64>,
    pub(crate) target: f64,
    pub(crate) offset: f64,
    pub(crate) extra: Extra,
    /// For formulas, and for fills by other cells: one cell a column, and whether it had no value.
    cells: Vec<Cell>,
    filled: Vec<bool>,
    space: RowSpace,
}

/// Whether a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    Dropped,
}

/// A cell that the schema rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) field: usize,
    pub(crate) problem: CellProblem,
}

/// The schema, prepared for rows.
pub(crate) struct Encoder<'s> {
    schema: &'s Schema,
    purpose: Purpose,
    /// Per column, for categories.
    levels: Vec<Option<Levels>>,
}

/// How the levels of a category are found.
enum Levels {
    Text(HashMap<Box<[u8]>, u32>),
    /// Ascending.
    Numbers(Vec<(f64, u32)>),
}

/// What a cell became.
enum Coded {
    /// A number in the unit of the file; not clamped yet.
    Number(f64),
    /// A level, a truth value (0, 1) or a class, from 0.
    Level(u32),
    /// Nothing: what stands in for a missing value.
    Absent,
    Drop,
}

impl<'s> Encoder<'s> {
    pub(crate) fn new(schema: &'s Schema, purpose: Purpose) -> Self {
        let levels = schema.columns().iter().map(|column| match &column.kind {
            ColumnKind::Category(rule) => Some(Levels::new(rule)),
            _ => None,
        });
        Self { schema, purpose, levels: levels.collect() }
    }

    /// Number of the label's first field.
    pub(crate) fn label_field(schema: &Schema) -> usize {
        schema.columns().len()
    }

    /// Number of the unit id's field.
    pub(crate) fn unit_field(schema: &Schema) -> usize {
        Self::label_field(schema) + schema.label().columns().count()
    }

    /// Encodes a row. Every cell is looked at, so that a rejected one is found wherever it stands; after an error `out` holds nothing
    /// of use.
    pub(crate) fn encode(&self, row: &impl Row, out: &mut Encoded, watch: &mut impl Watch) -> Result<Fate, Fault> {
        out.indices.clear();
        out.values.clear();
        out.target = 0.0;
        out.offset = 0.0;
        out.extra = Extra::NONE;
        out.cells.clear();
        out.filled.clear();
        let design = self.schema.design();
        let has_fills = !self.schema.fills().is_empty();
        let mut fate = Fate::Kept;
        for (field, column) in self.schema.columns().iter().enumerate() {
            let coded = match &column.kind {
                ColumnKind::Number(rule) => number(rule, self.present(row.cell(field)), row.decimal(), field, watch),
                ColumnKind::Category(rule) => {
                    category(rule, self.levels[field].as_ref(), self.present(row.cell(field)), row.decimal(), field, watch)
                }
                ColumnKind::Boolean(rule) => boolean(rule, self.present(row.cell(field)), field, watch),
                ColumnKind::Ignored => Ok(Coded::Absent),
            };
            let coded = coded.map_err(|problem| fault(row, field, problem))?;
            if matches!(coded, Coded::Drop) {
                fate = Fate::Dropped;
            }
            if design.is_some() || has_fills {
                out.remember(column, &coded);
            } else {
                out.push_column(column, &coded);
            }
        }
        if self.purpose.has_labels() {
            let field = Self::label_field(self.schema);
            let target = match &self.schema.label().kind {
                LabelKind::Survival(rule) => self.survival(rule, row, field, &mut out.extra, watch)?,
                _ => self.label(row, field, watch).map_err(|problem| fault(row, field, problem))?,
            };
            match target {
                Some(target) => out.target = target,
                None => fate = Fate::Dropped,
            }
        }
        if fate == Fate::Kept {
            out.fill(self.schema);
            match design {
                Some(design) => out.push_row(design),
                None if has_fills => out.push_cells(self.schema),
                None => {}
            }
            if design.is_none() {
                self.schema.intercept().into_iter().for_each(|position| out.push(position, 1.0));
            }
            let norm = out.bound_norm(self.schema.row_norm_bound());
            watch.row(&out.indices, norm);
        }
        Ok(fate)
    }

    /// The id of the person whose record a row is, as text.
    pub(crate) fn unit_id(&self, row: &impl Row, id: &mut Vec<u8>) -> Result<(), Fault> {
        let field = Self::unit_field(self.schema);
        let fault = |problem| Err(Fault { field, problem });
        id.clear();
        match self.present(row.cell(field)) {
            None | Some(CellValue::Text([])) => return fault(CellProblem::NoUnit),
            Some(CellValue::Number(value)) if !(value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0) => {
                return fault(if value.is_nan() { CellProblem::NoUnit } else { CellProblem::InexactUnit });
            }
            Some(cell) => cell.with_text(|text| id.extend_from_slice(text)),
        }
        Ok(())
    }

    fn label(&self, row: &impl Row, field: usize, watch: &mut impl Watch) -> Result<Option<f64>, CellProblem> {
        let label = self.schema.label();
        let cell = self.present(row.cell(field));
        let coded = match &label.kind {
            LabelKind::Number(rule) => number(rule, cell, row.decimal(), field, watch)?,
            // Has a rule of its own.
            LabelKind::Survival(_) => return Ok(None),
            LabelKind::Absent => return Ok(Some(0.0)),
            LabelKind::Classes { values } => match cell {
                None => absent(label.missing, field, watch)?,
                Some(cell) => match cell.with_text(|text| values.iter().position(|value| value.as_bytes() == text)) {
                    Some(class) => {
                        watch.cell(field, CellEvent::Level(class));
                        Coded::Level(class as u32)
                    }
                    None => invalid(label.invalid, CellProblem::NotALabel, field, watch)?,
                },
            },
            LabelKind::Binary { positive, negative, strip_suffix } => match cell {
                None => absent(label.missing, field, watch)?,
                Some(cell) => {
                    let class = cell.with_text(|text| {
                        let text = match strip_suffix {
                            Some(suffix) => text.strip_suffix(suffix.as_bytes()).unwrap_or(text),
                            None => text,
                        };
                        if listed(positive, text) {
                            Some(1)
                        } else {
                            negative.as_ref().is_none_or(|negative| listed(negative, text)).then_some(0)
                        }
                    });
                    match class {
                        Some(class) => {
                            watch.cell(field, CellEvent::Level(class));
                            Coded::Level(class as u32)
                        }
                        None => invalid(label.invalid, CellProblem::NotALabel, field, watch)?,
                    }
                }
            },
        };
        Ok(match (coded, &label.kind) {
            (Coded::Number(value), LabelKind::Number(rule)) => Some(rule.encode(value)),
            (Coded::Level(class), _) => Some(f64::from(class)),
            _ => None,
        })
    }

    /// The time of a survival label, with entry and event in `extra`; absent where the record is dropped. Fields: time, event, entry.
    fn survival(
        &self,
        rule: &SurvivalRule,
        row: &impl Row,
        first: usize,
        extra: &mut Extra,
        watch: &mut impl Watch,
    ) -> Result<Option<f64>, Fault> {
        let at = |field: usize| move |problem| fault(row, field, problem);
        let time = number(&rule.time, self.present(row.cell(first)), row.decimal(), first, watch).map_err(at(first))?;
        let field = first + 1;
        let event = boolean(&rule.event, self.present(row.cell(field)), field, watch).map_err(at(field))?;
        let field = first + 2;
        let entry = match &rule.entry {
            None => Coded::Number(0.0),
            Some(EntryRule { rule, .. }) => number(rule, self.present(row.cell(field)), row.decimal(), field, watch).map_err(at(field))?,
        };
        let (Coded::Number(time), Coded::Level(event), Coded::Number(entry)) = (time, event, entry) else { return Ok(None) };
        // Nobody is watched beyond the range: an event there is none before it.
        extra.event = event == 1 && time <= rule.time.upper;
        extra.entry = rule.entry.as_ref().map_or(0.0, |part| part.rule.encode(entry));
        Ok(Some(rule.time.encode(time)))
    }

    /// The cell, unless it says that there is no value.
    #[inline]
    fn present<'a>(&self, cell: CellValue<'a>) -> Option<CellValue<'a>> {
        match cell {
            CellValue::Null => None,
            CellValue::Text(text) if listed(self.schema.missing_tokens(), text) => None,
            cell => Some(cell),
        }
    }
}

impl Encoded {
    /// The row as a record.
    pub(crate) fn view(&self) -> RecordView<'_> {
        let Self { target, offset, extra, .. } = *self;
        RecordView { indices: &self.indices, values: &self.values, target, offset, extra }
    }

    #[inline]
    fn push(&mut self, index: u32, value: f64) {
        if value != 0.0 {
            self.indices.push(index);
            self.values.push(value);
        }
    }

    /// The entries of one column, where no formula says otherwise.
    fn push_column(&mut self, column: &Column, coded: &Coded) {
        match (&column.kind, coded) {
            (ColumnKind::Number(rule), Coded::Number(value)) => self.push(column.offset, rule.encode(*value)),
            (ColumnKind::Number(rule), Coded::Absent) => {
                rule.fill.into_iter().for_each(|fill| self.push(column.offset, rule.encode(fill)));
            }
            (ColumnKind::Category(rule), Coded::Level(level)) => {
                rule.entries(*level).iter().for_each(|(position, value)| self.push(column.offset + position, value));
            }
            (ColumnKind::Boolean(_), Coded::Level(truth)) => self.push(column.offset, f64::from(*truth)),
            _ => {}
        }
    }

    /// The cell of one column, for a formula.
    fn remember(&mut self, column: &Column, coded: &Coded) {
        let cell = match (&column.kind, coded) {
            (ColumnKind::Number(rule), Coded::Number(value)) => Cell::Number(value.clamp(rule.lower, rule.upper)),
            (ColumnKind::Number(rule), _) => Cell::Number(rule.stand_in()),
            (_, Coded::Level(level)) => Cell::Level(*level),
            _ => Cell::Missing,
        };
        self.cells.push(cell);
        self.filled.push(matches!(coded, Coded::Absent));
    }

    /// Puts what follows from other cells in the places of missing numbers.
    fn fill(&mut self, schema: &Schema) {
        for fill in schema.fills() {
            if self.filled[fill.column()] {
                self.cells[fill.column()] = Cell::Number(fill.value(&self.cells));
            }
        }
    }

    /// The entries of the remembered cells, one column after the other, where no formula says otherwise.
    fn push_cells(&mut self, schema: &Schema) {
        for (position, column) in schema.columns().iter().enumerate() {
            let coded = match self.cells[position] {
                // Without a fill of either kind nothing stands in.
                Cell::Number(_) if self.filled[position] && !schema.fills().iter().any(|fill| fill.column() == position) => Coded::Absent,
                Cell::Number(value) => Coded::Number(value),
                Cell::Level(level) => Coded::Level(level),
                Cell::Missing => Coded::Absent,
            };
            self.push_column(column, &coded);
        }
    }

    /// The row that a formula makes of the remembered cells.
    fn push_row(&mut self, design: &Design) {
        let record = Record { cells: &self.cells, filled: &self.filled, site: design.own_site() };
        self.offset = design.offset(&record);
        self.extra.weight = design.weight(&record);
        design.row(&record, &mut self.space, |position, value| {
            self.indices.push(position);
            self.values.push(value);
        });
    }

    /// Scales the row down to norm R if it is longer, and returns the norm that it had.
    fn bound_norm(&mut self, bound: f64) -> f64 {
        let norm = self.values.iter().map(|value| value * value).sum::<f64>().sqrt();
        if norm > bound {
            // The margin covers the rounding of the sum, so that the scaled row is not longer than R in exact arithmetic.
            let scale = bound / norm * (1.0 - (self.values.len() + 4) as f64 * f64::EPSILON);
            self.values.iter_mut().for_each(|value| *value *= scale);
        }
        norm
    }
}

impl Levels {
    fn new(rule: &CategoryRule) -> Self {
        let numbered = rule.values.iter().zip(0_u32..);
        match rule.matching {
            Matching::Text => Self::Text(numbered.map(|(value, level)| (value.as_bytes().into(), level)).collect()),
            Matching::Number => {
                // The schema has checked that every level is a number.
                let mut levels: Vec<_> = numbered.filter_map(|(value, level)| Some((value.parse().ok()?, level))).collect();
                levels.sort_by(|a: &(f64, u32), b| a.0.total_cmp(&b.0));
                Self::Numbers(levels)
            }
        }
    }

    fn find(&self, cell: CellValue<'_>, decimal: u8) -> Option<u32> {
        match self {
            Self::Text(levels) => cell.with_text(|text| levels.get(text).copied()),
            Self::Numbers(levels) => {
                // Adding 0 turns −0 into 0.
                let value = finite(cell, decimal).ok()? + 0.0;
                let position = levels.binary_search_by(|(level, _)| (level + 0.0).total_cmp(&value)).ok()?;
                Some(levels[position].1)
            }
        }
    }
}

/// The finite number that a cell is; `decimal` stands before the decimals of a text.
fn finite(cell: CellValue<'_>, decimal: u8) -> Result<f64, CellProblem> {
    let value = match cell {
        CellValue::Null | CellValue::Boolean(_) => return Err(CellProblem::NotANumber),
        CellValue::Text(text) => parsed(std::str::from_utf8(text).map_err(|_| CellProblem::NotANumber)?, decimal)?,
        CellValue::Integer(value) => value as f64,
        CellValue::Number(value) => value,
    };
    if value.is_finite() { Ok(value) } else { Err(CellProblem::NotFinite) }
}

/// The number that a text is. With a decimal comma a point would be a separator of thousands: it is refused.
fn parsed(text: &str, decimal: u8) -> Result<f64, CellProblem> {
    let value = match decimal {
        b',' if text.contains('.') => None,
        b',' => text.replacen(',', ".", 1).parse().ok(),
        _ => text.parse().ok(),
    };
    let in_numbers =
        |character: char| character.is_ascii_digit() || matches!(character, '.' | ',' | '+' | '-' | '\'' | ' ' | '\u{a0}' | '\u{202f}');
    value.ok_or_else(|| {
        let is_separated = text.contains(|character: char| character.is_ascii_digit()) && text.chars().all(in_numbers);
        if is_separated { CellProblem::Separator } else { CellProblem::NotANumber }
    })
}

/// Why a cell is rejected: if it is no text at all, that is why.
fn fault(row: &impl Row, field: usize, problem: CellProblem) -> Fault {
    let is_text = !matches!(row.cell(field), CellValue::Text(text) if std::str::from_utf8(text).is_err());
    Fault { field, problem: if is_text { problem } else { CellProblem::Encoding } }
}

/// The days that a cell's date is after the schema's.
fn days(rule: &DateRule, cell: CellValue<'_>) -> Result<f64, CellProblem> {
    match cell {
        CellValue::Text(text) => rule.days(text).ok_or(CellProblem::NotADate),
        CellValue::Null | CellValue::Boolean(_) | CellValue::Integer(_) | CellValue::Number(_) => Err(CellProblem::NotADate),
    }
}

fn number(rule: &NumberRule, cell: Option<CellValue<'_>>, decimal: u8, field: usize, watch: &mut impl Watch) -> Result<Coded, CellProblem> {
    let Some(cell) = cell else { return absent(rule.missing, field, watch) };
    let found = match &rule.date {
        Some(date) => days(date, cell),
        None => finite(cell, decimal),
    };
    let value = match found {
        Ok(value) => value,
        // A stored NaN is how tables of numbers say that there is no value.
        Err(CellProblem::NotFinite) if matches!(cell, CellValue::Number(value) if value.is_nan()) && rule.missing != CellPolicy::Reject => {
            return absent(rule.missing, field, watch);
        }
        Err(problem) => return invalid(rule.invalid, problem, field, watch),
    };
    let (event, problem) = match rule.place(value) {
        Place::Inside => {
            watch.cell(field, CellEvent::Number);
            return Ok(Coded::Number(value));
        }
        Place::Below => (CellEvent::Below, CellProblem::Below),
        Place::Above => (CellEvent::Above, CellProblem::Above),
    };
    watch.cell(field, event);
    match rule.outside {
        Outside::Clamp => Ok(Coded::Number(value)),
        Outside::Drop => Ok(Coded::Drop),
        Outside::Reject => Err(problem),
    }
}

fn category(
    rule: &CategoryRule,
    levels: Option<&Levels>,
    cell: Option<CellValue<'_>>,
    decimal: u8,
    field: usize,
    watch: &mut impl Watch,
) -> Result<Coded, CellProblem> {
    let Some(cell) = cell else { return absent(rule.missing, field, watch) };
    match levels.and_then(|levels| levels.find(cell, decimal)) {
        Some(level) => {
            watch.cell(field, CellEvent::Level(level as usize));
            Ok(Coded::Level(level))
        }
        None => invalid(rule.invalid, CellProblem::UnknownCategory, field, watch),
    }
}

fn boolean(rule: &BooleanRule, cell: Option<CellValue<'_>>, field: usize, watch: &mut impl Watch) -> Result<Coded, CellProblem> {
    let Some(cell) = cell else { return absent(rule.missing, field, watch) };
    let truth = match cell {
        CellValue::Boolean(truth) => Some(truth),
        cell => cell
            .with_text(|text| if listed(&rule.true_values, text) { Some(true) } else { listed(&rule.false_values, text).then_some(false) }),
    };
    match truth {
        Some(truth) => {
            watch.cell(field, CellEvent::Level(usize::from(truth)));
            Ok(Coded::Level(u32::from(truth)))
        }
        None => invalid(rule.invalid, CellProblem::NotBoolean, field, watch),
    }
}

fn absent(policy: CellPolicy, field: usize, watch: &mut impl Watch) -> Result<Coded, CellProblem> {
    watch.cell(field, CellEvent::Missing);
    by_policy(policy, CellProblem::Missing)
}

fn invalid(policy: CellPolicy, problem: CellProblem, field: usize, watch: &mut impl Watch) -> Result<Coded, CellProblem> {
    watch.cell(field, CellEvent::Invalid);
    by_policy(policy, problem)
}

fn by_policy(policy: CellPolicy, problem: CellProblem) -> Result<Coded, CellProblem> {
    match policy {
        CellPolicy::Zero => Ok(Coded::Absent),
        CellPolicy::Drop => Ok(Coded::Drop),
        CellPolicy::Reject => Err(problem),
    }
}

#[inline]
fn listed(texts: &[String], text: &[u8]) -> bool {
    texts.iter().any(|listed| listed.as_bytes() == text)
}
