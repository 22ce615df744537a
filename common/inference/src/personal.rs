//! A site's personal posterior: what all others released, and the exact likelihood of its own records in place of what it released itself.
//!
//! q_k = argmax over q of Σ_{i∈D_k} E_q log p(i | θ) − KL(q‖cavity), in the task's family. The cavity is what the others say. Where
//! the site knows what it released, that is a function of released values ([`mod@crate::personal::others`]). Otherwise its part is taken out as
//! the records tell it: its exact terms out of the released sums, or its exact factor (Σ(g + Hμ), ΣH) at the posterior out of the posterior.
//!
//! **Sites differ.** The others tell of coefficients φ that are not quite this site's: θ = φ + u, u ~ N(0, T). So the cavity's covariance is widened by T before
//! it meets the records. How large T is the records say: q is the mixture over a public grid of T, weighted by exp of each one's bound on log p(D_k), and
//! written as the Gaussian with the mixture's moments. The grid has T = 0, and multiples of the differences that the test of agreement takes for ordinary.
//! [`Heterogeneity::None`] leaves it out: then q is exactly q/t_k times the site's likelihood.
//!
//! # Privacy
//! None: the result holds the likelihood of the records without noise. It is for the site's own people and leaves the gate as
//! [`LocalOnly`] in a process that releases nothing. Nothing is charged, and no release depends on it.
//!
//! **Assumes** a likelihood of a linear predictor with an exact local optimum. **Source**: this project; random effects as in meta-analysis; the cavity is that of
//! partitioned variational inference (Ashman et al. 2022).

pub mod others;

use crate::personal::others::{Others, Released, Way, others};
use dp_pvi_math::agreement::Allowance;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec, svec_times};
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_posterior::methods::agreement::allowance;
use dp_pvi_posterior::methods::noise_aware::{Contribution, History, OwnNoise};
use dp_pvi_posterior::noise_aware;
use dp_pvi_posterior::task::{ModelSpec, ResolvedTask};
use dp_pvi_privacy::{LocalAccess, LocalOnly, SiteState, Units};
use serde::{Deserialize, Serialize};

use crate::capabilities::sums;
use crate::error::InferenceError;
use crate::methods::public_job::{copied, text};
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
    /// Mean over the mixture of the standard deviations of T.
    pub heterogeneity: Allowance,
}

/// How far a site's own coefficients may be from the others'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Heterogeneity {
    /// Nowhere: all sites are samples of one model.
    None,
    /// As far as the site's records say.
    Learned,
}

/// Standard deviations of T on the grid, in those of ordinary differences.
const HETEROGENEITIES: [f64; 6] = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0];

/// What is known beside the records.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The task.
    pub task: &'a ResolvedTask,
    /// Natural parameters of the posterior as it came out of the run.
    pub plain: &'a [f64],
    /// What this site released.
    pub released: &'a Released,
    /// How far the site may be from the others.
    pub heterogeneity: Heterogeneity,
    /// σ, where the run learned the scale of the observations.
    pub scale: Option<f64>,
}

/// The personal posterior of the site with these units.
///
/// # Privacy
/// None; see the [module](self).
///
/// # Errors
/// The model has no exact local optimum of a linear predictor, or the numbers left the range of what can be computed.
pub fn posterior(known: &Known<'_>, units: &Units<RecordTable>, access: LocalAccess) -> Result<LocalOnly<Personal>, InferenceError> {
    models::seal();
    let asked = Asked::of(known)?;
    let made = units.map(&copied(&asked)?, |asked, table| asked.fit(table));
    // Whether it failed may depend on the records: no one but the site's own people is told.
    made.into_local_only(access).and_then(LocalOnly::transpose).ok_or(FAILED)
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
    let (cavity, directions) = cavity(family, others, prior)?;
    Some((model.local_optimum()?.local_optimum(table, &cavity, &cavity).ok()?, directions))
}

/// What the others say as a distribution, and in how many directions it was raised.
fn cavity(family: Family, others: &[f64], prior: &[f64]) -> Option<(Gaussian, usize)> {
    if !others.iter().all(|value| value.is_finite()) {
        return None;
    }
    let d = family.dimension();
    let (mut natural, mut directions) = (others.to_vec(), 0);
    if let Some(floored) = PrecisionFloor::Cavity.apply(family, prior, &natural[d..]) {
        natural[d..].copy_from_slice(&floored.precision);
        directions = floored.directions;
    }
    Some((Gaussian::from_natural(family, natural).ok()?, directions))
}

/// A Gaussian whose coordinates have so much more variance.
fn widened(q: &Gaussian, variances: &[f64]) -> Option<Gaussian> {
    let d = variances.len();
    let mut moments = q.mean_parameters();
    for (j, variance) in variances.iter().enumerate() {
        // Where θ_j² stands among the moments.
        let own = match q.family() {
            Family::DiagonalGaussian { .. } => j,
            Family::FullGaussian { .. } => j * (2 * d - j + 1) / 2,
        };
        moments[d + own] += variance;
    }
    Gaussian::from_mean_parameters(q.family(), &moments).ok()
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
    heterogeneity: Heterogeneity,
    scale: Option<f64>,
}

