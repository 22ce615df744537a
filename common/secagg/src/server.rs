//! The server's states of one round: collecting → closing → summing → completed; or aborted. Vectors are not kept here: the caller
//! spools them until close and adds them in a stream, so that memory is O(d).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dp_pvi_names::{ClientId, Hash, LatticeVector};
use dp_pvi_privacy::mechanism::SumBound;
use ed25519_dalek::SigningKey;

use crate::charter::Charter;
use crate::closing::{CloseRequest, ContributorSet, MaskSum, MaskSumBody};
use crate::commitment::{Commitment, Salt};
use crate::error::{Rejected, SecAggError};
use crate::header::{SignedHeader, VerifiedHeader};
use crate::ring::{RingSum, WORD};
use crate::signed::Signed;
use crate::transcript::{Head, Outcome, SignedEntry, TranscriptEntry};
use crate::upload::{self, SignedUpload, Upload};

/// Where the server is in a round.
#[derive(Debug)]
pub enum ServerRound {
    /// Uploads arrive.
    Collecting(Collecting),
    /// The set is fixed; the summer is asked.
    Closing(Closing),
    /// Masks are off; vectors are being added.
    Summing(Summing),
    /// Over, with a sum.
    Completed(Completed),
    /// Over, without one.
    Aborted(Aborted),
}

/// What stays the same through a round.
#[derive(Debug, Clone)]
struct Round {
    charter: Arc<Charter>,
    head: Head,
    header: VerifiedHeader,
}

/// Whether an upload was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    /// Stored: receipt it once its vector is durable.
    New,
    /// The very bytes that are stored already: receipt it again.
    Again,
}

/// Uploads arrive.
#[derive(Debug)]
pub struct Collecting {
    round: Round,
    uploads: BTreeMap<ClientId, (SignedUpload, Commitment)>,
}

impl Collecting {
    /// Opens the round of a header that continues the transcript.
    ///
    /// # Errors
    /// It does not, or is not signed by both.
    pub fn open(charter: Arc<Charter>, head: Head, header: &SignedHeader) -> Result<Self, SecAggError> {
        let header = header.open(&charter)?;
        head.expects(header.header().round, header.header().previous)?;
        Ok(Self { round: Round { charter, head, header }, uploads: BTreeMap::new() })
    }

    /// Checks an upload with the words of its vector: signature, header, history, size, commitment.
    ///
    /// # Errors
    /// Any of them fails, or other bytes are stored for this client.
    pub fn accept(&mut self, upload: &SignedUpload, salt: &Salt, words: &[u8]) -> Result<Acceptance, SecAggError> {
        let Round { charter, header, .. } = &self.round;
        let Upload { client, commitment, .. } = upload::open(upload, charter, header.hash(), header.header().previous)?;
        let expected = u64::from(header.header().dimension) * WORD as u64;
        if words.len() as u64 != expected {
            return Err(SecAggError::Size { expected, got: words.len() as u64 });
        }
        if !Commitment::of_bytes(salt, &header.hash(), &client, words).matches(&commitment) {
            return Err(SecAggError::Commitment { client });
        }
        match self.uploads.get(&client) {
            Some((stored, _)) if stored == upload => Ok(Acceptance::Again),
            Some(_) => Err(SecAggError::OtherUpload { client }),
            None => {
                self.uploads.insert(client, (upload.clone(), commitment));
                Ok(Acceptance::New)
            }
        }
    }

    /// How many have arrived.
    #[must_use]
    pub fn present(&self) -> usize {
        self.uploads.len()
    }

    /// Fixes the set.
    ///
    /// # Errors
    /// Below the minimum: the round is aborted.
    pub fn close(self) -> Result<Closing, Box<Rejected<Aborted>>> {
        Closing::over(self.round, self.uploads)
    }

    /// Gives the round up.
    #[must_use]
    pub fn abort(self) -> Aborted {
        Aborted { round: self.round }
    }
}

/// Closes a round whose uploads were checked and stored as they came: they are checked again here, but for their vectors, whose
/// commitments a caller compares while it stores them ([`crate::commitment::Committer`]).
///
/// # Errors
/// The header does not continue the transcript, or an upload is not this round's. Too few uploads are an aborted round
/// ([`ServerRound::Aborted`]).
pub fn close(charter: Arc<Charter>, head: Head, header: &SignedHeader, uploads: Vec<SignedUpload>) -> Result<ServerRound, SecAggError> {
    let mut collecting = Collecting::open(charter, head, header)?;
    for signed in uploads {
        let Upload { client, commitment, .. } = upload::verify(&signed, &collecting.round.charter, &collecting.round.header)?;
        if collecting.uploads.insert(client.clone(), (signed, commitment)).is_some() {
            return Err(SecAggError::DuplicateClient { client });
        }
    }
    Ok(match collecting.close() {
        Ok(closing) => ServerRound::Closing(closing),
        Err(rejected) => ServerRound::Aborted(rejected.state),
    })
}

/// The set is fixed.
#[derive(Debug)]
pub struct Closing {
    round: Round,
    uploads: BTreeMap<ClientId, (SignedUpload, Commitment)>,
    contributors: ContributorSet,
}

impl Closing {
    fn over(round: Round, uploads: BTreeMap<ClientId, (SignedUpload, Commitment)>) -> Result<Self, Box<Rejected<Aborted>>> {
        let members = uploads.iter().map(|(client, (_, commitment))| (client.clone(), *commitment)).collect();
        match ContributorSet::new(members, &round.charter) {
            Ok(contributors) => Ok(Self { round, uploads, contributors }),
            Err(error) => Err(Rejected::new(Aborted { round }, error)),
        }
    }

