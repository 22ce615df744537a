//! Evidence by one command: `dp-pvi-sim audit` runs the shipped updates with the secure noise source on neighbouring data sets, and holds what an attack
//! can prove beside what the accountant claims.
//!
//! For every combination that a task may name (module `registry`) two neighbouring data sets are made around a canary (`canary`), a site with a ledger in
//! memory answers all visits of the task in either data set, many times (`play`), and two tests accuse one of the neighbours (`judge`); where the law of
//! what is released is known (`law`), one of them is the likelihood ratio. The claim is the price of the very events that the permits were for. Three rows look
//! at premises of the claims that no such test can see (`premise`): that a term never leaves its integer bound, that coins are fresh, and that an epoch holds every unit once.
//! Two more rows are sums of cells, by the gate's mechanism alone (`cells`).
//!
//! A bound above the claim is flagged. A bound far below it is no news where the statistics of the neighbours' difference are weak (the fit of several steps, of
//! which the last point alone is seen) or where no two records reach the declared sensitivity (second moments have one sign): `law` is then the μ
//! of this very pair, and `reachable` that of the worst one where it has been derived.
//!
//! Whether the audit sees a fault is tried with faults to order: with the feature `fault-injection`, `audit --injected-faults` injects each of
//! `dp_pvi_privacy::injected` in turn.

mod canary;
mod cells;
#[cfg(feature = "fault-injection")]
pub mod injected;
mod judge;
mod law;
mod play;
mod premise;
mod registry;
mod scenes;

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::AccountantError;
use dp_pvi_accounting::DpEvent;
use dp_pvi_inference::InferenceError;
use dp_pvi_posterior::task::{TaskError, UpdateSpec};
use dp_pvi_privacy::SecureNoise;
use dp_pvi_privacy::ledger::LedgerError;
use dp_pvi_privacy::noise::NoRandomness;
use serde::Serialize;

use self::canary::{Neighbours, neighbours};
pub use self::judge::{Bounds, Claim};
use self::judge::{Runs, Verdict};
use self::law::Law;
use self::play::{Stage, Visit, pair};
pub use self::registry::{Case, EPSILON, View, cases, missing};
use self::scenes::scenes;
use crate::experiment::processors;

/// Probability that any flag of [`MOST_RUNS`] runs of [`MOST_ROWS`] rows is false.
pub(crate) const FALSE_FLAGS: f64 = 1e-4;
/// Rows of a run, at most.
pub(crate) const MOST_ROWS: usize = 2_000;
/// Runs that share [`FALSE_FLAGS`].
pub(crate) const MOST_RUNS: usize = 50;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// An update.
    #[error(transparent)]
    Update(#[from] InferenceError),
    /// A task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// An event.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
    /// No randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// Nothing has that name.
    #[error("no update's name begins with \"{0}\": leave --update out to see all")]
    NoSuchUpdate(String),
    /// A name that a task may give has no row.
    #[error("the audit has no row for {0}: add a section to its registry")]
    NoRow(String),
    /// A bug of ours.
    #[error("the audit itself is broken ({0}): report this as a bug")]
    Broken(&'static str),
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What was audited.
    pub name: String,
    /// Runs of each data set.
    pub trials: u32,
    /// What is claimed.
    pub claim: Option<Claim>,
    /// What was shown; absent where nothing is claimed.
    pub bounds: Option<Bounds>,
    /// Why the claim is refuted.
    pub flag: Option<String>,
}

impl Display for Row {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { name, claim, bounds, flag, .. } = self;
        write!(f, "{name:<86}")?;
        match (claim, bounds) {
            (Some(Claim { epsilon: Some(epsilon), mu, .. }), Some(bounds)) => {
                write!(f, " epsilon {:6.3} <= {epsilon:6.3}", bounds.epsilon)?;
                if let Some(mu) = mu {
                    write!(f, "   mu {:.3} <= {mu:.3}", bounds.mu)?;
                }
                if let Some(law) = bounds.law {
                    write!(f, " (this pair {law:.3}")?;
                    if let Some(reachable) = bounds.reachable {
                        write!(f, ", no pair above {reachable:.3}")?;
                    }
                    write!(f, ")")?;
                }
            }
            _ if flag.is_none() => write!(f, " {}", if claim.is_none() { "holds" } else { "nothing is claimed" })?,
            _ => {}
        }
        if let Some(flag) = flag {
            write!(f, "   FLAGGED: {flag}")?;
        }
        Ok(())
    }
}

