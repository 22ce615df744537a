//! How a run ends, and how everybody is told.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{RoundHeader, Signed, TranscriptEntry};

/// The end of a run, as a client gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// How it ended.
    pub outcome: RunOutcome,
    /// Final λ.
    pub lambda: Arc<[f64]>,
    /// Entries since the one that the client last saw, oldest first.
    pub entries: Vec<Arc<TranscriptEntry>>,
    /// Signed statement that the run is over: the header of the round after the last, which nobody answers.
    pub header: Signed<RoundHeader>,
    /// As in `RoundStart`.
    pub charter: Option<Vec<u8>>,
}

/// What the header that nobody answers carries in `reserved`: so the end and its outcome are signed.
#[must_use]
pub fn end_mark(outcome: RunOutcome) -> Vec<Vec<u8>> {
    let outcome: &[u8] = match outcome {
        RunOutcome::Complete => b"complete",
        RunOutcome::QuorumLost => b"quorum-lost",
        RunOutcome::AggregationLost => b"aggregation-lost",
        RunOutcome::Stopped => b"stopped",
        RunOutcome::Refused => b"refused",
        RunOutcome::Converged => b"converged",
    };
    vec![b"run ended".to_vec(), outcome.to_vec()]
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOutcome {
    /// All rounds ran.
    Complete,
    /// Fewer sites than `min_sites`.
    QuorumLost,
    /// The charter was not signed by all parties in time, or the summer did not answer, or a sum cannot be right.
    AggregationLost,
    /// An operator stopped it.
    Stopped,
    /// So many sites refused that fewer than `min_sites` were left.
    Refused,
    /// The posterior moved little for some rounds, and the task's rule ends the run then.
    Converged,
}

impl RunOutcome {
    /// Whether the run ended as it may: by its plan, by its rule, or by its operator.
    #[must_use]
    pub fn is_regular(self) -> bool {
        match self {
            Self::Complete | Self::Stopped | Self::Converged => true,
            Self::QuorumLost | Self::AggregationLost | Self::Refused => false,
        }
    }
}
