//! Small SVG plots: lines over rounds, intervals, bars, a reliability diagram. They carry their own text and colours, so that a
//! report is one file.

use std::fmt::Write;

use dp_pvi_accounting::unit::rounded_up;

use crate::html::Escaped;

const INK: &str = "#1c2430";
const FAINT: &str = "#dde2e8";
const MUTED: &str = "#56606d";
/// Colours of series; told apart without red and green.
const SERIES: [&str; 5] = ["#1f5fa8", "#c2571a", "#4d8f3c", "#8452a1", "#7a6a1f"];

const WIDTH: f64 = 720.0;
const FONT: &str = "font-family=\"system-ui,sans-serif\" font-size=\"12\"";

/// One line: a name and points (x, y).
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A point with two intervals, one inside the other.
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) centre: f64,
    pub(crate) inner: (f64, f64),
    pub(crate) outer: (f64, f64),
    /// A second, lighter interval below the first.
    pub(crate) second: Option<(f64, f64)>,
}

/// Lines over a common axis of whole numbers.
pub(crate) fn lines(title: &str, x_label: &str, series: &[Line<'_>]) -> String {
    let (left, right, top, bottom, height) = (64.0, 16.0, 34.0, 44.0, 260.0);
    let points = || series.iter().flat_map(|line| line.points.iter().copied());
    let Some((x_low, x_high)) = range(points().map(|p| p.0)) else { return String::new() };
    let Some((y_low, y_high)) = range(points().map(|p| p.1)) else { return String::new() };
    let (y_low, y_high) = pad(y_low, y_high);
    let x = Scale::new(x_low, x_high.max(x_low + 1.0), left, WIDTH - right);
    let y = Scale::new(y_low, y_high, height - bottom, top);
    let mut svg = open(height, title);
    horizontal_grid(&mut svg, &y, left, WIDTH - right);
    for tick in ticks(x.low, x.high, 10).into_iter().filter(|t| t.fract() == 0.0) {
        text(&mut svg, x.at(tick), height - bottom + 18.0, "middle", MUTED, &number(tick));
    }
    text(&mut svg, f64::midpoint(left, WIDTH - right), height - 8.0, "middle", MUTED, x_label);
    for (i, line) in series.iter().enumerate() {
        let colour = SERIES[i % SERIES.len()];
        let path: Vec<String> = line.points.iter().map(|&(px, py)| format!("{:.1},{:.1}", x.at(px), y.at(py))).collect();
        let _ = write!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", path.join(" "));
        if line.points.len() <= 60 {
            for &(px, py) in &line.points {
                let _ = write!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {} {}, {}</title></circle>",
                    x.at(px),
                    y.at(py),
                    Escaped(line.name),
                    Escaped(x_label),
                    number(px),
                    number(py)
                );
            }
        }
    }
    if series.len() > 1 {
        legend(&mut svg, series.iter().map(|line| line.name), left);
    }
    close(svg)
}

/// Names with a centre, a thick inner and a thin outer interval; zero is marked.
pub(crate) fn intervals(title: &str, rows: &[Row<'_>]) -> String {
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).min(36);
    #[allow(clippy::cast_precision_loss, reason = "at most 36")]
    let left = 24.0 + 7.0 * longest as f64;
    let (right, top, bottom, step) = (16.0, 34.0, 34.0, 20.0);
    #[allow(clippy::cast_precision_loss, reason = "a plot has few rows")]
    let height = top + bottom + step * rows.len() as f64;
    let ends =
        rows.iter().flat_map(|row| [row.outer.0, row.outer.1, 0.0].into_iter().chain(row.second.into_iter().flat_map(|(a, b)| [a, b])));
    let Some((low, high)) = range(ends) else { return String::new() };
    let (low, high) = pad(low, high);
    let x = Scale::new(low, high, left, WIDTH - right);
    let mut svg = open(height, title);
    for tick in ticks(low, high, 8) {
        let colour = if tick == 0.0 { MUTED } else { FAINT };
        let at = x.at(tick);
        let _ = write!(svg, "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{:.1}\" stroke=\"{colour}\"/>", height - bottom);
        text(&mut svg, at, height - bottom + 18.0, "middle", MUTED, &number(tick));
    }
    for (i, row) in rows.iter().enumerate() {
        #[allow(clippy::cast_precision_loss, reason = "a plot has few rows")]
        let y = top + step * (i as f64 + 0.5);
        text(&mut svg, left - 10.0, y + 4.0, "end", INK, &shorten(row.name, 36));
        if let Some((low, high)) = row.second {
            let (from, to, y) = (x.at(low), x.at(high), y + 6.0);
            let _ = write!(
                svg,
                "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"1.5\" stroke-dasharray=\"3 2\"/>",
                SERIES[1]
            );
        }
        for (interval, width) in [(row.outer, 1.5), (row.inner, 5.0)] {
            let _ = write!(
                svg,
                "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"{width}\"/>",
                x.at(interval.0),
                x.at(interval.1),
                SERIES[0]
            );
        }
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#fff\" stroke=\"{}\" stroke-width=\"2\"><title>{}: {}</title></circle>",
            x.at(row.centre),
            SERIES[0],
            Escaped(row.name),
            number(row.centre)
        );
    }
    close(svg)
}

