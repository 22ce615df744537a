//! What goes into a coordinator and what comes out of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::shape::Shape;
use dp_pvi_names::{ClientId, Hash, PayloadKind};
use dp_pvi_posterior::task::TaskError;
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_privacy::mechanism::SumBound;
use dp_pvi_secagg::commitment::{Commitment, Salt};
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::Record;
use crate::message::{InvalidMessage, ReceiptOutcome, RefusalReason, Role, RunOutcome};
use crate::sum::PayloadError;
use crate::time::Timestamp;
use crate::transport::Rejection;
use crate::witness::{SignedHead, Witnessed};

/// What a coordinator is made from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the federation.
    pub federation: String,
    /// Canonical bytes of the resolved task.
    pub task: Vec<u8>,
    /// Number of the run of this task.
    pub run: u32,
    /// The server's identity key: one copy of it, wherever the settings go.
    pub key: Arc<SigningKey>,
    /// Enrolled clients.
    pub clients: BTreeMap<ClientId, Enrolled>,
    /// The first round opens when all enrolled sites have joined, or this long after the run was opened with at least the
    /// task's `min_sites`; with fewer the run ends there.
    pub start_deadline: Duration,
    /// A run that lost its quorum ends when it was suspended for this long.
    pub suspend_for: Duration,
    /// Highest ledger heads that this server saw in earlier runs.
    pub witnessed: BTreeMap<ClientId, Witnessed>,
    /// The second party, for tasks under aggregated trust.
    pub summer: Option<SummerParty>,
}

/// The second party of an aggregated run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummerParty {
    /// Its identity key.
    pub key: VerifyingKey,
    /// Hash of the certificate authority's certificate, which the charter names.
    pub authority: Hash,
}

/// An enrolled client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enrolled {
    /// Its part.
    pub role: Role,
    /// Its identity key.
    pub key: VerifyingKey,
}

/// The authenticated peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Client id of the certificate.
    pub client: ClientId,
    /// SHA-256 of the certificate's SubjectPublicKeyInfo.
    pub tls_key: Hash,
}

/// An answer that may be given once its records are durable, in one transaction and in this order.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "records must be persisted before the answer is given"]
pub struct Durable<T> {
    /// First persist these (perhaps none).
    pub records: Vec<Record>,
    /// Then answer or do this.
    pub then: T,
}

/// What to do with an update whose payload has not been read yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Begin {
    /// Read the payload, check it with [`crate::sum::PayloadCheck`], make it durable, then call `on_update_stored`.
    Accept(Box<Expected>),
    /// Do not read the payload; it has its receipt (stored before, or excluded).
    Answered(Answered),
}

/// An update that has been answered: [`super::Coordinator::receipts`] signs its receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The sender.
    pub client: ClientId,
    /// For which round.
    pub round: u32,
    /// What its receipt says.
    pub outcome: ReceiptOutcome,
}

/// The payload that an update announces.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// Kind.
    pub kind: PayloadKind,
    /// Number of coordinates; 8 bytes each.
    pub coordinates: u64,
    /// [`crate::message::payload_hash`] of the payload.
    pub payload: Hash,
    /// Under aggregated trust: what the masked vector was committed to be.
    pub commitment: Option<Committed>,
    /// Of a lattice payload under local trust: what an honest site's can be.
    pub bound: Option<SumBound>,
    /// What an honest site's can be, beside that bound.
    pub shape: Option<std::sync::Arc<Shape>>,
    /// Of a lattice payload with effects of sites: the coordinates that this site may fill, ascending. `None`: all.
    pub places: Option<std::sync::Arc<[u32]>>,
}

/// The commitment to a masked vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The sender.
    pub client: ClientId,
    /// Hash of the aggregation's header.
    pub header: Hash,
    /// The commitment.
    pub commitment: Commitment,
    /// What opens it.
    pub salt: Salt,
}

impl Expected {
    /// Length of the payload in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.coordinates * 8
    }
}

/// What a poll asks for, after its records are durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Nothing more now: poll again at [`super::Coordinator::wake_at`] or after the next input.
    Rest,
    /// Poll again at once.
    Again,
    /// Sum these payloads ([`crate::sum::Accumulator`]) and give the result to `on_sum`.
    Close(Close),
}

