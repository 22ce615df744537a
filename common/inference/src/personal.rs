//! A site's personal posterior: what all others released, and the exact likelihood of its own records in place of what it released itself.
//!
//! q_k = argmax over q of Σ_{i∈D_k} E_q log p(i | θ) − KL(q‖cavity), in the task's family. The cavity is what the others say. Where
//! the site knows what it released, that is a function of released values ([`dp_pvi_posterior::reading::personal`]). Otherwise its part is taken out as
//! the records tell it: its exact terms out of the released sums, or its exact factor (Σ(g + Hμ), ΣH) at the posterior out of the posterior.
//!
//! # Privacy
//! None: the result holds the likelihood of the records without noise. It is for the site's own people and leaves the gate as
//! [`OwnEyesOnly`] in a process that releases nothing. Nothing is charged, and no release depends on it.
//!
//! **Assumes** a likelihood of a linear predictor with an exact local optimum. **Source**: this project; the cavity is that of
//! partitioned variational inference (Ashman et al. 2022).

use dp_pvi_expfam::any::{Family, Gaussian};
use dp_pvi_expfam::gaussian::full::{svec, svec_times};
use dp_pvi_posterior::numerics::floor::PrecisionFloor;
use dp_pvi_posterior::reading::noise_aware::{self, Contribution, History, OwnNoise};
use dp_pvi_posterior::reading::personal::{Others, Released, Way, others};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::{OwnEyes, OwnEyesOnly, SiteState, Units};
use serde::{Deserialize, Serialize};

use crate::capabilities::glm::{self, LinearPredictor};
use crate::error::InferenceError;
use crate::methods::asked::{copied, text};
use crate::methods::{Job, exact_terms};
use crate::models::{self, Model};
use dp_pvi_records::RecordTable;

/// Largest d: exact optima factorise a d × d matrix.
const LARGEST_DIMENSION: usize = 8_192;

/// A site's personal posterior.
#[derive(Debug, Clone, PartialEq)]
pub struct Personal {
    /// Natural parameters in the task's family.
    pub natural: Vec<f64>,
    /// How the others' part was found.
    pub way: Way,
    /// In how many directions the cavity's precision was too small and was raised.
    pub floored: usize,
}

/// What is known beside the records.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The task.
    pub task: &'a ResolvedTask,
    /// Natural parameters of the posterior as it came out of the run.
    pub plain: &'a [f64],
    /// What this site released.
    pub released: &'a Released,
}

/// The personal posterior of the site with these units.
///
/// # Privacy
/// None; see the [module](self).
///
/// # Errors
/// The model has no exact local optimum of a linear predictor, or the numbers left the range of what can be computed.
pub fn posterior(known: &Known<'_>, units: &Units<RecordTable>, eyes: OwnEyes) -> Result<OwnEyesOnly<Personal>, InferenceError> {
    models::seal();
    let asked = Asked::of(known)?;
    let made = units.map(&copied(&asked)?, |asked, table| asked.fit(table));
    // Whether it failed may depend on the records: nobody but the site's own people is told.
    made.for_own_eyes(eyes).and_then(OwnEyesOnly::transpose).ok_or(FAILED)
}

/// The same of records that need no protection: for simulations.
///
/// # Errors
/// As [`posterior`].
pub fn of_table(known: &Known<'_>, table: &RecordTable) -> Result<Personal, InferenceError> {
    Asked::of(known)?.fit(table).ok_or(FAILED)
}

/// argmax over q in `family` of Σ E_q log p(record | θ) − KL(q‖cavity), and in how many directions the cavity was raised. `others` are natural parameters;
/// where their precision is below a tenth of the prior's, whose precision block is `prior`, it is raised to that, and h stays. `None` where the model has no exact optimum, or
/// the numbers leave the range of `f64`.
///
/// # Panics
/// `others` and `prior` are of another family.
#[must_use]
pub fn fit(model: &dyn Model, table: &RecordTable, family: Family, others: &[f64], prior: &[f64]) -> Option<(Gaussian, usize)> {
    let d = family.dimension();
    if !others.iter().all(|value| value.is_finite()) {
        return None;
    }
    let (mut natural, mut directions) = (others.to_vec(), 0);
    if let Some(floored) = PrecisionFloor::Cavity.apply(family, prior, &natural[d..]) {
        natural[d..].copy_from_slice(&floored.precision);
        directions = floored.directions;
    }
    let cavity = Gaussian::from_natural(family, natural).ok()?;
    Some((model.local_optimum()?.local_optimum(table, &cavity, &cavity).ok()?, directions))
}

