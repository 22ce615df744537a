//! Partitioned variational inference without protection.

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::DpEvent;
use serde::Deserialize;

use crate::methods::agreement::SiteReleases;
use crate::methods::check::requires_local_trust;
use crate::methods::divided::{Divided, Undividable, of_factor};
use crate::methods::noise_aware::Absent;
use crate::methods::scaled::{ScaledRule, learned};
use crate::methods::with_scale::WithScale;
use crate::methods::{PviRule, Resolving, Rule, Setting, SiteStateForm, StateForm, Traits, UpdateRules, UpdateSpec, VisitForm, Visits};
use dp_pvi_models::spec::TaskError;
use dp_pvi_models::spec::check::{invalid, require};

pub(crate) struct Pvi;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {}

pub(crate) fn resolve(resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
    let Raw {} = resolving.options("pvi")?;
    if resolving.clip_norm.is_some() {
        return invalid("update = \"pvi\" clips nothing: remove clip_norm, or use update = \"dp-optimisation\"");
    }
    resolving.checked(UpdateSpec::Pvi {})
}

impl UpdateRules for Pvi {
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        requires_local_trust(task, "pvi")?;
        require(
            task.model.rules().is_linear(),
            "update = \"pvi\" needs a model with an exact local optimum: a family whose name ends in -regression",
        )?;
        require(task.privacy.epsilon.is_none(), "update = \"pvi\" protects nothing: remove epsilon, or use update = \"dp-optimisation\"")
    }

    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a> {
        let coordinates = task.family_len() + task.scale_numbers() as u64;
        Box::new(move |_| Ok(VisitForm::of_values(DpEvent::NonPrivate, coordinates)))
    }

    /// The local optimum has its own bound on iterations.
    fn traits(&self) -> Traits {
        Traits {
            is_private: false,
            is_asynchronous: true,
            learns_scales: true,
            learns_noise_scale: true,
            carries_site_effects: true,
            ..Traits::of_passes(1)
        }
    }

    fn state(&self, task: &Setting<'_>) -> StateForm {
        let site = SiteStateForm::Public(task.family().len() + task.scale_numbers());
        StateForm { len: task.family_len() + task.scale_numbers() as u64 + learned(task), site }
    }

    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule> {
        let (rule, scale) = (PviRule::new(task), task.learned_scale());
        let over = move |prior| -> Box<dyn Rule> {
            let inner = rule.clone().with_prior(prior);
            match scale {
                None => Box::new(inner),
                Some(scale) => Box::new(WithScale { inner, prior: scale.prior }),
            }
        };
        ScaledRule::over(Box::new(over), task, None)
    }

    fn released(&self) -> String {
        "at every visit the exact change of the natural parameters, computed from the records without noise".to_owned()
    }

    fn without(&self, task: &Setting<'_>, releases: &SiteReleases<'_>, site: usize) -> Result<Divided, Undividable> {
        of_factor(task, releases, site, Absent::NoNoise)
    }
}

impl Display for Pvi {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("exact local optimum, without privacy protection")
    }
}
