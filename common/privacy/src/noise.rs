//! Where randomness comes from. Production uses [`SecureNoise`], and no other crate can make a source: the trait is sealed. Simulation and
//! tests bring seeded ones; they break the seal by naming `dp-pvi-unsealed`.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand_core::Rng;

use dp_pvi_unsealed::Sealed;

use dp_pvi_names::ReleaseId;

/// What a stream is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Poisson coins of the units.
    Coins,
    /// Noise of a release.
    Noise,
    /// Draws that do not depend on data (Monte-Carlo samples).
    Draws,
}

/// The operating system gave no randomness: nothing may be released.
#[derive(Debug, thiserror::Error)]
#[error("the operating system's random generator failed: nothing was released")]
pub struct NoRandomness;

/// A source of independent random streams. Sealed: a source that repeats or leaks its stream gives no protection.
pub trait NoiseSource: Sealed + Send + Sync {
    /// One stream.
    type Stream: Rng;

    /// The stream of one step of one release for one purpose. No two calls with different arguments may return
    /// correlated streams; a secure source returns a fresh stream at every call.
    ///
    /// # Errors
    /// No randomness is available.
    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<Self::Stream, NoRandomness>;
}

/// ChaCha20 with a fresh 256-bit key from the operating system for every stream. It cannot be seeded.
#[derive(Debug, Clone, Copy, Default)]
pub struct SecureNoise;

impl SecureNoise {
    /// A fresh stream for what is not noise: seeds of masks.
    ///
    /// # Errors
    /// No randomness is available.
    pub fn fresh() -> Result<ChaCha20Rng, NoRandomness> {
        let mut key = [0u8; 32];
        getrandom::fill(&mut key).map_err(|_| NoRandomness)?;
        let stream = ChaCha20Rng::from_seed(key);
        zeroize::Zeroize::zeroize(&mut key);
        Ok(stream)
    }
}

impl Sealed for SecureNoise {}

impl NoiseSource for SecureNoise {
    type Stream = ChaCha20Rng;

    fn stream(&self, _release: &ReleaseId, _step: u64, _purpose: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        Self::fresh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dp_pvi_names::{ClientId, Hash, RunId};

    #[test]
    fn every_secure_stream_is_fresh_even_for_the_same_step() {
        let release = ReleaseId { run: RunId { task: Hash::default(), number: 0 }, client: ClientId::new("here").unwrap(), round: 0 };
        let word = || SecureNoise.stream(&release, 0, Purpose::Noise).unwrap().next_u64();
        let words: std::collections::BTreeSet<u64> = (0..1000).map(|_| word()).collect();
        assert_eq!(words.len(), 1000);
    }
}
