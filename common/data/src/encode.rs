//! One row through the schema: cells in, entries of the feature row and target out.

use crate::cells::{Cells, Row as MadeRow, target};
use crate::error::{CellProblem, Fault};
use dp_pvi_records::{CellValue, RecordView, Row};
use dp_pvi_schema::dates::{DateRule, NoDate};
use dp_pvi_schema::public::Extra;
use dp_pvi_schema::text::{self, NoId};
use dp_pvi_schema::{BooleanRule, CategoryRule, CellPolicy, ColumnKind, Matching, NumberRule, Outside, Place, Schema};
use std::collections::HashMap;

/// What the rows are read for, and so what happens to one that the schema rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be looked through by the people at the site: the first rejected row ends the reading.
    Check,
    /// To be summed in a run: a rejected row contributes nothing, and no one hears of it.
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
    /// A level of a category, or a truth value (0, 1).
    Level(usize),
}

/// What becomes of a record's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// They are kept as they are, see [`crate::rows`].
    Cells,
    /// The formula makes a row of them.
    Rows,
}

/// An encoded record; reused from record to record.
#[derive(Default)]
pub(crate) struct Encoded {
    pub(crate) row: MadeRow,
    pub(crate) target: f64,
    pub(crate) extra: Extra,
    cells: Cells,
    /// Why the schema drops the row, if it does: the first of its reasons.
    pub(crate) dropped: Option<Fault>,
}

/// Whether a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    Dropped,
}

/// The schema, prepared for rows.
pub(crate) struct Encoder<'s> {
    schema: &'s Schema,
    purpose: Purpose,
    form: Form,
    /// Per column, for categories.
    levels: Vec<Option<Levels>>,
    /// Texts of missing values, as the schema lists them and, of numbers, as they are compared with others.
    missing: Vec<String>,
    /// Those that are numbers.
    tokens: Vec<f64>,
    /// Per column, for dates: the days of those that are dates.
    days: Vec<Vec<f64>>,
}

/// How the cells of a column are numbers.
#[derive(Clone, Copy)]
struct Numbers<'e> {
    /// The decimal sign of texts.
    decimal: u8,
    /// Numbers that say that there is no value.
    tokens: &'e [f64],
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
    /// The record contributes nothing, for this reason.
    Drop(CellProblem),
}

impl<'s> Encoder<'s> {
    pub(crate) fn new(schema: &'s Schema, purpose: Purpose, form: Form) -> Self {
        let levels = schema.columns().iter().map(|column| match &column.kind {
            ColumnKind::Category(rule) => Some(Levels::new(rule)),
            _ => None,
        });
        let tokens = schema.missing_tokens();
        let numbers = tokens.iter().filter_map(|token| parsed(token, b'.').or_else(|_| parsed(token, schema.csv().decimal)).ok());
        let numbers: Vec<f64> = numbers.collect();
        let exact = numbers.iter().filter(|number| number.abs() < text::EXACT as f64).map(|number| (number + 0.0).to_string());
        let missing = tokens.iter().cloned().chain(exact).collect();
        let days = schema.columns().iter().map(|column| match &column.kind {
            ColumnKind::Number(NumberRule { date: Some(rule), .. }) => {
                tokens.iter().filter_map(|token| rule.days(token.as_bytes()).ok()).collect()
            }
            _ => Vec::new(),
        });
        Self { schema, purpose, form, levels: levels.collect(), missing, tokens: numbers, days: days.collect() }
    }

    /// Number of the unit id's field.
    pub(crate) fn unit_field(schema: &Schema) -> usize {
        schema.columns().len()
    }

    /// Encodes a row. Every cell is looked at, so that a rejected one is found wherever it stands; after an error `out` holds nothing
    /// of use.
    pub(crate) fn encode(&self, row: &impl Row, out: &mut Encoded, watch: &mut impl Watch) -> Result<Fate, Fault> {
        out.row.indices.clear();
        out.row.values.clear();
        (out.target, out.row.offset, out.extra) = (0.0, 0.0, Extra::NONE);
        out.cells.clear();
        out.dropped = None;
        for (field, column) in self.schema.columns().iter().enumerate() {
            let decimal = row.decimal(field);
            let coded = match &column.kind {
                // What is not known yet is not looked at.
                _ if !self.purpose.has_labels() && self.schema.outcome().contains(&field) => Ok(Coded::Absent),
                ColumnKind::Number(rule) => {
                    let tokens = if rule.date.is_some() { &self.days[field] } else { &self.tokens };
                    self.read(row, field, |cell| number(rule, cell, Numbers { decimal, tokens }, field, watch))
                }
                ColumnKind::Category(rule) => {
                    self.read(row, field, |cell| category(rule, self.levels[field].as_ref(), cell, decimal, field, watch))
                }
                ColumnKind::Boolean(rule) => self.read(row, field, |cell| boolean(rule, cell, decimal, field, watch)),
                ColumnKind::Ignored => Ok(Coded::Absent),
            };
            let coded = coded.map_err(|problem| fault(row, field, problem))?;
            if let Coded::Drop(problem) = coded {
                out.drop(row, field, problem);
            }
            let value = match coded {
                Coded::Number(value) => Some(value),
                Coded::Level(level) => Some(f64::from(level)),
                Coded::Absent | Coded::Drop(_) => None,
            };
            match self.form {
                Form::Rows => out.cells.push(&column.kind, value),
                Form::Cells => out.keep(field, value, &column.kind),
            }
        }
        if self.form == Form::Rows && self.purpose.has_labels() {
            match target(self.schema, &out.cells) {
                Ok((target, extra)) => (out.target, out.extra) = (target, extra),
                Err(fault) => {
                    out.dropped.get_or_insert(fault);
                }
            }
        }
        let fate = if out.dropped.is_none() { Fate::Kept } else { Fate::Dropped };
        if fate == Fate::Kept && self.form == Form::Rows {
            let norm = out.row.make(self.schema, &mut out.cells);
            out.extra.weight = out.row.weight;
            watch.row(&out.row.indices, norm);
        }
        Ok(fate)
    }

