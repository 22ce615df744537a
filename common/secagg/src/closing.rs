//! Closing rules: which sets of clients may be summed, and the summer's answer.

use dp_pvi_names::{ClientId, Hash};
use serde::{Deserialize, Serialize};

use crate::charter::Charter;
use crate::commitment::Commitment;
use crate::error::SecAggError;
use crate::header::VerifiedHeader;
use crate::ring::{RingSum, WORD};
use crate::signed::{Body, Signed, encode};
use crate::upload::{self, SignedUpload, Upload};

/// U: the clients of a sum with their commitments, ascending, each once, all in the charter, at least U_min.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContributorSet(Vec<(ClientId, Commitment)>);

impl ContributorSet {
    /// Applies the closing rules.
    ///
    /// # Errors
    /// A duplicate or a name out of order, a client outside the charter, or too few.
    pub fn new(members: Vec<(ClientId, Commitment)>, charter: &Charter) -> Result<Self, SecAggError> {
        let set = Self(members);
        set.check(charter)?;
        Ok(set)
    }

    /// The rules again, for a set that was read.
    pub(crate) fn check(&self, charter: &Charter) -> Result<(), SecAggError> {
        for (client, _) in &self.0 {
            charter.key_of(client)?;
        }
        if let Some(pair) = self.0.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(SecAggError::DuplicateClient { client: pair[1].0.clone() });
        }
        let needed = charter.body().min_contributors;
        let present = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        if present < needed {
            return Err(SecAggError::TooFew { present, needed });
        }
        Ok(())
    }

    /// Clients and commitments.
    #[must_use]
    pub fn members(&self) -> &[(ClientId, Commitment)] {
        &self.0
    }

    /// The commitment of a client, if it is in the set.
    #[must_use]
    pub(crate) fn commitment_of(&self, client: &ClientId) -> Option<&Commitment> {
        self.0.binary_search_by(|(id, _)| id.cmp(client)).ok().map(|position| &self.0[position].1)
    }

    /// H(U), bound to the header.
    #[must_use]
    pub fn hash(&self, header: &Hash) -> Hash {
        Hash::of("dp-pvi secagg contributors v1", &[&header.0, &encode(&self.0)])
    }
}

/// What the server asks the summer at close: the uploads of U, without vectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseRequest {
    /// Hash of the round header.
    pub header: Hash,
    /// The round, to find it.
    pub round: u32,
    /// Uploads, ascending by client.
    pub uploads: Vec<SignedUpload>,
}

impl CloseRequest {
    /// Checks signatures, header, history and closing rules.
    pub(crate) fn open(&self, charter: &Charter, header: &VerifiedHeader) -> Result<(ContributorSet, Vec<Upload>), SecAggError> {
        if self.header != header.hash() || self.round != header.header().round {
            return Err(SecAggError::SecondHeader { round: self.round });
        }
        if self.uploads.len() > charter.body().members.len() {
            return Err(SecAggError::Malformed { what: "a closing with more uploads than sites" });
        }
        let open = |signed| upload::open(signed, charter, header.hash(), header.header().previous);
        let uploads = self.uploads.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let members = uploads.iter().map(|upload| (upload.client.clone(), upload.commitment)).collect();
        Ok((ContributorSet::new(members, charter)?, uploads))
    }
}

/// What the summer signs about its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskSumBody {
    /// Hash of the round header.
    pub header: Hash,
    /// H(U).
    pub contributors: Hash,
    /// Hash of the words.
    pub words: Hash,
}

impl Body for MaskSumBody {
    const DOMAIN: &'static str = "dp-pvi secagg mask sum v1";
    const WHAT: &'static str = "the sum of masks";
}

/// The summer's answer: Σ masks over U, and its signature over (header, H(U), words).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskSum {
    /// Signed: what the words are for.
    pub statement: Signed<MaskSumBody>,
    /// Little-endian words.
    pub words: Vec<u8>,
}

impl MaskSum {
    /// Hash of an answer's words.
    #[must_use]
    pub(crate) fn hash_words(words: &[u8]) -> Hash {
        Hash::of("dp-pvi secagg mask words v1", &[words])
    }

    /// The words, once signature, round and set are checked.
    ///
    /// # Errors
    /// Not the summer's, for another closing, or of another size.
    pub(crate) fn open(&self, charter: &Charter, header: &VerifiedHeader, contributors: Hash) -> Result<RingSum, SecAggError> {
        let statement = self.statement.open(&charter.body().summer)?;
        let expected = u64::from(header.header().dimension) * WORD as u64;
        if self.words.len() as u64 != expected {
            return Err(SecAggError::Size { expected, got: self.words.len() as u64 });
        }
        let words = Self::hash_words(&self.words);
        if statement != (MaskSumBody { header: header.hash(), contributors, words }) {
            return Err(SecAggError::OtherClosing);
        }
        RingSum::from_bytes(header.header().dimension, &self.words)
    }
}
