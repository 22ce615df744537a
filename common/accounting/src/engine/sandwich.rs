//! Bounds in closed form from Gaussians whose number is random: near to each other where there is so little noise that other numerics take long.
//!
//! Which steps a unit is in is drawn beforehand and independently of everything else. Given the draw, a composition of Gaussian steps is within a Gaussian.
//!
//! * **From above**: the profile of a mixture is at most the mean of its parts' profiles. With k of T steps drawn with probability b_k each a shift of r,
//!   δ(ε) ≤ Σ_k b_k δ_G(ε; √k·r).
//! * **From below**: each of the N ways to draw k steps has a direction in which its noise is least; let A be that the outcome is beyond c in one of these
//!   directions. Where k steps or more are drawn, with probability B, it has at least the mass Φ̄(c − √k·r), and where no unit is at most N·Φ̄(c). The best c gives
//!   δ(ε) ≥ B·δ_G(ln(N(1 + (e^ε − 1)/B)); √k·r).
//!
//! Proof: [`crate::proofs::transforms`], "Gaussians whose number is random".

use super::{Engine, count};
use crate::Gdp;
use crate::pld::Interval;
use crate::steps::{Mechanism, Neighbours, Phase, Sampling};
use crate::unit::{Delta, Epsilon};

/// More drawn steps than this are not looked at.
const MOST: u64 = 400;
/// Relative error of the products of a draw's probability.
const PROBABILITY: f64 = 1e-11;

/// Steps of which each is drawn with the same probability.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    /// Squared shift of one step, from above and from below.
    squared: (f64, f64),
    rate: f64,
    steps: u64,
}

/// A plan as a random number of Gaussians.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Squared shift of all that is not drawn, from above and from below.
    fixed: (f64, f64),
    /// ln of the number of paths through random allocations.
    paths: f64,
    drawn: Option<Drawn>,
    /// Whether steps were left out: then nothing is known from above.
    more: bool,
    /// The largest shift of one step.
    largest: f64,
}

impl Shape {
    pub(super) fn of(relation: Neighbours, phases: &[Phase]) -> Self {
        let replace = relation == Neighbours::ReplaceOne;
        let mut shape = Self::default();
        for phase in phases {
            let Mechanism::Gaussian { sigma } = phase.mechanism else {
                shape.more = true;
                continue;
            };
            let (one, two, steps) = (1.0 / (sigma * sigma), 4.0 / (sigma * sigma), count(phase.steps));
            let own = if replace { two } else { one };
            shape.largest = shape.largest.max(1.0 / sigma);
            match phase.sampling {
                Sampling::None | Sampling::ShuffledPasses(_) => {
                    shape.fixed.0 += own * steps;
                    shape.fixed.1 += own * steps;
                }
                // No epoch costs more than one release, and every path has a direction of its own.
                Sampling::RandomAllocation(batches) => {
                    shape.fixed.0 += own * steps;
                    shape.fixed.1 += one * steps;
                    shape.paths += steps * count(batches).ln();
                }
                Sampling::Poisson(rate) | Sampling::WithoutReplacement(rate) => {
                    let fixed = matches!(phase.sampling, Sampling::WithoutReplacement(_));
                    let squared = if fixed { (two, two) } else { (own, one) };
                    if shape.drawn.is_some() {
                        shape.more = true;
                    } else {
                        shape.drawn = Some(Drawn { squared, rate, steps: phase.steps });
                    }
                }
            }
        }
        shape
    }

