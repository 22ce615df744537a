//! The ledger: checks the budget, appends durably, then mints a permit. No permit, no release. (Contract stub.)

use serde::{Deserialize, Serialize};

use crate::accountant::{AccountantError, PrivacyLoss};
use crate::adjacency::{PrivacyUnit, Relation};
use crate::event::DpEvent;
use crate::release::{Hash, Payload, ReleaseId};
use crate::unit::{Delta, Epsilon};

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
    /// Whether a permit for [`DpEvent::NonPrivate`] may be minted.
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

/// What a row says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RowBody {
    /// First row.
    Genesis(LedgerIdentity),
    /// Budget charged; nothing ran yet.
    Reserved {
        /// Which release.
        release: ReleaseId,
        /// Canonical bytes of the event ([`DpEvent::to_bytes`]).
        event: Vec<u8>,
        /// Hash of the signed round header that asked for it.
        header: Hash,
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
    /// [`Hash::of`]`("dp-pvi ledger row v1", [bytes])`.
    pub hash: Hash,
    /// Ed25519 signature over the hash.
    pub signature: Vec<u8>,
}

/// What the COMMITTED row keeps: enough to resend the same bytes for ever and to move the factor when told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// Signed update message, exactly as sent.
    pub message: Vec<u8>,
    /// Payload, exactly as sent.
    pub payload: Payload,
    /// Pending change of the site's factor, to be scaled by ρ when the update was included.
    pub pending: Option<Vec<f64>>,
}

/// Position of the chain's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerHead {
    /// Sequence number of the last row.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
}

/// The store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Bytes are not what was written.
    #[error("the ledger is damaged ({0}): restore it from a copy; nothing is released until then")]
    Corrupt(String),
    /// Lock, disk full, permissions.
    #[error("the ledger cannot be used now ({0})")]
    Unavailable(String),
}

/// Durable, append-only rows. `append` returns only when the row (and its attachment) would survive a power loss.
pub trait LedgerStore: Send {
    /// All rows in order.
    ///
    /// # Errors
    /// Damaged or unavailable.
    fn rows(&mut self) -> Result<Vec<StoredRow>, StoreError>;
    /// Appends a row, and in the same transaction an attachment or the site's factor where given.
    ///
    /// # Errors
    /// Damaged or unavailable; then nothing was appended.
    fn append(&mut self, row: &StoredRow, extra: Option<&Extra>) -> Result<(), StoreError>;
    /// Attachment bytes of a release.
    ///
    /// # Errors
    /// Damaged or unavailable.
    fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Vec<u8>>, StoreError>;
    /// The site's factor in a run, as last settled.
    ///
    /// # Errors
    /// Damaged or unavailable.
    fn factor(&mut self, run: &crate::release::RunId) -> Result<Option<Vec<u8>>, StoreError>;
}

/// What goes into the store beside a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Extra {
    /// Bytes of an [`Attachment`] (COMMITTED).
    Attachment(ReleaseId, Vec<u8>),
    /// The site's factor after settling (little-endian `f64`).
    Factor(crate::release::RunId, Vec<u8>),
}

/// Signs row hashes; the identity key stays with the caller.
pub trait RowSigner: Send {
    /// Ed25519 signature over `hash`.
    fn sign(&self, hash: &Hash) -> Vec<u8>;
    /// Whether `signature` is one of ours.
    fn verify(&self, hash: &Hash, signature: &[u8]) -> bool;
}

/// Why the ledger refused.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Over budget.
    #[error(
        "this would bring the data set to epsilon {would_be}, above its budget of {limit}: lower the task's epsilon, or raise the budget as an operator's decision"
    )]
    OverBudget {
        /// ε after the charge.
        would_be: f64,
        /// Limit.
        limit: f64,
    },
    /// Over the limit of one run.
    #[error("this run would cost epsilon {would_be}, above per_run_epsilon {limit}")]
    OverRunBudget {
        /// ε of the run.
        would_be: f64,
        /// Limit.
        limit: f64,
    },
    /// Not allowed by the site.
    #[error("a release without protection was asked for; set allow_non_private = true in [policy] if that is intended")]
    NonPrivateForbidden,
    /// Frozen by an operator.
    #[error("the data set is frozen: `dp-pvi-client budget freeze --off` opens it again")]
    Frozen,
    /// The release exists in another state or with another event.
    #[error("release {0} was already made or reserved differently; it is never made twice")]
    Conflict(ReleaseId),
    /// A witness saw a later head: this ledger is an old copy.
    #[error("the server saw a later state of this ledger (row {witnessed}, here {here}): it is an old copy; restore the latest one")]
    RolledBack {
        /// Row seen by the witness.
        witnessed: u64,
        /// Last row here.
        here: u64,
    },
    /// The file is about something else.
    #[error("the ledger is of another data set, unit or relation than the configuration says ({0})")]
    OtherIdentity(String),
    /// Store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Accountant.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
}

/// State of one release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseState {
    /// Charged; nothing left the process.
    Reserved,
    /// Payload stored.
    Committed,
    /// Sent at least once.
    Sent,
    /// Receipt stored.
    Receipted,
    /// Told whether it was included.
    Settled {
        /// Whether it was.
        included: bool,
    },
}

/// The right to run exactly one event once. Not `Clone`; only a ledger mints it.
#[derive(Debug)]
pub struct Permit {
    event: DpEvent,
    release: ReleaseId,
}

impl Permit {
    /// The event.
    #[must_use]
    pub fn event(&self) -> &DpEvent {
        &self.event
    }

    /// The release.
    #[must_use]
    pub fn release(&self) -> &ReleaseId {
        &self.release
    }

