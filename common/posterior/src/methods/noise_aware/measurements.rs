//! Posterior from noisy measurements of gradient and curvature.
//!
//! Measurement t is the gradient g(μ_t) and the curvature H_t at a public point μ_t, both with fresh noise of known variance. Given the point, it is an
//! unbiased measurement of the likelihood, whatever moved the point. Near the posterior g(μ) = g(μ_r) − H(μ − μ_r), so every measurement estimates the
//! gradient at a common point of reference:
//!
//! g̃ = Σ w_t g̃_t estimates the gradient at μ_r = Σ w_t μ_t, with noise of variance n = Σ w_t² v_t on every coordinate.
//!
//! There the error of H = Σ w_t H̃_t (its negative eigenvalues set to 0) acts on the distance θ − μ_r alone. The mean θ̄ is the mode that
//! [`uncertain_curvature`](dp_pvi_math::uncertain_curvature) finds (with learned scales a mean of modes). For the mode, S(θ) has the errors of H on the
//! distance θ − μ_r. For the precision, S is averaged over the posterior of θ, so it also has the errors of H on the uncertainty of θ. If that uncertainty
//! adds more than [`MOST`] times the rest of S, it enters the mode too: otherwise −½ ln det S would draw the mode to μ_r. No measurement has to be near the
//! fixed point.
//!
//! **Weights.** The gradient is not linear over a distance on which the curvature changes. ρ_t is the relative change of the curvature at μ_t from that of the
//! later half of the measurements, beyond their noise. If every record's c changes by a factor of at most 1 ± ρ_t, coordinate j of the extrapolated gradient
//! has an error of at most ρ_t (H_jj b_t)^½, b_t = (μ_t − θ̄)ᵀH(μ_t − θ̄) (Cauchy and Schwarz). So w_t ∝ 1/v_t with v_t = s_t² + ρ_t² b_t tr H/d and s_t the
//! noise of the measurement: distant measurements count for little. While a run still moves, its later measurements share one error of the curvature at θ̄.
//! The bend of the gradient between them and θ̄ ([`Measurements::bent_on`]) is therefore added to S for the precision. It is not added for the mean, which it would
//! pull back to the prior.
//!
//! **Re-linearised.** With [`OnTheWay::Relinearised`] the model's curvature along the way takes every measurement to θ ([`relinearised`]). The variance of the
//! model's error then replaces ρ_t² b_t tr H/d in v_t, and is in S for both the mean and the precision. There is no bend of the gradient to add.
//!
//! **Between μ_t and θ.** If [`OnTheWay::Expected`] names the model, the model predicts the gradient expected for a θ, its derivative and its variance
//! ([`expected`](dp_pvi_models::expected)). The correction that this makes is given a relative standard deviation of [`BY_MODEL`].
//!
//! **Structure.** The released H is combined with what the schema and a Gram matrix imply ([`structure`](super::structure)). Otherwise the noise of entries
//! that are nearly 0 acts on all coefficients. The change of the weights c between μ_r and θ̄ is added to S for the precision.
//!
//! **Bounds.** If E log p is replaced by a bound, the released curvature is that of the bound. H is then multiplied by the model's
//! [`information_share`](dp_pvi_models::predictor::Predictor::information_share), which makes it the derivative of the gradient and the covariance of the scores.
//!
//! **Mean field.** Only the diagonal of H is released; [`Correlations`] estimates the rest. The error of that estimate is added to the error of the diagonal, so
//! that measurements far from θ̄ count for less. The result has the marginal variances.
//!
//! **Weighted records.** A record with weight w adds wc to H and w²c to the covariance of the scores, which is about κH, κ the mean weight of the curvature ([`weighted`](super::weighted)).
//!
//! **Assumption**: no term is shortened, which would bias the fit. Source: this project; Bayes' rule for noisy statistics follows Bernstein and Sheldon (2018).

mod relinearised;

use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use nalgebra::{Cholesky, DMatrix, DVector};

