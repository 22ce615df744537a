//! A plan: steps whose parameters are all fixed beforehand, accounted by their privacy loss distributions.
//!
//! What a plan may be used for, and what not: see [`Plan`], [`Filter`] and [`Odometer`].

use std::cell::OnceCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pld::{Composition as Losses, GAP, Interval, Pair};
use super::{AccountantError, Composition, Gdp, PrivacyLoss, Zcdp, rdp};
use crate::accountant::rdp::Curve;
use crate::event::DpEvent;
use crate::unit::{Delta, Epsilon, SamplingRate};

/// What neighbouring data sets differ by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbours {
    /// One unit is present or absent.
    AddRemove,
    /// One unit's contribution is set to zero ("replace special").
    ZeroOut,
    /// One unit is replaced by another.
    ReplaceOne,
}

/// How the units of a step are chosen. There is no default, and a pass over shuffled data is no sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// Every unit takes part.
    None,
    /// Every unit takes part with this probability, independently, in every step.
    Poisson(f64),
    /// A fresh batch of fixed, public size; the number is batch size over data set size (public, too).
    WithoutReplacement(f64),
    /// The data is shuffled and cut into batches; a step is one *pass*, the number is passes. Charged as one unamplified release
    /// for every started pass: no amplification is proved here.
    ShuffledPasses(f64),
}

/// What one step adds to the sum of clipped terms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// Gaussian noise; standard deviation over the clipping norm, never over a sensitivity.
    Gaussian {
        /// Noise multiplier.
        sigma: f64,
    },
    /// Discrete Gaussian noise of this parameter on the integers, for one integer coordinate.
    DiscreteGaussian {
        /// Parameter s: mass ∝ exp(−x²/(2s²)).
        scale: f64,
        /// Integer shift of one step.
        sensitivity: u64,
    },
    /// Laplace noise; scale over the L1 norm of one term.
    Laplace {
        /// Scale over clipping norm.
        scale: f64,
    },
    /// Anything with ρ zero-concentrated differential privacy under the plan's relation.
    Zcdp {
        /// ρ.
        rho: f64,
    },
    /// Anything with (ε, δ) differential privacy under the plan's relation.
    Approximate {
        /// ε.
        epsilon: f64,
        /// δ.
        delta: f64,
    },
}

/// One kind of step and how often it runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// What is released.
    pub mechanism: Mechanism,
    /// On which units.
    pub sampling: Sampling,
    /// How often.
    pub steps: u64,
}

/// First byte of a plan's canonical bytes.
const VERSION: u8 = 1;

/// Steps whose parameters do not depend on any output; the outputs themselves may depend on each other in any way.
///
/// The phases are kept as a multiset: their order and how a count is split do not matter, to the last bit.
///
/// # Privacy
/// The ε of a plan holds for *all* its steps together. A schedule whose later parameters are chosen from earlier outputs is not a plan:
/// use [`Filter`]. The ε after each round of a plan is not an odometer: use [`Odometer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    relation: Neighbours,
    phases: Vec<Phase>,
    #[serde(skip)]
    compiled: Compiled,
}

#[derive(Debug, Default)]
struct Compiled(OnceCell<Engine>);

impl Clone for Compiled {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Compiled {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// What answers questions about a plan.
#[derive(Debug)]
struct Engine {
    /// One for each direction that has to be composed on its own.
    directions: Vec<Losses>,
    /// Every step is an unsampled Gaussian: μ² in closed form, and it is everything.
    gaussian: Option<Gdp>,
    /// Valid for everything: μ² without any amplification, where every step is a Gaussian.
    unamplified: Option<Gdp>,
    /// Rényi bound for everything but `rho`, for when the numbers are out of reach.
    curve: Option<Curve>,
    /// zCDP black boxes.
    rho: f64,
    /// Basic composition of what has no curve.
    basic: (f64, f64),
}

/// Rounds a ratio up.
fn up(x: f64) -> f64 {
    x * (1.0 + 2.0 * f64::EPSILON)
}

/// A number that must be in a range.
fn within(ok: bool, what: &'static str) -> Result<(), AccountantError> {
    if ok { Ok(()) } else { Err(AccountantError::Unsupported(what)) }
}

impl Phase {
    /// Gaussian noise of multiplier `sigma`, `steps` times.
    #[must_use]
    pub fn gaussian(sigma: f64, sampling: Sampling, steps: u64) -> Self {
        Self { mechanism: Mechanism::Gaussian { sigma }, sampling, steps }
    }