/// Rows as a table in Markdown.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let head = "| update | model | neighbours | seen | runs | epsilon, proved and claimed | mu, proved and claimed | mu of these two neighbours | share of the claimed mu |\n\
                |---|---|---|---|---|---|---|---|---|\n";
    rows.iter().fold(head.to_owned(), |table, row| table + &row.markdown() + "\n")
}

impl Row {
    /// A line of a table. A name that is not of four parts is in the first column.
    fn markdown(&self) -> String {
        let mut cells: Vec<String> = self.name.split(" | ").map(str::to_owned).collect();
        cells.resize(4, String::new());
        cells.push(if self.trials > 0 { self.trials.to_string() } else { String::new() });
        let of = |proved: Option<f64>, claimed: Option<f64>| match (proved, claimed) {
            (Some(proved), Some(claimed)) => format!("{proved:.3} ≤ {claimed:.3}"),
            _ => String::new(),
        };
        let (claim, bounds) = (self.claim.as_ref(), self.bounds.as_ref());
        let mu = claim.and_then(|claim| claim.mu);
        cells.push(match (&self.flag, claim) {
            (Some(flag), _) => format!("**FLAGGED**: {flag}"),
            (None, None) => "holds".to_owned(),
            (None, Some(claim)) if claim.epsilon.is_none() => "nothing is claimed".to_owned(),
            (None, Some(claim)) => of(bounds.map(|bounds| bounds.epsilon), claim.epsilon),
        });
        cells.push(of(bounds.map(|bounds| bounds.mu), mu));
        let law = bounds.and_then(|bounds| bounds.law);
        cells.push(law.map_or_else(String::new, |law| format!("{law:.3}")));
        cells.push(match (law, mu, bounds.and_then(|bounds| bounds.reachable)) {
            (Some(law), Some(mu), Some(reachable)) => format!("{:.3}, no pair above {:.3}", law / mu, reachable / mu),
            (Some(law), Some(mu), None) => format!("{:.3}", law / mu),
            _ => String::new(),
        });
        format!("| {} |", cells.join(" | "))
    }
}

/// Audits these cases with so many runs of each data set, and the premises that all of them share, with the sums of cells. `done` is called with every row as soon as it is known; the
/// error of the bounds is shared by all of them.
///
/// # Errors
/// See [`AuditError`].
pub fn audit(cases: &[Case], trials: u32, mut done: impl FnMut(&Row)) -> Result<Vec<Row>, AuditError> {
    let mut rows = Vec::with_capacity(cases.len() + 2);
    for case in cases {
        let row = if registry::is_unprotected(case) {
            let claim = Claim { epsilon: None, delta: case.task.privacy.delta.get(), mu: None, profile: Vec::new() };
            Row { name: case.to_string(), trials: 0, claim: Some(claim), bounds: None, flag: None }
        } else {
            let runs = collect(case, trials)?;
            let Verdict { bounds, flag } = runs.judge(cases.len())?;
            Row { name: case.to_string(), trials: runs.trials(), claim: Some(runs.claim().clone()), bounds: Some(bounds), flag }
        };
        done(&row);
        rows.push(row);
    }
    for row in premise::rows()?.into_iter().chain(cells::rows(trials)?) {
        done(&row);
        rows.push(row);
    }
    Ok(rows)
}

