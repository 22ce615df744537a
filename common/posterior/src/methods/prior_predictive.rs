//! A run on rows that were drawn from public values, in place of records: what a round's messages would be, noise included. Forecasts are made of it,
//! and nothing that a site computes.
//!
//! All sites have the same mix of [rows](dp_pvi_models::rows), in proportion to their declared sizes.

use super::{Setting, SumSpec};
use dp_pvi_math::draws::Draws;
use dp_pvi_models::predictor::Predictor;
use dp_pvi_models::rows::Rows;

/// A site of a round.
#[derive(Debug, Clone, Copy)]
pub struct Player<'a> {
    /// Its share of all records.
    pub share: f64,
    /// What it carries: λ_m, or nothing.
    pub carried: &'a [f64],
}

/// One round of a simulation.
pub struct Stage<'a> {
    /// The records of all sites.
    pub rows: &'a Rows,
    /// The likelihood.
    pub predictor: &'a dyn Predictor,
    /// The sites of the round.
    pub players: &'a [Player<'a>],
    /// The noise.
    pub draws: &'a mut Draws,
}

/// What a round's sites send.
#[derive(Debug, Clone, PartialEq)]
pub enum Sent {
    /// The sum of their messages, of which they keep nothing.
    Sum(Vec<f64>),
    /// The change of every site, of which it keeps its part.
    Changes(Vec<Vec<f64>>),
}

/// Why there is no forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotForecast {
    /// Nothing is written for this update.
    #[error("for this update nobody has worked out what a run on drawn rows would send")]
    Update,
    /// Not a regression over a table.
    #[error("only regressions over a table with one linear predictor and no parameters of their own beside its coefficients are forecast")]
    Model,
    /// The scale of the observations is part of what is asked.
    #[error("with scale = \"learned\" rows cannot be drawn: nothing says how far labels are off; state the scale as a number to forecast")]
    Scale,
    /// It has no interval that includes the noise.
    #[error("{0}")]
    Intervals(super::noise_aware::Absent),
    /// Most simulated runs had none.
    #[error("most runs on drawn rows ended without complete intervals: give the run more records, more budget or more rounds")]
    Fails,
    /// Too much to compute before a run.
    #[error("more than {0} coefficients are too many for a forecast")]
    TooLarge(u32),
    /// No declared unit.
    #[error("no site has declared a record")]
    Nobody,
    /// The task cannot be resolved under the other setting.
    #[error("the task cannot be run so: its update or its sites do not allow it")]
    Setting,
}

impl Stage<'_> {
    /// Records of the round's sites over all records.
    pub(crate) fn share(&self) -> f64 {
        self.players.iter().map(|player| player.share).sum()
    }

    /// Adds the noise that the sites' messages bring into their sum.
    pub(crate) fn add_noise(&mut self, task: &Setting<'_>, spec: &SumSpec, sum: &mut [f64]) {
        let variance = task.gathered_noise().of(u32::try_from(self.players.len()).unwrap_or(u32::MAX));
        self.draws.add_normals(spec.clip.get() * spec.noise.get() * variance.sqrt(), sum);
    }
}
