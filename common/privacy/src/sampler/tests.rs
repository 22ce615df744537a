//! Samplers against exact probabilities, with fixed seeds and stated errors.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand_core::Rng;

use super::bernoulli::{exp_minus, exp_minus_with, rational, uniform, wide};
use super::gaussian::{MAX_SCALE, bound};
use super::*;
use dp_pvi_accounting::unit::SamplingRate;

mod allocation;
mod strips;

fn stream(seed: u8) -> ChaCha20Rng {
    ChaCha20Rng::from_seed([seed; 32])
}

/// (observed − expected)/sd of a count of successes.
fn z_score(successes: u32, trials: u32, probability: f64) -> f64 {
    let trials = f64::from(trials);
    (f64::from(successes) - trials * probability) / (trials * probability * (1.0 - probability)).sqrt()
}

fn count(trials: u32, mut toss: impl FnMut() -> bool) -> u32 {
    (0..trials).map(|_| u32::from(toss())).sum()
}

#[test]
fn canonne_kamath_steinke_algorithm_1_coins_have_the_stated_probability() {
    let mut rng = stream(1);
    let trials = 400_000;
    for (n, d) in [(1, 2), (1, 3), (5, 7), (999, 1000), (u64::MAX / 3, u64::MAX)] {
        #[allow(clippy::cast_precision_loss, reason = "a probability to 16 digits")]
        let p = n as f64 / d as f64;
        assert!(z_score(count(trials, || rational(&mut rng, n, d)), trials, p).abs() < 4.0, "{n}/{d}");
        let (large_n, large_d) = (u128::from(n) << 60, u128::from(d) << 60);
        assert!(z_score(count(trials, || wide(&mut rng, large_n, large_d)), trials, p).abs() < 4.0, "{n}/{d}, wide");
        if d < 1 << 20 {
            let e = count(trials, || exp_minus(&mut rng, n, d).unwrap());
            assert!(z_score(e, trials, (-p).exp()).abs() < 4.0, "exp(-{n}/{d})");
            // Denominators of 63 bits, as the largest scales have them.
            let large = (1 << 62) / d;
            let e = count(trials, || exp_minus(&mut rng, n * large, d * large).unwrap());
            assert!(z_score(e, trials, (-p).exp()).abs() < 4.0, "exp(-{n}/{d}), large");
            let mut half = stream(21);
            let e = count(trials, || exp_minus_with(&mut rng, half.next_u32(), n * large, d * large).unwrap());
            assert!(z_score(e, trials, (-p).exp()).abs() < 4.0, "exp(-{n}/{d}), from half a word");
        }
    }
    assert_eq!((count(1000, || rational(&mut rng, 0, 9)), count(1000, || rational(&mut rng, 9, 9))), (0, 1000));
    assert_eq!((count(1000, || wide(&mut rng, 0, 9)), count(1000, || wide(&mut rng, 9, 9))), (0, 1000));
}

/// Words that make the lazy comparison go on: the decision must equal that of exact integers.
struct Script(Vec<u64>);

impl rand_core::TryRng for Script {
    type Error = std::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        unreachable!()
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.0.remove(0))
    }
    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
        unreachable!()
    }
}

#[test]
fn undecided_words_are_decided_by_the_next_exactly_as_a_longer_number_would() {
    // U = (w + (v + …)/2⁶⁴)/2⁶⁴ against n/d: for d < 2³² compare w·d·2⁶⁴ + v·d with n·2¹²⁸ in two steps of 128 bits.
    for (n, d) in [(1u64, 3u64), (2, 7), (123_456_789, 4_000_000_007), (1, u32::MAX.into())] {
        let word = u64::try_from((u128::from(n) << 64) / u128::from(d)).unwrap();
        let rest = (u128::from(n) << 64) - u128::from(word) * u128::from(d);
        let threshold = u64::try_from((rest << 64) / u128::from(d)).unwrap();
        for (next, expected) in [(0, true), (threshold - 1, true), (threshold + 1, false), (u64::MAX, false)] {
            assert_eq!(rational(&mut Script(vec![word, next]), n, d), expected, "{n}/{d} {next}");
            assert_eq!(wide(&mut Script(vec![word, next]), n.into(), d.into()), expected, "{n}/{d} {next}");
            // The same fraction over a denominator that needs all limbs.
            let (n, d) = (u128::from(n) << 90, u128::from(d) << 90);
            assert_eq!(wide(&mut Script(vec![word, next]), n, d), expected, "{n}/{d} {next}");
        }
        for (word, expected) in [(0, true), (word - 1, true), (word + 1, false), (u64::MAX, false)] {
            assert_eq!(rational(&mut Script(vec![word]), n, d), expected);
            assert_eq!(wide(&mut Script(vec![word]), n.into(), d.into()), expected);
        }
    }
}

