//! What a function over records gets from a sum: the units, and the one thing that may be done with them.

use crate::inside::withheld;
use crate::mechanism::clean::CleanTerms;
use crate::mechanism::lattice::Lattice;
use crate::mechanism::term::Term;
use crate::records::UnitTable;
use dp_pvi_accounting::unit::ClipNorm;

/// Units whose clipped terms are summed: handed by a mechanism to the function that knows the terms.
///
/// That function is a `fn` with an [`Argument`](crate::records::Argument), so whatever the closure given to [`Summation::each`] captures was
/// made inside and ends there.
pub struct Summation<'g, T: UnitTable, S = ()> {
    pub(super) table: &'g T,
    /// `None` where the function that should have made it panicked: then every term is zero.
    pub(super) state: Option<&'g S>,
    /// Positions of the sample, ascending; everybody where there is none.
    pub(super) sample: Option<&'g [usize]>,
    pub(super) totals: &'g mut Totals,
}

/// The sum in the making.
pub(super) struct Totals {
    pub(super) clip: ClipNorm,
    pub(super) lattice: Lattice,
    pub(super) sums: Vec<i64>,
    pub(super) kept: Option<CleanTerms>,
    /// Whether a record was looked at: from then on nothing but the sum comes out.
    pub(super) touched: bool,
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
        let Self { table, state, sample, totals } = self;
        totals.touched = true;
        let (clip, per_step, bound) = (totals.clip.get(), totals.lattice.per_step(), totals.lattice.bound_squared);
        let Totals { sums, kept, .. } = totals;
        let units = table.len();
        let visits = sample.map_or(units, <[usize]>::len);
        let mut term = Term::default();
        #[cfg(feature = "planted-bugs")]
        let clip = crate::planted::clip(clip, || {
            let mut norm = |position| {
                term.clear();
                state.map_or(0.0, |state| {
                    f(table.unit(position), position, state, &mut term);
                    term.norm()
                })
            };
            (0..units).map(&mut norm).collect()
        });
        let mut next = 0;
        while let Some(state) = state
            && next < visits
        {
            // One frame for all units: it is left only by a panic, and entered again behind the unit that panicked.
            let _ = withheld(|| {
                while next < visits {
                    let position = sample.map_or(next, |sample| sample[next]);
                    next += 1;
                    term.clear();
                    f(table.unit(position), position, state, &mut term);
                    let factor = term.add_to(sums, clip, per_step, bound);
                    if let Some(kept) = kept {
                        kept.keep(position, &term, factor);
                    }
                }
            });
        }
        if let Some(kept) = kept {
            kept.end(units);
        }
        Summed(())
    }
}
