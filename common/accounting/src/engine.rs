//! What answers questions about a plan: pairs of distributions in every direction, and every other bound that is known.

mod boxes;
mod deep;
mod sandwich;
mod table;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use boxes::Boxes;
use sandwich::Shape;

use super::Gdp;
use super::pld::allocation::{self, Side};
use super::pld::{Composition as Losses, Effort, GAP, Hints, Interval, Pair, Running, SMALL};
use super::rdp::Curve;
use super::steps::{Mechanism, Neighbours, Phase, Sampling};
use crate::unit::{Delta, Epsilon};

/// What answers questions about a plan.
#[derive(Debug)]
pub(super) struct Engine {
    relation: Neighbours,
    phases: Vec<Phase>,
    /// One for each direction that has to be composed on its own.
    directions: Vec<Losses>,
    /// Products of their transforms, from the last reading.
    grown: RefCell<Grown>,
    /// Every step is an unsampled Gaussian: μ² in closed form, and it is everything.
    gaussian: Option<Gdp>,
    /// Valid for everything: μ² without any amplification, where every step is a Gaussian.
    unamplified: Option<Gdp>,
    /// Rényi bound for everything but `rho` and `failure`, for when the numbers are out of reach; made when it is asked for.
    curve: OnceCell<Curve>,
    /// Upper bounds on δ at rising ε, and up to which they are narrow: for the tail, made when that is asked for.
    known: OnceCell<(Vec<(f64, f64)>, f64)>,
    /// zCDP black boxes.
    rho: f64,
    /// Σδ of (ε, δ) black boxes.
    failure: f64,
    /// The probability that any of them fails, in which nothing is protected.
    infinite: f64,
    /// The largest finite loss: Σε where every step is a black box or Laplace noise, else ∞.
    largest: f64,
    /// From which side the pairs of random allocations bound the true ones. All other pairs are the true ones.
    side: Side,
    /// The same plan with such pairs from below, for lower bounds; made when one is asked for.
    below: OnceCell<Option<Box<Engine>>>,
    /// The same plan seen through one batch of every random allocation: lower bounds where tables of losses say little.
    one_batch: OnceCell<Option<Box<Engine>>>,
    /// The plan as a random number of Gaussians.
    shape: OnceCell<Shape>,
    /// The plan as black boxes alone.
    boxes: OnceCell<Option<Boxes>>,
    /// ε at powers of ten.
    decades: RefCell<BTreeMap<i32, Interval>>,
}

/// A sum of products that knows how its roundings ended.
#[derive(Debug, Default)]
struct Sum {
    sum: f64,
    rest: f64,
}

impl Sum {
    fn add(&mut self, times: f64, one: f64) {
        let product = times * one;
        let sum = self.sum + product;
        let (large, small) = if self.sum.abs() >= product.abs() { (self.sum, product) } else { (product, self.sum) };
        // Both roundings as they are: of the product and of the sum.
        self.rest += times.mul_add(one, -product) + ((large - sum) + small);
        self.sum = sum;
    }

    fn value(&self) -> f64 {
        if self.sum.is_finite() { self.sum + self.rest } else { self.sum }
    }

    /// The sum itself where it is a number, else the next number.
    fn rounded_up(&self) -> f64 {
        if !self.sum.is_finite() || self.rest == 0.0 { self.sum } else { (self.sum + self.rest).next_up() }
    }
}

/// What readings leave for the next one, when steps were added.
#[derive(Debug, Default)]
pub(super) struct Grown([Slot; 3]);

/// A product, and the steps that are not yet in it.
#[derive(Debug, Default)]
struct Slot {
    running: Option<Running>,
    pending: Vec<(Pair, u64)>,
}

/// Which direction a slot is for, and how well.
const SLOTS: [(usize, Effort); 3] = [(0, Effort::Interval), (1, Effort::Interval), (1, Effort::Rough)];

impl Grown {
    /// Notes steps that were added.
    pub(super) fn append(&mut self, relation: Neighbours, phase: &Phase) {
        let both = match (pairs(phase, relation == Neighbours::ReplaceOne, Side::Above), phase.mechanism) {
            (Some((first, other)), _) => Some((first.clone(), other.unwrap_or(first))),
            (None, Mechanism::Gaussian { sigma }) => {
                let factor = if relation == Neighbours::ReplaceOne { 2.0 } else { 1.0 };
                let pair = Pair::gaussian(up(factor / sigma));
                Some((pair.clone(), pair))
            }
            // A ρ has no pair, and nothing is read from products any more.
            (None, _) => None,
        };
        for (slot, (direction, _)) in self.0.iter_mut().zip(SLOTS) {
            match &both {
                // Without a product the next reading begins from the whole plan.
                Some((first, other)) if slot.running.is_some() && slot.pending.len() < MOST_PENDING => {
                    slot.pending.push((if direction == 0 { first.clone() } else { other.clone() }, phase.steps));
                }
                _ => *slot = Slot::default(),
            }
        }
    }
}

