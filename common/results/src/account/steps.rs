//! Steps of one mechanism: what they cost, and what is found for a target.

pub(super) use crate::forecast::whole;
use dp_pvi_accounting::calibrate::{self, Target};
use dp_pvi_accounting::unit::{Delta, Epsilon};
use dp_pvi_accounting::{Interval, MOST_BATCHES, Neighbours, Phase, Plan, Sampling};
use dp_pvi_exchange as exchange;
use serde::Serialize;

use super::AccountError;

/// The neighbouring relation on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RelationFlag {
    /// One unit is present or absent.
    AddRemove,
    /// One unit's contribution is zeroed.
    ZeroOut,
    /// One unit is replaced by another.
    ReplaceOne,
}

impl From<RelationFlag> for Neighbours {
    fn from(flag: RelationFlag) -> Self {
        match flag {
            RelationFlag::AddRemove => Self::AddRemove,
            RelationFlag::ZeroOut => Self::ZeroOut,
            RelationFlag::ReplaceOne => Self::ReplaceOne,
        }
    }
}

/// How units are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SamplingFlag {
    /// Every unit in every step.
    None,
    /// Independent coins with probability q.
    Poisson,
    /// A fresh batch of fixed size, a share q of the data.
    WithoutReplacement,
    /// Batches of a shuffled data set; steps · q passes, each charged as one release without amplification (not under add-remove).
    Shuffled,
    /// Random allocation: every unit in exactly one of the `--batches` steps of an epoch. Steps are counted in whole epochs.
    RandomAllocation,
}

/// What both commands know about the steps.
#[derive(Debug, Clone, clap::Args)]
pub struct Steps {
    /// Sampling rate.
    #[arg(long, default_value_t = 1.0, allow_hyphen_values = true)]
    pub q: f64,
    /// Random allocation: steps of an epoch. Where q is given in its place, 1/q.
    #[arg(long, conflicts_with = "q", value_parser = whole, allow_hyphen_values = true)]
    pub batches: Option<u64>,
    /// What neighbouring data sets differ by.
    #[arg(long)]
    pub relation: Option<RelationFlag>,
    /// How the units of a step are chosen; it must be the sampler that runs.
    #[arg(long)]
    pub sampling: Option<SamplingFlag>,
    /// Failure probability.
    #[arg(long, default_value_t = 1e-5, allow_hyphen_values = true)]
    pub delta: f64,
}

impl Steps {
    /// The sampling of `count` steps, and how many steps that leaves to count.
    #[allow(clippy::cast_precision_loss, reason = "passes")]
    fn sampling(&self, count: u64) -> Result<(Sampling, u64), AccountError> {
        let how = self
            .sampling
            .ok_or(AccountError::Usage("give --sampling: none, poisson, without-replacement, shuffled or random-allocation"))?;
        if self.batches.is_some() && how != SamplingFlag::RandomAllocation {
            return Err(AccountError::Usage("--batches belongs to --sampling random-allocation"));
        }
        Ok(match how {
            // Nothing runs, however its units would have been chosen.
            _ if count == 0 => (Sampling::None, 0),
            SamplingFlag::None => (Sampling::None, count),
            SamplingFlag::Poisson => (Sampling::Poisson(self.q), count),
            SamplingFlag::WithoutReplacement => (Sampling::WithoutReplacement(self.q), count),
            SamplingFlag::Shuffled => (Sampling::ShuffledPasses(count as f64 * self.q), 1),
            SamplingFlag::RandomAllocation => {
                let batches = self.batches()?;
                if !count.is_multiple_of(batches) {
                    return Err(AccountError::Usage(
                        "random allocation runs in whole epochs: give --steps that are a multiple of --batches",
                    ));
                }
                (Sampling::RandomAllocation(batches), count / batches)
            }
        })
    }

