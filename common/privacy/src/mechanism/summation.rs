//! What a function over records gets from a sum: the units, and the one thing that may be done with them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::mechanism::block::{self, Block, Clipping};
use crate::mechanism::clean::CleanTerms;
use crate::mechanism::lattice::Lattice;
use crate::mechanism::term::Term;
use crate::panic_redaction::redact_panics;
use crate::records::UnitTable;
use crate::stored::{Source, Unread};
use dp_pvi_accounting::adjacency::Terms;
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
    /// Positions of the sample, ascending; everyone where there is none.
    pub(super) sample: Option<&'g [usize]>,
    pub(super) pass: &'g Pass,
    pub(super) totals: &'g mut Totals,
}

/// The work items of a sum; a free thread takes the next ones.
pub(super) struct Pass {
    items: usize,
    /// Most items that are taken at once.
    step: usize,
    next: AtomicUsize,
    /// Units that are not in memory and could not be read.
    unread: Mutex<Option<Unread>>,
}

/// Parts of a pass for each thread: so many that a thread which the machine holds up leaves its share to the others.
const PARTS: usize = 16;

impl Pass {
    /// No part is larger than a window of the units.
    pub(super) fn over(items: usize, threads: usize, window: usize) -> Self {
        let step = if threads > 1 { items.div_ceil(threads * PARTS) } else { items };
        Self { items, step: step.clamp(1, window), next: AtomicUsize::new(0), unread: Mutex::new(None) }
    }

    /// The next items; none where all were taken.
    fn take(&self) -> Option<Range<usize>> {
        // Only the numbers themselves are shared: what was summed is handed over where threads end.
        let start = self.next.fetch_add(self.step, Ordering::Relaxed);
        (start < self.items).then(|| start..(start + self.step).min(self.items))
    }

    /// Stops the pass: units could not be read.
    fn give_up(&self, unread: Unread) {
        self.next.store(self.items, Ordering::Relaxed);
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(unread);
    }

