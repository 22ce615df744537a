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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test of how long something takes")]
    use std::time::Instant;

    use super::super::tests::SCHEMA;
    use super::super::{RawTask, ResolveContext, ResolvedTask};

    const CONTEXT: ResolveContext<'_> = ResolveContext { name: "long", update_deadline_seconds: 60, min_sites: 2, expected_sites: 4 };

    /// Natural gradients whose budget grows from round to round: every round has its own noise.
    fn growing(rounds: u32) -> ResolvedTask {
        let text = format!(
            r#"
[model]
family = "logistic-regression"
prior_scale = 1.0
[schema]
file = "schema.toml"
[pvi]
schedule = "synchronous"
rounds = {rounds}
update = "natural-gradient"
budget_growth = 1.001
[privacy]
unit = "record"
adjacency = "replace-one"
epsilon = 1.0
delta = 1e-5
trust = "local"
"#
        );
        RawTask::parse(&text).unwrap().resolve(SCHEMA, CONTEXT).unwrap()
    }

    /// A plan is read as a whole with the same result, to the bit, as visit by visit.
    #[test]
    fn a_plan_as_a_whole_is_its_visits_one_by_one() {
        let task = growing(40);
        let one_by_one: Vec<_> = (0..40).map(|visit| (task.visit_event(visit).unwrap(), 1)).collect();
        assert_eq!(task.visit_events(0..40).unwrap(), one_by_one);
        assert_eq!(task.visit_events(7..9).unwrap(), one_by_one[7..9]);
        assert_eq!(task.visit_events(38..43).unwrap().len(), 5);
    }

    /// Resolving, reading and pricing 3,000 rounds, each with its own noise, take two seconds at most: the work is linear in the rounds.
    #[test]
    fn finding_attack_b9_three_thousand_rounds_are_priced_at_once() {
        let started = Instant::now();
        let task = growing(3000);
        let read = ResolvedTask::from_bytes(&task.to_bytes()).unwrap();
        let epsilon = read.loss(3000).unwrap().epsilon.get();
        let took = started.elapsed().as_secs_f64();
        assert!((0.9999..=1.0).contains(&epsilon), "{epsilon}");
        assert!(took < 2.0, "{took} s");
    }
}
