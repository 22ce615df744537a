//! Accountants: pure functions of events. Every bound is an upper bound.
//!
//! One engine per module — [`gdp`] for unsampled Gaussians, [`zcdp`] for unsampled discrete Gaussians on coarse lattices,
//! [`rdp`] for everything — and one place that chooses, [`Composition`]. A further engine (privacy loss distributions) is one
//! module, one field of [`Charge`] and one arm of [`Composition::loss`]; nothing else changes.
//!
//! # What is proved and what is measured
//! Every engine's bound holds for a fixed sequence of events, and for each fixed order (or μ) also as a fully adaptive
//! filter (Feldman & Zrnic 2021). The smallest ε over the fixed orders is taken at the end: over sequences that are chosen
//! in the light of earlier outputs, a union bound over the orders would multiply δ by their number. Inside one run the
//! sequence is fixed by the task, so this concerns only an operator who picks later tasks by looking at earlier results.
//!
//! Discrete noise with s ≥ 2²⁰ is accounted as continuous where only a continuous formula is known (GDP; pair B), with δ
//! divided by [`MARGIN`]: measured to be sufficient by many orders of magnitude (relative difference of δ 2e-9 at s = 1024,
//! falling exponentially), not proved. [`PrivacyLoss::numerical_margin`] says so.

pub mod gdp;
pub mod rdp;
mod special;
pub mod zcdp;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use gdp::Gdp;
pub use rdp::Curve;
pub use zcdp::Zcdp;

use crate::adjacency::{Relation, Terms};
use crate::event::{DiscreteGaussian, DpEvent};
use crate::unit::{Delta, Epsilon, NoiseMultiplier, SamplingRate};

/// From this noise scale on, discrete noise may be accounted as continuous, with [`MARGIN`].
pub const CONTINUOUS_FROM: u64 = 1 << 20;
/// δ is divided by this where discrete noise is accounted as continuous.
pub const MARGIN: f64 = 1.0 + 1e-6;

/// The accountant cannot account this pair of event and relation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountantError {
    /// No proved bound is implemented.
    #[error("no proved bound for this event under this relation: {0}")]
    Unsupported(&'static str),
    /// No noise multiplier up to 1e6 is enough.
    #[error("no noise multiplier up to 1e6 reaches this epsilon at this delta: raise epsilon, or ask for fewer steps")]
    OutOfReach,
}

/// How a stated ε was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Exact Gaussian differential privacy with the lattice margin.
    GaussianDp,
    /// Zero-concentrated differential privacy.
    Zcdp,
    /// Rényi differential privacy at fixed orders.
    Rdp,
    /// No guarantee.
    NonPrivate,
}

/// An upper bound on ε, and how it came about.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PrivacyLoss {
    /// Upper bound.
    pub epsilon: Epsilon,
    /// At this δ.
    pub delta: Delta,
    /// Engine.
    pub method: Method,
    /// δ was divided by 1+1e-6 because the discrete noise was accounted as continuous.
    pub numerical_margin: bool,
}

/// What one event costs in the currency of every engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Charge {
    /// ε = ∞.
    NonPrivate,
    /// `count` times the same mechanism.
    Private {
        /// Number of repetitions.
        count: u64,
        /// Exact Gaussian DP of one repetition, where it is an unsampled Gaussian that may be accounted so.
        gdp: Option<Gdp>,
        /// zCDP of one repetition, where it is unsampled.
        zcdp: Option<Zcdp>,
        /// Rényi curve of one repetition.
        curve: Arc<Curve>,
        /// Whether `gdp` needs the margin.
        gdp_margin: bool,
        /// Whether `curve` needs the margin.
        curve_margin: bool,
    },
}

