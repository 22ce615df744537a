//! The noise-aware posterior of bounded natural-gradient variational inference with its Gram preconditioner.
//!
//! Visit t asked for the gradient g(μ_t) and the curvature H_t at a public point μ_t, and got both with fresh noise of known variance. Whatever
//! noise has moved the point itself, given the point the release is an unbiased look at the likelihood. Near the posterior
//! g(μ) = g(μ_r) − H(μ − μ_r), so that every visit tells the gradient at a common point of reference:
//!
//! g̃ = Σ w_t g̃_t is the gradient at μ_r = Σ w_t μ_t, with noise of variance n = Σ w_t² v_t on every coordinate.
//!
//! At this point of reference an error of H cancels: it acts on the distance θ − μ_r alone. The likelihood is (h, H) with h = g̃ + Hμ_r and
//! H = Σ w_t H̃_t without negative eigenvalues, and N = nI + E with E the error of H on that distance. [`full`] meets it with the prior.
//! No visit has to be near the fixed point: where a run has not arrived, the released gradients carry it there.
//!
//! **Weights.** w_t ∝ 1/v_t, v_t = s_t² + ‖ρ_t H(μ_t − θ̄)‖², s_t the visit's noise and θ̄ the posterior's mean. ρ_t is by how much the curvature at μ_t
//! differs from that of the later half of the visits, relative to its norm, as far as it is more than their noise: the gradient is not linear
//! over a distance on which the curvature changes. Visits far away count for little that way, and what cannot be known better is in n.
//!
//! **Mean field.** Only the diagonal of H is released; the correlations are those of the Gram matrix (H ≈ S P̂ S), and the error of H is that of its
//! diagonal. The result has the marginal variances.
//!
//! **Approximations**: no term is shortened, which would bias the fit; of weighted records the curvature is taken for the score's
//! covariance, which is less. Source: this project; Bayes' rule for noised statistics is the idea of Bernstein and Sheldon (2018).

use dp_pvi_expfam::any::Family;
use dp_pvi_expfam::gaussian::full::{svec, triangle, unsvec};
use nalgebra::{Cholesky, DMatrix, DVector, SymmetricEigen};

use crate::methods::NaturalGradientRule;
use crate::methods::noise_aware::{Absent, ClosedRound, Contribution, History, OwnNoise, Posterior, full, signal_to_noise};
use crate::methods::{NaturalGradientSpec, NaturalGradientVisit, Rule, Setting};

/// Largest d: matrices of this size are decomposed.
const LARGEST: usize = 512;

/// Passes in which weights, curvature and posterior are brought into agreement, at most.
const PASSES: usize = 12;

/// Of all sites; or of all but one, whose part is taken out of every sum.
pub(crate) fn posterior(
    task: &Setting<'_>,
    spec: &NaturalGradientSpec,
    history: &History,
    without: Option<&Contribution>,
) -> Result<Posterior, Absent> {
    let family = task.family();
    let d = family.dimension();
    if d > LARGEST {
        return Err(Absent::TooLarge(LARGEST));
    }
    let rule = NaturalGradientRule::new(task, *spec);
    let (visits, preconditioner) = Visit::all(&rule, family, spec, history, without).ok_or(Absent::Diverged)?;
    if visits.is_empty() {
        return Err(Absent::NoRound);
    }
    let prior_precision = task.prior.scale.powi(-2);
    let gram = preconditioner - DMatrix::identity(d, d) * prior_precision;
    let released = Released { family, visits, gram, prior: (task.prior.mean, prior_precision) };
    released.posterior().ok_or(Absent::Diverged)
}

/// What one visit released.
struct Visit {
    /// μ_t.
    point: DVector<f64>,
    /// g̃_t.
    gradient: DVector<f64>,
    /// H̃_t, as it was released: svec, or the diagonal.
    curvature: DVector<f64>,
    /// s_t²: variance of the noise on a coordinate of the gradient.
    noise: f64,
    /// Variance of the noise on an entry of the curvature.
    curvature_noise: f64,
}

