//! Partial-effect curves: what a formula's bent terms say of the linear predictor over the range of their column.

use dp_pvi_math::expfam::any::Standard;
use dp_pvi_schema::formula::{Design, Record, RowSpace};
use dp_pvi_schema::{ColumnKind, Schema};
use serde::{Deserialize, Serialize};

use super::formula::reference_cells;
use crate::ModelSpec;
use crate::prediction::{Interval, Level};
use dp_pvi_schema::formula::Cell;

/// Points of a curve, equally spaced over the column's range.
const POINTS: u32 = 101;

/// What one term of a formula adds to the linear predictor, as a function of its column. It is centred: its mean over the points is 0, as that of the rest of the
/// predictor is the intercept's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// The term; of several classes with the class before it.
    pub term: String,
    /// Its column.
    pub column: String,
    /// Whether the column is cut into levels: the curve then is flat between two of its points, or jumps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steps: bool,
    /// By ascending value of the column.
    pub points: Vec<CurvePoint>,
}

impl Curve {
    /// Whether two say the same up to the rounding of different machines.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-8 * (1.0 + b.abs());
        let point = |(a, b): (&CurvePoint, &CurvePoint)| {
            near(a.x, b.x) && near(a.mean, b.mean) && a.sd.is_some() == b.sd.is_some() && near(a.sd.unwrap_or(0.0), b.sd.unwrap_or(0.0))
        };
        (&self.term, &self.column, self.steps, self.points.len()) == (&other.term, &other.column, other.steps, other.points.len())
            && self.points.iter().zip(&other.points).all(point)
    }
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// The column's value, in the unit of the file.
    pub x: f64,
    /// Posterior mean.
    pub mean: f64,
    /// Posterior standard deviation; absent in a mean field, which takes the coefficients for independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
}

impl CurvePoint {
    /// Central interval at this point alone.
    #[must_use]
    pub fn interval(&self, level: Level) -> Option<Interval> {
        self.sd.map(|sd| level.interval(self.mean, sd))
    }
}

/// The curves of a model whose rows are made by a formula; none elsewhere, and none for terms of several columns.
///
/// A curve at g is L_g μ, with L_g the term's own row at the g-th of 101 points minus the mean of these rows; its variance is L_g Σ L_gᵀ.
#[must_use]
pub fn curves(model: &ModelSpec, schema: &Schema, posterior: &Standard) -> Vec<Curve> {
    let Some(design) = schema.design() else { return Vec::new() };
    let classes = model.rules().classes_with_coefficients(schema);
    let mut curves = Vec::new();
    for (number, term) in design.terms().iter().enumerate() {
        let Some(position) = design.bent(number) else { continue };
        let column = &schema.columns()[position];
        let ColumnKind::Number(rule) = &column.kind else { continue };
        let at = |g: u32| rule.lower + (rule.upper - rule.lower) * f64::from(g) / f64::from(POINTS - 1);
        let rows = centred((0..POINTS).map(|g| row(schema, design, (term.first, term.count), position, at(g))).collect());
        for copy in 0..classes.len().max(1) {
            // A model has at most as many coefficients as fit into 32 bits.
            #[allow(clippy::cast_possible_truncation, reason = "below the number of coefficients")]
            let first = model.rules().own_before_rows() + term.first + copy as u32 * schema.dimension();
            let indices: Vec<u32> = (first..first + term.count).collect();
            let point = |(g, row): (u32, &Vec<f64>)| {
                let (mean, variance) = posterior.project(&indices, row);
                let known = matches!(posterior, Standard::Full(_)) || term.count == 1;
                CurvePoint { x: at(g), mean, sd: known.then(|| variance.max(0.0).sqrt()) }
            };
            let name = classes.get(copy).map_or_else(|| term.name.clone(), |class| format!("{class}: {}", term.name));
            curves.push(Curve {
                term: name,
                column: column.name.clone(),
                steps: design.is_cut(number),
                points: (0..POINTS).zip(&rows).map(point).collect(),
            });
        }
    }
    curves
}

/// The entries of one term where its column has this value.
fn row(schema: &Schema, design: &Design, (first, count): (u32, u32), column: usize, value: f64) -> Vec<f64> {
    let mut cells = reference_cells(schema, design);
    cells[column] = Cell::Number(value);
    let mut row = vec![0.0; count as usize];
    let record = Record { cells: &cells, filled: &vec![false; cells.len()], site: None };
    design.row(&record, &mut RowSpace::default(), |position, value| {
        if let Some(entry) = position.checked_sub(first).and_then(|own| row.get_mut(own as usize)) {
            *entry = value;
        }
    });
    row
}

/// Rows minus their mean.
fn centred(mut rows: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    #[allow(clippy::cast_precision_loss, reason = "101 points")]
    let count = rows.len() as f64;
    for j in 0..rows.first().map_or(0, Vec::len) {
        let mean = rows.iter().map(|row| row[j]).sum::<f64>() / count;
        rows.iter_mut().for_each(|row| row[j] -= mean);
    }
    rows
}
