//! The transcript: what every party of the run can check against what it saw.

use std::collections::BTreeMap;

use dp_pvi_models::effects::ObservationScale;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::message::TranscriptEntry;
use serde_json::json;

use super::history::History;
use crate::error::{Result, ServerError};

/// One JSON object a line: the entries with their hashes, signed headers as hexadecimal bytes.
pub(super) fn render(history: &History) -> Result<String> {
    let mut text = String::new();
    for (round, entry) in history.entries.iter().enumerate() {
        let state = history.states.get(round);
        let scale = state.and_then(|(state, _)| history.task.scale_at(state)).map(ObservationScale::new);
        text.push_str(&line(history, entry, history.task.early_end.and(state), scale)?);
        text.push('\n');
    }
    text.push_str(&end(history));
    text.push('\n');
    Ok(text)
}

/// How the run ended, and the sites with the visits that each answered, whether its update entered a round or not: what statements of privacy are compared with.
fn end(history: &History) -> String {
    let answered: BTreeMap<_, _> = history.sites().collect();
    let mut value = json!({
        "task": history.run.task.to_string(),
        "run": history.run.number,
        "end": history.outcome,
        "answered": answered,
    });
    if history.task.early_end.is_some() {
        // What the rule of an early end needs beside the rounds.
        let units: BTreeMap<_, _> = history.members.iter().filter_map(|(client, member)| Some((client, member.units?))).collect();
        value["units"] = json!(units);
    }
    value.to_string()
}

fn line(
    history: &History,
    entry: &TranscriptEntry,
    state: Option<&(Vec<f64>, Option<Vec<f64>>)>,
    scale: Option<ObservationScale>,
) -> Result<String> {
    let header = entry.header.peek().map_err(|e| ServerError::Corrupt(Problem::of(e)))?;
    let included: Vec<_> =
        entry.included.iter().map(|(client, update)| json!({ "client": client, "update": update.to_string() })).collect();
    let mut value = json!({
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
        // Where the task has a rule of an early end: what it looks at, whose hash is `lambda`, and what a floor moved.
        "state": state.map(|(state, _)| state),
        "correction": state.map(|(_, correction)| correction),
    });
    if let Some(scale) = scale {
        // What the round made of a scale that is learned: a function of `lambda`.
        value["observation_scale"] = json!(scale);
    }
    Ok(value.to_string())
}
