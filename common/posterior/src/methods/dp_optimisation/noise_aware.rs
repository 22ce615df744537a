//! The noise-aware posterior of DP optimisation with its preconditioned step.
//!
//! Inside a visit every step moves each coordinate by η/P·(g̃ + h_c − Λ_c μ) with g̃ = H_m(θ̂_m − μ) + ε near the posterior, P = Λ + F and
//! ε of known variance (zC/(qa))², a the feature's scale. The steps are unrolled, their last iterates averaged, and Δh = Λ*μ̄ − h follows: an affine map of h, h_m
//! and the site's statistic, whose coefficients depend on public precisions only. [`Affine`] carries it through damping,
//! factors and floors to the end of the run, where the posterior's h is an observation of θ with a known slope and variance. A fit
//! that was stopped before it converged is therefore not taken for one that believes in its start. Early steps may be longer than the curvature of the
//! end allows: the affine map would swing where the true gradient levels off. The map starts after the last round with such a step, from the public
//! state there, which holds what was released before.
//!
//! Approximations: coordinates are independent, as in the mean field itself; the gradient is linear between a visit's start and the
//! end, with the mean of the curvatures that were released from that visit on, shared out by the sites' declared sizes, whose error
//! acts on the displacement of the posterior; under Poisson sampling the sampled sum varies by (1 − q)/q·H_m, by the
//! information equality; and nothing is shortened. A clip below the model's gradient bound that shortens unweighted gradients biases the fit, and
//! no covariance shows it. Of weighted records the curvature is taken for the score's covariance, which is less.

use super::affine::{Affine, Change};
use crate::methods::noise_aware::{Absent, ClosedRound, History, Posterior, signal_to_noise};
use crate::methods::{DpOptimisationSpec, Setting};

pub(crate) fn posterior(task: &Setting<'_>, spec: &DpOptimisationSpec, history: &History) -> Result<Posterior, Absent> {
    let d = task.dimension as usize;
    let prior = task.prior_natural();
    let sites = history.shares.len();
    if history.rounds.iter().all(|round| round.included.is_empty()) || sites == 0 {
        return Err(Absent::NoRound);
    }
    let foreign = |round: &ClosedRound| round.state.len() < 2 * d || round.included.iter().any(|site| *site >= sites);
    if prior.len() != 2 * d || history.rounds.iter().any(foreign) {
        return Err(Absent::Diverged);
    }
    let scales = spec.feature_scales(task).ok().filter(|scales| scales.len() == d).ok_or(Absent::Diverged)?;
    let run = Run { task, spec, history, dimension: d, prior: &prior, scales };
    let mut natural = prior.clone();
    let mut released = vec![0.0; d];
    for j in 0..d {
        let rounds = run.precisions(j);
        let curvatures = run.curvatures(j, &rounds);
        // In units of its own noise. A run without a visit released nothing.
        released[j] = if curvatures.error > 0.0 { curvatures.released / curvatures.error.sqrt() } else { 0.0 };
        (natural[j], natural[d + j]) = run.coordinate(j, &rounds, &curvatures).ok_or(Absent::Unstable)?;
    }
    Ok(Posterior { natural_parameters: natural, signal_to_noise: signal_to_noise(&released, 1.0), noise_share: None })
}

struct Run<'a> {
    task: &'a Setting<'a>,
    spec: &'a DpOptimisationSpec,
    history: &'a History,
    dimension: usize,
    prior: &'a [f64],
    /// a: the noise on an entry is divided by it.
    scales: Vec<f64>,
}

/// One round in one coordinate: what is public about its precisions.
struct Precisions {
    damping: f64,
    /// Λ before it.
    total: f64,
    /// What the floor multiplies h with, beyond 1: r_Λ/Λ.
    correction: f64,
    /// (site, Λ_m before it, Δ Λ of the site).
    changes: Vec<(usize, f64, f64)>,
    /// h and the sites' h_m before it.
    total_h: f64,
    factors_h: Vec<f64>,
}