use super::correlations::Correlations;
use super::structure::{Seen, UNKNOWN_UNIT};
use super::unweighted::unweighted;
use super::weighted::Weighted;
use super::{Posterior, signal_to_noise};
use crate::methods::Setting;
use dp_pvi_math::relinearised::Curvatures;
use dp_pvi_math::simplex::normalised;
use dp_pvi_math::uncertain_curvature::{error, error_along, variances_of_entries, without_negative_eigenvalues};
use dp_pvi_models::ModelSpec;
use dp_pvi_models::expected::{Expected, Rows};
use dp_pvi_models::predictor::Statistics;
use dp_pvi_models::scaled::{Known, Scaled};
use dp_pvi_models::spec::Prior;

/// Passes in which weights, curvature and posterior are brought into agreement, at most.
const PASSES: usize = 12;

/// Largest relative change of the trace of the covariance in a pass that counts as settled.
const SETTLED: f64 = 1e-3;

/// If the variance due to errors of the curvature exceeds this multiple of the rest of S, it enters the search for the mode as well.
const MOST: f64 = 10.0;

/// Relative standard deviation of the model's correction of a gradient: predictors are not normal, and their moments are estimates.
const BY_MODEL: f64 = 0.5;

/// Squared step, in posterior standard deviations, below which the derivatives are taken at θ itself.
const CONVERGED: f64 = 1e-4;

/// Fraction of the squared change of H between μ_r and θ̄ that is counted as error variance: H is taken midway, so half of the change is uncertain.
const ON_THE_WAY: f64 = 0.5;

/// What was released of the likelihood at one public point.
#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    /// μ_t.
    pub(crate) point: DVector<f64>,
    /// g̃_t.
    pub(crate) gradient: DVector<f64>,
    /// H̃_t, as it was released: svec, or the diagonal.
    pub(crate) curvature: DVector<f64>,
    /// s_t²: variance of the noise on every coordinate of the gradient.
    pub(crate) noise: DVector<f64>,
    /// Variance of the noise on every entry of the curvature.
    pub(crate) curvature_noise: DVector<f64>,
}

impl Measurement {
    /// The same with the information of the likelihood in place of the curvature of its bound.
    pub(crate) fn informed(mut self, task: &Setting<'_>) -> Self {
        let share = task.model.rules().predictor().map_or(1.0, |predictor| predictor.information_share());
        self.curvature *= share;
        self.curvature_noise *= share * share;
        self
    }

    /// Entry j of the curvature's diagonal, and the variance of its noise.
    pub(super) fn of_diagonal(&self, j: usize) -> (f64, f64) {
        let d = self.point.len();
        // Row i of an svec has d − i entries.
        let at = if self.curvature.len() == d { j } else { j * d - j * j.saturating_sub(1) / 2 };
        (self.curvature[at], self.curvature_noise[at])
    }
}

/// All measurements of a run, and the prior that they meet.
pub(crate) struct Measurements {
    pub(crate) family: Family,
    pub(crate) measurements: Vec<Measurement>,
    /// What is known of the entries of H off the diagonal beside what was released.
    pub(crate) correlations: Correlations,
    /// Where records are weighted.
    pub(crate) weighted: Option<Weighted>,
    pub(crate) on_the_way: OnTheWay,
    pub(crate) prior: Prior,
    /// Where S is taken, for measurements that something else will be added to: S depends on θ, and is wanted where the sum leads. At the mode, where there is none.
    pub(crate) near: Option<DVector<f64>>,
}

/// How the gradient of a measurement is taken to θ.
#[derive(Debug, Clone)]
pub(crate) enum OnTheWay {
    /// With one curvature for all measurements.
    Linear,
    /// By the gradient that the model expects for θ, if it has two classes ([`expected`](dp_pvi_models::expected)).
    Expected(ModelSpec),
    /// By the model's curvature along the way ([`relinearised`]). The number is c̄, the unit of the Gram matrix.
    Relinearised(ModelSpec, f64),
}

/// Where the measurements lead together.
pub(crate) struct Extrapolated {
    pub(crate) posterior: Posterior,
    pub(crate) mean: DVector<f64>,
    /// Without what `ahead` adds.
    pub(crate) covariance: DMatrix<f64>,
    /// With it.
    pub(super) precision: DMatrix<f64>,
    /// w_t, with which the mean was found.
    pub(crate) weights: Vec<f64>,
    /// ρ_t² (μ_t − θ̄)ᵀ H (μ_t − θ̄) of every measurement.
    pub(crate) bends: Vec<f64>,
    /// What is not known of the gradient, as it bends on what is left of the way.
    pub(crate) ahead: DMatrix<f64>,
    /// H.
    pub(crate) curvature: DMatrix<f64>,
}

