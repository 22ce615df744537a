//! A federation that might be: the law of every column, the correlations and the coefficients are drawn, and rows and targets from them.
//!
//! * **Columns**: published shares and moments as they are; what is not published comes from a broad law. A number follows a beta law on its
//!   range with its mean and standard deviation, the shares of levels a Dirichlet, that of a truth a beta law.
//! * **Correlations** are not known: rows are put together by a Gaussian copula with one factor, whose loadings are drawn for every federation.
//! * **Coefficients** are drawn from the prior and made smaller where their predictor would vary by more than [`SPREAD`], which real effects
//!   seldom do. A published label sets the intercept, and of a number its spread.
//! * **Rows** are clamped, coded and shortened to the schema's bound as a loader does it. Rows that would be dropped are not drawn.

use std::sync::Arc;

use dp_pvi_math::expfam::any::{Family, Gaussian};

use dp_pvi_math::draws::Draws;
use dp_pvi_models::prediction::{Example, Law, Outcome, Prediction};
use dp_pvi_models::rows::{Row, Rows};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_schema::formula;
use dp_pvi_schema::formula::{Record, RowSpace};
use dp_pvi_schema::published::Marginal;
use dp_pvi_schema::{Column, ColumnKind, LabelKind, NumberRule, Schema};

/// Standard deviation of the predictor over the records, in units of the link: drawn log-uniformly from this range, at most what the prior gives.
const SPREAD: (f64, f64) = (0.6, 3.0);
/// Strength of the correlations of a federation, and of a column in it: their product is the column's loading on the common factor.
const STRENGTH: (f64, f64) = (0.2, 0.95);
const LOADING: (f64, f64) = (0.4, 1.0);
/// Standard deviation of a number as a share of its coded range, where it is not published: log-uniform.
const NUMBER_SD: (f64, f64) = (0.05, 0.3);
/// Standard deviation of a number's mean around its `centre`, in the same unit.
const NUMBER_MEAN: f64 = 0.12;
/// Concentration of the shares of levels, log-uniform.
const LEVELS: (f64, f64) = (0.2, 2.0);
/// Shapes of the share of a truth.
const TRUTH: (f64, f64) = (0.8, 1.2);
/// Share of the rarer class where none is published: log-uniform in one half of the federations, even in the other, for what is studied is often
/// chosen so that both classes are there.
const CLASS: (f64, f64) = (0.03, 0.5);
const BALANCED: (f64, f64) = (0.1, 0.5);

/// One such federation.
pub(super) struct DrawnFederation {
    /// Rows in place of the records.
    pub(super) rows: Rows,
    /// The coefficients that made the targets.
    pub(super) truth: Vec<f64>,
}

impl DrawnFederation {
    /// Draws one with this many rows.
    pub(super) fn draw(task: &ResolvedTask, schema: &Schema, count: usize, draws: &mut Draws) -> Option<Self> {
        let columns = drawn_columns(schema, count, draws);
        let mut rows = assembled(schema, &columns, count);
        let truth = coefficients(task, schema, &rows, draws)?;
        set_targets(task, schema, &mut rows, &truth, draws)?;
        Some(Self { rows, truth })
    }
}

/// What a column holds in one row.
#[derive(Debug, Clone, Copy)]
enum Cell {
    /// A number, coded.
    Entry(f64),
    /// A level, or a truth value.
    Level(u32),
    /// None.
    Nothing,
}

/// The cells of every column, correlated.
fn drawn_columns(schema: &Schema, count: usize, draws: &mut Draws) -> Vec<Vec<Cell>> {
    let factor: Vec<f64> = (0..count).map(|_| draws.normal()).collect();
    let strength = draws.between(STRENGTH.0, STRENGTH.1);
    let column = |(position, column): (usize, &Column)| {
        // What is predicted is drawn from the coefficients.
        if schema.outcome().contains(&position) {
            return vec![Cell::Nothing; count];
        }
        let sorted = sorted_cells(column, count, draws);
        let sign = if draws.uniform() < 0.5 { -1.0 } else { 1.0 };
        let loading = sign * strength * draws.between(LOADING.0, LOADING.1);
        let rest = (1.0 - loading * loading).sqrt();
        let scores: Vec<f64> = factor.iter().map(|f| loading * f + rest * draws.normal()).collect();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        let mut cells = vec![Cell::Nothing; count];
        order.into_iter().zip(sorted).for_each(|(row, cell)| cells[row] = cell);
        cells
    };
    schema.columns().iter().enumerate().map(column).collect()
}