impl Charge {
    /// Accounts one event.
    ///
    /// # Errors
    /// No proved bound is implemented for it.
    pub fn of(event: &DpEvent, relation: Relation) -> Result<Self, AccountantError> {
        match event {
            DpEvent::NonPrivate => Ok(Self::NonPrivate),
            DpEvent::Gaussian { noise, terms } => {
                let ratio = f64::from(relation.sensitivity_factor(*terms)) / noise.get() * (1.0 + 2.0 * f64::EPSILON);
                Ok(Self::unsampled(ratio, true, false))
            }
            DpEvent::DiscreteGaussian(noise) => {
                let fine = checked(noise)?.scale >= CONTINUOUS_FROM;
                Ok(Self::unsampled(noise.sensitivity_ratio(relation), fine, true))
            }
            DpEvent::PoissonSampled { rate, event } if rate.numerator() == SamplingRate::DENOMINATOR => Self::of(event, relation),
            DpEvent::PoissonSampled { rate, event } => match event.as_ref() {
                DpEvent::NonPrivate => Ok(Self::NonPrivate),
                DpEvent::Gaussian { noise, terms } => {
                    let ratio = 1.0 / noise.get() * (1.0 + 2.0 * f64::EPSILON);
                    Ok(Self::sampled(ratio, *rate, replaces(relation, *terms), false))
                }
                DpEvent::DiscreteGaussian(noise) => {
                    let noise = checked(noise)?;
                    let ratio = DiscreteGaussian { terms: Terms::Units, ..*noise }.sensitivity_ratio(Relation::AddRemove);
                    if !replaces(relation, noise.terms) {
                        Ok(Self::sampled(ratio, *rate, false, false))
                    } else if noise.scale >= CONTINUOUS_FROM {
                        Ok(Self::sampled(ratio, *rate, true, true))
                    } else {
                        // On a coarse lattice the amplification of a replaced unit is not proved: charge without it.
                        Ok(Self::unsampled(noise.sensitivity_ratio(relation), false, false))
                    }
                }
                DpEvent::PoissonSampled { .. } | DpEvent::Composed { .. } => {
                    Err(AccountantError::Unsupported("Poisson sampling around anything but one Gaussian release"))
                }
            },
            DpEvent::Composed { event, count } => match Self::of(event, relation)? {
                Self::NonPrivate => Ok(Self::NonPrivate),
                Self::Private { count: inner, gdp, zcdp, curve, gdp_margin, curve_margin } => {
                    let count = inner.checked_mul(*count).ok_or(AccountantError::Unsupported("more than 2^64 repetitions"))?;
                    Ok(Self::Private { count, gdp, zcdp, curve, gdp_margin, curve_margin })
                }
            },
        }
    }

    fn unsampled(ratio: f64, gdp: bool, gdp_margin: bool) -> Self {
        Self::Private {
            count: 1,
            gdp: gdp.then(|| Gdp::of_ratio(ratio)),
            zcdp: Some(Zcdp::of_ratio(ratio)),
            curve: Arc::new(Curve::gaussian(ratio)),
            gdp_margin,
            curve_margin: false,
        }
    }

    fn sampled(ratio: f64, rate: SamplingRate, replaces: bool, curve_margin: bool) -> Self {
        let curve = if replaces { Curve::poisson_replace(ratio, rate) } else { Curve::poisson_add_remove(ratio, rate) };
        Self::Private { count: 1, gdp: None, zcdp: None, curve: Arc::new(curve), gdp_margin: false, curve_margin }
    }
}

/// Whether a sampled term changes rather than appears.
fn replaces(relation: Relation, terms: Terms) -> bool {
    relation.sensitivity_factor(terms) == 2
}

fn checked(noise: &DiscreteGaussian) -> Result<&DiscreteGaussian, AccountantError> {
    if noise.scale == 0 { Err(AccountantError::Unsupported("discrete Gaussian without noise")) } else { Ok(noise) }
}

/// Running total of a sequence of events: what a ledger keeps instead of reading all rows at every question.
#[derive(Debug, Clone, PartialEq)]
pub struct Composition {
    non_private: bool,
    gdp: Option<Gdp>,
    zcdp: Option<Zcdp>,
    curve: Curve,
    gdp_margin: bool,
    curve_margin: bool,
}

impl Default for Composition {
    fn default() -> Self {
        Self {
            non_private: false,
            gdp: Some(Gdp::default()),
            zcdp: Some(Zcdp::default()),
            curve: Curve::default(),
            gdp_margin: false,
            curve_margin: false,
        }
    }
}

impl Composition {
    /// Adds `times` repetitions of a charge.
    pub fn add(&mut self, charge: &Charge, times: u64) {
        let Charge::Private { count, gdp, zcdp, curve, gdp_margin, curve_margin } = charge else {
            self.non_private |= times > 0;
            return;
        };
        // 2^64 repetitions and more cost more than any budget; saturating keeps the charge an astronomic number.
        let times = count.saturating_mul(times);
        if times == 0 {
            return;
        }
        self.gdp = self.gdp.zip(*gdp).map(|(total, one)| total.and(one.repeated(times)));
        self.zcdp = self.zcdp.zip(*zcdp).map(|(total, one)| total.and(one.repeated(times)));
        self.curve.add(curve, times);
        self.gdp_margin |= gdp_margin;
        self.curve_margin |= curve_margin;
    }

