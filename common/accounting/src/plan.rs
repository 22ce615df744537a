//! A plan: steps whose parameters are all fixed beforehand, accounted by their privacy loss distributions.
//!
//! What a plan may be used for, and what not: see [`Plan`], [`Filter`](super::Filter) and [`Odometer`](super::Odometer).

use std::cell::OnceCell;

use serde::{Deserialize, Serialize};

use super::engine::{Engine, Rough};
use super::pld::{Composition as Losses, GAP, Interval, Pair};
use super::{AccountantError, rdp};
use crate::event::DpEvent;
use crate::unit::{Delta, Epsilon};

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
/// Proofs: [`crate::proofs::pair_b`], and the table of [`crate::pld`].
///
/// The ε of a plan holds for *all* its steps together. A schedule whose later parameters are chosen from earlier outputs is not a plan:
/// use [`Filter`](super::Filter). The ε after each round of a plan is not an odometer: use [`Odometer`](super::Odometer).
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

/// Why shuffled batches have no bound under add-remove.
pub(super) const SHUFFLED: &str = "batches of a shuffled data set under add-remove: a unit more or less moves other units into other batches, so that \
     every batch changes, each by up to twice the clipping norm. State them under replace-one, or under zero-out where a removed unit leaves its place empty";

/// A number that must be in a range.
fn within(ok: bool, what: &'static str) -> Result<(), AccountantError> {
    if ok { Ok(()) } else { Err(AccountantError::Range(what)) }
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
    /// Events that have no loss distribution here: lattice noise (accounted by [`crate::accountant`]), shards, and unprotected releases.
    pub fn of(event: &DpEvent) -> Result<Self, AccountantError> {
        use crate::adjacency::Terms::Units;
        const NONE: AccountantError = AccountantError::Unsupported("a plan of lattice noise, of shards, or without protection");
        let (mechanism, steps) = super::repetitions(event)?;
        let released = |event: &DpEvent| match event {
            DpEvent::Gaussian { noise, terms: Units } => Ok(Mechanism::Gaussian { sigma: noise.get() }),
            DpEvent::Laplace { scale, terms: Units } => Ok(Mechanism::Laplace { scale: scale.get() }),
            DpEvent::Zcdp { rho } => Ok(Mechanism::Zcdp { rho: rho.get() }),
            DpEvent::Approximate { epsilon, delta } => {
                Ok(Mechanism::Approximate { epsilon: epsilon.get(), delta: delta.map_or(0.0, Delta::get) })
            }
            _ => Err(NONE),
        };
        let (mechanism, sampling) = match mechanism {
            DpEvent::PoissonSampled { rate, event } => (released(event)?, Sampling::Poisson(rate.get())),
            #[allow(clippy::cast_precision_loss, reason = "a rate")]
            DpEvent::FixedBatch { batch, units, event } => (released(event)?, Sampling::WithoutReplacement(*batch as f64 / *units as f64)),
            DpEvent::ShuffledPass { event } => (released(event)?, Sampling::ShuffledPasses(1.0)),
            other => (released(other)?, Sampling::None),
        };
        Ok(Self { mechanism, sampling, steps })
    }

    fn check(&self, relation: Neighbours) -> Result<(), AccountantError> {
        match self.mechanism {
            Mechanism::Gaussian { sigma } => {
                within(
                    sigma.is_finite() && (1e-3..=1e9).contains(&sigma),
                    "sigma, noise over clipping norm, must lie between 1e-3 and 1e9: with less noise nothing is protected",
                )?;
            }
            Mechanism::DiscreteGaussian { scale, sensitivity } => {
                within(
                    scale.is_finite() && (1e-2..=1e4).contains(&scale),
                    "the parameter of a discrete Gaussian must lie between 0.01 and 1e4 in a plan",
                )?;
                within((1..=1_000_000).contains(&sensitivity), "the integer sensitivity must lie between 1 and 1e6")?;
            }
            Mechanism::Laplace { scale } => {
                within(scale.is_finite() && (1e-2..=1e9).contains(&scale), "the scale of Laplace noise must lie between 1e-2 and 1e9")?
            }
            Mechanism::Zcdp { rho } => within(rho.is_finite() && rho >= 0.0, "rho must be a finite number that is at least 0")?,
            Mechanism::Approximate { epsilon, delta } => {
                within(
                    epsilon.is_finite() && (0.0..=600.0).contains(&epsilon),
                    "the epsilon of a step must lie between 0 and 600 in a plan",
                )?;
                within((0.0..1.0).contains(&delta), "the delta of a step must be at least 0 and below 1")?;
            }
        }
        match (self.sampling, self.mechanism, relation) {
            (Sampling::None, ..) => Ok(()),
            (Sampling::Poisson(q), Mechanism::Gaussian { .. }, _) => {
                within(q > 0.0 && q <= 1.0, "the sampling rate q must be above 0 and at most 1")
            }
            (Sampling::WithoutReplacement(q), Mechanism::Gaussian { .. }, Neighbours::AddRemove | Neighbours::ReplaceOne) => {
                within(q > 0.0 && q <= 1.0, "the sampling rate q must be above 0 and at most 1")
            }
            (Sampling::ShuffledPasses(_), _, Neighbours::AddRemove) => Err(AccountantError::Unsupported(SHUFFLED)),
            (Sampling::ShuffledPasses(passes), _, Neighbours::ZeroOut | Neighbours::ReplaceOne) => {
                within(passes > 0.0 && passes < 9e15, "the number of passes must be above 0")
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
    fn canonical(self, relation: Neighbours) -> Self {
        match self.sampling {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked range")]
            Sampling::ShuffledPasses(passes) => {
                Self { sampling: Sampling::None, steps: self.steps.saturating_mul(passes.ceil() as u64), ..self }
            }
            Sampling::Poisson(q) if q >= 1.0 => Self { sampling: Sampling::None, ..self },
            // A batch of everything; under add-remove the size of the data set would have to be told apart.
            Sampling::WithoutReplacement(q) if q >= 1.0 && relation == Neighbours::ReplaceOne => Self { sampling: Sampling::None, ..self },
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

    /// Adds steps; none at all add nothing.
    ///
    /// # Errors
    /// A number out of range, or a pair of sampling and relation for which no bound is implemented.
    pub fn append(&mut self, phase: Phase) -> Result<(), AccountantError> {
        phase.check(self.relation)?;
        if phase.steps == 0 {
            // Nothing runs, and nothing is lost.
            return Ok(());
        }
        let phase = phase.canonical(self.relation);
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

    /// An estimate, or where there is none a bound with a gap of about `gap`: for searches that certify what they found.
    pub(super) fn epsilon_rough(&self, delta: Delta, gap: f64) -> (f64, Rough) {
        self.engine().rough_or_upper(delta, gap)
    }

    /// δ(ε) with certified bounds.
    #[must_use]
    pub fn delta(&self, epsilon: Epsilon) -> Interval {
        self.engine().delta(epsilon.get())
    }

    pub(super) fn estimate_of_delta(&self, epsilon: f64) -> f64 {
        self.engine().estimate_of_delta(epsilon)
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

    /// Rényi divergence at an order above 1, the larger direction: between bounds whose width is measured (ten times what halving the
    /// panels of the quadrature changes); the upper one is at most the proved bound without sampling.
    #[must_use]
    pub fn renyi(&self, order: f64) -> Interval {
        self.engine().renyi(order)
    }

    /// ε(δ) by Rényi divergences with the optimal conversion, and the order that gives it.
    #[must_use]
    pub fn renyi_epsilon(&self, delta: Delta) -> (f64, f64) {
        let at = |log: f64| {
            let order = 1.0 + log.exp();
            (rdp::to_epsilon(order, self.engine().renyi_estimate(order), delta).max(0.0), order)
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
        // Every order gives a bound: the search may be by estimates.
        (rdp::to_epsilon(best.1, self.renyi(best.1).upper, delta).max(0.0), best.1)
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
