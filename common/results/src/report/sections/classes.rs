//! Several classes: how often each was taken for which, and whether the probability of each means what it says.

use std::fmt::Write;

use dp_pvi_protocol::metrics::HeldOutMetrics;
use dp_pvi_schema::{LabelKind, Schema};

use super::scrolled;
use crate::report::curves;
use crate::report::html::Escaped;
use crate::report::numbers::{count, number, percent};

/// Classes with a picture of their own.
const DRAWN: usize = 12;

/// The last report that has them, with the schema that names the classes.
pub(super) fn write(html: &mut String, schema: Option<&Schema>, round: u32, metrics: &HeldOutMetrics) {
    confusion(html, schema, round, metrics);
    if metrics.class_reliability.iter().all(Vec::is_empty) {
        return;
    }
    // Writing into a string cannot fail.
    let _ = write!(
        html,
        "<h3>Reliability of every class after round {round}</h3><p class=\"note\">Each class against the others. On the dashed line, probabilities mean what they \
         say. Larger dots are more records.{}</p><div class=\"small\">",
        if metrics.class_reliability.len() > DRAWN {
            format!(" The first {DRAWN} of {} classes.", metrics.class_reliability.len())
        } else {
            String::new()
        }
    );
    for (class, bins) in metrics.class_reliability.iter().enumerate().take(DRAWN) {
        let error = format!("expected calibration error {}", number(calibration_error(bins)));
        html.push_str(&curves::small_reliability(&name(schema, class), &error, bins));
    }
    html.push_str("</div>");
}

/// Rows are what it was, columns what was predicted.
fn confusion(html: &mut String, schema: Option<&Schema>, round: u32, metrics: &HeldOutMetrics) {
    if metrics.confusion.is_empty() {
        return;
    }
    let _ = write!(
        html,
        "<h3>Which class was taken for which, after round {round}</h3><p class=\"note\">The predicted class is the most likely one. Test records, and their share of \
         the row: the darker, the larger.</p>"
    );
    let mut table = "<table><tr><th scope=\"col\">it was</th>".to_owned();
    for class in 0..metrics.confusion.len() {
        let _ = write!(table, "<th scope=\"col\" class=\"n\"><small>predicted</small>{}</th>", Escaped(&name(schema, class)));
    }
    table.push_str("<th scope=\"col\" class=\"n\">test records</th><th scope=\"col\" class=\"n\">calibration error</th></tr>");
    for (class, row) in metrics.confusion.iter().enumerate() {
        let total = sum(row.iter().copied());
        let _ = write!(table, "<tr><th scope=\"row\">{}</th>", Escaped(&name(schema, class)));
        for cell in row {
            let share = share(*cell, total);
            let _ = write!(
                table,
                "<td class=\"shade\" style=\"--share:{share:.2}\"><span class=\"nb\">{}</span><small class=\"nb\">{}</small></td>",
                count(*cell),
                if total == 0 { "–".to_owned() } else { percent(share) }
            );
        }
        let error = metrics.class_reliability.get(class).map_or_else(|| "–".to_owned(), |bins| number(calibration_error(bins)));
        let _ = write!(table, "<td class=\"n\">{}</td><td class=\"n\">{error}</td></tr>", count(total));
    }
    table.push_str("</table>");
    scrolled(html, "which class was taken for which", &table);
}

/// The text of the schema's list.
fn name(schema: Option<&Schema>, class: usize) -> String {
    match schema.map(|schema| &schema.label().kind) {
        Some(LabelKind::Classes { values }) => values.get(class).cloned(),
        _ => None,
    }
    .unwrap_or_else(|| format!("class {}", class + 1))
}

/// Σ |mean prediction − observed rate| over the bins, by their records.
fn calibration_error(bins: &[(f64, f64, u64)]) -> f64 {
    let total = sum(bins.iter().map(|bin| bin.2));
    bins.iter().map(|(predicted, observed, records)| (predicted - observed).abs() * share(*records, total)).sum()
}

/// An evaluator may state any counts.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

#[allow(clippy::cast_precision_loss, reason = "counts of records")]
fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}
