//! Synthetic hospitals with a known truth: what the demo, the compose file and the tests train on. [`survival()`] makes a study of survival times.
//!
//! A cohort is a pure function of [`Options`]. Hospital k draws from its own stream, keyed by (seed, k), so its records do not
//! depend on how many hospitals there are.
//!
//! # The model
//! A stay has an age, sex, smoking habit, systolic pressure, cholesterol, diabetes, number of prior stays and a ward. Hospitals
//! differ in size and in case mix: a university hospital with young surgical patients, a district hospital, and
//! a small geriatric one that seldom measures cholesterol. Pressure, diabetes, prior stays and ward depend on age. Values are
//! rounded as a hospital would write them.
//!
//! The outcome is then drawn from P(event = yes) = σ(xᵀθ), where x is the feature row that the written schema makes of the written
//! values (clamped, centred, missing values as 0, longer rows scaled down to R). So logistic regression on the files is well
//! specified: θ in `truth.json` is the truth for every hospital, and what differs between hospitals is only the distribution of x.
//!
//! With an intercept and one entry for every ward, adding a constant to all wards and taking it from the intercept changes
//! nothing. The stated θ has intercept = sum of the wards: among the equivalent ones it is the one that a prior N(0, s²I) prefers.

mod cohort;
mod columns;
mod draw;
mod files;
mod model;
mod survival;
#[cfg(test)]
mod tests;

pub use cohort::{Coefficient, Cohort, Hospital, HospitalSummary, Stay, Truth, Ward};
pub use files::{WriteError, write};
pub use model::{GenerateError, hospitals, write_columns};
pub use survival::{Interval, Patient, Study, StudyTruth, survival};

/// What to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Names the cohort: the same options give the same bytes.
    pub seed: u64,
    /// Number of hospitals, at least 1.
    pub hospitals: u32,
    /// Records of an average hospital, at least 10. Of a cohort the first three hospitals have 1.4, 1.0 and 0.6 times as many.
    pub rows: u32,
    /// Records in the public evaluation file, at least 1.
    pub evaluation_rows: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, hospitals: 3, rows: 4000, evaluation_rows: 2000 }
    }
}
