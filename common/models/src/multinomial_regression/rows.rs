//! A record of K classes as K rows over the coefficients: e_k⊗x with r_k = (e_y − p)_k and c_k = p_k, and one row p⊗x with r = 0 and c = −1, for what
//! diag p − ppᵀ is less than its diagonal part.

use nalgebra::{DMatrix, DVector};

use super::MultinomialRegression;
use crate::many_rows::{ManyRows, Place, PseudoRows};
use crate::predictor::Statistics;
use dp_pvi_math::tilted_softmax::TiltedSoftmax;
use dp_pvi_schema::public::Example;

impl ManyRows for MultinomialRegression {
    fn write(&self, record: Example<'_>, at: &Place<'_>, rows: &mut PseudoRows) {
        let width = self.width(at.q.dimension());
        let count = self.predictors() as usize;
        for class in 0..self.predictors() {
            rows.push(shifted(record, class * width));
        }
        let (mut mean, mut covariance) = (DVector::zeros(count), DMatrix::zeros(count, count));
        for k in 0..count {
            (mean[k], covariance[(k, k)]) = at.q.project(rows.row(k));
            for l in 0..k {
                let both = at.q.covariance(rows.row(l), rows.row(k));
                (covariance[(l, k)], covariance[(k, l)]) = (both, both);
            }
        }
        // What is not finite, or no class, contributes 0.
        let finite = mean.iter().chain(covariance.iter()).all(|value| value.is_finite());
        let Some(class) = self.class(record.target).filter(|_| finite) else { return rows.clear() };
        let softmax = TiltedSoftmax::new(&mean, &covariance);
        let residual = softmax.residual(class);
        for (k, (&residual, &curvature)) in residual.iter().zip(softmax.probabilities.iter()).enumerate() {
            rows.set(k, Statistics { residual, curvature });
        }
        let scaled = |(class, p): (u32, f64)| shifted(record, class * width).map(move |(j, x)| (j, p * x));
        let all = (0..self.predictors()).zip(softmax.probabilities.iter().copied()).flat_map(scaled);
        rows.push_with(all, Statistics { residual: 0.0, curvature: -1.0 });
        rows.add_expected(softmax.log_probability(&mean, class));
    }

    /// ½(I − 11ᵀ/K) ⊗ xxᵀ, which is above diag p − ppᵀ for every p.
    fn write_bound(&self, record: Example<'_>, dimension: usize, _bound: f64, rows: &mut PseudoRows) {
        let width = self.width(dimension);
        for class in 0..self.predictors() {
            rows.push_with(shifted(record, class * width), Statistics { residual: 0.0, curvature: 0.5 });
        }
        let all = (0..self.predictors()).flat_map(|class| shifted(record, class * width));
        rows.push_with(all, Statistics { residual: 0.0, curvature: -0.5 / f64::from(self.classes) });
    }

    fn takes_offsets(&self) -> bool {
        false
    }
}

/// A record's entries, from `start` on.
fn shifted<'a>(record: Example<'a>, start: u32) -> impl Iterator<Item = (u32, f64)> + 'a {
    record.indices.iter().zip(record.values).map(move |(&j, &x)| (start + j, x))
}
