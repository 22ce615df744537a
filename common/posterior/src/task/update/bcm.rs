//! The Bayesian committee machine (algorithms.md 7.1): every site fits alone, once, by DP optimisation, and the fits are multiplied.
//!
//! With the same prior at every site λ = Σ λ^(m) − (M − 1) λ0; with a split prior every site has λ0/M and λ = Σ λ^(m). Either way
//! λ = λ0 + Σ (λ^(m) − its prior), which is one synchronous undamped round of partitioned variational inference. Fits keep at least the
//! precision of their prior, so no member takes precision away.

use std::fmt::{Display, Formatter};

use dp_pvi_privacy::DpEvent;
use serde::{Deserialize, Serialize};

use super::{DpOptimisationSpec, MessageForm, Resolving, SiteStateForm, UpdateRules, UpdateSpec, dp_optimisation};
use crate::rule::{PviRule, Rule};
use crate::task::check::{invalid, require};
use crate::task::{ResolvedTask, ScheduleSpec, TaskError};

/// Numbers of a committee.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BcmSpec {
    /// What every member's prior is.
    pub prior: CommitteePrior,
    /// M: public number of members, by which a split prior is divided.
    pub sites: u32,
    /// How a member fits.
    pub fit: DpOptimisationSpec,
}

/// Priors of a committee's members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitteePrior {
    /// The task's.
    Same,
    /// The task's to the power 1/M.
    Split,
}

/// Option of `[pvi]` with `update = "bcm"`; the others are those of DP optimisation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// Required.
    committee_prior: CommitteePrior,
}

pub(super) fn resolve(resolving: &Resolving<'_>) -> Result<ResolvedTask, TaskError> {
    let (own, options): (toml::Table, toml::Table) = resolving.options.clone().into_iter().partition(|(key, _)| key == "committee_prior");
    let own: Raw = Resolving { options: &own, ..*resolving }.options("bcm")?;
    let alone = dp_optimisation::resolve(&Resolving { options: &options, ..*resolving })?;
    let UpdateSpec::DpOptimisation(fit) = alone.update else { return invalid("a member of a committee fits by DP optimisation") };
    let update = UpdateSpec::Bcm(BcmSpec { prior: own.committee_prior, sites: resolving.expected_sites, fit });
    let task = ResolvedTask { update, ..alone };
    task.check()?;
    Ok(task)
}

impl BcmSpec {
    /// What a member's prior is to the task's, as a factor on natural parameters.
    #[must_use]
    pub fn prior_share(&self) -> f64 {
        match self.prior {
            CommitteePrior::Same => 1.0,
            CommitteePrior::Split => 1.0 / f64::from(self.sites),
        }
    }
}

impl UpdateRules for BcmSpec {
    fn check(&self, task: &ResolvedTask) -> Result<(), TaskError> {
        require(
            task.schedule == ScheduleSpec::Synchronous { rounds: 1 },
            "update = \"bcm\" has schedule = \"synchronous\" and rounds = 1",
        )?;
        require(task.damping.iter().all(|&rho| rho >= 1.0), "update = \"bcm\" multiplies whole fits: remove damping")?;
        require(self.sites >= 1, "sites must be at least 1")?;
        self.fit.check(task)
    }

    fn event(&self, task: &ResolvedTask, visit: u32) -> Result<DpEvent, TaskError> {
        self.fit.event(task, visit)
    }

    fn message(&self, task: &ResolvedTask, visit: u32) -> Result<MessageForm, TaskError> {
        self.fit.message(task, visit)
    }

    fn site_state(&self, _task: &ResolvedTask) -> SiteStateForm {
        SiteStateForm::None
    }

    fn rule(&self, task: &ResolvedTask) -> Box<dyn Rule> {
        Box::new(PviRule::new(task))
    }

    fn released(&self) -> String {
        self.fit.released()
    }
}

impl Display for BcmSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let prior = match self.prior {
            CommitteePrior::Same => "the same prior at every site",
            CommitteePrior::Split => "the prior split between the sites",
        };
        write!(f, "Bayesian committee machine, {prior}; {}", self.fit)
    }
}