/// More added steps than this are not kept: the next reading begins from the whole plan.
const MOST_PENDING: usize = 4096;

/// Rounds a ratio up.
fn up(x: f64) -> f64 {
    x * (1.0 + 2.0 * f64::EPSILON)
}

#[allow(clippy::cast_precision_loss, reason = "a relative error of 1e-16, rounded up where it matters")]
fn count(steps: u64) -> f64 {
    steps as f64
}

/// The pair of one step, and that of the other direction where it is another one.
fn pairs(phase: &Phase, replace: bool, side: Side) -> Option<(Pair, Option<Pair>)> {
    let factor = if replace { 2.0 } else { 1.0 };
    match (phase.mechanism, phase.sampling) {
        // All unsampled Gaussians together are one Gaussian; a ρ has no pair.
        (Mechanism::Gaussian { .. }, Sampling::None | Sampling::ShuffledPasses(_)) | (Mechanism::Zcdp { .. }, _) => None,
        (Mechanism::Gaussian { sigma }, Sampling::Poisson(q)) if replace => Some((Pair::replace(1.0 / sigma, q), None)),
        (Mechanism::Gaussian { sigma }, Sampling::Poisson(q)) => Some((Pair::remove(1.0 / sigma, q), Some(Pair::add(1.0 / sigma, q)))),
        (Mechanism::Gaussian { sigma }, Sampling::WithoutReplacement(q)) if replace => Some((Pair::symmetrised(2.0 / sigma, q), None)),
        (Mechanism::Gaussian { sigma }, Sampling::WithoutReplacement(q)) => {
            Some((Pair::remove(2.0 / sigma, q), Some(Pair::add(2.0 / sigma, q))))
        }
        (Mechanism::Gaussian { sigma }, Sampling::RandomAllocation(batches)) if replace => {
            Some((allocation::replaced(1.0 / sigma, batches, side), None))
        }
        (Mechanism::Gaussian { sigma }, Sampling::RandomAllocation(batches)) => {
            let (remove, add) = allocation::pairs(1.0 / sigma, batches, side);
            Some((remove, Some(add)))
        }
        (Mechanism::DiscreteGaussian { scale, sensitivity }, _) => {
            Some((Pair::discrete_gaussian(scale, if replace { 2 * sensitivity } else { sensitivity }), None))
        }
        (Mechanism::Laplace { scale }, _) => Some((Pair::laplace(factor / scale), None)),
        (Mechanism::Approximate { epsilon, delta }, _) => Some((Pair::approximate(epsilon, delta), None)),
    }
}

/// Rényi bound of one step; none for a ρ, and for the δ of a black box.
fn curve_of(phase: &Phase, replace: bool) -> Curve {
    let factor = if replace { 2.0 } else { 1.0 };
    match (phase.mechanism, phase.sampling) {
        // Amplification by random allocation has no proved Rényi bound here: an epoch is one release.
        (Mechanism::Gaussian { sigma }, Sampling::None | Sampling::ShuffledPasses(_) | Sampling::RandomAllocation(_)) => {
            Curve::gaussian(up(factor / sigma))
        }
        (Mechanism::Gaussian { sigma }, Sampling::Poisson(q)) if replace => Curve::replace_at(up(1.0 / sigma), q),
        (Mechanism::Gaussian { sigma }, Sampling::Poisson(q)) => Curve::add_remove_at(up(1.0 / sigma), q),
        (Mechanism::Gaussian { sigma }, Sampling::WithoutReplacement(_)) if replace => Curve::gaussian(up(2.0 / sigma)),
        (Mechanism::Gaussian { sigma }, Sampling::WithoutReplacement(q)) => Curve::add_remove_at(up(2.0 / sigma), q),
        (Mechanism::DiscreteGaussian { scale, sensitivity }, _) => {
            let shift = if replace { 2 * sensitivity } else { sensitivity };
            Curve::gaussian(up(count(shift) / scale))
        }
        (Mechanism::Laplace { scale }, _) => Curve::laplace(up(factor / scale)),
        (Mechanism::Approximate { epsilon, .. }, _) => Curve::pure(up(epsilon)),
        (Mechanism::Zcdp { .. }, _) => Curve::default(),
    }
}

