//! y = xᵀθ + σ t, t of Student's distribution.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::prediction::{Law, Outcome, Prediction, PredictorLaw, of_predictor};
use crate::predictor::{Predictor, Statistics};
use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require};
use crate::spec::words::Short;
use crate::{ModelRules, PredictorBounds, PredictorScale, PublicHalf, Ranges};
use dp_pvi_numerics::student::NormalPlusStudent;
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a robust regression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RobustRegression {
    /// ν.
    pub degrees_of_freedom: f64,
    /// σ, in units of the label after centre and scale.
    pub scale: f64,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// Default: 4.
    degrees_of_freedom: Option<f64>,
    scale: Option<f64>,
}

impl PublicHalf for RobustRegression {
    const NAME: &'static str = "robust-regression";
    const HELP: &'static str = "a number with outliers, linear in the features, with noise of Student's distribution";
    type Written = Written;

    fn explicit(Written { degrees_of_freedom, scale }: Written) -> Result<Self, TaskError> {
        match scale {
            Some(scale) => Ok(Self { degrees_of_freedom: degrees_of_freedom.unwrap_or(4.0), scale }),
            None => invalid(
                "robust-regression needs scale, that of an observation's noise in units of the label after centre and scale: where outliers are left out, \
                 about the standard deviation",
            ),
        }
    }
}

impl ModelRules for RobustRegression {
    /// The noise has a variance only if ν is above 2.
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require(
            self.degrees_of_freedom > 2.0 && self.degrees_of_freedom <= 1000.0,
            "degrees_of_freedom must be above 2 and at most 1000: noise without outliers is that of a linear regression",
        )?;
        require(positive(self.scale), "scale must be a number between 1e-30 and 1e30")?;
        require(
            matches!(schema.label().kind, LabelKind::Number(_)),
            "robust-regression predicts a number: give the schema's label kind = \"number\"",
        )
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        Ok(of_predictor(outcome, HeavyTailed(*self)))
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn predictor_scale(&self) -> Option<PredictorScale> {
        Some(PredictorScale::Label)
    }

    fn predictor(&self) -> Option<&dyn Predictor> {
        Some(self)
    }

    fn outcome_sd(&self) -> f64 {
        self.scale
    }

    /// The information of Student's distribution is (ν + 1)/((ν + 3)σ²) (Lange, Little and Taylor 1989), and E c = 1/σ².
    fn information_share(&self) -> f64 {
        (self.degrees_of_freedom + 1.0) / (self.degrees_of_freedom + 3.0)
    }

    /// |r| ≤ (ν + 1)/(2σ√ν), 0 ≤ c ≤ (ν + 1)/(νσ²).
    ///
    /// # Privacy
    /// With e = y − a, |r| ≤ (ν + 1)|e|/(νσ² + e²), and νσ² + e² ≥ 2σ√ν |e| since (σ√ν − |e|)² ≥ 0. The denominator of c is at least νσ². Neither the label nor
    /// the posterior has to be bounded.
    ///
    /// The curvature is not free: where e² = νσ², r is at its bound, and c is not 0.
    fn predictor_bounds(&self, _ranges: Ranges) -> Option<PredictorBounds> {
        let (nu, scale) = (self.degrees_of_freedom, self.scale);
        let curvature = (nu + 1.0) / (nu * scale * scale);
        Some(PredictorBounds { residual: 0.5 * (nu + 1.0) / (scale * nu.sqrt()), curvature, free_curvature: None })
    }

    fn gradient_bound(&self, ranges: Ranges) -> Option<f64> {
        self.predictor_bounds(ranges).map(|bounds| bounds.residual * ranges.row)
    }
}

/// With Q = (y − a)² + s²: r = (ν + 1)(y − a)/(νσ² + Q), c = (ν + 1)/(νσ² + Q).
impl Predictor for RobustRegression {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        let (nu, error) = (self.degrees_of_freedom, target - mean);
        let curvature = (nu + 1.0) / (nu * self.scale * self.scale + error * error + variance);
        Statistics { residual: curvature * error, curvature }
    }
}

#[derive(Debug)]
struct HeavyTailed(RobustRegression);

impl HeavyTailed {
    fn of(&self, mean: f64, variance: f64) -> NormalPlusStudent {
        let RobustRegression { degrees_of_freedom, scale } = self.0;
        NormalPlusStudent { mean, variance, scale, degrees_of_freedom }
    }
}

impl PredictorLaw for HeavyTailed {
    fn predict(&self, mean: f64, variance: f64) -> Prediction {
        let RobustRegression { degrees_of_freedom: nu, scale } = self.0;
        Prediction::HeavyTailed { mean, variance: variance + scale * scale * nu / (nu - 2.0), law: self.of(mean, variance) }
    }

