//! Keys and signed messages. Body bytes are stored and forwarded as they came, never encoded again.

use std::marker::PhantomData;

use dp_pvi_names::Hash;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::SecAggError;

/// An Ed25519 public key as the charter lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// The public half of a key.
    #[must_use]
    pub fn of(key: &SigningKey) -> Self {
        Self(key.verifying_key().to_bytes())
    }

    /// Whether signatures under this key mean anything: a point of the curve, not of small order.
    #[must_use]
    pub(crate) fn is_sound(&self) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| !key.is_weak())
    }

    /// Strict verification: no malleable encodings, no points of small order.
    ///
    /// # Errors
    /// Not a signature of this key over these bytes in this domain.
    pub fn verify(&self, domain: &'static str, body: &[u8], signature: &[u8], what: &'static str) -> Result<(), SecAggError> {
        let refused = SecAggError::Signature { what };
        let key = VerifyingKey::from_bytes(&self.0).map_err(|_| refused.clone())?;
        let signature = Signature::from_slice(signature).map_err(|_| refused.clone())?;
        key.verify_strict(&Hash::of(domain, &[body]).0, &signature).map_err(|_| refused)
    }
}

/// Signature over domain and body.
pub(crate) fn sign(key: &SigningKey, domain: &'static str, body: &[u8]) -> Vec<u8> {
    key.sign(&Hash::of(domain, &[body]).0).to_bytes().to_vec()
}

/// Canonical bytes of plain data.
pub(crate) fn encode(body: &impl Serialize) -> Vec<u8> {
    // Bodies are plain data: writing them into memory cannot fail.
    postcard::to_stdvec(body).expect("bodies serialise into memory")
}

/// Reads [`encode`]d bytes; no byte may be left over.
pub(crate) fn decode<B: DeserializeOwned>(bytes: &[u8], what: &'static str) -> Result<B, SecAggError> {
    match postcard::take_from_bytes(bytes) {
        Ok((body, [])) => Ok(body),
        _ => Err(SecAggError::Malformed { what }),
    }
}

/// A body type with its signing domain and its name in error messages.
pub trait Body: Serialize + DeserializeOwned {
    /// Separates signatures of different kinds of message.
    const DOMAIN: &'static str;
    /// What it is, for errors.
    const WHAT: &'static str;
}

/// Body bytes with a signature.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Signed<B> {
    body: Vec<u8>,
    signature: Vec<u8>,
    #[serde(skip)]
    kind: PhantomData<fn() -> B>,
}

impl<B> Clone for Signed<B> {
    fn clone(&self) -> Self {
        Self { body: self.body.clone(), signature: self.signature.clone(), kind: PhantomData }
    }
}

impl<B: Body> Signed<B> {
    /// Encodes and signs a body.
    #[must_use]
    pub fn seal(body: &B, key: &SigningKey) -> Self {
        let body = encode(body);
        let signature = sign(key, B::DOMAIN, &body);
        Self { body, signature, kind: PhantomData }
    }

    /// The body, once its signature is checked.
    ///
    /// # Errors
    /// Wrong signature, or unreadable.
    pub fn open(&self, key: &PublicKey) -> Result<B, SecAggError> {
        key.verify(B::DOMAIN, &self.body, &self.signature, B::WHAT)?;
        decode(&self.body, B::WHAT)
    }

    /// The body as it claims to be: for finding the key to check it with, and nothing else.
    pub(crate) fn unverified(&self) -> Result<B, SecAggError> {
        decode(&self.body, B::WHAT)
    }

    /// Hash of the body bytes.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(B::DOMAIN, &[&self.body])
    }
}
