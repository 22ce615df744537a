//! Likelihoods in which a record becomes several rows ([`dp_pvi_models::many_rows`]): what methods compute of the rows.

use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::{Gaussian, Standard};
use dp_pvi_models::many_rows::{Beliefs, ManyRows, Place, PseudoRows, Sparse, diagonal_covariance};
use dp_pvi_privacy::mechanism::Term;
use nalgebra::{DMatrix, DVector};

use super::optimum::{Problem, ascend};
use super::{Gradients, LocalOptimum, Model};
use crate::mean_field::{MeanField, ScaleCoordinate};
use dp_pvi_records::{RecordTable, RecordView};

/// The engines of any likelihood of many rows.
#[derive(Clone)]
pub struct ManyRowsModel(pub Arc<dyn ManyRows>);

impl Model for ManyRowsModel {
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64 {
        let mut rows = PseudoRows::default();
        write(self.0.as_ref(), record, &Place::at(q.standard()), &mut rows);
        rows.expected()
    }

    fn many_rows(&self) -> Option<&dyn ManyRows> {
        Some(self.0.as_ref())
    }

    fn gradients(&self) -> Option<&dyn Gradients> {
        Some(self)
    }

    fn local_optimum(&self) -> Option<&dyn LocalOptimum> {
        Some(self)
    }
}

impl Gradients for ManyRowsModel {
    fn gradient(&self, record: RecordView<'_>, q: &MeanField, term: &mut Term) {
        let mut rows = PseudoRows::default();
        write(self.0.as_ref(), record, &Place::at(q), &mut rows);
        // A record with a number that is not finite, or that overflows, contributes 0.
        if !rows.is_finite() {
            return;
        }
        #[allow(clippy::cast_possible_truncation, reason = "2d is a 32-bit number: a mechanism over 2d coordinates exists")]
        let offset = q.dimension() as u32;
        for (row, at) in rows.iter().filter(|(_, at)| at.residual != 0.0) {
            term.extend(row.entries().map(|(j, x)| (j, at.residual * x)));
        }
        for (row, at) in rows.iter() {
            match q.coordinate() {
                ScaleCoordinate::LogScale => {
                    let moments = q.moments();
                    term.extend(row.entries().map(|(j, x)| (offset + j, -at.curvature * x * x * moments[j as usize][1])));
                }
                ScaleCoordinate::HalfVariance { weight } => {
                    let factor = -weight * at.curvature;
                    term.extend(row.entries().map(|(j, x)| (offset + j, factor * x * x)));
                }
            }
        }
    }
}

impl LocalOptimum for ManyRowsModel {
    fn weighted_optimum(
        &self,
        table: &RecordTable,
        weight: f64,
        tolerance: f64,
        cavity: &Gaussian,
        start: &Gaussian,
    ) -> Result<Gaussian, InvalidParameters> {
        ascend(&OfTable { rows: self.0.as_ref(), table, weight }, tolerance, cavity, start)
    }
}

/// The likelihood of a table.
struct OfTable<'a> {
    rows: &'a dyn ManyRows,
    table: &'a RecordTable,
    weight: f64,
}

impl Problem for OfTable<'_> {
    fn first_curvature(&self, start: &Gaussian) -> DMatrix<f64> {
        let write = |record: RecordView<'_>, rows: &mut PseudoRows| {
            self.rows.write_typical(record.example(), &Place::at(start.standard()), rows);
        };
        sums_of(self.table, Beliefs::dimension(start.standard()), write).1 * self.weight
    }

    fn sums(&self, q: &Gaussian) -> (DVector<f64>, DMatrix<f64>) {
        let (first, second) = sums(self.rows, self.table, q.standard());
        (first * self.weight, second * self.weight)
    }

    fn value(&self, q: &Gaussian, centre: &[f64]) -> f64 {
        let place = Place { centre: Some(centre), ..Place::at(q.standard()) };
        let mut rows = PseudoRows::default();
        let of = |record: RecordView<'_>| {
            write(self.rows, record, &place, &mut rows);
            rows.expected()
        };
        self.weight * self.table.records().filter(RecordView::is_finite).map(of).sum::<f64>()
    }

    fn left_out(&self, q: &Gaussian) -> Option<DMatrix<f64>> {
        let write = |record: RecordView<'_>, rows: &mut PseudoRows| {
            self.rows.write_left_out(record.example(), &Place::at(q.standard()), rows);
        };
        let matrix = || sums_of(self.table, Beliefs::dimension(q.standard()), write).1 * self.weight;
        self.rows.has_moving_rows().then(matrix)
    }

    fn depends_on_centre(&self) -> bool {
        self.rows.has_moving_rows()
    }
}

/// Σ g and ΣH over the records of a table, at q.
pub(crate) fn sums(model: &dyn ManyRows, table: &RecordTable, q: &Standard) -> (DVector<f64>, DMatrix<f64>) {
    sums_of(table, Beliefs::dimension(q), |record, rows| model.write(record.example(), &Place::at(q), rows))
}

/// Σ r ρ and Σ c ρρᵀ over the rows of all records that are finite, each times its weight.
fn sums_of(table: &RecordTable, d: usize, write: impl Fn(RecordView<'_>, &mut PseudoRows)) -> (DVector<f64>, DMatrix<f64>) {
    let (mut first, mut second) = (DVector::zeros(d), DMatrix::zeros(d, d));
    let mut rows = PseudoRows::default();
    for record in table.records().filter(RecordView::is_finite) {
        rows.clear();
        write(record, &mut rows);
        rows.times(record.extra.weight);
        if !rows.is_finite() {
            continue;
        }
        for (row, at) in rows.iter() {
            for (k, (j, x)) in row.entries().enumerate() {
                first[j as usize] += at.residual * x;
                let weight = at.curvature * x;
                for (i, y) in row.entries().take(k + 1) {
                    second[(i as usize, j as usize)] += weight * y;
                }
            }
        }
    }
    second.fill_lower_triangle_with_upper_triangle();
    (first, second)
}

/// Writes the rows of a record, times its weight, in place of those that are there.
pub(crate) fn write(model: &dyn ManyRows, record: RecordView<'_>, place: &Place<'_>, rows: &mut PseudoRows) {
    rows.clear();
    model.write(record.example(), place, rows);
    rows.times(record.extra.weight);
}

/// Writes the rows of a record's bound, times its weight, in place of those that are there.
pub(crate) fn write_bound(model: &dyn ManyRows, record: RecordView<'_>, dimension: usize, bound: f64, rows: &mut PseudoRows) {
    rows.clear();
    model.write_bound(record.example(), dimension, bound, rows);
    rows.times(record.extra.weight);
}

impl Beliefs for MeanField {
    fn dimension(&self) -> usize {
        Self::dimension(self)
    }

    fn mean(&self, j: u32) -> f64 {
        self.moments()[j as usize][0]
    }

    fn covariance(&self, a: Sparse<'_>, b: Sparse<'_>) -> f64 {
        diagonal_covariance(a, b, |j| self.moments()[j as usize][1])
    }
}
