//! What makes a difference, and how much: the forest plot, and the values at rest.
//!
//! Effects are in the units that people use ([`effects`](dp_pvi_models::effects)). Where a model's coefficients are no effects, the
//! coefficients themselves are shown.

use std::fmt::Write;

use crate::document::PosteriorDocument;
use dp_pvi_math::normal::cdf;
use dp_pvi_models::effects::{Effect, Measure};
use dp_pvi_posterior::methods::noise_aware::LOW_SIGNAL;
use dp_pvi_protocol::summary::Coefficient;
use dp_pvi_schema::LabelKind;

use crate::report::Run;
use crate::report::axis::{Axis, Labels};
use crate::report::html::Escaped;
use crate::report::numbers::{aligned, capital, number, plural, with_interval};
use crate::report::rows::{Full, Mark, Row, Rows};

/// More rows than this are not drawn; the tables and the file have them all.
const DRAWN: usize = 60;
/// So many are named at the top of the page.
const NAMED: usize = 3;

/// What the forest plot shows of an effect or a coefficient, on the scale on which it adds.
#[derive(Clone, Copy)]
struct Shown<'a> {
    name: &'a str,
    estimate: f64,
    sd: Option<f64>,
    interval: Option<(f64, f64)>,
}

impl<'a> Shown<'a> {
    fn effect(effect: &'a Effect) -> Self {
        let interval = effect.interval_95.map(|interval| (interval.lower, interval.upper));
        Self { name: &effect.name, estimate: effect.estimate, sd: effect.sd, interval }
    }

    fn coefficient(c: &'a Coefficient) -> Self {
        Self { name: &c.name, estimate: c.mean, sd: Some(c.sd), interval: Some((c.interval_95.lower, c.interval_95.upper)) }
    }

    /// Whether its 95 % interval does not contain 0.
    fn excludes_none(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }

    /// Twice the posterior's mass on the side of 0 where the estimate is not; 1 where that is not known.
    fn tails(&self) -> f64 {
        2.0 * cdf(-self.distance())
    }

    /// Distance from 0 in standard deviations; 0 where that is not known.
    fn distance(&self) -> f64 {
        self.sd.map(|sd| (self.estimate / sd).abs()).filter(|distance| !distance.is_nan()).unwrap_or(0.0)
    }

    /// Estimate and 95 % interval as they are read.
    fn texts(&self, scale: Labels) -> [String; 2] {
        let read = |value: f64| match scale {
            Labels::Plain => value,
            Labels::Exp => value.exp(),
        };
        match self.interval {
            Some((low, high)) => with_interval(read(self.estimate), read(low), read(high)).into(),
            None => [aligned(read(self.estimate)), "–".to_owned()],
        }
    }
}

/// All that is compared, and what it is.
struct Forest<'a> {
    rows: Vec<Shown<'a>>,
    /// What a number is: `odds ratio`.
    words: String,
    /// One row, and more of them.
    kind: (&'static str, &'static str),
    scale: Labels,
    /// Of effects.
    measure: Option<Measure>,
}

impl<'a> Forest<'a> {
    fn of(run: &Run<'_>, document: &'a PosteriorDocument) -> Self {
        let compared: Vec<&Effect> = document.effects.iter().filter(|effect| effect.measure.is_comparison()).collect();
        let compares = compares(run);
        match compared.first() {
            Some(first) => Self {
                rows: compared.iter().map(|effect| Shown::effect(effect)).collect(),
                words: first.measure.words(&label(run)),
                kind: ("effect", "effects"),
                scale: scale(first.measure),
                measure: Some(first.measure),
            },
            None => Self {
                rows: (0..).zip(&document.coefficients).filter(|(place, _)| compares(*place)).map(|(_, c)| Shown::coefficient(c)).collect(),
                words: "mean".into(),
                kind: ("coefficient", "coefficients"),
                scale: Labels::Plain,
                measure: None,
            },
        }
    }

