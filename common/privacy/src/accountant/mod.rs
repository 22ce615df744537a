//! Accountants: pure functions of events. Every bound is an upper bound.
//!
//! One engine per module — [`gdp`] for unsampled Gaussians, [`zcdp`] for unsampled discrete Gaussians on coarse lattices,
//! [`rdp`] for everything — and one place that chooses, [`Composition`]. A further engine (privacy loss distributions) is one
//! module, one field of `Cost` and one arm of [`Composition::protected_loss`]; nothing else changes.
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

mod adaptive;
pub mod calibrate;
pub mod comparison;
mod engine;
pub mod gdp;
pub mod plan;
pub mod pld;
pub mod rdp;
mod special;
mod statement;
mod tradeoff;
pub mod zcdp;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use adaptive::{Filter, Odometer};
pub use gdp::Gdp;
pub use plan::{Mechanism, Neighbours, Phase, Plan, Sampling};
pub use pld::Interval;
pub use rdp::Curve;
pub use statement::{Engine, Statement};
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
pub struct Charge {
    /// Canonical bytes of the mechanism that is repeated.
    mechanism: Vec<u8>,
    /// How often the event runs it.
    count: u64,
    /// Cost of one repetition; absent: ε = ∞.
    cost: Option<Arc<Cost>>,
}

/// Cost of one mechanism.
#[derive(Debug, PartialEq)]
struct Cost {
    /// Where it is an unsampled Gaussian that may be accounted as such.
    gdp: Option<Gdp>,
    /// Where it is unsampled.
    zcdp: Option<Zcdp>,
    curve: Curve,
    /// Whether `gdp` needs the margin.
    gdp_margin: bool,
    /// Whether `curve` needs the margin.
    curve_margin: bool,
}

impl Charge {
    /// Accounts one event.
    ///
    /// # Errors
    /// No proved bound is implemented for it.
    pub fn of(event: &DpEvent, relation: Relation) -> Result<Self, AccountantError> {
        let (mechanism, count) = repetitions(event)?;
        Ok(Self { mechanism: mechanism.to_bytes(), count, cost: Cost::of(mechanism, relation)?.map(Arc::new) })
    }

    /// Whether it is a release without protection.
    #[must_use]
    pub fn is_non_private(&self) -> bool {
        self.cost.is_none()
    }
}

/// The mechanism that an event repeats, and how often.
fn repetitions(event: &DpEvent) -> Result<(&DpEvent, u64), AccountantError> {
    let (mut mechanism, mut count) = (event, 1u64);
    while let DpEvent::Composed { event, count: times } = mechanism {
        count = count.checked_mul(*times).ok_or(AccountantError::Unsupported("more than 2^64 repetitions"))?;
        mechanism = event;
    }
    Ok((mechanism, count))
}

impl Cost {
    /// `None`: no protection.
    fn of(mechanism: &DpEvent, relation: Relation) -> Result<Option<Self>, AccountantError> {
        match mechanism {
            DpEvent::NonPrivate => Ok(None),
            DpEvent::Gaussian { noise, terms } => {
                let ratio = f64::from(relation.sensitivity_factor(*terms)) / noise.get() * (1.0 + 2.0 * f64::EPSILON);
                Ok(Some(Self::unsampled(ratio, true, false)))
            }
            DpEvent::DiscreteGaussian(noise) => {
                let fine = checked(noise)?.scale >= CONTINUOUS_FROM;
                Ok(Some(Self::unsampled(noise.sensitivity_ratio(relation), fine, true)))
            }
            DpEvent::PoissonSampled { rate, event } if rate.numerator() == SamplingRate::DENOMINATOR => Self::of(event, relation),
            DpEvent::PoissonSampled { rate, event } => match event.as_ref() {
                DpEvent::NonPrivate => Ok(None),
                DpEvent::Gaussian { noise, terms } => {
                    let ratio = 1.0 / noise.get() * (1.0 + 2.0 * f64::EPSILON);
                    Ok(Some(Self::sampled(ratio, *rate, replaces(relation, *terms), false)))
                }
                DpEvent::DiscreteGaussian(noise) => {
                    let noise = checked(noise)?;
                    let ratio = DiscreteGaussian { terms: Terms::Units, ..*noise }.sensitivity_ratio(Relation::AddRemove);
                    Ok(Some(if !replaces(relation, noise.terms) {
                        Self::sampled(ratio, *rate, false, false)
                    } else if noise.scale >= CONTINUOUS_FROM {
                        Self::sampled(ratio, *rate, true, true)
                    } else {
                        // On a coarse lattice the amplification of a replaced unit is not proved: charge without it.
                        Self::unsampled(noise.sensitivity_ratio(relation), false, false)
                    }))
                }
                DpEvent::PoissonSampled { .. } | DpEvent::Composed { .. } => {
                    Err(AccountantError::Unsupported("Poisson sampling around anything but one Gaussian release"))
                }
            },
            DpEvent::Composed { .. } => Err(AccountantError::Unsupported("a composition inside a mechanism")),
        }
    }

    fn unsampled(ratio: f64, gdp: bool, gdp_margin: bool) -> Self {
        Self {
            gdp: gdp.then(|| Gdp::of_ratio(ratio)),
            zcdp: Some(Zcdp::of_ratio(ratio)),
            curve: Curve::gaussian(ratio),
            gdp_margin,
            curve_margin: false,
        }
    }

