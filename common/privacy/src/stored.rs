//! Units that lie on the site's disk and not in memory: sums read them window by window.
//!
//! A table of [`Units`](crate::Units) can be in memory, or in a [`UnitStore`]: a private file, say, that a loader wrote. A sum ([`crate::mechanism`]) reads so many units
//! at once as a thread takes, or only those of its sample, and forgets them; memory does not grow with the number of units. Terms are functions of units, so where the units come from changes no
//! bit. A function over a whole table needs all of it in memory: it is read once, at the first of them, and stays.
//!
//! # Privacy
//! A disk that fails ends the release with [`Unread`], and nothing is released. That is the one error of a release that may come after a record was looked at. It is no function of what
//! records hold: a store reads and checks the form of what it wrote itself, and says the same whatever the numbers are. The charge stands, as for a crash ([`crate::ledger::reserve`]).

use std::ops::Range;
use std::sync::OnceLock;

use crate::panic_redaction::{Kept, redact_panics};
use crate::partial_sums::Elsewhere;
use crate::table::UnitTable;

/// Units that are read in windows. `T` is the table that holds a window, or all of them.
pub trait UnitStore<T>: Send + Sync {
    /// Number of units.
    fn len(&self) -> usize;

    /// Whether there is no unit.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All units, in memory.
    ///
    /// # Errors
    /// The disk does not give what was written.
    fn whole(&self) -> Result<T, Unread>;

    /// A reader for one thread, with its buffers.
    fn reader(&self) -> Box<dyn UnitReader<T> + '_>;
}

/// Reads windows of a [`UnitStore`].
pub trait UnitReader<T> {
    /// A table of exactly the units at these positions, in their order: unit i of it is the one at the i-th position.
    ///
    /// # Errors
    /// The disk does not give what was written.
    fn read(&mut self, positions: Positions<'_>) -> Result<&T, Unread>;
}

/// Which units a window holds.
#[derive(Debug, Clone)]
pub enum Positions<'p> {
    /// All of a range.
    Run(Range<usize>),
    /// Some, ascending.
    Some(&'p [usize]),
}

/// A store could not be read. It says why in words that no record is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the site's cache of its records cannot be read ({0}); nothing was released. Check the disk, and start the program again: it reads the data files anew"
)]
pub struct Unread(pub Unreadable);

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The disk says so.
    #[error("the disk says: {0}")]
    Disk(std::io::ErrorKind),
    /// It is not what was written: cut off, written over, or another file.
    #[error("it does not hold what was written")]
    Damaged,
    /// A window of it does not fit into memory.
    #[error("a window of it does not fit into memory")]
    TooLarge,
    /// The units are with other processes, which give their sum and nothing else.
    #[error("the site's engine holds the records, and this update needs them here")]
    Elsewhere,
}

/// Most units of a window.
pub(crate) const WINDOW: usize = 1 << 12;

/// Where a table is.
pub(crate) enum Held<T> {
    Memory(Kept<T>),
    Stored(Stored<T>),
    /// With other processes of the site.
    Elsewhere(Elsewhere),
}

/// A table in a store, and in memory once someone needed all of it.
pub(crate) struct Stored<T> {
    store: Box<dyn UnitStore<T>>,
    whole: OnceLock<Kept<T>>,
}

impl<T> Stored<T> {
    pub(crate) fn new(store: Box<dyn UnitStore<T>>) -> Self {
        Self { store, whole: OnceLock::new() }
    }
}

impl<T: UnitTable> Held<T> {
    /// The table in memory, read if it is not there yet.
    pub(crate) fn whole(&self) -> Result<&T, Unread> {
        match self {
            Self::Memory(table) => Ok(table),
            Self::Elsewhere(_) => Err(Unread(Unreadable::Elsewhere)),
            Self::Stored(Stored { store, whole }) => {
                if let Some(table) = whole.get() {
                    return Ok(table);
                }
                let table = redact_panics(|| store.whole()).map_err(|_| damaged())??;
                Ok(whole.get_or_init(|| Kept::new(table)))
            }
        }
    }

