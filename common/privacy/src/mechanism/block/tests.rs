use super::*;

/// Integers of entries at a factor, and their squared norm, by the conversions of the language.
fn one_by_one(values: &[f64], factor: f64) -> (Vec<i64>, u128) {
    #[allow(clippy::cast_possible_truncation)]
    let steps: Vec<i64> = values.iter().map(|value| i64::from((value * factor) as i32)).collect();
    let norm = steps.iter().map(|x| u128::from((x * x).cast_unsigned())).sum();
    (steps, norm)
}

/// A linear congruence: enough for numbers of every size.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    }
}

/// Whatever is done in lanes is what is done one by one: for every length, at every place, whatever is beside.
#[test]
fn integers_are_those_of_each_entry_alone() {
    let edges = [
        0.0,
        -0.0,
        0.5,
        1.0,
        1.5,
        2.5,
        1f64.next_down(),
        1f64.next_up(),
        3f64.next_down(),
        4_194_303.999_999_999,
        2_147_483_646.0,
        2_147_483_646.999,
        2_147_483_647.0,
        f64::MIN_POSITIVE,
        5e-324,
        0.1,
        123_456.75,
    ];
    let mut all: Vec<f64> = edges.iter().flat_map(|x| [*x, -x]).collect();
    let mut number = numbers(1);
    for place in 0..20_000 {
        #[allow(clippy::cast_precision_loss)]
        let x = number() as f64 * 2f64.powi(-53 + place % 32 - 1);
        all.push(if number() & 1 == 0 { x } else { -x });
    }
    for factor in [1.0, 0.37, 2f64.powi(-20)] {
        for len in (0..40).chain([1000, 9973]) {
            for start in [0, 1, 2, 3, 33, 1234] {
                let values = &all[start..start + len];
                let mut steps = vec![7; len];
                let squared = truncate(values, factor, &mut steps);
                assert_eq!((steps, squared), one_by_one(values, factor), "{len} from {start} times {factor}");
            }
        }
    }
}

/// What 31 bits do not hold is above every bound; up to there the norm is that of the integers.
#[test]
fn what_is_too_large_is_above_every_bound() {
    let mut number = numbers(2);
    let mut large =
        vec![2_147_483_648.0, -2_147_483_648.5, 4_294_967_295.6, 4_294_967_296.0, -1e18, 1e300, f64::INFINITY, f64::NEG_INFINITY];
    large.extend([f64::NAN, -f64::NAN, 2f64.powi(51), 2f64.powi(52), 2f64.powi(53), 2f64.powi(52).next_down(), 2f64.powi(53) + 2.0]);
    // Bits of every kind, and whole numbers whose lower half is 0, just below and just above.
    large.extend((0..20_000).map(|_| f64::from_bits((number() << 11) | (number() & 0x7ff))));
    large.extend((1..20_000).flat_map(|k: u32| {
        let whole = f64::from(k) * 4_294_967_296.0;
        [whole, whole.next_down(), whole.next_up()]
    }));
    for x in large {
        for values in [&[1.0, x, -3.0][..], &[x], &[x, -x, x, 2.0, x]] {
            let mut steps = vec![0; values.len()];
            let squared = truncate(values, 1.0, &mut steps);
            if x.abs() < 2_147_483_648.0 {
                assert_eq!((steps, squared), one_by_one(values, 1.0), "{x:e}");
            } else {
                assert_eq!(squared, u128::MAX, "{x:e}");
            }
        }
    }
    // A norm that vanishes in floating point does not let a long term through.
    let (mut block, mut sums) = (Block::default(), [0; DIMENSION]);
    let tiny = Clipping { clip: 1e-200, per_step: 2f64.powi(684), bound_squared: 1 << 40, cells: None };
    block.term().add(3, 1e-170);
    block.push(0, &mut sums, &tiny, None);
    block.add(&mut sums, &tiny, None);
    assert_eq!(sums, [0; DIMENSION]);
}

/// What a function does to the term that it is given, beside filling it.
fn misuse(kind: u32, term: &mut Term) -> Term {
    match kind {
        0 => std::mem::take(term),
        1 => std::mem::replace(term, filled((0..16).map(|j| (j, 1e3)))),
        2 => {
            let mut other = filled((0..40).map(|j| (j, -7.0)));
            std::mem::swap(term, &mut other);
            other
        }
        3 => {
            term.clear();
            Term::default()
        }
        _ => {
            *term = filled(std::iter::once((200, 1.0)));
            Term::default()
        }
    }
}

fn filled(entries: impl Iterator<Item = (u32, f64)>) -> Term {
    let mut term = Term::default();
    term.extend(entries);
    term
}