    /// The phase that an event of the ledger is, under add-remove or replace-one of units.
    ///
    /// # Errors
    /// Events that have no loss distribution here: lattice noise (accounted by [`crate::accountant`]) and unprotected releases.
    pub fn of(event: &DpEvent) -> Result<Self, AccountantError> {
        let (mechanism, steps) = super::repetitions(event)?;
        match mechanism {
            DpEvent::Gaussian { noise, terms: crate::adjacency::Terms::Units } => Ok(Self::gaussian(noise.get(), Sampling::None, steps)),
            DpEvent::PoissonSampled { rate, event } => match event.as_ref() {
                DpEvent::Gaussian { noise, terms: crate::adjacency::Terms::Units } => {
                    Ok(Self::gaussian(noise.get(), Sampling::Poisson(rate.get()), steps))
                }
                _ => Err(AccountantError::Unsupported("a plan of sampled lattice noise or of shards")),
            },
            _ => Err(AccountantError::Unsupported("a plan of lattice noise, of shards, or without protection")),
        }
    }

    fn check(&self, relation: Neighbours) -> Result<(), AccountantError> {
        within(self.steps > 0, "a phase without steps")?;
        match self.mechanism {
            Mechanism::Gaussian { sigma } => {
                within(sigma.is_finite() && (1e-3..=1e9).contains(&sigma), "a noise multiplier outside [1e-3, 1e9]")?;
            }
            Mechanism::DiscreteGaussian { scale, sensitivity } => {
                within(
                    scale.is_finite() && (1e-2..=1e4).contains(&scale),
                    "a discrete Gaussian of a parameter outside [0.01, 1e4] in a plan",
                )?;
                within((1..=1_000_000).contains(&sensitivity), "an integer sensitivity outside 1..=1e6")?;
            }
            Mechanism::Laplace { scale } => {
                within(scale.is_finite() && (1e-2..=1e9).contains(&scale), "a Laplace scale outside [1e-2, 1e9]")?
            }
            Mechanism::Zcdp { rho } => within(rho.is_finite() && rho >= 0.0, "a rho that is not a finite number at least 0")?,
            Mechanism::Approximate { epsilon, delta } => {
                within(epsilon.is_finite() && (0.0..=600.0).contains(&epsilon), "an epsilon outside [0, 600] in a plan")?;
                within((0.0..1.0).contains(&delta), "a delta outside [0, 1)")?;
            }
        }
        match (self.sampling, self.mechanism, relation) {
            (Sampling::None, ..) => Ok(()),
            (Sampling::Poisson(q), Mechanism::Gaussian { .. }, _) => within(q > 0.0 && q <= 1.0, "a sampling rate outside (0, 1]"),
            (Sampling::WithoutReplacement(q), Mechanism::Gaussian { .. }, Neighbours::AddRemove | Neighbours::ReplaceOne) => {
                within(q > 0.0 && q <= 1.0, "a sampling rate outside (0, 1]")
            }
            (Sampling::ShuffledPasses(passes), _, Neighbours::AddRemove | Neighbours::ZeroOut | Neighbours::ReplaceOne) => {
                within(passes > 0.0 && passes < 9e15, "a number of passes that is not above 0")
            }
            (Sampling::WithoutReplacement(_), _, Neighbours::ZeroOut) => {
                Err(AccountantError::Unsupported("batches of fixed size under zero-out"))
            }
            (Sampling::Poisson(_) | Sampling::WithoutReplacement(_), ..) => {
                Err(AccountantError::Unsupported("sampling around anything but Gaussian noise"))
            }
        }
    }