impl Engine {
    /// Goes on from what the readings of fewer steps left.
    pub(super) fn with(self, grown: Grown) -> Self {
        self.grown.replace(grown);
        self
    }

    /// What the readings left.
    pub(super) fn into_grown(self) -> Grown {
        self.grown.into_inner()
    }

    pub(super) fn new(relation: Neighbours, phases: &[Phase]) -> Self {
        Self::from_side(relation, phases, Side::Above)
    }

    fn from_side(relation: Neighbours, phases: &[Phase], side: Side) -> Self {
        let replace = relation == Neighbours::ReplaceOne;
        let (mut exact, mut unamplified) = (Gdp::default(), Some(Gdp::default()));
        let (mut only_gaussian, mut rho, mut failure) = (true, 0.0, 0.0);
        let (mut log_finite, mut largest) = (Sum::default(), Sum::default());
        let mut parts = Vec::new();
        for phase in phases {
            let times = count(phase.steps);
            if let Some(pair) = pairs(phase, replace, side) {
                only_gaussian = false;
                parts.push((pair, phase.steps));
            }
            let mut pure = None;
            let mut gaussian = None;
            match (phase.mechanism, phase.sampling) {
                (Mechanism::Gaussian { sigma }, sampling) => {
                    let fixed = matches!(sampling, Sampling::WithoutReplacement(_));
                    // A fixed batch that gains or loses a unit exchanges it for another one.
                    let factor = if replace || fixed { 2.0 } else { 1.0 };
                    let step = Gdp::of_ratio(up(factor / sigma)).repeated(phase.steps);
                    gaussian = Some(step);
                    if matches!(sampling, Sampling::None | Sampling::ShuffledPasses(_)) {
                        exact = exact.and(step);
                    }
                }
                (Mechanism::Laplace { scale }, _) => {
                    let factor: f64 = if replace { 2.0 } else { 1.0 };
                    let ratio = factor / scale;
                    pure = Some(if ratio.mul_add(scale, -factor) == 0.0 { ratio } else { ratio.next_up() });
                }
                (Mechanism::Approximate { epsilon, delta }, _) => {
                    pure = Some(epsilon);
                    failure += up(delta) * times;
                    log_finite.add(times, (-delta).ln_1p());
                }
                (Mechanism::Zcdp { rho: one }, _) => {
                    only_gaussian = false;
                    rho += up(one) * times;
                }
                (Mechanism::DiscreteGaussian { .. }, _) => {}
            }
            unamplified = unamplified.zip(gaussian).map(|(u, g)| u.and(g));
            largest.add(times, pure.unwrap_or(f64::INFINITY));
        }
        if exact.mu_squared() > 0.0 {
            parts.push(((Pair::gaussian(exact.mu()), None), 1));
        }
        let mut directions = Vec::new();
        if !parts.is_empty() {
            directions.push(Losses::new(parts.iter().map(|((pair, _), steps)| (pair.clone(), *steps)).collect()));
        }
        if parts.iter().any(|((_, other), _)| other.is_some()) {
            directions.push(Losses::new(parts.into_iter().map(|((pair, other), steps)| (other.unwrap_or(pair), steps)).collect()));
        }
        Self {
            relation,
            phases: phases.to_vec(),
            directions,
            grown: RefCell::default(),
            gaussian: only_gaussian.then_some(exact),
            unamplified,
            curve: OnceCell::new(),
            known: OnceCell::new(),
            rho,
            failure,
            infinite: -log_finite.value().exp_m1(),
            largest: largest.rounded_up(),
            side,
            below: OnceCell::new(),
            one_batch: OnceCell::new(),
            shape: OnceCell::new(),
            boxes: OnceCell::new(),
            decades: RefCell::default(),
        }
    }

    /// For a certificate, one for each direction: all by the tilt of the first. `None`: too many points, or no pair for a step.
    pub(super) fn hints(&self, epsilon: f64, delta: Delta, slack: f64) -> Option<Vec<Hints>> {
        let tilt = self.directions.first().filter(|_| self.rho <= 0.0)?.tilt(delta.get())?;
        let near = |factor: f64| Delta::new(delta.get() * factor).map_or(0.0, |near| self.estimate(near));
        let slope = (0.02 / (near(0.99) - near(1.01)).max(1e-9)).max(tilt);
        self.directions.iter().map(|direction| direction.hints((tilt, slope), (epsilon, delta.get()), slack)).collect()
    }

