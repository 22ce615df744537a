//! Terms of several units on their way into a sum: clipped, brought onto the lattice, added.
//!
//! Norm, factor, integers and their check are a chain in which every number waits for the one before it. So the terms of some units are gathered, and each link
//! of the chain is made for all of them in turn; what is done entry by entry, processors do in lanes. None of it mixes units or depends on how many there are:
//! a term's integers are a function of its own entries and of public values, with the same operations in the same order on every machine, whatever the width of its lanes: no operation is fused
//! with another one.

use pulp::{Arch, Simd, WithSimd};

use crate::mechanism::clean::CleanTerms;
use crate::mechanism::lattice::Lattice;
use crate::mechanism::term::Term;
use dp_pvi_accounting::adjacency::Terms;

/// Units of a block, and entries after which it takes no other unit.
pub(super) const UNITS: usize = 16;
const ENTRIES: usize = 1024;

/// Relative shortening of clipped terms; far below one lattice step (C is at most 2³¹ steps).
const SHRINK: f64 = 1e-12;

/// C, the lattice, and the rule that a term keeps to.
pub(super) struct Clipping {
    clip: f64,
    per_step: f64,
    bound_squared: u128,
    /// Coordinates below this are cells; absent: the squared norm is what is bounded, and all signs are allowed.
    cells: Option<u32>,
}

impl Clipping {
    pub(super) fn new(clip: f64, lattice: &Lattice, terms: Terms) -> Self {
        let cells = if let Terms::Cells { cells } = terms { Some(cells) } else { None };
        Self { clip, per_step: lattice.per_step(), bound_squared: lattice.bound_squared, cells }
    }

    /// How many of a term's coordinates, which ascend, are cells; absent where there are none by the rule.
    #[inline]
    fn split(&self, indices: &[u32]) -> Option<usize> {
        self.cells.map(|cells| indices.partition_point(|index| *index < cells))
    }

    /// At which factor a term of this norm is truncated: at slightly less than C/norm, so that rounding does not push a clipped term over the integer bound.
    #[inline]
    fn factor(&self, norm: f64) -> f64 {
        let shortened = self.clip / norm * (1.0 - SHRINK);
        (if norm > self.clip { shortened } else { 1.0 }) * self.per_step
    }
}

/// Units whose terms wait to be added.
///
/// The function of a unit gets [`Block::term`], and can do with it what it likes: replace it, take it away. So a term that waits is not in there. It was copied,
/// and its place among the others is known here alone.
#[derive(Default)]
pub(super) struct Block {
    term: Term,
    /// Coordinates and values of the units that wait, one unit after the other.
    indices: Vec<u32>,
    values: Vec<f64>,
    units: Vec<Unit>,
    /// Lattice steps of all entries.
    steps: Vec<i64>,
}

struct Unit {
    position: usize,
    /// Where its entries end; the next unit's begin there.
    end: usize,
    norm: f64,
}

impl Block {
    /// An empty term, for the next unit. It counts when it is pushed.
    #[inline]
    pub(super) fn term(&mut self) -> &mut Term {
        self.term.clear();
        &mut self.term
    }

    /// The term is that of the unit at this position; positions ascend. Where the block is full, it is added.
    #[inline]
    pub(super) fn push(&mut self, position: usize, sums: &mut [i64], clipping: &Clipping, kept: Option<&mut CleanTerms>) {
        let (indices, values) = self.term.finish(sums.len());
        self.indices.extend_from_slice(indices);
        self.values.extend_from_slice(values);
        let end = self.indices.len();
        self.units.push(Unit { position, end, norm: 0.0 });
        if self.units.len() == UNITS || end >= ENTRIES {
            self.add(sums, clipping, kept);
        }
    }

    /// Clips every term to norm C, truncates it toward zero and adds it to `sums`. What is added of a unit has squared integer norm at
    /// most ⌊(C/γ)²⌋, whatever its entries are: the integers themselves are checked, not the rounding analysis. A term with a norm that is not finite counts as zero.
    ///
    /// Under [`Terms::Cells`] √Q is in place of the norm, and a term of which an integer in a cell is negative counts as zero.
    pub(super) fn add(&mut self, sums: &mut [i64], clipping: &Clipping, kept: Option<&mut CleanTerms>) {
        // In the widest lanes that the processor has.
        Arch::new().dispatch(Adding { block: self, sums, clipping, kept });
    }

