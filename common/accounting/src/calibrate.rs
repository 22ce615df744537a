//! The smallest noise, the most steps and the highest sampling rate within a target, always on the safe side: what is returned has a
//! certified upper bound on ε that is at most the target.

use std::cell::Cell;

use super::AccountantError;
use super::engine::Rough;
use super::plan::Plan;
use super::pld::Interval;
use super::steps::{Neighbours, Phase, Sampling};
use crate::unit::{Delta, Epsilon};

/// Certified width used here, relative; the returned noise exceeds the smallest possible by about this.
const GAP: f64 = 2e-5;
const SIGMA: (f64, f64) = (2e-3, 1e8);
const RATE: (f64, f64) = (1e-9, 1.0);

/// A target that is approached from the private side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// ε that must not be exceeded.
    pub epsilon: Epsilon,
    /// At this δ.
    pub delta: Delta,
}

impl Target {
    fn check(&self) -> Result<(), AccountantError> {
        const WRONG: AccountantError = AccountantError::Range("the epsilon of a target must be a finite number above 0");
        if self.epsilon.get() > 0.0 && self.epsilon.get().is_finite() { Ok(()) } else { Err(WRONG) }
    }

    fn met(&self, plan: &Plan) -> f64 {
        plan.epsilon_upper(self.delta, GAP) / self.epsilon.get()
    }
}

/// Gap of upper bounds where nothing better guides a search, and how near to the goal such a search comes.
const ROUGH: (f64, f64) = (1e-3, 1e-3);

/// Secants from there to the target.
const SECANTS: u32 = 5;

/// Bisection and secant on ln ε(e^x) = ln target; ε must fall (`sign` −1) or rise (+1) with x. Returns (x, dln ε/dx), to about 1e-11, or to
/// [`ROUGH`] where no estimate guided the search, and whether one did.
fn solve(
    range: (f64, f64),
    start: f64,
    target: Target,
    plan: impl Fn(f64) -> Result<Plan, AccountantError>,
) -> Result<(f64, f64, Rough), AccountantError> {
    let goal = target.epsilon.get().ln();
    // A vanishing ε counts as a very small one.
    let guided = Cell::new(Rough::Estimate);
    let value = |x: f64| -> Result<f64, AccountantError> {
        let (epsilon, rough) = plan(x.exp())?.epsilon_rough(target.delta, ROUGH.0);
        if rough == Rough::Upper {
            guided.set(rough);
        }
        Ok(epsilon.max(1e-300).ln().min(700.0) - goal)
    };
    let (low, high) = (range.0.ln(), range.1.ln());
    let (mut a, mut b) = (start, start);
    let (mut at_a, mut at_b) = (value(a)?, 0.0);
    // Walk until the sign changes; which way is down is seen on the way.
    let mut step = if at_a > 0.0 { 0.5 } else { -0.5 };
    let falling = range.0 < 1e-4 && range.1 <= 1.0;
    if falling {
        step = -step;
    }
    for _ in 0..80 {
        b = (a + step).clamp(low, high);
        at_b = value(b)?;
        if (at_a > 0.0) != (at_b > 0.0) {
            break;
        }
        if b <= low || b >= high {
            return Err(AccountantError::OutOfReach);
        }
        (a, at_a) = (b, at_b);
        step *= 1.6;
    }
    if (at_a > 0.0) == (at_b > 0.0) {
        return Err(AccountantError::OutOfReach);
    }
    let mut slope = (at_b - at_a) / (b - a);
    for _ in 0..100 {
        let secant = a - at_a * (b - a) / (at_b - at_a);
        let middle = 0.5 * (a + b);
        let inside = (secant - a) * (secant - b) < 0.0 && at_a.abs() < 50.0 && at_b.abs() < 50.0;
        // Regula falsi stalls on one side: every third step the middle.
        let x = if inside { secant } else { middle };
        let at_x = value(x)?;
        let old = (a, at_a, b, at_b);
        if (at_x > 0.0) == (at_a > 0.0) {
            (a, at_a, at_b) = (x, at_x, 0.5 * at_b)
        } else {
            (b, at_b, at_a) = (x, at_x, 0.5 * at_a)
        }
        let near = if guided.get() == Rough::Estimate { (1e-11, 1e-12) } else { (ROUGH.1, 0.1 * ROUGH.1) };
        if at_x.abs() < near.0 || (a - b).abs() < near.1 {
            let other = if (x - old.0).abs() > 1e-9 && old.1.abs() < 50.0 { (old.0, old.1) } else { (old.2, old.3) };
            if (x - other.0).abs() > 1e-9 {
                slope = (at_x - other.1) / (x - other.0);
            }
            return Ok((x, slope, guided.get()));
        }
    }
    Ok((0.5 * (a + b), slope, guided.get()))
}

