//! Evidence by one command: `dp-pvi-sim audit` runs the shipped updates with the secure noise source on neighbouring worlds, and holds what an attack
//! can prove beside what the accountant claims.
//!
//! For every combination that a task may name (module `registry`) two neighbouring data sets are made around a canary (`canary`), a site with a ledger in
//! memory answers all visits of the task in either world, many times (`play`), and two tests accuse one of the worlds (`judge`); where the law of
//! what is released is known (`law`), one of them is the likelihood ratio. The claim is the price of the very events that the permits were for. Two rows look
//! at premises of the claims that no such test can see (`premise`): that a term never leaves its integer bound, and that coins are fresh.
//!
//! A bound above the claim is flagged. A bound far below it is no news where the statistics of the worlds' difference are weak (the fit of several steps, of
//! which the last point alone is seen) or where no two records reach the declared sensitivity (second moments have one sign): `law` is then the μ
//! of this very pair, and `reachable` that of the worst one where it has been derived.
//!
//! Whether the audit sees a fault is tried with faults to order: with the feature `planted-bugs`, `audit --planted` plants each of
//! `dp_pvi_privacy::planted` in turn.

mod canary;
mod judge;
mod law;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod play;
mod premise;
mod registry;

use std::fmt::{Display, Formatter};
use std::ops::Range;

use dp_pvi_accounting::AccountantError;
use dp_pvi_accounting::DpEvent;
use dp_pvi_inference::InferenceError;
use dp_pvi_posterior::task::{TaskError, UpdateSpec};
use dp_pvi_privacy::SecureNoise;
use dp_pvi_privacy::ledger::LedgerError;
use dp_pvi_privacy::noise::NoRandomness;
use serde::Serialize;

use self::canary::{Crowd, Worlds, worlds};
pub use self::judge::{Bounds, Claim};
use self::judge::{Runs, Verdict};
use self::law::Law;
use self::play::{Stage, Visit, pair};
pub use self::registry::{Case, EPSILON, View, cases, missing};
use crate::experiment::processors;

/// Probability that any flag of [`MOST_RUNS`] runs of [`MOST_ROWS`] rows is false.
pub const FALSE_FLAGS: f64 = 1e-4;
/// Rows of a run, at most.
pub const MOST_ROWS: usize = 1_000;
/// Runs that share [`FALSE_FLAGS`].
pub const MOST_RUNS: usize = 50;

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
    /// Runs of each world.
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

/// Audits these cases with so many runs of each world, and the premises that all of them share. `done` is called with the name of every row that was
/// run; the bounds come at the end, because their error is shared by all of them.
///
/// # Errors
/// See [`AuditError`].
pub fn audit(cases: &[Case], trials: u32, mut done: impl FnMut(&str)) -> Result<Vec<Row>, AuditError> {
    let mut runs = Vec::with_capacity(cases.len());
    for case in cases {
        runs.push(if registry::is_unprotected(case) { None } else { Some(collect(case, trials)?) });
        done(&case.to_string());
    }
    let mut rows = Vec::with_capacity(cases.len() + 2);
    for (case, runs) in cases.iter().zip(&runs) {
        rows.push(match runs {
            None => Row {
                name: case.to_string(),
                trials: 0,
                claim: Some(Claim { epsilon: None, delta: case.task.privacy.delta.get(), mu: None, profile: Vec::new() }),
                bounds: None,
                flag: None,
            },
            Some(runs) => {
                let Verdict { bounds, flag } = runs.judge(cases.len())?;
                Row { name: case.to_string(), trials: runs.trials(), claim: Some(runs.claim().clone()), bounds: Some(bounds), flag }
            }
        });
    }
    rows.extend(premise::rows()?);
    Ok(rows)
}

