//! Gamma distribution by shape and rate.

use crate::expfam::special::{digamma, ln_gamma, trigamma};
use crate::expfam::{ExponentialFamily, InvalidParameters, check};

/// The family Gamma(shape a, rate b): natural parameters [a − 1; −b] of the statistics (ln x, x), mean parameters
/// [ψ(a) − ln b; a/b].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gamma;

/// Shape and rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standard {
    shape: f64,
    rate: f64,
}

impl Standard {
    /// Gamma(shape, rate).
    ///
    /// # Errors
    /// A parameter is not finite or not positive.
    pub fn new(shape: f64, rate: f64) -> Result<Self, InvalidParameters> {
        check(&[shape, rate], 2)?;
        if shape > 0.0 && rate > 0.0 { Ok(Self { shape, rate }) } else { Err(InvalidParameters::Domain("shape or rate is not positive")) }
    }

    /// a.
    #[must_use]
    pub fn shape(&self) -> f64 {
        self.shape
    }

    /// b.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

impl ExponentialFamily for Gamma {
    type Standard = Standard;

    fn of(_: &Standard) -> Self {
        Self
    }

    fn len(&self) -> usize {
        2
    }

    fn standard(&self, natural: &[f64]) -> Result<Standard, InvalidParameters> {
        check(natural, 2)?;
        Standard::new(natural[0] + 1.0, -natural[1])
    }

    /// Solves ψ(a) − ln a = E ln x − ln E x by Newton's method on ln a. The relative error of the shape grows with the shape, as
    /// a·2⁻⁵²: large shapes are ill-conditioned in these coordinates.
    fn standard_of_mean(&self, mean: &[f64]) -> Result<Standard, InvalidParameters> {
        check(mean, 2)?;
        let gap = mean[1].ln() - mean[0];
        if !(mean[1] > 0.0 && gap.is_finite() && gap > 0.0) {
            return Err(InvalidParameters::Domain("E ln x must be below ln E x"));
        }
        let mut shape = 0.5 / gap;
        // Newton's method converges quadratically from this start (Minka 2002): 100 steps are out of reach.
        for _ in 0..100 {
            let residual = shape.ln() - digamma(shape) - gap;
            let step = (residual / (1.0 - shape * trigamma(shape))).clamp(-2.0, 2.0);
            shape *= (-step).exp();
            if step.abs() < 1e-15 {
                break;
            }
        }
        Standard::new(shape, shape / mean[1])
    }

    fn natural(standard: &Standard) -> Vec<f64> {
        vec![standard.shape - 1.0, -standard.rate]
    }

    fn mean(standard: &Standard) -> Vec<f64> {
        vec![digamma(standard.shape) - standard.rate.ln(), standard.shape / standard.rate]
    }

    fn log_partition(standard: &Standard) -> f64 {
        ln_gamma(standard.shape) - standard.shape * standard.rate.ln()
    }

    fn kl(q: &Standard, p: &Standard) -> f64 {
        (q.shape - p.shape) * digamma(q.shape) - ln_gamma(q.shape)
            + ln_gamma(p.shape)
            + p.shape * (q.rate / p.rate).ln()
            + q.shape * (p.rate - q.rate) / q.rate
    }

    fn expectation(&self, natural: &[f64], mean: &[f64]) -> f64 {
        natural[0] * mean[0] + natural[1] * mean[1]
    }
}
