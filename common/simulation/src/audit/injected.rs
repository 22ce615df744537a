//! The audit of the audit: each fault of [`dp_pvi_privacy::injected`] is injected in turn, and the rows that could see it are run.
//!
//! What is injected is injected for the whole process, so nothing else may compute beside it.

use std::fmt::{Display, Formatter};

use dp_pvi_posterior::task::{FactorState, UpdateSpec};
use dp_pvi_privacy::injected::{BUGS, Bug, inject};
use serde::Serialize;

use super::registry::{Case, local};
use super::{AuditError, Row, audit};

/// What became of a fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The fault; none: the shipped code.
    pub bug: String,
    /// Rows that were run.
    pub rows: usize,
    /// Those that were flagged, with the reason.
    pub flagged: Vec<(String, String)>,
    /// Whether that is what an audit should say.
    pub right: bool,
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { bug, rows, flagged, right } = self;
        write!(f, "{} {bug:<18} {} of {rows} rows flagged", if *right { "as it should be:" } else { "WRONG:          " }, flagged.len())?;
        flagged.iter().take(1).try_for_each(|(row, reason)| write!(f, "; {row}: {reason}"))
    }
}

/// Takes a injected fault out again, whatever happens.
struct Injected;

impl Drop for Injected {
    fn drop(&mut self) {
        inject(None);
    }
}

/// The rows that see a fault; without one all of these. Faults of coins and of rounding are seen by the premises, faults of cells by the sums of cells,
/// which every audit looks at.
fn watching(bug: Option<Bug>) -> Vec<Case> {
    let of = |update: &str| local(update, "linear-regression");
    match bug {
        Some(Bug::SilentCoordinate | Bug::HalfNoise | Bug::FactorOne | Bug::MedianClip) => of("natural-gradient"),
        Some(Bug::NoiseInState) => {
            let mut cases = of("virtual-clients");
            // The noise that a state takes back is missing in the sum of all visits.
            cases.iter_mut().for_each(|case| case.steady = true);
            cases
        }
        Some(Bug::TwiceFactor) => local("vips, images", "sigmoid-belief"),
        Some(Bug::AveragedState) => {
            let mut cases = of("local-averaging");
            for case in &mut cases {
                // No task may name this any more: the update is given it directly.
                if let UpdateSpec::Shards(spec) = &mut case.task.update {
                    spec.state = FactorState::PrivateClean;
                }
            }
            cases
        }
        Some(
            Bug::Shuffled
            | Bug::ReusedCoins
            | Bug::NearestRounding
            | Bug::RedrawnBatches
            | Bug::NegativeCell
            | Bug::SignedOnce
            | Bug::BallBookedAsCells,
        ) => Vec::new(),
        None => {
            let usual = ["natural-gradient", "virtual-clients", "local-averaging"].into_iter().flat_map(of);
            usual.chain(local("vips, images", "sigmoid-belief")).collect()
        }
    }
}

/// Runs the watching rows once with each fault, and once without.
///
/// # Errors
/// See [`AuditError`].
pub fn run(trials: u32, mut done: impl FnMut(&Outcome)) -> Result<Vec<Outcome>, AuditError> {
    let mut outcomes = Vec::new();
    for bug in std::iter::once(None).chain(BUGS.map(Some)) {
        let _planted = Injected;
        inject(bug);
        // Resolved with the fault in place: noise is calibrated by the accountant that it may be in.
        // Noise in a state makes the visits of a run say too much together, which is less than what the other faults do to a single one.
        let times = if bug == Some(Bug::NoiseInState) { 5 } else { 1 };
        let rows = audit(&watching(bug), times * trials, |_| ())?;
        let flagged: Vec<_> = rows.iter().filter_map(|Row { name, flag, .. }| Some((name.clone(), flag.clone()?))).collect();
        let name = bug.map_or_else(|| "nothing injected".to_owned(), |bug| format!("{bug:?}"));
        let outcome = Outcome { bug: name, rows: rows.len(), right: flagged.is_empty() == bug.is_none(), flagged };
        done(&outcome);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
