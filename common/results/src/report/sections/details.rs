//! Details for checking: settings, every coefficient, and the task.

use std::fmt::Write;

use crate::document::PosteriorDocument;
use dp_pvi_protocol::summary::Coefficient;

use super::scrolled;
use super::summary::outcome;
use crate::report::Run;
use crate::report::html::Escaped;
use crate::report::numbers::{aligned, interval, number};

/// More rows than this are not tabulated.
const TABULATED: usize = 2000;

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    html.push_str("<h2>Technical details</h2>");
    overview(html, run);
    coefficients(html, document);
    // Writing into a string cannot fail.
    let _ = write!(
        html,
        "<h3>Task</h3><p class=\"note\">The public statement of what was computed; its hash is in every signed message. <code>{}</code></p>\
         <details><summary>The schema</summary><pre><code>{}</code></pre></details>\
         <details><summary>The whole task</summary><pre><code>{}</code></pre></details>",
        document.task_hash,
        Escaped(&run.task.schema),
        Escaped(&document.task)
    );
}

fn overview(html: &mut String, run: &Run<'_>) {
    let task = run.task;
    let sites = run.sites().count();
    let tick = match task.release_tick_seconds {
        0 => "off (release_tick = 0): updates leave as soon as they are computed, and when they leave is not protected".to_owned(),
        seconds => format!("{seconds} s: updates leave at multiples of this after training"),
    };
    let rows = [
        ("federation", Escaped(run.federation).to_string()),
        ("run", format!("{} ({})", run.number, outcome(run))),
        ("model", Escaped(&task.model.to_string()).to_string()),
        (
            "posterior",
            format!(
                "{}, {} coefficients, prior N({}, {}²){}",
                task.approximation,
                task.dimension,
                number(task.prior.mean),
                number(task.prior.scale),
                if task.coefficients.is_empty() { "" } else { " of the effect of a typical difference" }
            ),
        ),
        ("sites", sites.to_string()),
        ("schedule", format!("{}; {} rounds closed", task.schedule, run.closed())),
        ("local update", Escaped(&task.update.to_string()).to_string()),
        ("release tick", tick),
        ("time", format!("{} to {}", Escaped(&run.started), Escaped(&run.last))),
    ];
    html.push_str("<table>");
    for (name, value) in rows {
        let _ = write!(html, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
    }
    html.push_str("</table>");
}

fn coefficients(html: &mut String, document: &PosteriorDocument) {
    let all = &document.coefficients;
    if all.is_empty() {
        return;
    }
    // Both posteriors have the same coefficients in the same order.
    let plain = document.plain.as_ref().map(|plain| plain.coefficients.as_slice());
    html.push_str("<h3>Coefficients</h3><p class=\"note\">On the scale of the model: a number is centred and scaled by the schema.");
    if plain.is_some() {
        html.push_str(" Plain is the posterior as it came out of the run, which leaves the noise out and is too narrow.");
    }
    html.push_str("</p>");
    let posteriors: Vec<(&str, &[Coefficient])> =
        [Some(("", all.as_slice())), plain.map(|plain| ("plain ", plain))].into_iter().flatten().collect();
    let distances = document.convergence.as_ref().map(|convergence| convergence.distances.as_slice());
    let mut table = "<table><tr><th scope=\"col\">coefficient</th>".to_owned();
    for (name, _) in &posteriors {
        for column in ["mean", "sd", "90 % interval", "95 % interval"] {
            let _ = write!(table, "<th scope=\"col\" class=\"n\">{name}{column}</th>");
        }
    }
    if distances.is_some() {
        table.push_str("<th scope=\"col\" class=\"n\">distance</th>");
    }
    table.push_str("</tr>");
    for (i, c) in all.iter().enumerate().take(TABULATED) {
        let _ = write!(table, "<tr><th scope=\"row\">{}</th>", Escaped(&c.name));
        for c in posteriors.iter().filter_map(|(_, list)| list.get(i)) {
            let _ = write!(
                table,
                "<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>",
                number(c.mean),
                number(c.sd),
                interval(c.interval_90.lower, c.interval_90.upper),
                interval(c.interval_95.lower, c.interval_95.upper)
            );
        }
        if let Some(distance) = distances.and_then(|distances| distances.get(i)) {
            let _ = write!(table, "<td class=\"n\">{}</td>", aligned(*distance));
        }
        table.push_str("</tr>");
    }
    table.push_str("</table>");
    html.push_str("<details><summary>All coefficients as a table</summary>");
    scrolled(html, "all coefficients", &table);
    html.push_str("</details>");
    if all.len() > TABULATED {
        let _ = write!(html, "<p class=\"note\">The first {TABULATED} of {}; posterior.json has them all.</p>", all.len());
    }
}