/// The likelihood estimated by a weighted mean of the measurements.
struct Likelihood {
    reference: DVector<f64>,
    gradient: DVector<f64>,
    curvature: DMatrix<f64>,
    /// The mean of the released curvatures, and the variances of its entries.
    released: DVector<f64>,
    curvature_noise: DVector<f64>,
    /// Variances of what is not known of its entries.
    doubt: DMatrix<f64>,
    /// Variances of what is not known of them on the way from the reference to the posterior.
    moved: DMatrix<f64>,
    /// The curvature at θ. It differs from `curvature` if `curvature` is the one on the way to θ.
    there: DMatrix<f64>,
    /// Covariance of the records' scores.
    scores: DMatrix<f64>,
    /// Covariance of what the model gets wrong of the gradient.
    by_model: DMatrix<f64>,
    /// By what the model says that the measurements' curvatures differ, where it is asked.
    explained: Option<Vec<f64>>,
    /// The variance, in every coordinate, of the model's error in each measurement. `None` if measurements are not re-linearised.
    bends: Option<Vec<f64>>,
}

impl Measurements {
    /// `None` where the measurements have left the range of numbers, or there is none.
    pub(crate) fn posterior(&self) -> Option<Posterior> {
        self.extrapolated().map(|extrapolated| extrapolated.posterior)
    }

