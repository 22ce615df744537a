//! The loops that production, tests and simulation share: a site, an evaluator, and the server's side of both.
//!
//! They are generic over [`Transport`](crate::transport::Transport), [`Trainer`], [`Clock`] and [`Observer`], and need no particular async runtime.

mod client;
mod serve;

use std::sync::Arc;
use std::time::Duration;

use dp_pvi_names::{Hash, ReleaseId, RunId};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_secagg::charter::CharterBody;

pub use self::client::{drive_evaluator, drive_site};
pub use self::serve::{ServeError, Server, Store, StoreError, SummerTrouble};
use crate::message::{HeldOutMetrics, PublicMetrics, ReceiptOutcome, RefusalReason, RunEnd, RunOutcome};
use crate::participant::{SiteError, TrainJob, Trained};
use crate::time::{Backoff, Timestamp};
use crate::transport::TransportError;

/// Time, from outside.
#[allow(async_fn_in_trait, reason = "used generically inside this workspace only")]
pub trait Clock {
    /// Now.
    fn now(&self) -> Timestamp;
    /// Waits.
    async fn sleep(&self, duration: Duration);
}

/// Training did not give a result. The reservation stays and is used again later; the process should end.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct TrainError {
    /// Who is to look.
    pub kind: TrainErrorKind,
    /// Words for the operator; never a record's value.
    pub message: String,
}

/// Who is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainErrorKind {
    /// The task has another schema than the site's.
    Data,
    /// Memory, randomness, a thread.
    Resource,
    /// A bug.
    Internal,
}

/// Computes a site's visits.
#[allow(async_fn_in_trait, reason = "used generically inside this workspace only")]
pub trait Trainer {
    /// Where seeds of masks come from: the operating system, in production.
    type Random: rand_core::CryptoRng;

    /// A fresh generator for what a release needs beside noise.
    ///
    /// # Errors
    /// No randomness is available.
    fn randomness(&mut self, release: &ReleaseId) -> Result<Self::Random, TrainError>;

    /// The run and its task are known (called after every welcome). Records were read before the hello: what happens here, and how long it
    /// takes, may depend on the task only.
    ///
    /// # Errors
    /// The task is not one for this site; the site withdraws.
    async fn prepare(&mut self, run: &RunId, task: &Arc<ResolvedTask>) -> Result<(), TrainError> {
        let _ = (run, task);
        Ok(())
    }

    /// Whether a visit can be computed now: asked before it is reserved, because a reservation is charged and its tries are few. What it looks at, and how long it takes, must not
    /// depend on records.
    ///
    /// # Errors
    /// It cannot. Nothing is reserved; the site withdraws, and a restart is asked again.
    async fn ready(&mut self) -> Result<(), TrainError> {
        Ok(())
    }

    /// Computes one visit.
    ///
    /// # Errors
    /// Nothing was released.
    async fn train(&mut self, job: TrainJob) -> Result<Trained, TrainError>;
}

/// Evaluates posteriors on public data.
#[allow(async_fn_in_trait, reason = "used generically inside this workspace only")]
pub trait Evaluate {
    /// The run's task is known.
    ///
    /// # Errors
    /// The data cannot be used.
    async fn prepare(&mut self, task: &Arc<ResolvedTask>) -> Result<(), TrainError> {
        let _ = task;
        Ok(())
    }

    /// Metrics at λ.
    ///
    /// # Errors
    /// There are none.
    async fn evaluate(&mut self, lambda: &[f64]) -> Result<PublicMetrics, TrainError>;
}

/// What happens, for logs and progress bars: public values only.
#[derive(Debug)]
pub enum Event<'a> {
    /// Welcomed.
    Joined {
        /// The run.
        run: RunId,
        /// Its task.
        task: &'a ResolvedTask,
    },
    /// The server claims to have seen a row of this site's ledger that the ledger does not have, without this site's signature for it: it lies,
    /// or runs from a state that has lost it. The site goes by its own ledger.
    UnprovedWitness {
        /// The row that the server names.
        claimed: u64,
        /// The last row of the ledger.
        here: u64,
    },
    /// The server asks for a signature on the charter of an aggregated run. Nothing in it is checked yet.
    Charter {
        /// Hash of its text: what the parties compare.
        hash: Hash,
        /// Its text.
        text: &'a CharterBody,
    },
    /// A call failed and is tried again.
    Retrying {
        /// How often it failed in a row.
        failures: u32,
        /// Time until the next try.
        wait: Duration,
        /// Why.
        error: &'a TransportError,
    },
    /// The transcript has this many entries now.
    Seen {
        /// Number of entries.
        entries: u32,
    },
    /// A visit is being computed; its budget is reserved.
    Training {
        /// The round.
        round: u32,
        /// The visit.
        visit: u32,
    },
    /// An update is durable here.
    Committed {
        /// The round.
        round: u32,
    },
    /// An update waits for the release tick.
    Waiting {
        /// The round.
        round: u32,
        /// How long.
        wait: Duration,
    },
    /// An update is handed to the transport.
    Sending {
        /// The round.
        round: u32,
        /// Payload bytes.
        bytes: u64,
    },
    /// The server answered.
    Receipted {
        /// The round.
        round: u32,
        /// Outcome.
        outcome: ReceiptOutcome,
    },
    /// A refusal was sent.
    Refused {
        /// The round.
        round: u32,
        /// Why.
        reason: RefusalReason,
    },
    /// A posterior was evaluated and reported.
    Reported {
        /// Rounds in it.
        round: u32,
        /// The metrics.
        metrics: &'a HeldOutMetrics,
    },
    /// Over.
    Finished {
        /// How.
        outcome: RunOutcome,
    },
}

/// Listens.
pub trait Observer {
    /// Something happened.
    fn on_event(&mut self, event: &Event<'_>);
}

/// Hears nothing.
impl Observer for () {
    fn on_event(&mut self, _event: &Event<'_>) {}
}

/// Longest pause of a client between two tries to reach a server. What a server offers for a short time, as the end of its run, it must offer for
/// longer than this.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Pauses of a client between tries to reach a server.
pub const BETWEEN: Backoff = Backoff { first: Duration::from_millis(250), longest: LONGEST_PAUSE };

/// How to wait for a server that is away.
pub struct Patience {
    /// Waits after failures.
    pub between: Backoff,
    /// Give up a server that was reached before when nothing succeeded for this long.
    pub give_up_after: Duration,
    /// Give up one that was never reached after this long: it may have ended with an error, and who has begun nothing with it loses nothing.
    pub first_contact: Duration,
    /// Pause before asking again when the server has nothing.
    pub idle: Duration,
    /// Factor in (0, 1] on the wait after the given number of failures: spreads sites that lost the same server.
    pub jitter: Box<dyn Fn(u32) -> f64 + Send + Sync>,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            between: BETWEEN,
            give_up_after: Duration::from_secs(3600),
            first_contact: Duration::from_secs(3600),
            idle: Duration::from_millis(50),
            jitter: Box::new(|_| 1.0),
        }
    }
}

/// Why a client stopped.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The server was away for too long, or refuses.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The site's own checks.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// Data or computation.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// What a site did in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteOutcome {
    /// The end.
    pub end: RunEnd,
    /// Refusals that this process sent: round and reason.
    pub refusals: Vec<(u32, RefusalReason)>,
    /// Updates that this process sent.
    pub sent: u32,
}
