//! A posterior without one of its sites: what the site released is divided out, under local trust.
//!
//! λ = λ0 + Σ λ_m + Σ r holds by construction: a site's factor is λ_m = Σ_t ρ_t Δ_mt over the rounds that included it, and can be rebuilt from what the server
//! received. A noise-aware posterior is computed again from the measurements of the other sites (`noise_aware`, file `sites.rs`).
//!
//! It is **no erasure**. The other sites' later releases were made at points that the site had moved, and still depend on it; its charges stay.

use crate::methods::agreement::SiteReleases;
use crate::methods::noise_aware::Absent;
use crate::methods::{PviRule, Rule, Setting, VisitSum};
use dp_pvi_math::scales::ScaleSummary;

/// The posterior of a run without one site.
#[derive(Debug, Clone, PartialEq)]
pub struct Divided {
    /// In the task's family.
    pub natural_parameters: Vec<f64>,
    /// Whether the noise of the others is in it.
    pub noise: Noise,
    /// Directions whose precision fell below the prior's and was raised to it.
    pub raised: usize,
    /// Of the noise-aware posterior: summary of the scale of every group of the prior.
    pub scales: Vec<Option<ScaleSummary>>,
    /// The same as it came out of the run, without the noise, where it contains the noise.
    pub plain: Option<Vec<f64>>,
}

/// What became of the noise of the sites that are left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// The intervals contain it.
    Contained {
        /// As in the noise-aware posterior.
        signal_to_noise: f64,
    },
    /// Why they do not, or why there is none.
    Left(Absent),
}

/// Why a site cannot be divided out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undividable {
    /// Only the sum is known.
    #[error("under aggregated trust no site's vector is known to anybody, only their sum: run the task again without the site")]
    Aggregated,
    /// Nothing belongs to a site.
    #[error("nothing in the posterior of this update is one site's alone and could be divided out: run the task again without the site")]
    Update,
    /// Updates may be late.
    #[error("updates of an asynchronous run start from different states: run the task again without the site")]
    Late,
    /// Without a Gram matrix.
    #[error(
        "a diagonal preconditioner releases nothing of the correlations, too little to do without a site: run the task again without it"
    )]
    Correlations,
    /// There is no other site in it, or this site is not in it.
    #[error("no round contains the site together with others, or after it: there is nothing to divide")]
    Nothing,
    /// The vectors are gone.
    #[error(
        "the server did not keep what the sites sent after their round had closed ([store] keep_updates = \"all\" does): run the task again without the site"
    )]
    NotKept,
    /// More than fits into memory.
    #[error("the sites sent too many numbers to hold all of them at once: run the task again without the site")]
    TooMany,
    /// The scale of the sites' effects was learned with this site.
    #[error("the formula has effects of sites, whose scale was learned from all of them: run the task again without the site")]
    OwnEffects,
    /// So was that of the observations.
    #[error("the scale of the observations was learned with this site: run the task again without it")]
    Scale,
    /// Not finite, or no distribution.
    #[error("what is left without the site is no distribution: run the task again without it")]
    Diverged,
}

/// λ − λ_m, with the floor of the rule where noise took too much precision with it.
pub(crate) fn of_factor(task: &Setting<'_>, releases: &SiteReleases<'_>, site: usize, noise: Absent) -> Result<Divided, Undividable> {
    let len = task.family().len();
    let rule = PviRule::new(task);
    let mut factor = vec![0.0; len];
    let (mut own, mut others) = (false, false);
    for (round, vectors) in releases.history.rounds.iter().zip(releases.vectors) {
        if vectors.len() != round.included.len() {
            return Err(Undividable::Diverged);
        }
        let rho = rule.damping(round.visit);
        for (_, vector) in round.included.iter().zip(vectors).filter(|(included, _)| **included == site) {
            // What an update tells beside its change follows it.
            let change = vector.get(..len).ok_or(Undividable::Diverged)?;
            factor.iter_mut().zip(change).for_each(|(f, change)| *f += rho * change);
            own = true;
        }
        others |= round.included.iter().any(|included| *included != site);
    }
    let state = match releases.history.rounds.last() {
        Some(round) if own && others => task.posterior(&round.state),
        _ => return Err(Undividable::Nothing),
    };
    let change: Vec<f64> = factor.iter().map(|f| -f).collect();
    let rule = PviRule::from_parts(task.family(), task.prior_natural(), task.model.rules().floor(), vec![1.0]);
    let step = Rule::apply(&rule, state, &VisitSum { visit: 0, sites: 1, sum: &change });
    // A factor that cannot be taken out leaves the state as it was.
    let left = step.state != state || change.iter().all(|c| *c == 0.0);
    if left && step.state.iter().all(|v| v.is_finite()) {
        Ok(Divided { natural_parameters: step.state, noise: Noise::Left(noise), raised: step.floored, scales: Vec::new(), plain: None })
    } else {
        Err(Undividable::Diverged)
    }
}
