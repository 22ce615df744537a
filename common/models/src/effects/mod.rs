//! Effects: what coefficients say in the units that people use.
//!
//! A coefficient belongs to an encoded entry of a row: age per 20 years, a ward against the mean of all wards. An effect is a public linear
//! function of the coefficients, L θ + c, that can be read alone: ten years more, surgery against cardiology, male against female. Its mean is L μ + c and
//! its variance L Σ Lᵀ, with the covariances of all coefficients in it. Where the linear predictor is a logarithm, exp of it is an odds ratio or
//! a rate ratio.
//!
//! A mean field takes coefficients for independent, and Σ is then not known: an effect of several coefficients has an estimate and no interval.

mod compare;
mod contrast;
mod curves;
mod formula;
mod list;
mod scales;

pub use compare::{CompareError, compare};
pub use curves::{Curve, CurvePoint, curves};
pub use list::{agree, comparison, effects};
pub use scales::{Member, ObservationScale, Place, Scale, scales};

use dp_pvi_math::expfam::any::Standard;
use serde::{Deserialize, Serialize};

use crate::prediction::{Interval, Level};
pub use contrast::Contrast;

/// Why an effect has no interval.
const INDEPENDENT: &str = "This combines several coefficients, which the posterior (a mean field) takes for independent: its interval is not known. approximation = \"full-covariance\" in the task gives one.";

/// Largest difference of two derivations of one number, in parts of the sizes that went into it.
const TOLERANCE: f64 = 1e-9;

/// What a change of a record, or a record at rest, means under the posterior.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// In words: `age, per 10`, `ward: surgery against cardiology`.
    pub name: String,
    /// The column that changes; absent where none or several do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// What the estimate is.
    pub measure: Measure,
    /// L: estimate = constant + Σ weight · coefficient.
    pub contrast: Vec<Term>,
    /// c; absent: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub constant: f64,
    /// Posterior mean, on the scale of the linear predictor, for a number that is predicted in the unit of the file.
    pub estimate: f64,
    /// Posterior standard deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
    /// Central 90 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_90: Option<Interval>,
    /// Central 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_95: Option<Interval>,
    /// exp of estimate and intervals, where that is an odds ratio, a rate ratio, odds or a rate; absent also where it is too large for a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// Why there is neither standard deviation nor interval, where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_interval: Option<String>,
}

/// One coefficient of a contrast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Its name.
    pub coefficient: String,
    /// What it is multiplied by.
    pub weight: f64,
}

/// exp of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// exp of the estimate: the posterior median of the ratio.
    pub estimate: f64,
    /// Central 90 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_90: Option<Interval>,
    /// Central 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_95: Option<Interval>,
}

/// What an effect measures. The first of each pair compares two records, the second is the value of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Logarithm of an odds ratio.
    OddsRatio,
    /// Logarithm of odds.
    Odds,
    /// Logarithm of a ratio of expected counts.
    RateRatio,
    /// Logarithm of an expected count.
    Rate,
    /// Logarithm of a ratio of hazards.
    HazardRatio,
    /// Logarithm of a hazard.
    Hazard,
    /// Difference of the label, in the unit of the file.
    Difference,
    /// The label, in the unit of the file.
    Value,
    /// Difference of log(1 + label).
    LogDifference,
    /// log(1 + label).
    LogValue,
    /// Difference of Φ⁻¹ of the probability.
    ProbitDifference,
    /// Φ⁻¹ of the probability.
    Probit,
}

impl Measure {
    /// Whether exp of the estimate has a name of its own.
    #[must_use]
    pub fn has_ratio(self) -> bool {
        matches!(self, Self::OddsRatio | Self::Odds | Self::RateRatio | Self::Rate | Self::HazardRatio | Self::Hazard)
    }

    /// Whether two records are compared: 0 then means that they do not differ.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        match self {
            Self::OddsRatio | Self::RateRatio | Self::HazardRatio | Self::Difference | Self::LogDifference | Self::ProbitDifference => true,
            Self::Odds | Self::Rate | Self::Hazard | Self::Value | Self::LogValue | Self::Probit => false,
        }
    }

    /// What is measured, in words: the ratio where there is one, else the estimate.
    #[must_use]
    pub fn words(self, label: &str) -> String {
        match self {
            Self::OddsRatio => "odds ratio".into(),
            Self::Odds => "odds".into(),
            Self::RateRatio => "rate ratio".into(),
            Self::HazardRatio => "hazard ratio".into(),
            Self::Hazard => "hazard".into(),
            Self::Rate => "rate".into(),
            Self::Difference => format!("difference of {label}"),
            Self::Value => label.into(),
            Self::LogDifference => format!("difference of log(1 + {label})"),
            Self::LogValue => format!("log(1 + {label})"),
            Self::ProbitDifference => "difference of the z-score (probit)".into(),
            Self::Probit => "z-score (probit)".into(),
        }
    }
}

