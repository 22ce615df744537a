//! What one factor of a term fills in a row, from one cell.

use super::bases::{BSpline, NaturalSpline, Smooth, legendre};
use super::print;
use crate::coding::Coding;
use crate::{NumberRule, Transform};

/// A value of a column, as a row is made of it. Numbers are in the unit of the file and clamped to their range; a missing number has become its
/// fill where the schema has one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    /// No value of a category or a truth value: no entry is set.
    Missing,
    /// A number, clamped.
    Number(f64),
    /// No number, and nothing that the schema puts in its place: the value of the range that is nearest to the entry 0, for curves and functions. A column as the
    /// schema codes it has the entry 0.
    Gap(f64),
    /// The position of a category's level; a truth value is 0 or 1.
    Level(u32),
}

/// Entries that follow from one column.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    /// Canonical text.
    pub(super) text: String,
    /// Position in the schema.
    pub(super) column: usize,
    pub(super) values: Values,
}

/// How a cell becomes entries.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Values {
    Number(Map),
    Levels(Levels),
    Legendre {
        range: (f64, f64),
        degree: u32,
    },
    /// z, z², …, of the encoded entry.
    Powers {
        rule: NumberRule,
        degree: u32,
    },
    Spline {
        splines: BSpline,
        intercept: bool,
    },
    Natural {
        splines: NaturalSpline,
        intercept: bool,
    },
    Smooth(Box<Smooth>),
}

/// A number as a function of the file's value; non-decreasing, so that its ends are those of the range.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Map {
    pub(super) steps: Vec<Step>,
    /// Of the column, in the unit of the file.
    pub(super) range: (f64, f64),
}

/// One step of a [`Map`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// The schema's transform, centre and scale.
    Encode(NumberRule),
    Log,
    Log1p,
    Sqrt,
    /// (e − centre)/scale.
    Scale {
        centre: f64,
        scale: f64,
    },
}

/// A factor's levels and their coding.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Levels {
    pub(super) names: Vec<String>,
    pub(super) coding: Coding,
    /// Cuts of a number, right-closed; absent: the cell is a level.
    pub(super) cuts: Option<Vec<f64>>,
}

impl Step {
    fn apply(self, value: f64) -> f64 {
        match self {
            Self::Encode(rule) => rule.encode(value),
            Self::Log => libm::log(value),
            Self::Log1p => libm::log1p(value),
            Self::Sqrt => value.sqrt(),
            Self::Scale { centre, scale } => (value - centre) / scale,
        }
    }
}

impl Map {
    /// The value in the unit of the file.
    pub(super) fn of_file(range: (f64, f64)) -> Self {
        Self { steps: Vec::new(), range }
    }

    pub(super) fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(super) fn apply(&self, value: f64) -> f64 {
        self.steps.iter().fold(value, |value, step| step.apply(value))
    }

    /// The least and the greatest value.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.apply(self.range.0), self.apply(self.range.1))
    }

    /// The greatest |value|.
    pub(super) fn max_abs(&self) -> f64 {
        let (low, high) = self.ends();
        low.abs().max(high.abs())
    }

    /// Whether the value is the entry of the schema's own coding.
    fn is_coded(&self) -> bool {
        matches!(self.steps.as_slice(), [Step::Encode(_)])
    }

    /// Whether the value is a multiple of the file's, moved by a constant.
    pub(super) fn is_affine(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::Encode(rule) => rule.transform == Transform::Identity,
            Step::Scale { .. } => true,
            Step::Log | Step::Log1p | Step::Sqrt => false,
        })
    }
}

impl Levels {
    /// The level of a cell.
    pub(super) fn of(&self, cell: Cell) -> Option<u32> {
        match (cell, &self.cuts) {
            (Cell::Number(value) | Cell::Gap(value), Some(cuts)) => Some(cuts.partition_point(|cut| *cut < value) as u32),
            (Cell::Level(level), None) => Some(level),
            _ => None,
        }
    }
}

