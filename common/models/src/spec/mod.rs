//! Parts of a task's document that the modules of models and methods read: the family, the prior, the schedule, the guarantee and who is
//! trusted with it; and how a number out of range is refused.

mod aggregation;
pub mod check;
mod prior;
pub mod promise;
pub mod texts;
pub mod words;

pub use aggregation::{AggregationSpec, RawAggregation};
pub use check::TaskError;
pub use prior::{Prior, PriorSpec, TermPrior};

use dp_pvi_accounting::{Delta, Epsilon, PrivacyUnit, Relation};
use dp_pvi_math::expfam::any::Family;
use dp_pvi_schema::{Schema, SchemaError};
use serde::{Deserialize, Serialize};

/// Approximating families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Approximation {
    /// Independent coordinates.
    MeanField,
    /// Full covariance.
    FullCovariance,
}

/// What is predicted and what rows are made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesignSpec {
    /// The formula, as it was written.
    pub formula: String,
    /// Names of all sites, where effects of sites are learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<String>,
    /// How many times a record counts, where records have weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsSpec>,
    /// Priors of single terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub priors: Vec<TermPrior>,
    /// Whether the model has other constants in place of the formula's intercept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_intercept: bool,
}

/// Weights of records: f, r and c of a record are multiplied by its own. They are no part of the row. Not the same as the option `weighted` of natural gradients and DP
/// optimisation, which shortens terms that would be clipped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightsSpec {
    /// The number column that holds them.
    pub column: String,
    /// w̄: no record has a greater one.
    pub largest: f64,
}

impl DesignSpec {
    /// Rows by a formula, records that count once.
    #[must_use]
    pub fn of(formula: impl Into<String>, sites: Vec<String>) -> Self {
        Self { formula: formula.into(), sites, weights: None, priors: Vec::new(), without_intercept: false }
    }

    /// Whether every coefficient has the task's own prior: no term has one that is written, and none a scale that is learned, which only calls and groups have. `false` may be wrong.
    #[must_use]
    pub fn has_one_prior(&self) -> bool {
        let terms = self.formula.split_once('~').map_or("", |(_, terms)| terms);
        self.priors.is_empty() && !terms.contains('(')
    }
}

/// The schema of a text, with rows by a formula where there is one.
///
/// # Errors
/// The text is no schema, or the formula none for it.
pub fn schema(text: &str, design: Option<&DesignSpec>) -> Result<Schema, SchemaError> {
    let schema = Schema::parse(text)?;
    let Some(DesignSpec { formula, sites, weights, without_intercept, .. }) = design else { return Ok(schema) };
    let schema = schema.with_formula(formula, sites)?;
    let schema = if *without_intercept { schema.without_intercept() } else { schema };
    match weights {
        None => Ok(schema),
        Some(weights) => schema.with_weights(&weights.column),
    }
}

/// Refuses an offset where model or update do not carry it.
///
/// # Errors
/// The error's words for the author of the task.
pub fn check_offset(schema: &Schema, design: Option<&DesignSpec>, carried: bool) -> Result<(), TaskError> {
    if carried || !schema.design().is_some_and(dp_pvi_schema::formula::Design::has_offset) {
        return Ok(());
    }
    refuse(
        design,
        |term| term.starts_with("offset("),
        "offset(…) needs a regression of one linear predictor and an update that works on it, record by record: not one by moments or summed statistics",
    )
}

/// The refusal of a part of the formula, with its place: of the first summand that `is` says yes to, by its canonical text.
///
/// # Errors
/// Always.
pub fn refuse(design: Option<&DesignSpec>, is: impl Fn(&str) -> bool, problem: &str) -> Result<(), TaskError> {
    match design.map(|design| dp_pvi_schema::formula::Formula::parse(&design.formula)) {
        Some(Ok(formula)) => Err(SchemaError::from(formula.refused(is, problem)).into()),
        // It was read with the schema.
        _ => check::invalid(problem),
    }
}

/// Refuses weights where model or update do not carry them.
///
/// # Errors
/// The error's words for the author of the task.
pub fn check_weights(schema: &Schema, design: Option<&DesignSpec>, carried: bool) -> Result<(), TaskError> {
    let Some(weights) = design.and_then(|design| design.weights.as_ref()) else { return Ok(()) };
    check::require(
        carried,
        "weights need a regression of linear predictors and an update that works on it, record by record: not one by moments or summed statistics",
    )?;
    check::require(
        check::positive(weights.largest) && weights.largest == schema.max_weight(),
        "the largest weight is not that of the schema's column, or is 0: use the same version on both sides, and an `upper` above 0",
    )
}

/// Order of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ScheduleSpec {
    /// One site a round, in a fixed cycle (ascending client id); rounds = sweeps × sites.
    Sequential {
        /// Times that every site is visited.
        sweeps: u32,
    },
    /// All sites every round.
    Synchronous {
        /// Rounds.
        rounds: u32,
    },
    /// Every site at its own pace: a round takes what has come as soon as something has, and a site computes from the λ of up to
    /// `max_staleness` rounds before the one that its update enters. A round waits for sites that would fall behind that.
    Asynchronous {
        /// Times that every site is visited, at most.
        sweeps: u32,
        /// Rounds by which λ may be older.
        max_staleness: u32,
    },
}

impl Approximation {
    /// The family over so many parameters.
    #[must_use]
    pub fn family(self, dimension: u32) -> Family {
        let dimension = dimension as usize;
        match self {
            Self::MeanField => Family::DiagonalGaussian { dimension },
            Self::FullCovariance => Family::FullGaussian { dimension },
        }
    }
}

impl ScheduleSpec {
    /// Times that one site is asked for an update.
    #[must_use]
    pub fn visits(self) -> u32 {
        match self {
            Self::Sequential { sweeps } | Self::Asynchronous { sweeps, .. } => sweeps,
            Self::Synchronous { rounds } => rounds,
        }
    }

    /// Rounds by which an update's λ may be older than the round that it enters; `None` where rounds wait for all that were asked.
    #[must_use]
    pub fn staleness(self) -> Option<u32> {
        match self {
            Self::Asynchronous { max_staleness, .. } => Some(max_staleness),
            Self::Sequential { .. } | Self::Synchronous { .. } => None,
        }
    }
}

/// The guarantee that the task states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacySpec {
    /// Whose data is protected.
    pub unit: PrivacyUnit,
    /// Neighbouring data sets.
    pub relation: Relation,
    /// ε of the whole run at one site, an upper bound; absent = none (ε = ∞).
    pub epsilon: Option<Epsilon>,
    /// δ.
    pub delta: Delta,
    /// Who adds the noise.
    pub trust: Trust,
    /// Most units that one site may declare; absent = as many as the lattice holds. With `trust = "aggregated"` it is in `aggregation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_units: Option<u64>,
}

/// Trust models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Every site protects itself.
    Local,
    /// Noise is whole only in the sum.
    Aggregated,
}

/// How the noise of a sum grows with the number of sites in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatheredNoise {
    /// Every site adds noise of standard deviation zC.
    OfEverySite,
    /// Every site adds a share of zC/√h, so that those of the h honest sites add up to zC; the shares of all others are in the sum too.
    Shares(u32),
    /// A trusted party adds zC once.
    OfTheSum,
}

impl GatheredNoise {
    /// Variance of the noise in a sum over so many sites, in units of (zC)².
    #[must_use]
    pub fn of(self, sites: u32) -> f64 {
        match self {
            Self::OfEverySite => f64::from(sites),
            Self::Shares(honest) => f64::from(sites) / f64::from(honest),
            Self::OfTheSum => 1.0,
        }
    }
}
