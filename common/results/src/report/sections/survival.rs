//! Survival curves: the probability that the event has not come until t, of a record that others are compared with, and of the same record with one column changed.

use std::fmt::Write;

use crate::document::PosteriorDocument;
use dp_pvi_models::prediction::Level;
use dp_pvi_models::survival::LogCumulativeHazard;
use dp_pvi_schema::formula::{Cell, Design, Record, RowSpace, Use};
use dp_pvi_schema::public::{Example, Extra};
use dp_pvi_schema::{Column, ColumnKind, LabelKind, Schema};

use super::scrolled;
use crate::report::Run;
use crate::report::curves::{Banded, Curve, banded};
use crate::report::html::Escaped;
use crate::report::numbers::{fixed, number};

/// Points of a curve.
const POINTS: u32 = 61;
/// Columns that are drawn, by the schema's order.
const DRAWN: usize = 12;
/// Most curves of a picture: so many line styles can be distinguished.
const CURVES: usize = 5;
/// Times of the table.
const TIMES: u32 = 4;

/// One column and the records that differ in it, with names; the first is that of the others.
struct Changed {
    column: String,
    records: Vec<(String, Vec<Cell>)>,
}

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    let (Ok(schema), Ok(posterior)) = (run.task.parsed_schema(), document.posterior()) else { return };
    let (Some(model), Some(design), LabelKind::Survival(rule)) =
        (run.task.model.rules().response().as_survival(), schema.design(), &schema.label().kind)
    else {
        return;
    };
    let changed = changed(&schema, design);
    if changed.is_empty() {
        return;
    }
    html.push_str("<h2>Who is without the event until when</h2>");
    html.push_str(
        "<p>Numbers are at their centres and factors at their references, but for the one column that a picture changes. The band holds a curve at each single time with \
         probability 95 %. Nobody's record is drawn: the curves follow from the posterior.</p>",
    );
    let end = rule.time.upper;
    for Changed { column, records } in &changed {
        let curve = |(name, cells): &(String, Vec<Cell>)| {
            let hazard = |row: Example<'_>, time: f64| model.log_cumulative_hazard(posterior.standard(), row, time);
            let at = |t: u32| point(&hazard, design, cells, end * f64::from(t) / f64::from(POINTS - 1));
            (name.clone(), (0..POINTS).map(at).collect::<Vec<Banded>>())
        };
        let curves: Vec<(String, Vec<Banded>)> = records.iter().map(curve).collect();
        let shown: Vec<Curve<'_>> = curves.iter().map(|(name, points)| Curve { name, points: points.clone() }).collect();
        let title = format!("Survival by {column}");
        let note = format!("Probability that {} has not come until then.", rule.event_column);
        html.push_str(&banded(&title, &note, (&schema.label().column, "without the event"), &shown));
        table(html, &title, &curves);
    }
}

/// Survival of a record at a time, with its band.
fn point(hazard: &dyn Fn(Example<'_>, f64) -> LogCumulativeHazard, design: &Design, cells: &[Cell], time: f64) -> Banded {
    let filled = vec![false; cells.len()];
    let record = Record { cells, filled: &filled, site: None };
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    design.row(&record, &mut RowSpace::default(), |position, value| {
        indices.push(position);
        values.push(value);
    });
    let row = Example { indices: &indices, values: &values, target: 0.0, offset: design.offset(&record), extra: Extra::NONE };
    let hazard = hazard(row, time);
    let band = hazard.band(Level::P95);
    (time, hazard.survival(), Some((band.lower, band.upper)))
}

/// The columns that the formula uses, each with the reference and what differs from it: other levels, or a number that is larger by the step of its effect.
fn changed(schema: &Schema, design: &Design) -> Vec<Changed> {
    let level = |position: usize| match design.use_of(position) {
        Use::Levels { reference: Some(reference) } => reference,
        _ => 0,
    };
    let middle = |(position, column): (usize, &Column)| match &column.kind {
        ColumnKind::Number(rule) => Cell::Number(rule.decode(0.0).clamp(rule.lower, rule.upper)),
        _ => Cell::Level(level(position)),
    };
    let reference: Vec<Cell> = schema.columns().iter().enumerate().map(middle).collect();
    let with = |position: usize, cell: Cell| {
        let mut cells = reference.clone();
        cells[position] = cell;
        cells
    };
    let mut changed = Vec::new();
    for (position, column) in schema.columns().iter().enumerate().filter(|(position, _)| design.uses(*position)) {
        let mut cells: Vec<(String, Cell)> = Vec::new();
        match (&column.kind, reference[position]) {
            (ColumnKind::Number(rule), Cell::Number(centre)) => {
                let more = (centre + rule.report_per).min(rule.upper);
                cells.extend([centre, more].map(|value| (format!("{} {}", column.name, number(value)), Cell::Number(value))));
            }
            (ColumnKind::Category(rule), Cell::Level(first)) => {
                let mut levels: Vec<(u32, &String)> = (0_u32..).zip(&rule.values).collect();
                levels.sort_by_key(|(level, _)| *level != first);
                cells.extend(levels.into_iter().take(CURVES).map(|(level, name)| (name.clone(), Cell::Level(level))));
            }
            (ColumnKind::Boolean(_), _) => cells.extend([("no".to_owned(), Cell::Level(0)), ("yes".to_owned(), Cell::Level(1))]),
            _ => {}
        }
        if cells.len() > 1 {
            let records = cells.into_iter().map(|(name, cell)| (name, with(position, cell))).collect();
            changed.push(Changed { column: column.name.clone(), records });
        }
    }
    changed.truncate(DRAWN);
    changed
}

/// The curves at a few times.
fn table(html: &mut String, title: &str, curves: &[(String, Vec<Banded>)]) {
    let step = ((POINTS - 1) / TIMES) as usize;
    let times: Vec<usize> = (1..=TIMES as usize).map(|k| k * step).collect();
    let mut table = "<table><tr><th scope=\"col\">record</th>".to_owned();
    // Writing into a string cannot fail.
    for &at in &times {
        let time = curves.first().map_or(0.0, |(_, points)| points[at].0);
        let _ = write!(table, "<th scope=\"col\" class=\"n\">until {}</th><th scope=\"col\" class=\"n\">95 % interval</th>", number(time));
    }
    table.push_str("</tr>");
    for (name, points) in curves {
        let _ = write!(table, "<tr><th scope=\"row\">{}</th>", Escaped(name));
        for &at in &times {
            let (_, survival, band) = points[at];
            let (low, high) = band.unwrap_or((survival, survival));
            let [survival, low, high] = [survival, low, high].map(|share| fixed(share, 3));
            let _ = write!(table, "<td class=\"n\">{survival}</td><td class=\"n\">{low} to {high}</td>");
        }
        table.push_str("</tr>");
    }
    table.push_str("</table>");
    html.push_str("<details><summary>The curves as a table</summary>");
    scrolled(html, title, &table);
    html.push_str("</details>");
}
