//! Numbers of DP-EM: options, defaults, price.

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::{ClipNorm, DpEvent, NoiseMultiplier, Terms};
use dp_pvi_privacy::mechanism::SumMechanism;
use serde::{Deserialize, Serialize};

use crate::methods::setting::triangle_numbers;
use crate::methods::{EmRule, Rule};
use crate::methods::{Resolving, SiteStateForm, StateForm, Traits, UpdateRules, UpdateSpec, VisitForm, Visits};
use crate::methods::{Setting, SumSpec};
use dp_pvi_models::gaussian_mixture::em::{Scales, statistics_len};
use dp_pvi_models::spec::check::checked;
use dp_pvi_models::spec::check::{invalid, positive, require};
use dp_pvi_models::spec::words::Short;
use dp_pvi_models::spec::{Approximation, ScheduleSpec, TaskError};
use dp_pvi_privacy::clipping::blocks::block_scales;

/// Numbers of DP-EM.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DpEmSpec {
    /// z; absent without protection.
    pub noise_multiplier: Option<NoiseMultiplier>,
    /// a: factor on the responsibilities.
    pub weight_scale: f64,
    /// b: factor on the first moments.
    pub mean_scale: f64,
    /// c: factor on the second moments.
    pub second_scale: f64,
}

/// Options of `[pvi]` with `update = "dp-em"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// Expected harm of a unit of noise variance on weights, means and second moments. Default: equal shares of the budget.
    importances: Option<[f64; 3]>,
}

pub(crate) fn resolve(resolving: &Resolving<'_>) -> Result<UpdateSpec, TaskError> {
    let Raw { importances } = resolving.options("dp-em")?;
    if resolving.clip_norm.is_some() {
        return invalid("update = \"dp-em\" has a public bound and clips nothing: remove clip_norm");
    }
    let bound = resolving.task.feature_bound;
    if !positive(bound) {
        return invalid("update = \"dp-em\" needs rows of bounded norm above 0");
    }
    let sensitivities = [1.0, bound, bound * bound];
    let importances = match importances {
        Some(given) if given.iter().all(|w| positive(*w)) => given,
        Some(_) => return invalid("importances must be three finite numbers above 0"),
        None => sensitivities.map(|s| 1.0 / (s * s)),
    };
    let scales = block_scales(&sensitivities, &importances);
    let protected = resolving.task.privacy.epsilon.is_some();
    let spec = DpEmSpec {
        noise_multiplier: if protected { Some(checked(NoiseMultiplier::new(1.0))?) } else { None },
        weight_scale: 1.0 / scales[0],
        mean_scale: 1.0 / scales[1],
        second_scale: 1.0 / scales[2],
    };
    let with = UpdateSpec::DpEm;
    resolving.check(&with(spec))?;
    let noise_multiplier =
        if protected { Some(resolving.calibrated(|z| with(DpEmSpec { noise_multiplier: Some(z), ..spec }))?) } else { None };
    resolving.checked(with(DpEmSpec { noise_multiplier, ..spec }))
}

impl DpEmSpec {
    /// a, b and c.
    #[must_use]
    pub fn scales(&self) -> Scales {
        Scales { weight: self.weight_scale, mean: self.mean_scale, second: self.second_scale }
    }

    /// The mechanism of a visit; `None` without protection.
    ///
    /// # Errors
    /// Numbers that do not fit the lattice.
    pub fn mechanism(&self, task: &Setting<'_>) -> Result<Option<SumMechanism>, TaskError> {
        self.sum_of(task)?.map(|sum| sum.mechanism(task)).transpose()
    }

    fn sum_of(&self, task: &Setting<'_>) -> Result<Option<SumSpec>, TaskError> {
        let Some(noise) = self.noise_multiplier else { return Ok(None) };
        // A little more than the norm, so that no record is shortened by rounding.
        let clip = checked(ClipNorm::new(self.scales().sensitivity(task.feature_bound) * (1.0 + 1e-9)))?;
        let Ok(coordinates) = u32::try_from(coordinates(task)) else { return invalid("the model has too many parameters for one sum") };
        Ok(Some(SumSpec { coordinates, clip, noise, sampling: None, terms: Terms::Units }))
    }
}

fn coordinates(task: &Setting<'_>) -> usize {
    task.model.rules().mixture().map_or(0, |mixture| statistics_len(mixture.components as usize, task.features as usize))
}

impl UpdateRules for DpEmSpec {
    fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        require(task.model.rules().mixture().is_some(), "update = \"dp-em\" fits family = \"gaussian-mixture\" only")?;
        require(task.approximation == Approximation::MeanField, "update = \"dp-em\" needs approximation = \"mean-field\"")?;
        require(
            matches!(task.schedule, ScheduleSpec::Synchronous { .. }),
            "update = \"dp-em\" sums over all sites: use schedule = \"synchronous\"",
        )?;
        require(task.damping.iter().all(|&rho| rho >= 1.0), "update = \"dp-em\" has no damping: remove it")?;
        require([self.weight_scale, self.mean_scale, self.second_scale].into_iter().all(positive), "scales must be finite and above 0")?;
        require(self.noise_multiplier.is_some() == task.privacy.epsilon.is_some(), "a noise multiplier belongs to a finite epsilon")
    }

    fn visits<'a>(&'a self, task: &'a Setting<'_>) -> Visits<'a> {
        Box::new(|_| match self.sum_of(task)? {
            Some(sum) => VisitForm::of_sum(sum, task),
            None => Ok(VisitForm::of_values(DpEvent::NonPrivate, coordinates(task) as u64)),
        })
    }

    fn traits(&self) -> Traits {
        Traits { is_private: self.noise_multiplier.is_some(), carries_offsets: false, ..Traits::of_passes(1) }
    }

    /// Behind λ: weights, their total, and the covariances.
    fn state(&self, task: &Setting<'_>) -> StateForm {
        let mixture = task.model.rules().mixture();
        let covariances = mixture.map_or(0, |form| u64::from(form.components) * (1 + triangle_numbers(task.features.into())) + 1);
        StateForm { len: task.family_len() + covariances, site: SiteStateForm::None }
    }

    fn rule(&self, task: &Setting<'_>) -> Box<dyn Rule> {
        Box::new(EmRule::new(task, self.scales()))
    }

    fn released(&self) -> String {
        let noise = if self.noise_multiplier.is_some() { "noised " } else { "" };
        format!("at every visit one {noise}sum over the records, of responsibilities, and of rows and their products weighted by them")
    }
}

impl Display for DpEmSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("expectation maximisation")?;
        match self.noise_multiplier {
            Some(z) => write!(f, " from noised statistics, z {}", Short(z.get())),
            None => f.write_str(", without privacy protection"),
        }
    }
}
