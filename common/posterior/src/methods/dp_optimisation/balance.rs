//! What a clipping norm is spent on: public scales of features, and weights of records.
//!
//! # Scales
//! A category with L levels has L coefficients, each seen by about n/L records: their curvatures are h ~ n/L, and under noise s on every
//! entry of the gradient they lose about Σ h (s/h)² ~ s²L²/n together, so categories of many levels lose nearly all that is lost. With entries
//! multiplied by a before the clip their noise is s/a, and for a given Σ a² the loss Σ L²/a² is least at a ~ L^½. Shrinkage keeps coefficients
//! of rare levels from losing that much, and half of the exponent is best then (figures: `deploy/guide/src/results/defaults.md`).
//! The scales follow from the public schema alone.
//!
//! # Weights
//! To shorten a gradient that is longer than C biases the fit: rare surprises are cut, common residuals are not. A record is instead
//! multiplied by min(1, C / the longer of the norms of its gradients with either class). That is a function
//! of its features and the public posterior, so that the mean of its gradient is still 0 where the model is right (Künsch, Stefanski and Carroll
//! 1989 call such estimators conditionally unbiased). Less is lost than it seems: long are the gradients of records whose class is nearly
//! certain, which say little. Of a person with many records each is weighted by itself, and their sum is clipped.
//!
//! # Privacy
//! Both are functions of the record itself and of public values, and the mechanism clips and checks what comes out: sensitivity and event
//! are those of C without them.

use super::task::DpOptimisationSpec;
use crate::methods::Setting;
use dp_pvi_models::spec::TaskError;
use dp_pvi_models::spec::check::require;

impl DpOptimisationSpec {
    /// a: what the entries of every coefficient's gradient are multiplied by before the clip. Their mean square over the columns of the
    /// schema (and the intercept) is 1, so that a row that has an entry 1 in each keeps its length.
    ///
    /// # Errors
    /// The task's schema is none (never for a task that was resolved or read).
    pub fn feature_scales(&self, task: &Setting<'_>) -> Result<Vec<f64>, TaskError> {
        let dimension = task.dimension as usize;
        let Some(exponent) = self.level_exponent else { return Ok(vec![1.0; dimension]) };
        let schema = task.parsed_schema()?;
        #[allow(clippy::cast_precision_loss, reason = "a number of levels")]
        let columns: Vec<(usize, f64)> = schema.widths().into_iter().map(|width| (width, (width as f64).powf(exponent))).collect();
        #[allow(clippy::cast_precision_loss, reason = "a number of columns")]
        let square = columns.iter().map(|(_, scale)| scale * scale).sum::<f64>() / columns.len().max(1) as f64;
        let scales: Vec<f64> = columns.iter().flat_map(|&(width, scale)| std::iter::repeat_n(scale / square.sqrt(), width)).collect();
        require(scales.len() == dimension, "level_exponent needs a model with one coefficient for every feature")?;
        Ok(scales)
    }

    pub(crate) fn check_balance(&self, task: &Setting<'_>) -> Result<(), TaskError> {
        require(
            !self.weighted || task.model.rules().has_two_classes(),
            "weighted = true needs a model of two classes: logistic-regression or probit-regression",
        )?;
        if let Some(exponent) = self.level_exponent {
            require((0.0..=1.0).contains(&exponent), "level_exponent must lie between 0 and 1")?;
            require(task.model.rules().is_linear(), "level_exponent needs a regression")?;
            self.feature_scales(task)?;
        }
        Ok(())
    }
}
