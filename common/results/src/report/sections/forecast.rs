//! Whether the run was worth what could be said before it.

use std::fmt::Write;

use crate::document::PosteriorDocument;
use crate::forecast::{CoefficientForecast, Range};

use crate::report::Run;
use crate::report::axis::{Axis, Labels};
use crate::report::html::Escaped;
use crate::report::numbers::{aligned, interval, number, plural};
use crate::report::rows::{Mark, Row, Rows};

/// More coefficients than this are not drawn.
const DRAWN: usize = 60;

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    let Some(forecast) = &run.forecast else { return };
    html.push_str("<h2>Was it as forecast?</h2>");
    let forecast = match forecast {
        Ok(forecast) => forecast,
        Err(reason) => {
            // Writing into a string cannot fail.
            let _ = write!(html, "<p>There is no forecast: {}.</p>", Escaped(&reason.to_string()));
            return;
        }
    };
    let pairs: Vec<(&CoefficientForecast, f64)> = forecast
        .coefficients
        .iter()
        .filter_map(|c| {
            let came = document.coefficients.iter().find(|coefficient| coefficient.name == c.name)?;
            Some((c, came.interval_90.upper - came.interval_90.lower))
        })
        .collect();
    let within = |(c, came): &&(&CoefficientForecast, f64)| (c.width.low..=c.width.high).contains(came);
    let inside = pairs.iter().filter(within).count();
    let wider = pairs.iter().filter(|(c, came)| *came > c.width.high).count();
    let narrower = pairs.len() - inside - wider;
    let _ = write!(
        html,
        "<p>{inside} of {} {} as wide as forecast; {wider} {} wider, {narrower} narrower. The forecast is from public values alone: the same task over {} \
         made-up federations of the same size, drawn from the schema and the prior.</p>",
        pairs.len(),
        plural(pairs.len(), "interval is", "intervals are"),
        plural(wider, "is", "are"),
        forecast.federations
    );
    let Range { low, median, high } = forecast.loss;
    let _ = write!(
        html,
        "<p class=\"note\">What protection was expected to cost in predictions: {} of the mean log-likelihood a record ({} to {}).</p>",
        number(median),
        number(low),
        number(high)
    );
    html.push_str(&picture(&pairs));
}

fn picture(pairs: &[(&CoefficientForecast, f64)]) -> String {
    let shown = &pairs[..pairs.len().min(DRAWN)];
    let ends = shown.iter().flat_map(|(c, came)| [c.width.low, c.width.high, *came]).filter(|width| *width > 0.0).map(f64::ln);
    let Some(axis) = Axis::around(ends, Labels::Exp, 6) else { return String::new() };
    let rows: Vec<Row<'_>> = shown
        .iter()
        .map(|(c, came)| {
            let Range { low, median, high } = c.width;
            Row {
                name: &c.name,
                mark: Some(Mark::Range { forecast: (low.ln(), median.ln(), high.ln()), outcome: came.ln() }),
                values: vec![interval(low, high), aligned(*came)],
            }
        })
        .collect();
    Rows {
        title: "Width of 90 % intervals, forecast and come",
        note: "Bar: where 90 % of the made-up federations lie, with their median. Dot: this run. On the scale of the model's coefficients.",
        heads: ("coefficient", "", &["forecast", "this run"]),
        axis: &axis,
        reference: None,
        rows: &rows,
    }
    .render()
}
