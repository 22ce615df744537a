//! Partitioned variational inference without protection.

use std::fmt::{Display, Formatter};

use dp_pvi_privacy::{DpEvent, PayloadKind};
use serde::Deserialize;

use super::{MessageForm, Resolving, SiteStateForm, UpdateRules, UpdateSpec};
use crate::rule::{PviRule, Rule};
use crate::task::check::{invalid, require, requires_local_trust};
use crate::task::{ResolvedTask, TaskError};

pub(super) struct Pvi;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {}

pub(super) fn resolve(resolving: &Resolving<'_>) -> Result<ResolvedTask, TaskError> {
    let Raw {} = resolving.options("pvi")?;
    if resolving.clip_norm.is_some() {
        return invalid("update = \"pvi\" clips nothing: remove clip_norm, or use update = \"dp-optimisation\"");
    }
    let task = ResolvedTask { update: UpdateSpec::Pvi {}, ..resolving.task.clone() };
    task.check()?;
    Ok(task)
}

impl UpdateRules for Pvi {
    fn check(&self, task: &ResolvedTask) -> Result<(), TaskError> {
        requires_local_trust(task, "pvi")?;
        require(
            task.model.rules().is_linear(),
            "update = \"pvi\" needs a model with an exact local optimum: linear, logistic, probit or Poisson regression",
        )?;
        require(task.privacy.epsilon.is_none(), "update = \"pvi\" protects nothing: remove epsilon, or use update = \"dp-optimisation\"")
    }

    fn event(&self, _task: &ResolvedTask, _visit: u32) -> Result<DpEvent, TaskError> {
        Ok(DpEvent::NonPrivate)
    }

    fn message(&self, task: &ResolvedTask, _visit: u32) -> Result<MessageForm, TaskError> {
        Ok(MessageForm { kind: PayloadKind::Values, coordinates: task.family().len() as u64 })
    }

    fn site_state(&self, task: &ResolvedTask) -> SiteStateForm {
        SiteStateForm::Public(task.family().len())
    }

    fn rule(&self, task: &ResolvedTask) -> Box<dyn Rule> {
        Box::new(PviRule::new(task))
    }

    fn is_private(&self) -> bool {
        false
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn released(&self) -> String {
        "at every visit the exact change of the natural parameters, computed from the records without noise".to_owned()
    }
}

impl Display for Pvi {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("exact local optimum, without privacy protection")
    }
}
