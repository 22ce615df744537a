//! `predict`: probabilities or numbers for new rows, each with its uncertainty. Everything stays on this machine.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use dp_pvi_data::Changed;
use dp_pvi_inference::records::RecordView;
use dp_pvi_models::prediction::Level;
use dp_pvi_models::prediction::{Example, Prediction, largest};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::UnitTable;
use dp_pvi_programs::outputs;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::predictive::Predictor;
use dp_pvi_protocol::text::visible;
use dp_pvi_results::convergence::Verdict;
use dp_pvi_results::document::{PosteriorDocument, Which};
use dp_pvi_schema::{LabelKind, NumberRule, Schema, Transform};
use serde_json::{Value, json};

use crate::error::{ClientError, Result};
use crate::output::{Format, Output};
use crate::personal::{PRIVATE, PersonalDocument};

/// Predicts every row of `data`; CSV (or JSON lines) to `target` or stdout.
///
/// With a personal posterior the predictions are private: the log says so, every JSON line says so, and only its owner can read `target`. `id` is a column of the files whose text is written beside every row's number.
///
/// A row that the schema drops, or that cannot be read, has no prediction: its cells stay empty and the last one says why, so that line i
/// is always row i. A row whose numbers the schema changes is predicted as it would have been used in a run; the last cell and the log name its columns.
///
/// # Errors
/// [`ClientError::Config`] for an `id` that has the name of a column of the result, [`ClientError::InvalidFile`] for the posterior, [`ClientError::Data`] for a file as a whole or where no row can be read,
/// [`ClientError::Unavailable`] for the result.
pub fn predict(basis: Basis, data: &[PathBuf], level: Level, id: Option<Id>, target: Option<&Path>, output: Output) -> Result<()> {
    let Model { task, predictor, secrecy, file } = basis.read()?;
    let invalid = |message: Problem| ClientError::InvalidFile { file: file.clone(), message };
    let schema = task.parsed_schema().map_err(|e| invalid(Problem::of(e)))?;
    let id = match id {
        None => None,
        Some(Id::Column(column)) => Some(column),
        Some(Id::OfUnits) => Some(
            schema
                .unit_column()
                .map(str::to_owned)
                .ok_or_else(|| ClientError::config("--id", "the schema has no unit_column: name the column, as in `--id patient`"))?,
        ),
    };
    data.iter().chain([&file]).for_each(|read| outputs::needs(read));
    if let Some(target) = target {
        outputs::refuse(target).map_err(|e| ClientError::config("output", format!("{}: {e}", target.display())))?;
    }
    let rows = Rows { predictor, schema, level, id, secrecy };
    rows.check_id(output.format())?;
    let read = match &rows.id {
        None => dp_pvi_data::load_for_prediction(&rows.schema, data),
        Some(column) => dp_pvi_data::load_for_prediction_with_ids(&rows.schema, data, column),
    };
    let read = read.map_err(|e| ClientError::Data(Problem::of(e)))?;
    rows.put(&read, target, output.format())?;
    let (unreadable, all) = (read.unreadable.len(), read.table.len());
    if let Some(words) = changes(&read.changed, all) {
        tracing::warn!("{words}");
    }
    if unreadable == 0 {
        return Ok(());
    }
    let words = format!("{unreadable} of {all} rows cannot be read and have no prediction; the column `problem` says why");
    if unreadable == all {
        return Err(ClientError::Data(words.into()));
    }
    tracing::warn!("{words}");
    Ok(())
}

