//! The fit of one visit as state and step: pure functions of public numbers and released sums.

use dp_pvi_accounting::ClipNorm;
use dp_pvi_math::optim::Adam;
use dp_pvi_posterior::task::{AdaptiveClipSpec, DpOptimisationSpec, Optimizer};
use dp_pvi_privacy::clipping::adaptive::{next_bound, share_within};
use serde::{Deserialize, Serialize};

use crate::error::InferenceError;
use crate::mean_field::{MeanField, ScaleCoordinate};
use crate::methods::Local;

/// Smallest log σ, and the largest unless the prior is wider: does not depend on data.
const LOG_SCALE_RANGE: (f64, f64) = (-10.0, 2.0);

/// Where a visit is after some steps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::methods) struct Iterate {
    /// Where the next gradient is taken.
    point: MeanField,
    rule: StepRule,
    cavity: Cavity,
    steps: u32,
    taken: u32,
    learning_rate: f64,
    learning_rate_decay: f64,
    /// 1/q.
    inverse_rate: f64,
    /// a: what the entries of a released sum are divided by.
    scales: Vec<f64>,
    /// Sum of the last iterates (μ, log σ or the released curvature), and their number.
    average: Vec<f64>,
    averaged: u32,
    /// Steps whose iterates are averaged.
    tail: u32,
    largest_log_scale: f64,
    /// C, where it adapts.
    clip: Option<AdaptiveClip>,
    /// Sums of the released gradients and of the points at which they were taken, where the visit measures.
    seen: Option<[Vec<f64>; 2]>,
}

/// A clipping norm that follows a private quantile; a function of released values.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct AdaptiveClip {
    spec: AdaptiveClipSpec,
    first: ClipNorm,
    current: ClipNorm,
}

impl AdaptiveClip {
    /// What a released gradient is multiplied by: terms are sent in units of C/a.
    fn gain(&self) -> f64 {
        self.current.get() / self.spec.gradient_share()
    }

    /// After a released indicator sum.
    fn advance(mut self, indicator: f64) -> Self {
        let within = share_within(indicator / self.spec.weight, self.spec.expected_units);
        self.current = next_bound(self.current, self.first, within, self.spec.target, self.spec.rate);
        self
    }
}

/// What a step does with a released sum.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum StepRule {
    /// Adam on (μ, log σ), fresh in every visit.
    Adam(Adam),
    /// μ moves by η (g + h_c − Λ_c μ)/(Λ + F); the variances stay at those of λ until the end, where they become those of the
    /// cavity's precision plus the mean of the visit's released curvatures. With measured steps Λ is Λ_c plus that mean so far, where that is more.
    Preconditioned {
        /// Λ + F.
        precision: Vec<f64>,
        /// Λ_c + F, with measured steps.
        measured: Option<Vec<f64>>,
        /// Sum of the released curvatures H.
        curvature: Vec<f64>,
        /// Λ0.
        smallest_precision: f64,
    },
    /// With the residual precision G = Λ_c + H − Λ at the current Λ: μ moves by η (g + h_c − Λ_c μ)/(Λ + F), and Λ becomes
    /// Λ + ηG + η²G²/(2Λ) = ½Λ(1 + (1 + ηG/Λ)²) ≥ ½Λ. The second-order term is the retraction of Lin, Schmidt and Khan ("Handling the
    /// Positive-Definite Constraint in the Bayesian Learning Rule", 2020) for a diagonal precision: whatever H is, Λ stays positive.
    PositivityPreserving {
        /// F.
        step_precision: f64,
    },
}

/// (h_c, Λ_c).
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cavity {
    h: Vec<f64>,
    precision: Vec<f64>,
}