    /// The id of the person whose record a row is, as text: one form for all that sources write for it ([`text::id`]).
    ///
    /// # Privacy
    /// A function of the record alone; `proofs/layouts.md` of `dp-pvi-privacy` says what rests on it.
    pub(crate) fn unit_id(&self, row: &impl Row, id: &mut Vec<u8>) -> Result<(), Fault> {
        let field = Self::unit_field(self.schema);
        let decimal = row.decimal(field);
        let is_token = |found: &[u8], decimal| listed(&self.missing, found, decimal);
        id.clear();
        let found = match row.cell(field) {
            CellValue::Null => Err(NoId::Missing),
            CellValue::Text(found) => match std::str::from_utf8(found) {
                Ok(found) if is_token(text::read(found).as_bytes(), decimal) => Err(NoId::Missing),
                Ok(found) => text::id(found, decimal).map(|found| id.extend_from_slice(found.as_bytes())),
                // No text, but it tells persons apart.
                Err(_) => {
                    id.extend_from_slice(found.trim_ascii());
                    Ok(())
                }
            },
            CellValue::Number(value) => text::id_of(value).map(|found| id.extend_from_slice(found.as_bytes())),
            cell => {
                cell.with_text(|found| id.extend_from_slice(found));
                Ok(())
            }
        };
        match found {
            // Its numbers have the digits of whole ones.
            Ok(()) if !is_token(id, b'.') => Ok(()),
            Ok(()) | Err(NoId::Missing) => Err(Fault { field, problem: CellProblem::NoUnit }),
            Err(NoId::Inexact) => Err(Fault { field, problem: CellProblem::InexactUnit }),
        }
    }

    /// Gives `f` a cell as the schema reads it; absent where there is no value.
    fn read<T>(&self, row: &impl Row, field: usize, f: impl FnOnce(Option<CellValue<'_>>) -> T) -> T {
        match row.cell(field) {
            CellValue::Text(found) => {
                let found = text::cell(found, self.schema.csv().blanks);
                f(self.present(CellValue::Text(&found), row.decimal(field)))
            }
            cell => f(self.present(cell, b'.')),
        }
    }

    /// The cell, unless it says that there is no value.
    #[inline]
    fn present<'a>(&self, cell: CellValue<'a>, decimal: u8) -> Option<CellValue<'a>> {
        match cell {
            CellValue::Null => None,
            CellValue::Text(text) if text.is_empty() || listed(&self.missing, text, decimal) => None,
            // A stored number is what its text would be.
            CellValue::Integer(_) if !self.tokens.is_empty() && cell.with_text(|text| listed(&self.missing, text, b'.')) => None,
            CellValue::Number(value) if self.tokens.contains(&value) => None,
            cell => Some(cell),
        }
    }
}

impl Encoded {
    /// The row as a record.
    pub(crate) fn view(&self) -> RecordView<'_> {
        let Self { target, extra, .. } = *self;
        RecordView { indices: &self.row.indices, values: &self.row.values, target, offset: self.row.offset, extra }
    }

    /// Notes why the schema drops the row.
    fn drop(&mut self, row: &impl Row, field: usize, problem: CellProblem) {
        self.dropped.get_or_insert_with(|| fault(row, field, problem));
    }

    /// The cell of a column, as it is kept.
    fn keep(&mut self, field: usize, value: Option<f64>, kind: &ColumnKind) {
        #[allow(clippy::cast_possible_truncation, reason = "a schema has fewer columns than a row can have entries")]
        let place = 2 * field as u32;
        let (index, value) = match (kind, value) {
            (ColumnKind::Ignored, _) => return,
            (_, None) => (place + 1, 1.0),
            (_, Some(value)) => (place, value),
        };
        if value != 0.0 {
            self.row.indices.push(index);
            self.row.values.push(value);
        }
    }
}

