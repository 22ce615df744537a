//! The filter of a ledger that books whole runs: every run's envelope, and what all of them together read.
//!
//! # Privacy
//! Theorem, proof and the rule for a ledger's first run: [`crate::proofs::envelopes`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::composition::{Composition, MOST_COORDINATES};
use super::envelope::{Envelope, Profile};
use super::losses::REACH;
use super::{AccountantError, Charge, Gdp, MARGIN, Method, Prices, PrivacyLoss, count};
use crate::event::DpEvent;
use crate::unit::{Delta, Epsilon};

/// F over δ: what all φ together may come to. It is fixed, and readings are at δ − F, whatever was booked.
const FAILURE: f64 = 0.1;
/// Share of what is left of F that one run may take for its envelope.
const MOST: f64 = 0.1;
/// More than the roundings of a sum of squares.
const ROUNDED: f64 = 1e-12;
/// Costs of runs that are kept for the next question.
const KEPT: usize = 64;

/// What a run whose events are fixed beforehand costs, its releases without protection left out.
#[derive(Debug)]
pub struct RunCost {
    composition: Composition,
    /// The δ at which envelopes are made.
    delta: Delta,
    /// ε at that δ, once it was asked.
    alone: OnceLock<PrivacyLoss>,
    cover: Cover,
    /// What discrete noise and black boxes add to the probability with which no envelope holds.
    added: f64,
}

/// Where envelopes come from.
#[derive(Debug)]
enum Cover {
    /// Unsampled Gaussian noise is a Gaussian.
    Exact(Gdp),
    Profile(Profile),
    /// There is none: a run of so weak a protection can only be a ledger's first and last.
    Missing,
}

type Known = HashMap<(Vec<u8>, u64), Arc<RunCost>>;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

impl RunCost {
    /// Cost of a run of these events, each with how often it comes. What was asked lately is not computed again.
    ///
    /// # Errors
    /// An event that no engine bounds.
    pub fn of(events: &[(DpEvent, u64)], prices: &Prices, delta: Delta) -> Result<Arc<Self>, AccountantError> {
        let mut composition = Composition::default();
        for (event, times) in events {
            composition.add(&prices.of(event)?, *times);
        }
        let key = (composition.to_bytes(prices.relation), delta.get().to_bits());
        let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cost) = lock().as_ref().and_then(|known| known.get(&key)) {
            return Ok(Arc::clone(cost));
        }
        let cost = Arc::new(Self::new(composition, delta));
        let mut known = lock();
        let known = known.get_or_insert_default();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, Arc::clone(&cost));
        Ok(cost)
    }

    fn new(composition: Composition, delta: Delta) -> Self {
        let (cover, added) = Self::cover(&composition, delta);
        Self { composition, delta, alone: OnceLock::new(), cover, added }
    }

    fn cover(composition: &Composition, delta: Delta) -> (Cover, f64) {
        if let Some((gdp, added)) = composition.gdp().and_then(|gdp| lattice(gdp, composition.coordinates())) {
            return (Cover::Exact(gdp), added);
        }
        let losses = || {
            let added = composition.discrete_addition()?;
            let profile = Profile::of(&composition.plan()?, delta).filter(|profile| profile.reaches() <= REACH)?;
            Some((Cover::Profile(profile), added))
        };
        losses().or_else(|| renyi(composition, delta)).unwrap_or((Cover::Missing, 0.0))
    }

    /// Whether a release without protection is in the run.
    #[must_use]
    pub fn non_private(&self) -> bool {
        self.composition.non_private()
    }

    /// ε of the run's protected releases alone.
    #[must_use]
    pub fn loss(&self, delta: Delta) -> PrivacyLoss {
        if delta == self.delta { *self.alone.get_or_init(|| self.composition.plan_loss(delta)) } else { self.composition.plan_loss(delta) }
    }

    /// The envelope of a filter in which the φ booked so far come to `failure`. `None`: no Gaussian covers the run with what is left of F.
    #[must_use]
    pub fn envelope_after(&self, failure: f64) -> Option<Envelope> {
        match &self.cover {
            Cover::Exact(gaussian) => Some(Envelope { gaussian: *gaussian, failure: self.added }),
            Cover::Profile(profile) => {
                let most = MOST * (FAILURE * self.delta.get() - failure - self.added);
                profile.largest_within(most, self.delta, self.added)
            }
            Cover::Missing => None,
        }
    }

    /// What a run that was booked as within `stated` is booked as today: the same where that is confirmed, else the smallest envelope with the same
    /// failure. A better accountant never makes a booked run cheaper, one that finds a fault makes it dearer.
    #[must_use]
    pub fn confirmed(&self, stated: Envelope) -> Option<Envelope> {
        match &self.cover {
            Cover::Exact(gaussian) => {
                let covered = stated.gaussian.mu() >= gaussian.mu() && stated.failure >= self.added;
                Some(if covered { stated } else { Envelope { gaussian: *gaussian, failure: self.added } })
            }
            Cover::Profile(profile) => {
                let failure = (stated.failure - self.added).max(0.0);
                if profile.is_within(stated.gaussian, failure) {
                    return Some(stated);
                }
                let envelope = profile.envelope(failure)?;
                Some(Envelope { failure: stated.failure, ..envelope })
            }
            Cover::Missing => None,
        }
    }
}

