//! In which coordinates a change of natural parameters is clipped and noised.
//!
//! Every metric is a bijection between a change (Δh, ΔΛ) and a message, given public numbers that both sides have (the reference μ, Λ:
//! the global posterior of the round). It therefore costs no privacy, and the server sees the change again after
//! [`ClipMetric::decode`]. What differs is how much the clip and the noise harm:
//!
//! | metric | message | bounds |
//! |---|---|---|
//! | [`Flat`](ClipMetric::Flat) | (Δh, ΔΛ) | one |
//! | [`FlatHalf`](ClipMetric::FlatHalf) | (Δh, −ΔΛ/2), the coordinates of the papers | one |
//! | [`Block`](ClipMetric::Block) | (Δh, ΔΛ) | one for each block |
//! | [`Centred`](ClipMetric::Centred) | (Δh − ΔΛ μ, ΔΛ): noise in the precision no longer moves the mean | one for each block |
//! | [`Whitened`](ClipMetric::Whitened) | (D⁻¹(Δh − ΔΛ μ), D⁻¹ ΔΛ D⁻¹) with D = diag √Λ_jj | one for each block |
//!
//! With full covariance ΔΛ stands for svec ΔΛ, whose Euclidean norm is the Frobenius norm.

use dp_pvi_accounting::ClipNorm;
use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::svec_times;
use serde::{Deserialize, Serialize};

/// Coordinates of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClipMetric {
    /// (Δh, ΔΛ) under one bound.
    Flat,
    /// (Δh, −ΔΛ/2) under one bound.
    FlatHalf,
    /// Δh and ΔΛ under a bound each.
    Block,
    /// Δh − ΔΛ μ and ΔΛ under a bound each.
    Centred,
    /// The centred blocks in units of the reference's standard deviations, under a bound each.
    Whitened,
}

/// The public point that centred and whitened coordinates refer to.
#[derive(Debug, Clone, Copy)]
pub struct Reference<'a> {
    mean: &'a [f64],
    precision: &'a [f64],
}

impl<'a> Reference<'a> {
    /// From μ (d numbers) and Λ or svec Λ, whose diagonal must be positive.
    ///
    /// # Panics
    /// The mean does not have the family's dimension, the precision block not its length, or the diagonal is not positive.
    #[must_use]
    pub fn new(family: Family, mean: &'a [f64], precision: &'a [f64]) -> Self {
        assert_eq!(mean.len(), family.dimension(), "a mean of another dimension");
        assert_eq!(mean.len() + precision.len(), family.len(), "a precision of another dimension");
        let reference = Self { mean, precision };
        assert!(reference.scales(family).iter().all(|s| s.is_finite() && *s > 0.0), "the reference precision has a positive diagonal");
        reference
    }

    /// D: √Λ_jj.
    fn scales(&self, family: Family) -> Vec<f64> {
        match family {
            Family::DiagonalGaussian { .. } => self.precision.iter().map(|l| l.sqrt()).collect(),
            Family::FullGaussian { dimension } => {
                // Row i of svec begins with its diagonal entry and has d − i entries.
                let starts = (0..dimension).scan(0, |next, i| Some(std::mem::replace(next, *next + dimension - i)));
                starts.map(|start| self.precision[start].sqrt()).collect()
            }
        }
    }
}

impl ClipMetric {
    /// Whether the two blocks have a bound each: [h block (d); precision block]. Otherwise one bound is over the whole message.
    #[must_use]
    pub fn has_blocks(self) -> bool {
        matches!(self, Self::Block | Self::Centred | Self::Whitened)
    }

    /// The message of a change [Δh; ΔΛ] of natural parameters; the same length.
    ///
    /// # Panics
    /// The change does not have the family's length.
    #[must_use]
    pub fn encode(self, family: Family, change: &[f64], at: &Reference<'_>) -> Vec<f64> {
        assert_eq!(change.len(), family.len(), "a change of another family");
        let d = family.dimension();
        let mut message = change.to_vec();
        let (h, precision) = message.split_at_mut(d);
        match self {
            Self::Flat | Self::Block => {}
            Self::FlatHalf => precision.iter_mut().for_each(|l| *l *= -0.5),
            Self::Centred | Self::Whitened => {
                let moved = times_mean(family, precision, at.mean);
                h.iter_mut().zip(moved).for_each(|(h, m)| *h -= m);
            }
        }
        if self == Self::Whitened {
            let scales = at.scales(family);
            h.iter_mut().zip(&scales).for_each(|(h, s)| *h /= s);
            scale_pairs(family, precision, &scales, |value, pair| value / pair);
        }
        message
    }

