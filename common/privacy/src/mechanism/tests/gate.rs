//! Programs above the gate that once read records through it.

use std::cell::RefCell;

use super::*;
use crate::danger::assume_public;
use crate::records::Sensitive;
use dp_pvi_unsealed::Unsealed;

fn secret() -> Units<Rows> {
    Units::new(Rows(vec![vec![(0, 0.5)], vec![(0, 0.25)]]))
}

/// A panic answered one question about a record at every call, and nothing was charged.
#[test]
fn a_panic_is_no_answer() {
    let units = secret();
    let asks: fn(&f64, &Rows) -> f64 = |asked, rows| {
        assert!(rows.0[0][0].1 < *asked, "more");
        *asked
    };
    let answer = |asked: f64| {
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| units.map(&Argument::copy_of(&asked).unwrap(), asks)));
        assert!(made.is_ok(), "seen outside");
        made.unwrap()
    };
    let (none, some) = (answer(0.4), answer(0.6));
    assert!(none.value().is_none() && some.value().is_some());
    // Nothing is computed from a value that is not there.
    let nothing = Argument::nothing();
    assert!(none.map(&nothing, |(), _| ()).value().is_none());
    for (one, other) in [(&none, &some), (&some, &none)] {
        assert!(one.map_with(other, &nothing, |(), _, _| ()).value().is_none());
    }
    assert!(units.map_with(&none, &nothing, |(), _, _| ()).value().is_none());
    // Nor does a table tell that panics when it is looked at from here.
    struct Silent;
    impl UnitTable for Silent {
        type Unit<'a> = ();
        fn len(&self) -> usize {
            2
        }
        fn unit(&self, _: usize) {
            panic!("a unit")
        }
    }
    let terms: fn(&(), Summation<'_, Silent>) -> Result<Summed, ReleaseError> = |(), sum| Ok(sum.each(|(), _, (), term| term.add(0, 1.0)));
    let mechanism = sum(1, 1.0, 1.0, None);
    let released = mechanism.release_sum(&Units::new(Silent), &nothing, terms, permit(&mechanism), &Seeded(4)).unwrap();
    assert_eq!(released.into_inner().values, release(&mechanism, &[], 4));
}

/// A state that a panic left empty: the terms are zero, the noise is there, and a public error stays the same error.
#[test]
fn a_release_with_a_state_that_panicked_is_noise() {
    let mechanism = sum(1, 1.0, 1.0, None);
    let (units, nothing) = (secret(), Argument::nothing());
    let panics = || units.map(&nothing, |(), rows| -> f64 { panic!("{:?}", rows.0[0]) });
    let terms: fn(&(), Summation<'_, Rows, f64>) -> Result<Summed, ReleaseError> =
        |(), sum| Ok(sum.each(|row, _, state, term| term.add(0, row[0].1 - state)));
    let (released, kept) = mechanism.release_sum_keeping(&units, &panics(), &nothing, terms, permit(&mechanism), &Seeded(5)).unwrap();
    assert_eq!(released.into_inner().values, release(&mechanism, &[], 5));
    assert_eq!(assume_public(Unsealed, kept).into_inner().to_dense(), [0.0, 0.0]);
    let refuses: fn(&(), Summation<'_, Rows, f64>) -> Result<Summed, ReleaseError> = |(), _| Err(ReleaseError::Overflow);
    for state in [panics(), Sensitive::of(0.0)] {
        let told = mechanism.release_sum_with(&units, &state, &nothing, refuses, permit(&mechanism), &Seeded(5));
        assert!(matches!(told, Err(ReleaseError::Overflow)));
    }
}

/// What one function over records wrote into a cell of its argument came out as the error of another one, before that one saw a record.
#[test]
fn an_error_carries_nothing_that_a_function_over_records_wrote() {
    struct Told(Vec<f64>);
    impl From<ReleaseError> for Told {
        fn from(_: ReleaseError) -> Self {
            Self(Vec::new())
        }
    }
    let cell = Argument::copy_of(&RefCell::new(vec![1.0])).unwrap();
    let both = cell.and(&cell);
    let units = secret();
    drop(units.map(&cell, |cell, rows| cell.borrow_mut().push(rows.0[0][0].1)));
    drop(units.map(&both, |(one, two), rows| one.borrow_mut().push(two.borrow_mut().pop().unwrap_or(rows.0[0][0].1))));
    let mechanism = sum(1, 1.0, 1.0, None);
    let told = mechanism.release_sum(&units, &cell, |cell, _| Err(Told(cell.borrow().clone())), permit(&mechanism), &Seeded(5));
    assert_eq!(told.err().unwrap().0, [1.0]);
    let told = mechanism.release_sum(&units, &both, |(cell, _), _| Err(Told(cell.borrow().clone())), permit(&mechanism), &Seeded(5));
    assert_eq!(told.err().unwrap().0, [1.0]);
}
