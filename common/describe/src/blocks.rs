//! Blocks of the summed vector, what they cost, and how the noise is shared among them.
//!
//! A block is a part of the vector that a unit puts in, scaled by an integer weight W, in steps of the gate's lattice. Its share of the squared sensitivity at W = 1:
//!
//! | kind | what a unit puts in before W | replace-one | add-remove |
//! |---|---|---|---|
//! | [`Kind::Cells`] | non-negative, norm ≤ 1: one 1, or fractions that sum to at most 1 | 2 | 1 |
//! | [`Kind::Signed`] | any vector of norm ≤ ½ | 1 | ¼ |
//!
//! Under replace-one the vector's terms are checked as [`Terms::Cells`] (`dp_pvi_accounting::proofs::cells`), under add-remove as [`Terms::Units`].

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, Relation, Terms};

use crate::DescribeError;

/// What a unit puts into a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Numbers that are not negative, of norm at most 1.
    Cells,
    /// Any numbers of norm at most ½.
    Signed,
}

impl Kind {
    /// Share of the squared sensitivity at weight 1.
    #[must_use]
    pub fn cost(self, relation: Relation) -> f64 {
        match (self, relation) {
            (Self::Cells, Relation::ReplaceOne) => 2.0,
            (Self::Cells, Relation::AddRemove) | (Self::Signed, Relation::ReplaceOne) => 1.0,
            (Self::Signed, Relation::AddRemove) => 0.25,
        }
    }
}

/// A block of the vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// What a unit puts in.
    pub kind: Kind,
    /// Coordinates.
    pub size: u32,
}

/// By which rule the gate checks the terms: cells come first in the vector.
#[must_use]
pub fn terms(relation: Relation, blocks: &[Block]) -> Terms {
    match relation {
        Relation::AddRemove => Terms::Units,
        Relation::ReplaceOne => {
            Terms::Cells { cells: blocks.iter().filter(|block| block.kind == Kind::Cells).map(|block| block.size).sum() }
        }
    }
}

/// L2 sensitivity of the vector at weights 1: √Σ c.
#[must_use]
pub fn sensitivity(relation: Relation, kinds: &[Kind]) -> f64 {
    kinds.iter().map(|kind| kind.cost(relation)).sum::<f64>().sqrt()
}

/// Standard deviations σ of the noise of blocks with these costs c and importances ω (harm of σ²), at μ: the minimum of Σ ω σ² subject to Σ c/σ² = μ² is at
/// σ_b² = √(c_b/ω_b) Σ_j √(c_j ω_j) / μ² (Cauchy–Schwarz).
#[must_use]
pub fn by_importance(costs: &[f64], importances: &[f64], mu: f64) -> Vec<f64> {
    let total: f64 = costs.iter().zip(importances).map(|(cost, importance)| (cost * importance).sqrt()).sum();
    costs.iter().zip(importances).map(|(cost, importance)| ((cost / importance).sqrt() * total).sqrt() / mu).collect()
}

/// μ of blocks with these costs and wanted standard deviations: √Σ c/σ².
#[must_use]
pub fn mu_of(costs: &[f64], sds: &[f64]) -> f64 {
    costs.iter().zip(sds).map(|(cost, sd)| cost / (sd * sd)).sum::<f64>().sqrt()
}

/// Weights on the gate's lattice of step 2^`exponent`: what is in a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// w = least σ over σ of the block.
    pub relative: Vec<f64>,
    /// C.
    pub clip: ClipNorm,
    /// z.
    pub noise: NoiseMultiplier,
    /// k = ⌊log₂ zC⌋ − 20.
    pub exponent: i32,
    /// s = ⌈zC/2^k⌉.
    pub scale: u64,
    /// W: steps of the lattice for 1 of a block's unit.
    pub steps: Vec<u64>,
    /// The largest squared size that a unit's integers can have, Σ_cells W² + f·Σ_signed ⌈(W/2 + √d/2)²⌉ with d the block's coordinates and f = 2 under replace-one.
    pub largest: u128,
    /// ⌊(C/2^k)²⌋, which it must not exceed.
    pub bound_squared: u128,
}

