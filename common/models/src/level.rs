//! Estimates the number of a level's records and of its ones from noisy measurements of a likelihood of two classes, and the likelihood of its predictor given them.
//!
//! With r₀ and r₁ the residuals of the two labels at the predictor m_t of the level at measurement t, D = r₁ − r₀, p = −r₀/D the chance of a one there, c the expected curvature, and ω the weight of a record,
//!
//! g_j/D = ω (Y − N p(m_t)), H_jj = ω N c(m_t), each with its noise: N and Y by least squares. All are expectations over q_t and over the rows of the level.
//!
//! Given the true predictor m of the level, Y is the sum of N labels: Poisson of the rarer label where few are expected, else about normal. With N unknown and flat, the density of
//! what was found is that of Y − N p(m) plus the noise that this combination has. Source: this project; a density that is multiplied in and brought back to a Gaussian is a step of
//! assumed-density filtering (Minka 2001).

use nalgebra::{Matrix2, Vector2};

use crate::expected::expected_curvature;
use crate::predictor::{Predictor, Statistics};

/// Relative error of a probability or curvature that the model predicts for the records of a level: predictors are not normal, and their moments are estimates.
const BY_MODEL: f64 = 0.5;

/// How many standard deviations N has to be above 0: where that is by chance, N is too large.
const SEEN: f64 = 5.0;

/// Passes in which the errors of the model, which are proportional to N, are brought into agreement with it.
const PASSES: usize = 3;

/// Variance of Y up to which it is summed over as a Poisson count, and up to which count.
const FEW: f64 = 25.0;
const COUNTS: u32 = 90;

/// Reach in standard deviations and number of points, to either side, of the sums over m; fewest points in a standard deviation, and passes in which the sums find where they have to be.
const REACH: f64 = 9.0;
const POINTS: i32 = 150;
const FINE: f64 = 5.0;
const SEARCHES: usize = 8;

/// One measurement of a level.
#[derive(Debug, Clone, Copy)]
pub struct LevelMeasurement {
    /// Mean and variance of the predictors of the level's records.
    pub predictor: (f64, f64),
    /// What was released of the gradient in the level's coordinate, and the variance of its noise.
    pub gradient: (f64, f64),
    /// The same of the curvature.
    pub curvature: (f64, f64),
}

/// N and Y, and their covariance.
#[derive(Debug)]
pub struct Counts {
    mean: Vector2<f64>,
    covariance: Matrix2<f64>,
}

/// What the model says of the records of a level for one predictor.
struct At {
    labels: [Statistics; 2],
    difference: f64,
    chance: f64,
}

impl At {
    fn new(model: &dyn Predictor, mean: f64, variance: f64) -> Option<Self> {
        let labels = [0.0, 1.0].map(|label| model.statistics(mean, variance, label));
        let difference = labels[1].residual - labels[0].residual;
        let chance = -labels[0].residual / difference;
        (0.0..=1.0).contains(&chance).then_some(Self { labels, difference, chance })
    }
}

