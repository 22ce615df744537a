//! What the outputs of a network mean: E log p(y | outputs) for independent Gaussian outputs, and its derivatives.

use dp_pvi_math::quadrature::{sigmoid_moments, softplus};

/// The likelihood of a target given the outputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Output {
    /// y ~ N(output, noise_sd²).
    Number {
        /// Known standard deviation of the observation noise.
        noise_sd: f64,
    },
    /// P(y = 1) = σ(output).
    Binary,
    /// P(y = k) ∝ exp(output k).
    Classes {
        /// Number of classes, and of outputs.
        count: usize,
    },
}

impl Output {
    /// Number of outputs.
    #[must_use]
    pub fn len(&self) -> usize {
        match *self {
            Self::Number { .. } | Self::Binary => 1,
            Self::Classes { count } => count,
        }
    }

    /// Whether there is no output: a softmax over no class.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of standard normal draws that an expectation over the outputs takes: none where it is exact.
    #[must_use]
    pub fn draws(&self) -> usize {
        match *self {
            Self::Number { .. } | Self::Binary => 0,
            Self::Classes { count } => count,
        }
    }

    /// Whether a target is one that the likelihood knows. One that is not contributes 0.
    #[must_use]
    pub fn admits(&self, target: f64) -> bool {
        match *self {
            Self::Number { .. } | Self::Binary => target.is_finite(),
            Self::Classes { count } => self.class(target).is_some_and(|class| class < count),
        }
    }

    /// The class that a target names.
    fn class(self, target: f64) -> Option<usize> {
        // A number with a fraction, a negative one or NaN names no class; classes number far fewer than 2^32.
        let whole = target >= 0.0 && target < f64::from(u32::MAX) && target.fract() == 0.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: a whole number below 2^32")]
        whole.then_some(target as usize)
    }

    /// E log p(target | outputs) for outputs N(mean, diag variance): exact for one output; for classes the value at
    /// mean + √variance·draw, whose expectation over standard normal `draws` it is. The target must be [admitted](Self::admits).
    #[must_use]
    pub fn expected_log_density(&self, mean: &[f64], variance: &[f64], draws: &[f64], target: f64) -> f64 {
        match *self {
            Self::Number { noise_sd } => {
                let precision = noise_sd.powi(-2);
                let residual = target - mean[0];
                -0.5 * ((2.0 * std::f64::consts::PI / precision).ln() + precision * (residual * residual + variance[0]))
            }
            Self::Binary => target * mean[0] - softplus(mean[0], variance[0]),
            Self::Classes { count } => {
                let logits: Vec<f64> = (0..count).map(|k| mean[k] + variance[k].max(0.0).sqrt() * draws[k]).collect();
                let class = self.class(target).map_or(f64::NAN, |class| logits[class]);
                class - log_sum_exp(&logits)
            }
        }
    }

    /// Derivatives of the same expectation by the means (`by_mean`) and by the variances (`by_variance`).
    ///
    /// By the variances Price's theorem gives ½ E ∂²log p/∂output²: exact for one output; for classes
    /// −½ E π(1 − π), taken at the same draw as the rest. It is never positive, unlike the derivative along the draw.
    pub fn derivatives(&self, mean: &[f64], variance: &[f64], draws: &[f64], target: f64, by_mean: &mut [f64], by_variance: &mut [f64]) {
        match *self {
            Self::Number { noise_sd } => {
                let precision = noise_sd.powi(-2);
                by_mean[0] = precision * (target - mean[0]);
                by_variance[0] = -0.5 * precision;
            }
            Self::Binary => {
                let moments = sigmoid_moments(mean[0], variance[0]);
                by_mean[0] = target - moments.sigmoid;
                by_variance[0] = -0.5 * moments.curvature;
            }
            Self::Classes { count } => {
                probabilities(mean, variance, draws, by_mean);
                for k in 0..count {
                    by_variance[k] = -0.5 * by_mean[k] * (1.0 - by_mean[k]);
                    by_mean[k] = -by_mean[k];
                }
                if let Some(class) = self.class(target) {
                    by_mean[class] += 1.0;
                }
            }
        }
    }
}

/// Softmax of mean + √variance·draw, into `out`.
pub(crate) fn probabilities(mean: &[f64], variance: &[f64], draws: &[f64], out: &mut [f64]) {
    for (((out, mean), variance), draw) in out.iter_mut().zip(mean).zip(variance).zip(draws) {
        *out = mean + variance.max(0.0).sqrt() * draw;
    }
    let total = log_sum_exp(out);
    out.iter_mut().for_each(|logit| *logit = (*logit - total).exp());
}

/// ln Σ exp.
pub(crate) fn log_sum_exp(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest.is_finite() { largest + values.iter().map(|v| (v - largest).exp()).sum::<f64>().ln() } else { f64::NAN }
}
