//! What a run will be worth, before it runs: widths of intervals and the loss of predictive quality, from public values alone.
//!
//! Federations are drawn from the schema and the prior (`federation`), and the task runs on each of them: its own rule, the noise of its own
//! mechanisms, the intervals that its result would have. What differs from federation to federation (shares of levels, correlations, coefficients)
//! becomes a range. No record enters, nothing costs budget, and the same task gives the same bits.

mod drawn_federation;
mod forecast_table;
pub mod rounds;
mod run;

use serde::{Deserialize, Serialize};

use self::drawn_federation::DrawnFederation;
pub use self::forecast_table::{Counted, ForecastResult, ForecastTable, SettingForecast, counted, records, sizes, whole};
pub use self::run::unprotected;
use dp_pvi_math::draws::Draws;
use dp_pvi_models::prediction::Example;
use dp_pvi_models::prediction::Level;
use dp_pvi_posterior::methods::noise_aware::History;
use dp_pvi_posterior::methods::prior_predictive::NotForecast;
use dp_pvi_posterior::noise_aware::{is_known, of_run};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_protocol::predictive::Predictor;

/// Most coefficients of a forecast.
const LARGEST: u32 = 400;

/// Where outcomes are expected. A range of widths is to hold 90 % of them, and reaches further than the drawn federations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// 5 % of outcomes are expected below; of a loss, 5 % of federations lie there.
    pub low: f64,
    /// Half of the federations lie below.
    pub median: f64,
    /// As many above.
    pub high: f64,
}

/// The forecast of one coefficient.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoefficientForecast {
    /// Its name.
    pub name: String,
    /// Width of its 90 % interval.
    pub width: Range,
    /// Median of the width that it would have without protection.
    pub unprotected: f64,
}

/// The forecast of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forecast {
    /// Declared records of all sites.
    pub records: u64,
    /// Number of sites.
    pub sites: u32,
    /// Federations that were drawn.
    pub federations: u32,
    /// Columns (the label is one) whose law is published, and all that are used.
    pub published: (u32, u32),
    /// Intervals of all coefficients, in their order.
    pub coefficients: Vec<CoefficientForecast>,
    /// Median over the coefficients of the width of a 90 % interval.
    pub width: Range,
    /// Held-out log-likelihood a record, without protection minus with it.
    pub loss: Range,
    /// Held-out log-likelihood a record over that of the best constant; absent where the model has no intercept, which alone makes a constant, or
    /// nothing else, so that it is a constant itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<Range>,
}

impl Forecast {
    /// Whether a constant would predict better: in the middle of the federations that were drawn, and by more than is gained in the best 5 %. Where the
    /// best end gains more than the middle loses, the drawn coefficients decide, and no one knows which ones are true.
    pub(crate) fn is_worthless(&self) -> bool {
        self.gain.is_some_and(|gain| gain.median < 0.0 && gain.high < -gain.median)
    }
}

/// One drawn federation, its run, and what its rows say without protection.
pub(crate) struct Simulated {
    /// The public history of the run.
    pub(crate) history: History,
    /// Natural parameters of the posterior without protection, in the task's family: where the run would arrive without noise.
    pub(crate) unprotected: Vec<f64>,
    federation: DrawnFederation,
}

/// How much is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Federations.
    pub federations: u32,
    /// Rows of each.
    pub rows: u32,
}

