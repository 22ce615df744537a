//! The public bound of a noised sum: which integer vectors a sender that follows the protocol can send.
//!
//! A receiver knows the mechanism (the task is public) and N, the most terms that the sender may have, and nothing of its records. So a sender
//! that lies moves a sum by at most what N honest terms and their noise could.
//!
//! # Derivation
//! An honest vector is y = Σ x_i + e, with at most K terms of integer norm ‖x_i‖₂ ≤ C_int = √⌊(C/γ)²⌋ and noise e.
//! * *Coordinate.* |x_ij| ≤ C_int and |e_j| ≤ 64(s+1), beyond which the sampler releases nothing: |y_j| ≤ K·C_int + 64(s+1), always.
//! * *Norm.* ‖y‖₂ ≤ K·C_int + ‖e‖₂. The noise is sub-Gaussian, E exp(t·e_j) ≤ exp(t²s²/2) (Canonne, Kamath & Steinke 2020): completing the square
//!   leaves a ratio of sums of exp(−(x − ts²)²/(2s²)) over the integers, which Poisson's summation formula shows to be largest at t = 0. The sum of
//!   m independent shares is so with ms² in the place of s². With a standard normal g and θ < 1,
//!   E exp(θe_j²/(2ms²)) = E_g E_e exp(√θ·g·e_j/(s√m)) ≤ E_g exp(θg²/2) = (1 − θ)^{−1/2}, which is the moment generating function of a squared
//!   standard normal. Coordinates are independent, so Laurent & Massart (2000, Lemma 1) holds for ‖e‖₂²/(ms²) as it does for χ² with d degrees of
//!   freedom: ‖e‖₂² ≤ ms²(d + 2√(dL) + 2L) ≤ ms²(√d + √(2L))² but for probability e^{−L}.
//! * *Terms.* Without sampling K = N. Under Poisson sampling at rate q, or in one of 1/q batches of an epoch, the number of terms is binomial, and Bernstein's inequality gives
//!   K = min(N, ⌈qN + L/3 + √(L²/9 + 2LqN)⌉) but for probability e^{−L}.
//! * *Path `sum`.* Rounding the sum once and summing in double precision move it by at most the event's `excess`, which is added to both bounds.
//!
//! L = 101·ln 2: an honest vector is turned away with probability below 2^{−100}.
//!
//! A site that has more records than it declared is honest too, and its sum can be longer. So the sender brings its noised vector into the bound
//! of what it declared before it lets go of it (`SumBound::bring_in`), and is never turned away.

use crate::mechanism::ShareSum;
use crate::sampler::gaussian;
use dp_pvi_accounting::event::{DiscreteGaussian, DpEvent, LatticePath};
use dp_pvi_accounting::unit::SamplingRate;

/// L: each of at most two tails has probability e^{−L} = 2^{−101}.
const TAIL: f64 = 101.0 * std::f64::consts::LN_2;
/// Covers the rounding of every sum and root in double precision here.
const SLACK: f64 = 1.0 + 1e-9;

/// Bound on the coordinates and on the norm of a noised sum. See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SumBound {
    coordinate: u128,
    norm: f64,
}

impl SumBound {
    /// What one release of `event` can be, of a sender with at most `terms` terms. Nothing for an event that is not one noised sum on a lattice.
    #[must_use]
    pub fn of_event(event: &DpEvent, terms: u64) -> Option<Self> {
        match event {
            DpEvent::DiscreteGaussian(release) => Some(Self::of(release, terms)),
            DpEvent::PoissonSampled { rate, event } => Self::of_event(event, sampled(*rate, terms)),
            DpEvent::RandomAllocation { batches, event } => Self::of_event(event, sampled(one_in(*batches), terms)),
            DpEvent::FixedBatch { batch, event, .. } => Self::of_event(event, terms.min(*batch)),
            _ => None,
        }
    }

    fn of(release: &DiscreteGaussian, terms: u64) -> Self {
        let (steps, squared) = match release.path {
            LatticePath::Term => (release.bound_squared.isqrt(), release.bound_squared),
            // C/γ itself, not rounded down.
            LatticePath::Sum => (release.bound_squared.isqrt() + 1, release.bound_squared + 1),
        };
        let coordinate = u128::from(terms).saturating_mul(steps).saturating_add(release.excess.into());
        let signal = as_f64(terms.into()) * as_f64(squared).sqrt() + as_f64(release.excess.into());
        Self {
            coordinate: coordinate.saturating_add(gaussian::bound(release.scale).into()),
            norm: (signal + noise(release.scale, 1, release.dimension)) * SLACK,
        }
    }

