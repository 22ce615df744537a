//! Arithmetic in ℤ mod 2⁶⁴ on vectors that travel as little-endian words.
//!
//! Honest sums never wrap: the planner ([`crate::plan`]) refuses parameters for which M·N·C_int + 64M(s+1) could reach 2⁶³. So the
//! residue of the sum that lies in [−2⁶³, 2⁶³) *is* the sum of integers.

use dp_pvi_names::LatticeVector;
use rand_core::Rng;
use zeroize::Zeroize;

use crate::error::SecAggError;

/// Bytes of one coordinate.
pub(crate) const WORD: usize = 8;
/// Keystream that is expanded at a time; a multiple of [`WORD`] and of ChaCha20's four-block batches.
const BUFFER: usize = 4096;

/// A sum in ℤ mod 2⁶⁴ that vectors are added to one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingSum {
    words: Vec<u64>,
}

impl RingSum {
    /// Zero in `dimension` coordinates.
    #[must_use]
    pub fn zero(dimension: u32) -> Self {
        Self { words: vec![0; dimension as usize] }
    }

    /// Reads words.
    ///
    /// # Errors
    /// Not exactly `dimension` words.
    pub fn from_bytes(dimension: u32, bytes: &[u8]) -> Result<Self, SecAggError> {
        let mut sum = Self::zero(dimension);
        sum.add_bytes(bytes)?;
        Ok(sum)
    }

    /// Adds a vector of little-endian words.
    ///
    /// # Errors
    /// Not exactly as many words as the sum has; nothing is added then.
    pub fn add_bytes(&mut self, bytes: &[u8]) -> Result<(), SecAggError> {
        let expected = self.words.len() * WORD;
        if bytes.len() != expected {
            return Err(SecAggError::Size { expected: expected as u64, got: bytes.len() as u64 });
        }
        for (word, bytes) in self.words.iter_mut().zip(bytes.as_chunks::<WORD>().0) {
            *word = word.wrapping_add(u64::from_le_bytes(*bytes));
        }
        Ok(())
    }

    /// Adds the next words of a keystream, word j from its bytes 8j to 8j+7: no second vector is ever held.
    pub fn add_stream(&mut self, stream: &mut impl Rng) {
        let mut bytes = [0u8; BUFFER];
        for words in self.words.chunks_mut(BUFFER / WORD) {
            let bytes = &mut bytes[..WORD * words.len()];
            stream.fill_bytes(bytes);
            for (word, pad) in words.iter_mut().zip(bytes.as_chunks::<WORD>().0) {
                *word = word.wrapping_add(u64::from_le_bytes(*pad));
            }
        }
        bytes.zeroize();
    }

    /// Turns every coordinate into its negative.
    #[must_use]
    pub fn negated(mut self) -> Self {
        self.words.iter_mut().for_each(|word| *word = word.wrapping_neg());
        self
    }

    /// Little-endian words.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The integers in [−2⁶³, 2⁶³) that the residues stand for, on the lattice 2^`exponent`, in the same memory.
    #[must_use]
    pub fn into_lattice(self, exponent: i32) -> LatticeVector {
        LatticeVector { exponent, values: self.words.into_iter().map(u64::cast_signed).collect() }
    }
}

/// Little-endian words of a masked vector.
#[must_use]
pub fn to_bytes(vector: &LatticeVector) -> Vec<u8> {
    vector.values.iter().flat_map(|word| word.to_le_bytes()).collect()
}
