//! How good predictions are: metrics on public test records at the end, the ROC curve, predicted against observed rates, and the way there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::document::{Evaluation, PosteriorDocument};
use dp_pvi_names::ClientId;
use dp_pvi_protocol::metrics::HeldOutMetrics;

use super::{classes, scrolled};
use crate::report::Run;
use crate::report::curves;
use crate::report::curves::Line;
use crate::report::html::Escaped;
use crate::report::numbers::{capital, count, number, percent};

/// A metric: its name, which way is better, and how to read it off a report.
struct Metric {
    name: &'static str,
    better: &'static str,
    of: fn(&HeldOutMetrics) -> Option<f64>,
}

/// Of survival times it is the concordance index, of several classes a mean.
const AREA: &str = "area under the ROC curve";

const METRICS: [Metric; 8] = [
    Metric { name: "mean log-likelihood", better: "higher is better", of: |m| Some(m.log_likelihood) },
    Metric { name: AREA, better: "0.5 is chance, 1 is perfect", of: |m| m.auc },
    Metric { name: "root mean squared error", better: "of the coded label; lower is better", of: |m| m.rmse },
    Metric { name: "accuracy", better: "share of right classes", of: |m| m.accuracy },
    Metric { name: "Brier score", better: "lower is better", of: |m| m.brier },
    Metric { name: "expected calibration error", better: "lower is better", of: |m| m.calibration_error },
    Metric { name: "mean deviance", better: "lower is better", of: |m| m.deviance },
    Metric { name: "ranked probability score", better: "lower is better", of: |m| m.ranked_probability_score },
];

/// The metrics whose way is drawn.
const DRAWN: usize = 3;

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    html.push_str("<h2>How good predictions are</h2>");
    if document.evaluations.is_empty() {
        html.push_str("<p class=\"note\">No evaluator reported.</p>");
        return;
    }
    let evaluators: BTreeMap<&ClientId, Vec<&Evaluation>> = document.evaluations.iter().fold(BTreeMap::new(), |mut all, evaluation| {
        all.entry(&evaluation.evaluator).or_insert_with(Vec::new).push(evaluation);
        all
    });
    let survival = run.task.model.rules().response().as_survival().is_some();
    // Was resolved or read with the task.
    let schema = run.task.parsed_schema().ok();
    at_the_end(html, &evaluators, survival);
    for reports in evaluators.values() {
        pictures(html, reports);
        if let Some(report) = reports.iter().rev().find(|report| !report.metrics.confusion.is_empty()) {
            classes::write(html, schema.as_ref(), report.round, &report.metrics);
        }
    }
    way(html, &evaluators, survival);
    let evaluated: BTreeSet<u32> = document.evaluations.iter().map(|evaluation| evaluation.round).collect();
    let closed = run.closed();
    let missing = (0..=closed).filter(|round| !evaluated.contains(round)).count();
    if missing > 0 {
        // Writing into a string cannot fail.
        let _ = write!(html, "<p class=\"note\">{missing} of {} posteriors were not evaluated in time.</p>", u64::from(closed) + 1);
    }
    if document.plain.is_some() {
        html.push_str(
            "<p class=\"note\">Evaluators see the posterior as it comes out of each round, before the noise enters its intervals.</p>",
        );
    }
}

/// A metric's name where there may be several classes, or survival times.
fn called(name: &'static str, several: bool, survival: bool) -> &'static str {
    match name {
        AREA if survival => "concordance index",
        AREA if several => "area under the ROC curve, mean of each class against the others",
        name => name,
    }
}

/// The last report of every evaluator.
fn at_the_end(html: &mut String, evaluators: &BTreeMap<&ClientId, Vec<&Evaluation>>, survival: bool) {
    let last: Vec<&Evaluation> = evaluators.values().filter_map(|reports| reports.last().copied()).collect();
    let prior: Vec<Option<&HeldOutMetrics>> =
        evaluators.values().map(|reports| reports.first().filter(|report| report.round == 0).map(|report| &report.metrics)).collect();
    let mut table = "<table><tr><th scope=\"col\">on public test records</th>".to_owned();
    for report in &last {
        let _ = write!(
            table,
            "<th scope=\"col\" class=\"n\">{}, round {}</th><th scope=\"col\" class=\"n\">before the run</th>",
            report.evaluator, report.round
        );
    }
    table.push_str("</tr><tr><th scope=\"row\">test records</th>");
    for report in &last {
        let _ = write!(table, "<td class=\"n\">{}</td><td class=\"n\"></td>", count(report.metrics.records));
    }
    table.push_str("</tr>");
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite()).map_or_else(|| "–".to_owned(), number);
    for Metric { name, better, of } in METRICS.iter().filter(|metric| last.iter().any(|report| (metric.of)(&report.metrics).is_some())) {
        let name = called(name, last.iter().any(|report| !report.metrics.confusion.is_empty()), survival);
        let _ = write!(table, "<tr><th scope=\"row\">{name}<small>{better}</small></th>");
        for (report, prior) in last.iter().zip(&prior) {
            let _ =
                write!(table, "<td class=\"n\">{}</td><td class=\"n\">{}</td>", finite(of(&report.metrics)), finite(prior.and_then(of)));
        }
        table.push_str("</tr>");
    }
    table.push_str("</table>");
    scrolled(html, "metrics at the end", &table);
}