/// μ of discrete noise accounted as continuous, and what that adds to δ. `None` where nothing is proved.
fn lattice(gdp: Gdp, coordinates: f64) -> Option<(Gdp, f64)> {
    if coordinates == 0.0 || gdp.mu() == 0.0 {
        return Some((gdp, 0.0));
    }
    let drift = gdp.lattice_drift(coordinates)?;
    // 4N e^−200, far below the smallest δ that anyone asks for.
    let tail = 4.0 * coordinates * 1.4e-87;
    Some((Gdp::of_ratio(gdp.mu() * (1.0 + 1e-13)), 3.2 * drift + tail))
}

/// By Rényi divergences, for what has no loss distribution.
fn renyi(composition: &Composition, delta: Delta) -> Option<(Cover, f64)> {
    let (curve, margin) = composition.curve();
    if margin && composition.coordinates() > MOST_COORDINATES {
        return None;
    }
    let profile =
        Profile::of_curve(&curve, if margin { MARGIN } else { 1.0 }, delta).filter(|profile| !margin || profile.reaches() <= REACH)?;
    Some((Cover::Profile(profile), composition.failure() * (1.0 + 1e-12)))
}

/// The runs that a filter has admitted.
#[derive(Debug, Clone, Default)]
pub struct Runs {
    /// What was booked, less what was given back.
    sum: Envelope,
    /// The largest μ² that the sum ever had: what every budget must have held at that moment.
    peak: Gdp,
    protected: Protected,
    /// Whether one of them has no envelope.
    uncovered: bool,
    non_private: bool,
}

/// The runs with any protection.
#[derive(Debug, Clone, Default)]
enum Protected {
    #[default]
    None,
    One(Arc<RunCost>),
    Several,
}

impl Runs {
    /// Adds a run that was booked as within this envelope.
    pub fn add(&mut self, run: &Arc<RunCost>, envelope: Option<Envelope>) {
        self.non_private |= run.non_private();
        if run.composition.costs().next().is_none() {
            return;
        }
        self.protected = match self.protected {
            Protected::None => Protected::One(Arc::clone(run)),
            Protected::One(_) | Protected::Several => Protected::Several,
        };
        match envelope {
            Some(envelope) => self.sum = self.sum.and(envelope),
            None => self.uncovered = true,
        }
        if self.sum.gaussian.mu_squared() > self.peak.mu_squared() {
            self.peak = self.sum.gaussian;
        }
    }