/// Room of the clipping norm, so that rounding to whole steps never makes the gate shorten a term.
const ROOM: f64 = 1.0 + 1.0 / 1024.0;

impl Weights {
    /// Weights for blocks with noise of these standard deviations, in each block's own units, at μ.
    ///
    /// # Errors
    /// No blocks, or numbers for which a unit's integers could exceed the gate's bound.
    pub fn new(relation: Relation, blocks: &[Block], sds: &[f64], mu: f64) -> Result<Self, DescribeError> {
        const NONE: DescribeError = DescribeError::Task("the standard deviations of the blocks and mu must be positive numbers");
        let positive = |x: &f64| *x > 0.0 && x.is_finite();
        if blocks.is_empty() || blocks.len() != sds.len() || !sds.iter().all(positive) || !positive(&mu) {
            return Err(NONE);
        }
        let factor = if relation == Relation::ReplaceOne { 2.0 } else { 1.0 };
        let least = sds.iter().copied().fold(f64::INFINITY, f64::min);
        let relative: Vec<f64> = sds.iter().map(|sd| least / sd).collect();
        let square = |(block, w): (&Block, &f64)| match block.kind {
            Kind::Cells => w * w,
            Kind::Signed => factor * w * w / 4.0,
        };
        let clip = ROOM * blocks.iter().zip(&relative).map(square).sum::<f64>().sqrt();
        let noise = factor.sqrt() / mu;
        let (exponent, scale, bound_squared) = lattice(clip, noise).ok_or(NONE)?;
        let per_step = 2f64.powi(-exponent);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^31 steps, and not negative")]
        let steps: Vec<u64> = relative.iter().map(|w| (w * per_step).floor() as u64).collect();
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^52")]
        let size = |(block, steps): (&Block, &u64)| match block.kind {
            Kind::Cells => u128::from(*steps).pow(2),
            Kind::Signed => {
                let longest = 0.5 * (*steps as f64 + f64::from(block.size).sqrt());
                (factor * (longest * longest).ceil()) as u128
            }
        };
        let largest = blocks.iter().zip(&steps).map(size).sum();
        if largest > bound_squared || steps.contains(&0) {
            return Err(DescribeError::Task(
                "the weights of the blocks do not fit the lattice: their noises are too far apart, or mu is too large",
            ));
        }
        let (Ok(clip), Ok(noise)) = (ClipNorm::new(clip), NoiseMultiplier::new(noise)) else { return Err(NONE) };
        Ok(Self { relative, clip, noise, exponent, scale, steps, largest, bound_squared })
    }

    /// Standard deviation of a block's noise in its own units, s/W: what is decoded has this one, and not the σ that was planned.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "22 and 31 bits")]
    pub fn sd(&self, block: usize) -> f64 {
        self.scale as f64 / self.steps[block] as f64
    }

    /// The integer multiple of a lattice step that a unit adds for an entry of a block: sign(e)·⌊|e|·W + ½⌋.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "at most 2^31 steps")]
    pub fn whole(&self, block: usize, entry: f64) -> i64 {
        let steps = (entry.abs() * self.steps[block] as f64 + 0.5).floor() as i64;
        if entry < 0.0 { -steps } else { steps }
    }

    /// A noised integer in the block's own units.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "53 bits of a noised number")]
    pub fn decode(&self, block: usize, noised: i64) -> f64 {
        noised as f64 / self.steps[block] as f64
    }
}

/// Exponent, noise scale and squared bound, by the integer arithmetic of the gate's lattice.
fn lattice(clip: f64, noise: f64) -> Option<(i32, u64, u128)> {
    let (c, c_exponent) = decompose(clip)?;
    let (z, z_exponent) = decompose(noise)?;
    // zC = product·2^e exactly, in at most 106 bits.
    let product = u128::from(c) * u128::from(z);
    let log2 = product.ilog2().cast_signed();
    let exponent = log2 + c_exponent + z_exponent - 20;
    let down = log2 - 20;
    let scale = if down > 0 { product.div_ceil(1 << down) } else { product << -down };
    let square = u128::from(c) * u128::from(c);
    let up = 2 * (c_exponent - exponent);
    let bound = match up {
        ..=-128 => 0,
        -127..=0 => square >> -up,
        _ if up < square.leading_zeros().cast_signed() => square << up,
        _ => return None,
    };
    Some((exponent, u64::try_from(scale).ok()?, bound))
}

