//! Private units and values. What is in here can be transformed and released, never looked at.

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

/// Private units. Neither their number nor their content can be read outside this crate's mechanisms.
pub struct Units<T>(pub(crate) T);

impl<T: UnitTable> Units<T> {
    /// Puts a table behind the gate.
    #[must_use]
    pub fn new(table: T) -> Self {
        Self(table)
    }

    /// Computes on the whole table; the result stays private.
    #[must_use]
    pub fn map<R>(&self, f: impl Fn(&T) -> R) -> Sensitive<R> {
        Sensitive(f(&self.0))
    }

    /// Computes on the whole table and a private value; the result stays private.
    #[must_use]
    pub fn map_with<S, R>(&self, other: &Sensitive<S>, f: impl Fn(&T, &S) -> R) -> Sensitive<R> {
        Sensitive(f(&self.0, &other.0))
    }
}

/// A private value: no `Debug`, `Clone`, `Deref` or serialisation. It leaves only through a mechanism.
///
/// `map` takes `Fn`, and lints bar I/O, locks, cells and atomics from the crates that call it: this stops mistakes, not a
/// malicious author.
pub struct Sensitive<T>(pub(crate) T);

impl<T> Sensitive<T> {
    /// Treats a public value as a private one. There is no way back.
    #[must_use]
    pub fn constant(value: T) -> Self {
        Self(value)
    }

    /// Computes on two private values; the result stays private.
    #[must_use]
    pub fn map_with<S, R>(&self, other: &Sensitive<S>, f: impl Fn(&T, &S) -> R) -> Sensitive<R> {
        Sensitive(f(&self.0, &other.0))
    }

    /// Computes on the value; the result stays private.
    #[must_use]
    pub fn map<R>(&self, f: impl Fn(&T) -> R) -> Sensitive<R> {
        Sensitive(f(&self.0))
    }
}

/// A value that went through a mechanism (or was computed from such values only). Only mechanisms build it.
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

    /// Post-processing: free, as long as `f` sees released values only.
    #[must_use]
    pub fn map<R>(self, f: impl FnOnce(T) -> R) -> Released<R> {
        Released(f(self.0))
    }
}
