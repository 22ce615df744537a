//! A client's states: idle → accepted → sent → idle. A transition uses the old state up; the caller stores the new one first.
//!
//! The ledger's part is between the arrows: RESERVE (with the header's hash) after [`Idle::accept`], COMMIT (with the outgoing
//! bytes) after [`Accepted::mask`]. One release for a (run, client, round), for ever, is the ledger's rule; this machine adds that the
//! header fits the charter, the transcript and the model.

use std::sync::Arc;

use dp_pvi_names::{ClientId, Hash, LatticeVector};
use dp_pvi_privacy::mechanism::{Masked, NoiseShare};
use ed25519_dalek::SigningKey;
use rand_core::CryptoRng;
use serde::{Deserialize, Serialize};

use crate::charter::{Charter, Floors};
use crate::commitment::{Commitment, Salt};
use crate::error::{Rejected, SecAggError};
use crate::header::{SignedHeader, VerifiedHeader};
use crate::mask::MaskSeed;
use crate::seal::SealedSeed;
use crate::signed::{PublicKey, Signed};
use crate::transcript::{Head, Outcome, SignedEntry, TranscriptEntry};
use crate::upload::{SignedUpload, Upload};

/// A site with a charter that it accepts.
#[derive(Debug)]
pub struct Client {
    charter: Arc<Charter>,
    id: ClientId,
    key: SigningKey,
}

impl Client {
    /// Accepts a charter (its type says that every party signed it): this site's own key under its name, and the floors of its policy.
    ///
    /// # Errors
    /// Either fails.
    pub fn new(charter: Arc<Charter>, id: ClientId, key: SigningKey, floors: &Floors) -> Result<Self, SecAggError> {
        if *charter.key_of(&id)? != PublicKey::of(&key) {
            return Err(SecAggError::Charter("it lists another key under this site's name"));
        }
        charter.meets(floors)?;
        Ok(Self { charter, id, key })
    }

    /// The charter.
    #[must_use]
    pub fn charter(&self) -> &Charter {
        &self.charter
    }

    /// The state before round 0.
    #[must_use]
    pub fn start(&self) -> Idle {
        Idle { head: Head::start(&self.charter) }
    }

    /// Between rounds, at a head that this site has followed entry by entry and whose uploads it has looked for itself.
    #[must_use]
    pub fn resume(&self, head: Head) -> Idle {
        Idle { head }
    }
}

/// Where a client is. Holds nothing secret: it may be written to disk as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientState {
    /// Between rounds.
    Idle(Idle),
    /// A header is accepted; nothing is sent.
    Accepted(Accepted),
    /// The upload exists; only its bytes may be sent, for ever.
    Sent(Sent),
}

/// Between rounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    head: Head,
}

/// A header is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    head: Head,
    header: VerifiedHeader,
}

/// An upload is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    head: Head,
    header: Hash,
    commitment: Commitment,
}

/// What leaves the site: the masked vector and the message about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// Signed message.
    pub upload: SignedUpload,
    /// Opens the commitment: for the server only.
    pub salt: Salt,
    /// Masked vector; travels as [`crate::ring::to_bytes`].
    pub vector: Masked<LatticeVector>,
}

/// What became of this site's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    /// In the sum: the factor moves.
    Included,
    /// Not in the sum: the charge stays, the factor does not move.
    Excluded,
    /// No sum: the charge stays.
    Aborted,
}

