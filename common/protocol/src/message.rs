//! What is said between server and site. A signed message is its body bytes and a signature over domain and body; bytes are
//! stored and forwarded as they came, never encoded again.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::ledger_head;
pub use crate::metrics::{HeldOutMetrics, PublicMetrics};
use crate::origin::Origin;
use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_names::{ClientId, Hash, PayloadKind, ReleaseId, RunId};
use dp_pvi_privacy::ledger::LedgerHead;
#[cfg(doc)]
use dp_pvi_secagg::charter::SignedCharter;
use dp_pvi_secagg::transcript::SignedEntry;
use dp_pvi_secagg::upload::OpenedUpload;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub(crate) use self::run_end::end_mark;
pub use self::run_end::{RunEnd, RunOutcome, end_reason, is_end};
use crate::bounds::{self, OutOfBounds};

mod run_end;

/// Protocol versions that this build speaks, best first.
pub const PROTOCOL_VERSIONS: &[u32] = &[1];

/// A body type with its signing domain.
pub trait Body: Serialize + DeserializeOwned {
    /// Separates signatures of different kinds of message.
    const DOMAIN: &'static str;
    /// Whether one signature may be over several bodies (`Signed::seal_all`).
    const TOGETHER: Together = Together::Never;

    /// Compares what it says with the table of [`bounds`].
    ///
    /// # Errors
    /// A number, length or text that no honest party says.
    fn check(&self) -> Result<(), OutOfBounds>;

    /// What is signed, for a body of this hash.
    fn signed(&self, hash: Hash) -> Hash {
        hash
    }
}

/// Whether one signature may be over several bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    /// Every body has a signature of its own.
    Never,
    /// A signature may be over the root of a hash tree of bodies.
    Allowed,
}

/// Body bytes with a signature.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Signed<B> {
    /// postcard of the body.
    pub body: Vec<u8>,
    /// Ed25519 over [`Body::signed`] of `Hash::of(DOMAIN, [body])`; or, where `Signed::seal_all` made it, over the root of a hash tree, and then the
    /// way from this body to the root.
    pub signature: Vec<u8>,
    #[serde(skip)]
    kind: PhantomData<fn() -> B>,
}

impl<B> Clone for Signed<B> {
    fn clone(&self) -> Self {
        Self { body: self.body.clone(), signature: self.signature.clone(), kind: PhantomData }
    }
}

/// A message whose signature or form is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// Not signed by the expected key.
    #[error("a message is not signed by the key that was enrolled for its sender")]
    Signature,
    /// Truncated, or of another version.
    #[error("a message cannot be read: truncated, or sent by another version")]
    Malformed,
    /// A number, length or text that no honest party says.
    #[error("a message says something that no honest party says ({0})")]
    Bounds(#[from] OutOfBounds),
}

/// postcard of a body.
fn encoded<B: Body>(body: &B) -> Vec<u8> {
    // Most have a few hundred bytes: a buffer that grows from nothing is moved six times. Plain data: writing it into memory cannot fail.
    postcard::to_extend(body, Vec::with_capacity(512)).expect("bodies serialise into memory")
}

impl<B: Body> Signed<B> {
    /// Encodes and signs a body.
    #[must_use]
    pub fn seal(body: &B, key: &SigningKey) -> Self {
        let bytes = encoded(body);
        let signature = key.sign(&body.signed(Hash::of(B::DOMAIN, &[&bytes])).0).to_bytes().to_vec();
        Self { body: bytes, signature, kind: PhantomData }
    }

    /// Encodes bodies and signs all of them at once: each can be verified alone. One body gets a plain signature.
    ///
    /// # Panics
    /// When this kind of body is signed alone ([`Together::Never`]): a bug.
    #[must_use]
    pub(crate) fn seal_all(bodies: &[B], key: &SigningKey) -> Vec<Self> {
        assert!(B::TOGETHER == Together::Allowed, "{} is signed alone", B::DOMAIN);
        match bodies {
            [] => return Vec::new(),
            [body] => return vec![Self::seal(body, key)],
            _ => {}
        }
        let bodies: Vec<_> = bodies.iter().map(encoded).collect();
        let tree = HashTree::new(bodies.iter().map(|body| Hash::of(B::DOMAIN, &[body])).collect());
        let signature = key.sign(&tree.signed(B::DOMAIN).0).to_bytes();
        let with_way = |(index, body)| Self { body, signature: [&signature[..], &tree.way(index)].concat(), kind: PhantomData };
        bodies.into_iter().enumerate().map(with_way).collect()
    }