impl Iterate {
    /// At λ, or at the model's start while λ is the prior; in the first visit with log σ at most the task's initial one.
    pub(in crate::methods) fn start(spec: &DpOptimisationSpec, local: &Local) -> Result<Self, InferenceError> {
        let d = local.dimension();
        let lambda = local.global.standard();
        let mut variance = lambda.variances();
        if local.visit == 0 {
            let largest = (2.0 * spec.initial_log_scale).exp();
            variance.iter_mut().for_each(|v| *v = v.min(largest));
        }
        let (coordinate, rule) = match spec.optimizer {
            Optimizer::Adam => (ScaleCoordinate::LogScale, StepRule::Adam(Adam::new(2 * d))),
            Optimizer::Preconditioned => {
                let with_floor =
                    |precision: &[f64]| precision.iter().zip(&local.scales).map(|(l, a)| l + spec.step_precision / a).collect();
                let rule = StepRule::Preconditioned {
                    precision: with_floor(&local.global.natural()[d..]),
                    measured: spec.measured.then(|| with_floor(&local.cavity.natural()[d..])),
                    curvature: vec![0.0; d],
                    smallest_precision: local.prior_scale.powi(-2),
                };
                (ScaleCoordinate::HalfVariance { weight: spec.curvature_weight }, rule)
            }
            Optimizer::PositivityPreserving => {
                let rule = StepRule::PositivityPreserving { step_precision: spec.step_precision };
                (ScaleCoordinate::HalfVariance { weight: spec.curvature_weight }, rule)
            }
        };
        let mean = local.start.as_ref().map_or_else(|| lambda.mean().to_vec(), Clone::clone);
        let point =
            MeanField::new(mean, variance, coordinate).map_err(|_| InferenceError::Job("the task's initial log scale is out of range"))?;
        let (h, precision) = local.cavity.natural().split_at(d);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=steps")]
        let tail = (f64::from(spec.steps) * spec.averaging).ceil().clamp(1.0, f64::from(spec.steps)) as u32;
        Ok(Self {
            point,
            rule,
            cavity: Cavity { h: h.to_vec(), precision: precision.to_vec() },
            steps: spec.steps,
            taken: 0,
            learning_rate: spec.learning_rate,
            learning_rate_decay: spec.learning_rate_decay,
            inverse_rate: 1.0 / spec.sampling_rate.get(),
            scales: local.scales.clone(),
            average: vec![0.0; 2 * d],
            averaged: 0,
            tail,
            largest_log_scale: LOG_SCALE_RANGE.1.max(local.prior_scale.ln()),
            clip: spec.adaptive_clip.map(|adaptive| AdaptiveClip { spec: adaptive, first: spec.clip_norm, current: spec.clip_norm }),
            seen: spec.measured.then(|| [vec![0.0; d], vec![0.0; d]]),
        })
    }

    /// Where the next gradient is taken.
    pub(in crate::methods) fn point(&self) -> &MeanField {
        &self.point
    }

    /// C of the next sum, where it adapts.
    pub(in crate::methods) fn clip(&self) -> Option<ClipNorm> {
        self.clip.map(|clip| clip.current)
    }

