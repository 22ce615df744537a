//! The noise-aware posterior of bounded natural-gradient variational inference with its Gram preconditioner: every visit is a
//! [measurement](crate::methods::noise_aware::measurements) of the likelihood. With a mean field the Gram matrix has the correlations.

use dp_pvi_math::expfam::any::Gaussian;
use nalgebra::DVector;

use super::rule::ReleasedVisit;
use crate::methods::noise_aware::correlations::{Correlations, Products};
use crate::methods::noise_aware::measurements::{Measurement, Measurements, OnTheWay};
use crate::methods::noise_aware::weighted::Weighted;
use crate::methods::noise_aware::{Absent, ClosedRound, Contribution, History, LARGEST, OwnNoise, Posterior};
use crate::methods::{NaturalGradientRule, NaturalGradientSpec, NaturalGradientVisit, Rule, Setting};
use dp_pvi_models::ModelSpec;

/// Of all sites; or of all but one, whose part is taken out of every sum.
pub(crate) fn posterior(
    task: &Setting<'_>,
    spec: &NaturalGradientSpec,
    history: &History,
    without: Option<&Contribution>,
) -> Result<Posterior, Absent> {
    let family = task.family();
    let d = family.dimension();
    if d > LARGEST {
        return Err(Absent::TooLarge(LARGEST));
    }
    // What others showed will be added to what a site knows exactly: the posterior of all tells where that leads.
    let all = without.map(|_| posterior(task, spec, history, None)).transpose()?;
    let all = all.and_then(|all| Gaussian::from_natural(family, all.natural_parameters).ok());
    let near = all.map(|all| DVector::from_column_slice(all.standard().mean()));
    let rule = NaturalGradientRule::new(task, *spec);
    let Read { measurements, states, last } = measurements(&rule, spec, history, without).ok_or(Absent::Diverged)?;
    if measurements.is_empty() {
        return Err(Absent::NoRound);
    }
    let products = products(&rule, history, &last).ok_or(Absent::Diverged)?;
    let measurements = measurements.into_iter().map(|measurement| measurement.informed(task)).collect();
    let model = task.model_at(&last);
    let correlations = Correlations::new(&Setting { model: &model, ..*task }, Some(products));
    let mut gathered = history.rounds.iter().map(|round| &round.included).filter(|included| !included.is_empty());
    let first = gathered.next();
    let same = without.is_none() && gathered.all(|included| Some(included) == first);
    let correlations = if same { correlations } else { correlations.of_some() };
    let weighted = spec.weights_of(&model);
    // The model's curvature on the way is that of a record whose label is as expected there.
    let of_predictor = task.model.rules().has_two_classes() || task.model.rules().predictor().is_some_and(|p| p.has_constant_curvature());
    let on_the_way = if of_predictor { OnTheWay::Relinearised(model, spec.curvature_bound) } else { OnTheWay::Linear };
    let measurements = Measurements { family, measurements, correlations, weighted, on_the_way, prior: task.priors(), near };
    let extrapolated = measurements.extrapolated().ok_or(Absent::Diverged)?;
    let precision = rule.precision(&last, measurements.error_of_the_last(rule.window(), &extrapolated));
    // A level has as many records in all measurements where the same sites took part in all. What will be added to something else has what is linear alone.
    let natural_parameters = if same {
        let around = || states.iter().map(|state| NaturalGradientRule::point(family, state).ok()).collect();
        measurements.with_separation(&extrapolated, around).ok_or(Absent::Diverged)?
    } else {
        extrapolated.posterior.natural_parameters.clone()
    };
    Ok(Posterior { natural_parameters, precision, ..extrapolated.posterior })
}

impl NaturalGradientSpec {
    /// How records are weighted, where they are.
    pub(super) fn weights_of(&self, model: &ModelSpec) -> Option<Weighted> {
        let weighted =
            || Weighted { model: model.clone(), clip_norm: self.clip_norm.get(), curvature_weight: self.curvature_weight, scales: None };
        self.weighted.then(weighted)
    }
}