    /// Puts received parts together; nothing is verified yet.
    #[must_use]
    pub fn from_parts(body: Vec<u8>, signature: Vec<u8>) -> Self {
        Self { body, signature, kind: PhantomData }
    }

    /// Verifies and decodes.
    ///
    /// # Errors
    /// Wrong signature or form.
    pub fn open(&self, key: &VerifyingKey) -> Result<B, InvalidMessage> {
        let (signature, way) = self.signature.split_first_chunk::<64>().ok_or(InvalidMessage::Signature)?;
        let body = self.decoded();
        let signed = match (way, B::TOGETHER) {
            ([], _) => body.as_ref().map_or_else(|_| self.hash(), |body| body.signed(self.hash())),
            (way, Together::Allowed) => HashTree::follow(B::DOMAIN, self.hash(), way).ok_or(InvalidMessage::Signature)?,
            (_, Together::Never) => return Err(InvalidMessage::Signature),
        };
        if key.verify_strict(&signed.0, &Signature::from_bytes(signature)).is_err() {
            return Err(InvalidMessage::Signature);
        }
        let body = body?;
        body.check()?;
        Ok(body)
    }

    /// Decodes without verifying: only for messages of our own store.
    ///
    /// # Errors
    /// Wrong form, or out of bounds.
    pub fn peek(&self) -> Result<B, InvalidMessage> {
        let body = self.decoded()?;
        body.check()?;
        Ok(body)
    }

    fn decoded(&self) -> Result<B, InvalidMessage> {
        match postcard::take_from_bytes::<B>(&self.body) {
            Ok((body, [])) => Ok(body),
            _ => Err(InvalidMessage::Malformed),
        }
    }

    /// postcard of body and signature: the form in which signed messages are stored and embedded (an attachment's `message`).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Two byte strings: writing them into memory cannot fail.
        postcard::to_stdvec(self).expect("signed messages serialise into memory")
    }

    /// Reads what [`Signed::to_bytes`] wrote; nothing is verified yet.
    ///
    /// # Errors
    /// Truncated, or followed by other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidMessage> {
        match postcard::take_from_bytes(bytes) {
            Ok((signed, [])) => Ok(signed),
            _ => Err(InvalidMessage::Malformed),
        }
    }

    /// Hash of the body, by which later messages refer to it.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(B::DOMAIN, &[&self.body])
    }
}

/// A binary hash tree over the bodies of [`Signed::seal_all`], filled up with zeroes to a power of two.
struct HashTree {
    /// Leaves first; every level is half as long as the one before it.
    levels: Vec<Vec<Hash>>,
}

impl HashTree {
    const NODE: &str = "dp-pvi signed together node v1";
    /// Longest way: trees of more leaves are not made, and ways that claim them not followed.
    const DEPTH: usize = 16;

    fn new(mut leaves: Vec<Hash>) -> Self {
        assert!(leaves.len() <= 1 << Self::DEPTH, "at most 65536 bodies are signed together");
        leaves.resize(leaves.len().next_power_of_two(), Hash::default());
        let mut levels = vec![leaves];
        while let Some(level) = levels.last().filter(|level| level.len() > 1) {
            let next = level.as_chunks::<2>().0.iter().map(|[left, right]| Self::node(left, right)).collect();
            levels.push(next);
        }
        Self { levels }
    }

    fn node(left: &Hash, right: &Hash) -> Hash {
        Hash::of(Self::NODE, &[&left.0, &right.0])
    }

    /// What is signed: the root, for bodies of this domain.
    fn signed(&self, domain: &str) -> Hash {
        // `new` ends with a level of one.
        Self::root(domain, self.levels.last().map_or(&Hash::default(), |top| &top[0]))
    }

    fn root(domain: &str, root: &Hash) -> Hash {
        Hash::of("dp-pvi signed together root v1", &[domain.as_bytes(), &root.0])
    }

