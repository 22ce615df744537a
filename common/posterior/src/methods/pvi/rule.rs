//! The server's step of partitioned variational inference:
//! λ ← λ + ρ ΣΔ + r, with r the public correction of the precision floor. Everything here is post-processing of released values.
//!
//! A step whose precision stays above the floor costs one Cholesky factorisation of the packed difference Λ − Λ0 and no copy beside it.
//! Eigenvalues are computed only where something is below.

use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::svec_times;

use crate::methods::{Rule, Setting, Step, VisitSum};
use dp_pvi_math::floor::PrecisionFloor;

/// The rule of one task: prior, family, floor, and ρ of every visit.
#[derive(Debug, Clone, PartialEq)]
pub struct PviRule {
    family: Family,
    prior: Vec<f64>,
    floor: PrecisionFloor,
    damping: Vec<f64>,
}

impl PviRule {
    /// The rule of a task.
    #[must_use]
    pub fn new(task: &Setting<'_>) -> Self {
        Self { family: task.family(), prior: task.prior_natural(), floor: task.model.rules().floor(), damping: task.damping.to_vec() }
    }

    /// A rule from its parts; `prior` are natural parameters.
    #[must_use]
    pub fn from_parts(family: Family, prior: Vec<f64>, floor: PrecisionFloor, damping: Vec<f64>) -> Self {
        Self { family, prior, floor, damping }
    }

    /// The same with another λ0.
    pub(in crate::methods) fn with_prior(self, prior: Vec<f64>) -> Self {
        Self { prior, ..self }
    }

    /// λ0: the prior's natural parameters.
    #[must_use]
    pub fn initial(&self) -> Vec<f64> {
        self.prior.clone()
    }

    /// ρ of a visit; the last one for visits past the end.
    #[must_use]
    pub fn damping(&self, visit: u32) -> f64 {
        self.damping.get(visit as usize).or(self.damping.last()).copied().unwrap_or(1.0)
    }

    /// λ ← λ + ρ ΣΔ, then the floor. `lambda` must be valid (the prior, or an earlier result); `sum` = ΣΔ may be anything.
    ///
    /// Where the floor raises Λ to Λ′, the mean is **not** recomputed as h/Λ′ with the noisy h, which would explode; the centred update
    /// h′ = Λ′μ + ρ(Δh − ΔΛ μ) around the old mean μ is used, that is, r = ((Λ′ − Λ_noisy)μ, Λ′ − Λ_noisy).
    ///
    /// Total: a sum of the wrong length, with an entry that is not finite, or so large that no valid λ′ can be represented leaves λ
    /// where it is; then r = −ρ ΣΔ undoes it and all directions count as floored.
    #[must_use]
    pub fn apply(&self, lambda: &[f64], visit: u32, sum: &[f64]) -> Step {
        self.step(lambda, self.damping(visit), sum).unwrap_or_else(|| {
            let rho = self.damping(visit);
            let undo = lambda.iter().enumerate().map(|(i, _)| sum.get(i).map_or(0.0, |s| -rho * s)).collect();
            Step { state: lambda.to_vec(), correction: Some(undo), floored: self.family.dimension() }
        })
    }

    fn step(&self, lambda: &[f64], rho: f64, sum: &[f64]) -> Option<Step> {
        if sum.len() != lambda.len() {
            return None;
        }
        let mut candidate: Vec<f64> = lambda.iter().zip(sum).map(|(l, s)| l + rho * s).collect();
        let d = self.family.dimension();
        // The usual case: what lies above the floor is positive definite, and with a representable h it has a mean. Nothing else is
        // factorised then, and no covariance is computed.
        let within = |values: &[f64], bound: f64| values.iter().all(|v| v.abs() <= bound);
        if within(&candidate[..d], REPRESENTABLE)
            && within(&candidate[d..], REPRESENTABLE)
            && self.floor.holds(self.family, &self.prior[d..], &candidate[d..])
        {
            return Some(Step { state: candidate, correction: None, floored: 0 });
        }
        let mut floored = 0;
        let mut moved = None;
        if let Some(raised) = self.floor.apply(self.family, &self.prior[d..], &candidate[d..]) {
            floored = raised.directions;
            let old = Gaussian::from_natural(self.family, lambda.to_vec()).ok()?;
            let mut correction = vec![0.0; candidate.len()];
            for ((c, r), target) in candidate[d..].iter_mut().zip(&mut correction[d..]).zip(raised.precision) {
                *r = target - *c;
                *c = target;
            }
            let shift = self.times_mean(&correction[d..], old.standard().mean());
            for ((c, r), shift) in candidate.iter_mut().zip(&mut correction).zip(shift) {
                *c += shift;
                *r = shift;
            }
            moved = Some(correction);
        }
        Gaussian::from_natural(self.family, candidate.clone()).ok()?;
        Some(Step { state: candidate, correction: moved, floored })
    }

    /// Precision block times a mean.
    fn times_mean(&self, precision: &[f64], mean: &[f64]) -> Vec<f64> {
        match self.family {
            Family::DiagonalGaussian { .. } => precision.iter().zip(mean).map(|(p, m)| p * m).collect(),
            Family::FullGaussian { .. } => svec_times(precision, mean),
        }
    }
}

/// Natural parameters up to here have standard parameters in the range of f64, for priors of any sensible scale; beyond it they are
/// computed to see.
const REPRESENTABLE: f64 = 1e150;

impl Rule for PviRule {
    fn initial(&self) -> Vec<f64> {
        self.initial()
    }

    fn apply(&self, state: &[f64], received: &VisitSum<'_>) -> Step {
        self.apply(state, received.visit, received.sum)
    }
}

#[cfg(test)]
mod tests;
