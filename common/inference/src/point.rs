//! A mean-field Gaussian as the gradient code reads it.

use dp_pvi_expfam::InvalidParameters;

/// The coordinate t in which the gradient of a scale is expressed, clipped and noised.
///
/// σ is computed from released values only, so passing from one coordinate to another is a public rescaling of every entry:
/// it costs no privacy, but it decides how much of the clipping norm and of the noise the scales get.
#[derive(Debug, Clone, Copy, PartialEq)]
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
#[derive(Debug, Clone, PartialEq)]
pub struct MeanField {
    mean: Vec<f64>,
    variance: Vec<f64>,
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
        Ok(Self { mean, variance, coordinate })
    }

    /// Number of coordinates d.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.mean.len()
    }

    /// μ.
    #[must_use]
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// σ².
    #[must_use]
    pub fn variance(&self) -> &[f64] {
        &self.variance
    }

    /// The coordinate of the scales' gradients.
    #[must_use]
    pub fn coordinate(&self) -> ScaleCoordinate {
        self.coordinate
    }

    /// The public factor that turns the entry of t_j into ∂f/∂log σ_j.
    #[must_use]
    pub fn to_log_scale(&self, j: usize) -> f64 {
        match self.coordinate {
            ScaleCoordinate::LogScale => 1.0,
            ScaleCoordinate::HalfVariance { weight } => self.variance[j] / weight,
        }
    }
}
