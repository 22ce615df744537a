//! The transcript: one signed entry a round, each naming the hash of the one before.

use dp_pvi_names::Hash;
use serde::{Deserialize, Serialize};

use crate::charter::Charter;
use crate::closing::{ContributorSet, MaskSumBody};
use crate::error::SecAggError;
use crate::signed::{Body, Signed};

/// How a round ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Summed.
    Completed {
        /// U with commitments.
        contributors: ContributorSet,
        /// The summer's signed statement over (header, H(U), masks).
        masks: Signed<MaskSumBody>,
        /// Hash of the sum's little-endian words.
        sum: Hash,
    },
    /// Below the minimum, or failed: nothing was summed; charges stay spent.
    Aborted,
}

/// What the server publishes about a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptEntry {
    /// The round.
    pub round: u32,
    /// Hash of the round header; of the charter if the round ended before it had one.
    pub header: Hash,
    /// Hash of the entry before; in round 0, of the charter.
    pub previous: Hash,
    /// How it ended.
    pub outcome: Outcome,
}

impl Body for TranscriptEntry {
    const DOMAIN: &'static str = "dp-pvi secagg transcript v1";
    const WHAT: &'static str = "the transcript entry";
}

/// An entry as it is published.
pub type SignedEntry = Signed<TranscriptEntry>;

/// Where a party is in the transcript: the next round, and the hash that its header must name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The round that is due.
    pub round: u32,
    /// Hash of the last entry; at the start, of the charter.
    pub previous: Hash,
}

impl Head {
    /// Before round 0.
    #[must_use]
    pub fn start(charter: &Charter) -> Self {
        Self { round: 0, previous: charter.hash() }
    }

    /// The chain's rule for a header or an entry.
    pub(crate) fn expects(&self, round: u32, previous: Hash) -> Result<(), SecAggError> {
        if round != self.round {
            return Err(SecAggError::Round { expected: self.round, got: round });
        }
        if previous != self.previous {
            return Err(SecAggError::Chain);
        }
        Ok(())
    }

    /// Checks an entry and moves behind it.
    ///
    /// # Errors
    /// Not signed by the server, not the next in the chain, a set that breaks the closing rules, or a statement of the summer
    /// that is for another header or set.
    pub fn follow(self, entry: &SignedEntry, charter: &Charter) -> Result<(Self, TranscriptEntry), SecAggError> {
        let hash = entry.hash();
        let entry = entry.open(&charter.body().server)?;
        self.expects(entry.round, entry.previous)?;
        if let Outcome::Completed { contributors, masks, .. } = &entry.outcome {
            contributors.check(charter)?;
            let statement = masks.open(&charter.body().summer)?;
            if (statement.header, statement.contributors) != (entry.header, contributors.hash(&entry.header)) {
                return Err(SecAggError::OtherClosing);
            }
        }
        // Rounds are below the charter's number of rounds, which is a u32.
        let round = self.round.checked_add(1).ok_or(SecAggError::Chain)?;
        Ok((Self { round, previous: hash }, entry))
    }

    /// Checks a whole transcript from the start.
    ///
    /// # Errors
    /// As [`Head::follow`], for any entry.
    pub fn replay<'a>(charter: &Charter, entries: impl IntoIterator<Item = &'a SignedEntry>) -> Result<Self, SecAggError> {
        entries.into_iter().try_fold(Self::start(charter), |head, entry| Ok(head.follow(entry, charter)?.0))
    }
}
