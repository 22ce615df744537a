//! A record's cells as the schema reads them, and the outcome and the row that a formula makes of them.

use dp_pvi_schema::formula::{Cell, Record, RowSpace};
use dp_pvi_schema::public::Extra;
use dp_pvi_schema::{ColumnKind, LabelKind, Schema};

use crate::error::{CellProblem, Fault};

/// The cells of one record, one a column, and whether each had no value.
#[derive(Default)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
    filled: Vec<bool>,
    /// As they are in the file: not clamped, and without what is in.
    found: Vec<Option<f64>>,
}

impl Cells {
    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.filled.clear();
        self.found.clear();
    }

    /// The next column's: the number in the unit of the file, or the level; none where there is no value.
    pub(crate) fn push(&mut self, kind: &ColumnKind, value: Option<f64>) {
        let cell = match (kind, value) {
            (ColumnKind::Number(rule), Some(value)) => Cell::Number(value.clamp(rule.lower, rule.upper)),
            (ColumnKind::Number(rule), None) => rule.fill.map_or_else(|| Cell::Gap(rule.stand_in()), Cell::Number),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number of a level")]
            (ColumnKind::Category(_) | ColumnKind::Boolean(_), Some(level)) => Cell::Level(level as u32),
            (ColumnKind::Category(_) | ColumnKind::Boolean(_), None) | (ColumnKind::Ignored, _) => Cell::Missing,
        };
        self.cells.push(cell);
        self.filled.push(value.is_none());
        self.found.push(value);
    }

    /// Puts what follows from other cells in the places of missing numbers.
    fn fill(&mut self, schema: &Schema) {
        for fill in schema.fills() {
            if self.filled[fill.column()] {
                self.cells[fill.column()] = Cell::Number(fill.value(&self.cells));
            }
        }
    }
}

/// The outcome of a record and what belongs to it.
///
/// # Errors
/// It has none: nothing stands in for a missing outcome, and a number that is not whole is no count.
pub(crate) fn target(schema: &Schema, cells: &Cells) -> Result<(f64, Extra), Fault> {
    let found = |part: usize| {
        let field = schema.outcome()[part];
        cells.found[field].ok_or(Fault { field, problem: CellProblem::Missing })
    };
    match &schema.label().kind {
        LabelKind::Absent => Ok((0.0, Extra::NONE)),
        LabelKind::Binary { .. } | LabelKind::Classes { .. } => Ok((found(0)?, Extra::NONE)),
        LabelKind::Number { rule, whole } => match found(0)? {
            count if *whole && count.fract() != 0.0 => Err(Fault { field: schema.outcome()[0], problem: CellProblem::NotACount }),
            value => Ok((rule.encode(value), Extra::NONE)),
        },
        LabelKind::Survival(rule) => {
            let (time, event) = (found(0)?, found(1)?);
            // No one is watched beyond the range: an event there is none before it.
            let event = event != 0.0 && time <= rule.time.upper;
            let encoded = rule.time.encode(time);
            let entry = match &rule.entry {
                None => 0.0,
                Some(part) => match (found(2)?, part.rule.encode(found(2)?)) {
                    // Who left before they came did so also where both times lie beyond the range and are clamped to its end.
                    (raw, clamped) if time < raw => clamped.max(encoded.next_up()),
                    (_, clamped) => clamped,
                },
            };
            Ok((encoded, Extra { event, entry, ..Extra::NONE }))
        }
    }
}

/// A row, reused from record to record.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) indices: Vec<u32>,
    pub(crate) values: Vec<f64>,
    pub(crate) offset: f64,
    pub(crate) weight: f64,
    space: RowSpace,
}

impl Row {
    /// Makes the row of a record, scaled down to norm R if it is longer; returns the norm that it had.
    pub(crate) fn make(&mut self, schema: &Schema, cells: &mut Cells) -> f64 {
        self.indices.clear();
        self.values.clear();
        (self.offset, self.weight) = (0.0, 1.0);
        cells.fill(schema);
        if let Some(design) = schema.design() {
            let record = Record { cells: &cells.cells, filled: &cells.filled, site: design.own_site() };
            self.offset = design.offset(&record);
            self.weight = design.weight(&record);
            design.row(&record, &mut self.space, |position, value| {
                self.indices.push(position);
                self.values.push(value);
            });
        }
        self.bound_norm(schema.row_norm_bound())
    }

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