/// The smallest σ with ε(δ) ≤ target for `make(σ)`. `upper` is the answer (certified); `lower` is a σ whose certified lower bound already
/// reaches the target, or 0 where that was not found.
///
/// # Errors
/// A plan that cannot be accounted, or a target that no σ up to 1e8 reaches.
pub fn sigma_of(target: Target, make: impl Fn(f64) -> Result<Plan, AccountantError>) -> Result<Interval, AccountantError> {
    target.check()?;
    let (x, slope, guided) = solve(SIGMA, 0.0, target, &make)?;
    // The last bound is asked for again where a search ends.
    let last = Cell::new((f64::NAN, f64::NAN));
    let met = |sigma: f64| -> Result<f64, AccountantError> {
        if last.get().0 != sigma {
            last.set((sigma, target.met(&make(sigma)?)));
        }
        Ok(last.get().1)
    };
    let mut estimate = x.exp();
    let mut steep = slope.abs().clamp(0.2, 50.0);
    if guided == Rough::Upper {
        // Bounds with a gap led here: by secants on narrower ones to the target.
        let mut before: Option<(f64, f64)> = None;
        for _ in 0..SECANTS {
            let ratio = met(estimate)?;
            if (ratio - 1.0).abs() < 2.0 * GAP || !(0.1..10.0).contains(&ratio) {
                break;
            }
            let here = (estimate.ln(), ratio.ln());
            if let Some(before) = before.replace(here)
                && (here.0 - before.0).abs() > 1e-9
                && (here.1 - before.1) / (here.0 - before.0) < 0.0
            {
                steep = ((before.1 - here.1) / (here.0 - before.0)).clamp(0.2, 500.0);
            }
            estimate *= ratio.powf(1.0 / steep).clamp(0.8, 1.25);
        }
    }
    let mut upper = estimate;
    let mut found = false;
    let mut factor = 1.0;
    for _ in 0..40 {
        let ratio = met(upper)?;
        if ratio <= 1.0 {
            found = true;
            break;
        }
        // Where the bounds are wide the slope is of little use: go in growing steps.
        upper *= (ratio.min(1e3).powf(factor / steep) * (1.0 + 1e-10)).min(2.0);
        factor *= 1.3;
    }
    if !found {
        return Err(AccountantError::OutOfReach);
    }
    let mut lower = estimate * (1.0 - 1e-12);
    for _ in 0..3 {
        let reached = make(lower)?.epsilon(target.delta).lower / target.epsilon.get();
        if reached >= 1.0 {
            return Ok(Interval::bounded(lower, estimate, upper));
        }
        lower *= (reached.max(0.1).powf(1.3 / steep) * (1.0 - 1e-9)).max(0.5);
    }
    Ok(Interval::bounded(0.0, estimate, upper))
}

/// The smallest σ for `steps` Gaussian steps.
///
/// # Errors
/// As [`sigma_of`].
pub fn sigma(relation: Neighbours, sampling: Sampling, steps: u64, target: Target) -> Result<Interval, AccountantError> {
    if steps == 0 {
        return Err(AccountantError::Range("no steps cost nothing, whatever their noise: ask for at least one step"));
    }
    sigma_of(target, |sigma| Plan::of(relation, Phase::gaussian(sigma, sampling, steps)))
}

