//! Drawings as SVG files of their own: charts of lines over two axes, rows of intervals, and texts, lines and squares at given places. Lengths are pixels from the upper left
//! corner. What is drawn from the same numbers is the same file.

use std::fmt::Write;

use crate::report::axis::{Axis, Labels};
use crate::report::html::Escaped;
use crate::report::numbers::number;

/// Colours of series, in their order.
pub const COLOURS: [&str; 8] = ["#1f5fa8", "#c2571a", "#2e7d4f", "#7a4a9e", "#a32626", "#5b6b7c", "#a8790a", "#0f7f8c"];
const INK: &str = "#1c2430";
const GRID: &str = "#d8dee6";

/// A place in a drawing: left, top, width, height.
pub type Place = (f64, f64, f64, f64);

/// Where a text stands, seen from the place that is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// To the right of it.
    Start,
    /// Around it.
    Middle,
    /// To the left of it.
    End,
}

/// A line over a chart.
#[derive(Debug, Clone, Default)]
pub struct Series<'a> {
    /// Its name beside the line's colour.
    pub name: &'a str,
    /// Ascending in x.
    pub points: Vec<(f64, f64)>,
    /// Intervals of y at an x: x, low, high.
    pub intervals: Vec<(f64, f64, f64)>,
    /// Whether every point has a dot.
    pub dots: bool,
}

/// One axis of a chart.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scale<'a> {
    /// What it is.
    pub label: &'a str,
    /// Where it begins and ends; around all values, where nothing is said.
    pub ends: Option<(f64, f64)>,
    /// Equal steps are equal factors; values are above 0.
    pub logarithmic: bool,
}

/// Lines over two axes.
#[derive(Debug, Clone, Default)]
pub struct Chart<'a> {
    /// What it shows.
    pub title: &'a str,
    /// Across.
    pub x: Scale<'a>,
    /// Up.
    pub y: Scale<'a>,
    /// The lines.
    pub series: Vec<Series<'a>>,
    /// Whether their names are in the chart.
    pub named: bool,
}

/// A row with a name, an interval with a dot in it, and a mark.
#[derive(Debug, Clone)]
pub struct Row<'a> {
    /// Its name.
    pub name: &'a str,
    /// Ends of the interval.
    pub ends: (f64, f64),
    /// Where the dot is.
    pub dot: f64,
    /// Where the mark is.
    pub mark: f64,
}

/// A drawing.
#[derive(Debug, Clone)]
pub struct Picture {
    width: f64,
    height: f64,
    body: String,
}

impl Scale<'_> {
    fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.max(f64::MIN_POSITIVE).ln() } else { value }
    }

    fn axis(&self, values: impl Iterator<Item = f64>, most: u32) -> Option<Axis> {
        match self.ends {
            Some((low, high)) if !self.logarithmic => Some(Axis::exact(low, high, most)),
            ends => {
                let values = values.chain(ends.into_iter().flat_map(|(low, high)| [low, high])).map(|value| self.place(value));
                Axis::around(values, if self.logarithmic { Labels::Exp } else { Labels::Plain }, most)
            }
        }
    }
}