    pub(crate) fn source(&self) -> Source<'_, T> {
        match self {
            Self::Memory(table) => Source::Memory(table),
            Self::Elsewhere(elsewhere) => Source::Elsewhere(elsewhere),
            Self::Stored(Stored { store, whole }) => whole.get().map_or(Source::Stored(&**store), |table| Source::Memory(table)),
        }
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.source(), Source::Memory(_))
    }
}

fn damaged() -> Unread {
    Unread(Unreadable::Damaged)
}

/// Where a sum takes its units.
pub(crate) enum Source<'g, T> {
    Memory(&'g T),
    Stored(&'g dyn UnitStore<T>),
    Elsewhere(&'g Elsewhere),
}

impl<T> Clone for Source<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Source<'_, T> {}

impl<'g, T: UnitTable> Source<'g, T> {
    /// Behind the gate: a table that cannot say how many units it has has none.
    pub(crate) fn count(self) -> usize {
        let len = match self {
            Self::Memory(table) => redact_panics(|| table.len()),
            Self::Stored(store) => redact_panics(|| store.len()),
            Self::Elsewhere(elsewhere) => Ok(elsewhere.count()),
        };
        len.unwrap_or(0)
    }

    /// Most visits that fit a window; any number where all units are in memory.
    pub(crate) fn window(self) -> usize {
        match self {
            Self::Memory(_) => usize::MAX,
            Self::Stored(_) | Self::Elsewhere(_) => WINDOW,
        }
    }

    /// For one thread.
    pub(crate) fn lender(self) -> Lender<'g, T> {
        match self {
            Self::Memory(table) => Lender::Memory(table),
            Self::Stored(store) => Lender::Stored(store.reader()),
            Self::Elsewhere(_) => Lender::Nothing,
        }
    }
}

/// Lends one thread the units of one window after the other.
pub(crate) enum Lender<'g, T> {
    Memory(&'g T),
    Stored(Box<dyn UnitReader<T> + 'g>),
    /// The units are not to be had here.
    Nothing,
}

impl<T: UnitTable> Lender<'_, T> {
    /// The units of these visits: the ones at these positions of `sample`, or of all units where there is none.
    pub(crate) fn lend(&mut self, visits: Range<usize>, sample: Option<&[usize]>) -> Result<Lent<'_, T>, Unread> {
        match self {
            Self::Memory(table) => Ok(Lent { table, first: None }),
            Self::Nothing => Err(Unread(Unreadable::Elsewhere)),
            Self::Stored(reader) => {
                let positions = sample.map_or(Positions::Run(visits.clone()), |sample| Positions::Some(&sample[visits.clone()]));
                // What a window holds is private: the reader's own words of a panic are not heard.
                let table = redact_panics(|| reader.read(positions)).map_err(|_| damaged())??;
                if redact_panics(|| table.len()) != Ok(visits.len()) {
                    return Err(damaged());
                }
                Ok(Lent { table, first: Some(visits.start) })
            }
        }
    }
}

/// The units of one window.
pub(crate) struct Lent<'w, T> {
    table: &'w T,
    /// The visit whose unit is the first of the table; none where units are at their positions.
    first: Option<usize>,
}

impl<'w, T: UnitTable> Lent<'w, T> {
    /// The unit of a visit, which is at a position of all units.
    #[inline]
    pub(crate) fn unit(&self, visit: usize, position: usize) -> T::Unit<'w> {
        self.table.unit(self.place(visit, position))
    }

    /// The same unit is needed soon.
    #[inline]
    pub(crate) fn approach(&self, visit: usize, position: usize) {
        self.table.approach(self.place(visit, position));
    }

    fn place(&self, visit: usize, position: usize) -> usize {
        self.first.map_or(position, |first| visit - first)
    }
}

#[cfg(test)]
pub(crate) mod tests;
