//! The ledger as a reader sees it, beside the writer.

use dp_pvi_accounting::DpEvent;
use dp_pvi_names::{Hash, ReleaseId, RunId};
use dp_pvi_privacy::ledger::{FreezeState, Row, RowBody};
use dp_pvi_programs::problem::Problem;

use crate::error::{ClientError, Result};

/// Releases that were charged, with their events, oldest first.
pub(crate) fn charges(rows: &[(Row, Hash)]) -> Result<Vec<(&ReleaseId, DpEvent)>> {
    rows.iter()
        .filter_map(|(row, _)| match &row.body {
            RowBody::Reserved { release, event, .. } => Some((release, event)),
            _ => None,
        })
        .map(|(release, event)| {
            let event = DpEvent::from_bytes(event).map_err(|e| ClientError::LedgerCorrupt(Problem::of(e)))?;
            Ok((release, event))
        })
        .collect()
}

/// Runs that were charged as a whole.
pub(crate) fn planned_runs(rows: &[(Row, Hash)]) -> impl Iterator<Item = RunId> {
    rows.iter().filter_map(|(row, _)| match &row.body {
        RowBody::Planned { run, .. } => Some(*run),
        _ => None,
    })
}

/// Whether the data set may be charged now.
pub(crate) fn freeze_state(rows: &[(Row, Hash)]) -> FreezeState {
    rows.iter()
        .rev()
        .find_map(|(row, _)| match row.body {
            RowBody::Frozen(state) => Some(state),
            _ => None,
        })
        .unwrap_or(FreezeState::Open)
}
