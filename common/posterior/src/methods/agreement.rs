//! What every site released under local trust, and why sites are not compared. The mathematics of the comparison is [`dp_pvi_math::agreement`]; what a site's
//! releases say of the coefficients is told by the modules of the methods.

use crate::methods::noise_aware::{ClosedRound, History};
pub use dp_pvi_math::agreement::Compared;
pub(crate) use dp_pvi_math::agreement::{Allowance, Evidence, compare};
use dp_pvi_models::ModelSpec;

/// What every site released in a run under local trust.
#[derive(Debug, Clone, Copy)]
pub struct SiteReleases<'a> {
    /// The run.
    pub history: &'a History,
    /// For every round of the history, and every site that is included in it, the vector that the site sent. In the same order.
    pub vectors: &'a [Vec<Vec<f64>>],
}

impl<'a> SiteReleases<'a> {
    /// Rounds with an included site, each with the vectors of its sites. `None` where vectors are not of these rounds.
    pub(crate) fn rounds(&self) -> Option<impl Iterator<Item = (&'a ClosedRound, &'a [Vec<f64>])>> {
        let rounds = self.history.rounds.iter().zip(self.vectors.iter().map(Vec::as_slice));
        let fits =
            self.history.rounds.len() == self.vectors.len() && rounds.clone().all(|(round, vectors)| round.included.len() == vectors.len());
        fits.then(|| rounds.filter(|(round, _)| !round.included.is_empty()))
    }
}

/// Why sites were not compared, as a sentence for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTested {
    /// Only the sum is known.
    #[error("under aggregated trust no site's vector is known to anybody, only their sum")]
    Aggregated,
    /// Nothing is derived for this update.
    #[error("for what this update sends no test of single sites is known")]
    Update,
    /// DP optimisation.
    #[error(
        "an update is the outcome of several noised steps, and the visits measured nothing beside it; optimizer = \"preconditioned\" of a regression does"
    )]
    Steps,
    /// No noise.
    #[error("nothing was noised, so the sites' factors can be compared as they are")]
    NoNoise,
    /// Updates may be late.
    #[error("updates of an asynchronous run start from different states")]
    Late,
    /// There is no other site to compare with.
    #[error("fewer than two sites took part")]
    OneSite,
    /// Nothing was released yet.
    #[error("no round has brought a gradient yet")]
    NoRound,
    /// Too many coefficients.
    #[error("the model has more than {0} coefficients, too many to decompose a matrix for every site")]
    TooLarge(usize),
    /// The vectors are gone.
    #[error("the server did not keep what the sites sent after their round had closed ([store] keep_updates = \"all\" does)")]
    NotKept,
    /// Other bytes than were sent.
    #[error("what is stored of a site is not what it sent")]
    Damaged,
    /// More than fits into memory.
    #[error("the sites sent too many numbers to hold all of them at once")]
    TooMany,
    /// The model itself says that they differ.
    #[error("the formula has effects of sites: how far sites differ is what they and their common scale say")]
    OwnEffects,
    /// Not finite.
    #[error("the released sums left the range of what can be computed")]
    Diverged,
}

/// Differences between sites that are no alarm: 0.15 and 0.05 standard deviations of the outcome on the scale of the linear predictor, which are 2 for a logit and
/// a logarithm, 1 for a probit, and the noise's for a number.
#[must_use]
pub fn allowance(model: &ModelSpec) -> Allowance {
    let unit = model.rules().response().sd;
    Allowance { intercept: 0.15 * unit, others: 0.05 * unit }
}
