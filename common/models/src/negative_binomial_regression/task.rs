//! y of mean m = exp(xᵀθ) and variance m + m²/φ.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Law, Outcome, Prediction, PredictorLaw, Scores, of_predictor};
use crate::predictor::{Predictor, Shape, Statistics};
use crate::response::Response;
use crate::spec::TaskError;
use crate::spec::check::{invalid, require, wrong_outcome};
use crate::spec::words::Short;
use crate::{Bounds, ModelOptions, ModelRules, PredictorBounds, Ranges};
use dp_pvi_math::count::negative_binomial;
use dp_pvi_math::quadrature::{sigmoid_moments, softplus};
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a negative binomial regression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NegativeBinomialRegression {
    /// φ: the variance of a count of mean m is m + m²/φ.
    pub dispersion: f64,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    dispersion: Option<f64>,
}

impl ModelOptions for NegativeBinomialRegression {
    const NAME: &'static str = "negative-binomial-regression";
    const HELP: &'static str = "a count that spreads more than Poisson's, whose logarithm is linear in the features";
    type Raw = Raw;

    fn explicit(Raw { dispersion }: Raw) -> Result<Self, TaskError> {
        match dispersion {
            Some(dispersion) => Ok(Self { dispersion }),
            None => invalid(
                "negative-binomial-regression needs dispersion, phi of the variance m + m^2/phi of a count of mean m: with a mean m and a standard \
                 deviation s of published counts it is m^2/(s^2 - m)",
            ),
        }
    }
}

impl ModelRules for NegativeBinomialRegression {
    /// A count is the entry itself, and the largest one is a count, too.
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(
            (1e-6..=1e6).contains(&self.dispersion),
            "dispersion must be a number between 1e-6 and 1e6: counts that spread less are those of a Poisson regression",
        )?;
        let LabelKind::Number { rule, .. } = &schema.label().kind else {
            return wrong_outcome(schema, "negative-binomial-regression", "a count, a column with kind = \"number\" and lower = 0");
        };
        require(rule.lower >= 0.0, "a count is 0 or more: give the outcome's column lower = 0")?;
        require(
            (rule.upper - rule.upper.round()).abs() < 1e-12,
            "negative-binomial-regression clamps counts to the column's upper: give the outcome's column a whole number as upper",
        )
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of(*self)
    }

    fn parameters(&self, features: u32) -> Parameters {
        Parameters::of_row(features)
    }

    fn response(&self) -> Response<'_> {
        Response::count()
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        Ok(of_predictor(outcome, Count { dispersion: self.dispersion }))
    }

    /// With M = max(`label`, φ): |r| ≤ M, 0 ≤ c ≤ (`label` + φ)/4.
    ///
    /// # Privacy
    /// For 0 ≤ y ≤ `label` and B1 = E σ ∈ [0, 1], r = y(1 − B1) − φB1 is a difference of two numbers of one sign, neither of them above M. By Jensen's inequality
    /// c = (y + φ) E σ(1 − σ) ≤ (`label` + φ) B1(1 − B1), which is at most a quarter of the first factor.
    ///
    /// The curvature is free up to k = φ₁^(5/2) M/(`label` + φ), φ₁ the golden ratio: with q the larger of B1 and 1 − B1, |r| ≤ Mq and kc ≤ φ₁^(5/2) M q(1 − q), so that
    /// r² + k²c² ≤ M² q² (1 + φ₁⁵(1 − q)²) ≤ M², as for a logit.
    fn bounds(&self, ranges: Ranges) -> Bounds {
        let residual = self.residual_bound(ranges);
        let total = ranges.label + self.dispersion;
        let logit = PredictorBounds::logit();
        let free_curvature = logit.free_curvature.map(|free| free * residual / total);
        Bounds::of(ranges, PredictorBounds { residual, curvature: logit.curvature * total, free_curvature })
            .with_gradient(residual * ranges.row)
    }
}

impl NegativeBinomialRegression {
    fn residual_bound(&self, ranges: Ranges) -> f64 {
        ranges.label.max(self.dispersion)
    }
}

/// With w = z − ln φ, B0 = E softplus(w), B1 = E σ(w) and B2 = E σ(w)(1 − σ(w)): f = ln Γ(y + φ) − ln Γ(φ) − ln y! + y(a − ln φ) − (y + φ)B0, r = y − (y + φ)B1,
/// c = (y + φ)B2. ln p is a linear function less a positive multiple of softplus: log-concave.
impl Predictor for NegativeBinomialRegression {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        let moments = sigmoid_moments(mean - self.dispersion.ln(), variance);
        let total = target + self.dispersion;
        Statistics { residual: target - total * moments.sigmoid, curvature: total * moments.curvature }
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let centred = mean - self.dispersion.ln();
        let constant = negative_binomial::log_constant(target, self.dispersion);
        constant + target * centred - (target + self.dispersion) * softplus(centred, variance)
    }

    /// At an optimum rates are about as large as counts, and c = mφ/(m + φ) where the rate is the count.
    fn typical_curvature(&self, target: f64) -> f64 {
        let rate = target.clamp(0.5, 1e6);
        rate * self.dispersion / (rate + self.dispersion)
    }

    fn shape(&self) -> Shape {
        Shape::LogConcave
    }

    /// (y + φ)/4, far below the bound for most counts.
    fn largest_curvature(&self, bound: f64, target: f64) -> f64 {
        (0.25 * (target + self.dispersion)).min(bound).max(0.0)
    }

    fn cost(&self) -> u32 {
        4
    }
}

