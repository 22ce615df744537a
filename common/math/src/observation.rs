//! The scale σ of an observation's noise, where it is learned: its precision ϖ = 1/σ² ~ Gamma(a, b), with shape a and rate b.
//!
//! **Coordinate ascent.** A likelihood of (y − xᵀθ)/σ has, with Q = E (y − xᵀθ)², a statistic t of every record with ∂E log p/∂ ln σ² = ½(t − 1); t = Q/σ² where the noise is
//! normal. With T = Σ t over n records the best q(ϖ) is Gamma(a + n/2, b + ½σ²T), and σ² := 1/E ϖ = (2b + σ²T)/(2a + n).
//!
//! **With noise.** Released with noise of variance N, ½(T − n) is a noised gradient in ln σ². With H, the expected information of ln σ², the likelihood near the
//! point where it was taken is a normal one, and with the noise its gradient and information shrink to H/(H + N) of what they are ([`LogScale`]). Without noise the result is the
//! same σ², since both are where −a + b/σ² + ½(T − n) is 0.
//!
//! Source: variational Bayes for a scale mixture of normals (Tipping and Lawrence 2005); the version with noise is this project's.

use serde::{Deserialize, Serialize};

use crate::scales::inverse_gamma_quantile;

/// σ² stays within this factor of the guess: e to this.
const RANGE: f64 = 13.8;
/// Times that the range is halved: to the last digits.
const HALVINGS: usize = 80;

/// A distribution of ϖ = 1/σ².
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precision {
    /// a.
    pub shape: f64,
    /// b.
    pub rate: f64,
}

impl Precision {
    /// σ² = b/a, 1 over the expected precision.
    #[must_use]
    pub fn square(&self) -> f64 {
        self.rate / self.shape
    }

    /// σ.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.square().sqrt()
    }

    /// The value below which σ lies with this probability; NaN for a probability that is not inside (0, 1).
    #[must_use]
    pub fn quantile(&self, probability: f64) -> f64 {
        inverse_gamma_quantile(self.shape, self.rate, probability).sqrt()
    }

    /// Whether it is a distribution whose σ² is within the public range about that of a prior.
    #[must_use]
    pub fn is_within(&self, prior: &Self) -> bool {
        self.shape > 0.0 && self.shape.is_finite() && (self.square() / prior.square()).ln().abs() <= RANGE
    }

    /// q(ϖ) without noise, from Σ w and Σ w t at a σ².
    #[must_use]
    pub fn and(&self, count: f64, statistic: f64, square: f64) -> Self {
        Self { shape: self.shape + 0.5 * count, rate: self.rate + 0.5 * square * statistic }
    }
}

/// What was released of the likelihood of ln σ².
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogScale {
    /// ln σ² at which the gradient was taken.
    pub reference: f64,
    /// ½(T − n), with its noise.
    pub gradient: f64,
    /// H: information of ln σ², above 0.
    pub information: f64,
    /// N: variance of the noise of the gradient.
    pub noise: f64,
}

impl LogScale {
    /// q(ϖ) with this prior: σ² is where the gradients of likelihood and prior add up to 0, within the public range, and the shape is that of the information.
    #[must_use]
    pub fn posterior(&self, prior: &Precision) -> Precision {
        let weight = self.information / (self.information + self.noise);
        let slope = |log: f64| {
            let likelihood = self.gradient + self.information * (self.reference - log);
            prior.rate * (-log).exp() - prior.shape + weight * likelihood
        };
        let middle = prior.square().ln();
        let (mut low, mut high) = (middle - RANGE, middle + RANGE);
        for _ in 0..HALVINGS {
            let log = 0.5 * (low + high);
            if slope(log) > 0.0 { low = log } else { high = log }
        }
        let shape = prior.shape + weight * self.information;
        Precision { shape, rate: shape * (0.5 * (low + high)).exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::{LogScale, Precision};

    const PRIOR: Precision = Precision { shape: 1.5, rate: 0.6 };

    /// Noise of a normal distribution about 0, whose q(ϖ) is known: Gamma(a + n/2, b + ½Σy²).
    #[test]
    fn without_noise_both_ways_have_the_same_fixed_point() {
        let (count, squares) = (40.0, 25.0);
        let mut square = PRIOR.square();
        for _ in 0..60 {
            square = PRIOR.and(count, squares / square, square).square();
        }
        let exact = (0.6 + 0.5 * squares) / (1.5 + 0.5 * count);
        assert!((square - exact).abs() < 1e-12, "{square} {exact}");
        let mut looked = PRIOR;
        for _ in 0..60 {
            let at = looked.square();
            let look = LogScale { reference: at.ln(), gradient: 0.5 * (squares / at - count), information: 0.5 * count, noise: 0.0 };
            looked = look.posterior(&PRIOR);
        }
        assert!((looked.square() - exact).abs() < 1e-12 && (looked.shape - 21.5).abs() < 1e-12, "{looked:?}");
    }

    #[test]
    fn much_noise_leaves_the_guess_and_no_noise_leaves_the_range() {
        let look = |gradient, noise| LogScale { reference: 0.3, gradient, information: 20.0, noise };
        let hidden = look(1e4, 1e12).posterior(&PRIOR);
        assert!((hidden.square() / PRIOR.square()).ln().abs() < 1e-3 && (hidden.shape / PRIOR.shape - 1.0).abs() < 1e-6);
        for gradient in [1e300, -1e300, 1e9, -1e9] {
            let far = look(gradient, 1.0).posterior(&PRIOR);
            assert!(far.is_within(&Precision { rate: far.rate, ..far }) && far.is_within(&PRIOR), "{far:?}");
        }
        assert!(!Precision { shape: 1.5, rate: 1e9 }.is_within(&PRIOR) && !Precision { shape: f64::NAN, rate: 1.0 }.is_within(&PRIOR));
    }

    /// With shape ½ and rate ½, ϖ is a squared normal: P(σ ≤ s) = P(|z| ≥ 1/s).
    #[test]
    fn quantiles_are_those_of_a_gamma_variable() {
        let half = Precision { shape: 0.5, rate: 0.5 };
        assert!((half.quantile(0.05) - 1.0 / 1.959_963_984_540_054).abs() < 1e-9);
        assert!(half.quantile(0.0).is_nan());
    }
}
