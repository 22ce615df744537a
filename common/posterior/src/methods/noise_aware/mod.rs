//! The noise-aware posterior: intervals that include the noise which protects the records.
//!
//! A private run releases the likelihood's statistics with noise of known covariance. The plain posterior takes them as if they were
//! exact; its intervals are too narrow, and a noisy h over a small precision throws the mean far out. The noise-aware posterior
//! convolves the likelihood with the noise before it meets the prior. For a likelihood (h, H) and noise of covariance N on h,
//!
//! Λ_na = Λ0 + H (H + N)⁻¹ H,  h_na = h0 + H (H + N)⁻¹ h.
//!
//! This is Bayes' rule for a Gaussian likelihood with known H and Gaussian noise; without noise it is the plain posterior, and under
//! much noise the prior. It is computed from public numbers only, so it costs no privacy.
//!
//! [`of_run`](crate::reading::noise_aware::of_run) derives the noise that is left on the final posterior of a run from the run's public history: every released sum had
//! noise of known variance, and everything after a release is a public recursion.
//!
//! What it does not include: the bias of terms that a clip shortens (weighted records have none), and the approximation of the variational
//! family itself. Records with weights below 1 say more than their curvature counts: intervals are a little wider than they need be.

pub use crate::numerics::noisy_likelihood::{diagonal, full, statistic_variance};

/// A round that was closed, as its public record tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedRound {
    /// Number of the visit, from 0.
    pub visit: u32,
    /// Sites whose updates are in it, as positions in [`History::shares`].
    pub included: Vec<usize>,
    /// The state after it.
    pub state: Vec<f64>,
    /// r, where a floor moved the posterior.
    pub correction: Option<Vec<f64>>,
}

/// What is public about a run.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Share of every site in the declared units, in any fixed order of sites; adds up to 1.
    pub shares: Vec<f64>,
    /// All closed rounds.
    pub rounds: Vec<ClosedRound>,
}

/// The noise-aware posterior of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// Natural parameters, in the task's family.
    pub natural_parameters: Vec<f64>,
    /// ‖released‖²/(dimension·σ²) of the likelihood's precision as the run released it, averaged over visits: 1 is noise
    /// alone. Below [`LOW_SIGNAL`] the run had too few records, or too little budget, for so many parameters.
    pub signal_to_noise: f64,
}

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
