//! The trust region of a visit of DP optimisation, in units of the declared records.
//!
//! Every step of a visit releases one noised sum of clipped gradients; over the declared units it is at most B long, noise included
//! ([`SumBound`](dp_pvi_privacy::mechanism::SumBound)). With q the sampling rate, a_j the public scale of a feature and w the weight of the curvature block, a step knows a gradient
//! g_j and a curvature H_j with ‖(a_j g_j ; w a_j H_j)‖ ≤ G = B/q. Everything after that is a function of public values:
//! * *Measured means* of g and H over the steps are no longer: ‖(a ḡ ; w a H̄)‖ ≤ G.
//! * *Precision* of preconditioned steps: Λ* = Λ − Λ_m + H̄ within a range that holds Λ, and Λ_m is a weighted mean of earlier H̄ of this site. So |Λ*_j − Λ_j| ≤ 2G/(w a_j).
//! * *Mean* of preconditioned steps: L steps of length η, each divided by at least P_j = Λ_j + F/a_j, of a gradient of the site's records and of one that takes back what the site said
//!   before: |μ*_j − μ_j| ≤ 2ηL G/(a_j P_j)·(1 + ηL(Λ_j + 2G/(w a_j))/P_j). A site whose steps lead farther has diverged.
//! * *Adam* moves no parameter by more than 7.3η in a step, whatever its gradient is: its mean is at most √(Σ w_i²/u_i) times the root of its mean square, where w_i and u_i are their weights
//!   (β1 = 0.9, β2 = 0.999), and that is below 7.3. So |μ*_j − μ_j| and |ln σ*_j − ln σ_j| are at most 7.3 η Σ decay^s.
//! * *Positivity-preserving* steps keep at least half of a precision: |μ*_j − μ_j| ≤ Σ_s η_s 2^s·2G/(a_j Λ_j), and Λ* is within the range of σ that they are kept in.

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::spec::TaskError;
use dp_pvi_models::spec::check::invalid;
use dp_pvi_posterior::methods::{DpOptimisationSpec, Optimizer, Setting};
use dp_pvi_privacy::clipping::adaptive;
use dp_pvi_privacy::mechanism::SumBound;
use serde::{Deserialize, Serialize};

use super::Misfit;

/// Steps of Adam in units of η, at most.
const ADAM: f64 = 7.3;
/// Least log σ of a step.
const LEAST_LOG_SCALE: f64 = -10.0;
/// Largest log σ, unless the prior is wider.
const LARGEST_LOG_SCALE: f64 = 2.0;
/// Room for rounding in double precision, relative to the numbers that a message is a difference of.
const ROUNDING: f64 = 1e-6;

/// What a visit of DP optimisation can lead to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Region {
    /// Where the mean starts, and how far it gets.
    start: Vec<f64>,
    reach: Vec<f64>,
    /// Precision of λ, the most that a visit changes it by, and its range.
    precision: Vec<f64>,
    change: Option<Vec<f64>>,
    range: (f64, f64),
    /// Of Adam: ln σ at the start, and how far it gets.
    log_scale: Option<(Vec<f64>, f64)>,
    /// a and w.
    scales: Vec<f64>,
    weight: f64,
    /// G.
    most: f64,
}

/// Where a visit begins.
pub(crate) struct Begin<'a> {
    /// λ.
    pub(crate) lambda: &'a [f64],
    /// The largest standard deviation of a coefficient under the prior.
    pub(crate) widest: f64,
    /// Means at which the fit starts, where not at those of λ.
    pub(crate) start: Option<Vec<f64>>,
    /// Number of the visit.
    pub(crate) visit: u32,
}

