//! The noise-aware posterior of DP optimisation with its preconditioned step: every visit of all sites is a
//! [measurement](crate::methods::noise_aware::measurements) of the likelihood.
//!
//! A visit sends, beside its change, the mean gradient ḡ of its L steps, the mean μ̄ of the points at which they were taken, and the mean of the
//! curvatures. Near the posterior a site's gradient is linear, so that ḡ is its gradient at μ̄ with noise of variance (zC/(qa))²/L, a the feature's scale.
//! Under Poisson sampling the sampled sum varies by (1 − q)/q·H/L besides, by the information equality. Where every unit is in exactly one of T batches of an epoch
//! the batches' variations cancel, but only at one point: a visit moves, and ḡ has every unit's gradient at the point of its batch. Over E epochs that varies by
//! Σ_i h_i² Var_t(θ_t)/E with a unit's curvature h_i, which does not fall with the number of units and comes to H/E and more in visits that go far. The
//! same term as under Poisson sampling stands for it, (T − 1)/(TE)·H. The sums over all sites are one measurement. The
//! sites' points are a little apart: their mean by declared sizes is exact where curvatures are in proportion to sizes. A visit of some sites only counts as
//! a part of that size of the whole.

use nalgebra::DVector;

use super::rule::Measured;
use crate::methods::noise_aware::correlations::Correlations;
use crate::methods::noise_aware::measurements::{Measurement, Measurements, OnTheWay};
use crate::methods::noise_aware::weighted::Weighted;
use crate::methods::noise_aware::{Absent, History, LARGEST, Posterior};
use crate::methods::scaled::learned;
use crate::methods::{DpOptimisationSpec, Setting};

pub(crate) fn posterior(task: &Setting<'_>, spec: &DpOptimisationSpec, history: &History) -> Result<Posterior, Absent> {
    let d = task.dimension as usize;
    if !spec.measured {
        return Err(Absent::Unmeasured);
    }
    if d > LARGEST {
        return Err(Absent::TooLarge(LARGEST));
    }
    let scales = spec.feature_scales(task).ok().filter(|scales| scales.len() == d).ok_or(Absent::Diverged)?;
    let learned = usize::try_from(learned(task)).unwrap_or(usize::MAX);
    let scales = DVector::from_vec(scales);
    let measurements = measurements(spec, &scales, history, learned).ok_or(Absent::Diverged)?;
    if measurements.is_empty() {
        return Err(Absent::NoRound);
    }
    let measurements = measurements.into_iter().map(|measurement| measurement.informed(task)).collect();
    let measurements = Measurements {
        family: task.family(),
        measurements,
        correlations: Correlations::new(task, None),
        weighted: spec.weighted.then(|| Weighted {
            model: task.model.clone(),
            clip_norm: spec.clip_norm.get(),
            curvature_weight: spec.curvature_weight,
            scales: Some(scales),
        }),
        on_the_way: OnTheWay::Expected(task.model.clone()),
        prior: task.priors(),
        near: None,
    };
    measurements.posterior().ok_or(Absent::Diverged)
}

/// One measurement a visit; states end with so many learned scales. `None` where a state is not one of this rule, or a site is unknown.
fn measurements(spec: &DpOptimisationSpec, scales: &DVector<f64>, history: &History, learned: usize) -> Option<Vec<Measurement>> {
    let d = scales.len();
    let noise_of_one = noise_of_one(spec, scales);
    let mut visits: Vec<(u32, Gathered)> = Vec::new();
    let mut before: &[f64] = &[];
    for round in history.rounds.iter().filter(|round| !round.included.is_empty()) {
        let measured = Measured::of(round.state.get(..round.state.len().checked_sub(learned)?)?, d)?;
        // A sum that could not be used left the state as it was.
        if round.state == before {
            continue;
        }
        before = &round.state;
        let share = round.included.iter().map(|&site| history.shares.get(site)).sum::<Option<f64>>()?;
        let sites = u32::try_from(round.included.len()).ok()?;
        let at = visits.iter().position(|(visit, _)| *visit == round.visit).unwrap_or_else(|| {
            visits.push((round.visit, Gathered::new(d)));
            visits.len() - 1
        });
        visits[at].1.add(&measured, share, &(&noise_of_one * f64::from(sites)));
    }
    let measurement = |(_, all): (u32, Gathered)| {
        let curvature = all.curvature / all.share;
        let sampled = sampled(spec, &curvature);
        Measurement {
            point: all.point / all.share,
            gradient: all.gradient / all.share,
            noise: &all.noise / all.share.powi(2) + sampled / all.share,
            curvature_noise: all.noise / (all.share * spec.curvature_weight).powi(2),
            curvature,
        }
    };
    Some(visits.into_iter().filter(|(_, all)| all.share > 0.0).map(measurement).collect())
}

/// Variances of the noise on the mean gradient of a site's visit.
pub(super) fn noise_of_one(spec: &DpOptimisationSpec, scales: &DVector<f64>) -> DVector<f64> {
    let noise = spec.noise_multiplier.get() * spec.clip_norm.get() / spec.sampling_rate.get();
    scales.map(|scale| (noise / scale).powi(2) / f64::from(spec.steps))
}

/// The same for a task; absent where it has no scales of features.
pub(super) fn noise_of_visit(task: &Setting<'_>, spec: &DpOptimisationSpec) -> Option<Vec<f64>> {
    let scales = spec.feature_scales(task).ok().filter(|scales| scales.len() == task.dimension as usize)?;
    Some(noise_of_one(spec, &DVector::from_vec(scales)).as_slice().to_vec())
}

/// By how much a sum over Poisson samples varies besides, and what stands for the way of a visit over batches.
pub(super) fn sampled(spec: &DpOptimisationSpec, curvature: &DVector<f64>) -> DVector<f64> {
    let q = spec.sampling_rate.get();
    curvature.map(|h| h.max(0.0) * (1.0 - q) / (q * f64::from(spec.steps)))
}

/// What the rounds of a visit brought together.
struct Gathered {
    /// Of the declared units.
    share: f64,
    /// Weighted by the share.
    point: DVector<f64>,
    gradient: DVector<f64>,
    curvature: DVector<f64>,
    noise: DVector<f64>,
}

impl Gathered {
    fn new(d: usize) -> Self {
        let zero = || DVector::zeros(d);
        Self { share: 0.0, point: zero(), gradient: zero(), curvature: zero(), noise: zero() }
    }

    fn add(&mut self, measured: &Measured<'_>, share: f64, noise: &DVector<f64>) {
        self.share += share;
        self.point.axpy(share, &DVector::from_column_slice(measured.point), 1.0);
        self.gradient += DVector::from_column_slice(measured.gradient);
        self.curvature += DVector::from_column_slice(measured.curvature);
        self.noise += noise;
    }
}

#[cfg(test)]
mod tests;
