//! What the runs of a row would release without noise, and the likelihood ratio of its two neighbours where that decides it.
//!
//! A visit that releases one lattice sum releases a + noise in the first data set and b + noise in the second. Both are found by running the shipped update with
//! a seeded stream of noise, and taking the noise of that stream away: it cancels to the last bit. They are the same in every run where the site keeps
//! nothing, or noise-free state only, because λ is decided before; other streams of noise check that. Where a site keeps what it released, they are
//! found anew for every run, from the state with which each of its visits began. Under sampling the background is silent, and a and b are the terms of
//! the canary and of its opposite (0 where it is absent) when its coin says that it is in the sample.
//!
//! With f(y; v) = ln(1 − q + q exp((⟨y, v⟩ − |v|²/2)/s²)), q = 1 where nothing is sampled, the score Σ f(y; a) − f(y; b) is then the logarithm of the
//! likelihood ratio, up to what separates the discrete Gaussian from the continuous one at s ≥ 2²⁰. A score need not be the exact ratio for a bound to hold: it
//! only has to be chosen before the runs that are counted.

use dp_pvi_accounting::{DiscreteGaussian, DpEvent, Relation};
use dp_pvi_names::Payload;
use dp_pvi_posterior::task::SiteStateForm;

use super::AuditError;
use super::canary::Neighbours;
use super::play::{Stage, Visit};
use crate::noise::SeededNoise;

/// Seeds that are tried until the canary's coin falls its way.
const SEEDS: u32 = 64;
/// Streams of noise that must agree about the sums.
const CHECKS: u32 = 2;
/// How far they may be apart, in units of s.
const AGREED: f64 = 1e-3;
/// Runs that are looked at where a visit's law follows from what was released.
const RUNS: u32 = 5;

/// Law of one visit.
struct Step {
    first: Vec<f64>,
    second: Vec<f64>,
    /// s of what is seen.
    scale: f64,
    /// q.
    rate: f64,
}

/// Law of a row.
pub(super) struct Law(Vec<Step>);

/// The one lattice release of an event: the mechanism, s of one vector's noise, q.
fn release(event: &DpEvent) -> Option<(DiscreteGaussian, f64, f64)> {
    #[allow(clippy::cast_precision_loss, reason = "at most 2^21")]
    match event {
        DpEvent::DiscreteGaussian(noise) => Some((*noise, noise.scale as f64, 1.0)),
        DpEvent::PoissonSampled { rate, event } => release(event).map(|(noise, scale, inner)| (noise, scale, inner * rate.get())),
        _ => None,
    }
}

/// Whether the site keeps what it released: then a visit's law follows from what was released before it.
pub(super) fn follows(stage: &Stage<'_>) -> bool {
    matches!(stage.task.site_state(), SiteStateForm::Public(_))
}

impl Law {
    /// The law of these neighbours; `None` where visits release something else than one sum, or it is not the same in every run. Where it follows from what
    /// was released, noise included, it is that of the run among some in which the neighbours are furthest apart: everyone sees which run it was.
    pub(super) fn of(stage: &Stage<'_>, neighbours: &Neighbours) -> Result<Option<Self>, AuditError> {
        if follows(stage) {
            let mut furthest: Option<Self> = None;
            for seed in 0..RUNS {
                let run = stage.play(&neighbours.asked, &neighbours.first, &neighbours.silent, &SeededNoise::new(seed.into()), 0)?;
                let Some(law) = Self::following(stage, neighbours, 0, &run)? else { return Ok(None) };
                if furthest.as_ref().is_none_or(|known| law.mu() > known.mu()) {
                    furthest = Some(law);
                }
            }
            return Ok(furthest);
        }
        Self::of_runs(stage, neighbours, 0)
    }

