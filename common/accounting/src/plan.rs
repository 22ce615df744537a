//! A plan: steps whose parameters are all fixed beforehand, accounted by their privacy loss distributions.
//!
//! What a plan may be used for, and what not: see [`Plan`], [`Filter`](super::Filter) and [`Odometer`](super::Odometer).

use std::cell::{OnceCell, RefCell};

use serde::{Deserialize, Serialize};

use super::engine::{Engine, Grown, Rough};
use super::pld::{Composition as Losses, GAP, Hints, Interval, Pair};
use super::{AccountantError, rdp};
use crate::steps::{Mechanism, Neighbours, Phase, Sampling};
use crate::unit::{Delta, Epsilon};

/// Steps of one kind at most: all of their numbers are exact in floating point.
const MOST_STEPS: u64 = 1 << 53;

/// First byte of a plan's canonical bytes.
const VERSION: u8 = 1;

/// Steps whose parameters do not depend on any output; the outputs themselves may depend on each other in any way.
///
/// The phases are kept as a multiset: their order and how a count is split do not matter, to the last bit.
///
/// # Readings while it grows
/// A reading after [`Plan::append`] goes on from the one before: it costs the transform of the new steps and a sum over some hundred
/// frequencies, however many phases there are (where that no longer gives a narrow interval, all transforms are made anew). Its bounds are as
/// certified as those of a plan that is read once; their digits beyond what is aimed at may differ from them. A clone forgets, and reads as
/// a new plan does.
///
/// # Privacy
/// Proofs: [`crate::proofs::poisson_replace`], [`crate::proofs::transforms`], and the table of [`crate::pld`].
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

/// What answers, and what an earlier answer left for it.
#[derive(Debug, Default)]
struct Compiled {
    engine: OnceCell<Engine>,
    grown: RefCell<Option<Grown>>,
    points: OnceCell<Option<Vec<(f64, f64)>>>,
}

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
        if phase.passes().is_none_or(|steps| steps > MOST_STEPS) {
            return Err(AccountantError::Unsupported("more than 2^53 steps"));
        }
        if phase.steps == 0 {
            // Nothing runs, and nothing is lost.
            return Ok(());
        }
        let phase = phase.canonical(self.relation);
        let key = phase.key();
        match self.phases.binary_search_by_key(&key, Phase::key) {
            Ok(k) => {
                let steps = self.phases[k].steps.checked_add(phase.steps).filter(|steps| *steps <= MOST_STEPS);
                self.phases[k].steps = steps.ok_or(AccountantError::Unsupported("more than 2^53 steps"))?;
            }
            Err(k) => self.phases.insert(k, phase),
        }
        self.compiled.points.take();
        let left = self.compiled.engine.take().map(Engine::into_grown).or_else(|| self.compiled.grown.take());
        if let Some(mut grown) = left {
            grown.append(self.relation, &phase);
            self.compiled.grown.replace(Some(grown));
        }
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
        self.compiled.engine.get_or_init(|| {
            let engine = Engine::new(self.relation, &self.phases);
            match self.compiled.grown.take() {
                Some(grown) => engine.with(grown),
                None => engine,
            }
        })
    }

    /// ε(δ) with certified bounds. Every question has its own grid: lower bounds at neighbouring δ may miss being monotone by 2e-5 of themselves.
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

    /// δ(ε) with certified bounds; the upper one is at least 1e-300 where a loss above ε is possible.
    #[must_use]
    pub fn delta(&self, epsilon: Epsilon) -> Interval {
        self.engine().delta(epsilon.get())
    }

    /// How a certificate of about this δ may be checked, with so much to lose in ε.
    pub(super) fn hints(&self, epsilon: f64, delta: Delta, slack: f64) -> Option<Vec<Hints>> {
        self.engine().hints(epsilon, delta, slack)
    }

    /// Certified upper bounds on δ at these ε, which rise from 0.
    pub(super) fn uppers(&self, epsilons: &[f64], gap: f64) -> Option<Vec<f64>> {
        self.engine().uppers(epsilons, gap)
    }

    /// Points (ε, upper bound of δ) for a plan for which no estimate of δ(ε) is quick, made once; `epsilons` says where they may be.
    pub(super) fn points(&self, epsilons: impl FnOnce() -> Vec<f64>) -> Option<&[(f64, f64)]> {
        let make = || {
            let epsilons = epsilons();
            if let Some(rows) = self.engine().rare_table(&epsilons) {
                return Some(rows);
            }
            let uppers = self.engine().slow_uppers(&epsilons)?;
            Some(epsilons.into_iter().zip(uppers).collect())
        };
        self.compiled.points.get_or_init(make).as_deref()
    }

    /// Steps of this plan that are not in `start`; `None` where `start` has other ones.
    #[must_use]
    pub fn beyond(&self, start: &Self) -> Option<Vec<Phase>> {
        let mut rest = self.phases.clone();
        for phase in &start.phases {
            let at = rest.binary_search_by_key(&phase.key(), Phase::key).ok()?;
            let own = &mut rest[at];
            own.steps = own.steps.checked_sub(phase.steps)?;
        }
        rest.retain(|phase| phase.steps > 0);
        (self.relation == start.relation).then_some(rest)
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
    /// bound of the remove and add pairs and of the replace pair, less half a per cent (it must stay below every other engine's value of the same
    /// pairs); elsewhere the certified lower bound. What lies between it and [`Plan::epsilon`]: [`crate::proofs::fixed_batches`].
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
        candidates.iter().filter_map(|c| c.epsilon(delta.get(), 10.0 * GAP)).map(|i| 0.995 * i.lower).fold(0.0, f64::max)
    }
}
