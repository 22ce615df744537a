//! What a state of natural gradients knows of a learned scale of the observations.
//!
//! A gradient visit brings G = Σ w(t − 1), twice the gradient of the likelihood in ln σ² at the σ of its state, and n = Σ w. Both are averaged over the visits over which iterates
//! are, as measurements of one likelihood near its maximum ([`LogScale`]); a visit before those is alone. What follows is the distribution of 1/σ² with the noise considered, and as wide as the
//! last step was long. Post-processing of released values.

use serde::{Deserialize, Serialize};

use crate::observation::{LogScale, Precision};

/// Largest step of ln σ² from one visit to the next: a factor of 2 of σ.
const LARGEST_STEP: f64 = 2.0 * std::f64::consts::LN_2;

/// A scale of observations that a run learns: see [`observation`](crate::observation).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnedScale {
    /// Prior of ϖ = 1/σ².
    pub prior: Precision,
    /// No record's t = c((y − a)² + s²) is above this; none is below 0.
    pub largest: f64,
    /// Information of one observation about ln σ², where the model is right.
    pub information: f64,
    /// κ: an error δ of the coefficients makes the sum of all t larger by κ δᵀHδ, to second order, H their information.
    pub excess: f64,
}

/// Weights of the two statistics of a record for a learned scale, against the gradient block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleWeights {
    /// Of w(t − m), m half the bound of t.
    pub statistic: f64,
    /// Of w, a record's own weight: 1 where records have none.
    pub count: f64,
}

/// The numbers of a state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleState {
    /// Mean of ln σ² of the visits that are averaged.
    reference: f64,
    /// Mean of G.
    gradient: f64,
    /// Mean of n; 0 before there is one.
    count: f64,
    /// Variance of the noise of those means, of a number that is sent with weight 1.
    noise: f64,
    /// q(1/σ²).
    pub precision: Precision,
}

/// What a visit brought.
#[derive(Debug, Clone, Copy)]
pub struct ScaleSums {
    /// Σ w(t − m) and Σ w, with noise.
    pub sums: [f64; 2],
    /// Variance of the noise of a number that is sent with weight 1.
    pub noise: f64,
    /// How much of the means it replaces.
    pub gain: f64,
}

impl ScaleState {
    /// Numbers in a state.
    pub const LEN: usize = 6;

    /// The state before the first visit: the prior.
    #[must_use]
    pub fn initial(prior: Precision) -> Self {
        Self { reference: prior.square().ln(), gradient: 0.0, count: 0.0, noise: 0.0, precision: prior }
    }

    /// Reads the [`Self::LEN`] numbers of a state. `None` for a slice of another length.
    #[must_use]
    pub fn read(numbers: &[f64]) -> Option<Self> {
        let &[reference, gradient, count, noise, shape, rate] = numbers else { return None };
        Some(Self { reference, gradient, count, noise, precision: Precision { shape, rate } })
    }

    /// The numbers of a state, in order. The distribution comes last.
    #[must_use]
    pub fn numbers(&self) -> [f64; Self::LEN] {
        [self.reference, self.gradient, self.count, self.noise, self.precision.shape, self.precision.rate]
    }

    /// The state after a visit.
    #[must_use]
    pub fn next(&self, scale: &LearnedScale, weights: &ScaleWeights, sums: ScaleSums) -> Self {
        let [statistic, count] = sums.sums;
        let gain = if self.count == 0.0 { 1.0 } else { sums.gain };
        let mean = |old: f64, new: f64| old + gain * (new - old);
        let now = self.precision.square().ln();
        let next = Self {
            reference: mean(self.reference, now),
            gradient: mean(self.gradient, statistic + beyond(scale) * count),
            count: mean(self.count, count),
            noise: (1.0 - gain).powi(2) * self.noise + gain * gain * sums.noise,
            precision: self.precision,
        };
        let wanted = next.log_scale(scale, weights).posterior(&scale.prior);
        let step = (wanted.square().ln() - now).clamp(-LARGEST_STEP, LARGEST_STEP);
        // A run that still moves may be as far off as its last step.
        let information = wanted.shape - scale.prior.shape;
        let shape = scale.prior.shape + information / (1.0 + information * step * step);
        Self { precision: Precision { shape, rate: shape * (now + step).exp() }, ..next }
    }

    fn log_scale(&self, scale: &LearnedScale, weights: &ScaleWeights) -> LogScale {
        // A number of records that is below its noise says nothing; one record is the least that there can be.
        let count = self.count.max(self.noise.sqrt() / weights.count).max(1.0);
        LogScale {
            reference: self.reference,
            gradient: 0.5 * self.gradient,
            information: scale.information * count,
            noise: 0.25 * self.noise * (weights.statistic.powi(-2) + (beyond(scale) / weights.count).powi(2)),
        }
    }

    /// q(1/σ²) where `excess` of the mean of Σ w t comes from the noise in the points at which it was taken, and is known with this variance.
    #[must_use]
    pub fn without(&self, scale: &LearnedScale, weights: &ScaleWeights, excess: f64, variance: f64) -> Precision {
        let log_scale = self.log_scale(scale, weights);
        let fit = |log_scale: &LogScale| log_scale.posterior(&scale.prior);
        let information = |precision: &Precision| precision.shape - scale.prior.shape;
        let moved = fit(&LogScale { gradient: log_scale.gradient - 0.5 * excess, noise: log_scale.noise + 0.25 * variance, ..log_scale });
        // What the last step has made of the information stays.
        let step = (1.0 / information(&self.precision) - 1.0 / information(&fit(&log_scale))).max(0.0);
        let shape = scale.prior.shape + 1.0 / (1.0 / information(&moved) + step);
        if shape.is_finite() { Precision { shape, rate: shape * moved.square() } } else { self.precision }
    }
}

