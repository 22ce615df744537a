//! A mean-field Gaussian as the gradient code reads it.

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

/// The coordinate t in which the gradient of a scale is expressed, clipped and noised.
///
/// σ is computed from released values only, so passing from one coordinate to another is a public rescaling of every entry:
/// it costs no privacy, but it decides how much of the clipping norm and of the noise the scales get.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum ScaleCoordinate {
    /// t = log σ: entries shrink with σ², far below the noise once σ is small.
    LogScale,
    /// dt = dσ²/(2w): the entry is w·∂f/∂log σ / σ². For a generalised linear model that is −w·c·x_j², which does not shrink with σ.
    HalfVariance {
        /// w > 0, the weight of the scales against the means.
        weight: f64,
    },
}

/// q(θ) = N(μ, diag σ²), and the coordinate of its scales' gradients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeanField {
    /// μ_j and σ_j² side by side: an entry of a row needs both.
    moments: Vec<[f64; 2]>,
    coordinate: ScaleCoordinate,
}

impl MeanField {
    /// N(mean, diag variance).
    ///
    /// # Errors
    /// The lengths differ, a number is not finite, or a variance is not positive.
    pub fn new(mean: Vec<f64>, variance: Vec<f64>, coordinate: ScaleCoordinate) -> Result<Self, InvalidParameters> {
        if mean.len() != variance.len() {
            return Err(InvalidParameters::Length { expected: mean.len(), found: variance.len() });
        }
        if !mean.iter().chain(&variance).all(|value| value.is_finite()) || variance.iter().any(|&v| v <= 0.0) {
            return Err(InvalidParameters::Domain("a mean is not finite or a variance is not positive"));
        }
        Ok(Self { moments: mean.into_iter().zip(variance).map(<[f64; 2]>::from).collect(), coordinate })
    }

    /// Number of coordinates d.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.moments.len()
    }

    /// [μ_j, σ_j²] of every coordinate.
    #[must_use]
    pub fn moments(&self) -> &[[f64; 2]] {
        &self.moments
    }

    /// μ.
    pub fn mean(&self) -> impl ExactSizeIterator<Item = f64> {
        self.moments.iter().map(|[mean, _]| *mean)
    }

    /// σ².
    pub fn variance(&self) -> impl ExactSizeIterator<Item = f64> {
        self.moments.iter().map(|[_, variance]| *variance)
    }

    /// The coordinate of the scales' gradients.
    #[must_use]
    pub fn coordinate(&self) -> ScaleCoordinate {
        self.coordinate
    }

    /// The public factor that turns the entry of t_j into ∂f/∂log σ_j.
    #[must_use]
    pub(crate) fn to_log_scale(&self, j: usize) -> f64 {
        match self.coordinate {
            ScaleCoordinate::LogScale => 1.0,
            ScaleCoordinate::HalfVariance { weight } => self.moments[j][1] / weight,
        }
    }
}
