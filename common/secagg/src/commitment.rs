//! Commitments to masked vectors.

use dp_pvi_names::{ClientId, Hash, LatticeVector};
use rand_core::CryptoRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// SHA-256(salt ‖ header ‖ client ‖ u), with a domain in front: what a client promises its masked vector u to be.
///
/// It binds: u cannot be exchanged later, nor be used under another header (which names the run and the round) or another name.
///
/// It hides from everyone who does not hold the [`Salt`]. The summer needs that: it knows the mask, so without a salt it could guess
/// the site's noised vector, mask the guess and compare. Only the server gets the salt, and the server does not know the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Commitment(pub Hash);

const DOMAIN: &[u8] = b"dp-pvi secagg commitment v2";

/// 32 fresh bytes for one commitment. They go to the server beside the masked vector, and to no other party.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Salt(pub [u8; 32]);

impl Salt {
    /// Fresh bytes: one salt for each commitment.
    #[must_use]
    pub fn fresh(rng: &mut impl CryptoRng) -> Self {
        let mut bytes = [0; 32];
        rng.fill_bytes(&mut bytes);
        Self(bytes)
    }
}

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt(..)")
    }
}

impl Commitment {
    /// Of a vector in memory.
    #[must_use]
    pub fn of(salt: &Salt, header: &Hash, client: &ClientId, vector: &LatticeVector) -> Self {
        let mut committer = Committer::new(salt, header, client);
        let mut bytes = [0u8; 4096];
        for words in vector.values.chunks(bytes.len() / 8) {
            for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *bytes = word.to_le_bytes();
            }
            committer.update(&bytes[..8 * words.len()]);
        }
        committer.finish()
    }

    /// Of little-endian words.
    #[must_use]
    pub fn of_bytes(salt: &Salt, header: &Hash, client: &ClientId, bytes: &[u8]) -> Self {
        let mut committer = Committer::new(salt, header, client);
        committer.update(bytes);
        committer.finish()
    }

    /// Equality in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.0.ct_eq(&other.0.0).into()
    }
}

/// A commitment in the making, for a vector that arrives in pieces.
#[derive(Clone)]
pub struct Committer(Sha256);

impl Committer {
    /// Nothing of the vector is seen yet.
    #[must_use]
    pub fn new(salt: &Salt, header: &Hash, client: &ClientId) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        hasher.update(salt.0);
        hasher.update(header.0);
        hasher.update((client.as_str().len() as u64).to_le_bytes());
        hasher.update(client.as_str());
        Self(hasher)
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The commitment.
    #[must_use]
    pub fn finish(self) -> Commitment {
        Commitment(Hash(self.0.finalize().into()))
    }
}