    /// `None` where the measurements have left the range of numbers, or there is none.
    pub(crate) fn extrapolated(&self) -> Option<Extrapolated> {
        let d = self.family.dimension();
        let changes = changes(&self.measurements);
        let noise: Vec<f64> = self.measurements.iter().map(|measurement| measurement.noise.mean()).collect();
        let mut bends = vec![0.0; noise.len()];
        let mut spread = DMatrix::zeros(d, d);
        // Measurements from where the curvature was another one agree with each other on another θ̄: the first one is that of the rest.
        let later = self.measurements.len() / 2;
        let alike = |t: usize| f64::from(u8::from(t >= later || changes[t] <= 0.0));
        let mut weights = normalised(noise.iter().enumerate().map(|(t, noise)| alike(t) / noise));
        let mut last = false;
        let looked = mean(self.measurements.iter().map(|measurement| &measurement.point), &weights);
        let mut scaled = Scaled::new(&self.prior, looked.as_slice());
        let mut at = self.measurements.last()?.point.clone();
        let of_model = self.of_model();
        for pass in 0..PASSES {
            let likelihood = self.likelihood(&weights, &at, of_model.as_ref())?;
            let fresh = sum(weights.iter().zip(&self.measurements).map(|(w, measurement)| &measurement.noise * (w * w)));
            let bent = likelihood.curvature.diagonal() * weights.iter().zip(&bends).map(|(w, bend)| w * w * bend).sum::<f64>();
            // S is H and this, and the errors of H on θ − μ_r.
            let added = DMatrix::from_diagonal(&(&fresh + &bent)) + &likelihood.by_model - &likelihood.curvature + &likelihood.scores;
            let unknown = error(&likelihood.doubt, &spread);
            let most = MOST * (&added + &likelihood.curvature).trace();
            // What will be added to something else has one S.
            let both = self.near.as_ref().map_or((1.0 - most / unknown.trace().max(most)).max(0.0), |_| 1.0);
            let known = Known {
                reference: &likelihood.reference,
                gradient: &likelihood.gradient,
                curvature: &likelihood.curvature,
                there: &likelihood.there,
                noise: &(added + &unknown * both),
                unknown: &(unknown * (1.0 - both)),
                variances: &likelihood.doubt,
                near: self.near.as_ref(),
            };
            let (still, before) = (scaled.pass(&known)?, spread.trace());
            let mean = scaled.mean();
            spread = scaled.covariance(&known, None)?;
            let step = &mean - &at;
            let far = Cholesky::new(spread.clone()).map_or(f64::INFINITY, |factor| step.dot(&factor.solve(&step)));
            // A slope is that of where θ was taken to be. Steps that go to and fro are halved.
            let moves = likelihood.explained.is_some() || of_model.is_some();
            let converged = !moves || far < CONVERGED;
            at = match &of_model {
                _ if !moves => mean.clone(),
                Some(of_model) => &at + of_model.rows.shortened(step) * if pass >= PASSES / 2 { 0.5 } else { 1.0 },
                None if pass >= PASSES / 2 => &at + 0.5 * step,
                None => mean.clone(),
            };
            // Where a run still moves, measurements agree with each other and may all be wrong in the same way about where it leads.
            let rest = &mean - self.end();
            let way = &mean - &likelihood.reference;
            let unexplained = likelihood.explained.as_ref().map(|explained| unexplained(&self.measurements, explained));
            let changes = unexplained.as_ref().unwrap_or(&changes);
            let ahead = match likelihood.bends {
                Some(_) => DMatrix::zeros(d, d),
                None => self.bent_on(&rest, &likelihood.curvature, changes) + error(&likelihood.moved, &(&spread + &way * way.transpose())),
            };
            for ((bend, measurement), change) in bends.iter_mut().zip(&self.measurements).zip(changes) {
                if likelihood.bends.is_some() {
                    break;
                }
                let way = &measurement.point - &mean;
                *bend = change * change * way.dot(&(&likelihood.curvature * &way)).max(0.0);
            }
            // An error of H is the same in all measurements: it acts on their mean, as above. Alone, each would be wrong by this much.
            let far = |measurement: &Measurement| (&likelihood.doubt * (&measurement.point - &mean).map(|v| v * v)).mean();
            let size = likelihood.curvature.diagonal().mean();
            let bent_by = |t: usize| likelihood.bends.as_ref().map_or_else(|| bends[t] * size, |bends| bends[t]);
            let variances = self.measurements.iter().enumerate().map(|(t, m)| noise[t] + bent_by(t) + far(m));
            let new = normalised(variances.map(|variance| 1.0 / variance));
            let moved = weights.iter().zip(&new).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            // The first pass does not know how far away the measurements are that it takes.
            let settled = pass > 1 && moved < 1e-4 && still && converged && (spread.trace() / before - 1.0).abs() < SETTLED;
            if last || (settled && !scaled.waits()) {
                let sds = likelihood.curvature_noise.map(|variance| variance.max(f64::MIN_POSITIVE).sqrt());
                let precision = scaled.precision(&known, &ahead)?;
                let posterior = Posterior {
                    natural_parameters: self.natural(&mean, &precision)?,
                    signal_to_noise: signal_to_noise(likelihood.released.component_div(&sds).as_slice(), 1.0),
                    noise_share: Some({
                        let by_model = likelihood.bends.as_ref().map_or(0.0, |_| likelihood.by_model.diagonal().mean());
                        let (records, way) = (likelihood.there.diagonal().mean(), bent.mean() + ahead.diagonal().mean() + by_model);
                        let of_all = (records + fresh.mean()) / (records + fresh.mean() + way);
                        of_all.min(fresh.mean() / (fresh.mean() + bent.mean()))
                    }),
                    scales: scaled.scale_summaries(),
                    precision: None,
                };
                let found =
                    Extrapolated { posterior, mean, covariance: spread, precision, weights, bends, ahead, curvature: likelihood.there };
                return Some(found).filter(|extrapolated| extrapolated.posterior.natural_parameters.iter().all(|v| v.is_finite()));
            }
            last = settled || pass + 2 == PASSES;
            if last {
                scaled.begin_last();
            }
            weights = new;
        }
        None
    }

    /// By how much the curvature may change on a way that leads away from the measurements, relative to itself and at most 1. The earlier measurement whose curvature was the most
    /// different from that of the later ones, by ρ, tells it: where the curvature changes with the square of the distance from there, as that of a logit does
    /// about 0, it changes by ρ(2r + r²) over r times that distance. Distances are by the curvature.
    pub(crate) fn bends(&self, way: &DVector<f64>, curvature: &DMatrix<f64>) -> f64 {
        let (change, further) = self.further(way, curvature, &changes(&self.measurements));
        (change * further * (2.0 + further)).min(1.0)
    }

