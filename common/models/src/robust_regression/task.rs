//! y = xᵀθ + σ t, t of Student's distribution.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::special::ln_gamma;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Law, Outcome, Prediction, PredictorLaw, of_predictor};
use crate::predictor::{Predictor, Shape, Statistics};
use crate::response::Response;
use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require, require_outcome};
use crate::spec::words::Short;
use crate::{Bounds, LearnedScale, ModelOptions, ModelRules, ModelSpec, PredictorBounds, Ranges};
use dp_pvi_math::observation::Precision;
use dp_pvi_math::student::NormalPlusStudent;
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a robust regression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RobustRegression {
    /// ν.
    pub degrees_of_freedom: f64,
    /// σ, in units of the label after centre and scale; where it is learned, the guess √(rate/shape) from which that starts.
    pub scale: f64,
    /// Prior of 1/σ², where σ is learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Precision>,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// Default: 4.
    degrees_of_freedom: Option<f64>,
    scale: Option<WrittenScale>,
    /// Default: 1.
    scale_shape: Option<f64>,
    /// Default: 0.25.
    scale_rate: Option<f64>,
}

/// σ, or that it is learned.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "scale must be a number, or \"learned\"")]
enum WrittenScale {
    Known(f64),
    Word(String),
}

/// a and b of a learned scale where the task has none: the guess of σ is ½, and counts as two records.
const SHAPE: f64 = 1.0;
const RATE: f64 = 0.25;

impl ModelOptions for RobustRegression {
    const NAME: &'static str = "robust-regression";
    const HELP: &'static str = "a number with outliers, linear in the features, with noise of Student's distribution";
    type Raw = Raw;

    fn explicit(Raw { degrees_of_freedom, scale, scale_shape, scale_rate }: Raw) -> Result<Self, TaskError> {
        let degrees_of_freedom = degrees_of_freedom.unwrap_or(4.0);
        match scale {
            Some(WrittenScale::Known(scale)) if scale_shape.is_none() && scale_rate.is_none() => {
                Ok(Self { degrees_of_freedom, scale, learned: None })
            }
            Some(WrittenScale::Word(word)) if word == "learned" => {
                Ok(Self::learning(degrees_of_freedom, Precision { shape: scale_shape.unwrap_or(SHAPE), rate: scale_rate.unwrap_or(RATE) }))
            }
            Some(WrittenScale::Known(_)) => {
                invalid("scale_shape and scale_rate are those of a scale that is learned: write scale = \"learned\", or remove them")
            }
            Some(WrittenScale::Word(_)) => invalid("scale of robust-regression must be a number, or \"learned\""),
            None => invalid(
                "robust-regression needs scale, that of an observation's noise in units of the label after centre and scale: where outliers are left out, \
                 about the standard deviation; or scale = \"learned\"",
            ),
        }
    }
}

impl RobustRegression {
    /// With a scale that is learned from this prior of 1/σ² on.
    #[must_use]
    pub fn learning(degrees_of_freedom: f64, prior: Precision) -> Self {
        Self { degrees_of_freedom, scale: prior.scale(), learned: Some(prior) }
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
        if let Some(prior) = self.learned {
            require(
                (0.01..=1e6).contains(&prior.shape) && (1e-12..=1e12).contains(&prior.rate),
                "scale_shape must lie between 0.01 and 1e6, and scale_rate between 1e-12 and 1e12",
            )?;
            require(
                (self.scale / prior.scale() - 1.0).abs() < 1e-9,
                "the scale from which learning starts is not that of its prior: use the same version on both sides",
            )?;
        }
        require_outcome(
            matches!(schema.label().kind, LabelKind::Number { .. }),
            schema,
            "robust-regression",
            "a number, a column with kind = \"number\"",
        )
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of(Student::new(self.degrees_of_freedom, self.scale))
    }

    fn parameters(&self, features: u32) -> Parameters {
        Parameters::of_row(features)
    }

