//! What a resolved task costs each site before it runs, and how many rounds a budget leaves.

use dp_pvi_accounting::{Charge, Composition, Method, Prices, Relation};
use dp_pvi_accounting::{Delta, Epsilon};
use dp_pvi_forecast::Prospect;
use dp_pvi_posterior::task::{ResolvedTask, TaskError};
use serde::Serialize;

/// Rounds are counted up to here.
pub(super) const MANY: u64 = 1_000_000;
/// ε is stated after so many visits of the run, evenly spaced.
const STATED: u32 = 20;

/// What a site wants to spend, and what it booked of the same task before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// Budget.
    pub epsilon: Epsilon,
    /// At this δ.
    pub delta: Delta,
    /// Visits that are booked already.
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
    pub forecast: Option<Prospect>,
}

/// What a budget leaves.
#[derive(Debug, Serialize)]
pub(super) struct Room {
    /// The budget.
    pub epsilon: f64,
    /// At this δ.
    pub delta: f64,
    /// Visits that are booked already.
    pub booked: u32,
    /// ε of them, as the filter of this budget reads it: at most, whichever visits of as few runs as possible they were.
    pub spent: Option<f64>,
    /// Visits that fit in beside them; at most [`MANY`].
    pub rounds_left: u64,
    /// Whether the run fits in.
    pub run_fits: bool,
}

fn finite(epsilon: Epsilon) -> Option<f64> {
    Some(epsilon.get()).filter(|e| e.is_finite())
}

/// A task's visits as a ledger books them.
struct Booked<'a> {
    task: &'a ResolvedTask,
    prices: Prices,
    /// Kinds of visits of a run and their number, dearest first.
    kinds: Vec<(Charge, u64)>,
}

impl<'a> Booked<'a> {
    fn new(task: &'a ResolvedTask) -> Result<Self, TaskError> {
        let mut prices = Prices::new(task.privacy.relation);
        let mut kinds = Vec::new();
        for (event, count) in task.visit_events(0..task.visits())? {
            let charge = prices.learn(&event)?;
            let mut one = Composition::default();
            one.add(&charge, 1);
            kinds.push((one.loss(task.privacy.delta).epsilon.get(), charge, count));
        }
        kinds.sort_by(|a, b| b.0.total_cmp(&a.0));
        Ok(Self { task, prices, kinds: kinds.into_iter().map(|(_, charge, count)| (charge, count)).collect() })
    }

    /// The first visits of a run.
    fn first(&mut self, visits: u32) -> Result<Composition, TaskError> {
        let mut total = Composition::default();
        for (event, count) in self.task.visit_events(0..visits)? {
            total.add(&self.prices.learn(&event)?, count);
        }
        Ok(total)
    }

    /// Whole runs, then the dearest visits of one more: which visits a site was there for, nobody says.
    fn dearest(&self, times: u64) -> Composition {
        let visits = self.task.visits();
        let (runs, more) = (times / u64::from(visits.max(1)), times % u64::from(visits.max(1)));
        let mut total = Composition::default();
        for (charge, count) in &self.kinds {
            total.add(charge, count.saturating_mul(runs));
        }
        let mut left = more;
        for (charge, count) in &self.kinds {
            let taken = left.min(*count);
            total.add(charge, taken);
            left -= taken;
        }
        total
    }
}

/// Forecasts a run.
///
/// # Errors
/// A task whose events no engine bounds.
pub(super) fn forecast(task: &ResolvedTask, allowance: Option<Allowance>) -> Result<Forecast, TaskError> {
    let visits = task.visits();
    let mut booked = Booked::new(task)?;
    let delta = task.privacy.delta;
    let run = booked.first(visits)?.loss(delta);
    let mut after: Vec<(u32, Option<f64>)> = Vec::new();
    for i in 1..=STATED {
        let done = (visits * i).div_ceil(STATED);
        if after.last().is_none_or(|(before, _)| done > *before) {
            after.push((done, finite(booked.first(done)?.loss(delta).epsilon)));
        }
    }
    let budget = allowance.map(|allowance| room(&booked, visits, allowance));
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

fn room(booked: &Booked<'_>, visits: u32, allowance: Allowance) -> Room {
    let before = u64::from(allowance.booked);
    let fits =
        |more: u64| booked.dearest(before.saturating_add(more)).filtered(allowance.epsilon, allowance.delta).epsilon <= allowance.epsilon;
    let run_fits = fits(u64::from(visits));
    let (mut low, mut high) = (0, 1);
    while high < MANY && fits(high) {
        (low, high) = (high, (2 * high).min(MANY));
    }
    if high == MANY && fits(MANY) {
        low = MANY;
    }
    while high - low > 1 && low < MANY {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    Room {
        epsilon: allowance.epsilon.get(),
        delta: allowance.delta.get(),
        booked: allowance.booked,
        spent: finite(booked.dearest(before).filtered(allowance.epsilon, allowance.delta).epsilon),
        rounds_left: low,
        run_fits,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_accounting::{Composition, Prices};
    use dp_pvi_posterior::task::{RawTask, ResolveContext};

    use super::{Allowance, forecast};

    /// Later visits cost more where the budget grows, and nobody says which three a site was there for.
    #[test]
    fn finding_attack3_3_booked_visits_are_the_dearest_ones() {
        let schema = "[label]\ncolumn = \"y\"\nkind = \"binary\"\npositive = [\"1\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";
        let text = "name = \"growing\"\n[model]\nfamily = \"logistic-regression\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 5\n\
                    update = \"natural-gradient\"\nbudget_growth = 3.0\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n";
        let context = ResolveContext { name: "growing", update_deadline_seconds: 60, min_sites: 2, expected_sites: 2 };
        let task = RawTask::parse(text).unwrap().resolve(schema, context).unwrap();
        let (epsilon, delta) = (task.privacy.epsilon.unwrap(), task.privacy.delta);
        let told = |booked| forecast(&task, Some(Allowance { epsilon, delta, booked })).unwrap().budget.unwrap();
        let mut prices = Prices::new(task.privacy.relation);
        let mut worst: f64 = 0.0;
        for visits in [[0, 1, 2], [0, 3, 4], [2, 3, 4], [0, 1, 4]] {
            let mut total = Composition::default();
            for visit in visits {
                for (event, count) in task.visit_events(visit..visit + 1).unwrap() {
                    total.add(&prices.learn(&event).unwrap(), count);
                }
            }
            worst = worst.max(total.filtered(epsilon, delta).epsilon.get());
        }
        let spent = told(3).spent.unwrap();
        assert!(spent >= worst && spent <= worst * (1.0 + 1e-9), "{spent} against {worst}");
        assert!(told(0).spent.unwrap() < 1e-9 && told(0).run_fits && told(0).rounds_left >= 5);
        assert!(!told(3).run_fits && told(3).rounds_left == 2, "{:?}", told(3));
    }
}
