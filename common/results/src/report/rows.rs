//! A table whose rows have a picture: intervals, bars, or a range with what came of it, over one axis. The numbers are beside the picture, in
//! the table, so the picture is hidden from screen readers.
//!
//! Pictures take the width that there is: positions are percentages, texts keep their size. On a phone the picture stands below the row's name and
//! numbers.

use std::fmt::Write;

use crate::report::axis::Axis;
use crate::report::html::Escaped;
use crate::report::numbers::number;

/// More rows than this have their axis above as well.
const SHORT: usize = 12;

/// What a row shows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    /// A centre with an interval, thick up to `inner`. A full dot says that the interval does not contain the reference.
    Interval { centre: f64, inner: Option<(f64, f64)>, outer: Option<(f64, f64)>, full: Full },
    /// A bar from 0.
    Bar(f64),
    /// What was forecast (5 %, median, 95 %), and what came.
    Range { forecast: (f64, f64, f64), outcome: f64 },
}

/// Whether a dot is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// Filled.
    Yes,
    /// A ring.
    No,
}

/// A row: name, picture, and the texts of the other columns (HTML).
#[derive(Debug, Clone)]
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) mark: Option<Mark>,
    pub(crate) values: Vec<String>,
}

/// The whole table.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) title: &'a str,
    /// How to read it.
    pub(crate) note: &'a str,
    /// Heads: of the names, of the picture, of the numbers.
    pub(crate) heads: (&'a str, &'a str, &'a [&'a str]),
    pub(crate) axis: &'a Axis,
    /// A value that is marked in every row, such as "no effect".
    pub(crate) reference: Option<f64>,
    pub(crate) rows: &'a [Row<'a>],
}

impl Rows<'_> {
    /// The table as HTML; nothing without rows.
    pub(crate) fn render(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let (names, picture, numbers) = self.heads;
        let mut html = format!(
            "<figure class=\"rowsfig\"><figcaption>{}<small>{}{}</small></figcaption><table class=\"rows\"><thead><tr><th scope=\"col\">{}</th>\
             <th scope=\"col\">{}</th>",
            Escaped(self.title),
            Escaped(self.note),
            self.axis.remark(),
            Escaped(names),
            Escaped(picture)
        );
        // Writing into a string cannot fail.
        for head in numbers {
            let _ = write!(html, "<th scope=\"col\" class=\"n\">{}</th>", Escaped(head));
        }
        html.push_str("</tr>");
        if self.rows.len() > SHORT {
            self.ticks(&mut html, -6.0);
        }
        html.push_str("</thead><tbody>");
        for row in self.rows {
            let _ = write!(html, "<tr><th scope=\"row\">{}</th><td class=\"pic\">{}</td>", Escaped(row.name), self.picture(row.mark));
            for value in &row.values {
                let _ = write!(html, "<td class=\"n\">{value}</td>");
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody><tfoot>");
        self.ticks(&mut html, 0.0);
        html.push_str("</tfoot></table></figure>");
        html
    }

    /// A row of the axis' numbers.
    fn ticks(&self, html: &mut String, down: f64) {
        let _ = write!(html, "<tr class=\"ticks\"><td class=\"empty\"></td><td class=\"pic\"><svg height=\"18\" aria-hidden=\"true\">");
        for (at, label) in self.axis.ticks() {
            let _ = write!(
                html,
                "<text x=\"{:.2}%\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                self.axis.percent(at),
                13.0 - down,
                number(label)
            );
        }
        html.push_str("</svg></td>");
        for _ in self.heads.2 {
            html.push_str("<td class=\"empty\"></td>");
        }
        html.push_str("</tr>");
    }

    fn picture(&self, mark: Option<Mark>) -> String {
        let mut svg = String::from("<svg class=\"row\" aria-hidden=\"true\">");
        for (at, _) in self.axis.ticks() {
            self.upright(&mut svg, at, "grid");
        }
        if let Some(reference) = self.reference {
            self.upright(&mut svg, reference, "ref");
        }
        match mark {
            Some(Mark::Interval { centre, inner, outer, full }) => {
                for (interval, width) in [(outer, 2.0), (inner, 5.0)] {
                    if let Some((low, high)) = interval {
                        self.stretch(&mut svg, low, high, width, "k0");
                    }
                }
                self.dot(&mut svg, centre, full, "k0");
            }
            Some(Mark::Bar(value)) => self.stretch(&mut svg, 0.0, value, 12.0, "k0"),
            Some(Mark::Range { forecast: (low, median, high), outcome }) => {
                self.stretch(&mut svg, low, high, 8.0, "k1");
                let at = self.axis.inside(median);
                let _ = write!(
                    svg,
                    "<line x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"20%\" y2=\"80%\" class=\"k1\" stroke=\"var(--k)\" stroke-width=\"2\"/>"
                );
                self.dot(&mut svg, outcome, Full::Yes, "k0");
            }
            None => {}
        }
        svg.push_str("</svg>");
        svg
    }

    fn upright(&self, svg: &mut String, at: f64, class: &str) {
        let at = self.axis.percent(at);
        if (0.0..=100.0).contains(&at) {
            let _ = write!(svg, "<line x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"100%\" class=\"{class}\"/>");
        }
    }

    /// A horizontal line; where it leaves the axis, an arrow. Nothing where an end is no number.
    fn stretch(&self, svg: &mut String, low: f64, high: f64, width: f64, class: &str) {
        let (from, to) = (self.axis.percent(low), self.axis.percent(high));
        if from.is_nan() || to.is_nan() {
            return;
        }
        let _ = write!(
            svg,
            "<line x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"50%\" y2=\"50%\" class=\"{class}\" stroke=\"var(--k)\" stroke-width=\"{width}\"/>",
            from.clamp(0.0, 100.0),
            to.clamp(0.0, 100.0)
        );
        arrows(svg, from.min(to), from.max(to), class);
    }

    /// A dot; beyond the axis, an arrow.
    fn dot(&self, svg: &mut String, at: f64, full: Full, class: &str) {
        let at = self.axis.percent(at);
        if (0.0..=100.0).contains(&at) {
            let look = match full {
                Full::Yes => "full",
                Full::No => "hollow",
            };
            let _ = write!(svg, "<circle cx=\"{at:.2}%\" cy=\"50%\" r=\"5\" class=\"{class} {look}\"/>");
        } else {
            arrows(svg, at, at, class);
        }
    }
}

/// Arrows at the edges beyond which positions lie.
fn arrows(svg: &mut String, least: f64, most: f64, class: &str) {
    for (beyond, at, tip) in [(least < 0.0, 0, -7), (most > 100.0, 100, 7)] {
        if beyond {
            // Writing into a string cannot fail.
            let _ = write!(svg, "<svg x=\"{at}%\" y=\"50%\" class=\"{class}\"><path d=\"M0 -5L{tip} 0L0 5z\" class=\"full\"/></svg>");
        }
    }
}