/// A round that waits for its sum.
#[derive(Debug, Clone, PartialEq)]
pub struct Close {
    /// The round.
    pub round: u32,
    /// Kind of every payload.
    pub kind: PayloadKind,
    /// Number of coordinates of every payload.
    pub coordinates: u64,
    /// Clients, ascending, with the hashes of their update messages.
    pub included: Vec<(ClientId, Hash)>,
}

/// A message that is not accepted; the state is as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// No such client.
    #[error("{0} is not enrolled in this federation: enrol it, then try again")]
    NotEnrolled(ClientId),
    /// The message names another client, federation, role or TLS key than the connection.
    #[error("the message and the connection do not belong together ({0})")]
    Foreign(&'static str),
    /// Signature or form.
    #[error(transparent)]
    Invalid(#[from] InvalidMessage),
    /// No common protocol version.
    #[error("no common protocol version: this server speaks {here:?}, the client {there:?}; upgrade the older one")]
    Version {
        /// Versions of this build.
        here: &'static [u32],
        /// Versions that the client offered.
        there: Vec<u32>,
    },
    /// Another task, run, unit or relation.
    #[error("another task than this server's run ({0})")]
    OtherTask(&'static str),
    /// Something that is fixed for the run changed.
    #[error("{0} is fixed for the run and was declared differently before")]
    Changed(&'static str),
    /// More units than the task admits.
    #[error(
        "this site declares {declared} units, the task admits at most {most} a site (max_units): declare fewer, or ask for another task"
    )]
    TooManyUnits {
        /// Declared.
        declared: u64,
        /// Admitted.
        most: u64,
    },
    /// A client that left and came back more often than a run keeps.
    #[error("this client left this run and came back too often: start it again in {seconds} s, and look at why it leaves")]
    TooOften {
        /// Until it is welcome again.
        seconds: u64,
    },
    /// A vector of a noised sum of which no bound is known.
    #[error("no bound on this vector can be computed ({0}), so it is not taken: report this as a bug of the server")]
    Unbounded(&'static str),
    /// A call without a hello before it in this run.
    #[error("say hello first")]
    HelloFirst,
    /// A round that is not there, or a header that is not ours.
    #[error("the message is about a round or header that this run does not have")]
    UnknownRound,
    /// Not asked for an update in this round.
    #[error("no update was asked from this client in this round")]
    NotAsked,
    /// The client has seen more of the run than this server.
    #[error(
        "the client has seen {seen} rounds of this run, the server only {here}: the server runs from an old copy; restore the latest one"
    )]
    AheadOfServer {
        /// Entries that the client has.
        seen: u32,
        /// Entries that the server has.
        here: u32,
    },
    /// Something else than what came before under the same name.
    #[error(
        "this client has sent something else under the same name before: another process with its key and an older copy of its files is at work. \
         Stop one of the two, and go on with the files of the one that was first"
    )]
    Conflict,
    /// Kind or number of coordinates.
    #[error("the payload has another kind or number of coordinates than the task ({0})")]
    WrongSize(&'static str),
    /// A part of the aggregation that does not fit the charter or the round.
    #[error("the aggregation refuses the message: {0}")]
    Aggregation(String),
    /// A payload that is not what its update announced.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The client's role does not send this.
    #[error("a client of this role does not send this message")]
    WrongRole,
}

impl Rejected {
    /// Its kind on the wire.
    #[must_use]
    pub fn kind(&self) -> Rejection {
        match self {
            Self::NotEnrolled(_) | Self::Foreign(_) | Self::WrongRole | Self::Invalid(InvalidMessage::Signature) => {
                Rejection::Authentication
            }
            Self::Version { .. } | Self::OtherTask(_) => Rejection::Version,
            Self::HelloFirst => Rejection::HelloFirst,
            Self::Conflict => Rejection::Copy,
            Self::Changed(_) | Self::TooManyUnits { .. } | Self::TooOften { .. } | Self::Unbounded(_) | Self::AheadOfServer { .. } => {
                Rejection::Other
            }
            Self::Invalid(InvalidMessage::Malformed | InvalidMessage::Bounds(_))
            | Self::UnknownRound
            | Self::NotAsked
            | Self::Payload(_)
            | Self::Aggregation(_)
            | Self::WrongSize(_) => Rejection::Message,
        }
    }
}

/// Settings or records from which no coordinator can be made.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// An aggregated task without a second party.
    #[error(
        "the task has trust = \"aggregated\", and no summer is configured: name its address and identity key, or use trust = \"local\""
    )]
    NoSummer,
    /// The task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Records that do not follow from each other or from the settings.
    #[error("the stored run cannot be continued ({0}): the state belongs to another task, key or run, or is damaged")]
    Inconsistent(&'static str),
}

