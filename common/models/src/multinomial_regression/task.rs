//! P(y = k) ∝ exp(xᵀθ_k).

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use super::law::ClassLaw;
use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Law, Outcome};
use crate::response::Response;
use crate::spec::TaskError;
use crate::spec::check::{invalid, require, wrong_outcome};
use crate::{BlockBounds, Bounds, ModelOptions, ModelRules, PredictorBounds, Ranges};
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a multinomial regression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MultinomialRegression {
    /// K: number of classes, the reference among them.
    pub classes: u32,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    classes: Option<u32>,
}

/// Most classes: the work of a record grows with their square.
const MAX_CLASSES: u32 = 100;

impl ModelOptions for MultinomialRegression {
    const NAME: &'static str = "multinomial-regression";
    const HELP: &'static str = "one of several classes in no order, each with a logit against the first";
    type Raw = Raw;

    fn explicit(Raw { classes }: Raw) -> Result<Self, TaskError> {
        match classes {
            Some(classes) => Ok(Self { classes }),
            None => invalid("multinomial-regression needs classes, the number of values that the outcome's column lists"),
        }
    }
}

impl ModelRules for MultinomialRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        require((2..=MAX_CLASSES).contains(&self.classes), "classes must lie between 2 and 100")?;
        let LabelKind::Classes { values } = &schema.label().kind else {
            return wrong_outcome(
                schema,
                "multinomial-regression",
                "one of several classes, a column with kind = \"category\" and values, the reference first",
            );
        };
        require(values.len() == self.classes as usize, "classes must be the number of values that the outcome's column lists")
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of_rows(*self)
    }

    fn parameters(&self, features: u32) -> Parameters {
        Parameters::of_classes(features, self.classes)
    }

    fn response(&self) -> Response<'_> {
        Response::classes(self.classes)
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        if !outcome.posterior.family().dimension().is_multiple_of(self.predictors() as usize) {
            return Err(InvalidParameters::Domain("not the coefficients of so many classes"));
        }
        Ok(Arc::new(ClassLaw::new(*self, Arc::clone(&outcome.posterior))))
    }

    /// Of the whole record: r̄R bounds its gradient, c̄R² its curvature and the matrix above all curvatures.
    ///
    /// # Privacy
    /// For p with p_k ≥ 0 and Σ p_k ≤ 1 over the classes but the reference, r = e_y − p and C = diag p − ppᵀ; the numbers that are computed are of this form.
    ///
    /// * ‖r‖² = (1 − p_y)² + Σ_{k≠y} p_k² ≤ 2(1 − p_y)² ≤ 2, and ‖p‖ ≤ 1 for y the reference. With two classes |r| ≤ 1. ‖r ⊗ x‖ = ‖r‖ ‖x‖.
    /// * With s_n = Σ p_k^n, ‖C‖² = s_2 − 2s_3 + s_2² ≤ s_2 − s_2² ≤ ¼, as s_2² ≤ s_1 s_3 ≤ s_3. With two classes |C| ≤ ¼. ‖C ⊗ xxᵀ‖ = ‖C‖ ‖x‖².
    /// * ½(I − 11ᵀ/K) has the eigenvalue 1/(2K) once and ½ for the P − 1 others: its norm is ½√(P − 1 + 1/K²), P = K − 1. It is above C: both are
    ///   blocks of K × K matrices, and for these see Böhning (1992).
    ///
    /// The curvature is free up to k = √2: no eigenvalue of C is above ½, since its rows' sums of absolute values are at most 2p_k(1 − p_k), so that
    /// ‖C‖² ≤ ½ tr C ≤ ½(1 − s_2). As ‖r‖² = 1 − 2p_y + s_2, or s_2 for the reference, ‖r‖² + 2‖C‖² ≤ 2. The block of a mean field is the diagonal of C ⊗ xxᵀ, with
    /// ‖x∘x‖ in place of ‖x‖² ≥ ‖x∘x‖. With two classes C = |r|(1 − |r|), and k is that of a logit.
    ///
    /// The blocks are bounded by themselves: ‖diag C‖² = Σ p_k²(1 − p_k)². No summand is above 1/16, so that two of them are at most 1/8. A summand is at most 4/27 of p_k,
    /// since p(1 − p)² is largest at p = ⅓: any number of them is at most 4/27.
    fn bounds(&self, ranges: Ranges) -> Bounds {
        let logit = PredictorBounds::logit();
        let (others, classes) = (f64::from(self.predictors()) - 1.0, f64::from(self.classes));
        let above = 0.5 * (others + classes.powi(-2)).sqrt();
        let residual = self.residual_bound();
        let predictor = match self.classes {
            2 => logit,
            _ => PredictorBounds { residual, curvature: above.max(0.5), free_curvature: Some(std::f64::consts::SQRT_2) },
        };
        let (full, diagonal) = match self.classes {
            2 => (0.25, 0.25),
            3 => (0.5, (1.0_f64 / 8.0).sqrt()),
            _ => (0.5, (4.0_f64 / 27.0).sqrt()),
        };
        let blocks = BlockBounds {
            mean: residual * ranges.row,
            precision_full: full * (ranges.row * ranges.row),
            precision_mean_field: diagonal * (ranges.row * ranges.entry.min(ranges.row)),
        };
        Bounds { blocks: Some(blocks), ..Bounds::of(ranges, predictor) }.with_gradient(residual * ranges.row)
    }
}