    fn response(&self) -> Response<'_> {
        Response::number(self.scale)
    }

    /// With the scale that the run learned, where it did.
    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        let scale = outcome.noise_sd.filter(|_| self.learned.is_some()).unwrap_or(self.scale);
        Ok(of_predictor(outcome, HeavyTailed(Self { scale, learned: None, ..*self })))
    }

    /// |r| ≤ (ν + 1)/(2σ√ν), 0 ≤ c ≤ (ν + 1)/(νσ²); of (σr, σ²c) where σ is learned.
    ///
    /// # Privacy
    /// With e = y − a, |r| ≤ (ν + 1)|e|/(νσ² + e²), and νσ² + e² ≥ 2σ√ν |e| since (σ√ν − |e|)² ≥ 0. The denominator of c is at least νσ². Neither the label nor
    /// the posterior has to be bounded.
    ///
    /// The curvature is not free: where e² = νσ², r is at its bound, and c is not 0.
    fn bounds(&self, ranges: Ranges) -> Bounds {
        let (nu, scale) = (self.degrees_of_freedom, if self.learned.is_some() { 1.0 } else { self.scale });
        let curvature = (nu + 1.0) / (nu * scale * scale);
        let residual = 0.5 * (nu + 1.0) / (scale * nu.sqrt());
        Bounds::of(ranges, PredictorBounds { residual, curvature, free_curvature: None }).with_gradient(residual * ranges.row)
    }

    /// ∂E log p/∂ ln σ² = ½(t − 1) with t = (ν + 1)Q/(νσ² + Q); its information is ν/(2(ν + 3)) (Lange, Little and Taylor 1989).
    fn learned_scale(&self) -> Option<LearnedScale> {
        let nu = self.degrees_of_freedom;
        self.learned.map(|prior| LearnedScale {
            prior,
            largest: nu + 1.0,
            information: 0.5 * nu / (nu + 3.0),
            // ½E t″ over E −(ln p)″ of a t variable.
            excess: (nu + 2.0) / (nu + 5.0),
        })
    }

    fn with_scale(&self, scale: f64) -> Option<ModelSpec> {
        self.learned.map(|_| Self { scale, learned: None, ..*self }.into())
    }
}

/// The likelihood. t is normal with precision ω ~ Gamma(ν/2, ν/2). With ω of a record integrated by a distribution of its own, and Q = (y − a)² + s²,
/// f = ln Γ((ν + 1)/2) − ln Γ(ν/2) − ½ ln(πνσ²) − ((ν + 1)/2) ln(1 + Q/(νσ²)), a lower bound of E log p by Jensen's inequality, and log p itself where s² = 0.
///
/// f is not concave in a, but convex in Q. A step of natural-gradient ascent maximises the tangent of f in Q, which lies below f, so that no step of an exact fit
/// makes the bound smaller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Student {
    degrees_of_freedom: f64,
    scale: f64,
    /// What of f does not depend on Q.
    log_constant: f64,
}

impl Student {
    /// With ν and σ, both above 0.
    #[must_use]
    pub fn new(degrees_of_freedom: f64, scale: f64) -> Self {
        let gamma = ln_gamma(0.5 * (degrees_of_freedom + 1.0)) - ln_gamma(0.5 * degrees_of_freedom);
        let log_constant = gamma - 0.5 * (std::f64::consts::PI * degrees_of_freedom * scale * scale).ln();
        Self { degrees_of_freedom, scale, log_constant }
    }
}

/// r = (ν + 1)(y − a)/(νσ² + Q), c = (ν + 1)/(νσ² + Q).
impl Predictor for Student {
    #[inline]
    fn statistics(&self, mean: f64, variance: f64, target: f64) -> Statistics {
        let (nu, error) = (self.degrees_of_freedom, target - mean);
        let curvature = (nu + 1.0) / (nu * self.scale * self.scale + error * error + variance);
        Statistics { residual: curvature * error, curvature }
    }

    fn expected_log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        let (nu, scale) = (self.degrees_of_freedom, self.scale);
        let square = (target - mean).powi(2) + variance;
        self.log_constant - 0.5 * (nu + 1.0) * (square / (nu * scale * scale)).ln_1p()
    }

    /// E c where y has its distribution.
    fn typical_curvature(&self, _target: f64) -> f64 {
        self.scale.powi(-2)
    }

    fn shape(&self) -> Shape {
        Shape::Other
    }

    /// The information of Student's distribution is (ν + 1)/((ν + 3)σ²) (Lange, Little and Taylor 1989), and E c = 1/σ².
    fn information_share(&self) -> f64 {
        (self.degrees_of_freedom + 1.0) / (self.degrees_of_freedom + 3.0)
    }
}

