//! Poisson coins: every unit tosses its own, with probability q = n/2³² exactly.

use rand_core::Rng;

use dp_pvi_accounting::unit::SamplingRate;

/// Units per block: one random byte each.
const BLOCK: usize = 1024;

/// Which units of a table are in the sample.
///
/// A unit's coin is a uniform 32-bit number compared with n, most significant byte first: one byte decides unless it equals
/// the first byte of n; then three more bytes are drawn. Exactly Bernoulli(n/2³²), for about one byte a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coins {
    /// None: n = 2³², everyone.
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

    /// Positions of the units in the sample, ascending.
    pub fn sample(&self, rng: &mut impl Rng, units: usize) -> Vec<usize> {
        // A fourth more than is expected: the vector hardly ever grows.
        let expected = self.threshold.map_or(units, |(first, _)| units.div_ceil(256).saturating_mul(usize::from(first) + 1));
        let mut sample = Vec::with_capacity((expected + expected / 4).min(units));
        self.toss(rng, units, |position| sample.push(position));
        sample
    }

    /// Tosses the coins of `units` units and calls `visit` with the position of everyone in the sample, ascending.
    pub fn toss(&self, rng: &mut impl Rng, units: usize, mut visit: impl FnMut(usize)) {
        let Some((first, rest)) = self.threshold else {
            (0..units).for_each(visit);
            return;
        };
        let mut bytes = [0u8; BLOCK];
        let mut start = 0;
        while start < units {
            let size = BLOCK.min(units - start);
            rng.fill_bytes(&mut bytes[..size]);
            for (group, coins) in bytes[..size.next_multiple_of(64)].as_chunks::<64>().0.iter().enumerate() {
                let mut candidates = all_at_most(coins, first);
                while candidates != 0 {
                    let coin = candidates.trailing_zeros() as usize;
                    candidates &= candidates - 1;
                    let position = 64 * group + coin;
                    // Beyond the last unit the buffer holds what was there before: no coins.
                    if position < size && (coins[coin] < first || three_bytes(rng) < rest) {
                        visit(start + position);
                    }
                }
            }
            start += size;
        }
    }
}

/// A bit for every byte that is at most `limit`, the first byte's the lowest.
fn all_at_most(bytes: &[u8; 64], limit: u8) -> u64 {
    // Byte k of eight, which is 0 or 1, comes to bit 56 + k by the summand 2^(56 − 7k); no two summands meet, so nothing is carried.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let eights = bytes.as_chunks::<8>().0.iter().rev();
    eights.fold(0, |bits, eight| bits << 8 | (at_most(u64::from_le_bytes(*eight), limit) >> 7).wrapping_mul(GATHER) >> 56)
}

/// The highest bit of every byte that is at most `limit`.
fn at_most(bytes: u64, limit: u8) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const ONE: u64 = 0x0101_0101_0101_0101;
    // The lower seven bits of a byte exceed those of the limit iff this addition, which no byte carries out of, reaches its highest bit.
    let exceed = (bytes & LOW) + u64::from(0x7f - (limit & 0x7f)) * ONE;
    if limit < 0x80 { !(exceed | bytes) & !LOW } else { !(exceed & bytes) & !LOW }
}

fn three_bytes(rng: &mut impl Rng) -> u32 {
    rng.next_u32() >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_compared_one_by_one() {
        for limit in 0..=255u8 {
            for byte in 0..=255u8 {
                for neighbour in [0, limit, limit.wrapping_add(1), 255] {
                    let mut eight = [neighbour; 8];
                    eight[usize::from(byte % 8)] = byte;
                    let right = eight.map(|byte| if byte <= limit { 0x80 } else { 0 });
                    assert_eq!(at_most(u64::from_le_bytes(eight), limit).to_le_bytes(), right, "{eight:?} <= {limit}");
                    let mut all = [eight[0]; 64];
                    all[3..11].copy_from_slice(&eight);
                    all[50..58].copy_from_slice(&eight);
                    let right = (0..64).filter(|place| all[*place] <= limit).fold(0, |bits: u64, place| bits | 1 << place);
                    assert_eq!(all_at_most(&all, limit), right, "{all:?} <= {limit}");
                }
            }
        }
    }
}
