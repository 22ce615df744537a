//! Public numbers at which inference starts: a function of a public seed, the same for everyone. They protect nothing.

use dp_pvi_names::Hash;

/// A standard normal number that everyone can compute: Box and Muller's transform of a hash.
#[must_use]
pub fn standard_normal(seed: u64, position: u64) -> f64 {
    let Hash(bytes) = Hash::of("dp-pvi initial weight v1", &[&seed.to_le_bytes(), &position.to_le_bytes()]);
    let half = |part: usize| bytes[8 * part..8 * part + 8].iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    // 53 bits each; the first in (0, 1].
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = |word: u64| (word >> 11) as f64 / (1_u64 << 53) as f64;
    (-2.0 * (1.0 - unit(half(0))).ln()).sqrt() * (std::f64::consts::TAU * unit(half(1))).cos()
}
