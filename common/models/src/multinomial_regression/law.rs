//! Probabilities of classes under a posterior of their predictors: the mean of a softmax over fixed points.

use std::sync::Arc;

use dp_pvi_math::expfam::any::Gaussian;
use nalgebra::{DMatrix, DVector};

use super::MultinomialRegression;
use crate::many_rows::{Beliefs, Sparse};
use crate::prediction::{Example, Law, Prediction};
use dp_pvi_math::softmax_mean::SoftmaxMean;

/// What a posterior says of a row.
#[derive(Debug)]
pub(super) struct ClassLaw {
    model: MultinomialRegression,
    posterior: Arc<Gaussian>,
    rule: SoftmaxMean,
}

impl ClassLaw {
    pub(super) fn new(model: MultinomialRegression, posterior: Arc<Gaussian>) -> Self {
        Self { model, posterior, rule: SoftmaxMean::new(model.predictors() as usize) }
    }

    /// P(y = k) of every class.
    fn probabilities(&self, row: Example<'_>) -> Vec<f64> {
        let q = self.posterior.standard();
        let (width, count) = (self.model.width(Beliefs::dimension(q)), self.model.predictors() as usize);
        let shifted = |class: usize| -> Vec<u32> {
            #[allow(clippy::cast_possible_truncation, reason = "below the number of classes")]
            let start = class as u32 * width;
            row.indices.iter().map(|j| start + j).collect()
        };
        let indices: Vec<Vec<u32>> = (0..count).map(shifted).collect();
        let of = |class: usize| Sparse { indices: &indices[class], values: row.values };
        let mean = DVector::from_fn(count, |k, _| q.project(indices[k].as_slice(), row.values).0);
        let covariance = DMatrix::from_fn(count, count, |k, l| q.covariance(of(k), of(l)));
        self.rule.probabilities(&mean, &covariance)
    }
}

impl Law for ClassLaw {
    fn dimension(&self) -> usize {
        self.model.width(Beliefs::dimension(self.posterior.standard())) as usize
    }

    fn predict(&self, row: Example<'_>) -> Prediction {
        Prediction::Classes { probabilities: self.probabilities(row) }
    }

    fn log_density(&self, row: Example<'_>) -> f64 {
        let probability = self.model.class(row.target).map_or(0.0, |class| self.probabilities(row)[class]);
        probability.max(f64::MIN_POSITIVE).ln()
    }
}