#[derive(Debug)]
struct HeavyTailed(RobustRegression);

impl HeavyTailed {
    fn of(&self, mean: f64, variance: f64) -> NormalPlusStudent {
        let RobustRegression { degrees_of_freedom, scale, .. } = self.0;
        NormalPlusStudent { mean, variance, scale, degrees_of_freedom }
    }
}

impl PredictorLaw for HeavyTailed {
    fn predict(&self, mean: f64, variance: f64) -> Prediction {
        let RobustRegression { degrees_of_freedom: nu, scale, .. } = self.0;
        Prediction::HeavyTailed { mean, variance: variance + scale * scale * nu / (nu - 2.0), law: self.of(mean, variance) }
    }

    fn log_density(&self, mean: f64, variance: f64, target: f64) -> f64 {
        self.of(mean, variance).log_density(target)
    }
}

impl Display for RobustRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let nu = Short(self.degrees_of_freedom);
        match self.learned {
            None => write!(f, "robust regression, {nu} degrees of freedom, scale {}", Short(self.scale)),
            Some(prior) => write!(
                f,
                "robust regression, {nu} degrees of freedom, scale learned (guess {}, which counts as {} records)",
                Short(self.scale),
                Short(2.0 * prior.shape)
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_schema::Schema;
    use proptest::prelude::*;

    use super::{HeavyTailed, RobustRegression, Student};
    use crate::prediction::{Level, Prediction, PredictorLaw};
    use crate::predictor::Predictor;
    use crate::{ModelFamily, ModelRules, ModelSpec, Ranges};
    use dp_pvi_math::observation::Precision;

    const MODEL: RobustRegression = RobustRegression { degrees_of_freedom: 4.0, scale: 0.5, learned: None };

    #[test]
    fn the_model_is_described_in_words() {
        assert_eq!(ModelSpec::from(MODEL).to_string(), "robust regression, 4 degrees of freedom, scale 0.5");
    }

    fn written(options: &str) -> Result<ModelSpec, String> {
        let table = toml::from_str(options).unwrap();
        ModelFamily::named("robust-regression").unwrap().resolve(&table).map_err(|error| error.to_string())
    }

    #[test]
    fn a_scale_is_a_number_or_learned() {
        assert_eq!(written("scale = 2").unwrap(), ModelSpec::from(RobustRegression { scale: 2.0, ..MODEL }));
        let learned = written("scale = \"learned\"").unwrap();
        assert_eq!(learned.to_string(), "robust regression, 4 degrees of freedom, scale learned (guess 0.5, which counts as 2 records)");
        let other = written("scale = \"learned\"\nscale_shape = 2.0\nscale_rate = 8.0").unwrap();
        assert_eq!(other, ModelSpec::from(RobustRegression::learning(4.0, Precision { shape: 2.0, rate: 8.0 })));
        // In a document a known scale stands as it always did, and a learned one is read as it is written.
        assert_eq!(
            serde_json::to_string(&ModelSpec::from(MODEL)).unwrap(),
            r#"{"family":"robust-regression","degrees_of_freedom":4.0,"scale":0.5}"#
        );
        let text = serde_json::to_string(&other).unwrap();
        assert_eq!(serde_json::from_str::<ModelSpec>(&text).unwrap(), other, "{text}");
        for (options, words) in [
            ("scale = \"guessed\"", "or \"learned\""),
            ("scale = true", "scale must be a number, or \"learned\""),
            ("scale = 1.0\nscale_rate = 1.0", "write scale = \"learned\""),
            ("", "or scale = \"learned\""),
        ] {
            let error = written(options).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    /// With a known scale, what a learned one says where it has this value, in units of it; and t is what c makes of Q.
    #[test]
    fn a_learned_scale_has_bounds_in_its_own_units() {
        let learned = RobustRegression::learning(4.0, Precision { shape: 1.0, rate: 0.25 });
        let (ranges, at) = (Ranges { row: 1.0, entry: 1.0, label: 1.0, times: None }, learned.with_scale(0.3).unwrap());
        let (own, known) = (learned.bounds(ranges).predictor.unwrap(), at.rules().bounds(ranges).predictor.unwrap());
        assert!((own.residual - 0.3 * known.residual).abs() < 1e-12 && (own.curvature - 0.09 * known.curvature).abs() < 1e-12);
        assert!(at.rules().learned_scale().is_none() && MODEL.with_scale(0.3).is_none());
        let scale = learned.learned_scale().unwrap();
        assert!((scale.information - 2.0 / 7.0).abs() < 1e-15 && (scale.largest - 5.0).abs() < 1e-15);
    }

    /// By sums over the density: E t = 1, and E (½(t − 1))² is the information of ln σ².
    #[test]
    fn the_information_of_the_scale_is_that_of_its_gradient() {
        let law = HeavyTailed(MODEL);
        let (mut mean, mut square) = (0.0, 0.0);
        for k in -40_000..=40_000 {
            let y = 1e-2 * f64::from(k);
            let weight = 1e-2 * law.log_density(0.0, 0.0, y).exp();
            let t = Student::new(4.0, 0.5).statistics(0.0, 0.0, y).curvature * y * y;
            assert!((0.0..=5.0).contains(&t));
            mean += weight * t;
            square += weight * 0.25 * (t - 1.0).powi(2);
        }
        assert!((mean - 1.0).abs() < 1e-4 && (square - 2.0 / 7.0).abs() < 1e-4, "{mean} {square}");
    }

    #[test]
    fn noise_without_a_variance_and_labels_that_are_classes_are_refused() {
        let check = |model: RobustRegression, label: &str| {
            let column = "[[columns]]\nname = \"a\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n";
            let schema = Schema::asking("y ~ .", &format!("[[columns]]\nname = \"y\"\n{label}\n{column}"));
            model.check(&schema.unwrap()).map_err(|error| error.to_string())
        };
        let number = "kind = \"number\"\nlower = 0\nupper = 40\ncentre = 20\nscale = 10";
        assert_eq!(check(MODEL, number), Ok(()));
        assert!(check(RobustRegression { degrees_of_freedom: 2.0, ..MODEL }, number).unwrap_err().contains("above 2"));
        assert!(check(RobustRegression { scale: 0.0, ..MODEL }, number).unwrap_err().contains("scale must be"));
        let learning = |shape, rate| RobustRegression::learning(4.0, Precision { shape, rate });
        assert_eq!(check(learning(1.0, 0.25), number), Ok(()));
        assert!(check(learning(0.0, 0.25), number).unwrap_err().contains("scale"));
        assert!(check(learning(1.0, 1e-13), number).unwrap_err().contains("scale_rate"));
        assert!(check(RobustRegression { scale: 0.7, ..learning(1.0, 0.25) }, number).unwrap_err().contains("is not that of its prior"));
        assert!(
            check(MODEL, "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]").unwrap_err().contains("kind = \"number\"")
        );
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
            let [below, at, above] = [-1e-4, 0.0, 1e-4].map(|mean| Student::new(4.0, 0.5).statistics(mean, 0.0, y));
            curvature += weight * at.curvature;
            square += weight * at.residual * at.residual;
            slope += weight * (below.residual - above.residual) / 2e-4;
        }
        let share = Student::new(4.0, 0.5).information_share();
        assert!((curvature - 4.0).abs() < 1e-4, "{curvature}");
        assert!((square - share * curvature).abs() < 1e-4 && (slope - share * curvature).abs() < 1e-4, "{square} {slope}");
    }

    proptest! {
        /// What [`ModelRules::bounds`] promises, at any predictor and label.
        #[test]
        fn residual_and_curvature_keep_to_their_public_bounds(
            mean in -1e3..1e3_f64, sd in 0.0..1e2_f64, error in -40.0..40.0_f64, nu in 2.001..1000.0_f64, scale in 0.01..50.0_f64,
        ) {
            let model = RobustRegression { degrees_of_freedom: nu, scale, learned: None };
            let bounds = model.bounds(Ranges { row: 1.0, entry: 1.0, label: 1.0, times: None }).predictor.unwrap();
            for target in [mean + error, mean + scale * nu.sqrt(), 1e12] {
                for variance in [sd * sd, 0.0] {
                    let at = Student::new(model.degrees_of_freedom, model.scale).statistics(mean, variance, target);
                    prop_assert!(at.residual.abs() <= bounds.residual * (1.0 + 1e-12), "{at:?}");
                    prop_assert!((0.0..=bounds.curvature * (1.0 + 1e-12)).contains(&at.curvature), "{at:?}");
                }
            }
        }
    }
}