/// How many rows were predicted from other values than the file has, and which columns those are of; never a value.
fn changes(changed: &[Changed], all: usize) -> Option<String> {
    let mut columns: BTreeMap<&str, usize> = BTreeMap::new();
    changed.iter().flat_map(|row| &row.columns).for_each(|column| *columns.entry(column).or_default() += 1);
    let shortened = changed.iter().filter(|row| row.shortened).count();
    let outside = (!columns.is_empty()).then(|| {
        let rows = changed.iter().filter(|row| !row.columns.is_empty()).count();
        let each: Vec<String> = columns.iter().map(|(column, rows)| format!("{} in {rows}", visible(column))).collect();
        format!(
            "{rows} of {all} rows have numbers outside of the schema's range ({}): the end of the range is taken in their place, as in the run",
            each.join(", ")
        )
    });
    let longer = (shortened > 0)
        .then(|| format!("{shortened} of {all} rows are longer than the schema's norm_bound: they are scaled down to it, as in the run"));
    let words: Vec<String> = outside.into_iter().chain(longer).collect();
    (!words.is_empty()).then(|| format!("{}; the column `problem` marks them", words.join("; ")))
}

/// The same of one row.
fn change(changed: &Changed) -> String {
    let columns: Vec<String> = changed.columns.iter().map(|column| format!("`{column}`")).collect();
    let outside = (!columns.is_empty()).then(|| format!("outside of its range, whose end is taken: {}", columns.join(", ")));
    let longer = changed.shortened.then(|| "longer than norm_bound, and scaled down to it".to_owned());
    outside.into_iter().chain(longer).collect::<Vec<_>>().join("; ")
}

/// What predicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// A file `posterior.json`, and which of its posteriors.
    Posterior(PathBuf, Which),
    /// The file of `personalise`.
    Personal(PathBuf),
}

/// Whether predictions may be shown to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Secrecy {
    Open,
    Private,
}

struct Model {
    task: ResolvedTask,
    predictor: Predictor,
    secrecy: Secrecy,
    file: PathBuf,
}

impl Basis {
    fn read(self) -> Result<Model> {
        match self {
            Self::Posterior(file, which) => {
                let invalid = |message: Problem| ClientError::InvalidFile { file: file.clone(), message };
                let document = document(&file)?;
                let task = document.task().map_err(|e| invalid(Problem::of(e)))?;
                let predictor = document.predictor_with(which).map_err(|e| invalid(Problem::of(e)))?;
                warn_of_intervals(&document, which);
                Ok(Model { task, predictor, secrecy: Secrecy::Open, file })
            }
            Self::Personal(file) => {
                let document = PersonalDocument::read(&file)?;
                let task = document.task().map_err(|e| ClientError::InvalidFile { file: file.clone(), message: Problem::of(e) })?;
                let predictor = document.predictor(&task)?;
                tracing::warn!("PRIVATE: these predictions are {PRIVATE}");
                Ok(Model { task, predictor, secrecy: Secrecy::Private, file })
            }
        }
    }
}

/// Reads posterior.json.
///
/// # Errors
/// [`ClientError::InvalidFile`].
pub(super) fn document(posterior: &Path) -> Result<PosteriorDocument> {
    let invalid = |message: Problem| ClientError::InvalidFile { file: posterior.to_owned(), message };
    let text = std::fs::read_to_string(posterior).map_err(|e| invalid(Problem::said(format!("cannot be read ({e})"), e)))?;
    PosteriorDocument::from_json(&text).map_err(|e| invalid(Problem::of(e)))
}

/// Says on stderr what the intervals of one of a document's posteriors leave out.
pub(super) fn warn_of_intervals(document: &PosteriorDocument, which: Which) {
    match (which, &document.plain) {
        (Which::Plain, Some(_)) => tracing::warn!("--intervals plain leaves the noise that protects the records out of the intervals"),
        _ if !document.intervals.complete => tracing::warn!("{}", document.intervals.why),
        _ if document.convergence.as_ref().is_some_and(|convergence| convergence.verdict == Verdict::NotConverged) => {
            tracing::warn!("the run had not converged, and the intervals are wide for that reason: run it with more rounds");
        }
        // With a mean field they say what they leave out.
        _ if document.signal_to_noise.is_some() && document.is_mean_field() => {
            tracing::warn!("{}", document.intervals.why);
        }
        _ => {}
    }
    if let Some(without) = &document.without {
        tracing::warn!("these predictions are without {}: {}", without.site, without.remarks.join(" "));
    }
}