/// The cells of one column in the order of its law.
fn sorted_cells(column: &Column, count: usize, draws: &mut Draws) -> Vec<Cell> {
    let published = column.published.as_ref().map(|published| &published.law);
    match (&column.kind, published) {
        (ColumnKind::Ignored, _) => vec![Cell::Nothing; count],
        (ColumnKind::Number(rule), law) => {
            let mut entries = numbers(rule, law, count, draws);
            entries.sort_by(f64::total_cmp);
            entries.into_iter().map(Cell::Entry).collect()
        }
        (ColumnKind::Boolean(_), law) => {
            let share = match law {
                Some(Marginal::Share(share)) => *share,
                _ => draws.beta(TRUTH.0, TRUTH.1),
            };
            spread_out(&[(share, Cell::Level(1)), (1.0 - share, Cell::Level(0))], count, draws)
        }
        (ColumnKind::Category(rule), law) => {
            let shares: Vec<f64> = match law {
                Some(Marginal::Shares(shares)) => shares.clone(),
                _ => {
                    let concentration = log_uniform(LEVELS, draws);
                    let weights: Vec<f64> = rule.values.iter().map(|_| draws.gamma(concentration)).collect();
                    let total: f64 = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
                    weights.into_iter().map(|weight| weight / total).collect()
                }
            };
            let rest = (1.0 - shares.iter().sum::<f64>()).max(0.0);
            let level = |(share, level): (f64, u32)| (share, Cell::Level(level));
            let mut levels: Vec<(f64, Cell)> = shares.into_iter().zip(0..).map(level).chain([(rest, Cell::Nothing)]).collect();
            // Which level goes with a high factor is not known.
            draws.shuffle(&mut levels);
            spread_out(&levels, count, draws)
        }
    }
}

/// Entries of a number.
fn numbers(rule: &NumberRule, law: Option<&Marginal>, count: usize, draws: &mut Draws) -> Vec<f64> {
    // A published law is one of values in the file; the broad law is one of entries, where a transform has made the range even.
    let (low, high, mean, sd, in_file) = match law {
        Some(Marginal::Moments { mean, sd }) => (rule.lower, rule.upper, *mean, *sd, true),
        _ => {
            let (low, high) = (rule.encode(rule.lower), rule.encode(rule.upper));
            let place = (-low / (high - low) + NUMBER_MEAN * draws.normal()).clamp(0.01, 0.99);
            (low, high, low + place * (high - low), log_uniform(NUMBER_SD, draws) * (high - low), false)
        }
    };
    let place = ((mean - low) / (high - low)).clamp(1e-6, 1.0 - 1e-6);
    let variance = (sd / (high - low)).powi(2).min(0.98 * place * (1.0 - place));
    let size = place * (1.0 - place) / variance - 1.0;
    let draw = |_| {
        let value = low + (high - low) * draws.beta(place * size, (1.0 - place) * size);
        if in_file { rule.encode(value) } else { value }
    };
    (0..count).map(draw).collect()
}

/// So many cells with these shares, in their order: exact up to one row each.
#[allow(clippy::cast_precision_loss, reason = "a number of rows")]
fn spread_out(shares: &[(f64, Cell)], count: usize, draws: &mut Draws) -> Vec<Cell> {
    let start = draws.uniform();
    let mut ends = Vec::with_capacity(shares.len());
    let mut total = 0.0;
    for (share, _) in shares {
        total += share;
        ends.push(total);
    }
    let cell = |row: usize| {
        let at = (row as f64 + start) / count as f64;
        let level = ends.iter().position(|end| at < *end).unwrap_or(shares.len().saturating_sub(1));
        shares[level].1
    };
    (0..count).map(cell).collect()
}