    /// The rows that are beyond 0 although there are so many: Holm's method at 5 %, the furthest first.
    fn beyond_none(&self) -> Vec<Shown<'a>> {
        let mut rows = self.furthest(self.rows.len());
        rows.retain(|row| row.sd.is_some());
        let held = rows.iter().zip((1..=rows.len()).rev()).take_while(|(row, left)| row.tails() * count(*left) <= 0.05).count();
        rows[..held].to_vec()
    }

    /// The value that means no difference.
    fn null(&self) -> &'static str {
        match self.scale {
            Labels::Plain => "0",
            Labels::Exp => "1",
        }
    }

    /// Head of the column of estimates.
    fn head(&self) -> &str {
        match (self.scale, self.measure) {
            (Labels::Plain, Some(_)) => "difference",
            (Labels::Exp, _) | (Labels::Plain, None) => &self.words,
        }
    }

    fn furthest(&self, most: usize) -> Vec<Shown<'a>> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by(|&a, &b| self.rows[b].distance().total_cmp(&self.rows[a].distance()));
        order.truncate(most);
        order.iter().map(|&i| self.rows[i]).collect()
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of rows")]
fn count(rows: usize) -> f64 {
    rows as f64
}

fn scale(measure: Measure) -> Labels {
    if measure.has_ratio() { Labels::Exp } else { Labels::Plain }
}

fn label(run: &Run<'_>) -> String {
    run.task.parsed_schema().map_or_else(|_| "the label".into(), |schema| schema.label().column.clone())
}

/// What the odds are of, or what is counted.
fn event(run: &Run<'_>) -> String {
    let Ok(schema) = run.task.parsed_schema() else { return "the label".into() };
    match &schema.label().kind {
        LabelKind::Binary { positive, .. } => format!("{} = {}", schema.label().column, positive.join(" or ")),
        LabelKind::Survival(rule) => rule.event_column.clone(),
        LabelKind::Classes { values } => {
            let (column, named) = (&schema.label().column, run.task.model.rules().classes_with_coefficients(&schema));
            match values.iter().find(|class| !named.contains(class)) {
                Some(reference) if !named.is_empty() => format!("the named class of {column} against {reference}"),
                _ => format!("a higher class of {column}"),
            }
        }
        LabelKind::Number { .. } | LabelKind::Absent => schema.label().column.clone(),
    }
}

/// Whether the parameter at a position compares something: no intercept, and no threshold or baseline of the model's own.
fn compares(run: &Run<'_>) -> impl Fn(usize) -> bool {
    let rules = run.task.model.rules();
    let schema = run.task.parsed_schema().ok().filter(|_| rules.response().scale.is_some());
    let copies = schema.as_ref().map_or(1, |schema| rules.classes_with_coefficients(schema).len().max(1));
    let (before, features) = (rules.own_before_rows() as usize, run.task.features as usize);
    let intercept = schema.as_ref().and_then(|schema| schema.design()?.intercept()).map(|intercept| intercept as usize);
    let has_effects = schema.is_some();
    move |parameter| {
        let of_row = parameter.checked_sub(before).filter(|place| *place < copies * features).map(|place| place % features);
        !has_effects || of_row.is_some_and(|place| Some(place) != intercept)
    }
}

/// Columns that the formula uses and of which no effect is listed: those in products and curves. None where coefficients are shown in place of effects.
fn uncounted(run: &Run<'_>, document: &PosteriorDocument) -> Vec<String> {
    if !document.effects.iter().any(|effect| effect.measure.is_comparison()) {
        return Vec::new();
    }
    let Ok(schema) = run.task.parsed_schema() else { return Vec::new() };
    let listed = |name: &str| document.effects.iter().any(|effect| effect.column.as_deref() == Some(name));
    let uses = |position: usize| schema.design().is_some_and(|design| design.has_coefficients(position));
    let columns = schema.columns().iter().enumerate().filter(|(position, column)| uses(*position) && !listed(&column.name));
    columns.map(|(_, column)| Escaped(&column.name).to_string()).collect()
}