    /// Batches of an epoch.
    #[allow(clippy::cast_precision_loss, reason = "2^20")]
    fn batches(&self) -> Result<u64, AccountError> {
        const NEEDED: AccountError = AccountError::Usage("random allocation needs --batches, the steps of an epoch, from 1 to 2^20");
        if let Some(batches) = self.batches {
            return if (1..=MOST_BATCHES).contains(&batches) { Ok(batches) } else { Err(NEEDED) };
        }
        let batches = (1.0 / self.q).round();
        // Every unit in every step, which is what q says where no one gave it, is no allocation.
        if !(2.0..=MOST_BATCHES as f64).contains(&batches) || (self.q * batches - 1.0).abs() > 1e-6 {
            return Err(NEEDED);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number in range")]
        Ok(batches as u64)
    }

    /// What neighbours differ by.
    pub(super) fn relation(&self) -> Result<Neighbours, AccountError> {
        let flag = self.relation.ok_or(AccountError::Usage("give --relation: add-remove, zero-out or replace-one"))?;
        Ok(flag.into())
    }

    /// The plan of `count` steps.
    ///
    /// # Errors
    /// Numbers out of range, or no bound for this pair.
    pub(super) fn plan(&self, sigma: f64, count: u64) -> Result<Plan, AccountError> {
        let (sampling, count) = self.sampling(count)?;
        Ok(Plan::of(self.relation()?, Phase::gaussian(sigma, sampling, count))?)
    }
}

/// What `account` prints.
#[derive(Debug, Serialize)]
pub(super) struct Account {
    /// ε at δ of the accounted pairs. `upper` bounds the truth; `lower` does so only where those pairs are attained, which batches of
    /// fixed size under replace-one do not.
    pub epsilon: Interval,
    /// δ.
    pub delta: f64,
    /// δ(0).
    pub advantage: Interval,
    /// ε by Rényi divergences, for comparison.
    pub renyi_epsilon: f64,
    /// ... and the order.
    pub renyi_order: f64,
    /// The largest ε that explicit data sets are known to have.
    pub attained: f64,
    /// Best true positive rate of an attack at false positive rates of 0.1 %, 1 % and 10 % (certified upper bounds).
    pub true_positive_rate: [(f64, f64); 3],
    /// The steps as an event of dp_accounting for Python, where that has one, as that prints it.
    pub dp_event: Option<String>,
    /// ... and in JSON.
    pub dp_event_json: Option<serde_json::Value>,
    /// ε and δ as a loss under a privacy measure of OpenDP.
    pub opendp: Option<serde_json::Value>,
    /// The machine-readable statement.
    pub statement: dp_pvi_accounting::Statement,
}

/// Everything about one plan.
pub(super) fn account(plan: &Plan, at: Delta) -> Account {
    let (renyi_epsilon, renyi_order) = plan.renyi_epsilon(at);
    let (statement, event) = (plan.statement(at), exchange::written(plan));
    Account {
        epsilon: statement.epsilon,
        delta: at.get(),
        advantage: plan.advantage(),
        renyi_epsilon,
        renyi_order,
        attained: plan.attained(at),
        dp_event: event.as_ref().map(exchange::printed),
        dp_event_json: event,
        opendp: Epsilon::new(statement.epsilon.upper)
            .ok()
            .filter(|epsilon| epsilon.get().is_finite())
            .map(|epsilon| exchange::measure(epsilon, at)),
        true_positive_rate: [1e-3, 1e-2, 1e-1].map(|rate| (rate, plan.true_positive_rate(rate))),
        statement,
    }
}

/// What `calibrate` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Calibrated {
    /// The smallest noise multiplier.
    Sigma(Interval),
    /// The largest number of steps.
    Steps(u64),
    /// The highest rate.
    Q(f64),
}

