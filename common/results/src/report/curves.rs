//! Pictures with two axes, as SVG: lines over rounds, the ROC curve, and predicted against observed rates. They take fonts and colours of the page,
//! and name themselves to a screen reader; their numbers are in a table as well.

use std::fmt::Write;

use crate::report::axis::{Axis, Labels, range};
use crate::report::html::Escaped;
use crate::report::numbers::number;

/// Looks of series: as many as the style sheet has.
const SERIES: usize = 5;
/// Their marks, around (0, 0).
const MARKS: [&str; SERIES] =
    ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "M-4-4h8v8h-8z", "M0-5.5L5 4H-5z", "M0-5.5L5 0L0 5.5L-5 0z", "M-5-4H5L0 5z"];

/// One line: a name and points (x, y) in ascending order of x.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over a common axis of whole numbers. Where the first points lie so far from the others that they would flatten the axis, they are
/// left out, and the note says so.
pub(crate) fn lines(title: &str, x_label: &str, series: &[Line<'_>]) -> String {
    const HEIGHT: f64 = 220.0;
    let all = || series.iter().flat_map(|line| line.points.iter().copied());
    let Some((x_low, x_high)) = range(all().map(|p| p.0)) else { return String::new() };
    let start = first_shown(series);
    let shown = || all().filter(move |p| p.0 >= start);
    let (Some((from, _)), Some(y)) = (range(shown().map(|p| p.0)), Axis::around(shown().map(|p| p.1), Labels::Plain, 5)) else {
        return String::new();
    };
    let x = Axis::exact(if start > x_low { start } else { from }, x_high, 10);
    let down = |value: f64| HEIGHT * (1.0 - y.inside(value) / 100.0);
    let mut html = format!("<figure><figcaption>{}", Escaped(title));
    // Writing into a string cannot fail.
    if start > x_low {
        let left: Vec<String> =
            all().filter(|p| p.0 < start).map(|(at, value)| format!("{} at {}", number(value), number(at))).take(4).collect();
        let _ = write!(html, "<small>Not in the picture: {}.</small>", Escaped(&left.join(", ")));
    }
    if !y.remark().is_empty() {
        let _ = write!(html, "<small>{}</small>", y.remark());
    }
    let _ = write!(
        html,
        "</figcaption><svg class=\"curve\" height=\"{:.0}\" role=\"img\"><title>{}. {}</title>",
        HEIGHT + 40.0,
        Escaped(title),
        Escaped(&described(series, x_label))
    );
    for (at, label) in y.ticks() {
        let at = down(at);
        let _ = write!(
            html,
            "<line x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"grid\"/><text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            at + 4.0,
            number(label)
        );
    }
    for (at, label) in x.ticks().into_iter().filter(|t| t.1.fract() == 0.0) {
        let _ =
            write!(html, "<text x=\"{:.2}%\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>", x.percent(at), HEIGHT + 17.0, number(label));
    }
    let _ = write!(html, "<text x=\"50%\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>", HEIGHT + 35.0, Escaped(x_label));
    for (i, line) in series.iter().enumerate() {
        let look = i % SERIES;
        let points: Vec<(f64, f64)> = line.points.iter().copied().filter(|p| p.0 >= start).collect();
        for pair in points.windows(2) {
            let _ = write!(
                html,
                "<line x1=\"{:.2}%\" y1=\"{:.1}\" x2=\"{:.2}%\" y2=\"{:.1}\" class=\"line k{look}\" stroke-width=\"2\"/>",
                x.inside(pair[0].0),
                down(pair[0].1),
                x.inside(pair[1].0),
                down(pair[1].1)
            );
        }
        if points.len() <= 60 {
            for (px, py) in points {
                let _ = write!(
                    html,
                    "<svg x=\"{:.2}%\" y=\"{:.1}\" class=\"k{look}\"><path d=\"{}\" class=\"full\"><title>{}: {} {}, {}</title></path></svg>",
                    x.inside(px),
                    down(py),
                    MARKS[look],
                    Escaped(line.name),
                    Escaped(x_label),
                    number(px),
                    number(py)
                );
            }
        }
    }
    html.push_str("</svg>");
    if series.len() > 1 {
        html.push_str("<p class=\"note\">");
        for (i, line) in series.iter().enumerate() {
            let look = i % SERIES;
            let _ = write!(
                html,
                "<span class=\"nb\"><svg width=\"34\" height=\"12\" style=\"display:inline\" aria-hidden=\"true\"><line x1=\"0\" x2=\"34\" y1=\"6\" y2=\"6\" \
                 class=\"line k{look}\" stroke-width=\"2\"/><svg x=\"17\" y=\"6\" class=\"k{look}\"><path d=\"{}\" class=\"full\"/></svg></svg> {}</span> ",
                MARKS[look],
                Escaped(line.name)
            );
        }
        html.push_str("</p>");
    }
    html.push_str("</figure>");
    html
}

/// A point of a curve with its band: x, y, and the ends of the interval at x where they are known.
pub(crate) type Banded = (f64, f64, Option<(f64, f64)>);

/// A curve with its name.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    /// Ascending in x.
    pub(crate) points: Vec<Banded>,
}