#[derive(Debug)]
struct Count {
    dispersion: f64,
}

impl PredictorLaw for Count {
    /// Var y = E m + E m²/φ + Var m for the rate m = e^z.
    fn predict(&self, mean: f64, variance: f64) -> Prediction {
        let rate = (mean + 0.5 * variance).exp();
        let excess = variance.exp_m1() + variance.exp() / self.dispersion;
        Prediction::Count { mean: rate, variance: rate + rate * rate * excess, log_rate: (mean, variance), dispersion: self.dispersion }
    }

    fn log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        negative_binomial::log_mass(target, self.dispersion, mean, variance)
    }

    fn scores(&self, mean: f64, variance: f64, target: f64) -> Scores {
        Scores::of_count(target, (mean + 0.5 * variance).exp(), (mean, variance), self.dispersion)
    }
}

impl Display for NegativeBinomialRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "negative binomial regression, dispersion {}", Short(self.dispersion))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_schema::Schema;
    use proptest::prelude::*;

    use super::{Count, NegativeBinomialRegression};
    use crate::prediction::{Level, Prediction, PredictorLaw};
    use crate::predictor::Predictor;
    use crate::{ModelRules, ModelSpec, Ranges};

    #[test]
    fn the_model_is_described_in_words() {
        let model = ModelSpec::from(NegativeBinomialRegression { dispersion: 1.5 });
        assert_eq!(model.to_string(), "negative binomial regression, dispersion 1.5");
    }

    #[test]
    fn a_label_that_is_no_count_is_refused_with_what_to_write() {
        let check = |dispersion: f64, label: &str| {
            let column = "[[columns]]\nname = \"a\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n";
            let schema = Schema::asking("y ~ .", &format!("[[columns]]\nname = \"y\"\n{label}\n{column}"));
            NegativeBinomialRegression { dispersion }.check(&schema.unwrap()).map_err(|error| error.to_string())
        };
        let counts = "kind = \"number\"\nlower = 0\nupper = 40\ncentre = 0\nscale = 1";
        assert_eq!(check(1.5, counts), Ok(()));
        assert!(check(1.5, &counts.replace("40", "40.5")).unwrap_err().contains("a whole number as upper"));
        assert!(check(1.5, &counts.replace("lower = 0", "lower = -1")).unwrap_err().contains("0 or more"));
        // Centre and scale are for other questions: a count is the number itself.
        assert_eq!(check(1.5, &counts.replace("scale = 1", "scale = 2")), Ok(()));
        assert!(check(1.5, "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]").unwrap_err().contains("kind = \"number\""));
        for dispersion in [0.0, -1.0, f64::NAN, 1e7] {
            assert!(check(dispersion, counts).unwrap_err().contains("dispersion must be"), "{dispersion}");
        }
    }

    #[test]
    fn predictions_are_counts_with_the_moments_of_their_masses() {
        let law = Count { dispersion: 1.7 };
        let prediction = law.predict(0.4, 0.2);
        let Prediction::Count { mean, variance, .. } = prediction else { panic!("a count") };
        let masses: Vec<f64> = (0..2000).map(|y| law.log_density(0.4, 0.2, f64::from(y)).exp()).collect();
        let moment = |power: i32| masses.iter().zip(0..).map(|(mass, y)| mass * f64::from(y).powi(power)).sum::<f64>();
        assert!((moment(1) / mean - 1.0).abs() < 1e-7 && ((moment(2) - moment(1).powi(2)) / variance - 1.0).abs() < 1e-6);
        let interval = prediction.interval(Level::P90);
        assert!(interval.lower.abs() < 0.5 && interval.upper.fract().abs() < 1e-12 && interval.upper > mean);
        let transform = prediction.transform(1.0).unwrap();
        assert!((transform - masses[0] - 0.5 * masses[1]).abs() < 1e-8);
    }

    proptest! {
        /// What [`ModelRules::bounds`] promises, at any predictor and count.
        #[test]
        fn residual_and_curvature_keep_to_their_public_bounds(
            mean in -40.0..40.0_f64, sd in 0.0..12.0_f64, dispersion in 0.01..200.0_f64, largest in 1.0..300.0_f64, share in 0.0..=1.0_f64,
        ) {
            let model = NegativeBinomialRegression { dispersion };
            let bounds = model.bounds(Ranges { row: 1.0, entry: 1.0, label: largest, times: None }).predictor.unwrap();
            for target in [0.0, share * largest, largest] {
                let at = Predictor::statistics(&model, mean, sd * sd, target);
                let slack = 1.0 + 1e-9;
                prop_assert!(at.residual.abs() <= bounds.residual * slack, "{at:?}");
                prop_assert!((0.0..=bounds.curvature * slack).contains(&at.curvature), "{at:?}");
                prop_assert!(at.curvature <= model.largest_curvature(bounds.curvature, target) * slack, "{at:?}");
                let joint = at.residual.hypot(bounds.free_curvature.unwrap() * at.curvature);
                prop_assert!(joint <= bounds.residual * slack, "{at:?} {joint}");
            }
        }
    }
}