impl Effort {
    /// As much as about a second allows for a model of this size and so many sites.
    #[must_use]
    pub fn of(task: &ResolvedTask, sites: usize) -> Self {
        /// Nanoseconds.
        const BUDGET: f64 = 8e8;
        let d = f64::from(task.dimension);
        let nonzeros = f64::from(task.max_nonzeros).min(d);
        let predictor = task.model.rules().predictor().map_or(1.0, |predictor| f64::from(predictor.cost()));
        let classes = f64::from(task.model.rules().response().class_count().unwrap_or(1));
        // Of a row in a pass, and of what is done once in every federation.
        let row = classes * (20.0 + 25.0 * predictor) + 2.0 * nonzeros * nonzeros;
        // Where a site carries something, its message is its own.
        #[allow(clippy::cast_precision_loss, reason = "a number of sites")]
        let messages = f64::from(task.visits()) * if task.site_state().is_empty() { 1.0 } else { sites as f64 };
        let passes = messages * f64::from(task.passes()) + 10.0;
        let matrices = 400.0 * d * d * d + f64::from(task.visits()) * 20.0 * d * d;
        let left = |federations: f64| (BUDGET / federations - matrices) / (passes * row);
        let federations = (BUDGET / (matrices + 1000.0 * passes * row)).clamp(6.0, 24.0).floor();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers above 0")]
        let (federations, rows) = (federations as u32, left(federations).clamp(200.0, 2000.0) as u32);
        Self { federations, rows }
    }
}

/// Runs the task over federation number `number`. The first federations of any number are the same.
///
/// # Errors
/// Why this task is not forecast.
pub(crate) fn simulated(task: &ResolvedTask, units: &[u64], rows: u32, number: u32) -> Result<Simulated, NotForecast> {
    task.model.rules().predictor().filter(|_| task.dimension == task.features).ok_or(NotForecast::Model)?;
    if task.model.rules().learned_scale().is_some() {
        return Err(NotForecast::Scale);
    }
    if task.dimension > LARGEST {
        return Err(NotForecast::TooLarge(LARGEST));
    }
    let schema = task.parsed_schema().map_err(|_| NotForecast::Model)?;
    let records: u64 = units.iter().sum();
    if records == 0 {
        return Err(NotForecast::Nobody);
    }
    let root = seed(task).part(number.into());
    let mut federation = DrawnFederation::draw(task, &schema, rows as usize, &mut root.part(0)).ok_or(NotForecast::Model)?;
    #[allow(clippy::cast_precision_loss, reason = "a number of records")]
    federation.rows.stand_for(records as f64);
    let unprotected = unprotected(task, &federation.rows, &federation.truth).ok_or(NotForecast::Fails)?;
    let history = run::simulate(task, units, &federation.rows, &mut root.part(1))?;
    Ok(Simulated { history, unprotected: unprotected.natural().to_vec(), federation })
}

/// The stream of a model's federations: the same for every ε, trust and wording of the schema, so that forecasts of alike tasks can be compared.
fn seed(task: &ResolvedTask) -> Draws {
    let key = dp_pvi_names::Hash::of("dp-pvi forecast v2", &[task.model.name().as_bytes()]);
    Draws::of(&key.0)
}

/// Forecasts a run of the task over sites with these numbers of declared units.
///
/// # Errors
/// Why there is no forecast.
pub fn forecast(task: &ResolvedTask, units: &[u64], effort: Effort) -> Result<Forecast, NotForecast> {
    is_known(task).map_err(NotForecast::Intervals)?;
    let mut widths = Vec::new();
    let mut without = Vec::new();
    let (mut losses, mut gains) = (Vec::new(), Vec::new());
    let intercept = task.parsed_schema().map_err(|_| NotForecast::Model)?.intercept().filter(|_| task.features > 1);
    for number in 0..effort.federations {
        let simulated = simulated(task, units, effort.rows, number)?;
        let Ok(aware) = of_run(task, &simulated.history) else { continue };
        let predictor = |natural: &[f64]| Predictor::new(&task.model, task.family(), natural).map_err(|_| NotForecast::Fails);
        let (with, exact) = (predictor(&aware.natural_parameters)?, predictor(&simulated.unprotected)?);
        widths.push(interval_widths(&with));
        without.push(interval_widths(&exact));
        losses.push(loss(&simulated.federation, &with, &exact));
        if let Some(constant) = intercept.and_then(|position| constant(task, &simulated.federation, position as usize)) {
            gains.push(loss(&simulated.federation, &constant, &with));
        }
    }
    if 2 * widths.len() < effort.federations as usize {
        return Err(NotForecast::Fails);
    }
    let names = task.parameter_names().map_err(|_| NotForecast::Model)?;
    let widest = widest(task);
    let of = |list: &[Vec<f64>], j: usize| list.iter().map(|widths| widths[j]).collect::<Vec<f64>>();
    let coefficients = names
        .into_iter()
        .enumerate()
        .map(|(j, name)| CoefficientForecast { name, width: widths_range(&of(&widths, j), widest), unprotected: median(of(&without, j)) })
        .collect();
    let schema = task.parsed_schema().map_err(|_| NotForecast::Model)?;
    Ok(Forecast {
        records: units.iter().sum(),
        sites: u32::try_from(units.len()).unwrap_or(u32::MAX),
        federations: u32::try_from(widths.len()).unwrap_or(u32::MAX),
        published: published(&schema),
        coefficients,
        width: widths_range(&widths.into_iter().map(median).collect::<Vec<_>>(), widest),
        gain: (gains.len() == losses.len()).then(|| quantiles(gains)),
        loss: quantiles(losses),
    })
}