    /// Whether a release without protection was added.
    #[must_use]
    pub fn non_private(&self) -> bool {
        self.non_private
    }

    /// Upper bound on ε(δ) of all that was added, except releases without protection.
    #[must_use]
    pub fn protected_loss(&self, delta: Delta) -> PrivacyLoss {
        let (epsilon, method, numerical_margin) = if let Some(gdp) = self.gdp {
            (gdp.epsilon_upper(with_margin(delta, self.gdp_margin)), Method::GaussianDp, self.gdp_margin)
        } else if let Some(zcdp) = self.zcdp {
            (zcdp.epsilon_upper(delta), Method::Zcdp, false)
        } else {
            (self.curve.epsilon_upper(with_margin(delta, self.curve_margin)), Method::Rdp, self.curve_margin)
        };
        PrivacyLoss { epsilon, delta, method, numerical_margin }
    }

    /// Upper bound on ε(δ) of all that was added.
    #[must_use]
    pub fn loss(&self, delta: Delta) -> PrivacyLoss {
        if self.non_private {
            return PrivacyLoss { epsilon: Epsilon::INFINITE, delta, method: Method::NonPrivate, numerical_margin: false };
        }
        self.protected_loss(delta)
    }
}

fn with_margin(delta: Delta, margin: bool) -> Delta {
    if !margin {
        return delta;
    }
    // Division by a number just above 1 leaves (0, 1) only by underflow; then the smallest δ there is.
    Delta::new(delta.get() / MARGIN).or_else(|_| Delta::new(f64::from_bits(1))).unwrap_or(delta)
}

/// Certified upper bound on ε(δ) of the adaptive composition of all events (a fully adaptive filter: GDP if every event is
/// an unsampled Gaussian, else Rényi at fixed orders).
///
/// # Errors
/// An event that no engine bounds.
pub fn epsilon_upper<'a>(
    events: impl IntoIterator<Item = &'a DpEvent>,
    relation: Relation,
    delta: Delta,
) -> Result<PrivacyLoss, AccountantError> {
    let mut counts: Vec<(&DpEvent, u64)> = Vec::new();
    for event in events {
        // Few distinct events, mostly in long rows.
        match counts.iter_mut().rev().find(|(known, _)| std::ptr::eq(*known, event) || *known == event) {
            Some((_, count)) => *count += 1,
            None => counts.push((event, 1)),
        }
    }
    let mut total = Composition::default();
    for (event, count) in counts {
        total.add(&Charge::of(event, relation)?, count);
    }
    Ok(total.loss(delta))
}

/// Largest noise multiplier that [`calibrate`] tries.
const LARGEST: f64 = 1e6;
/// Smallest noise multiplier that [`calibrate`] tries.
const SMALLEST: f64 = 1e-3;
/// Relative width at which [`calibrate`] stops.
const PRECISION: f64 = 2e-5;

/// Smallest noise multiplier (on the safe side) for which `event(z)` costs at most `epsilon` at `delta`: its
/// [`epsilon_upper`] never exceeds the target, and a noise multiplier smaller by 1e-4 relative would.
///
/// `event` may answer [`DpEvent::NonPrivate`] for a noise multiplier that does not fit its mechanism.
///
/// # Errors
/// An event that no engine bounds, or a target that no noise multiplier up to 1e6 reaches.
pub fn calibrate(
    event: impl Fn(NoiseMultiplier) -> DpEvent,
    relation: Relation,
    epsilon: Epsilon,
    delta: Delta,
) -> Result<NoiseMultiplier, AccountantError> {
    let enough = |z: f64| -> Result<bool, AccountantError> {
        let noise = NoiseMultiplier::new(z).map_err(|_| AccountantError::OutOfReach)?;
        Ok(epsilon_upper([&event(noise)], relation, delta)?.epsilon <= epsilon)
    };
    let (mut low, mut high) = (0.5, 1.0);
    while !enough(high)? {
        if high >= LARGEST {
            return Err(AccountantError::OutOfReach);
        }
        low = high;
        high = (2.0 * high).min(LARGEST);
    }
    while low >= SMALLEST && low < high && enough(low)? {
        high = low;
        low = 0.5 * low;
    }
    while high > low * (1.0 + PRECISION) {
        let middle = (low * high).sqrt();
        if enough(middle)? { high = middle } else { low = middle }
    }
    NoiseMultiplier::new(high).map_err(|_| AccountantError::OutOfReach)
}