    /// Whether other streams of noise give the same law, or it is found for every run anyway.
    pub(super) fn is_stable(&self, stage: &Stage<'_>, neighbours: &Neighbours) -> Result<bool, AuditError> {
        if follows(stage) || self.0.iter().any(|step| step.rate < 1.0) {
            return Ok(true);
        }
        for seed in 1..CHECKS {
            let Some(other) = Self::of_runs(stage, neighbours, seed)? else { return Ok(false) };
            let close = |(mine, other): (&Step, &Step)| {
                [distance(&mine.first, &other.first), distance(&mine.second, &other.second)]
                    .iter()
                    .all(|apart| *apart <= AGREED * mine.scale)
            };
            if !self.0.iter().zip(&other.0).all(close) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The law of runs from this number on: one of them, or as many as it takes for a sample with the canary.
    fn of_runs(stage: &Stage<'_>, neighbours: &Neighbours, number: u32) -> Result<Option<Self>, AuditError> {
        let mut steps: Vec<Step> = Vec::new();
        for number in number..number + SEEDS {
            let noise = SeededNoise::new(number.into());
            let play = |units| stage.play(&neighbours.asked, units, &neighbours.silent, &noise, number);
            let [first, second] = [play(&neighbours.first)?, play(&neighbours.second)?];
            let mut sampled = false;
            for (visit, (of_first, of_second)) in (0u32..).zip(first.iter().zip(&second)) {
                let (Payload::Lattice(a), Payload::Lattice(b)) = (&of_first.released, &of_second.released) else { return Ok(None) };
                let drawn = (number, visit);
                let Some(step) = step(stage, &of_first.event, &noise, drawn, [&a.values, &b.values])? else { return Ok(None) };
                sampled |= step.rate < 1.0;
                match steps.get_mut(visit as usize) {
                    None => steps.push(step),
                    // A canary that was in no sample yet is taken from the first one that it is in.
                    Some(known) => {
                        if zero(&known.first) {
                            known.first = step.first;
                        }
                        if zero(&known.second) {
                            known.second = step.second;
                        }
                    }
                }
            }
            if !sampled {
                break;
            }
        }
        Ok(Some(Self(steps)))
    }

    /// The law of a run of this number, given the state with which each visit began. That is public, and so the same in both neighbours. A layout of shards
    /// follows from the number: no more than what an attacker may know, as the claim holds for every layout.
    pub(super) fn following(stage: &Stage<'_>, neighbours: &Neighbours, number: u32, run: &[Visit]) -> Result<Option<Self>, AuditError> {
        let noise = SeededNoise::new(0);
        let mut steps = Vec::with_capacity(run.len());
        for (visit, seen) in (0u32..).zip(run) {
            let state = seen.state.as_deref().unwrap_or(&[]);
            let again = |units| stage.again(&neighbours.asked, units, &noise, number, (visit, state));
            let (Payload::Lattice(a), Payload::Lattice(b)) = (again(&neighbours.first)?, again(&neighbours.second)?) else {
                return Ok(None);
            };
            let Some(step) = step(stage, &seen.event, &noise, (number, visit), [&a.values, &b.values])? else { return Ok(None) };
            steps.push(step);
        }
        Ok(Some(Self(steps)))
    }

    /// The logarithm of the likelihood ratio.
    pub(super) fn score(&self, visits: &[Visit]) -> f64 {
        let of = |(step, visit): (&Step, &Visit)| {
            let Payload::Lattice(vector) = &visit.released else { return 0.0 };
            #[allow(clippy::cast_precision_loss, reason = "a score")]
            let seen: Vec<f64> = vector.values.iter().map(|y| *y as f64).collect();
            let against = |sum: &[f64]| {
                let log = (dot(&seen, sum) - 0.5 * dot(sum, sum)) / (step.scale * step.scale);
                if step.rate < 1.0 { mixed(step.rate, log) } else { log }
            };
            against(&step.first) - against(&step.second)
        };
        self.0.iter().zip(visits).map(of).sum()
    }

    /// μ of this pair of neighbours, where nothing is sampled.
    pub(super) fn mu(&self) -> Option<f64> {
        let square = |step: &Step| (distance(&step.first, &step.second) / step.scale).powi(2);
        self.0.iter().all(|step| step.rate >= 1.0).then(|| self.0.iter().map(square).sum::<f64>().sqrt())
    }

    /// The largest share of a visit's declared sensitivity by which the noise-free integer sums of the neighbours differ: above 1 the claim is
    /// false, without any doubt.
    pub(super) fn sensitivity(&self, visits: &[Visit], relation: Relation) -> f64 {
        let share = |(step, visit): (&Step, &Visit)| {
            let (noise, _, _) = release(&visit.event)?;
            Some(distance(&step.first, &step.second) / (noise.sensitivity_ratio(relation) * step.scale))
        };
        self.0.iter().zip(visits).filter_map(share).fold(0.0, f64::max)
    }
}

/// The law of a visit from what it released in the two neighbours with this noise: (number, visit) says where that was drawn.
fn step(
    stage: &Stage<'_>,
    event: &DpEvent,
    source: &SeededNoise,
    drawn: (u32, u32),
    released: [&[i64]; 2],
) -> Result<Option<Step>, AuditError> {
    let Some((mechanism, scale, rate)) = release(event) else { return Ok(None) };
    let noise = stage.noise(&mechanism, source, drawn)?;
    if released.iter().any(|values| values.len() != noise.len()) {
        return Ok(None);
    }
    let [first, second] = released.map(|values| difference(values, &noise));
    // The event of a sum has the s of one share: what is seen has the noise of all of them.
    Ok(Some(Step { first, second, scale: scale * stage.vectors_seen().sqrt(), rate }))
}

/// ln(1 − q + q e^x).
fn mixed(rate: f64, log: f64) -> f64 {
    if log > 30.0 { log + rate.ln() } else { (rate * log.exp_m1()).ln_1p() }
}

#[allow(clippy::cast_precision_loss, reason = "scores need no more than 53 bits")]
fn difference(a: &[i64], b: &[i64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a.wrapping_sub(*b) as f64).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

fn zero(values: &[f64]) -> bool {
    values.iter().all(|x| x.abs() <= 0.0)
}