/// Runs a case in both worlds.
fn collect(case: &Case, trials: u32) -> Result<Runs, AuditError> {
    let stage = Stage::new(case)?;
    let (worlds, law) = worst_worlds(case, &stage)?;
    let few = (trials / FEW).max(LEAST).min(trials);
    let [mut first, mut second] = play_all(&stage, &worlds, 0..few)?;
    let events = |run: &[Visit]| run.iter().map(|visit| visit.event.clone()).collect::<Vec<DpEvent>>();
    let Some(charged) = first.first().map(|run| events(run)) else { return Err(AuditError::Broken("no runs")) };
    let claim = Claim::of(&charged, case.relation, case.task.privacy.delta)?;
    let more = match (claim.mu, law.as_ref().and_then(Law::mu)) {
        (Some(claimed), Some(pair)) if trials > few => wanted(trials, pair / claimed).max(few),
        _ => few,
    };
    let [more_first, more_second] = play_all(&stage, &worlds, few..more)?;
    first.extend(more_first);
    second.extend(more_second);
    if first.iter().chain(&second).any(|run| !run.iter().map(|visit| &visit.event).eq(&charged)) {
        return Err(AuditError::Broken("two runs of a task were charged for different events"));
    }
    Ok(Runs::new(claim, law.as_ref(), case, [&first, &second]))
}

/// Of so many runs a row whose pair cannot come near the claim, or whose law is not known, has one: more would show no more.
const FEW: u32 = 4;
/// But not fewer than these.
const LEAST: u32 = 600;

/// Runs of a row whose pair has this share of the claimed μ: the nearer to nine tenths, the more it takes to show that much.
fn wanted(trials: u32, share: f64) -> u32 {
    if share < 0.92 {
        return trials / FEW;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between once and six times as many")]
    let times = |factor: f64| (f64::from(trials) * factor) as u32;
    times((0.1 / (share - 0.9)).powi(2).clamp(1.0, 6.0))
}

/// The pair of worlds that are furthest apart, among some crowds, and their law.
fn worst_worlds(case: &Case, stage: &Stage<'_>) -> Result<(Worlds, Option<Law>), AuditError> {
    let sampled = format!("{:?}", case.task.visit_event(0)?).contains("PoissonSampled");
    let crowds: Vec<Crowd> = match &case.task.update {
        _ if sampled => vec![Crowd::Silent],
        // What shards start from may move all of them: from crowds that say nothing to crowds that the clip shortens.
        UpdateSpec::Shards(_) if case.model.starts_with("linear-regression") => {
            [0.0, 1.0, 2.0, 3.0, 4.0, 8.0, 32.0].map(Crowd::Alike).to_vec()
        }
        UpdateSpec::Shards(_) => vec![Crowd::Alike(1.0)],
        UpdateSpec::NaturalGradient(_) => std::iter::once(Crowd::Mixed).chain([2.0, 3.0, 4.0, 6.0].map(Crowd::Crossed)).collect(),
        _ => vec![Crowd::Mixed],
    };
    let mut best: Option<(f64, Worlds, Option<Law>)> = None;
    for crowd in crowds {
        let worlds = worlds(case, crowd);
        let law = Law::of(stage, &worlds)?;
        let apart = law.as_ref().and_then(Law::mu).unwrap_or(0.0);
        // A crowd that says less is kept unless another is clearly worse.
        if best.as_ref().is_none_or(|(before, _, _)| apart > 1.01 * before) {
            best = Some((apart, worlds, law));
        }
    }
    best.map(|(_, worlds, law)| (worlds, law)).ok_or(AuditError::Broken("no crowd"))
}

/// These runs of both worlds, on all processors.
fn play_all(stage: &Stage<'_>, worlds: &Worlds, trials: Range<u32>) -> Result<[Vec<Vec<Visit>>; 2], AuditError> {
    let count = trials.len();
    let threads = processors().clamp(1, count.max(1));
    let parts = std::thread::scope(|scope| {
        let part = |thread: usize| {
            let mine = trials.clone().skip(thread).step_by(threads);
            scope.spawn(move || mine.map(|number| pair(stage, worlds, &SecureNoise, number)).collect::<Result<Vec<_>, _>>())
        };
        let handles: Vec<_> = (0..threads).map(part).collect();
        // A panic is passed on.
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect::<Vec<_>>()
    });
    let mut all = [Vec::new(), Vec::new()];
    all.iter_mut().for_each(|runs| runs.reserve(count));
    for part in parts {
        for [first, second] in part? {
            all[0].push(first);
            all[1].push(second);
        }
    }
    Ok(all)
}