/// Which column of the files is written beside every prediction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Id {
    /// The schema's `unit_column`.
    OfUnits,
    /// This one.
    Column(String),
}

struct Rows {
    predictor: Predictor,
    schema: Schema,
    level: Level,
    /// Name of the id column.
    id: Option<String>,
    secrecy: Secrecy,
}

/// What is written of one prediction.
#[derive(Debug, Clone, PartialEq)]
enum Line {
    /// P(y = 1) and the interval of that probability under the posterior.
    Class { probability: f64, lower: f64, upper: f64 },
    /// P(no event until the horizon) with its interval.
    Survival { horizon: f64, probability: f64, lower: f64, upper: f64 },
    /// The most likely class, and P(y = k) of every class.
    Classes { class: usize, probabilities: Vec<f64> },
    /// Component of a mixture, from 0, and its responsibility.
    Component { component: usize, probability: f64 },
    /// In the unit of the file. With a transform the middle is the median and there is no standard deviation.
    Number { middle: f64, sd: Option<f64>, lower: f64, upper: f64 },
}

impl Rows {
    /// The id may not stand under a name that another column of the result has. JSON writes it under a name of its own.
    fn check_id(&self, format: Format) -> Result<()> {
        let Some(id) = self.id.as_deref().filter(|_| format == Format::Text) else { return Ok(()) };
        let own = columns(&self.shape(), &self.schema);
        if id != ROW && !own.iter().any(|column| column == id) {
            return Ok(());
        }
        let names = [ROW].into_iter().chain(own.iter().map(String::as_str)).collect::<Vec<_>>().join(", ");
        Err(ClientError::config(
            "--id",
            format!(
                "the result has a column {id} of its own (its columns are {names}): rename the file's, or take --format json, which writes the id as `id`"
            ),
        ))
    }

    /// Writes to a file, or to stdout.
    fn put(&self, read: &dp_pvi_data::Rows, target: Option<&Path>, format: Format) -> Result<()> {
        let Some(path) = target else {
            return match self.write(read, format, &mut std::io::stdout().lock()) {
                // Anyone who reads has seen enough.
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                result => result.map_err(|e| ClientError::Unavailable(Problem::said(format!("stdout: {e}"), e))),
            };
        };
        let unavailable = |e: std::io::Error| ClientError::Unavailable(Problem::said(format!("{}: {e}", path.display()), e));
        let mut text = Vec::new();
        self.write(read, format, &mut text).map_err(unavailable)?;
        let write = if self.secrecy == Secrecy::Private { outputs::write_private } else { outputs::write };
        write(path, &text).map_err(unavailable)
    }

    fn write(&self, read: &dp_pvi_data::Rows, format: Format, out: &mut impl Write) -> std::io::Result<()> {
        let shape = self.shape();
        if format == Format::Text {
            let own = columns(&shape, &self.schema);
            let names: Vec<String> = [ROW].into_iter().chain(self.id.as_deref()).chain(own.iter().map(String::as_str)).map(cell).collect();
            writeln!(out, "{}", names.join(","))?;
        }
        let mut changed = read.changed.iter().peekable();
        let mut unreadable = read.unreadable.iter().peekable();
        for row in 0..read.table.len() {
            let line = read.table.unit(row).records().next().map(|record| self.line(record));
            let problem =
                unreadable.next_if(|unreadable| unreadable.row == row as u64 + 1).map(|unreadable| unreadable.problem.to_string());
            let changed = changed.next_if(|changed| changed.row == row as u64 + 1);
            let id = read.ids.get(row);
            match format {
                Format::Text => {
                    let id = id.map(|id| format!("{},", cell(id))).unwrap_or_default();
                    let problem = quoted(line.is_some(), problem.or_else(|| changed.map(change)));
                    writeln!(out, "{},{id}{},{problem}", row + 1, csv(line, &shape, &self.schema))?;
                }
                Format::Json => {
                    let mut object = object(row + 1, line, problem, &self.schema);
                    if let Some(id) = id {
                        object["id"] = json!(id);
                    }
                    if let Some(Changed { columns, shortened, .. }) = changed {
                        object["outside_range"] = json!(columns);
                        object["shortened"] = json!(shortened);
                    }
                    if self.secrecy == Secrecy::Private {
                        object["private"] = json!(true);
                    }
                    writeln!(out, "{object}")?;
                }
            }
        }
        Ok(())
    }

