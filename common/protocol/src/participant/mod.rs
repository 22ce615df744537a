//! A client's side of the protocol as state machines without I/O.
//!
//! A site works over its ledger. The ledger is the only durable state: what it says decides what a restarted site does.
//! RESERVED: the visit is computed again under the same reservation (nothing of it left the process). COMMITTED and SENT: the
//! stored bytes are sent again. A site trusts no one: it recomputes the task hash and ε, checks the server's signature on every
//! header, the chain of transcript entries, λ's hash, and its own ledger against the server's witness.

mod chain;
mod evaluator;
mod identity;
mod site;

use std::sync::Arc;

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_names::ReleaseId;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::{Attachment, LedgerError};
use dp_pvi_privacy::mechanism::Message;
use dp_pvi_privacy::{Pending, Permit, SiteState};
use dp_pvi_secagg::error::SecAggError;

pub use self::evaluator::{Evaluation, EvaluatorParticipant, EvaluatorStep};
pub use self::identity::{Approve, Identity, Policy};
pub use self::site::Participant;
use crate::message::{Refusal, RefusalReason, RunEnd, Signed};

/// A visit to compute.
#[derive(Debug)]
pub struct TrainJob {
    /// The task.
    pub task: Arc<ResolvedTask>,
    /// Number of the visit, from 0.
    pub visit: u32,
    /// λ.
    pub lambda: Arc<[f64]>,
    /// The site's state in the run: λ_m, public or private-clean.
    pub state: SiteState,
    /// The right to compute it, once.
    pub permit: Permit,
}

/// A computed visit. Only a [`Message::Released`] payload can be sent as it is.
#[derive(Debug)]
pub struct Trained {
    /// What is sent.
    pub message: Message,
    /// Change of the site's state, to be scaled by ρ when the update is included.
    pub pending: Pending,
}

/// A committed update: what is sent, always the same bytes.
pub struct Outgoing {
    /// Which release.
    pub release: ReleaseId,
    /// The stored bytes.
    pub attachment: Attachment,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("release", &self.release).finish_non_exhaustive()
    }
}

/// What a site does next.
#[derive(Debug)]
pub enum Step {
    /// Ask again later.
    Wait,
    /// Ask again at once: the server has more entries.
    More,
    /// Send this signature on the run's charter.
    Consent(Vec<u8>),
    /// Compute, then `Participant::on_trained`.
    Train(Box<TrainJob>),
    /// Wait for the release tick, then `Participant::on_sending`, then send.
    Send(Box<Outgoing>),
    /// Send this refusal.
    Refuse(Box<Signed<Refusal>>, RefusalReason),
    /// The run is over and everything is settled.
    Finished(Box<RunEnd>),
}

/// Why a client stops.
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
    /// The task protects another unit than the ledger charges for.
    #[error(
        "the task protects {task:?} as its privacy unit, this data set's ledger {ledger:?}: take part with a task of the ledger's unit"
    )]
    Unit {
        /// Unit of the task.
        task: PrivacyUnit,
        /// Unit of the ledger.
        ledger: PrivacyUnit,
    },
    /// The ledger charges for a weaker relation than the task states.
    #[error("a ledger under {ledger:?} cannot book a task under {task:?}: take part with a task under the ledger's relation")]
    Relation {
        /// Relation of the task.
        task: Relation,
        /// Relation of the ledger.
        ledger: Relation,
    },
    /// The site's policy forbids the task.
    #[error("the site's policy does not allow this task: {0}")]
    Policy(String),
    /// No one here has approved the task, or the charter, yet.
    #[error("the site's policy does not allow this task: {0}")]
    Unapproved(String),
    /// The site's operator gave the run up.
    #[error(
        "this site gave up run {0} of the task (`dp-pvi-client forget`), and takes no further part in it: a new run of the task (`dp-pvi-server run --new-run`) is another one"
    )]
    GivenUp(u32),
    /// The server breaks the protocol: forked, rolled back, or asking for more than the task says.
    #[error("the server is not to be trusted in this run: {0}; nothing more is computed or sent")]
    Server(&'static str),
    /// The server opens a round that came before one in which this site reserved: every round before that one was closed then.
    #[error(
        "the server is not to be trusted in this run: it is behind this site's own ledger, which knows {seen} closed rounds: it runs from an old \
         copy; nothing more is computed or sent"
    )]
    ServerBehind {
        /// Rounds that were closed when this site reserved last.
        seen: u32,
    },
    /// The transcript has an update of this site that its ledger does not have.
    #[error("round {round} has an update of this site that its ledger does not know: the ledger is an old copy; restore the latest one")]
    Forgotten {
        /// The round.
        round: u32,
    },
    /// The aggregation: a charter, header or entry that does not fit.
    #[error("the aggregation: {0}")]
    Aggregation(#[from] SecAggError),
    /// Accountant.
    #[error(transparent)]
    Accountant(#[from] dp_pvi_accounting::AccountantError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A call in the wrong order: a bug of ours.
    #[error("{0}: report this as a bug")]
    Order(&'static str),
}

impl SiteError {
    /// Whether this process works on an old copy of the site's ledger. The site itself may be at work elsewhere, so that a copy must not withdraw it from the run.
    #[must_use]
    pub(crate) fn is_of_a_copy(&self) -> bool {
        matches!(self, Self::Ledger(LedgerError::RolledBack { .. } | LedgerError::Forked { .. }) | Self::Forgotten { .. })
    }

    /// What the server is told as the reason of a withdrawal: public information only.
    #[must_use]
    pub fn reason(&self) -> RefusalReason {
        match self {
            Self::Ledger(LedgerError::OverBudget { .. } | LedgerError::OverRunBudget { .. } | LedgerError::OverFallback { .. }) => {
                RefusalReason::Budget
            }
            Self::Ledger(LedgerError::Frozen) => RefusalReason::Frozen,
            Self::Unapproved(_) => RefusalReason::Approval,
            Self::Version(_) | Self::Understated { .. } | Self::Unit { .. } | Self::Relation { .. } => RefusalReason::Task,
            _ => RefusalReason::Policy,
        }
    }
}

#[cfg(test)]
mod tests;
