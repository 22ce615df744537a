//! Public numbers at which inference starts: a function of a public seed, the same for everybody. They protect nothing.

use dp_pvi_privacy::Hash;

/// The next uniform number on [0, 1) of the sequence whose state this is (splitmix64).
pub fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    #[allow(clippy::cast_precision_loss, reason = "53 bits")]
    let u = (z >> 11) as f64;
    u / 9_007_199_254_740_992.0
}

/// A standard normal number that everybody can compute: Box and Muller's transform of a hash.
#[must_use]
pub fn standard_normal(seed: u64, position: u64) -> f64 {
    let Hash(bytes) = Hash::of("dp-pvi initial weight v1", &[&seed.to_le_bytes(), &position.to_le_bytes()]);
    let half = |part: usize| bytes[8 * part..8 * part + 8].iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    // 53 bits each; the first in (0, 1].
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = |word: u64| (word >> 11) as f64 / (1_u64 << 53) as f64;
    (-2.0 * (1.0 - unit(half(0))).ln()).sqrt() * (std::f64::consts::TAU * unit(half(1))).cos()
}
