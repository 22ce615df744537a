//! The forecast of a task beside those of the same task with half and twice its ε, with and without a summer: what more budget, or a second party,
//! would buy.

use std::fmt::Write as _;

use dp_pvi_accounting::Epsilon;
use serde::{Deserialize, Serialize};

use super::{Effort, Forecast, NotForecast, Range, forecast};
use dp_pvi_models::spec::{RawAggregation, TaskError, Trust};
use dp_pvi_posterior::methods::noise_aware::Absent;
use dp_pvi_posterior::task::ResolvedTask;

/// Federations of a setting that is not the task's own, at most.
const FEDERATIONS: u32 = 6;

/// The forecast of a task, and what it would be under other settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForecastTable {
    /// As the task stands.
    pub task: Forecast,
    /// ε/2, ε and 2ε, under local and under aggregated trust.
    pub settings: Vec<SettingForecast>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingForecast {
    /// ε of the run at a site.
    pub epsilon: f64,
    /// Who adds the noise.
    pub trust: Trust,
    /// Whether it is the task's own.
    pub own: bool,
    /// Median over the coefficients of the width of a 90 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<Range>,
    /// Held-out log-likelihood a record, without protection minus with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Range>,
    /// Why there is no forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What `plan` and `check` say of a run's worth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ForecastResult {
    /// The forecast.
    Table(Box<ForecastTable>),
    /// There is none.
    None {
        /// Why, as a sentence without its end.
        why: String,
    },
}

impl ForecastResult {
    /// Of a task over sites with these numbers of declared records.
    #[must_use]
    pub fn of(task: &ResolvedTask, units: &[u64]) -> Self {
        match forecast_table(task, units) {
            Ok(forecast_table) => Self::Table(Box::new(forecast_table)),
            Err(NotForecast::Intervals(Absent::NoNoise)) => {
                Self::None { why: "without protection no noise is added, and there is nothing that a forecast could tell".into() }
            }
            Err(why) => Self::None { why: why.to_string() },
        }
    }

    /// As lines for people.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Table(forecast_table) => forecast_table.text(),
            Self::None { why } => format!("forecast  none: {why}\n"),
        }
    }
}

/// Declared records of every site: `units` as they are, or one number for so many sites; without a number of sites those that the task
/// counts on.
///
/// # Errors
/// Several numbers, and not one a site.
pub fn sizes(task: &ResolvedTask, units: &[u64], sites: Option<u32>) -> Result<Vec<u64>, TaskError> {
    match (units, sites) {
        ([one], sites) => Ok(vec![*one; sites.unwrap_or_else(|| counted(task).sites).max(1) as usize]),
        (many, None) => Ok(many.to_vec()),
        (many, Some(sites)) if many.len() == sites as usize => Ok(many.to_vec()),
        (many, Some(sites)) => Err(TaskError::Invalid(format!(
            "{} numbers of records were given for {sites} sites: give one for every site, or one for all",
            many.len()
        ))),
    }
}

/// A whole number as people type it; it may be written as 1e5.
///
/// # Errors
/// What it must be.
pub fn whole(text: &str) -> Result<u64, String> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below 2^53")]
    let of = |value: f64| ((0.0..9e15).contains(&value) && value.fract() == 0.0).then_some(value as u64);
    let number = text.parse().ok().or_else(|| of(text.parse().ok()?));
    number.ok_or_else(|| "it must be a whole number that is at least 0, such as 1000 or 1e5".to_owned())
}

/// A site's number of records, likewise.
///
/// # Errors
/// What it must be.
pub fn records(text: &str) -> Result<u64, String> {
    let number = whole(text).ok().filter(|number| *number > 0);
    number.ok_or_else(|| "a site's records are a whole number that is at least 1, such as 1000 or 1e5".to_owned())
}

/// How many sites a task counts on, and what says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Number of sites.
    pub sites: u32,
    /// Name of the key.
    pub said_by: &'static str,
}

/// How many sites a task counts on: those of its aggregation, or those that its author expected, or else the fewest with which it runs.
#[must_use]
pub fn counted(task: &ResolvedTask) -> Counted {
    match (task.aggregation, task.expected_sites) {
        (Some(aggregation), _) => Counted { sites: aggregation.sites, said_by: "[aggregation] sites" },
        (None, Some(sites)) => Counted { sites, said_by: "[pvi] expected_sites" },
        (None, None) => Counted { sites: task.min_sites, said_by: "[phases] min_sites, as the task has no expected_sites" },
    }
}