impl Counts {
    /// From the measurements of a run, in which a record that adds this with either label has the weight ω. `None` where N is not seen, or the model is not one of two classes.
    pub fn new(model: &dyn Predictor, measurements: &[LevelMeasurement], weight: &dyn Fn([Statistics; 2]) -> f64) -> Option<Self> {
        let ats: Vec<At> = measurements
            .iter()
            .map(|measurement| At::new(model, measurement.predictor.0, measurement.predictor.1))
            .collect::<Option<_>>()?;
        let start = ats.first()?.chance;
        #[allow(clippy::cast_precision_loss, reason = "a number of rounds")]
        let shared = BY_MODEL * BY_MODEL * measurements.len() as f64;
        let mut found: Option<Self> = None;
        for _ in 0..PASSES {
            let size = found.as_ref().map_or(0.0, |counts| counts.mean[0]);
            let (mut information, mut natural) = (Matrix2::zeros(), Vector2::zeros());
            let mut add = |row: Vector2<f64>, value: f64, variance: f64| {
                information += row * row.transpose() / variance;
                natural += row * (value / variance);
            };
            for (measurement, at) in measurements.iter().zip(&ats) {
                let weight = weight(at.labels);
                let unsure = at.chance.min(1.0 - at.chance).min((at.chance - start).abs());
                let expected = weight * expected_curvature(at.labels[0], at.labels[1]);
                // The model is wrong in the same way in all measurements: many of them do not make this smaller.
                let of_gradient = measurement.gradient.1 / (at.difference * at.difference) + shared * (size * weight * unsure).powi(2);
                add(Vector2::new(-at.chance, 1.0) * weight, measurement.gradient.0 / at.difference, of_gradient);
                add(Vector2::new(expected, 0.0), measurement.curvature.0, measurement.curvature.1 + shared * (size * expected).powi(2));
            }
            let covariance = information.try_inverse()?;
            found = Some(Self { mean: covariance * natural, covariance });
        }
        found.filter(|counts| counts.mean[0] > SEEN * counts.covariance[(0, 0)].sqrt())
    }

    /// What becomes of a level's predictor N(`mean`, `sd`²) whose records' predictors vary by this variance: by how many standard deviations its mean moves, and its new variance over the old one.
    /// `None` for numbers that cannot be computed with.
    pub fn moved(&self, model: &dyn Predictor, (mean, sd): (f64, f64), within: f64) -> Option<(f64, f64)> {
        // In standard deviations from the mean: what the sum goes over, until its points are close to each other for what it finds.
        let (mut shift, mut reach) = (0.0, REACH);
        for _ in 0..SEARCHES {
            let step = reach / f64::from(POINTS);
            let log = |k: i32| {
                let u = shift + step * f64::from(k);
                let at = At::new(model, mean + sd * u, within);
                (u, at.map_or(f64::NEG_INFINITY, |at| self.log_density(&at) - 0.5 * u * u))
            };
            let points: Vec<(f64, f64)> = (-POINTS..=POINTS).map(log).collect();
            let best = points.iter().map(|(_, log)| *log).fold(f64::NEG_INFINITY, f64::max);
            let sums = points.into_iter().fold([0.0; 3], |[total, first, second], (u, log)| {
                let weight = (log - best).exp();
                [total + weight, first + weight * u, second + weight * u * u]
            });
            let middle = sums[1] / sums[0];
            let share = (sums[2] / sums[0] - middle * middle).max(0.0);
            shift = middle;
            if !shift.is_finite() {
                return None;
            }
            if share.sqrt() >= FINE * step {
                return Some((shift, share));
            }
            reach = REACH * share.sqrt().max(step);
        }
        None
    }

    /// Of what was found, if the records' predictor is this.
    fn log_density(&self, at: &At) -> f64 {
        let row = Vector2::new(-at.chance, 1.0);
        let (records, off) = (self.mean[0], row.dot(&self.mean));
        let (noise, own) = ((self.covariance * row).dot(&row), records * at.chance * (1.0 - at.chance));
        if own > FEW {
            let variance = noise + own;
            return -0.5 * (off * off / variance + variance.ln());
        }
        // Of the rarer label.
        let (rare, off) = if at.chance > 0.5 { (1.0 - at.chance, -off) } else { (at.chance, off) };
        let mean = records * rare;
        let mut log_chance = -mean;
        let logs: Vec<f64> = (0..=COUNTS)
            .map(|count| {
                let count = f64::from(count);
                if count > 0.0 {
                    log_chance += (mean / count).ln();
                }
                log_chance - 0.5 * (off + mean - count).powi(2) / noise
            })
            .collect();
        let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        best + logs.iter().map(|log| (log - best).exp()).sum::<f64>().ln() - 0.5 * noise.ln()
    }
}