    /// Numbers of drawn steps with ln of the probability of one such draw and of all of them.
    fn draws(&self, numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = (f64, f64, f64)> {
        let drawn = self.drawn.unwrap_or(Drawn { squared: (0.0, 0.0), rate: 1.0, steps: 0 });
        let (mut choose, mut next) = (0.0, 0);
        numbers.take_while(move |k| *k <= drawn.steps).map(move |k| {
            while next < k {
                choose += (count(drawn.steps - next) / count(next + 1)).ln();
                next += 1;
            }
            let rest = if drawn.steps == k { 0.0 } else { count(drawn.steps - k) * (-drawn.rate).ln_1p() };
            let one = count(k) * drawn.rate.ln() + rest;
            (count(k), one, choose + one)
        })
    }

    /// An upper bound on δ(ε); 1 where there is none.
    fn delta_above(&self, epsilon: f64) -> f64 {
        if self.more {
            return 1.0;
        }
        let squared = self.drawn.map_or(0.0, |drawn| drawn.squared.0);
        let (mut sum, mut left) = (0.0, 1.0 + PROBABILITY);
        for (k, _, log) in self.draws(0..=MOST) {
            let weight = log.exp();
            left -= weight * (1.0 - PROBABILITY);
            let (value, error) = profile((self.fixed.0 + k * squared) * (1.0 + 1e-14), epsilon);
            sum += weight * (1.0 + PROBABILITY) * value * (1.0 + error);
        }
        let most = self.drawn.map_or(0, |drawn| drawn.steps);
        let left = if most <= MOST { 0.0 } else { left.max(0.0) };
        (sum + left).min(1.0)
    }

    /// A lower bound on δ(ε).
    fn delta_below(&self, epsilon: f64) -> f64 {
        let squared = self.drawn.map_or(0.0, |drawn| drawn.squared.1);
        let draws: Vec<_> = self.draws(0..=MOST).collect();
        let (mut best, mut at_least) = (0.0_f64, 0.0);
        for &(k, one, all) in draws.iter().rev() {
            // So many or more are drawn.
            at_least += all.exp() * (1.0 - PROBABILITY);
            // ln(1 + (e^ε − 1)/B), rounded up.
            let raised = if epsilon < 30.0 { (epsilon.exp_m1() / at_least).ln_1p() } else { epsilon - at_least.ln() + PROBABILITY };
            let moved = (raised + (all - one) + self.paths) * (1.0 + 1e-14) + PROBABILITY;
            let (value, error) = profile((self.fixed.1 + k * squared) * (1.0 - 1e-14), moved);
            best = best.max(at_least * value * (1.0 - error));
        }
        best
    }
}

/// δ(ε) of a Gaussian, and its relative error: a rounding of ε/μ − μ/2 counts the more, the larger μ is.
fn profile(squared: f64, epsilon: f64) -> (f64, f64) {
    let epsilon = Epsilon::new(epsilon.max(0.0)).unwrap_or(Epsilon::INFINITE);
    let error = (1e-11 + 4e-14 * squared.sqrt()).min(1.0);
    Gdp::of_mu_squared(squared).map_or((1.0, 0.0), |gdp| (gdp.delta(epsilon), error))
}

impl Engine {
    fn shape(&self) -> &Shape {
        self.shape.get_or_init(|| Shape::of(self.relation, &self.phases))
    }

    /// Whether bounds in closed form may be enough.
    pub(super) fn has_little_noise(&self) -> bool {
        self.shape().largest >= LITTLE && !self.shape().more
    }

    /// Bounds on ε(δ) in closed form.
    pub(super) fn sandwich(&self, delta: Delta) -> Interval {
        let shape = self.shape();
        let most = self.unamplified.map_or(f64::INFINITY, |gdp| gdp.epsilon_upper(delta).get());
        let crossing = |value: &dyn Fn(f64) -> f64| {
            if value(0.0) <= delta.get() {
                return (0.0, 0.0);
            }
            let (mut low, mut high) = (0.0, 1.0);
            while high < 1e300 && value(high) > delta.get() {
                (low, high) = (high, 2.0 * high);
            }
            for _ in 0..200 {
                let middle = 0.5 * (low + high);
                if high - low <= 1e-13 * high || middle <= low || middle >= high {
                    break;
                }
                if value(middle) <= delta.get() { high = middle } else { low = middle }
            }
            (low, high)
        };
        let upper = if shape.more { most } else { crossing(&|epsilon| shape.delta_above(epsilon)).1.min(most) };
        let lower = crossing(&|epsilon| shape.delta_below(epsilon)).0.min(upper);
        Interval::bounded(lower, 0.5 * (lower + upper), upper)
    }

    /// Bounds on δ(ε) in closed form.
    pub(super) fn sandwich_delta(&self, epsilon: f64) -> Interval {
        let shape = self.shape();
        let union = self.directions.iter().map(|direction| direction.variation()).fold(0.0, f64::max);
        let upper = shape.delta_above(epsilon).min(if self.rho > 0.0 { 1.0 } else { union });
        let lower = shape.delta_below(epsilon).min(upper);
        Interval::bounded(lower, 0.5 * (lower + upper), upper)
    }

    /// An interval with what is known in closed form.
    pub(super) fn met(interval: Interval, other: Interval) -> Interval {
        let upper = interval.upper.min(other.upper);
        let lower = interval.lower.max(other.lower).min(upper);
        // An estimate that is not between the bounds was none.
        let estimate = if (lower..=upper).contains(&interval.estimate) { interval.estimate } else { 0.5 * (lower + upper) };
        Interval::bounded(lower, estimate, upper)
    }
}

/// Shift of one step over its noise from which on bounds in closed form are asked for first.
const LITTLE: f64 = 4.0;