    fn curve(&self) -> &Curve {
        self.curve.get_or_init(|| {
            let replace = self.relation == Neighbours::ReplaceOne;
            let mut curve = Curve::default();
            for phase in &self.phases {
                curve.add(&curve_of(phase, replace), phase.steps);
            }
            if self.rho > 0.0 {
                curve.add(&Curve::gaussian(up((2.0 * self.rho).sqrt())), 1);
            }
            curve
        })
    }

    /// Valid upper bound by every other means.
    fn fallback(&self, delta: Delta) -> f64 {
        let mut upper = self.unamplified.map_or(f64::INFINITY, |gdp| gdp.epsilon_upper(delta).get());
        if let Ok(rest) = Delta::new((delta.get() - self.failure) * (1.0 - 1e-15)) {
            upper = upper.min(self.curve().epsilon_upper(rest).get());
        }
        upper
    }

    /// No ε is enough where δ is below the probability with which nothing is protected. Where δ is just that, only a largest loss is.
    fn is_unprotected(&self, delta: Delta) -> bool {
        let least = if self.largest.is_finite() { 1.0 + READ } else { 1.0 - READ };
        self.infinite > 0.0 && self.infinite > delta.get() * least
    }

    /// At most the largest loss; and ∞ as a bound from both sides where no ε is enough.
    fn finite(&self, delta: Delta, interval: impl FnOnce() -> Interval) -> Interval {
        if self.is_unprotected(delta) {
            return Interval::exact(f64::INFINITY);
        }
        let Interval { lower, estimate, upper } = interval();
        Interval::bounded(lower.min(self.largest), estimate, upper.min(self.largest))
    }

    /// An interval, with the other bounds where they may be better.
    fn with_fallback(&self, interval: Interval, delta: Delta) -> Interval {
        if interval.is_narrow(4.0 * GAP, SMALL) {
            return interval;
        }
        let fallback = self.fallback(delta).min(self.largest);
        Interval::bounded(interval.lower.min(fallback), interval.estimate, interval.upper.min(fallback))
    }

    /// For plans with random allocations: the engine of their lower bounds.
    fn below(&self) -> Option<&Self> {
        let allocated = |phase: &Phase| matches!(phase.sampling, Sampling::RandomAllocation(_));
        let make = || {
            (self.side == Side::Above && self.phases.iter().any(allocated))
                .then(|| Box::new(Self::from_side(self.relation, &self.phases, Side::Below)))
        };
        self.below.get_or_init(make).as_deref()
    }

    /// An upper bound with the lower bound of the same question. Spreading a law over cells adds twice the variance that merging them takes away.
    fn between(interval: Interval, below: Interval) -> Interval {
        let lower = below.lower.min(interval.upper);
        Interval::bounded(lower, (2.0 * lower + interval.upper) / 3.0, interval.upper)
    }

    /// No epoch costs more than one release; but where a table of losses ends its pair may.
    fn capped(&self, interval: Interval, most: impl Fn(Gdp) -> f64) -> Interval {
        let most = self.unamplified.filter(|_| self.directions.iter().any(Losses::has_table)).map_or(f64::INFINITY, most);
        if interval.upper <= most { interval } else { Interval::bounded(interval.lower.min(most), interval.estimate, most) }
    }

    /// Of an epoch one batch alone is a release on a Poisson sample, in both directions: a lower bound that holds however little noise there is, where tables say
    /// nothing. Asked for where the bounds are far from each other.
    fn through_one_batch(&self, interval: Interval, lower: impl Fn(&Self) -> f64) -> Interval {
        if self.below().is_none() {
            return interval;
        }
        let seen = |phase: &Phase| match phase.sampling {
            Sampling::RandomAllocation(batches) => Phase { sampling: Sampling::Poisson((1.0 / count(batches)).next_down()), ..*phase },
            _ => *phase,
        };
        let make = || Some(Box::new(Self::new(self.relation, &self.phases.iter().map(seen).collect::<Vec<_>>())));
        let Some(one) = self.one_batch.get_or_init(make) else { return interval };
        Self::met(interval, Interval { lower: lower(one), estimate: f64::NAN, upper: f64::INFINITY })
    }

    pub(super) fn epsilon(&self, delta: Delta, gap: f64) -> Interval {
        self.finite(delta, || {
            let interval = self.asked(delta, gap);
            // A Gaussian and a ρ have closed forms, which rise as δ falls.
            let close = interval.is_narrow(WIDE, SMALL) || self.gaussian.is_some() || self.rho > 0.0;
            if close || !(1e-300..1e-50).contains(&delta.get()) {
                return interval;
            }
            let Interval { lower, estimate, .. } = interval;
            let upper = self.fallback(delta).min(self.sandwich(delta).upper).min(self.by_smaller(delta));
            Interval::bounded(lower.min(upper), estimate, upper)
        })
    }

