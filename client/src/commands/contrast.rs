//! `contrast`: what the posterior says of the difference between two records that a person describes. No file of records is read.

use std::path::Path;

use dp_pvi_models::effects::{Effect, compare};
use dp_pvi_models::prediction::Interval;
use dp_pvi_programs::problem::Problem;
use dp_pvi_results::document::Which;
use dp_pvi_schema::text;
use serde_json::json;

use super::predict;
use crate::error::{ClientError, Result};
use crate::output::Output;

/// Compares the record `of` with the record `against`, each a list of COLUMN=VALUE, under a posterior of the document in `posterior`.
///
/// # Errors
/// [`ClientError::InvalidFile`] for the posterior, [`ClientError::Config`] for what the schema does not know.
pub fn contrast(posterior: &Path, of: &[String], against: &[String], which: Which, output: Output) -> Result<()> {
    let invalid = |message: Problem| ClientError::InvalidFile { file: posterior.to_owned(), message };
    let document = predict::document(posterior)?;
    let task = document.task().map_err(|e| invalid(Problem::of(e)))?;
    let schema = task.parsed_schema().map_err(|e| invalid(Problem::of(e)))?;
    let predictor = document.predictor_with(which).map_err(|e| invalid(Problem::of(e)))?;
    // As the schema's own texts: a terminal may write letters apart.
    let [of, against] = [of, against].map(|texts| texts.iter().map(|text| text::composed(text).into_owned()).collect::<Vec<_>>());
    let effects =
        compare(&task.model, &schema, predictor.posterior(), &of, &against).map_err(|e| ClientError::config("contrast", Problem::of(e)))?;
    predict::warn_of_intervals(&document, which);
    for effect in &effects {
        output.object(|| json!(effect), || words(effect, &schema.label().column));
    }
    Ok(())
}

/// The effect in lines: the ratio first, where there is one, and what it is exp of.
fn words(effect: &Effect, label: &str) -> String {
    let mut lines = vec![effect.name.clone()];
    let measure = effect.measure.words(label);
    let on_the_scale = match effect.ratio {
        Some(ratio) => {
            lines.push(line(&measure, ratio.estimate, ratio.interval_90, ratio.interval_95));
            format!("log {measure}")
        }
        None if effect.measure.has_ratio() => format!("log {measure}"),
        None => measure,
    };
    lines.push(line(&on_the_scale, effect.estimate, effect.interval_90, effect.interval_95));
    lines.extend(effect.sd.map(|sd| format!("  standard deviation {sd:.4}")));
    lines.extend(effect.no_interval.as_ref().map(|why| format!("  no interval: {why}")));
    lines.join("\n")
}

fn line(what: &str, estimate: f64, interval_90: Option<Interval>, interval_95: Option<Interval>) -> String {
    let interval = |percent: u32, interval: Option<Interval>| {
        interval.map(|interval| format!(", {percent} % from {:.4} to {:.4}", interval.lower, interval.upper)).unwrap_or_default()
    };
    format!("  {what} {estimate:.4}{}{}", interval(90, interval_90), interval(95, interval_95))
}
