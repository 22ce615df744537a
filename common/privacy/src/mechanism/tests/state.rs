//! Sums over units with private state, and the memory of the clean terms.

use proptest::prelude::*;

use super::*;
use crate::danger::assume_public;
use crate::records::Sensitive;
use dp_pvi_unsealed::Unsealed;

fn rows() -> impl Strategy<Value = Vec<Vec<(u32, f64)>>> {
    let value = prop_oneof![4 => -3.0..3.0f64, 1 => Just(f64::NAN), 1 => Just(1e200), 1 => Just(0.0)];
    proptest::collection::vec(proptest::collection::vec((0..5u32, value), 0..7), 0..12)
}

thread_local! {
    /// Positions at which the function ran: a test may look.
    static VISITED: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What is kept is what was summed, to the last integer: the kept terms and the noise alone make up the release; each is in
    /// the ball; the function ran once for each unit of the sample.
    #[test]
    fn kept_terms_are_exactly_those_that_were_summed(rows in rows(), sampled in any::<bool>(), seed in 0..u8::MAX) {
        let mechanism = sum(4, 0.7, 3.0, sampled.then_some(0.5));
        let units = Units::new(Rows(rows.clone()));
        VISITED.take();
        let visiting: fn(&(), Summation<'_, Rows>) -> Result<Summed, ReleaseError> = |(), sum| {
            Ok(sum.each(|row, position, (), term| {
                VISITED.with_borrow_mut(|visited| visited.push(position));
                fill(row, term);
            }))
        };
        let nothing = Argument::nothing();
        let (released, kept) =
            mechanism.release_sum_keeping(&units, &Sensitive::of(()), &nothing, visiting, permit(&mechanism), &Seeded(seed)).unwrap();
        let visited = VISITED.take();
        let kept = assume_public(Unsealed, kept).into_inner();
        // Without a kept term: the same release.
        prop_assert_eq!(&release(&mechanism, &rows, seed), &released.get().values);
        let step = 2f64.powi(mechanism.exponent());
        let noise = release(&sum(4, 0.7, 3.0, sampled.then_some(0.5)), &[], seed);
        prop_assert_eq!(kept.len(), rows.len());
        for (j, sum) in kept.sum().into_iter().enumerate() {
            let integer = released.get().values[j] - noise[j];
            prop_assert_eq!(sum, integer as f64 * step);
        }
        let lattice = Lattice::new(ClipNorm::new(0.7).unwrap(), NoiseMultiplier::new(3.0).unwrap()).unwrap();
        let dense = kept.to_dense();
        prop_assert!(visited.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(sampled || visited.len() == rows.len());
        for (position, row) in rows.iter().enumerate() {
            let expected: Vec<f64> = if visited.contains(&position) {
                one(row, 4, 0.7, &lattice).into_iter().map(|x| x as f64 * step).collect()
            } else {
                vec![0.0; 4]
            };
            prop_assert_eq!(&dense[4 * position..4 * position + 4], &expected[..]);
            prop_assert!(kept.term(position).map(|(_, x)| x * x).sum::<f64>() <= 0.7 * 0.7);
        }
    }
}

#[test]
fn a_unit_sees_its_position_and_the_private_state() {
    let mechanism = sum(2, 1.0, 1.0, None);
    let rows = vec![vec![(0, 0.25)], vec![(0, 0.5)], vec![(0, 0.125)]];
    // One private number a unit; the term is its record minus it.
    let state = Sensitive::of(vec![0.25, 0.25, 0.0]);
    /// A unit's record minus its private number.
    #[allow(clippy::unnecessary_wraps, reason = "the form that a mechanism takes")]
    fn f((): &(), sum: Summation<'_, Rows, Vec<f64>>) -> Result<Summed, ReleaseError> {
        Ok(sum.each(|row, position, state, term| term.add(0, row[0].1 - state[position])))
    }
    let (units, nothing) = (Units::new(Rows(rows)), Argument::nothing());
    let released = mechanism.release_sum_with(&units, &state, &nothing, f, permit(&mechanism), &Seeded(3)).unwrap().into_inner();
    let noise = release(&mechanism, &[], 3);
    assert_eq!((released.values[0] - noise[0], released.values[1] - noise[1]), ((1 << 18) + (1 << 17), 0));
}

/// Local and shared trust behind one call: the same terms and the same memory of them; only the noise differs.
#[test]
fn a_shared_sum_keeps_the_same_terms_and_no_noise() {
    let clip = ClipNorm::new(1.0).unwrap();
    let shared = ShareSum::new(3, clip, NoiseMultiplier::new(2.0).unwrap(), 1, 10, None, Terms::Units).unwrap();
    let rows = vec![vec![(0, 0.5), (2, -0.25)], vec![(1, 9.0)]];
    let run = |mechanism: &SumMechanism, seed| {
        let permit = mint(mechanism.event()).with_fallback(mechanism.fallback_event()).into_steps().next().unwrap();
        let units = Units::new(Rows(rows.clone()));
        let (message, kept) =
            mechanism.release_keeping(&units, &Sensitive::of(()), &Argument::nothing(), entries, permit, &Seeded(seed)).unwrap();
        (message, assume_public(Unsealed, kept).into_inner().to_dense())
    };
    let shared = SumMechanism::Shared(shared);
    let local = SumMechanism::Local(sum(3, 1.0, 2.0, None));
    let (message, first) = run(&shared, 1);
    assert!(matches!(message, Message::Share(_)) && message.released().is_none() && format!("{message:?}") == "Share(..)");
    let (_, second) = run(&shared, 2);
    let (message, third) = run(&local, 3);
    assert!(message.released().is_some());
    // The lattices of z = 2 differ by the rounding up of a share's noise at most; these numbers lie on both.
    assert_eq!((&first, &first[..2]), (&second, &[0.5, 0.0][..]));
    assert_eq!(first[..3], third[..3]);
    assert_eq!((local.fallback_event(), shared.fallback_event().is_some()), (None, true));
    assert_eq!((local.dimension(), shared.dimension()), (3, 3));
}
