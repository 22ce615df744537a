//! P(y ≤ j) = σ(α_j − xᵀβ).

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use super::law::OrderedLaw;
use super::rows::Thresholds;
use crate::many_rows::ManyRows;
use crate::prediction::{Law, Outcome};
use crate::spec::check::{invalid, positive, require};
use crate::spec::words::Short;
use crate::spec::{Prior, PriorSpec, TaskError};
use crate::{ModelRules, PredictorBounds, PredictorScale, PublicHalf, Ranges};
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
pub struct Written {
    classes: Option<u32>,
    /// Default: 0 and 0.5.
    threshold_mean: Option<[f64; 2]>,
    /// Default: 2.5 and 1.
    threshold_scale: Option<[f64; 2]>,
}

/// Most classes: scores have no more.
const MAX_CLASSES: u32 = 100;

impl PublicHalf for OrdinalRegression {
    const NAME: &'static str = "ordinal-regression";
    const HELP: &'static str = "one of several ordered classes, through a logit and thresholds";
    type Written = Written;

    fn explicit(written: Written) -> Result<Self, TaskError> {
        let Some(classes) = written.classes else {
            return invalid("ordinal-regression needs classes, the number of values that the schema's label lists");
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
        require((3..=MAX_CLASSES).contains(&self.classes), "classes must lie between 3 and 100: for two, use logistic-regression")?;
        require(self.threshold_mean.iter().all(|mean| mean.abs() <= 1e3), "threshold_mean must be two numbers between -1000 and 1000")?;
        require(self.threshold_scale.iter().all(|scale| positive(*scale)), "threshold_scale must be two numbers between 1e-30 and 1e30")?;
        let LabelKind::Classes { values } = &schema.label().kind else {
            return require(
                false,
                "ordinal-regression predicts one of several ordered classes: give the schema's label kind = \"classes\" and values in their order",
            );
        };
        require(values.len() == self.classes as usize, "classes must be the number of values that the schema's label lists")?;
        require(
            schema.intercept().is_none(),
            "ordinal-regression has thresholds in place of an intercept: write intercept = false in the schema, or a formula in the task",
        )
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        if outcome.posterior.family().dimension() < self.thresholds() as usize {
            return Err(InvalidParameters::Domain("not the coefficients of so many classes"));
        }
        Ok(Arc::new(OrderedLaw::new(*self, Arc::clone(&outcome.posterior))))
    }

    /// β, then κ.
    fn parameters(&self, features: u32) -> u32 {
        features.saturating_add(self.thresholds())
    }

    fn prior(&self, rows: Prior, _spec: PriorSpec) -> Prior {
        (0..self.thresholds()).fold(rows, |prior, j| {
            let (mean, scale) = self.prior_of(j);
            prior.and(mean, scale)
        })
    }

    fn names(&self, schema: &Schema) -> Vec<String> {
        let thresholds = (1..self.classes).map(|j| format!("threshold.{j}"));
        schema.coefficient_names().into_iter().chain(thresholds).collect()
    }

    fn has_intercept(&self) -> bool {
        false
    }

    fn classes(&self) -> Option<u32> {
        Some(self.classes)
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn predictor_scale(&self) -> Option<PredictorScale> {
        Some(PredictorScale::LogOdds)
    }

    fn many_rows(&self) -> Option<&dyn ManyRows> {
        Some(self)
    }

    /// Of the whole record: r̄R bounds its gradient, c̄R² its curvature and the matrix above all curvatures, under a mean field, too.
    ///
    /// # Privacy
    /// Residuals ρ lie in [0, 1], curvatures in [0, ¼], slopes of α in [0, 1], whatever the numbers are.
    ///
    /// * β has the gradient (ρ_w − ρ_u) x, of length at most R. κ_1 and every κ_i, i < j, have σ(m_i)(ρ_u − ρ_w), at most 1; κ_j has σ(m_j)ρ_u + ρ_gap ≤ 2. So
    ///   ‖g‖² ≤ R² + (J − 2) + 4 = R² + J + 2.
    /// * ‖H‖ ≤ ¼ Σ ‖row‖², the rows being of squared length R² + j, R² + j − 1 and 1 with 1 < j < J, or R² + 1, or R² + J − 1, so that
    ///   ‖H‖ ≤ ¼(2(R² + J − 1) + 1). The diagonal of H is no longer than H.
    fn predictor_bounds(&self, ranges: Ranges) -> Option<PredictorBounds> {
        let (square, classes) = (ranges.row * ranges.row, f64::from(self.classes));
        Some(PredictorBounds {
            residual: (square + classes + 2.0).sqrt() / ranges.row,
            curvature: 0.25 * (2.0 * (square + classes - 1.0) + 1.0) / square,
            free_curvature: None,
        })
    }

    /// The bound of the curvature holds for the whole record.
    fn largest_entry(&self, ranges: Ranges, _entry: f64) -> f64 {
        ranges.row
    }

    fn gradient_bound(&self, ranges: Ranges) -> Option<f64> {
        Some((ranges.row * ranges.row + f64::from(self.classes) + 2.0).sqrt())
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
