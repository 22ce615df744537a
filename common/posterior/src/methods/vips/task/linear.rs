//! Statistics of linear regression with unknown noise: numbers and defaults. One visit is enough: no later one could ask for anything new.

use serde::{Deserialize, Serialize};

use super::{Intervals, LARGEST_MATRIX, Raw};
use crate::methods::Resolving;
use crate::methods::Setting;
use dp_pvi_math::polya_gamma::Relevance;
use dp_pvi_models::StatisticsForm;
use dp_pvi_models::linear_regression::unknown_noise::sensitivities;
use dp_pvi_models::spec::check::{invalid, positive, require};
use dp_pvi_models::spec::{Approximation, TaskError};

/// Statistics of linear regression with unknown noise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearNoiseSpec {
    /// n: public number of records of all sites.
    pub records: f64,
    /// Y: public bound on the target's absolute value.
    pub target_bound: f64,
    /// Shares of the budget of Σ xy, Σ xxᵀ and Σ y².
    pub shares: [f64; 3],
    /// As for logistic regression, of Σ xxᵀ.
    pub eigenvalue_floor: f64,
    /// Prior of the noise's precision.
    pub precision: Relevance,
    /// What the posterior says about the noise.
    pub intervals: Intervals,
}

/// One number needs little.
const SHARES: [f64; 3] = [0.45, 0.45, 0.1];

impl Raw {
    pub(crate) fn linear_noise(&self, resolving: &Resolving<'_>, noise_sd: f64) -> Result<LinearNoiseSpec, TaskError> {
        self.takes("linear-regression", resolving, &["records", "noise_shape", "eigenvalue_floor", "intervals"])?;
        let Some(records) = self.records else {
            return invalid("update = \"vips\" with linear-regression needs records, the public number of records of all sites");
        };
        // One observation's worth of the model's noise_sd.
        let shape = self.noise_shape.unwrap_or(1.0);
        Ok(LinearNoiseSpec {
            records,
            target_bound: resolving.task.parsed_schema()?.max_abs_target(),
            shares: SHARES,
            eigenvalue_floor: self.eigenvalue_floor.unwrap_or(0.5),
            precision: Relevance { shape, rate: shape * noise_sd * noise_sd },
            intervals: self.intervals.unwrap_or(Intervals::NoiseAware),
        })
    }
}

impl LinearNoiseSpec {
    /// What the blocks are divided by.
    pub(crate) fn scales(&self, task: &Setting<'_>) -> Vec<f64> {
        let bounds = sensitivities(task.feature_bound, self.target_bound);
        bounds.iter().zip(self.shares).map(|(bound, share)| bound / share.sqrt()).collect()
    }

    pub(crate) fn check(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        require(
            task.approximation == Approximation::FullCovariance,
            "update = \"vips\" with linear-regression keeps a whole covariance: use approximation = \"full-covariance\"",
        )?;
        require(task.visits() == 1, "linear regression's statistics do not change: use rounds = 1, all the budget belongs to it")?;
        require(task.dimension <= LARGEST_MATRIX, "more than 2048 coefficients are too many for a covariance")?;
        require(
            matches!(task.model.rules().statistics(), Some(StatisticsForm::LinearNoise { .. })),
            "the statistics are those of another model",
        )?;
        require(self.records >= 1.0 && self.records.is_finite(), "records must be a finite number of at least 1")?;
        require(positive(self.target_bound), "the outcome needs a range: lower and upper of its column in the schema")?;
        let total: f64 = self.shares.iter().sum();
        require(self.shares.iter().all(|s| positive(*s)) && (total - 1.0).abs() < 1e-9, "the shares must sum to 1")?;
        require(self.eigenvalue_floor >= 0.0 && self.eigenvalue_floor.is_finite(), "eigenvalue_floor must be finite and not negative")?;
        require(positive(self.precision.shape) && positive(self.precision.rate), "noise_shape must be a finite number above 0")
    }
}
