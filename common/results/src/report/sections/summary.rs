//! What was asked and answered, in a few sentences.

use std::fmt::Write;

use crate::convergence::Verdict;
use crate::document::PosteriorDocument;
use dp_pvi_protocol::message::{Role, RunOutcome};
use dp_pvi_schema::{LabelKind, Transform};

use super::{agreement, effects, privacy};
use crate::report::Run;
use crate::report::html::Escaped;
use crate::report::numbers::{capital, count, number, plural};

/// More columns than this are not named.
const NAMED: usize = 12;

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    html.push_str("<dl class=\"short\">");
    // Writing into a string cannot fail.
    let mut put = |name: &str, text: &str| {
        let _ = write!(html, "<dt>{name}</dt><dd>{text}</dd>");
    };
    put("Question", &question(run));
    put("Run", &what_ran(run));
    match &document.problem {
        Some(problem) => put("Result", &format!("<span class=\"warn\">There is no posterior: {}.</span>", Escaped(problem))),
        None => {
            put("Result", &effects::in_short(run, document));
            put("Intervals", &intervals(document));
        }
    }
    if let Some(text) = predictions(run, document) {
        put("Predictions", &text);
    }
    if let Some(found) = &document.agreement {
        put("Sites", &format!("{}{}", agreement::word(found), Escaped(&found.sentence())));
    }
    put("Privacy", &privacy::in_short(document));
    html.push_str("</dl>");
}

/// What is predicted from what, over whose records.
fn question(run: &Run<'_>) -> String {
    let task = run.task;
    let sites = run.sites().count();
    let units: Vec<u64> = run.members.values().filter(|member| member.role == Role::Site).filter_map(|member| member.units).collect();
    // Declared numbers may be any; a sum that does not fit is not shown.
    let declared = units.iter().try_fold(0_u64, |sum, units| sum.checked_add(*units)).filter(|_| units.len() == sites);
    let records = declared.map_or_else(String::new, |units| format!(" with {} records, as they declared", count(units)));
    let over = format!("over the records of {sites} {}{records}", plural(sites, "site", "sites"));
    let model = Escaped(&task.model.to_string()).to_string();
    let Ok(schema) = task.parsed_schema() else { return format!("{model} {over}.") };
    let columns: Vec<&str> = schema.used_columns().map(|column| column.name.as_str()).collect();
    let from = match columns.len() {
        0 => "its columns".to_owned(),
        1..=NAMED => columns.join(", "),
        many => format!("{many} columns"),
    };
    let label = &schema.label().column;
    let asked = match &schema.label().kind {
        LabelKind::Binary { positive, .. } => format!("How likely is {label} = {}, given {from}", positive.join(" or ")),
        LabelKind::Classes { .. } => format!("Which {label} is likely, given {from}"),
        LabelKind::Number { .. } => format!("How does {label} depend on {from}"),
        LabelKind::Survival(rule) => format!("How does the time {label} until {} depend on {from}", rule.event_column),
        LabelKind::Absent => format!("What structure is there in {from}"),
    };
    format!("{}? Answered by {model} {over}.", Escaped(&asked))
}

/// How the run ended.
pub(super) fn outcome(run: &Run<'_>) -> &'static str {
    match run.outcome {
        None if run.suspended => "suspended: too few sites, or not the summer, answer",
        None => "still going on",
        Some(RunOutcome::Complete) => "complete",
        Some(RunOutcome::Converged) => "converged: ended by the rule of the task, before its last round",
        Some(RunOutcome::AggregationLost) => "ended early: the aggregation was aborted",
        Some(RunOutcome::QuorumLost) => "ended early: fewer sites than min_sites",
        Some(RunOutcome::Refused) => "ended early: so many sites refused that fewer than min_sites were left",
        Some(RunOutcome::Stopped) => "stopped by the operator",
    }
}

fn what_ran(run: &Run<'_>) -> String {
    let closed = run.rounds.len();
    let look = if matches!(run.outcome, Some(RunOutcome::Complete | RunOutcome::Converged)) { "good" } else { "warn" };
    let reason = run.reason.map_or_else(String::new, |reason| format!(" ({})", Escaped(reason)));
    format!(
        "<span class=\"{look}\">{}</span>{reason}, {closed} {} closed, <span class=\"nb\">{}</span> to <span class=\"nb\">{}</span>.",
        capital(outcome(run)),
        plural(closed, "round", "rounds"),
        Escaped(&run.started),
        Escaped(&run.last)
    )
}

/// Whether the intervals can be read, in a word and a sentence.
fn intervals(document: &PosteriorDocument) -> String {
    let (look, word) = match (document.intervals.complete, document.convergence.as_ref().map(|convergence| convergence.verdict)) {
        (false, _) => ("warn", "Incomplete."),
        (true, Some(Verdict::NotConverged)) => ("warn", "Complete, and wide because the run has not converged."),
        (true, Some(Verdict::Extrapolated)) if document.is_mean_field() => {
            ("warn", "Complete, but the run had not converged, and correlations were not released: run it with more rounds.")
        }
        (true, Some(Verdict::Extrapolated)) => ("good", "Complete; more rounds would have helped."),
        (true, Some(Verdict::Converged)) => ("good", "Complete, and the run converged."),
        (true, None) => ("good", "Complete."),
    };
    format!("<span class=\"{look}\">{word}</span> {}", Escaped(&document.intervals.why))
}

/// The root mean squared error in the unit of the file, where the label was not transformed.
fn in_file_units(run: &Run<'_>, rmse: f64) -> String {
    let schema = run.task.parsed_schema().ok();
    match schema.as_ref().map(|schema| (&schema.label().kind, &schema.label().column)) {
        Some((LabelKind::Number { rule, .. }, column)) if rule.transform == Transform::Identity => {
            format!("root mean squared error {} (in the unit of {})", number(rmse * rule.scale), Escaped(column))
        }
        _ => format!("root mean squared error {} (of the coded label)", number(rmse)),
    }
}

fn predictions(run: &Run<'_>, document: &PosteriorDocument) -> Option<String> {
    let area = if run.task.model.rules().response().as_survival().is_some() { "concordance index" } else { "area under the ROC curve" };
    let last = document.evaluations.last()?;
    let metrics = &last.metrics;
    let parts: Vec<String> = [
        metrics.auc.map(|auc| format!("{area} {}", number(auc))),
        metrics.accuracy.map(|accuracy| format!("accuracy {}", number(accuracy))),
        metrics.rmse.map(|rmse| in_file_units(run, rmse)),
        metrics.log_likelihood.is_finite().then(|| format!("mean log-likelihood {}", number(metrics.log_likelihood))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        return None;
    }
    Some(format!("On {} public test records after {} rounds: {}.", count(metrics.records), last.round, parts.join(", ")))
}
