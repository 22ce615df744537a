//! Bayesian linear regression with known noise: y ~ N(xᵀθ, σ²).

pub mod unknown_noise;

use dp_pvi_expfam::InvalidParameters;
use dp_pvi_expfam::any::{Family, Gaussian};
use dp_pvi_expfam::gaussian::full::{svec, unsvec};
use dp_pvi_posterior::models::linear_regression as public;
use dp_pvi_posterior::models::predictor::Predictor;
use nalgebra::{Cholesky, DMatrix, DVector};

use crate::capabilities::glm::{self, LinearPredictor, Statistics};
use crate::capabilities::{Gradients, LocalOptimum, Model};
use crate::models::PrivateHalf;
use dp_pvi_records::{RecordTable, RecordView};

/// y ~ N(xᵀθ, 1/`precision`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearRegression {
    public: public::LinearRegression,
    precision: f64,
}

impl LinearRegression {
    /// With observation noise of this standard deviation, which a resolved task has checked to be positive.
    #[must_use]
    pub fn new(noise_sd: f64) -> Self {
        Self { public: public::LinearRegression { noise_sd }, precision: noise_sd.powi(-2) }
    }
}

impl LinearPredictor for LinearRegression {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        self.public.statistics(mean, variance, target)
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        0.5 * ((self.precision / std::f64::consts::TAU).ln() - self.precision * ((target - mean).powi(2) + variance))
    }

    fn typical_curvature(&self, _target: f64) -> f64 {
        self.precision
    }
}

impl PrivateHalf for public::LinearRegression {
    fn model(&self) -> Box<dyn Model> {
        Box::new(LinearRegression::new(self.noise_sd))
    }
}

impl Model for LinearRegression {
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64 {
        glm::expected_log_likelihood(self, record, q)
    }

    fn local_optimum(&self) -> Option<&dyn LocalOptimum> {
        Some(self)
    }

    fn linear_predictor(&self) -> Option<&dyn LinearPredictor> {
        Some(self)
    }

    fn gradients(&self) -> Option<&dyn Gradients> {
        Some(self)
    }
}

impl LocalOptimum for LinearRegression {
    /// Closed forms. Full covariance: Λ* = Λ_c + XᵀX/σ², h* = h_c + Xᵀy/σ², y without the offset. Mean field: Λ* = Λ_c + diag(XᵀX)/σ² and μ* solves
    /// (diag Λ_c + XᵀX/σ²) μ* = h_c + Xᵀy/σ². The off-diagonal of XᵀX belongs to the mean: h* = Λ*μ*, and *not* h_c + Xᵀy/σ²,
    /// which is what dropping it gives.
    fn weighted_optimum(
        &self,
        table: &RecordTable,
        weight: f64,
        _tolerance: f64,
        cavity: &Gaussian,
        _start: &Gaussian,
    ) -> Result<Gaussian, InvalidParameters> {
        let precision = weight * self.precision;
        let (xy, xx) = glm::sums(table, |record| {
            let precision = precision * record.extra.weight;
            Statistics { residual: precision * (record.target - record.offset), curvature: precision }
        });
        let family = *cavity.family();
        let d = family.dimension();
        let (h, precision) = cavity.natural().split_at(d);
        let h = DVector::from_column_slice(h) + xy;
        let natural = match family {
            Family::FullGaussian { .. } => h.iter().copied().chain(svec(&(unsvec(precision, d) + xx))).collect(),
            Family::DiagonalGaussian { .. } => {
                let precision = DVector::from_column_slice(precision);
                let total = &precision + xx.diagonal();
                let matrix = DMatrix::from_diagonal(&precision) + xx;
                let factor = Cholesky::new(matrix).ok_or(InvalidParameters::Domain("the normal equations are not positive definite"))?;
                let mean = factor.solve(&h);
                total.component_mul(&mean).iter().copied().chain(total.iter().copied()).collect()
            }
        };
        Gaussian::from_natural(family, natural)
    }
}