/// Rows as a loader makes them.
fn assembled(schema: &Schema, columns: &[Vec<Cell>], count: usize) -> Rows {
    let mut rows = Rows::new(schema.dimension() as usize);
    let (mut indices, mut values): (Vec<u32>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut space = RowSpace::default();
    for row in 0..count {
        indices.clear();
        values.clear();
        let mut offset = 0.0;
        let push = |position: u32, value: f64| {
            indices.push(position);
            values.push(value);
        };
        let cells = schema.columns().iter().zip(columns).map(|(column, cells)| (column, cells[row]));
        if let Some(design) = schema.design() {
            let (cells, filled): (Vec<_>, Vec<_>) = cells.map(|(column, cell)| for_formula(column, cell)).unzip();
            let record = Record { cells: &cells, filled: &filled, site: None };
            offset = design.offset(&record);
            design.row(&record, &mut space, push);
        }
        let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt();
        let scale = if norm > schema.row_norm_bound() { schema.row_norm_bound() / norm } else { 1.0 };
        values.iter_mut().for_each(|x| *x *= scale);
        rows.push(&indices, &values, offset);
    }
    rows
}

/// The cell as a formula sees it, and whether it has no value.
fn for_formula(column: &Column, cell: Cell) -> (formula::Cell, bool) {
    match (&column.kind, cell) {
        (ColumnKind::Number(rule), Cell::Entry(entry)) => (formula::Cell::Number(rule.decode(entry).clamp(rule.lower, rule.upper)), false),
        (ColumnKind::Number(rule), _) => (formula::Cell::Number(rule.stand_in()), true),
        (_, Cell::Level(level)) => (formula::Cell::Level(level), false),
        _ => (formula::Cell::Missing, true),
    }
}

fn coefficients(task: &ResolvedTask, schema: &Schema, rows: &Rows, draws: &mut Draws) -> Option<Vec<f64>> {
    let priors = task.setting().priors();
    let mut truth: Vec<f64> = priors.mean.iter().zip(&priors.precision).map(|(m, p)| m + draws.normal() / p.sqrt()).collect();
    let most = log_uniform(SPREAD, draws);
    let spread = |truth: &[f64]| {
        let (mean, square) = moments(rows.iter().map(|row| dot(row.indices, row.values, truth, schema.intercept())));
        (square - mean * mean).max(0.0).sqrt()
    };
    let drawn = spread(&truth);
    let factor = if drawn > most { most / drawn } else { 1.0 };
    scale(&mut truth, schema.intercept(), factor);
    let published = schema.label().published.as_ref().map(|published| &published.law);
    let (mean, sd) = match (published, &schema.label().kind) {
        (Some(Marginal::Share(share)), _) => (*share, None),
        (Some(Marginal::Moments { mean, sd }), LabelKind::Number { rule, .. }) => {
            let half = 0.5 * (rule.encode(mean + sd) - rule.encode(mean - sd));
            (rule.encode(*mean), Some(half))
        }
        // What people ask about is often rare, and what is common has another name.
        (_, LabelKind::Binary { .. }) => {
            let share = if draws.uniform() < 0.5 { draws.between(BALANCED.0, BALANCED.1) } else { log_uniform(CLASS, draws) };
            (if draws.uniform() < 0.2 { 1.0 - share } else { share }, None)
        }
        _ => return Some(truth),
    };
    if let Some(sd) = sd {
        let current = spread(&truth);
        let wanted = explained_spread(&*law(task, &truth)?, mean, sd);
        if current > 0.0 && wanted.is_finite() {
            scale(&mut truth, schema.intercept(), wanted / current);
        }
    }
    let Some(intercept) = schema.intercept() else { return Some(truth) };
    // The response grows with the intercept: bisection.
    let (mut low, mut high) = (-30.0, 30.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        truth[intercept as usize] = middle;
        let law = law(task, &truth)?;
        let response = |row: Row<'_>| response(&law.predict(example(row))).0;
        let (now, _) = moments(rows.iter().take(400).map(response));
        if now < mean { low = middle } else { high = middle }
    }
    Some(truth)
}

/// Multiplies all coefficients but the intercept.
fn scale(truth: &mut [f64], intercept: Option<u32>, factor: f64) {
    let intercept = intercept.map(|at| at as usize);
    truth.iter_mut().enumerate().filter(|(j, _)| Some(*j) != intercept).for_each(|(_, value)| *value *= factor);
}

/// Standard deviation of the predictor that leaves a label with this mean and standard deviation.
fn explained_spread(law: &dyn Law, mean: f64, sd: f64) -> f64 {
    match law.predict(Example { indices: &[], values: &[], target: 0.0, offset: 0.0, extra: Default::default() }) {
        Prediction::Number { variance, .. } | Prediction::HeavyTailed { variance, .. } => (sd * sd - variance).max(0.0).sqrt(),
        // Var y = E y + (E y)² (e^{s²} (1 + 1/φ) − 1) for a log-rate of standard deviation s.
        Prediction::Count { dispersion, .. } if mean > 0.0 => {
            let excess = ((sd * sd - mean) / (mean * mean)).ln_1p() - dispersion.recip().ln_1p();
            excess.max(0.0).sqrt()
        }
        _ => f64::NAN,
    }
}

fn set_targets(task: &ResolvedTask, schema: &Schema, rows: &mut Rows, truth: &[f64], draws: &mut Draws) -> Option<()> {
    let law = law(task, truth)?;
    let range = match &schema.label().kind {
        LabelKind::Number { rule, .. } => (rule.encode(rule.lower), rule.encode(rule.upper)),
        _ => (0.0, 1.0),
    };
    let is_class = task.model.rules().response().class_count().is_some();
    rows.set_targets(|row| {
        let prediction = law.predict(example(row));
        let (mean, variance) = response(&prediction);
        if is_class {
            return [(1.0, mean), (0.0, 1.0 - mean)];
        }
        let drawn = match prediction {
            Prediction::Count { dispersion, .. } if dispersion.is_finite() => {
                let rate = mean * draws.gamma(dispersion) / dispersion;
                draws.poisson(rate.min(1e9))
            }
            Prediction::Count { .. } => draws.poisson(mean.min(1e9)),
            _ => mean + variance.sqrt() * draws.normal(),
        };
        [(drawn.clamp(range.0, range.1), 1.0), (0.0, 0.0)]
    });
    Some(())
}

/// Mean and variance of the target that a prediction says.
fn response(prediction: &Prediction) -> (f64, f64) {
    match *prediction {
        Prediction::Class { probability, .. } | Prediction::Probit { probability, .. } => (probability, probability * (1.0 - probability)),
        Prediction::Number { mean, variance }
        | Prediction::Count { mean, variance, .. }
        | Prediction::HeavyTailed { mean, variance, .. } => (mean, variance),
        Prediction::Classes { .. } | Prediction::Survival { .. } | Prediction::Component { .. } => (0.0, 0.0),
    }
}

/// What the model says of rows where its parameters are known.
fn law(task: &ResolvedTask, truth: &[f64]) -> Option<Arc<dyn Law>> {
    const PRECISION: f64 = 1e12;
    let natural = truth.iter().map(|value| PRECISION * value).chain(truth.iter().map(|_| PRECISION)).collect();
    let posterior = Arc::new(Gaussian::from_natural(Family::DiagonalGaussian { dimension: truth.len() }, natural).ok()?);
    task.model.rules().law(&Outcome { posterior, state: None, noise_sd: None }).ok()
}

fn example(row: Row<'_>) -> Example<'_> {
    Example { indices: row.indices, values: row.values, target: 0.0, offset: row.offset, extra: Default::default() }
}

fn dot(indices: &[u32], values: &[f64], truth: &[f64], without: Option<u32>) -> f64 {
    indices.iter().zip(values).filter(|(j, _)| Some(**j) != without).map(|(&j, x)| x * truth[j as usize]).sum()
}

/// Mean and mean square.
fn moments(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (count, sum, square) = values.fold((0.0, 0.0, 0.0), |(n, s, q): (f64, f64, f64), v| (n + 1.0, s + v, q + v * v));
    (sum / count.max(1.0), square / count.max(1.0))
}

fn log_uniform((low, high): (f64, f64), draws: &mut Draws) -> f64 {
    low * (high / low).powf(draws.uniform())
}
