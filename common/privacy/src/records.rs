//! Private units and values. What is in here can be transformed and released, never looked at.
//!
//! # What a function over private values can reach
//!
//! A closure carries what it captures, and a captured cell, lock or channel would carry a record out. So nothing here takes a
//! closure. Functions over private values are `fn` pointers: a function that captures nothing. What they need to know beside the
//! private value comes as an [`Argument`], which is a copy made from bytes: it shares no memory with anything outside, so that
//! nothing that is written into it can be read there.
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

use crate::inside::or_panic;
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
/// There is no way to look into it from outside, so that a cell in it could tell nobody what a function wrote there.
pub struct Argument<A>(Arc<A>);

impl Argument<()> {
    /// No argument.
    #[must_use]
    pub fn nothing() -> Self {
        Self(Arc::new(()))
    }
}

impl<A: Serialize + DeserializeOwned> Argument<A> {
    /// Copies a public value.
    ///
    /// # Errors
    /// The value's own form cannot be written, or not be read again: a bug of its type.
    pub fn copy_of(value: &A) -> Result<Self, NotCopied> {
        copy(value).map(|copy| Self(Arc::new(copy)))
    }
}

impl<A> Argument<A> {
    /// Both, without copying again.
    #[must_use]
    pub fn and<B>(&self, other: &Argument<B>) -> Argument<(Arc<A>, Arc<B>)> {
        Argument(Arc::new((Arc::clone(&self.0), Arc::clone(&other.0))))
    }

    pub(crate) fn get(&self) -> &A {
        &self.0
    }
}

/// Another handle to the same copy.
impl<A> Clone for Argument<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A public value that could not be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a public value cannot be written and read again: report this as a bug")]
pub struct NotCopied;

fn copy<A: Serialize + DeserializeOwned>(value: &A) -> Result<A, NotCopied> {
    let bytes = postcard::to_stdvec(value).map_err(|_| NotCopied)?;
    postcard::from_bytes(&bytes).map_err(|_| NotCopied)
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
        Sensitive(or_panic(|| f(argument.get(), &self.table)))
    }

    /// Computes on the whole table and a private value; the result stays private.
    ///
    /// # Panics
    /// As [`Units::map`].
    #[must_use]
    pub fn map_with<S, A, R>(&self, other: &Sensitive<S>, argument: &Argument<A>, f: fn(&A, &T, &S) -> R) -> Sensitive<R> {
        Sensitive(or_panic(|| f(argument.get(), &self.table, &other.0)))
    }
}

/// A private value: no `Debug`, `Clone`, `Deref` or serialisation. It leaves only through a mechanism. What may look at it is said in the
/// [module](self).
pub struct Sensitive<T>(pub(crate) T);

impl<T: Serialize + DeserializeOwned> Sensitive<T> {
    /// Treats a copy of a public value as a private one. There is no way back.
    ///
    /// # Errors
    /// As [`Argument::copy_of`].
    pub fn constant(value: &T) -> Result<Self, NotCopied> {
        copy(value).map(Self)
    }
}

impl Sensitive<()> {
    /// No private value.
    pub const NOTHING: Self = Self(());
}

impl<T> Sensitive<T> {
    /// Computes on two private values; the result stays private.
    ///
    /// # Panics
    /// As [`Units::map`].
    #[must_use]
    pub fn map_with<S, A, R>(&self, other: &Sensitive<S>, argument: &Argument<A>, f: fn(&A, &T, &S) -> R) -> Sensitive<R> {
        Sensitive(or_panic(|| f(argument.get(), &self.0, &other.0)))
    }

    /// Computes on the value; the result stays private.
    ///
    /// # Panics
    /// As [`Units::map`].
    #[must_use]
    pub fn map<A, R>(&self, argument: &Argument<A>, f: fn(&A, &T) -> R) -> Sensitive<R> {
        Sensitive(or_panic(|| f(argument.get(), &self.0)))
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
    pub fn map<A, R>(self, argument: &Argument<A>, f: fn(&A, T) -> R) -> Released<R> {
        Released(f(argument.get(), self.0))
    }

    /// Post-processing of two released values: free.
    #[must_use]
    pub fn map_with<S, A, R>(self, other: Released<S>, argument: &Argument<A>, f: fn(&A, T, S) -> R) -> Released<R> {
        Released(f(argument.get(), self.0, other.0))
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
