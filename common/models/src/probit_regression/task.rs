//! P(y = 1) = Φ(xᵀθ).

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::prediction::{Law, Outcome, Prediction, PredictorLaw, of_predictor};
use crate::predictor::{Predictor, Statistics};
use crate::spec::TaskError;
use crate::spec::check::require;
use crate::{ModelRules, PredictorBounds, PredictorScale, PublicHalf, TiltedForm};
use dp_pvi_numerics::normal;
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a probit regression: none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbitRegression {}

impl PublicHalf for ProbitRegression {
    const NAME: &'static str = "probit-regression";
    const HELP: &'static str = "one of two classes, through a probit";
    type Written = Self;

    fn explicit(written: Self) -> Result<Self, TaskError> {
        Ok(written)
    }
}

impl ModelRules for ProbitRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(
            matches!(schema.label().kind, LabelKind::Binary { .. }),
            "probit-regression predicts a class: give the schema's label kind = \"binary\"",
        )
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        Ok(of_predictor(outcome, Probit))
    }

    fn classes(&self) -> Option<u32> {
        Some(2)
    }

    fn tilted(&self) -> Option<TiltedForm> {
        Some(TiltedForm::Predictor)
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn predictor_scale(&self) -> Option<PredictorScale> {
        Some(PredictorScale::Probit)
    }

    fn predictor(&self) -> Option<&dyn Predictor> {
        Some(self)
    }

    /// −∂² ln Φ < 1. A residual grows like the distance from the right side, so it is cut, at what a record two standard deviations on the wrong
    /// side has.
    fn predictor_bounds(&self) -> Option<PredictorBounds> {
        Some(PredictorBounds { residual: 2.4, curvature: 1.0, of_class: false, free_curvature: None })
    }
}

/// Reach of the trapezoid rule in standard deviations, and its steps: the finer one for predictors that are less certain than `CERTAIN`.
const REACH: f64 = 9.0;
const STEPS: [f64; 2] = [0.75, 0.25];
const CERTAIN: f64 = 0.4;

/// Gauss and Hermite's rule of five points, and up to which standard deviation it is used: it integrates polynomials of degree 9 exactly.
const POINTS: [f64; 3] = [0.0, 1.355_626_179_974_266, 2.856_970_013_872_806];
const WEIGHTS: [f64; 3] = [8.0 / 15.0, 0.222_075_922_005_612_66, 0.011_257_411_327_720_691];
const VERY_CERTAIN: f64 = 0.1;

/// E g(z) for z ~ N(mean, variance), for a g that is analytic where |Im z| < 3, as ln Φ is, with an error below 1e-11: by the trapezoid rule, which
/// with step h is wrong by about exp(a²/2 − 2πa/h) for every a with s a < 3 (Trefethen and Weideman 2014), or by Gauss and Hermite's, wrong by about 945 (s/3)^10.
pub fn expectation<const N: usize>(mean: f64, variance: f64, g: impl Fn(f64) -> [f64; N]) -> [f64; N] {
    let s = variance.max(0.0).sqrt();
    if s <= VERY_CERTAIN {
        let mut sums = g(mean).map(|value| value * WEIGHTS[0]);
        for (point, weight) in POINTS.iter().zip(&WEIGHTS).skip(1) {
            let (above, below) = (g(mean + s * point), g(mean - s * point));
            sums.iter_mut().zip(above.iter().zip(&below)).for_each(|(sum, (above, below))| *sum += weight * (above + below));
        }
        return sums;
    }
    let step = STEPS[usize::from(s > CERTAIN)];
    #[allow(clippy::cast_possible_truncation, reason = "a number of steps")]
    let reach = (REACH / step) as i32;
    let (mut sums, mut total) = ([0.0; N], 0.0);
    for k in -reach..=reach {
        let u = step * f64::from(k);
        let weight = (-0.5 * u * u).exp();
        total += weight;
        sums.iter_mut().zip(g(mean + s * u)).for_each(|(sum, value)| *sum += weight * value);
    }
    sums.map(|sum| sum / total)
}

/// r = E ∂ ln p/∂z, c = −E ∂² ln p/∂z² (Bonnet's and Price's theorems).
impl Predictor for ProbitRegression {
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        let sign = if target > 0.5 { 1.0 } else { -1.0 };
        let [residual, curvature] = expectation(mean, variance, |z| {
            let at = normal::log_cdf(sign * z);
            [sign * at.ratio, at.ratio * at.excess]
        });
        Statistics { residual, curvature }
    }

    /// One a node of the finer rule.
    fn cost(&self) -> u32 {
        73
    }
}

#[derive(Debug)]
struct Probit;

impl PredictorLaw for Probit {
    fn predict(&self, mean: f64, variance: f64) -> Prediction {
        Prediction::Probit { probability: normal::cdf(mean / (1.0 + variance).sqrt()), mean, sd: variance.sqrt() }
    }

    fn log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let sign = if target > 0.5 { 1.0 } else { -1.0 };
        normal::log_cdf(sign * mean / (1.0 + variance).sqrt()).value
    }
}

impl Display for ProbitRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("probit regression")
    }
}

#[cfg(test)]
mod tests {
    use super::{Predictor, ProbitRegression, expectation};
    use dp_pvi_numerics::normal;

    /// ln Φ and its derivatives on both sides of every change of the rule, against a fine sum.
    #[test]
    fn all_rules_give_the_same_expectation() {
        for s in [0.02_f64, 0.0999, 0.1001, 0.3999, 0.4001, 2.0] {
            for mean in [-6.0, -1.5, 0.0, 0.7, 3.0] {
                let g = |z: f64| {
                    let at = normal::log_cdf(z);
                    [at.value, at.ratio, at.ratio * at.excess]
                };
                let fine = |part: usize| -> f64 {
                    let nodes = (-1000..=1000).map(|k| 0.01 * f64::from(k));
                    let (sum, total) = nodes
                        .map(|u: f64| ((-0.5 * u * u).exp(), u))
                        .fold((0.0, 0.0), |(sum, total), (w, u)| (sum + w * g(mean + s * u)[part], total + w));
                    sum / total
                };
                for (part, value) in expectation(mean, s * s, g).into_iter().enumerate() {
                    assert!((value - fine(part)).abs() < 1e-11 * (1.0 + fine(part).abs()), "{part} at {mean}, {s}: {value} {}", fine(part));
                }
            }
        }
    }

    #[test]
    fn residuals_of_the_two_classes_have_opposite_signs() {
        let of = |target| ProbitRegression {}.statistics(0.4, 0.01, target);
        assert!(of(1.0).residual > 0.0 && of(0.0).residual < 0.0);
    }
}