impl Effect {
    /// The effect that a contrast is under a posterior; `names` are those of the coefficients, in the order of its coordinates.
    #[must_use]
    pub fn new(
        name: String,
        column: Option<String>,
        measure: Measure,
        contrast: &Contrast,
        names: &[String],
        posterior: &Standard,
    ) -> Self {
        let (indices, weights) = contrast.entries();
        let (mean, variance) = posterior.project(&indices, &weights);
        let term = |(&index, &weight): (&u32, &f64)| {
            let coefficient = names.get(index as usize).cloned().unwrap_or_default();
            Term { coefficient, weight }
        };
        let known = match posterior {
            Standard::Full(_) => true,
            Standard::Diagonal(_) => indices.len() <= 1,
        };
        let stated = Self {
            name,
            column,
            measure,
            contrast: indices.iter().zip(&weights).map(term).collect(),
            constant: contrast.constant,
            estimate: mean + contrast.constant,
            sd: known.then(|| variance.sqrt()),
            interval_90: None,
            interval_95: None,
            ratio: None,
            no_interval: (!known).then(|| INDEPENDENT.to_owned()),
        };
        stated.with_intervals()
    }

    /// Intervals and ratio from estimate and standard deviation.
    fn with_intervals(mut self) -> Self {
        let interval = |level: Level| self.sd.map(|sd| level.interval(self.estimate, sd));
        (self.interval_90, self.interval_95) = (interval(Level::P90), interval(Level::P95));
        let exp = |interval: Interval| Interval { lower: interval.lower.exp(), upper: interval.upper.exp() };
        let ratio = Ratio { estimate: self.estimate.exp(), interval_90: self.interval_90.map(exp), interval_95: self.interval_95.map(exp) };
        // JSON has no infinity.
        let largest = ratio.interval_95.map_or(ratio.estimate, |interval| interval.upper);
        self.ratio = (self.measure.has_ratio() && largest.is_finite()).then_some(ratio);
        self
    }

    /// Whether all that is said is a number.
    fn is_finite(&self) -> bool {
        let of_file = self.contrast.iter().map(|term| term.weight).chain([self.constant, self.estimate]);
        of_file.chain(self.derived().into_iter().flatten()).chain(self.sd).all(f64::is_finite)
    }

    /// Whether two effects say the same up to the rounding of different machines; `posterior` is what both are of.
    fn agrees(&self, other: &Self, contrast: &Contrast, posterior: &Standard) -> bool {
        let (indices, weights) = contrast.entries();
        let part = |(&index, weight): (&u32, &f64)| {
            let (mean, variance) = posterior.project(&[index], &[1.0]);
            weight.abs() * (mean.abs() + variance.sqrt())
        };
        let size = contrast.constant.abs() + indices.iter().zip(&weights).map(part).sum::<f64>();
        let spread = match (self.sd, other.sd) {
            // What cancels in L Σ Lᵀ is rounded in parts of what it was before.
            (Some(a), Some(b)) => (a * a - b * b).abs() <= TOLERANCE * size * size,
            (a, b) => a.is_none() && b.is_none(),
        };
        let words = |e: &Self| (e.name.clone(), e.column.clone(), e.measure, e.no_interval.clone());
        let numbers = |e: &Self| e.contrast.iter().map(|term| Some(term.weight)).chain([Some(e.constant)]).collect::<Vec<_>>();
        let coefficients = self.contrast.iter().map(|term| &term.coefficient).eq(other.contrast.iter().map(|term| &term.coefficient));
        words(self) == words(other)
            && coefficients
            && close(&numbers(self), &numbers(other))
            && (self.estimate - other.estimate).abs() <= TOLERANCE * size
            && spread
            && close(&self.derived(), &self.clone().with_intervals().derived())
    }

    /// All numbers that follow from estimate and standard deviation.
    fn derived(&self) -> Vec<Option<f64>> {
        let ends = |interval: Option<Interval>| [interval.map(|interval| interval.lower), interval.map(|interval| interval.upper)];
        let ratio = self.ratio;
        let of_ratio = [ratio.and_then(|ratio| ratio.interval_90), ratio.and_then(|ratio| ratio.interval_95)];
        let intervals = [self.interval_90, self.interval_95].into_iter().chain(of_ratio);
        intervals.flat_map(ends).chain([ratio.map(|ratio| ratio.estimate)]).collect()
    }
}

/// Whether the same numbers are there and are the same in nine digits.
fn close(a: &[Option<f64>], b: &[Option<f64>]) -> bool {
    let same = |pair: (&Option<f64>, &Option<f64>)| match pair {
        (Some(a), Some(b)) => (a - b).abs() <= TOLERANCE * (a.abs() + b.abs()),
        (a, b) => a.is_none() && b.is_none(),
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

#[cfg(test)]
mod tests;
