//! The transcript: what every party of the run can check against what it saw.

use dp_pvi_proto::problem::Problem;
use dp_pvi_protocol::message::TranscriptEntry;
use serde_json::json;

use super::history::History;
use crate::error::{Result, ServerError};

/// One JSON object a line: the entries with their hashes, signed headers as hexadecimal bytes.
pub(super) fn render(history: &History) -> Result<String> {
    let mut text = String::new();
    for entry in &history.entries {
        text.push_str(&line(history, entry)?);
        text.push('\n');
    }
    Ok(text)
}

fn line(history: &History, entry: &TranscriptEntry) -> Result<String> {
    let header = entry.header.peek().map_err(|e| ServerError::Corrupt(Problem::of(e)))?;
    let included: Vec<_> =
        entry.included.iter().map(|(client, update)| json!({ "client": client, "update": update.to_string() })).collect();
    let value = json!({
        "task": history.run.task.to_string(),
        "run": history.run.number,
        "round": header.round,
        "visit": header.visit,
        "turn": header.turn,
        "outcome": entry.outcome,
        // Of an asynchronous run: an update may answer the header of a round up to this many before the one that it entered.
        "max_staleness": history.task.schedule.staleness(),
        "included": included,
        "lambda_before": header.lambda.to_string(),
        "lambda": entry.lambda.to_string(),
        "previous": entry.previous.to_string(),
        "header_body": hex::encode(&entry.header.body),
        "header_signature": hex::encode(&entry.header.signature),
        // Under aggregated trust: the entry of the aggregation, whose signatures name contributors, commitments and the sum of masks.
        "aggregation": entry.aggregation_bytes().map(hex::encode),
        "hash": entry.hash().to_string(),
    });
    Ok(value.to_string())
}
