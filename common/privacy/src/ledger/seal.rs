//! Encryption of private words at rest: neither a store, nor a copy of the file, nor a reader of the disk sees them.
//!
//! ChaCha20-Poly1305 under a key of its own for every vector. Both the key and a 32-byte *mark* in front of the ciphertext are secrets of the
//! site: hashes of signatures that are never shown ([`Secret`]). The mark is one of the words themselves, the key one of the mark, so that two
//! vectors have different keys, the nonce may be zero, and the same vector gives the same bytes again after a crash (the construction of
//! deterministic authenticated encryption, Rogaway & Shrimpton 2006, with signatures in place of a pseudo-random function). Everything is bound to
//! the ledger (its first row), to the purpose and to the release or run: words of one place are not taken at another one.
//!
//! Rows name these bytes by their hash, and the head of the chain travels to the server. Without the identity key no one can compute the mark of a guess
//! at the words, so the hash is a hiding commitment.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce};
use zeroize::{Zeroize, Zeroizing};

use crate::ledger::store::RowSigner;
use dp_pvi_names::Hash;

/// Encrypts and decrypts the private words of one place in one ledger.
pub(crate) struct Seal<'k, K> {
    signer: &'k K,
    /// Hash of the ledger's first row.
    ledger: Hash,
    purpose: &'static str,
    /// The release or run.
    about: String,
}

impl<'k, K: RowSigner> Seal<'k, K> {
    pub(crate) fn new(signer: &'k K, ledger: Hash, purpose: &'static str, about: String) -> Self {
        Self { signer, ledger, purpose, about }
    }

    /// Mark, ciphertext and tag: 48 bytes more than the words.
    pub(crate) fn close(&self, words: &[u8]) -> Vec<u8> {
        let mark = self.secret("dp-pvi ledger seal mark v1", words);
        let sealed = self.cipher(&mark.0).encrypt(&Nonce::default(), Payload { msg: words, aad: &self.place() });
        // The cipher takes up to 256 GiB, and a vector is held in memory.
        let sealed = sealed.expect("a vector of words is short enough for the cipher");
        [&mark.0[..], &sealed].concat()
    }

    /// The words, if these are the bytes that [`Seal::close`] made for this place.
    pub(crate) fn open(&self, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (mark, sealed) = sealed.split_first_chunk::<{ Secret::LENGTH }>()?;
        self.cipher(mark).decrypt(&Nonce::default(), Payload { msg: sealed, aad: &self.place() }).ok().map(Zeroizing::new)
    }

    fn cipher(&self, mark: &[u8; Secret::LENGTH]) -> ChaCha20Poly1305 {
        let key = self.secret("dp-pvi ledger seal key v1", mark);
        ChaCha20Poly1305::new(&Key::from(key.0))
    }

    fn secret(&self, what: &str, of: &[u8]) -> Secret {
        Secret::derive(self.signer, what, &[&self.place(), of])
    }

    fn place(&self) -> [u8; 32] {
        Hash::of("dp-pvi ledger seal place v1", &[&self.ledger.0, self.purpose.as_bytes(), self.about.as_bytes()]).0
    }
}

/// 32 bytes that no one without the site's identity key can compute: a hash of a signature that is never shown. The same inputs give
/// the same secret, so nothing has to be stored for it and a run that crashed writes the same bytes again.
pub(crate) struct Secret(pub(crate) [u8; 32]);

impl Secret {
    pub(crate) const LENGTH: usize = 32;

    pub(crate) fn derive(signer: &impl RowSigner, purpose: &str, parts: &[&[u8]]) -> Self {
        let parts: Vec<&[u8]> = std::iter::once(purpose.as_bytes()).chain(parts.iter().copied()).collect();
        let mut signature = signer.sign(&Hash::of("dp-pvi ledger secret v1", &parts));
        let secret = Self(Hash::of("dp-pvi ledger secret key v1", &[&signature]).0);
        signature.zeroize();
        secret
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;

    use super::*;

    #[test]
    fn words_open_at_their_own_place_only() {
        let (key, other) = (SigningKey::from_bytes(&[7; 32]), SigningKey::from_bytes(&[8; 32]));
        let at = |ledger: u8, purpose, about: &str| Seal::new(&key, Hash([ledger; 32]), purpose, about.into());
        let words = [1.5f64, -2.5].map(f64::to_le_bytes).concat();
        let seal = at(1, "pending", "release 1");
        let sealed = seal.close(&words);
        assert_eq!(sealed, seal.close(&words), "a crash writes the same bytes");
        assert_eq!(sealed.len(), words.len() + 48);
        assert!(!sealed.windows(8).any(|window| words.chunks(8).any(|word| word == window)));
        assert_eq!(seal.open(&sealed).unwrap().as_slice(), words);
        for elsewhere in [at(2, "pending", "release 1"), at(1, "state", "release 1"), at(1, "pending", "release 2")] {
            assert!(elsewhere.open(&sealed).is_none());
        }
        assert!(Seal::new(&other, Hash([1; 32]), "pending", "release 1".into()).open(&sealed).is_none());
        for byte in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[byte] ^= 1;
            assert!(seal.open(&changed).is_none(), "byte {byte}");
        }
        assert!(seal.open(&sealed[..47]).is_none() && seal.open(&[]).is_none());
        assert_ne!(seal.close(&words)[..32], seal.close(&words[8..])[..32], "every vector has a key of its own");
    }
}
