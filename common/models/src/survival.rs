//! What regressions of survival times share: the cumulative hazard of a row, with its uncertainty, and the predictions that follow from it.

use std::sync::Arc;

use dp_pvi_math::expfam::any::{Gaussian, Standard};

use crate::many_rows::{Beliefs, ManyRows, Place, PseudoRows};
pub use crate::prediction::LogCumulativeHazard;
use crate::prediction::{Example, Law, Prediction};

/// A regression of survival times.
pub trait SurvivalModel: Send + Sync {
    /// ln H(time) of a row that is watched from 0 on. Target, weight and times of the row are not looked at.
    fn log_cumulative_hazard(&self, q: &Standard, row: Example<'_>, time: f64) -> LogCumulativeHazard;

    /// The time to which predictions are made.
    fn horizon(&self) -> f64;
}

/// The law of a regression of survival times.
#[derive(Debug)]
pub(crate) struct SurvivalLaw<M> {
    pub(crate) model: M,
    pub(crate) posterior: Arc<Gaussian>,
    /// Number of features of a row.
    pub(crate) width: u32,
}

impl<M: SurvivalModel + ManyRows + std::fmt::Debug> Law for SurvivalLaw<M> {
    fn dimension(&self) -> usize {
        self.width as usize
    }

    fn predict(&self, row: Example<'_>) -> Prediction {
        let horizon = self.model.horizon();
        let hazard = self.model.log_cumulative_hazard(self.posterior.standard(), row, horizon);
        Prediction::Survival { horizon, hazard }
    }

    /// E_q ln p, which is below the log of the expected density.
    fn log_density(&self, row: Example<'_>) -> f64 {
        let mut rows = PseudoRows::default();
        let place = Place::at(self.posterior.standard());
        self.model.write(row, &place, &mut rows);
        rows.expected()
    }
}

/// Number of features of rows, of this many coefficients, `own` of which are the model's own.
#[allow(clippy::cast_possible_truncation, reason = "no more than 2^32 coefficients are accepted")]
pub(crate) fn width(q: &dyn Beliefs, own: u32) -> u32 {
    (q.dimension() as u32).saturating_sub(own)
}