impl Piece {
    /// The same factor with an entry for every level.
    pub(super) fn with_all_levels(&self) -> Self {
        match &self.values {
            Values::Levels(levels) => {
                let levels = Levels { coding: Coding::Full, ..levels.clone() };
                Self { values: Values::Levels(levels), ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    pub(super) fn is_factor(&self) -> bool {
        matches!(self.values, Values::Levels(_))
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self.values, Values::Number(_))
    }

    /// Whether its entries are 0 or 1, and at most one is 1.
    pub(super) fn is_indicator(&self) -> bool {
        matches!(&self.values, Values::Levels(levels) if levels.coding != Coding::Sum)
    }

    /// Whether a record's entries are parts of one.
    pub(super) fn is_shared_out(&self) -> bool {
        match &self.values {
            Values::Levels(_) | Values::Spline { .. } | Values::Natural { .. } => true,
            Values::Number(_) => true,
            Values::Legendre { .. } | Values::Powers { .. } | Values::Smooth(_) => false,
        }
    }

    /// Number of entries.
    pub(super) fn width(&self) -> usize {
        match &self.values {
            Values::Number(_) => 1,
            Values::Levels(levels) => levels.coding.width(levels.names.len()),
            Values::Legendre { degree, .. } | Values::Powers { degree, .. } => *degree as usize,
            Values::Spline { splines, intercept } => splines.count() - usize::from(!intercept),
            Values::Natural { splines, intercept } => splines.count() - usize::from(!intercept),
            Values::Smooth(smooth) => smooth.splines().count() - 1,
        }
    }

    /// The greatest number of entries of one record that are not 0.
    pub(super) fn most_entries(&self) -> usize {
        match &self.values {
            Values::Levels(levels) => levels.coding.most_entries(levels.names.len()),
            Values::Spline { splines, .. } => self.width().min(splines.degree() + 1),
            Values::Natural { .. } => self.width().min(4),
            _ => self.width(),
        }
    }

    /// b: no cell's entries are longer (L2).
    pub(super) fn bound(&self) -> f64 {
        match &self.values {
            Values::Number(map) => map.max_abs(),
            // At the last level of a sum coding all entries are −1; otherwise at most one entry is 1.
            Values::Levels(levels) => (levels.coding.most_entries(levels.names.len()) as f64).sqrt(),
            // |P_n| ≤ 1, and all are 1 at the upper end.
            Values::Legendre { degree, .. } => f64::from(*degree).sqrt(),
            Values::Powers { rule, degree } => {
                let square = rule.max_abs().powi(2);
                (1..=*degree as i32).map(|power| square.powi(power)).sum::<f64>().sqrt()
            }
            // Values that are not negative and sum to at most 1: ΣB² ≤ (ΣB)².
            Values::Spline { .. } | Values::Natural { .. } => 1.0,
            // The straight line and the deviation are at most 1 each.
            Values::Smooth(_) => 2_f64.sqrt(),
        }
    }

    /// The greatest |entry|.
    pub(super) fn max_abs(&self) -> f64 {
        match &self.values {
            Values::Number(map) => map.max_abs(),
            Values::Powers { rule, degree } => rule.max_abs().max(rule.max_abs().powi(*degree as i32)),
            _ => 1.0,
        }
    }

    /// What is behind the text in the names of the entries.
    pub(super) fn suffixes(&self) -> Vec<String> {
        let numbered = |count: usize| if count == 1 { vec![String::new()] } else { (1..=count).map(|n| n.to_string()).collect() };
        match &self.values {
            Values::Number(_) => vec![String::new()],
            Values::Levels(levels) => match levels.coding {
                Coding::Full => levels.names.clone(),
                Coding::Treatment { reference } => {
                    let others = levels.names.iter().enumerate().filter(|(level, _)| *level != reference);
                    others.map(|(_, name)| name.clone()).collect()
                }
                Coding::Sum => (1..levels.names.len()).map(|n| n.to_string()).collect(),
            },
            Values::Smooth(_) => std::iter::once(".linear".to_owned()).chain((1..self.width()).map(|n| format!(".{n}"))).collect(),
            _ => numbered(self.width()),
        }
    }

    /// The entries that are not 0, ascending.
    pub(super) fn entries(&self, cell: Cell, mut push: impl FnMut(u32, f64)) {
        let mut next = 0;
        let mut dense = |value: f64| {
            if value != 0.0 {
                push(next, value);
            }
            next += 1;
        };
        let cell = match (&self.values, cell) {
            (Values::Number(map), Cell::Gap(_)) if map.is_coded() => return,
            (Values::Levels(_), cell) => cell,
            (_, Cell::Gap(value)) => Cell::Number(value),
            (_, cell) => cell,
        };
        match (&self.values, cell) {
            (Values::Levels(levels), cell) => {
                if let Some(level) = levels.of(cell) {
                    levels.coding.entries(level, levels.names.len()).iter().for_each(|(position, value)| push(position, value));
                }
            }
            (_, Cell::Missing | Cell::Gap(_) | Cell::Level(_)) => {}
            (Values::Number(map), Cell::Number(value)) => dense(map.apply(value)),
            (Values::Legendre { range, degree }, Cell::Number(value)) => legendre(value, *range, *degree, dense),
            (Values::Powers { rule, degree }, Cell::Number(value)) => {
                let z = rule.encode(value);
                (1..=*degree as i32).for_each(|power| dense(z.powi(power)));
            }
            (Values::Spline { splines, intercept }, Cell::Number(value)) => {
                let skipped = u32::from(!intercept);
                splines
                    .entries(value)
                    .filter(|(position, _)| *position >= skipped)
                    .for_each(|(position, value)| push(position - skipped, value));
            }
            (Values::Natural { splines, intercept }, Cell::Number(value)) => {
                let skipped = u32::from(!intercept);
                splines.entries(value, |(position, value)| {
                    if position >= skipped {
                        push(position - skipped, value);
                    }
                });
            }
            (Values::Smooth(smooth), Cell::Number(value)) => smooth.row(value, dense),
        }
    }
}

/// The labels of a binned number: `[lo,c1]`, `(c1,c2]`, …, `(cL,hi]`.
pub(super) fn bin_labels((lo, hi): (f64, f64), cuts: &[f64]) -> Vec<String> {
    let ends: Vec<f64> = std::iter::once(lo).chain(cuts.iter().copied()).chain([hi]).collect();
    ends.windows(2).enumerate().map(|(bin, pair)| format!("{}{},{}]", if bin == 0 { '[' } else { '(' }, pair[0], pair[1])).collect()
}

/// A bare number of a schema.
pub(super) fn bare_number(name: &str, column: usize, rule: NumberRule) -> Piece {
    let map = Map::of_file((rule.lower, rule.upper)).then(Step::Encode(rule));
    Piece { text: print::column(name), column, values: Values::Number(map) }
}