    /// ρ and r of [`Self::bends`].
    fn further(&self, way: &DVector<f64>, curvature: &DMatrix<f64>, changes: &[f64]) -> (f64, f64) {
        let (later, end) = (self.measurements.len() / 2, self.end());
        let earlier = (0..later).filter(|&t| changes[t] > 0.0);
        let Some(most) = earlier.max_by(|&a, &b| changes[a].total_cmp(&changes[b])) else { return (0.0, 0.0) };
        let length = |distance: &DVector<f64>| distance.dot(&(curvature * distance)).max(0.0).sqrt();
        (changes[most], length(way) / length(&(&self.measurements[most].point - end)).max(f64::MIN_POSITIVE))
    }

    /// Covariance of how a gradient bends on this way w from the measurements. The curvature's change is 0 where the way begins, and ρ(r + r²/3) of it in the mean of the way: so
    /// much of Hw, and in other coordinates what Cauchy and Schwarz's bound leaves to them, as a mean.
    fn bent_on(&self, way: &DVector<f64>, curvature: &DMatrix<f64>, changes: &[f64]) -> DMatrix<f64> {
        let (change, further) = self.further(way, curvature, changes);
        error_along(way, curvature) * (change * further * (1.0 + further / 3.0)).min(1.0).powi(2)
    }

    /// Mean and variance of δᵀHδ, for the errors δ of the points of the last measurements, so many, on average: θ has the mean and the covariance that were found.
    pub(crate) fn error_of_the_last(&self, measurements: u32, extrapolated: &Extrapolated) -> (f64, f64) {
        let from = self.measurements.len().saturating_sub(measurements as usize);
        let last = &self.measurements[from..];
        #[allow(clippy::cast_precision_loss, reason = "a number of rounds")]
        let count = (last.len() as f64).max(1.0);
        let h = &extrapolated.curvature;
        let product = h * &extrapolated.covariance;
        let errors = last.iter().map(|measurement| &measurement.point - &extrapolated.mean);
        let own: f64 = errors.clone().map(|error| error.dot(&(h * &error))).sum::<f64>() / count;
        let middle = sum(errors) / count;
        let spread = if last.is_empty() { 0.0 } else { middle.dot(&(&product * (h * &middle))) };
        (own + product.trace(), 4.0 * spread + 2.0 * (&product * &product).trace())
    }

    /// The mean of the points of the later half of the measurements.
    fn end(&self) -> DVector<f64> {
        let later = self.measurements.len() / 2;
        let share = normalised(self.measurements.iter().enumerate().map(|(t, _)| if t < later { 0.0 } else { 1.0 }));
        mean(self.measurements.iter().map(|measurement| &measurement.point), &share)
    }

    /// κ: how much of H the covariance of the records' scores is, if the posterior is about `theta`.
    fn scores(&self, theta: &DVector<f64>, diagonal: &DVector<f64>) -> f64 {
        let share = || {
            let (weighted, (moments, intercept)) = (self.weighted.as_ref()?, self.moments(diagonal)?);
            weighted.scores(theta, (&moments, intercept), &self.correlations)
        };
        share().unwrap_or(1.0)
    }

    /// Second moments of rows of which the intercept's is 1, and its coordinate: those of a Gram matrix, or what an H with this diagonal and the schema tell.
    fn moments(&self, diagonal: &DVector<f64>) -> Option<(DMatrix<f64>, usize)> {
        let intercept = self.correlations.intercept()?;
        let guessed = || (diagonal[intercept] > 0.0).then(|| self.correlations.matrix(diagonal) / diagonal[intercept]);
        Some((self.correlations.moments().or_else(guessed)?, intercept))
    }