    /// The index of a leaf, and the neighbours on its way to the root.
    fn way(&self, index: usize) -> Vec<u8> {
        // At most 2^16 leaves.
        let mut way = u32::try_from(index).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        let neighbours = self.levels.iter().take(self.levels.len() - 1).enumerate().map(|(depth, level)| level[(index >> depth) ^ 1]);
        neighbours.for_each(|neighbour| way.extend_from_slice(&neighbour.0));
        way
    }

    /// What was signed if this leaf is in a tree by this way.
    fn follow(domain: &str, leaf: Hash, way: &[u8]) -> Option<Hash> {
        let (index, way) = way.split_first_chunk::<4>()?;
        let (neighbours, []) = way.as_chunks::<32>() else { return None };
        let index = u32::from_le_bytes(*index);
        if neighbours.is_empty() || neighbours.len() > Self::DEPTH || index >> neighbours.len() != 0 {
            return None;
        }
        let root = neighbours.iter().enumerate().fold(leaf, |node, (depth, neighbour)| {
            let neighbour = Hash(*neighbour);
            if index >> depth & 1 == 0 { Self::node(&node, &neighbour) } else { Self::node(&neighbour, &node) }
        });
        Some(Self::root(domain, &root))
    }
}

/// Part of a client in the federation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Holds private records and sends updates.
    Site,
    /// Holds a public test set and sends metrics only.
    Evaluator,
}

/// What a hello is said for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Intent {
    /// To take part in the run.
    Join,
    /// To see the task and the server's witness of the ledger; nothing at the server changes.
    Observe,
}

/// First message of a connection, signed by the site's identity key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions that the client speaks.
    pub versions: Vec<u32>,
    /// Federation name.
    pub federation: String,
    /// Who.
    pub client: ClientId,
    /// As what.
    pub role: Role,
    /// What for.
    pub intent: Intent,
    /// SHA-256 of the TLS public key (SubjectPublicKeyInfo) that this connection uses.
    pub tls_key: Hash,
    /// Task that the client already knows, if any; another one is an error, not a change.
    pub task: Option<Hash>,
    /// Declared number of units, fixed for the run (sites only).
    pub nominal_units: Option<u64>,
    /// Unit and relation of the site's ledger (sites only).
    pub ledger: Option<(PrivacyUnit, Relation)>,
    /// Where the site's ledger ends (sites only).
    pub ledger_head: Option<LedgerHead>,
    /// Where the site's rows come from (sites only).
    pub rows: Option<Origin>,
    /// Program version, for people.
    pub software: String,
}

impl Body for Hello {
    const DOMAIN: &'static str = "dp-pvi hello v1";

    fn check(&self) -> Result<(), OutOfBounds> {
        bounds::hello(self)
    }
}

/// The server's answer to a hello, signed by the server's identity key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Chosen version.
    pub version: u32,
    /// The run.
    pub run: RunId,
    /// Canonical bytes of the resolved task.
    pub task: Vec<u8>,
    /// Highest ledger head that the server ever saw from this site.
    pub witnessed: Option<LedgerHead>,
    /// Hash of the hello that this answers.
    pub hello: Hash,
}

impl Body for Welcome {
    const DOMAIN: &'static str = "dp-pvi welcome v1";

    fn check(&self) -> Result<(), OutOfBounds> {
        bounds::welcome(self)
    }
}

/// Opens a round; signed by the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundHeader {
    /// The run.
    pub run: RunId,
    /// The round, from 0.
    pub round: u32,
    /// Whose turn it is (sequential); everyone's if absent.
    pub turn: Option<ClientId>,
    /// Visit number (sweep or round), the index into the task's damping.
    pub visit: u32,
    /// Hash of λ's bytes.
    pub lambda: Hash,
    /// Hash of the previous transcript entry (default before the first).
    pub previous: Hash,
    /// Seconds from opening to deadline, for people and time-outs.
    pub deadline_seconds: u64,
    /// Reserved for aggregation: root of the participants, key of the summer.
    pub reserved: Vec<Vec<u8>>,
}

impl Body for RoundHeader {
    const DOMAIN: &'static str = "dp-pvi round header v1";

    fn check(&self) -> Result<(), OutOfBounds> {
        bounds::round_header(self)
    }
}

