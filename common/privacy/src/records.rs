//! Private units and values. What is in here can be transformed and released, never looked at.
//!
//! # What a function over private values can reach
//!
//! A closure carries what it captures, and a captured cell, lock or channel would carry a record out. So nothing here takes a
//! closure. Functions over private values are `fn` pointers: a function that captures nothing. What they need to know beside the
//! private value comes as an [`Argument`], which is a copy made from bytes: it shares no memory with anything outside, so that
//! nothing that is written into it can be read there. Functions of released values get another copy, made from the same bytes.
//!
//! Inside, a function may do what it likes with what it made itself, closures included ([`crate::mechanism::Summation::each`]): all of it
//! is dropped when the function returns, but for its result, which is private again.
//!
//! Two ways remain that no type can bar in safe Rust: a `static` (with a lock, an atomic or a thread's own cell in it, or memory that was
//! leaked on purpose into one), and what the operating system offers to everybody (files, sockets, output). Lints and tests over the
//! sources bar both from the crates that see records. They stop mistakes; an author who wants to cheat and owns `inference` can.
//!
//! Panics are a way out, too: see [`crate::inside`].

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::inside::{Kept, or_panic};
use crate::mechanism::MAX_UNITS;
use crate::shards::Grouping;

/// A table of privacy units as a loader builds it: disjoint by construction.
pub trait UnitTable: Send + Sync {
    /// One unit's records, borrowed.
    type Unit<'a>
    where
        Self: 'a;

    /// Number of units.
    fn len(&self) -> usize;

    /// Whether there is no unit.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The unit at a position below [`UnitTable::len`].
    fn unit(&self, position: usize) -> Self::Unit<'_>;

    /// What the units are to an accountant. Tables that loaders build hold privacy units; [`crate::shards`] makes the others.
    fn grouping(&self) -> Grouping {
        Grouping::Units
    }
}

/// A public value for functions over private ones: a copy through bytes (postcard), which shares no memory with the value it was made of.
///
/// A cell in it tells nobody outside what a function over private values wrote there: what may be read outside ([`Released::map`],
/// [`Attachment::masked`](crate::ledger::Attachment::masked)) gets a fresh copy of the bytes every time. Functions over private values
/// share one copy, which takes time to make: what one of them writes, a later one can see, behind the gate.
pub struct Argument<A> {
    /// For functions over private values, and for nobody else.
    inside: Kept<Arc<A>>,
    bytes: Arc<[u8]>,
}

impl Argument<()> {
    /// No argument.
    #[must_use]
    pub fn nothing() -> Self {
        Self { inside: Kept::new(Arc::new(())), bytes: Arc::default() }
    }
}

impl<A: Serialize + DeserializeOwned> Argument<A> {
    /// Copies a public value.
    ///
    /// # Errors
    /// The value's own form cannot be written, or not be read again: a bug of its type.
    pub fn copy_of(value: &A) -> Result<Self, NotCopied> {
        let bytes = written(value)?;
        Ok(Self { inside: Kept::new(Arc::new(read(&bytes)?)), bytes: bytes.into() })
    }
}

impl<A: DeserializeOwned> Argument<A> {
    /// The value as it was copied, for what is read outside: nothing that a function over private values wrote is in it.
    pub(crate) fn fresh(&self) -> A {
        match read(&self.bytes) {
            Ok(value) => value,
            Err(NotCopied) => unreachable!("the same bytes were read when the copy was made"),
        }
    }
}

impl<A> Argument<A> {
    /// Both, without reading them again.
    #[must_use]
    pub fn and<B>(&self, other: &Argument<B>) -> Argument<(Arc<A>, Arc<B>)> {
        let both = (Arc::clone(&self.inside), Arc::clone(&other.inside));
        // A pair is written as one part after the other.
        Argument { inside: Kept::new(Arc::new(both)), bytes: [&*self.bytes, &*other.bytes].concat().into() }
    }

    /// For functions over private values only: they can write into what is in it.
    pub(crate) fn inside(&self) -> &A {
        &self.inside
    }
}

/// Another handle to the same copy.
impl<A> Clone for Argument<A> {
    fn clone(&self) -> Self {
        Self { inside: Kept::new(Arc::clone(&self.inside)), bytes: Arc::clone(&self.bytes) }
    }
}

/// A public value that could not be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a public value cannot be written and read again: report this as a bug")]
pub struct NotCopied;

fn copy<A: Serialize + DeserializeOwned>(value: &A) -> Result<A, NotCopied> {
    read(&written(value)?)
}

fn written<A: Serialize>(value: &A) -> Result<Vec<u8>, NotCopied> {
    postcard::to_stdvec(value).map_err(|_| NotCopied)
}

fn read<A: DeserializeOwned>(bytes: &[u8]) -> Result<A, NotCopied> {
    postcard::from_bytes(bytes).map_err(|_| NotCopied)
}

/// Private units. Neither their number nor their content can be read outside this crate's mechanisms.
pub struct Units<T> {
    pub(crate) table: T,
    /// Declared number of units, where layouts are over that many.
    pub(crate) slots: Option<u64>,
}

impl<T: UnitTable> Units<T> {
    /// Puts a table behind the gate. Whoever builds the table has seen the records: only loaders do.
    ///
    /// # Panics
    /// More than [`MAX_UNITS`] units, which no loader of this workspace can build: their tables number entries with 32 bits.
    #[must_use]
    pub fn new(table: T) -> Self {
        assert!(table.len() as u64 <= MAX_UNITS, "a table holds at most 2^32 units");
        Self { table, slots: None }
    }

    /// The same units, laid out over the declared number of units, which is public: where units are put together by position
    /// ([`Units::shards`]), the borders depend on this number and not on how many units there are. A slot without a unit contributes 0, and so
    /// does a unit without a slot.
    #[must_use]
    pub fn over_slots(self, declared: u64) -> Self {
        Self { slots: Some(declared), ..self }
    }

