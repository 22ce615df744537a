//! P(y ≤ j) = σ(α_j − xᵀβ).

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use super::law::OrderedLaw;
use super::rows::Thresholds;
use crate::likelihood::Likelihood;
use crate::parameters::{OwnParameter, Parameters};
use crate::prediction::{Law, Outcome};
use crate::response::Response;
use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require, wrong_outcome};
use crate::spec::words::Short;
use crate::{Bounds, ModelOptions, ModelRules, PredictorBounds, Ranges};
use dp_pvi_schema::{LabelKind, Schema};

/// Options of an ordinal regression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrdinalRegression {
    /// J: number of classes.
    pub classes: u32,
    /// Prior means of κ_1, and of every other κ.
    pub threshold_mean: [f64; 2],
    /// Prior standard deviations of κ_1, and of every other κ.
    pub threshold_scale: [f64; 2],
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    classes: Option<u32>,
    /// Default: 0 and 0.5.
    threshold_mean: Option<[f64; 2]>,
    /// Default: 2.5 and 1.
    threshold_scale: Option<[f64; 2]>,
}

/// Most classes: scores have no more.
const MAX_CLASSES: u32 = 100;

impl ModelOptions for OrdinalRegression {
    const NAME: &'static str = "ordinal-regression";
    const HELP: &'static str = "one of several ordered classes, through a logit and thresholds";
    type Raw = Raw;

    fn explicit(written: Raw) -> Result<Self, TaskError> {
        let Some(classes) = written.classes else {
            return invalid("ordinal-regression needs classes, the number of values that the outcome's column lists");
        };
        Ok(Self {
            classes,
            threshold_mean: written.threshold_mean.unwrap_or([0.0, 0.5]),
            threshold_scale: written.threshold_scale.unwrap_or([2.5, 1.0]),
        })
    }
}

impl ModelRules for OrdinalRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require((3..=MAX_CLASSES).contains(&self.classes), "classes must lie between 3 and 100: two classes have a family of their own")?;
        require(self.threshold_mean.iter().all(|mean| mean.abs() <= 1e3), "threshold_mean must be two numbers between -1000 and 1000")?;
        require(self.threshold_scale.iter().all(|scale| positive(*scale)), "threshold_scale must be two numbers between 1e-30 and 1e30")?;
        require(
            self.threshold_mean[0].abs() <= 20.0 + 3.0 * self.threshold_scale[0],
            "the first number of threshold_mean leaves one class hardly any probability: it is the log odds of the first class, 0 where half of the records are of it",
        )?;
        let LabelKind::Classes { values } = &schema.label().kind else {
            return wrong_outcome(
                schema,
                "ordinal-regression",
                "one of several ordered classes, a column with kind = \"category\" and values in their order",
            );
        };
        require(values.len() == self.classes as usize, "classes must be the number of values that the outcome's column lists")
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of_rows(*self)
    }

    /// β, then κ.
    fn parameters(&self, features: u32) -> Parameters {
        let threshold = |j: u32| {
            let (mean, scale) = self.prior_of(j);
            OwnParameter { name: format!("threshold.{}", j + 1), mean, scale }
        };
        Parameters::between(Vec::new(), features, (0..self.thresholds()).map(threshold).collect(), false)
    }

    fn response(&self) -> Response<'_> {
        Response::classes(self.classes)
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        if outcome.posterior.family().dimension() < self.thresholds() as usize {
            return Err(InvalidParameters::Domain("not the coefficients of so many classes"));
        }
        Ok(Arc::new(OrderedLaw::new(*self, Arc::clone(&outcome.posterior))))
    }

    /// Of the whole record: r̄R bounds its gradient, c̄R² its curvature and the matrix above all curvatures, under a mean field, too.
    ///
    /// # Privacy
    /// Residuals ρ lie in [0, 1], curvatures in [0, ¼], slopes of α in [0, 1], whatever the numbers are.
    ///
    /// * β has the gradient (ρ_w − ρ_u) x, of length at most R. κ_1 and every κ_i, i < j, have σ(m_i)(ρ_u − ρ_w), at most 1; κ_j has σ(m_j)ρ_u + ρ_gap ≤ 2. So
    ///   ‖g‖² ≤ R² + (J − 2) + 4 = R² + J + 2.
    /// * ‖H‖ ≤ ¼ Σ ‖row‖², the rows being of squared length R² + j, R² + j − 1 and 1 with 1 < j < J, or R² + 1, or R² + J − 1, so that
    ///   ‖H‖ ≤ ¼(2(R² + J − 1) + 1). The diagonal of H is no longer than H: the bound of the curvature holds for the whole record, whatever its largest entry is.
    fn bounds(&self, ranges: Ranges) -> Bounds {
        let (square, classes) = (ranges.row * ranges.row, f64::from(self.classes));
        let gradient = (square + classes + 2.0).sqrt();
        let bounds = PredictorBounds {
            residual: gradient / ranges.row,
            curvature: 0.25 * (2.0 * (square + classes - 1.0) + 1.0) / square,
            free_curvature: None,
        };
        Bounds::of(Ranges { entry: ranges.row, ..ranges }, bounds).with_gradient(gradient)
    }
}

