//! What the runs of a row would release without noise, and the likelihood ratio of its two worlds where that decides it.
//!
//! A visit that releases one lattice sum releases m + c·u + noise in the first world and m + c·w + noise in the second: m is what the crowd adds, u
//! and w are the terms of the canary and of its opposite (0 where it is absent), c is the canary's coin (1 where nothing is sampled). All three are
//! found by running the shipped update with one seeded stream of noise in four worlds and subtracting: the noise cancels to the last bit. They are the same
//! in every run where the site keeps nothing, or noise-free state only, because λ is the same.
//!
//! With f(x; v) = ln(1 − q + q exp((⟨x, v⟩ − |v|²/2)/s²)) the score Σ f(y − m; u) − f(y − m; w) is then the logarithm of the likelihood ratio, up to what
//! separates the discrete Gaussian from the continuous one at s ≥ 2²⁰. Under sampling the crowd is silent, so m = 0 whatever its coins are. A score
//! need not be the exact ratio for a bound to hold: it only has to be chosen before the runs that are counted.

use dp_pvi_accounting::{DiscreteGaussian, DpEvent, Relation};
use dp_pvi_posterior::task::SiteStateForm;
use dp_pvi_privacy::Payload;

use super::AuditError;
use super::canary::Worlds;
use super::play::{Stage, Visit};
use dp_pvi_simulator::noise::SeededNoise;

/// Seeds that are tried until the canary's coin falls its way.
const SEEDS: u32 = 64;

/// Law of one visit.
struct Step {
    crowd: Vec<f64>,
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

impl Law {
    /// The law of these worlds; `None` where visits release something else than one sum, or depend on what was released before.
    pub(super) fn of(stage: &Stage<'_>, worlds: &Worlds) -> Result<Option<Self>, AuditError> {
        if matches!(stage.task.site_state(), SiteStateForm::Public(_)) {
            return Ok(None);
        }
        let mut steps: Vec<Step> = Vec::new();
        for seed in 0..SEEDS {
            let play = |units| stage.play(units, &worlds.silent, &SeededNoise::new(seed.into()), seed);
            let [first, second] = [play(&worlds.first)?, play(&worlds.second)?];
            let [without, silent] = [play(&worlds.without)?, play(&worlds.silent)?];
            let mut sampled = false;
            for (visit, of_first) in first.iter().enumerate() {
                let Some((_, scale, rate)) = release(&of_first.event) else { return Ok(None) };
                // The event of a sum has the s of one share: what is seen has the noise of all of them.
                let scale = scale * stage.vectors_seen().sqrt();
                let lattice = |visit: &Visit| match &visit.released {
                    Payload::Lattice(vector) => Some(vector.values.clone()),
                    _ => None,
                };
                let (Some(a), Some(b), Some(crowd), Some(noise)) =
                    (lattice(of_first), lattice(&second[visit]), lattice(&without[visit]), lattice(&silent[visit]))
                else {
                    return Ok(None);
                };
                sampled |= rate < 1.0;
                let step =
                    Step { crowd: difference(&crowd, &noise), first: difference(&a, &crowd), second: difference(&b, &crowd), scale, rate };
                match steps.get_mut(visit) {
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

    /// The logarithm of the likelihood ratio.
    pub(super) fn score(&self, visits: &[Visit]) -> f64 {
        let of = |(step, visit): (&Step, &Visit)| {
            let Payload::Lattice(vector) = &visit.released else { return 0.0 };
            #[allow(clippy::cast_precision_loss, reason = "a score")]
            let rest: Vec<f64> = vector.values.iter().zip(&step.crowd).map(|(y, m)| *y as f64 - m).collect();
            let against = |term: &[f64]| {
                let log = (dot(&rest, term) - 0.5 * dot(term, term)) / (step.scale * step.scale);
                if step.rate < 1.0 { mixed(step.rate, log) } else { log }
            };
            against(&step.first) - against(&step.second)
        };
        self.0.iter().zip(visits).map(of).sum()
    }

    /// μ of this pair of worlds, where nothing is sampled.
    pub(super) fn mu(&self) -> Option<f64> {
        let square = |step: &Step| {
            let apart: f64 = step.first.iter().zip(&step.second).map(|(u, w)| (u - w).powi(2)).sum();
            apart / (step.scale * step.scale)
        };
        self.0.iter().all(|step| step.rate >= 1.0).then(|| self.0.iter().map(square).sum::<f64>().sqrt())
    }

    /// The largest share of a visit's declared sensitivity by which the noise-free integer sums of the worlds differ: above 1 the claim is
    /// false, without any doubt.
    pub(super) fn sensitivity(&self, visits: &[Visit], relation: Relation) -> f64 {
        let share = |(step, visit): (&Step, &Visit)| {
            let (noise, _, _) = release(&visit.event)?;
            let apart: f64 = step.first.iter().zip(&step.second).map(|(u, w)| (u - w).powi(2)).sum();
            Some(apart.sqrt() / (noise.sensitivity_ratio(relation) * step.scale))
        };
        self.0.iter().zip(visits).filter_map(share).fold(0.0, f64::max)
    }
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

fn zero(values: &[f64]) -> bool {
    values.iter().all(|x| x.abs() <= 0.0)
}