    /// Shuffled passes become unamplified releases; a rate of 1 is no sampling.
    fn canonical(self) -> Self {
        match self.sampling {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked range")]
            Sampling::ShuffledPasses(passes) => {
                Self { sampling: Sampling::None, steps: self.steps.saturating_mul(passes.ceil() as u64), ..self }
            }
            Sampling::Poisson(q) if q >= 1.0 => Self { sampling: Sampling::None, ..self },
            _ => self,
        }
    }

    /// Order of phases that does not depend on the order of insertion.
    fn key(&self) -> (u8, u64, u64, u8, u64) {
        let (kind, a, b) = match self.mechanism {
            Mechanism::Gaussian { sigma } => (0, sigma.to_bits(), 0),
            Mechanism::DiscreteGaussian { scale, sensitivity } => (1, scale.to_bits(), sensitivity),
            Mechanism::Laplace { scale } => (2, scale.to_bits(), 0),
            Mechanism::Zcdp { rho } => (3, rho.to_bits(), 0),
            Mechanism::Approximate { epsilon, delta } => (4, epsilon.to_bits(), delta.to_bits()),
        };
        let (how, rate) = match self.sampling {
            Sampling::None => (0, 0),
            Sampling::Poisson(q) => (1, q.to_bits()),
            Sampling::WithoutReplacement(q) => (2, q.to_bits()),
            Sampling::ShuffledPasses(p) => (3, p.to_bits()),
        };
        (kind, a, b, how, rate)
    }
}

impl Plan {
    /// No steps yet.
    #[must_use]
    pub fn new(relation: Neighbours) -> Self {
        Self { relation, phases: Vec::new(), compiled: Compiled::default() }
    }

    /// A plan of one phase.
    ///
    /// # Errors
    /// As [`Plan::append`].
    pub fn of(relation: Neighbours, phase: Phase) -> Result<Self, AccountantError> {
        let mut plan = Self::new(relation);
        plan.append(phase)?;
        Ok(plan)
    }

    /// Adds steps.
    ///
    /// # Errors
    /// A number out of range, or a pair of sampling and relation for which no bound is implemented.
    pub fn append(&mut self, phase: Phase) -> Result<(), AccountantError> {
        phase.check(self.relation)?;
        let phase = phase.canonical();
        let key = phase.key();
        match self.phases.binary_search_by_key(&key, Phase::key) {
            Ok(k) => self.phases[k].steps = self.phases[k].steps.saturating_add(phase.steps),
            Err(k) => self.phases.insert(k, phase),
        }
        self.compiled = Compiled::default();
        Ok(())
    }

    /// The relation of all statements.
    #[must_use]
    pub fn relation(&self) -> Neighbours {
        self.relation
    }

    /// The phases in canonical order.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// Canonical bytes: equal plans have equal bytes, however they were built.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        // Writing to a vector cannot fail and every field is serialisable.
        bytes.extend(postcard::to_stdvec(&(self.relation, &self.phases)).expect("plans serialise into memory"));
        bytes
    }

    /// Reads canonical bytes and checks every number.
    ///
    /// # Errors
    /// Other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, AccountantError> {
        const WRONG: AccountantError = AccountantError::Unsupported("bytes that are not a plan of a version that is known here");
        let (&version, rest) = bytes.split_first().ok_or(WRONG)?;
        if version != VERSION {
            return Err(WRONG);
        }
        let ((relation, phases), rest): ((Neighbours, Vec<Phase>), _) = postcard::take_from_bytes(rest).map_err(|_| WRONG)?;
        let mut plan = Self::new(relation);
        for phase in phases {
            plan.append(phase)?;
        }
        if rest.is_empty() && plan.to_bytes() == bytes { Ok(plan) } else { Err(WRONG) }
    }

    fn engine(&self) -> &Engine {
        self.compiled.0.get_or_init(|| Engine::new(self.relation, &self.phases))
    }

    /// ε(δ) with certified bounds.
    #[must_use]
    pub fn epsilon(&self, delta: Delta) -> Interval {
        self.engine().epsilon(delta, GAP)
    }

    /// The estimate alone, without a certificate: fast.
    #[must_use]
    pub fn epsilon_estimate(&self, delta: Delta) -> f64 {
        self.engine().estimate(delta)
    }

