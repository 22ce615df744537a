//! Public numbers at which inference starts: a function of a public seed, the same for everyone. They protect nothing.

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
