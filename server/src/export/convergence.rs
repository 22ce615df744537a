//! How far a run is from where its released sums lead.

use dp_pvi_results::convergence::{Convergence, Verdict};
use serde::{Deserialize, Serialize};

use super::read;
use crate::config::Config;
use crate::error::Result;

/// Convergence after a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConvergenceStatus {
    /// Closed rounds that it is about.
    pub rounds: u32,
    /// Whether the run has converged; none where that is not known.
    pub verdict: Option<Verdict>,
    /// Root mean square over the coefficients of the distance between the run's own posterior and where its released sums place it, in standard
    /// deviations.
    pub overall: Option<f64>,
    /// What that means, or why it is not known.
    pub sentence: String,
}

impl ConvergenceStatus {
    /// On one line, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let overall = self.overall.map_or_else(String::new, |overall| format!("{overall:.2} standard deviations overall. "));
        format!("after round {}: {overall}{}", self.rounds, self.sentence)
    }
}

/// Convergence status of the last run after its last closed round.
///
/// # Errors
/// There is no run, or the store is damaged ([`ServerError::Corrupt`]).
pub(crate) fn convergence(config: &Config) -> Result<ConvergenceStatus> {
    let history = read(config)?;
    let (rounds, names) = (history.rounds(), history.task.parameter_names().unwrap_or_default());
    Ok(match history.rounds_so_far().and_then(|rounds| Convergence::of_run(&history.task, &rounds)) {
        Ok(convergence) => ConvergenceStatus {
            rounds,
            verdict: Some(convergence.verdict),
            overall: Some(convergence.overall),
            sentence: convergence.sentence(names.iter().map(String::as_str)),
        },
        Err(absent) => ConvergenceStatus { rounds, verdict: None, overall: None, sentence: format!("Not known, because {absent}.") },
    })
}
