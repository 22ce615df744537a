//! The noise-aware posterior: intervals that include the noise which protects the records.
//!
//! A private run releases the likelihood's statistics with noise of known covariance. The plain posterior takes them as if they were
//! exact; its intervals are too narrow, and a noisy h over a small precision throws the mean far out. The noise-aware posterior
//! convolves the likelihood with the noise before it meets the prior. For a likelihood (h, H) and noise of covariance N on h,
//!
//! Λ_na = Λ0 + H (H + N)⁻¹ H,  h_na = h0 + H (H + N)⁻¹ h.
//!
//! This is Bayes' rule for a Gaussian likelihood with known H and Gaussian noise; without noise it is the plain posterior, and under
//! much noise the prior. For an H that was released with noise see [`dp_pvi_math::uncertain_curvature`]. It is computed from public numbers only, so it costs no privacy.
//!
//! [`of_run`](crate::noise_aware::of_run) derives (h, H) and N from the public history of a run: every released sum had noise of known
//! variance, and everything after a release is a public recursion. It never takes a run for one that has converged: the released sums
//! say where the fixed point is.
//!
//! What it does not include: the bias of terms that a clip shortens (weighted records have none), and the approximation of the variational
//! family itself. How much less the scores of weighted records vary than their curvature says is
//! taken from moments.

pub(crate) mod correlations;
pub(crate) mod measurements;
mod separation;
pub(crate) mod sites;
mod structure;
mod unweighted;
pub(crate) mod weighted;

use serde::{Deserialize, Serialize};

use dp_pvi_math::observation::Precision;
use dp_pvi_math::scales::ScaleSummary;

pub use dp_pvi_math::noisy_likelihood::{diagonal, full, statistic_variance};

/// A closed round, from its public record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClosedRound {
    /// Number of the visit, from 0.
    pub visit: u32,
    /// Sites whose updates are in it, as positions in [`History::shares`].
    pub included: Vec<usize>,
    /// The state after it; empty where the caller does not know it ([`Contribution`]).
    pub state: Vec<f64>,
    /// r, where a floor moved the posterior.
    pub correction: Option<Vec<f64>>,
}

/// What is public about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Share of every site in the declared units, in any fixed order of sites; adds up to 1.
    pub shares: Vec<f64>,
    /// All closed rounds.
    pub rounds: Vec<ClosedRound>,
}

impl History {
    /// The history of sites with these declared units, in the order that the rounds' `included` counts.
    #[must_use]
    pub fn new(units: &[u64], rounds: Vec<ClosedRound>) -> Self {
        // Bounded where they were read; a store of another version may hold any number.
        let total: u128 = units.iter().map(|units| u128::from((*units).max(1))).sum();
        #[allow(clippy::cast_precision_loss, reason = "a share of units")]
        let shares = units.iter().map(|units| (*units).max(1) as f64 / total as f64).collect();
        Self { shares, rounds }
    }
}

/// What one site added to the sums of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Contribution {
    /// The site, as a position in [`History::shares`].
    pub site: usize,
    /// Its part of the sum of every round, in the order of [`History::rounds`]; `None` where it had none, or where it is not known.
    pub sums: Vec<Option<Vec<f64>>>,
    /// Whether its part took noise with it.
    pub noise: OwnNoise,
}

/// What becomes of the noise of a sum when one site's part is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnNoise {
    /// The part is what the site released: its own noise goes with it, and that of the others is left.
    Goes,
    /// The part is exact, and the sum's noise stays as it is.
    Stays,
}

/// The noise-aware posterior of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// Natural parameters, in the task's family.
    pub natural_parameters: Vec<f64>,
    /// ‖released‖²/(dimension·σ²) of the likelihood's precision as the run released it, averaged over visits: 1 is noise
    /// alone. Below [`LOW_SIGNAL`] the run had too few records, or too little budget, for so many parameters.
    pub signal_to_noise: f64,
    /// Share of the added uncertainty that is privacy noise; the rest is linearisation error between the points of release and the fixed point. If it is smaller,
    /// the share of records and noise in the whole uncertainty, which also counts the distance that a moving run still has to go. 1 for a run that has converged.
    /// `None` if the update does not separate the two.
    pub noise_share: Option<f64>,
    /// Posterior summary of the scale of every group of the prior, in their order; `None` if it follows from the coefficients as in a posterior without noise.
    pub scales: Vec<Option<ScaleSummary>>,
    /// The precision 1/σ² of an observation, where the run learned σ: without what the noise of the points adds to the residuals.
    pub precision: Option<Precision>,
}

/// Why a run has no noise-aware posterior, as a sentence for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// No noise was added.
    #[error("no noise was added, so the intervals are complete as they are")]
    NoNoise,
    /// No noise was added, and the last visit still moved the posterior.
    #[error("its last visit still moved the posterior by more than a tenth of a standard deviation, or changed one by more than 2 %")]
    Unsettled,
    /// The posterior of the run itself contains the noise.
    #[error("the update takes the noise into its posterior at its last round, so the intervals are complete as they are")]
    Included,
    /// It would have, at its last round.
    #[error("the update takes the noise into its posterior at its last round, before which the run ended")]
    Stopped,
    /// Nothing is derived for this update.
    #[error("for this update it is not known how much of the noise is left in the posterior")]
    Unknown,
    /// Updates may be late.
    #[error("updates of an asynchronous run start from older states, and how much of their noise is left in the posterior is not known")]
    Late,
    /// Not the preconditioned step.
    #[error("the optimiser scales its steps by what it has seen, noise included; optimizer = \"preconditioned\" has complete intervals")]
    Optimizer,
    /// Without a Gram matrix.
    #[error("a diagonal preconditioner releases nothing of the correlations; preconditioner = \"gram\" has complete intervals")]
    Correlations,
    /// A site was divided out.
    #[error("how much of the noise is left in a posterior from which a site was divided out is not known for this update")]
    Divided,
    /// Too many coefficients.
    #[error("the model has more than {0} coefficients, too many to decompose their matrix")]
    TooLarge(usize),
    /// Nothing was released yet.
    #[error("no round has brought a gradient yet")]
    NoRound,
    /// Visits without gradients.
    #[error("its visits do not send the gradients that they release; measured = true has complete intervals")]
    Unmeasured,
    /// Not finite, or no distribution.
    #[error("the released sums left the range of what can be computed: the run diverged")]
    Diverged,
}

impl Absent {
    /// Whether the intervals of the run's own posterior are complete without it.
    #[must_use]
    pub fn is_complete(self) -> bool {
        matches!(self, Self::NoNoise | Self::Included)
    }
}

/// Largest number of coefficients: matrices of this size are decomposed.
pub(crate) const LARGEST: usize = 512;

/// Signal-to-noise ratio of a released block below which a reader is warned.
pub const LOW_SIGNAL: f64 = 2.0;

/// ‖released‖²/(dimension·σ²) of a block with noise of standard deviation `sd` on every entry; 1 for noise alone.
#[must_use]
pub fn signal_to_noise(released: &[f64], sd: f64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a number of parameters is far below 2^52")]
    let dimension = released.len().max(1) as f64;
    released.iter().map(|v| v * v).sum::<f64>() / (dimension * sd * sd)
}

#[cfg(test)]
mod tests;
