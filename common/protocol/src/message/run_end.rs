//! The end of a run and its signed announcement.

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
    /// Signed statement that the run is over: the header of the round after the last, which no one answers.
    pub header: Signed<RoundHeader>,
    /// As in `RoundStart`.
    pub charter: Option<Vec<u8>>,
}

impl RunEnd {
    /// Why the run ended early, in the server's words, where they are known. Show them as words of someone else.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        end_reason(&self.header.peek().ok()?.reserved)
    }
}

/// First part of the header that no one answers.
const ENDED: &[u8] = b"run ended";

/// Longest reason in bytes.
const REASON_BYTES: usize = 1000;

/// What the header that no one answers carries in `reserved`: so the end, its outcome and the reason of an early end are signed.
#[must_use]
pub(crate) fn end_mark(outcome: RunOutcome, reason: Option<&str>) -> Vec<Vec<u8>> {
    let mut parts = vec![ENDED.to_vec(), outcome.mark().to_vec()];
    let cut = |reason: &str| -> String {
        let fits = reason.char_indices().take_while(|(at, character)| at + character.len_utf8() <= REASON_BYTES);
        fits.map(|(_, character)| character).collect()
    };
    parts.extend(reason.map(|reason| cut(reason).into_bytes()));
    parts
}

/// Whether a header's parts say that the run ended so.
#[must_use]
pub fn is_end(parts: &[Vec<u8>], outcome: RunOutcome) -> bool {
    let is_reason = |part: &Vec<u8>| part.len() <= REASON_BYTES && std::str::from_utf8(part).is_ok();
    match parts {
        [ended, how] => ended == ENDED && how == outcome.mark(),
        [ended, how, reason] => ended == ENDED && how == outcome.mark() && is_reason(reason),
        _ => false,
    }
}

/// The reason of an early end in a header's parts.
#[must_use]
pub fn end_reason(parts: &[Vec<u8>]) -> Option<String> {
    let [ended, _, reason] = parts else { return None };
    String::from_utf8(reason.clone()).ok().filter(|_| ended == ENDED)
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOutcome {
    /// All rounds ran.
    Complete,
    /// Fewer sites than `min_sites`, for longer than the run may be suspended.
    QuorumLost,
    /// The charter was not signed by all parties in time, or the summer or too few sites answered, or a sum cannot be right.
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

    fn mark(self) -> &'static [u8] {
        match self {
            Self::Complete => b"complete",
            Self::QuorumLost => b"quorum-lost",
            Self::AggregationLost => b"aggregation-lost",
            Self::Stopped => b"stopped",
            Self::Refused => b"refused",
            Self::Converged => b"converged",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_one_with_or_without_a_short_reason_and_nothing_else() {
        let (lost, complete) = (RunOutcome::QuorumLost, RunOutcome::Complete);
        let plain = end_mark(lost, None);
        assert!(is_end(&plain, lost) && !is_end(&plain, complete) && end_reason(&plain).is_none());
        let said = end_mark(lost, Some("hospital-2 did not answer"));
        assert!(is_end(&said, lost) && !is_end(&said, complete));
        assert_eq!(end_reason(&said).as_deref(), Some("hospital-2 did not answer"));
        // Cut between two characters.
        let long = end_mark(lost, Some(&"ä".repeat(REASON_BYTES)));
        assert!(is_end(&long, lost) && long[2].len() <= REASON_BYTES);
        let mut bad = said.clone();
        bad[2] = vec![0xff];
        assert!(!is_end(&bad, lost) && end_reason(&bad).is_none());
        bad[2] = vec![b'x'; REASON_BYTES + 1];
        assert!(!is_end(&bad, lost));
        bad.push(Vec::new());
        assert!(!is_end(&bad, lost) && !is_end(&plain[..1], lost) && end_reason(&[Vec::new(), Vec::new(), Vec::new()]).is_none());
    }
}