    /// δ(ε) with certified bounds.
    #[must_use]
    pub fn delta(&self, epsilon: Epsilon) -> Interval {
        self.engine().delta(epsilon.get())
    }

    pub(super) fn estimate_of_delta(&self, epsilon: f64) -> f64 {
        let engine = self.engine();
        if engine.gaussian.is_none() && engine.rho <= 0.0 {
            let all: Option<Vec<f64>> = engine.directions.iter().map(|d| d.estimate_delta(epsilon)).collect();
            if let Some(value) = all.and_then(|all| all.into_iter().reduce(f64::max)) {
                return value;
            }
        }
        engine.delta(epsilon).estimate
    }

    /// The certified upper bound on ε(δ), made to about `gap` relative.
    #[must_use]
    pub fn epsilon_upper(&self, delta: Delta, gap: f64) -> f64 {
        self.engine().epsilon_upper(delta, gap)
    }

    /// Attack advantage δ(0): the largest difference between true and false positive rate of any attack on membership.
    #[must_use]
    pub fn advantage(&self) -> Interval {
        self.engine().delta(0.0)
    }

    /// Rényi divergence at an order above 1, the larger direction (by quadrature, to about 1e-12 relative).
    #[must_use]
    pub fn renyi(&self, order: f64) -> f64 {
        let engine = self.engine();
        let worst = engine.directions.iter().map(|d| d.renyi(order)).fold(0.0, f64::max);
        worst + order * engine.rho
    }

    /// ε(δ) by Rényi divergences with the optimal conversion, and the order that gives it.
    #[must_use]
    pub fn renyi_epsilon(&self, delta: Delta) -> (f64, f64) {
        let at = |log: f64| {
            let order = 1.0 + log.exp();
            (rdp::to_epsilon(order, self.renyi(order), delta).max(0.0), order)
        };
        let golden = 0.618_034;
        let mut best = (f64::INFINITY, 2.0);
        // A coarse scan first: the curve may have two valleys.
        let grid: Vec<_> = (-16..=36).map(|k| (f64::from(k) * 0.4, at(f64::from(k) * 0.4))).collect();
        let start = grid.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0)).map_or(0.0, |g| g.0);
        let (mut low, mut high) = (start - 0.4, start + 0.4);
        for _ in 0..30 {
            let (left, right) = (high - golden * (high - low), low + golden * (high - low));
            let (a, b) = (at(left), at(right));
            for candidate in [a, b] {
                if candidate.0 < best.0 {
                    best = candidate;
                }
            }
            if a.0 <= b.0 { high = right } else { low = left }
        }
        best
    }

    /// A lower bound on the true ε(δ) that explicit data sets attain. For batches of fixed size under replace-one it is the largest lower
    /// bound of pair A in both directions and of pair B, less 3 % (it only says how much a better proof than pair D's could gain, and must
    /// stay below every other engine's value of the same pairs); elsewhere the certified lower bound.
    #[must_use]
    pub fn attained(&self, delta: Delta) -> f64 {
        if self.relation != Neighbours::ReplaceOne || !self.phases.iter().any(|p| matches!(p.sampling, Sampling::WithoutReplacement(_))) {
            return self.epsilon(delta).lower;
        }
        let Some(parts): Option<Vec<_>> = self
            .phases
            .iter()
            .map(|p| match (p.mechanism, p.sampling) {
                (Mechanism::Gaussian { sigma }, Sampling::WithoutReplacement(q) | Sampling::Poisson(q)) => Some((sigma, q, p.steps)),
                (Mechanism::Gaussian { sigma }, Sampling::None) => Some((sigma, 1.0, p.steps)),
                _ => None,
            })
            .collect()
        else {
            return 0.0;
        };
        // Poisson steps attain B only; with them no data set is claimed for A.
        let pure = self.phases.iter().all(|p| !matches!(p.sampling, Sampling::Poisson(_)));
        let all = |pair: &dyn Fn(f64, f64) -> Pair| Losses::new(parts.iter().map(|&(s, q, t)| (pair(s, q), t)).collect());
        let mut candidates = vec![all(&|s, q| Pair::replace(1.0 / s, q))];
        if pure {
            candidates.push(all(&|s, q| Pair::remove(2.0 / s, q)));
            candidates.push(all(&|s, q| Pair::add(2.0 / s, q)));
        }
        candidates.iter().filter_map(|c| c.epsilon(delta.get(), 10.0 * GAP)).map(|i| 0.97 * i.lower).fold(0.0, f64::max)
    }
}