impl Asked {
    fn of(known: &Known<'_>) -> Result<Self, InferenceError> {
        if known.scale.is_none() && known.task.model.rules().learned_scale().is_some() {
            return Err(InferenceError::Job(
                "the run learned the scale of the observations, and it is not said what it is: export the posterior again",
            ));
        }
        let model = models::from_spec(&known.task.model_with(known.scale))?;
        if (model.linear_predictor().is_none() && model.many_rows().is_none()) || model.local_optimum().is_none() {
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
            heterogeneity: known.heterogeneity,
            scale: known.scale,
        })
    }

    /// The model with the scale that the run learned, where it did.
    fn model(&self) -> ModelSpec {
        self.task.model_with(self.scale)
    }

    fn fit(&self, table: &RecordTable) -> Option<Personal> {
        let model = models::from_spec(&self.model()).ok()?;
        let others = self.others(model.as_ref(), table)?;
        let family = self.task.family();
        let (cavity, floored) = cavity(family, &others.natural, &self.task.prior_natural()[family.dimension()..])?;
        // Where no one else took part there is no one to differ from.
        let factors =
            if self.heterogeneity == Heterogeneity::None || others.way == Way::Alone { &HETEROGENEITIES[..1] } else { &HETEROGENEITIES };
        let (natural, heterogeneity) = self.averaged(model.as_ref(), table, &cavity, factors)?;
        Some(Personal { natural, way: others.way, floored, heterogeneity })
    }

    /// The mixture of the optima under the cavity widened by these multiples of ordinary differences, and the mean of those.
    fn averaged(&self, model: &dyn Model, table: &RecordTable, cavity: &Gaussian, factors: &[f64]) -> Option<(Vec<f64>, Allowance)> {
        let ordinary = allowance(&self.model());
        let intercept = self.task.parsed_schema().ok().and_then(|schema| schema.intercept()).map(|j| j as usize);
        let sd = |j: usize| if Some(j) == intercept { ordinary.intercept } else { ordinary.others };
        let (mut start, mut found) = (cavity.clone(), Vec::with_capacity(factors.len()));
        for factor in factors {
            let variances: Vec<f64> = (0..cavity.family().dimension()).map(|j| (factor * sd(j)).powi(2)).collect();
            let wide = if *factor > 0.0 { widened(cavity, &variances)? } else { cavity.clone() };
            start = model.local_optimum()?.local_optimum(table, &wide, &start).ok()?;
            let likelihood: f64 =
                table.records().filter(|r| r.is_finite()).map(|record| model.expected_log_likelihood(record, &start)).sum();
            found.push((likelihood - start.kl(&wide), start.clone()));
        }
        let best = found.iter().map(|(bound, _)| *bound).fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = found.iter().map(|(bound, _)| (bound - best).exp()).collect();
        let total: f64 = weights.iter().sum();
        let factor = weights.iter().zip(factors).map(|(weight, factor)| weight * factor / total).sum::<f64>();
        let heterogeneity = Allowance { intercept: factor * ordinary.intercept, others: factor * ordinary.others };
        let [(_, one)] = &found[..] else {
            let mut moments = vec![0.0; cavity.family().len()];
            for (weight, (_, q)) in weights.iter().zip(&found) {
                moments.iter_mut().zip(q.mean_parameters()).for_each(|(sum, moment)| *sum += weight / total * moment);
            }
            return Some((Gaussian::from_mean_parameters(cavity.family(), &moments).ok()?.natural().to_vec(), heterogeneity));
        };
        Some((one.natural().to_vec(), heterogeneity))
    }

    fn others(&self, model: &dyn Model, table: &RecordTable) -> Option<Others> {
        let known = self.others.clone();
        known.or_else(|| self.of_sums(table)).or_else(|| self.of_posterior(model, table))
    }

    /// The sums without this site's exact terms: where what it sent hides its part, or was not kept.
    fn of_sums(&self, table: &RecordTable) -> Option<Others> {
        let (history, site) = self.seen.as_ref()?;
        let mut before = self.task.rule().initial();
        let mut sums = Vec::with_capacity(history.rounds.len());
        for round in &history.rounds {
            let took_part = round.included.contains(site) && !before.is_empty();
            let job = Job { site: None, task: &self.task, visit: round.visit, lambda: &before, state: &SiteState::None };
            sums.push(if took_part { exact_terms(&job, table) } else { None });
            before.clone_from(&round.state);
        }
        let part = Contribution { site: *site, sums, noise: OwnNoise::Stays };
        let posterior = noise_aware::without(&self.task, history, &part).ok()?;
        Some(Others { natural: posterior.natural_parameters, way: Way::OthersOfSums })
    }

    /// The posterior without this site's exact factor there.
    fn of_posterior(&self, model: &dyn Model, table: &RecordTable) -> Option<Others> {
        let q = Gaussian::from_natural(self.task.family(), self.plain.clone()).ok()?;
        Some(Others::divided(&self.plain, &exact_factor(model, table, &q)?, Way::ExactFactor))
    }
}

/// λ_k = (Σ(g + Hμ), ΣH) over the finite records of a table, at q; natural parameters of its family.
fn exact_factor(model: &dyn Model, table: &RecordTable, q: &Gaussian) -> Option<Vec<f64>> {
    let (gradient, curvature) = sums(model, table, q.standard())?;
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
    Some(gradient.iter().zip(carried).map(|(g, carried)| g + carried).chain(precision).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests;
