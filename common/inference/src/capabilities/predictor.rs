//! The engines of any likelihood of a linear predictor ([`Predictor`]): gradients, exact local optima, moment matching.

use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_models::predictor::{Predicted, Predictor, Shape};
use dp_pvi_privacy::mechanism::{Summation, Summed, Term};

use super::glm::{self, add_gradient, project};
use super::optimum::{ascent_on_support, closed_form, fit_log_concave};
use super::tilted::{MomentMatching, PredictorMatching};
use super::{Gradients, LocalOptimum, Model};
use crate::mean_field::MeanField;
use dp_pvi_records::{RecordTable, RecordView};

/// A likelihood of a linear predictor, ready for methods.
#[derive(Clone)]
pub struct PredictorModel(pub Arc<dyn Predictor>);

impl PredictorModel {
    /// Of this likelihood.
    #[must_use]
    pub fn of(predictor: impl Predictor + 'static) -> Self {
        Self(Arc::new(predictor))
    }
}

impl Model for PredictorModel {
    fn expected_log_likelihood(&self, record: RecordView<'_>, q: &Gaussian) -> f64 {
        glm::expected_log_likelihood(self.0.as_ref(), record, q)
    }

    fn linear_predictor(&self) -> Option<&dyn Predictor> {
        Some(self.0.as_ref())
    }

    fn moment_matching(&self, family: Family) -> Option<Box<dyn MomentMatching>> {
        let model = self.0.tilted()?;
        Some(Box::new(PredictorMatching { model, family }))
    }

    fn gradients(&self) -> Option<&dyn Gradients> {
        Some(self)
    }

    fn local_optimum(&self) -> Option<&dyn LocalOptimum> {
        Some(self)
    }
}

impl Gradients for PredictorModel {
    fn gradient(&self, record: RecordView<'_>, q: &MeanField, term: &mut Term) {
        let (mean, variance) = project(record, q);
        let statistics = self.0.statistics(mean, variance, record.target);
        add_gradient(record, q, &Predicted { statistics, ..Predicted::new((mean, variance), record.target) }, term);
    }

    fn sum(&self, point: &MeanField, sum: Summation<'_, RecordTable>) -> Summed {
        sum.each_in_lanes(
            |unit, _, (), notes| unit.records().for_each(|record| notes.push(Predicted::new(project(record, point), record.target))),
            |predictors| self.0.statistics_of_many(predictors),
            |unit, _, (), predictors, term| {
                unit.records().zip(predictors).for_each(|(record, predicted)| add_gradient(record, point, predicted, term));
            },
        )
    }
}

impl LocalOptimum for PredictorModel {
    fn weighted_optimum(
        &self,
        table: &RecordTable,
        weight: f64,
        tolerance: f64,
        cavity: &Gaussian,
        start: &Gaussian,
    ) -> Result<Gaussian, InvalidParameters> {
        let model = self.0.as_ref();
        match model.shape() {
            Shape::Normal { precision } => closed_form(precision, table, weight, cavity),
            Shape::LogConcave => fit_log_concave(model, table, weight, tolerance, cavity, start),
            Shape::Other => ascent_on_support(model, table, weight, tolerance, cavity, start),
        }
    }
}
