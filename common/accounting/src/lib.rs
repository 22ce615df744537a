#![cfg_attr(test, allow(clippy::unwrap_used, clippy::excessive_precision))]
//! Accountants: pure functions of events. Every bound is an upper bound unless it says that it is a lower one.
//!
//! # Which question goes where
//! | parameters of later steps | type | bound | engine |
//! |---|---|---|---|
//! | fixed before anything runs (outputs may depend on each other in any way) | [`Plan`] | certified [lower, estimate, upper] on ε(δ) and δ(ε) | closed form ([`gdp`]) if all steps are unsampled Gaussians, else loss distributions ([`pld`]); Rényi where a step is known by its ρ only |
//! | the visits of one task, fixed by it | [`epsilon_upper`], [`Composition::loss`] | upper | μ² ([`gdp`]); loss distributions ([`pld`]) where releases are sampled; ρ ([`zcdp`]), or the best Rényi order ([`rdp`]) |
//! | whole runs, each chosen from the outputs of those before, the budget fixed | the ledger's [`Runs`] | upper | Gaussian envelopes: [`crate::proofs::envelopes`] |
//! | single events chosen from earlier outputs, the budget fixed | [`Filter`], [`epsilon_filtered`] | upper | the one rule that the first event fixes: [`crate::proofs::filter`] |
//! | chosen from earlier outputs, a reading wanted at every moment | [`Odometer`] | upper, at all times at once | filters of budgets 2^k side by side, δ split over them |
//!
//! A ledger is a filter: people choose runs after earlier results. [`FilterStatement`] says so, a plan's [`Statement`] says `plan`; ε after each round of a plan is no odometer.
//!
//! # Events and pairs
//! Noise is stated over the clipping norm C and never over a sensitivity; the accountant alone applies it. `relation` belongs to the plan or
//! the ledger, the sampler to the event, and a pair without a bound is [`AccountantError::Unsupported`].
//!
//! | event | add-remove (of units) | replace-one, or shards | filter | plan |
//! |---|---|---|---|---|
//! | Gaussian | shift 1 | shift 2, of cells √2 | μ² | closed form |
//! | discrete Gaussian, also a sum of shares | Δ | 2Δ, of cells √2·Δ | μ² with margin from s = 2²⁰, else ρ | its own lattice, one coordinate |
//! | Laplace | ε = 1/b | ε = 2/b | Rényi, closed form | its own pair |
//! | Poisson-sampled Gaussian | (1−q)N(0)+qN(1), N(0), both directions | the replace pair | Rényi | the same pairs |
//! | batch of fixed size | the Poisson pair with shift 2 | the symmetrised pair | Rényi of the same pairs | the same pairs |
//! | epoch of random allocation | T⁻¹ΣN(e_t), N(0), both directions | T⁻¹ΣN(±e_t), by way of N(0) | as one release | the same pairs, between bounds |
//! | shuffled pass | refused: other units move | one release without sampling | as the release | one release a started pass |
//! | ρ-zCDP black box | ρ | ρ | ρ | Rényi |
//! | (ε, δ) black box | randomised response, δ apart | the same | Rényi; a part of δ that the first event fixes | the worst pair |
//!
//! Client-level privacy is the same with a unit for a client, under replace-one. Why each pair is the right one: [`pld`].
//!
//! # What is proved and what is measured
//! * [`crate::proofs`]: the sensitivity of sums of cells; the filter; discrete noise with s ≥ 2²⁰ accounted as continuous, with δ divided by `MARGIN` or an addition to δ
//!   ([`PrivacyLoss::numerical_margin`] says so); domination of the replace pair and the error of its quadrature; bounds by products of transforms.
//! * Rényi divergences of sampled pairs at arbitrary orders ([`Plan::renyi`]), and those of the symmetrised pair, are quadratures between bounds that are measured (ten
//!   times what halving the panels changes) and capped by the proved divergence without sampling. Those of [`rdp`]'s add-remove curve are
//!   proved sums.
//! * Inside of the loss distributions: [`pld`].
//!
//! How numbers are checked: `golden` and `pld::tests` (the reference table), `pld::properties`.

