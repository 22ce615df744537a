//! Likelihoods of a linear predictor xᵀθ: the two derivatives from which everything else about a record follows. Mathematics of a number, its
//! uncertainty and a target, whoever's they are: sites evaluate it on records, a forecast on rows that are drawn from public values.

/// Derivatives of f = E log p(y | z) for a predictor z ~ N(a, s²).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// r = ∂f/∂a.
    pub residual: f64,
    /// c = −2 ∂f/∂s².
    pub curvature: f64,
}

/// A likelihood of a linear predictor.
pub trait Predictor {
    /// Residual and curvature for a predictor with this mean and variance.
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics;

    /// Weight of xxᵀ in a sum that shall be above the sum of all curvatures whatever the predictors are: `bound`, or less where the target tells. `bound` is that
    /// of every curvature.
    fn largest_curvature(&self, bound: f64, target: f64) -> f64 {
        let _ = target;
        bound
    }

    /// About how many exponentials or the like one evaluation takes: who has a choice evaluates a dear one less often.
    fn cost(&self) -> u32 {
        1
    }

    /// Whether the curvature depends on neither predictor nor target, as at a few points.
    fn has_constant_curvature(&self) -> bool {
        let at = |(mean, target): (f64, f64)| self.statistics(mean, 0.0, target).curvature;
        let first = at((0.0, 0.0));
        [(-2.0, 0.0), (1.0, 1.0), (3.0, 1.0)].into_iter().all(|point| (at(point) - first).abs() <= 1e-12 * first.abs())
    }
}