/// A coin that begins with half a word goes on with whole ones.
#[test]
fn half_a_word_that_does_not_decide_is_the_beginning_of_a_longer_number() {
    for (n, d) in [(1u64, 3u64), (2, 7), (123_456_789, 4_000_000_007), (1 << 62, (1 << 63) - 25)] {
        let first = (u128::from(n) << 32) / u128::from(d);
        let rest = (u128::from(n) << 32) - first * u128::from(d);
        let threshold = u64::try_from((rest << 64) / u128::from(d)).unwrap();
        let first = u32::try_from(first).unwrap();
        // The second coin, of probability n/2d, fails: K is 2 where the first one does not, and 1 where it does.
        let coin = |first: u32, words: &[u64]| exp_minus_with(&mut Script(words.to_vec()), first, n, d).unwrap();
        assert!(coin(first, &[threshold + 1]) && !coin(first, &[threshold - 1, u64::MAX]), "{n}/{d}");
        assert!(coin(first + 1, &[]) && !coin(first - 1, &[u64::MAX]), "{n}/{d}");
    }
}

#[test]
fn uniform_numbers_are_uniform() {
    let mut rng = stream(2);
    let (bound, draws) = (7u64, 700_000u32);
    let mut counts = [0u32; 7];
    for _ in 0..draws {
        counts[usize::try_from(uniform(&mut rng, bound)).unwrap()] += 1;
    }
    for count in counts {
        assert!(z_score(count, draws, 1.0 / 7.0).abs() < 4.0, "{counts:?}");
    }
    assert!((0..10_000).all(|_| uniform(&mut rng, (1 << 63) + 1) <= 1 << 63));
}

/// Chi-square against the exact probabilities, cells with at least 20 expected draws, the rest pooled.
#[test]
fn discrete_gaussian_has_the_exact_probabilities() {
    let draws = 2_500_000u32;
    // Widths of strips that are an eighth of the scale, and widths that are more.
    for (seed, scale) in [(3, 1u32), (4, 4), (5, 64), (6, 1024), (15, 9), (16, 12), (17, 17), (18, 1001)] {
        let sampler = DiscreteGaussianSampler::new(scale.into()).unwrap();
        let mut rng = stream(seed);
        let half = 8 * i64::from(scale) + 8;
        let mut counts = vec![0u32; usize::try_from(2 * half + 1).unwrap()];
        let (mut outside, mut sum, mut squares) = (0u32, 0.0, 0.0);
        for _ in 0..draws {
            let x = sampler.sample(&mut rng).unwrap();
            match usize::try_from(x + half).ok().and_then(|i| counts.get_mut(i)) {
                Some(count) => *count += 1,
                None => outside += 1,
            }
            #[allow(clippy::cast_precision_loss, reason = "small")]
            let x = x as f64;
            sum += x;
            squares += x * x;
        }
        let scale = f64::from(scale);
        #[allow(clippy::cast_precision_loss, reason = "small")]
        let weight = |i: usize| (-0.5 * ((i as f64 - half as f64) / scale).powi(2)).exp();
        let total: f64 = (0..counts.len()).map(weight).sum();
        let (mut chi, mut cells, mut rest, mut rest_expected) = (0.0, 0.0, f64::from(outside), 0.0);
        for (i, &count) in counts.iter().enumerate() {
            let expected = f64::from(draws) * weight(i) / total;
            if expected < 20.0 {
                rest += f64::from(count);
                rest_expected += expected;
            } else {
                chi += (f64::from(count) - expected).powi(2) / expected;
                cells += 1.0;
            }
        }
        if rest_expected >= 5.0 {
            chi += (rest - rest_expected).powi(2) / rest_expected;
            cells += 1.0;
        }
        let freedom: f64 = cells - 1.0;
        let z = (chi - freedom) / (2.0 * freedom).sqrt();
        assert!(z.abs() < 4.0, "scale {scale}: chi-square {chi} of {freedom}, z {z}");
        let n = f64::from(draws);
        assert!((sum / n).abs() < 4.0 * scale / n.sqrt(), "scale {scale}: mean {}", sum / n);
        let variance: f64 = (0..counts.len())
            .map(|i| {
                #[allow(clippy::cast_precision_loss, reason = "small")]
                let x = i as f64 - half as f64;
                x * x * weight(i) / total
            })
            .sum();
        assert!((squares / n / variance - 1.0).abs() < 4.0 * (2.0 / n).sqrt(), "scale {scale}: variance {}", squares / n);
    }
}