/// Steps of the search for a constant.
const CONSTANT_STEPS: usize = 40;
/// Precision with which a constant is known.
const CERTAIN: f64 = 1e10;

/// The constant that fits a federation best: the intercept alone, with all other coefficients at 0 and offsets as they are.
fn constant(task: &ResolvedTask, federation: &DrawnFederation, intercept: usize) -> Option<Predictor> {
    let predictor = task.model.rules().predictor()?;
    let d = task.family().dimension();
    let mut value = 0.0;
    for _ in 0..CONSTANT_STEPS {
        let (mut slope, mut curvature) = (0.0, 0.0);
        for row in federation.rows.iter() {
            for &(target, probability) in row.targets {
                let at = predictor.statistics(value + row.offset, 0.0, target);
                slope += probability * at.residual;
                curvature += probability * at.curvature;
            }
        }
        let step: f64 = slope / f64::max(curvature, f64::MIN_POSITIVE);
        value += step.clamp(-1.0, 1.0);
        if step.abs() < 1e-9 {
            break;
        }
    }
    let mean = nalgebra::DVector::from_fn(d, |j, _| if j == intercept { value } else { 0.0 });
    let natural = match task.family() {
        dp_pvi_math::expfam::any::Family::DiagonalGaussian { .. } => {
            mean.iter().map(|m| CERTAIN * m).chain(std::iter::repeat_n(CERTAIN, d)).collect::<Vec<_>>()
        }
        dp_pvi_math::expfam::any::Family::FullGaussian { .. } => {
            let matrix = nalgebra::DMatrix::identity(d, d) * CERTAIN;
            (&mean * CERTAIN).iter().copied().chain(dp_pvi_math::expfam::gaussian::full::svec(&matrix)).collect()
        }
    };
    Predictor::new(&task.model, task.family(), &natural).ok()
}

/// Federations, and rows of each, by which a task is judged.
const JUDGED: Effort = Effort { federations: 8, rows: 300 };
/// Most numbers of work (visits, passes and squares of coefficients together) of a task that is judged: about some seconds.
const MOST_WORK: f64 = 3e8;

/// Why a task is not worth a run, where its own forecast says so: with as many records at each of its sites as its author expects, or else as the task admits, a constant predicts better
/// in most of the federations that might be, by more than is gained in the best ones. `None` where it is worth one, its author wants it anyway, or no one can tell.
#[must_use]
pub fn worthless(raw: Option<u64>, task: &ResolvedTask) -> Option<String> {
    if task.even_if_worthless {
        return None;
    }
    let most = task.privacy.max_units.or(task.aggregation.map(|aggregation| aggregation.max_units));
    let units = raw.or(most)?.max(1);
    let sites = counted(task).sites.max(1);
    let work = f64::from(task.visits())
        * f64::from(task.passes())
        * f64::from(sites)
        * f64::from(task.max_nonzeros + 1).powi(2)
        * f64::from(JUDGED.rows);
    if work > MOST_WORK {
        return None;
    }
    let forecast = forecast(task, &vec![units; sites as usize], JUDGED).ok()?;
    let gain = forecast.gain.filter(|_| forecast.is_worthless())?;
    Some(format!(
        "this run would be worth nothing: with {units} records at each of {sites} sites its predictions would be worse than a constant, by {:.4} in log-likelihood a record ({:.4} to {:.4} in \
         90 % of {} drawn federations). More records, a larger epsilon, fewer coefficients, or trust = \"aggregated\" help (`dp-pvi-server check --units …` compares); to run it all the same \
         write even_if_worthless = true in the task",
        -gain.median, -gain.high, -gain.low, forecast.federations
    ))
}