    /// Whether all items were made.
    pub(super) fn end(self) -> Result<(), Unread> {
        self.unread.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// One thread's part of the sum in the making.
pub(super) struct Totals {
    pub(super) clip: ClipNorm,
    pub(super) terms: Terms,
    pub(super) lattice: Lattice,
    pub(super) sums: Vec<i64>,
    /// The terms of every part of the pass that was taken, where they are kept.
    pub(super) kept: Option<Vec<CleanTerms>>,
    /// Whether a record was looked at: from then on nothing but the sum comes out.
    pub(super) touched: bool,
}

impl Totals {
    pub(super) fn new((clip, terms): (ClipNorm, Terms), lattice: Lattice, dimension: u32, keeping: bool) -> Self {
        Self { clip, terms, lattice, sums: vec![0; dimension as usize], kept: keeping.then(Vec::new), touched: false }
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
    /// contributes 0, and no one learns of it.
    pub fn each(self, f: impl Fn(T::Unit<'_>, usize, &S, &mut Term)) -> Summed {
        self.each_in_lanes(|_, _, _, _: &mut Notes<'_, ()>| {}, |_| {}, |unit, position, state, _, term| f(unit, position, state, term))
    }

    /// The same for terms with a number in them that is made for many units at once: `note` notes what it depends on, `complete` completes the notes of some units, which lie
    /// side by side, and `f` fills a unit's term with that unit's notes at hand.
    ///
    /// # Privacy
    /// As [`Summation::each`]; and `complete` must make each note a function of that note alone and of public values, to the last bit: of no other note, not of how many there are, and
    /// not of its place among them ([`crate::proofs::layouts`]). Nothing here can check it, whoever writes `complete` has a test of it. Where `complete` panics, it gets every note by itself,
    /// and a unit with a note over which it panics then contributes 0.
    pub fn each_in_lanes<P: Copy>(
        self,
        note: impl Fn(T::Unit<'_>, usize, &S, &mut Notes<'_, P>),
        complete: impl Fn(&mut [P]),
        f: impl Fn(T::Unit<'_>, usize, &S, &[P], &mut Term),
    ) -> Summed {
        let Self { source, state, sample, pass, totals } = self;
        totals.touched = true;
        let (clip, terms) = (totals.clip.get(), totals.terms);
        let Totals { lattice, sums, kept: parts, .. } = totals;
        // Without a state every term is zero.
        let Some(state) = state else { return Summed(()) };
        let mut block = Block::default();
        let mut noted = Noted::default();
        #[cfg(feature = "fault-injection")]
        let clip = crate::injected::clip(clip, || {
            let Source::Memory(table) = source else { return Vec::new() };
            let mut term = Term::default();
            let mut norm = |position| {
                term.clear();
                let mut notes = Vec::new();
                note(table.unit(position), position, state, &mut Notes(&mut notes));
                complete(&mut notes);
                f(table.unit(position), position, state, &notes, &mut term);
                term.norm()
            };
            (0..table.len()).map(&mut norm).collect()
        });
        let clipping = Clipping::new(clip, lattice, terms);
        let exponent = lattice.exponent;
        let at = |item: usize| sample.map_or(item, |sample| sample[item]);
        let mut lender = source.lender();
        while let Some(items) = pass.take() {
            let units = match lender.lend(items.clone(), sample) {
                Ok(units) => units,
                Err(unread) => {
                    pass.give_up(unread);
                    break;
                }
            };
            // A sum has at most 2³² − 1 coordinates: its dimension is a `u32`.
            #[allow(clippy::cast_possible_truncation, reason = "made of a u32")]
            let mut kept = parts.as_ref().map(|_| CleanTerms::new(sums.len() as u32, exponent).from(at(items.start)));
            let mut group = items.start..items.start;
            while group.end < items.end {
                group = group.end..items.end.min(group.end + GROUP);
                let made = noted.make(
                    group.clone(),
                    |item, notes| {
                        // Units of a sample lie far from each other: their memory is asked for some at a time, and not one after the other.
                        if let Some(sample) = sample
                            && (item - group.start).is_multiple_of(block::UNITS)
                        {
                            // A unit whose function panics here is met again where it is read, and contributes 0 then.
                            let _ = redact_panics(|| {
                                (item..group.end.min(item + block::UNITS)).for_each(|soon| units.approach(soon, sample[soon]))
                            });
                        }
                        note(units.unit(item, at(item)), at(item), state, notes);
                    },
                    &complete,
                );
                group.end = group.start + made;
                let mut next = group.start;
                while next < group.end {
                    // One frame for all units: it is left only by a panic, and entered again behind the unit that panicked.
                    let _ = redact_panics(|| {
                        while next < group.end {
                            let (item, position) = (next, at(next));
                            next += 1;
                            let Some(notes) = noted.of(item - group.start) else { continue };
                            f(units.unit(item, position), position, state, notes, block.term());
                            block.push(position, sums, &clipping, kept.as_mut());
                        }
                    });
                }
            }
            // The terms of a part are kept in that part: none waits for the next one.
            let _ = redact_panics(|| block.add(sums, &clipping, kept.as_mut()));
            if let (Some(parts), Some(kept)) = (&mut *parts, kept) {
                parts.push(kept);
            }
        }
        Summed(())
    }
}

/// Units whose notes are completed together.
const GROUP: usize = 64;
/// Notes after which a group ends, so that units of many records do not add up in memory; one unit's notes are always together.
const MANY_NOTES: usize = 4096;

/// A unit's notes in the making: those of other units cannot be seen.
pub struct Notes<'n, P>(&'n mut Vec<P>);

impl<P: Copy> Notes<'_, P> {
    /// Notes one thing more.
    #[inline]
    pub fn push(&mut self, note: P) {
        self.0.push(note);
    }
}

/// The notes of a group of units.
struct Noted<P> {
    notes: Vec<P>,
    /// The same before they were completed.
    before: Vec<P>,
    /// Where every unit's notes end; the next one's begin there.
    ends: Vec<usize>,
    /// Units of the group that contribute 0.
    lost: Vec<usize>,
}

impl<P> Default for Noted<P> {
    fn default() -> Self {
        Self { notes: Vec::new(), before: Vec::new(), ends: Vec::new(), lost: Vec::new() }
    }
}

impl<P: Copy> Noted<P> {
    /// Those of the first of these items, in place of all others; says of how many.
    #[inline]
    fn make(&mut self, items: Range<usize>, note: impl Fn(usize, &mut Notes<'_, P>), complete: impl Fn(&mut [P])) -> usize {
        let Self { notes, before, ends, lost } = self;
        notes.clear();
        ends.clear();
        lost.clear();
        let more = |ends: &[usize]| ends.len() < items.len() && ends.last().is_none_or(|end| *end < MANY_NOTES);
        while more(ends) {
            let panicked = redact_panics(|| {
                while more(ends) {
                    note(items.start + ends.len(), &mut Notes(notes));
                    ends.push(notes.len());
                }
            });
            if panicked.is_err() {
                notes.truncate(ends.last().copied().unwrap_or(0));
                lost.push(ends.len());
                ends.push(notes.len());
            }
        }
        before.clone_from(notes);
        if redact_panics(|| complete(notes)).is_err() {
            self.complete_one_by_one(complete);
        }
        self.ends.len()
    }

    #[cold]
    fn complete_one_by_one(&mut self, complete: impl Fn(&mut [P])) {
        // What was completed before the panic is made anew.
        self.notes.clone_from(&self.before);
        for unit in 0..self.ends.len() {
            let notes = self.place(unit);
            if self.notes[notes].iter_mut().any(|note| redact_panics(|| complete(std::slice::from_mut(note))).is_err()) {
                self.lost.push(unit);
            }
        }
    }

    #[inline]
    fn place(&self, unit: usize) -> Range<usize> {
        unit.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[unit]
    }

    /// Of a unit that contributes 0 there are none.
    #[inline]
    fn of(&self, unit: usize) -> Option<&[P]> {
        if !self.lost.is_empty() && self.lost.contains(&unit) { None } else { Some(&self.notes[self.place(unit)]) }
    }
}