impl OrdinalRegression {
    /// α_1 < … < α_(J−1) of these κ.
    #[must_use]
    pub fn thresholds_at(&self, kappa: &[f64]) -> Vec<f64> {
        Thresholds::at(kappa).values
    }

    /// J − 1.
    pub(super) fn thresholds(&self) -> u32 {
        self.classes.saturating_sub(1)
    }

    /// Columns of a row, of this many coefficients.
    #[allow(clippy::cast_possible_truncation, reason = "no more than 2^32 coefficients are accepted")]
    pub(super) fn width(&self, coefficients: usize) -> u32 {
        (coefficients as u32).saturating_sub(self.thresholds())
    }

    /// The class that a target is, from 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below the number of classes")]
    pub(super) fn class(&self, target: f64) -> Option<usize> {
        let within = target >= 0.0 && target < f64::from(self.classes) && target.fract() == 0.0;
        within.then_some(target as usize)
    }

    /// Prior mean and standard deviation of κ_(j+1).
    pub(super) fn prior_of(&self, j: u32) -> (f64, f64) {
        let which = usize::from(j > 0);
        (self.threshold_mean[which], self.threshold_scale[which])
    }
}

impl Display for OrdinalRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let ([first_mean, mean], [first_scale, scale]) = (self.threshold_mean.map(Short), self.threshold_scale.map(Short));
        write!(
            f,
            "ordinal regression, {} classes, thresholds with prior mean {first_mean} and scale {first_scale}, steps {mean} and {scale}",
            self.classes
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use dp_pvi_math::expfam::any::{Family, Gaussian};
    use dp_pvi_schema::Schema;
    use nalgebra::{DMatrix, DVector};
    use proptest::prelude::*;

    use super::OrdinalRegression;
    use crate::many_rows::testing::{blocks, check_bounds, check_derivatives, record_and_posterior};
    use crate::prediction::{Example, Outcome, Prediction};
    use crate::spec::{Prior, PriorSpec};
    use crate::{ModelRules, ModelSpec};

    fn model(classes: u32) -> OrdinalRegression {
        OrdinalRegression { classes, threshold_mean: [0.0, 0.5], threshold_scale: [2.5, 1.0] }
    }

    fn schema(label: &str) -> Schema {
        let column = "[[columns]]\nname = \"a\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n";
        Schema::asking("y ~ 0 + .", &format!("[[columns]]\nname = \"y\"\n{label}\n{column}")).unwrap()
    }

    const THREE: &str = "kind = \"category\"\nvalues = [\"mild\", \"moderate\", \"severe\"]";

    #[test]
    fn thresholds_stand_behind_the_coefficients_and_have_priors_of_their_own() {
        let schema = schema(THREE);
        assert_eq!(ModelSpec::from(model(3)).rules().names(&schema), ["a", "threshold.1", "threshold.2"]);
        let rows = Prior { mean: vec![0.3], precision: vec![4.0], groups: Vec::new() };
        let prior = model(4).parameters(1).prior(rows, PriorSpec { mean: 0.3, scale: 0.5 });
        assert_eq!((prior.mean, prior.precision), (vec![0.3, 0.0, 0.5, 0.5], vec![4.0, 0.16, 1.0, 1.0]));
        let words = "ordinal regression, 3 classes, thresholds with prior mean 0 and scale 2.5, steps 0.5 and 1";
        assert_eq!(ModelSpec::from(model(3)).to_string(), words);
    }

    #[test]
    fn a_label_or_a_row_that_does_not_fit_is_refused_with_what_to_write() {
        let check = |model: OrdinalRegression, label: &str| model.check(&schema(label)).map_err(|error| error.to_string());
        assert_eq!(check(model(3), THREE), Ok(()));
        assert!(check(model(4), THREE).unwrap_err().contains("number of values"));
        assert!(check(model(2), THREE).unwrap_err().contains("a family of their own"));
        assert!(
            check(model(3), "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]").unwrap_err().contains("in their order")
        );
        let wide = OrdinalRegression { threshold_scale: [0.0, 1.0], ..model(3) };
        assert!(check(wide, THREE).unwrap_err().contains("threshold_scale"));
    }

    /// The three logits are the probability of the class itself.
    #[test]
    fn certain_coefficients_give_the_log_probability() {
        let model = model(4);
        let mean = [0.8, -0.4, -0.5, 0.3, -1.0];
        let alpha = model.thresholds_at(&mean[2..]);
        let eta = 0.8 * 0.5 - 0.4 * -0.2;
        let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
        let below: Vec<f64> = [0.0].into_iter().chain(alpha.iter().map(|alpha| sigmoid(alpha - eta))).chain([1.0]).collect();
        let q = crate::many_rows::testing::certain(&mean);
        for target in 0..4_u32 {
            let record =
                Example { indices: &[0, 1], values: &[0.5, -0.2], target: f64::from(target), offset: 0.0, extra: Default::default() };
            let found = blocks(&model, record, &q, &mean).0;
            let expected = (below[target as usize + 1] - below[target as usize]).ln();
            assert!((found - expected).abs() < 1e-6, "{target}: {found} {expected}");
        }
    }

    #[test]
    fn expectations_of_the_log_density_have_the_stated_derivatives() {
        let root = DMatrix::from_fn(6, 6, |i, j| 0.3 * ((3 * i + 5 * j) as f64).sin());
        let covariance = &root * root.transpose() + DMatrix::identity(6, 6) * 0.1;
        let mean = DVector::from_fn(6, |i, _| 0.4 * (i as f64).cos());
        for target in [0.0, 1.0, 2.0, 3.0] {
            let record = Example { indices: &[0, 1, 2], values: &[1.0, -0.7, 0.4], target, offset: 0.0, extra: Default::default() };
            check_derivatives(&model(4), record, &mean, &covariance);
        }
    }

    #[test]
    fn predictions_are_probabilities_of_all_classes() {
        let natural = vec![1.0, -0.5, 2.0, 1.0, 2.0, 4.0];
        let posterior = Arc::new(Gaussian::from_natural(Family::DiagonalGaussian { dimension: 3 }, natural).unwrap());
        let law = model(3).law(&Outcome { posterior, state: None, noise_sd: None }).unwrap();
        assert_eq!(law.dimension(), 1);
        let record = |target| Example { indices: &[0], values: &[0.5], target, offset: 0.0, extra: Default::default() };
        let Prediction::Classes { probabilities } = law.predict(record(0.0)) else { panic!("classes") };
        let masses: Vec<f64> = (0..3).map(|k| law.log_density(record(f64::from(k))).exp()).collect();
        assert!(masses.iter().zip(&probabilities).all(|(a, b)| (a - b).abs() < 1e-12) && (masses.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(probabilities.iter().all(|p| *p > 0.0));
    }

    proptest! {
        /// What [`ModelRules::predictor_bounds`] promises, at any record and posterior.
        #[test]
        fn blocks_keep_to_their_public_bounds(
            ((x, mean, covariance), classes) in (3_u32..7).prop_flat_map(|classes| (record_and_posterior(2 + classes as usize), Just(classes))),
            share in 0.0..1.0_f64,
        ) {
            let target = (share * f64::from(classes)).floor();
            check_bounds(&model(classes), target, &x, &mean, &covariance)?;
        }
    }
}