/// Curves over a number, each with its band; named below the picture, where there are several. The axis of values has 0 on it.
pub(crate) fn banded(title: &str, note: &str, (x_label, y_label): (&str, &str), curves: &[Curve<'_>]) -> String {
    const HEIGHT: f64 = 220.0;
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let ends = |point: &Banded| point.2.map_or([point.1, point.1], |(low, high)| [low, high]);
    let (Some((low, high)), Some(y)) =
        (range(all().map(|point| point.0)), Axis::around(all().flat_map(ends).chain([0.0]), Labels::Plain, 5))
    else {
        return String::new();
    };
    let x = Axis::exact(low, high, 8);
    let down = |value: f64| HEIGHT * (1.0 - y.inside(value) / 100.0);
    let described = |curve: &Curve<'_>| {
        let end = |point: &Banded| format!("{} at {x_label} {}", number(point.1), number(point.0));
        let ends: Vec<String> = [curve.points.first(), curve.points.last()].into_iter().flatten().map(end).collect();
        let name = if curve.name.is_empty() { String::new() } else { format!("{}: ", curve.name) };
        format!("{name}{}", ends.join(", "))
    };
    let mut html = format!(
        "<figure><figcaption>{}<small>{}{}</small></figcaption><svg class=\"curve\" height=\"{:.0}\" role=\"img\"><title>{}. {}: {}</title>",
        Escaped(title),
        Escaped(note),
        y.remark(),
        HEIGHT + 40.0,
        Escaped(title),
        Escaped(y_label),
        Escaped(&curves.iter().map(described).collect::<Vec<_>>().join("; "))
    );
    // Writing into a string cannot fail.
    for (at, label) in y.ticks() {
        let at = down(at);
        let _ = write!(
            html,
            "<line x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"grid\"/><text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            at + 4.0,
            number(label)
        );
    }
    for (at, label) in x.ticks() {
        let _ =
            write!(html, "<text x=\"{:.2}%\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>", x.percent(at), HEIGHT + 17.0, number(label));
    }
    let _ = write!(html, "<svg width=\"100%\" height=\"{HEIGHT:.0}\" viewBox=\"0 0 100 {HEIGHT:.0}\" preserveAspectRatio=\"none\">");
    let place = |(at, value): (f64, f64)| format!("{:.2},{:.1}", x.inside(at), down(value));
    // What is no number has no place.
    let text = |points: Vec<(f64, f64)>| points.into_iter().filter(|point| !point.1.is_nan()).map(place).collect::<Vec<_>>().join(" ");
    for (i, curve) in curves.iter().enumerate() {
        let look = i % SERIES;
        let line = text(curve.points.iter().map(|point| (point.0, point.1)).collect());
        let known: Vec<(f64, (f64, f64))> = curve.points.iter().filter_map(|point| Some((point.0, point.2?))).collect();
        let up = known.iter().map(|(at, (_, high))| (*at, *high));
        let band = text(up.chain(known.iter().rev().map(|(at, (low, _))| (*at, *low))).collect());
        let _ = write!(
            html,
            "<g class=\"k{look}\"><polygon points=\"{band}\" class=\"band\"/><polyline points=\"{line}\" class=\"line k{look}\" fill=\"none\" \
             stroke-width=\"2\" vector-effect=\"non-scaling-stroke\"/></g>"
        );
    }
    let _ = write!(html, "</svg><text x=\"50%\" y=\"{:.0}\" text-anchor=\"middle\">{}</text></svg>", HEIGHT + 35.0, Escaped(x_label));
    if curves.len() > 1 {
        html.push_str("<p class=\"note\">");
        for (i, curve) in curves.iter().enumerate() {
            let _ = write!(
                html,
                "<span class=\"nb\"><svg width=\"34\" height=\"12\" style=\"display:inline\" aria-hidden=\"true\"><line x1=\"0\" x2=\"34\" y1=\"6\" y2=\"6\" \
                 class=\"line k{}\" stroke-width=\"2\"/></svg> {}</span> ",
                i % SERIES,
                Escaped(curve.name)
            );
        }
        html.push_str("</p>");
    }
    html.push_str("</figure>");
    html
}

