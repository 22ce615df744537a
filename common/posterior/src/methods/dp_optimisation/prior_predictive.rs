//! What a visit of DP optimisation with its preconditioned step sends if drawn rows are in place of records.
//!
//! Steps, their noise, the mean of the last iterates and the fitted precision are those of the private half of the module.

use dp_pvi_math::expfam::any::Gaussian;
use nalgebra::DVector;

use crate::methods::prior_predictive::{NotForecast, Player, Sent, Stage};
use crate::methods::{DpOptimisationSpec, Optimizer, Setting};
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_models::predictor::Statistics;
use dp_pvi_models::rows::Row;

/// Largest fitted precision: log σ ≥ −10.
const LARGEST: f64 = 4.851_651_954_097_903e8;

pub(super) fn changes(spec: &DpOptimisationSpec, task: &Setting<'_>, state: &[f64], stage: &mut Stage<'_>) -> Result<Sent, NotForecast> {
    if spec.optimizer != Optimizer::Preconditioned {
        return Err(NotForecast::Update);
    }
    let scales = spec.feature_scales(task).map_err(|_| NotForecast::Setting)?;
    let lambda = Gaussian::from_natural(task.family(), task.posterior(state).to_vec()).map_err(|_| NotForecast::Fails)?;
    let visit = Visit { spec, task, scales: &scales, lambda: &lambda };
    let mut changes = Vec::with_capacity(stage.players.len());
    for player in stage.players {
        changes.push(visit.of(player, stage));
    }
    Ok(Sent::Changes(changes))
}

/// What the sites of a round have in common.
struct Visit<'a> {
    spec: &'a DpOptimisationSpec,
    task: &'a Setting<'a>,
    scales: &'a [f64],
    lambda: &'a Gaussian,
}

impl Visit<'_> {
    /// What one site sends: λ* − λ, and what it measured.
    fn of(&self, player: &Player<'_>, stage: &mut Stage<'_>) -> Vec<f64> {
        let Self { spec, scales, .. } = *self;
        let natural = self.lambda.natural();
        let d = scales.len();
        let priors = self.task.priors();
        let prior = priors.widest().powi(-2);
        let mut cavity: Vec<f64> = natural.iter().zip(player.carried).map(|(l, own)| l - own).collect();
        if let Some(raised) = PrecisionFloor::Cavity.apply(self.task.family(), &priors.precision, &cavity[d..]) {
            cavity[d..].copy_from_slice(&raised.precision);
        }
        let variance = self.lambda.standard().variances();
        let q = spec.sampling_rate.get();
        let noise = spec.noise_multiplier.get() * spec.clip_norm.get() / q;
        let mut mean = DVector::from_column_slice(self.lambda.standard().mean());
        let (mut average, mut curvature) = (DVector::<f64>::zeros(d), DVector::<f64>::zeros(d));
        // What a visit that measures sends beside its change.
        let measured = spec.measured;
        let (mut gradients, mut points) = (DVector::<f64>::zeros(d), DVector::<f64>::zeros(d));
        let mut rate = spec.learning_rate;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=steps")]
        let tail = (f64::from(spec.steps) * spec.averaging).ceil().clamp(1.0, f64::from(spec.steps)) as u32;
        for step in 0..spec.steps {
            let cut = |row: Row<'_>, own, other| spec.cut(scales, row, own, other);
            let (gradient, curvatures) = stage.rows.marginal_sums(stage.predictor, (mean.as_slice(), &variance), cut);
            points += &mean;
            for j in 0..d {
                let own = player.share * curvatures[j];
                let sampled = ((1.0 - q) / q * own.max(0.0)).sqrt();
                let noised = player.share * gradient[j] + (noise / scales[j]).hypot(sampled) * stage.draws.normal();
                gradients[j] += noised;
                curvature[j] += own + noise / (spec.curvature_weight * scales[j]) * stage.draws.normal();
                let slope = noised + cavity[j] - cavity[d + j] * mean[j];
                let seen = if measured { cavity[d + j] + curvature[j] / f64::from(step + 1) } else { 0.0 };
                mean[j] += rate * slope / (natural[d + j].max(seen) + spec.step_precision / scales[j]);
            }
            rate *= spec.learning_rate_decay;
            if step + tail >= spec.steps {
                average += &mean;
            }
        }
        let fitted = |j: usize| (cavity[d + j] + curvature[j] / f64::from(spec.steps)).clamp(prior.min(LARGEST), LARGEST);
        let h = (0..d).map(|j| fitted(j) * average[j] / f64::from(tail) - natural[j]);
        let mut message: Vec<f64> = h.chain((0..d).map(|j| fitted(j) - natural[d + j])).collect();
        if measured {
            message.extend([gradients, points, curvature].iter().flat_map(|sum| sum.iter()).map(|sum| sum / f64::from(spec.steps)));
        }
        message
    }
}

impl DpOptimisationSpec {
    /// Residual and curvature of a row, times what keeps its gradient within C.
    fn cut(&self, scales: &[f64], row: Row<'_>, own: Statistics, other: Statistics) -> Statistics {
        let (mut square, mut fourth) = (0.0, 0.0);
        for (&j, x) in row.indices.iter().zip(row.values) {
            let scaled = scales[j as usize] * x;
            square += scaled * scaled;
            fourth += (scaled * x).powi(2);
        }
        let length = |s: Statistics| (s.residual * s.residual * square + (self.curvature_weight * s.curvature).powi(2) * fourth).sqrt();
        let longest = if self.weighted { length(own).max(length(other)) } else { length(own) };
        let factor = if longest > 0.0 { (self.clip_norm.get() / longest).min(1.0) } else { 1.0 };
        Statistics { residual: factor * own.residual, curvature: factor * own.curvature }
    }
}
