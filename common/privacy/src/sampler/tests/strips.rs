//! The table of strips, and what it leaves to many digits.

use super::super::gaussian::{DiscreteGaussianSampler, MAX_SCALE};
use super::super::strips::{Column, STRIPS, TABLE, WHOLE, digits_of, draw, exceeds, rare};
use super::{Script, count, stream, z_score};

const HEIGHT: u64 = 1 << 56;

/// Weight of every item of the columns: the strips, and at last what is left.
fn weights_of_columns() -> [u64; STRIPS + 1] {
    let mut weights = [0; STRIPS + 1];
    for (item, Column { own, other }) in TABLE.columns.iter().enumerate() {
        assert!(*own <= HEIGHT);
        if *own > 0 {
            weights[item] += own;
        }
        if *own < HEIGHT {
            weights[usize::try_from(*other).unwrap()] += HEIGHT - own;
        }
    }
    weights
}

/// The integers of the table are the whole parts of c·exp(−i²/128), and the columns draw exactly these.
#[test]
fn the_table_holds_the_whole_part_of_every_weight() {
    for (strip, weight) in (0u64..).zip(TABLE.weights) {
        let value = digits_of(strip, 0, 6);
        // The first strip's weight is a whole number, which digits from below do not reach.
        let expected = if strip == 0 { value[0] + 1 } else { value[0] };
        assert_eq!(weight, expected, "{strip}");
        // No digit from below hides the next whole number.
        assert!(strip == 0 || value[1] != u64::MAX);
    }
    // By another program, with 6,000 bits.
    assert_eq!(
        [0, 1, 8, 40, 72].map(|i| TABLE.weights[i]),
        [WHOLE, 869_385_246_620_596_444, 531_444_541_409_727_945, 3_265_308_116_438, 2]
    );
    assert_eq!(TABLE.left, (1 << 63) - TABLE.weights.iter().sum::<u64>());
    assert!((96..107).contains(&TABLE.left), "c could be larger: {}", TABLE.left);
    let of_columns = weights_of_columns();
    assert_eq!(of_columns[..STRIPS], TABLE.weights);
    assert_eq!(of_columns[STRIPS], TABLE.left);
}

/// Against another program, with 6,000 bits.
#[test]
fn digits_of_weights_are_those_of_another_program() {
    let known: [(u64, u64, [u64; 3]); 6] = [
        (3, 0, [816_711_857_292_703_505, 0x7d6e_3966_f9ce_3b5d, 0xd019_c067_24ad_0e5e]),
        (17, 0, [91_632_530_839_336_052, 0xb5a0_b283_373c_5738, 0x0b26_cf6a_4a32_3574]),
        (72, 0, [2, 0x41fc_ddb2_26ed_9561, 0xcdf2_ab79_f982_00b3]),
        (79, 0, [0, 0x0026_5b33_90d7_2024, 0xdd51_5953_6238_cc01]),
        (85, 0, [0, 0x0000_0480_98b5_ad78, 0xfab8_6994_08c0_aa0f]),
        (100, 2, [0, 0x1db9, 0x0423_682d_52ba_59b0]),
    ];
    for (strip, doublings, expected) in known {
        // With more digits the same ones.
        for digits in [3, 6, 42] {
            assert_eq!(digits_of(strip, doublings, digits)[..3], expected, "{strip}, {digits} digits");
        }
        // One digit is right, or one too small.
        let one = digits_of(strip, doublings, 1);
        assert!(one[0] == expected[0] && (one[1] == expected[1] || one[1] + 1 == expected[1]), "{strip}");
    }
    for (strip, doublings, place, digit) in [(300, 27, 15, 0x0001_27ed_1be8), (511, 53, 45, 0x0002_d184_61d9_f027)] {
        let value = digits_of(strip, doublings, 50);
        assert!(value[..place].iter().all(|digit| *digit == 0), "{strip}: {value:x?}");
        assert_eq!(value[place], digit, "{strip}");
    }
    // Behind the strips that are computed everything is below one unit of the last digit.
    assert!(digits_of(511, 53, 42).iter().all(|digit| *digit == 0));
    // Every weight behind the table, times what its cell asks for, is a probability, and halves at least from eight to eight.
    for strip in 80..512 {
        assert_eq!(digits_of(strip, (strip - 80) / 8, 2)[0], 0, "{strip}");
    }
}

