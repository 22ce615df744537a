//! The summer as a function from requests to answers, over its stores.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use dp_pvi_names::Hash;
use dp_pvi_secagg::charter::{Charter, SignedCharter};
use dp_pvi_secagg::error::SecAggError;
use dp_pvi_secagg::signed::PublicKey;
use dp_pvi_secagg::summer::{KeyVault, StoreError, Summer, SummerStore};
use dp_pvi_secagg::transcript::SignedEntry;
use ed25519_dalek::SigningKey;
use rand_core::CryptoRng;

use super::{SummerCall, SummerReply, SummerRequest};

/// Opens the store and the vault of a charter.
pub trait SummerStores {
    /// Its durable records.
    type Store: SummerStore;
    /// Its round keys.
    type Vault: KeyVault;

    /// Opens, or makes, what belongs to a charter.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&mut self, charter: Hash) -> Result<(Self::Store, Self::Vault), StoreError>;
}

/// The second party: signs charters of the server that it knows, and answers for the runs under them.
///
/// It sees names, commitments and seeds; neither vectors nor models nor sums.
pub struct SummerNode<S: SummerStores> {
    key: Arc<SigningKey>,
    /// The only server whose charters are signed.
    server: PublicKey,
    stores: S,
    open: BTreeMap<Hash, Summer<S::Store, S::Vault>>,
}

impl<S: SummerStores> SummerNode<S> {
    /// A summer with this identity key for the server with that one.
    #[must_use]
    pub fn new(key: impl Into<Arc<SigningKey>>, server: PublicKey, stores: S) -> Self {
        Self { key: key.into(), server, stores, open: BTreeMap::new() }
    }

    /// Answers a request. A retry of the same request gets the same answer.
    pub fn handle(&mut self, request: &SummerRequest, rng: &mut impl CryptoRng) -> SummerReply {
        match self.answer(request, rng) {
            Ok(reply) => reply,
            Err(SecAggError::SealedSeed { client }) => SummerReply::BadSeed(client),
            Err(error) if error.is_final() => SummerReply::Never(error.to_string()),
            Err(error) => SummerReply::Refused(error.to_string()),
        }
    }

    /// The run under a charter is over, however it ended: the keys of its rounds are destroyed, and there is no further round.
    ///
    /// # Errors
    /// The stores fail.
    pub fn end(&mut self, charter: Hash) -> Result<(), StoreError> {
        let (_, mut vault) = match self.open.remove(&charter) {
            Some(summer) => summer.into_parts(),
            None => self.stores.open(charter)?,
        };
        vault.destroy_through(u32::MAX)
    }

    fn answer(&mut self, request: &SummerRequest, rng: &mut impl CryptoRng) -> Result<SummerReply, SecAggError> {
        let SummerRequest { charter, ask } = request;
        if *ask == SummerCall::Sign {
            return self.sign(charter.clone()).map(SummerReply::Charter);
        }
        let summer = self.summer(charter)?;
        match ask {
            // Answered above.
            SummerCall::Sign => Err(SecAggError::Charter("it is signed already")),
            SummerCall::Offer { last } => {
                if let Some(entry) = last {
                    follow(summer, entry)?;
                }
                summer.offer(rng).map(SummerReply::Offer)
            }
            SummerCall::Countersign(proposal) => summer.countersign(proposal).map(SummerReply::Header),
            SummerCall::Close(request) => summer.close(request).map(SummerReply::Masks),
        }
    }

    /// Signs a charter that names this server and this summer and does not contradict itself.
    fn sign(&self, mut draft: SignedCharter) -> Result<Vec<u8>, SecAggError> {
        let body = draft.check_text()?;
        let own = PublicKey::of(&self.key);
        if body.server != self.server {
            return Err(SecAggError::Charter("it names another server than the one that this summer works for"));
        }
        if body.summer != own {
            return Err(SecAggError::Charter("it names another summer"));
        }
        draft.sign(&self.key)?;
        // It was signed on the line before.
        Ok(draft.signature_of(&own).unwrap_or_default().to_vec())
    }

    fn summer(&mut self, signed: &SignedCharter) -> Result<&mut Summer<S::Store, S::Vault>, SecAggError> {
        let hash = signed.hash();
        match self.open.entry(hash) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(vacant) => {
                let charter: Arc<Charter> = Arc::new(signed.verify()?);
                if charter.body().server != self.server {
                    return Err(SecAggError::Charter("it names another server than the one that this summer works for"));
                }
                let (store, vault) = self.stores.open(hash)?;
                Ok(vacant.insert(Summer::open(charter, SigningKey::clone(&self.key), store, vault)?))
            }
        }
    }
}

/// Follows an entry that may have been followed already.
fn follow<S: SummerStore, V: KeyVault>(summer: &mut Summer<S, V>, entry: &SignedEntry) -> Result<(), SecAggError> {
    if summer.head().previous == entry.hash() {
        return Ok(());
    }
    summer.follow(entry).map(|_| ())
}
