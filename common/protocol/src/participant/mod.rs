//! A site's side of the protocol as a state machine without I/O, over its ledger.
//!
//! The ledger is the only durable state: what it says decides what a restarted site does. RESERVED: the visit is computed
//! again under the same reservation (nothing of it left the process). COMMITTED and SENT: the stored bytes are sent again.
//! A site trusts nobody: it recomputes the task hash and ε, checks the server's signature on every header, the chain of
//! transcript entries, λ's hash, and its own ledger against the server's witness.

mod evaluator;

pub use self::evaluator::{Evaluation, EvaluatorParticipant, EvaluatorStep};

use std::sync::Arc;

use dp_pvi_posterior::task::{ResolvedTask, Trust};
use dp_pvi_privacy::ledger::{Attachment, LedgerError, LedgerStore, RowSigner};
use dp_pvi_privacy::{ClientId, Hash, Ledger, Payload, Permit, ReleaseId, Released};
use ed25519_dalek::{SigningKey, VerifyingKey};

use crate::message::{Hello, Next, Receipt, ReceiptOutcome, Refusal, RefusalReason, RunEnd, Signed, Welcome};

/// Who a client is and whom it trusts.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name of the federation.
    pub federation: String,
    /// Client id.
    pub client: ClientId,
    /// Own identity key.
    pub key: SigningKey,
    /// The server's identity key, pinned.
    pub server: VerifyingKey,
    /// SHA-256 of the SubjectPublicKeyInfo of the TLS certificate that the transport uses.
    pub tls_key: Hash,
    /// Program version, for people.
    pub software: String,
    /// The only task that is accepted, if set.
    pub task: Option<Hash>,
}

/// What a site accepts.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Which tasks.
    pub approve: Approve,
    /// Which trust models.
    pub allow_trust: Vec<Trust>,
}

/// How a task is approved (decision 18).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approve {
    /// Any task within the policy and the budget.
    Policy,
    /// Only tasks whose hash an operator recorded.
    Manual {
        /// The recorded hashes.
        approved: Vec<Hash>,
    },
    /// Only this task.
    Exactly(Hash),
}

/// A visit to compute.
#[derive(Debug)]
pub struct TrainJob {
    /// The task.
    pub task: Arc<ResolvedTask>,
    /// Number of the visit, from 0.
    pub visit: u32,
    /// λ.
    pub lambda: Arc<[f64]>,
    /// λ_m (zero before the first included update).
    pub factor: Vec<f64>,
    /// The right to compute it, once.
    pub permit: Permit,
}

/// A computed visit. Only a [`Released`] payload can be sent.
#[derive(Debug)]
pub struct Trained {
    /// What is sent.
    pub payload: Released<Payload>,
    /// Change of the site's factor, to be scaled by ρ when the update is included.
    pub pending: Option<Vec<f64>>,
}

/// A committed update: what is sent, always the same bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// Which release.
    pub release: ReleaseId,
    /// The stored bytes.
    pub attachment: Attachment,
}

/// What to do next.
#[derive(Debug)]
pub enum Step {
    /// Ask again later.
    Wait,
    /// Compute, then [`Participant::on_trained`].
    Train(Box<TrainJob>),
    /// Wait for the release tick, then [`Participant::on_sending`], then send.
    Send(Box<Outgoing>),
    /// Send this refusal.
    Refuse(Box<Signed<Refusal>>, RefusalReason),
    /// The run is over and everything is settled.
    Finished(Box<RunEnd>),
}

/// Why a site stops.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// A message is not from the server, or is damaged.
    #[error("{0}: check that the configured server identity is the right one")]
    Message(#[from] crate::message::InvalidMessage),
    /// Versions do not meet, or the task is not one of this engine.
    #[error("the server's version or task does not fit this program: {0}")]
    Version(String),
    /// The task states less than it costs.
    #[error(
        "the task states epsilon {stated}, but costs {own} by this site's own account: the server's figure is wrong, nothing is computed"
    )]
    Understated {
        /// ε in the task.
        stated: f64,
        /// ε by own computation.
        own: f64,
    },
    /// The site's policy forbids the task.
    #[error("the site's policy does not allow this task: {0}")]
    Policy(String),
    /// The server breaks the protocol: forked, rolled back, or asking for more than the task says.
    #[error("the server is not to be trusted in this run: {0}; nothing more is computed or sent")]
    Server(&'static str),
    /// Accountant.
    #[error(transparent)]
    Accountant(#[from] dp_pvi_privacy::accountant::AccountantError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The site's state machine.
pub struct Participant<S, K> {
    identity: Identity,
    policy: Policy,
    nominal_units: u64,
    ledger: Ledger<S, K>,
}

impl<S: LedgerStore, K: RowSigner> Participant<S, K> {
    /// A site that has not said hello. `nominal_units` is the declared public number of units.
    #[must_use]
    pub fn new(identity: Identity, policy: Policy, nominal_units: u64, ledger: Ledger<S, K>) -> Self {
        Self { identity, policy, nominal_units, ledger }
    }

    /// The ledger, for reports.
    #[must_use]
    pub fn ledger(&self) -> &Ledger<S, K> {
        &self.ledger
    }

    /// The first message of a connection.
    #[must_use]
    pub fn hello(&self) -> Signed<Hello> {
        let _ = (&self.identity, &self.policy, self.nominal_units);
        unimplemented!("contract")
    }

    /// Checks the server's answer to `hello`: signature, version, task, own ε, policy, witness.
    ///
    /// # Errors
    /// See [`SiteError`]. After [`SiteError::Policy`], [`Participant::withdrawal`] tells the server.
    pub fn on_welcome(&mut self, hello: &Signed<Hello>, welcome: &Signed<Welcome>) -> Result<Arc<ResolvedTask>, SiteError> {
        let _ = (hello, welcome);
        unimplemented!("contract")
    }

    /// The signed word that this site takes no part in the run that it was welcomed to.
    #[must_use]
    pub fn withdrawal(&self) -> Option<Signed<Refusal>> {
        unimplemented!("contract")
    }

    /// Number of transcript entries that were received and checked.
    #[must_use]
    pub fn seen(&self) -> u32 {
        unimplemented!("contract")
    }

    /// What the server has: checks it, settles earlier releases, and says what to do.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub fn on_next(&mut self, next: Next) -> Result<Step, SiteError> {
        let _ = next;
        unimplemented!("contract")
    }

    /// The visit was computed: signs and commits it.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub fn on_trained(&mut self, trained: Trained) -> Result<Outgoing, SiteError> {
        let _ = trained;
        unimplemented!("contract")
    }

    /// The update is about to be handed to the transport.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub fn on_sending(&mut self, outgoing: &Outgoing) -> Result<(), SiteError> {
        let _ = outgoing;
        unimplemented!("contract")
    }

    /// The server's receipt: checks and books it.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub fn on_receipt(&mut self, outgoing: &Outgoing, receipt: &Signed<Receipt>) -> Result<ReceiptOutcome, SiteError> {
        let _ = (outgoing, receipt);
        unimplemented!("contract")
    }
}