    /// ε(δ) from this δ alone.
    fn asked(&self, delta: Delta, gap: f64) -> Interval {
        if let Some(boxes) = self.boxes() {
            return boxes.epsilon(delta);
        }
        if self.has_little_noise() {
            let closed = self.sandwich(delta);
            if closed.is_narrow(2.0 * gap, SMALL) {
                return closed;
            }
        }
        let mut interval = self.capped(self.one_sided(delta, gap), |gdp| gdp.epsilon_upper(delta).get());
        if let Some(below) = self.below() {
            interval = Self::between(interval, below.one_sided(delta, gap));
        }
        if interval.is_narrow(WIDE, SMALL) {
            return interval;
        }
        let interval = self.through_one_batch(interval, |one| one.one_sided(delta, gap).lower);
        Self::met(interval, self.sandwich(delta))
    }

    pub(super) fn delta(&self, epsilon: f64) -> Interval {
        let Interval { lower, estimate, upper } = self.told_delta(epsilon);
        // A number that is too small to be told is above 0 where the loss may be larger than ε.
        let least = if epsilon < self.largest && !self.phases.is_empty() { SMALLEST_DELTA } else { 0.0 };
        Interval::bounded(lower, estimate, upper.max(least))
    }

    fn told_delta(&self, epsilon: f64) -> Interval {
        if let Some(boxes) = self.boxes() {
            return boxes.delta(epsilon);
        }
        let gaussian = |gdp: Gdp| Epsilon::new(epsilon).map_or(1.0, |epsilon| gdp.delta(epsilon) * (1.0 + 1e-11));
        if self.has_little_noise() {
            let closed = self.sandwich_delta(epsilon);
            if closed.is_narrow(CLOSED, 0.0) {
                return closed;
            }
        }
        let mut interval = self.capped(self.one_sided_delta(epsilon), gaussian);
        if let Some(below) = self.below() {
            interval = Self::between(interval, below.one_sided_delta(epsilon));
        }
        if interval.is_narrow(WIDE, 0.0) {
            return interval;
        }
        let interval =
            if narrow(&interval) { interval } else { self.through_one_batch(interval, |one| one.one_sided_delta(epsilon).lower) };
        Self::met(interval, self.sandwich_delta(epsilon))
    }

    fn one_sided(&self, delta: Delta, gap: f64) -> Interval {
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
        if self.directions.iter().all(|d| d.variation() <= delta.get()) {
            return Interval::exact(0.0);
        }
        if let Some(interval) = self.rare(delta, gap).or_else(|| self.grown(delta, gap)) {
            return interval;
        }
        let top = self.directions.iter().map(|d| d.top_lower(delta.get())).fold(0.0, f64::max);
        if let Some(interval) = self.composed(delta, gap) {
            return self.with_fallback(Interval::bounded(interval.lower.max(top), interval.estimate, interval.upper), delta);
        }
        let basic = self.directions.iter().map(|d| d.basic_upper(delta.get())).fold(0.0, f64::max);
        let upper = self.fallback(delta).min(basic);
        // At least one step ran: post-processing of the composition.
        let lower = self.directions.iter().map(|d| d.one_step_lower(delta.get())).fold(top, f64::max).min(upper);
        Interval::bounded(lower, self.rough(delta).unwrap_or(upper), upper)
    }

    /// Estimate of the contour where there is one.
    fn rough(&self, delta: Delta) -> Option<f64> {
        self.directions.iter().filter_map(|d| d.estimate_epsilon(delta.get())).reduce(f64::max)
    }

    /// The worse of both directions of many equal rare steps, each by the number of far outcomes and by whatever else is narrower; `None` for
    /// other plans.
    fn rare(&self, delta: Delta, gap: f64) -> Option<Interval> {
        let mut worst: Option<Interval> = None;
        for direction in &self.directions {
            let most = if direction.infinite() <= 0.0 { direction.largest_loss() } else { f64::INFINITY };
            if worst.is_some_and(|worst| most <= worst.lower) {
                continue;
            }
            let narrow = |i: &Interval| i.is_narrow(RARE, RARE_SMALL) || worst.is_some_and(|worst| i.upper <= worst.lower);
            let mut best = direction.rare_epsilon(delta.get())?;
            best = Interval::bounded(best.lower, best.estimate, best.upper.min(most));
            if !narrow(&best)
                && let Some(other) = direction.epsilon(delta.get(), gap)
            {
                best = Interval::bounded(best.lower.max(other.lower), best.estimate, best.upper.min(other.upper));
            }
            if !narrow(&best) {
                best.upper = best.upper.min(self.fallback(delta)).max(best.lower);
            }
            worst = Some(worst.map_or(best, |worst| worst.max(best)));
        }
        worst.map(|worst| Interval::bounded(worst.lower, worst.estimate, worst.upper))
    }

