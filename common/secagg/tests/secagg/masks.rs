//! Masks, and the faults of other systems' masks as negative tests.

use std::collections::BTreeSet;

use crate::harness::*;
use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_names::{Hash, LatticeVector};
use dp_pvi_secagg::commitment::{Commitment, Salt};
use dp_pvi_secagg::mask::{MaskSeed, MaskStream};
use dp_pvi_secagg::ring;
use rand_core::{CryptoRng, Rng, TryCryptoRng, TryRng};
use sha2::{Digest, Sha256};

/// Gives out one seed.
struct Seed([u8; 32]);

impl TryRng for Seed {
    type Error = std::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        unreachable!("seeds are drawn as 32 bytes")
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        unreachable!("seeds are drawn as 32 bytes")
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        assert_eq!(bytes.len(), 32, "a seed has 256 bits");
        bytes.copy_from_slice(&self.0);
        Ok(())
    }
}

impl TryCryptoRng for Seed {}

fn mask(seed: [u8; 32], header: u8, site: u32) -> MaskStream {
    MaskSeed::fresh(&mut Seed(seed)).stream(&Hash([header; 32]), &name(site))
}

fn first(mut stream: MaskStream, count: usize) -> Vec<u64> {
    (0..count).map(|_| stream.next_u64()).collect()
}

/// HKDF and ChaCha20 written again in Python from RFC 5869 and RFC 8439 (with Bernstein's 64-bit counter) gave these words.
#[test]
fn masks_equal_those_of_an_independent_program() {
    let seed: [u8; 32] = std::array::from_fn(|i| i as u8);
    let client = dp_pvi_names::ClientId::new("hospital-1").unwrap();
    let words = first(MaskSeed::fresh(&mut Seed(seed)).stream(&Hash([7; 32]), &client), 1501);
    let expected = [
        0xe106_6a32_9230_0041,
        0xb998_9cab_7d23_c70f,
        0x4604_d7cb_a8f7_166c,
        0xaf05_f40e_0e7b_f4b5,
        0x3c8c_b1c6_003e_3bf4,
        0x04f7_85ea_ac38_6bab,
    ];
    assert_eq!([0, 1, 8, 511, 512, 1500].map(|i| words[i]), expected);
    // However the stream is read.
    let mut sum = ring::RingSum::zero(1501);
    sum.add_stream(&mut MaskSeed::fresh(&mut Seed(seed)).stream(&Hash([7; 32]), &client));
    assert_eq!(sum.into_lattice(0).values, words.iter().map(|w| w.cast_signed()).collect::<Vec<_>>());
}

#[test]
fn commitments_equal_those_of_an_independent_program() {
    let client = dp_pvi_names::ClientId::new("hospital-1").unwrap();
    let vector = LatticeVector { exponent: 0, values: vec![1, -2, 3] };
    let commitment = Commitment::of(&Salt([9; 32]), &Hash([7; 32]), &client, &vector);
    assert_eq!(commitment.0.to_string(), "53f34e8d342fe7df81320479811b7ec584a2a30dcf89de992de6ec8458cb918a");
    assert_eq!(commitment, Commitment::of_bytes(&Salt([9; 32]), &Hash([7; 32]), &client, &ring::to_bytes(&vector)));
    let other = |salt: u8, header: u8, site: &str, value: i64| {
        let vector = LatticeVector { exponent: 0, values: vec![value, -2, 3] };
        Commitment::of(&Salt([salt; 32]), &Hash([header; 32]), &dp_pvi_names::ClientId::new(site).unwrap(), &vector)
    };
    assert!(commitment.matches(&other(9, 7, "hospital-1", 1)));
    for changed in [other(8, 7, "hospital-1", 1), other(9, 8, "hospital-1", 1), other(9, 7, "hospital-2", 1), other(9, 7, "hospital-1", 2)]
    {
        assert!(!commitment.matches(&changed));
    }
}