impl Visit {
    /// Reads what was released off the states between visits, and the preconditioner. `None` where a state is not one of this rule.
    fn all(
        rule: &NaturalGradientRule,
        family: Family,
        spec: &NaturalGradientSpec,
        history: &History,
        without: Option<&Contribution>,
    ) -> Option<(Vec<Self>, DMatrix<f64>)> {
        let (d, len) = (family.dimension(), family.len());
        let mut visits = Vec::new();
        let (mut before, mut last) = (rule.initial(), rule.initial());
        for (number, round) in history.rounds.iter().enumerate().filter(|(_, round)| !round.included.is_empty()) {
            let after = &round.state;
            if !after.is_empty() && (after.len() != 2 * len + triangle(d) || !after.iter().all(|v| v.is_finite())) {
                return None;
            }
            // A sum that could not be used left the state as it was.
            let known = !before.is_empty() && !after.is_empty() && *after != before;
            if known && spec.visit(round.visit) == NaturalGradientVisit::Gradient {
                match Part::of(without, number, round) {
                    Part::Nothing => visits.push(rule.released(&before, after, round.visit, sites(round))?),
                    Part::Some(sum, sites) if sites > 0 => {
                        let mut visit = rule.released(&before, after, round.visit, sites)?;
                        let (gradient, curvature) = sum.split_at_checked(d).filter(|_| sum.len() == len)?;
                        visit.gradient.iter_mut().zip(gradient).for_each(|(all, own)| *all -= own);
                        visit.curvature.iter_mut().zip(curvature).for_each(|(all, own)| *all -= own / spec.curvature_weight);
                        visits.push(visit);
                    }
                    Part::Some(..) | Part::Unknown => {}
                }
            }
            before.clone_from(after);
            if !after.is_empty() {
                last.clone_from(after);
            }
        }
        let point = |r: &super::rule::ReleasedVisit| Self {
            point: DVector::from_column_slice(&r.point),
            gradient: DVector::from_column_slice(&r.gradient),
            curvature: DVector::from_column_slice(&r.curvature),
            noise: r.noise,
            curvature_noise: r.noise / spec.curvature_weight.powi(2),
        };
        Some((visits.iter().map(point).collect(), unsvec(last.get(2 * len..)?, d)))
    }
}

/// What is taken out of a round's sum.
enum Part<'a> {
    Nothing,
    /// This, and noise of so many sites is left (of one, where the sum's noise is not theirs).
    Some(&'a [f64], u32),
    Unknown,
}

impl<'a> Part<'a> {
    fn of(without: Option<&'a Contribution>, number: usize, round: &ClosedRound) -> Self {
        let Some(part) = without.filter(|part| round.included.contains(&part.site)) else { return Self::Nothing };
        let left = match part.noise {
            // A sum of one site alone says nothing of others.
            _ if round.included.len() < 2 => 0,
            OwnNoise::Goes => sites(round) - 1,
            OwnNoise::Stays => sites(round),
        };
        part.sums.get(number).and_then(Option::as_deref).map_or(Self::Unknown, |sum| Self::Some(sum, left))
    }
}

/// Number of sites in a round.
fn sites(round: &ClosedRound) -> u32 {
    u32::try_from(round.included.len()).unwrap_or(u32::MAX)
}

/// All that a run released, and the prior that it meets.
struct Released {
    family: Family,
    visits: Vec<Visit>,
    /// The Gram matrix as the server holds it.
    gram: DMatrix<f64>,
    /// m0 and Λ0 of every coefficient.
    prior: (f64, f64),
}

/// The likelihood that a weighted mean of the visits tells.
struct Likelihood {
    reference: DVector<f64>,
    gradient: DVector<f64>,
    curvature: DMatrix<f64>,
    /// The mean of the released curvatures, and the variance of its entries.
    released: DVector<f64>,
    curvature_noise: f64,
}

impl Released {
    fn posterior(&self) -> Option<Posterior> {
        let d = self.family.dimension();
        let changes = self.changes();
        let noise: Vec<f64> = self.visits.iter().map(|visit| visit.noise).collect();
        let (mut variances, mut error) = (noise.clone(), DMatrix::zeros(d, d));
        let mut weights = normalised(noise.iter().map(|noise| 1.0 / noise));
        let mut result = None;
        for pass in 0..PASSES {
            let likelihood = self.likelihood(&weights)?;
            let spread: f64 = weights.iter().zip(&variances).map(|(w, v)| w * w * v).sum();
            let (natural, mean, covariance) = self.meet(&likelihood, &(DMatrix::identity(d, d) * spread + &error))?;
            error = self.error(&likelihood, &mean, &covariance);
            for ((variance, visit), change) in variances.iter_mut().zip(&self.visits).zip(&changes) {
                let bend = change * (&likelihood.curvature * (&visit.point - &mean)).norm();
                *variance = visit.noise + bend * bend;
            }
            let new = normalised(variances.iter().map(|variance| 1.0 / variance));
            let moved = weights.iter().zip(&new).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            let fresh: f64 = weights.iter().zip(&noise).map(|(w, noise)| w * w * noise).sum();
            result = Some(Posterior {
                natural_parameters: natural,
                signal_to_noise: signal_to_noise(likelihood.released.as_slice(), likelihood.curvature_noise.sqrt()),
                noise_share: Some(fresh / spread),
            });
            weights = new;
            // The first pass knows neither the error of the curvature nor the distances.
            if pass > 1 && moved < 1e-4 {
                break;
            }
        }
        result.filter(|posterior| posterior.natural_parameters.iter().all(|v| v.is_finite()))
    }