impl Picture {
    /// An empty drawing on white ground.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// The file.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"system-ui, sans-serif\" fill=\"{INK}\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
        )
    }

    /// Adds an element. Writing into a string cannot fail.
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    /// Writes a text of this size.
    pub fn text(&mut self, (x, y): (f64, f64), size: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{}</text>", Escaped(text)));
    }

    /// Draws a line of this colour and width.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str, width: f64) {
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        ));
    }

    /// Fills a square whose upper left corner is given with a shade between 0 (black) and 255.
    pub fn square(&mut self, (x, y): (f64, f64), side: f64, shade: u8) {
        self.add(format_args!("<rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" fill=\"rgb({shade},{shade},{shade})\"/>"));
    }

    fn dot(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        self.add(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>"));
    }

    /// Numbers below a chart, with the lines above them, and what they are.
    fn across(&mut self, (left, top, width, height): Place, axis: &Axis, label: &str) {
        for (at, value) in axis.ticks() {
            let x = left + width * axis.inside(at) / 100.0;
            self.line((x, top), (x, top + height), GRID, 1.0);
            self.text((x, top + height + 16.0), 12.0, Anchor::Middle, &number(value));
        }
        self.text((left + width / 2.0, top + height + 34.0), 12.0, Anchor::Middle, label);
    }

    /// Draws a chart; nothing but its title where it has no point.
    pub fn chart(&mut self, (left, top, width, height): Place, chart: &Chart<'_>) {
        self.text((left + width / 2.0, top + 22.0), 15.0, Anchor::Middle, chart.title);
        let (left, top, width, height) = (left + 66.0, top + 40.0, width - 84.0, height - 86.0);
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let ends = chart.series.iter().flat_map(|series| &series.intervals).flat_map(|&(_, low, high)| [low, high]);
        let (Some(x), Some(y)) = (chart.x.axis(points().map(|p| p.0), 7), chart.y.axis(points().map(|p| p.1).chain(ends), 7)) else {
            return;
        };
        self.across((left, top, width, height), &x, chart.x.label);
        let down = |value: f64| top + height * (1.0 - y.inside(value) / 100.0);
        for (at, value) in y.ticks() {
            self.line((left, down(at)), (left + width, down(at)), GRID, 1.0);
            self.text((left - 6.0, down(at) + 4.0), 12.0, Anchor::End, &number(value));
        }
        self.text((left - 60.0, top - 8.0), 12.0, Anchor::Start, chart.y.label);
        let at = |(a, b): (f64, f64)| (left + width * x.inside(chart.x.place(a)) / 100.0, down(chart.y.place(b)));
        for (number, series) in chart.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let places: Vec<(f64, f64)> = series.points.iter().filter(|point| !point.1.is_nan()).map(|point| at(*point)).collect();
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            self.add(format_args!("<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", path.join(" ")));
            for &(x, low, high) in &series.intervals {
                self.line(at((x, low)), at((x, high)), colour, 1.5);
            }
            if series.dots {
                places.into_iter().for_each(|place| self.dot(place, 3.0, colour));
            }
        }
        if chart.named {
            let mut row = top + 14.0;
            for (number, series) in chart.series.iter().enumerate() {
                self.line((left + width - 150.0, row), (left + width - 132.0, row), COLOURS[number % COLOURS.len()], 2.0);
                self.text((left + width - 126.0, row + 4.0), 11.0, Anchor::Start, series.name);
                row += 16.0;
            }
        }
    }

    /// Draws rows of intervals over one axis that begins at 0.
    pub fn rows(&mut self, (left, top, width, height): Place, title: &str, label: &str, rows: &[Row<'_>]) {
        self.text((left + width / 2.0, top + 22.0), 14.0, Anchor::Middle, title);
        // Long names have room, up to half of the drawing.
        let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        #[allow(clippy::cast_precision_loss, reason = "a number of letters")]
        let room = (7.0 * longest as f64 + 24.0).clamp(110.0, width / 2.0);
        let (left, top, width, height) = (left + room, top + 36.0, width - room - 18.0, height - 82.0);
        let end = rows.iter().map(|row| row.ends.1.max(row.mark)).filter(|end| end.is_finite()).fold(0.1, f64::max) * 1.05;
        let axis = Axis::exact(0.0, end, 7);
        self.across((left, top, width, height), &axis, label);
        #[allow(clippy::cast_precision_loss, reason = "a number of rows")]
        let step = height / rows.len().max(1) as f64;
        let x = |value: f64| left + width * axis.inside(value) / 100.0;
        let mut y = top + step / 2.0;
        for row in rows {
            self.text((left - 8.0, y + 4.0), 12.0, Anchor::End, row.name);
            self.line((x(row.ends.0), y), (x(row.ends.1), y), COLOURS[0], 3.0);
            self.dot((x(row.dot), y), 4.0, COLOURS[0]);
            let (at, red) = (x(row.mark), COLOURS[4]);
            self.add(format_args!("<path d=\"M{at:.1} {:.1}l5 9h-10z\" fill=\"{red}\"/>", y - 5.0));
            y += step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chart, Picture, Row, Scale, Series};

    #[test]
    fn a_chart_has_its_numbers_names_and_lines_and_shows_no_markup_of_a_name() {
        let series = |name, shift: f64| Series {
            name,
            points: vec![(1.0, shift), (10.0, 1.0 + shift)],
            intervals: vec![(1.0, shift - 0.5, shift + 0.5)],
            dots: true,
        };
        let x = Scale { label: "rounds", logarithmic: true, ..Scale::default() };
        let chart = Chart { title: "a < b", x, series: vec![series("one", 0.0), series("<two>", 2.0)], named: true, ..Chart::default() };
        let mut picture = Picture::new(400.0, 300.0);
        picture.chart((0.0, 0.0, 400.0, 300.0), &chart);
        let svg = picture.to_svg();
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (2, 4));
        for text in [">a &lt; b<", ">rounds<", ">one<", ">&lt;two&gt;<", ">1<", ">10<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn rows_of_any_numbers_stay_inside() {
        let mut picture = Picture::new(400.0, 300.0);
        let row = |name, end| Row { name, ends: (0.1, end), dot: 0.2, mark: f64::NAN };
        picture.rows((0.0, 0.0, 400.0, 300.0), "widths", "width", &[row("age", f64::INFINITY), row("sex", 0.4)]);
        let svg = picture.to_svg();
        assert!(svg.contains(">age<") && svg.contains(">sex<") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        picture.chart((0.0, 0.0, 400.0, 300.0), &Chart { title: "nothing", ..Chart::default() });
        assert!(picture.to_svg().contains(">nothing<"));
    }
}
