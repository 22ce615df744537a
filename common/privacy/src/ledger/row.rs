//! What the ledger writes down: rows, their canonical bytes and their place in the chain.

use serde::{Deserialize, Serialize};

use crate::ledger::store::{RowSigner, StoreError};
use dp_pvi_accounting::adjacency::{PrivacyUnit, Relation};
use dp_pvi_accounting::unit::{Delta, Epsilon};
use dp_pvi_names::{Hash, ReleaseId, RunId};

/// What a ledger is about; fixed by its first row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerIdentity {
    /// Name of the data set.
    pub data: String,
    /// Privacy unit.
    pub unit: PrivacyUnit,
    /// Relation under which everything is charged.
    pub relation: Relation,
}

/// The budget of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Limit on ε over all events.
    pub epsilon: Epsilon,
    /// δ of the budget.
    pub delta: Delta,
    /// Limit on ε of one run.
    pub per_run: Option<Epsilon>,
    /// Limit on ε over all events if all other parties of aggregated sums work together ([`Losses::fallback`](crate::ledger::Losses::fallback)).
    pub max_fallback: Option<Epsilon>,
    /// Whether a permit for [`DpEvent::NonPrivate`](dp_pvi_accounting::DpEvent::NonPrivate) may be minted.
    pub allow_non_private: bool,
}

/// One row, before hashing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Position, from 0.
    pub seq: u64,
    /// Hash of the previous row ([`Hash::default`] for the first).
    pub previous: Hash,
    /// What happened.
    pub body: RowBody,
}

/// What a row says. Rows are stored with the number of their variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RowBody {
    /// First row: what the ledger is about.
    Genesis(LedgerIdentity),
    /// Budget charged; nothing ran yet.
    Reserved {
        /// Which release.
        release: ReleaseId,
        /// Canonical bytes of the event ([`DpEvent::to_bytes`](dp_pvi_accounting::DpEvent::to_bytes)); under aggregation, of the sum of all sites.
        event: Vec<u8>,
        /// Hash of the signed round header that asked for it.
        header: Hash,
        /// Under aggregation: canonical bytes of what this site's own part is if everything else is known.
        fallback: Option<Vec<u8>>,
    },
    /// A run was charged as a whole, before its first visit: every visit of it is one of these events.
    Planned {
        /// Which run.
        run: RunId,
        /// The δ at which its envelopes were made.
        delta: Delta,
        /// What the visits are; under aggregation, of the sums of all sites.
        joint: PlannedEvents,
        /// Under aggregation: what this site's own parts are if everything else is known.
        fallback: Option<PlannedEvents>,
    },
    /// A permit was given out again for a reservation that a crash left open.
    Retried {
        /// Which release.
        release: ReleaseId,
    },
    /// Payload fixed for ever and stored beside the row.
    Committed {
        /// Which release.
        release: ReleaseId,
        /// Hash of the attachment.
        attachment: Hash,
    },
    /// Handed to the transport at least once.
    Sent {
        /// Which release.
        release: ReleaseId,
    },
    /// The server's signed receipt arrived.
    Receipted {
        /// Which release.
        release: ReleaseId,
        /// Hash of the receipt.
        receipt: Hash,
    },
    /// A following header said whether the update entered the posterior.
    Settled {
        /// Which release.
        release: ReleaseId,
        /// Whether it did.
        included: bool,
        /// Hash of the site's whole factor after this row.
        factor: Hash,
    },
    /// Budget frozen or released by an operator.
    Frozen(
        /// Whether it is frozen now.
        FreezeState,
    ),
    /// What one privacy unit of the data set is, in words made from the public schema. Its last row of this kind counts.
    Units(
        /// The words.
        String,
    ),
    /// This file was put back from a copy: no plan that is before it has visits left.
    Restored,
    /// The site renounces, for ever, all visits of a planned run that it has not reserved. Those of them that are unsampled Gaussians give their μ² back.
    Renounced {
        /// Which run.
        run: RunId,
    },
    /// The records of a run, before its first visit: state that the run keeps for units by their places is never used with others.
    Records {
        /// Which run.
        run: RunId,
        /// What tells them from others, their number and their order among it.
        of: Hash,
    },
}

/// All events of a run, and what they were charged as.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedEvents {
    /// Canonical bytes of every event, and how many visits are it.
    pub events: Vec<(Vec<u8>, u64)>,
    /// μ² and φ of the envelope ([`Envelope::parts`](dp_pvi_accounting::Envelope::parts)). `None`: no Gaussian covers the run.
    pub envelope: Option<(f64, f64)>,
}

/// Whether the data set may be charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FreezeState {
    /// Nothing may be charged.
    Frozen,
    /// Charges are allowed.
    Open,
}

/// A row as stored: canonical bytes, their hash and the site's signature over the hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// postcard of [`Row`].
    pub bytes: Vec<u8>,
    /// [`Hash::of`]`("dp-pvi ledger row v2", [bytes])`.
    pub hash: Hash,
    /// Ed25519 signature over the hash.
    pub signature: Vec<u8>,
}

/// Position of the chain's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerHead {
    /// Sequence number of the last row.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
}

impl StoredRow {
    /// Encodes, hashes and signs.
    pub(crate) fn seal(row: &Row, signer: &impl RowSigner) -> Self {
        // Plain data: writing it into memory cannot fail.
        let bytes = postcard::to_stdvec(row).expect("rows serialise into memory");
        let hash = Hash::of(DOMAIN, &[&bytes]);
        let signature = signer.sign(&hash);
        Self { bytes, hash, signature }
    }

    /// Checks hash, signature, form and place in the chain.
    pub(crate) fn verify(&self, seq: u64, previous: Hash, signer: &impl RowSigner) -> Result<(Row, Hash), StoreError> {
        let corrupt = |what: &str| StoreError::Corrupt(format!("row {seq}: {what}"));
        if Hash::of(DOMAIN, &[&self.bytes]) != self.hash {
            return Err(corrupt("its hash is wrong"));
        }
        if !signer.verify(&self.hash, &self.signature) {
            return Err(corrupt("it is not signed by this site's identity key"));
        }
        let row = match postcard::take_from_bytes::<Row>(&self.bytes) {
            Ok((row, [])) => row,
            _ => return Err(corrupt("it cannot be read by this version")),
        };
        if row.seq != seq || row.previous != previous {
            return Err(corrupt("it does not follow the row before"));
        }
        Ok((row, self.hash))
    }
}

pub(super) const DOMAIN: &str = "dp-pvi ledger row v2";
