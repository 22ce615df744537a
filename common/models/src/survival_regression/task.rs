//! Hazards λ_b e^{xᵀβ}.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::many_rows::ManyRows;
use crate::prediction::{Law, Outcome};
use crate::spec::check::{invalid, positive, require};
use crate::spec::words::Short;
use crate::spec::{Prior, PriorSpec, TaskError};
use crate::survival::{SurvivalLaw, SurvivalModel};
use crate::{Lengths, ModelRules, PredictorScale, PublicHalf};
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a survival regression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurvivalRegression {
    /// c_0 = 0 < c_1 < … < c_B, in the unit of the file's times.
    pub cuts: Vec<f64>,
    /// Prior mean of every ln λ_b.
    pub baseline_mean: f64,
    /// Prior standard deviation of every ln λ_b.
    pub baseline_scale: f64,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    cuts: Option<Vec<f64>>,
    /// Default: −ln of the last cut.
    baseline_mean: Option<f64>,
    /// Default: 2.5.
    baseline_scale: Option<f64>,
}

/// Most intervals: a record has as many rows.
const MAX_INTERVALS: usize = 200;

impl PublicHalf for SurvivalRegression {
    const NAME: &'static str = "survival-regression";
    const HELP: &'static str = "a time until an event, with proportional hazards and a baseline that is constant between cuts";
    type Written = Written;

    fn explicit(Written { cuts, baseline_mean, baseline_scale }: Written) -> Result<Self, TaskError> {
        let Some(cuts) = cuts else {
            return invalid(
                "survival-regression needs cuts, the ends of the intervals on which the baseline hazard is constant: cuts = [0, 30, 90, 365] up to the time's `upper`",
            );
        };
        let last = cuts.last().copied().unwrap_or(1.0);
        Ok(Self { cuts, baseline_mean: baseline_mean.unwrap_or(-last.ln()), baseline_scale: baseline_scale.unwrap_or(2.5) })
    }
}

impl ModelRules for SurvivalRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        let LabelKind::Survival(rule) = &schema.label().kind else {
            return require(
                false,
                "survival-regression predicts a time until an event: give the schema's label kind = \"survival\" with time and event",
            );
        };
        require(
            (2..=MAX_INTERVALS + 1).contains(&self.cuts.len()) && self.cuts.iter().all(|cut| cut.is_finite() && *cut <= 1e30),
            "cuts must be 0 and at least one, at most 200, later times",
        )?;
        require(self.cuts[0].to_bits() == 0, "cuts must begin with 0")?;
        require(self.cuts.windows(2).all(|pair| pair[0] < pair[1]), "cuts must ascend, each above the one before it")?;
        require(
            self.horizon() >= rule.time.upper,
            "cuts do not cover the time's range: the last cut must be the time's `upper` in the schema, or later",
        )?;
        require(
            self.baseline_mean.abs() <= 1e3 && positive(self.baseline_scale),
            "baseline_mean must lie between -1000 and 1000, and baseline_scale between 1e-30 and 1e30",
        )?;
        require(
            schema.intercept().is_none(),
            "survival-regression has a baseline in place of an intercept: write intercept = false in the schema, or a formula in the task",
        )
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        if outcome.posterior.family().dimension() < self.intervals() as usize {
            return Err(InvalidParameters::Domain("not the coefficients of so many intervals"));
        }
        let (model, posterior) = (self.clone(), Arc::clone(&outcome.posterior));
        Ok(Arc::new(SurvivalLaw { width: self.width(posterior.standard()), model, posterior }))
    }

    /// ln λ, then β.
    fn parameters(&self, features: u32) -> u32 {
        features.saturating_add(self.intervals())
    }

    fn prior(&self, rows: Prior, _spec: PriorSpec) -> Prior {
        (0..self.intervals()).fold(rows, |prior, _| prior.after(self.baseline_mean, self.baseline_scale))
    }

    fn names(&self, schema: &Schema) -> Vec<String> {
        let baseline = self.cuts.windows(2).map(|ends| format!("baseline({},{}]", ends[0], ends[1]));
        baseline.chain(schema.coefficient_names()).collect()
    }

    fn own_before_rows(&self) -> u32 {
        self.intervals()
    }

    fn has_intercept(&self) -> bool {
        false
    }

    fn takes_offsets(&self) -> bool {
        true
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn predictor_scale(&self) -> Option<PredictorScale> {
        Some(PredictorScale::LogHazard)
    }

    fn many_rows(&self) -> Option<&dyn ManyRows> {
        Some(self)
    }

    fn survival(&self) -> Option<&dyn SurvivalModel> {
        Some(self)
    }

    /// A row is √(1 + R²) long; its largest entry is 1 or that of x.
    ///
    /// # Privacy
    /// With every curvature at c̄, the rows of a record of all B intervals have Σ c̄ ρρᵀ = c̄ (I_B, 1xᵀ; x1ᵀ, B xxᵀ), of squared norm c̄²(B + 2BR² + B²R⁴) at most. Lengths of the terms
    /// of a visit are those of one row: a record has its event in one of them, and expected counts are small elsewhere. Longer terms are clipped by the mechanism, whose
    /// bound the guarantee leans on.
    fn lengths(&self, schema: &Schema) -> Lengths {
        let (radius, entry) = (schema.row_norm_bound(), schema.max_abs_entry());
        let (square, count) = (radius * radius, f64::from(self.intervals()));
        let row = 1.0 + square;
        Lengths {
            gradient: row.sqrt(),
            full: row,
            diagonal: row.sqrt() * entry.min(radius).max(1.0),
            gram: (count + 2.0 * count * square + (count * square).powi(2)).sqrt(),
        }
    }
}

impl SurvivalRegression {
    /// B.
    #[allow(clippy::cast_possible_truncation, reason = "at most 200 intervals are accepted")]
    pub(super) fn intervals(&self) -> u32 {
        self.cuts.len().saturating_sub(1) as u32
    }
}

impl Display for SurvivalRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let cuts = self.cuts.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
        let (mean, scale) = (Short(self.baseline_mean), Short(self.baseline_scale));
        write!(f, "survival regression, baseline hazard between {cuts}, of prior mean {mean} and scale {scale}")
    }
}
