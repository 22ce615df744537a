//! The rule by which a run may end before its plan does.

use serde::{Deserialize, Serialize};

use super::{ResolvedTask, ScheduleSpec, TaskError};
use crate::methods::noise_aware::{Absent, History};
use dp_pvi_models::spec::check::{invalid, require};

/// The run ends when the posterior has moved little for some rounds (`early_end` of `dp-pvi-protocol`). The rule looks at released values only, and the
/// guarantee is that of the whole plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyEndSpec {
    /// Most that any coefficient's mean may move in a round, in standard deviations of the posterior.
    pub distance: f64,
    /// Rounds in a row in which it moves no more (sweeps, where sites work in turn).
    pub rounds: u32,
}

impl ResolvedTask {
    /// A rule needs a posterior that is complete after every round.
    pub(super) fn check_early_end(&self) -> Result<(), TaskError> {
        let Some(EarlyEndSpec { distance, rounds }) = self.early_end else { return Ok(()) };
        require((1e-6..=1.0).contains(&distance), "distance of end_early must lie between 1e-6 and 1 (standard deviations)")?;
        require(
            rounds >= 1 && rounds < self.visits(),
            "rounds of end_early must be at least 1, and fewer than the task has: a posterior moves from one round to the next",
        )?;
        require(
            !matches!(self.schedule, ScheduleSpec::Asynchronous { .. }),
            "end_early needs rounds in which all sites have their turn: use schedule = \"synchronous\" or \"sequential\", or remove end_early",
        )?;
        // Some take the noise into the posterior at the last round of the plan only: they say so of a run that has none.
        let none = History { shares: Vec::new(), rounds: Vec::new() };
        let known = self.update.rules().noise_aware().and_then(|aware| match aware.posterior(&self.setting(), &none) {
            Err(Absent::Stopped) => Err(Absent::Stopped),
            _ => Ok(()),
        });
        match known {
            Ok(()) | Err(Absent::NoNoise) => Ok(()),
            Err(absent) => invalid(&format!("end_early needs intervals that are complete after every round: {absent}; remove end_early")),
        }
    }
}
