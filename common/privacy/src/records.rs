//! Private units and values. What is in here can be transformed and released, never looked at.
//!
//! # What a function over private values can reach
//!
//! A closure carries what it captures, and a captured cell, lock or channel would carry a record out. So nothing here takes a
//! closure. Functions over private values are `fn` pointers: a function that captures nothing. What they need to know beside the
//! private value comes as an [`Argument`]: every call gets a copy of its own, made from bytes, so that nothing that one call writes into it
//! can be read by another one, nor outside.
//!
//! Inside, a function may do what it likes with what it made itself, closures included ([`crate::mechanism::Summation::each`]): all of it
//! is dropped when the function returns, but for its result, which is private again.
//!
//! Two ways remain that no type can bar in safe Rust: a `static` (with a lock, an atomic or a thread's own cell in it, or memory that was
//! leaked on purpose into one), and what the operating system offers to everyone (files, sockets, output). Lints and tests over the
//! sources bar both from the crates that see records. They stop mistakes; an author who wants to cheat and owns `inference` can.
//!
//! A panic would be a way out, too: a function that panics makes a [`Sensitive`] without a value, and no error ([`crate::panic_redaction`] says what remains).

use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::mechanism::{MAX_UNITS, SumBound};
use crate::panic_redaction::{Kept, redact_panics};
use crate::partial_sums::Elsewhere;
use crate::shards::Grouping;
use crate::stored::{Held, Stored, UnitStore};
pub use crate::table::UnitTable;
use dp_pvi_accounting::event::DpEvent;
use dp_pvi_names::LatticeVector;

/// A public value for functions over private ones, as bytes (postcard). Every call of a function gets a copy of its own, made from the bytes.
///
/// So a cell in it carries nothing from one call to another. What a function says before it looks at a record (an error of the function that a
/// mechanism calls) can depend on these bytes only.
pub struct Argument<A> {
    bytes: Arc<[u8]>,
    value: PhantomData<fn() -> A>,
}

impl Argument<()> {
    /// No argument.
    #[must_use]
    pub fn nothing() -> Self {
        Self { bytes: Arc::default(), value: PhantomData }
    }
}

impl<A: Serialize + DeserializeOwned> Argument<A> {
    /// Copies a public value.
    ///
    /// # Errors
    /// The value's own form cannot be written, or not be read again: a bug of its type.
    pub fn copy_of(value: &A) -> Result<Self, NotCopied> {
        let bytes = written(value)?;
        read::<A>(&bytes)?;
        Ok(Self { bytes: bytes.into(), value: PhantomData })
    }
}

impl<A: DeserializeOwned> Argument<A> {
    /// The argument that another process of the site was given.
    pub(crate) fn received(bytes: &[u8]) -> Result<Self, NotCopied> {
        read::<A>(bytes)?;
        Ok(Self { bytes: bytes.into(), value: PhantomData })
    }

    /// The value as it was copied: nothing that any function wrote is in it.
    pub(crate) fn fresh(&self) -> A {
        match read(&self.bytes) {
            Ok(value) => value,
            Err(NotCopied) => unreachable!("the same bytes were read when the copy was made"),
        }
    }
}

impl<A> Argument<A> {
    /// The public value as it is sent to another process of the site.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Both.
    #[must_use]
    pub fn and<B>(&self, other: &Argument<B>) -> Argument<(A, B)> {
        // A pair is written as one part after the other.
        Argument { bytes: [&*self.bytes, &*other.bytes].concat().into(), value: PhantomData }
    }
}

/// Another handle to the same bytes.
impl<A> Clone for Argument<A> {
    fn clone(&self) -> Self {
        Self { bytes: Arc::clone(&self.bytes), value: PhantomData }
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
    pub(crate) table: Held<T>,
    /// Declared number of units, where layouts are over that many.
    pub(crate) slots: Option<u64>,
    /// What the units are to an accountant. Tables that loaders build hold privacy units; [`crate::shards`] makes the others.
    pub(crate) grouping: Grouping,
    /// Threads over which sums are split.
    pub(crate) threads: NonZeroUsize,
}

impl<T: UnitTable> Units<T> {
    /// Puts a table behind the gate. Only loaders call this, because building a table means seeing the records.
    ///
    /// # Panics
    /// More than [`MAX_UNITS`] units, which no loader of this workspace can build: their tables number entries with 32 bits.
    #[must_use]
    pub fn new(table: T) -> Self {
        assert!(table.len() as u64 <= MAX_UNITS, "a table holds at most 2^32 units");
        Self::held(Held::Memory(Kept::new(table)))
    }

    /// Puts a table that is not in memory behind the gate ([`crate::stored`]): sums read it window by window.
    ///
    /// # Panics
    /// As [`Units::new`].
    #[must_use]
    pub fn stored(store: Box<dyn UnitStore<T>>) -> Self {
        assert!(store.len() as u64 <= MAX_UNITS, "a table holds at most 2^32 units");
        Self::held(Held::Stored(Stored::new(store)))
    }

    /// Units whose sums other processes of the site make ([`crate::partial_sums`]). Only sums over all of them can be released.
    #[must_use]
    pub fn elsewhere(elsewhere: Elsewhere) -> Self {
        Self::held(Held::Elsewhere(elsewhere))
    }

    fn held(held: Held<T>) -> Self {
        Self { table: held, slots: None, grouping: Grouping::Units, threads: NonZeroUsize::MIN }
    }