impl Engine {
    fn new(relation: Neighbours, phases: &[Phase]) -> Self {
        let replace = relation == Neighbours::ReplaceOne;
        let factor = if replace { 2.0 } else { 1.0 };
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        let (mut exact, mut unamplified) = (Gdp::default(), Some(Gdp::default()));
        let (mut sampled, mut other, mut rho, mut basic) = (false, false, 0.0, (0.0, 0.0));
        let mut curve = Curve::default();
        let mut all_curves = true;
        for phase in phases {
            #[allow(clippy::cast_precision_loss, reason = "rounded up where it matters")]
            let times = phase.steps as f64;
            match (phase.mechanism, phase.sampling) {
                (Mechanism::Gaussian { sigma }, Sampling::None | Sampling::ShuffledPasses(_)) => {
                    let step = Gdp::of_ratio(up(factor / sigma)).repeated(phase.steps);
                    exact = exact.and(step);
                    unamplified = unamplified.map(|u| u.and(step));
                    curve.add(&Curve::gaussian(up(factor / sigma)), phase.steps);
                }
                (Mechanism::Gaussian { sigma }, Sampling::Poisson(q)) => {
                    sampled = true;
                    unamplified = unamplified.map(|u| u.and(Gdp::of_ratio(up(factor / sigma)).repeated(phase.steps)));
                    if replace {
                        forward.push((Pair::replace(1.0 / sigma, q), phase.steps));
                    } else {
                        forward.push((Pair::remove(1.0 / sigma, q), phase.steps));
                        backward.push((Pair::add(1.0 / sigma, q), phase.steps));
                    }
                    match rate_above(q) {
                        Some(rate) if replace => curve.add(&Curve::poisson_replace(up(1.0 / sigma), rate), phase.steps),
                        Some(rate) => curve.add(&Curve::poisson_add_remove(up(1.0 / sigma), rate), phase.steps),
                        None => all_curves = false,
                    }
                }
                (Mechanism::Gaussian { sigma }, Sampling::WithoutReplacement(q)) => {
                    sampled = true;
                    unamplified = unamplified.map(|u| u.and(Gdp::of_ratio(up(2.0 / sigma)).repeated(phase.steps)));
                    if replace {
                        forward.push((Pair::symmetrised(2.0 / sigma, q), phase.steps));
                        curve.add(&Curve::gaussian(up(2.0 / sigma)), phase.steps);
                    } else {
                        forward.push((Pair::remove(2.0 / sigma, q), phase.steps));
                        backward.push((Pair::add(2.0 / sigma, q), phase.steps));
                        match rate_above(q) {
                            Some(rate) => curve.add(&Curve::poisson_add_remove(up(2.0 / sigma), rate), phase.steps),
                            None => all_curves = false,
                        }
                    }
                }
                (Mechanism::DiscreteGaussian { scale, sensitivity }, _) => {
                    other = true;
                    let shift = if replace { 2 * sensitivity } else { sensitivity };
                    let pair = Pair::discrete_gaussian(scale, shift);
                    forward.push((pair.clone(), phase.steps));
                    backward.push((pair, phase.steps));
                    unamplified = None;
                    #[allow(clippy::cast_precision_loss, reason = "rounded up")]
                    curve.add(&Curve::gaussian(up(shift as f64 / scale)), phase.steps);
                }
                (Mechanism::Laplace { scale }, _) => {
                    other = true;
                    let epsilon = factor / scale;
                    forward.push((Pair::laplace(epsilon), phase.steps));
                    backward.push((Pair::laplace(epsilon), phase.steps));
                    unamplified = None;
                    // Pure ε-DP is ε²/2-zCDP (Bun & Steinke 2016).
                    curve.add(&Curve::gaussian(up(epsilon)), phase.steps);
                    basic.0 += times * up(epsilon);
                }
                (Mechanism::Zcdp { rho: one }, _) => {
                    other = true;
                    rho += up(one) * times;
                    unamplified = None;
                }
                (Mechanism::Approximate { epsilon, delta }, _) => {
                    other = true;
                    forward.push((Pair::approximate(epsilon, delta), phase.steps));
                    backward.push((Pair::approximate(epsilon, delta), phase.steps));
                    unamplified = None;
                    all_curves = false;
                    basic = (basic.0 + up(epsilon) * times, basic.1 + up(delta) * times);
                }
            }
        }
        let gaussian = (!sampled && !other).then_some(exact);
        if exact.mu_squared() > 0.0 {
            // All unsampled Gaussians together are one Gaussian.
            forward.push((Pair::gaussian(exact.mu()), 1));
            if !backward.is_empty() {
                backward.push((Pair::gaussian(exact.mu()), 1));
            }
        }
        let mut directions = Vec::new();
        if !backward.is_empty() && backward != forward {
            directions.push(Losses::new(backward));
        }
        if !forward.is_empty() {
            directions.insert(0, Losses::new(forward));
        }
        Self { directions, gaussian, unamplified, curve: all_curves.then_some(curve), rho, basic }
    }