impl Idle {
    /// Where the client is in the transcript.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Accepts a header: both signatures, every field of the charter, the transcript's next link, and the model that arrived.
    ///
    /// # Errors
    /// Any of them fails; the client stays idle.
    pub fn accept(self, client: &Client, header: &SignedHeader, model: &Hash) -> Result<Accepted, Box<Rejected<Self>>> {
        let check = || {
            let header = header.open(&client.charter)?;
            self.head.expects(header.header().round, header.header().previous)?;
            if header.header().model != *model {
                return Err(SecAggError::OtherModel);
            }
            Ok(header)
        };
        match check() {
            Ok(header) => Ok(Accepted { head: self.head, header }),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }

    /// Follows a round in which this site had no part.
    ///
    /// # Errors
    /// The entry is not the next, breaks the rules, or lists an upload that this site did not make.
    pub fn settle(self, client: &Client, entry: &SignedEntry) -> Result<Self, Box<Rejected<Self>>> {
        match settle(self.head, None, None, client, entry) {
            Ok((next, _)) => Ok(next),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }
}

impl Accepted {
    /// Binds masks and the ledger's reservation.
    #[must_use]
    pub fn header(&self) -> &VerifiedHeader {
        &self.header
    }

    /// Masks a share under a fresh seed, commits to it with a fresh salt, seals the seed for the summer and signs. The share is used up; the seed is
    /// erased here and exists afterwards in the summer's envelope only.
    ///
    /// # Errors
    /// The share has another shape than the header's (it is erased all the same), or the summer's key is unusable.
    pub fn mask(
        self,
        client: &Client,
        share: NoiseShare<LatticeVector>,
        rng: &mut impl CryptoRng,
    ) -> Result<(Sent, Outgoing), Box<Rejected<Self>>> {
        let (header, hash) = (self.header.header(), self.header.hash());
        if (share.dimension(), share.exponent()) != (header.dimension as usize, header.exponent) {
            let (expected, got) = (8 * u64::from(header.dimension), 8 * share.dimension() as u64);
            return Err(Rejected::new(self, SecAggError::Size { expected, got }));
        }
        let seed = MaskSeed::fresh(rng);
        let vector = share.mask(&mut seed.stream(&hash, &client.id));
        let salt = Salt::fresh(rng);
        let commitment = Commitment::of(&salt, &hash, &client.id, vector.get());
        let seed = match SealedSeed::new(&seed, &header.round_key, &hash, &client.id, &commitment, rng) {
            Ok(seed) => seed,
            Err(error) => return Err(Rejected::new(self, error)),
        };
        let upload = Upload { header: hash, client: client.id.clone(), commitment, seed, echo: self.head.previous };
        let upload = Signed::seal(&upload, &client.key);
        Ok((Sent { head: self.head, header: hash, commitment }, Outgoing { upload, salt, vector }))
    }

    /// The round ended before this site sent anything.
    ///
    /// # Errors
    /// As [`Idle::settle`], or the entry is for another header than the accepted one.
    pub fn settle(self, client: &Client, entry: &SignedEntry) -> Result<Idle, Box<Rejected<Self>>> {
        match settle(self.head, Some(self.header.hash()), None, client, entry) {
            Ok((next, _)) => Ok(next),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }
}

impl Sent {
    /// Own commitment.
    #[must_use]
    pub fn commitment(&self) -> Commitment {
        self.commitment
    }

    /// Checks the entry of the round: the chain, the header, the minimum, the summer's statement, the own commitment.
    ///
    /// # Errors
    /// Any of them fails: the site must not take part in further rounds before someone has looked at it.
    pub fn settle(self, client: &Client, entry: &SignedEntry) -> Result<(Idle, Settled), Box<Rejected<Self>>> {
        match settle(self.head, Some(self.header), Some(&self.commitment), client, entry) {
            Ok(settled) => Ok(settled),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }
}

fn settle(
    head: Head,
    header: Option<Hash>,
    own: Option<&Commitment>,
    client: &Client,
    entry: &SignedEntry,
) -> Result<(Idle, Settled), SecAggError> {
    let (head, TranscriptEntry { header: entry_header, outcome, .. }) = head.follow(entry, &client.charter)?;
    if header.is_some_and(|header| header != entry_header) {
        return Err(SecAggError::Chain);
    }
    let settled = match outcome {
        Outcome::Aborted => Settled::Aborted,
        Outcome::Completed { contributors, .. } => match (contributors.commitment_of(&client.id), own) {
            (None, _) => Settled::Excluded,
            (Some(listed), Some(own)) if listed.matches(own) => Settled::Included,
            (Some(_), _) => return Err(SecAggError::OwnCommitment),
        },
    };
    Ok((Idle { head }, settled))
}