/// Pictures of the last report that has them.
fn pictures(html: &mut String, reports: &[&Evaluation]) {
    let latest = |has: fn(&HeldOutMetrics) -> bool| reports.iter().rev().find(|report| has(&report.metrics));
    html.push_str("<div class=\"pair\">");
    if let Some(report) = latest(|m| !m.roc.is_empty()) {
        let note = "A threshold that finds more cases also raises more false alarms. On the dashed line, predictions are chance.";
        let title = format!("ROC curve after round {}", report.round);
        html.push_str(&curves::roc(&title, note, &report.metrics.roc, report.metrics.auc));
    }
    if let Some(report) = latest(|m| !m.reliability.is_empty()) {
        let note = "On the dashed line, probabilities mean what they say. Larger dots are more records.";
        let title = format!("Reliability after round {}", report.round);
        html.push_str(&curves::reliability(&title, note, &report.metrics.reliability));
    }
    html.push_str("</div>");
    if let Some(report) = latest(|m| !m.interval_coverage.is_empty()) {
        let mut table =
            "<table><tr><th scope=\"col\" class=\"n\">central interval</th><th scope=\"col\" class=\"n\">test records inside</th></tr>"
                .to_owned();
        for (level, share) in &report.metrics.interval_coverage {
            let _ = write!(table, "<tr><td class=\"n\">{} %</td><td class=\"n\">{}</td></tr>", number(100.0 * level), percent(*share));
        }
        table.push_str("</table>");
        let _ = write!(html, "<h3>Predictive intervals after round {}</h3>", report.round);
        scrolled(html, "predictive intervals", &table);
    }
}

/// Metrics from round 1 on, as curves and as a table.
fn way(html: &mut String, evaluators: &BTreeMap<&ClientId, Vec<&Evaluation>>, survival: bool) {
    let rounds = || evaluators.values().flatten().filter(|report| report.round > 0);
    let several = rounds().any(|report| !report.metrics.confusion.is_empty());
    if rounds().count() < 2 {
        return;
    }
    for metric in &METRICS[..DRAWN] {
        let lines: Vec<Line<'_>> = evaluators
            .iter()
            .map(|(evaluator, reports)| {
                // What is not finite has no place on an axis; posterior.json says it.
                let of =
                    |report: &&Evaluation| Some((f64::from(report.round), (metric.of)(&report.metrics).filter(|value| value.is_finite())?));
                Line { name: evaluator.as_str(), points: reports.iter().filter(|report| report.round > 0).filter_map(of).collect() }
            })
            .filter(|line| !line.points.is_empty())
            .collect();
        html.push_str(&curves::lines(
            &capital(&format!("{} by round ({})", called(metric.name, several, survival), metric.better)),
            "rounds in the posterior",
            &lines,
        ));
    }
    let present: Vec<&Metric> = METRICS.iter().filter(|metric| rounds().any(|report| (metric.of)(&report.metrics).is_some())).collect();
    let mut table = "<table><tr><th scope=\"col\">evaluator</th><th scope=\"col\" class=\"n\">round</th>".to_owned();
    for metric in &present {
        let _ = write!(table, "<th scope=\"col\" class=\"n\">{}</th>", called(metric.name, several, survival));
    }
    table.push_str("</tr>");
    for report in evaluators.values().flatten() {
        let _ = write!(table, "<tr><td class=\"nb\">{}</td><td class=\"n\">{}</td>", Escaped(report.evaluator.as_str()), report.round);
        for metric in &present {
            let value = (metric.of)(&report.metrics)
                .map_or_else(|| "–".to_owned(), |value| if value.is_finite() { number(value) } else { "not finite".into() });
            let _ = write!(table, "<td class=\"n\">{value}</td>");
        }
        table.push_str("</tr>");
    }
    table.push_str("</table>");
    html.push_str("<details><summary>All rounds as a table</summary>");
    scrolled(html, "metrics of all rounds", &table);
    html.push_str("</details>");
}