/// A site's update; signed by the site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// Which release.
    pub release: ReleaseId,
    /// Hash of the header that asked for it.
    pub header: Hash,
    /// Kind of payload.
    pub kind: PayloadKind,
    /// Number of coordinates.
    pub coordinates: u64,
    /// [`payload_hash`] of the payload bytes.
    pub payload: Hash,
    /// Where the site's ledger ended when the update was committed.
    pub ledger_head: LedgerHead,
    /// Commitment and sealed seed of a masked payload, signed for server and summer, with the commitment's salt, for the server.
    pub upload: Option<OpenedUpload>,
}

impl Body for Update {
    const DOMAIN: &'static str = "dp-pvi update v1";

    fn check(&self) -> Result<(), OutOfBounds> {
        bounds::update(self)
    }

    /// The ledger's head beside the hash: it can be shown without the rest.
    fn signed(&self, hash: Hash) -> Hash {
        ledger_head::said(&self.release.client, &self.release.run, self.ledger_head, hash)
    }
}

/// Hash of payload bytes (kind included): what [`PayloadHasher`] gives for the same bytes in any chunks.
#[must_use]
pub fn payload_hash(kind: PayloadKind, bytes: &[u8]) -> Hash {
    let mut hasher = PayloadHasher::new(kind, bytes.len() as u64);
    hasher.update(bytes);
    hasher.finish()
}

/// Hash of a vector of natural parameters: over its little-endian bytes.
#[must_use]
pub fn vector_hash(values: &[f64]) -> Hash {
    let mut hasher = Parts::new("dp-pvi vector v1");
    hasher.begin(values.len() as u64 * 8);
    for chunk in values.chunks(512) {
        let mut bytes = [0; 4096];
        for (slot, value) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(chunk) {
            *slot = value.to_le_bytes();
        }
        hasher.0.update(&bytes[..chunk.len() * 8]);
    }
    hasher.finish()
}

/// [`Hash::of`], in pieces.
#[derive(Debug, Clone)]
struct Parts(Sha256);

impl Parts {
    fn new(domain: &str) -> Self {
        let mut parts = Self(Sha256::new());
        parts.part(domain.as_bytes());
        parts
    }

    fn begin(&mut self, length: u64) {
        self.0.update(length.to_le_bytes());
    }

    fn part(&mut self, bytes: &[u8]) {
        self.begin(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

/// [`payload_hash`] of bytes that arrive in chunks.
#[derive(Debug, Clone)]
pub struct PayloadHasher(Parts);

impl PayloadHasher {
    /// Starts the hash of `length` bytes.
    #[must_use]
    pub fn new(kind: PayloadKind, length: u64) -> Self {
        let mut parts = Parts::new("dp-pvi payload v1");
        match kind {
            PayloadKind::Lattice { exponent } => parts.part(&exponent.to_le_bytes()),
            PayloadKind::Values => parts.part(&[]),
            PayloadKind::Masked { exponent } => {
                parts.part(b"masked");
                parts.part(&exponent.to_le_bytes());
            }
        }
        parts.begin(length);
        Self(parts)
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.0.update(bytes);
    }

    /// The hash; meaningful when exactly the announced number of bytes came.
    #[must_use]
    pub fn finish(self) -> Hash {
        self.0.finish()
    }
}

/// What became of an update; signed by the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Which release.
    pub release: ReleaseId,
    /// Hash of the update message.
    pub update: Hash,
    /// Outcome.
    pub outcome: ReceiptOutcome,
    /// Highest ledger head seen from this site.
    pub witnessed: Option<LedgerHead>,
    /// Reserved for aggregation.
    pub reserved: Vec<Vec<u8>>,
}

impl Body for Receipt {
    const DOMAIN: &'static str = "dp-pvi receipt v1";
    const TOGETHER: Together = Together::Allowed;

    fn check(&self) -> Result<(), OutOfBounds> {
        bounds::receipt(self)
    }
}

/// Outcomes of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiptOutcome {
    /// Stored for the open round (also when sent again).
    Stored,
    /// The round had closed: the charge stays, the factor does not move.
    Excluded,
}

/// A site will not take part in a round; signed by the site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which release is not made.
    pub release: ReleaseId,
    /// Hash of the header.
    pub header: Hash,
    /// Why, as public information only.
    pub reason: RefusalReason,
}

impl Body for Refusal {
    const DOMAIN: &'static str = "dp-pvi refusal v1";

    fn check(&self) -> Result<(), OutOfBounds> {
        bounds::refusal(self)
    }
}

