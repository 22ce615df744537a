//! Effects where a formula makes the rows: differences of the rows of two records.

use dp_pvi_schema::formula::{Cell, Design, Record, RowSpace, Use};
use dp_pvi_schema::{ColumnKind, NumberRule, Schema, Transform};

use super::contrast::{Contrast, reference};

/// A record that others are compared with: numbers at their centres, or at the end of the range that is nearest to it, and factors at their reference.
pub(super) fn reference_cells(schema: &Schema, design: &Design) -> Vec<Cell> {
    let cell = |(position, kind): (usize, &ColumnKind)| match kind {
        ColumnKind::Number(rule) => Cell::Number(rule.decode(0.0).clamp(rule.lower, rule.upper)),
        kind => Cell::Level(reference_level(design, position, kind)),
    };
    schema.columns().iter().map(|column| &column.kind).enumerate().map(cell).collect()
}

/// The level with which the formula compares others; where it compares with none, that of the schema.
fn reference_level(design: &Design, position: usize, kind: &ColumnKind) -> u32 {
    match (design.use_of(position), kind) {
        (Use::Levels { reference: Some(reference) }, _) => reference,
        (_, ColumnKind::Category(rule)) => reference(rule),
        _ => 0,
    }
}

/// Adds the row of a record, times a factor.
pub(super) fn add_row(contrast: &mut Contrast, design: &Design, cells: &[Cell], factor: f64) {
    let filled = vec![false; cells.len()];
    let record = Record { cells, filled: &filled, site: None };
    contrast.constant += factor * design.offset(&record);
    design.row(&record, &mut RowSpace::default(), |position, value| contrast.add(position, factor * value));
}

/// A record's row against that of the same record with another cell in one column.
fn difference(design: &Design, cells: &[Cell], column: usize, to: Cell, from: Cell) -> Contrast {
    let mut contrast = Contrast::default();
    for (cell, factor) in [(to, 1.0), (from, -1.0)] {
        let mut cells = cells.to_vec();
        cells[column] = cell;
        add_row(&mut contrast, design, &cells, factor);
    }
    contrast
}

/// The effects of one column, with names; none where it is in a product with another column, or is a curve: what it changes is then no single
/// number.
pub(super) fn of_column<'s>(schema: &'s Schema, design: &Design, position: usize) -> Vec<(String, Contrast)> {
    let column = &schema.columns()[position];
    if !design.companions(position).is_empty() {
        return Vec::new();
    }
    let cells = reference_cells(schema, design);
    let against = |name: &str, to: Cell, reference: &str, from: Cell| {
        (format!("{}: {name} against {reference}", column.name), difference(design, &cells, position, to, from))
    };
    match (&column.kind, design.use_of(position)) {
        (ColumnKind::Number(rule), Use::Coded { coefficient }) => {
            let mut contrast = Contrast::default();
            contrast.add(coefficient, rule.report_per / rule.scale);
            vec![(per(&column.name, rule), contrast)]
        }
        (ColumnKind::Number(rule), Use::Straight) => {
            let per = rule.report_per / (rule.upper - rule.lower);
            let contrast = difference(design, &cells, position, Cell::Number(rule.upper), Cell::Number(rule.lower));
            vec![(format!("{}, per {}", column.name, rule.report_per), contrast.times(per))]
        }
        (ColumnKind::Number(rule), Use::Bins { names, cuts }) => {
            let at = |level: usize| Cell::Number(cuts.get(level).copied().unwrap_or(rule.upper));
            (1..names.len()).map(|level| against(&names[level], at(level), &names[0], at(0))).collect()
        }
        (ColumnKind::Category(rule), Use::Levels { .. }) => {
            let reference = reference_level(design, position, &column.kind);
            let levels = (0_u32..).zip(&rule.values).filter(|(level, _)| *level != reference);
            let reference_name = rule.values.get(reference as usize).map_or("", String::as_str);
            levels.map(|(level, name)| against(name, Cell::Level(level), reference_name, Cell::Level(reference))).collect()
        }
        (ColumnKind::Boolean(rule), Use::Levels { .. }) => {
            let word = |texts: &'s [String]| texts.first().map_or("", String::as_str);
            vec![against(word(&rule.true_values), Cell::Level(1), word(&rule.false_values), Cell::Level(0))]
        }
        _ => Vec::new(),
    }
}

/// The step of a number, in words.
fn per(column: &str, rule: &NumberRule) -> String {
    match rule.transform {
        Transform::Identity => format!("{column}, per {}", rule.report_per),
        Transform::Log1p => format!("{column}, per {} of log(1 + {column})", rule.report_per),
    }
}

/// The predictor of the record that others are compared with; none without an intercept. Where rows are the columns as the schema codes them, numbers are at their centres or at 0 of
/// the file: one where these are the same.
pub(super) fn baselines(schema: &Schema, design: &Design) -> Vec<(String, Contrast)> {
    let Some(intercept) = design.intercept() else { return Vec::new() };
    let mut at_centres = Contrast::default();
    if !design.is_coded() {
        add_row(&mut at_centres, design, &reference_cells(schema, design), 1.0);
        return vec![("intercept, numbers at their centres".into(), at_centres)];
    }
    at_centres.add(intercept, 1.0);
    let mut at_zero = Contrast::default();
    for (position, column) in schema.columns().iter().enumerate() {
        match (&column.kind, design.use_of(position)) {
            (ColumnKind::Category(_), Use::Levels { .. }) => {
                let cells = reference_cells(schema, design);
                design.column_row(position, cells[position], |position, value| at_centres.add(position, value));
            }
            // Both transforms leave 0 where it is.
            (ColumnKind::Number(rule), Use::Coded { coefficient }) => at_zero.add(coefficient, -rule.centre / rule.scale),
            _ => {}
        }
    }
    if at_zero.entries().0.is_empty() {
        return vec![("intercept".into(), at_centres)];
    }
    let (positions, weights) = at_centres.entries();
    positions.into_iter().zip(weights).for_each(|(position, weight)| at_zero.add(position, weight));
    vec![("intercept, numbers at their centres".into(), at_centres), ("intercept, numbers at 0".into(), at_zero)]
}