/// The largest number of steps within the target; 0 if not even one fits.
///
/// # Errors
/// A phase that cannot be accounted.
pub fn steps(relation: Neighbours, sigma: f64, sampling: Sampling, target: Target) -> Result<u64, AccountantError> {
    const MOST: u64 = 1_000_000_000_000;
    target.check()?;
    let make = |steps: u64| Plan::of(relation, Phase::gaussian(sigma, sampling, steps));
    let fits = |steps: u64| -> Result<bool, AccountantError> { Ok(make(steps)?.epsilon_estimate(target.delta) <= target.epsilon.get()) };
    if !fits(1)? {
        return Ok(0);
    }
    let (mut low, mut high) = (1, 2);
    while high < MOST && fits(high)? {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    for _ in 0..60 {
        let ratio = target.met(&make(low)?);
        if ratio <= 1.0 {
            return Ok(low);
        }
        // ε grows at least like the root of the steps and at most like the steps: this much less is not too little.
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of the steps")]
        let less = ((low as f64) * (1.0 - 1.0 / ratio.min(2.0))).ceil() as u64;
        low = low.saturating_sub(less.max(1));
        if low == 0 {
            break;
        }
    }
    Ok(0)
}

/// The highest Poisson rate within the target.
///
/// # Errors
/// A phase that cannot be accounted, or not even a rate of 1e-9 fits.
pub fn rate(relation: Neighbours, sigma: f64, steps: u64, target: Target) -> Result<f64, AccountantError> {
    target.check()?;
    let make = |q: f64| Plan::of(relation, Phase::gaussian(sigma, Sampling::Poisson(q.min(1.0)), steps));
    if target.met(&make(1.0)?) <= 1.0 {
        return Ok(1.0);
    }
    let (x, slope, _) = solve(RATE, 0.01f64.ln(), target, make)?;
    let mut q = x.exp();
    let mut factor = 1.0;
    for _ in 0..40 {
        let ratio = target.met(&make(q)?);
        if ratio <= 1.0 {
            return Ok(q);
        }
        q *= (ratio.min(1e3).powf(-factor / slope.abs().clamp(0.2, 50.0)) * (1.0 - 1e-10)).max(0.5);
        factor *= 1.3;
    }
    Err(AccountantError::OutOfReach)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processor time of this thread in seconds, where the system has it: other work on the machine does not count.
    fn cpu_seconds() -> Option<f64> {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(times.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9)
    }

    /// Few or very rare steps, for which no contour converges.
    #[test]
    fn calibration_of_rare_steps_is_quick() {
        for (relation, sampling, steps, epsilon, delta) in [
            (Neighbours::ReplaceOne, Sampling::WithoutReplacement(0.00126), 7, 0.0214, 1e-5),
            (Neighbours::AddRemove, Sampling::WithoutReplacement(0.00126), 7, 0.0214, 1e-5),
            (Neighbours::ReplaceOne, Sampling::Poisson(0.00017), 73, 1.0, 1e-5),
            (Neighbours::AddRemove, Sampling::Poisson(0.00018), 351, 12.1, 1.2e-9),
            (Neighbours::ReplaceOne, Sampling::Poisson(0.00018), 351, 12.1, 1.2e-9),
        ] {
            let target = Target { epsilon: Epsilon::new(epsilon).unwrap(), delta: Delta::new(delta).unwrap() };
            let started = cpu_seconds();
            let found = sigma(relation, sampling, steps, target).unwrap();
            if let (Some(from), Some(to)) = (started, cpu_seconds()) {
                assert!(to - from <= 2.0, "{} s", to - from);
            }
            let upper = Plan::of(relation, Phase::gaussian(found.upper, sampling, steps)).unwrap().epsilon_upper(target.delta, GAP);
            assert!(upper <= epsilon && upper > epsilon * (1.0 - 1e-3), "{upper}");
        }
    }
}