/// The same at scales as they are used, of which 8 divides neither: in halves of strips on either side, and by the last bits.
#[test]
#[allow(clippy::cast_precision_loss, reason = "small integers")]
fn large_scales_have_the_exact_probabilities_of_half_strips_and_of_last_bits() {
    let draws = 2_000_000;
    for (seed, scale) in [(19, (1u64 << 20) + 1), (20, (1 << 21) - 1)] {
        let sampler = DiscreteGaussianSampler::new(scale).unwrap();
        let mut rng = stream(seed);
        let width = scale.div_ceil(8).cast_signed();
        // Borders at the beginning of every strip, and in its middle.
        let borders: Vec<i64> = (0..60).map(|k| k / 2 * width + k % 2 * (width / 2)).collect();
        let (mut counts, mut last_bits) = (vec![[0u32; 2]; borders.len()], [0u32; 8]);
        for _ in 0..draws {
            let x = sampler.sample(&mut rng).unwrap();
            let cell = borders.partition_point(|border| *border <= x.abs()) - 1;
            counts[cell][usize::from(x < 0)] += 1;
            last_bits[usize::try_from(x.rem_euclid(8)).unwrap()] += 1;
        }
        let below = |x: i64| 0.5 * libm::erfc(-(x as f64 - 0.5) / (scale as f64 * std::f64::consts::SQRT_2));
        let (mut chi, mut cells) = (0.0, 0.0);
        for (k, [positive, negative]) in counts.iter().enumerate() {
            let upper = borders.get(k + 1).copied();
            let right = upper.map_or(1.0, below) - below(borders[k]);
            let left = below(1 - borders[k]) - upper.map_or(0.0, |upper| below(1 - upper));
            // Zero is in the first cell of the right side.
            let left = if k == 0 { left - (below(1) - below(0)) } else { left };
            for (count, expected) in [(positive, right * f64::from(draws)), (negative, left * f64::from(draws))] {
                if expected > 20.0 {
                    chi += (f64::from(*count) - expected).powi(2) / expected;
                    cells += 1.0;
                }
            }
        }
        let freedom: f64 = cells - 1.0;
        assert!(freedom > 100.0 && ((chi - freedom) / (2.0 * freedom).sqrt()).abs() < 4.0, "scale {scale}: {chi} of {freedom}");
        assert!(last_bits.iter().all(|&count| z_score(count, draws, 0.125).abs() < 4.5), "scale {scale}: {last_bits:?}");
    }
}

#[test]
fn the_largest_scale_does_not_overflow() {
    let sampler = DiscreteGaussianSampler::new(MAX_SCALE).unwrap();
    let mut rng = stream(7);
    let mut squares = 0.0;
    for _ in 0..200_000 {
        let x = sampler.sample(&mut rng).unwrap();
        assert!(x.unsigned_abs() <= bound(MAX_SCALE));
        #[allow(clippy::cast_precision_loss, reason = "a moment")]
        let x = x as f64 / 268_435_456.0;
        squares += x * x;
    }
    assert!((squares / 200_000.0 - 1.0).abs() < 4.0 * (2.0 / 200_000f64).sqrt(), "{squares}");
    assert!(DiscreteGaussianSampler::new(MAX_SCALE + 1).is_err() && DiscreteGaussianSampler::new(0).is_err());
}

#[test]
fn coins_are_bernoulli_of_the_integer_rate() {
    let units = 2_000_000usize;
    for (seed, numerator) in [(8, 1 << 20), (9, 220_000_000), (10, 1 << 31), (11, (1 << 32) - 7), (12, (13 << 24) + 8_000_000)] {
        let rate = SamplingRate::from_numerator(numerator).unwrap();
        let mut rng = stream(seed);
        let (mut chosen, mut last, mut halves) = (0u32, None, [0u32; 2]);
        Coins::new(rate).toss(&mut rng, units, |position| {
            assert!(last.is_none_or(|last| last < position) && position < units);
            last = Some(position);
            chosen += 1;
            halves[usize::from(position >= units / 2)] += 1;
        });
        let trials = u32::try_from(units).unwrap();
        assert!(z_score(chosen, trials, rate.get()).abs() < 4.0, "{numerator}: {chosen}");
        assert!(halves.iter().all(|&half| z_score(half, trials / 2, rate.get()).abs() < 4.0));
    }
}

/// A generator whose every byte is the same: shows which comparison is made.
struct Constant(u8);

impl rand_core::TryRng for Constant {
    type Error = std::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(u32::from_ne_bytes([self.0; 4]))
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(u64::from_ne_bytes([self.0; 8]))
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.fill(self.0);
        Ok(())
    }
}

#[test]
fn coins_compare_all_32_bits_with_the_rate() {
    let chosen = |byte: u8, numerator: u64| {
        let mut chosen = 0;
        Coins::new(SamplingRate::from_numerator(numerator).unwrap()).toss(&mut Constant(byte), 3000, |_| chosen += 1);
        chosen
    };
    // Every coin is 0x07070707.
    assert_eq!((chosen(7, 0x0707_0708), chosen(7, 0x0707_0707), chosen(7, 0x0707_0706)), (3000, 0, 0));
    assert_eq!((chosen(7, 0x0800_0000), chosen(7, 0x0700_0000)), (3000, 0));
    assert_eq!((chosen(255, 1 << 32), chosen(255, (1 << 32) - 1), chosen(0, 1)), (3000, 0, 3000));
}