    /// What to ask the summer; always the same bytes.
    #[must_use]
    pub fn request(&self) -> CloseRequest {
        let uploads = self.uploads.values().map(|(upload, _)| upload.clone()).collect();
        CloseRequest { header: self.round.header.hash(), round: self.round.header.header().round, uploads }
    }

    /// Leaves a client out whose seed the summer cannot open. Possible only as long as the summer has not closed.
    ///
    /// # Errors
    /// Below the minimum then: the round is aborted.
    pub fn without(mut self, client: &ClientId) -> Result<Self, Box<Rejected<Aborted>>> {
        self.uploads.remove(client);
        Self::over(self.round, self.uploads)
    }

    /// Takes the summer's answer.
    ///
    /// # Errors
    /// Not the summer's, or for another closing.
    pub fn answer(self, masks: &MaskSum) -> Result<Summing, Box<Rejected<Self>>> {
        let contributors = self.contributors.hash(&self.round.header.hash());
        match masks.open(&self.round.charter, &self.round.header, contributors) {
            Ok(sum) => Ok(Summing {
                round: self.round,
                waiting: self.contributors.members().iter().map(|(client, _)| client.clone()).collect(),
                contributors: self.contributors,
                statement: masks.statement.clone(),
                sum: sum.negated(),
            }),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }

    /// Gives the round up.
    #[must_use]
    pub fn abort(self) -> Aborted {
        Aborted { round: self.round }
    }
}

/// Masks are off; vectors are being added.
#[derive(Debug)]
pub struct Summing {
    round: Round,
    contributors: ContributorSet,
    waiting: BTreeSet<ClientId>,
    statement: Signed<MaskSumBody>,
    sum: RingSum,
}

impl Summing {
    /// Adds a contributor's spooled words: those that [`Collecting::accept`] saw.
    ///
    /// # Errors
    /// Not a contributor, added before, or of another size.
    pub fn add(&mut self, client: &ClientId, words: &[u8]) -> Result<(), SecAggError> {
        if !self.waiting.contains(client) {
            return Err(SecAggError::DuplicateClient { client: client.clone() });
        }
        self.sum.add_bytes(words)?;
        self.waiting.remove(client);
        Ok(())
    }

    /// Adds the sum of all vectors of the set, where the caller has added each of them once.
    ///
    /// # Errors
    /// Not the agreed number of words.
    pub fn add_total(&mut self, words: &[u8]) -> Result<(), SecAggError> {
        self.sum.add_bytes(words)?;
        self.waiting.clear();
        Ok(())
    }

    /// The sum and the round's entry, once every vector is in and the sum is one that the charter's sites can have sent.
    ///
    /// # Errors
    /// Vectors are missing, or the sum is out of range: then abort the round.
    pub fn finish(self, key: &SigningKey) -> Result<Completed, Box<Rejected<Self>>> {
        if !self.waiting.is_empty() {
            let missing = self.waiting.len();
            return Err(Rejected::new(self, SecAggError::Incomplete { missing }));
        }
        let sum = self.sum.clone().into_lattice(self.round.header.header().exponent);
        let charter = &self.round.charter;
        // No one can say whose vector it was: a sum out of bounds names no one.
        let sites = u32::try_from(self.contributors.members().len()).unwrap_or(u32::MAX);
        let bound = charter.plan(self.round.head.round).map(|plan| SumBound::of_shares(&plan.mechanism, sites));
        if !bound.is_ok_and(|bound| bound.admits(&sum.values)) {
            return Err(Rejected::new(self, SecAggError::SumOutOfRange));
        }
        let outcome = Outcome::Completed {
            contributors: self.contributors,
            masks: self.statement,
            sum: Hash::of("dp-pvi secagg sum v1", &[&crate::ring::to_bytes(&sum)]),
        };
        let (entry, head) = self.round.entry(outcome, key);
        Ok(Completed { sum, entry, head })
    }

    /// Gives the round up.
    #[must_use]
    pub fn abort(self) -> Aborted {
        Aborted { round: self.round }
    }
}

/// Over, with a sum.
#[derive(Debug)]
pub struct Completed {
    /// Sum of the contributors' noised vectors.
    pub sum: LatticeVector,
    /// What is published.
    pub entry: SignedEntry,
    /// Where the transcript stands.
    pub head: Head,
}

/// Over, without a sum.
#[derive(Debug)]
pub struct Aborted {
    round: Round,
}

impl Aborted {
    /// What is published, and where the transcript stands.
    #[must_use]
    pub fn publish(self, key: &SigningKey) -> (SignedEntry, Head) {
        self.round.entry(Outcome::Aborted, key)
    }
}

impl Round {
    fn entry(self, outcome: Outcome, key: &SigningKey) -> (SignedEntry, Head) {
        publish(self.head, self.header.hash(), outcome, key)
    }
}

/// Ends a round that never had a header (the summer lost its key, or is away).
#[must_use]
pub fn skip(charter: &Charter, head: Head, key: &SigningKey) -> (SignedEntry, Head) {
    publish(head, charter.hash(), Outcome::Aborted, key)
}

fn publish(head: Head, header: Hash, outcome: Outcome, key: &SigningKey) -> (SignedEntry, Head) {
    let entry = Signed::seal(&TranscriptEntry { round: head.round, header, previous: head.previous, outcome }, key);
    let head = Head { round: head.round + 1, previous: entry.hash() };
    (entry, head)
}