/// Runs a case in both neighbours.
fn collect(case: &Case, trials: u32) -> Result<Runs, AuditError> {
    let stage = Stage::new(case)?;
    let (neighbours, law) = worst_neighbours(case, &stage)?;
    let runs = play_all(&stage, &neighbours, law.as_ref(), runs_of(case, trials))?;
    let events = |run: &[Visit]| run.iter().map(|visit| visit.event.clone()).collect::<Vec<DpEvent>>();
    let Some(charged) = runs[0].first().map(|run| events(&run.visits)) else { return Err(AuditError::Broken("no runs")) };
    let claim = Claim::of(&charged, case.relation, case.task.privacy.delta)?;
    if runs.iter().flatten().any(|run| !run.visits.iter().map(|visit| &visit.event).eq(&charged)) {
        return Err(AuditError::Broken("two runs of a task were charged for different events"));
    }
    Ok(Runs::new(claim, law.as_ref(), case, &runs))
}

/// No row has fewer runs, if so many are asked for.
const LEAST: u32 = 40;

/// Runs of each data set of a row, of so many that were asked for. One vector of an aggregated sum is what a site sends under local trust with other numbers, so a
/// quarter will do. Fits of shards that have no closed form take long: a quarter, and a sixteenth where the likelihood is integrated numerically.
fn runs_of(case: &Case, trials: u32) -> u32 {
    let view = if case.view == View::Alone { 4 } else { 1 };
    let fit = match &case.task.update {
        UpdateSpec::Shards(_) if case.model.starts_with("probit") => 16,
        UpdateSpec::Shards(_) if !case.model.starts_with("linear") => 4,
        _ => 1,
    };
    (trials / (view * fit)).max(LEAST).min(trials)
}

/// The pair of neighbours that are furthest apart, among the scenes of a row, and their law.
fn worst_neighbours(case: &Case, stage: &Stage<'_>) -> Result<(Neighbours, Option<Law>), AuditError> {
    let mut tried = Vec::new();
    for scene in scenes(case) {
        let neighbours = neighbours(case, &scene);
        let law = Law::of(stage, &neighbours)?;
        tried.push((law.as_ref().and_then(Law::mu).unwrap_or(0.0), neighbours, law));
    }
    // The first among equals: a scene that comes later is taken only where it is clearly worse.
    tried.sort_by(|(a, ..), (b, ..)| (100.0 * b).round().total_cmp(&(100.0 * a).round()));
    // A law that is not the same in every run is still a score, if there is none that is.
    let mut best = 0;
    for (place, (_, neighbours, law)) in tried.iter().enumerate() {
        if let Some(law) = law
            && law.is_stable(stage, neighbours)?
        {
            best = place;
            break;
        }
    }
    let (_, neighbours, law) = tried.into_iter().nth(best).ok_or(AuditError::Broken("no scene"))?;
    Ok((neighbours, law))
}

/// A run, and its likelihood ratio where that is known.
struct Run {
    visits: Vec<Visit>,
    score: Option<f64>,
}

/// These runs of both neighbours, on all processors.
fn play_all(stage: &Stage<'_>, neighbours: &Neighbours, law: Option<&Law>, count: u32) -> Result<[Vec<Run>; 2], AuditError> {
    let threads = u32::try_from(processors()).unwrap_or(1).clamp(1, count.max(1));
    let scored = |number: u32, visits: Vec<Visit>| {
        let score = match law {
            Some(_) if law::follows(stage) => Law::following(stage, neighbours, number, &visits)?.map(|law| law.score(&visits)),
            Some(law) => Some(law.score(&visits)),
            None => None,
        };
        Ok::<_, AuditError>(Run { visits, score })
    };
    let played = |number: u32| {
        let [first, second] = pair(stage, neighbours, &SecureNoise, number)?;
        Ok([scored(2 * number, first)?, scored(2 * number + 1, second)?])
    };
    let parts = std::thread::scope(|scope| {
        let part = |thread: u32| {
            let mine = (thread..count).step_by(threads as usize);
            scope.spawn(|| mine.map(played).collect::<Result<Vec<_>, AuditError>>())
        };
        let handles: Vec<_> = (0..threads).map(part).collect();
        // A panic is passed on.
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect::<Vec<_>>()
    });
    let mut all = [Vec::new(), Vec::new()];
    for part in parts {
        for [first, second] in part? {
            all[0].push(first);
            all[1].push(second);
        }
    }
    Ok(all)
}