    /// The likelihood estimated by all measurements together, linearised about `theta`.
    fn likelihood(&self, weights: &[f64], theta: &DVector<f64>, of_model: Option<&Curvatures<'_>>) -> Option<Likelihood> {
        let of = |part: fn(&Measurement) -> &DVector<f64>| mean(self.measurements.iter().map(part), weights);
        let (mut released, reference) = (of(|measurement| &measurement.curvature), of(|measurement| &measurement.point));
        let of_model = of_model.map(|of_model| {
            let (change, scale) = self.change(of_model, weights, theta);
            released += change;
            (of_model, scale)
        });
        let curvature_noise = sum(weights.iter().zip(&self.measurements).map(|(w, measurement)| &measurement.curvature_noise * (w * w)));
        let entries = match self.family {
            Family::FullGaussian { dimension } => {
                Some((unsvec(released.as_slice(), dimension), variances_of_entries(&curvature_noise, dimension)))
            }
            Family::DiagonalGaussian { .. } => None,
        };
        let (diagonal, diagonal_noise) = entries
            .as_ref()
            .map_or_else(|| (released.clone(), curvature_noise.clone()), |(seen, noise)| (seen.diagonal(), noise.diagonal()));
        let seen =
            Seen { diagonal: &diagonal, diagonal_noise: &diagonal_noise, entries: entries.as_ref().map(|(seen, noise)| (seen, noise)) };
        let (curvature, doubt) = self.correlations.at(theta).curvature(&seen);
        let all = self.correlations.intercept().map_or(0.0, |k| diagonal[k]);
        let moved = entries.as_ref().and_then(|_| self.correlations.difference([theta, &reference], all));
        let moved =
            moved.map_or_else(|| DMatrix::zeros(theta.len(), theta.len()), |change| change.map(|change| ON_THE_WAY * change * change));
        let curvature = without_negative_eigenvalues(curvature)?;
        let diagonal = curvature.diagonal();
        let linear = || Likelihood {
            scores: &curvature * self.scores(theta, &diagonal),
            by_model: DMatrix::zeros(theta.len(), theta.len()),
            reference: reference.clone(),
            gradient: of(|measurement| &measurement.gradient),
            there: curvature.clone(),
            curvature: curvature.clone(),
            bends: None,
            released: released.clone(),
            curvature_noise: curvature_noise.clone(),
            doubt: doubt.clone(),
            moved: moved.clone(),
            explained: None,
        };
        let by_model = || -> Option<Likelihood> {
            let expected = self.expected(weights, (theta, &reference), (&diagonal, &diagonal_noise))?;
            let tangent = without_negative_eigenvalues(expected.tangent)?;
            let pull =
                Cholesky::new(&tangent + DMatrix::identity(theta.len(), theta.len()) * (1e-9 * tangent.trace()))?.solve(&expected.gradient);
            let moved_by = &expected.curvature * (theta - &reference) - &expected.gradient;
            // Errors of H are errors of the tangent in proportion.
            let factor = tangent.trace() / diagonal.sum();
            Some(Likelihood {
                // Where the gradient that is expected at θ comes from, by the tangent: a step of Gauss and Newton.
                reference: theta - pull,
                scores: without_negative_eigenvalues(expected.scores)?,
                by_model: &moved_by * moved_by.transpose() * (BY_MODEL * BY_MODEL),
                there: tangent.clone(),
                curvature: tangent,
                doubt: &doubt * (factor * factor),
                moved: &moved * (factor * factor),
                explained: Some(expected.proportions),
                ..linear()
            })
        };
        match of_model {
            Some(of_model) => self.taken(of_model, weights, theta, linear()),
            None => Some(by_model().unwrap_or_else(linear)),
        }
    }