    /// The worse of both directions by the products of transforms; `None` where they do not say enough.
    fn grown(&self, delta: Delta, gap: f64) -> Option<Interval> {
        if self.directions.iter().any(|direction| direction.is_single() || direction.has_table()) {
            return None;
        }
        let mut grown = self.grown.borrow_mut();
        let mut worst: Option<Interval> = None;
        for (k, direction) in self.directions.iter().enumerate() {
            // Beyond the largest finite loss only infinite ones count.
            if worst.is_some_and(|worst| direction.largest_loss() <= worst.lower && direction.infinite() <= 0.0) {
                continue;
            }
            let mut read = |effort: Effort| {
                let slot = SLOTS.iter().position(|slot| *slot == (k, effort))?;
                let Slot { running, pending } = &mut grown.0[slot];
                direction.running_epsilon(running, &std::mem::take(pending), delta.get(), effort)
            };
            if let Some(worst) = worst
                && read(Effort::Rough).is_some_and(|rough| rough.upper <= worst.lower)
            {
                continue;
            }
            let interval = read(Effort::Interval)?;
            if !interval.is_narrow(2.0 * gap, SMALL) {
                return None;
            }
            worst = Some(worst.map_or(interval, |worst| worst.max(interval)));
        }
        worst
    }

    /// The worse of both directions; the one that cannot win is certified only as far as to show that.
    fn composed(&self, delta: Delta, gap: f64) -> Option<Interval> {
        let [first, rest @ ..] = self.directions.as_slice() else { return None };
        let first = first.epsilon(delta.get(), gap)?;
        rest.iter().try_fold(first, |worst, direction| {
            // Beyond the largest finite loss only infinite ones count.
            if direction.largest_loss() <= worst.lower && direction.infinite() <= 0.0 {
                return Some(worst);
            }
            if let Some(upper) = direction.epsilon_upper(delta.get(), gap, Some(worst.lower))
                && upper <= worst.lower
            {
                return Some(worst);
            }
            Some(worst.max(direction.epsilon(delta.get(), gap)?))
        })
    }

    pub(super) fn epsilon_upper(&self, delta: Delta, gap: f64) -> f64 {
        let upper = || {
            if let Some(boxes) = self.boxes() {
                return boxes.epsilon(delta);
            }
            let upper = self.one_sided_upper(delta, gap);
            let upper = if upper.is_finite() { upper } else { self.fallback(delta) };
            self.capped(Interval::exact(upper), |gdp| gdp.epsilon_upper(delta).get())
        };
        self.finite(delta, upper).upper
    }

    fn one_sided_upper(&self, delta: Delta, gap: f64) -> f64 {
        if self.rho > 0.0 || self.gaussian.is_some() {
            return self.one_sided(delta, gap).upper;
        }
        if self.directions.iter().all(|d| d.variation() <= delta.get()) {
            return 0.0;
        }
        // One kind of step: the upper side alone takes one transform of its grid.
        if let Some(interval) = self.rare(delta, gap) {
            return interval.upper;
        }
        if let Some(interval) = (self.phases.len() > 1).then(|| self.grown(delta, gap)).flatten() {
            return interval.upper;
        }
        let Some(first) = self.directions.first() else { return self.fallback(delta) };
        let Some(mut worst) = first.epsilon_upper(delta.get(), gap, None) else { return self.fallback(delta) };
        for direction in &self.directions[1..] {
            if direction.largest_loss() <= worst && direction.infinite() <= 0.0 {
                continue;
            }
            match direction.epsilon_upper(delta.get(), gap, Some(worst)) {
                Some(upper) if upper <= worst => {}
                _ => match direction.epsilon_upper(delta.get(), gap, None) {
                    Some(upper) => worst = worst.max(upper),
                    None => return self.fallback(delta),
                },
            }
        }
        worst
    }

    /// Whether there are closed forms, or failures for which no contour stands: the interval is as quick as an estimate.
    fn is_closed(&self) -> bool {
        self.rho > 0.0 || self.gaussian.is_some() || self.failure > 0.0 || self.boxes().is_some()
    }