    /// The step that follows from a released sum of 2d gradient entries (and one of indicators, where C adapts).
    pub(in crate::methods) fn advance(self, released: &[f64]) -> Self {
        let Self { point, mut rule, cavity, learning_rate, scales, mut seen, .. } = self;
        let d = point.dimension();
        let coordinate = point.coordinate();
        let inverse_rate = self.inverse_rate * self.clip.map_or(1.0, |clip| clip.gain());
        let gradient = |j: usize| inverse_rate * released[j] / scales[j];
        let slope = |j: usize| gradient(j) + cavity.h[j] - cavity.precision[j] * point.moments()[j][0];
        let log_scale_slope = |j: usize| inverse_rate * released[d + j] / scales[j] * point.to_log_scale(j);
        if let Some([gradients, points]) = &mut seen {
            gradients.iter_mut().enumerate().for_each(|(j, sum)| *sum += gradient(j));
            points.iter_mut().zip(point.mean()).for_each(|(sum, mean)| *sum += mean);
        }
        let (mean, variance) = match &mut rule {
            StepRule::Adam(adam) => {
                let mut parameters: Vec<f64> = point.mean().chain(point.variance().map(|v| 0.5 * v.ln())).collect();
                // Adam descends. ∂/∂log σ of E_q log cavity + Σ log σ is 1 − Λ_c σ².
                let descent: Vec<f64> = (0..d)
                    .map(|j| -slope(j))
                    .chain((0..d).map(|j| -(log_scale_slope(j) + 1.0 - cavity.precision[j] * point.moments()[j][1])))
                    .collect();
                adam.step(&mut parameters, &descent, learning_rate);
                let log_scale = parameters.split_off(d);
                let clamp = |l: &f64| (2.0 * l.clamp(LOG_SCALE_RANGE.0, self.largest_log_scale)).exp();
                (parameters, log_scale.iter().map(clamp).collect::<Vec<_>>())
            }
            StepRule::Preconditioned { precision, measured, curvature, .. } => {
                // H_j = −(∂f/∂log σ_j)/σ_j².
                (0..d).for_each(|j| curvature[j] -= log_scale_slope(j) / point.moments()[j][1]);
                let seen = f64::from(self.taken + 1);
                let divisor =
                    |j: usize| measured.as_ref().map_or(precision[j], |measured| (measured[j] + curvature[j] / seen).max(precision[j]));
                let mean = (0..d).map(|j| point.moments()[j][0] + learning_rate * slope(j) / divisor(j)).collect();
                (mean, point.variance().collect())
            }
            StepRule::PositivityPreserving { step_precision } => {
                let range = ((-2.0 * self.largest_log_scale).exp(), (-2.0 * LOG_SCALE_RANGE.0).exp());
                let at = |j: usize| {
                    let [mu, variance] = point.moments()[j];
                    let precision = 1.0 / variance;
                    let curvature = -log_scale_slope(j) / variance;
                    let ratio = learning_rate * (cavity.precision[j] + curvature - precision) / precision;
                    // Λ(1 + x + x²/2) with x = ηG/Λ.
                    let next = 0.5 * precision * (1.0 + (1.0 + ratio).powi(2));
                    (mu + learning_rate * slope(j) / (precision + *step_precision / scales[j]), 1.0 / next.clamp(range.0, range.1))
                };
                (0..d).map(at).unzip()
            }
        };
        // A step that left the range of f64 is not taken: released values decide that, so it costs nothing.
        let point = MeanField::new(mean, variance, coordinate).unwrap_or(point);
        let taken = self.taken + 1;
        let (mut average, mut averaged) = (self.average, self.averaged);
        if taken + self.tail > self.steps {
            let iterate = point.mean().chain(point.variance().map(|v| 0.5 * v.ln()));
            average.iter_mut().zip(iterate).for_each(|(sum, value)| *sum += value);
            averaged += 1;
        }
        let clip = self.clip.map(|clip| clip.advance(released.get(2 * d).copied().unwrap_or(f64::NAN)));
        Self {
            point,
            rule,
            cavity,
            scales,
            taken,
            average,
            averaged,
            learning_rate: learning_rate * self.learning_rate_decay,
            clip,
            seen,
            ..self
        }
    }

    /// What is sent: λ* − λ, and what the visit measured.
    pub(in crate::methods) fn message(self, lambda: &[f64]) -> Vec<f64> {
        let mut message = self.finish();
        message.iter_mut().zip(lambda).for_each(|(new, old)| *new -= old);
        message
    }

    /// Natural parameters λ* of the fit, the mean of the last iterates; and where the visit measures the means over all steps of the released
    /// gradients, of their points, and of the released curvatures.
    pub(in crate::methods) fn finish(self) -> Vec<f64> {
        let d = self.point.dimension();
        let count = f64::from(self.averaged.max(1));
        let precision: Vec<f64> = match &self.rule {
            StepRule::Adam(_) | StepRule::PositivityPreserving { .. } => {
                self.average[d..].iter().map(|sum| (-2.0 * sum / count).exp()).collect()
            }
            StepRule::Preconditioned { curvature, smallest_precision, .. } => {
                let taken = f64::from(self.taken.max(1));
                let range = ((-2.0 * self.largest_log_scale).exp().max(*smallest_precision), (-2.0 * LOG_SCALE_RANGE.0).exp());
                (0..d).map(|j| (self.cavity.precision[j] + curvature[j] / taken).clamp(range.0, range.1)).collect()
            }
        };
        let mut fit: Vec<f64> = (0..d).map(|j| precision[j] * self.average[j] / count).chain(precision.iter().copied()).collect();
        if let (Some([gradients, points]), StepRule::Preconditioned { curvature, .. }) = (&self.seen, &self.rule) {
            let taken = f64::from(self.taken.max(1));
            fit.extend([gradients, points, curvature].into_iter().flatten().map(|sum| sum / taken));
        }
        fit
    }
}