    /// What the model expects of measurements with these weights if the truth is `theta`, for an H with this diagonal and noise of these variances on it, which was released about `reference`.
    /// `None` without a model of two classes, an intercept or a known unit.
    fn expected(
        &self,
        weights: &[f64],
        (theta, reference): (&DVector<f64>, &DVector<f64>),
        (diagonal, noise): (&DVector<f64>, &DVector<f64>),
    ) -> Option<Expected> {
        let OnTheWay::Expected(model) = &self.on_the_way else { return None };
        let intercept = self.correlations.intercept()?;
        if !model.rules().has_two_classes() || noise[intercept] > (UNKNOWN_UNIT * diagonal[intercept]).powi(2) {
            return None;
        }
        let moments = unweighted(&self.correlations, (diagonal, intercept), reference, model)?;
        let squares = self.weighted.as_ref().map(|weighted| (weighted, weighted.squares(&moments, &self.correlations)));
        let weight = |of: [Statistics; 2]| squares.map_or(1.0, |(weighted, squares)| weighted.weight(of, squares));
        let points: Vec<&DVector<f64>> = self.measurements.iter().map(|measurement| &measurement.point).collect();
        let rows = Rows { moments: &moments, intercept, weight: &weight };
        let mut expected = Expected::new(model.rules().predictor()?.as_ref(), (&points, weights), theta, &rows)?.of_all(diagonal);
        if let Some(shares) = self.weighted.as_ref().and_then(|weighted| weighted.shares(theta, (&moments, intercept), &self.correlations))
        {
            // A level beside the intercept is the level's own entry.
            let beside = |i: usize, j: usize| i == intercept && self.correlations.is_indicator(j);
            let factor = |i: usize, j: usize| match (i, j) {
                _ if beside(i, j) => shares[j],
                _ if beside(j, i) => shares[i],
                _ => (shares[i] * shares[j]).sqrt(),
            };
            expected.scores = DMatrix::from_fn(theta.len(), theta.len(), |i, j| expected.scores[(i, j)] * factor(i, j));
        }
        Some(expected)
    }

    /// Natural parameters in the task's family of a Gaussian with this precision.
    pub(crate) fn natural(&self, mean: &DVector<f64>, precision: &DMatrix<f64>) -> Option<Vec<f64>> {
        Some(match self.family {
            Family::FullGaussian { .. } => [(precision * mean).as_slice(), &svec(precision)].concat(),
            Family::DiagonalGaussian { .. } => marginal(mean, &Cholesky::new(precision.clone())?.inverse()),
        })
    }
}

/// ρ_t of every measurement.
fn changes(measurements: &[Measurement]) -> Vec<f64> {
    let later = measurements.len() / 2;
    let share = normalised(measurements.iter().enumerate().map(|(t, m)| if t < later { 0.0 } else { 1.0 / m.noise.mean() }));
    let end = mean(measurements.iter().map(|measurement| &measurement.curvature), &share);
    let norm = end.norm_squared().max(f64::MIN_POSITIVE);
    // Squared norm of the noise of H̃_t minus the mean of the later measurements, which may contain H̃_t: its mean and one standard deviation.
    let noise = |t: usize| -> f64 {
        let own = |(i, (m, share)): (usize, (&Measurement, &f64))| &m.curvature_noise * (f64::from(u8::from(i == t)) - share).powi(2);
        let variances = sum(measurements.iter().zip(&share).enumerate().map(own));
        variances.sum() + (2.0 * variances.norm_squared()).sqrt()
    };
    let change = |(t, m): (usize, &Measurement)| (((&m.curvature - &end).norm_squared() - noise(t)).max(0.0) / norm).sqrt().min(2.0);
    measurements.iter().enumerate().map(change).collect()
}

/// The same of what is left of the changes where curvatures are known to be in these proportions.
fn unexplained(measurements: &[Measurement], proportions: &[f64]) -> Vec<f64> {
    let alike = |(measurement, proportion): (&Measurement, &f64)| Measurement {
        curvature: &measurement.curvature / *proportion,
        curvature_noise: &measurement.curvature_noise / (proportion * proportion),
        ..measurement.clone()
    };
    changes(&measurements.iter().zip(proportions).map(alike).collect::<Vec<_>>())
}

/// Natural parameters of a mean field with these means and marginal variances.
fn marginal(mean: &DVector<f64>, covariance: &DMatrix<f64>) -> Vec<f64> {
    let precision: Vec<f64> = covariance.diagonal().iter().map(|v| 1.0 / v).collect();
    [mean.iter().zip(&precision).map(|(m, p)| m * p).collect(), precision].concat()
}

fn mean<'a>(vectors: impl Iterator<Item = &'a DVector<f64>>, weights: &[f64]) -> DVector<f64> {
    sum(vectors.zip(weights).map(|(vector, weight)| vector * *weight))
}

pub(crate) fn sum(vectors: impl Iterator<Item = DVector<f64>>) -> DVector<f64> {
    vectors.reduce(|a, b| a + b).unwrap_or_else(|| DVector::zeros(0))
}

#[cfg(test)]
mod tests;