    pub(super) fn estimate(&self, delta: Delta) -> f64 {
        if self.is_closed() || self.below().is_some() || self.has_little_noise() {
            return self.epsilon(delta, GAP).estimate;
        }
        // The contour looks at all phases at every frequency, and at every question anew.
        if self.phases.len() > MANY
            && let Some(interval) = self.grown(delta, GAP)
        {
            return interval.estimate;
        }
        let all: Option<Vec<f64>> = self.directions.iter().map(|d| d.estimate_epsilon(delta.get())).collect();
        all.and_then(|all| all.into_iter().reduce(f64::max)).unwrap_or_else(|| self.epsilon(delta, GAP).estimate)
    }

    /// The estimate where a contour gives it, else the upper bound to about `gap`, which is quicker than a certificate; and which of them it is.
    pub(super) fn rough_or_upper(&self, delta: Delta, gap: f64) -> (f64, Rough) {
        if self.is_closed() {
            return (self.epsilon(delta, GAP).estimate, Rough::Estimate);
        }
        if let Some(interval) = self.rare(delta, GAP) {
            return (interval.upper, Rough::Upper);
        }
        if self.directions.iter().any(Losses::has_table) {
            return (self.epsilon_upper(delta, gap), Rough::Upper);
        }
        let all: Option<Vec<f64>> = self.directions.iter().map(|d| d.estimate_epsilon(delta.get())).collect();
        match all.and_then(|all| all.into_iter().reduce(f64::max)) {
            Some(estimate) => (estimate, Rough::Estimate),
            None => (self.epsilon_upper(delta, gap), Rough::Upper),
        }
    }

    pub(super) fn estimate_of_delta(&self, epsilon: f64) -> f64 {
        if self.gaussian.is_none() && self.rho <= 0.0 && self.boxes().is_none() && !self.has_little_noise() {
            let all: Option<Vec<f64>> = self.directions.iter().map(|d| d.estimate_delta(epsilon)).collect();
            if let Some(value) = all.and_then(|all| all.into_iter().reduce(f64::max)) {
                return value;
            }
        }
        self.delta(epsilon).estimate
    }

    /// Upper bounds on δ at these ε, which rise from 0, of a plan for which no estimate of δ(ε) is quick; `None` for others.
    pub(super) fn slow_uppers(&self, epsilons: &[f64]) -> Option<Vec<f64>> {
        if self.has_little_noise() {
            return Some(epsilons.iter().map(|&epsilon| self.sandwich_delta(epsilon).upper).collect());
        }
        let middle = epsilons.get(epsilons.len() / 2)?;
        let closed = self.gaussian.is_some() || self.boxes().is_some();
        let quick = closed || self.directions.iter().all(|direction| direction.estimate_delta(*middle).is_some());
        if quick { None } else { self.uppers(epsilons, POINTS_GAP) }
    }

    pub(super) fn renyi(&self, order: f64) -> Interval {
        let worst = self.directions.iter().map(|d| d.renyi(order)).reduce(Interval::max).unwrap_or(Interval::exact(0.0));
        // A ρ is an upper bound; what such a step really costs may be nothing.
        let rho = order * self.rho;
        Interval::bounded(worst.lower, worst.estimate + rho, up(worst.upper + rho))
    }

    pub(super) fn renyi_estimate(&self, order: f64) -> f64 {
        self.directions.iter().map(|d| d.renyi_estimate(order)).fold(0.0, f64::max) + order * self.rho
    }

    fn one_sided_delta(&self, epsilon: f64) -> Interval {
        if let Some(gdp) = self.gaussian {
            let value = Epsilon::new(epsilon).map_or(1.0, |e| gdp.delta(e));
            return Interval::bounded(value * (1.0 - 1e-11), value, (value * (1.0 + 1e-11)).min(1.0));
        }
        if self.rho > 0.0 {
            let composed = self.directions_at(epsilon);
            // Invert the conversion: the smallest δ whose ε is at most this one.
            let lower = composed.map_or(0.0, |c| c.lower);
            let (mut low, mut high) = (-700.0f64, 0.0f64);
            for _ in 0..80 {
                let middle = 0.5 * (low + high);
                let enough = Delta::new(middle.exp()).is_ok_and(|d| self.fallback(d) <= epsilon);
                if enough { high = middle } else { low = middle }
            }
            let cap = high.exp().min(1.0);
            return Interval::bounded(lower, cap, cap);
        }
        let composed = self.directions_at(epsilon);
        let close = composed.filter(narrow);
        if let Some(interval) = close
            && (interval.upper > DEEP || self.phases.len() > MANY)
        {
            // What Rényi divergences say is not asked for where it takes long and is above.
            let cap = if self.phases.len() > MANY || interval.upper <= 1.02 * interval.lower { 1.0 } else { self.tail(epsilon) };
            return Interval::bounded(interval.lower.min(cap), interval.estimate.min(cap), interval.upper.min(cap));
        }
        let (known, reach) = self.known.get_or_init(|| self.rungs());
        if let Some(interval) = close
            && epsilon <= *reach
        {
            return interval;
        }
        // No grid reaches so far out for sure. Divergences say what falls with ε; and as δ falls, what is known at smaller ε that do not depend
        // on this one holds here, too: so that the bound falls with ε.
        let unamplified = self.unamplified.and_then(|gdp| Some(gdp.delta(Epsilon::new(epsilon).ok()?) * (1.0 + 1e-11))).unwrap_or(1.0);
        let nearer = known.iter().filter(|(at, _)| *at <= epsilon).map(|(_, upper)| *upper);
        let cap = nearer.fold(unamplified.min(self.tail(epsilon)).min(self.decade_of(epsilon)), f64::min);
        let lower = composed.map_or(0.0, |i| i.lower.min(cap));
        Interval::bounded(lower, cap, cap)
    }