/// ΣH_m as the rounds of a run see it.
struct Curvatures {
    rounds: Vec<f64>,
    /// At the end of the run: as released, without negative values, and the variance of its error.
    released: f64,
    end: f64,
    error: f64,
}

impl Run<'_> {
    fn coordinate(&self, j: usize, rounds: &[Precisions], curvatures: &Curvatures) -> Option<(f64, f64)> {
        let prior = (self.prior[j], self.prior[self.dimension + j]);
        let observed = self.history.rounds.last().map_or(prior.0, |round| round.state[j]);
        // The error of a curvature acts on the distance of θ from where the fit ends; that distance is the posterior's own.
        let mut result = prior;
        let mut displacement = 0.0;
        for _ in 0..2 {
            let variance = curvatures.end + curvatures.error * displacement;
            let scores: Vec<f64> = self.history.shares.iter().map(|share| share * variance).collect();
            let changes = |(round, total): (&Precisions, &f64)| -> Vec<(Change, bool)> {
                let change = |&(site, factor, change): &(usize, f64, f64)| {
                    self.change(j, site, round.total, factor, change, self.history.shares[site] * total)
                };
                round.changes.iter().map(change).collect()
            };
            let all: Vec<Vec<(Change, bool)>> = rounds.iter().zip(&curvatures.rounds).map(changes).collect();
            // What was released before is in the public state from which the rest of the run starts.
            let first = all.iter().rposition(|round| round.iter().any(|(_, contracts)| !contracts)).map_or(0, |last| last + 1);
            let start = rounds.get(first).filter(|_| all[first..].iter().any(|changes| !changes.is_empty()))?;
            let mut affine = Affine::at(start.total_h, &start.factors_h);
            for (round, changes) in rounds.iter().zip(&all).skip(first) {
                affine.round(round.damping, round.correction, &changes.iter().map(|(change, _)| *change).collect::<Vec<_>>());
            }
            result = affine.posterior(prior, observed, &scores);
            displacement = 1.0 / result.1;
        }
        Some(result)
    }

    /// Replays the precisions. A sum over several sites is shared out by their declared sizes.
    fn precisions(&self, j: usize) -> Vec<Precisions> {
        let at = self.dimension + j;
        let mut total = self.prior[at];
        let mut factors = vec![0.0; self.history.shares.len()];
        let (mut total_h, mut factors_h) = (self.prior[j], factors.clone());
        let mut rounds = Vec::with_capacity(self.history.rounds.len());
        for round in &self.history.rounds {
            let damping = self.damping(round.visit);
            let corrected = |at: usize| round.correction.as_ref().and_then(|r| r.get(at)).copied().unwrap_or(0.0);
            let correction = corrected(at);
            let sum = (round.state[at] - total - correction) / damping;
            let moved = round.state[j] - total_h - corrected(j);
            let weight: f64 = round.included.iter().map(|&site| self.history.shares[site]).sum();
            let changes = round.included.iter().map(|&site| {
                let change = sum * self.history.shares[site] / weight.max(f64::MIN_POSITIVE);
                (site, factors[site], change)
            });
            let changes: Vec<_> = changes.collect();
            changes.iter().for_each(|&(site, _, change)| factors[site] += damping * change);
            rounds.push(Precisions { damping, total, correction: correction / total, changes, total_h, factors_h: factors_h.clone() });
            round.included.iter().for_each(|&site| factors_h[site] += moved * self.history.shares[site] / weight.max(f64::MIN_POSITIVE));
            (total, total_h) = (round.state[at], round.state[j]);
        }
        rounds
    }

    /// The federation's curvature ΣH_m over the rest of the run, seen from every round: the mean of Λ* − Λ_c = Λ_m + ΔΛ over later
    /// visits, and at least the last half of them, over the share of the visiting sites. Noise may make it negative; that is taken as
    /// no information at all.
    fn curvatures(&self, j: usize, rounds: &[Precisions]) -> Curvatures {
        let (mut sum, mut weight, mut variance) = (0.0, 0.0, 0.0);
        let one = (self.step_sd(j) / self.spec.curvature_weight).powi(2) / f64::from(self.spec.steps);
        let half = rounds.len() / 2;
        let mut means = vec![0.0; rounds.len()];
        let (mut released, mut end, mut error) = (0.0, 0.0, 0.0);
        for (at, round) in rounds.iter().enumerate().rev() {
            for &(site, factor, change) in &round.changes {
                sum += factor + change;
                weight += self.history.shares[site];
                variance += one;
            }
            if weight > 0.0 {
                means[at] = (sum / weight).max(0.0);
            }
            if at == half && weight > 0.0 {
                (released, end, error) = (sum / weight, means[at], variance / (weight * weight));
            }
        }
        means[half..].fill(end);
        Curvatures { rounds: means, released, end, error }
    }

    /// Standard deviation of the noise on one coordinate of 1/q times a step's released sum.
    fn step_sd(&self, j: usize) -> f64 {
        self.spec.noise_multiplier.get() * self.spec.clip_norm.get() / (self.spec.sampling_rate.get() * self.scales[j])
    }

    /// One visit: μ_0 = h/Λ, μ_{t+1} = μ_t + η_t/P·(H_m θ̂_m − H_m μ_t + ε_t + h − h_m − Λ_c μ_t), Δh = Λ*·mean of the last μ − h.
    /// Also whether every step brings μ nearer to where the gradient is 0.
    fn change(&self, j: usize, site: usize, total: f64, factor: f64, change: f64, curvature: f64) -> (Change, bool) {
        let cavity = (total - factor).max(CAVITY_FLOOR * self.task.prior.scale.powi(-2));
        let fitted = total + change;
        let steps = self.spec.steps;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=steps")]
        let tail = (f64::from(steps) * self.spec.averaging).ceil().clamp(1.0, f64::from(steps)) as usize;
        let steps = steps as usize;
        // Weights of μ_0, of the drift s_m + h − h_m, and of every step's noise in the iterate, and in the sum of the last ones.
        let (mut start, mut drift, mut noise) = (1.0, 0.0, vec![0.0; steps]);
        let (mut start_sum, mut drift_sum, mut noise_sum) = (0.0, 0.0, vec![0.0; steps]);
        let mut rate = self.spec.learning_rate;
        let mut contracts = true;
        for t in 0..steps {
            let gain = rate / (total + self.spec.step_precision / self.scales[j]);
            let keep = 1.0 - gain * (curvature + cavity);
            contracts &= keep > -1.0;
            start *= keep;
            drift = keep * drift + gain;
            noise[..t].iter_mut().for_each(|w| *w *= keep);
            noise[t] = gain;
            if t + tail >= steps {
                start_sum += start;
                drift_sum += drift;
                noise_sum.iter_mut().zip(&noise).for_each(|(sum, w)| *sum += w);
            }
            rate *= self.spec.learning_rate_decay;
        }
        #[allow(clippy::cast_precision_loss, reason = "a number of steps")]
        let scale = fitted / tail as f64;
        let q = self.spec.sampling_rate.get();
        let variance = self.step_sd(j).powi(2) + (1.0 - q) / q * curvature;
        let change = Change {
            site,
            total: scale * (start_sum / total + drift_sum) - 1.0,
            own: -scale * drift_sum,
            statistic: scale * drift_sum,
            curvature,
            noise: scale * scale * variance * noise_sum.iter().map(|w| w * w).sum::<f64>(),
        };
        (change, contracts)
    }

    fn damping(&self, visit: u32) -> f64 {
        self.task.damping.get(visit as usize).or(self.task.damping.last()).copied().unwrap_or(1.0)
    }
}

/// κ_c, below which a cavity's precision is raised before a fit.
const CAVITY_FLOOR: f64 = 0.1;
