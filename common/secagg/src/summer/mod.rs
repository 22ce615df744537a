//! The summer: the second server. It sees who takes part and the seeds, never a vector; it gives out one sum of masks a round.
//!
//! Order of a closing, each arrow durable before the next: checks → CLOSED(round, H(U)) → masks are summed → ANSWERED(bytes) → the
//! round key is destroyed → the answer leaves. So at most one set is ever answered: before the key is gone no answer has left, and
//! after it is gone no other answer can be made, even from a copy of the store taken earlier.

pub mod memory;
mod store;

use std::sync::Arc;

use dp_pvi_names::Hash;
use ed25519_dalek::SigningKey;
use rand_core::CryptoRng;

pub use store::{Answered, Closed, KeyVault, Offered, Open, RoundRecord, Slot, StoreError, SummerStore};

use crate::charter::Charter;
use crate::closing::{CloseRequest, MaskSum, MaskSumBody};
use crate::error::SecAggError;
use crate::header::{KeyOffer, ProposedHeader, SignedHeader, VerifiedHeader};
use crate::mask::MaskSeed;
use crate::ring::RingSum;
use crate::seal::RoundSecretKey;
use crate::signed::{PublicKey, Signed};
use crate::transcript::{Head, SignedEntry};
use crate::upload::Upload;

/// The summer of one charter.
pub struct Summer<S, V> {
    charter: Arc<Charter>,
    key: SigningKey,
    store: S,
    vault: V,
    head: Head,
}

impl<S: SummerStore, V: KeyVault> Summer<S, V> {
    /// Opens the store; keys of rounds that are over are destroyed if a crash left them.
    ///
    /// # Errors
    /// The charter names another summer, or the store fails.
    pub fn open(charter: Arc<Charter>, key: SigningKey, store: S, vault: V) -> Result<Self, SecAggError> {
        if charter.body().summer != PublicKey::of(&key) {
            return Err(SecAggError::Charter("it names another summer"));
        }
        let head = store.head()?.unwrap_or(Head::start(&charter));
        let mut summer = Self { charter, key, store, vault, head };
        if let Some(past) = head.round.checked_sub(1) {
            summer.vault.destroy_through(past)?;
        }
        if let Some(RoundRecord::Answered(_)) = summer.store.round(head.round)? {
            summer.vault.destroy_through(head.round)?;
        }
        Ok(summer)
    }

    /// Where the summer is in the transcript.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Store and vault, for a process that stops.
    pub fn into_parts(self) -> (S, V) {
        (self.store, self.vault)
    }

    /// Offers the key of the round that is due: fresh, or the one offered before.
    ///
    /// # Errors
    /// All rounds are over, the round has a header already, or its key is destroyed (then the server skips the round).
    pub fn offer(&mut self, rng: &mut impl CryptoRng) -> Result<Signed<KeyOffer>, SecAggError> {
        let round = self.head.round;
        self.charter.plan(round)?;
        let key = match (self.store.round(round)?, self.vault.slot(round)?) {
            (Some(RoundRecord::Open(_) | RoundRecord::Closed(_) | RoundRecord::Answered(_)), _) => {
                return Err(SecAggError::SecondHeader { round });
            }
            // A key that was promised and is not there, or a round that this vault remembers and the store does not.
            (Some(RoundRecord::Offered(_)), Slot::Never | Slot::Destroyed) | (None, Slot::Destroyed) => {
                return Err(SecAggError::KeyDestroyed { round });
            }
            (_, Slot::Kept(key)) => RoundSecretKey::from_bytes(&key).ok_or(SecAggError::KeyDestroyed { round })?.public(),
            (None, Slot::Never) => {
                let key = RoundSecretKey::fresh(rng);
                self.vault.keep(round, key.expose())?;
                key.public()
            }
        };
        self.store.save_round(round, &RoundRecord::Offered(Offered { key }))?;
        Ok(Signed::seal(&KeyOffer { charter: self.charter.hash(), round, key }, &self.key))
    }

