//! Poisson coins: every unit tosses its own, with probability q = n/2³² exactly.

use rand_core::Rng;

use crate::unit::SamplingRate;

/// Units per block: one random byte each.
const BLOCK: usize = 1024;

/// Which units of a table are in the sample.
///
/// A unit's coin is a uniform 32-bit number compared with n, most significant byte first: one byte decides unless it equals
/// the first byte of n; then three more bytes are drawn. Exactly Bernoulli(n/2³²), for about one byte a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coins {
    /// None: n = 2³², everybody.
    threshold: Option<(u8, u32)>,
}

impl Coins {
    /// Coins of a rate.
    #[must_use]
    pub fn new(rate: SamplingRate) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "a byte and three bytes of a number below 2^32")]
        let threshold =
            Some(rate.numerator()).filter(|&n| n < SamplingRate::DENOMINATOR).map(|n| ((n >> 24) as u8, (n & 0xff_ffff) as u32));
        Self { threshold }
    }

    /// Tosses the coins of `units` units and calls `visit` with the position of everyone in the sample, ascending.
    pub fn toss(&self, rng: &mut impl Rng, units: usize, mut visit: impl FnMut(usize)) {
        let Some((first, rest)) = self.threshold else {
            (0..units).for_each(visit);
            return;
        };
        let mut bytes = [0u8; BLOCK];
        let mut candidates = [0u16; BLOCK];
        let mut start = 0;
        while start < units {
            let size = BLOCK.min(units - start);
            let bytes = &mut bytes[..size];
            rng.fill_bytes(bytes);
            // Without a branch: every position is written, the end moves on only past those that may be in.
            let mut end = 0;
            for (position, &byte) in (0u16..).zip(bytes.iter()) {
                candidates[end] = position;
                end += usize::from(byte <= first);
            }
            for &position in &candidates[..end] {
                let position = usize::from(position);
                if bytes[position] < first || three_bytes(rng) < rest {
                    visit(start + position);
                }
            }
            start += size;
        }
    }
}

fn three_bytes(rng: &mut impl Rng) -> u32 {
    rng.next_u32() >> 8
}