/// Where a picture begins: at the second round, if the first alone would take two thirds of the axis. (The first round of some methods changes
/// nothing yet: it only measures how features go together.)
fn first_shown(series: &[Line<'_>]) -> f64 {
    let mut starts: Vec<f64> = series.iter().flat_map(|line| line.points.iter().map(|p| p.0)).collect();
    starts.sort_by(f64::total_cmp);
    starts.dedup();
    let extent = |from: f64| {
        let values = series.iter().flat_map(|line| line.points.iter()).filter(move |p| p.0 >= from).map(|p| p.1);
        range(values).map_or(0.0, |(low, high)| high - low)
    };
    match starts.as_slice() {
        [first, second, _, _, ..] if extent(*second) < extent(*first) / 3.0 => *second,
        [first, ..] => *first,
        [] => f64::NEG_INFINITY,
    }
}

/// First and last value of every line.
fn described(series: &[Line<'_>], x_label: &str) -> String {
    let of = |line: &Line<'_>| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        Some(format!("{}: {} at {} {}, {} at {}", line.name, number(first.1), x_label, number(first.0), number(last.1), number(last.0)))
    };
    series.iter().filter_map(of).collect::<Vec<_>>().join("; ")
}

/// What is no share is at an edge.
fn share(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

/// A square picture of shares on both axes, with its diagonal.
#[derive(Clone, Copy)]
struct Square {
    side: f64,
    /// Steps from 0 to 1 that have a number.
    ticks: u32,
}

impl Square {
    const LEFT: f64 = 44.0;
    const TOP: f64 = 24.0;
    const LARGE: Self = Self { side: 270.0, ticks: 5 };
    const SMALL: Self = Self { side: 130.0, ticks: 2 };

    fn across(self, value: f64) -> f64 {
        Self::LEFT + self.side * share(value)
    }

    fn down(self, value: f64) -> f64 {
        Self::TOP + self.side * (1.0 - share(value))
    }

    /// A figure without its end.
    fn begin(self, title: &str, note: &str, description: &str, x_label: &str, y_label: &str) -> String {
        let (width, height) = (Self::LEFT + self.side + 16.0, Self::TOP + self.side + 42.0);
        let note = if note.is_empty() { String::new() } else { format!("<small>{}</small>", Escaped(note)) };
        let mut html = format!(
            "<figure><figcaption>{}{note}</figcaption><svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\
             <title>{}. {}</title><text x=\"0\" y=\"12\">{}</text>",
            Escaped(title),
            Escaped(title),
            Escaped(description),
            Escaped(y_label)
        );
        let (left, right, top, bottom) = (self.across(0.0), self.across(1.0), self.down(1.0), self.down(0.0));
        for tick in (0..=self.ticks).map(|tick| f64::from(tick) / f64::from(self.ticks)) {
            let (x, y) = (self.across(tick), self.down(tick));
            // Writing into a string cannot fail.
            let _ = write!(
                html,
                "<line x1=\"{left}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"grid\"/>\
                 <line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom:.1}\" class=\"grid\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                left - 6.0,
                y + 4.0,
                number(tick),
                bottom + 16.0,
                number(tick)
            );
        }
        let _ = write!(
            html,
            "<line x1=\"{left:.1}\" y1=\"{bottom:.1}\" x2=\"{right:.1}\" y2=\"{top:.1}\" class=\"axis dash\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            self.across(0.5),
            bottom + 36.0,
            Escaped(x_label)
        );
        html
    }

    /// Mean predictions against observed rates, and the end of the figure.
    fn dots(self, html: &mut String, bins: &[(f64, f64, u64)]) {
        let most = bins.iter().map(|bin| bin.2).max().unwrap_or(1).max(1);
        let size = if self.side < 200.0 { 0.7 } else { 1.0 };
        for (predicted, observed, records) in bins {
            #[allow(clippy::cast_precision_loss, reason = "only the size of a dot")]
            let radius = size * (2.5 + 3.5 * (*records as f64 / most as f64).sqrt());
            let _ = write!(
                html,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\" class=\"k0 hollow\"><title>predicted {}, observed {}, {records} records</title></circle>",
                self.across(*predicted),
                self.down(*observed),
                number(*predicted),
                number(*observed)
            );
        }
        html.push_str("</svg></figure>");
    }
}

/// The ROC curve: shares of the other class and of the positive class that are predicted above a threshold.
pub(crate) fn roc(title: &str, note: &str, points: &[(f64, f64)], area: Option<f64>) -> String {
    let square = Square::LARGE;
    let area = area.map_or_else(String::new, |area| format!("area {}", number(area)));
    let mut html = square.begin(title, note, &area, "false alarms", "found");
    let path: Vec<String> = points.iter().map(|&(x, y)| format!("{:.1},{:.1}", square.across(x), square.down(y))).collect();
    let _ = write!(
        html,
        "<polyline points=\"{}\" class=\"line k0\" stroke-width=\"2.5\"/><text x=\"{:.1}\" y=\"{:.1}\" class=\"ink\" text-anchor=\"end\">{area}</text></svg></figure>",
        path.join(" "),
        square.across(0.96),
        square.down(0.08)
    );
    html
}

/// Mean prediction against observed rate; larger dots are more records.
pub(crate) fn reliability(title: &str, note: &str, bins: &[(f64, f64, u64)]) -> String {
    let mut html = Square::LARGE.begin(title, note, "dots on the dashed line mean what they say", "predicted", "observed");
    Square::LARGE.dots(&mut html, bins);
    html
}

/// The same in small, for one of several.
pub(crate) fn small_reliability(title: &str, description: &str, bins: &[(f64, f64, u64)]) -> String {
    let mut html = Square::SMALL.begin(title, "", description, "predicted", "observed");
    Square::SMALL.dots(&mut html, bins);
    html
}
