//! Likelihoods of a linear predictor xᵀθ. Mathematics of a number, its uncertainty and a target, whatever their origin: sites evaluate it on records, a forecast on
//! rows that are drawn from public values.

use std::sync::Arc;

use crate::StatisticsForm;
use dp_pvi_math::quadrature::sigmoid_moments_of;
use dp_pvi_math::tilted::Tilted;

/// Derivatives of f = E log p(y | z) for a predictor z ~ N(a, s²).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// r = ∂f/∂a.
    pub residual: f64,
    /// c = −2 ∂f/∂s².
    pub curvature: f64,
}

/// A likelihood of a linear predictor.
pub trait Predictor: OfMany + Send + Sync {
    /// Residual and curvature for a predictor with this mean and variance.
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics;

    /// f = E log p(target | predictor), or the lower bound of it of which [`Self::statistics`] are the derivatives.
    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64;

    /// A curvature of about the size that a record with this target has near an optimum: where an exact fit starts, and nothing else.
    fn typical_curvature(&self, target: f64) -> f64;

    /// What f is like as a function of the predictor: how an exact fit is found.
    fn shape(&self) -> Shape;

    /// Whether [`Self::statistics`] has a form that is made for many predictors side by side.
    fn lanes(&self) -> Lanes {
        Lanes::One
    }

    /// Weight of xxᵀ in a sum that shall be above the sum of all curvatures whatever the predictors are: `bound`, or less if the target implies it. `bound` is that
    /// of every curvature.
    fn largest_curvature(&self, bound: f64, target: f64) -> f64 {
        let _ = target;
        bound
    }

    /// Fisher information of an observation divided by its reported curvature, if the model is right. Below 1 if the curvature belongs to a variational bound of the
    /// expected log density. Default: 1 (Bonnet's and Price's theorems).
    fn information_share(&self) -> f64 {
        1.0
    }

    /// Whether the residual is the class minus its probability: with the other of two classes it differs by exactly 1.
    fn residual_is_of_class(&self) -> bool {
        false
    }

    /// Cost of an evaluation, in exponentials: callers with a choice evaluate an expensive one less often.
    fn cost(&self) -> u32 {
        1
    }

    /// Whether the curvature depends on neither predictor nor target.
    fn has_constant_curvature(&self) -> bool {
        matches!(self.shape(), Shape::Normal { .. })
    }

    /// Its tilted moments, which expectation propagation needs.
    fn tilted(&self) -> Option<Arc<dyn TiltedPredictor>> {
        None
    }

    /// Its expected sufficient statistics, which `update = "vips"` needs.
    fn expected_statistics(&self) -> Option<StatisticsForm> {
        None
    }
}

/// A likelihood as a function of its linear predictor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// A normal density of the target around the predictor: the fit is a closed form.
    Normal {
        /// 1/σ².
        precision: f64,
    },
    /// Log-concave: the local bound has one maximum.
    LogConcave,
    /// Neither. A fit ends at an optimum near its start.
    Other,
}

/// How the statistics of many predictors are made. Closed: code that sees several records at once is here, and is tested for each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    /// One by one.
    One,
    /// r = y − E σ(z) and c = E σ(z)(1 − σ(z)), several at once.
    Sigmoid,
}

/// A likelihood of a linear predictor whose Gaussian expectation Z(a, s²) = E p(y | z), z ~ N(a, s²), can be computed.
pub trait TiltedPredictor: Send + Sync {
    /// For a predictor N(`mean`, `variance`), `variance` ≥ 0.
    fn tilted(&self, mean: f64, variance: f64, target: f64) -> Tilted;
}

impl<T: TiltedPredictor + ?Sized> TiltedPredictor for Arc<T> {
    fn tilted(&self, mean: f64, variance: f64, target: f64) -> Tilted {
        (**self).tilted(mean, variance, target)
    }
}

/// A record's predictor, and what a likelihood says of it.
#[derive(Debug, Clone, Copy)]
pub struct Predicted {
    /// a, the record's offset included.
    pub mean: f64,
    /// s².
    pub variance: f64,
    /// y.
    pub target: f64,
    /// Of one record, without its weight; NaN until a likelihood was asked.
    pub statistics: Statistics,
}

impl Predicted {
    /// A predictor of which nothing is said yet.
    #[must_use]
    pub fn new((mean, variance): (f64, f64), target: f64) -> Self {
        Self { mean, variance, target, statistics: Statistics { residual: f64::NAN, curvature: f64::NAN } }
    }
}

/// A likelihood for many predictors. Every [`Predictor`] has it and none writes it.
///
/// # Privacy
/// What one of them is told is what the likelihood says of it alone, to the last bit: no predictor knows of another one (`proofs/layouts.md` of `dp-pvi-privacy`).
pub trait OfMany {
    /// Fills in [`Predictor::statistics`] of each.
    fn statistics_of_many(&self, predictors: &mut [Predicted]);

    /// Appends [`Predictor::expected_log_density`] of each.
    fn densities_of_many(&self, predictors: &[Predicted], densities: &mut Vec<f64>);
}

impl<P: Predictor> OfMany for P {
    fn statistics_of_many(&self, predictors: &mut [Predicted]) {
        match self.lanes() {
            Lanes::One => {
                for predicted in predictors {
                    predicted.statistics = self.statistics(predicted.mean, predicted.variance, predicted.target);
                }
            }
            Lanes::Sigmoid => {
                let at = |predicted: &Predicted| (predicted.mean, predicted.variance);
                sigmoid_moments_of(predictors, at, |predicted, moments| {
                    predicted.statistics = Statistics { residual: predicted.target - moments.sigmoid, curvature: moments.curvature };
                });
            }
        }
    }

    fn densities_of_many(&self, predictors: &[Predicted], densities: &mut Vec<f64>) {
        densities.extend(predictors.iter().map(|at| self.expected_log_density(at.mean, at.variance, at.target)));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
