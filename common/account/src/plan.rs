//! What a resolved task costs each site before it runs, and how many rounds a budget leaves.

use dp_pvi_accounting::{Composition, Method, Prices};
use dp_pvi_accounting::{Delta, Epsilon};
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
    /// Engine.
    pub method: Method,
    /// Whether discrete noise was accounted as continuous, with its margin.
    pub numerical_margin: bool,
    /// ε after a number of visits.
    pub after: Vec<(u32, Option<f64>)>,
    /// What a budget leaves, where one was given.
    pub budget: Option<Room>,
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
    /// ε of them, as the filter of this budget reads it.
    pub spent: Option<f64>,
    /// Visits that fit in beside them; at most [`MANY`].
    pub rounds_left: u64,
    /// Whether the run fits in.
    pub run_fits: bool,
}

fn finite(epsilon: Epsilon) -> Option<f64> {
    Some(epsilon.get()).filter(|e| e.is_finite())
}

/// A task's visits as a ledger books them: whole runs, then the first visits of one more.
struct Booked<'a> {
    task: &'a ResolvedTask,
    prices: Prices,
}

impl Booked<'_> {
    fn visits(&mut self, times: u64) -> Result<Composition, TaskError> {
        let visits = self.task.visits();
        let (runs, more) = (times / u64::from(visits.max(1)), times % u64::from(visits.max(1)));
        let mut total = Composition::default();
        if runs > 0 {
            for (event, count) in self.task.visit_events(0..visits)? {
                total.add(&self.prices.learn(&event)?, count.saturating_mul(runs));
            }
        }
        for (event, count) in self.task.visit_events(0..u32::try_from(more).unwrap_or(visits))? {
            total.add(&self.prices.learn(&event)?, count);
        }
        Ok(total)
    }
}

/// Forecasts a run.
///
/// # Errors
/// A task whose events no engine bounds.
pub(super) fn forecast(task: &ResolvedTask, allowance: Option<Allowance>) -> Result<Forecast, TaskError> {
    let visits = task.visits();
    let mut booked = Booked { task, prices: Prices::new(task.privacy.relation) };
    let delta = task.privacy.delta;
    let run = booked.visits(u64::from(visits))?.loss(delta);
    let mut after: Vec<(u32, Option<f64>)> = Vec::new();
    for i in 1..=STATED {
        let done = (visits * i).div_ceil(STATED);
        if after.last().is_none_or(|(before, _)| done > *before) {
            after.push((done, finite(booked.visits(u64::from(done))?.loss(delta).epsilon)));
        }
    }
    let budget = match allowance {
        None => None,
        Some(allowance) => Some(room(&mut booked, visits, allowance)?),
    };
    Ok(Forecast {
        task: task.hash().to_string(),
        name: task.name.clone(),
        visits,
        epsilon: finite(run.epsilon),
        delta: delta.get(),
        method: run.method,
        numerical_margin: run.numerical_margin,
        after,
        budget,
    })
}

fn room(booked: &mut Booked<'_>, visits: u32, allowance: Allowance) -> Result<Room, TaskError> {
    let before = u64::from(allowance.booked);
    let mut fits = |more: u64| -> Result<bool, TaskError> {
        Ok(booked.visits(before.saturating_add(more))?.filtered(allowance.epsilon, allowance.delta).epsilon <= allowance.epsilon)
    };
    let run_fits = fits(u64::from(visits))?;
    let (mut low, mut high) = (0, 1);
    while high < MANY && fits(high)? {
        (low, high) = (high, (2 * high).min(MANY));
    }
    if high == MANY && fits(MANY)? {
        low = MANY;
    }
    while high - low > 1 && low < MANY {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok(Room {
        epsilon: allowance.epsilon.get(),
        delta: allowance.delta.get(),
        booked: allowance.booked,
        spent: finite(booked.visits(before)?.filtered(allowance.epsilon, allowance.delta).epsilon),
        rounds_left: low,
        run_fits,
    })
}