    /// Computes on the whole table; the result stays private.
    ///
    /// # Panics
    /// With [`Withheld`](crate::inside::Withheld) and nothing else, if `f` panics.
    #[must_use]
    pub fn map<A, R>(&self, argument: &Argument<A>, f: fn(&A, &T) -> R) -> Sensitive<R> {
        Sensitive::of(or_panic(|| f(argument.inside(), &self.table)))
    }

    /// Computes on the whole table and a private value; the result stays private.
    ///
    /// # Panics
    /// As [`Units::map`].
    #[must_use]
    pub fn map_with<S, A, R>(&self, other: &Sensitive<S>, argument: &Argument<A>, f: fn(&A, &T, &S) -> R) -> Sensitive<R> {
        Sensitive::of(or_panic(|| f(argument.inside(), &self.table, &other.0)))
    }
}

/// A private value: no `Debug`, `Clone`, `Deref` or serialisation. It leaves only through a mechanism. What may look at it is said in the
/// [module](self).
pub struct Sensitive<T>(pub(crate) Kept<T>);

impl<T: Serialize + DeserializeOwned> Sensitive<T> {
    /// Treats a copy of a public value as a private one. There is no way back.
    ///
    /// # Errors
    /// As [`Argument::copy_of`].
    pub fn constant(value: &T) -> Result<Self, NotCopied> {
        copy(value).map(Self::of)
    }
}

impl Sensitive<()> {
    /// No private value.
    pub const NOTHING: Self = Self::of(());
}

impl<T> Sensitive<T> {
    pub(crate) const fn of(value: T) -> Self {
        Self(Kept::new(value))
    }

    /// Computes on two private values; the result stays private.
    ///
    /// # Panics
    /// As [`Units::map`].
    #[must_use]
    pub fn map_with<S, A, R>(&self, other: &Sensitive<S>, argument: &Argument<A>, f: fn(&A, &T, &S) -> R) -> Sensitive<R> {
        Sensitive::of(or_panic(|| f(argument.inside(), &self.0, &other.0)))
    }

    /// Computes on the value; the result stays private.
    ///
    /// # Panics
    /// As [`Units::map`].
    #[must_use]
    pub fn map<A, R>(&self, argument: &Argument<A>, f: fn(&A, &T) -> R) -> Sensitive<R> {
        Sensitive::of(or_panic(|| f(argument.inside(), &self.0)))
    }
}

/// A value that went through a mechanism, or was computed from such values and public ones. Only mechanisms build it.
///
/// Functions of it capture nothing: beside released values they see an [`Argument`], and whoever makes an argument of a value has called that
/// value public. That is as far as types go: a loader, which holds plain records, could call one public. A test over the sources says
/// where arguments are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Released<T>(pub(crate) T);

impl<T> Released<T> {
    /// The value.
    #[must_use]
    pub fn get(&self) -> &T {
        &self.0
    }

    /// The value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }

    /// Post-processing: free.
    #[must_use]
    pub fn map<A: DeserializeOwned, R>(self, argument: &Argument<A>, f: fn(&A, T) -> R) -> Released<R> {
        Released(f(&argument.fresh(), self.0))
    }

    /// Post-processing of two released values: free.
    #[must_use]
    pub fn map_with<S, A: DeserializeOwned, R>(self, other: Released<S>, argument: &Argument<A>, f: fn(&A, T, S) -> R) -> Released<R> {
        Released(f(&argument.fresh(), self.0, other.0))
    }
}

impl<T, E> Released<Result<T, E>> {
    /// A result of post-processing, turned inside out.
    ///
    /// # Errors
    /// That of the post-processing: a function of released and public values.
    pub fn transpose(self) -> Result<Released<T>, E> {
        self.0.map(Released)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct Numbers(Vec<f64>);

    impl UnitTable for Numbers {
        type Unit<'a> = f64;

        fn len(&self) -> usize {
            self.0.len()
        }

        fn unit(&self, position: usize) -> f64 {
            self.0[position]
        }
    }

    /// What a function over records writes into its argument is not there for a function of released values.
    #[test]
    fn finding_privacy_gate_an_argument_carries_nothing_out() {
        let argument = Argument::copy_of(&RefCell::new(vec![1.0])).unwrap();
        let units = Units::new(Numbers(vec![70.01]));
        let write = |cell: &RefCell<Vec<f64>>, values: &[f64]| cell.borrow_mut().extend(values);
        let written = units.map(&argument, |cell, table| {
            cell.borrow_mut().extend(&table.0);
            cell.borrow().clone()
        });
        // The premise: it did write.
        assert_eq!(*written.0, [1.0, 70.01]);
        let look = |argument: &Argument<_>| Released(()).map(argument, |cell: &RefCell<Vec<f64>>, ()| cell.borrow().clone()).into_inner();
        assert_eq!(look(&argument), [1.0]);
        assert_eq!(look(&argument.clone()), [1.0]);
        let two = Released(()).map_with(Released(()), &argument, |cell, (), ()| cell.borrow().clone());
        assert_eq!(two.into_inner(), [1.0]);
        // Nor does a function of released values leave anything there.
        write(&argument.fresh(), &[2.0]);
        assert_eq!(look(&argument), [1.0]);
    }

    #[test]
    fn two_arguments_are_written_one_after_the_other() {
        let both = Argument::copy_of(&(3u32, "three".to_owned())).unwrap().and(&Argument::copy_of(&vec![1.5]).unwrap());
        assert_eq!(read::<((u32, String), Vec<f64>)>(&both.bytes), Ok(((3, "three".into()), vec![1.5])));
    }
}
