//! Masks: ChaCha20 under a key that HKDF-SHA256 derives from a 32-byte seed, bound to the round header and the client.
//!
//! Every one of the 256 seed bits goes into the key (no folding to 32 bits), the words are the keystream as it comes, so they
//! cover all of ℤ mod 2⁶⁴ evenly (no `randint(0, range − 1)`), and header and client are in the derivation, so no two rounds and no two
//! clients share a mask even if a broken generator repeats a seed.

use std::convert::Infallible;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_names::{ClientId, Hash};
use hkdf::Hkdf;
use rand_core::{CryptoRng, Rng, TryCryptoRng, TryRng};
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a seed.
pub const SEED: usize = 32;

const SALT: &[u8] = b"dp-pvi secagg mask v1";

/// The seed of one mask. Erased when dropped; no `Debug`, `Clone` or serialisation.
pub struct MaskSeed(Zeroizing<[u8; SEED]>);

impl MaskSeed {
    /// A fresh seed.
    #[must_use]
    pub fn fresh(rng: &mut impl CryptoRng) -> Self {
        let mut seed = Zeroizing::new([0; SEED]);
        rng.fill_bytes(seed.as_mut());
        Self(seed)
    }

    /// A seed that was opened; `None` unless it has exactly 32 bytes: there are no short seeds.
    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        Some(Self(Zeroizing::new(bytes.try_into().ok()?)))
    }

    pub(crate) fn bytes(&self) -> &[u8; SEED] {
        &self.0
    }

    /// The keystream of this seed for one client under one header.
    #[must_use]
    pub fn stream(&self, header: &Hash, client: &ClientId) -> MaskStream {
        let mut key = [0; 32];
        // The header's hash has a fixed length and comes first: no two pairs give the same bytes.
        Hkdf::<Sha256>::new(Some(SALT), self.0.as_ref())
            .expand_multi_info(&[&header.0, client.as_str().as_bytes()], &mut key)
            // HKDF fails above 255 blocks; this is one.
            .expect("32 bytes are one block");
        let stream = ChaCha20Rng::from_seed(key);
        key.zeroize();
        MaskStream(stream)
    }
}

/// Keystream of a mask: uniform words. Erased when dropped.
pub struct MaskStream(ChaCha20Rng);

impl TryRng for MaskStream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill_bytes(bytes);
        Ok(())
    }
}

impl TryCryptoRng for MaskStream {}