/// What was read off the states between visits.
struct Read {
    measurements: Vec<Measurement>,
    /// The states that they were released for.
    states: Vec<Vec<f64>>,
    /// The last state.
    last: Vec<f64>,
}

/// Reads what was released off the states between visits. `None` where a state is not one of this rule.
fn measurements(rule: &NaturalGradientRule, spec: &NaturalGradientSpec, history: &History, without: Option<&Contribution>) -> Option<Read> {
    let mut visits = Vec::new();
    let (mut before, mut last) = (rule.initial(), rule.initial());
    let before_len = before.len();
    for (number, round) in history.rounds.iter().enumerate().filter(|(_, round)| !round.included.is_empty()) {
        let after = &round.state;
        if !after.is_empty() && (after.len() != before_len || !after.iter().all(|v| v.is_finite())) {
            return None;
        }
        // A sum that could not be used left the state as it was.
        let known = !before.is_empty() && !after.is_empty() && *after != before;
        if known && spec.visit(round.visit) == NaturalGradientVisit::Gradient {
            match Part::of(without, number, round) {
                Part::Nothing => visits.push((rule.released(&before, after, round.visit, sites(round))?, before.clone())),
                Part::Some(sum, sites) if sites > 0 => {
                    let mut visit = rule.released(&before, after, round.visit, sites)?;
                    let own = rule.sent(sum, visit.square)?;
                    visit.gradient.iter_mut().zip(own.gradient).for_each(|(all, own)| *all -= own);
                    visit.curvature.iter_mut().zip(own.curvature).for_each(|(all, own)| *all -= own);
                    visits.push((visit, before.clone()));
                }
                Part::Some(..) | Part::Unknown => {}
            }
        }
        before.clone_from(after);
        if !after.is_empty() {
            last.clone_from(after);
        }
    }
    // Where the scale is learned, visits were at others than the last. Some that are far off would lead away from the mode.
    let square = rule.square(&last)?;
    if visits.iter().any(|(visit, _)| visit.is_near(square)) {
        visits.retain(|(visit, _)| visit.is_near(square));
    }
    let states = visits.iter_mut().map(|(_, state)| std::mem::take(state)).collect();
    let measurement = |released: ReleasedVisit| {
        let released = released.at(square);
        Measurement {
            point: DVector::from_vec(released.point),
            gradient: DVector::from_vec(released.gradient),
            curvature: DVector::from_vec(released.curvature),
            noise: DVector::from_vec(released.noise),
            curvature_noise: DVector::from_vec(released.curvature_noise),
        }
    };
    Some(Read { measurements: visits.into_iter().map(|(visit, _)| measurement(visit)).collect(), states, last })
}

/// The Gram matrix of a run in units of the last state's σ. The first round with a site released it. If the state after that round is unknown, the preconditioner of the last state is taken.
pub(super) fn products(rule: &NaturalGradientRule, history: &History, last: &[f64]) -> Option<Products> {
    let first = history.rounds.iter().find(|round| !round.included.is_empty());
    let state = first.map(|round| round.state.as_slice()).filter(|state| !state.is_empty()).unwrap_or(last);
    rule.products(state, first.map_or(0, sites), rule.square(last)?)
}

/// What is taken out of a round's sum.
enum Part<'a> {
    Nothing,
    /// This, and noise of so many sites is left (of one, where the sum's noise is not theirs).
    Some(&'a [f64], u32),
    Unknown,
}

impl<'a> Part<'a> {
    fn of(without: Option<&'a Contribution>, number: usize, round: &ClosedRound) -> Self {
        let Some(part) = without.filter(|part| round.included.contains(&part.site)) else { return Self::Nothing };
        let left = match part.noise {
            // A sum of one site alone says nothing of others.
            _ if round.included.len() < 2 => 0,
            OwnNoise::Goes => sites(round) - 1,
            OwnNoise::Stays => sites(round),
        };
        part.sums.get(number).and_then(Option::as_deref).map_or(Self::Unknown, |sum| Self::Some(sum, left))
    }
}

/// Number of sites in a round.
fn sites(round: &ClosedRound) -> u32 {
    u32::try_from(round.included.len()).unwrap_or(u32::MAX)
}
