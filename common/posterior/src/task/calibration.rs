//! From a target ε to a noise multiplier, for all visits of a task together.

use std::cell::Cell;

use dp_pvi_privacy::accountant::calibrate;
use dp_pvi_privacy::{DpEvent, Epsilon, NoiseMultiplier};

use super::check::invalid;
use super::{PrivacySpec, ResolvedTask, TaskError};

/// Smallest z for which all visits of `with(z)` together cost at most the task's ε.
///
/// Where all visits are the same event the accountant's own calibration answers; otherwise z is found by bisection on the certified ε,
/// which falls with z, to a relative 1e-9, from above.
pub(super) fn calibrated(with: impl Fn(NoiseMultiplier) -> ResolvedTask) -> Result<NoiseMultiplier, TaskError> {
    let probe = with(checked(NoiseMultiplier::new(1.0))?);
    let PrivacySpec { relation, delta, .. } = probe.privacy;
    // `check` came before: a finite ε is there.
    let epsilon = probe.privacy.epsilon.unwrap_or(Epsilon::ZERO);
    if probe.visit_events(0..probe.visits())?.len() == 1 {
        let failed = Cell::new(None);
        let event = |z: NoiseMultiplier| {
            let task = with(z);
            match task.visit_event(0) {
                Ok(event) => repeated(event, task.visits()),
                Err(error) => {
                    failed.set(Some(error));
                    DpEvent::NonPrivate
                }
            }
        };
        return match calibrate(event, relation, epsilon, delta) {
            Ok(z) => settled(&with, z, epsilon),
            Err(error) => Err(failed.take().unwrap_or_else(|| error.into())),
        };
    }
    bisected(&with, epsilon)
}

/// A ledger adds visit by visit; where rounding puts that sum above the target, a little more noise brings it back.
fn settled(
    with: &impl Fn(NoiseMultiplier) -> ResolvedTask,
    start: NoiseMultiplier,
    epsilon: Epsilon,
) -> Result<NoiseMultiplier, TaskError> {
    let (mut z, mut more) = (start, 1e-12);
    loop {
        let task = with(z);
        if task.loss(task.visits())?.epsilon <= epsilon {
            return Ok(z);
        }
        if more > 1e-3 {
            return invalid("the accountant does not confirm its own calibration: report this as a bug");
        }
        z = checked(NoiseMultiplier::new(z.get() * (1.0 + more)))?;
        more *= 4.0;
    }
}

fn bisected(with: &impl Fn(NoiseMultiplier) -> ResolvedTask, epsilon: Epsilon) -> Result<NoiseMultiplier, TaskError> {
    let holds = |z: f64| -> Result<bool, TaskError> {
        let task = with(checked(NoiseMultiplier::new(z))?);
        match task.loss(task.visits()) {
            Ok(loss) => Ok(loss.epsilon <= epsilon),
            // Too little noise for the lattice is too little noise.
            Err(TaskError::Lattice(_)) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let mut upper = 1.0;
    while !holds(upper)? {
        upper *= 4.0;
        if upper > 1e12 {
            return invalid("no noise reaches the target epsilon: raise epsilon, or make fewer visits");
        }
    }
    let mut lower = upper;
    while holds(lower)? && lower > 1e-9 {
        upper = lower;
        lower /= 4.0;
    }
    while upper / lower > 1.0 + 1e-9 {
        let middle = (upper * lower).sqrt();
        if holds(middle)? {
            upper = middle;
        } else {
            lower = middle;
        }
    }
    checked(NoiseMultiplier::new(upper))
}

/// One event for `count` visits of the same event.
fn repeated(event: DpEvent, count: u32) -> DpEvent {
    match event {
        DpEvent::Composed { event, count: steps } => event.repeated(steps * u64::from(count)),
        event => event.repeated(count.into()),
    }
}

pub(super) fn checked<T>(value: Result<T, dp_pvi_privacy::unit::InvalidUnit>) -> Result<T, TaskError> {
    value.map_err(|e| TaskError::Invalid(e.to_string()))
}