impl MultinomialRegression {
    /// P = K − 1.
    pub(super) fn predictors(&self) -> u32 {
        self.classes.saturating_sub(1).max(1)
    }

    /// Columns of a row, of this many coefficients.
    #[allow(clippy::cast_possible_truncation, reason = "no more than 2^32 coefficients are accepted")]
    pub(super) fn width(&self, coefficients: usize) -> u32 {
        coefficients as u32 / self.predictors()
    }

    /// The class that a target is, from 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below the number of classes")]
    pub(super) fn class(&self, target: f64) -> Option<usize> {
        let within = target >= 0.0 && target < f64::from(self.classes) && target.fract() == 0.0;
        within.then_some(target as usize)
    }

    /// ‖r‖ is no larger.
    fn residual_bound(&self) -> f64 {
        if self.classes == 2 { 1.0 } else { std::f64::consts::SQRT_2 }
    }
}

impl Display for MultinomialRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "multinomial regression, {} classes", self.classes)
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

    use super::MultinomialRegression;
    use crate::many_rows::testing::{check_bounds, check_derivatives, record_and_posterior};
    use crate::many_rows::{ManyRows, Place, PseudoRows};
    use crate::prediction::{Example, Outcome, Prediction};
    use crate::spec::{Prior, PriorSpec};
    use crate::{ModelRules, ModelSpec};

    fn schema(label: &str) -> Schema {
        let column = "[[columns]]\nname = \"a\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n";
        Schema::asking("y ~ .", &format!("[[columns]]\nname = \"y\"\n{label}\n{column}")).unwrap()
    }

    const THREE: &str = "kind = \"category\"\nvalues = [\"none\", \"late\", \"early\"]";

    #[test]
    fn a_class_is_in_the_names_of_its_coefficients() {
        let model = MultinomialRegression { classes: 3 };
        assert_eq!(
            ModelSpec::from(model).rules().names(&schema(THREE)),
            ["late: a", "late: (intercept)", "early: a", "early: (intercept)"]
        );
        assert_eq!((model.parameters(2).count(), model.parameters(u32::MAX).count()), (4, u32::MAX));
        assert_eq!(ModelSpec::from(model).to_string(), "multinomial regression, 3 classes");
        let rows = Prior { mean: vec![0.5, -0.5], precision: vec![1.0, 4.0], groups: Vec::new() };
        assert_eq!(model.parameters(2).prior(rows, PriorSpec { mean: 0.0, scale: 1.0 }).precision, [1.0, 4.0, 1.0, 4.0]);
    }

    #[test]
    fn a_label_that_has_not_these_classes_is_refused_with_what_to_write() {
        let check = |classes: u32, label: &str| MultinomialRegression { classes }.check(&schema(label)).map_err(|error| error.to_string());
        assert_eq!(check(3, THREE), Ok(()));
        assert!(check(4, THREE).unwrap_err().contains("classes must be the number of values"));
        assert!(check(1, THREE).unwrap_err().contains("between 2 and 100"));
        assert!(
            check(3, "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]")
                .unwrap_err()
                .contains("kind = \"category\" and values")
        );
        let written = crate::ModelFamily::named("multinomial-regression").unwrap().resolve(&toml::Table::new());
        assert!(written.unwrap_err().to_string().contains("needs classes"));
    }

    #[test]
    fn expectations_of_the_log_density_have_the_stated_derivatives() {
        let root = DMatrix::from_fn(6, 6, |i, j| 0.3 * ((3 * i + 5 * j) as f64).sin());
        let covariance = &root * root.transpose() + DMatrix::identity(6, 6) * 0.1;
        let mean = DVector::from_fn(6, |i, _| 0.4 * (i as f64).cos());
        for target in [0.0, 1.0, 2.0] {
            let record = Example { indices: &[0, 1, 2], values: &[1.0, -0.7, 0.4], target, offset: 0.0, extra: Default::default() };
            check_derivatives(&MultinomialRegression { classes: 3 }, record, &mean, &covariance);
        }
    }

    /// What is no class, or no number, adds nothing.
    #[test]
    fn a_record_without_a_class_contributes_nothing() {
        let q = Gaussian::from_natural(Family::DiagonalGaussian { dimension: 4 }, vec![0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]).unwrap();
        for (x, target) in [(1.0, 3.0), (1.0, 0.5), (1.0, f64::NAN), (1.0, -1.0), (f64::NAN, 1.0), (f64::INFINITY, 0.0)] {
            let mut rows = PseudoRows::default();
            let record = Example { indices: &[0], values: &[x], target, offset: 0.0, extra: Default::default() };
            MultinomialRegression { classes: 3 }.write(record, &Place::at(q.standard()), &mut rows);
            assert!(rows.iter().count() == 0 && rows.expected() == 0.0, "{x} {target}");
        }
    }

    #[test]
    fn predictions_are_probabilities_of_all_classes() {
        let model = MultinomialRegression { classes: 3 };
        let posterior = Arc::new(
            Gaussian::from_natural(Family::DiagonalGaussian { dimension: 4 }, vec![1.0, 0.0, 0.0, 2.0, 1.0, 1.0, 1.0, 4.0]).unwrap(),
        );
        let law = model.law(&Outcome { posterior, state: None, noise_sd: None }).unwrap();
        assert_eq!(law.dimension(), 2);
        let record = |target| Example { indices: &[0, 1], values: &[0.5, 1.0], target, offset: 0.0, extra: Default::default() };
        let Prediction::Classes { probabilities } = law.predict(record(0.0)) else { panic!("classes") };
        let masses: Vec<f64> = (0..3).map(|k| law.log_density(record(f64::from(k))).exp()).collect();
        assert!(masses.iter().zip(&probabilities).all(|(a, b)| (a - b).abs() < 1e-12) && (masses.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let three =
            Arc::new(Gaussian::from_natural(Family::DiagonalGaussian { dimension: 3 }, vec![0.0, 0.0, 0.0, 1.0, 1.0, 1.0]).unwrap());
        assert!(model.law(&Outcome { posterior: three, state: None, noise_sd: None }).is_err());
    }

    proptest! {
        /// What [`ModelRules::bounds`] promises, at any record and posterior.
        #[test]
        fn blocks_keep_to_their_public_bounds(
            ((x, mean, covariance), classes) in (2_u32..6).prop_flat_map(|classes| (record_and_posterior(3 * (classes as usize - 1)), Just(classes))),
            share in 0.0..1.0_f64,
        ) {
            let target = (share * f64::from(classes)).floor();
            check_bounds(&MultinomialRegression { classes }, target, &x, &mean, &covariance)?;
        }
    }
}