    /// ρ_t of every visit.
    fn changes(&self) -> Vec<f64> {
        let later = self.visits.len() / 2;
        let share = normalised(self.visits.iter().enumerate().map(|(t, visit)| if t < later { 0.0 } else { 1.0 / visit.noise }));
        let end = mean(self.visits.iter().map(|visit| &visit.curvature), &share);
        let norm = end.norm_squared().max(f64::MIN_POSITIVE);
        #[allow(clippy::cast_precision_loss, reason = "a number of parameters is far below 2^52")]
        let entries = end.len() as f64;
        // Squared norm of the noise of H̃_t minus the mean of the later visits, which may contain H̃_t: its mean and one standard deviation.
        let noise = |t: usize| -> f64 {
            let own = |(i, (visit, share)): (usize, (&Visit, &f64))| (f64::from(u8::from(i == t)) - share).powi(2) * visit.curvature_noise;
            self.visits.iter().zip(&share).enumerate().map(own).sum::<f64>() * (entries + (2.0 * entries).sqrt())
        };
        let change = |(t, visit): (usize, &Visit)| (((&visit.curvature - &end).norm_squared() - noise(t)).max(0.0) / norm).sqrt().min(2.0);
        self.visits.iter().enumerate().map(change).collect()
    }

    fn likelihood(&self, weights: &[f64]) -> Option<Likelihood> {
        let of = |part: fn(&Visit) -> &DVector<f64>| mean(self.visits.iter().map(part), weights);
        let released = of(|visit| &visit.curvature);
        let curvature =
            match self.family {
                Family::FullGaussian { dimension } => {
                    let eigen = SymmetricEigen::try_new(unsvec(released.as_slice(), dimension), f64::EPSILON, 1000 * dimension.max(10))?;
                    &eigen.eigenvectors * DMatrix::from_diagonal(&eigen.eigenvalues.map(|e| e.max(0.0))) * eigen.eigenvectors.transpose()
                }
                Family::DiagonalGaussian { dimension } => {
                    let scale = |j: usize| (released[j].max(0.0) / self.gram[(j, j)].max(f64::MIN_POSITIVE)).sqrt();
                    DMatrix::from_fn(dimension, dimension, |i, j| {
                        if i == j { released[j].max(0.0) } else { self.gram[(i, j)] * scale(i) * scale(j) }
                    })
                }
            };
        let curvature_noise = weights.iter().zip(&self.visits).map(|(w, visit)| w * w * visit.curvature_noise).sum();
        Some(Likelihood {
            reference: of(|visit| &visit.point),
            gradient: of(|visit| &visit.gradient),
            curvature,
            released,
            curvature_noise,
        })
    }

    /// The posterior's natural parameters in the task's family, its mean and its covariance.
    fn meet(&self, likelihood: &Likelihood, noise: &DMatrix<f64>) -> Option<(Vec<f64>, DVector<f64>, DMatrix<f64>)> {
        let d = self.family.dimension();
        let (prior_mean, prior_precision) = self.prior;
        let h = &likelihood.gradient + &likelihood.curvature * &likelihood.reference;
        let statistics = [h.as_slice(), &svec(&likelihood.curvature)].concat();
        let prior = [vec![prior_precision * prior_mean; d], svec(&(DMatrix::identity(d, d) * prior_precision))].concat();
        let natural = full(&prior, &statistics, noise)?;
        let covariance = Cholesky::new(unsvec(&natural[d..], d))?.inverse();
        let mean = &covariance * DVector::from_column_slice(&natural[..d]);
        let natural = match self.family {
            Family::FullGaussian { .. } => natural,
            Family::DiagonalGaussian { .. } => {
                let precision: Vec<f64> = covariance.diagonal().iter().map(|v| 1.0 / v).collect();
                [mean.iter().zip(&precision).map(|(m, p)| m * p).collect(), precision].concat()
            }
        };
        Some((natural, mean, covariance))
    }

    /// E: covariance of (H̃ − H)(θ − μ_r) for a θ of the posterior. With Q = E(θ − μ_r)(θ − μ_r)ᵀ and noise of variance σ² on the entries of svec H̃ it is
    /// ½σ²(tr Q I + Q), on a diagonal σ² diag Q.
    fn error(&self, likelihood: &Likelihood, mean: &DVector<f64>, covariance: &DMatrix<f64>) -> DMatrix<f64> {
        let distance = mean - &likelihood.reference;
        let square = covariance + &distance * distance.transpose();
        match self.family {
            Family::FullGaussian { dimension } => {
                (DMatrix::identity(dimension, dimension) * square.trace() + square) * (0.5 * likelihood.curvature_noise)
            }
            Family::DiagonalGaussian { .. } => DMatrix::from_diagonal(&(square.diagonal() * likelihood.curvature_noise)),
        }
    }
}

fn normalised(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let weights: Vec<f64> = weights.collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

fn mean<'a>(vectors: impl Iterator<Item = &'a DVector<f64>>, weights: &[f64]) -> DVector<f64> {
    vectors.zip(weights).map(|(vector, weight)| vector * *weight).reduce(|a, b| a + b).unwrap_or_else(|| DVector::zeros(0))
}

#[cfg(test)]
mod tests;
