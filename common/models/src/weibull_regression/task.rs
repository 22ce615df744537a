//! H(t) = t^k e^{xᵀθ}.

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

/// Options of a Weibull regression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeibullRegression {
    /// What times are divided by.
    pub time_unit: f64,
    /// Prior mean of κ = ln k.
    pub shape_mean: f64,
    /// Prior standard deviation of κ.
    pub shape_scale: f64,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    time_unit: Option<f64>,
    /// Default: 0.
    shape_mean: Option<f64>,
    /// Default: 0.5.
    shape_scale: Option<f64>,
}

impl PublicHalf for WeibullRegression {
    const NAME: &'static str = "weibull-regression";
    const HELP: &'static str = "a time until an event, with a hazard that rises or falls as a power of time";
    type Written = Written;

    fn explicit(Written { time_unit, shape_mean, shape_scale }: Written) -> Result<Self, TaskError> {
        match time_unit {
            Some(time_unit) => Ok(Self { time_unit, shape_mean: shape_mean.unwrap_or(0.0), shape_scale: shape_scale.unwrap_or(0.5) }),
            None => invalid("weibull-regression needs time_unit, in the unit of the file: about √(lower · upper) of the time's range"),
        }
    }
}

impl ModelRules for WeibullRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        let LabelKind::Survival(rule) = &schema.label().kind else {
            return require(
                false,
                "weibull-regression predicts a time until an event: give the schema's label kind = \"survival\" with time and event",
            );
        };
        require(rule.time.lower > 0.0, "weibull-regression needs times above 0: give the time a `lower` above 0")?;
        require(rule.entry.is_none(), "weibull-regression has no entry times: use survival-regression, or remove entry")?;
        require(positive(self.time_unit), "time_unit must be a number between 1e-30 and 1e30")?;
        require(
            self.shape_mean.abs() <= 10.0 && positive(self.shape_scale),
            "shape_mean must lie between -10 and 10, and shape_scale between 1e-30 and 1e30",
        )
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        if outcome.posterior.family().dimension() == 0 {
            return Err(InvalidParameters::Domain("no coefficient is the shape"));
        }
        let posterior = Arc::clone(&outcome.posterior);
        Ok(Arc::new(SurvivalLaw { width: Self::kappa(posterior.standard()), model: *self, posterior }))
    }

    /// θ, then κ.
    fn parameters(&self, features: u32) -> u32 {
        features.saturating_add(1)
    }

    fn prior(&self, rows: Prior, _spec: PriorSpec) -> Prior {
        rows.and(self.shape_mean, self.shape_scale)
    }

    fn names(&self, schema: &Schema) -> Vec<String> {
        schema.coefficient_names().into_iter().chain(["log(shape)".to_owned()]).collect()
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

    /// With L the greatest |k ln t| at the prior mean of κ, a row is √(R² + (1 + L)²) long. Where κ is far from there rows are longer, and the mechanism clips what is.
    fn lengths(&self, schema: &Schema) -> Lengths {
        let (radius, entry) = (schema.row_norm_bound(), schema.max_abs_entry());
        let ends = match &schema.label().kind {
            LabelKind::Survival(rule) => [rule.time.lower, rule.time.upper],
            _ => [self.time_unit; 2],
        };
        let [first, last] = ends.map(|time| (time / self.time_unit).ln().abs());
        let longest = self.shape_mean.exp() * first.max(last);
        let square = radius * radius + longest * longest;
        Lengths {
            gradient: (radius * radius + (1.0 + longest).powi(2)).sqrt(),
            full: square,
            diagonal: square.sqrt() * entry.min(radius).max(longest),
            // The row, and what rows that move leave out.
            gram: square + 1.0,
        }
    }
}

impl Display for WeibullRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (unit, mean, scale) = (Short(self.time_unit), Short(self.shape_mean), Short(self.shape_scale));
        write!(f, "Weibull regression, times in units of {unit}, log shape of prior mean {mean} and scale {scale}")
    }
}