/// t − 1 = (t − m) + (m − 1), with m half of the largest t: the last.
fn beyond(scale: &LearnedScale) -> f64 {
    0.5 * scale.largest - 1.0
}

#[cfg(test)]
mod tests {
    use super::{LARGEST_STEP, LearnedScale, ScaleState, ScaleSums, ScaleWeights};
    use crate::observation::Precision;

    const SCALE: LearnedScale =
        LearnedScale { prior: Precision { shape: 1.0, rate: 1.0 }, largest: 5.0, information: 2.0 / 7.0, excess: 2.0 / 3.0 };
    const WEIGHTS: ScaleWeights = ScaleWeights { statistic: 0.4, count: 0.3 };

    /// Records that are all as far off as σ² = 3 says: t = 5·3/(4σ² + 3).
    fn sums(state: &ScaleState, count: f64) -> [f64; 2] {
        let t = 15.0 / (4.0 * state.precision.square() + 3.0);
        [count * (t - 2.5), count]
    }

    #[test]
    fn without_noise_the_scale_is_where_its_gradients_are_0() {
        let mut state = ScaleState::initial(SCALE.prior);
        for _ in 0..100 {
            state = state.next(&SCALE, &WEIGHTS, ScaleSums { sums: sums(&state, 50.0), noise: 0.0, gain: 1.0 });
        }
        let square = state.precision.square();
        let t = 15.0 / (4.0 * square + 3.0);
        assert!((square - (2.0 + square * 50.0 * t) / (2.0 + 50.0)).abs() < 1e-12, "{square}");
        assert!((state.precision.shape - 1.0 - 100.0 / 7.0).abs() < 1e-12);
    }

    /// 500 records at points whose noise adds 60 to the sum of t: taken out, σ is what it is without; its doubt widens the interval.
    #[test]
    fn what_the_noise_of_the_points_adds_is_taken_out() {
        let run = |more: f64| {
            let mut state = ScaleState::initial(SCALE.prior);
            for visit in 0..40_u32 {
                let [statistic, count] = sums(&state, 500.0);
                let gain = if visit < 20 { 1.0 } else { 1.0 / f64::from(visit - 18) };
                state = state.next(&SCALE, &WEIGHTS, ScaleSums { sums: [statistic + more, count], noise: 4.0, gain });
            }
            state
        };
        let (clean, noisy) = (run(0.0), run(60.0));
        let (known, doubted) = (noisy.without(&SCALE, &WEIGHTS, 60.0, 0.0), noisy.without(&SCALE, &WEIGHTS, 60.0, 900.0));
        assert!(noisy.precision.scale() > 1.05 * clean.precision.scale());
        assert!((known.scale() / clean.precision.scale() - 1.0).abs() < 0.03, "{} {}", known.scale(), clean.precision.scale());
        assert!(doubted.shape < known.shape && known.shape <= noisy.precision.shape * 1.01);
        let same = noisy.without(&SCALE, &WEIGHTS, 0.0, 0.0);
        assert!((same.scale() / noisy.precision.scale() - 1.0).abs() < 0.01 && (same.shape / noisy.precision.shape - 1.0).abs() < 1e-6);
    }

    /// Means over visits have less noise, and the information that noise leaves.
    #[test]
    fn visits_are_averaged_and_noise_widens_the_interval() {
        let run = |noise: f64, visits: u32| {
            let mut state = ScaleState::initial(SCALE.prior);
            for visit in 0..visits {
                let gain = 1.0 / f64::from(visit + 1);
                state = state.next(&SCALE, &WEIGHTS, ScaleSums { sums: sums(&state, 500.0), noise, gain });
            }
            state
        };
        assert!((run(9.0, 4).noise - 9.0 / 4.0).abs() < 1e-12);
        let width = |state: ScaleState| state.precision.quantile(0.95) / state.precision.quantile(0.05);
        assert!(width(run(0.0, 9)) < width(run(400.0, 9)) && width(run(400.0, 9)) < width(run(4e4, 9)));
        // After one visit the scale has just moved from the guess.
        assert!(width(run(0.0, 1)) > width(run(0.0, 9)));
    }

    /// Whatever comes, no step is long and σ² stays in its range.
    #[test]
    fn noise_moves_the_scale_by_bounded_steps() {
        for size in [1.0, 1e3, 1e9, 1e150] {
            for noise in [0.0, size, size * size] {
                let mut state = ScaleState::initial(SCALE.prior);
                for visit in 0..40_u32 {
                    let sign = if (visit / 20).is_multiple_of(2) { 1.0 } else { -1.0 };
                    let next = state.next(&SCALE, &WEIGHTS, ScaleSums { sums: [sign * size, -size], noise, gain: 0.5 });
                    let step = (next.precision.square() / state.precision.square()).ln().abs();
                    assert!(step <= LARGEST_STEP * (1.0 + 1e-12) && next.precision.is_within(&SCALE.prior), "{next:?}");
                    state = next;
                }
                assert_eq!(ScaleState::read(&state.numbers()), Some(state));
            }
        }
        assert_eq!(ScaleState::read(&[1.0]), None);
    }
}