/// What became of a site's refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heeded {
    /// It counts, and the run's records say so.
    Now,
    /// It counted already.
    Before,
    /// Its round had closed: it changes nothing.
    TooLate,
}

/// What a suspended run lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lack {
    /// Sites: these are waited for.
    Sites(Vec<ClientId>),
    /// The summer of an aggregated run.
    Summer,
}

/// State of a run, for people.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// Waiting for sites.
    Gathering,
    /// A round is open.
    Open {
        /// The round.
        round: u32,
        /// Whose turn it is, if sequential.
        turn: Option<ClientId>,
        /// Sites that were asked and have not answered.
        waiting: Vec<ClientId>,
        /// When it closes at the latest; none before the first poll.
        deadline: Option<Timestamp>,
    },
    /// The run lost its quorum, and goes on when what it lacks is there.
    Suspended {
        /// What it lacks.
        lack: Lack,
        /// When it ends; none before the first poll, and while an operator has paused it.
        until: Option<Timestamp>,
    },
    /// Between two rounds.
    Between,
    /// No round is open because an operator paused the run.
    Paused,
    /// Over.
    Ended(RunOutcome),
}

/// A client as the run knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its part.
    pub role: Role,
    /// Declared number of units (sites).
    pub nominal_units: Option<u64>,
    /// Highest ledger head seen.
    pub head: Option<LedgerHead>,
    /// Updates included so far.
    pub included: u32,
    /// Reason of the last refusal, if any, and its round.
    pub refused: Option<(u32, RefusalReason)>,
    /// Whether it left the run.
    pub withdrawn: bool,
    /// How many of its hellos the run keeps from now on.
    pub joins: Joins,
    /// Rounds in a row in which it was asked and said nothing before the deadline. From `SILENT_ROUNDS` on it is not waited for.
    pub silent: u32,
    /// How often a round waited for it again since its last update that was in time, because it spoke while it was silent.
    pub returned: u32,
    /// The message in which it signed its highest head, as far as this run has it.
    pub signed: Option<SignedHead>,
}

/// Hellos of one client, after its first, that a run keeps at once. A run's records must not grow as often as someone likes to connect, and
/// who restarts for good reasons (an approval that is waited for, a disk without room) must not be locked out of a run that takes weeks:
/// so what was used comes back with time.
pub(crate) const MAX_JOINS: u32 = 256;

/// After so long one more hello is kept.
pub(crate) const JOIN_EVERY: Duration = Duration::from_secs(60);

/// What is left of `MAX_JOINS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joins {
    left: u32,
    /// What was used after this has come back up to here.
    since: Timestamp,
}

impl Joins {
    /// For a client whose first hello came now.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { left: MAX_JOINS, since: now }
    }

    fn refilled(self, now: Timestamp) -> Self {
        let back = now.since(self.since).as_secs() / JOIN_EVERY.as_secs();
        match u32::try_from(back).ok().and_then(|back| self.left.checked_add(back)).filter(|left| *left < MAX_JOINS) {
            // Part of a minute is not lost.
            Some(left) => Self { left, since: self.since.plus(Duration::from_secs(back * JOIN_EVERY.as_secs())) },
            None => Self { left: MAX_JOINS, since: now },
        }
    }

    /// How long until a hello is kept; none: this one is.
    #[must_use]
    pub fn wait(self, now: Timestamp) -> Option<Duration> {
        let Self { left, since } = self.refilled(now);
        // Whole seconds, upwards: after them it is welcome.
        (left == 0)
            .then(|| Duration::from_secs(since.plus(JOIN_EVERY).since(now).as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)))
    }

    /// A hello was kept.
    pub(super) fn take(&mut self, now: Timestamp) {
        let refilled = self.refilled(now);
        *self = Self { left: refilled.left.saturating_sub(1), ..refilled };
    }
}

/// A site that has been silent for so many rounds in a row is not waited for until it speaks again: an update that is in time counts as
/// speech for all of them; a late one, a refusal or a hello gives it one round more, [`MAX_RETURNS`] times.
pub(crate) const SILENT_ROUNDS: u32 = 3;

/// How often a silent site is waited for again without an update that was in time. It is asked and heard after that, too.
pub(crate) const MAX_RETURNS: u32 = 3;