impl Region {
    /// Of a site that declared so many units.
    pub(super) fn new(
        spec: &DpOptimisationSpec,
        task: &Setting<'_>,
        units: u64,
        Begin { lambda, widest, start, visit }: Begin<'_>,
    ) -> Result<Self, TaskError> {
        let coordinates = spec.coordinates(task.dimension);
        // One step, and the exponent of its lattice.
        let (event, exponent) = match spec.max_units {
            Some(most) => {
                let step = spec.batch_mechanism(coordinates, most)?;
                (step.event(), step.exponent())
            }
            None => {
                let step = spec.mechanism(coordinates)?;
                (step.event(), step.exponent())
            }
        };
        let d = task.dimension as usize;
        let Ok(q) = Gaussian::from_natural(task.family(), lambda.to_vec()) else { return invalid("the state is no distribution") };
        let Some(bound) = SumBound::of_event(&event, units) else { return invalid("a step is not one noised sum") };
        // Terms are sent in units of C where that adapts.
        let unit = spec.adaptive_clip.map_or(1.0, |adaptive| adaptive::RANGE.1 * spec.clip_norm.get() / adaptive.gradient_share());
        let most = bound.norm() * 2f64.powi(exponent) * unit / spec.sampling_rate.get() * (1.0 + ROUNDING);
        let (scales, weight) = (spec.feature_scales(task)?, spec.curvature_weight);
        let precision = lambda[d..2 * d].to_vec();
        let steps = f64::from(spec.steps);
        let lengths = |factor: f64| {
            (0..spec.steps).map(move |s| spec.learning_rate * (spec.learning_rate_decay * factor).powi(s.cast_signed())).sum::<f64>()
        };
        let largest = LARGEST_LOG_SCALE.max(widest.ln());
        let range = (0.5 * (-2.0 * largest).exp(), 2.0 * (-2.0 * LEAST_LOG_SCALE).exp());
        let start = start.unwrap_or_else(|| q.standard().mean().to_vec());
        let curvature = |j: usize| 2.0 * most / (weight * scales[j]);
        let (mut change, mut log_scale) = (None, None);
        let reach = match spec.optimizer {
            Optimizer::Preconditioned => {
                change = Some((0..d).map(curvature).collect());
                let way = spec.learning_rate * steps;
                let reach = |j: usize| {
                    let divisor = precision[j] + spec.step_precision / scales[j];
                    2.0 * way * most / (scales[j] * divisor) * (1.0 + way * (precision[j] + curvature(j)) / divisor)
                };
                (0..d).map(reach).collect()
            }
            Optimizer::Adam => {
                let way = ADAM * lengths(1.0);
                let first = if visit == 0 { spec.initial_log_scale } else { f64::INFINITY };
                let at = |p: &f64| (-0.5 * p.ln()).min(first).clamp(LEAST_LOG_SCALE, largest);
                log_scale = Some((precision.iter().map(at).collect(), way));
                vec![way; d]
            }
            Optimizer::PositivityPreserving => {
                (0..d).map(|j| 2.0 * lengths(2.0) * most / (scales[j] * precision[j].max(range.0))).collect()
            }
        };
        Ok(Self { start, reach, precision, change, range, log_scale, scales, weight, most })
    }

    /// What is wrong with a fit of this mean and precision, whose precision was changed by so much.
    pub(super) fn misfit(&self, j: usize, mean: f64, precision: f64, changed: f64) -> Option<Misfit> {
        let room = ROUNDING * (self.precision[j] + precision);
        let too_much = self.change.as_ref().is_some_and(|change| changed.abs() > change[j] + room);
        let moved = self.log_scale.as_ref().is_some_and(|(start, way)| (-0.5 * precision.ln() - start[j]).abs() > way + ROUNDING);
        if too_much || moved || !(self.range.0..=self.range.1).contains(&precision) {
            return Some(Misfit::Precision);
        }
        self.is_beyond(j, mean).then_some(Misfit::Move)
    }

    fn is_beyond(&self, j: usize, mean: f64) -> bool {
        let far = (mean - self.start[j]).abs();
        far.is_nan() || far > self.reach[j] + ROUNDING * (1.0 + self.start[j].abs())
    }

    /// The part of a measured number in the norm of all: of [ḡ | μ̄ | H̄] this is that of ḡ and H̄. `None` for a point that is out of reach.
    pub(super) fn measured(&self, place: usize, value: f64) -> Option<f64> {
        let d = self.start.len();
        match place / d {
            0 => Some(self.scales[place] * value),
            1 => (!self.is_beyond(place - d, value)).then_some(0.0),
            _ => Some(self.weight * self.scales[(place - 2 * d).min(d - 1)] * value),
        }
    }

    /// G.
    pub(super) fn most_measured(&self) -> f64 {
        self.most
    }
}
