//! What a formula's terms say: curves of bent terms, and how far sites or levels differ.

use std::fmt::Write;

use dp_pvi_reading::document::PosteriorDocument;
use dp_pvi_reading::effects::{Measure, ObservationScale, Scale, curves};
use dp_pvi_reading::summary::Level;

use super::scrolled;
use crate::Run;
use crate::axis::{Axis, Labels};
use crate::curves::{Banded, Curve, banded};
use crate::html::Escaped;
use crate::numbers::{aligned, number, with_interval};
use crate::rows::{Full, Mark, Row, Rows};

/// More members of a group than this are in the file alone.
const DRAWN: usize = 200;

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    let mut part = String::new();
    bent(&mut part, run, document);
    document.scales.iter().for_each(|scale| group(&mut part, scale, exponentiates(document)));
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
fn exponentiates(document: &PosteriorDocument) -> bool {
    document.effects.iter().any(|effect| effect.measure.has_ratio())
}

/// What the linear predictor is, in words.
fn predictor(document: &PosteriorDocument) -> &'static str {
    match document.effects.first().map(|effect| effect.measure) {
        Some(Measure::OddsRatio | Measure::Odds) => "log odds",
        Some(Measure::RateRatio | Measure::Rate) => "log rate",
        Some(Measure::HazardRatio) => "log hazard",
        _ => "linear predictor",
    }
}

fn bent(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    let (Ok(schema), Ok(posterior)) = (run.task.parsed_schema(), document.posterior()) else { return };
    for curve in curves(&run.task.model, &schema, posterior.standard()) {
        let point = |point: &dp_pvi_reading::effects::CurvePoint| -> Banded {
            (point.x, point.mean, point.interval(Level::P95).map(|interval| (interval.lower, interval.upper)))
        };
        let points: Vec<Banded> = curve.points.iter().map(point).collect();
        let band = if points.iter().any(|point| point.2.is_some()) {
            "The band holds the curve at each single value with probability 95 %."
        } else {
            "Without a band: the posterior (a mean field) takes coefficients for independent."
        };
        let note = format!("What {} adds to the {}, centred over the range. {band}", curve.column, predictor(document));
        html.push_str(&banded(&curve.term, &note, (&curve.column, predictor(document)), &[Curve { name: "", points }]));
    }
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
            Escaped(&member.name),
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
    let row = |member: &&dp_pvi_reading::effects::Member| {
        let (low, high) = (member.interval_95.lower, member.interval_95.upper);
        let clear = if low > 0.0 || high < 0.0 { Full::Yes } else { Full::No };
        (member.mean, member.sd, low, high, clear)
    };
    let shown: Vec<_> = members.iter().map(row).collect();
    let rows: Vec<Row<'_>> = members
        .iter()
        .zip(&shown)
        .map(|(member, &(mean, sd, low, high, full))| Row {
            name: &member.name,
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
