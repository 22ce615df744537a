//! Round headers: signed by server *and* summer, compared with the charter in every field.

use dp_pvi_names::{Hash, RunId};
use ed25519_dalek::SigningKey;
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::charter::Charter;
use crate::error::SecAggError;
use crate::seal::RoundPublicKey;
use crate::signed::{Body, Signed, decode, encode, sign};

const DOMAIN: &str = "dp-pvi secagg round header v1";
const WHAT: &str = "the round header";

/// What a round is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundHeader {
    /// Hash of the charter.
    pub charter: Hash,
    /// The run.
    pub run: RunId,
    /// The round, from 0.
    pub round: u32,
    /// Hash of the previous transcript entry; in round 0, of the charter.
    pub previous: Hash,
    /// Hash of the model that every site receives.
    pub model: Hash,
    /// Hash of names and keys of the sites.
    pub participants: Hash,
    /// U_min, again: what is agreed is said where it is used.
    pub min_contributors: u32,
    /// d, again.
    pub dimension: u32,
    /// k, again.
    pub exponent: i32,
    /// The summer's key of this round.
    pub round_key: RoundPublicKey,
    /// When the server closes, in seconds since 1970. For information: nothing here reads a clock.
    pub deadline: u64,
}

impl RoundHeader {
    /// The header that the charter allows for a round.
    ///
    /// # Errors
    /// The charter has no such round.
    pub fn new(
        charter: &Charter,
        round: u32,
        previous: Hash,
        model: Hash,
        round_key: RoundPublicKey,
        deadline: u64,
    ) -> Result<Self, SecAggError> {
        let body = charter.body();
        let mechanism = &charter.plan(round)?.mechanism;
        Ok(Self {
            charter: charter.hash(),
            run: body.run,
            round,
            previous,
            model,
            participants: charter.participants(),
            min_contributors: body.min_contributors,
            dimension: mechanism.dimension(),
            exponent: mechanism.exponent(),
            round_key,
            deadline,
        })
    }

    /// Every field that the charter fixes.
    fn check(&self, charter: &Charter) -> Result<(), SecAggError> {
        let expected = Self::new(charter, self.round, self.previous, self.model, self.round_key, self.deadline)?;
        let field = if self.charter != expected.charter {
            "charter"
        } else if self.run != expected.run {
            "run"
        } else if self.participants != expected.participants {
            "participants"
        } else if self.min_contributors != expected.min_contributors {
            "minimum of contributors"
        } else if (self.dimension, self.exponent) != (expected.dimension, expected.exponent) {
            "lattice"
        } else if self.deadline > bounds::DEADLINE {
            "deadline"
        } else {
            return Ok(());
        };
        Err(SecAggError::Header { field })
    }
}

/// The summer's key of a round, offered to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOffer {
    /// Hash of the charter.
    pub charter: Hash,
    /// The round.
    pub round: u32,
    /// The key.
    pub key: RoundPublicKey,
}

impl Body for KeyOffer {
    const DOMAIN: &'static str = "dp-pvi secagg round key v1";
    const WHAT: &'static str = "the summer's round key";
}

/// A header that the server signed; the summer has not yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedHeader {
    body: Vec<u8>,
    server: Vec<u8>,
}

impl ProposedHeader {
    /// The server's half: only around a key that the summer offered for this round.
    ///
    /// # Errors
    /// The offer is not the summer's, or for another charter or round; or the header differs from the charter.
    pub fn new(header: &RoundHeader, offer: &Signed<KeyOffer>, charter: &Charter, server: &SigningKey) -> Result<Self, SecAggError> {
        header.check(charter)?;
        let offer = offer.open(&charter.body().summer)?;
        if (offer.charter, offer.round, offer.key) != (charter.hash(), header.round, header.round_key) {
            return Err(SecAggError::Header { field: "round key" });
        }
        let body = encode(header);
        let server = sign(server, DOMAIN, &body);
        Ok(Self { body, server })
    }

    /// The summer reads the header, once the server's signature and the charter agree.
    ///
    /// # Errors
    /// They do not.
    pub fn open(&self, charter: &Charter) -> Result<VerifiedHeader, SecAggError> {
        charter.body().server.verify(DOMAIN, &self.body, &self.server, WHAT)?;
        VerifiedHeader::read(&self.body, charter)
    }

    /// The summer's half.
    #[must_use]
    pub(crate) fn countersign(self, summer: &SigningKey) -> SignedHeader {
        let summer = sign(summer, DOMAIN, &self.body);
        SignedHeader { body: self.body, server: self.server, summer }
    }
}

/// A header with both signatures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHeader {
    body: Vec<u8>,
    server: Vec<u8>,
    summer: Vec<u8>,
}

impl SignedHeader {
    /// The header, once both signatures and every field that the charter fixes are checked.
    ///
    /// # Errors
    /// A signature is wrong, or a field differs.
    pub fn open(&self, charter: &Charter) -> Result<VerifiedHeader, SecAggError> {
        charter.body().server.verify(DOMAIN, &self.body, &self.server, "the round header (server)")?;
        charter.body().summer.verify(DOMAIN, &self.body, &self.summer, "the round header (summer)")?;
        VerifiedHeader::read(&self.body, charter)
    }
}

/// A header that agrees with the charter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedHeader {
    header: RoundHeader,
    hash: Hash,
}

impl VerifiedHeader {
    fn read(body: &[u8], charter: &Charter) -> Result<Self, SecAggError> {
        let header: RoundHeader = decode(body, WHAT)?;
        header.check(charter)?;
        Ok(Self { header, hash: Hash::of(DOMAIN, &[body]) })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &RoundHeader {
        &self.header
    }

    /// Hash of the header's bytes: binds masks, commitments and seeds.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }
}