/// A summer knows every mask. It guesses a site's noised vector of two numbers (here: it guesses right), masks the guess and compares it
/// with whatever the site signed for it. Without the salt, which goes to the server only, nothing there says that the guess is right.
#[test]
fn commitments_do_not_let_a_summer_test_guesses() {
    let mut harness = Harness::new(&request(4, 0, 2), 1);
    let guess = plain(harness.mechanism(), harness.shard(0), 0, 5);
    let header = harness.header();
    let hash = header.open(&harness.charter).unwrap().hash();
    let (_, sent) = harness.part(0, &header);
    let (_, again) = harness.part(0, &header);
    // The guess under the site's own mask is what the site sent: the masked vector itself carries no information else.
    let masked = sent.vector.get().clone();
    assert_ne!(masked, guess);

    // What the summer is given: the upload as it is in the closing request.
    let seen = sent.upload.open(harness.charter.key_of(&name(0)).unwrap()).unwrap();
    assert!(Commitment::of(&sent.salt, &hash, &name(0), &masked).matches(&seen.commitment), "the server can check it");
    let bytes = postcard::to_stdvec(&seen).unwrap();
    let hides = |needle: &[u8]| !bytes.windows(needle.len()).any(|window| window == needle);
    assert!(hides(&sent.salt.0), "the salt is not in what the summer reads");
    let words = ring::to_bytes(&masked);
    let unsalted = |domain: &[u8]| {
        let client = name(0);
        let parts = [domain, &hash.0, &(client.as_str().len() as u64).to_le_bytes(), client.as_str().as_bytes(), &words];
        Sha256::digest(parts.concat())
    };
    for domain in [b"dp-pvi secagg commitment v1", b"dp-pvi secagg commitment v2"] {
        assert!(hides(&unsalted(domain)), "the masked guess can be compared with the commitment");
    }
    for salt in [[0; 32], again.salt.0, hash.0] {
        assert!(!Commitment::of(&Salt(salt), &hash, &name(0), &masked).matches(&seen.commitment));
    }
    // Every commitment has a salt of its own.
    assert_ne!(sent.salt, again.salt);
}

/// Each of the 256 seed bits changes half of the output. A seed that is folded to 32 bits passes that too for single bits, but not
/// the second half: two bits that a fold of any width that divides 256 would cancel.
#[test]
fn every_seed_bit_changes_half_of_the_mask() {
    let words = 256;
    let distance = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    let base = first(mask([0x5a; 32], 1, 1), words);
    let flipped = |bits: &[usize]| {
        let mut seed = [0x5a; 32];
        bits.iter().for_each(|bit| seed[bit / 8] ^= 1 << (bit % 8));
        f64::from(distance(&base, &first(mask(seed, 1, 1), words)))
    };
    // 16,384 bits: sd 64; six of them over 512 comparisons.
    let half = 8192.0;
    for bit in 0..256 {
        assert!((flipped(&[bit]) - half).abs() < 6.0 * 64.0, "bit {bit}");
        assert!((flipped(&[bit, (bit + 32) % 256]) - half).abs() < 6.0 * 64.0, "bits {bit} and {bit}+32");
    }
}

/// Fault of another system: a 32-byte seed XOR-folded to 32 bits. Seeds of equal fold must give unrelated masks here.
#[test]
fn negative_seeds_are_not_folded_to_32_bits() {
    let mut source = rng(1);
    let fold = |seed: &[u8; 32]| seed.as_chunks::<4>().0.iter().fold(0, |fold, word| fold ^ u32::from_le_bytes(*word));
    let mut masks = BTreeSet::new();
    for _ in 0..2000 {
        let mut seed = [0; 32];
        source.fill_bytes(&mut seed);
        let fix = fold(&seed).to_le_bytes();
        seed.iter_mut().zip(fix).for_each(|(byte, fix)| *byte ^= fix);
        assert_eq!(fold(&seed), 0);
        masks.insert(first(mask(seed, 1, 1), 4));
    }
    assert_eq!(masks.len(), 2000);
}

/// Bytes at each of the eight positions in a word, 2²¹ words: chi-square of 255 degrees; all of them within 4.5 sd.
/// Fault of another system: `randint(0, range − 1)` never gives range − 1; every value of every byte is reached here.
#[test]
fn mask_bytes_are_uniform_and_reach_the_full_range() {
    let mut counts = vec![[0u32; 256]; 8];
    let words = 1 << 21;
    let mut stream = mask([3; 32], 9, 2);
    let (mut smallest, mut largest) = (u64::MAX, 0);
    for _ in 0..words {
        let word = stream.next_u64();
        (smallest, largest) = (smallest.min(word), largest.max(word));
        counts.iter_mut().zip(word.to_le_bytes()).for_each(|(counts, byte)| counts[usize::from(byte)] += 1);
    }
    let expected = f64::from(words) / 256.0;
    for counts in &counts {
        assert!(counts.iter().all(|count| *count > 0));
        let chi: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        let z = (chi - 255.0) / (2.0f64 * 255.0).sqrt();
        assert!(z.abs() < 4.5, "chi-square {chi}");
    }
    // The extremes of 2²¹ uniform words: within 2⁶⁴·16/2²¹ of the ends but with probability e^−16.
    assert!(smallest < 1 << 47 && largest > u64::MAX - (1 << 47), "{smallest:x} {largest:x}");
}

