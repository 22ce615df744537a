//! What makes a difference, and how much: the forest plot.

use std::fmt::Write;

use dp_pvi_posterior::reading::document::PosteriorDocument;
use dp_pvi_posterior::reading::noise_aware::LOW_SIGNAL;

use crate::Run;
use crate::axis::{Axis, Labels};
use crate::html::Escaped;
use crate::numbers::{aligned, number, plural, with_interval};
use crate::rows::{Full, Mark, Row, Rows};

/// More effects than this are not drawn; the tables and the file have them all.
const DRAWN: usize = 60;

/// What the forest plot shows of an effect.
struct Effect<'a> {
    name: &'a str,
    estimate: f64,
    sd: f64,
    inner: Option<(f64, f64)>,
    outer: Option<(f64, f64)>,
}

impl Effect<'_> {
    /// Whether its 95 % interval does not contain 0.
    fn is_clear(&self) -> bool {
        self.outer.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }

    /// Distance from 0 in standard deviations.
    fn distance(&self) -> f64 {
        (self.estimate / self.sd).abs()
    }
}

fn shown(document: &PosteriorDocument) -> Vec<Effect<'_>> {
    let of = document.coefficients.iter().map(|c| Effect {
        name: &c.name,
        estimate: c.mean,
        sd: c.sd,
        inner: Some((c.mean - c.sd, c.mean + c.sd)),
        outer: Some((c.interval_95.lower, c.interval_95.upper)),
    });
    of.collect()
}

/// How many are clear.
pub(super) fn in_short(_run: &Run<'_>, document: &PosteriorDocument) -> String {
    let effects = shown(document);
    let clear = effects.iter().filter(|effect| effect.is_clear()).count();
    format!(
        "Of {} {}, {clear} {} clear: the 95 % interval does not contain 0 (no effect).",
        effects.len(),
        plural(effects.len(), "coefficient", "coefficients"),
        plural(clear, "is", "are")
    )
}

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    html.push_str("<h2>What makes a difference</h2>");
    let mut effects = shown(document);
    let all = effects.len();
    if all > DRAWN {
        let mut order: Vec<f64> = effects.iter().map(Effect::distance).collect();
        order.sort_by(|a, b| b.total_cmp(a));
        let least = order[DRAWN - 1];
        effects.retain(|effect| effect.distance() >= least);
        effects.truncate(DRAWN);
        // Writing into a string cannot fail.
        let _ = write!(html, "<p class=\"note\">The {DRAWN} of {all} that are furthest from no effect, in standard deviations.</p>");
    }
    html.push_str(&forest(&effects));
    let _ = write!(html, "<p><b>How to read the intervals.</b> {}", Escaped(&document.intervals.why));
    if run.task.privacy.epsilon.is_some() {
        html.push_str(" They do not contain the bias of clipping, where records were clipped.");
    }
    html.push_str("</p>");
    if let Some(ratio) = document.signal_to_noise {
        let low = if ratio < LOW_SIGNAL {
            " <span class=\"warn\">Low: too few records or too little budget for so many coefficients; most of them are noise.</span>"
        } else {
            ""
        };
        let _ = write!(
            html,
            "<p class=\"note\">Signal to noise of the released precision: {} (1 would be noise alone).{low}</p>",
            number(ratio)
        );
    }
}

fn forest(effects: &[Effect<'_>]) -> String {
    let Some(axis) = axis(effects, Labels::Plain) else { return String::new() };
    let rows: Vec<Row<'_>> = effects
        .iter()
        .map(|effect| Row {
            name: effect.name,
            mark: Some(Mark::Interval {
                centre: effect.estimate,
                inner: effect.inner,
                outer: effect.outer,
                full: if effect.is_clear() { Full::Yes } else { Full::No },
            }),
            values: match effect.outer {
                Some((low, high)) => <[String; 2]>::from(with_interval(effect.estimate, low, high)).into(),
                None => vec![aligned(effect.estimate), "–".to_owned()],
            },
        })
        .collect();
    let table = Rows {
        title: "Coefficients",
        note: "Dot: posterior mean, full where the 95 % interval does not contain 0. Thick line: one standard deviation; thin line: 95 % interval.",
        heads: ("coefficient", "", &["mean", "95 % interval"]),
        axis: &axis,
        reference: Some(0.0),
        rows: &rows,
    };
    table.render()
}

/// An axis that holds every centre and most intervals: one that is more than four times as wide as usual ends in an arrow.
fn axis(effects: &[Effect<'_>], labels: Labels) -> Option<Axis> {
    let half = |effect: &Effect<'_>| effect.outer.map_or(0.0, |(low, high)| 0.5 * (high - low));
    let mut widths: Vec<f64> = effects.iter().map(half).collect();
    widths.sort_by(f64::total_cmp);
    let usual = 4.0 * widths.get(widths.len() / 2).copied().unwrap_or(0.0);
    let ends = effects.iter().flat_map(|effect| {
        let half = half(effect).min(usual);
        [effect.estimate - half, effect.estimate + half]
    });
    Axis::around(ends.chain([0.0]), labels, 7)
}