    fn sampled(ratio: f64, rate: SamplingRate, replaces: bool, curve_margin: bool) -> Self {
        let curve = if replaces { Curve::poisson_replace(ratio, rate) } else { Curve::poisson_add_remove(ratio, rate) };
        Self { gdp: None, zcdp: None, curve, gdp_margin: false, curve_margin }
    }
}

/// Whether a sampled term changes rather than appears.
fn replaces(relation: Relation, terms: Terms) -> bool {
    relation.sensitivity_factor(terms) == 2
}

fn checked(noise: &DiscreteGaussian) -> Result<&DiscreteGaussian, AccountantError> {
    if noise.scale == 0 { Err(AccountantError::Unsupported("discrete Gaussian without noise")) } else { Ok(noise) }
}

/// A sequence of events as a multiset of mechanisms: what a ledger keeps instead of reading all rows at every question.
///
/// The answer depends on how often each mechanism ran, and on nothing else, to the last bit: a plan of k releases costs exactly
/// what k rows cost.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Composition {
    /// By canonical bytes of the mechanism: its cost and the number of repetitions.
    mechanisms: BTreeMap<Vec<u8>, (Option<Arc<Cost>>, u64)>,
}

impl Composition {
    /// Adds `times` repetitions of a charge.
    pub fn add(&mut self, charge: &Charge, times: u64) {
        // 2^64 repetitions and more cost more than any budget; saturating keeps the number astronomic.
        let times = charge.count.saturating_mul(times);
        if times > 0 {
            let (_, count) = self.mechanisms.entry(charge.mechanism.clone()).or_insert_with(|| (charge.cost.clone(), 0));
            *count = count.saturating_add(times);
        }
    }

    /// Whether a release without protection was added.
    #[must_use]
    pub fn non_private(&self) -> bool {
        self.mechanisms.values().any(|(cost, _)| cost.is_none())
    }

    /// Upper bound on ε(δ) of all that was added, except releases without protection.
    #[must_use]
    pub fn protected_loss(&self, delta: Delta) -> PrivacyLoss {
        let costs = || self.mechanisms.values().filter_map(|(cost, times)| Some((cost.as_deref()?, *times)));
        let gdp = costs().try_fold(Gdp::default(), |total, (cost, times)| Some(total.and(cost.gdp?.repeated(times))));
        let zcdp = costs().try_fold(Zcdp::default(), |total, (cost, times)| Some(total.and(cost.zcdp?.repeated(times))));
        let (epsilon, method, numerical_margin) = if let Some(gdp) = gdp {
            let margin = costs().any(|(cost, _)| cost.gdp_margin);
            (gdp.epsilon_upper(with_margin(delta, margin)), Method::GaussianDp, margin)
        } else if let Some(zcdp) = zcdp {
            (zcdp.epsilon_upper(delta), Method::Zcdp, false)
        } else {
            let margin = costs().any(|(cost, _)| cost.curve_margin);
            let mut curve = Curve::default();
            costs().for_each(|(cost, times)| curve.add(&cost.curve, times));
            (curve.epsilon_upper(with_margin(delta, margin)), Method::Rdp, margin)
        };
        PrivacyLoss { epsilon, delta, method, numerical_margin }
    }

    /// Upper bound on ε(δ) of all that was added.
    #[must_use]
    pub fn loss(&self, delta: Delta) -> PrivacyLoss {
        if self.non_private() {
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

/// What events cost under one relation; each distinct mechanism is accounted once (a sampled one takes milliseconds).
#[derive(Debug, Clone)]
pub struct Prices {
    relation: Relation,
    known: HashMap<Vec<u8>, Option<Arc<Cost>>>,
}

impl Prices {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(relation: Relation) -> Self {
        Self { relation, known: HashMap::new() }
    }

    /// What an event costs.
    ///
    /// # Errors
    /// An event that no engine bounds.
    pub fn of(&self, event: &DpEvent) -> Result<Charge, AccountantError> {
        let (mechanism, count) = repetitions(event)?;
        let bytes = mechanism.to_bytes();
        match self.known.get(&bytes) {
            Some(cost) => Ok(Charge { mechanism: bytes, count, cost: cost.clone() }),
            None => Charge::of(event, self.relation),
        }
    }

    /// What an event costs; remembered.
    ///
    /// # Errors
    /// An event that no engine bounds.
    pub fn learn(&mut self, event: &DpEvent) -> Result<Charge, AccountantError> {
        let charge = self.of(event)?;
        self.known.entry(charge.mechanism.clone()).or_insert_with(|| charge.cost.clone());
        Ok(charge)
    }
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
    let mut prices = Prices::new(relation);
    let mut total = Composition::default();
    let mut previous: Option<(&DpEvent, Charge)> = None;
    for event in events {
        let charge = match previous {
            Some((known, charge)) if known == event => charge,
            _ => prices.learn(event)?,
        };
        total.add(&charge, 1);
        previous = Some((event, charge));
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
        low *= 0.5;
    }
    while high > low * (1.0 + PRECISION) {
        let middle = (low * high).sqrt();
        if enough(middle)? { high = middle } else { low = middle }
    }
    NoiseMultiplier::new(high).map_err(|_| AccountantError::OutOfReach)
}