/// The other half of "full range": a pad word of all ones is added like any other, so 2⁶⁴ − 1 is not missed by the arithmetic.
#[test]
fn negative_no_mask_value_is_missed() {
    struct Ones;
    impl TryRng for Ones {
        type Error = std::convert::Infallible;
        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok(u32::MAX)
        }
        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(u64::MAX)
        }
        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
            bytes.fill(255);
            Ok(())
        }
    }
    impl TryCryptoRng for Ones {}
    fn sum(pad: &mut impl CryptoRng) -> Vec<i64> {
        let mut sum = ring::RingSum::zero(600);
        sum.add_stream(pad);
        sum.into_lattice(0).values
    }
    assert!(sum(&mut Ones).iter().all(|x| *x == -1));
    let harness = Harness::new(&request(3, 0, 5), 1);
    let share = |seed| share(harness.mechanism(), harness.shard(0), 0, seed);
    let (plain, masked) = (plain(harness.mechanism(), harness.shard(0), 0, 1), share(1).mask(&mut Ones).into_inner());
    assert!(plain.values.iter().zip(&masked.values).all(|(x, y)| x.wrapping_sub(1) == *y));
}

/// No two rounds, and no two clients, share a mask, even under a generator that repeats its seed.
#[test]
fn no_two_rounds_or_clients_share_a_mask() {
    let mut seen = BTreeSet::new();
    for header in 0..20 {
        for site in 0..20 {
            seen.extend(first(mask([1; 32], header, site), 64));
        }
    }
    assert_eq!(seen.len(), 20 * 20 * 64, "a 64-bit word twice among 25,600: probability 2e-11");
}

/// Two-sample Kolmogorov–Smirnov of 2¹⁹ words each: what the server sees of x = 0 and of a saturated x.
#[test]
fn the_server_cannot_tell_zero_from_a_saturated_vector() {
    let dimension = 1 << 19;
    let mut harness = Harness::new(&request(3, 0, dimension), 1);
    let header = harness.header();
    let mut view = |size: f64| {
        let shard = Shard { size, ..harness.shard(0) };
        let share = share(harness.mechanism(), shard, 0, 5);
        let (client, idle) = &harness.clients[0];
        let accepted = idle.clone().accept(client, &header, &model(0)).unwrap();
        let (_, outgoing) = accepted.mask(client, share, &mut harness.rng).unwrap();
        let mut words: Vec<u64> = outgoing.vector.get().values.iter().map(|x| x.cast_unsigned()).collect();
        words.sort_unstable();
        words
    };
    let (zero, full) = (view(0.0), view(1e9));
    let (mut i, mut j, mut gap) = (0usize, 0usize, 0f64);
    while i < zero.len() && j < full.len() {
        if zero[i] <= full[j] {
            i += 1
        } else {
            j += 1
        }
        gap = gap.max((i as f64 - j as f64).abs() / f64::from(dimension));
    }
    // p = 0.001: 1.9495·√(2/n).
    assert!(gap < 1.9495 * (2.0 / f64::from(dimension)).sqrt(), "{gap}");
    // And each is uniform by itself.
    for words in [&zero, &full] {
        let gap = (0..words.len()).map(|i| (words[i] as f64 / 2f64.powi(64) - i as f64 / f64::from(dimension)).abs()).fold(0.0, f64::max);
        assert!(gap < 1.9495 / f64::from(dimension).sqrt() + 1e-6, "{gap}");
    }
}

/// The same generator state gives fresh masks at every upload.
#[test]
fn every_upload_draws_a_fresh_seed() {
    let mut source = ChaCha20Rng::from_seed([4; 32]);
    let stream = |source: &mut ChaCha20Rng| first(MaskSeed::fresh(source).stream(&Hash([1; 32]), &name(1)), 4);
    let (one, two) = (stream(&mut source), stream(&mut source));
    assert_ne!(one, two);
}