/// Forecasts a task over sites with these numbers of declared records, and the same task under other settings.
///
/// # Errors
/// Why the task itself is not forecast.
pub(super) fn forecast_table(task: &ResolvedTask, units: &[u64]) -> Result<ForecastTable, NotForecast> {
    let effort = Effort::of(task, units.len());
    let own = forecast(task, units, effort)?;
    let Some(epsilon) = task.privacy.epsilon else { return Ok(ForecastTable { task: own, settings: Vec::new() }) };
    let fewer = Effort { federations: effort.federations.min(FEDERATIONS), ..effort };
    let mut settings = Vec::new();
    for trust in [Trust::Local, Trust::Aggregated] {
        for factor in [0.5, 1.0, 2.0] {
            let of = SettingForecast { epsilon: factor * epsilon.get(), trust, own: false, width: None, loss: None, why: None };
            let row_of = |forecast: &Forecast| SettingForecast { width: Some(forecast.width), loss: Some(forecast.loss), ..of.clone() };
            settings.push(if trust == task.privacy.trust && (factor - 1.0).abs() < 1e-9 {
                SettingForecast { own: true, ..row_of(&own) }
            } else {
                let other = at(task, of.epsilon, trust, units).map_err(|error| error.to_string());
                match other.and_then(|other| forecast(&other, units, fewer).map_err(|error| error.to_string())) {
                    Ok(forecast) => row_of(&forecast),
                    Err(why) => SettingForecast { why: Some(why), ..of },
                }
            });
        }
    }
    Ok(ForecastTable { task: own, settings })
}

/// The task with another ε and trust, its noise calibrated anew. Aggregation has its defaults: no one missing, one site that colludes.
fn at(task: &ResolvedTask, epsilon: f64, trust: Trust, units: &[u64]) -> Result<ResolvedTask, TaskError> {
    let mut other = task.clone();
    other.privacy.epsilon = Some(Epsilon::new(epsilon).map_err(|error| TaskError::Invalid(error.to_string()))?);
    if trust != task.privacy.trust {
        other.privacy.trust = trust;
        other.aggregation = match trust {
            Trust::Local => {
                other.privacy.max_units = task.aggregation.map(|aggregation| aggregation.max_units);
                None
            }
            Trust::Aggregated => {
                let sites = u32::try_from(units.len()).unwrap_or(u32::MAX);
                let max_units = units.iter().copied().max().unwrap_or(1);
                let raw = RawAggregation {
                    sites: Some(sites),
                    dropouts: None,
                    colluders: None,
                    honest_cap: None,
                    max_units,
                    max_rounding_loss: None,
                };
                other.privacy.max_units = None;
                other.min_sites = other.min_sites.min(sites);
                Some(raw.resolve(sites)?)
            }
        };
    }
    other.recalibrated()
}

/// Decimals that show two digits of a number, at least two: a small width is not 0.00.
pub(super) fn decimals(value: f64) -> usize {
    let small = value > 0.0 && value < 0.1;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 2 and 9")]
    let decimals = if small { (1.0 - value.log10().floor()).clamp(2.0, 9.0) as usize } else { 2 };
    decimals
}

/// Coefficients that the text lists; the others are in the JSON.
const LISTED: usize = 40;

impl ForecastTable {
    /// As lines for people.
    #[must_use]
    pub fn text(&self) -> String {
        let Forecast { records, sites, federations, published: (known, columns), coefficients, .. } = &self.task;
        let mut text = format!(
            "forecast  {records} records at {sites} sites; {known} of {columns} columns have published figures; {federations} federations drawn; in brackets where 90 % of runs are expected\n"
        );
        if self.settings.is_empty() {
            text.push_str(
                "          the task has no protection: there is no other epsilon to compare with, and nothing is lost to noise\n",
            );
        } else {
            let _ = writeln!(
                text,
                "          {:>10}  {:<11} {:<30} log-likelihood lost a record",
                "epsilon", "trust", "median width of 90 % intervals"
            );
        }
        let range = |range: &Range, least: usize| {
            let digits = least.max(decimals(range.median));
            format!("{:.digits$} ({:.digits$} to {:.digits$})", range.median, range.low, range.high)
        };
        for setting in &self.settings {
            let trust = match setting.trust {
                Trust::Local => "local",
                Trust::Aggregated => "aggregated",
            };
            let numbers = match (&setting.width, &setting.loss, &setting.why) {
                (Some(width), Some(loss), _) => format!("{:<30} {}", range(width, 2), range(loss, 4)),
                (_, _, why) => format!("none: {}", why.as_deref().unwrap_or("not computed")),
            };
            let mark = if setting.own { '*' } else { ' ' };
            let _ = writeln!(
                text,
                "        {mark} {:>10}  {trust:<11} {numbers}",
                format!("{:.4}", setting.epsilon).trim_end_matches('0').trim_end_matches('.')
            );
        }
        if let Some(gain) = &self.task.gain {
            let than = if self.task.is_worthless() { ": a constant predicts better" } else { "" };
            let _ = writeln!(text, "          log-likelihood gained a record over a constant: {}{than}", range(gain, 4));
        }
        text.push_str("          width of 90 % intervals, as the task stands, and without protection\n");
        for coefficient in coefficients.iter().take(LISTED) {
            let _ = writeln!(
                text,
                "          {:<24} {:<22} {:.*}",
                coefficient.name,
                range(&coefficient.width, 2),
                decimals(coefficient.unprotected),
                coefficient.unprotected
            );
        }
        if coefficients.len() > LISTED {
            let _ = writeln!(text, "          and {} more (--format json)", coefficients.len() - LISTED);
        }
        text
    }
}