/// A function that takes its term away, or puts another one in its place, changes its own unit's integers and no one else's; and they are within C.
#[test]
fn a_function_has_no_hand_on_the_units_that_wait() {
    for kind in 0..5 {
        for place in [0, 1, 7, 15, 16, 29] {
            let (mut block, mut sums, mut kept) = (Block::default(), [0; DIMENSION], CleanTerms::new(128, 0));
            for position in 0..30 {
                // What is taken away is not put back in another unit's turn.
                let term = block.term();
                term.extend([(0, -2.25), (position, 0.5)].into_iter());
                if position == place {
                    drop(misuse(kind, term));
                }
                block.push(position as usize, &mut sums, &clipping(), Some(&mut kept));
            }
            block.add(&mut sums, &clipping(), Some(&mut kept));
            kept.end(30);
            for position in (0..30).filter(|position| *position != place) {
                let (mut alone, mut one) = (Block::default(), [0; DIMENSION]);
                alone.term().extend([(0, -2.25), (position, 0.5)].into_iter());
                alone.push(0, &mut one, &clipping(), None);
                alone.add(&mut one, &clipping(), None);
                let mut dense = [0; DIMENSION];
                #[allow(clippy::cast_possible_truncation)]
                kept.term(position as usize).for_each(|(index, steps)| dense[index] = steps as i64);
                assert_eq!(dense, one, "{kind} at {place}, {position}");
            }
            let norm: f64 = kept.term(place as usize).map(|(_, steps)| steps * steps).sum();
            assert!(norm <= 86_973_087_744.0, "{kind} at {place}");
            #[allow(clippy::cast_precision_loss)]
            let sums = sums.map(|sum| sum as f64);
            assert_eq!(kept.sum(), sums, "{kind} at {place}");
        }
    }
}

const DIMENSION: usize = 128;

/// Entries of a unit; some have none, too many, long ones, unordered ones, and numbers that are none.
fn unit(seed: u32) -> Vec<(u32, f64)> {
    let size = [0.01, 1.0, 1e3, 1e12][seed as usize % 4];
    let entry = |i: u32| (3 * i + seed % 3, (f64::from(seed) * 0.37 + f64::from(i)).sin() * size);
    let mut entries: Vec<_> = (0..seed % 37).map(entry).collect();
    match seed % 23 {
        0 => entries.reverse(),
        1 => entries.push((200, 1.0)),
        2 => entries.push((5, f64::NAN)),
        3 => entries.extend((0..1500).map(|i| (i % 128, f64::from(i) * 1e-3))),
        _ => {}
    }
    entries
}

fn clipping() -> Clipping {
    Clipping { clip: 2.25, per_step: 2f64.powi(17), bound_squared: 86_973_087_744, cells: None }
}

/// Sums and terms of these units, in blocks.
fn added(units: &[u32]) -> ([i64; DIMENSION], Vec<Vec<f64>>) {
    let (mut block, mut sums, mut kept) = (Block::default(), [0; DIMENSION], CleanTerms::new(128, 0));
    for (position, seed) in units.iter().enumerate() {
        block.term().extend(unit(*seed).into_iter());
        block.push(position, &mut sums, &clipping(), Some(&mut kept));
    }
    block.add(&mut sums, &clipping(), Some(&mut kept));
    kept.end(units.len());
    let dense = kept.to_dense();
    (sums, dense.chunks(DIMENSION).map(<[f64]>::to_vec).collect())
}

/// A unit's integers are the same to the last bit, whichever units are in its block, where it stands, and where the block ends.
#[test]
fn a_term_does_not_know_who_stands_beside_it() {
    let alone: Vec<Vec<f64>> = (0..240).map(|seed| added(&[seed]).1.remove(0)).collect();
    assert!(alone.iter().filter(|term| term.iter().any(|x| *x != 0.0)).count() > 180);
    for (stride, count) in [(1, 240), (7, 239), (31, 33), (101, 17), (11, 16), (13, 15), (17, 1)] {
        let units: Vec<u32> = (0..count).map(|k| k * stride % 240).collect();
        let (sums, terms) = added(&units);
        let mut expected = [0.0; DIMENSION];
        for (seed, term) in units.iter().zip(&terms) {
            assert_eq!(*term, alone[*seed as usize], "{seed} of {count}");
            expected.iter_mut().zip(term).for_each(|(sum, x)| *sum += x);
        }
        #[allow(clippy::cast_precision_loss)]
        let sums = sums.map(|sum| sum as f64);
        assert_eq!(sums, expected);
    }
}

/// A unit that is given up on the way leaves nothing behind.
#[test]
fn a_term_that_is_not_pushed_does_not_count() {
    let (mut block, mut sums) = (Block::default(), [0; DIMENSION]);
    for seed in [40, 41, 42] {
        block.term().extend(unit(seed).into_iter());
        if seed != 41 {
            block.push(0, &mut sums, &clipping(), None);
        }
    }
    block.add(&mut sums, &clipping(), None);
    assert_eq!(sums, added(&[40, 42]).0);
}
