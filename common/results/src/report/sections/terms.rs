//! What a formula's terms say: curves of bent terms, and how far sites or levels differ.

use std::fmt::Write;

use crate::document::PosteriorDocument;
use dp_pvi_models::effects;
use dp_pvi_models::effects::{CurvePoint, Measure, ObservationScale, Scale, comparison};
use dp_pvi_models::prediction::Level;

use super::scrolled;
use crate::report::Run;
use crate::report::axis::{Axis, Labels};
use crate::report::curves::{Banded, Curve, banded};
use crate::report::html::Escaped;
use crate::report::numbers::{aligned, number, with_interval};
use crate::report::rows::{Full, Mark, Row, Rows};

/// More members of a group than this are in the file alone.
const DRAWN: usize = 200;

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    let mut part = String::new();
    let measure = run.task.parsed_schema().ok().and_then(|schema| comparison(&run.task.model, &schema));
    document.curves.iter().for_each(|curve| bent(&mut part, curve, predictor(measure)));
    document.scales.iter().for_each(|scale| group(&mut part, scale, exponentiates(measure)));
    if let Some(scale) = &document.observation_scale {
        let ObservationScale { estimate, interval_95: interval, .. } = scale;
        let (estimate, interval) = with_interval(*estimate, interval.lower, interval.upper);
        // Writing into a string cannot fail.
        let _ = write!(
            html,
            "<p>Scale of a single observation, which the run learned: σ = <span class=\"nb\">{} (95 % interval {})</span>, in units of the label after centre and scale.</p>",
            Escaped(&estimate),
            Escaped(&interval)
        );
    }
    if let Some(sd) = document.observation_sd {
        let _ = write!(
            html,
            "<p>Standard deviation of a single observation's noise, which the run learned: {}, in units of the label after centre and scale.</p>",
            Escaped(&number(sd))
        );
    }
    if !part.is_empty() {
        html.push_str("<h2>Curves, and how groups differ</h2>");
        html.push_str(&part);
    }
}

/// Whether exp of a coefficient is a ratio.
fn exponentiates(measure: Option<Measure>) -> bool {
    measure.is_some_and(Measure::has_ratio)
}

/// What the linear predictor is, in words.
fn predictor(measure: Option<Measure>) -> &'static str {
    match measure {
        Some(Measure::OddsRatio | Measure::Odds) => "log odds",
        Some(Measure::RateRatio | Measure::Rate) => "log rate",
        Some(Measure::HazardRatio) => "log hazard",
        _ => "linear predictor",
    }
}

/// So many points of a curve are in its table, besides the first.
const TABLED: usize = 10;

fn bent(html: &mut String, curve: &effects::Curve, predictor: &str) {
    let interval = |point: &CurvePoint| point.interval(Level::P95).map(|interval| (interval.lower, interval.upper));
    let mut points: Vec<Banded> = Vec::with_capacity(curve.points.len());
    for point in &curve.points {
        // Between two levels the curve jumps, at the first point of the second.
        if let Some(&(_, mean, band)) = points.last().filter(|_| curve.steps) {
            points.push((point.x, mean, band));
        }
        points.push((point.x, point.mean, interval(point)));
    }
    let banded_points = points.iter().any(|point| point.2.is_some());
    let band = if banded_points {
        "The band holds the curve at each single value with probability 95 %."
    } else {
        "Without a band: the posterior (a mean field) takes coefficients for independent."
    };
    let note = format!("What {} adds to the {predictor}, centred over the range. {band}", curve.column);
    html.push_str(&banded(&curve.term, &note, (&curve.column, predictor), &[Curve { name: "", points }]));
    let mut table =
        format!("<table><tr><th scope=\"col\" class=\"n\">{}</th><th scope=\"col\" class=\"n\">mean</th>", Escaped(&curve.column));
    if banded_points {
        table.push_str("<th scope=\"col\" class=\"n\">95 % interval</th>");
    }
    table.push_str("</tr>");
    // Of levels the first point of each; of others so many points.
    let spaced = (curve.points.len() / TABLED).max(1);
    let begins = |k: usize| k == 0 || (curve.points[k].mean - curve.points[k - 1].mean).abs() > 0.0;
    for (_, point) in curve.points.iter().enumerate().filter(|(k, _)| if curve.steps { begins(*k) } else { k % spaced == 0 }) {
        let (mean, interval) = match interval(point) {
            Some((low, high)) => with_interval(point.mean, low, high),
            None => (aligned(point.mean), String::new()),
        };
        // Writing into a string cannot fail.
        let _ = write!(table, "<tr><th scope=\"row\" class=\"n\">{}</th><td class=\"n\">{mean}</td>", number(point.x));
        if banded_points {
            let _ = write!(table, "<td class=\"n\">{interval}</td>");
        }
        table.push_str("</tr>");
    }
    table.push_str("</table>");
    if curve.steps {
        table.push_str("<p class=\"note\">The first value of every level that is drawn; levels narrower than a hundredth of the range may be missing.</p>");
    }
    html.push_str("<details><summary>The curve as a table</summary>");
    scrolled(html, &curve.term, &table);
    html.push_str("</details>");
}