/// Width of the widest 90 % interval of a coefficient under the prior.
fn widest(task: &ResolvedTask) -> f64 {
    2.0 * Level::P90.half_width() * task.setting().priors().widest()
}

fn published(schema: &dp_pvi_schema::Schema) -> (u32, u32) {
    let known = schema.used_columns().filter(|column| column.published.is_some()).count() + usize::from(schema.label().published.is_some());
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    (count(known), count(schema.used_columns().count() + 1))
}

fn interval_widths(predictor: &Predictor) -> Vec<f64> {
    run::deviations(predictor.posterior()).into_iter().map(|sd| 2.0 * Level::P90.half_width() * sd).collect()
}

/// Mean over the federation's rows and targets of ln p without protection minus with it.
fn loss(federation: &DrawnFederation, with: &Predictor, exact: &Predictor) -> f64 {
    let (mut sum, mut total) = (0.0, 0.0);
    for row in federation.rows.iter() {
        for &(target, probability) in row.targets.iter().filter(|(_, probability)| *probability > 0.0) {
            let row = Example { indices: row.indices, values: row.values, target, offset: row.offset, extra: Default::default() };
            sum += probability * (exact.log_density(row) - with.log_density(row));
            total += probability;
        }
    }
    sum / f64::max(total, f64::MIN_POSITIVE)
}

/// Least spread of the logarithm of a width from one federation to another: what noise and chance of one run make of it.
const LEAST_SPREAD: f64 = 0.06;
/// By how much further a range reaches than the drawn federations lie apart: no law of federations is that of the next federation. Chosen on drawn records and
/// tested on others and on real data (example `forecast_drawn`).
const REACH: f64 = 1.3;

/// Median, and [`REACH`] times the central 90 % of a log-normal law with the mean and spread of the logarithms (by Student's quantile, nearly):
/// quantiles of a handful of federations would be too close. No interval is wider than the prior's, which is `widest`.
#[allow(clippy::cast_precision_loss, reason = "a number of federations")]
fn widths_range(widths: &[f64], widest: f64) -> Range {
    let logs: Vec<f64> = widths.iter().map(|width| width.max(f64::MIN_POSITIVE).ln()).collect();
    let count = logs.len().max(1) as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let student = Level::P90.half_width() * (1.0 + 1.1 / (count - 1.0).max(1.0));
    let reach = REACH * student * (variance * (1.0 + 1.0 / count) + LEAST_SPREAD * LEAST_SPREAD).sqrt();
    let median = median(widths.to_vec()).min(widest);
    Range { low: (mean - reach).exp().min(median), median, high: (mean + reach).exp().clamp(median, widest) }
}

/// 5 %, 50 % and 95 %, between neighbours linearly.
fn quantiles(mut values: Vec<f64>) -> Range {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a position in the list")]
    let at = |share: f64| {
        let place = share * (values.len().saturating_sub(1)) as f64;
        let below = values.get(place as usize).copied().unwrap_or(0.0);
        let above = values.get(place as usize + 1).copied().unwrap_or(below);
        below + place.fract() * (above - below)
    };
    Range { low: at(0.05), median: at(0.5), high: at(0.95) }
}

fn median(values: Vec<f64>) -> f64 {
    quantiles(values).median
}

#[cfg(test)]
mod tests;