    /// Upper bounds on δ at these ε, which rise from 0, the larger of both directions; made to about `gap` of ε. `None`: not within reach.
    pub(super) fn uppers(&self, epsilons: &[f64], gap: f64) -> Option<Vec<f64>> {
        if self.rho > 0.0 {
            return None;
        }
        if self.gaussian.is_some() || self.boxes().is_some() {
            return Some(epsilons.iter().map(|&epsilon| self.delta(epsilon).upper).collect());
        }
        let all: Option<Vec<_>> = self.directions.iter().map(|direction| direction.uppers(epsilons, gap)).collect();
        all?.into_iter().reduce(|first, second| first.into_iter().zip(second).map(|(a, b)| a.max(b)).collect())
    }

    fn directions_at(&self, epsilon: f64) -> Option<Interval> {
        if self.phases.len() > MANY {
            let mut grown = self.grown.borrow_mut();
            let read = |(k, direction): (usize, &Losses)| {
                let Slot { running, pending } = &mut grown.0[k];
                direction.running_delta(running, &std::mem::take(pending), epsilon)
            };
            let all: Option<Vec<_>> = self.directions.iter().enumerate().map(read).collect();
            let worst = all.and_then(|all| all.into_iter().reduce(Interval::max));
            if worst.is_some_and(|worst| narrow(&worst)) {
                return worst;
            }
        }
        // The grid first: it is quicker here.
        let one = |direction: &Losses| {
            let grid = direction.delta(epsilon, GAP);
            let product = || direction.running_delta(&mut None, &[], epsilon).filter(narrow);
            let close = grid.filter(narrow).or_else(|| direction.rare_delta(epsilon).filter(narrow));
            close.or_else(|| if direction.is_single() || direction.has_table() { None } else { product() }).or(grid)
        };
        let all: Option<Vec<_>> = self.directions.iter().map(one).collect();
        all.and_then(|all| all.into_iter().reduce(Interval::max))
    }

    /// Upper bound on δ(ε) from Rényi divergences: the conversion of [`super::rdp`] solved for δ, at the best order.
    fn tail(&self, epsilon: f64) -> f64 {
        (self.curve().delta_upper(epsilon).max(f64::from_bits(1)) + up(self.failure)).min(1.0)
    }
}

/// What a rough ε is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rough {
    /// As good as numbers go.
    Estimate,
    /// An upper bound with a gap.
    Upper,
}

/// Numbers are read from decimals, each to half a unit in the last place: sums and a δ that differ by less are the same.
const READ: f64 = 4.0 * f64::EPSILON;
/// Bounds that are further apart than this share are looked for in other ways, too.
const WIDE: f64 = 1e-3;
/// Precision of many upper bounds on δ, as a share of ε.
const POINTS_GAP: f64 = 1e-3;
/// Bounds on δ in closed form that are as near as this, which an estimate needs, need no others.
const CLOSED: f64 = 0.02;
/// Width of an interval for rare steps that is good enough, relative to max(ε, `RARE_SMALL`).
const RARE: f64 = 2e-4;
const RARE_SMALL: f64 = 0.01;
/// From so many phases on, questions of every kind are answered by products first.
const MANY: usize = 8;
/// Below this δ loss distributions may say much here and nothing there.
const DEEP: f64 = 1e-12;

/// No upper bound on δ is stated below this number, unless nothing can be lost.
const SMALLEST_DELTA: f64 = 1e-300;

/// Whether a distribution of losses bounded δ within a factor of two.
fn narrow(interval: &Interval) -> bool {
    interval.upper <= 2.0 * interval.lower
}

#[cfg(test)]
mod tests;