/// x = mantissa·2^exponent, exactly, of an ordinary positive number.
fn decompose(x: f64) -> Option<(u64, i32)> {
    let bits = x.to_bits();
    #[allow(clippy::cast_possible_truncation, reason = "11 bits")]
    let biased = (bits >> 52) as i32;
    (x.is_normal() && x > 0.0).then_some(((bits & ((1 << 52) - 1)) | 1 << 52, biased - 1075))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELATIONS: [Relation; 2] = [Relation::AddRemove, Relation::ReplaceOne];

    /// Numbers that a unit may put in, worst ones among them, never have more than the bound, in integers and by the gate's rule.
    #[test]
    fn what_a_unit_adds_keeps_to_the_rule_of_the_gate() {
        let blocks = [Block { kind: Kind::Cells, size: 5 }, Block { kind: Kind::Cells, size: 3 }, Block { kind: Kind::Signed, size: 2 }];
        for (relation, mu) in RELATIONS.iter().flat_map(|relation| [0.03, 0.5, 2.0, 7.0].map(|mu| (*relation, mu))) {
            for sds in [[1.0, 1.0, 1.0], [40.0, 15.0, 7.0], [3.0, 900.0, 20.0]] {
                let weights = Weights::new(relation, &blocks, &sds, mu).unwrap();
                let weight = if relation == Relation::ReplaceOne { 2 } else { 1 };
                for x in [-0.5f64, -0.37, 0.0, 0.123_456, 0.353_553, 0.5] {
                    for parts in [vec![1.0], vec![0.5, 0.5], vec![1.0 / 3.0; 3]] {
                        let signed = [x, 2.0 * (x * x - 0.25)];
                        let cells: i64 =
                            (0..2).flat_map(|b| parts.iter().map(move |e| (b, *e))).map(|(b, e)| weights.whole(b, e).pow(2)).sum();
                        let rest: i64 = signed.iter().map(|e| weights.whole(2, *e).pow(2)).sum();
                        let size = u128::from((cells + weight * rest).cast_unsigned());
                        assert!(size <= weights.largest && weights.largest <= weights.bound_squared, "{relation:?} {mu} {sds:?} {x}");
                    }
                }
                // The noise that is released is at most what was planned, but for the room and the rounding.
                let spent = mu_of(&[0, 1, 2].map(|b| blocks[b].kind.cost(relation)), &[0, 1, 2].map(|b| weights.sd(b)));
                assert!(spent < mu && spent > mu * (1.0 - 2e-3), "{spent} {mu}");
            }
        }
    }

    #[test]
    fn sds_by_importance_spend_all_of_mu_and_are_best() {
        let (costs, importances, mu) = ([2.0, 1.0, 0.25], [1.0, 3.0, 16.0], 0.4);
        let sds = by_importance(&costs, &importances, mu);
        assert!((mu_of(&costs, &sds) / mu - 1.0).abs() < 1e-14);
        let harm = |sds: &[f64]| importances.iter().zip(sds).map(|(w, sd)| w * sd * sd).sum::<f64>();
        for moved in 0..3 {
            let mut other = sds.clone();
            other[moved] *= 1.05;
            let scale = mu_of(&costs, &other) / mu;
            other.iter_mut().for_each(|sd| *sd *= scale);
            assert!(harm(&other) > harm(&sds));
        }
    }

    #[test]
    fn weights_that_fit_no_lattice_are_refused() {
        let blocks = [Block { kind: Kind::Cells, size: 2 }; 2];
        for (sds, mu) in [([1.0, 1e12], 1.0), ([1.0, 1.0], f64::NAN), ([0.0, 1.0], 1.0), ([1.0, f64::INFINITY], 1.0)] {
            assert!(Weights::new(Relation::ReplaceOne, &blocks, &sds, mu).is_err(), "{sds:?} {mu}");
        }
    }
}
