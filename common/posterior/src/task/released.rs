//! What the released values of a run say, as the update of its task knows to read them. The words for people are in `dp-pvi-results`.

use super::{ModelSpec, ResolvedTask};
use crate::methods::agreement::{Compared, NotTested, SiteReleases};
use crate::methods::divided::{Divided, Undividable};
use crate::methods::noise_aware::{Absent, Contribution, History, Posterior};
use dp_pvi_math::observation::Precision;

impl ResolvedTask {
    /// Standard deviation of an observation's noise, where a state has learned it.
    #[must_use]
    pub fn learned_noise(&self, state: &[f64]) -> Option<f64> {
        self.update.rules().learned_noise(state).or_else(|| self.scale_at(state).map(|precision| precision.scale()))
    }

    /// The distribution of 1/σ² in a state, σ being the scale of an observation's noise, where the model has one that is learned.
    #[must_use]
    pub fn scale_at(&self, state: &[f64]) -> Option<Precision> {
        self.setting().scale_at(state)
    }

    /// The model with this scale of an observation's noise, where it is learned; else as it is.
    #[must_use]
    pub fn model_with(&self, scale: Option<f64>) -> ModelSpec {
        scale.and_then(|scale| self.model.rules().with_scale(scale)).unwrap_or_else(|| self.model.clone())
    }

    /// Whether [`Self::noise_aware`] may have an answer.
    ///
    /// # Errors
    /// Why it never has one.
    pub(crate) fn noise_is_known(&self) -> Result<(), Absent> {
        self.update.rules().noise_aware().map(|_| ())
    }

    /// The noise-aware posterior of a run with a public history.
    ///
    /// # Errors
    /// Why there is none.
    pub fn noise_aware(&self, history: &History) -> Result<Posterior, Absent> {
        self.update.rules().noise_aware()?.posterior(&self.setting(), history)
    }

    /// Whether a posterior without a site or [`Self::released_factor`] may have an answer.
    #[must_use]
    pub fn sums_can_be_parted(&self) -> bool {
        self.update.rules().parted().is_some()
    }

    /// The noise-aware posterior that the same sums give without one site's part in them. States that are not known are empty.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn noise_aware_without(&self, history: &History, part: &Contribution) -> Result<Posterior, Absent> {
        self.update.rules().parted().ok_or(Absent::Unknown)?.without(&self.setting(), history, part)
    }

    /// λ_k: what a site's released sums added to the posterior as it came out of the run. `None` where the rule adds up no sums, or where one of them is
    /// not known.
    #[must_use]
    pub fn released_factor(&self, history: &History, part: &Contribution) -> Option<Vec<f64>> {
        self.update.rules().parted()?.factor(&self.setting(), history, part)
    }

    /// Whether [`Self::agreement`] may have an answer.
    ///
    /// # Errors
    /// Why it never has one.
    pub fn sites_are_comparable(&self) -> Result<(), NotTested> {
        self.has_no_site_effects().map_err(|()| NotTested::OwnEffects)?;
        self.update.rules().comparable().map(|_| ())
    }

    /// Every site against all others, under local trust; `None` for a site that released no gradient.
    ///
    /// # Errors
    /// Why nothing was compared.
    pub fn agreement(&self, releases: &SiteReleases<'_>) -> Result<Vec<Option<Compared>>, NotTested> {
        self.has_no_site_effects().map_err(|()| NotTested::OwnEffects)?;
        self.update.rules().comparable()?.agreement(&self.setting(), releases)
    }

    /// The posterior without what one site released, under local trust.
    ///
    /// # Errors
    /// Why there is none.
    pub fn without(&self, releases: &SiteReleases<'_>, site: usize) -> Result<Divided, Undividable> {
        if self.model.rules().learned_scale().is_some() {
            return Err(Undividable::Scale);
        }
        self.has_no_site_effects().map_err(|()| Undividable::OwnEffects)?;
        self.update.rules().without(&self.setting(), releases, site)
    }

    fn has_no_site_effects(&self) -> Result<(), ()> {
        if self.design.as_ref().is_none_or(|design| design.sites.is_empty()) { Ok(()) } else { Err(()) }
    }
}
