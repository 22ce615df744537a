//! `data inspect`: what the public schema does to the records here. Nothing leaves this machine.

use std::path::Path;

use dp_pvi_data::{Guess, Inspection, RowProblem};
use dp_pvi_posterior::task::DesignSpec;
use dp_pvi_programs::problem::Problem;
use serde_json::{Value, json};

use crate::config::Config;
use crate::error::{ClientError, Result};
use crate::output::Output;
use crate::screen;
use crate::snapshot::{LocalSchema, inspected};

/// Prints counts per column and the norms of the rows.
///
/// # Errors
/// A schema or data file that cannot be used; [`ClientError::Data`] after the counts where the schema rejects records.
pub fn inspect(config: &Config, schema: Option<&Path>, design: Option<&DesignSpec>, output: Output) -> Result<()> {
    let schema = LocalSchema::read(schema.unwrap_or(&config.data.schema))?.schema().clone();
    let schema = match design {
        None => schema,
        Some(design) => {
            let schema = schema.with_formula(&design.formula, &design.sites).map_err(|e| ClientError::config("formula", Problem::of(e)))?;
            let schema = if design.without_intercept { schema.without_intercept() } else { schema };
            // Rows as this site makes them, with its own effects where the formula has effects of sites.
            schema.of_site(config.site.name.as_str()).map_err(|e| ClientError::config("site.name", Problem::of(e)))?
        }
    };
    let files = inspected(config, &schema)?;
    let guess = dp_pvi_data::guess(&schema, &files).map_err(|e| ClientError::Data(Problem::of(e)))?;
    let inspection = match dp_pvi_data::inspect(&schema, &files) {
        Ok(inspection) => inspection,
        Err(error) => {
            // A file that cannot be read with the schema's keys: the guess may say why.
            if !guess.is_empty() {
                output.object(|| json!({"private": true, "guess": guess_to_json(&guess)}), || guess.to_string());
            }
            return Err(ClientError::Data(Problem::of(error)));
        }
    };
    output.object(
        || to_json(&inspection, &guess),
        || if guess.is_empty() { inspection.to_string() } else { format!("{inspection}\n{guess}") },
    );
    match inspection.rejected {
        0 => Ok(()),
        rejected => Err(ClientError::Data(format!("the schema rejects {rejected} records; see the list above").into())),
    }
}

/// Records that the operator knows that the records are as they are: a data set that was halted goes on.
///
/// # Errors
/// A schema or data file that cannot be used; the state folder.
pub fn confirm(config: &Config, output: Output) -> Result<()> {
    config.private()?;
    let schema = LocalSchema::read(&config.data.schema)?;
    let Inspection { screen, .. } = screen::inspect(config, &schema)?;
    screen::confirm(config, &schema, &screen)?;
    let percent = screen::percent(&screen);
    output.object(
        || json!({"private": true, "confirmed": config.data.name, "contribute_nothing": screen.count(), "records": screen.records, "percent": percent}),
        || format!("PRIVATE: {screen}\nconfirmed: with this schema up to {percent} % of the records of {} may contribute nothing, and {} are enough", config.data.name, screen.records.saturating_sub(screen.count())),
    );
    Ok(())
}

fn guess_to_json(guess: &Guess) -> Value {
    json!({
        "delimiter": guess.delimiter,
        "encoding": guess.encoding,
        "decimal": guess.decimal,
        "dates": guess.dates.iter().map(|(column, formats)| json!({"column": column, "formats": formats})).collect::<Vec<_>>(),
    })
}

fn to_json(inspection: &Inspection, guess: &Guess) -> Value {
    let columns: Vec<_> = inspection
        .columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name,
                "kind": column.kind,
                "regular": column.counts.regular,
                "missing": column.counts.missing,
                "below": column.counts.below,
                "above": column.counts.above,
                "invalid": column.counts.invalid,
                "levels": column.levels.iter().map(|(level, cells)| json!({"level": level, "cells": cells})).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "private": true,
        "units": inspection.units,
        "records": inspection.records,
        "dropped": inspection.dropped,
        "empty_lines": inspection.empty_lines,
        "rejected": inspection.rejected,
        "contribute_nothing": inspection.screen.nothing.iter().map(|(why, records)| json!({"records": records, "why": why.to_string()})).collect::<Vec<_>>(),
        "near_units": inspection.near.units,
        "near_places": inspection.near.places.iter().map(|(one, two)| json!([
            {"file": one.file, "row": one.row}, {"file": two.file, "row": two.row},
        ])).collect::<Vec<_>>(),
        "in_two_files": inspection.shared.iter().map(|shared| json!({
            "file": shared.file, "other": shared.other, "records": shared.records, "of": shared.of, "all_columns": shared.all_columns,
        })).collect::<Vec<_>>(),
        "largest_unit": inspection.largest_unit,
        "watched_for_no_time": {
            "with_an_event": inspection.unwatched.events,
            "without": inspection.unwatched.nothing,
            "left_before_they_came": inspection.unwatched.reversed,
        },
        "norm_bound": inspection.norm_bound,
        "norms": inspection.norms,
        "scaled_share": inspection.scaled_share(),
        "columns": columns,
        "guess": guess_to_json(guess),
        "coefficients": inspection.entries.iter().map(|(name, records)| json!({"name": name, "not_zero": records})).collect::<Vec<_>>(),
        "rejections": inspection.rejections.iter().map(|r| json!({
            "file": r.file, "row": r.row, "column": column(&r.problem), "problem": problem(&r.problem),
        })).collect::<Vec<_>>(),
    })
}

/// The column at fault; `None` where it is the whole line.
fn column(problem: &RowProblem) -> Option<&str> {
    match problem {
        RowProblem::Cell { column, .. } => Some(column),
        RowProblem::Line(_) => None,
    }
}

/// Why, without the column.
fn problem(problem: &RowProblem) -> String {
    match problem {
        RowProblem::Cell { problem, .. } => problem.to_string(),
        RowProblem::Line(_) => problem.to_string(),
    }
}