    /// What the sum of the vectors of `sites` sites can be, each with a share of the noise.
    #[must_use]
    pub fn of_shares(mechanism: &ShareSum, sites: u32) -> Self {
        let terms = match mechanism.fallback_event() {
            // Each site tosses its own coins: the terms of all sites are one binomial number.
            DpEvent::PoissonSampled { rate, .. } => sampled(rate, mechanism.max_units().saturating_mul(sites.into())),
            _ => mechanism.max_units().saturating_mul(sites.into()),
        };
        let most = mechanism.coordinate_bound().saturating_mul(sites.into());
        let shares = u128::from(gaussian::bound(mechanism.scale())).saturating_mul(sites.into());
        let coordinate = u128::from(terms).saturating_mul(mechanism.clip_steps().into()).saturating_add(shares);
        // A term's norm is below ⌊C/γ⌋ + 1.
        let signal = as_f64(terms.into()) * as_f64(u128::from(mechanism.clip_steps()) + 1);
        Self { coordinate: coordinate.min(most), norm: (signal + noise(mechanism.scale(), sites, mechanism.dimension())) * SLACK }
    }

    /// Largest absolute value of a coordinate.
    #[must_use]
    pub fn coordinate(&self) -> u128 {
        self.coordinate
    }

    /// Largest norm, in lattice steps.
    #[must_use]
    pub fn norm(&self) -> f64 {
        self.norm
    }

    /// A vector is about to be compared, coordinate by coordinate.
    #[must_use]
    pub fn check(self) -> SumCheck {
        SumCheck { bound: self, squares: 0, fits: true }
    }

    /// Whether a whole vector is within the bound.
    #[must_use]
    pub fn admits(self, values: &[i64]) -> bool {
        let mut check = self.check();
        values.iter().for_each(|value| check.add(*value));
        check.fits()
    }

    /// Brings a noised vector into the bound; one that is within it is not changed. The coordinates are cut off first; a vector that is still
    /// too long is shortened.
    ///
    /// # Privacy
    /// Post-processing: the bound is a function of the task and of the declared number of units, which are public, and the noise is in.
    pub(crate) fn bring_in(self, values: &mut [i64]) {
        let largest = i64::try_from(self.coordinate).unwrap_or(i64::MAX);
        while !self.admits(values) {
            values.iter_mut().for_each(|value| *value = (*value).clamp(-largest, largest));
            let squares = values.iter().map(|value| u128::from(value.unsigned_abs()).pow(2)).fold(0, u128::saturating_add);
            let length = as_f64(squares).sqrt();
            if length > self.norm {
                // Below 1 by more than every rounding here. Should it ever not do, the next pass goes on.
                let factor = self.norm / length / SLACK;
                for value in values.iter_mut() {
                    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "toward zero, and below 2⁶³")]
                    let shorter = (*value as f64 * factor) as i64;
                    *value = shorter;
                }
            }
        }
    }
}

/// A vector that is compared while it arrives.
#[derive(Debug, Clone)]
pub struct SumCheck {
    bound: SumBound,
    squares: u128,
    fits: bool,
}

impl SumCheck {
    /// The next coordinate.
    #[inline]
    pub fn add(&mut self, value: i64) {
        let size = u128::from(value.unsigned_abs());
        self.fits &= size <= self.bound.coordinate;
        // At most 2¹²⁶ each.
        self.squares = self.squares.saturating_add(size * size);
    }

    /// Whether what came so far is within the bound.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.fits && as_f64(self.squares).sqrt() <= self.bound.norm
    }
}

/// s√m·(√d + √(2L)).
fn noise(scale: u64, shares: u32, dimension: u32) -> f64 {
    as_f64(scale.into()) * f64::from(shares).sqrt() * (f64::from(dimension).sqrt() + (2.0 * TAIL).sqrt())
}

/// 1/T as a rate, rounded up: the number of units in one of T batches is binomial, too.
fn one_in(batches: u64) -> SamplingRate {
    let whole = SamplingRate::DENOMINATOR;
    SamplingRate::from_numerator(whole.div_ceil(batches.max(1))).unwrap_or_else(|_| unreachable!("between 1 and 2^32"))
}

/// K, the most of N terms that are drawn at rate q.
fn sampled(rate: SamplingRate, terms: u64) -> u64 {
    let expected = rate.get() * as_f64(terms.into());
    let third = TAIL / 3.0;
    let most = (expected + third + (third * third + 2.0 * TAIL * expected).sqrt()) * SLACK;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; saturating, and never above N")]
    let most = most.ceil() as u64;
    most.min(terms)
}

#[allow(clippy::cast_precision_loss, reason = "covered by SLACK")]
fn as_f64(value: u128) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;