    #[inline(always)]
    fn add_in_lanes(&mut self, sums: &mut [i64], clipping: &Clipping, mut kept: Option<&mut CleanTerms>) {
        // Whatever happens on the way, no unit is added twice.
        let mut units = std::mem::take(&mut self.units);
        let (indices, values) = (std::mem::take(&mut self.indices), std::mem::take(&mut self.values));
        let mut start = 0;
        for unit in &mut units {
            let place = start..unit.end;
            start = unit.end;
            let values = &values[place.clone()];
            unit.norm = match clipping.split(&indices[place]) {
                None => norm_squared(values),
                Some(split) => norm_squared(&values[..split]) + signed_weight() * norm_squared(&values[split..]),
            };
        }
        units.iter_mut().for_each(|unit| unit.norm = unit.norm.sqrt());
        self.steps.resize(values.len(), 0);
        let mut start = 0;
        for unit in &units {
            let place = start..unit.end;
            start = unit.end;
            let steps = &mut self.steps[place.clone()];
            let split = clipping.split(&indices[place.clone()]);
            if !(unit.norm.is_finite() && within((&values[place], split), clipping.factor(unit.norm), clipping.bound_squared, steps)) {
                steps.fill(0);
            }
        }
        for (&index, steps) in indices.iter().zip(&self.steps) {
            let sum = &mut sums[index as usize];
            // Below 2⁶³, see `LatticeSum::new`.
            *sum = sum.wrapping_add(*steps);
        }
        if let Some(kept) = &mut kept {
            let mut start = 0;
            for unit in &units {
                kept.keep(unit.position, indices[start..unit.end].iter().zip(&self.steps[start..unit.end]));
                start = unit.end;
            }
        }
        // Their memory serves the next block.
        (self.units, self.indices, self.values) = (units, indices, values);
        self.units.clear();
        self.indices.clear();
        self.values.clear();
    }
}

struct Adding<'a> {
    block: &'a mut Block,
    sums: &'a mut [i64],
    clipping: &'a Clipping,
    kept: Option<&'a mut CleanTerms>,
}

impl WithSimd for Adding<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.block.add_in_lanes(self.sums, self.clipping, self.kept);
    }
}

/// Weight of a signed coordinate's square in Q.
#[inline(always)]
fn signed_weight() -> f64 {
    #[cfg(feature = "fault-injection")]
    if crate::injected::is(crate::injected::Bug::SignedOnce) {
        return 1.0;
    }
    2.0
}

/// The integers of a term at `factor`, or slightly less where only rounding on the last bit put them over the bound; false: they are over it, or one in a cell is negative.
#[inline(always)]
fn within((values, split): (&[f64], Option<usize>), mut factor: f64, bound_squared: u128, steps: &mut [i64]) -> bool {
    for shorter in [1.0 - SHRINK, 1.0 - 1e-6, 1.0] {
        let size = match split {
            None => truncate(values, factor, steps),
            Some(split) => {
                let ((cells, signed), (cell_steps, signed_steps)) = (values.split_at(split), steps.split_at_mut(split));
                let (cells, signed) = (truncate(cells, factor, cell_steps), truncate(signed, factor, signed_steps));
                let negative = cell_steps.iter().any(|steps| *steps < 0);
                #[cfg(feature = "fault-injection")]
                let (negative, signed) = crate::injected::of_cells(negative, signed);
                if negative {
                    return false;
                }
                // Above every bound stays above it.
                cells.saturating_add(signed.saturating_mul(2))
            }
        };
        #[cfg(feature = "fault-injection")]
        let size = if crate::injected::is(crate::injected::Bug::NearestRounding) { 0 } else { size };
        if size <= bound_squared {
            return true;
        }
        factor *= shorter;
    }
    false
}

/// The squared L2 norm in floating point; four running sums, so that additions do not wait for each other.
#[inline(always)]
fn norm_squared(values: &[f64]) -> f64 {
    let (fours, rest) = values.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for four in fours {
        for (sum, value) in sums.iter_mut().zip(four) {
            *sum += value * value;
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += value * value;
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Truncates every value times `factor` toward zero, and gives the squared norm of exactly these integers; above every bound where a magnitude is 2³¹ or more, or a value
/// is no number, whatever the integers are then.
///
/// For a number x below 2⁵¹ the sum |x| + 2⁵² is rounded to a whole number, whose last bits are those of |x| rounded; where that is above |x|, it is one too much.
#[inline(always)]
fn truncate(values: &[f64], factor: f64, steps: &mut [i64]) -> u128 {
    const SHIFT: f64 = (1u64 << 52) as f64;
    let (mut squares, mut bits) = (0_u64, 0_u64);
    for (steps, value) in steps.iter_mut().zip(values) {
        let x = value * factor;
        #[cfg(feature = "fault-injection")]
        let x = if crate::injected::is(crate::injected::Bug::NearestRounding) { x.round() } else { x };
        let shifted = x.abs() + SHIFT;
        let above = shifted - SHIFT > x.abs();
        // 2⁵² and more, infinity and NaN have a higher exponent than `SHIFT`: 2⁵¹ at least.
        let magnitude = shifted.to_bits().wrapping_sub(SHIFT.to_bits()).wrapping_sub(u64::from(above));
        let sign = x.to_bits().cast_signed() >> 63;
        *steps = (magnitude.cast_signed() ^ sign).wrapping_sub(sign);
        let low = magnitude & 0xffff_ffff;
        squares = squares.wrapping_add(low.wrapping_mul(low));
        bits |= magnitude;
    }
    if bits >> 31 != 0 {
        return u128::MAX;
    }
    // So many squares of numbers with so many bits fit 64.
    let bits_of = |x: u64| u64::BITS - x.leading_zeros();
    if 2 * bits_of(bits) + bits_of(values.len() as u64) <= u64::BITS {
        return squares.into();
    }
    // Magnitudes are below 2³¹: 2³² squares are below 2⁹⁴.
    steps.iter().map(|steps| u128::from(steps.unsigned_abs()).pow(2)).sum()
}

#[cfg(test)]
mod tests;