    /// Consumes the permit into exactly as many step permits as its event composes (one if it composes none).
    pub fn into_steps(self) -> impl Iterator<Item = StepPermit> {
        let (event, count) = match self.event {
            DpEvent::Composed { event, count } => (*event, count),
            event => (event, 1),
        };
        let release = self.release;
        (0..count).map(move |step| StepPermit { event: event.clone(), release: release.clone(), step })
    }
}

/// The right to run one step. Not `Clone`.
#[derive(Debug)]
pub struct StepPermit {
    event: DpEvent,
    release: ReleaseId,
    step: u64,
}

impl StepPermit {
    /// The event of this step.
    #[must_use]
    pub fn event(&self) -> &DpEvent {
        &self.event
    }

    /// The release that the step belongs to.
    #[must_use]
    pub fn release(&self) -> &ReleaseId {
        &self.release
    }

    /// Number of the step, from 0.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }
}

/// The ledger of one data set.
pub struct Ledger<S, K> {
    #[allow(dead_code, reason = "contract")]
    store: S,
    #[allow(dead_code, reason = "contract")]
    signer: K,
}

impl<S: LedgerStore, K: RowSigner> Ledger<S, K> {
    /// Opens the ledger: verifies every row, the chain, signatures, states and attachments; writes the genesis row into an empty store.
    ///
    /// # Errors
    /// Anything doubtful.
    pub fn open(store: S, signer: K, identity: LedgerIdentity, budget: Budget) -> Result<Self, LedgerError> {
        let _ = (identity, budget);
        Ok(Self { store, signer })
    }

    /// Where the chain ends.
    #[must_use]
    pub fn head(&self) -> LedgerHead {
        unimplemented!("contract")
    }

    /// Hash of row `seq`, if there is one (a witness is checked against it).
    ///
    /// # Errors
    /// The witness saw what this ledger does not have.
    pub fn check_witness(&self, witnessed: LedgerHead) -> Result<(), LedgerError> {
        let _ = witnessed;
        unimplemented!("contract")
    }

    /// State of a release.
    #[must_use]
    pub fn state(&self, release: &ReleaseId) -> Option<ReleaseState> {
        let _ = release;
        unimplemented!("contract")
    }

    /// Charges `event` durably, then mints the permit. The same release with the same event and header that is still
    /// RESERVED (a crash) is minted again without a new charge: nothing of it left the process.
    ///
    /// # Errors
    /// Over budget, frozen, conflict, store.
    pub fn reserve(&mut self, release: &ReleaseId, event: &DpEvent, header: Hash) -> Result<Permit, LedgerError> {
        let _ = (release, event, header);
        unimplemented!("contract")
    }

    /// RESERVED → COMMITTED, with the attachment in the same transaction.
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn commit(&mut self, release: &ReleaseId, attachment: &Attachment) -> Result<(), LedgerError> {
        let _ = (release, attachment);
        unimplemented!("contract")
    }

    /// What was committed.
    ///
    /// # Errors
    /// Store, or bytes that do not match their hash.
    pub fn attachment(&mut self, release: &ReleaseId) -> Result<Option<Attachment>, LedgerError> {
        let _ = release;
        unimplemented!("contract")
    }

    /// COMMITTED → SENT (no-op later).
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn sent(&mut self, release: &ReleaseId) -> Result<(), LedgerError> {
        let _ = release;
        unimplemented!("contract")
    }

    /// SENT → RECEIPTED (no-op later).
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn receipted(&mut self, release: &ReleaseId, receipt: Hash) -> Result<(), LedgerError> {
        let _ = (release, receipt);
        unimplemented!("contract")
    }

    /// Applies or drops the pending factor change: factor += rho·pending iff `included`. Idempotent. Returns the factor.
    ///
    /// # Errors
    /// Wrong state, store.
    pub fn settle(&mut self, release: &ReleaseId, included: bool, rho: f64) -> Result<Vec<f64>, LedgerError> {
        let _ = (release, included, rho);
        unimplemented!("contract")
    }

    /// The site's factor in a run (`None` before the first settled update).
    ///
    /// # Errors
    /// Store.
    pub fn factor(&mut self, run: &crate::release::RunId) -> Result<Option<Vec<f64>>, LedgerError> {
        let _ = run;
        unimplemented!("contract")
    }

    /// Releases of a run that are not settled yet, with their states, oldest first.
    #[must_use]
    pub fn unsettled(&self, run: &crate::release::RunId) -> Vec<(ReleaseId, ReleaseState)> {
        let _ = run;
        unimplemented!("contract")
    }

    /// Loss of all charged events, at the budget's δ.
    ///
    /// # Errors
    /// Accountant.
    pub fn spent(&self) -> Result<PrivacyLoss, LedgerError> {
        unimplemented!("contract")
    }

    /// Loss of the events of one run.
    ///
    /// # Errors
    /// Accountant.
    pub fn spent_in(&self, run: &crate::release::RunId) -> Result<PrivacyLoss, LedgerError> {
        let _ = run;
        unimplemented!("contract")
    }

    /// Loss of all charged events and `event` `times` more: what a plan would cost.
    ///
    /// # Errors
    /// Accountant.
    pub fn would_cost(&self, event: &DpEvent, times: u64) -> Result<PrivacyLoss, LedgerError> {
        let _ = (event, times);
        unimplemented!("contract")
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> Budget {
        unimplemented!("contract")
    }

    /// Verified rows, oldest first.
    #[must_use]
    pub fn rows(&self) -> &[(Row, Hash)] {
        unimplemented!("contract")
    }

    /// Freezes or opens the data set.
    ///
    /// # Errors
    /// Store.
    pub fn set_frozen(&mut self, state: FreezeState) -> Result<(), LedgerError> {
        let _ = state;
        unimplemented!("contract")
    }
}
