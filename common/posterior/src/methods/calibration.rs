//! From a target ε to a noise multiplier, for all visits of an update together.

use std::cell::Cell;

use dp_pvi_accounting::{DpEvent, Epsilon, Method, NoiseMultiplier, calibrate};

use super::price::{visit_events, whole_loss};
use super::{Setting, UpdateSpec};
use dp_pvi_models::spec::check::{checked, invalid};
use dp_pvi_models::spec::{PrivacySpec, TaskError};

/// Smallest z for which all visits of the update `with(z)` together cost at most the ε of the setting.
///
/// Where all visits are the same event the accountant's own calibration answers; otherwise z is found by bisection on the certified ε,
/// which falls with z, from above: to a relative 1e-9, or to the width of the certificate where releases are sampled.
pub(crate) fn calibrated(setting: &Setting<'_>, with: impl Fn(NoiseMultiplier) -> UpdateSpec) -> Result<NoiseMultiplier, TaskError> {
    let probe = with(checked(NoiseMultiplier::new(1.0))?);
    let PrivacySpec { relation, delta, epsilon, .. } = *setting.privacy;
    // `check` came before: a finite ε is there.
    let epsilon = epsilon.unwrap_or(Epsilon::ZERO);
    if visit_events(&probe, setting, 0..setting.visits())?.len() == 1 {
        let failed = Cell::new(None);
        let event = |z: NoiseMultiplier| match with(z).visit(setting, 0) {
            Ok(visit) => repeated(visit.event, setting.visits()),
            Err(error) => {
                failed.set(Some(error));
                DpEvent::NonPrivate
            }
        };
        return match calibrate(event, relation, epsilon, delta) {
            Ok(z) => settled(setting, &with, z, epsilon),
            Err(error) => Err(failed.take().unwrap_or_else(|| error.into())),
        };
    }
    bisected(setting, &with, epsilon)
}

/// Rounding may put the sum of a run's visits above the target: a little more noise brings it back.
fn settled(
    setting: &Setting<'_>,
    with: &impl Fn(NoiseMultiplier) -> UpdateSpec,
    start: NoiseMultiplier,
    epsilon: Epsilon,
) -> Result<NoiseMultiplier, TaskError> {
    let (mut z, mut more) = (start, 1e-12);
    loop {
        if whole_loss(&with(z), setting)?.epsilon <= epsilon {
            return Ok(z);
        }
        if more > 1e-3 {
            return invalid("the accountant does not confirm its own calibration: report this as a bug");
        }
        z = checked(NoiseMultiplier::new(z.get() * (1.0 + more)))?;
        more *= 4.0;
    }
}

fn bisected(setting: &Setting<'_>, with: &impl Fn(NoiseMultiplier) -> UpdateSpec, epsilon: Epsilon) -> Result<NoiseMultiplier, TaskError> {
    let width = Cell::new(1e-9);
    let holds = |z: f64| -> Result<bool, TaskError> {
        match whole_loss(&with(checked(NoiseMultiplier::new(z))?), setting) {
            Ok(loss) => {
                if loss.method == Method::LossDistribution {
                    width.set(1e-5);
                }
                Ok(loss.epsilon <= epsilon)
            }
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
    while upper / lower > 1.0 + width.get() {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::task::tests::SCHEMA;
    use crate::task::{RawTask, ResolveContext, ResolvedTask};

    const CONTEXT: ResolveContext<'_> = ResolveContext { name: "long", update_deadline_seconds: 60, min_sites: 2, expected_sites: 4 };

    /// Processor time of this thread in seconds, where the system has it: other work on the machine does not count.
    fn cpu_seconds() -> Option<f64> {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(times.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9)
    }

    /// Natural gradients whose budget grows from round to round: every round has its own noise.
    fn growing(rounds: u32) -> ResolvedTask {
        let text = format!(
            r#"
[model]
family = "logistic-regression"
outcome = "died"
prior_units = "encoded"
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
max_units = 1000000
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
    fn three_thousand_rounds_are_priced_at_once() {
        let started = cpu_seconds();
        let task = growing(3000);
        let read = ResolvedTask::from_bytes(&task.to_bytes()).unwrap();
        let epsilon = read.loss(3000).unwrap().epsilon.get();
        assert!((0.9999..=1.0).contains(&epsilon), "{epsilon}");
        if let (Some(from), Some(to)) = (started, cpu_seconds()) {
            assert!(to - from <= 2.0, "{} s", to - from);
        }
    }
}