    fn log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        self.of(mean, variance).log_density(target)
    }
}

impl Display for RobustRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "robust regression, {} degrees of freedom, scale {}", Short(self.degrees_of_freedom), Short(self.scale))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_schema::Schema;
    use proptest::prelude::*;

    use super::{HeavyTailed, RobustRegression};
    use crate::prediction::{Level, Prediction, PredictorLaw};
    use crate::predictor::Predictor;
    use crate::{ModelRules, ModelSpec, Ranges};

    const MODEL: RobustRegression = RobustRegression { degrees_of_freedom: 4.0, scale: 0.5 };

    #[test]
    fn the_model_is_described_in_words() {
        assert_eq!(ModelSpec::from(MODEL).to_string(), "robust regression, 4 degrees of freedom, scale 0.5");
    }

    #[test]
    fn noise_without_a_variance_and_labels_that_are_classes_are_refused() {
        let check = |model: RobustRegression, label: &str| {
            let column = "[[columns]]\nname = \"a\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n";
            let schema = Schema::parse(&format!("[label]\ncolumn = \"y\"\n{label}\n{column}"));
            model.check(&schema.unwrap()).map_err(|error| error.to_string())
        };
        let number = "kind = \"number\"\nlower = 0\nupper = 40\ncentre = 20\nscale = 10";
        assert_eq!(check(MODEL, number), Ok(()));
        assert!(check(RobustRegression { degrees_of_freedom: 2.0, ..MODEL }, number).unwrap_err().contains("above 2"));
        assert!(check(RobustRegression { scale: 0.0, ..MODEL }, number).unwrap_err().contains("scale must be"));
        assert!(check(MODEL, "kind = \"binary\"\npositive = [\"1\"]").unwrap_err().contains("kind = \"number\""));
    }

    #[test]
    fn predictions_have_the_interval_and_the_distribution_of_student() {
        let prediction = HeavyTailed(MODEL).predict(1.0, 0.0);
        let Prediction::HeavyTailed { variance, .. } = prediction else { panic!("a number") };
        assert!((variance - 0.5).abs() < 1e-15);
        let interval = prediction.interval(Level::P90);
        assert!(
            (interval.upper - (1.0 + 0.5 * 2.131_846_786_326_65)).abs() < 1e-8 && (interval.lower + interval.upper - 2.0).abs() < 1e-12
        );
        assert!((prediction.transform(interval.upper).unwrap() - 0.95).abs() < 1e-9);
        let density = HeavyTailed(MODEL).log_density(1.0, 0.0, 1.0);
        // That of t with four degrees of freedom at 0 is 3/8.
        assert!((density - (0.375_f64 / 0.5).ln()).abs() < 1e-9);
    }

    /// By sums over the density: E r² and −E ∂r/∂a are the share of E c.
    #[test]
    fn the_information_is_a_share_of_the_curvature() {
        let law = HeavyTailed(MODEL);
        let (mut curvature, mut square, mut slope) = (0.0, 0.0, 0.0);
        for k in -20_000..=20_000 {
            let y = 1e-2 * f64::from(k);
            let weight = 1e-2 * law.log_density(0.0, 0.0, y).exp();
            let [below, at, above] = [-1e-4, 0.0, 1e-4].map(|mean| Predictor::statistics(&MODEL, mean, 0.0, y));
            curvature += weight * at.curvature;
            square += weight * at.residual * at.residual;
            slope += weight * (below.residual - above.residual) / 2e-4;
        }
        let share = MODEL.information_share();
        assert!((curvature - 4.0).abs() < 1e-4, "{curvature}");
        assert!((square - share * curvature).abs() < 1e-4 && (slope - share * curvature).abs() < 1e-4, "{square} {slope}");
    }

    proptest! {
        /// What [`ModelRules::predictor_bounds`] promises, at any predictor and label.
        #[test]
        fn residual_and_curvature_keep_to_their_public_bounds(
            mean in -1e3..1e3_f64, sd in 0.0..1e2_f64, error in -40.0..40.0_f64, nu in 2.001..1000.0_f64, scale in 0.01..50.0_f64,
        ) {
            let model = RobustRegression { degrees_of_freedom: nu, scale };
            let bounds = model.predictor_bounds(Ranges { row: 1.0, label: 1.0 }).unwrap();
            for target in [mean + error, mean + scale * nu.sqrt(), 1e12] {
                for variance in [sd * sd, 0.0] {
                    let at = Predictor::statistics(&model, mean, variance, target);
                    prop_assert!(at.residual.abs() <= bounds.residual * (1.0 + 1e-12), "{at:?}");
                    prop_assert!((0.0..=bounds.curvature * (1.0 + 1e-12)).contains(&at.curvature), "{at:?}");
                }
            }
        }
    }
}