/// Horizontal bars with their values, and a line at a limit.
pub(crate) fn bars(title: &str, rows: &[(&str, f64)], limit: Option<(&str, f64)>) -> String {
    let longest = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(36);
    #[allow(clippy::cast_precision_loss, reason = "at most 36")]
    let left = 24.0 + 7.0 * longest as f64;
    let (right, top, bottom, step) = (64.0, 40.0, 34.0, 26.0);
    #[allow(clippy::cast_precision_loss, reason = "a plot has few rows")]
    let height = top + bottom + step * rows.len() as f64;
    let values = rows.iter().map(|(_, value)| *value).chain(limit.map(|(_, value)| value)).chain([0.0]);
    let Some((_, high)) = range(values) else { return String::new() };
    let x = Scale::new(0.0, if high > 0.0 { high * 1.05 } else { 1.0 }, left, WIDTH - right);
    let mut svg = open(height, title);
    for tick in ticks(x.low, x.high, 8) {
        let at = x.at(tick);
        let _ = write!(svg, "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{:.1}\" stroke=\"{FAINT}\"/>", height - bottom);
        text(&mut svg, at, height - bottom + 18.0, "middle", MUTED, &number(tick));
    }
    for (i, (name, value)) in rows.iter().enumerate() {
        #[allow(clippy::cast_precision_loss, reason = "a plot has few rows")]
        let y = top + step * i as f64 + 4.0;
        text(&mut svg, left - 10.0, y + 13.0, "end", INK, &shorten(name, 36));
        let width = (x.at(*value) - left).max(0.0);
        let _ = write!(svg, "<rect x=\"{left}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"18\" fill=\"{}\"/>", SERIES[0]);
        text(&mut svg, x.at(*value) + 6.0, y + 13.0, "start", INK, &bound(*value));
    }
    if let Some((name, value)) = limit {
        let at = x.at(value);
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"5 4\"/>",
            top - 6.0,
            height - bottom,
            SERIES[1]
        );
        text(&mut svg, at, top - 10.0, if at > WIDTH * 0.7 { "end" } else { "middle" }, SERIES[1], name);
    }
    close(svg)
}