    /// Gives back the μ² of visits that will never be released, each with how often it comes: of those that are unsampled Gaussians, and nothing of φ. Returns it.
    ///
    /// # Privacy
    /// The visits belong to runs that were added here, none of them was reserved, and none will ever be: [`crate::proofs::envelopes`], "Visits that are renounced".
    pub fn renounce(&mut self, visits: &[(Charge, u64)]) -> f64 {
        if self.uncovered {
            return 0.0;
        }
        let squared = |(charge, times): &(Charge, u64)| charge.unsampled_squared() * count(*times);
        // Rounded down: the sum keeps at least what is left.
        let back = visits.iter().map(squared).sum::<f64>() * (1.0 - ROUNDED);
        let before = self.sum.gaussian.mu_squared();
        let back = back.clamp(0.0, before);
        if let Some(rest) = Gdp::of_mu_squared((before - back).next_up()).filter(|_| back > 0.0) {
            self.sum.gaussian = rest;
        }
        back
    }

    /// All envelopes together.
    #[must_use]
    pub fn envelope(&self) -> Envelope {
        self.sum
    }

    /// Whether a release without protection was added.
    #[must_use]
    pub fn non_private(&self) -> bool {
        self.non_private
    }

    /// What the filter reads: the smallest ε, at this δ, of a budget whose filter would have admitted everything so far, each run at its time. Releases without
    /// protection are left out. The first run reads its own ε as long as it is the only one.
    #[must_use]
    pub fn protected_loss(&self, delta: Delta) -> PrivacyLoss {
        self.read(self.peak, delta)
    }

    /// What is spent of a budget of `limit`: the same, less what renounced visits gave back. Where envelopes alone do not keep to the budget (a first run that its own
    /// ε admitted), nothing is given back.
    fn protected_spent(&self, limit: Epsilon, delta: Delta) -> PrivacyLoss {
        let gaussian = if self.together(self.peak, delta).epsilon <= limit { self.sum.gaussian } else { self.peak };
        self.read(gaussian, delta)
    }

    /// All runs by their envelopes.
    fn together(&self, gaussian: Gdp, delta: Delta) -> PrivacyLoss {
        let within = !self.uncovered && self.sum.failure <= FAILURE * delta.get();
        let rest = Delta::new(delta.get() * (1.0 - FAILURE));
        let epsilon = rest.map_or(Epsilon::INFINITE, |rest| if within { gaussian.epsilon_upper(rest) } else { Epsilon::INFINITE });
        PrivacyLoss { epsilon, delta, method: Method::Envelopes, numerical_margin: self.sum.failure > 0.0 }
    }

    fn read(&self, gaussian: Gdp, delta: Delta) -> PrivacyLoss {
        let together = self.together(gaussian, delta);
        let Protected::One(run) = &self.protected else { return together };
        let alone = run.loss(delta);
        // Both are bounds; where they are as good as each other, its own is what its statement says.
        if alone.epsilon.get() <= together.epsilon.get() * (1.0 + 1e-6) { alone } else { together }
    }

    /// [`Runs::protected_loss`]; ε = ∞ with a release without protection.
    #[must_use]
    pub fn loss(&self, delta: Delta) -> PrivacyLoss {
        self.unless_non_private(delta, || self.protected_loss(delta))
    }

    /// `protected_spent`; ε = ∞ with a release without protection.
    #[must_use]
    pub fn spent(&self, limit: Epsilon, delta: Delta) -> PrivacyLoss {
        self.unless_non_private(delta, || self.protected_spent(limit, delta))
    }

    fn unless_non_private(&self, delta: Delta, loss: impl FnOnce() -> PrivacyLoss) -> PrivacyLoss {
        if self.non_private {
            return PrivacyLoss { epsilon: Epsilon::INFINITE, delta, method: Method::NonPrivate, numerical_margin: false };
        }
        loss()
    }
}

#[cfg(test)]
mod tests;