    /// A line of the kind that this model's predictions have, of a row of zeros.
    fn shape(&self) -> Line {
        self.line(RecordView { indices: &[], values: &[], target: 0.0, offset: 0.0, extra: Default::default() })
    }

    fn line(&self, record: RecordView<'_>) -> Line {
        let example =
            Example { indices: record.indices, values: record.values, target: 0.0, offset: record.offset, extra: Default::default() };
        let prediction = self.predictor.predict(example);
        let interval = prediction.interval(self.level);
        match prediction {
            Prediction::Class { probability, .. } | Prediction::Probit { probability, .. } => {
                Line::Class { probability, lower: interval.lower, upper: interval.upper }
            }
            Prediction::Classes { probabilities } => Line::Classes { class: largest(&probabilities).0, probabilities },
            Prediction::Survival { horizon, hazard } => {
                Line::Survival { horizon, probability: hazard.survival(), lower: interval.lower, upper: interval.upper }
            }
            Prediction::Component { component, probability } => Line::Component { component, probability },
            Prediction::Number { mean, variance }
            | Prediction::Count { mean, variance, .. }
            | Prediction::HeavyTailed { mean, variance, .. } => {
                let (decode, sd): (&dyn Fn(f64) -> f64, _) = match &self.schema.label().kind {
                    LabelKind::Number { rule, .. } => (&|entry| rule.decode(entry), spread(rule, variance)),
                    LabelKind::Binary { .. } | LabelKind::Classes { .. } | LabelKind::Survival(_) | LabelKind::Absent => {
                        (&|entry| entry, Some(variance.sqrt()))
                    }
                };
                Line::Number { middle: decode(mean), sd, lower: decode(interval.lower), upper: decode(interval.upper) }
            }
        }
    }
}

/// Standard deviation in the unit of the file.
fn spread(rule: &NumberRule, variance: f64) -> Option<f64> {
    (rule.transform == Transform::Identity).then(|| variance.sqrt() * rule.scale)
}

/// Name of the first column of the result.
const ROW: &str = "row";

/// Names of the columns, but for the row and its id.
fn columns(shape: &Line, schema: &Schema) -> Vec<String> {
    let names = |names: &[&str]| names.iter().copied().map(str::to_owned).collect::<Vec<_>>();
    let mut columns = match shape {
        Line::Class { .. } => names(&["probability", "lower", "upper"]),
        Line::Classes { probabilities, .. } => {
            let each = (0..probabilities.len()).map(|k| format!("probability of {}", class_name(schema, k)));
            names(&["class"]).into_iter().chain(each).collect()
        }
        Line::Component { .. } => names(&["component", "probability"]),
        Line::Survival { horizon, .. } => vec![format!("survival to {horizon}"), "lower".into(), "upper".into()],
        Line::Number { sd: Some(_), .. } => names(&["mean", "sd", "lower", "upper"]),
        Line::Number { sd: None, .. } => names(&["median", "sd", "lower", "upper"]),
    };
    columns.push("problem".into());
    columns
}

/// The cells of a line but for the problem; where there is none, as many empty ones as `shape` has.
fn csv(line: Option<Line>, shape: &Line, schema: &Schema) -> String {
    match line {
        Some(Line::Class { probability, lower, upper } | Line::Survival { probability, lower, upper, .. }) => {
            format!("{probability},{lower},{upper}")
        }
        Some(Line::Classes { class, probabilities }) => {
            let each: Vec<String> = probabilities.iter().map(f64::to_string).collect();
            format!("{},{}", cell(class_name(schema, class)), each.join(","))
        }
        Some(Line::Component { component, probability }) => format!("{component},{probability}"),
        Some(Line::Number { middle, sd, lower, upper }) => {
            format!("{middle},{},{lower},{upper}", sd.map(|sd| sd.to_string()).unwrap_or_default())
        }
        None => match shape {
            Line::Class { .. } | Line::Survival { .. } => ",,".into(),
            Line::Classes { probabilities, .. } => ",".repeat(probabilities.len()),
            Line::Component { .. } => ",".into(),
            Line::Number { .. } => ",,,".into(),
        },
    }
}

