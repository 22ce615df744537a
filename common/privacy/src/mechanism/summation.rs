//! What a function over records gets from a sum: the units, and the one thing that may be done with them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::inside::withheld;
use crate::mechanism::block::{self, Block, Clipping};
use crate::mechanism::clean::CleanTerms;
use crate::mechanism::lattice::Lattice;
use crate::mechanism::term::Term;
use crate::records::UnitTable;
use crate::stored::{Source, Unread};
use dp_pvi_accounting::unit::ClipNorm;

/// Units whose clipped terms are summed: handed by a mechanism to the function that knows the terms.
///
/// That function is a `fn` with an [`Argument`](crate::records::Argument), so whatever the closure given to [`Summation::each`] captures was
/// made inside and ends there. A sum that is split over threads calls the function once on each of them, with an argument of its own: nothing that one call
/// makes is seen by another one.
pub struct Summation<'g, T: UnitTable, S = ()> {
    pub(super) source: Source<'g, T>,
    /// `None` where the function that should have made it panicked: then every term is zero.
    pub(super) state: Option<&'g S>,
    /// Positions of the sample, ascending; everybody where there is none.
    pub(super) sample: Option<&'g [usize]>,
    pub(super) pass: &'g Pass,
    pub(super) totals: &'g mut Totals,
}

/// The visits of a sum, of which whoever is free takes the next ones.
pub(super) struct Pass {
    visits: usize,
    /// Most visits that are taken at once.
    step: usize,
    next: AtomicUsize,
    /// Units that are not in memory and could not be read.
    unread: Mutex<Option<Unread>>,
}

/// Parts of a pass for each thread: so many that a thread which the machine holds up leaves its share to the others.
const PARTS: usize = 16;

impl Pass {
    /// No part is larger than a window of the units.
    pub(super) fn over(visits: usize, threads: usize, window: usize) -> Self {
        let step = if threads > 1 { visits.div_ceil(threads * PARTS) } else { visits };
        Self { visits, step: step.clamp(1, window), next: AtomicUsize::new(0), unread: Mutex::new(None) }
    }

    /// The next visits; none where all were taken.
    fn take(&self) -> Option<Range<usize>> {
        // Only the numbers themselves are shared: what was summed is handed over where threads end.
        let start = self.next.fetch_add(self.step, Ordering::Relaxed);
        (start < self.visits).then(|| start..(start + self.step).min(self.visits))
    }

    /// Nobody takes any more visits: units could not be read.
    fn give_up(&self, unread: Unread) {
        self.next.store(self.visits, Ordering::Relaxed);
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(unread);
    }

    /// Whether all visits were made.
    pub(super) fn end(self) -> Result<(), Unread> {
        self.unread.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// One thread's part of the sum in the making.
pub(super) struct Totals {
    pub(super) clip: ClipNorm,
    pub(super) lattice: Lattice,
    pub(super) sums: Vec<i64>,
    /// The terms of every part of the pass that was taken, where they are kept.
    pub(super) kept: Option<Vec<CleanTerms>>,
    /// Whether a record was looked at: from then on nothing but the sum comes out.
    pub(super) touched: bool,
}

impl Totals {
    pub(super) fn new(clip: ClipNorm, lattice: Lattice, dimension: u32, keeping: bool) -> Self {
        Self { clip, lattice, sums: vec![0; dimension as usize], kept: keeping.then(Vec::new), touched: false }
    }

    /// Adds another thread's part. Integers: the order of parts makes no difference.
    pub(super) fn add(&mut self, other: Self) {
        // Below 2⁶³ for all units together, see `LatticeSum::new`.
        self.sums.iter_mut().zip(other.sums).for_each(|(sum, part)| *sum = sum.wrapping_add(part));
        if let (Some(kept), Some(parts)) = (&mut self.kept, other.kept) {
            kept.extend(parts);
        }
        self.touched |= other.touched;
    }
}

/// The sum was made. Only [`Summation::each`] says so.
#[derive(Debug)]
pub struct Summed(pub(super) ());

impl<T: UnitTable, S> Summation<'_, T, S> {
    /// Adds the clipped terms `f(unit, position, state, term)` of all units of the sample.
    ///
    /// # Privacy
    /// The term of a unit has to be a function of that unit, of its own part of the state, and of public values. `position` is there to find
    /// that part, and for nothing else: under add-remove the position itself depends on other units. A unit whose function panics
    /// contributes 0, and nobody learns of it.
    pub fn each(self, f: impl Fn(T::Unit<'_>, usize, &S, &mut Term)) -> Summed {
        let Self { source, state, sample, pass, totals } = self;
        totals.touched = true;
        let clip = totals.clip.get();
        let Totals { lattice, sums, kept: parts, .. } = totals;
        // Without a state every term is zero.
        let Some(state) = state else { return Summed(()) };
        let mut block = Block::default();
        #[cfg(feature = "planted-bugs")]
        let clip = crate::planted::clip(clip, || {
            let Source::Memory(table) = source else { return Vec::new() };
            let mut term = Term::default();
            let mut norm = |position| {
                term.clear();
                f(table.unit(position), position, state, &mut term);
                term.norm()
            };
            (0..table.len()).map(&mut norm).collect()
        });
        let clipping = Clipping::new(clip, lattice);
        let exponent = lattice.exponent;
        let at = |visit: usize| sample.map_or(visit, |sample| sample[visit]);
        let mut lender = source.lender();
        while let Some(visits) = pass.take() {
            let units = match lender.lend(visits.clone(), sample) {
                Ok(units) => units,
                Err(unread) => {
                    pass.give_up(unread);
                    break;
                }
            };
            // A sum has at most 2³² − 1 coordinates: its dimension is a `u32`.
            #[allow(clippy::cast_possible_truncation, reason = "made of a u32")]
            let mut kept = parts.as_ref().map(|_| CleanTerms::new(sums.len() as u32, exponent).from(at(visits.start)));
            let (mut next, mut near) = (visits.start, visits.start);
            while next < visits.end {
                // One frame for all units: it is left only by a panic, and entered again behind the unit that panicked.
                let _ = withheld(|| {
                    while next < visits.end {
                        // Units of a sample lie far from each other: their memory is asked for some at a time, and not one after the other.
                        if let Some(sample) = sample
                            && near == next
                        {
                            let soon = near..visits.end.min(near + block::UNITS);
                            near = soon.end;
                            soon.for_each(|visit| units.approach(visit, sample[visit]));
                        }
                        let (visit, position) = (next, at(next));
                        next += 1;
                        f(units.unit(visit, position), position, state, block.term());
                        block.push(position, sums, &clipping, kept.as_mut());
                    }
                });
            }
            // The terms of a part are kept in that part: none waits for the next one.
            let _ = withheld(|| block.add(sums, &clipping, kept.as_mut()));
            if let (Some(parts), Some(kept)) = (&mut *parts, kept) {
                parts.push(kept);
            }
        }
        Summed(())
    }
}
