//! What the server's store keeps, and gives back in the same order.

use std::sync::Arc;

use dp_pvi_names::{ClientId, RunId};
use dp_pvi_privacy::ledger::LedgerHead;
use serde::{Deserialize, Serialize};

use super::Lack;
use crate::aggregation::host::AggregationRecord;
use crate::message::{Hello, MetricsReport, Refusal, Role, RoundHeader, RunOutcome, Signed, TranscriptEntry, Update};
use crate::time::Timestamp;

/// One durable fact of a run. A run is the fold of its records: the live coordinator applies the same records that a
/// restarted one reads, so both are in the same state by construction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The run exists; the clock of the start deadline runs.
    RunOpened {
        /// The run.
        run: RunId,
        /// Canonical bytes of the task.
        task: Vec<u8>,
        /// When.
        at: Timestamp,
    },
    /// A client introduced itself for the first time, came back after it had withdrawn, or showed a later ledger head.
    Joined {
        /// Who.
        client: ClientId,
        /// As what.
        role: Role,
        /// Declared number of units, fixed for the run (sites).
        nominal_units: Option<u64>,
        /// Highest ledger head seen so far (sites).
        head: Option<LedgerHead>,
        /// The hello, as signed.
        hello: Signed<Hello>,
        /// When.
        at: Timestamp,
    },
    /// A round is open.
    RoundOpened {
        /// Signed header.
        header: Signed<RoundHeader>,
        /// Who is asked, ascending.
        asked: Vec<ClientId>,
        /// When; the deadline is counted from here.
        at: Timestamp,
    },
    /// An update's payload is durable and its receipt may be given: what a receipt says follows from the records, so the same bytes
    /// get the same receipt whenever they come again.
    UpdateStored {
        /// The sender.
        client: ClientId,
        /// The update, as signed.
        update: Signed<Update>,
        /// When.
        at: Timestamp,
    },
    /// An update came after its round had closed. Its payload is not kept.
    UpdateExcluded {
        /// The sender.
        client: ClientId,
        /// The update, as signed.
        update: Signed<Update>,
        /// When.
        at: Timestamp,
    },
    /// A site will not send an update in the open round, or takes no further part in the run.
    Refused {
        /// Who.
        client: ClientId,
        /// The refusal, as signed.
        refusal: Signed<Refusal>,
        /// When.
        at: Timestamp,
    },
    /// A round closed: transcript entry and the posterior that it made, in one record (and so in one transaction).
    RoundClosed {
        /// The entry.
        entry: TranscriptEntry,
        /// λ′.
        #[serde(with = "shared")]
        lambda: Arc<[f64]>,
        /// Public correction r_t of the floor, where it did anything: λ′ = λ + ρΣΔ + r_t.
        correction: Option<Vec<f64>>,
        /// When.
        at: Timestamp,
    },
    /// An evaluator's metrics.
    Metrics {
        /// Who.
        client: ClientId,
        /// The report, as signed.
        report: Signed<MetricsReport>,
        /// When.
        at: Timestamp,
    },
    /// What an aggregated run agreed on or fixed.
    Aggregation {
        /// What.
        record: AggregationRecord,
        /// When.
        at: Timestamp,
    },
    /// An operator paused or resumed the run.
    Control {
        /// Which.
        control: Control,
        /// When.
        at: Timestamp,
    },
    /// The run lost its quorum: it goes on when what it lacks is there. Comes again where that changes.
    Suspended {
        /// What it lacks.
        lack: Lack,
        /// When.
        at: Timestamp,
    },
    /// What a suspended run lacked is there.
    Resumed {
        /// When.
        at: Timestamp,
    },
    /// The run is over.
    RunEnded {
        /// How.
        outcome: RunOutcome,
        /// The header that no one answers.
        header: Signed<RoundHeader>,
        /// When.
        at: Timestamp,
    },
}

/// Whether new rounds are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    /// No new round is opened; the open one goes on.
    Paused,
    /// Rounds are opened.
    Running,
}

/// A shared vector as a plain one.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &Arc<[f64]>, serializer: S) -> Result<S::Ok, S::Error> {
        values.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[f64]>, D::Error> {
        Vec::<f64>::deserialize(deserializer).map(Arc::from)
    }
}