mod adaptive;
pub mod adjacency;
pub mod calibrate;
mod certificate;
pub mod comparison;
mod composition;
mod engine;
mod envelope;
pub mod event;
mod filter;
pub mod gdp;
#[cfg(feature = "fault-injection")]
pub mod injected;
mod losses;
pub mod plan;
pub mod pld;
pub mod proofs;
pub mod rdp;
mod runs;
mod special;
mod statement;
mod steps;
mod tradeoff;
/// From nothing to a certified ε.
pub mod tutorial {
    #![doc = include_str!("../README.md")]
}
pub mod unit;
pub mod zcdp;

#[cfg(test)]
mod cells;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

pub use adaptive::{Filter, Odometer};
pub use adjacency::{PrivacyUnit, Relation, Terms};
pub use certificate::{Binding, Certificate, Claim, Uncertified};
pub use composition::Composition;
pub use envelope::{Envelope, Profile};
pub use event::{DiscreteGaussian, DpEvent, LatticePath, Rho, UnknownEvent};
pub use gdp::Gdp;
use losses::Pairing;
pub use plan::Plan;
pub use pld::Interval;
pub use pld::allocation::MOST_BATCHES;
pub use rdp::Curve;
pub use runs::{RunCost, Runs};
pub use statement::{Counted, Engine, FilterStatement, Statement};
pub use steps::{Mechanism, Neighbours, Phase, Sampling};
pub use unit::{ClipNorm, Delta, Epsilon, NoiseMultiplier, SamplingRate};
pub use zcdp::Zcdp;

/// From this noise scale on, discrete noise may be accounted as continuous, with [`MARGIN`].
pub(crate) const CONTINUOUS_FROM: u64 = 1 << 20;
/// Largest shift over the noise scale for which a *sampled* discrete Gaussian may be accounted as continuous ([`crate::proofs::discrete_gaussian`]).
const LARGEST_SHIFT: f64 = 16.0;
/// From this scale on, a sum of shares is within e^τ of one discrete Gaussian, τ ≤ 10(h−1)exp(−π²s²): nothing, in floating point
/// (Kairouz, Liu & Steinke 2021, Theorem 1).
const SHARES_FROM: u64 = 1 << 10;
/// δ is divided by this where discrete noise is accounted as continuous.
pub(crate) const MARGIN: f64 = 1.0 + 1e-6;

