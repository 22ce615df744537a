//! The noise-aware posterior: intervals that include the noise which protects the records (algorithms section 13.3).
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
//! [`of_run`] derives the noise that is left on the final posterior of a run from the run's public history: every released sum had
//! noise of known variance, and everything after a release is a public recursion.
//!
//! What it does not include: the bias of terms that a clip shortens (weighted records have none), and the approximation of the variational
//! family itself. Records with weights below 1 say more than their curvature counts: intervals are a little wider than they need be.

mod affine;
mod dp_optimisation;
mod natural_gradient;

use dp_pvi_expfam::gaussian::full::{svec, svec_times, unsvec};
use nalgebra::{Cholesky, DMatrix, DVector};

use crate::task::{Optimizer, Preconditioner, ResolvedTask, UpdateSpec};

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

/// Whether [`of_run`] may have an answer: only then need the states of all rounds be read.
#[must_use]
pub fn is_known(task: &ResolvedTask) -> bool {
    // A late update started from the state before earlier rounds, of which the recursion knows nothing.
    if task.schedule.staleness().is_some() {
        return false;
    }
    match &task.update {
        UpdateSpec::DpOptimisation(spec) => spec.optimizer == Optimizer::Preconditioned,
        UpdateSpec::NaturalGradient(spec) => spec.preconditioner == Preconditioner::Gram,
        _ => false,
    }
}

/// The noise-aware posterior of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// Natural parameters, in the task's family.
    pub natural_parameters: Vec<f64>,
    /// ‖released‖²/(dimension·σ²) of the likelihood's precision as the run released it, averaged over visits (section 14): 1 is noise
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

/// The noise-aware posterior of a run. `None` where the noise on the posterior is not
/// known: exact updates have none, Adam divides by what it has seen, late updates of an asynchronous run started from older states, and other
/// updates bring their own covariance.
#[must_use]
pub fn of_run(task: &ResolvedTask, history: &History) -> Option<Posterior> {
    if !is_known(task) {
        return None;
    }
    match &task.update {
        UpdateSpec::DpOptimisation(spec) => dp_optimisation::posterior(task, spec, history),
        UpdateSpec::NaturalGradient(spec) => natural_gradient::posterior(task, spec, history),
        _ => None,
    }
}

/// Mean field: natural parameters [h; Λ] of the noise-aware posterior from those of the prior and of the released likelihood, and the
/// variance of the noise on every entry of the likelihood's h. A coordinate whose released precision is not positive says nothing:
/// the prior stays.
///
/// # Panics
/// Prior and likelihood do not have twice as many entries as there are variances.
#[must_use]
pub fn diagonal(prior: &[f64], likelihood: &[f64], noise: &[f64]) -> Vec<f64> {
    let d = noise.len();
    assert!(prior.len() == 2 * d && likelihood.len() == 2 * d, "mean-field parameters of another dimension");
    let mut natural = prior.to_vec();
    for (j, variance) in noise.iter().enumerate() {
        let precision = likelihood[d + j];
        if precision > 0.0 {
            let gain = precision / (precision + variance);
            natural[j] += gain * likelihood[j];
            natural[d + j] += gain * precision;
        }
    }
    natural
}

/// Full covariance: as [`diagonal`], with [h; svec Λ] and the covariance of the noise on h. `None` if H + N is not positive definite:
/// floor the released precision first.
///
/// # Panics
/// Blocks of different dimensions.
#[must_use]
pub fn full(prior: &[f64], likelihood: &[f64], noise: &DMatrix<f64>) -> Option<Vec<f64>> {
    let d = noise.nrows();
    let (h, precision) = likelihood.split_at(d);
    assert_eq!(prior.len(), likelihood.len(), "natural parameters of different families");
    let matrix = unsvec(precision, d);
    let factor = Cholesky::new(&matrix + noise)?;
    // H (H + N)⁻¹ H = WᵀW with W = L⁻¹H: symmetric and positive semidefinite whatever the rounding.
    let whitened = factor.l_dirty().solve_lower_triangular(&matrix)?;
    let shift = factor.solve(&DVector::from_column_slice(h));
    let mut natural = prior.to_vec();
    let (mean_block, precision_block) = natural.split_at_mut(d);
    mean_block.iter_mut().zip(svec_times(precision, shift.as_slice())).for_each(|(h, s)| *h += s);
    precision_block.iter_mut().zip(svec(&whitened.tr_mul(&whitened))).for_each(|(l, s)| *l += s);
    Some(natural)
}

/// Variance of the noise on every entry of h when h = Hμ + g is put together from a noisy gradient g at μ and a noisy precision H
/// released as svec: σ_g² + ½σ_H²(‖θ − μ‖² + …), where the error of H acts on the displacement of the posterior from μ.
/// `displacement` is ‖μ_posterior − μ‖² + tr Σ_posterior.
#[must_use]
pub fn statistic_variance(gradient_sd: f64, precision_sd: f64, displacement: f64) -> f64 {
    gradient_sd * gradient_sd + 0.5 * precision_sd * precision_sd * displacement
}

#[cfg(test)]
mod tests;
