//! `report.html`: one file without scripts and links to elsewhere, for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_posterior::reading::document::{Evaluation, PosteriorDocument};
use dp_pvi_posterior::reading::metrics::HeldOutMetrics;
use dp_pvi_posterior::reading::noise_aware::LOW_SIGNAL;
use dp_pvi_posterior::reading::summary::Coefficient;
use dp_pvi_privacy::ClientId;
use dp_pvi_protocol::message::{Role, RoundOutcome, RunOutcome};

use crate::Run;
use crate::html::{Escaped, PAGE_STYLE};
use crate::plot::{self, Line, Row, bound, number};

/// More coefficients than this are not drawn; the table and the file have them all.
const DRAWN: usize = 120;
/// More rows than this are not tabulated.
const TABULATED: usize = 2000;

/// The whole page.
pub(crate) fn render(run: &Run<'_>, document: &PosteriorDocument) -> String {
    let mut html = String::new();
    // Writing into a string cannot fail.
    let _ = write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}: {1}</title><style>{PAGE_STYLE}</style></head><body>\
         <h1>{1}</h1>",
        Escaped(run.federation),
        Escaped(&run.task.name)
    );
    overview(&mut html, run);
    coefficients(&mut html, run, document);
    held_out(&mut html, run, document);
    privacy(&mut html, run, document);
    participation(&mut html, run);
    let _ = write!(
        html,
        "<h2>Task</h2><p class=\"note\">The public statement of what was computed; its hash is in every signed message. \
         <code>{}</code></p><details><summary>show</summary><pre><code>{}</code></pre></details></body></html>",
        document.task_hash,
        Escaped(&document.task)
    );
    html
}

fn overview(html: &mut String, run: &Run<'_>) {
    let task = run.task;
    let outcome = match run.outcome {
        None => "in progress",
        Some(RunOutcome::Complete) => "complete",
        Some(RunOutcome::AggregationLost) => "ended early: the aggregation was aborted",
        Some(RunOutcome::QuorumLost) => "ended early: fewer sites than min_sites",
        Some(RunOutcome::Refused) => "ended early: so many sites refused that fewer than min_sites were left",
        Some(RunOutcome::Stopped) => "stopped by the operator",
        Some(RunOutcome::Converged) => "converged: ended by the rule of the task, before its last round",
    };
    let sites = run.members.values().filter(|member| member.role == Role::Site).count();
    let tick = match task.release_tick_seconds {
        0 => "off (release_tick = 0): updates leave as soon as they are computed, and when they leave is not protected".to_owned(),
        seconds => format!("{seconds} s: updates leave at multiples of this after training"),
    };
    let rows = [
        ("federation", Escaped(run.federation).to_string()),
        ("run", format!("{} ({outcome})", run.number)),
        ("model", Escaped(&task.model.to_string()).to_string()),
        (
            "posterior",
            format!(
                "{}, {} coefficients, prior N({}, {}²)",
                task.approximation,
                task.dimension,
                number(task.prior.mean),
                number(task.prior.scale)
            ),
        ),
        ("sites", sites.to_string()),
        ("schedule", format!("{}; {} rounds closed", task.schedule, run.closed())),
        ("local update", Escaped(&task.update.to_string()).to_string()),
        ("release tick", tick),
        ("time", format!("{} to {}", run.started, run.last)),
    ];
    html.push_str("<table>");
    for (name, value) in rows {
        let _ = write!(html, "<tr><th>{name}</th><td>{value}</td></tr>");
    }
    html.push_str("</table>");
}