/// The accountant cannot account this pair of event and relation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountantError {
    /// No proved bound is implemented.
    #[error("no proved bound for this event under this relation: {0}")]
    Unsupported(&'static str),
    /// A number that no mechanism has, or that is out of the range of the numerics.
    #[error("{0}")]
    Range(&'static str),
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
    /// Certified bounds on the privacy loss distribution.
    LossDistribution,
    /// Gaussian envelopes of whole runs, added up.
    Envelopes,
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
    /// A part of δ pays for discrete noise that was accounted as continuous.
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
    /// Probability with which none of this holds: the δ of a black box.
    failure: f64,
    /// Whether `gdp` needs the margin.
    gdp_margin: bool,
    /// Whether `curve` needs the margin.
    curve_margin: bool,
    /// Numbers of one release that have discrete noise.
    coordinates: u64,
    /// What it is to a plan; absent for what has no loss distribution here.
    pairing: Option<Pairing>,
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

    /// Rényi divergences of the whole event at [`rdp::ORDERS`]; `None` where it is not protected, or only up to a failure probability.
    #[must_use]
    pub fn divergences(&self) -> Option<Curve> {
        let cost = self.cost.as_ref().filter(|cost| cost.failure <= 0.0)?;
        let mut curve = Curve::default();
        curve.add(&cost.curve, self.count);
        Some(curve)
    }

    /// μ² of the whole event where it is an unsampled Gaussian release, or more of them; else 0.
    pub(crate) fn unsampled_squared(&self) -> f64 {
        let gdp = self.cost.as_ref().filter(|cost| cost.failure <= 0.0).and_then(|cost| cost.gdp);
        gdp.map_or(0.0, |gdp| gdp.mu_squared() * count(self.count))
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
        let cost = Self::without_size(mechanism, relation)?;
        Ok(cost.map(|cost| Self { coordinates: mechanism.discrete_coordinates(), ..cost }))
    }

    fn without_size(mechanism: &DpEvent, relation: Relation) -> Result<Option<Self>, AccountantError> {
        check_cells(mechanism)?;
        match mechanism {
            DpEvent::NonPrivate => Ok(None),
            DpEvent::Gaussian { noise, terms } => {
                let ratio = relation.sensitivity_factor(*terms) / noise.get() * (1.0 + 2.0 * f64::EPSILON);
                Ok(Some(Self::unsampled(ratio, true, false)))
            }
            DpEvent::DiscreteGaussian(noise) => {
                let fine = checked(noise)?.scale >= CONTINUOUS_FROM;
                Ok(Some(Self::unsampled(noise.sensitivity_ratio(relation), fine, true)))
            }
            DpEvent::PoissonSampled { rate, event }
                if rate.numerator() == SamplingRate::DENOMINATOR
                    && matches!(event.as_ref(), DpEvent::Gaussian { .. } | DpEvent::DiscreteGaussian(_)) =>
            {
                Self::of(event, relation)
            }
            DpEvent::PoissonSampled { rate, event } => match event.as_ref() {
                DpEvent::NonPrivate => Ok(None),
                DpEvent::Gaussian { noise, terms } => {
                    let ratio = 1.0 / noise.get() * (1.0 + 2.0 * f64::EPSILON);
                    Ok(Some(Self::sampled(ratio, *rate, relation.replaces(*terms), false)))
                }
                DpEvent::DiscreteGaussian(noise) => {
                    let noise = checked(noise)?;
                    let ratio = DiscreteGaussian { terms: Terms::Units, ..*noise }.sensitivity_ratio(Relation::AddRemove);
                    let fine = noise.scale >= CONTINUOUS_FROM && ratio <= LARGEST_SHIFT;
                    Ok(Some(if !relation.replaces(noise.terms) {
                        let cost = Self::sampled(ratio, *rate, false, false);
                        // Its divergences hold on any lattice, its loss distribution on a fine one.
                        Self { pairing: cost.pairing.filter(|_| fine), ..cost }
                    } else if fine {
                        Self::sampled(ratio, *rate, true, true)
                    } else {
                        // On a coarse lattice, or with next to no noise, the amplification of a replaced unit is not proved: charge without it.
                        Self::unsampled(noise.sensitivity_ratio(relation), false, false)
                    }))
                }
                _ => Err(AccountantError::Unsupported("Poisson sampling around anything but one Gaussian release")),
            },
            DpEvent::Laplace { scale, terms } => {
                let epsilon = relation.sensitivity_factor(*terms) / scale.get() * (1.0 + 2.0 * f64::EPSILON);
                Ok(Some(Self::by_curve(Curve::laplace(epsilon), 0.0)))
            }
            DpEvent::Zcdp { rho } => {
                let ratio = (2.0 * rho.get()).sqrt() * (1.0 + 4.0 * f64::EPSILON);
                Ok(Some(Self::unsampled(ratio, false, false)))
            }
            DpEvent::Approximate { epsilon, .. } if epsilon.get().is_infinite() => Ok(None),
            DpEvent::Approximate { epsilon, delta } => Ok(Some(Self::by_curve(Curve::pure(epsilon.get()), delta.map_or(0.0, Delta::get)))),
            DpEvent::NoiseShares { share, count } => {
                if *count == 0 || share.scale < SHARES_FROM {
                    return Err(AccountantError::Unsupported("shares of a discrete Gaussian with a scale below 2^10, or none"));
                }
                let ratio = share.sensitivity_ratio(relation) / f64::from(*count).sqrt() * (1.0 + 4.0 * f64::EPSILON);
                Ok(Some(Self::unsampled(ratio, share.scale >= CONTINUOUS_FROM, true)))
            }
            DpEvent::FixedBatch { batch, units, event } => Self::fixed_batch(*batch, *units, event, relation),
            DpEvent::ShuffledPass { event } => match event.as_ref() {
                DpEvent::NonPrivate => Ok(None),
                DpEvent::Gaussian { terms, .. } | DpEvent::Laplace { terms, .. } if relation.replaces(*terms) => Self::of(event, relation),
                DpEvent::DiscreteGaussian(noise) if relation.replaces(noise.terms) => Self::of(event, relation),
                DpEvent::Gaussian { .. } | DpEvent::Laplace { .. } | DpEvent::DiscreteGaussian(_) => {
                    Err(AccountantError::Unsupported(steps::SHUFFLED))
                }
                _ => Err(AccountantError::Unsupported("a shuffled pass around anything but one release a batch")),
            },
            DpEvent::RandomAllocation { batches, event } => Self::allocation(*batches, event, relation),
            DpEvent::Composed { .. } => Err(AccountantError::Unsupported("a composition inside a mechanism")),
        }
    }

    /// A batch without replacement: the symmetrised pair where a term is replaced; where a unit is added or removed, the Poisson pair with twice the
    /// shift, because another unit takes its place in the batch.
    fn fixed_batch(batch: u64, units: u64, event: &DpEvent, relation: Relation) -> Result<Option<Self>, AccountantError> {
        if batch == 0 || batch > units {
            return Err(AccountantError::Unsupported("a batch that is empty or larger than the data set"));
        }
        #[allow(clippy::cast_precision_loss, reason = "rounded up")]
        let rate = (batch as f64 / units as f64 * (1.0 + 4.0 * f64::EPSILON)).min(1.0);
        let sampled = |shift: f64, replaces: bool, margin: bool| {
            let curve = if replaces { Curve::fixed_batch(shift, rate) } else { Curve::add_remove_at(shift, rate) };
            Self { curve_margin: margin, pairing: Some(Pairing::Batch { shift, rate, replaces }), ..Self::by_curve(curve, 0.0) }
        };
        match event {
            DpEvent::NonPrivate => Ok(None),
            DpEvent::Gaussian { noise, terms } => {
                let shift = 2.0 / noise.get() * (1.0 + 2.0 * f64::EPSILON);
                Ok(Some(if batch == units {
                    Self::unsampled(shift, true, false)
                } else {
                    sampled(shift, relation.replaces(*terms), false)
                }))
            }
            DpEvent::DiscreteGaussian(noise) => {
                let noise = checked(noise)?;
                let shift = DiscreteGaussian { terms: Terms::Units, ..*noise }.sensitivity_ratio(Relation::ReplaceOne);
                let fine = noise.scale >= CONTINUOUS_FROM;
                // On a coarse lattice no amplification is proved.
                Ok(Some(if fine && batch < units && shift <= LARGEST_SHIFT {
                    sampled(shift, relation.replaces(noise.terms), true)
                } else {
                    Self::unsampled(shift, fine, true)
                }))
            }
            _ => Err(AccountantError::Unsupported("a batch of fixed size around anything but one Gaussian release")),
        }
    }

    /// An epoch of random allocation, whole. Its Rényi divergences are those of one release ([`crate::proofs::random_allocation`]); so is all that is proved
    /// on a coarse lattice.
    fn allocation(batches: u64, event: &DpEvent, relation: Relation) -> Result<Option<Self>, AccountantError> {
        if batches == 0 || batches > MOST_BATCHES {
            return Err(AccountantError::Unsupported("a random allocation to no batch, or to more than 2^20"));
        }
        if !matches!(event, DpEvent::NonPrivate | DpEvent::Gaussian { .. } | DpEvent::DiscreteGaussian(_)) {
            return Err(AccountantError::Unsupported("a random allocation around anything but one Gaussian release a batch"));
        }
        let (shift, replaced, fine) = match event {
            DpEvent::Gaussian { noise, terms } => (1.0 / noise.get() * (1.0 + 2.0 * f64::EPSILON), relation.replaces(*terms), true),
            DpEvent::DiscreteGaussian(noise) => {
                let shift = DiscreteGaussian { terms: Terms::Units, ..*checked(noise)? }.sensitivity_ratio(Relation::AddRemove);
                (shift, relation.replaces(noise.terms), noise.scale >= CONTINUOUS_FROM && shift <= LARGEST_SHIFT)
            }
            _ => return Ok(None),
        };
        if batches == 1 || !fine {
            return Self::without_size(event, relation);
        }
        let margin = matches!(event, DpEvent::DiscreteGaussian(_));
        let curve = Curve::gaussian(if replaced { 2.0 * shift } else { shift });
        let pairing = Some(Pairing::Allocation { shift, batches, replaces: replaced });
        Ok(Some(Self { curve_margin: margin, pairing, ..Self::by_curve(curve, 0.0) }))
    }

    fn by_curve(curve: Curve, failure: f64) -> Self {
        Self { gdp: None, zcdp: None, curve, failure, gdp_margin: false, curve_margin: false, coordinates: 0, pairing: None }
    }

    fn unsampled(ratio: f64, gdp: bool, gdp_margin: bool) -> Self {
        Self {
            gdp: gdp.then(|| Gdp::of_ratio(ratio)),
            zcdp: Some(Zcdp::of_ratio(ratio)),
            curve: Curve::gaussian(ratio),
            failure: 0.0,
            gdp_margin,
            curve_margin: false,
            coordinates: 0,
            // Noise on a coarse lattice is not continuous noise.
            pairing: gdp.then_some(Pairing::Unsampled(ratio)),
        }
    }

    fn sampled(ratio: f64, rate: SamplingRate, replaces: bool, curve_margin: bool) -> Self {
        let curve = if replaces { Curve::poisson_replace(ratio, rate) } else { Curve::poisson_add_remove(ratio, rate) };
        Self { curve_margin, pairing: Some(Pairing::Poisson { shift: ratio, rate: rate.get(), replaces }), ..Self::by_curve(curve, 0.0) }
    }
}

/// Sums of cells are accounted where every unit takes part: the rule bounds a term in the 2-norm, and no pair for samples of such terms is proved to be better
/// than that of [`Terms::Units`].
fn check_cells(mechanism: &DpEvent) -> Result<(), AccountantError> {
    match mechanism {
        DpEvent::PoissonSampled { event, .. }
        | DpEvent::FixedBatch { event, .. }
        | DpEvent::ShuffledPass { event }
        | DpEvent::RandomAllocation { event, .. }
            if event.sums_cells() =>
        {
            Err(AccountantError::Unsupported("a sample, a batch or a pass of a sum of cells"))
        }
        DpEvent::Laplace { .. } if mechanism.sums_cells() => Err(AccountantError::Unsupported("Laplace noise on a sum of cells")),
        _ => Ok(()),
    }
}

fn checked(noise: &DiscreteGaussian) -> Result<&DiscreteGaussian, AccountantError> {
    if noise.scale == 0 { Err(AccountantError::Unsupported("discrete Gaussian without noise")) } else { Ok(noise) }
}

#[allow(clippy::cast_precision_loss, reason = "a relative error of 1e-16, rounded up where it matters")]
fn count(times: u64) -> f64 {
    times as f64
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

    /// Remembers what another has learnt, if it is about the same relation.
    pub fn take_over(&mut self, other: &Self) {
        if self.relation == other.relation {
            self.known.extend(other.known.iter().map(|(mechanism, cost)| (mechanism.clone(), cost.clone())));
        }
    }
}

/// Certified upper bound on ε(δ) of all events together, if they were fixed before anything ran (outputs may depend on each other in any way):
/// by μ² if every event is an unsampled Gaussian, by loss distributions where events are sampled, by ρ or Rényi divergences at the best order otherwise.
///
/// # Errors
/// An event that no engine bounds.
pub fn epsilon_upper<'a>(
    events: impl IntoIterator<Item = &'a DpEvent>,
    relation: Relation,
    delta: Delta,
) -> Result<PrivacyLoss, AccountantError> {
    Ok(composed(events, relation)?.loss(delta))
}

/// What the [`Filter`] of this budget reads after these events, in this order: they may have been chosen in the light of earlier outputs.
///
/// # Errors
/// An event that no engine bounds.
pub fn epsilon_filtered<'a>(
    events: impl IntoIterator<Item = &'a DpEvent>,
    relation: Relation,
    budget: Epsilon,
    delta: Delta,
) -> Result<PrivacyLoss, AccountantError> {
    Ok(composed(events, relation)?.filtered(budget, delta))
}

fn composed<'a>(events: impl IntoIterator<Item = &'a DpEvent>, relation: Relation) -> Result<Composition, AccountantError> {
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
    Ok(total)
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