    /// Whether all units are in memory: so it is where they are, and does not depend on what they hold.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.table.is_in_memory()
    }

    /// The same units, laid out over the declared number of units, which is public: where units are put together by position
    /// ([`Units::shards`]), the borders depend on this number and not on how many units there are. Missing units contribute 0;
    /// units beyond the declared number are ignored. A noised sum over all units is clamped to the public bound for the declared number ([`SumBound`]),
    /// which changes nothing if there are no more units than declared.
    #[must_use]
    pub fn over_slots(self, declared: u64) -> Self {
        Self { slots: Some(declared), ..self }
    }

    /// The same units, whose sums term by term are split over up to so many threads; one unless it is said. What is released has the same bits for any number. Shards
    /// made of these units are summed on as many.
    #[must_use]
    pub fn on_threads(self, threads: NonZeroUsize) -> Self {
        Self { threads, ..self }
    }

    /// Brings a noised sum of these units into the bound of the declared number of them.
    pub(crate) fn bring_into_bound(&self, event: &DpEvent, noised: &mut LatticeVector) {
        if let Some(bound) = self.slots.and_then(|declared| SumBound::of_event(event, declared)) {
            bound.bring_in(&mut noised.values);
        }
    }

    /// Number of units, behind the gate: a table that cannot say it has none.
    pub(crate) fn count(&self) -> usize {
        self.table.source().count()
    }

    /// Reads units that are not in memory yet; for a function of the whole table, before it is called.
    ///
    /// # Errors
    /// The disk does not give what was written.
    #[cfg(test)]
    pub(crate) fn bring_into_memory(&self) -> Result<(), crate::stored::Unread> {
        self.table.whole().map(|_| ())
    }

    /// The whole table.
    ///
    /// # Panics
    /// It is not in memory, and cannot be read. It is about the disk and not about records.
    pub(crate) fn whole(&self) -> &T {
        self.table.whole().unwrap_or_else(|unread| panic!("{unread}"))
    }

    /// Computes on the whole table; the result stays private. If `f` panics, there is none, and no error.
    #[must_use]
    pub fn map<A: DeserializeOwned, R>(&self, argument: &Argument<A>, f: fn(&A, &T) -> R) -> Sensitive<R> {
        let table = self.whole();
        made(|| f(&Kept::new(argument.fresh()), table))
    }

    /// Computes on the whole table and a private value; the result stays private. As [`Units::map`]; `f` is not called where the private
    /// value is none.
    #[must_use]
    pub fn map_with<S, A: DeserializeOwned, R>(
        &self,
        other: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, &T, &S) -> R,
    ) -> Sensitive<R> {
        let table = self.whole();
        other.value().map_or(Sensitive(None), |other| made(|| f(&Kept::new(argument.fresh()), table, other)))
    }
}

/// A private value: no `Debug`, `Clone`, `Deref` or serialisation. It leaves only through a mechanism. What may look at it is said in the
/// [module](self).
///
/// Where the function that should have made it panicked, it holds none. No error tells of it: functions of it make further ones without a
/// value, a sum that depends on it is zero before noise, and a site's state that it should change stays as it is.
pub struct Sensitive<T>(pub(crate) Option<Kept<T>>);

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
        Self(Some(Kept::new(value)))
    }

    /// The value, if there is one.
    pub(crate) fn value(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// The value, if there is one.
    pub(crate) fn into_value(self) -> Option<T> {
        self.0.map(Kept::into_inner)
    }

    /// Computes on two private values; the result stays private. As [`Units::map_with`].
    #[must_use]
    pub fn map_with<S, A: DeserializeOwned, R>(
        &self,
        other: &Sensitive<S>,
        argument: &Argument<A>,
        f: fn(&A, &T, &S) -> R,
    ) -> Sensitive<R> {
        let both = self.value().zip(other.value());
        both.map_or(Sensitive(None), |(value, other)| made(|| f(&Kept::new(argument.fresh()), value, other)))
    }

    /// Computes on the value; the result stays private. As [`Units::map_with`].
    #[must_use]
    pub fn map<A: DeserializeOwned, R>(&self, argument: &Argument<A>, f: fn(&A, &T) -> R) -> Sensitive<R> {
        self.value().map_or(Sensitive(None), |value| made(|| f(&Kept::new(argument.fresh()), value)))
    }
}

/// What `f` makes, or no value if it panics.
fn made<T>(f: impl FnOnce() -> T) -> Sensitive<T> {
    Sensitive(redact_panics(f).ok().map(Kept::new))
}

/// A value that went through a mechanism, or was computed from such values and public ones. Only mechanisms build it.
///
/// Functions of it capture nothing: beside released values they see an [`Argument`], and anyone who makes an argument of a value has called that
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
    fn an_argument_carries_nothing_out() {
        let argument = Argument::copy_of(&RefCell::new(vec![1.0])).unwrap();
        let units = Units::new(Numbers(vec![70.01]));
        let write = |cell: &RefCell<Vec<f64>>, values: &[f64]| cell.borrow_mut().extend(values);
        let written = units.map(&argument, |cell, table| {
            cell.borrow_mut().extend(&table.0);
            cell.borrow().clone()
        });
        // The premise: it did write.
        assert_eq!(written.value(), Some(&vec![1.0, 70.01]));
        // The next function over records finds the argument as it was.
        let next = units.map(&argument, |cell, _| cell.borrow().clone());
        assert_eq!(next.value(), Some(&vec![1.0]));
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