    /// Valid upper bound by every other means.
    fn fallback(&self, delta: Delta) -> f64 {
        let mut upper = f64::INFINITY;
        if let Some(gdp) = self.unamplified {
            upper = gdp.epsilon_upper(delta).get();
        }
        if let Some(mut curve) = self.curve.clone() {
            if self.rho > 0.0 {
                curve.add(&Curve::gaussian(up((2.0 * self.rho).sqrt())), 1);
            }
            upper = upper.min(curve.epsilon_upper(delta).get());
        } else if self.basic.1 < delta.get() && self.rho <= 0.0 && self.unamplified.is_none() && self.directions.len() == 1 {
            upper = upper.min(if self.only_boxes() { self.basic.0 } else { f64::INFINITY });
        }
        upper
    }

    /// Whether everything is in `basic`.
    fn only_boxes(&self) -> bool {
        self.gaussian.is_none() && self.directions.iter().all(Losses::only_atoms)
    }

    fn epsilon(&self, delta: Delta, gap: f64) -> Interval {
        if self.rho > 0.0 {
            let lower = self.composed(delta, gap).map_or(0.0, |i| i.lower);
            let upper = self.fallback(delta);
            return Interval::bounded(lower, upper, upper);
        }
        if let Some(gdp) = self.gaussian {
            let upper = gdp.epsilon_upper(delta).get();
            let lower = upper * (1.0 - 2e-12) - 2e-15;
            return Interval::bounded(lower.max(0.0), upper, upper);
        }
        let fallback = self.fallback(delta);
        if self.directions.iter().all(|d| d.steps_vary_less_than(delta.get())) {
            return Interval::exact(0.0);
        }
        match self.composed(delta, gap) {
            Some(i) => Interval::bounded(i.lower.min(fallback), i.estimate, i.upper.min(fallback)),
            None => {
                let basic = self.directions.iter().map(|d| d.basic_upper(delta.get())).fold(0.0, f64::max);
                let fallback = fallback.min(basic);
                // At least one step ran: post-processing of the composition.
                let lower = self.directions.iter().map(|d| d.one_step_lower(delta.get())).fold(0.0, f64::max).min(fallback);
                Interval::bounded(lower, self.rough(delta).unwrap_or(fallback), fallback)
            }
        }
    }

    /// Estimate of the contour where there is one.
    fn rough(&self, delta: Delta) -> Option<f64> {
        self.directions.iter().filter_map(|d| d.estimate_epsilon(delta.get())).reduce(f64::max)
    }

    /// The worse of both directions; the one that cannot win is certified only as far as to show that.
    fn composed(&self, delta: Delta, gap: f64) -> Option<Interval> {
        let [first, rest @ ..] = self.directions.as_slice() else { return None };
        let first = first.epsilon(delta.get(), gap)?;
        rest.iter().try_fold(first, |worst, direction| {
            if let Some(estimate) = direction.estimate_epsilon(delta.get())
                && estimate < worst.lower * 0.98 - 1e-3
                && let Some(upper) = direction.epsilon_upper(delta.get(), 0.3 * (worst.lower - estimate))
                && upper <= worst.upper
            {
                return Some(worst);
            }
            Some(worst.max(direction.epsilon(delta.get(), gap)?))
        })
    }