/// Public reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalReason {
    /// The data set's budget does not allow it.
    Budget,
    /// The site's policy does not allow it.
    Policy,
    /// The ledger is frozen.
    Frozen,
    /// An earlier release of the same name exists.
    Spent,
    /// The site was charged for all its visits: one whose reservation was lost in a crash counts too (asynchronous).
    Visited,
    /// No one at the site has approved the task, or the charter, yet.
    Approval,
    /// The task is not one that the site's program computes, or does not cost what it states.
    Task,
    /// The site cannot compute now: a file, memory, a disk.
    Unable,
    /// The posterior that the round starts from is not finite, or no distribution.
    Posterior,
}

/// What happened in a round: the chain that every party can check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TranscriptEntry {
    /// The header, as signed.
    pub header: Signed<RoundHeader>,
    /// Included updates by client, ascending: hash of the update message.
    pub included: Vec<(ClientId, Hash)>,
    /// How the round ended.
    pub outcome: RoundOutcome,
    /// Hash of λ′.
    pub lambda: Hash,
    /// Hash of the previous entry.
    pub previous: Hash,
    /// Under aggregated trust: the entry of the round's aggregation.
    pub aggregation: Option<SignedEntry>,
}

impl TranscriptEntry {
    /// The entry's hash, to which the next header refers.
    #[must_use]
    pub fn hash(&self) -> Hash {
        // Plain data: writing it into memory cannot fail.
        Hash::of("dp-pvi transcript entry v1", &[&postcard::to_stdvec(self).expect("entries serialise into memory")])
    }

    /// Bytes of the entry of the aggregation, for the wire.
    #[must_use]
    pub fn aggregation_bytes(&self) -> Option<Vec<u8>> {
        self.aggregation.as_ref().map(crate::codec::encode)
    }

    /// Reads [`TranscriptEntry::aggregation_bytes`].
    #[must_use]
    pub fn read_aggregation(bytes: &[u8]) -> Option<SignedEntry> {
        crate::codec::decode(bytes)
    }
}

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundOutcome {
    /// Everyone who was asked answered.
    Complete,
    /// Closed at the deadline with those who answered.
    Deadline,
    /// A sequential turn passed without an update.
    Skipped,
    /// Fewer than `min_sites` answered: the run ends here and λ stays.
    Aborted,
    /// All answered but sites that have been silent for three rounds: they were not waited for.
    WithoutSilent,
}

/// What the server has for a client that asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Nothing yet: ask again.
    Wait,
    /// A charter that this site has not signed: [`SignedCharter::to_bytes`].
    Charter(Vec<u8>),
    /// The first of the entries that the client lacks, where there are more than one answer holds: it asks again.
    Entries(Box<Catchup>),
    /// An open round.
    Round(Box<RoundStart>),
    /// The run is over.
    Finished(Box<RunEnd>),
}

/// An open round, as a client gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundStart {
    /// Signed header.
    pub header: Signed<RoundHeader>,
    /// λ (shared: a server holds one copy for all clients).
    pub lambda: Arc<[f64]>,
    /// Entries since the one that the client last saw, oldest first.
    pub entries: Vec<Arc<TranscriptEntry>>,
    /// Under aggregated trust the charter with all signatures, for a client that has seen no entry.
    pub charter: Option<Vec<u8>>,
}

/// Entries of a transcript, as a client gets them that lacks many.
#[derive(Debug, Clone, PartialEq)]
pub struct Catchup {
    /// Entries since the one that the client last saw, oldest first.
    pub entries: Vec<Arc<TranscriptEntry>>,
    /// As in [`RoundStart`].
    pub charter: Option<Vec<u8>>,
}

/// Held-out metrics of one round, from an evaluator; signed by it. One is made in one place, from
/// [`PublicMetrics`] (see [`EvaluatorParticipant::report`](crate::participant::EvaluatorParticipant::report)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricsReport {
    /// The run.
    pub run: RunId,
    /// Number of rounds that the evaluated λ contains (0 = prior).
    pub round: u32,
    /// The metrics.
    pub metrics: HeldOutMetrics,
}

impl Body for MetricsReport {
    const DOMAIN: &'static str = "dp-pvi metrics v1";

    fn check(&self) -> Result<(), OutOfBounds> {
        bounds::metrics_report(self)
    }
}

#[cfg(test)]
mod tests;