/// A uniform number is compared digit by digit, as far as it takes.
#[test]
fn a_remainder_is_compared_with_as_many_digits_as_it_takes() {
    for (strip, doublings) in [(3, 0), (17, 0), (72, 0), (100, 2)] {
        let value = digits_of(strip, doublings, 45);
        let decided = |words: &[u64]| exceeds(&mut Script(words.to_vec()), strip, doublings, value[0]).unwrap();
        // The last digit of what is compared may be one too small.
        assert!(decided(&[value[1] - 1]) && !decided(&[value[1] + 2]), "{strip}");
        // The first digit is the same: five more are drawn, of which the first decides.
        for (second, expected) in [(value[2] - 1, true), (value[2] + 1, false)] {
            assert_eq!(decided(&[value[1], second, 0, 0, 0, 0]), expected, "{strip}");
        }
        // Forty digits are the same.
        for (last, expected) in [(value[41] - 2, true), (value[41] + 2, false)] {
            let mut words = value[1..=42].to_vec();
            words[40] = last;
            assert_eq!(decided(&words), expected, "{strip}");
        }
        // All are.
        assert!(exceeds(&mut Script(value[1..=42].to_vec()), strip, doublings, value[0]).is_err());
    }
}

/// What is left of every strip of the table comes as often as it should.
#[test]
fn the_rare_item_makes_good_what_the_integers_leave() {
    let mut rng = stream(13);
    let draws = 150_000;
    let mut counts = [0; STRIPS];
    for _ in 0..draws {
        match rare(&mut rng).unwrap().map(usize::try_from) {
            Some(Ok(strip)) if strip < STRIPS => counts[strip] += 1,
            // The strips behind the table: 1e-4 of a cell.
            Some(_) => {}
            None => {}
        }
    }
    let mut drawn = 0;
    for (strip, found) in (0u64..).zip(counts) {
        #[allow(clippy::cast_precision_loss, reason = "a probability")]
        let (remainder, cells) = (digits_of(strip, 0, 1)[1] as f64 / 2f64.powi(64), TABLE.left as f64);
        // The first strip's remainder is 0: what its digits from below say is one unit less than a whole.
        if strip == 0 {
            assert_eq!(found, 0);
            continue;
        }
        let probability = remainder / cells;
        if probability * f64::from(draws) > 20.0 {
            assert!(z_score(found, draws, probability).abs() < 4.5, "{strip}: {found} of {draws}, {probability}");
            drawn += 1;
        } else {
            assert!(f64::from(found) < 60.0, "{strip}: {found}");
        }
    }
    assert!(drawn > 60, "{drawn}");
}

/// What leads to the item that is left, to its cell 91 (of strip 80 + 3), past three doublings, and to the digits of a number below 2³·v.
fn words_of_strip_107() -> Vec<u64> {
    let column = TABLE.columns.iter().position(|column| column.own < HEIGHT && column.other == STRIPS as u64);
    // Its own column has it below, another one may have it above.
    let word = column.map_or((STRIPS as u64) << 56, |column| ((column as u64) << 56) | (HEIGHT - 1));
    let cell = u64::try_from((91u128 << 64).div_ceil(u128::from(TABLE.left))).unwrap();
    let half = 1 << 63;
    [vec![word, cell, half, half, half, 0], vec![0; 6]].concat()
}

/// The largest scale, far behind the table, at the end of a strip, where γ = (108² − 107²)/128 is above 1: nothing overflows.
#[test]
fn a_strip_behind_the_table_is_drawn_at_the_largest_scale() {
    let sampler = DiscreteGaussianSampler::new(MAX_SCALE).unwrap();
    let width = (MAX_SCALE / 8).cast_signed();
    // The last place of the strip; a coin exp(−1) that succeeds (K = 3); a coin of the rest that does.
    let words = [words_of_strip_107(), vec![u64::MAX << 32, 0, 0, u64::MAX, u64::MAX]].concat();
    assert_eq!(sampler.sample(&mut Script(words)).unwrap(), 107 * width + width - 1);
}

/// The item that is left is drawn where the columns say so, and a strip behind the table can come of it.
#[test]
fn strips_behind_the_table_are_reached() {
    let words = words_of_strip_107();
    let word = words[0];
    assert_eq!(draw(&mut Script(words)).unwrap(), Some((107, false)));
    // A cell that no one needs.
    assert_eq!(draw(&mut Script(vec![word, u64::MAX])).unwrap(), None);
    // The sign is the highest bit.
    assert_eq!(draw(&mut Script(vec![1 << 63])).unwrap().map(|(_, negative)| negative), Some(true));
    let mut rng = stream(14);
    let beyond = count(2_000_000, || draw(&mut rng).unwrap().is_none_or(|(strip, _)| strip > 72));
    assert_eq!(beyond, 0);
}