fn coefficients(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    html.push_str("<h2>Coefficients</h2>");
    if let Some(problem) = &document.problem {
        let _ = write!(html, "<p class=\"note\"><b>There is no posterior: {}.</b></p>", Escaped(problem));
        return;
    }
    let all = &document.coefficients;
    // Both posteriors have the same coefficients in the same order.
    let plain = document.plain.as_ref().map(|plain| plain.coefficients.as_slice());
    let mut drawn: Vec<usize> = (0..all.len()).collect();
    if all.len() > DRAWN {
        drawn.sort_by(|a, b| {
            let z = |i: &usize| (all[*i].mean / all[*i].sd).abs();
            z(b).total_cmp(&z(a))
        });
        drawn.truncate(DRAWN);
        let _ = write!(html, "<p class=\"note\">The {DRAWN} of {} that are furthest from 0, in standard deviations.</p>", all.len());
    }
    let rows: Vec<Row<'_>> = drawn
        .iter()
        .map(|&i| {
            let c = &all[i];
            let second = plain.map(|plain| (plain[i].interval_95.lower, plain[i].interval_95.upper));
            Row {
                name: &c.name,
                centre: c.mean,
                inner: (c.mean - c.sd, c.mean + c.sd),
                outer: (c.interval_95.lower, c.interval_95.upper),
                second,
            }
        })
        .collect();
    let title = match plain {
        Some(_) => "Posterior mean, one standard deviation (thick), 95 % interval (thin); without the noise (dashed)",
        None => "Posterior mean, one standard deviation (thick) and 95 % interval (thin)",
    };
    html.push_str(&plot::intervals(title, &rows));
    let _ = write!(html, "<p><b>How to read the intervals.</b> {}", Escaped(&document.intervals.why));
    if plain.is_some() {
        html.push_str(" Dashed: the plain variational posterior as it came out of the run, which leaves the noise out.");
    }
    if run.task.privacy.epsilon.is_some() {
        html.push_str(" None of them contains the bias of clipping, where records were clipped.");
    }
    html.push_str("</p>");
    if let Some(convergence) = &document.convergence {
        let sentence = convergence.sentence(all.iter().map(|c| c.name.as_str()));
        let _ = write!(html, "<p><b>Convergence.</b> {}</p>", Escaped(&sentence));
    }
    if let Some(ratio) = document.signal_to_noise {
        let _ = write!(
            html,
            "<p class=\"note\">Signal to noise of the released precision: {} (1 would be noise alone).{}</p>",
            number(ratio),
            if ratio < LOW_SIGNAL {
                " <b>Low: too few records or too little budget for so many coefficients; most of them are noise.</b>"
            } else {
                ""
            }
        );
    }
    html.push_str("<details><summary>table</summary><table><tr><th>coefficient</th>");
    let posteriors: Vec<(&str, &[Coefficient])> =
        [Some(("", all.as_slice())), plain.map(|plain| ("plain ", plain))].into_iter().flatten().collect();
    for (name, _) in &posteriors {
        for column in ["mean", "sd", "90 % interval", "95 % interval"] {
            let _ = write!(html, "<th class=\"n\">{name}{column}</th>");
        }
    }
    html.push_str("</tr>");
    for (i, c) in all.iter().enumerate().take(TABULATED) {
        let _ = write!(html, "<tr><td>{}</td>", Escaped(&c.name));
        for (_, list) in &posteriors {
            let c = &list[i];
            let _ = write!(
                html,
                "<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{} … {}</td><td class=\"n\">{} … {}</td>",
                number(c.mean),
                number(c.sd),
                number(c.interval_90.lower),
                number(c.interval_90.upper),
                number(c.interval_95.lower),
                number(c.interval_95.upper)
            );
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></details>");
}

/// A metric's title and how to read it off a report.
type Metric = (&'static str, fn(&HeldOutMetrics) -> Option<f64>);

fn held_out(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    html.push_str("<h2>Held-out metrics</h2>");
    if document.evaluations.is_empty() {
        html.push_str("<p class=\"note\">No evaluator reported.</p>");
        return;
    }
    let metrics: [Metric; 6] = [
        ("Mean log-likelihood per test record (higher is better)", |m| Some(m.log_likelihood)),
        ("Accuracy", |m| m.accuracy),
        ("Area under the ROC curve (higher is better)", |m| m.auc),
        ("Root mean squared error", |m| m.rmse),
        ("Brier score (lower is better)", |m| m.brier),
        ("Expected calibration error (lower is better)", |m| m.calibration_error),
    ];
    for (title, value) in metrics {
        let mut series: BTreeMap<&ClientId, Vec<(f64, f64)>> = BTreeMap::new();
        for Evaluation { evaluator, round, metrics } in &document.evaluations {
            // What is not finite has no place on an axis; posterior.json says it.
            if let Some(value) = value(metrics).filter(|value| value.is_finite()) {
                series.entry(evaluator).or_default().push((f64::from(*round), value));
            }
        }
        let lines: Vec<Line<'_>> = series.into_iter().map(|(client, points)| Line { name: client.as_str(), points }).collect();
        if !lines.is_empty() {
            html.push_str(&plot::lines(title, "rounds in the posterior", &lines));
        }
    }
    if let Some(last) = document.evaluations.iter().rev().find(|report| !report.metrics.reliability.is_empty()) {
        let title = format!("Calibration after {} rounds, on {} test records of {}", last.round, last.metrics.records, last.evaluator);
        html.push_str(&plot::reliability(&title, &last.metrics.reliability));
    }
    if let Some(last) = document.evaluations.iter().rev().find(|report| !report.metrics.interval_coverage.is_empty()) {
        let _ = write!(
            html,
            "<h3>Predictive intervals after {} rounds, on {} test records of {}</h3><table><tr><th class=\"n\">central interval</th>\
             <th class=\"n\">test records inside</th></tr>",
            last.round, last.metrics.records, last.evaluator
        );
        for (level, share) in &last.metrics.interval_coverage {
            let _ = write!(html, "<tr><td class=\"n\">{} %</td><td class=\"n\">{:.1} %</td></tr>", number(100.0 * level), 100.0 * share);
        }
        html.push_str("</table>");
    }
    let evaluated: Vec<u32> = document.evaluations.iter().map(|evaluation| evaluation.round).collect();
    let missing = (0..=run.closed()).filter(|round| !evaluated.contains(round)).count();
    if missing > 0 {
        let _ = write!(html, "<p class=\"note\">{missing} of {} posteriors were not evaluated in time.</p>", run.closed() + 1);
    }
}

fn privacy(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    html.push_str("<h2>Privacy budget per site</h2>");
    let planned: Vec<(&str, f64)> = document.privacy.iter().filter_map(|s| s.epsilon.map(|e| (s.site.as_str(), e))).collect();
    let stated = run.task.privacy.epsilon.map(|e| ("stated in the task", e.get())).filter(|(_, e)| e.is_finite());
    if planned.is_empty() {
        html.push_str("<p><b>No site has a guarantee: epsilon is infinite.</b></p>");
    } else {
        let title = format!("Epsilon of the whole plan, answered or not, at delta = {}", number(run.task.privacy.delta.get()));
        html.push_str(&plot::bars(&title, &planned, stated));
    }
    let aggregated = document.privacy.iter().any(|statement| statement.fallback_epsilon.is_some());
    let fallback = if aggregated { "<th class=\"n\">ε if all others collude</th>" } else { "" };
    let _ = write!(
        html,
        "<table><tr><th>site</th><th class=\"n\">declared units</th><th>unit</th><th>neighbours</th><th class=\"n\">ε</th>{fallback}\
         <th class=\"n\">δ</th><th class=\"n\">visits answered</th><th>trust</th></tr>",
    );
    for statement in &document.privacy {
        let units = run.members.get(&statement.site).and_then(|member| member.units);
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td>{}<td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            statement.site,
            units.map_or_else(|| "–".into(), |units| units.to_string()),
            match statement.unit {
                PrivacyUnit::Record => "record",
                PrivacyUnit::Person => "person",
                PrivacyUnit::Site => "site",
            },
            match statement.relation {
                Relation::AddRemove => "add or remove one",
                Relation::ReplaceOne => "replace one",
            },
            statement.epsilon.map_or_else(|| "∞".into(), bound),
            statement.fallback_epsilon.map_or_else(String::new, |epsilon| format!("<td class=\"n\">{}</td>", bound(epsilon))),
            number(statement.delta),
            statement.releases,
            match statement.trust {
                dp_pvi_posterior::task::Trust::Local => "local: every site protects itself",
                dp_pvi_posterior::task::Trust::Aggregated => "aggregated: noise is whole only in the sum",
            }
        );
    }
    html.push_str("</table>");
    if let Some(statement) = document.privacy.first() {
        let _ = write!(html, "<p class=\"note\">Released {}.</p><ul class=\"note\">", Escaped(&statement.released));
        for remark in &statement.remarks {
            let _ = write!(html, "<li>{}</li>", Escaped(remark));
        }
        html.push_str("</ul>");
    }
}

fn participation(html: &mut String, run: &Run<'_>) {
    html.push_str(
        "<h2>Rounds</h2><table><tr><th>site</th><th class=\"n\">updates sent</th><th class=\"n\">included</th><th>refusals</th></tr>",
    );
    for (site, releases) in run.sites() {
        let included = run.rounds.iter().filter(|round| round.included.contains(site)).count();
        let refusals: Vec<String> = run
            .refusals
            .iter()
            .filter(|refusal| refusal.release.client == *site)
            .map(|refusal| format!("round {} ({:?})", refusal.release.round, refusal.reason).to_lowercase())
            .collect();
        let _ = write!(
            html,
            "<tr><td>{site}</td><td class=\"n\">{releases}</td><td class=\"n\">{included}</td><td>{}</td></tr>",
            if refusals.is_empty() { "–".to_owned() } else { refusals.join(", ") }
        );
    }
    html.push_str("</table>");
    let incomplete: Vec<String> = run
        .rounds
        .iter()
        .enumerate()
        .filter(|(_, round)| round.outcome != RoundOutcome::Complete)
        .map(|(number, round)| format!("{number} ({:?}, {} included)", round.outcome, round.included.len()).to_lowercase())
        .collect();
    let _ = if incomplete.is_empty() {
        write!(html, "<p class=\"note\">Every round closed with all sites that were asked.</p>")
    } else {
        write!(html, "<p class=\"note\">Rounds that closed without somebody: {}.</p>", incomplete.join(", "))
    };
}
