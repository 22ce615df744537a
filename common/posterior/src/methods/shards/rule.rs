//! The server's step of updates over shards: the sum of the sites' messages is decoded with the public λ
//! that the sites encoded with, and moves λ as in partitioned variational inference ([`PviRule`]).
//!
//! The mean's step is shortened where the noisy precision lags behind: μ′ = μ + (μ_new − μ)·Λ′/max(Λ′, Λ_step), which is the centred step
//! G/max(Λ′, Λ_step). What that takes away from h belongs to no site and is part of the correction r.
//!
//! Where factors are tied to λ, a round's sum says the whole precision anew, and the precision block moves by max(ρ, 1/(t+1)) at visit t: a
//! running mean at first. A precision that crept up by ρ from the prior's would lag behind and let the first steps overshoot by 1/ρ. The
//! excess over ρ belongs to no site either; the next message takes λ as it is, so no factor has to know of it.

use dp_pvi_math::expfam::any::{Family, Gaussian};

use crate::methods::{FactorState, Setting, ShardSpec};
use crate::methods::{PviRule, Rule, Step, VisitSum};
use dp_pvi_privacy::clipping::metric::{Reference, times_mean};

/// The rule of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardRule {
    pvi: PviRule,
    coding: Coding,
    step_precision: f64,
    /// Whether factors are tied to λ, shard by shard.
    tied: bool,
}

/// How a change of natural parameters is written in a message, by both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Coding {
    spec: ShardSpec,
    family: Family,
    /// Length and scale of every block.
    blocks: Vec<(usize, f64)>,
}

impl Coding {
    /// The coding of a task with this update.
    #[must_use]
    pub fn new(task: &Setting<'_>, spec: ShardSpec) -> Self {
        let blocks = spec.blocks(task).iter().zip(&spec.scales).map(|(&(len, _), &scale)| (len, scale)).collect();
        Self { family: task.family(), blocks, spec }
    }

    /// The message of a change, every block cut to its bound and scaled.
    #[must_use]
    pub fn encode(&self, change: &[f64], lambda: &Gaussian) -> Vec<f64> {
        let mut message = self.spec.clip_metric.encode(self.family, change, &self.reference(lambda));
        let bounds: Vec<_> = self.blocks.iter().zip(&self.spec.clip_norms).map(|(&(len, _), &bound)| (len, bound)).collect();
        dp_pvi_privacy::clipping::metric::clip_blocks(&mut message, &bounds);
        self.scale(&mut message, |value, scale| value / scale);
        message
    }

    /// The change that a message, or a sum of messages, stands for.
    #[must_use]
    pub fn decode(&self, message: &[f64], lambda: &Gaussian) -> Vec<f64> {
        let mut message = message.to_vec();
        let divisor = self.spec.divisor();
        self.scale(&mut message, |value, scale| value * scale / divisor);
        self.spec.clip_metric.decode(self.family, &message, &self.reference(lambda))
    }

    fn reference<'a>(&self, lambda: &'a Gaussian) -> Reference<'a> {
        Reference::new(self.family, lambda.standard().mean(), &lambda.natural()[self.family.dimension()..])
    }

    fn scale(&self, message: &mut [f64], f: impl Fn(f64, f64) -> f64) {
        let mut rest = message;
        for &(len, scale) in &self.blocks {
            let (block, after) = rest.split_at_mut(len.min(rest.len()));
            block.iter_mut().for_each(|value| *value = f(*value, scale));
            rest = after;
        }
    }
}

impl ShardRule {
    /// The rule of a task with this update.
    #[must_use]
    pub fn new(task: &Setting<'_>, spec: ShardSpec) -> Self {
        let tied = spec.state == FactorState::Tied && spec.method.has_shards();
        Self { pvi: PviRule::new(task), step_precision: spec.step_precision, coding: Coding::new(task, spec), tied }
    }

    /// ρΔ and what the precision block moves beyond it, around the old mean: G keeps its ρ.
    fn ahead(&self, visit: u32, change: &[f64], old: &Gaussian) -> Option<Vec<f64>> {
        let rho = self.pvi.damping(visit);
        let excess = 1.0 / (f64::from(visit) + 1.0) - rho;
        if !self.tied || excess <= 0.0 {
            return None;
        }
        let d = self.coding.family.dimension();
        let precision: Vec<f64> = change[d..].iter().map(|l| excess * l).collect();
        let mut ahead = times_mean(self.coding.family, &precision, old.standard().mean());
        ahead.extend(precision);
        Some(ahead)
    }

    /// The shorter mean of a step; `None` where there is nothing to shorten.
    fn shortened(&self, old: &Gaussian, step: &Step) -> Option<Step> {
        let Family::DiagonalGaussian { dimension } = self.coding.family else { return None };
        let (h, precision) = step.state.split_at(dimension);
        let mut state = step.state.clone();
        for (j, mu) in old.standard().mean().iter().enumerate() {
            let factor = precision[j] / precision[j].max(self.step_precision);
            state[j] = precision[j] * (mu + factor * (h[j] / precision[j] - mu));
        }
        if state == step.state || Gaussian::from_natural(self.coding.family, state.clone()).is_err() {
            return None;
        }
        let mut correction = step.correction.clone().unwrap_or_else(|| vec![0.0; state.len()]);
        correction.iter_mut().zip(&state).zip(&step.state).for_each(|((r, new), old)| *r += new - old);
        Some(Step { state, correction: Some(correction), floored: step.floored })
    }
}

impl Rule for ShardRule {
    fn initial(&self) -> Vec<f64> {
        self.pvi.initial()
    }

    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        let Ok(old) = Gaussian::from_natural(self.coding.family, state.to_vec()) else {
            return Step { state: state.to_vec(), correction: None, floored: self.coding.family.dimension() };
        };
        if received.sum.len() != state.len() {
            return self.pvi.apply(state, received.visit, received.sum);
        }
        let mut change = self.coding.decode(received.sum, &old);
        let ahead = self.ahead(received.visit, &change, &old);
        if let Some(ahead) = &ahead {
            let rho = self.pvi.damping(received.visit);
            change.iter_mut().zip(ahead).for_each(|(c, a)| *c += a / rho);
        }
        let step = self.pvi.apply(state, received.visit, &change);
        let mut step = self.shortened(&old, &step).unwrap_or(step);
        if let Some(ahead) = ahead {
            let correction = step.correction.get_or_insert_with(|| vec![0.0; state.len()]);
            correction.iter_mut().zip(&ahead).for_each(|(r, a)| *r += a);
        }
        step
    }
}

#[cfg(test)]
mod tests;