/// The unknown is what is not given: σ, else steps, else q.
///
/// # Errors
/// Numbers out of range, or a target that cannot be reached.
pub(super) fn calibrate(steps: &Steps, sigma: Option<f64>, count: Option<u64>, epsilon: f64) -> Result<Calibrated, AccountError> {
    let target = Target { epsilon: Epsilon::new(epsilon)?, delta: Delta::new(steps.delta)? };
    let relation = steps.relation()?;
    match (sigma, count) {
        (None, Some(count)) => {
            let (sampling, count) = steps.sampling(count)?;
            Ok(Calibrated::Sigma(calibrate::sigma(relation, sampling, count, target)?))
        }
        (Some(_), None) if steps.sampling == Some(SamplingFlag::Shuffled) => {
            Err(AccountError::Usage("steps of shuffled passes are not calibrated: give --sampling none and count passes"))
        }
        (Some(sigma), None) if steps.sampling == Some(SamplingFlag::RandomAllocation) => {
            let batches = steps.batches()?;
            let epochs = calibrate::steps(relation, sigma, Sampling::RandomAllocation(batches), target)?;
            Ok(Calibrated::Steps(epochs.saturating_mul(batches)))
        }
        (Some(sigma), None) => Ok(Calibrated::Steps(calibrate::steps(relation, sigma, steps.sampling(1)?.0, target)?)),
        (Some(_), Some(_)) if steps.q != 1.0 => {
            Err(AccountError::Usage("sigma, steps and q are all given: nothing is left to find; leave one out"))
        }
        (Some(sigma), Some(count)) if steps.sampling == Some(SamplingFlag::Poisson) => {
            Ok(Calibrated::Q(calibrate::rate(relation, sigma, count, target)?))
        }
        (Some(_), Some(_)) => Err(AccountError::Usage("the sampling rate is calibrated for --sampling poisson only")),
        (None, None) => Err(AccountError::Usage("give --steps (to find sigma), --sigma (to find steps), or both (to find q)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(relation: RelationFlag, sampling: SamplingFlag, q: f64) -> Steps {
        Steps { q, batches: None, relation: Some(relation), sampling: Some(sampling), delta: 1e-5 }
    }

    /// The question of the finding: a sample that is none, under a relation under which other units move.
    #[test]
    fn the_command_refuses_shuffled_batches_under_add_remove() {
        let refused = |answer: Result<String, AccountError>| {
            let text = answer.unwrap_or_else(|error| error.to_string());
            assert!(text.contains("shuffled") && text.contains("zero-out"), "{text}");
        };
        let question = steps(RelationFlag::AddRemove, SamplingFlag::Shuffled, 0.25);
        refused(question.plan(1.0, 10).map(|plan| format!("{plan:?}")));
        refused(calibrate(&question, None, Some(10), 8.0).map(|found| format!("{found:?}")));
        for relation in [RelationFlag::ZeroOut, RelationFlag::ReplaceOne] {
            assert!(steps(relation, SamplingFlag::Shuffled, 0.25).plan(1.0, 10).is_ok());
        }
    }

    /// Steps of epochs are counted whole, and cost what the event of an epoch does.
    #[test]
    fn random_allocation_is_asked_in_whole_epochs() {
        let ask = |q: f64, count: u64| steps(RelationFlag::AddRemove, SamplingFlag::RandomAllocation, q).plan(1.0, count);
        let phase = Phase::gaussian(1.0, Sampling::RandomAllocation(100), 3);
        let answer = ask(0.01, 300).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(answer.phases(), Plan::of(Neighbours::AddRemove, phase).unwrap_or_else(|error| panic!("{error}")).phases());
        // No one said how many: not one release of all units.
        for (q, count, word) in [
            (0.01, 250, "whole epochs"),
            (0.03, 300, "--batches"),
            (0.0, 300, "--batches"),
            (1e-7, 10_000_000, "--batches"),
            (1.0, 300, "--batches"),
        ] {
            let text = ask(q, count).map_or_else(|error| error.to_string(), |_| String::new());
            assert!(text.contains(word), "{q} {count}: {text}");
        }
        let named = |batches: u64, sampling: SamplingFlag| {
            let question = Steps { batches: Some(batches), ..steps(RelationFlag::AddRemove, sampling, 1.0) };
            question.plan(1.0, 300).map(|plan| plan.phases().to_vec()).map_err(|error| error.to_string())
        };
        assert_eq!(named(100, SamplingFlag::RandomAllocation).as_deref(), Ok(answer.phases()));
        for (batches, sampling) in
            [(0, SamplingFlag::RandomAllocation), (1 << 21, SamplingFlag::RandomAllocation), (100, SamplingFlag::Poisson)]
        {
            assert!(named(batches, sampling).unwrap_err().contains("--batches"), "{batches}");
        }
        let question = steps(RelationFlag::AddRemove, SamplingFlag::RandomAllocation, 0.1);
        let Ok(Calibrated::Steps(most)) = calibrate(&question, Some(2.0), None, 3.0) else { panic!("steps") };
        assert!(most >= 10 && most.is_multiple_of(10), "{most}");
    }

    #[test]
    fn no_steps_cost_nothing_and_wrong_numbers_are_named() {
        for sampling in [SamplingFlag::None, SamplingFlag::Poisson, SamplingFlag::Shuffled] {
            let plan = steps(RelationFlag::AddRemove, sampling, 0.1).plan(1.0, 0).unwrap_or_else(|error| panic!("{error}"));
            let account = account(&plan, Delta::new(1e-5).unwrap_or_else(|error| panic!("{error}")));
            assert_eq!((account.epsilon, account.advantage), (Interval::exact(0.0), Interval::exact(0.0)));
        }
        for (sigma, q, word) in [(1e-4, 0.1, "sigma"), (1.0, 1.5, "q must be")] {
            let question = steps(RelationFlag::AddRemove, SamplingFlag::Poisson, q);
            let text = question.plan(sigma, 3).map_or_else(|error| error.to_string(), |_| String::new());
            assert!(text.contains(word), "{text}");
        }
    }
}
