//! What can go wrong, by who is at fault. No message contains a vector, a seed or a key.

use dp_pvi_names::ClientId;

use crate::plan::PlanError;

/// The summer's store or its vault failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the summer's store failed, nothing was answered: {0}")]
pub struct StoreError(pub String);

/// A step that was refused. The state before it still holds; nothing was revealed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SecAggError {
    /// Configuration: parameters that do not work together.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Configuration: a charter that contradicts itself or lowers a floor of this site.
    #[error("the charter is refused: {0}; agree on another one and let every party sign it")]
    Charter(&'static str),
    /// Configuration: a party has not signed the charter.
    #[error("the charter is not signed by {party}: every party must sign it before the first round")]
    Unsigned {
        /// `server`, `summer`, or the name of a site.
        party: String,
    },
    /// Peer: a signature that does not belong to the key in the charter.
    #[error("{what} is not signed by the key that the charter names: drop it and check who sent it")]
    Signature {
        /// Kind of message.
        what: &'static str,
    },
    /// Peer: truncated bytes, or another version's.
    #[error("{what} cannot be read: truncated, or sent by another version")]
    Malformed {
        /// Kind of message.
        what: &'static str,
    },
    /// Peer: a header that differs from the charter.
    #[error("the round header differs from the charter in its {field}: refuse the round and report the server")]
    Header {
        /// What differs.
        field: &'static str,
    },
    /// Peer: the header speaks of another model than the one received.
    #[error("the round header names another model than the one that arrived: the server may show different models to different sites")]
    OtherModel,
    /// Peer: the transcript is not continued.
    #[error("the message does not continue the transcript that this party holds: a fork or a replay")]
    Chain,
    /// Peer: a round that is over, or not yet due.
    #[error("round {got} where round {expected} is due: a replay, or a message out of order")]
    Round {
        /// The round that is due.
        expected: u32,
        /// The round of the message.
        got: u32,
    },
    /// Peer: a second header for a round.
    #[error("round {round} has another header already: one header a round, for ever")]
    SecondHeader {
        /// The round.
        round: u32,
    },
    /// Peer: a client that the charter does not know.
    #[error("{client} is not in the charter")]
    UnknownClient {
        /// The name.
        client: ClientId,
    },
    /// Peer: a client twice in one set, or a set out of order.
    #[error("{client} is listed twice or out of order")]
    DuplicateClient {
        /// The name.
        client: ClientId,
    },
    /// Peer: other bytes under an upload that is already accepted.
    #[error("{client} has sent other bytes before for this round: the first upload stays")]
    OtherUpload {
        /// The name.
        client: ClientId,
    },
    /// Peer: an upload for another header.
    #[error("the upload of {client} is for another header than this round's")]
    OtherHeader {
        /// The name.
        client: ClientId,
    },
    /// Peer: a vector that is not the one committed to.
    #[error("the vector of {client} is not the one that its commitment names")]
    Commitment {
        /// The name.
        client: ClientId,
    },
    /// Peer: a seed that was not sealed for this header, client and commitment, or whose key is gone.
    #[error("the seed of {client} cannot be opened: sealed for another header, client or commitment; close without it")]
    SealedSeed {
        /// The name.
        client: ClientId,
    },
    /// Peer: two parties hold different transcripts.
    #[error("{client} echoes another transcript than this party's: the server shows different histories")]
    SplitView {
        /// The name.
        client: ClientId,
    },
    /// Peer: fewer contributors than the charter's minimum.
    #[error("{present} contributors where the charter asks for {needed}: the round is aborted, its charges stay")]
    TooFew {
        /// How many there are.
        present: u32,
        /// How many are needed.
        needed: u32,
    },
    /// Peer: a second closing of a round with another set.
    #[error("round {round} is closed over another set of clients: no second sum is ever given out")]
    SecondClosing {
        /// The round.
        round: u32,
    },
    /// State: the key of a round is destroyed, as it must be after closing.
    #[error("the key of round {round} is destroyed: the round is over, or the store was restored from a copy; open the next round")]
    KeyDestroyed {
        /// The round.
        round: u32,
    },
    /// Peer: the summer's answer is for another closing.
    #[error("the sum of masks is for another round or another set of clients")]
    OtherClosing,
    /// Peer: this site's own upload is listed with another commitment.
    #[error("the transcript lists this site's upload with another commitment than its own: refuse all further rounds")]
    OwnCommitment,
    /// Peer: a vector of another size.
    #[error("a vector of {got} bytes where {expected} were agreed")]
    Size {
        /// Bytes agreed.
        expected: u64,
        /// Bytes received.
        got: u64,
    },
    /// Peer: the sum is larger than honest contributions can be: someone sent a vector out of range, or a wrong mask.
    #[error(
        "the sum is larger than the contributions of the charter can be: a party sent a wrong vector, seed or sum of masks; abort the round"
    )]
    SumOutOfRange,
    /// Us: payloads were not added exactly once each.
    #[error("{missing} vectors of the closed set were not added: add each once before finishing")]
    Incomplete {
        /// How many are missing.
        missing: usize,
    },
    /// State: the summer's store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SecAggError {
    /// Whether the summer says so for ever: a key is destroyed, a round has another header or set already, or the transcript is another than
    /// its own. The same question will have no other answer.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::KeyDestroyed { .. }
                | Self::SecondHeader { .. }
                | Self::SecondClosing { .. }
                | Self::Header { .. }
                | Self::Round { .. }
                | Self::Chain
        )
    }
}

/// A refused transition: the state that still holds, and why.
#[derive(Debug)]
pub struct Rejected<S> {
    /// The state, unchanged.
    pub state: S,
    /// The reason.
    pub error: SecAggError,
}

impl<S> Rejected<S> {
    pub(crate) fn new(state: S, error: SecAggError) -> Box<Self> {
        Box::new(Self { state, error })
    }
}