const FAILED: InferenceError =
    InferenceError::Job("the personal posterior left the range of what can be computed: export the posterior again, or of another round");

/// The public half.
#[derive(Serialize, Deserialize)]
struct Asked {
    #[serde(with = "text")]
    task: ResolvedTask,
    plain: Vec<f64>,
    /// What released values say of the others, if they do.
    others: Option<Others>,
    /// The run as the site saw it, and its position there.
    seen: Option<(History, usize)>,
}

impl Asked {
    fn of(known: &Known<'_>) -> Result<Self, InferenceError> {
        let model = models::from_spec(&known.task.model)?;
        if model.linear_predictor().is_none() || model.local_optimum().is_none() {
            return Err(InferenceError::Capability("a personal posterior", "an exact optimum of a linear predictor"));
        }
        if known.task.family().dimension() > LARGEST_DIMENSION {
            return Err(InferenceError::Job("a personal posterior is computed for at most 8192 coefficients"));
        }
        Ok(Self {
            task: known.task.clone(),
            plain: known.plain.to_vec(),
            others: others(known.task, known.plain, known.released).ok(),
            seen: match known.released {
                Released::Sums(history, part) => Some((history.clone(), part.site)),
                Released::Factor(_) | Released::Unknown => None,
            },
        })
    }

    fn fit(&self, table: &RecordTable) -> Option<Personal> {
        let model = models::from_spec(&self.task.model).ok()?;
        let others = match &self.others {
            Some(others) => others.clone(),
            None => self.of_sums(model.as_ref(), table).or_else(|| self.of_posterior(model.linear_predictor()?, table))?,
        };
        let family = self.task.family();
        let (q, floored) = fit(model.as_ref(), table, family, &others.natural, &self.task.prior_natural()[family.dimension()..])?;
        Some(Personal { natural: q.natural().to_vec(), way: others.way, floored })
    }

    /// The sums without this site's exact terms: where what it sent hides its part, or was not kept.
    fn of_sums(&self, model: &dyn Model, table: &RecordTable) -> Option<Others> {
        let (history, site) = self.seen.as_ref()?;
        let mut before = self.task.rule().initial();
        let mut sums = Vec::with_capacity(history.rounds.len());
        for round in &history.rounds {
            let took_part = round.included.contains(site) && !before.is_empty();
            let job = Job { task: &self.task, visit: round.visit, lambda: &before, state: &SiteState::None };
            sums.push(if took_part { exact_terms(&job, model, table) } else { None });
            before.clone_from(&round.state);
        }
        let part = Contribution { site: *site, sums, noise: OwnNoise::Stays };
        let posterior = noise_aware::without(&self.task, history, &part).ok()?;
        Some(Others { natural: posterior.natural_parameters, way: Way::OthersOfSums })
    }

    /// The posterior without this site's exact factor there.
    fn of_posterior(&self, predictor: &dyn LinearPredictor, table: &RecordTable) -> Option<Others> {
        let q = Gaussian::from_natural(self.task.family(), self.plain.clone()).ok()?;
        Some(Others::divided(&self.plain, &exact_factor(predictor, table, &q), Way::ExactFactor))
    }
}

/// λ_k = (Σ(g + Hμ), ΣH) over the finite records of a table, at q; natural parameters of its family.
fn exact_factor(predictor: &dyn LinearPredictor, table: &RecordTable, q: &Gaussian) -> Vec<f64> {
    let (gradient, curvature) = glm::sums(table, |record| {
        let (mean, variance) = q.standard().project(record.indices, record.values);
        predictor.statistics(mean, variance, record.target)
    });
    let mean = q.standard().mean();
    let (carried, precision) = match q.family() {
        Family::DiagonalGaussian { .. } => {
            let precision: Vec<f64> = curvature.diagonal().iter().copied().collect();
            (precision.iter().zip(mean).map(|(h, mean)| h * mean).collect::<Vec<_>>(), precision)
        }
        Family::FullGaussian { .. } => {
            let precision = svec(&curvature);
            (svec_times(&precision, mean), precision)
        }
    };
    gradient.iter().zip(carried).map(|(g, carried)| g + carried).chain(precision).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests;
