//! `data inspect`: what the public schema does to the records here. Nothing leaves this machine.

use std::path::Path;

use dp_pvi_data::Inspection;
use dp_pvi_posterior::schema::Schema;
use serde_json::{Value, json};

use crate::config::Config;
use crate::error::{ClientError, Result};
use crate::output::Output;

/// Prints counts per column and the norms of the rows.
///
/// # Errors
/// No schema; a schema or data file that cannot be used.
pub fn inspect(config: &Config, schema: Option<&Path>, output: Output) -> Result<()> {
    let path = schema
        .or(config.data.schema.as_deref())
        .ok_or_else(|| ClientError::config("data.schema", "is missing: name the federation's schema file there, or with --schema"))?;
    let schema = read_schema(path)?;
    let inspection = dp_pvi_data::inspect(&schema, &config.data.files).map_err(|e| ClientError::Data(e.to_string()))?;
    output.object(|| to_json(&inspection), || inspection.to_string());
    Ok(())
}

/// Reads a schema file.
pub(super) fn read_schema(path: &Path) -> Result<Schema> {
    let invalid = |message: String| ClientError::InvalidFile { file: path.to_owned(), message };
    let text = std::fs::read_to_string(path).map_err(|e| invalid(format!("cannot be read ({e})")))?;
    Schema::parse(&text).map_err(|e| invalid(e.to_string()))
}

fn to_json(inspection: &Inspection) -> Value {
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
        "rejected": inspection.rejected,
        "largest_unit": inspection.largest_unit,
        "norm_bound": inspection.norm_bound,
        "norms": inspection.norms,
        "scaled_share": inspection.scaled_share(),
        "columns": columns,
        "rejections": inspection.rejections.iter().map(|r| json!({
            "file": r.file, "row": r.row, "column": r.column, "problem": r.problem.to_string(),
        })).collect::<Vec<_>>(),
    })
}
