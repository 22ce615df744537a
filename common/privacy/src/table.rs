//! What a loader builds: a table of privacy units.

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

    /// The unit at this position is needed soon: reads something of it, so that its memory is near by then. Nothing else comes of it.
    #[inline]
    fn approach(&self, position: usize) {
        let _ = position;
    }
}