    fn epsilon_upper(&self, delta: Delta, gap: f64) -> f64 {
        if self.rho > 0.0 || self.gaussian.is_some() {
            return self.epsilon(delta, gap).upper;
        }
        let fallback = self.fallback(delta);
        let Some(first) = self.directions.first() else { return fallback };
        let aim = |d: &Losses| gap * d.estimate_epsilon(delta.get()).unwrap_or(1.0).max(0.01);
        let Some(mut worst) = first.epsilon_upper(delta.get(), aim(first)) else { return fallback };
        for direction in &self.directions[1..] {
            let room = direction.estimate_epsilon(delta.get()).map_or(0.0, |e| 0.3 * (worst - e));
            match direction.epsilon_upper(delta.get(), room.max(aim(direction))) {
                Some(upper) if upper <= worst => {}
                _ => match direction.epsilon_upper(delta.get(), aim(direction)) {
                    Some(upper) => worst = worst.max(upper),
                    None => return fallback,
                },
            }
        }
        worst.min(fallback)
    }

    fn estimate(&self, delta: Delta) -> f64 {
        if self.rho > 0.0 || self.gaussian.is_some() {
            return self.epsilon(delta, GAP).estimate;
        }
        let all: Option<Vec<f64>> = self.directions.iter().map(|d| d.estimate_epsilon(delta.get())).collect();
        all.and_then(|all| all.into_iter().reduce(f64::max)).unwrap_or_else(|| self.epsilon(delta, GAP).estimate)
    }

    fn delta(&self, epsilon: f64) -> Interval {
        if let Some(gdp) = self.gaussian {
            let value = Epsilon::new(epsilon).map_or(1.0, |e| gdp.delta(e));
            return Interval::bounded(value * (1.0 - 1e-11), value, (value * (1.0 + 1e-11)).min(1.0));
        }
        let all: Option<Vec<_>> = self.directions.iter().map(|d| d.delta(epsilon, GAP)).collect();
        let composed = all.and_then(|all| all.into_iter().reduce(Interval::max));
        let mut cap = self.unamplified.and_then(|gdp| Some(gdp.delta(Epsilon::new(epsilon).ok()?) * (1.0 + 1e-11))).unwrap_or(1.0).min(1.0);
        if self.rho > 0.0 {
            // Invert the conversion: the smallest δ whose ε is at most this one.
            let lower = composed.map_or(0.0, |c| c.lower);
            let (mut low, mut high) = (-700.0f64, 0.0f64);
            for _ in 0..80 {
                let middle = 0.5 * (low + high);
                let enough = Delta::new(middle.exp()).is_ok_and(|d| self.fallback(d) <= epsilon);
                if enough { high = middle } else { low = middle }
            }
            cap = high.exp().min(1.0);
            return Interval::bounded(lower, cap, cap);
        }
        composed.map_or(Interval::bounded(0.0, cap, cap), |i| Interval::bounded(i.lower.min(cap), i.estimate, i.upper.min(cap)))
    }
}

/// The smallest integer rate over 2³² that is at least q.
fn rate_above(q: f64) -> Option<SamplingRate> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 < q <= 1")]
    let numerator = (q * 4_294_967_296.0).ceil() as u64;
    SamplingRate::from_numerator(numerator.clamp(1, SamplingRate::DENOMINATOR)).ok()
}

/// ε(δ) of ρ-zCDP by the optimal conversion.
///
/// # Errors
/// ρ is not a finite number at least 0.
pub fn zcdp_epsilon(rho: f64, delta: Delta) -> Result<f64, AccountantError> {
    within(rho.is_finite() && rho >= 0.0, "a rho that is not a finite number at least 0")?;
    Ok(Zcdp::of_ratio((2.0 * rho).sqrt()).epsilon_upper(delta).get())
}