    /// Signs the header of the round that is due: one a round, for ever. The same header again gives the same bytes.
    ///
    /// # Errors
    /// It is not the server's, differs from the charter, does not continue the transcript, names another key, or is a second one.
    pub fn countersign(&mut self, proposal: &ProposedHeader) -> Result<SignedHeader, SecAggError> {
        let header = proposal.open(&self.charter)?;
        let header = header.header();
        self.head.expects(header.round, header.previous)?;
        let round = header.round;
        let signed = proposal.clone().countersign(&self.key);
        match self.store.round(round)? {
            Some(RoundRecord::Offered(offered)) if offered.key == header.round_key => {
                self.store.save_round(round, &RoundRecord::Open(offered.open(signed.clone())))?;
                Ok(signed)
            }
            Some(RoundRecord::Open(Open { header }) | RoundRecord::Closed(Closed { header, .. })) if header == signed => Ok(signed),
            Some(RoundRecord::Answered(Answered { header, .. })) if header == signed => Ok(signed),
            None | Some(RoundRecord::Offered(_)) => Err(SecAggError::Header { field: "round key" }),
            Some(_) => Err(SecAggError::SecondHeader { round }),
        }
    }

    /// Closes the round over a set and answers with the sum of its masks; the same set again gets the same bytes.
    ///
    /// # Errors
    /// Another set was closed; a signature, header, client or seed is wrong; fewer than U_min; the key is destroyed. Nothing has
    /// left then, and but for a store that fails midway the round is still open.
    pub fn close(&mut self, request: &CloseRequest) -> Result<MaskSum, SecAggError> {
        let round = self.head.round;
        if request.round != round {
            return Err(SecAggError::Round { expected: round, got: request.round });
        }
        let record = self.store.round(round)?;
        let header = match &record {
            Some(RoundRecord::Open(Open { header }) | RoundRecord::Closed(Closed { header, .. })) => header,
            Some(RoundRecord::Answered(Answered { header, .. })) => header,
            None | Some(RoundRecord::Offered(_)) => return Err(SecAggError::Header { field: "round: no header is signed" }),
        };
        let header = header.open(&self.charter)?;
        let (contributors, uploads) = request.open(&self.charter, &header)?;
        let contributors = contributors.hash(&header.hash());
        let unanswered = match record {
            Some(RoundRecord::Answered(answered)) if answered.contributors == contributors => {
                self.vault.destroy_through(round)?;
                return Ok(answered.answer);
            }
            Some(RoundRecord::Answered(_)) => return Err(SecAggError::SecondClosing { round }),
            Some(RoundRecord::Closed(closed)) if closed.contributors != contributors => return Err(SecAggError::SecondClosing { round }),
            record => record,
        };
        // Every seed must open before the set is fixed: a bad one can still be left out.
        let seeds = self.seeds(&header, &uploads)?;
        let closed = match unanswered {
            Some(RoundRecord::Open(open)) => {
                let closed = open.close(contributors);
                self.store.save_round(round, &RoundRecord::Closed(closed.clone()))?;
                closed
            }
            Some(RoundRecord::Closed(closed)) => closed,
            _ => return Err(SecAggError::SecondClosing { round }),
        };
        let mut sum = RingSum::zero(header.header().dimension);
        for (Upload { client, .. }, seed) in uploads.iter().zip(&seeds) {
            sum.add_stream(&mut seed.stream(&header.hash(), client));
        }
        drop(seeds);
        let answer = self.seal(&header, contributors, &sum);
        self.store.save_round(round, &RoundRecord::Answered(closed.answer(answer.clone())))?;
        self.vault.destroy_through(round)?;
        Ok(answer)
    }

    /// Moves behind a published entry: the round is over, whatever became of it, and its key is destroyed.
    ///
    /// # Errors
    /// The entry is not the next, or breaks the rules.
    pub fn follow(&mut self, entry: &SignedEntry) -> Result<Head, SecAggError> {
        let (head, _) = self.head.follow(entry, &self.charter)?;
        self.vault.destroy_through(self.head.round)?;
        self.store.save_head(head)?;
        self.head = head;
        Ok(head)
    }

    /// Opens every seed; they are erased when dropped.
    fn seeds(&self, header: &VerifiedHeader, uploads: &[Upload]) -> Result<Vec<MaskSeed>, SecAggError> {
        let round = header.header().round;
        let Slot::Kept(key) = self.vault.slot(round)? else { return Err(SecAggError::KeyDestroyed { round }) };
        let key = RoundSecretKey::from_bytes(&key).ok_or(SecAggError::KeyDestroyed { round })?;
        let open = |upload: &Upload| key.open(&upload.seed, &header.hash(), &upload.client, &upload.commitment);
        uploads.iter().map(open).collect()
    }

    fn seal(&self, header: &VerifiedHeader, contributors: Hash, sum: &RingSum) -> MaskSum {
        let words = sum.to_bytes();
        let body = MaskSumBody { header: header.hash(), contributors, words: MaskSum::hash_words(&words) };
        MaskSum { statement: Signed::seal(&body, &self.key), words }
    }
}
