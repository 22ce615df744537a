//! What a resolved task costs each site before it runs, and how many runs a budget leaves.

use crate::forecast::ForecastResult;
use dp_pvi_accounting::{Composition, Method, Prices, Relation, RunCost, Runs};
use dp_pvi_accounting::{Delta, Epsilon};
use dp_pvi_posterior::task::{ResolvedTask, TaskError};
use serde::Serialize;

/// Runs are counted up to here.
pub(super) const MANY: u64 = 1000;
/// ε is stated after so many visits of the run, evenly spaced.
const STATED: u32 = 20;

/// What a site wants to spend, and what its ledger charged for the same task before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// Budget.
    pub epsilon: Epsilon,
    /// At this δ.
    pub delta: Delta,
    /// Runs that are charged already.
    pub booked: u32,
}

/// What `plan` prints. Every site makes the same visits, so each pays this.
#[derive(Debug, Serialize)]
pub(super) struct Forecast {
    /// Hash of the task.
    pub task: String,
    /// Its name.
    pub name: String,
    /// Visits of each site.
    pub visits: u32,
    /// ε of the whole run for each site, as the plan that it is; absent: no protection.
    pub epsilon: Option<f64>,
    /// At this δ.
    pub delta: f64,
    /// Between data sets that differ in this way. A ledger that is kept for another relation charges by that one.
    pub relation: Relation,
    /// ε of the whole run where all other parties of an aggregated run work together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<f64>,
    /// Engine.
    pub method: Method,
    /// Whether discrete noise was accounted as continuous, with its margin.
    pub numerical_margin: bool,
    /// ε after a number of visits.
    pub after: Vec<(u32, Option<f64>)>,
    /// What a budget leaves, where one was given.
    pub budget: Option<Room>,
    /// What the run will be worth, where the sites' sizes were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastResult>,
}

/// What a budget leaves.
#[derive(Debug, Serialize)]
pub(super) struct Room {
    /// The budget.
    pub epsilon: f64,
    /// At this δ.
    pub delta: f64,
    /// Runs that are charged already.
    pub booked: u32,
    /// ε of them, as a ledger reads it.
    pub spent: Option<f64>,
    /// Runs that fit in beside them; at most [`MANY`].
    pub runs_left: u64,
    /// Whether one fits in.
    pub run_fits: bool,
}

fn finite(epsilon: Epsilon) -> Option<f64> {
    Some(epsilon.get()).filter(|e| e.is_finite())
}

/// The first visits of a run, as a plan.
fn first(task: &ResolvedTask, prices: &mut Prices, visits: u32) -> Result<Composition, TaskError> {
    let mut total = Composition::default();
    for (event, count) in task.visit_events(0..visits)? {
        total.add(&prices.learn(&event)?, count);
    }
    Ok(total)
}

/// Forecasts a run.
///
/// # Errors
/// A task whose events no engine bounds.
pub(super) fn forecast(task: &ResolvedTask, allowance: Option<Allowance>) -> Result<Forecast, TaskError> {
    let visits = task.visits();
    let mut prices = Prices::new(task.privacy.relation);
    let delta = task.privacy.delta;
    let run = first(task, &mut prices, visits)?.loss(delta);
    let mut after: Vec<(u32, Option<f64>)> = Vec::new();
    for i in 1..=STATED {
        let done = (visits * i).div_ceil(STATED);
        if after.last().is_none_or(|(before, _)| done > *before) {
            after.push((done, finite(first(task, &mut prices, done)?.loss(delta).epsilon)));
        }
    }
    let budget = allowance.map(|allowance| room(task, &prices, allowance)).transpose()?;
    Ok(Forecast {
        task: task.hash().to_string(),
        name: task.name.clone(),
        visits,
        epsilon: finite(run.epsilon),
        delta: delta.get(),
        relation: task.privacy.relation,
        fallback: task.fallback_loss(visits)?.and_then(|loss| finite(loss.epsilon)),
        method: run.method,
        numerical_margin: run.numerical_margin,
        after,
        budget,
        forecast: None,
    })
}

/// A ledger charges whole runs, by their envelopes.
fn room(task: &ResolvedTask, prices: &Prices, Allowance { epsilon, delta, booked }: Allowance) -> Result<Room, TaskError> {
    let run = RunCost::of(&task.visit_events(0..task.visits())?, prices, delta)?;
    let charge = |runs: &mut Runs| runs.add(&run, run.envelope_after(runs.envelope().failure));
    let mut runs = Runs::default();
    (0..booked).for_each(|_| charge(&mut runs));
    let spent = finite(runs.loss(delta).epsilon);
    let mut runs_left = 0;
    while runs_left < MANY {
        charge(&mut runs);
        if runs.loss(delta).epsilon > epsilon {
            break;
        }
        runs_left += 1;
    }
    Ok(Room { epsilon: epsilon.get(), delta: delta.get(), booked, spent, runs_left, run_fits: runs_left > 0 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_accounting::{Epsilon, Prices};
    use dp_pvi_posterior::task::{RawTask, ResolveContext};

    use super::{Allowance, first, forecast};

    /// A ledger charges a run as a whole, whichever visits come; several runs read at most 5 % more than the plan of all.
    #[test]
    fn a_budget_holds_whole_runs() {
        let schema = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";
        let text = "name = \"growing\"\n[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 5\n\
                    update = \"natural-gradient\"\nbudget_growth = 3.0\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n";
        let context = ResolveContext { name: "growing", update_deadline_seconds: 60, min_sites: 2, expected_sites: 2 };
        let task = RawTask::parse(text).unwrap().resolve(schema, context).unwrap();
        let (epsilon, delta) = (task.privacy.epsilon.unwrap(), task.privacy.delta);
        let budget_of = |epsilon, booked| forecast(&task, Some(Allowance { epsilon, delta, booked })).unwrap().budget.unwrap();
        let none = budget_of(epsilon, 0);
        assert!(none.spent.unwrap() < 1e-9 && none.run_fits && none.runs_left == 1, "{none:?}");
        let one = budget_of(epsilon, 1);
        assert!((one.spent.unwrap() / epsilon.get() - 1.0).abs() < 1e-6 && !one.run_fits && one.runs_left == 0, "{one:?}");
        let plan = {
            let (mut all, mut prices) =
                (first(&task, &mut Prices::new(task.privacy.relation), 5).unwrap(), Prices::new(task.privacy.relation));
            task.visit_events(0..5).unwrap().iter().for_each(|(event, count)| all.add(&prices.learn(event).unwrap(), *count));
            all.loss(delta).epsilon.get()
        };
        let two = budget_of(Epsilon::new(10.0).unwrap(), 2).spent.unwrap();
        assert!((plan..1.05 * plan).contains(&two), "{two} against {plan}");
    }
}