/// A budget that is fixed while parameters may depend on outputs: an ε, at a δ, that all admitted events together never exceed.
///
/// # Privacy
/// μ² (unsampled Gaussians) and Rényi divergences at fixed orders are fully adaptive filters; see [`crate::accountant`] for the exact
/// statement. The ledger applies this very filter to its rows.
#[derive(Debug, Clone)]
pub struct Filter {
    budget: (Epsilon, Delta),
    prices: super::Prices,
    spent: Composition,
}

impl Filter {
    /// A filter with nothing spent.
    #[must_use]
    pub fn new(relation: crate::adjacency::Relation, epsilon: Epsilon, delta: Delta) -> Self {
        Self { budget: (epsilon, delta), prices: super::Prices::new(relation), spent: Composition::default() }
    }

    /// Admits the event if the budget still holds with it; says whether it did.
    ///
    /// # Errors
    /// No proved bound for the event.
    pub fn admit(&mut self, event: &DpEvent) -> Result<bool, AccountantError> {
        let charge = self.prices.learn(event)?;
        let mut with = self.spent.clone();
        with.add(&charge, 1);
        let fits = with.loss(self.budget.1).epsilon <= self.budget.0;
        if fits {
            self.spent = with;
        }
        Ok(fits)
    }

    /// What was admitted so far costs at most this. Inside a run it is a bound only for the whole budget: see [`Odometer`].
    #[must_use]
    pub fn spent(&self) -> PrivacyLoss {
        self.spent.loss(self.budget.1)
    }
}

/// A running ε that holds at every moment at once, whatever the parameters depend on.
///
/// Filters with budgets 2^k·`unit` run side by side; the reading is the smallest budget that was never exceeded, and the k-th of them uses
/// δ·6/(π²k²), so that all of them hold together (Rogers, Roth, Ullman & Vadhan 2016).
#[derive(Debug, Clone)]
pub struct Odometer {
    unit: Epsilon,
    delta: Delta,
    prices: super::Prices,
    spent: Composition,
}

impl Odometer {
    /// Readings are `unit`·2^k.
    #[must_use]
    pub fn new(relation: crate::adjacency::Relation, unit: Epsilon, delta: Delta) -> Self {
        Self { unit, delta, prices: super::Prices::new(relation), spent: Composition::default() }
    }

    /// Books an event.
    ///
    /// # Errors
    /// No proved bound for the event.
    pub fn book(&mut self, event: &DpEvent) -> Result<(), AccountantError> {
        let charge = self.prices.learn(event)?;
        self.spent.add(&charge, 1);
        Ok(())
    }

    /// The reading: valid simultaneously for all times with probability of failure δ.
    #[must_use]
    pub fn reading(&self) -> Epsilon {
        let mut budget = self.unit.get();
        for k in 1..200u32 {
            let share = 6.0 / (std::f64::consts::PI * f64::from(k)).powi(2);
            let holds = Delta::new(self.delta.get() * share).is_ok_and(|delta| self.spent.loss(delta).epsilon.get() <= budget);
            if holds {
                return Epsilon::new(budget).unwrap_or(Epsilon::INFINITE);
            }
            budget *= 2.0;
        }
        Epsilon::INFINITE
    }
}

/// For comparison only: basic and advanced composition of (ε, δ) steps (Kairouz, Oh & Viswanath 2015, Theorem 3.4).
#[must_use]
pub fn classical_composition(epsilon: f64, delta: f64, steps: u64, slack: f64) -> BTreeMap<&'static str, (f64, f64)> {
    #[allow(clippy::cast_precision_loss, reason = "a comparison")]
    let k = steps as f64;
    let centre = k * epsilon * (0.5 * epsilon).tanh();
    let spread = epsilon * (2.0 * k).sqrt();
    let first = centre + spread * (std::f64::consts::E + epsilon * k.sqrt() / slack).ln().sqrt();
    let second = centre + spread * (1.0 / slack).ln().sqrt();
    let total = 1.0 - (1.0 - slack) * (k * (-delta).ln_1p()).exp();
    BTreeMap::from([("basic", (k * epsilon, (k * delta).min(1.0))), ("strong", ((k * epsilon).min(first).min(second), total.min(1.0)))])
}