/// What the count leaves out where no correlations were released.
const MEAN_FIELD: &str = " <span class=\"warn\">Where columns are correlated it may be fewer: a mean field releases no correlations, and its intervals can be far too narrow there.</span>";

/// How many differ from no difference, and which by most.
pub(super) fn in_short(run: &Run<'_>, document: &PosteriorDocument) -> String {
    let forest = Forest::of(run, document);
    let beyond = forest.beyond_none();
    let (one, more) = forest.kind;
    let (null, known) = (forest.null(), forest.rows.iter().filter(|row| row.sd.is_some()).count());
    let mut text = match (forest.rows.len(), known) {
        (0, _) => format!("The formula compares nothing: there is no {one}."),
        (all, 0) => format!("No interval is known of the {all} {}.", plural(all, one, more)),
        (_, 1) => format!(
            "The 95 % interval of the one {one} {} {null} (no difference).",
            if beyond.is_empty() { "contains" } else { "does not contain" }
        ),
        (_, known) => format!(
            "Of {known} {more}, {} {} {null} (no difference), at 5 % for all of them together (Holm's method).",
            beyond.len(),
            plural(beyond.len(), "excludes", "exclude")
        ),
    };
    let unknown = forest.rows.len() - known;
    if unknown > 0 && known > 0 {
        // Writing into a string cannot fail.
        let _ = write!(text, " Of {unknown} more no interval is known.");
    }
    let uncounted = uncounted(run, document);
    if !uncounted.is_empty() {
        let _ = write!(text, " Not counted: {}, whose effect depends on another column or is a curve.", uncounted.join(", "));
    }
    if document.is_mean_field() && known > 1 && !beyond.is_empty() {
        text.push_str(MEAN_FIELD);
    }
    let named: Vec<String> = beyond
        .iter()
        .take(NAMED)
        .map(|row| {
            let [estimate, interval] = row.texts(forest.scale);
            format!("{} <span class=\"nb\">({estimate}; {interval})</span>", Escaped(row.name))
        })
        .collect();
    if !named.is_empty() {
        let _ = write!(text, " By most, with {} and 95 % interval: {}.", Escaped(&forest.words), named.join(", "));
    }
    text
}

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    html.push_str("<h2>What makes a difference</h2>");
    let forest = Forest::of(run, document);
    let _ = write!(html, "<p>{}</p>", Escaped(&meaning(run, forest.measure)));
    let all = forest.rows.len();
    let mut rows = forest.rows.clone();
    if all > DRAWN {
        let least = forest.furthest(DRAWN).last().map_or(0.0, Shown::distance);
        rows.retain(|row| row.distance() >= least);
        rows.truncate(DRAWN);
        let _ = write!(html, "<p class=\"note\">The {DRAWN} of {all} that are furthest from no difference, in standard deviations.</p>");
    }
    html.push_str(&picture(&forest, &rows));
    at_rest(html, run, document);
    let _ = write!(html, "<p><b>How to read the intervals.</b> {}", Escaped(&document.intervals.why));
    if run.task.privacy.epsilon.is_some() {
        html.push_str(" They do not contain the bias of clipping, where records were clipped.");
    }
    html.push_str("</p>");
    if let Some(reason) = document.effects.iter().find_map(|effect| effect.no_interval.as_ref()) {
        let _ = write!(html, "<p class=\"note\">– stands where an interval is not known. {}</p>", Escaped(reason));
    }
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