impl Levels {
    fn new(rule: &CategoryRule) -> Self {
        let numbered = rule.values.iter().zip(0_u32..);
        match rule.matching {
            Matching::Text => Self::Text(
                numbered
                    .flat_map(|(value, level)| {
                        [text::plain(value.as_bytes(), b'.'), value.as_bytes().into()].map(|text| (text.into(), level))
                    })
                    .collect(),
            ),
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
            Self::Text(levels) => cell.with_text(|found| {
                let level = levels.get(found).or_else(|| levels.get(text::plain(found, decimal).as_ref()));
                level.or_else(|| levels.iter().find(|(level, _)| text::is_listed(level, found, decimal)).map(|(_, level)| level)).copied()
            }),
            Self::Numbers(levels) => {
                // Adding 0 turns −0 into 0. What is not finite is no level.
                let value = real(cell, decimal).ok()? + 0.0;
                let position = levels.binary_search_by(|(level, _)| (level + 0.0).total_cmp(&value)).ok()?;
                Some(levels[position].1)
            }
        }
    }
}

/// The number that a cell is, which need not be finite; `decimal` is the decimal sign of texts.
fn real(cell: CellValue<'_>, decimal: u8) -> Result<f64, CellProblem> {
    match cell {
        CellValue::Null | CellValue::Boolean(_) => Err(CellProblem::NotANumber),
        CellValue::Text(text) => parsed(std::str::from_utf8(text).map_err(|_| CellProblem::NotANumber)?, decimal),
        CellValue::Integer(value) => Ok(value as f64),
        CellValue::Number(value) => Ok(value),
    }
}

/// The number that a text is. With a decimal comma a point would be a separator of thousands: it is refused.
fn parsed(text: &str, decimal: u8) -> Result<f64, CellProblem> {
    let value = match decimal {
        b',' if text.contains('.') => None,
        b',' => text.replacen(',', ".", 1).parse().ok(),
        _ => text.parse().ok(),
    };
    let in_numbers = |character: char| character.is_ascii_digit() || matches!(character, '.' | ',' | '\'' | ' ' | '\u{a0}' | '\u{202f}');
    value.ok_or_else(|| {
        let unsigned = text.trim_start_matches(['+', '-']);
        let is_separated = unsigned.contains(|character: char| character.is_ascii_digit()) && unsigned.chars().all(in_numbers);
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
        CellValue::Text(text) => rule.days(text).map_err(|problem| match problem {
            NoDate::Zoned => CellProblem::Zoned,
            NoDate::Other => CellProblem::NotADate,
        }),
        CellValue::Null | CellValue::Boolean(_) | CellValue::Integer(_) | CellValue::Number(_) => Err(CellProblem::NotADate),
    }
}

fn number(
    rule: &NumberRule,
    cell: Option<CellValue<'_>>,
    numbers: Numbers<'_>,
    field: usize,
    watch: &mut impl Watch,
) -> Result<Coded, CellProblem> {
    let Some(cell) = cell else { return absent(rule.missing, field, watch) };
    let found = match &rule.date {
        Some(date) => days(date, cell),
        None => real(cell, numbers.decimal),
    };
    let value = match found {
        // NaN is how tables of numbers say that there is no value.
        Ok(value) if value.is_nan() && rule.missing != CellPolicy::Reject => return absent(rule.missing, field, watch),
        Ok(value) if numbers.tokens.contains(&value) => return absent(rule.missing, field, watch),
        Ok(value) if value.is_finite() => value,
        Ok(_) => return invalid(rule.invalid, CellProblem::NotFinite, field, watch),
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
        Outside::Drop => Ok(Coded::Drop(problem)),
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

fn boolean(
    rule: &BooleanRule,
    cell: Option<CellValue<'_>>,
    decimal: u8,
    field: usize,
    watch: &mut impl Watch,
) -> Result<Coded, CellProblem> {
    let Some(cell) = cell else { return absent(rule.missing, field, watch) };
    // The lists decide of a stored truth value, too: `alive` may be what the schema calls not `died`.
    let truth = cell.with_text(|text| {
        let is_in = |listed: &[String]| listed.iter().any(|listed| text::is_listed_in_any_case(listed.as_bytes(), text, decimal));
        if is_in(&rule.true_values) { Some(true) } else { is_in(&rule.false_values).then_some(false) }
    });
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
        CellPolicy::Drop => Ok(Coded::Drop(problem)),
        CellPolicy::Reject => Err(problem),
    }
}

#[inline]
fn listed(texts: &[String], text: &[u8], decimal: u8) -> bool {
    texts.iter().any(|listed| text::is_listed(listed.as_bytes(), text, decimal))
}
