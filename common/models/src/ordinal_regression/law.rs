//! Probabilities of ordered classes: P(y ≤ j) = E σ(α_j − η) with α_j − η linearised at the mean of κ, whose differences are floored at 0 and add up to 1.

use std::sync::Arc;

use dp_pvi_math::expfam::any::Gaussian;

use super::OrdinalRegression;
use super::rows::Thresholds;
use crate::many_rows::Beliefs;
use crate::prediction::{Example, Law, Prediction, Scores};
use dp_pvi_math::quadrature::sigmoid_moments;

/// What a posterior says of a row.
#[derive(Debug)]
pub(super) struct OrderedLaw {
    model: OrdinalRegression,
    posterior: Arc<Gaussian>,
    width: u32,
    thresholds: Thresholds,
}

impl OrderedLaw {
    pub(super) fn new(model: OrdinalRegression, posterior: Arc<Gaussian>) -> Self {
        let q = posterior.standard();
        let width = model.width(Beliefs::dimension(q));
        let thresholds = Thresholds::at(&q.mean()[width as usize..]);
        Self { model, width, thresholds, posterior }
    }

    /// P(y = j) of every class.
    fn probabilities(&self, row: Example<'_>) -> Vec<f64> {
        let (mut indices, mut values): (Vec<u32>, Vec<f64>) = row.indices.iter().zip(row.values).map(|(&j, x)| (j, -x)).unzip();
        let mut below = Vec::with_capacity(self.thresholds.values.len() + 2);
        below.push(0.0);
        for ((j, slope), constant) in (self.width..).zip(&self.thresholds.slopes).zip(&self.thresholds.constants) {
            indices.push(j);
            values.push(*slope);
            let (mean, variance) = self.posterior.standard().project(&indices, &values);
            below.push(sigmoid_moments(mean + constant, variance).sigmoid);
        }
        below.push(1.0);
        let differences: Vec<f64> = below.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).collect();
        let total: f64 = differences.iter().sum();
        differences.into_iter().map(|difference| difference / total).collect()
    }
}

impl Law for OrderedLaw {
    fn dimension(&self) -> usize {
        self.width as usize
    }

    fn predict(&self, row: Example<'_>) -> Prediction {
        Prediction::Classes { probabilities: self.probabilities(row) }
    }

    fn log_density(&self, row: Example<'_>) -> f64 {
        let probability = self.model.class(row.target).map_or(0.0, |class| self.probabilities(row)[class]);
        probability.max(f64::MIN_POSITIVE).ln()
    }

    fn scores(&self, row: Example<'_>) -> Scores {
        self.model.class(row.target).map_or(Scores::NONE, |class| Scores::of_ordered(class, &self.probabilities(row)))
    }
}