/// What one number says, all else being equal.
fn meaning(run: &Run<'_>, measure: Option<Measure>) -> String {
    let what = event(run);
    match measure {
        Some(Measure::OddsRatio | Measure::Odds) => {
            format!(
                "By how much the odds of {what} are multiplied, all else being equal: 2 doubles them, 0.5 halves them, 1 is no difference."
            )
        }
        Some(Measure::RateRatio | Measure::Rate) => {
            format!("By how much the expected {what} is multiplied, all else being equal: 2 doubles it, 0.5 halves it, 1 is no difference.")
        }
        Some(Measure::HazardRatio | Measure::Hazard) => {
            format!(
                "By how much the hazard of {what}, its rate at any time among those without it so far, is multiplied, all else being equal: 2 doubles it, 0.5 halves it, 1 is no difference."
            )
        }
        Some(Measure::Difference | Measure::Value) => {
            format!("By how much {what} is higher, in its own unit, all else being equal: 0 is no difference.")
        }
        Some(Measure::LogDifference | Measure::LogValue) => {
            format!("By how much log(1 + {what}) is higher, all else being equal: 0 is no difference.")
        }
        Some(Measure::ProbitDifference | Measure::Probit) => {
            format!(
                "By how many standard deviations of a normal distribution {what} becomes more likely, all else being equal: 0 is no difference."
            )
        }
        None => "The model's coefficients, on its own scale: a number is centred and scaled by the schema. 0 is no difference.".into(),
    }
}

fn picture(forest: &Forest<'_>, shown: &[Shown<'_>]) -> String {
    let Some(axis) = axis(shown, forest.scale) else { return String::new() };
    let rows: Vec<Row<'_>> = shown
        .iter()
        .map(|row| Row {
            name: row.name,
            mark: Some(Mark::Interval {
                centre: row.estimate,
                inner: row.sd.map(|sd| (row.estimate - sd, row.estimate + sd)),
                outer: row.interval,
                full: if row.excludes_none() { Full::Yes } else { Full::No },
            }),
            values: row.texts(forest.scale).into(),
        })
        .collect();
    let steps = match forest.scale {
        Labels::Plain => "",
        Labels::Exp => " Equal steps of the axis are equal factors.",
    };
    let note = format!(
        "Dot: estimate, full where the 95 % interval does not contain {}. Thick line: one standard deviation; thin line: 95 % interval.{steps}",
        forest.null()
    );
    let title = match forest.measure {
        Some(_) => capital(&forest.words),
        None => "Coefficients".into(),
    };
    Rows {
        title: &title,
        note: &note,
        heads: (forest.kind.0, "", &[forest.head(), "95 % interval"]),
        axis: &axis,
        reference: Some(0.0),
        rows: &rows,
    }
    .render()
}

/// An axis that holds every centre and most intervals: one that is more than four times as wide as usual ends in an arrow.
fn axis(rows: &[Shown<'_>], labels: Labels) -> Option<Axis> {
    let half = |row: &Shown<'_>| row.interval.map_or(0.0, |(low, high)| 0.5 * (high - low));
    let mut widths: Vec<f64> = rows.iter().map(half).collect();
    widths.sort_by(f64::total_cmp);
    let usual = 4.0 * widths.get(widths.len() / 2).copied().unwrap_or(0.0);
    let ends = rows.iter().flat_map(|row| {
        let half = half(row).min(usual);
        [row.estimate - half, row.estimate + half]
    });
    Axis::around(ends.chain([0.0]), labels, 7)
}

/// Effects that compare nothing: the value of a record at rest.
fn at_rest(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    let rest: Vec<&Effect> = document.effects.iter().filter(|effect| !effect.measure.is_comparison()).collect();
    let Some(first) = rest.first() else { return };
    let mut table = format!(
        "<table><tr><th scope=\"col\">with all else at its reference</th><th scope=\"col\" class=\"n\">{}</th>\
         <th scope=\"col\" class=\"n\">95 % interval</th></tr>",
        Escaped(&first.measure.words(&label(run)))
    );
    for effect in rest {
        let [estimate, interval] = Shown::effect(effect).texts(scale(effect.measure));
        let _ = write!(
            table,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{estimate}</td><td class=\"n\">{interval}</td></tr>",
            Escaped(&effect.name)
        );
    }
    table.push_str("</table>");
    super::scrolled(html, "values at rest", &table);
}