/// The level in the name of a group's coefficient: `Bern` of `b[(Intercept) site:Bern]`.
fn level<'a>(scale: &Scale, name: &'a str) -> &'a str {
    let over = scale.term.rsplit_once("| ").and_then(|(_, over)| over.strip_suffix(')')).unwrap_or_default();
    let before = format!("b[{} {over}:", scale.effect.as_deref().unwrap_or_default());
    name.rsplit_once(&before).and_then(|(_, level)| level.strip_suffix(']')).unwrap_or(name)
}

/// τ, and every member beside it.
fn group(html: &mut String, scale: &Scale, exponentiates: bool) {
    let name = scale.effect.as_ref().map_or_else(|| scale.term.clone(), |effect| format!("{effect} of {}", scale.term));
    let spread = match scale.interval_95 {
        Some(interval) => {
            let (estimate, interval) = with_interval(scale.estimate, interval.lower, interval.upper);
            format!("{estimate} (95 % interval {interval})")
        }
        None => format!("{}, as the task states", number(scale.estimate)),
    };
    // Writing into a string cannot fail.
    let _ = write!(html, "<p>{}: standard deviation τ = <span class=\"nb\">{}</span>.", Escaped(&name), Escaped(&spread));
    if scale.members.is_empty() {
        html.push_str(" By so much at most the curve leaves a straight line, as a standard deviation beforehand.</p>");
        return;
    }
    html.push_str(" An effect of which little is known is drawn towards 0, the middle of all.</p>");
    if scale.members.len() <= DRAWN {
        html.push_str(&caterpillar(&name, scale, exponentiates));
    }
    let mut table = "<table><tr><th scope=\"col\">coefficient</th><th scope=\"col\" class=\"n\">mean</th><th scope=\"col\" class=\"n\">95 % interval</th>\
                     <th scope=\"col\" class=\"n\">known</th></tr>"
        .to_owned();
    for member in &scale.members {
        let (mean, interval) = with_interval(member.mean, member.interval_95.lower, member.interval_95.upper);
        let _ = write!(
            table,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{mean}</td><td class=\"n\">{interval}</td><td class=\"n\">{}</td></tr>",
            Escaped(level(scale, &member.name)),
            aligned(member.known)
        );
    }
    table.push_str("</table>");
    html.push_str("<details><summary>The effects as a table</summary>");
    scrolled(html, &name, &table);
    html.push_str("<p class=\"note\">Known: 1 where the records say all of an effect, 0 where they say nothing and only the group does.</p></details>");
}

/// The members by their means.
fn caterpillar(name: &str, scale: &Scale, exponentiates: bool) -> String {
    let labels = if exponentiates { Labels::Exp } else { Labels::Plain };
    let ends = scale.members.iter().flat_map(|member| [member.interval_95.lower, member.interval_95.upper]);
    let Some(axis) = Axis::around(ends.chain([0.0]), labels, 7) else { return String::new() };
    let mut members: Vec<_> = scale.members.iter().collect();
    members.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    let read = |value: f64| if exponentiates { value.exp() } else { value };
    let row = |member: &&dp_pvi_models::effects::Member| {
        let (low, high) = (member.interval_95.lower, member.interval_95.upper);
        let clear = if low > 0.0 || high < 0.0 { Full::Yes } else { Full::No };
        (member.mean, member.sd, low, high, clear)
    };
    let shown: Vec<_> = members.iter().map(row).collect();
    let rows: Vec<Row<'_>> = members
        .iter()
        .zip(&shown)
        .map(|(member, &(mean, sd, low, high, full))| Row {
            name: level(scale, &member.name),
            mark: Some(Mark::Interval { centre: mean, inner: Some((mean - sd, mean + sd)), outer: Some((low, high)), full }),
            values: <[String; 2]>::from(with_interval(read(mean), read(low), read(high))).into(),
        })
        .collect();
    let head = if exponentiates { "ratio to the middle" } else { "difference from the middle" };
    Rows {
        title: name,
        note: "Dot: estimate, full where the 95 % interval does not contain the middle. Thick line: one standard deviation; thin line: 95 % interval.",
        heads: ("", "", &[head, "95 % interval"]),
        axis: &axis,
        reference: Some(0.0),
        rows: &rows,
    }
    .render()
}