    /// The change [Δh; ΔΛ] of a message, noised or not.
    ///
    /// # Panics
    /// The message does not have the family's length.
    #[must_use]
    pub fn decode(self, family: Family, message: &[f64], at: &Reference<'_>) -> Vec<f64> {
        assert_eq!(message.len(), family.len(), "a message of another family");
        let d = family.dimension();
        let mut change = message.to_vec();
        let (h, precision) = change.split_at_mut(d);
        if self == Self::Whitened {
            let scales = at.scales(family);
            h.iter_mut().zip(&scales).for_each(|(h, s)| *h *= s);
            scale_pairs(family, precision, &scales, |value, pair| value * pair);
        }
        match self {
            Self::Flat | Self::Block => {}
            Self::FlatHalf => precision.iter_mut().for_each(|l| *l *= -2.0),
            Self::Centred | Self::Whitened => {
                let moved = times_mean(family, precision, at.mean);
                h.iter_mut().zip(moved).for_each(|(h, m)| *h += m);
            }
        }
        change
    }
}

/// clip_C(u) = u·min(1, C/‖u‖₂), in place; a vector whose norm is not finite becomes 0.
pub fn clip(values: &mut [f64], bound: ClipNorm) {
    let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
    if !norm.is_finite() {
        values.fill(0.0);
    } else if norm > bound.get() {
        let factor = bound.get() / norm;
        values.iter_mut().for_each(|v| *v *= factor);
    }
}

/// Clips consecutive blocks, each of its own length to its own bound. The whole vector then has a norm of at most
/// [`joint_norm`] of the bounds.
///
/// # Panics
/// The lengths do not add up to the number of values.
pub fn clip_blocks(values: &mut [f64], blocks: &[(usize, ClipNorm)]) {
    assert_eq!(blocks.iter().map(|(len, _)| len).sum::<usize>(), values.len(), "blocks of another vector");
    let mut rest = values;
    for &(len, bound) in blocks {
        let (block, after) = rest.split_at_mut(len);
        clip(block, bound);
        rest = after;
    }
}

/// √ΣC_b²: the norm of a vector whose blocks have norms of at most C_b.
///
/// # Panics
/// Bounds whose sum of squares is beyond the range of f64.
#[must_use]
pub fn joint_norm(bounds: &[ClipNorm]) -> ClipNorm {
    let norm = bounds.iter().map(|b| b.get().powi(2)).sum::<f64>().sqrt();
    ClipNorm::new(norm).expect("a root of a finite sum of squares of positive numbers")
}

/// Precision block times a vector.
pub fn times_mean(family: Family, precision: &[f64], mean: &[f64]) -> Vec<f64> {
    match family {
        Family::DiagonalGaussian { .. } => precision.iter().zip(mean).map(|(p, m)| p * m).collect(),
        Family::FullGaussian { .. } => svec_times(precision, mean),
    }
}

/// Applies `f` to every entry (i, j) of a precision block and the product s_i·s_j.
fn scale_pairs(family: Family, precision: &mut [f64], scales: &[f64], f: impl Fn(f64, f64) -> f64) {
    match family {
        Family::DiagonalGaussian { .. } => precision.iter_mut().zip(scales).for_each(|(value, s)| *value = f(*value, s * s)),
        Family::FullGaussian { .. } => {
            let pairs = scales.iter().enumerate().flat_map(|(i, a)| scales[i..].iter().map(move |b| a * b));
            precision.iter_mut().zip(pairs).for_each(|(value, pair)| *value = f(*value, pair));
        }
    }
}

#[cfg(test)]
mod tests;