/// Observed rate against mean prediction; the area of a point grows with its records.
pub(crate) fn reliability(title: &str, bins: &[(f64, f64, u64)]) -> String {
    let (left, top, bottom, side) = (64.0, 34.0, 44.0, 320.0);
    let height = top + side + bottom;
    let x = Scale::new(0.0, 1.0, left, left + side);
    let y = Scale::new(0.0, 1.0, top + side, top);
    let mut svg = open(height, title);
    horizontal_grid(&mut svg, &y, left, left + side);
    for tick in ticks(0.0, 1.0, 6) {
        text(&mut svg, x.at(tick), top + side + 18.0, "middle", MUTED, &number(tick));
    }
    text(&mut svg, left + side / 2.0, height - 8.0, "middle", MUTED, "mean predicted probability");
    let _ = write!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{MUTED}\" stroke-dasharray=\"5 4\"/>",
        x.at(0.0),
        y.at(0.0),
        x.at(1.0),
        y.at(1.0)
    );
    let most = bins.iter().map(|bin| bin.2).max().unwrap_or(1).max(1);
    for (predicted, observed, records) in bins {
        #[allow(clippy::cast_precision_loss, reason = "only the size of a dot")]
        let radius = 3.0 + 5.0 * (*records as f64 / most as f64).sqrt();
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\" fill=\"{}\" fill-opacity=\"0.75\"><title>predicted {}, observed {}, {records} records</title></circle>",
            x.at(*predicted),
            y.at(*observed),
            SERIES[0],
            number(*predicted),
            number(*observed)
        );
    }
    let note = left + side + 24.0;
    text(&mut svg, note, top + 40.0, "start", MUTED, "observed rate of the positive class (vertical)");
    text(&mut svg, note, top + 58.0, "start", MUTED, "against prediction; on the dashed line");
    text(&mut svg, note, top + 76.0, "start", MUTED, "predictions are calibrated");
    close(svg)
}

/// A bound, rounded up, as short as it can be read.
pub(crate) fn bound(value: f64) -> String {
    let digits = if (1e-3..1e5).contains(&value) { 4 } else { 8 };
    rounded_up(value, digits).trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number as short as it can be read.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let text = if value == 0.0 {
        return "0".into();
    } else if !(1e-3..1e5).contains(&size) {
        return format!("{value:.2e}");
    } else if size >= 100.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.4}")
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn new(low: f64, high: f64, from: f64, to: f64) -> Self {
        Self { low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| v.is_finite()).fold(None, |range, v| match range {
        None => Some((v, v)),
        Some((low, high)) => Some((f64::min(low, v), f64::max(high, v))),
    })
}

fn pad(low: f64, high: f64) -> (f64, f64) {
    let space = if high > low { 0.06 * (high - low) } else { low.abs().max(1.0) * 0.1 };
    (low - space, high + space)
}

/// Round numbers inside a range, at most `most` and a few.
fn ticks(low: f64, high: f64, most: u32) -> Vec<f64> {
    let raw = (high - low) / f64::from(most);
    if !(raw.is_finite() && raw > 0.0) {
        return vec![low];
    }
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= raw).unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    (0..=most).map(|i| (first + f64::from(i)) * step).map(|t| if t.abs() < step * 1e-9 { 0.0 } else { t }).filter(|t| *t <= high).collect()
}

fn open(height: f64, title: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\" {FONT}>\
         <title>{}</title>",
        Escaped(title)
    );
    let _ = write!(svg, "<text x=\"0\" y=\"16\" font-weight=\"600\" fill=\"{INK}\">{}</text>", Escaped(title));
    svg
}

fn close(mut svg: String) -> String {
    svg.push_str("</svg>");
    svg
}

fn horizontal_grid(svg: &mut String, y: &Scale, left: f64, right: f64) {
    for tick in ticks(y.low, y.high, 6) {
        let at = y.at(tick);
        let _ = write!(svg, "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{FAINT}\"/>");
        text(svg, left - 8.0, at + 4.0, "end", MUTED, &number(tick));
    }
}

fn legend<'a>(svg: &mut String, names: impl Iterator<Item = &'a str>, left: f64) {
    let mut x = left;
    for (i, name) in names.enumerate() {
        let _ = write!(svg, "<rect x=\"{x:.1}\" y=\"22\" width=\"12\" height=\"4\" fill=\"{}\"/>", SERIES[i % SERIES.len()]);
        text(svg, x + 17.0, 28.0, "start", MUTED, name);
        #[allow(clippy::cast_precision_loss, reason = "a short name")]
        let advance = 34.0 + 7.0 * name.chars().count() as f64;
        x += advance;
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, colour: &str, content: &str) {
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}</text>", Escaped(content));
}

fn shorten(name: &str, most: usize) -> String {
    if name.chars().count() <= most { name.to_owned() } else { name.chars().take(most - 1).chain(['…']).collect() }
}