/// The text of a class.
fn class_name(schema: &Schema, class: usize) -> &str {
    match &schema.label().kind {
        LabelKind::Classes { values } => values.get(class).map_or("", String::as_str),
        LabelKind::Binary { .. } | LabelKind::Number { .. } | LabelKind::Survival(_) | LabelKind::Absent => "",
    }
}

/// A text as one cell.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// Why there is no prediction, or what it leaves out, as a cell.
fn quoted(predicted: bool, problem: Option<String>) -> String {
    match problem {
        None if predicted => String::new(),
        None => "the schema drops this record".into(),
        Some(problem) => format!("\"{}\"", problem.replace('"', "\"\"")),
    }
}

fn object(row: usize, line: Option<Line>, problem: Option<String>, schema: &Schema) -> Value {
    match line {
        Some(Line::Classes { class, probabilities }) => {
            let each: serde_json::Map<String, Value> =
                probabilities.iter().enumerate().map(|(k, p)| (class_name(schema, k).to_owned(), json!(p))).collect();
            json!({"row": row, "class": class_name(schema, class), "probabilities": each})
        }
        Some(Line::Class { probability, lower, upper }) => json!({"row": row, "probability": probability, "lower": lower, "upper": upper}),
        Some(Line::Survival { horizon, probability, lower, upper }) => {
            json!({"row": row, "horizon": horizon, "survival": probability, "lower": lower, "upper": upper})
        }
        Some(Line::Component { component, probability }) => json!({"row": row, "component": component, "probability": probability}),
        Some(Line::Number { middle, sd: Some(sd), lower, upper }) => {
            json!({"row": row, "mean": middle, "sd": sd, "lower": lower, "upper": upper})
        }
        Some(Line::Number { middle, sd: None, lower, upper }) => json!({"row": row, "median": middle, "lower": lower, "upper": upper}),
        None => match problem {
            Some(problem) => json!({"row": row, "problem": problem}),
            None => json!({"row": row, "dropped": true}),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The header follows the prediction, whatever label the schema has: a mixture predicts components.
    #[test]
    fn every_line_has_the_cells_of_its_header() {
        let schema = |label: &str| Schema::asking("y ~ .", &format!("[[columns]]\nname = \"y\"\n{label}")).unwrap();
        let number = schema("kind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n");
        let classes = schema("kind = \"category\"\nvalues = [\"a\", \"b\", \"c\"]\n");
        for (line, schema) in [
            (Line::Class { probability: 0.5, lower: 0.4, upper: 0.6 }, &number),
            (Line::Survival { horizon: 365.0, probability: 0.5, lower: 0.4, upper: 0.6 }, &number),
            (Line::Component { component: 1, probability: 0.9 }, &number),
            (Line::Component { component: 1, probability: 0.9 }, &classes),
            (Line::Classes { class: 2, probabilities: vec![0.2, 0.3, 0.5] }, &classes),
            (Line::Number { middle: 1.0, sd: Some(0.1), lower: 0.8, upper: 1.2 }, &number),
            (Line::Number { middle: 1.0, sd: None, lower: 0.8, upper: 1.2 }, &number),
        ] {
            let cells = |text: &str| text.split(',').count();
            let header = columns(&line, schema).len();
            assert_eq!(cells(&csv(None, &line, schema)) + 1, header, "{line:?}");
            assert_eq!(cells(&csv(Some(line.clone()), &line, schema)) + 1, header, "{line:?}");
        }
    }
}
