//! Numbers of a committee: options, price.

use std::fmt::{Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::methods::Setting;
use crate::methods::{DpOptimisationSpec, Resolving, SiteStateForm, StateForm, Traits, UpdateRules, UpdateSpec, Visits, dp_optimisation};
use crate::methods::{PviRule, Rule};
use dp_pvi_models::spec::check::{invalid, require};
use dp_pvi_models::spec::{ScheduleSpec, TaskError};

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

pub(crate) fn resolve(resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
    let (own, mut options): (toml::Table, toml::Table) =
        resolving.options.clone().into_iter().partition(|(key, _)| key == "committee_prior");
    // A committee has one visit, and no noise-aware posterior to be made of what it measures.
    options.entry("measured").or_insert(false.into());
    let own: Raw = Resolving { options: &own, ..*resolving }.options("bcm")?;
    let UpdateSpec::DpOptimisation(fit) = dp_optimisation::resolve(&Resolving { options: &options, ..*resolving })? else {
        return invalid("a member of a committee fits by DP optimisation");
    };
    resolving.checked(UpdateSpec::Bcm(BcmSpec { prior: own.committee_prior, sites: resolving.expected_sites, fit }))
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
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        require(
            task.schedule == ScheduleSpec::Synchronous { rounds: 1 },
            "update = \"bcm\" has schedule = \"synchronous\" and rounds = 1",
        )?;
        require(task.damping.iter().all(|&rho| rho >= 1.0), "update = \"bcm\" multiplies whole fits: remove damping")?;
        require(!self.fit.measured, "update = \"bcm\" sends fits only: remove measured")?;
        require(self.sites >= 1, "sites must be at least 1")?;
        self.fit.check(task)
    }

    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a> {
        self.fit.visits(task)
    }

    fn traits(&self) -> Traits {
        Traits::of_passes(self.fit.steps)
    }

    fn state(&self, task: &Setting<'_>) -> StateForm {
        StateForm { len: task.family_len(), site: SiteStateForm::None }
    }

    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule> {
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
